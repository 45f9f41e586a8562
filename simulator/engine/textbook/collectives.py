"""Collectives: message by message, at once for all ranks, or for a known time."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import simpy
from simpy.events import Event

from simulator.base.records import NOTHING
from simulator.collectives.collective import Collective
from simulator.engine.recorder import InUse
from simulator.engine.textbook.clock import Clock, Going, Processor
from simulator.engine.textbook.worker import Step, Training, Worker
from simulator.program.port_names import Owner, PortKind, PortName
from simulator.program.program import Exchange, Operation, Reduction, Routine, collectives_of, exchanges_by_group, group_name, memberships
from simulator.program.schedule import Needs


class Collectives:
    """All collectives of a training: each rank enters those of a partition in order."""

    def __init__(self, training: Training, collective: Collective | None) -> None:
        program = self._program = training.program
        self._training = training
        self._places = [_places(routine) for routine in program.routines]
        self._meetings: dict[tuple[int, int], _Meeting] = {}
        self._stream = [simpy.Resource(training.clock) for _ in program.groups]  # a group's collectives of known length follow one another
        self._entered_s: dict[tuple[int, int], float] = defaultdict(float)  # by group and step, when the last rank had all of its data
        members = memberships(program) if program.groups else None
        self._group = members.group.tolist() if members is not None else []
        self._place = members.place.tolist() if members is not None else []
        self._by_messages = []
        self._at_once: _AtOnce | None = None
        if program.exchanges:
            of_groups = zip(program.groups, exchanges_by_group(program), strict=True)
            self._by_messages = [
                _Group(training, ranks.tolist(), exchanges, group_name(program, number))
                for number, (ranks, exchanges) in enumerate(of_groups)
            ]
        elif collective is not None:
            self._at_once = _AtOnce(training, collective)

    def enter(self, worker: Worker, step: Step, number: int, operation: Operation, cause: int) -> Going:
        """A rank enters a collective; it has ended it when it has what it gets, and has sent what others need."""
        group = self._group[operation.partition][worker.index] if self._group else 0
        if operation.lasts_s is not None:
            return (yield from self._meet(worker, step, number, operation, group, cause))
        places = self._places[int(self._program.ranks.routine[worker.index])]
        place = places[number]
        if number == next(reversed(places)):
            step.ready_s, step.last_group = self._training.clock.now, group
            self._entered_s[group, step.number] = max(self._entered_s[group, step.number], step.ready_s)
        if self._at_once is not None:
            return (yield from self._at_once.reduce(worker, place, cause))
        with worker.overlap.communicating(besides=operation.departs):
            return (yield from self._by_messages[group].reduce(self._place[operation.partition][worker.index], place, cause))

    @property
    def use(self) -> InUse:
        """Return what those at once have carried over links that are none of the program's own ports."""
        return InUse((), np.zeros(0)) if self._at_once is None else self._at_once.use

    @property
    def copies(self) -> list[Processor]:
        """Links between devices and hosts that buffers go by."""
        return [] if self._at_once is None else [link for way in self._at_once.copies for link in way]

    @property
    def sizes(self) -> Iterable[float]:
        """Sizes in bytes that have been reduced at once."""
        return () if self._at_once is None else self._at_once.sizes

    def waited_s(self, step: Step) -> float:
        """Seconds from when a rank had all that it reduces to when all of its group had."""
        assert step.last_group is not None
        return self._entered_s[step.last_group, step.number] - step.ready_s

    def _meet(self, worker: Worker, step: Step, number: int, operation: Operation, group: int, cause: int) -> Going:
        """Go on together, some time after the last of the group has come, and after its collective before this one."""
        training, clock = self._training, self._training.clock
        meeting = self._meetings.setdefault((group, operation.bucket), _Meeting(clock.event()))
        meeting.came += 1
        came_s = clock.now
        if meeting.came == len(self._program.groups[group]):
            del self._meetings[group, operation.bucket]
            meeting.last_s, meeting.last_cause = clock.now, cause
            clock.process(self._go_on_together(group, operation, meeting))
        yield meeting.ended
        worker.hear(step, meeting.last_s)
        if training.log is None:
            return NOTHING
        training.log.joined(meeting.last_s, meeting.last_cause)
        return training.log.ended(worker.index, number, came_s, clock.now, cause)

    def _go_on_together(self, group: int, operation: Operation, meeting: _Meeting) -> Going:
        """A collective of known length, the last of which goes over links that the group shares with others, if with any."""
        clock, over = self._training.clock, self._program.over[group] if self._program.over else -1
        assert operation.lasts_s is not None
        moves_s = operation.moves_s if over >= 0 else 0.0
        with self._stream[group].request() as turn:
            yield turn
            yield clock.timeout(operation.lasts_s - moves_s)
            if moves_s:
                yield self._training.network.send(over, moves_s)[1]
        meeting.ended.succeed()


def _places(routine: Routine) -> dict[int, int]:
    """The place of each collective of a routine among those of its partition; one partition after the other, in order."""
    next_place: dict[int, int] = defaultdict(int)
    places = {}
    for number in collectives_of(routine):
        partition = routine.operations[number].partition
        places[number] = next_place[partition]
        next_place[partition] += 1
    return places


class _Meeting:
    """Where the ranks of a group come to a collective of known length."""

    def __init__(self, ended: Event) -> None:
        self.ended = ended
        self.came = 0
        self.last_s, self.last_cause = 0.0, NOTHING


class _Bucket:
    """A collective of all ranks: arrays of shape (ranks,), and events for each rank's entry and end."""

    def __init__(self, clock: Clock, place: int, ranks: int) -> None:
        self.place = place
        self.ready_s, self.entered_s, self.made_by = np.zeros(ranks), np.zeros(ranks), np.full(ranks, NOTHING)
        self.waits_for = self.outside = ranks  # ranks that do not have it yet, or have not entered
        self.chosen = clock.event()  # its value: all buckets that are reduced as one
        self.ended = [clock.event() for _ in range(ranks)]


class _AtOnce:
    """Collectives whose ends are computed for all ranks when the last of them has entered.

    Buckets follow one another; with a cycle, those that all ranks have at a tick are fused, as Horovod does (its documentation of tensor
    fusion). Where buffers go by the host, each rank copies them there first, and back afterwards.
    """

    def __init__(self, training: Training, collective: Collective) -> None:
        routine, clock = training.program.routines[0], training.clock
        self._bytes = [routine.operations[number].size_bytes for number in collectives_of(routine)]
        self._training, self._collective, self._rule = training, collective, training.program.rules.reduction or Reduction()
        self._ranks = len(training.program.ranks)
        self._next = [_Bucket(clock, place, self._ranks) for place in range(len(self._bytes))]
        self._ready = simpy.Store(clock)
        self._free_s, self._last_s = np.zeros(self._ranks), np.zeros(self._ranks)
        self.sizes: dict[float, None] = {}
        self.copies = [
            [Processor(clock, PortName(way, Owner("host link", rank)), training.alone) for rank in range(self._ranks)]
            for way in (PortKind.HOST_LINK_OUT, PortKind.HOST_LINK_IN)
            if self._rule.copies is not None
        ]
        for size_bytes in self._bytes:
            collective.watch(size_bytes)
        if self._rule.cycle_s is not None:
            clock.process(self._fuse(self._rule.cycle_s))

    @property
    def use(self) -> InUse:
        """Return what its collective has carried over the links."""
        use = self._collective.use
        return InUse(use.names, use.seconds)

    def reduce(self, worker: Worker, place: int, cause: int) -> Going:
        """A rank has a bucket's data; wait until it has ended the collective."""
        clock, bucket, rank = self._training.clock, self._next[place], worker.index
        bucket.ready_s[rank], bucket.made_by[rank] = clock.now, cause
        bucket.waits_for -= 1
        if not bucket.waits_for:
            self._next[place] = _Bucket(clock, place, self._ranks)
            self._ready.put(bucket)
        fused = [bucket] if self._rule.cycle_s is None else (yield bucket.chosen)
        with worker.overlap.communicating():
            if bucket is fused[0]:
                yield from self._copy(0, rank, fused)
                self._enter(rank, fused)
            ends_s = yield bucket.ended[rank]
            yield clock.timeout(max(ends_s - clock.now, 0.0))
            if bucket is fused[0]:
                yield from self._copy(1, rank, fused)
        return self._told(rank, fused) if bucket is fused[0] else NOTHING

    def _told(self, rank: int, fused: list[_Bucket]) -> int:
        log, latest = self._training.plain_log, max(fused, key=lambda bucket: float(bucket.ready_s.max()))
        if log is None:
            return NOTHING
        last = int(latest.ready_s.argmax())
        joined = float(latest.ready_s[last]), self._training.clock.now, int(latest.made_by[rank]), int(latest.made_by[last])
        return log.collective(rank, fused[0].place, self._size(fused), float(latest.ready_s[rank]), *joined)

    def _size(self, fused: list[_Bucket]) -> float:
        return sum(self._bytes[bucket.place] for bucket in fused)

    def _copy(self, way: int, rank: int, fused: list[_Bucket]) -> Going:
        """Copy a buffer to the host's memory, or back."""
        copies = self._rule.copies
        if copies is not None:
            yield from self.copies[way][rank].do(self._size(fused) * copies.s_per_byte)
            yield self._training.clock.timeout(copies.latency_s)

    def _fuse(self, cycle_s: float) -> Going:
        """At each tick, fuse what is ready on all ranks, up to a size."""
        clock = self._training.clock
        while True:
            ready = [(yield self._ready.get())]
            yield clock.timeout((math.floor(clock.now / cycle_s) + 1) * cycle_s - clock.now)
            ready += self._ready.items
            self._ready.items.clear()
            while ready:
                fused = [ready.pop(0)]
                while ready and self._size([*fused, ready[0]]) <= self._rule.most_bytes:
                    fused.append(ready.pop(0))
                for bucket in fused:
                    bucket.chosen.succeed(fused)

    def _enter(self, rank: int, fused: list[_Bucket]) -> None:
        """A rank enters a collective; the last one lets all know when they end it."""
        first, size_bytes = fused[0], self._size(fused)
        first.entered_s[rank] = self._training.clock.now
        first.outside -= 1
        if first.outside:
            return
        self._last_s = self._collective.finish_s(np.maximum(first.entered_s, self._last_s), size_bytes, self._free_s)
        self._collective.account(size_bytes)
        self.sizes[size_bytes] = None
        for bucket in fused:
            for ended, ends_s in zip(bucket.ended, self._last_s.tolist(), strict=True):
                ended.succeed(ends_s)


class _Group:
    """Ranks that reduce one bucket after the other, message by message, and switches that add what ranks send.

    Each takes part in a bucket as a process of rounds: whenever it has heard something, it sends what it may send by now. A ring is
    the case in which each has one lane, and each message of that awaits one more from behind. Members are counted within the group,
    buckets over all steps.
    """

    def __init__(self, training: Training, ranks: list[int], exchanges: list[Exchange], name: str) -> None:
        self._training, self._ranks, self._exchanges, self._name = training, len(ranks), exchanges, name
        switches = max((exchange.tables.switches for exchange in exchanges), default=0)
        self._called = [*ranks, *(-1 - switch for switch in range(switches))]
        self._needs = [(_rows(exchange.tables.awaits), _rows(exchange.tables.meets)) for exchange in exchanges]
        members = len(self._called)
        self._news = [training.clock.event() for _ in range(members)]
        self._senders: list[dict[int, None]] = [{} for _ in range(members)]  # who has a lane to each
        for exchange in exchanges:
            for source, target in zip(exchange.tables.source.tolist(), exchange.tables.target.tolist(), strict=True):
                self._senders[target][source] = None
        self._asked = [0] * members  # buckets whose data each has; of switches, all that have begun
        self._at = [0] * members  # the bucket that each is at
        self._received: list[list[int]] = []  # of each bucket, messages of each lane
        self._got: list[list[int]] = []  # of each bucket, messages of each member
        self._cause = [NOTHING] * members  # the last work that each had to wait for, and when that ended
        self._cause_s = [0.0] * members

    def reduce(self, member: int, place: int, cause: int) -> Going:
        """A rank has a bucket's data; wait until it has received what is for it, and its own last byte has left."""
        del place  # buckets come in order
        number = self._asked[member]
        self._asked[member] += 1
        self._wait_for(member, cause)
        if number == len(self._received):
            self._open(number)
        yield from self._take_part(member, number)
        return self._cause[member]

    def _open(self, number: int) -> None:
        tables = self._exchange(number).tables
        self._received.append([0] * len(tables.source))
        self._got.append([0] * len(self._called))
        for switch in range(self._ranks, len(self._called)):
            self._asked[switch] += 1
            self._training.clock.process(self._take_part(switch, number))

    def _exchange(self, number: int) -> Exchange:
        return self._exchanges[number % len(self._exchanges)]

    def _take_part(self, member: int, number: int) -> Going:
        while self._at[member] < number:
            yield self._news[member]
        self._tell(member)
        exchange = self._exchange(number)
        tables = exchange.tables
        lanes = range(*tables.out[member : member + 2].tolist()) if member < tables.members else range(0)
        sent = dict.fromkeys(lanes, 0)
        left = {lane: not tables.messages[lane] for lane in lanes}
        incoming = int(tables.incoming[member]) if member < tables.members else 0
        while not (all(left.values()) and self._got[number][member] == incoming):
            for lane in lanes:
                while sent[lane] < tables.messages[lane] and self._may_send(number, lane, sent[lane]):
                    last = sent[lane] == tables.messages[lane] - 1
                    self._training.clock.process(self._message(number, lane, sent[lane], left if last else None))
                    sent[lane] += 1
            yield self._news[member]
        self._at[member] = number + 1
        self._tell(member)

    def _may_send(self, number: int, lane: int, index: int) -> bool:
        """Return whether a message's source has what it needs, and its target has come far enough."""
        tables, received = self._exchange(number).tables, self._received[number]
        awaits, meets = self._needs[number % len(self._exchanges)]
        if not all(received[other] >= slope * index + base for other, base, slope, onward in awaits[lane] if index >= onward):
            return False
        target = int(tables.target[lane])
        if not tables.meeting[lane]:
            return self._at[target] >= number - 1  # which has buffers for the bucket that it is at, and for the next
        here = self._at[target] == number < self._asked[target]
        return here and all(received[other] >= slope * index + base for other, base, slope, onward in meets[lane] if index >= onward)

    def _message(self, number: int, lane: int, index: int, last_of: dict[int, bool] | None) -> Going:
        training, exchange = self._training, self._exchange(number)
        source, target = int(exchange.tables.source[lane]), int(exchange.tables.target[lane])
        sent_s, cause = training.clock.now, self._cause[source]
        size_bytes, path = float(exchange.size_bytes[lane]), int(exchange.path[lane])
        left, arrived = training.network.send(path, size_bytes)
        if last_of is not None:
            yield left
            now_s = training.clock.now
            if training.plain_log is not None and now_s > self._cause_s[source] and source < self._ranks:
                self._wait_for(source, training.plain_log.wait(self._called[source], "send", sent_s, now_s, cause))
            last_of[lane] = True
            self._tell(source)
        yield arrived
        if training.plain_log is not None:
            ends, what = (self._called[source], self._called[target]), (number, index)
            self._wait_for(target, training.plain_log.chunk(path, ends, what, size_bytes, sent_s, training.clock.now, cause, self._name))
        self._received[number][lane] += 1
        self._got[number][target] += 1
        self._tell(target)

    def _wait_for(self, member: int, cause: int) -> None:
        if cause > self._cause[member]:
            self._cause[member], self._cause_s[member] = cause, self._training.clock.now

    def _tell(self, member: int) -> None:
        """Something has changed for a member: it, and those who send to it, look again at what they may send."""
        for hears in (member, *self._senders[member]):
            self._news[hears].succeed()
            self._news[hears] = self._training.clock.event()


def _rows(needs: Needs) -> list[list[tuple[int, int, int, int]]]:
    """Return what the messages of each lane need: lane, base, slope, onward."""
    rows = list(zip(needs.lane.tolist(), needs.base.tolist(), needs.slope.tolist(), needs.onward.tolist(), strict=True))
    return [rows[begin:end] for begin, end in pairwise(needs.start.tolist())]
