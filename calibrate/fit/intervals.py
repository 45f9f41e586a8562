"""Digits, 90% intervals and bootstrap draws, as every fit gives them with its numbers.

All fits share these functions and constants, so that a change here changes every file that is fitted from then on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulator.base.errors import CalibrationError
from simulator.spec.uncertainty import Uncertainty

Array = NDArray[np.float64]

DRAWS = 200
"""Bootstrap samples that an interval is taken from."""

DRAWS_KEPT = 60
"""The first of them, which a file keeps."""

Z90 = 1.6449
"""Half the 90% interval of a normal distribution, in standard deviations, with the digits that fitted files have been written with."""


def digits(value: float, count: int = 7) -> float:
    """A number to ``count`` significant digits. Seven are more than any clock gives, and can still be read in a file.

    >>> digits(0.012345678)
    0.01234568
    """
    return float(f"{float(value):.{count}g}")


def quantiles(values: ArrayLike) -> tuple[float, float, float]:
    """The 5th percentile, the median and the 95th percentile of what was measured, to seven digits."""
    p5, median, p95 = (digits(value) for value in np.quantile(np.asarray(values, dtype=float), [0.05, 0.5, 0.95]))
    return p5, median, p95


def bootstrapped(fit: Callable[[], ArrayLike], noisy: str) -> Array:
    """Joint draws of what a fit learns, a row for each bootstrap sample that it can be fitted to.

    Parameters
    ----------
    fit
        Draws a sample and fits to it; a sample of few, noisy rounds may say too little: the others say how wide.
    noisy
        What is too noisy where more than half of the samples do, in the plural.

    Raises
    ------
    CalibrationError
        More than half of the samples say too little.
    """
    draws = []
    for _ in range(DRAWS):
        with contextlib.suppress(CalibrationError):
            draws.append(fit())
    if len(draws) < DRAWS // 2:
        raise CalibrationError(f"{noisy} are too noisy for an interval; measure more rounds, on a quiet machine")
    return np.array(draws)


def intervals_90(names: Sequence[str], draws: Array, around: Sequence[float] | None = None) -> dict[str, tuple[float, float]]:
    """The 90% interval of each parameter: from the 5th to the 95th percentile of its draws (Efron 1979, percentile bootstrap).

    Parameters
    ----------
    names
        Of the parameters, in the order of the draws' columns.
    draws
        One row for each bootstrap sample, one column for each parameter.
    around
        The fitted values, which each interval is widened to hold; None leaves intervals as the draws have them.
    """
    low, high = np.quantile(draws, [0.05, 0.95], axis=0)
    if around is not None:
        low, high = np.minimum(low, around), np.maximum(high, around)
    return {name: (digits(a), digits(b)) for name, a, b in zip(names, low, high, strict=True)}


def drawn(names: Sequence[str], draws: Array) -> Uncertainty:
    """The first ``DRAWS_KEPT`` joint draws of the parameters, of which each simulated run takes one."""
    return Uncertainty(parameters=tuple(names), draws=tuple(tuple(digits(value) for value in draw) for draw in draws[:DRAWS_KEPT]))
