"""Runs one replication of a program: its random draws, the engines (``textbook`` and ``production``), and what they measure."""
