"""The compiled engine: the kernel, the network and the cores of the SimPy engine again, in tables and machine code.

Each module here stands beside the one that it follows, with the same names: ``calendar``
beside ``simulator.network.kernel``; ``ports``, ``fairness``, ``flows``, ``admission`` and
``queues`` beside those of ``simulator.network``; ``cores`` beside ``simulator.network.cores``;
``rank``, ``rules``, ``updates``, ``collectives`` and ``inputs`` beside those of ``simulator.engine.simpy``.
What happens, in which order, and every rounding are the same; where the reference has an
ordered dictionary, there is a linked list here. ``interpreter`` does what happens, code by
code; ``engine`` does what needs Python. Only this package imports numba.
"""
