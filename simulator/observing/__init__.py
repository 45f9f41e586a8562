"""Observers of a run, and what is made of its records: traces, critical paths, waiting for others, events for TensorBoard.

Records are those of ``simulator.base.records``; engines make them. ``paceline.observing`` puts this to use for ``--trace``,
``--tensorboard`` and ``--audit``; the invariants of an audit are in ``simulator.checks``.
"""
