"""Real distributed TensorFlow runs on this machine: what to run, running it, reading what was measured."""
