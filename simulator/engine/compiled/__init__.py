"""The compiled engine: does what the SimPy engine and its network do, in tables and machine code.

Each module follows another one, with the same names, and changes with it. ``simulator.network``: ``calendar`` and ``loop`` follow
``kernel``; ``ports`` and ``ample``, ``fairness``, ``flows`` and ``background``, ``admission``, ``queues`` and ``cores`` those of their
names. ``simulator.engine.simpy``: ``interpreter`` and ``rank`` follow ``engine``, ``rank`` and ``accounts``; ``record`` its ``recorder``;
``device``, ``inputs``, ``rules``, ``updates`` those of their names; ``gatherings`` a class of ``collectives``. ``collectives`` follows
``simulator.collectives.message_level``. What happens, in which order, and every rounding are the same; where the reference has an
ordered dictionary, there is a linked list here. ``engine`` does what needs Python. Only this package imports numba.
tests/oracle/test_compiled_network.py, tests/oracle/test_compiled_collectives.py and tests/property/test_engines_agree.py hold them
equal.
"""
