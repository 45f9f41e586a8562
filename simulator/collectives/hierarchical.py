"""Hierarchical all-reduce.

A ring inside each node reduces and scatters, so that device k of a node holds the sum of shard k; the devices that hold the same
shard all-reduce it in a ring between the nodes; the rings inside the nodes gather. Between nodes go 2 (m - 1) / m S a node rather
than as much through one device. See Jia et al., "Highly scalable deep learning training system with mixed-precision", 2018,
section 5.2, and Horovod's hierarchical all-reduce.

The messages (``hierarchical_schedule``) and the times at once (:class:`Hierarchical`) describe the same: change both together
(tests/oracle/test_collectives.py compares them).
"""

from __future__ import annotations

from functools import lru_cache, partial

import numpy as np

from simulator.collectives.around import Times, around_the_ring, evenly_around_the_ring
from simulator.collectives.collective import Scheduled
from simulator.collectives.wire import ConnectionTimes, Wire
from simulator.program.schedule import Await, Lane, Schedule, columns

_INNER, _OUTER = 0, 1


@lru_cache(maxsize=16)
def hierarchical_schedule(ranks: int, group: int) -> Schedule:
    """``group`` shards of ``ranks / group`` parts each; inner rings of ``group`` ranks that follow one another."""
    shape = ranks // group, group
    return Schedule(ranks, ranks, lambda rank: _lanes(rank, *shape))


def _lanes(rank: int, groups: int, group: int) -> tuple[Lane, ...]:
    place, column = divmod(rank, group)
    inner = Await(place * group + (column - 1) % group, _INNER, 0, 1)
    outer = Await((place - 1) % groups * group + column, _OUTER, 0, 1)
    scattered = inner._replace(base=group - 1, slope=0)
    reduced = outer._replace(base=2 * (groups - 1), slope=0, start=group - 1)
    lanes = []
    if group > 1:
        to = place * group + (column + 1) % group
        # reduce and scatter, then gather what the outer ring has summed
        awaits = (inner, reduced) if groups > 1 else (inner,)
        lanes.append(Lane(rank, to, _INNER, 2 * (group - 1), groups, partial(_shard, column, groups, group), group - 1, awaits))
    if groups > 1:
        to = (place + 1) % groups * group + column
        awaits = (scattered, outer) if group > 1 else (outer,)
        lanes.append(Lane(rank, to, _OUTER, 2 * (groups - 1), 1, partial(_piece, place, column, groups, group), groups - 1, awaits))
    return tuple(lanes)


def _shard(column: int, groups: int, group: int, index: int) -> int:
    """Shard ``column - index`` goes on each time."""
    return (column - index) % group * groups


def _piece(place: int, column: int, groups: int, group: int, index: int) -> int:
    """The ring of those who hold the same shard: of device k it is shard k + 1."""
    return (column + 1) % group * groups + (place - index) % groups


class Hierarchical(Scheduled):
    """By the recurrences of its rings.

    Inner rings have as many ranks as all runs of neighbours on one node can be cut into
    (:attr:`~simulator.collectives.wire.Group.neighbours`); where that is one, there is but
    an outer ring, and where all ranks sit on one node, but an inner one.

    Exact if each device has a link of its own between nodes, and for ranks that enter
    together. Where the devices of a node share its link, they are taken to have equal
    shares of it at all times; what one does not use is lost to the others. So nobody is
    early, and nobody later than by what the buffer takes between nodes.
    """

    def __init__(self, name: str, protocol: str, wire: Wire) -> None:
        ranks, group = len(wire.group), wire.group.neighbours
        schedule = hierarchical_schedule(ranks, group)
        super().__init__(name, protocol, lambda _: schedule, wire)
        self._shape = ranks // group, group
        self._rings: dict[int, ConnectionTimes] = {}  # of this group, shape (groups, group)
        lanes = columns(schedule)
        for ring in (_INNER, _OUTER):
            its = lanes.number == ring
            if its.any():
                paces = wire.paces(wire.laid(lanes.source[its], lanes.target[its]))
                self._rings[ring] = ConnectionTimes(paces.s_per_byte[0].reshape(self._shape), paces.latency_s[0].reshape(self._shape))

    def _received_s(self, ready_s: Times, size_bytes: float, free_s: Times) -> Times:
        groups, group = self._shape
        has_s, sent_s = ready_s.reshape(self._shape).copy(), free_s.reshape(self._shape).copy()
        outside_s = sent_s.copy()
        if group > 1:
            s_per_byte, latency_s = self._rings[_INNER]
            has_s = around_the_ring(has_s, sent_s, size_bytes / group * s_per_byte, latency_s, group - 1)
        if groups > 1:
            np.maximum(has_s, outside_s, out=has_s)
            s_per_byte, latency_s = self._rings[_OUTER]
            chunk_s = size_bytes / group / groups * s_per_byte
            has_s, outside_s = _between(has_s, chunk_s, latency_s)
        if group > 1:
            s_per_byte, latency_s = self._rings[_INNER]
            has_s = around_the_ring(has_s, sent_s, size_bytes / group * s_per_byte, latency_s, group - 1)
        free_s[:] = np.maximum(sent_s, outside_s).ravel()
        return has_s.ravel()


def _between(start_s: Times, chunk_s: Times, latency_s: Times) -> tuple[Times, Times]:
    """The rings between groups, one a column, shape (groups, group): results, and when the hops have sent their last."""
    if np.ptp(chunk_s) == 0 and np.ptp(latency_s) == 0:
        even = [
            evenly_around_the_ring(column_s, float(chunk_s[0, 0]), float(latency_s[0, 0]), 2 * (len(start_s) - 1)) for column_s in start_s.T
        ]
        finish_s = np.stack(even, axis=1)
        return finish_s, np.roll(finish_s, -1, axis=0) - latency_s
    sent_s = start_s.T.copy()
    finish_s = around_the_ring(start_s.T, sent_s, chunk_s.T, latency_s.T, 2 * (len(start_s) - 1))
    return finish_s.T.copy(), sent_s.T.copy()
