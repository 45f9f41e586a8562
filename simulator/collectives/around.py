"""When chunks that go around a ring arrive, for all ranks at once: the recurrence that ``ring``, ``hierarchical`` and ``sharp`` use.

In each round every rank sends one chunk to the next rank; it can send in round k + 1 what it has received in round k. A late rank
so delays first its neighbour, then the neighbour's neighbour. tests/oracle/test_collectives.py holds the times against the same
rings message by message.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.float64]


def around_the_ring(ready_s: Times, free_s: Times, chunk_s: Times, latency_s: Times, rounds: int) -> Times:
    """The recurrence itself, round by round: O(rounds x ranks).

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


def evenly_around_the_ring(ready_s: Times, chunk_s: float, latency_s: float, rounds: int) -> Times:
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
    way_s = _way_s(latency_s, ranks)
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
    return np.maximum(turned(latest_s, rounds % ranks), ready_s)


@lru_cache(maxsize=2)
def _way_s(latency_s: float, ranks: int) -> Times:
    """How long the way from the first rank to each one is, shape (ranks,); not to be changed."""
    return latency_s * np.arange(ranks, dtype=np.float64)


def turned(values: Times, places: int) -> Times:
    """Each value a number of places further on (fewer than there are values; below 0: back), and the last ones at the beginning.

    What :func:`numpy.roll` does with any number of axes, which for few ranks takes longer than all else here.
    """
    return np.concatenate((values[-places:], values[:-places])) if places else values
