"""When chunks that go around a ring arrive, for all ranks at once.

In each round every rank sends one chunk to the next rank; it can send in round k + 1 what
it has received in round k. A late rank so delays first its neighbour, then the neighbour's
neighbour.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Times", "around_the_ring", "evenly_around_the_ring"]

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


def evenly_around_the_ring(ready_s: Times, chunk_s: float, latency_s: float, times: int = 1) -> Times:
    """The same for equal hops and ``times`` all-reduces of 2 (n - 1) rounds, one right after the other, in O(ranks).

    A chain of sends that ends at rank i after K = 2 (n - 1) rounds takes K chunk times,
    and a latency for each hop that it goes; it starts where it waited for a rank's own
    data. It can go any number of hops up to K, so of the chains from a rank the one that
    goes round most often counts: D hops, the largest number up to K that ends at rank i.
    Whoever has the result of one all-reduce enters the next (that it must first have sent
    its own last chunk as well delays no send of the next one, since its hop is occupied until
    then), so that k of them allow up to k K hops::

        finish[i] = k K chunk + max over j of (ready[j] + latency D),  D = k K - (k K - (i - j)) mod n

    No hop is occupied for longer than until the rank before it has finished, so that what
    came before need not be known.

    Parameters
    ----------
    ready_s
        When each rank has its own data, shape (ranks,), of two ranks at least.
    chunk_s
        Time that a chunk occupies a hop; of several all-reduces, the mean.
    latency_s
        Latency of a hop.
    times
        All-reduces, of which every rank enters each as soon as it has the result of the one before.

    Returns
    -------
    ndarray
        Arrival of the last chunk at each rank, shape (ranks,), in seconds.
    """
    ranks = len(ready_s)
    rounds = times * 2 * (ranks - 1)
    way_s = latency_s * np.arange(ranks)
    level_s = ready_s - way_s  # ready, so shifted that the distance no longer matters
    latest_s = np.maximum.accumulate(level_s[::-1])[::-1].copy()  # of the ranks from each one on
    np.maximum(latest_s[1:], np.maximum.accumulate(level_s)[:-1] - latency_s * ranks, out=latest_s[1:])  # and of those once round
    latest_s += way_s + (rounds * (chunk_s + latency_s))
    return np.roll(latest_s, rounds % ranks)
