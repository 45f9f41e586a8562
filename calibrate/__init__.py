"""Calibration: real TensorFlow steps, transfers and profiles become specifications that the simulator reads.

``probe -> measurements -> fit -> workload.toml``: a probe (``calibrate/probes``) runs as a child process in the user's own
Python and writes a measurement file, line by line; a fit (``calibrate/fit``) reads it and makes a workload, a cluster or an
input pipeline. ``calibrate/testbed`` runs real clusters on this machine, ``calibrate/validation`` compares predictions with measurements.
"""
