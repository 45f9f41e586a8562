"""The compiled engine: runs a program in tables and machine code.

``interpreter`` and ``rank`` walk operations; ``device``, ``inputs``, ``rules``, ``updates``, ``gatherings`` and ``collectives`` are what
operations meet; ``flows``, ``ports``, ``fairness``, ``ample``, ``background``, ``admission``, ``queues`` and ``cores`` the network;
``calendar`` and ``loop`` simulated time. ``record`` keeps what happens, ``engine`` does what needs Python. Only this package imports
numba. ``simulator.engine.textbook`` is an independent model of the same: tests/property/test_engines_agree.py compares the two.
"""
