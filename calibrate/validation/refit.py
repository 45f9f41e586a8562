"""Bring a scenario to measured points by moving its physical quantities, the simulator itself in the loop.

Residuals are logarithms of predicted over measured throughput in units of the
measurements' noise, and beside them, as a weak residual each, the logarithms of the
factors in units of what is believed of them beforehand. What the points do not determine
thus stays where it was; it is recognised by how little they narrow it, held at its prior,
and the rest is fitted again. All predictions have the same random streams in common, so
that their differences are those of the factors.

The covariance is that of a linear model at the optimum, ``(J' J / b + P)^-1`` with the
Jacobian J of the points and the inverse variances P of the priors. b is the mean square
of the points' residuals for each degree of freedom, where they scatter more than their
noise, else 1 (Birge, "The calculation of errors by the method of least squares", Physical
Review 40, 1932).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from calibrate.validation.candidates import Array, Candidate, Map, Model, candidates_of
from calibrate.validation.points import Setting, Unit
from simulator.base import catalog
from simulator.base.errors import CalibrationError
from simulator.base.spec import short_name
from simulator.base.text import digits
from simulator.scenario import Scenario
from simulator.spec.uncertainty import Uncertainty

BOUND = 20.0
"""A factor lies between 1 / 20 and 20: beyond, the scenario describes another machine."""
DETERMINED = 0.5
"""Points determine a factor where they narrow its logarithm to this share of the prior's standard deviation."""
_UNTOUCHED = 0.9
_DRAWS = 64
"""Of the factors, at least, that the refitted scenario carries."""
_SEED = 20_261
_USUAL_NOISE = 0.02
"""Relative standard deviation of a run's throughput where no setting was repeated."""
_STEP = 0.15
"""Of a logarithm, for differences. Asynchronous runs are chaotic: a change of 1% gives another order of messages, and so some
percent of throughput by chance, whatever the random streams; a step must be large against that, and small against curvature."""


@dataclass(frozen=True)
class Fitted:
    """Factors that some points give.

    Attributes
    ----------
    moved
        Candidates that the points determine.
    logs, covariance
        Logarithms of their factors, shape (n,), and the covariance, shape (n, n).
    held
        Reason by name, for candidates that the points do not determine.
    scatter
        Root mean square of the points' residuals in units of their noise.
    """

    moved: tuple[Candidate, ...]
    logs: tuple[float, ...]
    covariance: tuple[tuple[float, ...], ...]
    held: dict[str, str] = field(default_factory=dict)
    scatter: float = 0.0

    @property
    def factors(self) -> tuple[float, ...]:
        """By which each moved candidate is scaled."""
        return tuple(math.exp(log) for log in self.logs)

    def factor_of(self, name: str) -> float:
        """By which a candidate is scaled; 1 if it is held."""
        return next((factor for candidate, factor in zip(self.moved, self.factors, strict=True) if candidate.name == name), 1.0)

    def at_bound(self, index: int) -> bool:
        """Whether a factor lies as far out as it may, so that the points ask for more."""
        return abs(self.logs[index]) >= math.log(BOUND) - _STEP

    def interval(self, index: int) -> tuple[float, float]:
        """90% interval of a factor, the held ones taken as they are."""
        half = 1.645 * math.sqrt(self.covariance[index][index])
        return math.exp(self.logs[index] - half), math.exp(self.logs[index] + half)


@dataclass(frozen=True)
class Refit:
    """What a refit found.

    Attributes
    ----------
    noise
        Relative standard deviation of a run's throughput, and whether repeats showed it.
    left_out
        For each setting the factors that the other settings give, without its own points,
        of those candidates that they determine; empty where there are fewer than two settings or nothing was moved.
    """

    fitted: Fitted
    noise: float
    noise_measured: bool
    left_out: tuple[Fitted, ...] = ()

    def decisive(self, index: int) -> int | None:
        """The setting without which a factor changes most."""
        if not self.left_out:
            return None
        name, factor = self.fitted.moved[index].name, self.fitted.factors[index]
        return max(range(len(self.left_out)), key=lambda place: abs(math.log(self.left_out[place].factor_of(name) / factor)))


def refit(
    settings: Sequence[Setting],
    scenarios: Sequence[Scenario],
    unit: Unit = "samples/s",
    *,
    replications: int = 4,
    apply: Map = map,
    progress: Callable[[int, int], None] | None = None,
) -> Refit:
    """Fit the scenario's quantities to measured points, and to all points but each in turn.

    Parameters
    ----------
    settings
        What was measured.
    scenarios
        The scenario at each of them.
    unit
        Of the throughputs measured.
    replications
        Of each prediction inside the loop; the first ones of the scenario's own streams.
    apply
        How predictions are spread over processes.
    progress
        Called with fits done and in all.

    Raises
    ------
    CalibrationError
        The search does not end at a finite optimum.
    SimulationError
        A prediction failed.
    """
    candidates, held = candidates_of(scenarios[0])
    noise, measured = noise_of(settings)
    model = Model(settings, scenarios, unit, noise, replications, apply)
    fits = 1 + (len(settings) if len(settings) > 1 else 0)
    if progress is not None:
        progress(0, fits)
    everywhere = range(len(settings))
    start = _best_start(model, candidates, everywhere)
    model.weigh(candidates, start)
    fitted = _selected(model, candidates, held, everywhere, start)
    if progress is not None:
        progress(1, fits)
    left_out = []
    if len(settings) > 1 and fitted.moved:
        for place in range(len(settings)):
            others = [index for index in everywhere if index != place]
            left_out.append(_selected(model, fitted.moved, {}, others, np.asarray(fitted.logs)))
            if progress is not None:
                progress(place + 2, fits)
    return Refit(fitted=fitted, noise=noise, noise_measured=measured, left_out=tuple(left_out))


def noise_of(settings: Sequence[Setting]) -> tuple[float, bool]:
    """Relative standard deviation of a run's throughput, pooled over settings, and whether there were repeats to see it."""
    squares, freedom = 0.0, 0
    for setting in settings:
        if len(setting.throughput) > 1:
            squares += statistics.variance(setting.throughput) / statistics.fmean(setting.throughput) ** 2 * (len(setting.throughput) - 1)
            freedom += len(setting.throughput) - 1
    return (math.sqrt(squares / freedom), True) if freedom else (_USUAL_NOISE, False)


@dataclass(frozen=True)
class _Optimum:
    """Where a search ended: logarithms (n,), residuals (points,), Jacobian (points, n), covariance (n, n), cost; priors count in both."""

    logs: Array
    residuals: Array
    jacobian: Array
    covariance: Array
    cost: float

    @property
    def spread(self) -> Array:
        """Standard deviation of each logarithm, shape (n,)."""
        return np.sqrt(np.diag(self.covariance))

    def felt(self, index: int, candidate: Candidate) -> float:
        """By how much of their noise the points change when a factor moves by its prior's standard deviation."""
        return float(np.linalg.norm(self.jacobian[:, index])) * candidate.prior_log_sd

    def fitted(self, moved: Sequence[Candidate], held: dict[str, str]) -> Fitted:
        """The covariance widened by the scatter beyond noise, of which a fit through every point shows none."""
        squares = float(np.sum(self.residuals**2))
        freedom = len(self.residuals) - len(self.logs)
        wider = max(1.0, squares / freedom) if freedom > 0 else 1.0
        covariance = _covariance(self.jacobian / math.sqrt(wider), moved)
        return Fitted(
            tuple(moved), tuple(self.logs.tolist()), tuple(map(tuple, covariance.tolist())), held, math.sqrt(squares / len(self.residuals))
        )


def _searched(model: Model, candidates: Sequence[Candidate], start: Array, places: Sequence[int]) -> _Optimum:
    """The factors that the settings at ``places`` give."""

    def residuals(logs: Array) -> Array:
        return model.residuals(candidates, logs, places)

    limit = math.log(BOUND)
    solved = optimize.least_squares(
        residuals,
        start,
        jac=lambda logs: optimize.approx_fprime(logs, residuals, _STEP),
        bounds=(-limit, limit),
        x_scale=[candidate.prior_log_sd for candidate in candidates],
        ftol=1e-3,
        xtol=3e-3,
        max_nfev=15,
    )
    if not np.all(np.isfinite(solved.x)):
        raise CalibrationError("the refit does not end at finite values; check the units of the measured throughputs")
    return _Optimum(
        solved.x,
        solved.fun[: len(places)],
        solved.jac[: len(places)],
        _covariance(solved.jac[: len(places)], candidates),
        float(solved.cost),
    )


def _covariance(jacobian: Array, candidates: Sequence[Candidate]) -> Array:
    """Of the logarithms, shape (n, n), from points (points, n) and priors together."""
    priors = np.diag([candidate.prior_log_sd**-2.0 for candidate in candidates])
    return np.asarray(np.linalg.inv(jacobian.T @ jacobian + priors), dtype=np.float64)


def _selected(model: Model, candidates: Sequence[Candidate], held: dict[str, str], places: Sequence[int], start: Array) -> Fitted:
    """The optimum over those candidates that the points determine; of the others the vaguest is held first."""
    held = dict(held)
    kept = list(candidates)
    while kept:
        optimum = _searched(model, kept, start, places)
        narrowed = optimum.spread / [candidate.prior_log_sd for candidate in kept]
        worst = int(np.argmax(narrowed))
        if narrowed[worst] <= DETERMINED:
            return optimum.fitted(kept, held)
        vague = {worst} | {index for index in range(len(kept)) if narrowed[index] > _UNTOUCHED and optimum.felt(index, kept[index]) < 1.0}
        held.update((kept[index].name, _reason(kept, index, optimum)) for index in sorted(vague))
        start = np.delete(optimum.logs, sorted(vague))
        kept = [candidate for index, candidate in enumerate(kept) if index not in vague]
    scatter = float(np.sqrt(np.mean(model.residuals([], np.zeros(0), places) ** 2)))
    return Fitted((), (), (), held, scatter)


def _best_start(model: Model, candidates: Sequence[Candidate], places: Sequence[int]) -> Array:
    """The lowest of the optima reached from the scenario as it is, and from the most promising other start."""
    origin = np.zeros(len(candidates))
    others = [
        np.where(np.arange(len(candidates)) == index, math.log(factor), 0.0)
        for index, candidate in enumerate(candidates)
        for factor in candidate.starts
    ]
    ranked = sorted(others, key=lambda start: float(np.sum(model.residuals(candidates, start, places) ** 2)))
    optima = [_searched(model, candidates, start, places) for start in (origin, *ranked[:1])]
    return min(optima, key=lambda optimum: optimum.cost).logs


def _reason(kept: Sequence[Candidate], index: int, optimum: _Optimum) -> str:
    """Why the points do not determine a candidate: they hardly depend on it, or cannot tell it from another."""
    spread = optimum.spread
    together = [(abs(optimum.covariance[index, other] / spread[index] / spread[other]), other) for other in range(len(kept))]
    strongest, other = max((pair for pair in together if pair[1] != index), default=(0.0, index))
    if strongest < 0.5 or optimum.felt(index, kept[index]) < 1.0 / DETERMINED:
        return "the points hardly depend on it"
    return f"the points cannot tell it from {kept[other].name} (correlation {strongest:.2f})"


# -- the scenario with the values of a refit in place --------------------------------------------


def refitted_table(
    table: Mapping[str, Any], base: Scenario, fitted: Fitted, *, about: str = "", beside: Path | None = None
) -> dict[str, Any]:
    """The scenario's tables with the moved values, which a loader takes in place of the old ones.

    Draws of a moved quantity come from the fit; those of others stay as they are. Workload
    and cluster draw independently of each other, so that a correlation between quantities
    of the two is not kept: intervals are rather too wide than too narrow.

    Parameters
    ----------
    table
        The scenario as its file has it.
    base
        The same, validated.
    about
        Goes into the provenance of the sections that change.
    beside
        Folder of the scenario; relative paths under ``use`` become absolute.
    """
    result = dict(table)
    logs = _drawn_logs(fitted, _draws_wanted(base))
    for section in ("workload", "cluster"):
        own = dict(result[section])
        if str(own.get("use", "")).endswith(".toml"):
            own["use"] = str(catalog.find(f"{section}s", own["use"], f"{section}.use", beside).resolve())  # type: ignore[arg-type]
        columns: dict[str, list[float]] = {}
        for index, candidate in enumerate(fitted.moved):
            if candidate.section == section:
                for target, path in zip(candidate.targets, candidate.paths, strict=True):
                    old = base.value_at(path)
                    own = _with(own, target.split("."), digits(old * fitted.factors[index]))
                    columns[target] = [digits(old * factor) for factor in np.exp(logs[:, index]).tolist()]
        if columns:
            own["uncertainty"] = _uncertainty(getattr(base, section).uncertainty, columns)
            if about:
                own = _with(own, ["provenance", "refit"], about)
        result[section] = own
    return result


def _draws_wanted(base: Scenario) -> int:
    return max(_DRAWS, *(len(each.draws) for each in (base.workload.uncertainty, base.cluster.uncertainty) if each is not None), 0)


def _drawn_logs(fitted: Fitted, count: int) -> NDArray[np.float64]:
    """Logarithms of the factors, shape (count, n); their mean is the optimum itself."""
    if not fitted.moved:
        return np.zeros((count, 0))
    normal = np.random.default_rng(_SEED).standard_normal((count, len(fitted.logs)))
    normal -= normal.mean(axis=0)
    return np.asarray(fitted.logs) + normal @ np.linalg.cholesky(np.asarray(fitted.covariance)).T


def _uncertainty(old: Uncertainty | None, columns: dict[str, list[float]]) -> dict[str, Any]:
    """The old draws of what did not move, in turn, beside the new ones."""
    count = len(next(iter(columns.values())))
    kept = [] if old is None else [(place, name) for place, name in enumerate(old.parameters) if name not in columns]
    draws = [
        [old.draws[row % len(old.draws)][place] for place, _ in kept if old is not None] + [column[row] for column in columns.values()]
        for row in range(count)
    ]
    return {"parameters": [*(name for _, name in kept), *columns], "draws": draws}


def _with(table: Mapping[str, Any], path: list[str], value: float | str) -> dict[str, Any]:
    """A copy with a key set, under its full name alone."""
    head, *rest = path
    inner = table.get(head)
    new: Any = _with(inner if isinstance(inner, Mapping) else {}, rest, value) if rest else value
    kept = {key: old for key, old in table.items() if rest or key != short_name(head)}
    return {**kept, head: new}
