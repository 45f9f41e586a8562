"""All-reduce: what ranks send one another, and when each has ended.

An algorithm is a :class:`Schedule` of messages. A :class:`Collective` joins it to a network
and a protocol and knows two ways to its times: message by message (:class:`ByMessages`),
and for all ranks at once (``Collective.finish_s``).
"""

from simulator.collectives.auto import Auto
from simulator.collectives.by_messages import ByMessages
from simulator.collectives.collective import Choice, Collective, Plan
from simulator.collectives.factory import collective_for
from simulator.collectives.schedule import Await, Lane, Message, Schedule

__all__ = [
    "Auto",
    "Await",
    "ByMessages",
    "Choice",
    "Collective",
    "Lane",
    "Message",
    "Plan",
    "Schedule",
    "collective_for",
]
