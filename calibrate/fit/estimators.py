"""Common parts of all fits: affine costs, distributions of step times around their mean, bootstrap draws and 90% intervals.

A change here changes every file that is fitted from then on.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats
from scipy.optimize import brentq, least_squares, nnls

from simulator.base.errors import CalibrationError
from simulator.base.text import digits
from simulator.spec.distributions import Constant, Distribution, Empirical, Gamma, LogNormal, Normal, ShiftedExponential
from simulator.spec.uncertainty import Uncertainty
from simulator.spec.workload import Affine, LawScore

Array = NDArray[np.float64]

DRAWS = 200
"""Bootstrap samples that an interval is taken from."""

DRAWS_KEPT = 60
"""The first of them, which a file keeps."""

FEWEST_FACTORS = 10
"""Step times that a distribution is chosen from."""

_NOTHING = 1e-6
_TURNS, _AGREED = 50, 1e-12
_SD = 1.4826
"""Standard deviation of a normal distribution over the median distance from its median."""
_OF_MEDIAN = math.sqrt(math.pi / 2)
"""Standard error of the median of many normal draws over that of their mean."""
_SIGNIFICANCE = 0.05
"""Level of tests."""
_MOST_VALUES = 1000
"""Of an empirical distribution."""
_CONSTANT_CV = 1e-6
_NORMAL_CV_MAX = 0.3
_SHORTEST_STRETCH = 3
_MOST_PERSISTENCE = 0.99
_SHUFFLES = 199
_TOLERANCES = {"ftol": 1e-10, "xtol": 1e-10, "gtol": 1e-10}


# -- draws and intervals -------------------------------------------------------------------


def quantiles(values: ArrayLike) -> tuple[float, float, float]:
    """The 5th percentile, the median and the 95th percentile of what was measured, to seven digits."""
    p5, median, p95 = (digits(value) for value in np.quantile(np.asarray(values, dtype=float), [0.05, 0.5, 0.95]))
    return p5, median, p95


def bootstrapped(fit: Callable[[], ArrayLike], noisy: str) -> Array:
    """Joint draws of what a fit learns, a row for each bootstrap sample that it can be fitted to.

    ``fit`` draws a sample and fits to it; a sample of few, noisy rounds may say too little: the others say how wide.

    Raises
    ------
    CalibrationError
        More than half of the samples say too little: what is ``noisy`` (in the plural) is too much so.
    """
    draws = []
    for _ in range(DRAWS):
        with contextlib.suppress(CalibrationError):
            draws.append(fit())
    if len(draws) < DRAWS // 2:
        raise CalibrationError(f"{noisy} are too noisy for an interval: measure more rounds on an idle machine")
    return np.array(draws)


def intervals_90(names: Sequence[str], draws: Array, around: Sequence[float] | None = None) -> dict[str, tuple[float, float]]:
    """The 90% interval of each parameter: from the 5th to the 95th percentile of its draws (Efron 1979, percentile bootstrap).

    ``draws`` has a row for each bootstrap sample and a column for each parameter. Each interval is widened to hold the fitted
    value that it lies ``around``, if that is given.
    """
    low, high = np.quantile(draws, [0.05, 0.95], axis=0)
    if around is not None:
        low, high = np.minimum(low, around), np.maximum(high, around)
    return {name: (digits(a), digits(b)) for name, a, b in zip(names, low, high, strict=True)}


def drawn(names: Sequence[str], draws: Array) -> Uncertainty:
    """The first ``DRAWS_KEPT`` joint draws of the parameters, of which each simulated run takes one."""
    return Uncertainty(parameters=tuple(names), draws=tuple(tuple(digits(value) for value in draw) for draw in draws[:DRAWS_KEPT]))


# -- affine costs --------------------------------------------------------------------------


class Line(NamedTuple):
    """Seconds as a function of a size, ``base + slope * size``, both not below zero.

    Attributes
    ----------
    base
        Seconds at size zero.
    slope
        Seconds per unit of size.
    """

    base: float
    slope: float

    def __call__(self, size: float) -> float:
        """Seconds for a size."""
        return self.base + self.slope * size

    def affine(self) -> Affine:
        """The line for a specification, to seven digits."""
        return Affine(base_s=digits(self.base), per_sample_s=digits(self.slope))

    def residual(self, sizes: ArrayLike, seconds: ArrayLike) -> float:
        """Largest relative distance of the mean seconds of a size from the line; sizes and seconds have the shape (n,)."""
        x, y = np.asarray(sizes, float), np.asarray(seconds, float)
        return max(abs(self(size) / float(np.mean(y[x == size])) - 1.0) for size in np.unique(x))


def _usable(sizes: ArrayLike, seconds: ArrayLike) -> tuple[Array, Array]:
    """Sizes and seconds as arrays that a line can be laid through."""
    x, y = np.asarray(sizes, float), np.asarray(seconds, float)
    if not (np.all(np.isfinite(x)) and np.all(np.isfinite(y)) and np.all(y > 0)):
        raise CalibrationError("a fit needs finite times above zero")
    if len(np.unique(x)) < 2:
        raise CalibrationError("a straight line needs at least two different sizes: measure more")
    return x, y


def line_of_means(sizes: ArrayLike, means: ArrayLike) -> Line:
    """A line through the mean seconds of each size.

    Throughput follows from mean times, so the line must meet means: no robust loss, which
    would pull it to the level that most of a skewed or disturbed sample keeps to. The line
    is the quasi-likelihood estimate for a spread in proportion to the mean (Wedderburn 1974,
    "Quasi-likelihood functions"), that is, a gamma regression with identity link: small
    sizes count as much as large ones, and the mean over all points of measured / line is
    exactly 1. It is found by least squares weighted with the line of the turn before.

    Parameters
    ----------
    sizes, means
        Of shape (n,) each.

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
        figures, _ = nnls(design / line[:, None], v / line)
        before, line = line, design @ figures
        if np.max(np.abs(line - before)) < _AGREED:
            break
    return Line(float(figures[0]) * second, float(figures[1]) * second / unit)


def line_of_medians(sizes: ArrayLike, seconds: ArrayLike, spreads: ArrayLike = 0.0, *, tolerance: float | None = None) -> Line:
    """A line for a cost that is affine only roughly over decades of size, such as that of a link, and for points that are medians.

    Residuals are log(line / measured), so that small sizes count as much as large ones, and a
    line twice too high as much as one half too low; with a soft-L1 loss, quadratic for small
    residuals and linear for large ones. A point that is known less well than that, and than
    others, counts for as much less.

    Parameters
    ----------
    sizes
        Shape (n,), not negative.
    seconds
        Shape (n,), above zero.
    spreads
        Relative standard error of each of the seconds, shape (n,); left out: all are known equally well.
    tolerance
        Residual up to which the loss is quadratic; None takes two robust standard
        deviations of the residuals around a first line.

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
    start = _least_squares_line(u, v)
    if tolerance is None:
        spread = np.log(design @ start)
        tolerance = max(2.0 * _SD * float(np.median(np.abs(spread - np.median(spread)))), 1e-6)
    known = np.maximum(np.broadcast_to(np.asarray(spreads, float), v.shape), tolerance)
    weights = np.min(known) / known

    def residuals(parameters: Array) -> Array:
        return np.asarray(weights * np.log(design @ parameters), float)

    def jacobian(parameters: Array) -> Array:
        return np.asarray(weights[:, None] * design / (design @ parameters)[:, None], float)

    # logarithms have more than one valley: begin at the least-squares line and at the one through the largest size
    starts = [start, np.array([np.min(v) * 0.5, np.median(v[u == 1.0])])]
    solutions = (
        least_squares(residuals, at, jacobian, bounds=(0.0, np.inf), loss="soft_l1", f_scale=tolerance, x_scale=at, **_TOLERANCES)
        for at in starts
    )
    best = min(solutions, key=lambda solution: float(solution.cost))
    # a bound is approached, never reached: what no clock could see is nothing
    base, slope = (float(value) if value > _NOTHING * np.min(v) else 0.0 for value in best.x)
    return Line(base * second, slope * second / unit)


def _least_squares_line(x: Array, y: Array) -> Array:
    """Weighted least squares without bounds, then brought inside them."""
    design = np.column_stack([1.0 / y, x / y])
    solution, *_ = np.linalg.lstsq(design, np.ones_like(y), rcond=None)
    if solution[1] <= 0:
        solution = np.array([np.median(y), 0.0])
    elif solution[0] <= 0:
        solution = np.array([0.0, np.median(y / np.maximum(x, 1e-9))])
    return np.asarray(np.maximum(solution, float(np.min(y)) * _NOTHING), float)


@dataclass(frozen=True)
class MessageCosts:
    """Seconds of one message, or of one link of a chain, in each round.

    Attributes
    ----------
    costs
        Size -> seconds in each round. Noise may put one below zero.
    errors
        Size -> standard error of their median, from how far rounds lie apart.
    """

    costs: Mapping[float, Array]
    errors: Mapping[float, float]

    @classmethod
    def of(cls, costs: Mapping[float, Array]) -> MessageCosts:
        """Of messages that were timed one by one: seconds by size."""
        spreads = {size: _SD * float(stats.median_abs_deviation(each)) for size, each in costs.items()}
        return cls(costs, {size: _OF_MEDIAN * spread / math.sqrt(len(costs[size])) for size, spread in spreads.items()})

    @classmethod
    def of_chains(cls, calls: Iterable[tuple[float, int, int, float]]) -> MessageCosts:
        """The cost of one link of a chain, from times of a short and of a long chain of it, which are free of what a call costs anyway.

        ``calls`` are sizes of the tensor, lengths of the chain, rounds and seconds.
        """
        seconds: dict[float, dict[int, dict[int, list[float]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
        for size, length, turn, time_s in calls:
            seconds[float(size)][turn][length].append(time_s)
        costs: dict[float, Array] = {}
        for size, turns in sorted(seconds.items()):
            ends = [(min(times), max(times), times) for _, times in sorted(turns.items()) if len(times) > 1]
            if ends:
                longer_s = [float(np.median(times[most]) - np.median(times[least])) / (most - least) for least, most, times in ends]
                costs[size] = np.array(longer_s)
        return cls.of(costs)

    def points(self) -> tuple[Array, Array, Array]:
        """Sizes, the median cost of each, in seconds, and its relative error; sizes whose median noise put below zero are left out."""
        medians = {size: float(np.median(costs)) for size, costs in self.costs.items()}
        kept = sorted(size for size, cost in medians.items() if cost > 0)
        errors = [self.errors[size] / medians[size] for size in kept]
        return np.array(kept), np.array([medians[size] for size in kept]), np.array(errors)

    def resampled(self, rng: np.random.Generator) -> MessageCosts:
        """A bootstrap copy: the rounds of each size drawn with replacement."""
        # with the errors of all: a few rounds drawn again and again would seem to agree
        return MessageCosts({size: rng.choice(costs, len(costs)) for size, costs in self.costs.items()}, self.errors)

    def around(self, line: Line, rng: np.random.Generator) -> MessageCosts:
        """A bootstrap copy: each cost at the line, with how far another, drawn, lies from it (Efron 1979, of residuals)."""
        apart = np.concatenate([np.log(costs / line(size)) for size, costs in self.costs.items()])
        return MessageCosts({size: line(size) * np.exp(rng.choice(apart, len(costs))) for size, costs in self.costs.items()}, self.errors)


# -- step times around their mean ----------------------------------------------------------


class Fitted(NamedTuple):
    """The distribution chosen for factors.

    Attributes
    ----------
    distribution
        The one chosen.
    parametric
        The best candidate, whether or not the test rejects it; None if none is possible.
    scores
        Criterion of each candidate, best first.
    """

    distribution: Distribution
    parametric: Distribution | None
    scores: tuple[LawScore, ...] = ()


def distribution_of(factors: ArrayLike) -> Fitted:
    """Choose a distribution for factors: step times divided by their mean.

    Candidates have mean 1 and one parameter each, fitted by maximum likelihood: normal,
    lognormal, gamma and shifted exponential. The one with the lowest Bayesian information
    criterion is kept if a Kolmogorov-Smirnov test does not reject it at the level 0.05;
    else the measured distribution itself. (That the parameter was fitted to the same data
    makes the test more lenient than its level says.) Where all factors are equal to within
    1e-6 the distribution is constant.

    The empirical one keeps every factor that was seen, since the slowest worker of many is
    the largest of them. Beyond 1,000 factors, neighbours in their order are averaged in
    as many groups of equal size: equal probabilities and the mean stay as they are, and only
    the tail within the last group is drawn together.

    Parameters
    ----------
    factors
        Shape (n,), above zero.

    Raises
    ------
    CalibrationError
        There are fewer than 10, or one is not usable.
    """
    x = np.asarray(factors, float)
    if len(x) < FEWEST_FACTORS or not np.all(np.isfinite(x)) or np.any(x <= 0):
        raise CalibrationError(
            f"the distribution of step times needs at least {FEWEST_FACTORS} finite times above zero, not {len(x)}: raise `steps`"
        )
    x = x / np.mean(x)
    cv = float(np.std(x))
    if cv < _CONSTANT_CV:
        return Fitted(Constant(), Constant())
    criteria = [(float(np.log(len(x)) - 2.0 * np.sum(own.logpdf(x))), kept, own) for kept, own in _candidates(x, cv)]
    ranked = sorted((entry for entry in criteria if np.isfinite(entry[0])), key=lambda entry: entry[0])
    if not ranked:  # one wild value can be impossible under every candidate
        return Fitted(_empirical(x), None)
    scores = tuple(LawScore(kind=distribution.kind, bic=round(criterion, 3)) for criterion, distribution, _ in ranked)
    _, best, own = ranked[0]
    rejected = float(stats.kstest(x, own.cdf).pvalue) < _SIGNIFICANCE
    return Fitted(_empirical(x) if rejected else best, best, scores)


def _empirical(x: Array) -> Empirical:
    values = np.sort(x)
    if len(values) > _MOST_VALUES:
        # the same weight for each group, also where their sizes differ by one
        edges = np.linspace(0.0, len(values), _MOST_VALUES + 1)
        values = np.diff(np.interp(edges, np.arange(len(values) + 1), np.concatenate([[0.0], np.cumsum(values)]))) / np.diff(edges)
    return Empirical(values=tuple(float(value) for value in np.round(values, 5)))


def _candidates(x: Array, cv: float) -> Iterator[tuple[Distribution, stats.rv_continuous]]:
    """Distributions of mean 1, each with scipy's frozen one."""
    if cv <= _NORMAL_CV_MAX:
        yield Normal(cv=cv), stats.norm(1.0, cv)
    logs = np.log(x)
    # lognormal of mean 1: log x ~ N(-s/2, s) with s = sigma^2; setting the derivative of the
    # likelihood to zero gives s^2/4 + s - mean(log^2) = 0
    sigma = float(np.sqrt(2.0 * (np.sqrt(1.0 + float(np.mean(logs**2))) - 1.0)))
    yield LogNormal(sigma=sigma), stats.lognorm(sigma, scale=np.exp(-(sigma**2) / 2))
    # gamma of mean 1: log k - digamma(k) = -mean(log x)
    target = -float(np.mean(logs))
    shape = brentq(lambda k: np.log(k) - special.digamma(k) - target, 1e-3, 1e7) if target > 5.1e-8 else 1e7
    shape = min(float(shape), 1e7)
    yield Gamma(shape=shape), stats.gamma(shape, scale=1.0 / shape)
    # shifted exponential of mean 1: the likelihood grows with the fixed part up to the smallest value
    fixed = min(float(np.min(x)), 1.0 - 1e-9)
    tail = max(min((1.0 - fixed) / fixed, 1e3), 1e-9)
    # a hair lower, so that the smallest value lies inside the support
    yield ShiftedExponential(tail=tail), stats.expon(1.0 / (1.0 + tail) - 1e-12, tail / (1.0 + tail))


def drawn_distributions(
    chosen: Distribution, samples: Iterable[ArrayLike], persistence: Iterable[float] = itertools.repeat(0.0)
) -> tuple[Distribution, ...]:
    """The distribution as it might have come out: for each bootstrap sample of factors the best candidate, fitted to it.

    So the choice of the kind is drawn with its parameter: with few steps, kinds whose tails
    differ describe them nearly as well. Nothing for a constant, which leaves nothing to
    draw, and for an empirical one, whose sample the simulator draws itself. ``persistence`` is that of the steps of each sample.
    """
    if isinstance(chosen, Constant | Empirical):
        return ()
    distributions = []
    for sample, stays in zip(map(np.asarray, samples), persistence, strict=False):
        # rounds of different lengths make samples of different sizes; one that is too small gives none
        fitted = distribution_of(sample).parametric if len(sample) >= FEWEST_FACTORS else None
        if fitted is not None:
            kept = with_persistence(fitted, stays)
            # six digits, in a file that is read by people
            rounded = {key: digits(value, 6) for key, value in kept.model_dump().items() if key != "kind"}
            distributions.append(kept.model_copy(update=rounded))
    return tuple(distributions)


def with_persistence(distribution: Distribution, persistence: float) -> Distribution:
    """The same with another persistence; a constant has none."""
    if isinstance(distribution, Constant) or not persistence:
        return distribution
    return distribution.model_copy(update={"persistence": digits(persistence, 4)})


def persistence_of(stretches: Iterable[ArrayLike], *, tested: bool = True) -> float:
    """Autocorrelation of successive steps, from 0 to 0.99, of stretches of steps that followed each other.

    With autocorrelation r^k of steps that are k apart and variance s^2, as with ``persistence`` of the simulator's distributions,
    successive differences have the mean square 2 s^2 (1 - r), and squared deviations from the mean of a stretch of n steps the sum n s^2 (1
    - v), where v s^2 is the variance of that mean. The ratio of both (von Neumann, "Distribution of the ratio of the mean square successive
    difference to the variance", 1941), summed over stretches, falls with r, and is solved for it. The plain sample autocorrelation would
    come out too low, by about (1 + 3 r) / n (Kendall 1954), which is all of it in short stretches.

    Parameters
    ----------
    stretches
        Step times, shape (n,) each, of one unit; those of fewer than 3 steps tell nothing.
    tested
        Give 0 where steps that do not depend on each other have as much with a chance above 0.05, by shuffling those of each stretch.
    """
    series = [stretch for stretch in map(np.asarray, stretches) if len(stretch) >= _SHORTEST_STRETCH]
    squares = math.fsum(float(((stretch - stretch.mean()) ** 2).sum()) for stretch in series)
    if not squares:
        return 0.0
    lengths, times = np.unique([len(stretch) for stretch in series], return_counts=True)

    def expected(persistence: float) -> float:
        independent = times * lengths * (1 - variance_of_mean(lengths, persistence))
        return float(2 * (1 - persistence) * (times * (lengths - 1)).sum() / independent.sum())

    differences = _differences(series)
    ratio, most = differences / squares, _MOST_PERSISTENCE
    if ratio >= expected(0.0):
        return 0.0
    if tested:
        rng = np.random.default_rng(0)
        shuffled = [_differences([rng.permutation(stretch) for stretch in series]) for _ in range(_SHUFFLES)]
        if 1 + sum(by_chance <= differences for by_chance in shuffled) > _SIGNIFICANCE * (1 + _SHUFFLES):
            return 0.0
    return float(brentq(lambda r: expected(r) - ratio, 0.0, most)) if ratio > expected(most) else most


def _differences(series: Sequence[Array]) -> float:
    return math.fsum(float((np.diff(stretch) ** 2).sum()) for stretch in series)


def variance_of_mean(count: ArrayLike, persistence: float) -> Array:
    """Of the mean of ``count`` successive draws, over that of one draw: (1 + 2 sum of (1 - k / n) r^k for k from 1 to n - 1) / n."""
    n, gap = np.asarray(count), 1 - persistence
    if not gap:
        return np.ones(n.shape)
    return np.asarray((1 + persistence) / (n * gap) - 2 * persistence * (1 - persistence**n) / (n * gap) ** 2)
