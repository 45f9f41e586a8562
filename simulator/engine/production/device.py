"""Devices: compute by themselves, on cores that all share, or share themselves among ranks and servers as a port is shared."""

from __future__ import annotations

from simulator.engine.production import codes
from simulator.engine.production.calendar import call_later, pack, soon
from simulator.engine.production.compiling import compiled
from simulator.engine.production.cores import work
from simulator.engine.production.flows import send
from simulator.engine.production.layout import Record
from simulator.engine.production.records import number_at, overlap_at, rank_at, stretch_at


@compiled
def compute_on(s: Record, rank: int, work_s: float) -> None:
    """Let a rank do some seconds of work where it computes."""
    r = rank_at(s.ranks, rank)
    manner = r.manner
    if manner == codes.ALONE:
        r.busy_s += work_s
        r.free_s = s.now + work_s
        if work_s > 0.0:
            call_later(s, work_s, pack(codes.COMPUTED, rank), r.work)
        else:
            soon(s, pack(codes.COMPUTED, rank), r.work)
    elif manner == codes.STRETCHED:
        stretch = stretch_at(s.stretches, r.device)
        stretch.done = r.work
        stretch.rank = rank
        stretch.left_s = work_s
        stretch.since_s = s.now
        _schedule(s, stretch, r.device)
    elif not work_s > 0.0:
        soon(s, pack(codes.COMPUTED, rank), r.work)
    elif manner == codes.SHARED:
        send(s, number_at(s.seats, rank).n, work_s, pack(codes.COMPUTED, rank), r.work, 0)
    else:
        work(s, s.device_tasks + r.device, work_s, pack(codes.COMPUTED, rank), r.work)


@compiled
def cancel(s: Record, r: Record) -> None:
    """Stop the work in progress of a rank that has the device to itself."""
    now = s.now
    if r.free_s > now:
        r.busy_s -= r.free_s - now
        r.free_s = now
    if r.manner == codes.STRETCHED:
        stretch = stretch_at(s.stretches, r.device)
        stretch.turn += 1
        stretch.done = -1


# -- compute that communication slows down -----------------------------------------------


@compiled
def wake(s: Record, device: int, turn: int) -> int:
    """Return whether the work in progress has ended: its number, or -1 if it was cancelled or its speed has changed since."""
    stretch = stretch_at(s.stretches, device)
    if turn != stretch.turn:
        return -1
    done = stretch.done
    stretch.done = -1
    return done


@compiled
def rank_of(s: Record, device: int) -> int:
    """Whose work that is."""
    rank: int = stretch_at(s.stretches, device).rank
    return rank


@compiled
def _schedule(s: Record, stretch: Record, device: int) -> None:
    """Wake up when the work in progress ends at the present speed."""
    r = rank_at(s.ranks, stretch.rank)
    wait_s = stretch.left_s * (1.0 + s.slowing if stretch.flights else 1.0)
    now = s.now
    r.busy_s += wait_s - max(r.free_s - now, 0.0)
    r.free_s = now + wait_s
    turn = stretch.turn + 1
    stretch.turn = turn
    if wait_s > 0.0:
        call_later(s, wait_s, pack(codes.WAKE, device), turn)
    else:
        soon(s, pack(codes.WAKE, device), turn)


@compiled
def communicate(s: Record, device: int, change: int) -> None:
    """Messages of the rank that came on their way (1) or ended (-1)."""
    stretch = stretch_at(s.stretches, device)
    before = stretch.flights
    stretch.flights = before + change
    if stretch.done >= 0 and (before == 0) != (before + change == 0):
        now = s.now
        speed = 1.0 / (1.0 + s.slowing) if before else 1.0
        stretch.left_s = max(stretch.left_s - (now - stretch.since_s) * speed, 0.0)
        stretch.since_s = now
        _schedule(s, stretch, device)


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
