"""Makes numbered records of what an engine did, with what let each piece of work begin.

An engine says when a piece of work began and ended, and which other one had been the last that it had to wait for. What stands in a
queue (messages of a connection, gradients before a server, computes of a rank) may besides have had to wait for the one before it:
that is known here. Every call tells one piece of work that has ended, and gives its number; work that took no time is recorded as
well, waits only if they took some. Any engine that makes the same calls in the same order tells the same records. Machine code counts
numbers along (``simulator.engine.production.calendar``): one call, one number.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Literal

from simulator.base.records import EVERYBODY, NOTHING, Observer, Place, Service, Span, Transfer, Wait, numbered

_NOTHING_BEFORE = NOTHING, 0.0


class Log:
    """Numbers work, and finds what stood before it in its queue.

    Times are in seconds; ``cause`` is the number of the work whose end made the piece of
    work due, :data:`~simulator.base.records.NOTHING` if there was none.

    Parameters
    ----------
    observer
        Gets the records.
    does
        What collectives do that say nothing of it themselves.
    """

    def __init__(self, observer: Observer, does: str = "all-reduce") -> None:
        self._observer = observer
        self._does = does
        self._count = 0
        self._served: dict[int, int] = {}  # the last service of each server
        self._before: dict[Hashable, tuple[int, float]] = {}  # of each queue, what ended there last and when

    def span(self, rank: int, name: str, start_s: float, end_s: float, cause: int, which: int = NOTHING) -> int:
        """A rank has computed; ``which``: the number of the one that it was, of several of this name."""
        number = self._next()
        kind = "" if which == NOTHING else name
        self._observer.record(Span(rank, numbered(name, which), start_s, end_s, number, cause, kind, which))
        return number

    def transfer(
        self,
        connection: Hashable,
        source: Place,
        target: Place,
        name: str,
        size_bytes: float,
        sent_s: float,
        arrived_s: float,
        cause: int,
        kind: str,
        which: int = NOTHING,
    ) -> int:
        """A message has arrived; those of one connection arrive in the order in which they were sent."""
        number = self._next()
        first, begun_s = self._first(connection, number, sent_s, arrived_s, cause)
        self._observer.record(Transfer(source, target, name, size_bytes, sent_s, arrived_s, begun_s, number, first, cause, kind, which))
        return number

    def chunk(
        self,
        connection: Hashable,
        ends: tuple[int, int],
        which: tuple[int, int],
        size_bytes: float,
        sent_s: float,
        arrived_s: float,
        cause: int,
        group: str = "",
    ) -> int:
        """A message of a collective has arrived.

        Parameters
        ----------
        ends
            The ranks that it came from and went to; below 0, switches of the group, from -1 on.
        which
            The bucket, counted over all steps, and the message's number on its lane.
        group
            What the group is called, with a space behind it, where there are several.
        """
        source, target = (Place("device", rank) if rank >= 0 else Place("switch", -1 - rank, f"{group}switch {-1 - rank}") for rank in ends)
        bucket, index = which
        name = f"{group}bucket {bucket} chunk {index}"
        return self.transfer(connection, source, target, name, size_bytes, sent_s, arrived_s, cause, "bucket chunk")

    def collective(
        self,
        rank: int,
        bucket: int,
        size_bytes: float,
        sent_s: float,
        joined_s: float,
        ended_s: float,
        sender: int,
        cause: int,
        *,
        name: str = "",
        stream: int = 0,
    ) -> int:
        """A rank has ended a collective of which no messages are simulated.

        Parameters
        ----------
        bucket
            Its number in the step; -1: its name says it all.
        sent_s, sender
            When the rank had its data, and what made them.
        joined_s, cause
            The same of the last rank.
        name
            What is done; left out: what all of this run do.
        stream
            A rank's collectives of one stream follow each other.
        """
        number = self._next()
        first, begun_s = self._first((EVERYBODY, rank, stream), number, joined_s, ended_s, cause)
        times_s = sent_s, ended_s, min(begun_s, ended_s)
        name = name or self._does
        told = Transfer(Place("device", rank), EVERYBODY, numbered(name, bucket), size_bytes, *times_s, number, first, sender, name, bucket)
        self._observer.record(told)
        return number

    def service(self, server: int, name: str, worker: int, tensor: int, start_s: float, end_s: float, cause: int) -> int:
        """A server has worked on a gradient; one service follows the other."""
        number = self._next()
        first = max(cause, self._served.get(server, NOTHING))
        self._served[server] = number
        self._observer.record(Service(server, name, worker, tensor, start_s, end_s, number, first, cause))
        return number

    def wait(self, rank: int, name: Literal["late start", "input", "send"], start_s: float, end_s: float, cause: int) -> int:
        """A rank has waited for some time."""
        number = self._next()
        self._observer.record(Wait(rank, name, start_s, end_s, number, cause))
        return number

    def turn(self, rank: int, name: Literal["dispatch", "prepare"], asked_s: float, end_s: float, cause: int) -> int:
        """A rank has waited for some time for its turn with one who serves all ranks, one at a time."""
        number = self._next()
        first, begun_s = self._first(name, number, asked_s, end_s, cause)
        self._observer.record(Wait(rank, name, begun_s, end_s, number, first))
        return number

    def _next(self) -> int:
        number, self._count = self._count, self._count + 1
        return number

    def _first(self, queue: Hashable, number: int, due_s: float, end_s: float, cause: int) -> tuple[int, float]:
        """Of work that has ended in a queue: what let it be first, and when; the one before it, if that ended after it was due."""
        before, before_s = self._before.get(queue, _NOTHING_BEFORE)
        self._before[queue] = number, end_s
        return (before, before_s) if before_s > due_s else (cause, due_s)
