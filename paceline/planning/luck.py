"""How far chance can carry the step times of one run from their mean: what the bounds must leave room for."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from simulator.distributions import Distribution, Empirical, Gamma, LogNormal, Normal, ShiftedExponential, Slowdown

__all__ = ["Luck", "least_mean", "luck_of", "worst_of"]

_LOG_CHANCE = 40.0
"""Logarithm of one over the chance that a bound fails, for each sum: e^-40, or 4e-18. A run has fewer than 1e9 sums."""
_DEVIATIONS = 8.7
"""Standard deviations that a normal number exceeds with less than that chance."""


class Luck(NamedTuple):
    """Limits of the factor that a step's mean time is multiplied by; its mean is at least 1.

    Attributes
    ----------
    variance
        At most.
    least
        It is never below.
    most
        It is above with a chance of less than e^-40 a step.
    """

    variance: float
    least: float
    most: float


def luck_of(law: Distribution, slowdown: Slowdown | None = None) -> Luck:
    """Limits of jitter of mean 1; a slow-down only makes steps longer."""
    slow = slowdown.factor if slowdown is not None else 1.0
    variance, least, most = 0.0, 1.0, 1.0
    if isinstance(law, Normal):
        variance, least, most = law.cv**2, 0.01, 1 + _DEVIATIONS * law.cv
    elif isinstance(law, LogNormal):
        variance, least, most = math.expm1(law.sigma**2), 0.0, math.exp(_DEVIATIONS * law.sigma - law.sigma**2 / 2)
    elif isinstance(law, Gamma):
        from scipy.special import gammainccinv

        variance, least, most = 1 / law.shape, 0.0, float(gammainccinv(law.shape, math.exp(-_LOG_CHANCE))) / law.shape
    elif law.kind == "exponential":
        variance, least, most = 1.0, 0.0, _LOG_CHANCE
    elif isinstance(law, ShiftedExponential):
        tail, mean = law.tail, law.mean()
        variance, least, most = (tail / mean) ** 2, 1 / mean, (1 + _LOG_CHANCE * tail) / mean
    elif isinstance(law, Empirical):
        values = np.asarray(law.values) / law.mean()
        variance, least, most = float(values.var()), float(values.min()), float(values.max())
    return Luck(variance, least, most * slow)


def worst_of(several: Iterable[Luck]) -> Luck:
    """Limits that hold for each of several kinds of nodes."""
    variances, leasts, mosts = zip(*several, strict=True)
    return Luck(max(variances), min(leasts), max(mosts))


def least_mean(luck: Luck, count: float) -> float:
    """What the mean of so many factors is not below, but for a chance of e^-40.

    The positive root e of count e^2 = 2 L (v + e b / 3), from 1, with L = 40, variance v and
    b = 1 - least: Bernstein's inequality, in the form that holds at any time of a running
    sum (Freedman, "On tail probabilities for martingales", 1975).
    """
    if count <= 0:
        return 0.0
    room, drift = 1.0 - luck.least, 2 * _LOG_CHANCE * (1.0 - luck.least) / 3
    below = (drift + math.sqrt(drift**2 + 8 * _LOG_CHANCE * count * luck.variance)) / (2 * count)
    return 1.0 - min(below, room)
