"""Estimators of affine costs, seconds as ``base_s + slope * size``, and of the law of step times around their mean.

Each stores its settings, learns in ``fit`` (which returns self), and keeps what it learned
in attributes that end in an underscore.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats
from scipy.optimize import brentq, least_squares, nnls

from simulator.base.errors import CalibrationError
from simulator.base.text import digits
from simulator.spec.distributions import Constant, Distribution, Empirical, Gamma, LogNormal, Normal, ShiftedExponential
from simulator.spec.uncertainty import Uncertainty
from simulator.spec.workload import LawScore

DRAWS = 200
"""Bootstrap samples that an interval is taken from."""

DRAWS_KEPT = 60
"""The first of them, which a file keeps."""

Z90 = 1.6449
"""Half the 90% interval of a normal distribution, in standard deviations, with the digits that fitted files have been written with."""


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


Array = NDArray[np.float64]

FEWEST_FACTORS = 10
"""Step times that a law is chosen from."""

_NOTHING = 1e-6
_TURNS, _AGREED = 50, 1e-12
_SD = 1.4826
"""Standard deviation of a normal law over the median distance from its median."""
_OF_MEDIAN = math.sqrt(math.pi / 2)
"""Standard error of the median of many normal draws over that of their mean."""
_CONSTANT_CV = 1e-6
_NORMAL_CV_MAX = 0.3
_SHORTEST_STRETCH = 3
_MOST_PERSISTENCE = 0.99
_SHUFFLES = 199
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
    a soft-L1 loss, quadratic for small residuals and linear for large ones. A point that is
    known less well than that, and than others, counts for as much less.

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

    def fit(self, sizes: ArrayLike, seconds: ArrayLike, spreads: ArrayLike = 0.0) -> AffineCost:
        """Learn from pairs of size and seconds.

        Parameters
        ----------
        sizes
            Shape (n,), not negative.
        seconds
            Shape (n,), above zero.
        spreads
            Relative standard error of each of the seconds, shape (n,); left out: all are known equally well.

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

        tolerance = self.tolerance
        if tolerance is None:
            spread = np.log(design @ self._start(u, v))
            tolerance = max(2.0 * _SD * float(np.median(np.abs(spread - np.median(spread)))), 1e-6)
        known = np.maximum(np.broadcast_to(np.asarray(spreads, float), v.shape), tolerance)
        weights = np.min(known) / known

        def residuals(parameters: Array) -> Array:
            return np.asarray(weights * np.log(design @ parameters), float)

        def jacobian(parameters: Array) -> Array:
            return np.asarray(weights[:, None] * design / (design @ parameters)[:, None], float)

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
    errors_
        Size -> standard error of their median, from how far rounds lie apart.
    """

    def __init__(self) -> None:
        self.costs_: dict[float, Array] = {}
        self.errors_: dict[float, float] = {}

    def fit(self, sizes: ArrayLike, lengths: ArrayLike, rounds: ArrayLike, seconds: ArrayLike) -> ChainSlope:
        """Learn from calls: the tensor's size, the chain's length, the round, seconds; each of shape (n,)."""
        x, k = np.asarray(sizes, float), np.asarray(lengths, float)
        turn, t = np.asarray(rounds, np.int64), np.asarray(seconds, float)
        self.costs_, self.errors_ = {}, {}
        for size in np.unique(x):
            costs: list[float] = []
            for one in np.unique(turn[x == size]):
                here = (x == size) & (turn == one)
                short, long = float(np.min(k[here])), float(np.max(k[here]))
                if long > short:
                    costs.append(float(np.median(t[here & (k == long)]) - np.median(t[here & (k == short)])) / (long - short))
            if costs:
                self._keep(float(size), np.array(costs))
        return self

    def fit_single(self, sizes: ArrayLike, seconds: ArrayLike) -> ChainSlope:
        """Learn from messages that were timed one by one: sizes and seconds, each of shape (n,)."""
        x, t = np.asarray(sizes, float), np.asarray(seconds, float)
        self.costs_, self.errors_ = {}, {}
        for size in np.unique(x):
            self._keep(float(size), t[x == size])
        return self

    def _keep(self, size: float, costs: Array) -> None:
        self.costs_[size] = costs
        distance = float(np.median(np.abs(costs - np.median(costs))))
        self.errors_[size] = _OF_MEDIAN * _SD * distance / math.sqrt(len(costs))

    def points(self) -> tuple[Array, Array, Array]:
        """Sizes, the median cost of each, in seconds, and its relative error; sizes whose median noise put below zero are left out."""
        medians = {size: float(np.median(costs)) for size, costs in self.costs_.items()}
        kept = sorted(size for size, cost in medians.items() if cost > 0)
        errors = [self.errors_[size] / medians[size] for size in kept]
        return np.array(kept), np.array([medians[size] for size in kept]), np.array(errors)

    def resampled(self, rng: np.random.Generator) -> ChainSlope:
        """A bootstrap copy: the rounds of each size drawn with replacement."""
        copy = ChainSlope()
        copy.errors_ = self.errors_  # a few rounds drawn again and again would seem to agree
        copy.costs_ = {size: rng.choice(costs, len(costs)) for size, costs in self.costs_.items()}
        return copy

    def around(self, line: AffineCost, rng: np.random.Generator) -> ChainSlope:
        """A bootstrap copy: each cost at the line, with how far another, drawn, lies from it (Efron 1979, of residuals)."""
        lines = {size: line.base_ + line.slope_ * size for size in self.costs_}
        apart = np.concatenate([np.log(costs / lines[size]) for size, costs in self.costs_.items()])
        copy = ChainSlope()
        copy.errors_ = self.errors_
        copy.costs_ = {size: lines[size] * np.exp(rng.choice(apart, len(costs))) for size, costs in self.costs_.items()}
        return copy


class StepTimeLaw:
    """Chooses a law for factors: step times divided by their mean.

    Candidates have mean 1 and one parameter each, fitted by maximum likelihood: normal,
    lognormal, gamma and shifted exponential. The one with the lowest Bayesian information
    criterion is kept if a Kolmogorov-Smirnov test does not reject it at ``significance``;
    else the measured distribution itself. (That the parameter was fitted to the same data
    makes the test more lenient than its level says.) Where all factors are equal to within
    1e-6 the law is constant.

    An empirical law keeps every factor that was seen, since the slowest worker of many is
    the largest of them. Beyond ``values`` factors, neighbours in their order are averaged in
    as many groups of equal size: equal probabilities and the mean stay as they are, and only
    the tail within the last group is drawn together.

    Parameters
    ----------
    significance
        Level of the test.
    values
        That an empirical law keeps at most.

    Attributes
    ----------
    law_
        The law chosen.
    parametric_
        The best candidate, whether or not the test rejects it; None if none is possible.
    scores_
        Criterion of each candidate, best first.
    p_value_
        Of the test of the best candidate; 1 for a constant law.
    """

    def __init__(self, significance: float = 0.05, values: int = 1000) -> None:
        self.significance = significance
        self.values = values
        self.law_: Distribution = Constant()
        self.parametric_: Distribution | None = None
        self.scores_: tuple[LawScore, ...] = ()
        self.p_value_ = 1.0

    def fit(self, factors: ArrayLike) -> StepTimeLaw:
        """Learn from factors, shape (n,), above zero.

        Raises
        ------
        CalibrationError
            There are fewer than 10, or one is not usable.
        """
        x = np.asarray(factors, float)
        if len(x) < FEWEST_FACTORS or not np.all(np.isfinite(x)) or np.any(x <= 0):
            raise CalibrationError(
                f"the law of step times needs at least {FEWEST_FACTORS} finite times above zero, not {len(x)}; raise `steps`"
            )
        x = x / np.mean(x)
        self.law_, self.parametric_, self.scores_, self.p_value_ = Constant(), Constant(), (), 1.0
        cv = float(np.std(x))
        if cv < _CONSTANT_CV:
            return self
        candidates = self._candidates(x, cv)
        ranked = sorted(((np.log(len(x)) - 2.0 * likelihood, law) for law, likelihood in candidates), key=lambda pair: pair[0])
        self.scores_ = tuple(LawScore(kind=law.kind, bic=round(float(bic), 3)) for bic, law in ranked)
        if not ranked:  # one wild value can be impossible under every candidate
            self.law_, self.parametric_, self.p_value_ = self._empirical(x), None, 0.0
            return self
        best = self.parametric_ = ranked[0][1]
        self.p_value_ = float(stats.kstest(x, _frozen(best).cdf).pvalue)
        self.law_ = best if self.p_value_ >= self.significance else self._empirical(x)
        return self

    def _empirical(self, x: Array) -> Empirical:
        values = np.sort(x)
        if len(values) > self.values:
            # the same weight for each group, also where their sizes differ by one
            edges = np.linspace(0.0, len(values), self.values + 1)
            values = np.diff(np.interp(edges, np.arange(len(values) + 1), np.concatenate([[0.0], np.cumsum(values)]))) / np.diff(edges)
        return Empirical(values=tuple(float(value) for value in np.round(values, 5)))

    @staticmethod
    def _candidates(x: Array, cv: float) -> list[tuple[Distribution, float]]:
        """Laws with their log-likelihood."""
        laws: list[Distribution] = []
        if cv <= _NORMAL_CV_MAX:
            laws.append(Normal(cv=cv))
        logs = np.log(x)
        # lognormal of mean 1: log x ~ N(-s/2, s) with s = sigma^2; setting the derivative of the
        # likelihood to zero gives s^2/4 + s - mean(log^2) = 0
        variance = 2.0 * (np.sqrt(1.0 + float(np.mean(logs**2))) - 1.0)
        laws.append(LogNormal(sigma=float(np.sqrt(variance))))
        # gamma of mean 1: log k - digamma(k) = -mean(log x)
        target = -float(np.mean(logs))
        shape = brentq(lambda k: np.log(k) - special.digamma(k) - target, 1e-3, 1e7) if target > 5.1e-8 else 1e7
        laws.append(Gamma(shape=min(float(shape), 1e7)))
        # shifted exponential of mean 1: the likelihood grows with the fixed part up to the smallest value
        fixed = min(float(np.min(x)), 1.0 - 1e-9)
        laws.append(ShiftedExponential(tail=max(min((1.0 - fixed) / fixed, 1e3), 1e-9)))
        scored = [(law, float(np.sum(_frozen(law).logpdf(x)))) for law in laws]
        return [(law, likelihood) for law, likelihood in scored if np.isfinite(likelihood)]


class Persistence:
    """Autocorrelation of successive steps, of stretches of steps that followed each other.

    With autocorrelation r^k of steps that are k apart and variance s^2, as ``persistence`` of the simulator's distributions has
    it, successive differences have the mean square 2 s^2 (1 - r), and squared deviations from the mean of a stretch of n steps
    the sum n s^2 (1 - v), where v s^2 is the variance of that mean. The ratio of both (von Neumann, "Distribution of the ratio
    of the mean square successive difference to the variance", 1941), summed over stretches, falls with r, and is solved for it. The
    plain sample autocorrelation would come out too low, by about (1 + 3 r) / n (Kendall 1954), which is all of it in short stretches.

    Parameters
    ----------
    significance
        Level of the test below; 1 takes any value.

    Attributes
    ----------
    seen_
        The solution, from 0 to 0.99.
    p_value_
        Chance of as much or more in steps that do not depend on each other: by shuffling those of each stretch.
    value_
        The solution where the test is passed, else 0.
    """

    def __init__(self, significance: float = 0.05) -> None:
        self.significance = significance
        self.seen_, self.p_value_, self.value_ = 0.0, 1.0, 0.0

    def fit(self, stretches: Iterable[ArrayLike]) -> Persistence:
        """Learn from stretches of step times, shape (n,) each, of one unit; those of fewer than 3 steps tell nothing."""
        series = [one for one in map(np.asarray, stretches) if len(one) >= _SHORTEST_STRETCH]
        self.seen_, self.p_value_, self.value_ = 0.0, 1.0, 0.0
        squares = math.fsum(float(((one - one.mean()) ** 2).sum()) for one in series)
        if not squares:
            return self
        lengths, times = np.unique([len(one) for one in series], return_counts=True)

        def expected(persistence: float) -> float:
            of_means = np.array([variance_of_mean(length, persistence) for length in lengths.tolist()])
            return float(2 * (1 - persistence) * (times * (lengths - 1)).sum() / (times * lengths * (1 - of_means)).sum())

        seen = _differences(series)
        ratio = seen / squares
        if ratio < expected(0.0):
            most = _MOST_PERSISTENCE
            self.seen_ = float(brentq(lambda r: expected(r) - ratio, 0.0, most)) if ratio > expected(most) else most
            if self.significance < 1:
                rng = np.random.default_rng(0)
                shuffled = [_differences([rng.permutation(one) for one in series]) for _ in range(_SHUFFLES)]
                self.p_value_ = (1 + sum(one <= seen for one in shuffled)) / (1 + _SHUFFLES)
        self.value_ = self.seen_ if self.p_value_ <= self.significance else 0.0
        return self


def _differences(series: Sequence[Array]) -> float:
    return math.fsum(float((np.diff(one) ** 2).sum()) for one in series)


def variance_of_mean(count: int, persistence: float) -> float:
    """Of the mean of successive draws, over that of one draw: (1 + 2 sum of (1 - k / n) r^k for k from 1 to n - 1) / n."""
    apart = np.arange(1, count)
    return float((1 + 2 * ((1 - apart / count) * persistence**apart).sum()) / count)


def _frozen(law: Distribution) -> stats.rv_continuous:
    """The law divided by its mean, as scipy's frozen distribution."""
    if isinstance(law, Normal):
        return stats.norm(1.0, law.cv)
    if isinstance(law, LogNormal):
        return stats.lognorm(law.sigma, scale=np.exp(-(law.sigma**2) / 2))
    if isinstance(law, Gamma):
        return stats.gamma(law.shape, scale=1.0 / law.shape)
    if isinstance(law, ShiftedExponential):
        # a hair lower, so that the smallest value lies inside the support
        return stats.expon(1.0 / (1.0 + law.tail) - 1e-12, law.tail / (1.0 + law.tail))
    raise TypeError(f"no distribution for {law!r}")


def drawn_laws(
    chosen: Distribution, samples: Iterable[ArrayLike], persistence: Iterable[float] = itertools.repeat(0.0)
) -> tuple[Distribution, ...]:
    """The law as it might have come out: for each bootstrap sample of factors the best candidate, fitted to it.

    So the choice of the law is drawn with its parameter: with few steps, kinds whose tails
    differ describe them nearly as well. Nothing for a constant law, which leaves nothing to
    draw, and for an empirical one, whose sample the simulator draws itself.

    Parameters
    ----------
    chosen
        The law fitted to all factors.
    samples
        Factors of each bootstrap sample.
    persistence
        Of the steps of each.
    """
    if isinstance(chosen, Constant | Empirical):
        return ()
    found = []
    for sample, stays in zip(map(np.asarray, samples), persistence, strict=False):
        # rounds of different lengths make samples of different sizes; one that is too small for a law gives none
        law = StepTimeLaw().fit(sample).parametric_ if len(sample) >= FEWEST_FACTORS else None
        if law is not None:
            found.append(with_persistence(law, stays))
    # six digits, in a file that is read by people
    return tuple(
        law.model_copy(update={key: digits(value, 6) for key, value in law.model_dump().items() if key != "kind"}) for law in found
    )


def with_persistence(law: Distribution, persistence: float) -> Distribution:
    """The same with another persistence; a constant has none."""
    if isinstance(law, Constant) or not persistence:
        return law
    return law.model_copy(update={"persistence": digits(persistence, 4)})
