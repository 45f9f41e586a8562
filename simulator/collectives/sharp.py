"""All-reduce by the fabric's switches (SHARP): each node sends its data once and receives the sum once.

A ring inside each node reduces and scatters, as in the hierarchical all-reduce; of each part the ranks that hold it send it to a
tree of switches (:mod:`simulator.collectives.aggregation`), piece by piece, and get the sum; rings inside the nodes gather. The
messages (``sharp_schedule``) and the times at once (:class:`Sharp`) describe the same: change both together
(tests/oracle/test_fabrics.py compares them).
"""

from __future__ import annotations

import math
from functools import lru_cache, partial

import numpy as np

from simulator.collectives.aggregation import Trees, lanes_of_tree
from simulator.collectives.around import Times, around_the_ring
from simulator.collectives.collective import Scheduled
from simulator.collectives.wire import ConnectionTimes, Wire
from simulator.program.schedule import Await, Columns, Lane, Schedule, columns

_INNER, _OUTER = 0, 1


def sharp_pieces(size_bytes: float, joined: int, chunk_bytes: float) -> int:
    """Pieces that a rank sends to the switches: the fewest that are no larger than ``chunk_bytes``."""
    return max(math.ceil(size_bytes / joined / chunk_bytes), 1)


@lru_cache(maxsize=32)
def sharp_schedule(ranks: int, trees: Trees, pieces: int) -> Schedule:
    """A part of ``pieces`` parts for each tree, and inner rings of that number of ranks that follow one another."""
    joined = len(trees)
    lanes: list[list[Lane]] = [[] for _ in range(ranks)]
    if joined > 1:
        for rank in range(ranks):
            place, column = divmod(rank, joined)
            awaits = (
                Await(place * joined + (column - 1) % joined, _INNER, 0, 1),
                Await(ranks + _first_switch(trees, column) + trees[column][place], _OUTER, pieces, 0, joined - 1),
            )
            to, first = place * joined + (column + 1) % joined, partial(_shard, column, joined, pieces)
            lanes[rank].append(Lane(rank, to, _INNER, 2 * (joined - 1), pieces, first, joined - 1, awaits))
    switches = _first_switch(trees, joined)
    lanes += [[] for _ in range(switches)]
    for column, tree in enumerate(trees):
        its = list(range(column, ranks, joined))
        before = [Await(rank // joined * joined + (column - 1) % joined, _INNER, joined - 1) for rank in its]
        part = (column + 1) % joined * pieces  # what device k has after the ring is part k + 1
        for lane in lanes_of_tree(tree, its, ranks + _first_switch(trees, column), _OUTER, pieces, part, before):
            lanes[lane.source].append(lane)
    return Schedule(ranks, joined * pieces, [tuple(some) for some in lanes].__getitem__, switches=switches)


def _shard(column: int, joined: int, pieces: int, index: int) -> int:
    return (column - index) % joined * pieces


@lru_cache(maxsize=1024)
def _first_switch(trees: Trees, column: int) -> int:
    """How many switches come before a tree's."""
    return sum(max(tree) + 1 + (max(tree) > 0) for tree in trees[:column])


class Sharp(Scheduled):
    """By the recurrences of its rings and of its pieces.

    Streams that share a port are taken to have equal shares of it at all times: exact for
    ranks that enter together where those streams are alike, otherwise never early.

    Parameters
    ----------
    name, protocol, wire
        As in :class:`~simulator.collectives.collective.Scheduled`.
    trees
        The leaves of the group's nodes.
    chunk_bytes
        What a rank sends is cut into the fewest equal pieces that are no larger.
    """

    def __init__(self, name: str, protocol: str, wire: Wire, trees: Trees, chunk_bytes: float) -> None:
        ranks, self._joined = len(wire.group), len(trees)

        def schedule(size_bytes: float) -> Schedule:
            return sharp_schedule(ranks, trees, sharp_pieces(size_bytes, len(trees), chunk_bytes))

        super().__init__(name, protocol, schedule, wire)
        self._trees, self._chunk_bytes = trees, chunk_bytes
        lanes = columns(sharp_schedule(ranks, trees, 1))
        self._inner = self._paces(lanes, lanes.number == _INNER) if self._joined > 1 else None
        self._tree = self._paces(lanes, lanes.number == _OUTER)
        outer = np.flatnonzero(lanes.number == _OUTER)
        source, target = lanes.source[outer], lanes.target[outer]
        # lanes by what they lead from and to, each in the order of its source, or of its target
        self._up, self._down = np.flatnonzero(source < ranks), np.flatnonzero(target < ranks)
        self._up, self._down = self._up[np.argsort(source[self._up])], self._down[np.argsort(target[self._down])]
        leaf, top = target[self._up], {int(each) for each in target if each >= ranks} - set(target[self._up].tolist())
        self._leaf = leaf - ranks
        self._rising = np.flatnonzero(np.isin(target, list(top)))
        self._falling = np.flatnonzero(np.isin(source, list(top)))
        self._ends = source - ranks, target - ranks
        self._switches = sharp_schedule(ranks, trees, 1).switches

    def _paces(self, lanes: Columns, chosen: np.ndarray) -> ConnectionTimes:
        wire = self._wire
        paces = wire.paces(wire.laid(lanes.source[chosen], lanes.target[chosen]))
        return ConnectionTimes(paces.s_per_byte[0], paces.latency_s[0])

    def _received_s(self, ready_s: Times, size_bytes: float, free_s: Times) -> Times:
        shape = -1, self._joined
        has_s, ring_free_s = ready_s.copy(), free_s.copy()
        if self._inner is not None:
            chunk_s, latency_s = (its.reshape(shape) for its in (size_bytes / self._joined * self._inner.s_per_byte, self._inner.latency_s))
            ring_free_s = ring_free_s.reshape(shape)
            has_s = around_the_ring(has_s.reshape(shape), ring_free_s, chunk_s, latency_s, self._joined - 1).ravel()
        has_s, sent_s = self._through_switches(np.maximum(has_s, free_s), size_bytes / self._joined)
        if self._inner is not None:
            has_s = around_the_ring(has_s.reshape(shape), ring_free_s, chunk_s, latency_s, self._joined - 1).ravel()
            sent_s = np.maximum(sent_s, ring_free_s.ravel())
        free_s[:] = sent_s
        return has_s

    def _through_switches(self, start_s: Times, part_bytes: float) -> tuple[Times, Times]:
        """When each rank has the sum of its part, and when its own data has left it."""
        pieces = sharp_pieces(part_bytes, 1, self._chunk_bytes)
        piece_s, latency_s = part_bytes / pieces * self._tree.s_per_byte, self._tree.latency_s
        up, down, rising, falling = self._up, self._down, self._rising, self._falling
        source, target = self._ends
        left_s = np.full(len(piece_s), -np.inf)  # of each lane: when its last piece so far has left
        left_s[up] = start_s
        for _ in range(pieces):
            left_s[up] += piece_s[up]
            at_s = np.full(self._switches, -np.inf)  # when each switch has all of the piece
            np.maximum.at(at_s, self._leaf, left_s[up] + latency_s[up])
            if len(rising):
                left_s[rising] = np.maximum(left_s[rising], at_s[source[rising]]) + piece_s[rising]
                np.maximum.at(at_s, target[rising], left_s[rising] + latency_s[rising])
                left_s[falling] = np.maximum(left_s[falling], at_s[source[falling]]) + piece_s[falling]
                at_s[target[falling]] = left_s[falling] + latency_s[falling]
            left_s[down] = np.maximum(left_s[down], at_s[source[down]]) + piece_s[down]
        return left_s[down] + latency_s[down], left_s[up]
