"""Runs one replication of a program: its random draws, the engines (``simpy``, ``compiled``, ``vectorised``), and what they measure."""
