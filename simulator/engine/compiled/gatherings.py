"""Collectives of groups that last a known time: the compiled counterpart of ``simulator.engine.simpy.collectives.Gatherings``.

Change both together: tests/property/test_engines_agree.py holds them equal.
"""

from __future__ import annotations

from simulator.engine.compiled import codes
from simulator.engine.compiled.calendar import pack
from simulator.engine.compiled.layout import entered_at, gathering_at, group_at, number_at, rank_at
from simulator.engine.compiled.machine import Record, compiled
from simulator.engine.compiled.observed_rows import ENDED, JOINED, note, tell
from simulator.engine.compiled.rank import end_operation, heard
from simulator.engine.compiled.rules import after

__all__ = ["end_gathering", "enter_gathering"]


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
    g.free_s = max(s.now, g.free_s) + its.lasts_s
    after(s, g.free_s - s.now, pack(codes.GATHERED, at), 0)


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
