"""What others take from ports, as it changes."""

from __future__ import annotations

from simulator.engine.production import codes
from simulator.engine.production.calendar import call_later, pack
from simulator.engine.production.compiling import compiled
from simulator.engine.production.flows import settle_soon, soil
from simulator.engine.production.layout import Record
from simulator.engine.production.records import change_at, changing_at, port_at, real_at


@compiled
def next_change(s: Record) -> None:
    """Wait for a change; of a trace that is at its end for its beginning, if it begins again."""
    if s.change == s.changes_n:
        if s.repeat_s == 0.0:
            return
        s.change = 0
        s.traced_s += s.repeat_s
    call_later(s, max(s.traced_s + change_at(s.changes, s.change).at_s - s.now, 0.0), pack(codes.CHANGE, 0), 0)


@compiled
def change(s: Record) -> None:
    """Others take another part of some ports from now on."""
    c = change_at(s.changes, s.change)
    for at in range(s.changing_n):
        its = changing_at(s.changing, at)
        p = port_at(s.ports, its.port)
        p.capacity = its.whole * c.left
        beside = real_at(s.beside, its.port)
        more = c.beside - beside.x
        beside.x = c.beside
        p.load += more
        p.owned += more
        if p.active_n > 0:
            soil(s, p, its.port)
    if s.dirty_n > 0:
        s.changed = 1
        settle_soon(s)
    s.change += 1
    # else nothing is left that could ever happen; outdated wake-ups still count as pending
    if s.latest > s.now or s.entries - s.gap + s.alarms_n - s.gone_off > 0 or s.alarm_first >= 0 or s.soon_n > 0 or s.end_n > 0:
        next_change(s)
