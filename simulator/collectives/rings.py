"""Rings, in one direction or in both, one for each rail, or inside nodes and between them.

The buffer is cut into one chunk a rank. In each round every rank sends one chunk to the next rank, and can send in the next round what
it has received: n - 1 rounds reduce and scatter, n - 1 gather, and an all-reduce is one after the other. A late rank so delays first its
neighbour, then the neighbour's neighbour. See Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
workstations", 2009. The bidirectional ring sends one half of the buffer clockwise and the other half counter-clockwise: it gains
where the two neighbours are reached by different links. Where NICs belong to devices there is a ring for each rail, with its part of
the buffer, which enters every node at a device of that rail, as NCCL's channels do.

Hierarchically, a ring inside each node reduces and scatters, so that device k of a node holds the sum of shard k; the devices that hold
the same shard all-reduce it in a ring between the nodes; the rings inside the nodes gather. Between nodes go 2 (m - 1) / m S a node
rather than as much through one device. See Jia et al., "Highly scalable deep learning training system with mixed-precision", 2018,
section 5.2, and Horovod's hierarchical all-reduce.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial

import numpy as np

from simulator.collectives.collective import Collective
from simulator.collectives.wire import Wire
from simulator.program.program import Floats, Integers
from simulator.program.schedule import Await, Columns, Does, Lane, Schedule, columns

# -- recurrences --------------------------------------------------------------------------


def around_the_ring(ready_s: Floats, free_s: Floats, chunk_s: Floats, latency_s: Floats, rounds: int) -> Floats:
    """When chunks that go around a ring arrive, round by round: O(rounds x ranks).

    Parameters
    ----------
    ready_s
        When each rank has its own data, shape (..., ranks); the last axis goes around.
    free_s
        When the hop out of each rank has sent what came before, same shape; brought up to date.
    chunk_s
        Time that a chunk occupies the hop out of each rank; broadcast to the same shape.
    latency_s
        Latency of the hop out of each rank; broadcast to the same shape.
    rounds
        Chunks that each rank sends.

    Returns
    -------
    ndarray
        Arrival of the last chunk at each rank, in seconds.
    """
    has_s = ready_s.copy()  # when the rank has what it sends next
    for _ in range(rounds):
        np.maximum(has_s, free_s, out=free_s)
        free_s += chunk_s
        arrives_s = free_s + latency_s
        has_s[..., 1:] = arrives_s[..., :-1]
        has_s[..., 0] = arrives_s[..., -1]
        np.maximum(has_s, ready_s, out=has_s)
    return has_s


def evenly_around_the_ring(ready_s: Floats, chunk_s: float, latency_s: float, rounds: int) -> Floats:
    """The same for equal hops that carry nothing else, in O(ranks).

    A chain of sends that ends at rank i after K rounds takes K chunk times, and a latency
    for each hop that it goes; it starts where it waited for a rank's own data. It goes at
    least the last hop and at most K of them, so of the chains from a rank the one that
    goes round most often counts: D hops, the largest number up to K that ends at rank i::

        finish[i] = K chunk + max over j of (ready[j] + latency D),  D = K - (K - (i - j)) mod n

    and no sooner than ready[i]; with K = n - 1 no chain goes from a rank to itself.
    Several collectives right after one another are one with the rounds of all: whoever has
    the result of one enters the next (that it must first have sent its own last chunk as
    well delays no send of the next one, since its hop is occupied until then). No hop is
    occupied for longer than until the rank before it has finished, so that what came before
    need not be known.

    Parameters
    ----------
    ready_s
        When each rank has its own data, shape (ranks,), of two ranks at least.
    chunk_s
        Time that a chunk occupies a hop; of several collectives, the mean.
    latency_s
        Latency of a hop.
    rounds
        Chunks that each rank sends, n - 1 at least.

    Returns
    -------
    ndarray
        Arrival of the last chunk at each rank, shape (ranks,), in seconds.
    """
    ranks = len(ready_s)
    way_s = latency_s * np.arange(ranks, dtype=np.float64)  # from the first rank to each one
    level_s = ready_s - way_s  # ready, so shifted that the distance no longer matters
    latest_s = np.maximum.accumulate(level_s[::-1])[::-1]  # of the ranks from each one on
    before_s = np.maximum.accumulate(level_s) - latency_s * ranks  # and of those before it, once round
    if rounds >= ranks:
        np.maximum(latest_s[1:], before_s[:-1], out=latest_s[1:])
    else:
        # all but the rank just before, which is where the chain ends
        latest_s[0] = level_s[:-1].max()
        np.maximum(latest_s[2:], before_s[:-2], out=latest_s[2:])
    latest_s += way_s + (rounds * (chunk_s + latency_s))
    return np.maximum(_turned(latest_s, rounds % ranks), ready_s)


def _turned(values: Floats, places: int) -> Floats:
    """:func:`numpy.roll` by fewer places than there are values, which takes longer than all else here."""
    return np.concatenate((values[-places:], values[:-places])) if places else values


def _one_ring(start_s: Floats, chunk_s: Floats, latency_s: Floats, rounds: int) -> tuple[Floats, Floats]:
    """When each rank has the result, and when the hop out of it has sent its last chunk."""
    if (chunk_s == chunk_s[0]).all() and (latency_s == latency_s[0]).all():
        finish_s = evenly_around_the_ring(start_s, float(chunk_s[0]), float(latency_s[0]), rounds)
        return finish_s, _turned(finish_s, -1) - latency_s[0]
    sent_s = start_s.copy()
    return around_the_ring(start_s, sent_s, chunk_s, latency_s, rounds), sent_s


# -- one ring, or several at once -----------------------------------------------------------


def _orders(ranks: int, joined: int, rails: int, *, both: bool) -> list[Integers]:
    """The ranks in the order of each ring; a ring of one rank has none."""
    place = np.arange(ranks if ranks > 1 else 0)
    if both:
        return [place, place[::-1]]
    return [place // joined * joined + (place + rail * (joined // rails)) % joined for rail in range(rails)]


def _rounds(ranks: int, operation: Does) -> int:
    return (2 if operation == "all-reduce" else 1) * (ranks - 1)


@lru_cache(maxsize=32)
def ring_schedule(ranks: int, operation: Does = "all-reduce", *, both: bool = False, joined: int = 1, rails: int = 1) -> Schedule:
    """All-reduce, reduce-scatter or all-gather in rings.

    Parameters
    ----------
    ranks, operation
        Who takes part, in what.
    both
        Whether the first half of the parts goes from each rank to the next, and the second half to the one before.
    joined, rails
        Ranks of a node, and its rails: there is a ring for each of these, which enters each node at an equal part of its ranks.
    """
    orders = _orders(ranks, joined, rails, both=both)
    places = [np.argsort(order) for order in orders]
    rounds, adding = _rounds(ranks, operation), 0 if operation == "all-gather" else ranks - 1
    # a chunk that is to end at its own rank begins with the rank after it
    ahead = 1 if operation == "reduce-scatter" else 0

    def lanes(rank: int) -> tuple[Lane, ...]:
        return tuple(lane(number, order, int(place[rank])) for number, (order, place) in enumerate(zip(orders, places, strict=True)))

    def lane(number: int, order: Integers, at: int) -> Lane:
        first = partial(_chunk, order, number, at - ahead)
        before = Await(int(order[at - 1]), number, 0, 1)
        return Lane(int(order[at]), int(order[(at + 1) % ranks]), number, rounds, 1, first, adding, (before,))

    def at_once() -> Columns:
        target = np.stack([np.roll(order, -1)[place] for order, place in zip(orders, places, strict=True)], axis=1)
        source, number = np.indices(target.shape, dtype=np.int32)
        messages, parts = (np.broadcast_to(np.int32(each), source.size) for each in (rounds, 1))
        return Columns(source.ravel(), target.astype(np.int32).ravel(), number.ravel(), messages, parts)

    return Schedule(ranks, ranks * len(orders), lanes if ranks > 1 else lambda _: (), at_once)


def _chunk(order: Integers, ring: int, at: int, index: int) -> int:
    """The part that the rank at a place of a ring sends in a round."""
    return ring * len(order) + int(order[(at - index) % len(order)])


class Rings(Collective):
    """One ring, two or one a rail at once, by the recurrence of their rounds.

    Exact if no port is shared. Rings that share ports, as two of ranks with one link each
    do, or rings of parallel groups, are taken to share them equally at all times:
    exact for ranks that enter together if hops that share a port are equal, otherwise never
    early.

    Parameters
    ----------
    name, protocol, schedule, wire
        As in :class:`~simulator.collectives.collective.Collective`.
    operation, both, rails
        As in :func:`ring_schedule`.
    """

    _aligned = False

    def __init__(
        self, name: str, protocol: str, schedule: Callable[[float], Schedule], wire: Wire, *, operation: Does, both: bool, rails: int
    ) -> None:
        super().__init__(name, protocol, schedule, wire)
        ranks, joined = self._ranks, wire.group.neighbours if rails > 1 else 1
        self._rounds, self._orders = _rounds(ranks, operation), _orders(ranks, joined, rails, both=both)
        target = np.empty((len(self._orders), len(self._orders[0])), dtype=np.int64)
        for order, of_ring in zip(self._orders, target, strict=True):
            of_ring[order] = np.roll(order, -1)
        paces = wire.paces(wire.laid(np.tile(np.arange(target.shape[1]), len(target)), target.ravel()))
        self._s_per_byte = paces.s_per_byte[0].reshape(target.shape)
        self._latency_s = paces.latency_s[0].reshape(target.shape)
        even = len(target) == 1 and ranks > 1 and np.ptp(self._s_per_byte) == 0 and np.ptp(self._latency_s) == 0
        self._even = (float(self._s_per_byte[0, 0]), float(self._latency_s[0, 0])) if even else None

    def finish_run_s(self, enter_s: Floats, sizes_bytes: Sequence[float]) -> Floats | None:
        """When each rank has ended the last one; see :class:`~simulator.collectives.collective.Collective`."""
        if self._even is None:
            return None
        s_per_byte, latency_s = self._even
        mean_bytes = math.fsum(sizes_bytes) / len(sizes_bytes)
        received_s = evenly_around_the_ring(enter_s, mean_bytes / self._ranks * s_per_byte, latency_s, len(sizes_bytes) * self._rounds)
        return np.maximum(received_s, _turned(received_s, -1) - latency_s)

    def _received_s(self, ready_s: Floats, size_bytes: float, free_s: Floats) -> Floats:
        chunk_bytes = size_bytes / len(self._orders) / self._ranks
        start_s = np.maximum(ready_s, free_s)
        if self._even is not None:
            s_per_byte, latency_s = self._even
            received_s = evenly_around_the_ring(start_s, chunk_bytes * s_per_byte, latency_s, self._rounds)
            np.maximum(free_s, _turned(received_s, -1) - latency_s, out=free_s)
            return received_s  # nobody has all before it was ready
        finish_s = ready_s.copy()
        for order, of_byte_s, of_hop_s in zip(self._orders, self._s_per_byte, self._latency_s, strict=True):
            done_s, sent_s = _one_ring(start_s[order], chunk_bytes * of_byte_s[order], of_hop_s[order], self._rounds)
            finish_s[order] = np.maximum(finish_s[order], done_s)
            free_s[order] = np.maximum(free_s[order], sent_s)
        return finish_s


# -- inside nodes and between them ------------------------------------------------------------

INNER, OUTER = 0, 1
"""Numbers of lanes inside a node, and between nodes."""


def inner_lane(rank: int, joined: int, pieces: int, after: tuple[Await, ...]) -> Lane:
    """The ring inside a node of ``joined`` ranks, which reduces and scatters, then gathers: a shard of ``pieces`` parts a rank.

    ``after``: what gathering awaits besides.
    """
    place, column = divmod(rank, joined)
    before = Await(place * joined + (column - 1) % joined, INNER, 0, 1)
    to, first = place * joined + (column + 1) % joined, partial(_shard, column, joined, pieces)
    return Lane(rank, to, INNER, 2 * (joined - 1), pieces, first, joined - 1, (before, *after))


def _shard(column: int, joined: int, pieces: int, index: int) -> int:
    """Shard ``column - index`` goes on each time."""
    return (column - index) % joined * pieces


def scattered(rank: int, joined: int) -> Await:
    """Return what a rank awaits inside its node before it has the sum of its shard there."""
    return Await(rank // joined * joined + (rank % joined - 1) % joined, INNER, joined - 1)


@lru_cache(maxsize=16)
def hierarchical_schedule(ranks: int, joined: int) -> Schedule:
    """``joined`` shards of ``ranks / joined`` parts each; inner rings of ``joined`` ranks that follow one another."""
    nodes = ranks // joined

    def lanes(rank: int) -> tuple[Lane, ...]:
        place, column = divmod(rank, joined)
        outer = Await((place - 1) % nodes * joined + column, OUTER, 0, 1)
        reduced = outer._replace(base=2 * (nodes - 1), slope=0, start=joined - 1)
        inside = inner_lane(rank, joined, nodes, (reduced,) if nodes > 1 else ())
        awaits = (scattered(rank, joined), outer) if joined > 1 else (outer,)
        to, first = (place + 1) % nodes * joined + column, partial(_piece, place, (column + 1) % joined, nodes)
        between = Lane(rank, to, OUTER, 2 * (nodes - 1), 1, first, nodes - 1, awaits)
        return (*(inside,) * (joined > 1), *(between,) * (nodes > 1))

    return Schedule(ranks, ranks, lanes)


def _piece(place: int, shard: int, nodes: int, index: int) -> int:
    """The ring of those who hold the same shard: of device k it is shard k + 1."""
    return shard * nodes + (place - index) % nodes


class Hierarchical(Collective):
    """By the recurrences of its rings.

    Inner rings have as many ranks as all runs of neighbours on one node can be cut into
    (:attr:`~simulator.collectives.wire.Group.neighbours`); where that is one, there is but
    an outer ring, and where all ranks sit on one node, but an inner one.

    Exact if each device has a link of its own between nodes, and for ranks that enter
    together. Where the devices of a node share its link, they are taken to have equal
    shares of it at all times; what one does not use is lost to the others. So nobody is
    early, and nobody later than by what the buffer takes between nodes.
    """

    _aligned = False

    def __init__(self, name: str, protocol: str, schedule: Callable[[float], Schedule], wire: Wire) -> None:
        super().__init__(name, protocol, schedule, wire)
        self._shape = self._ranks // wire.group.neighbours, wire.group.neighbours
        lanes = columns(schedule(0.0))
        self._rings = {
            ring: tuple(column.reshape(self._shape) for column in wire.paces_of(lanes, lanes.number == ring))
            for ring in set(lanes.number.tolist())
        }

    def _received_s(self, ready_s: Floats, size_bytes: float, free_s: Floats) -> Floats:
        nodes, joined = self._shape
        has_s, sent_s = ready_s.reshape(self._shape).copy(), free_s.reshape(self._shape).copy()
        outside_s = sent_s.copy()
        if joined > 1:
            has_s = self._inside(has_s, sent_s, size_bytes)
        if nodes > 1:
            np.maximum(has_s, outside_s, out=has_s)
            s_per_byte, latency_s = self._rings[OUTER]
            has_s, outside_s = _between(has_s, size_bytes / joined / nodes * s_per_byte, latency_s)
        if joined > 1:
            has_s = self._inside(has_s, sent_s, size_bytes)
        free_s[:] = np.maximum(sent_s, outside_s).ravel()
        return has_s.ravel()

    def _inside(self, has_s: Floats, sent_s: Floats, size_bytes: float) -> Floats:
        s_per_byte, latency_s = self._rings[INNER]
        joined = self._shape[1]
        return around_the_ring(has_s, sent_s, size_bytes / joined * s_per_byte, latency_s, joined - 1)


def _between(start_s: Floats, chunk_s: Floats, latency_s: Floats) -> tuple[Floats, Floats]:
    """The rings between nodes, one a column, shape (nodes, joined): results, and when the hops have sent their last."""
    rounds = 2 * (len(start_s) - 1)
    if np.ptp(chunk_s) == 0 and np.ptp(latency_s) == 0:
        even = [evenly_around_the_ring(column_s, float(chunk_s[0, 0]), float(latency_s[0, 0]), rounds) for column_s in start_s.T]
        finish_s = np.stack(even, axis=1)
        return finish_s, np.roll(finish_s, -1, axis=0) - latency_s
    sent_s = start_s.T.copy()
    finish_s = around_the_ring(start_s.T, sent_s, chunk_s.T, latency_s.T, rounds)
    return finish_s.T.copy(), sent_s.T.copy()
