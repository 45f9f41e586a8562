"""Runs one replication of a program: its random draws, the engines (``textbook``, and ``production`` in two ways), and what they measure."""
