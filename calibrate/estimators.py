"""Estimators of affine costs: seconds as ``base_s + slope * size``.

Each stores its settings, learns in ``fit`` (which returns self), and keeps what it learned
in attributes that end in an underscore.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import least_squares, nnls

from simulator.errors import CalibrationError

__all__ = ["AffineCost", "AffineMean", "ChainSlope"]

Array = NDArray[np.float64]

_NOTHING = 1e-6
_TURNS, _AGREED = 50, 1e-12
_TOLERANCES = {"ftol": 1e-10, "xtol": 1e-10, "gtol": 1e-10}


def _usable(sizes: ArrayLike, seconds: ArrayLike) -> tuple[Array, Array]:
    """Sizes and seconds as arrays that a line can be laid through."""
    x, y = np.asarray(sizes, float), np.asarray(seconds, float)
    if not (np.all(np.isfinite(x)) and np.all(np.isfinite(y)) and np.all(y > 0)):
        raise CalibrationError("a fit needs finite times above zero")
    if len(np.unique(x)) < 2:
        raise CalibrationError("a straight line needs at least two different sizes; measure more")
    return x, y


class AffineMean:
    """Mean seconds as a function of a size: ``base_ + slope_ * size``, both not below zero.

    Throughput follows from mean times, so the line must meet means: no robust loss, which
    would pull it to the level that most of a skewed or disturbed sample keeps to. The line
    is the quasi-likelihood estimate for a spread in proportion to the mean (Wedderburn 1974,
    "Quasi-likelihood functions"), that is, a gamma regression with identity link: small
    sizes count as much as large ones, and the mean over all points of measured / line is
    exactly 1. It is found by least squares weighted with the line of the turn before.

    Attributes
    ----------
    base_
        Seconds at size zero.
    slope_
        Seconds per unit of size.
    """

    def __init__(self) -> None:
        self.base_ = 0.0
        self.slope_ = 0.0

    def fit(self, sizes: ArrayLike, means: ArrayLike) -> AffineMean:
        """Learn from the mean seconds of each size; each of shape (n,).

        Raises
        ------
        CalibrationError
            There are fewer than two different sizes, or a number is not usable.
        """
        x, y = _usable(sizes, means)
        unit, second = float(np.max(x)), float(np.mean(y))
        design, v = np.column_stack([np.ones_like(x), x / unit]), y / second
        line = v
        for _ in range(_TURNS):
            found, _ = nnls(design / line[:, None], v / line)
            before, line = line, design @ found
            if np.max(np.abs(line - before)) < _AGREED:
                break
        self.base_, self.slope_ = float(found[0]) * second, float(found[1]) * second / unit
        return self

    def __call__(self, size: float) -> float:
        """Mean seconds for a size."""
        return self.base_ + self.slope_ * size


class AffineCost:
    """Seconds as a function of a size: ``base_ + slope_ * size``, both not below zero.

    For a law that holds only roughly over decades of size, such as that of a link, and for
    points that are medians already. Residuals are log(line / measured), so that small sizes
    count as much as large ones, and a line twice too high as much as one half too low; with
    a soft-L1 loss, quadratic for small residuals and linear for large ones.

    Parameters
    ----------
    tolerance
        Residual up to which the loss is quadratic; None takes two robust standard
        deviations of the residuals around a first line.

    Attributes
    ----------
    base_
        Seconds at size zero.
    slope_
        Seconds per unit of size.
    relative_residual_
        Largest relative distance of a size's mean from the line.
    """

    def __init__(self, tolerance: float | None = None) -> None:
        self.tolerance = tolerance
        self.base_ = 0.0
        self.slope_ = 0.0
        self.relative_residual_ = 0.0

    def fit(self, sizes: ArrayLike, seconds: ArrayLike) -> AffineCost:
        """Learn from pairs of size and seconds.

        Parameters
        ----------
        sizes
            Shape (n,), not negative.
        seconds
            Shape (n,), above zero.

        Raises
        ------
        CalibrationError
            There are fewer than two different sizes, or a number is not usable.
        """
        x, y = _usable(sizes, seconds)
        # of size and of time, so that both unknowns are of order one
        unit, second = float(np.max(x)), float(np.median(y))
        u, v = x / unit, y / second
        design = np.column_stack([1.0 / v, u / v])

        def residuals(parameters: Array) -> Array:
            return np.asarray(np.log(design @ parameters), float)

        def jacobian(parameters: Array) -> Array:
            return np.asarray(design / (design @ parameters)[:, None], float)

        tolerance = self.tolerance
        if tolerance is None:
            spread = residuals(self._start(u, v))
            tolerance = max(2.0 * 1.4826 * float(np.median(np.abs(spread - np.median(spread)))), 1e-6)
        # logarithms have more than one valley: begin at the least-squares line and at the one through the largest size
        starts = [self._start(u, v), np.array([np.min(v) * 0.5, np.median(v[u == 1.0])])]
        found = min(
            (
                least_squares(residuals, at, jacobian, bounds=(0.0, np.inf), loss="soft_l1", f_scale=tolerance, x_scale=at, **_TOLERANCES)
                for at in starts
            ),
            key=lambda solution: float(solution.cost),
        )
        # a bound is approached, never reached: what no clock could see is nothing
        base, slope = (float(value) if value > _NOTHING * np.min(v) else 0.0 for value in found.x)
        self.base_, self.slope_ = base * second, slope * second / unit
        means = {size: float(np.mean(y[x == size])) for size in np.unique(x)}
        self.relative_residual_ = max(abs(self(size) / mean - 1.0) for size, mean in means.items())
        return self

    def __call__(self, size: float) -> float:
        """Seconds for a size."""
        return self.base_ + self.slope_ * size

    @staticmethod
    def _start(x: Array, y: Array) -> Array:
        """Weighted least squares without bounds, then brought inside them."""
        design = np.column_stack([1.0 / y, x / y])
        solution, *_ = np.linalg.lstsq(design, np.ones_like(y), rcond=None)
        if solution[1] <= 0:
            solution = np.array([np.median(y), 0.0])
        elif solution[0] <= 0:
            solution = np.array([0.0, np.median(y / np.maximum(x, 1e-9))])
        return np.asarray(np.maximum(solution, float(np.min(y)) * _NOTHING), float)


class ChainSlope:
    """Cost of one link of a chain, from times of a short and of a long chain of it.

    The difference of the two is free of what a call costs anyway.

    Attributes
    ----------
    costs_
        Size -> seconds of one link in each round. Noise may put one below zero.
    """

    def __init__(self) -> None:
        self.costs_: dict[float, Array] = {}

    def fit(self, sizes: ArrayLike, lengths: ArrayLike, rounds: ArrayLike, seconds: ArrayLike) -> ChainSlope:
        """Learn from calls: the tensor's size, the chain's length, the round, seconds; each of shape (n,)."""
        x, k = np.asarray(sizes, float), np.asarray(lengths, float)
        turn, t = np.asarray(rounds, np.int64), np.asarray(seconds, float)
        self.costs_ = {}
        for size in np.unique(x):
            costs: list[float] = []
            for one in np.unique(turn[x == size]):
                here = (x == size) & (turn == one)
                short, long = float(np.min(k[here])), float(np.max(k[here]))
                if long > short:
                    costs.append(float(np.median(t[here & (k == long)]) - np.median(t[here & (k == short)])) / (long - short))
            if costs:
                self.costs_[float(size)] = np.array(costs)
        return self

    def points(self) -> tuple[Array, Array]:
        """Sizes and the median cost of each, in seconds; sizes whose median noise put below zero are left out."""
        medians = {size: float(np.median(costs)) for size, costs in self.costs_.items()}
        kept = sorted(size for size, cost in medians.items() if cost > 0)
        return np.array(kept), np.array([medians[size] for size in kept])

    def resampled(self, rng: np.random.Generator) -> ChainSlope:
        """A bootstrap copy: the rounds of each size drawn with replacement."""
        copy = ChainSlope()
        copy.costs_ = {size: rng.choice(costs, len(costs)) for size, costs in self.costs_.items()}
        return copy
