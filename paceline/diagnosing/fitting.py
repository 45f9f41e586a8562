"""The causes, and their strengths, with which a scenario reproduces the runs: sets of at most two, weighted by Bayes' rule.

Evidence is a few logarithms with standard errors (:func:`evidence_of`), which a scenario with causes predicts. Predictions are simulated
at a few strengths and interpolated, then simulated at the best fit; pairs of causes only if no single one suffices. The weight of a set is
the prior probability of its causes times the mean likelihood of the evidence over their (half-normal) strengths. Two more sets compete: no
cause, and an unknown one.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from operator import truediv

import numpy as np
from numpy.typing import NDArray

from calibrate.observations import Observed
from paceline.diagnosing.causes import CAUSES, OUTSIDE
from paceline.diagnosing.seen import Seen
from paceline.sweeping import Simulate
from simulator.base.errors import ScenarioError, SimulationError
from simulator.results.results import Result
from simulator.results.what_if import changed, with_compute
from simulator.scenario import Scenario
from simulator.spec.uncertainty import Z_90

Array = NDArray[np.float64]
_Key = tuple[tuple[tuple[str, float], ...], int]
"""Strengths of causes, and the index of a run."""

_POINTS = {1: 301, 2: 61}
"""Number of strengths of each cause over which likelihoods are averaged, by the number of causes."""
_MODERATE = 2.0
"""Prior standard deviation of a strength: a factor of 7."""
_ENOUGH = 3.0
"""Sum of squares, in standard errors, up to which no second cause is needed."""
_BEST = 3
"""Number of causes that form pairs: those that explain most alone."""
_PAIRS = 3
"""Number of pairs that are simulated: those that explain most by the effects of single causes."""
_ROUNDS, _FITS = 3, 0.1
"""How often a set is refitted to simulations, and the least misfit beyond the expected one that requires it."""
_NEARER, _TRIES, _APART, _FAR = 2, 5, 0.05, 100.0
"""How many pairs are tried near their best strengths, how often, how far apart, as a share, and what counts for one that cannot be
simulated."""
_COMPUTE, _UNEVEN, _WAIT, _BUSY = 0.04, 0.04, 0.02, 0.12
"""Standard errors: of what devices compute, of how they differ, and of processor time, as logarithms; of waiting, as a share."""
_UNKNOWN, _ANYTHING = 0.02, 1.0
"""Prior probability of an unknown cause, and the standard deviation of each figure's logarithm from the prediction with it."""


@dataclass(frozen=True)
class Runs:
    """The runs to explain, with their scenarios.

    Attributes
    ----------
    seen
        Runs of more than one device, by ascending workers.
    told
        Their scenarios, shortened, with devices as fast as the measured single one.
    results
        Results of the scenarios at full length.
    alone
        The run of a single device, if any.
    alone_s, alone_samples
        Step of a single device, in seconds and in samples.
    spread
        Standard deviation of the logarithm of the prediction, given the run of a single device if there is one.
    """

    seen: Sequence[Seen]
    told: Sequence[Scenario]
    results: Sequence[Result]
    alone: Seen | None
    alone_s: float
    alone_samples: int
    spread: Sequence[float]


@dataclass
class Explanation:
    """A set of causes with their best strengths.

    Attributes
    ----------
    strengths
        Strengths by key; empty: no cause.
    weight
        Logarithm of its weight relative to other sets.
    unknown
        Whether it is the unknown cause.
    misfit
        Sum of squared residuals, in standard errors.
    steps_s
        Step of each run with it.
    error_s
        Standard deviation of each cause's addition to the last run's step, by key.
    scenario
        Scenario of the last run with it.
    """

    strengths: dict[str, float]
    weight: float
    unknown: bool = False
    misfit: float = 0.0
    steps_s: tuple[float, ...] = ()
    error_s: dict[str, float] = field(default_factory=dict)
    scenario: Scenario | None = None

    @property
    def longer(self) -> float:
        """Return the ratio of counted time to time of steps."""
        return math.exp(self.strengths.get(OUTSIDE.key, 0.0))


def step_of(result: Result) -> float:
    """Return the time of a step of every worker, from the throughput."""
    return result.scenario.batch * result.scenario.replicas / result.throughput_samples_per_s.mean


def spread_of(result: Result, *, given_alone: bool) -> float:
    """Return the standard deviation of the logarithm of a prediction: of throughput, or of its ratio to one device."""
    rate = result.speedup if given_alone else result.throughput_samples_per_s
    low, high = max(rate.low, 1e-3 * rate.mean), max(rate.high, rate.mean)
    return max(math.log(high / low) / (2.0 * Z_90), 0.01)


def evidence_of(seen: Seen, alone: Seen | None, spread: float) -> dict[str, tuple[float, float]]:
    """Return observed figures that a scenario predicts, each with its standard error."""
    evidence = {"step": (math.log(seen.step_s), math.hypot(spread, seen.error))}
    if seen.compute_s:
        evidence["compute"] = math.log(statistics.fmean(seen.compute_s)), _COMPUTE
    if seen.uneven is not None:
        evidence["uneven"] = math.log(seen.uneven), _UNEVEN
    if seen.input_s:
        # all wait for the one that is last
        evidence["input"] = max(seen.input_s) / seen.step_s, _WAIT
    if seen.cpu_s and seen.compute_s and alone is not None and alone.cpu_s and alone.compute_s:
        # where a core is shared, processor time does not grow with the wall clock's; more of it than alone is that of waiting and
        # sending. The median, since one worker may do other things beside, such as checkpoints
        own = statistics.median(map(truediv, seen.cpu_s, seen.compute_s))
        busy = own / (statistics.fmean(alone.cpu_s) / statistics.fmean(alone.compute_s))
        evidence["busy"] = min(math.log(busy), 0.0), _BUSY
    return evidence


def explanations(runs: Runs, run: Simulate) -> list[Explanation]:
    """Return all weighted sets of causes, the most probable first."""
    return _Search(runs, run).weighed()


class _Search:
    """Weights sets of causes, and simulates each scenario once."""

    def __init__(self, runs: Runs, run: Simulate) -> None:
        self._runs, self._run = runs, run
        evidence = [evidence_of(seen, runs.alone, spread) for seen, spread in zip(runs.seen, runs.spread, strict=True)]
        self._entries = [(place, name) for place, own in enumerate(evidence) for name in own]
        """Run and name of each figure; figures named ``step`` add up in pairs of causes."""
        self._steps = np.array([name == "step" for _, name in self._entries])
        self._values, self._errors = np.array([evidence[place][name] for place, name in self._entries]).T
        self._known: dict[_Key, dict[str, float] | None] = {}

    def weighed(self) -> list[Explanation]:
        """Return the sets, the most probable first."""
        averages = all(seen.is_average for seen in self._runs.seen)
        possible = [key for key, cause in CAUSES.items() if cause.possible(self._runs.told[-1]) and (averages or key != OUTSIDE.key)]
        self._simulate([{}, *({key: at} for key in possible for at in CAUSES[key].strengths)])
        base = self._figures({})
        if base is None:
            raise SimulationError("the scenario cannot be simulated with the settings of the run")
        curves = {key: curve for key in possible if (curve := self._curve(key, base)) is not None}
        misfit, steps_s, scenario = self._misfit(base), self._steps_s(base), self._runs.told[-1]
        none = Explanation({}, -0.5 * misfit, misfit=misfit, steps_s=steps_s, scenario=scenario)
        # what none of the causes explains: every figure by itself may lie anywhere around its prediction
        variances = self._errors**2 + _ANYTHING**2
        likelihood = np.log(self._errors) - 0.5 * np.log(variances) - 0.5 * (self._values - base) ** 2 / variances
        unknown = Explanation({}, math.log(_UNKNOWN) + float(likelihood.sum()), unknown=True, scenario=scenario)
        singles = self._fitted({(key,): curve for key, curve in curves.items()})
        sets = [none, unknown, *singles]
        singles.sort(key=lambda own: -own.weight)
        # times of steps alone do not tell two causes apart
        if singles and not self._steps.all() and min(none.misfit, singles[0].misfit) > _ENOUGH:
            first = [next(iter(own.strengths)) for own in singles[:_BEST]]
            pairs = dict.fromkeys(tuple(sorted((key, other))) for key in first for other in curves if key != other)
            rough = {names: self._averaged(names, _Added([curves[key] for key in names], base, self._steps)) for names in pairs}
            likely = sorted(rough, key=lambda names: -rough[names].weight)[:_PAIRS]
            self._simulate(
                dict(zip(names, at, strict=True)) for names in likely for at in product(*(CAUSES[key].strengths[1:] for key in names))
            )
            sets += self._fitted({names: surface for names in likely if (surface := self._surface(names)) is not None})
        return sorted(sets, key=lambda own: -own.weight)

    # -- what scenarios predict -------------------------------------------------------------

    def scenario(self, strengths: Mapping[str, float], place: int) -> Scenario | None:
        """Return the scenario of a run with causes; None if it breaks a rule."""
        scenario = self._runs.told[place]
        try:
            for key, strength in strengths.items():
                if strength and CAUSES[key].possible(scenario):
                    scenario = CAUSES[key].made(scenario, strength, self._runs.seen[place].slowest)
        except ScenarioError:
            return None
        return scenario

    def _simulate(self, sets: Iterable[Mapping[str, float]]) -> None:
        """Predict every run with sets of causes, in one batch."""
        wanted: dict[_Key, Scenario] = {}
        for strengths, place in product(sets, range(len(self._runs.seen))):
            key = tuple(sorted(strengths.items())), place
            if key not in self._known:
                self._known[key] = None
                if (scenario := self.scenario(strengths, place)) is not None:
                    wanted[key] = scenario
        for key, outcome in zip(wanted, self._run(list(wanted.values())), strict=True):
            if isinstance(outcome, Result):
                self._known[key] = _predicted(dict(key[0]), outcome)

    def _figures(self, strengths: Mapping[str, float]) -> Array | None:
        """Return the prediction of every observed figure; None if a run cannot be simulated."""
        predicted = [self._known.get((tuple(sorted(strengths.items())), place)) for place in range(len(self._runs.seen))]
        if any(own is None for own in predicted):
            return None
        return np.array([own[name] for place, name in self._entries if (own := predicted[place]) is not None])

    def _steps_s(self, figures: Array) -> tuple[float, ...]:
        return tuple(np.exp(figures[self._steps]).tolist())

    # -- weighing ---------------------------------------------------------------------------

    def _misfit(self, figures: Array) -> float:
        return float((((self._values - figures) / self._errors) ** 2).sum())

    def _curve(self, key: str, base: Array) -> _Surface | None:
        """Return how figures change with the strength of a cause; None if no step changes."""
        points = [(at, figures) for at in CAUSES[key].strengths if (figures := self._figures({key: at})) is not None]
        if not points or float(np.abs(points[-1][1] - base)[self._steps].max()) <= 0.01:
            return None
        return _Surface([[0.0, *(at for at, _ in points)]], np.array([base, *(figures for _, figures in points)]))

    def _surface(self, names: tuple[str, ...]) -> _Surface | None:
        """Return how figures change with the strengths of several causes; None if one cannot be simulated."""
        axes = [[0.0, *CAUSES[key].strengths[1:]] for key in names]
        figures = [self._figures({key: at for key, at in zip(names, each, strict=True) if at}) for each in product(*axes)]
        if any(own is None for own in figures):
            return None
        return _Surface(axes, np.array(figures).reshape(*map(len, axes), -1))

    def _fitted(self, surfaces: Mapping[tuple[str, ...], _Surface]) -> list[Explanation]:
        """Fit each set by interpolation between simulated strengths, then by simulation at the best fit, repeatedly."""
        fits = {names: self._averaged(names, surface) for names, surface in surfaces.items()}
        for _ in range(_ROUNDS):
            self._simulate(own.strengths for own in fits.values())
            for names, own in fits.items():
                simulated = self._figures(own.strengths)
                if simulated is not None and self._misfit(simulated) - own.misfit > _FITS:
                    guess = surfaces[names].at([np.array([own.strengths[key]]) for key in names])
                    fits[names] = self._averaged(names, surfaces[names], simulated - guess.reshape(-1))
        for names in sorted(fits, key=lambda names: -fits[names].weight)[:_NEARER]:
            if len(names) > 1:
                fits[names].strengths = self._nearest(fits[names].strengths, surfaces[names].most)
        self._simulate(own.strengths for own in fits.values())
        final = []
        for own in fits.values():
            simulated = self._figures(own.strengths)
            if simulated is None:
                continue
            own.weight -= 0.5 * (self._misfit(simulated) - own.misfit)
            own.misfit, own.steps_s = self._misfit(simulated), self._steps_s(simulated)
            own.scenario = self.scenario(own.strengths, len(self._runs.seen) - 1)
            final.append(own)
        return final

    def _nearest(self, strengths: Mapping[str, float], most: Sequence[float]) -> dict[str, float]:
        """Return nearby strengths with the best simulated fit, since a cause can abruptly hide another from some strength on."""
        from scipy.optimize import least_squares

        def residuals(values: Array) -> Array:
            here = dict(zip(strengths, np.round(values, 4).tolist(), strict=True))
            self._simulate([here])
            figures = self._figures(here)
            apart = np.full(len(self._values), _FAR) if figures is None else (self._values - figures) / self._errors
            return np.concatenate([apart, values / _MODERATE])

        start = np.clip(list(strengths.values()), 0.01, np.array(most) - 0.01)
        fit = least_squares(residuals, start, bounds=(0.0, most), diff_step=_APART, max_nfev=_TRIES)
        return dict(zip(strengths, np.round(fit.x, 4).tolist(), strict=True))

    def _averaged(self, names: tuple[str, ...], surface: _Surface | _Added, offsets: Array | float = 0.0) -> Explanation:
        """Return a set with the mean of its likelihood over all strengths, and the strengths at its maximum."""
        grids = [np.linspace(0.0, most, _POINTS[len(names)]) for most in surface.most]
        figures = surface.at(grids) + offsets
        misfit = (((self._values - figures) / self._errors) ** 2).sum(axis=-1)
        densities = [-0.5 * (grid / _MODERATE) ** 2 for grid in grids]
        prior = sum(np.ix_(*(density - np.log(np.exp(density).sum()) for density in densities)), np.zeros(misfit.shape))
        logs = prior - 0.5 * misfit
        best = np.unravel_index(int(np.argmax(logs)), logs.shape)
        top = float(logs[best])
        weights = np.exp(logs - top)
        share = math.fsum(math.log(CAUSES[key].share) for key in names)
        explanation = Explanation(
            {key: round(float(grid[at]), 4) for key, grid, at in zip(names, grids, best, strict=True)},
            share + top + math.log(float(weights.sum())),
            misfit=float(misfit[best]),
        )
        last_s = np.exp(figures[..., np.flatnonzero(self._steps)[-1]])
        for place, key in enumerate(names):
            own = weights.sum(axis=tuple(other for other in range(len(names)) if other != place))
            # of its steps where the others are as strong as they fit best
            steps_s = last_s[tuple(slice(None) if other == place else at for other, at in enumerate(best))]
            mean_s = float(np.average(steps_s, weights=own))
            explanation.error_s[key] = math.sqrt(float(np.average((steps_s - mean_s) ** 2, weights=own)))
        return explanation


class _Surface:
    """Figures interpolated between simulated strengths of causes.

    Parameters
    ----------
    axes
        Simulated strengths of each cause, from 0.
    figures
        Figures at these strengths, with one axis for each cause and a last one for the figures.
    """

    def __init__(self, axes: Sequence[Sequence[float]], figures: Array) -> None:
        self._axes, self._figures = axes, figures
        self.most = [axis[-1] for axis in axes]

    def at(self, grids: Sequence[Array]) -> Array:
        """Return figures on a grid of strengths, with one axis for each cause and a last one for the figures."""
        from scipy.interpolate import PchipInterpolator

        figures = self._figures
        for place, (axis, grid) in enumerate(zip(self._axes, grids, strict=True)):
            figures = np.asarray(PchipInterpolator(axis, figures, axis=place)(grid))
        return figures


class _Added:
    """Figures of several causes, assuming that their additions to a step add up, to select sets to simulate."""

    def __init__(self, curves: Sequence[_Surface], base: Array, steps: NDArray[np.bool_]) -> None:
        self._curves, self._base, self._is_step = curves, base, steps
        self.most = [curve.most[0] for curve in curves]

    def at(self, grids: Sequence[Array]) -> Array:
        """As for :meth:`_Surface.at`."""
        each = [
            np.expand_dims(curve.at([grid]), [axis for axis in range(len(grids)) if axis != place])
            for place, (curve, grid) in enumerate(zip(self._curves, grids, strict=True))
        ]
        steps_s = sum((np.exp(own) - np.exp(self._base) for own in each), np.exp(self._base))
        return np.where(self._is_step, np.log(steps_s), sum((own - self._base for own in each), self._base))


def _predicted(strengths: Mapping[str, float], result: Result) -> dict[str, float]:
    parts, step_s = result.breakdown_s, step_of(result)
    figures = {
        "step": math.log(step_s), "compute": math.log(max(parts.compute, 1e-12)), "uneven": 0.0, "input": parts.input / step_s, "busy": 0.0,
    }  # fmt: skip
    for key, strength in strengths.items():
        for name, by in CAUSES[key].shows.items():
            figures[name] += by * strength
    return figures


def told_as(scenario: Scenario, observed: Sequence[Observed], factor: float, **run: int) -> list[Scenario]:
    """Return the scenario of each run with slower devices and keys of ``run``."""
    scenarios = [own.scenario_of(scenario) for own in observed]
    if factor != 1.0:
        scenarios = [with_compute(each, factor) for each in scenarios]
    return [changed(each, run=each.run.replaced(run)) for each in scenarios] if run else scenarios
