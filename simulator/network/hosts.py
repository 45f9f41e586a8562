"""What a node's messages share besides the bytes of its link: turns in each direction, and a CPU."""

from __future__ import annotations

from typing import Any

__all__ = ["Host", "Turns"]


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
        self.parked: list[tuple[int, Any]] = []


class Host:
    """A node that spends time on each message, or takes on only so many at a time.

    Attributes
    ----------
    name
        For results.
    sending, receiving
        The turns of its two directions; none if it takes on any number.
    work
        Where its work on messages queues for cores that it shares with other hosts; none as long as there was none.
    """

    __slots__ = ("_begun_s", "_free_s", "_queued", "_worked_s", "name", "receiving", "sending", "work")

    def __init__(self, name: str, at_a_time: int | None = None) -> None:
        self.name = name
        self.sending = Turns(at_a_time) if at_a_time is not None else None
        self.receiving = Turns(at_a_time) if at_a_time is not None else None
        self.work: Any = None
        self._free_s = 0.0
        self._worked_s = 0.0
        # of work on shared cores, which takes as long as it takes
        self._queued = 0
        self._begun_s = 0.0

    def occupy(self, now: float, work_s: float) -> float:
        """Work on one message more, after those that came before; seconds from now until it is done."""
        self._free_s = max(self._free_s, now) + work_s
        self._worked_s += work_s
        return self._free_s - now

    def queue(self, now: float) -> None:
        """One message more waits for shared cores, or is worked on there."""
        if not self._queued:
            self._begun_s = now
        self._queued += 1

    def ended(self, now: float) -> None:
        """Work on a message on shared cores has ended."""
        self._queued -= 1
        if not self._queued:
            self._worked_s += now - self._begun_s

    def in_use_s(self, now: float) -> float:
        """Seconds of work on messages up to now."""
        if self._queued:
            return self._worked_s + now - self._begun_s
        return self._worked_s - max(self._free_s - now, 0.0)
