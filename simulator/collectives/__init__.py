"""Collectives: what the ranks of a group send one another, and when each has ended.

An algorithm is a :class:`Schedule` of messages. A :class:`Collective` joins it to a group
of ranks, a network and a protocol, and knows two ways to its times: message by message
(:class:`ByMessages`), and for all ranks at once (``Collective.finish_s``).
"""

from simulator.collectives.auto import Auto
from simulator.collectives.by_messages import ByMessages, leave_out_ample_of
from simulator.collectives.collective import Choice, Collective, Plan
from simulator.collectives.factory import collective_for
from simulator.collectives.operations import ALGORITHMS, Library, Operation, Origin, algorithms_of
from simulator.collectives.schedule import Await, Lane, Message, Needs, Schedule, Tables, flattened
from simulator.collectives.wire import Group

__all__ = [
    "ALGORITHMS",
    "Auto",
    "Await",
    "ByMessages",
    "Choice",
    "Collective",
    "Group",
    "Lane",
    "Library",
    "Message",
    "Needs",
    "Operation",
    "Origin",
    "Plan",
    "Schedule",
    "Tables",
    "algorithms_of",
    "collective_for",
    "flattened",
    "leave_out_ample_of",
]
