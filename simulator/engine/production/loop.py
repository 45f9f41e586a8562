"""The main loop of the network and the cores: lets happen what comes next, until something else does or Python is needed.

It takes what is next in the order of ``calendar``. ``interpreter`` handles events of a program; the
reasons to return to Python (``codes``) are answered in ``compiled``. Changes of background traffic are handled here too.
"""

from __future__ import annotations

from simulator.engine.production import codes
from simulator.engine.production.admission import decide_next, gather
from simulator.engine.production.calendar import call_later, code_of, next_entry, next_of, number_of, pack, restore_context
from simulator.engine.production.compiling import compiled
from simulator.engine.production.cores import leave
from simulator.engine.production.flows import (
    begin_admitted,
    begin_after_wait,
    end_messages,
    host_done,
    received,
    settle_all,
    settle_soon,
    soil,
    stand_for_link,
)
from simulator.engine.production.layout import Record
from simulator.engine.production.records import change_at, changing_at, item_at, port_at, real_at
from simulator.program.program import INSTANT_S


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
        changing = changing_at(s.changing, at)
        p = port_at(s.ports, changing.port)
        p.capacity = changing.whole * c.left
        beside = real_at(s.beside, changing.port)
        more = c.beside - beside.x
        beside.x = c.beside
        p.load += more
        p.owned += more
        if p.active_n > 0:
            soil(s, p, changing.port)
    if s.dirty_n > 0:
        s.changed = 1
        settle_soon(s)
    s.change += 1
    # else nothing is left that could ever happen; outdated wake-ups still count as pending
    if s.latest > s.now or s.entries - s.gap + s.alarms_n - s.gone_off > 0 or s.alarm_first >= 0 or s.soon_n > 0 or s.end_n > 0:
        next_change(s)


_GOES_ON = -1


@compiled
def _is_full(s: Record) -> bool:
    """Whether what happens before the next look may need more room than there is: all messages may end, and ``spare`` others begin."""
    most = s.messages_n + s.spare
    return (
        s.entries + most > s.entries_room
        or s.soon_n + 2 * most + s.soon_spare > s.soon_room
        or most > s.messages_room
        or s.works_n + s.spare > s.works_room
        or s.end_n + s.spare > s.end_room
        or s.jobs_n + s.spare > s.jobs_room
        or s.comings_n + s.spare > s.comings_room
    )


@compiled
def _rows_are_full(s: Record) -> bool:
    full: bool = (
        s.steps_n + s.rows_spare > s.steps_room
        or s.updates_n + s.rows_each > s.updates_room
        or s.reads_n + s.rows_each > s.reads_room
        or s.logged_n + s.logged_spare > s.logged_room
    )
    return full


@compiled
def _look(s: Record) -> int:
    """Return whether there is a reason to stop: if not, ``batch`` things that follow at once may happen before the next look."""
    if s.wants != 0:
        wants: int = s.wants
        s.wants = 0
        return wants
    if s.turning:
        return codes.TURNS
    if s.over != 0:
        return codes.REFUSED
    if s.left <= 0:
        return codes.SLICE
    if _is_full(s):
        return codes.FULL
    if s.weighted and s.weights_next + s.messages_n + s.spare > s.weights_n:
        return codes.WEIGHTS
    if _rows_are_full(s):
        return codes.ROWS
    s.left -= s.batch - s.at_once
    s.at_once = s.batch - 1
    return _GOES_ON


@compiled
def advance(s: Record) -> int:
    """Let happen what is the network's until something else does; why it stopped.

    It stops after about ``left`` things, of which an instant can hold millions, so that Python can look at whether the user wants to. Other
    reasons to stop are checked before each entry of the calendar, and after ``batch`` consequences of it. Whoever has a reason to stop at
    once sets ``at_once`` to 0.
    """
    while True:
        if s.soon_n > 0 and s.at_once > 0:
            s.at_once -= 1
        else:
            why = _look(s)
            if why != _GOES_ON:
                return why
        if s.soon_n > 0:
            at = s.soon_first & (s.soon_room - 1)
            item = item_at(s.soon, at)
            if s.observed:
                restore_context(s, s.soon_contexts, at)
            s.soon_n -= 1
            s.soon_first = s.soon_first + 1 if s.soon_n > 0 else 0  # not all of a large table is ever used, then
            s.what = item.what
            s.about = item.about
        elif s.end_n > 0 and next_of(s) > s.now + INSTANT_S:
            item = item_at(s.at_end, s.end_first & (s.end_room - 1))
            s.end_n -= 1
            s.end_first = s.end_first + 1 if s.end_n > 0 else 0
            s.what = item.what
            s.about = item.about
        elif s.entries - s.gap + s.alarms_n - s.gone_off == 0 and s.alarm_first < 0:
            s.now = s.latest
            return codes.DRAINED
        else:
            which = next_entry(s)
            if which >= 0:
                if which < s.ports_n:
                    end_messages(s, which)
                else:
                    leave(s, which - s.ports_n)
                continue
        what = s.what
        code = code_of(what)
        if code >= codes.FIRST:
            return codes.HANDLE
        number = number_of(what)
        if code == codes.HOST_DONE:
            if host_done(s, number):
                return codes.HANDLE
        elif code == codes.STAND_FOR_LINK:
            stand_for_link(s, number)
        elif code == codes.RECEIVED:
            received(s, number)
        elif code == codes.BEGIN:
            begin_after_wait(s, number)
        elif code == codes.SETTLE:
            settle_all(s)
        elif code == codes.CHANGE:
            change(s)
        elif code == codes.ADMIT:
            s.admitting = 0
            gather(s)
            while True:
                connection = decide_next(s)
                if connection < 0:
                    break
                begin_admitted(s, connection)
