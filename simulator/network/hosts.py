"""The state of a node's host beside its links: turns in each direction, transfers in progress, and work on messages.

It decides nothing: ``flows`` has hosts work on messages and draws weights of transfers, ``admission`` gives turns. The compiled
counterparts are the records ``HOST`` and ``TURNS`` of ``simulator.engine.compiled.layout``.
"""

from __future__ import annotations

from typing import Any

from simulator.network.cores import Task
from simulator.program.port_names import PortName

__all__ = ["Host", "Transfer", "Turns"]


class Turns:
    """One direction of a node's link: how many messages it may still begin.

    Attributes
    ----------
    free
        Messages that it can take on now.
    parked
        Heap of what waits for a turn here: the order of arrival, and the connection whose message it is.
    """

    __slots__ = ("free", "parked")

    def __init__(self, at_a_time: int) -> None:
        self.free = at_a_time
        self.parked: list[tuple[Any, Any]] = []


class Transfer:
    """What a host asks others for, or sends, at the same time: all messages of one pull or one push.

    Attributes
    ----------
    messages
        Those that have come to the front of their connection and are not across yet.
    weight
        What each of them has.
    """

    __slots__ = ("messages", "weight")

    def __init__(self) -> None:
        self.messages = 0
        self.weight = 1.0


class Host:
    """A node that spends time on each message, or takes on only a given number at a time.

    Attributes
    ----------
    name
        For results.
    sending, receiving
        The turns of its two directions; none if it takes on any number.
    asked, sent
        Its transfers in progress: messages that it has asked others for, and all others that it sends.
    task
        Works on messages where hosts share cores; none as long as there was nothing to do.
    """

    __slots__ = ("_free_s", "_worked_s", "asked", "name", "receiving", "sending", "sent", "task")

    def __init__(self, name: str | PortName, at_a_time: int | None = None) -> None:
        self.name = name
        self.sending = Turns(at_a_time) if at_a_time is not None else None
        self.receiving = Turns(at_a_time) if at_a_time is not None else None
        self.asked = Transfer()
        self.sent = Transfer()
        self.task: Task | None = None
        self._free_s = 0.0
        self._worked_s = 0.0

    def occupy(self, now: float, work_s: float) -> float:
        """Work on one message more, after those that came before; seconds from now until it is done."""
        self._free_s = max(self._free_s, now) + work_s
        self._worked_s += work_s
        return self._free_s - now

    def in_use_s(self, now: float) -> float:
        """Seconds of work on messages up to now; on shared cores, in which it had messages to work on."""
        if self.task is not None:
            return self.task.in_use_s(now)
        return self._worked_s - max(self._free_s - now, 0.0)
