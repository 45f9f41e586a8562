"""Splits a series of step times where its level changes, as one who looks after every step would find it.

Maillard, "Sequential change-point detection: Laplace concentration of scan statistics and non-asymptotic delay bounds" (ALT 2019): of n
independent values with standard deviation s and one mean, the means of the first k and of the last m = n - k differ, for any n and k,
by s sqrt((1/k + 1/m) (1 + 1/(n + 1)) 2 ln(2 n sqrt(n + 1) / d)) with a chance of no more than d, however long it goes on. Here

- values are logarithms of times, each drawn to within three standard deviations of the median around it (Hampel's filter), so that
  single long steps tell nothing and a level that lasts tells all;
- 1/k and 1/m are the variances of means of values with the persistence of the steps;
- s is that within both parts, and the bound is Student's quantile of the same chance, with as many degrees of freedom as so many
  dependent values have (Bartlett 1946);
- where steps do not change gradually but stay what they were for a while, long stays look like levels: the square of the bound grows
  with how much more the innovations' tails weigh than those of the steps.

The first n at which the bound is passed ends a level, and the next one is looked for from there.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, stdtrit

Array = NDArray[np.float64]
Rows = NDArray[np.int64]

LEAST_CHANGE = 0.05
"""Levels are apart from so much of the smaller one on."""
_CHANCE = 0.01
"""Of a split, where there is none to find."""
_FEWEST = 8
"""Values of a level."""
_FREEDOM = 8.0
"""Degrees of freedom of a standard deviation that can be used."""
_AROUND, _CLIP = 31, 3.0
_OF_NORMAL = 1.1503
"""Quantile of 75% of distances from the median, of a normal law over its standard deviation: a quarter may be wild."""
_MOST_VALUES = 5_000
_MOST_LEVELS = 64
_FIRST_LOOK, _GROWTH = 256, 1.15


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
    block = -(-len(times) // _MOST_VALUES)
    logs = np.log(times[: len(times) // block * block]).reshape(-1, block).mean(axis=1)
    bounds = [0, *(place * block for place in _changes(logs, persistence**block)), len(times)]
    return tuple(
        Level(
            int(rows[first]) if first else 0,
            int(rows[end]) if end < len(rows) else total,
            end - first,
            float(np.median(times[first:end])),
        )
        for first, end in itertools.pairwise(bounds)
    )


def _changes(logs: Array, persistence: float) -> list[int]:
    """Before which values the level changes, ascending."""
    around, most = _around(logs, persistence)
    off = np.clip(logs - around, -most, most)
    values, weight = around + off, _weight_of_tails(off, persistence)
    first = 0
    places: list[int] = []
    while len(places) < _MOST_LEVELS:
        part = values[first:] - values[first]
        end, passed = _FIRST_LOOK, _passed(part[:_FIRST_LOOK], persistence, weight)
        while passed is None and end < len(part):
            end *= 2
            passed = _passed(part[:end], persistence, weight)
        if passed is None:
            break
        # as many values again tell more exactly where it was
        part = part[: passed[1] + passed[1] - passed[0]]
        before = np.arange(1, len(part))
        moved = np.abs(np.cumsum(part)[:-1] - before * part.mean()) / np.sqrt(before * before[::-1])
        first += max(int(np.argmax(moved)) + 1, 1)
        places.append(first)
    return places


def _passed(values: Array, persistence: float, weight: float) -> tuple[int, int] | None:
    """Behind which value a level ends, and after how many values that is sure; None where it is not."""
    sums, squares = (np.concatenate([[0.0], np.cumsum(each)]) for each in (values, values**2))
    numbers = np.arange(1, len(values) + 1)
    bounds = np.concatenate(
        [[math.inf], np.sqrt(2 * weight * (1 + 1 / (numbers + 1)) * np.log(2 * numbers * np.sqrt(numbers + 1) / _CHANCE))]
    )
    best: tuple[int, int] | None = None
    last = _FEWEST
    while last <= len(values) - _FEWEST:
        until = np.arange(last + _FEWEST, len(values) + 1 if best is None else best[1])
        before = until - last
        means = sums[before] / before, (sums[until] - sums[before]) / last
        apart = np.abs(means[1] - means[0])
        parts = _variance_of_mean(before, persistence), _variance_of_mean(np.array([last]), persistence)
        free = before * (1 - parts[0]) + last * (1 - parts[1])
        within = squares[until] - before * means[0] ** 2 - last * means[1] ** 2
        error = np.sqrt(np.maximum(within, 0.0) / np.maximum(free, 1e-9) * (parts[0] + parts[1]))
        free *= (1 - persistence**2) / (1 + persistence**2)
        may = np.flatnonzero((apart > bounds[until] * error) & (free >= _FREEDOM) & (apart >= math.log1p(LEAST_CHANGE)))
        sure = may[apart[may] > -stdtrit(free[may], ndtr(-bounds[until[may]])) * error[may]]
        if len(sure):
            best = int(before[sure[0]]), int(until[sure[0]])
        last = max(last + 1, int(last * _GROWTH))
    return best


def _variance_of_mean(count: Rows, persistence: float) -> Array:
    """:func:`calibrate.fit.estimators.variance_of_mean` in closed form, shape (n,)."""
    gap = 1 - persistence
    return np.asarray((1 + persistence) / (count * gap) - 2 * persistence * (1 - persistence**count) / (count * gap) ** 2)


def _around(logs: Array, persistence: float) -> tuple[Array, float]:
    """The median around each value, shape (n,), and how far values may lie from it."""
    width = min(_AROUND, len(logs))
    medians = np.median(np.lib.stride_tricks.sliding_window_view(logs, width), axis=1)
    around = medians[np.clip(np.arange(len(logs)) - width // 2, 0, len(logs) - width)]
    seen = float(np.quantile(np.abs(logs - around), 0.75)) / _OF_NORMAL
    # values near each other are nearer to their median than all are
    return around, _CLIP * seen / math.sqrt(max(1 - float(_variance_of_mean(np.array([width]), persistence)[0]), 1e-9))


def _weight_of_tails(off: Array, persistence: float) -> float:
    """Kurtosis of the innovations over that of the values, of their distances from the median around them, shape (n,).

    1 of what changes gradually, and at least. A change of level is in neither.
    """
    if not persistence or np.ptp(off) == 0:
        return 1.0

    def kurtosis(each: Array) -> float:
        squares = (each - each.mean()) ** 2
        return float(np.mean(squares**2)) / float(squares.mean()) ** 2

    return max(1.0, kurtosis(off[1:] - persistence * off[:-1]) / kurtosis(off))
