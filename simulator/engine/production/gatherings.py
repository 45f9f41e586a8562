"""Collectives of groups that last a known time from when all have entered; those of a group and partition follow each other.

What moves over links that a group shares with others is a transfer of so many seconds of them.
"""

from __future__ import annotations

from simulator.engine.production import codes
from simulator.engine.production.calendar import pack, soon
from simulator.engine.production.codes import ENDED, JOINED
from simulator.engine.production.compiling import compiled
from simulator.engine.production.flows import send
from simulator.engine.production.layout import Record
from simulator.engine.production.observed_rows import note, tell
from simulator.engine.production.rank import end_operation, heard
from simulator.engine.production.records import entered_at, gathering_at, group_at, number_at, rank_at
from simulator.engine.production.rules import after


@compiled
def enter_gathering(s: Record, rank: int, number: int, its: Record) -> None:
    """A rank enters a collective, operation ``number`` of its step."""
    group = number_at(s.group_of, its.partition * s.ranks_n + rank).n
    g = group_at(s.groups, group)
    at = g.gatherings + its.in_group
    gathering = gathering_at(s.gatherings, at)
    one = rank * s.buckets_n + its.bucket
    entered = entered_at(s.gathered, one)
    entered.entered_s = s.now
    entered.cause = s.cause
    entered.rank = rank
    entered.number = number
    entered.after = -1
    if gathering.here == 0:
        gathering.front = one
    else:
        entered_at(s.gathered, gathering.last).after = one
    gathering.last = one
    gathering.here += 1
    if gathering.here < g.ranks:
        return
    gathering.here = 0
    gathering.joined_s = s.now
    gathering.joined_by = s.cause
    if g.over < 0:
        g.free_s = max(s.now, g.free_s) + its.lasts_s
        after(s, g.free_s - s.now, pack(codes.GATHERED, at), 0)
        return
    gathering.lasts_s = its.lasts_s
    gathering.moves_s = its.moves_s
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
    its = gathering_at(s.gatherings, group_at(s.groups, group).next)
    after(s, its.lasts_s - its.moves_s, pack(codes.MOVING, group), 0)


@compiled
def move(s: Record, group: int) -> None:
    """What goes over links that a group shares with others is sent."""
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
    one = gathering.front
    while one >= 0:
        entered = entered_at(s.gathered, one)
        one = entered.after
        rank = entered.rank
        heard(s, rank, joined_s)
        s.cause = tell(s, ENDED, rank, entered.number, entered.entered_s, entered.cause) if s.observed else -1
        end_operation(s, rank, entered.number, rank_at(s.ranks, rank).step)
