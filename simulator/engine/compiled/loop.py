"""The main loop of the network and the cores: lets happen what comes next, until something else does or Python is needed.

It takes what is next in the order of ``simulator.network.kernel``. What happens to a program is handled in ``interpreter``; the
reasons to return to Python, below, are answered in ``engine``.
"""

from __future__ import annotations

from simulator.engine.compiled import codes
from simulator.engine.compiled.admission import decide_next, gather
from simulator.engine.compiled.background import change
from simulator.engine.compiled.calendar import code_of, next_entry, next_of, number_of
from simulator.engine.compiled.cores import leave
from simulator.engine.compiled.flows import begin_admitted, begin_after_wait, end_messages, received, settle_all, stand_for_link
from simulator.engine.compiled.layout import item_at
from simulator.engine.compiled.machine import Record, compiled
from simulator.engine.compiled.observed_rows import restore_context

__all__ = ["DRAINED", "FULL", "HANDLE", "OVER", "REFUSED", "SLICE", "WEIGHTS", "advance"]

SLICE = 0
"""As much has happened as was asked for."""
DRAINED = 1
"""Nothing is left that could happen."""
OVER = 2
"""What was waited for has happened."""
FULL = 3
"""A table must grow before anything else happens."""
WEIGHTS = 4
"""More weights of messages are needed."""
HANDLE = 5
"""``what`` and ``about`` are not of the network; the caller is to handle them."""
REFUSED = 6
"""A delay that is not a finite number, or below 0, was asked for."""


@compiled
def _is_full(s: Record) -> bool:
    """Whether what happens next may need more room than there is: it may end all messages, and begin ``spare`` others."""
    most = s.messages_n + s.spare + 8
    return (
        s.entries + most > s.entries_room
        or s.soon_n + 2 * most + s.soon_spare > s.soon_room
        or most > s.messages_room
        or s.works_n + s.spare + 8 > s.works_room
        or s.end_n + s.spare + 8 > s.end_room
        or s.jobs_n + s.spare > s.jobs_room
        or s.comings_n + s.spare > s.comings_room
    )


@compiled
def advance(s: Record) -> int:
    """Let happen what is the network's until something else does; why it stopped.

    It stops after ``left`` things, of which an instant can hold millions, so that Python can look at whether the user wants to.
    """
    while True:
        if s.over != 0:
            return OVER if s.over > 0 else REFUSED
        if s.left <= 0:
            return SLICE
        s.left -= 1
        if _is_full(s):
            return FULL
        if s.weighted and s.weights_next + s.messages_n + s.spare + 8 > s.weights_n:
            return WEIGHTS
        if s.soon_n > 0:
            at = s.soon_first & (s.soon_room - 1)
            item = item_at(s.soon, at)
            if s.observed:
                restore_context(s, s.soon_contexts, at)
            s.soon_n -= 1
            s.soon_first = s.soon_first + 1 if s.soon_n > 0 else 0  # not all of a large table is ever used, then
            s.what = item.what
            s.about = item.about
        elif s.end_n > 0 and next_of(s) > s.now:
            item = item_at(s.at_end, s.end_first & (s.end_room - 1))
            s.end_n -= 1
            s.end_first = s.end_first + 1 if s.end_n > 0 else 0
            s.what = item.what
            s.about = item.about
        elif s.entries + s.alarms_n - s.gone_off == 0 and s.alarm_first < 0:
            s.now = s.latest
            return DRAINED
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
            return HANDLE
        number = number_of(what)
        if code == codes.STAND_FOR_LINK:
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
