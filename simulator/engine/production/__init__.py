"""The production engine: a program run in tables and machine code (``compiled``), or all of its ranks computed at once (``at_once``).

``interpreter`` and ``rank`` walk operations; ``device``, ``rules``, ``updates`` and ``collectives`` are what operations meet; ``flows``,
``ports``, ``fairness``, ``admission``, ``queues`` and ``cores`` the network; ``calendar`` and ``loop`` simulated time. ``record`` keeps
what happens, ``compiled`` does what needs Python. If ranks meet only in collectives, ``at_once`` does without all of it, with ``fusing``.
``by_numba`` compiles ``interpreter`` and what it calls once; it is the only module that imports numba; ``machine`` keeps that code
and calls it. Without numba, or where no code can be kept, ``machine`` calls ``interpreter`` in Python: slower, with the same results.
``simulator.engine.textbook`` is an independent model of the same: tests/property/test_engines_agree.py compares the two.
"""
