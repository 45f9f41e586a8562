"""Every message of a collective a transfer of its own on the shared network.

What is known of a collective that goes on stands in a few numbers for each rank and each lane, and nothing calls itself: whatever
changes (data ready, a message received, a last message gone) appends the ranks that may now go on to
:meth:`simulator.network.kernel.Kernel.soon`. A rank that has ended a bucket has mostly got something that came of every other rank's
data, so nobody is more than one bucket ahead. In a broadcast or a reduction, or where buckets differ in what they do, it can be; there
a message waits until its target is far enough. So a rank receives messages of the bucket that it is at and of the next one: two sets
of counters, for even and odd buckets, are enough, and each is clean again when its rank ends its bucket. Switches that add what
ranks send are members behind the ranks, which may enter any bucket at once.

``simulator.engine.compiled.collectives`` does the same, compiled: change both together
(tests/oracle/test_compiled_collectives.py holds them equal).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

from simpy.events import Event

from simulator.base.log import Log
from simulator.base.records import NOTHING
from simulator.network.flows import Network
from simulator.network.kernel import Kernel
from simulator.network.ports import Connection
from simulator.program.program import Exchange
from simulator.program.schedule import Needs, Tables

__all__ = ["MessageLevel"]

_ALWAYS = 1 << 62
"""Buckets that a switch is asked to do: it has nothing to wait for but messages."""

_Row = tuple[int, int, int, int]
"""Lane, base, slope, onward: see :class:`~simulator.program.schedule.Needs`."""


class _Lanes:
    """Tables as lists, connections, and where messages stand: of one exchange, or of several that differ in size alone.

    Attributes
    ----------
    sent
        Messages of each lane that its source has sent in the bucket that it is at.
    received
        Messages of each lane that its target has, of even and of odd buckets.
    waits
        Whether a lane stands among those that wait for its target to come further.
    """

    def __init__(self, tables: Tables, connections: list[Connection], members: int) -> None:
        idle = members - tables.members  # switches that other buckets have
        self.out = tables.out.tolist() + [len(tables.source)] * idle
        self.incoming = tables.incoming.tolist() + [0] * idle
        self.source = tables.source.tolist()
        self.target = tables.target.tolist()
        self.messages = tables.messages.tolist()
        self.awaits = _rows(tables.awaits)
        self.meets = _rows_if(tables)
        self.outgoing = [sum(self.messages[self.out[rank] : self.out[rank + 1]]) for rank in range(members)]
        self.connections = connections
        lanes = len(self.source)
        self.sent = [0] * lanes
        self.received = [0] * lanes, [0] * lanes
        self.waits = [False] * lanes
        self.into: list[list[int]] = [[] for _ in range(members)]
        for lane, target in enumerate(self.target):
            self.into[target].append(lane)


def _rows(needs: Needs) -> list[list[_Row]]:
    rows: list[_Row] = list(zip(needs.lane.tolist(), needs.base.tolist(), needs.slope.tolist(), needs.onward.tolist(), strict=True))
    start = needs.start.tolist()
    return [rows[begin:end] for begin, end in pairwise(start)]


def _rows_if(tables: Tables) -> list[list[_Row] | None]:
    return [rows if meeting else None for rows, meeting in zip(_rows(tables.meets), tables.meeting.tolist(), strict=True)]


def _has(received: list[int], rows: list[_Row], index: int) -> bool:
    """Whether all that message ``index`` needs has arrived."""
    for lane, base, slope, onward in rows:  # noqa: SIM110 - a generator costs as much as the loop
        if index >= onward and received[lane] < slope * index + base:
            return False
    return True


class MessageLevel:
    """One collective per bucket of a step, the buckets in order, simulated message by message.

    A rank enters a bucket's collective when it has the bucket's data and has finished the
    one before, as collectives of one stream follow one another. It has finished when it has
    received all that is meant for it and its own last byte has left it. Ranks are counted
    within the group. Several of these on one network, one for each group, share its links.

    Parameters
    ----------
    kernel, network
        What carries the messages.
    exchanges
        The messages of each bucket; all of the same group.
    connections
        Those that the exchanges' paths name.
    ranks
        The group: what transfers call its ranks.
    log
        Is told of every message; none if nobody wants to know.
    ended
        Called with the rank and the bucket's number, counted over all steps, when a rank has ended it.
    name
        What the log says of the group, before the bucket; nothing where there is no other.
    """

    def __init__(
        self,
        kernel: Kernel,
        network: Network,
        exchanges: Sequence[Exchange],
        connections: Sequence[Connection],
        ranks: Sequence[int],
        log: Log | None = None,
        *,
        ended: Callable[[int, int], object] | None = None,
        name: str = "",
    ) -> None:
        self._kernel = kernel
        self._network = network
        self._log = log
        self._tell = ended
        self._name = name
        self._sizes: list[list[float]] = [its.size_bytes.tolist() for its in exchanges]
        self._count = len(ranks)
        switches = max((its.tables.switches for its in exchanges), default=0)
        self._called = [*ranks, *(-1 - switch for switch in range(switches))]
        count = len(self._called)
        of_kind: dict[tuple[int, int], _Lanes] = {}
        self._lanes: list[_Lanes] = []
        for its in exchanges:
            kind = id(its.tables), id(its.path)
            if kind not in of_kind:
                of_kind[kind] = _Lanes(its.tables, [connections[path] for path in its.path.tolist()], count)
            self._lanes.append(of_kind[kind])
        self._asked = [0] * len(ranks) + [_ALWAYS] * switches  # buckets announced as ready, over all steps
        self._current = [0] * count  # the bucket that the rank is at, over all steps
        self._sent = [0] * count  # messages of that bucket that it has sent,
        self._gone = [0] * count  # and how many of its lanes have let go of their last one
        self._got = [0] * count, [0] * count  # messages received, of even and of odd buckets
        self._waiting: list[deque[tuple[_Lanes, int]]] = [deque() for _ in range(count)]  # lanes that wait for the rank to come further
        self._ended_s: list[list[float]] = [[] for _ in range(count)]  # of each bucket of the step in progress, or last finished
        # for the log: the last work that a rank had to wait for, and when that ended
        self._cause = [NOTHING] * count
        self._cause_s = [0.0] * count

    def ended_s(self, rank: int) -> Sequence[float]:
        """When the rank ended each bucket of the last step that it has finished, in seconds."""
        return self._ended_s[rank][: len(self._lanes)]

    def last_work(self, rank: int) -> int:
        """The number of the last work that a rank had to wait for, such as the last message that it got."""
        return self._cause[rank]

    def ready(self, rank: int, bucket: int, cause: int = NOTHING) -> None:  # noqa: ARG002 - buckets come in order
        """The rank has the bucket's data now, made by the work ``cause``."""
        self._had_to_wait_for(rank, cause)
        self._asked[rank] += 1
        if self._current[rank] == self._asked[rank] - 1:
            self._enter(rank)

    def _had_to_wait_for(self, rank: int, cause: int) -> None:
        if cause > self._cause[rank]:
            self._cause[rank] = cause
            self._cause_s[rank] = self._kernel.now

    def _enter(self, rank: int) -> None:
        """The rank is at a bucket, and has its data: it may send, and others may send to it."""
        self._kernel.soon(self._advance, rank)
        self._wake(rank)

    def _wake(self, rank: int) -> None:
        """The rank has come further than it was: whoever waits for that looks again."""
        waiting = self._waiting[rank]
        while waiting:
            lanes, lane = waiting.popleft()
            lanes.waits[lane] = False
            self._had_to_wait_for(lanes.source[lane], self._cause[rank])
            self._kernel.soon(self._advance, lanes.source[lane])

    def _advance(self, rank: int) -> None:
        """Send whatever the rank may send by now, and end its bucket if nothing is left to do."""
        number = self._current[rank]
        if self._asked[rank] <= number:
            return
        lanes = self._lanes[number % len(self._lanes)]
        if self._sent[rank] < lanes.outgoing[rank]:
            self._send_what_may(rank, number, lanes)
        begin, end = lanes.out[rank], lanes.out[rank + 1]
        if self._got[number & 1][rank] == lanes.incoming[rank] and self._gone[rank] == end - begin:
            self._end(rank, number, lanes)

    def _send_what_may(self, rank: int, number: int, lanes: _Lanes) -> None:
        received = lanes.received[number & 1]
        for lane in range(lanes.out[rank], lanes.out[rank + 1]):
            index, messages = lanes.sent[lane], lanes.messages[lane]
            awaits = lanes.awaits[lane]
            while index < messages and _has(received, awaits, index) and self._may_come(lane, number, lanes, index):
                self._send(lanes, lane, number, index)
                index += 1
                self._sent[rank] += 1
                lanes.sent[lane] = index

    def _may_come(self, lane: int, number: int, lanes: _Lanes, index: int) -> bool:
        """Whether the target is as far as the message needs; if not, the lane will be woken when it has come further."""
        target, meets = lanes.target[lane], lanes.meets[lane]
        if meets is None:
            if number <= self._current[target] + 1:
                return True
        elif self._current[target] == number < self._asked[target] and _has(lanes.received[number & 1], meets, index):
            return True
        if not lanes.waits[lane]:
            lanes.waits[lane] = True
            self._waiting[target].append((lanes, lane))
            if target >= self._count:
                self._kernel.soon(self._advance, target)  # it may stand at a bucket in which it has nothing to do
        return False

    def _send(self, lanes: _Lanes, lane: int, number: int, index: int) -> None:
        size_bytes = self._sizes[number % len(self._sizes)][lane]
        source = lanes.source[lane]
        arrived: Callable[[Event | None], None] = partial(self._receive, lanes, lane, number)
        left: Callable[[Event | None], None] | None = partial(self._left, source) if index == lanes.messages[lane] - 1 else None
        if self._log is not None:
            when = self._kernel.now, self._cause[source]
            arrived = partial(self._tell_of_message, arrived, self._log, lanes, lane, (number, index), size_bytes, *when)
            left = partial(self._tell_of_sending, left, self._log, source, *when) if left is not None else None
        self._network.send(lanes.connections[lane], size_bytes, arrived, left)

    def _tell_of_message(
        self, arrived: Callable[[Event | None], None], log: Log, lanes: _Lanes, lane: int, which: tuple[int, int], size_bytes: float,
        sent_s: float, cause: int, event: Event | None,
    ) -> None:  # fmt: skip
        target = lanes.target[lane]
        ends = self._called[lanes.source[lane]], self._called[target]
        logged = log.chunk(lanes.connections[lane], ends, which, size_bytes, sent_s, self._kernel.now, cause, self._name)
        self._had_to_wait_for(target, logged)
        arrived(event)

    def _tell_of_sending(
        self, left: Callable[[Event | None], None], log: Log, rank: int, sent_s: float, cause: int, event: Event | None
    ) -> None:
        # that it left lets the sender go on, though it has not arrived yet and so has no number
        if self._kernel.now > self._cause_s[rank] and rank < self._count:
            self._had_to_wait_for(rank, log.wait(self._called[rank], "send", sent_s, self._kernel.now, cause))
        left(event)

    def _left(self, rank: int, _: Event | None) -> None:
        self._gone[rank] += 1
        self._kernel.soon(self._advance, rank)

    def _receive(self, lanes: _Lanes, lane: int, number: int, _: Event | None) -> None:
        rank = lanes.target[lane]
        lanes.received[number & 1][lane] += 1
        self._got[number & 1][rank] += 1
        self._kernel.soon(self._advance, rank)
        self._wake(rank)

    def _end(self, rank: int, number: int, lanes: _Lanes) -> None:
        """The rank has done its part of a bucket: its counters are clean for the next but one, and it may enter the next."""
        for lane in range(lanes.out[rank], lanes.out[rank + 1]):
            lanes.sent[lane] = 0
        received = lanes.received[number & 1]
        for lane in lanes.into[rank]:
            received[lane] = 0
        self._sent[rank] = self._gone[rank] = self._got[number & 1][rank] = 0
        self._current[rank] = number + 1
        if rank < self._count:
            if number % len(self._lanes) == 0:
                self._ended_s[rank].clear()
            self._ended_s[rank].append(self._kernel.now)
            if self._tell is not None:
                self._tell(rank, number)
        if self._asked[rank] > number + 1:
            self._enter(rank)
        else:
            self._wake(rank)
