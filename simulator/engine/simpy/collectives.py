"""Has a program's collectives take place on the event calendar: at once, message by message, or for a known time.

In ``simulator.engine.compiled`` the counterparts are ``engine`` and ``interpreter`` of :class:`VectorisedCollectives`, ``collectives``
of :class:`MessageByMessage`, and ``gatherings`` of :class:`Gatherings`: change them together
(tests/oracle/test_compiled_collectives.py and tests/property/test_engines_agree.py hold them equal). The messages are sent in
``simulator.collectives.message_level``; the times of all ranks at once come from ``simulator.collectives.collective``.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
from simpy.events import Event

from simulator.base.log import Log
from simulator.base.records import NOTHING
from simulator.collectives.collective import Collective
from simulator.collectives.message_level import MessageLevel
from simulator.collectives.use import Use
from simulator.network.flows import Network
from simulator.network.kernel import Kernel
from simulator.network.ports import Connection
from simulator.program.groups import collectives_of, exchanges_by_group, group_name, memberships, partition_of_each
from simulator.program.program import Operation, Program, Routine

__all__ = ["Collectives", "Entered", "Gatherings", "MessageByMessage", "VectorisedCollectives"]

Ended = Callable[[int, int, int], None]
"""Told that a rank has ended a bucket's collective, and with which work."""


class Collectives(Protocol):
    """One collective per bucket and step, those of a partition in order.

    ``bucket`` counts the collectives of a rank's routine (:func:`simulator.program.groups.collectives_of`).
    """

    @property
    def use(self) -> Use | None:
        """What they have carried over links that are none of the program's own ports; none where there are no such."""

    def start(self, ended: Ended) -> None:
        """Whom to tell, with rank and bucket, that a rank has ended one."""

    def enter(self, rank: int, bucket: int, cause: int) -> None:
        """The rank has the bucket's data now, made by the work ``cause``."""

    def ended_s(self, rank: int) -> Sequence[float]:
        """When the rank ended each bucket of the last step that it has finished, in seconds."""


class VectorisedCollectives:
    """By the times that the collective computes for all ranks at once, when all of them have all buckets of a step.

    Parameters
    ----------
    kernel
        The calendar.
    collective
        Gives the times.
    buckets_bytes
        Size of each bucket.
    ranks
        How many take part.
    log
        Is told of each; none if nobody wants to know.
    """

    def __init__(
        self,
        kernel: Kernel,
        collective: Collective,
        buckets_bytes: Sequence[float],
        ranks: int,
        log: Log | None = None,
    ) -> None:
        self._kernel = kernel
        self._collective = collective
        self._buckets = buckets_bytes
        for size_bytes in buckets_bytes:
            collective.watch(size_bytes)
        self._ready_s = np.zeros((len(buckets_bytes), ranks))
        self._free_s = np.zeros(ranks)
        self._missing = len(buckets_bytes) * ranks
        self._ended_s = np.zeros_like(self._ready_s)
        self._ended: Ended = _nobody
        self._log = log
        # for the log: what made each rank's data of each bucket, and of whoever had them last, when and what
        self._made_by = np.full(self._ready_s.shape, NOTHING)
        self._joined: list[tuple[float, int]] = []

    @property
    def use(self) -> Use:
        """What its collective has carried over the links."""
        return self._collective.use

    def start(self, ended: Ended) -> None:
        """Whom to tell that a rank has ended a bucket."""
        self._ended = ended

    def ended_s(self, rank: int) -> Sequence[float]:
        """When the rank ended each bucket of the last step that it has finished, in seconds."""
        ended_s: list[float] = self._ended_s[:, rank].tolist()
        return ended_s

    def enter(self, rank: int, bucket: int, cause: int) -> None:
        """The rank has the bucket's data now."""
        self._ready_s[bucket, rank] = self._kernel.now
        if self._log is not None:
            self._made_by[bucket, rank] = cause
        self._missing -= 1
        if not self._missing:
            self._reduce()

    def _reduce(self) -> None:
        now = self._kernel.now
        finish_s = np.zeros(self._ready_s.shape[1])
        if self._log is not None:
            last = self._ready_s.argmax(axis=1)
            self._joined = [(float(self._ready_s[bucket, rank]), int(self._made_by[bucket, rank])) for bucket, rank in enumerate(last)]
        for number, (ready_s, size_bytes) in enumerate(zip(self._ready_s, self._buckets, strict=True)):
            finish_s = self._collective.finish_s(np.maximum(ready_s, finish_s), size_bytes, self._free_s)
            self._ended_s[number] = finish_s
            self._collective.account(size_bytes)
        self._missing = self._ready_s.size
        for rank, at_s in enumerate(finish_s.tolist()):
            wait_s = at_s - now
            if wait_s > 0:
                self._kernel.call_later(wait_s, partial(self._all_ended, rank))
            else:
                self._kernel.soon(self._all_ended, rank, None)

    def _all_ended(self, rank: int, _: Event | None) -> None:
        """A rank goes on once it has all buckets of the step."""
        logged = NOTHING if self._log is None else self._tell(rank, self._log)
        for bucket in range(len(self._buckets)):
            self._ended(rank, bucket, logged)

    def _tell(self, rank: int, log: Log) -> int:
        logged, now = NOTHING, self._kernel.now
        for bucket, (size_bytes, (joined_s, cause)) in enumerate(zip(self._buckets, self._joined, strict=True)):
            ready_s, ended_s = float(self._ready_s[bucket, rank]), float(self._ended_s[bucket, rank])
            # the last one ends now, if not for rounding
            ended_s = now if bucket == len(self._buckets) - 1 else min(ended_s, now)
            made_by = int(self._made_by[bucket, rank])
            logged = log.collective(rank, bucket, size_bytes, ready_s, joined_s, ended_s, made_by, cause)
        return logged


class MessageByMessage:
    """Every message of a program's exchanges a transfer of its own on the network that all share.

    Parameters
    ----------
    kernel, network
        What carries the messages.
    program
        Has the exchanges.
    connections
        Of each of its paths.
    log
        Is told of every message; none if nobody wants to know.
    """

    def __init__(
        self, kernel: Kernel, network: Network, program: Program, connections: Sequence[Connection], log: Log | None = None
    ) -> None:
        its = memberships(program)
        self._group, self._place = its.group.tolist(), its.place.tolist()
        self._ranks = [group.tolist() for group in program.groups]
        self._parts = [_parts(routine) for routine in program.routines]
        self._routine = program.ranks.routine.tolist()
        partition = partition_of_each(program)
        self._runs: list[MessageLevel] = []
        for number, (ranks, of, exchanges) in enumerate(zip(self._ranks, partition, exchanges_by_group(program), strict=True)):
            ended = partial(self._has_ended, number, of, len(exchanges))
            name = group_name(program, number)
            self._runs.append(MessageLevel(kernel, network, exchanges, connections, ranks, log, ended=ended, name=name))
        self._ended: Ended = _nobody

    @property
    def use(self) -> None:
        """None besides the program's own."""

    def start(self, ended: Ended) -> None:
        """Whom to tell that a rank has ended a bucket."""
        self._ended = ended

    def enter(self, rank: int, bucket: int, cause: int) -> None:
        """The rank has the bucket's data now."""
        of, first = self._parts[self._routine[rank]][0][bucket]
        self._runs[self._group[of][rank]].ready(self._place[of][rank], bucket - first, cause)

    def ended_s(self, rank: int) -> Sequence[float]:
        """When the rank ended each bucket of the last step that it has finished, in seconds."""
        of_each = [self._runs[self._group[of][rank]].ended_s(self._place[of][rank]) for of in self._parts[self._routine[rank]][1]]
        return of_each[0] if len(of_each) == 1 else [at_s for its in of_each for at_s in its]

    def _has_ended(self, group: int, of: int, buckets: int, place: int, number: int) -> None:
        rank = self._ranks[group][place]
        first = self._parts[self._routine[rank]][1][of]
        self._ended(rank, first + number % buckets, self._runs[group].last_work(place))


class Gatherings:
    """Collectives of groups that last a known time from when all have entered; those of a group and partition follow each other.

    What moves over links that a group shares with others is a transfer of so many seconds of them, which takes longer while these
    transfer too.

    Parameters
    ----------
    network
        Has the calendar, and carries what goes over shared links.
    program
        Has the groups.
    connections
        Of each of its paths.
    ended
        Told when one has ended: when the last had entered and because of which work, and who had entered, in that order.
    """

    def __init__(
        self,
        network: Network,
        program: Program,
        connections: Sequence[Connection],
        ended: Callable[[float, int, list[Entered]], None],
    ) -> None:
        self._kernel, self._network = network.kernel, network
        self._group = memberships(program).group.tolist()
        self._size = [len(group) for group in program.groups]
        self._ended = ended
        self._here: dict[tuple[int, int], list[Entered]] = defaultdict(list)
        self._free_s = [0.0] * len(program.groups)
        self._over = [connections[path] if path >= 0 else None for path in program.over] or [None] * len(program.groups)
        self._next: list[deque[_Joined]] = [deque() for _ in program.groups]

    def enter(self, rank: int, number: int, operation: Operation, cause: int) -> None:
        """A rank enters a collective, operation ``number`` of its step, because the work ``cause`` has ended."""
        now = self._kernel.now
        group = self._group[operation.partition][rank]
        where = group, operation.bucket
        here = self._here[where]
        here.append(Entered(rank, number, now, cause))
        if len(here) < self._size[group]:
            return
        del self._here[where]
        assert operation.lasts_s is not None
        if (over := self._over[group]) is not None:
            self._next[group].append(_Joined(operation.lasts_s, operation.moves_s, now, cause, here))
            if len(self._next[group]) == 1:
                self._begin(group, over)
            return
        self._free_s[group] = ends_s = max(now, self._free_s[group]) + operation.lasts_s
        wait_s = ends_s - now
        self._after(wait_s, partial(self._end, now, cause, here))

    def _begin(self, group: int, over: Connection) -> None:
        """The next collective of a group begins: at its end it moves what goes over shared links."""
        its = self._next[group][0]
        self._after(its.lasts_s - its.moves_s, partial(self._move, group, over))

    def _move(self, group: int, over: Connection, _: Event | None) -> None:
        moves_s, moved = self._next[group][0].moves_s, partial(self._moved, group, over)
        if moves_s > 0:
            self._network.send(over, moves_s, moved)
        else:
            self._kernel.soon(moved, None)

    def _moved(self, group: int, over: Connection, _: Event | None) -> None:
        its = self._next[group].popleft()
        if self._next[group]:
            self._begin(group, over)
        self._ended(its.joined_s, its.cause, its.here)

    def _after(self, wait_s: float, action: Callable[[Event | None], None]) -> None:
        if wait_s > 0:
            self._kernel.call_later(wait_s, action)
        else:
            self._kernel.soon(action, None)

    def _end(self, joined_s: float, cause: int, here: list[Entered], _: Event | None) -> None:
        self._ended(joined_s, cause, here)


class Entered(NamedTuple):
    """A rank that has entered a collective: by which operation of its step, when, and because of which work."""

    rank: int
    number: int
    entered_s: float
    cause: int


class _Joined(NamedTuple):
    """A collective that all of a group have entered: how long it lasts and moves, when and because of which work the last entered."""

    lasts_s: float
    moves_s: float
    joined_s: float
    cause: int
    here: list[Entered]


def _parts(routine: Routine) -> tuple[list[tuple[int, int]], dict[int, int]]:
    """Of each collective of a routine its partition and the first collective of that; by partition, that first one."""
    partitions = [routine.operations[number].partition for number in collectives_of(routine)]
    first = {of: partitions.index(of) for of in dict.fromkeys(partitions)}
    return [(of, first[of]) for of in partitions], first


def _nobody(rank: int, bucket: int, cause: int) -> None:
    """Nobody asks yet."""
