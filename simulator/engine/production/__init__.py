"""What users get: a program run in tables and machine code (``compiled``), or all of its ranks computed at once (``at_once``).

``interpreter`` and ``rank`` walk operations; ``device``, ``rules``, ``updates`` and ``collectives`` are what operations meet; ``flows``,
``ports``, ``fairness``, ``admission``, ``queues`` and ``cores`` the network; ``calendar`` and ``loop`` simulated time. ``record`` keeps
what happens, ``compiled`` does what needs Python. Where ranks meet in collectives alone, ``at_once`` does without all of it, with
``fusing``. ``interpreter`` and what it calls are made
into machine code, once, by ``compiling``, which alone imports numba; ``machine`` keeps that code and calls it.
``simulator.engine.textbook`` is an independent model of the same: tests/property/test_engines_agree.py compares the two.
"""
