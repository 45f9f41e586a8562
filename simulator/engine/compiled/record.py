"""What the recorder is told: rows of steps, updates and reads, in the order in which they happen.

Python takes them when a table is full, and where the window opens and closes.
"""

from __future__ import annotations

from simulator.engine.compiled import codes
from simulator.engine.compiled.calendar import call_later, pack
from simulator.engine.compiled.layout import ended_step_at, long_at, real_at
from simulator.engine.compiled.machine import Record, compiled
from simulator.engine.compiled.telling import STEP, UPDATE, note

__all__ = ["record_read", "record_step", "record_update"]


@compiled
def record_step(
    s: Record, rank: int, start_s: float, input_s: float, compute_s: float, waiting_s: float, apply_s: float, hidden_s: float, accepted: float
) -> None:  # fmt: skip
    """A rank has ended a step."""
    if s.ended >= s.closes_at:
        return
    row = ended_step_at(s.steps, s.steps_n)
    s.steps_n += 1
    row.replica = float(rank)
    row.start_s = start_s
    row.end_s = s.now
    row.input_s = input_s
    row.compute_s = compute_s
    row.waiting_s = waiting_s
    row.apply_s = apply_s
    row.hidden_s = hidden_s
    row.accepted = accepted
    if s.observed:
        note(s, STEP, rank, 0, 0.0, 0.0, s.cause)
    s.ended += 1
    if s.ended == s.stops_at:
        s.turning = 1
        s.turn_row = s.steps_n
        s.turn_serial = s.serial
        s.turn_told = s.told_n
        if s.observed and s.ended == s.closes_at:
            call_later(s, 0.0, pack(codes.DONE, 0), 0)


@compiled
def record_update(s: Record, rank: int, read_s: float, read_version: int, version: int) -> int:
    """An update has been applied; the place of its staleness on each server in the row, -1 if nobody wants to know."""
    if not (s.is_open or s.observed) or s.ended >= s.closes_at:
        return -1
    at = s.updates_n * s.update_width
    s.updates_n += 1
    if s.observed:
        note(s, UPDATE, 0, 0, 0.0, 0.0, -1)
    real_at(s.updates, at).x = float(rank)
    real_at(s.updates, at + 1).x = read_s
    real_at(s.updates, at + 2).x = s.now
    real_at(s.updates, at + 3).x = float(read_version)
    real_at(s.updates, at + 4).x = float(version)
    return at + 5


@compiled
def record_read(s: Record, spread: int) -> None:
    """A rank begins to read, and finds versions on the servers that differ by so many updates."""
    if s.is_open:
        long_at(s.reads, s.reads_n).n = spread
        s.reads_n += 1
