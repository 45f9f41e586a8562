"""When a rank computes and communicates at the same time: the compiled counterpart of ``simulator.engine.simpy.overlap``."""

from __future__ import annotations

from simulator.engine.compiled.device import communicate
from simulator.engine.compiled.layout import overlap_at, rank_at
from simulator.engine.compiled.machine import Record, compiled

__all__ = ["hidden_since", "note_compute", "note_message"]


@compiled
def _catch_up(s: Record, o: Record) -> None:
    now = s.now
    if o.computing and o.flights:
        o.hidden_s += now - o.since_s
    o.since_s = now


@compiled
def note_compute(s: Record, rank: int, computing: int) -> None:
    """The rank begins or stops to compute."""
    o = overlap_at(s.overlaps, rank)
    _catch_up(s, o)
    o.computing = computing


@compiled
def note_message(s: Record, rank: int, change: int) -> None:
    """A message is on its way (1), or has come (-1)."""
    o = overlap_at(s.overlaps, rank)
    _catch_up(s, o)
    o.flights += change
    if s.slowing != 0.0:
        communicate(s, rank_at(s.ranks, rank).device, change)


@compiled
def hidden_since(s: Record, rank: int) -> float:
    """Seconds hidden since this was last asked."""
    o = overlap_at(s.overlaps, rank)
    _catch_up(s, o)
    hidden_s = o.hidden_s
    o.hidden_s = 0.0
    return hidden_s
