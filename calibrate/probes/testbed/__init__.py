"""A real TensorFlow cluster on this machine: its hosts, its links, its ways of training.

Runs in the user's Python and imports nothing of ours; ``run.py`` is the script.
"""
