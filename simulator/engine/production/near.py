"""Prefetches records that will be needed soon: of many ranks little is in the caches, and waiting for it takes most of the time.

None of this changes what happens; where a guess is wrong, it only has cost a little.
"""

from __future__ import annotations

from simulator.engine.production.calendar import number_of
from simulator.engine.production.compiling import compiled, fetch
from simulator.engine.production.layout import CONNECTION, COUNT, INCIDENCE, MESSAGE, NUMBER, RANK, READ, REAL, Record
from simulator.engine.production.records import connection_at, message_at, number_at, sort_at

RANK_BYTES, COUNT_BYTES, NUMBER_BYTES = RANK.itemsize, COUNT.itemsize, NUMBER.itemsize
READ_BYTES, REAL_BYTES = READ.itemsize, REAL.itemsize
LINE_BYTES, MOST_BYTES = 64, 256
CONNECTION_BYTES, INCIDENCE_BYTES, MESSAGE_BYTES = CONNECTION.itemsize, INCIDENCE.itemsize, MESSAGE.itemsize


@compiled
def fetch_rank(s: Record, rank: int) -> None:
    """Data for a rank's next operation."""
    record = s.ranks + rank * RANK_BYTES
    fetch(record)
    fetch(record + 64)
    if s.slots_n * NUMBER_BYTES == RANK_BYTES:  # counts and paths stand in the rank's own record
        return
    _fetch_all(s.missing + rank * s.stride * COUNT_BYTES, s.stride * COUNT_BYTES)
    _fetch_all(s.slots + rank * s.slots_n * NUMBER_BYTES, s.slots_n * NUMBER_BYTES)


@compiled
def _fetch_all(address: int, size: int) -> None:
    """Everything from an address on, as far as it is not too much."""
    for at in range(0, min(size, MOST_BYTES), LINE_BYTES):
        fetch(address + at)


@compiled
def fetch_versions(s: Record, rank: int, server: int) -> None:
    """Data of a rank for a server that is about to work for it."""
    fetch(s.versions + (rank * s.servers_n + server) * READ_BYTES)


@compiled
def fetch_order(s: Record, rank: int, step: int) -> None:
    """The order in which a rank's step reads."""
    _fetch_all(s.orders + (rank * s.orders_n + step % s.orders_n) * s.order * NUMBER_BYTES, s.order * NUMBER_BYTES)


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
        sort = sort_at(s.sorts, c.sort)
        crosses = sort.crosses + connection * sort.crossed
        fetch(s.carried + number_at(s.crossed, crosses + sort.crossed - 1).n * REAL_BYTES)
        fetch(s.carried + number_at(s.crossed, crosses).n * REAL_BYTES)
    if c.after >= 0:
        following = connection_at(s.connections, c.after)
        if following.front >= 0:
            fetch(s.messages + following.front * MESSAGE_BYTES)
        sort = sort_at(s.sorts, following.sort)
        fetch(s.crossed + (sort.crosses + c.after * sort.crossed) * NUMBER_BYTES)
        if following.after >= 0:
            fetch_connection(s, following.after)
