"""Brings memory near that will be needed soon: of many ranks little is in the caches, and waiting for it takes most of the time.

None of this changes what happens; where a guess is wrong, it only has cost a little.
"""

from __future__ import annotations

from simulator.engine.compiled.calendar import number_of
from simulator.engine.compiled.layout import CONNECTION, COUNT, INCIDENCE, MESSAGE, NUMBER, RANK, REAL, connection_at, message_at, number_at
from simulator.engine.compiled.machine import Record, compiled, fetch

__all__ = ["fetch_connection", "fetch_rank", "foresee_messages"]

RANK_BYTES, COUNT_BYTES, NUMBER_BYTES, REAL_BYTES = RANK.itemsize, COUNT.itemsize, NUMBER.itemsize, REAL.itemsize
CONNECTION_BYTES, INCIDENCE_BYTES, MESSAGE_BYTES = CONNECTION.itemsize, INCIDENCE.itemsize, MESSAGE.itemsize


@compiled
def fetch_rank(s: Record, rank: int) -> None:
    """What a rank's next operation needs."""
    its = s.ranks + rank * RANK_BYTES
    fetch(its)
    fetch(its + 64)
    fetch(s.missing + rank * s.stride * COUNT_BYTES)
    fetch(s.slots + rank * s.slots_n * NUMBER_BYTES)


@compiled
def fetch_connection(s: Record, connection: int) -> None:
    """A connection on which something is about to be sent; most have equally many shared ports."""
    fetch(s.connections + connection * CONNECTION_BYTES)
    fetch(s.incidences + connection * s.shared_each * INCIDENCE_BYTES)


@compiled
def foresee_messages(s: Record, connection: int) -> None:
    """The next messages that end on a port where they end in order, the first of them on this connection."""
    c = connection_at(s.connections, connection)
    if c.front >= 0:
        rank = number_of(message_at(s.messages, c.front).arrived)
        if rank < s.ranks_n:
            fetch_rank(s, rank)
        fetch(s.carried + number_at(s.crossed, c.crosses + c.crossed - 1).n * REAL_BYTES)
        fetch(s.carried + number_at(s.crossed, c.crosses).n * REAL_BYTES)
    if c.after >= 0:
        following = connection_at(s.connections, c.after)
        if following.front >= 0:
            fetch(s.messages + following.front * MESSAGE_BYTES)
        fetch(s.crossed + following.crosses * NUMBER_BYTES)
        if following.after >= 0:
            fetch_connection(s, following.after)
