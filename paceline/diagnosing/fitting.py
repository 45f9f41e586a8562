"""Finds which causes, and how strong, make a scenario do what was seen: every set of a few, weighed by how well it does.

What was seen of each run is a few logarithms with standard errors (:func:`evidence_of`); a scenario with causes predicts the same. For
one cause the simulated step is known at a few strengths and interpolated between them, and then simulated where it fits. The weight of a
set is that of Bayes: how often its causes are the reason, times how well it predicts what was seen at its most probable strengths, which
are held to be moderate.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import truediv

import numpy as np
from numpy.typing import NDArray

from paceline.diagnosing.causes import FOUND, OUTSIDE, SHARES
from paceline.diagnosing.seen import Seen, scenario_of
from paceline.sweeping import Simulate
from simulator.base.errors import ScenarioError, SimulationError
from simulator.results.results import Failure, Result
from simulator.results.what_if import changed, with_compute
from simulator.scenario import Scenario
from simulator.spec.discrepancy import Z_90

__all__ = ["Evidence", "Explanation", "Runs", "explanations", "spread_of", "step_of", "told_as"]

_GRID = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)
"""Strengths at which a cause is simulated, as far as it may be so strong."""
_MODERATE = 2.5
"""Standard deviation of a strength before anything is seen: a factor of 12."""
_EACH = 1.0
"""What each further cause costs besides its share, as the logarithm of a chance."""
_BEST = 3
"""Causes of which pairs are tried: those that explain most alone."""
_COMPUTE, _UNEVEN, _WAIT, _BUSY = 0.04, 0.04, 0.02, 0.12
"""Standard errors: of what devices compute, of how they differ, and of processor time, as logarithms; of waiting, as a share."""
_ENOUGH = 3.0
"""Sum of squares, in standard errors, up to which what was seen needs no further cause."""


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
        Runs of more than one worker, the fewest workers first.
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
    loss
        Minus the logarithm of its weight.
    misfit
        Sum of squares of what it does not explain, in standard errors.
    slopes
        By how much the logarithm of the last run's step rises with each strength.
    errors
        Standard deviation of each strength.
    scenario
        That of the last run with them.
    """

    strengths: dict[str, float]
    loss: float
    misfit: float
    slopes: dict[str, float] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)
    scenario: Scenario | None = None


def step_of(result: Result) -> float:
    """Time of a step of every worker, as the throughput tells it."""
    its = result.scenario
    return its.batch * its.replicas / result.throughput_samples_per_s.mean


def spread_of(result: Result, *, given_alone: bool) -> float:
    """Standard deviation of the logarithm of a prediction: of the throughput, or of how much more that is than what one device does."""
    its = result.speedup if given_alone else result.throughput_samples_per_s
    low, high = max(its.low, 1e-3 * its.mean), max(its.high, its.mean)
    return max(math.log(high / low) / (2.0 * Z_90), 0.01)


def evidence_of(seen: Seen, alone: Seen | None, spread: float) -> Evidence:
    """What was seen, as numbers that a scenario predicts."""
    values, errors = {"step": math.log(seen.step_s)}, {"step": math.hypot(spread, seen.error)}
    if seen.compute_s:
        values["compute"], errors["compute"] = math.log(_mean(seen.compute_s)), _COMPUTE
    if seen.uneven is not None:
        values["uneven"], errors["uneven"] = math.log(seen.uneven), _UNEVEN
    if seen.input_s:
        # all wait for the one that is last
        values["input"], errors["input"] = max(seen.input_s) / seen.step_s, _WAIT
    if seen.cpu_s and seen.compute_s and alone is not None and alone.cpu_s and alone.compute_s:
        # where a core is shared, processor time does not grow with the wall clock's; the median, since one worker may do other things
        # beside, such as checkpoints
        own = statistics.median(map(truediv, seen.cpu_s, seen.compute_s)) / (_mean(alone.cpu_s) / _mean(alone.compute_s))
        values["busy"], errors["busy"] = math.log(own), _BUSY
    return Evidence(values, errors)


def explanations(runs: Runs, run: Simulate) -> list[Explanation]:
    """All sets of causes that were tried, the most probable first."""
    return _Search(runs, run).found()


class _Search:
    """Fits sets of causes, and simulates each scenario once."""

    def __init__(self, runs: Runs, run: Simulate) -> None:
        self._runs = runs
        self._run = run
        self._evidence = [evidence_of(one, runs.alone, spread) for one, spread in zip(runs.seen, runs.spread, strict=True)]
        self._known: dict[tuple[tuple[tuple[str, float], ...], int], dict[str, float] | None] = {}

    def found(self) -> list[Explanation]:
        """The sets, the most probable first."""
        possible = [key for key, its in FOUND.items() if its.possible(self._runs.told[-1])]
        if all(one.is_average for one in self._runs.seen):
            possible.append(OUTSIDE.key)
        self._simulate([{}, *({key: at} for key in possible for at in self._strengths(key))])
        none = self._weighed({})
        if none is None:
            raise SimulationError("the scenario cannot be simulated as it was run")
        curves = {key: curve for key in possible if (curve := self._curve(key)) is not None}
        singles = self._fitted([(key,) for key in curves], curves)
        found = [none, *singles]
        best = sorted(singles, key=lambda its: its.loss)[:_BEST]
        if best and best[0].misfit > _ENOUGH:
            first = [next(iter(its.strengths)) for its in best]
            pairs = dict.fromkeys(tuple(sorted((one, other))) for one in first for other in curves if one != other)
            found += self._fitted(list(pairs), curves)
        return sorted(found, key=lambda its: its.loss)

    # -- what scenarios predict -------------------------------------------------------------

    def _strengths(self, key: str) -> list[float]:
        most = OUTSIDE.strongest if key == OUTSIDE.key else FOUND[key].strongest
        return [at for at in _GRID if 0.0 < at <= most]

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
        wanted, scenarios = [], []
        for strengths in sets:
            for place in range(len(self._runs.seen)):
                key = tuple(sorted(strengths.items())), place
                if key in self._known or key in wanted:
                    continue
                scenario = self.scenario(strengths, place)
                if scenario is None:
                    self._known[key] = None
                else:
                    wanted.append(key)
                    scenarios.append(scenario)
        for key, outcome in zip(wanted, self._run(scenarios), strict=True):
            self._known[key] = None if isinstance(outcome, Failure) else self._predicted(dict(key[0]), outcome)

    def _predicted(self, strengths: Mapping[str, float], outcome: object) -> dict[str, float]:
        assert isinstance(outcome, Result)
        parts, step_s = outcome.breakdown_s, step_of(outcome)
        return {
            "step": math.log(step_s) + strengths.get(OUTSIDE.key, 0.0),
            "compute": math.log(max(parts.compute, 1e-12)),
            "uneven": strengths.get("slow-worker", 0.0),
            "input": parts.input / step_s,
            "busy": -strengths.get("compute", 0.0),
        }

    def _of(self, strengths: Mapping[str, float]) -> list[dict[str, float]] | None:
        """What was predicted of every run; None where one cannot be."""
        found = [self._known.get((tuple(sorted(strengths.items())), place)) for place in range(len(self._runs.seen))]
        return None if any(its is None for its in found) else [its for its in found if its is not None]

    # -- fitting ----------------------------------------------------------------------------

    def _curve(self, key: str) -> _Curve | None:
        """How predictions change with the strength of a cause; None where none does."""
        base = self._of({})
        points = [(at, its) for at in self._strengths(key) if (its := self._of({key: at})) is not None]
        if base is None or not points:
            return None
        curve = _Curve([0.0, *(at for at, _ in points)], [base, *(its for _, its in points)])
        return curve if any(abs(own["step"] - before["step"]) > 0.01 for own, before in zip(points[-1][1], base, strict=True)) else None

    def _fitted(self, sets: Sequence[tuple[str, ...]], curves: Mapping[str, _Curve]) -> list[Explanation]:
        """Each set at its best strengths, by curves first, then by what is simulated there, twice."""
        at = {names: self._best(names, curves, None) for names in sets}
        offsets: dict[tuple[str, ...], list[dict[str, float]] | None] = {}
        for _ in range(2):
            self._simulate(at.values())
            for names, strengths in at.items():
                offsets[names] = self._offsets(names, strengths, curves)
                at[names] = self._best(names, curves, offsets[names])
        self._simulate(at.values())
        found = []
        for names, strengths in at.items():
            its = self._weighed(strengths)
            if its is not None:
                found.append(self._with_errors(its, names, curves))
        return found

    def _by_curves(self, strengths: Mapping[str, float], curves: Mapping[str, _Curve]) -> list[dict[str, float]]:
        """What several causes predict together, as if what each adds to a step were added."""
        base = self._of({})
        assert base is not None
        found = []
        for place, own in enumerate(base):
            each = [curves[key].at(strength, place) for key, strength in strengths.items()]
            summed = {name: value + math.fsum(its[name] - value for its in each) for name, value in own.items()}
            before_s = math.exp(own["step"])
            summed["step"] = math.log(before_s + math.fsum(math.exp(its["step"]) - before_s for its in each))
            found.append(summed)
        return found

    def _offsets(
        self, names: tuple[str, ...], strengths: Mapping[str, float], curves: Mapping[str, _Curve]
    ) -> list[dict[str, float]] | None:
        """What was simulated beyond what the curves say, at some strengths."""
        simulated = self._of(strengths)
        if simulated is None:
            return None
        by_curves = self._by_curves({key: strengths.get(key, 0.0) for key in names}, curves)
        return [{name: value - guess[name] for name, value in own.items()} for own, guess in zip(simulated, by_curves, strict=True)]

    def _best(self, names: tuple[str, ...], curves: Mapping[str, _Curve], offsets: list[dict[str, float]] | None) -> dict[str, float]:
        from scipy.optimize import minimize

        def loss(given: NDArray[np.float64]) -> float:
            strengths = dict(zip(names, given.tolist(), strict=True))
            guess = self._by_curves(strengths, curves)
            if offsets is not None:
                guess = [{name: value + more[name] for name, value in own.items()} for own, more in zip(guess, offsets, strict=True)]
            return self._loss(strengths, guess)[0]

        bounds = [(0.0, curves[key].most) for key in names]
        starts = [np.array([share * most for _, most in bounds]) for share in (0.02, 0.1, 0.3, 0.6)]
        for one in range(len(names)) if len(names) > 1 else ():
            starts += [np.array([0.3 * most if place == one else 0.02 for place, (_, most) in enumerate(bounds)])]
        tried = [minimize(loss, start, method="Nelder-Mead", bounds=bounds, options={"xatol": 1e-3, "fatol": 1e-4}) for start in starts]
        best = min(tried, key=lambda its: float(its.fun))
        return {key: round(float(value), 4) for key, value in zip(names, best.x, strict=True)}

    def _loss(self, strengths: Mapping[str, float], predicted: Sequence[Mapping[str, float]]) -> tuple[float, float]:
        """Minus the logarithm of a set's weight, and its misfit."""
        misfit = 0.0
        for evidence, own in zip(self._evidence, predicted, strict=True):
            misfit += math.fsum(((value - own[name]) / evidence.errors[name]) ** 2 for name, value in evidence.values.items())
        before = math.fsum(_EACH - math.log(SHARES[key]) + 0.5 * (strength / _MODERATE) ** 2 for key, strength in strengths.items())
        return 0.5 * misfit + before, misfit

    def _weighed(self, strengths: dict[str, float]) -> Explanation | None:
        predicted = self._of(strengths)
        if predicted is None:
            return None
        loss, misfit = self._loss(strengths, predicted)
        return Explanation(strengths, loss, misfit, scenario=self.scenario(strengths, len(self._runs.seen) - 1))

    def _with_errors(self, its: Explanation, names: tuple[str, ...], curves: Mapping[str, _Curve]) -> Explanation:
        """With slopes and standard deviations: those of the normal law that touches the weight at its top (Laplace)."""
        here, width = {key: its.strengths.get(key, 0.0) for key in names}, 0.02
        rows, last = [], {}
        for key in names:
            above = {**here, key: here[key] + width}
            below = {**here, key: max(here[key] - width, 0.0)}
            one, other = self._by_curves(above, curves), self._by_curves(below, curves)
            steps = above[key] - below[key]
            last[key] = (one[-1]["step"] - other[-1]["step"]) / steps
            rows.append([
                (one[place][name] - other[place][name]) / steps / evidence.errors[name]
                for place, evidence in enumerate(self._evidence)
                for name in evidence.values
            ])  # fmt: skip
        jacobian = np.array(rows)
        precision = jacobian @ jacobian.T + np.eye(len(names)) / _MODERATE**2
        deviations = np.sqrt(np.diag(np.linalg.inv(precision)))
        return replace(its, slopes=last, errors=dict(zip(names, deviations.tolist(), strict=True)))


class _Curve:
    """What is predicted of every run by the strength of one cause, between strengths that were simulated."""

    def __init__(self, strengths: Sequence[float], predicted: Sequence[Sequence[Mapping[str, float]]]) -> None:
        from scipy.interpolate import PchipInterpolator

        self.most = strengths[-1]
        self._of: list[dict[str, Callable[[float], float]]] = [
            {name: PchipInterpolator(strengths, [own[place][name] for own in predicted]) for name in predicted[0][place]}
            for place in range(len(predicted[0]))
        ]

    def at(self, strength: float, place: int) -> dict[str, float]:
        """Of one run."""
        here = min(max(strength, 0.0), self.most)
        return {name: float(curve(here)) for name, curve in self._of[place].items()}


def told_as(scenario: Scenario, seen: Sequence[Seen], factor: float, **run: int) -> list[Scenario]:
    """The scenario of each run, with devices that take so many times as long, and with keys of ``run``."""
    found = []
    for its in seen:
        own = scenario_of(scenario, its)
        own = with_compute(own, factor) if factor != 1.0 else own
        found.append(changed(own, run=own.run.model_copy(update=run)) if run else own)
    return found


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
