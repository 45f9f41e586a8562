"""What MirroredStrategy does without a collective library: whole buffers copied between devices.

``tf.distribute.ReductionToOneDevice`` copies all to one device, which sends the sum back.
``tf.distribute.HierarchicalCopyAllReduce`` does so in two halves of the devices, whose
first devices then exchange: made for the two groups of four of a DGX-1. TensorFlow's own
leaves the last of an odd number of devices out of both halves; here the second half has it.
TensorFlow adds a tensor when its copies from all devices of the group are there, so that
ranks do wait for one another.
"""

from __future__ import annotations

from functools import lru_cache

from simulator.collectives.schedule import Await, Lane, Schedule

__all__ = ["hierarchical_copy_schedule", "reduce_to_one_schedule"]


@lru_cache(maxsize=16)
def reduce_to_one_schedule(ranks: int) -> Schedule:
    """All to rank 0, and the sum from there."""
    sums = tuple(Await(rank, 0, 1) for rank in range(1, ranks))
    lanes = [tuple(_copy(0, rank, False, sums) for rank in range(1, ranks)), *((_copy(rank, 0, True),) for rank in range(1, ranks))]
    return Schedule(ranks, 1, lanes.__getitem__)


@lru_cache(maxsize=16)
def hierarchical_copy_schedule(ranks: int) -> Schedule:
    """Two groups that follow one another in rank; the first rank of each leads it."""
    lead = ranks // 2  # of the second group; the first group's leader is rank 0
    if lead == 0:
        return reduce_to_one_schedule(ranks)
    first, second = range(1, lead), range(lead + 1, ranks)
    lanes: list[list[Lane]] = [[] for _ in range(ranks)]
    for member in first:
        lanes[member].append(_copy(member, 0, True))
    for member in second:
        lanes[member].append(_copy(member, lead, True))
    lanes[lead].append(_copy(lead, 0, True, tuple(Await(member, 0, 1) for member in second)))
    everything = (*(Await(member, 0, 1) for member in first), Await(lead, 0, 1))
    lanes[0].extend(_copy(0, to, False, everything) for to in (lead, *first))
    lanes[lead].extend(_copy(lead, member, False, (Await(0, 0, 1),)) for member in second)
    return Schedule(ranks, 1, [tuple(some) for some in lanes].__getitem__)


def _copy(source: int, target: int, adds: bool, awaits: tuple[Await, ...] = ()) -> Lane:
    return Lane(source, target, 0, 1, 1, _whole, int(adds), awaits)


def _whole(_: int) -> int:
    return 0
