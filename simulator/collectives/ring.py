"""Ring all-reduce, in one direction or in both.

The buffer is cut into one chunk a rank. In each of 2 (n - 1) rounds every rank sends one
chunk to the next rank: n - 1 rounds reduce, n - 1 gather. See Patarasuk and Yuan,
"Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009. The
bidirectional ring reduces one half of the buffer clockwise and the other half
counter-clockwise: it gains where the two neighbours are reached by different links.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial

import numpy as np

from simulator.collectives.around import Times, around_the_ring, evenly_around_the_ring
from simulator.collectives.collective import Scheduled
from simulator.collectives.schedule import Await, Lane, Message, Schedule
from simulator.collectives.wire import Wire, seconds_per_byte

__all__ = ["Rings", "bidirectional_ring_schedule", "ring_schedule"]


def _chunk(ranks: int, rank: int, way: int, index: int) -> Message:
    """What a rank sends in one round of the ring that goes ``way`` (+1 or -1)."""
    place = rank if way > 0 else -rank  # counted along the ring
    part = (place - index) % ranks + (0 if way > 0 else ranks)
    awaits = (Await((rank - way) % ranks, _number(way), index),) if index else ()
    return Message(part, part + 1, index < ranks - 1, awaits)


def _number(way: int) -> int:
    return 0 if way > 0 else 1


def _lane(ranks: int, rank: int, way: int, half: float) -> Lane:
    rounds = 2 * (ranks - 1)
    return Lane(rank, (rank + way) % ranks, _number(way), rounds, rounds / ranks * half, partial(_chunk, ranks, rank, way))


def _ring(ranks: int, ways: tuple[int, ...]) -> Schedule:
    lanes = [tuple(_lane(ranks, rank, way, 1 / len(ways)) for way in ways) if ranks > 1 else () for rank in range(ranks)]
    return Schedule(ranks, ranks * len(ways), lanes.__getitem__)


@lru_cache(maxsize=16)
def ring_schedule(ranks: int) -> Schedule:
    """From each rank to the next; part k starts at rank k."""
    return _ring(ranks, (1,))


@lru_cache(maxsize=16)
def bidirectional_ring_schedule(ranks: int) -> Schedule:
    """The first half of the parts from each rank to the next, the second half to the one before."""
    return _ring(ranks, (1, -1))


class Rings(Scheduled):
    """One ring or two at once, by the recurrence of their rounds.

    Exact if no port is shared. Two rings that share ports, as those of ranks with one
    link each do, are taken to share them equally at all times: exact for equal hops and
    ranks that enter together, otherwise never early.

    Parameters
    ----------
    name, protocol, wire
        As in :class:`~simulator.collectives.collective.Scheduled`.
    ranks
        How many.
    both
        Whether half of the buffer goes the other way.
    """

    def __init__(self, name: str, protocol: str, wire: Wire, ranks: int, both: bool) -> None:
        schedule = bidirectional_ring_schedule(ranks) if both else ring_schedule(ranks)
        super().__init__(name, protocol, lambda _: schedule, wire)
        self._ways = (1, -1) if both else (1,)
        connect = wire.fresh()
        hops = [wire.connection(lane.source, lane.target, connect) for way in range(len(self._ways)) for lane in _every(schedule, way)]
        shape = (len(self._ways), ranks if ranks > 1 else 0)
        self._s_per_byte = seconds_per_byte(hops).reshape(shape) * wire.bytes_per_byte
        self._latency_s = np.array([hop.latency_s for hop in hops]).reshape(shape)

        even = len(self._ways) == 1 and ranks > 1 and np.ptp(self._s_per_byte) == 0 and np.ptp(self._latency_s) == 0
        self._even = (float(self._s_per_byte[0, 0]), float(self._latency_s[0, 0])) if even else None

    def finish_run_s(self, enter_s: Times, sizes_bytes: Sequence[float]) -> Times | None:
        """When each rank has ended the last one; see :class:`~simulator.collectives.collective.Collective`."""
        if self._even is None:
            return None
        s_per_byte, latency_s = self._even
        mean_bytes = sum(sizes_bytes) / len(sizes_bytes)
        received_s = evenly_around_the_ring(enter_s, mean_bytes / self._ranks * s_per_byte, latency_s, len(sizes_bytes))
        return np.maximum(received_s, np.roll(received_s, -1) - latency_s)

    def _received_s(self, ready_s: Times, size_bytes: float, free_s: Times) -> Times:
        chunk_bytes = size_bytes / len(self._ways) / self._ranks
        start_s = np.maximum(ready_s, free_s)
        finish_s = ready_s.copy()
        for way, s_per_byte, latency_s in zip(self._ways, self._s_per_byte, self._latency_s, strict=True):
            # counter-clockwise is clockwise with the ranks in opposite order
            done_s, sent_s = _one_ring(start_s[::way], chunk_bytes * s_per_byte[::way], latency_s[::way])
            np.maximum(finish_s, done_s[::way], out=finish_s)
            np.maximum(free_s, sent_s[::way], out=free_s)
        return finish_s


def _every(schedule: Schedule, way: int) -> list[Lane]:
    return [lane for lane in schedule.lanes() if lane.number == way]


def _one_ring(start_s: Times, chunk_s: Times, latency_s: Times) -> tuple[Times, Times]:
    """When each rank has the result, and when the hop out of it has sent its last chunk."""
    if np.all(chunk_s == chunk_s[0]) and np.all(latency_s == latency_s[0]):
        finish_s = evenly_around_the_ring(start_s, float(chunk_s[0]), float(latency_s[0]))
        return finish_s, np.roll(finish_s, -1) - latency_s[0]
    sent_s = start_s.copy()
    finish_s = around_the_ring(start_s, sent_s, chunk_s, latency_s, 2 * (len(start_s) - 1))
    return finish_s, sent_s
