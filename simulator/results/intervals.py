"""Prediction intervals from replications, and their widening by model error."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from functools import cache
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from simulator.spec.figures import Estimate
from simulator.spec.uncertainty import CERTAIN, Z_90, RelativeError

FEWEST_REPLICATIONS = 19
"""With fewer replications no distribution-free 90% interval exists: (19 - 1) / (19 + 1) = 0.9."""

_STUDENT_95 = (
    6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771, 1.761, 1.753, 1.746, 1.740,
)  # fmt: skip
"""0.95 quantiles of Student's t for 1 to 17 degrees of freedom; a table, since scipy takes a second to import."""


def prediction_interval(values: Sequence[float], relative_error: RelativeError = CERTAIN) -> Estimate:
    """Mean, and the interval that contains the next value of the same kind with probability 90%.

    With model error ``relative_error`` it is :func:`widened`; otherwise it follows from the values only.

    With 19 or more values the ends are the order statistics of rank 0.05 (n + 1) and
    0.95 (n + 1): the next of n + 1 exchangeable values falls between those ranks with
    probability 0.9, whatever their distribution (Wilks 1941; Hahn and Meeker, Statistical
    Intervals, 1991, section 5.2). With fewer, a normal distribution is assumed:
    mean -+ t s sqrt(1 + 1/n).
    """
    return _estimate(*_spread(values), relative_error)


def around(mean: float, values: Sequence[float], relative_error: RelativeError = CERTAIN) -> Estimate:
    """The same around another mean, that of everything that the values are means of; the interval contains it."""
    _, low, high = _spread(values)
    return _estimate(mean, low, high, relative_error)


def _spread(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean, and the ends of the interval from the values only."""
    sample = np.asarray(values, dtype=float)
    count = len(sample)
    mean = float(np.add.reduce(sample) / count)
    if count >= FEWEST_REPLICATIONS:
        low, high = np.quantile(sample, [0.05, 0.95], method="weibull").tolist()
    else:
        half = normal_half_width(count) * _deviation(sample, mean)
        low, high = max(mean - half, 0.0), mean + half
    # rounding of a mean of equal values must not put it outside its own interval
    return mean, min(low, mean), max(high, mean)


def _deviation(sample: NDArray[np.float64], mean: float) -> float:
    """Standard deviation of values with this mean, as numpy's with ``ddof=1``, but four times faster for a few values."""
    left = sample - mean
    return math.sqrt(float(np.add.reduce(left * left)) / (len(sample) - 1))


def widened(estimate: Estimate, relative_error: RelativeError) -> Estimate:
    """An interval of chance widened by model error: on each side the distances from the mean, in logarithms, are combined by
    :func:`combined`.

    An end at 0, as of few replications that scatter much, stays there.
    """
    return _estimate(estimate.mean, estimate.low, estimate.high, relative_error)


def _estimate(mean: float, low: float, high: float, relative_error: RelativeError) -> Estimate:
    """A mean and its interval, widened to include the mean and model error."""
    low, high = min(low, mean), max(high, mean)
    if relative_error != CERTAIN and mean > 0:
        if low > 0:
            low = min(mean * math.exp(combined(math.log(low / mean), -Z_90 * relative_error.low)), mean)
        high = max(mean * math.exp(combined(math.log(high / mean), Z_90 * relative_error.high)), mean)
    return Estimate(mean=mean, low=low, high=high)


def combined(distance: float, other: float) -> float:
    """Distance from the middle that two independent causes together exceed as often as each alone exceeds its own distance.

    Distances of the same sign are added in quadrature, as quantiles of normal numbers are.
    With a distance of 0 exactly the other one comes out, and it never falls where one of
    the two rises, also where their signs differ: sign(q) sqrt(abs(q)), q = a abs(a) + b abs(b).
    """
    if not distance or not other:
        return distance + other
    if distance * other > 0:
        return math.copysign(math.hypot(distance, other), distance)
    square = distance * abs(distance) + other * abs(other)
    return math.copysign(math.sqrt(abs(square)), square)


_POINTS, _GENERATOR = 10946, 6765
"""Size of a lattice that fills a square evenly, from neighbouring Fibonacci numbers: Niederreiter, "Random Number Generation and
Quasi-Monte Carlo Methods", 1992, section 5.1."""


@cache
def _lattice() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Two independent causes: probabilities of one, and standard normal values of the other."""
    numbers = np.arange(_POINTS)
    chances = (numbers * _GENERATOR % _POINTS + 0.5) / _POINTS
    return (numbers + 0.5) / _POINTS, np.array([NormalDist().inv_cdf(chance) for chance in chances.tolist()])


def interval_of_jobs(
    values: Sequence[float], shares: Sequence[float], relative_error: RelativeError, power: Literal[1, -1] = 1
) -> Estimate:
    """Mean, and the 90% interval of the next job's time, if faults make jobs differ much.

    Model error applies to steps, whose share of a job's time varies: a job that waited long has a nearly certain time, one that did not is
    as uncertain as its steps. So the next job takes T ((1 - s) + s exp(o Z)): a time T that falls as likely between any two neighbours of
    those seen, the share s of steps in it, Z normal, and o the model error. Without model error, the ends are those of
    :func:`prediction_interval`. With fewer than 19 jobs nothing is known about rare ones, and their mean share is used for all.

    Parameters
    ----------
    values
        Seconds of each job, or what falls with them.
    shares
        Of steps in the time of each.
    relative_error
        Of a value of a job of nothing but steps.
    power
        1: values are times, -1: they are rates.
    """
    if len(values) < FEWEST_REPLICATIONS or relative_error == CERTAIN:
        times_s = [value**power if value else 0.0 for value in values]  # a rate of 0 is of a job that never ended
        whole_s = math.fsum(times_s)  # costs of nothing, say, have no interval either
        share = math.fsum(map(operator.mul, times_s, shares)) / whole_s if whole_s else 0.0
        return prediction_interval(values, relative_error.times(share))
    count, order = len(values), np.argsort(values, kind="stable")
    chances, away = _lattice()
    sample, share_of_steps = (
        np.interp(chances * (count + 1), np.arange(1, count + 1), np.asarray(each)[order]) for each in (values, shares)
    )
    away = away * np.where(away < 0, relative_error.low, relative_error.high)
    low, high = np.quantile(sample * (1 - share_of_steps + share_of_steps * np.exp(power * away)) ** power, [0.05, 0.95]).tolist()
    mean = float(np.add.reduce(np.asarray(values, dtype=float)) / count)
    return Estimate(mean=mean, low=min(low, mean), high=max(high, mean))


def normal_half_width(count: int) -> float:
    """Half the 90% prediction interval of ``count`` normal values, fewer than 19, in their standard deviations."""
    return _STUDENT_95[count - 2] * math.sqrt(1 + 1 / count)


def paired_ratio(ours: Sequence[float], theirs: Sequence[float], relative_error: RelativeError = CERTAIN) -> Estimate:
    """Ratio of ours to theirs, run by run: the mean of the ratios and the 90% interval of the ratio of the next pair.

    Common parts of both runs of a pair, such as a draw of the fitted parameters, cancel.

    Parameters
    ----------
    ours, theirs
        Throughput or the like of each replication, all above zero, in the order of the replications.
    relative_error
        Of the ratio: :func:`simulator.spec.uncertainty.between`.

    Raises
    ------
    ValueError
        Their numbers differ.
    """
    return prediction_interval([our / their for our, their in zip(ours, theirs, strict=True)], relative_error)


def wins(ours: Sequence[float], theirs: Sequence[float]) -> int:
    """Number of pairs of runs in which ours is larger; equal values do not count.

    Raises
    ------
    ValueError
        Their numbers differ.
    """
    return sum(our > their for our, their in zip(ours, theirs, strict=True))
