"""What an observer gets: rows, in the order of what happens, that Python makes records of.

What let something happen goes along with it: whatever is put off (by ``soon``, to another time, until a message has come, or until
a task or a server has worked) has a context beside it, which is copied back into the state when it happens. So ``s.cause`` is always
the number of the work because of which things happen now, and ``s.since_s`` when they were asked for. Without an observer there are
no contexts.

:mod:`simulator.engine.production.observer` makes calls of the logs out of rows. A number that ``tell`` gives must be the one
that ``simulator.base.log.Log`` gives to the same record, so what is recorded, and in which order, is what SimPy's engine records.
"""

from __future__ import annotations

from simulator.engine.production.codes import ENDED
from simulator.engine.production.compiling import compiled
from simulator.engine.production.layout import Record
from simulator.engine.production.records import context_at, logged_at


@compiled
def save_context(s: Record, contexts: int, at: int) -> None:
    """Keep what lets things happen now, beside what is put off."""
    c = context_at(contexts, at)
    c.cause = s.cause
    c.since_s = s.since_s


@compiled
def restore_context(s: Record, contexts: int, at: int) -> None:
    """What was put off happens now."""
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
