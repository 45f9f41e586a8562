"""Rings, in one direction or in both: all-reduce, reduce-scatter and all-gather.

The buffer is cut into one chunk a rank. In each round every rank sends one chunk to the next rank: n - 1 rounds reduce and scatter,
n - 1 gather, and an all-reduce is one after the other. See Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters
of workstations", 2009. The bidirectional ring sends one half of the buffer clockwise and the other half counter-clockwise: it gains
where the two neighbours are reached by different links. Where NICs belong to devices there is a ring for each rail, with its part of
the buffer, which enters every node at a device of that rail, as NCCL's channels do.

The messages (the schedules) and the times at once (:class:`Rings`) describe the same: change both together
(tests/oracle/test_collectives.py, test_groups.py and test_fabrics.py compare them).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache, partial

import numpy as np

from simulator.collectives.around import Times, around_the_ring, evenly_around_the_ring, turned
from simulator.collectives.collective import Scheduled
from simulator.collectives.wire import Wire
from simulator.program.operations import Operation
from simulator.program.program import Integers
from simulator.program.schedule import Await, Columns, Lane, Schedule


def _rounds(ranks: int, operation: Operation) -> int:
    return (2 if operation == "all-reduce" else 1) * (ranks - 1)


def _first(ranks: int, rank: int, way: int, ahead: int, index: int) -> int:
    """The chunk that a rank sends in a round of the ring that goes ``way`` (+1 or -1)."""
    return (rank - way * (index + ahead)) % ranks + (0 if way > 0 else ranks)


def _lane(ranks: int, operation: Operation, way: int, rank: int) -> Lane:
    rounds, number = _rounds(ranks, operation), 0 if way > 0 else 1
    adding = 0 if operation == "all-gather" else ranks - 1
    # a chunk that is to end at its own rank begins with the rank after it
    first = partial(_first, ranks, rank, way, 1 if operation == "reduce-scatter" else 0)
    return Lane(rank, (rank + way) % ranks, number, rounds, 1, first, adding, (Await((rank - way) % ranks, number, 0, 1),))


def _columns(ranks: int, operation: Operation, ways: tuple[int, ...]) -> Columns:
    source = np.repeat(np.arange(ranks if ranks > 1 else 0, dtype=np.int32), len(ways))
    target = (source + np.tile(np.array(ways, dtype=np.int32), ranks if ranks > 1 else 0)) % ranks
    number = np.tile(np.array([0 if way > 0 else 1 for way in ways], dtype=np.int32), ranks if ranks > 1 else 0)
    messages, parts = (np.broadcast_to(np.int32(each), source.shape) for each in (_rounds(ranks, operation), 1))
    return Columns(source, target, number, messages, parts)


def _ring(ranks: int, operation: Operation, ways: tuple[int, ...]) -> Schedule:
    def lanes(rank: int) -> tuple[Lane, ...]:
        return tuple(_lane(ranks, operation, way, rank) for way in ways) if ranks > 1 else ()

    return Schedule(ranks, ranks * len(ways), lanes, lambda: _columns(ranks, operation, ways))


@lru_cache(maxsize=16)
def ring_schedule(ranks: int, operation: Operation = "all-reduce") -> Schedule:
    """From each rank to the next; all-reduce, reduce-scatter or all-gather."""
    return _ring(ranks, operation, (1,))


@lru_cache(maxsize=16)
def bidirectional_ring_schedule(ranks: int, operation: Operation = "all-reduce") -> Schedule:
    """The first half of the parts from each rank to the next, the second half to the one before."""
    return _ring(ranks, operation, (1, -1))


@lru_cache(maxsize=16)
def rail_ring_schedule(ranks: int, joined: int, rails: int, operation: Operation = "all-reduce") -> Schedule:
    """A ring for each of ``rails`` equal parts of the ``joined`` ranks of a node, which enters each node there."""
    orders = [_order_of_rail(ranks, joined, rails, rail) for rail in range(rails)]
    places = [np.argsort(order) for order in orders]

    def lanes(rank: int) -> tuple[Lane, ...]:
        return tuple(
            _rail_lane(ranks, operation, rail, order, int(place[rank]))
            for rail, (order, place) in enumerate(zip(orders, places, strict=True))
        )

    return Schedule(ranks, ranks * rails, lanes)


def _order_of_rail(ranks: int, joined: int, rails: int, rail: int) -> Integers:
    """The ranks in the order of a rail's ring."""
    place = np.arange(ranks)
    return place // joined * joined + (place + rail * (joined // rails)) % joined


def _rail_lane(ranks: int, operation: Operation, rail: int, order: Integers, place: int) -> Lane:
    its = _lane(ranks, operation, 1, place)

    def first(index: int) -> int:
        return rail * ranks + int(order[its.first(index)])

    before = Await(int(order[place - 1]), rail, 0, 1)
    return Lane(int(order[place]), int(order[its.target]), rail, its.messages, 1, first, its.adding, (before,))


class Rings(Scheduled):
    """One ring, two or one a rail at once, by the recurrence of their rounds.

    Exact if no port is shared. Rings that share ports, as two of ranks with one link each
    do, or rings of groups beside one another, are taken to share them equally at all times:
    exact for ranks that enter together if hops that share a port are equal, otherwise never
    early.

    Parameters
    ----------
    name, protocol, wire
        As in :class:`~simulator.collectives.collective.Scheduled`.
    operation
        All-reduce, reduce-scatter or all-gather.
    both
        Whether half of the buffer goes the other way.
    rails
        Of a node, with a ring for each.
    """

    def __init__(self, name: str, protocol: str, wire: Wire, operation: Operation, both: bool, rails: int = 1) -> None:
        ranks = len(wire.group)
        schedule = (bidirectional_ring_schedule if both else ring_schedule)(ranks, operation)
        here = np.arange(ranks if ranks > 1 else 0)
        self._orders: tuple[Integers | slice, ...] = (slice(None), slice(None, None, -1)) if both else (slice(None),)
        if rails > 1:
            schedule = rail_ring_schedule(ranks, wire.group.neighbours, rails, operation)
            self._orders = tuple(_order_of_rail(ranks, wire.group.neighbours, rails, rail) for rail in range(rails))
        super().__init__(name, protocol, lambda _: schedule, wire)
        self._rounds = _rounds(ranks, operation)
        shape = (len(self._orders), len(here))
        source, target = np.tile(here, len(self._orders)), np.empty(shape, dtype=np.int64)
        for order, its in zip(self._orders, target, strict=True):
            its[order] = np.roll(here[order], -1)
        laid = wire.laid(source, target.ravel())
        paces = wire.paces(laid)
        self._s_per_byte = paces.s_per_byte[0].reshape(shape)
        self._latency_s = paces.latency_s[0].reshape(shape)

        even = len(self._orders) == 1 and ranks > 1 and np.ptp(self._s_per_byte) == 0 and np.ptp(self._latency_s) == 0
        self._even = (float(self._s_per_byte[0, 0]), float(self._latency_s[0, 0])) if even else None

    def finish_run_s(self, enter_s: Times, sizes_bytes: Sequence[float]) -> Times | None:
        """When each rank has ended the last one; see :class:`~simulator.collectives.collective.Collective`."""
        if self._even is None:
            return None
        s_per_byte, latency_s = self._even
        mean_bytes = math.fsum(sizes_bytes) / len(sizes_bytes)
        received_s = evenly_around_the_ring(enter_s, mean_bytes / self._ranks * s_per_byte, latency_s, len(sizes_bytes) * self._rounds)
        return np.maximum(received_s, turned(received_s, -1) - latency_s)

    def _received_s(self, ready_s: Times, size_bytes: float, free_s: Times) -> Times:
        chunk_bytes = size_bytes / len(self._orders) / self._ranks
        start_s = np.maximum(ready_s, free_s)
        if self._even is not None:
            s_per_byte, latency_s = self._even
            received_s = evenly_around_the_ring(start_s, chunk_bytes * s_per_byte, latency_s, self._rounds)
            np.maximum(free_s, turned(received_s, -1) - latency_s, out=free_s)
            return received_s  # nobody has all before it was ready
        finish_s = ready_s.copy()
        for order, of_byte_s, of_hop_s in zip(self._orders, self._s_per_byte, self._latency_s, strict=True):
            # each ring with the ranks in its own order; counter-clockwise is clockwise in the opposite one
            done_s, sent_s = _one_ring(start_s[order], chunk_bytes * of_byte_s[order], of_hop_s[order], self._rounds)
            finish_s[order] = np.maximum(finish_s[order], done_s)
            free_s[order] = np.maximum(free_s[order], sent_s)
        return finish_s


def _one_ring(start_s: Times, chunk_s: Times, latency_s: Times, rounds: int) -> tuple[Times, Times]:
    """When each rank has the result, and when the hop out of it has sent its last chunk."""
    if (chunk_s == chunk_s[0]).all() and (latency_s == latency_s[0]).all():
        finish_s = evenly_around_the_ring(start_s, float(chunk_s[0]), float(latency_s[0]), rounds)
        return finish_s, turned(finish_s, -1) - latency_s[0]
    sent_s = start_s.copy()
    finish_s = around_the_ring(start_s, sent_s, chunk_s, latency_s, rounds)
    return finish_s, sent_s
