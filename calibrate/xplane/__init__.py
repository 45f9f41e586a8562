"""Reads profiles (XPlane) that tf.profiler or the TensorBoard callback wrote; calibrate/fit/profile.py fits a workload to them."""
