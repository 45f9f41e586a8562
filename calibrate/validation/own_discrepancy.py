"""What predictions of one's own runs are off by: the discrepancy of their regime, scaled to the residuals of their points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from calibrate.fit.intervals import digits
from calibrate.validation.comparison import Compared
from simulator.base.text import format_number
from simulator.results.inadequacy import discrepancy_of
from simulator.results.intervals import widened
from simulator.results.results import Result
from simulator.spec.discrepancy import Z_90, Deviation, Discrepancy, LeftOutRows
from simulator.spec.figures import Estimate

__all__ = ["PRIOR_POINTS", "Own", "own_discrepancy"]

PRIOR_POINTS = 3.0
"""How many points of one's own the figures of the regime count as."""


@dataclass(frozen=True)
class Own:
    """What one's own points say.

    Attributes
    ----------
    discrepancy
        That of the regime times ``factor``, with how intervals hold the points, each with the factor of the others.
    factor
        Of all standard deviations.
    points
        How many it rests on.
    """

    discrepancy: Discrepancy
    factor: float
    points: int


def own_discrepancy(rows: Sequence[Compared], results: Sequence[Result]) -> Own | None:
    """The discrepancy of the regime, scaled to one's own residuals.

    The factor k has k^2 = (n0 + sum over points of max(r^2 - v, 0) / s^2) / (n0 + n): the
    mean of variances relative to those of the regime, which count as n0 = 3 points, as a
    scaled inverse chi-squared prior of n0 degrees of freedom does (Gelman et al., "Bayesian
    Data Analysis", section 2.6). r is the logarithm of measured over predicted throughput,
    v its variance by chance and what the fit leaves open, s what the regime's discrepancy is.

    Parameters
    ----------
    rows
        Points that took no part in the fit that predicts them.
    results
        Their predictions.

    Returns
    -------
    Own or None
        None where no point has a discrepancy: one replica alone, or one that was switched off.
    """
    used = [
        (row, result.discrepancy.off, row.reached)
        for row, result in zip(rows, results, strict=True)
        if result.discrepancy is not None and row.reached is not None and result.discrepancy.off.sd > 0
    ]
    regime = discrepancy_of(results[0].scenario) if results else None
    if not used or regime is None:
        return None
    squares = []
    for row, off, reached in used:
        residual = math.log(row.mean / row.predicted.mean)
        chance = math.log(reached.high / max(reached.low, 1e-9 * reached.high)) / (2 * Z_90)
        squares.append(max(residual**2 - chance**2, 0.0) / off.sd**2)
    inside = 0.0
    for (row, off, reached), square in zip(used, squares, strict=True):
        others = _factor(math.fsum(squares) - square, len(squares) - 1)
        drawn = Estimate(mean=row.predicted.mean, low=reached.low, high=reached.high)
        ends = widened(drawn, off.times(others))
        inside += sum(ends.low <= value <= ends.high for value in row.measured) / len(row.measured)
    factor = _factor(math.fsum(squares), len(squares))
    scaled = {name: _scaled(getattr(regime, name), factor) for name in ("compute", "communication", "staleness")}
    points = f"{len(used)} points, each predicted from the others, and the regime's own as 3 points"
    about = f"{format_number(factor, 2)} times that of the regime: {points}"
    checked = LeftOutRows(inside=round(inside / len(used), 3), rows=len(used), sources=1)
    return Own(Discrepancy(**scaled, checked=checked, about=about), factor, len(used))


def _factor(squares: float, points: int) -> float:
    return math.sqrt((PRIOR_POINTS + squares) / (PRIOR_POINTS + points))


def _scaled(one: Deviation, factor: float) -> Deviation:
    return Deviation(at=min(digits(one.at * factor, 2), 3.0), per_doubling=min(digits(one.per_doubling * factor, 2), 3.0))
