"""Real TensorFlow clusters on this machine: what to run, running it, reading it, fitting the machine, predicting other settings."""
