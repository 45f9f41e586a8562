"""Finds which causes, and how strong, make a scenario do what was seen: every set of at most two, weighed by Bayes' rule.

What was seen are a few logarithms with standard errors (:class:`Evidence`), of which a scenario with causes predicts the same. For one
cause these are simulated at a few strengths and interpolated; of two, what each adds to a step is added, and the likeliest sets are
simulated where they fit best. The weight of a set is how often its causes are the reason, times the mean likelihood of what was seen
over the strengths that causes have (half-normal ones). Two more sets compete: no cause at all, and something that is none of these.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import truediv

import numpy as np
from numpy.typing import NDArray

from calibrate.observations import Observed
from paceline.diagnosing.causes import FOUND, OUTSIDE
from paceline.diagnosing.seen import Seen
from paceline.sweeping import Simulate
from simulator.base.errors import ScenarioError, SimulationError
from simulator.results.results import Failure, Result
from simulator.results.what_if import changed, with_compute
from simulator.scenario import Scenario
from simulator.spec.discrepancy import Z_90

__all__ = ["Evidence", "Explanation", "Runs", "explanations", "spread_of", "step_of", "told_as"]

Array = NDArray[np.float64]

_SIMULATED = (0.7, 2.0)
"""Strengths at which a cause is simulated, besides the greatest that it may have."""
_POINTS = {1: 301, 2: 61}
"""Strengths of each cause over which likelihoods are averaged, by the number of causes."""
_MODERATE = 2.0
"""Standard deviation of a strength before anything is seen: a factor of 7."""
_BEST = 3
"""Causes of which pairs are tried: those that explain most alone."""
_PAIRS = 4
"""Pairs that are simulated: those that explain most by what single causes do."""
_ROUNDS, _FITS = 3, 0.1
"""How often a set is fitted anew to what is simulated, and from which misfit on beyond the one expected."""
_COMPUTE, _UNEVEN, _WAIT, _BUSY = 0.04, 0.04, 0.02, 0.12
"""Standard errors: of what devices compute, of how they differ, and of processor time, as logarithms; of waiting, as a share."""
_UNKNOWN, _ANYTHING = 0.02, 1.0
"""How often none of the known causes is the reason, and how far each figure then is from the prediction: standard deviation of its
logarithm."""


@dataclass(frozen=True)
class Evidence:
    """What was seen of one run, as numbers that a scenario predicts: ``step`` and others, each with its standard error."""

    values: Mapping[str, float]
    errors: Mapping[str, float]


@dataclass(frozen=True)
class Runs:
    """The runs that are explained, and the scenario of each as it is told.

    Attributes
    ----------
    seen
        Runs of more than one device, the fewest workers first.
    told
        Their scenarios, with devices as fast as the one that was seen alone.
    alone
        The run of one; None where none was seen.
    spread
        Standard deviation of the logarithm of what is predicted, given the run of one where there is one.
    """

    seen: tuple[Seen, ...]
    told: tuple[Scenario, ...]
    alone: Seen | None
    spread: tuple[float, ...]


@dataclass
class Explanation:
    """A set of causes, as strong as they fit best.

    Attributes
    ----------
    strengths
        By key; empty: as told.
    weight
        Logarithm of its weight beside other sets'.
    unknown
        Whether it is what none of the known causes explains.
    misfit
        Sum of squares of what it does not explain, in standard errors.
    steps_s
        Step of each run with it.
    error_s
        By key, the standard deviation of what that cause adds to the last run's step.
    scenario
        That of the last run with it.
    """

    strengths: dict[str, float]
    weight: float
    unknown: bool = False
    misfit: float = 0.0
    steps_s: tuple[float, ...] = ()
    error_s: dict[str, float] = field(default_factory=dict)
    scenario: Scenario | None = None


def step_of(result: Result) -> float:
    """Time of a step of every worker, as the throughput tells it."""
    return result.scenario.batch * result.scenario.replicas / result.throughput_samples_per_s.mean


def spread_of(result: Result, *, given_alone: bool) -> float:
    """Standard deviation of the logarithm of a prediction: of the throughput, or of how much more that is than what one device does."""
    rate = result.speedup if given_alone else result.throughput_samples_per_s
    low, high = max(rate.low, 1e-3 * rate.mean), max(rate.high, rate.mean)
    return max(math.log(high / low) / (2.0 * Z_90), 0.01)


def evidence_of(seen: Seen, alone: Seen | None, spread: float) -> Evidence:
    """What was seen, as numbers that a scenario predicts."""
    values, errors = {"step": math.log(seen.step_s)}, {"step": math.hypot(spread, seen.error)}
    if seen.compute_s:
        values["compute"], errors["compute"] = math.log(statistics.fmean(seen.compute_s)), _COMPUTE
    if seen.uneven is not None:
        values["uneven"], errors["uneven"] = math.log(seen.uneven), _UNEVEN
    if seen.input_s:
        # all wait for the one that is last
        values["input"], errors["input"] = max(seen.input_s) / seen.step_s, _WAIT
    if seen.cpu_s and seen.compute_s and alone is not None and alone.cpu_s and alone.compute_s:
        # where a core is shared, processor time does not grow with the wall clock's; more of it than alone is that of waiting and
        # sending. The median, since one worker may do other things beside, such as checkpoints
        own = statistics.median(map(truediv, seen.cpu_s, seen.compute_s))
        busy = own / (statistics.fmean(alone.cpu_s) / statistics.fmean(alone.compute_s))
        values["busy"], errors["busy"] = min(math.log(busy), 0.0), _BUSY
    return Evidence(values, errors)


def explanations(runs: Runs, run: Simulate) -> list[Explanation]:
    """All sets of causes that were weighed, the most probable first."""
    return _Search(runs, run).weighed()


class _Search:
    """Weighs sets of causes, and simulates each scenario once."""

    def __init__(self, runs: Runs, run: Simulate) -> None:
        self._runs, self._run = runs, run
        evidence = [evidence_of(seen, runs.alone, spread) for seen, spread in zip(runs.seen, runs.spread, strict=True)]
        self._entries = [(place, name) for place, own in enumerate(evidence) for name in own.values]
        """Run and name of each figure; those named ``step`` are added up where causes meet."""
        self._steps = np.array([name == "step" for _, name in self._entries])
        self._values = np.array([evidence[place].values[name] for place, name in self._entries])
        self._errors = np.array([evidence[place].errors[name] for place, name in self._entries])
        self._known: dict[tuple[tuple[tuple[str, float], ...], int], dict[str, float] | None] = {}

    def weighed(self) -> list[Explanation]:
        """The sets, the most probable first."""
        possible = [key for key, cause in FOUND.items() if cause.possible(self._runs.told[-1])]
        if all(seen.is_average for seen in self._runs.seen):
            possible.append(OUTSIDE.key)
        self._simulate([{}, *({key: at} for key in possible for at in _strengths(key))])
        base = self._figures({})
        if base is None:
            raise SimulationError("the scenario cannot be simulated as it was run")
        curves = {key: curve for key in possible if (curve := self._curve(key, base)) is not None}
        misfit = self._misfit(base)
        none = Explanation({}, -0.5 * misfit, misfit=misfit, steps_s=self._steps_s(base), scenario=self._runs.told[-1])
        sets = [none, self._unknown(base), *self._fitted([(key,) for key in curves], curves, base)]
        singles = sorted((own for own in sets if len(own.strengths) == 1), key=lambda own: -own.weight)
        first = [next(iter(own.strengths)) for own in singles[:_BEST]]
        pairs = dict.fromkeys(tuple(sorted((key, other))) for key in first for other in curves if key != other)
        likely = sorted(pairs, key=lambda names: -self._averaged(names, curves, base, None).weight)[:_PAIRS]
        sets += self._fitted(likely, curves, base)
        return sorted(sets, key=lambda own: -own.weight)

    # -- what scenarios predict -------------------------------------------------------------

    def scenario(self, strengths: Mapping[str, float], place: int) -> Scenario | None:
        """The scenario of a run with causes; None where it breaks a rule."""
        scenario = self._runs.told[place]
        try:
            for key, strength in strengths.items():
                if strength and key != OUTSIDE.key and FOUND[key].possible(scenario):
                    scenario = FOUND[key].made(scenario, strength, self._runs.seen[place].slowest)
        except ScenarioError:
            return None
        return scenario

    def _simulate(self, sets: Iterable[Mapping[str, float]]) -> None:
        """Predict what sets of causes make of every run, in one go."""
        wanted: dict[tuple[tuple[tuple[str, float], ...], int], Scenario] = {}
        for strengths in sets:
            for place in range(len(self._runs.seen)):
                key = tuple(sorted(strengths.items())), place
                if key in self._known or key in wanted:
                    continue
                scenario = self.scenario(strengths, place)
                if scenario is None:
                    self._known[key] = None
                else:
                    wanted[key] = scenario
        for key, outcome in zip(wanted, self._run(list(wanted.values())), strict=True):
            self._known[key] = None if isinstance(outcome, Failure) else _predicted(dict(key[0]), outcome)

    def _figures(self, strengths: Mapping[str, float]) -> Array | None:
        """What was predicted of every figure that was seen; None where a run cannot be simulated."""
        predicted = [self._known.get((tuple(sorted(strengths.items())), place)) for place in range(len(self._runs.seen))]
        if any(own is None for own in predicted):
            return None
        return np.array([own[name] for place, name in self._entries if (own := predicted[place]) is not None])

    def _steps_s(self, figures: Array) -> tuple[float, ...]:
        return tuple(np.exp(figures[self._steps]).tolist())

    # -- weighing ---------------------------------------------------------------------------

    def _misfit(self, figures: Array) -> float:
        return float((((self._values - figures) / self._errors) ** 2).sum())

    def _unknown(self, base: Array) -> Explanation:
        """What none of the causes explains: every figure by itself may lie anywhere around its prediction."""
        variances = self._errors**2 + _ANYTHING**2
        likelihood = np.log(self._errors) - 0.5 * np.log(variances) - 0.5 * (self._values - base) ** 2 / variances
        return Explanation({}, math.log(_UNKNOWN) + float(likelihood.sum()), unknown=True, scenario=self._runs.told[-1])

    def _curve(self, key: str, base: Array) -> _Curve | None:
        """How figures change with the strength of a cause; None where no step does."""
        points = [(at, figures) for at in _strengths(key) if (figures := self._figures({key: at})) is not None]
        if not points or float(np.abs(points[-1][1] - base)[self._steps].max()) <= 0.01:
            return None
        return _Curve([0.0, *(at for at, _ in points)], [base, *(figures for _, figures in points)])

    def _fitted(self, sets: Sequence[tuple[str, ...]], curves: Mapping[str, _Curve], base: Array) -> list[Explanation]:
        """Each set by its curves first, then by what is simulated where it fits best, and again where that is somewhere else."""
        fits = {names: self._averaged(names, curves, base, None) for names in sets}
        for _ in range(_ROUNDS):
            self._simulate(own.strengths for own in fits.values())
            for names, own in fits.items():
                simulated = self._figures(own.strengths)
                if simulated is not None and self._misfit(simulated) - own.misfit > _FITS:
                    guess = self._added([curves[key].at(np.array([own.strengths[key]])) for key in names], base)
                    fits[names] = self._averaged(names, curves, base, simulated - guess.reshape(-1))
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

    def _added(self, each: Sequence[Array], base: Array) -> Array:
        """Figures of several causes together, as if what each adds to a step were added; one axis for each, then figures."""
        total = base.copy()
        added_s = np.zeros(int(self._steps.sum()))
        before_s = np.exp(base[self._steps])
        for place, figures in enumerate(each):
            shape = [1] * len(each) + [figures.shape[-1]]
            shape[place] = len(figures)
            spread = figures.reshape(shape)
            total = total + (spread - base)
            added_s = added_s + (np.exp(spread[..., self._steps]) - before_s)
        total = np.array(np.broadcast_to(total, np.broadcast_shapes(total.shape)))
        total[..., self._steps] = np.log(before_s + added_s)
        return total

    def _averaged(self, names: tuple[str, ...], curves: Mapping[str, _Curve], base: Array, offsets: Array | None) -> Explanation:
        """A set with the mean of its likelihood over all strengths, and the strengths at which it is largest."""
        grids = [np.linspace(0.0, curves[key].most, _POINTS[len(names)]) for key in names]
        figures = self._added([curves[key].at(grid) for key, grid in zip(names, grids, strict=True)], base)
        if offsets is not None:
            figures = figures + offsets
        misfit = (((self._values - figures) / self._errors) ** 2).sum(axis=-1)
        prior = np.zeros(misfit.shape)
        for place, grid in enumerate(grids):
            density = -0.5 * (grid / _MODERATE) ** 2
            shape = [1] * len(grids)
            shape[place] = len(grid)
            prior = prior + (density - np.log(np.exp(density).sum())).reshape(shape)
        logs = prior - 0.5 * misfit
        best = np.unravel_index(int(np.argmax(logs)), logs.shape)
        top = float(logs[best])
        weights = np.exp(logs - top)
        share = math.fsum(math.log(_share(key)) for key in names)
        explanation = Explanation(
            {key: round(float(grid[at]), 4) for key, grid, at in zip(names, grids, best, strict=True)},
            share + top + math.log(float(weights.sum())),
            misfit=float(misfit[best]),
        )
        for place, key in enumerate(names):
            own = weights.sum(axis=tuple(other for other in range(len(names)) if other != place))
            added_s = np.exp(curves[key].at(grids[place])[:, self._steps][:, -1])
            mean_s = float(np.average(added_s, weights=own))
            explanation.error_s[key] = math.sqrt(float(np.average((added_s - mean_s) ** 2, weights=own)))
        return explanation


class _Curve:
    """Figures by the strength of one cause, between strengths that were simulated; shape (strengths, figures)."""

    def __init__(self, strengths: Sequence[float], figures: Sequence[Array]) -> None:
        from scipy.interpolate import PchipInterpolator

        self.most = strengths[-1]
        self._between = PchipInterpolator(strengths, np.array(figures), axis=0)

    def at(self, strengths: Array) -> Array:
        """At several strengths, shape (n,): shape (n, figures)."""
        return np.asarray(self._between(np.clip(strengths, 0.0, self.most)))


def _strengths(key: str) -> list[float]:
    most = OUTSIDE.strongest if key == OUTSIDE.key else FOUND[key].strongest
    return [*(at for at in _SIMULATED if at < most), most]


def _share(key: str) -> float:
    return OUTSIDE.share if key == OUTSIDE.key else FOUND[key].share


def _predicted(strengths: Mapping[str, float], outcome: object) -> dict[str, float]:
    assert isinstance(outcome, Result)
    parts, step_s = outcome.breakdown_s, step_of(outcome)
    return {
        "step": math.log(step_s) + strengths.get(OUTSIDE.key, 0.0),
        "compute": math.log(max(parts.compute, 1e-12)),
        "uneven": strengths.get("slow-worker", 0.0),
        "input": parts.input / step_s,
        "busy": -strengths.get("compute", 0.0),
    }


def told_as(scenario: Scenario, observed: Sequence[Observed], factor: float, **run: int) -> list[Scenario]:
    """The scenario of each run, with devices that take so many times as long, and with keys of ``run``."""
    told = []
    for own in observed:
        each = own.scenario_of(scenario)
        each = with_compute(each, factor) if factor != 1.0 else each
        told.append(changed(each, run=each.run.model_copy(update=run)) if run else each)
    return told
