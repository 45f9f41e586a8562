"""The records of a run: what happened, one immutable record for each fact, made only when an observer asks for them.

Work (computes, messages, services, and waits for somebody whose work is not simulated) is numbered in the order in which it is
recorded, and says by number which other work let it begin, as the engine knew it. Event by event that is the order in which work
ended; where all ranks' steps are computed at once it is recorded step by step. The cause of work is always recorded before the work.

Engines make records by a :class:`Log`: one call for each piece of work that has ended, which gives its number. An engine says when work
began and ended, and which other was the last that it had to wait for; the work before it in its queue (messages of a connection, gradients
at a server, computes of a rank) is known here. Work that took no time is recorded as well, waits only if they took some. Machine code
counts numbers along (``simulator.engine.production.calendar``). Invariants, traces and critical paths read them.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Literal, NamedTuple, Protocol

NOTHING = -1
"""In place of the number of a piece of work, or of a bucket or micro-batch: there is none, or all are meant."""
OWN, PEER = -2, -3
"""In place of a rank's number in a :class:`Place`, in programs that all ranks share: the rank's own, and that of the rank it sends to."""

_NAMES = {
    "worker": "worker {}",
    "replica": "replica {}",
    "device": "device {}",
    "host": "host of worker {}",
    "server": "server {}",
    "client": "client",
    "switch": "switch {}",
    "everybody": "all replicas",
}


class Place(NamedTuple):
    """Where work is done, or a message begins or ends.

    ``number`` counts servers, clients and switches; of workers, replicas, their devices and their
    hosts it is the replica's. ``name``: where it has one of its own, such as ``stage 2 of copy 0``.
    """

    kind: Literal["worker", "replica", "device", "host", "server", "client", "switch", "everybody"]
    number: int = 0
    name: str = ""

    def __str__(self) -> str:
        """Name of the place, such as ``worker 3``."""
        if self.name:
            return self.name
        return _NAMES[self.kind].format({OWN: "{rank}", PEER: "{peer}"}.get(self.number, self.number))

    @property
    def replica(self) -> int | None:
        """Whose place it is: a replica, its device and its host are one place; none: nobody's."""
        return self.number if self.kind in ("worker", "replica", "device", "host") else None

    def of(self, rank: int, peer: int) -> Place:
        """Return the place of one rank, or of the rank that it sends to, where this stands for each rank's own."""
        return self if self.number >= 0 else Place(self.kind, rank if self.number == OWN else peer)


def numbered(name: str, which: int) -> str:
    """A name and the number of the one that is meant: ``forward 3``; only the name if all are meant."""
    return name if which == NOTHING else f"{name} {which}"


EVERYBODY = Place("everybody")
"""Where an all-reduce leads of which no messages are simulated."""


class Step(NamedTuple):
    """One step of one replica, in seconds; the five parts sum to ``end_s - start_s``. ``cause``: the work that ended it."""

    replica: int
    start_s: float
    end_s: float
    input_s: float
    compute_s: float
    communication_s: float
    waiting_s: float
    apply_s: float
    cause: int = NOTHING


class Span(NamedTuple):
    """A device at work on one part of a step.

    ``kind`` is what all like it are called where ``name`` says besides which one it is: the
    passes of micro-batches, whose number ``which`` is.
    """

    replica: int
    name: str
    start_s: float
    end_s: float
    number: int = NOTHING
    cause: int = NOTHING
    kind: str = ""
    which: int = NOTHING


class Transfer(NamedTuple):
    """One message: handed to the network at ``sent_s``, its last byte there at ``arrived_s``.

    ``begun_s`` is when it was first in its connection, if that is later than ``sent_s``: when the message before it arrived. For an
    all-reduce without simulated messages it is the time at which the last rank joined. ``cause`` is what let it be first, ``sender`` what
    had it sent: they differ where it had to queue, or to wait for another rank. ``kind`` is what all messages of its kind are called, such
    as ``push``; ``name`` says besides which one it is, as ``which`` does of those that have a number.
    """

    source: Place
    target: Place
    name: str
    size_bytes: float
    sent_s: float
    arrived_s: float
    begun_s: float = 0.0
    number: int = NOTHING
    cause: int = NOTHING
    sender: int = NOTHING
    kind: str = "message"
    which: int = NOTHING


class Service(NamedTuple):
    """A server at work on one gradient tensor: ``apply`` to the variable, or ``accumulate``.

    ``worker`` is -1 of the mean of all. ``sender`` is what brought the gradient, ``cause``
    what let its service begin: they differ where it had to queue.
    """

    server: int
    name: str
    worker: int
    variable: int
    start_s: float
    end_s: float
    number: int = NOTHING
    cause: int = NOTHING
    sender: int = NOTHING


class Wait(NamedTuple):
    """A replica waits for what no other record shows.

    ``late start``: its first step is not due yet; ``dispatch``: the coordinator hands out
    its step; ``prepare``: the client prepares its batch; ``input``: its batch is being
    prepared; ``send``: its last byte of a collective has not left it. The second and the
    third begin when the one before in the queue has ended.
    """

    replica: int
    name: Literal["late start", "dispatch", "prepare", "input", "send"]
    start_s: float
    end_s: float
    number: int = NOTHING
    cause: int = NOTHING


class Update(NamedTuple):
    """One update of the whole model.

    ``read_version`` and ``applied_version`` count the updates applied before the first
    pull was issued and before this one was applied: their difference is its staleness.
    ``server_read`` and ``server_applied`` count the same of each server's share of the
    model, where servers count their own.
    """

    worker: int
    read_s: float
    applied_s: float
    read_version: int
    applied_version: int
    server_read: tuple[int, ...]
    server_applied: tuple[int, ...]

    @property
    def staleness(self) -> int:
        """Updates by others between read and application."""
        return self.applied_version - self.read_version


Work = Span | Transfer | Service | Wait
Record = Step | Work | Update


def begin_of(work: Work) -> float:
    """When work began, in seconds; a message, when it was first in its connection."""
    return max(work.sent_s, work.begun_s) if isinstance(work, Transfer) else work.start_s


def end_of(work: Work) -> float:
    """When work ended, in seconds."""
    return work.arrived_s if isinstance(work, Transfer) else work.end_s


class Observer(Protocol):
    """Receives the records of one replication, in the order in which they become known."""

    def record(self, record: Record) -> None:
        """Take one record."""


_NOTHING_BEFORE = NOTHING, 0.0


class Log:
    """Numbers work, and finds the work before it in its queue.

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
        """Return what let ended work be first in its queue, and when: the work before it, if that ended after it was due."""
        before, before_s = self._before.get(queue, _NOTHING_BEFORE)
        self._before[queue] = number, end_s
        return (before, before_s) if before_s > due_s else (cause, due_s)
