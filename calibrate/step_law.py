"""Which law the step times follow around their mean."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, special, stats

from simulator.distributions import Constant, Distribution, Empirical, Gamma, LogNormal, Normal, ShiftedExponential
from simulator.errors import CalibrationError
from simulator.workload import LawScore

__all__ = ["StepTimeLaw", "drawn_laws"]

Array = NDArray[np.float64]

_CONSTANT_CV = 1e-6
_NORMAL_CV_MAX = 0.3
_FEWEST = 10


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
        if len(x) < _FEWEST or not np.all(np.isfinite(x)) or np.any(x <= 0):
            raise CalibrationError(f"the law of step times needs at least {_FEWEST} finite times above zero, not {len(x)}; raise --steps")
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
        shape = optimize.brentq(lambda k: np.log(k) - special.digamma(k) - target, 1e-3, 1e7) if target > 5.1e-8 else 1e7
        laws.append(Gamma(shape=min(float(shape), 1e7)))
        # shifted exponential of mean 1: the likelihood grows with the fixed part up to the smallest value
        fixed = min(float(np.min(x)), 1.0 - 1e-9)
        laws.append(ShiftedExponential(tail=max(min((1.0 - fixed) / fixed, 1e3), 1e-9)))
        scored = [(law, float(np.sum(_frozen(law).logpdf(x)))) for law in laws]
        return [(law, likelihood) for law, likelihood in scored if np.isfinite(likelihood)]


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


def drawn_laws(chosen: Distribution, samples: Iterable[ArrayLike]) -> tuple[Distribution, ...]:
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
    """
    if isinstance(chosen, Constant | Empirical):
        return ()
    # rounds of different lengths make samples of different sizes; one that is too small for a law gives none
    found = (StepTimeLaw().fit(sample).parametric_ for sample in map(np.asarray, samples) if len(sample) >= _FEWEST)
    return tuple(_rounded(law) for law in found if law is not None)


def _rounded(law: Distribution) -> Distribution:
    """Six digits, for a file that is read by people."""
    return law.model_copy(update={key: float(f"{value:.6g}") for key, value in law.model_dump().items() if key != "kind"})
