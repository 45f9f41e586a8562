"""Collectives: what the ranks of a group send one another, and when each has ended.

An algorithm is a :class:`~simulator.program.schedule.Schedule` of messages (``rings``, ``trees``, ``pairwise``, ``switches``). A
:class:`~simulator.collectives.collective.Collective`, which :func:`~simulator.collectives.factory.collective_for` makes, joins it to a
group of ranks, a network and a protocol (``wire``), and knows two ways to its times: message by message, by an engine, and for all ranks
at once (``Collective.finish_s``). Where a module has both, messages and recurrence describe the same: change them together
(tests/oracle/test_collectives.py, test_groups.py and test_fabrics.py compare them).
"""
