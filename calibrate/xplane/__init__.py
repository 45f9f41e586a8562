"""From profiles that tf.profiler or the TensorBoard callback wrote (XPlane) to a workload, without any run of ours."""
