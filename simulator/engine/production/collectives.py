"""Collectives, message by message or of a known length.

Whatever changes (data ready, a message received, a last message gone) has the ranks that may now go on looked at right after it. A
rank that has ended a bucket has mostly got something that came of every other rank's data, so nobody is more than one bucket ahead.
In a broadcast or a reduction, or where buckets differ in what they do, it can be; there a message waits until its target is far
enough. So a rank receives messages of the bucket that it is at and of the next one: two sets of counters, for even and odd buckets,
are enough, and each is clean again when its rank ends its bucket. Switches that add what ranks send are members behind the ranks,
which may enter any bucket at once.

Lanes of all exchanges have one table; those that wait for a member to come further are linked. A rank is a member of one group of
each partition, and has a number as such. ``exchanges`` makes the tables.

Collectives of a known length last from when all of a group have entered; those of a group and partition follow each other. Data over links
that a group shares with others is a transfer measured in seconds of them.
"""

from __future__ import annotations

from simulator.engine.production import codes
from simulator.engine.production.calendar import note, pack, soon, tell
from simulator.engine.production.codes import ENDED, INDEX_BITS, JOINED, SENDING, TRANSFER
from simulator.engine.production.compiling import compiled
from simulator.engine.production.flows import send
from simulator.engine.production.layout import Record
from simulator.engine.production.rank import end_operation, heard
from simulator.engine.production.records import (
    context_at,
    entered_at,
    exchange_at,
    gathering_at,
    group_at,
    lane_at,
    member_at,
    need_at,
    number_at,
    rank_at,
    real_at,
    role_at,
    routine_at,
    standing_at,
)
from simulator.engine.production.rules import after


@compiled
def enter_gathering(s: Record, rank: int, number: int, operation: Record) -> None:
    """A rank enters a collective, operation ``number`` of its step."""
    group = number_at(s.group_of, operation.partition * s.ranks_n + rank).n
    g = group_at(s.groups, group)
    at = g.gatherings + operation.in_group
    gathering = gathering_at(s.gatherings, at)
    entry = rank * s.buckets_n + operation.bucket
    entered = entered_at(s.gathered, entry)
    entered.entered_s = s.now
    entered.cause = s.cause
    entered.rank = rank
    entered.number = number
    entered.after = -1
    if gathering.here == 0:
        gathering.front = entry
    else:
        entered_at(s.gathered, gathering.last).after = entry
    gathering.last = entry
    gathering.here += 1
    if gathering.here < g.ranks:
        return
    gathering.here = 0
    gathering.joined_s = s.now
    gathering.joined_by = s.cause
    if g.over < 0:
        g.free_s = max(s.now, g.free_s) + operation.lasts_s
        after(s, g.free_s - s.now, pack(codes.GATHERED, at), 0)
        return
    gathering.lasts_s = operation.lasts_s
    gathering.moves_s = operation.moves_s
    gathering.after = -1
    if g.next >= 0:
        gathering_at(s.gatherings, g.last).after = at
        g.last = at
    else:
        g.next = g.last = at
        _begin(s, group)


@compiled
def _begin(s: Record, group: int) -> None:
    """The next collective of a group begins: at its end it moves what goes over shared links."""
    gathering = gathering_at(s.gatherings, group_at(s.groups, group).next)
    after(s, gathering.lasts_s - gathering.moves_s, pack(codes.MOVING, group), 0)


@compiled
def move(s: Record, group: int) -> None:
    """Send data over links that a group shares with others."""
    g = group_at(s.groups, group)
    moves_s = gathering_at(s.gatherings, g.next).moves_s
    if moves_s > 0.0:
        send(s, g.over, moves_s, pack(codes.MOVED, group), 0, 0)
    else:
        soon(s, pack(codes.MOVED, group), 0)


@compiled
def moved(s: Record, group: int) -> None:
    """A collective has moved all: it ends, and the group's next begins."""
    g = group_at(s.groups, group)
    at = g.next
    g.next = gathering_at(s.gatherings, at).after
    if g.next >= 0:
        _begin(s, group)
    end_gathering(s, at)


@compiled
def end_gathering(s: Record, at: int) -> None:
    """A collective has ended for all who have entered it."""
    gathering = gathering_at(s.gatherings, at)
    joined_s = gathering.joined_s
    if s.observed:
        note(s, JOINED, 0, 0, 0.0, joined_s, gathering.joined_by)
    entry = gathering.front
    while entry >= 0:
        entered = entered_at(s.gathered, entry)
        entry = entered.after
        rank = entered.rank
        heard(s, rank, joined_s)
        s.cause = tell(s, ENDED, rank, entered.number, entered.entered_s, entered.cause) if s.observed else -1
        end_operation(s, rank, entered.number, rank_at(s.ranks, rank).step)


@compiled
def end_collective(s: Record, rank: int, bucket: int) -> None:
    """A rank has what a collective gives it, and has sent what others need of it; ``bucket`` counts its collectives."""
    r = rank_at(s.ranks, rank)
    routine = routine_at(s.routines, r.routine)
    end_operation(s, rank, number_at(s.buckets, routine.buckets + bucket).n, r.step)


@compiled
def enter(s: Record, rank: int, partition: int) -> None:
    """A rank has its next bucket's data of a partition now."""
    member = number_at(s.member_of, partition * s.ranks_n + rank).n
    m = member_at(s.members, member)
    if s.observed:
        _had_to_wait_for(s, member, s.cause)
    m.asked += 1
    if m.current == m.asked - 1:
        _enter(s, m, member)


@compiled
def _enter(s: Record, m: Record, member: int) -> None:
    """The member is at a bucket, and has its data: it may send, and others may send to it."""
    soon(s, pack(codes.ADVANCE, member), 0)
    _wake(s, m, member)


@compiled
def _had_to_wait_for(s: Record, member: int, cause: int) -> None:
    """For whoever observes: the last work that a member had to wait for, and when that ended."""
    c = context_at(s.member_causes, member)
    if cause > c.cause:
        c.cause = cause
        c.since_s = s.now


@compiled
def _wake(s: Record, m: Record, member: int) -> None:
    """The member has come further than it was: whoever waits for that looks again."""
    lane = m.waiting
    if lane < 0:
        return
    m.waiting = m.waiting_last = -1
    while lane >= 0:
        waiting = lane_at(s.lanes, lane)
        lane = waiting.after
        waiting.waits = 0
        if s.observed:
            _had_to_wait_for(s, waiting.source, context_at(s.member_causes, member).cause)
        soon(s, pack(codes.ADVANCE, waiting.source), 0)


@compiled
def advance_member(s: Record, member: int) -> None:
    """Send whatever the member may send by now, and end its bucket if nothing is left to do."""
    m = member_at(s.members, member)
    number = m.current
    if m.asked <= number:
        return
    exchange = exchange_at(s.exchanges, m.exchange)
    role = role_at(s.roles, exchange.roles + member)
    if m.sent < role.outgoing:
        _send_what_may(s, m, number, exchange, role)
    got = m.got_odd if number & 1 else m.got_even
    if got == role.incoming and m.gone == role.last - role.first:
        _end(s, m, member, number, exchange, role)


@compiled
def _send_what_may(s: Record, m: Record, number: int, exchange: Record, role: Record) -> None:
    for lane in range(role.first, role.last):
        ln = lane_at(s.lanes, lane)
        index = ln.sent
        messages = ln.messages
        size = real_at(s.message_sizes, exchange.sizes + lane).x
        while index < messages and _has(s, ln.awaits, ln.awaits_n, number, index) and _may_come(s, ln, lane, number, index):
            left = pack(codes.SENT_LAST, ln.source) if index == messages - 1 else 0
            if s.observed:
                s.cause = context_at(s.member_causes, ln.source).cause
            send(s, ln.path, size, pack(codes.CHUNK, lane), number, left)
            index += 1
            m.sent += 1
            ln.sent = index


@compiled
def _has(s: Record, first: int, count: int, number: int, index: int) -> bool:
    """Return whether all that message ``index`` needs has arrived."""
    for at in range(first, first + count):
        need = need_at(s.needs, at)
        if index >= need.onward:
            lane = lane_at(s.lanes, need.lane)
            received = lane.received_odd if number & 1 else lane.received_even
            if received < need.slope * index + need.base:
                return False
    return True


@compiled
def _may_come(s: Record, ln: Record, lane: int, number: int, index: int) -> bool:
    """Return whether the target is as far as the message needs; if not, the lane will be woken when it has come further."""
    target = member_at(s.members, ln.target)
    if ln.meets_n < 0:
        if number <= target.current + 1:
            return True
    elif target.current == number and number < target.asked and _has(s, ln.meets, ln.meets_n, number, index):
        return True
    if not ln.waits:
        ln.waits = 1
        ln.after = -1
        if target.waiting < 0:
            target.waiting = lane
        else:
            lane_at(s.lanes, target.waiting_last).after = lane
        target.waiting_last = lane
        if standing_at(s.standings, ln.target).rank < 0:
            soon(s, pack(codes.ADVANCE, ln.target), 0)  # a switch may stand at a bucket in which it has nothing to do
    return False


@compiled
def sent_last(s: Record, member: int) -> None:
    """The last message of one of a member's lanes has left it."""
    if s.observed and s.now > context_at(s.member_causes, member).since_s and standing_at(s.standings, member).rank >= 0:
        # that it left lets the sender go on, though it has not arrived yet and so has no number
        _had_to_wait_for(s, member, tell(s, SENDING, standing_at(s.standings, member).rank, 0, s.since_s, s.cause))
    member_at(s.members, member).gone += 1
    soon(s, pack(codes.ADVANCE, member), 0)


@compiled
def receive_chunk(s: Record, lane: int, number: int) -> None:
    """A message of a lane has come."""
    ln = lane_at(s.lanes, lane)
    member = ln.target
    m = member_at(s.members, member)
    if s.observed:
        index = ln.received_odd if number & 1 else ln.received_even
        _had_to_wait_for(s, member, tell(s, TRANSFER, lane, (number << INDEX_BITS) | index, s.since_s, s.cause))
    if number & 1:
        ln.received_odd += 1
        m.got_odd += 1
    else:
        ln.received_even += 1
        m.got_even += 1
    soon(s, pack(codes.ADVANCE, member), 0)
    _wake(s, m, member)


@compiled
def _end(s: Record, m: Record, member: int, number: int, exchange: Record, role: Record) -> None:
    """The member has done its part of a bucket: its counters are clean for the next but one, and it may enter the next."""
    for lane in range(role.first, role.last):
        lane_at(s.lanes, lane).sent = 0
    odd = number & 1
    for at in range(role.into, role.into + role.into_n):
        ln = lane_at(s.lanes, number_at(s.into, at).n)
        if odd:
            ln.received_odd = 0
        else:
            ln.received_even = 0
    m.sent = m.gone = 0
    if odd:
        m.got_odd = 0
    else:
        m.got_even = 0
    standing = standing_at(s.standings, member)
    rank = standing.rank
    bucket = standing.bucket + exchange.bucket
    m.current = number + 1
    m.exchange = exchange.following
    if s.observed:
        s.cause = context_at(s.member_causes, member).cause
    if rank >= 0:
        real_at(s.finished, bucket * s.ranks_n + rank).x = s.now
        end_collective(s, rank, bucket)
    if m.asked > number + 1:
        _enter(s, m, member)
    else:
        _wake(s, m, member)
