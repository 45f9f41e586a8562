"""Hierarchical all-reduce.

A ring inside each node reduces and scatters, so that device k of a node holds the sum of
shard k; the devices that hold the same shard all-reduce it in a ring between the nodes;
the rings inside the nodes gather. Between nodes go 2 (m - 1) / m S a node rather than as
much through one device. See Jia et al., "Highly scalable deep learning training system
with mixed-precision", 2018, section 5.2, and Horovod's hierarchical all-reduce.
"""

from __future__ import annotations

import math
from functools import lru_cache, partial

import numpy as np

from simulator.collectives.around import Times, around_the_ring, evenly_around_the_ring
from simulator.collectives.collective import Scheduled
from simulator.collectives.schedule import Await, Lane, Message, Schedule
from simulator.collectives.wire import Wire, seconds_per_byte

__all__ = ["Hierarchical", "group_size", "hierarchical_schedule"]

_INNER, _OUTER = 0, 1


def group_size(ranks: int, ranks_per_node: int) -> int:
    """Ranks of an inner ring: the most that divide both, so that all rings are alike and none leaves its node."""
    return math.gcd(ranks, ranks_per_node)


@lru_cache(maxsize=16)
def hierarchical_schedule(ranks: int, group: int) -> Schedule:
    """``group`` shards of ``ranks / group`` parts each."""
    shape = ranks // group, group
    return Schedule(ranks, ranks, lambda rank: _lanes(rank, *shape))


def _lanes(rank: int, groups: int, group: int) -> tuple[Lane, ...]:
    place, column = divmod(rank, group)
    lanes = []
    if group > 1:
        to = place * group + (column + 1) % group
        rounds = 2 * (group - 1)
        lanes.append(Lane(rank, to, _INNER, rounds, rounds / group, partial(_inner, rank, groups, group)))
    if groups > 1:
        rounds = 2 * (groups - 1)
        to = (place + 1) % groups * group + column
        lanes.append(Lane(rank, to, _OUTER, rounds, rounds / groups / group, partial(_outer, rank, groups, group)))
    return tuple(lanes)


def _from(rank: int, groups: int, group: int, inner: int, outer: int) -> tuple[Await, ...]:
    """So many messages from the rank before in the inner ring, and from the one before in the outer ring."""
    place, column = divmod(rank, group)
    awaits = [
        Await(place * group + (column - 1) % group, _INNER, inner if group > 1 else 0),
        Await((place - 1) % groups * group + column, _OUTER, outer if groups > 1 else 0),
    ]
    return tuple(await_ for await_ in awaits if await_.messages)


def _inner(rank: int, groups: int, group: int, index: int) -> Message:
    """Reduce and scatter, then gather: shard ``column - index`` goes on each time."""
    shard = (rank % group - index) % group
    gathers = index >= group - 1
    awaits = _from(rank, groups, group, index, 2 * (groups - 1) if gathers else 0)
    return Message(shard * groups, (shard + 1) * groups, not gathers, awaits)


def _outer(rank: int, groups: int, group: int, index: int) -> Message:
    """The ring of those who hold the same shard: of device k it is shard k + 1."""
    place, column = divmod(rank, group)
    part = (column + 1) % group * groups + (place - index) % groups
    return Message(part, part + 1, index < groups - 1, _from(rank, groups, group, group - 1, index))


class Hierarchical(Scheduled):
    """By the recurrences of its rings.

    Exact if each device has a link of its own between nodes, and for ranks that enter
    together. Where the devices of a node share its link, they are taken to have equal
    shares of it at all times; what one does not use is lost to the others. So nobody is
    early, and nobody later than by what the buffer takes between nodes.
    """

    def __init__(self, name: str, protocol: str, wire: Wire, ranks: int) -> None:
        group = group_size(ranks, wire.ranks_per_node)
        schedule = hierarchical_schedule(ranks, group)
        super().__init__(name, protocol, lambda _: schedule, wire)
        self._shape = ranks // group, group
        connect = wire.fresh()
        self._rings: dict[int, tuple[Times, Times]] = {}  # seconds per byte and latency, shape (groups, group)
        for ring in (_INNER, _OUTER):
            hops = [wire.connection(lane.source, lane.target, connect) for lane in schedule.lanes() if lane.number == ring]
            if hops:
                s_per_byte = seconds_per_byte(hops).reshape(self._shape) * wire.bytes_per_byte
                self._rings[ring] = s_per_byte, np.array([hop.latency_s for hop in hops]).reshape(self._shape)

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
        even = [evenly_around_the_ring(column_s, float(chunk_s[0, 0]), float(latency_s[0, 0])) for column_s in start_s.T]
        finish_s = np.stack(even, axis=1)
        return finish_s, np.roll(finish_s, -1, axis=0) - latency_s
    sent_s = start_s.T.copy()
    finish_s = around_the_ring(start_s.T, sent_s, chunk_s.T, latency_s.T, 2 * (len(start_s) - 1))
    return finish_s.T.copy(), sent_s.T.copy()
