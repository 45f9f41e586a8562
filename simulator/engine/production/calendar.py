"""The calendar: what happens when, and in which order at one time.

Something that is to happen is two integers: ``what``, a code and a number packed by :func:`pack`, and ``about``, whatever else its handler
needs. Entries are ordered by time, then by the order in which they were made. Something happens at a time (``call_later``), when an alarm
goes off (``set_alarm``), right after what happens now (``soon``: consequences queue up, they do not nest), or last in this instant
(``at_end_of_instant``: work that must see all changes of an instant, as sharing links anew). Events within ``INSTANT_S`` happen in one
instant. Nothing here checks for room: ``loop`` keeps enough free before each thing that happens.

The time at which a port or a task must next be looked at changes often, so each has one alarm, which is moved. Alarms that are set in the
order in which they go off are in a list; only the others need a heap. There an alarm that has gone off stays first until the next entry is
requested, because most alarms are set again at once.

An observer gets rows in the order of what happens. Deferred work (by ``soon``, to another time, until a message arrives, or until a task or
a server has finished) has a context, which is copied back into the state when it runs. So ``s.cause`` is always the number of the work
because of which things happen now, and ``s.since_s`` when they were asked for. A number that ``tell`` gives must be the one that
``simulator.base.records.Log`` gives to the same record (``observer``). Without an observer there are no contexts.
"""

from __future__ import annotations

from simulator.engine.production.codes import ENDED
from simulator.engine.production.compiling import compiled
from simulator.engine.production.layout import Record
from simulator.engine.production.records import alarm_at, context_at, entry_at, heaped_alarm_at, item_at, logged_at
from simulator.program.program import INSTANT_S


@compiled
def save_context(s: Record, contexts: int, at: int) -> None:
    """Keep the cause of current work with the deferred work."""
    c = context_at(contexts, at)
    c.cause = s.cause
    c.since_s = s.since_s


@compiled
def restore_context(s: Record, contexts: int, at: int) -> None:
    """Run deferred work now."""
    c = context_at(contexts, at)
    s.cause = c.cause
    s.since_s = c.since_s


@compiled
def note(s: Record, kind: int, rank: int, about: int, begun_s: float, ended_s: float, cause: int) -> None:
    """Write a row."""
    row = logged_at(s.logged, s.logged_n)
    s.logged_n += 1
    row.kind = kind
    row.rank = rank
    row.about = about
    row.begun_s = begun_s
    row.ended_s = ended_s
    row.cause = cause


@compiled
def tell(s: Record, kind: int, rank: int, about: int, begun_s: float, cause: int) -> int:
    """Tell of a piece of work that ends now; its number."""
    note(s, kind, rank, about, begun_s, s.now, cause)
    number: int = s.logged_so_far
    s.logged_so_far = number + 1
    return number


@compiled
def passed(s: Record, rank: int, number: int, since_s: float, cause: int) -> int:
    """A rank passes a gate that it came to at ``since_s``, because of ``cause``; what let it pass."""
    if s.observed and s.now > since_s:
        return tell(s, ENDED, rank, number, since_s, cause)
    return cause


NOTE_BITS = 26
"""Lower bits of an entry's order: the place of the note that says what happens. Above them is the serial number."""
NOTES = (1 << NOTE_BITS) - 1
LISTED = -2
"""The place in the heap of an alarm that is in the list."""


@compiled
def pack(code: int, number: int) -> int:
    """A code and a number of 32 bits in one integer."""
    return (code << 32) | number


@compiled
def code_of(what: int) -> int:
    """The code of what is to happen."""
    return what >> 32


@compiled
def number_of(what: int) -> int:
    """The number that was packed with the code."""
    return what & 0xFFFFFFFF


# -- at a time ---------------------------------------------------------------------------


@compiled
def call_later(s: Record, delay: float, what: int, about: int) -> None:
    """Let something happen after some seconds."""
    if not (delay >= 0.0 and delay < float("inf")):
        s.over = 1
        s.at_once = 0
        s.refused = delay
        return
    time = s.now + delay
    make_entry(s, time, next_serial(s, time), what, about)


@compiled
def next_serial(s: Record, time: float) -> int:
    """The serial number of an entry that is made now, for a time."""
    serial: int = s.serial + 1
    s.serial = serial
    if time > s.latest:
        s.latest = time
    return serial


@compiled
def make_entry(s: Record, time: float, serial: int, what: int, about: int) -> None:
    """Put an entry that has a serial number on the calendar."""
    note = s.noted_free
    if note >= 0:
        s.noted_free = item_at(s.noted, note).about
    else:
        note = s.noted_made
        s.noted_made = note + 1
    item = item_at(s.noted, note)
    item.what = what
    item.about = about
    if s.observed:
        save_context(s, s.noted_contexts, note)
    base = s.calendar
    order = (serial << NOTE_BITS) | note
    if s.gap:
        s.gap = 0
        _sink_entry(base, s.entries, time, order)
        return
    at = s.entries
    s.entries = at + 1
    while at > 0:
        above = (at - 1) >> 2
        entry = entry_at(base, above)
        if entry.time < time or (entry.time == time and entry.order < order):
            break
        _put(base, at, entry.time, entry.order)
        at = above
    _put(base, at, time, order)


@compiled
def _put(base: int, at: int, time: float, order: int) -> None:
    entry = entry_at(base, at)
    entry.time = time
    entry.order = order


@compiled
def _precedes(base: int, at: int, other: int) -> bool:
    """Return whether one entry comes before another, without a branch: which it would be is a guess."""
    first, second = entry_at(base, at), entry_at(base, other)
    return (first.time < second.time) | ((first.time == second.time) & (first.order < second.order))


@compiled
def _move_on(s: Record, time: float) -> None:
    """Time passes until then; it does not advance within one instant."""
    if time - s.now > INSTANT_S:
        s.now = time
        s.instant += 1


@compiled
def _pop_entry(s: Record) -> None:
    """Take the first entry off the calendar; it is what happens now, and mostly another takes its place at once."""
    base = s.calendar
    first = entry_at(base, 0)
    _move_on(s, first.time)
    note = first.order & NOTES
    item = item_at(s.noted, note)
    s.what = item.what
    s.about = item.about
    if s.observed:
        restore_context(s, s.noted_contexts, note)
    item.about = s.noted_free
    s.noted_free = note
    s.gap = 1


@compiled
def _close_gap(s: Record) -> None:
    """Let the last entry of the calendar take the place of the one that happened, if no new one has."""
    s.gap = 0
    n = s.entries - 1
    s.entries = n
    if n > 0:
        last = entry_at(s.calendar, n)
        _sink_entry(s.calendar, n, last.time, last.order)


@compiled
def _sink_entry(base: int, n: int, time: float, order: int) -> None:
    """Put an entry in place of the first."""
    at = 0
    while True:
        below = 4 * at + 1
        if below >= n:
            break
        if below + 3 < n:
            left, right = below + _precedes(base, below + 1, below), below + 2 + _precedes(base, below + 3, below + 2)
            least = right if _precedes(base, right, left) else left
        else:
            least = below
            for other in range(below + 1, n):
                least = other if _precedes(base, other, least) else least
        entry = entry_at(base, least)
        least_time = entry.time
        least_order = entry.order
        if time < least_time or (time == least_time and order < least_order):
            break
        _put(base, at, least_time, least_order)
        at = least
    _put(base, at, time, order)


# -- alarms ------------------------------------------------------------------------------


@compiled
def set_alarm(s: Record, which: int, delay: float) -> None:
    """Look at a port or task after some seconds, and not when it was to be looked at before."""
    if not (delay >= 0.0 and delay < float("inf")):
        s.over = 1
        s.at_once = 0
        s.refused = delay
        return
    time = s.now + delay
    serial = next_serial(s, time)
    alarm = alarm_at(s.alarms, which)
    if alarm.at == LISTED:
        _unlist_alarm(s, alarm)
    alarm.time = time
    alarm.serial = serial
    if s.gone_off and alarm.at != 0 and time < heaped_alarm_at(s.heaped_alarms, 0).time:
        _remove_alarm(s, 0)  # its time lies a rounding after now, so that another would take its place, and be taken for it
    at = alarm.at
    last = s.alarm_last
    if last < 0 or alarm_at(s.alarms, last).time <= time:
        if at >= 0:
            _remove_alarm(s, at)
        _list_alarm(s, alarm, which)
        return
    if at < 0:
        at = s.alarms_n
        s.alarms_n = at + 1
        _raise_alarm(s, at, time, serial, which)
        return
    if at == 0:
        s.gone_off = 0
    if time < heaped_alarm_at(s.heaped_alarms, at).time:
        _raise_alarm(s, at, time, serial, which)
    else:
        _sink_alarm(s, at, time, serial, which)


@compiled
def drop_alarm(s: Record, which: int) -> None:
    """No longer look at a port or task when it was to be looked at."""
    alarm = alarm_at(s.alarms, which)
    if alarm.at == LISTED:
        _unlist_alarm(s, alarm)
    elif alarm.at >= 0:
        _remove_alarm(s, alarm.at)


@compiled
def _list_alarm(s: Record, alarm: Record, which: int) -> None:
    last = s.alarm_last
    alarm.at = LISTED
    alarm.before = last
    alarm.after = -1
    if last < 0:
        s.alarm_first = which
    else:
        alarm_at(s.alarms, last).after = which
    s.alarm_last = which


@compiled
def _unlist_alarm(s: Record, alarm: Record) -> None:
    before = alarm.before
    after = alarm.after
    if before < 0:
        s.alarm_first = after
    else:
        alarm_at(s.alarms, before).after = after
    if after < 0:
        s.alarm_last = before
    else:
        alarm_at(s.alarms, after).before = before
    alarm.at = -1


@compiled
def _remove_alarm(s: Record, at: int) -> None:
    """Take an alarm out of the heap."""
    if at == 0:
        s.gone_off = 0
    gone = heaped_alarm_at(s.heaped_alarms, at)
    alarm_at(s.alarms, gone.which).at = -1
    n = s.alarms_n - 1
    s.alarms_n = n
    if at < n:
        last = heaped_alarm_at(s.heaped_alarms, n)
        if last.time < gone.time or (last.time == gone.time and last.serial < gone.serial):
            _raise_alarm(s, at, last.time, last.serial, last.which)
        else:
            _sink_alarm(s, at, last.time, last.serial, last.which)


@compiled
def _put_alarm(s: Record, at: int, time: float, serial: int, which: int) -> None:
    heaped = heaped_alarm_at(s.heaped_alarms, at)
    heaped.time = time
    heaped.serial = serial
    heaped.which = which
    alarm_at(s.alarms, which).at = at


@compiled
def _raise_alarm(s: Record, at: int, time: float, serial: int, which: int) -> None:
    while at > 0:
        above = (at - 1) >> 1
        heaped = heaped_alarm_at(s.heaped_alarms, above)
        if heaped.time < time or (heaped.time == time and heaped.serial < serial):
            break
        _put_alarm(s, at, heaped.time, heaped.serial, heaped.which)
        at = above
    _put_alarm(s, at, time, serial, which)


@compiled
def _sink_alarm(s: Record, at: int, time: float, serial: int, which: int) -> None:
    base = s.heaped_alarms
    n = s.alarms_n
    while True:
        below = 2 * at + 1
        if below >= n:
            break
        if below + 1 < n:
            left, right = heaped_alarm_at(base, below), heaped_alarm_at(base, below + 1)
            below += (right.time < left.time) | ((right.time == left.time) & (right.serial < left.serial))  # a branch would be a guess
        heaped = heaped_alarm_at(base, below)
        if time < heaped.time or (time == heaped.time and serial < heaped.serial):
            break
        _put_alarm(s, at, heaped.time, heaped.serial, heaped.which)
        at = below
    _put_alarm(s, at, time, serial, which)


@compiled
def _first_alarm(s: Record) -> int:
    """Which port's or task's alarm goes off next; -1 if none is set; one that has gone off is out of the heap."""
    which = s.alarm_first
    if s.alarms_n == 0:
        return which
    heaped = heaped_alarm_at(s.heaped_alarms, 0)
    if which >= 0:
        alarm = alarm_at(s.alarms, which)
        if alarm.time < heaped.time or (alarm.time == heaped.time and alarm.serial < heaped.serial):
            return which
    return heaped.which


# -- at once, and at the end of an instant -----------------------------------------------


@compiled
def soon(s: Record, what: int, about: int) -> None:
    """Let something happen right after what happens now, and after what else was to follow from it."""
    at = (s.soon_first + s.soon_n) & (s.soon_room - 1)
    s.soon_n += 1
    item = item_at(s.soon, at)
    item.what = what
    item.about = about
    if s.observed:
        save_context(s, s.soon_contexts, at)


@compiled
def at_end_of_instant(s: Record, what: int, about: int) -> None:
    """Let something happen when nothing else is left to happen now."""
    at = s.end_first + s.end_n
    s.end_n += 1
    item = item_at(s.at_end, at & (s.end_room - 1))
    item.what = what
    item.about = about


# -- what is next ------------------------------------------------------------------------


@compiled
def next_of(s: Record) -> float:
    """When the calendar has something next; infinite if never."""
    if s.gap:
        _close_gap(s)
    time = float("inf")
    if s.entries > 0:
        time = entry_at(s.calendar, 0).time
    if s.alarm_first >= 0:
        time = min(time, alarm_at(s.alarms, s.alarm_first).time)
    first = s.gone_off  # the first that is still to go off is the root of the heap, or one of the two below it
    for at in range(first, min(2 * first + 1, s.alarms_n)):
        time = min(time, heaped_alarm_at(s.heaped_alarms, at).time)
    return time


@compiled
def next_entry(s: Record) -> int:
    """Go on to the next entry of the calendar: the port or task whose alarm it is, or -1 and the state says what happens."""
    if s.gap:
        _close_gap(s)
    if s.gone_off:
        _remove_alarm(s, 0)
    which = _first_alarm(s)
    if which >= 0:
        alarm = alarm_at(s.alarms, which)
        alarmed = True
        if s.entries > 0:
            entry = entry_at(s.calendar, 0)
            alarmed = alarm.time < entry.time or (alarm.time == entry.time and alarm.serial < entry.order >> NOTE_BITS)
        if alarmed:
            _move_on(s, alarm.time)
            if alarm.at == LISTED:
                _unlist_alarm(s, alarm)
            else:
                s.gone_off = 1
            return which
    _pop_entry(s)
    return -1
