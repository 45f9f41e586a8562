"""Splits a series of step times where its level changes: binary segmentation by Pettitt's rank test.

Pettitt, "A non-parametric approach to the change-point problem" (Applied Statistics 28, 1979): of n values with ranks R the statistic
is K, the largest of |2 (R_1 + ... + R_t) - t (n + 1)| over t, and its significance about 2 exp(-6 K^2 / (n^3 + n^2)). It holds
for values that do not depend on each other, so it is put to means of blocks that are long enough for that.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

__all__ = ["LEAST_CHANGE", "Level", "levels_of"]

Array = NDArray[np.float64]
Rows = NDArray[np.int64]

LEAST_CHANGE = 0.05
"""Levels are apart from so much of the smaller one on."""
_SIGNIFICANCE = 0.002
_FEWEST = 6
"""Blocks of a level."""
_MOST_BLOCKS = 20_000
_MOST_LEVELS = 64


@dataclass(frozen=True)
class Level:
    """A stretch of one level.

    Attributes
    ----------
    first, end
        Index of its first row, and of the row behind its last; rows between that do not count lie inside.
    rows
        How many of them count.
    median_s
        Seconds of a step.
    """

    first: int
    end: int
    rows: int
    median_s: float


def levels_of(times: Array, rows: Rows, persistence: float, total: int) -> tuple[Level, ...]:
    """The levels of a series.

    Parameters
    ----------
    times
        Of the rows that count, shape (n,), above zero.
    rows
        Their indices among all rows, ascending, shape (n,).
    persistence
        Autocorrelation of successive rows.
    total
        Of all rows, where the last level ends.
    """
    if not len(times):
        return ()
    # values this far apart are correlated by less than 5%, and a block has as many independent ones at least
    block = 1 if persistence <= 0 else math.ceil(math.log(0.05) / math.log(min(persistence, 0.99)))
    block = max(block, -(-len(times) // _MOST_BLOCKS))
    bounds = [0, len(times)]
    open_ = [(0, len(times))]
    while open_ and len(bounds) <= _MOST_LEVELS:
        first, end = open_.pop()
        place = _change(times[first:end], block)
        if place is not None:
            bounds.append(first + place)
            open_ += [(first, first + place), (first + place, end)]
    bounds.sort()
    return tuple(
        Level(
            int(rows[first]) if first else 0,
            int(rows[end]) if end < len(rows) else total,
            end - first,
            float(np.median(times[first:end])),
        )
        for first, end in itertools.pairwise(bounds)
    )


def _change(times: Array, block: int) -> int | None:
    """Before which value the level changes; None where it does not, or by too little to matter."""
    count = len(times) // block
    if count < 2 * _FEWEST:
        return None
    logs = np.log(times)
    means = logs[: count * block].reshape(count, block).mean(axis=1)
    ranks = rankdata(means)
    places = np.arange(1, count)
    statistic = np.abs(2 * np.cumsum(ranks)[:-1] - places * (count + 1))
    at = int(np.argmax(statistic)) + 1
    chance = 2 * math.exp(-6 * float(statistic[at - 1]) ** 2 / (count**3 + count**2))
    if chance > _SIGNIFICANCE or min(at, count - at) < _FEWEST:
        return None
    place = _nearer(logs, at * block, block)
    before, behind = float(np.median(logs[:place])), float(np.median(logs[place:]))
    return place if abs(behind - before) >= math.log1p(LEAST_CHANGE) else None


def _nearer(logs: Array, place: int, block: int) -> int:
    """The place within two blocks around one at which both sides lie nearest to their medians."""
    if block == 1:
        return place
    low, high = float(np.median(logs[:place])), float(np.median(logs[place:]))
    first, end = max(place - 2 * block, 1), min(place + 2 * block, len(logs) - 1)
    cost = np.abs(logs[first:end] - low) - np.abs(logs[first:end] - high)
    return first + int(np.argmin(np.concatenate([[0.0], np.cumsum(cost)])))
