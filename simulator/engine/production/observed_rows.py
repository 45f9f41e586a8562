"""What an observer gets: rows, in the order of what happens, that Python makes records of.

What let something happen goes along with it: whatever is put off (by ``soon``, to another time, until a message has come, or until
a task or a server has worked) has a context beside it, which is copied back into the state when it happens. So ``s.cause`` is always
the number of the work because of which things happen now, and ``s.since_s`` when they were asked for. Without an observer there are
no contexts.

:mod:`simulator.engine.production.observer` makes calls of the logs out of rows. A number that ``tell`` gives must be the one
that ``simulator.base.log.Log`` gives to the same record, so what is recorded, and in which order, is what SimPy's engine records.
"""

from __future__ import annotations

from simulator.engine.production.layout import context_at, logged_at
from simulator.engine.production.machine import Record, compiled

__all__ = [
    "ALL_REDUCE", "APPLIED", "CHUNK", "ENDED", "INDEX_BITS", "JOINED", "SENDING", "STARTED", "STEP", "UPDATE", "note", "passed",
    "restore_context", "save_context", "tell",
]  # fmt: skip

ENDED, APPLIED, STARTED, ALL_REDUCE, CHUNK, SENDING, JOINED, STEP, UPDATE = range(9)
"""Kinds of rows: the calls of the logs; the last two the recorder's."""
INDEX_BITS = 24
"""In ``about`` of the row of a message of a collective: bits of its number on its lane; the bucket stands above."""


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
