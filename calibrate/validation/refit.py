"""Bring a scenario to measured points by moving its physical quantities, the simulator itself in the loop.

Residuals are logarithms of predicted over measured throughput in units of the measurements' noise, and, as one weak residual each, the
logarithms of the factors in units of their prior spread. Quantities that the points do not determine thus stay unchanged; it is recognised
by how little they narrow it, held at its prior, and the rest is fitted again. All predictions have the same random streams in common, so
that their differences are those of the factors.

The covariance is that of a linear model at the optimum, ``(J' J / b + P)^-1`` with the
Jacobian J of the points and the inverse variances P of the priors. b is the mean square
of the points' residuals for each degree of freedom, where they scatter more than their
noise, else 1 (Birge, "The calculation of errors by the method of least squares", Physical
Review 40, 1932).

A new quantity is a :class:`Candidate`: names of keys within workload or cluster.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from calibrate.validation.points import Setting, Unit
from simulator.base import catalog
from simulator.base.errors import CalibrationError
from simulator.base.spec import short_name
from simulator.base.text import digits
from simulator.engine.replication import replicate
from simulator.resolve.drawing import as_workers
from simulator.resolve.resolve import resolve
from simulator.scenario import Scenario
from simulator.spec.computed import EAGER, LAUNCH_SHARES, NEWER
from simulator.spec.constants import Known, constants, nominal_values
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
_LEAST_SD = 0.005
"""No residual counts as better known than to this share."""
_STEP = 0.15
"""Of a logarithm, for differences. Asynchronous runs are chaotic: a change of 1% gives another order of messages, and so some
percent of throughput by chance, whatever the random streams; a step must be large against that, and small against curvature."""

Array = NDArray[np.float64]
Rate = tuple[float, float]
"""Mean over replications, and its standard error as a share."""
Map = Callable[[Callable[[Scenario], Rate], Iterable[Scenario]], Iterable[Rate]]
"""How a function is applied to several scenarios: one after the other, or in processes."""


# -- what may be scaled ------------------------------------------------------------------


@dataclass(frozen=True)
class Candidate:
    """A quantity that one factor scales, whatever numbers of the scenario it is made of.

    The logarithm of the factor is believed to be normal around 0, so that twice and half
    are equally likely.

    Attributes
    ----------
    name
        As tables have it.
    section, targets Dotted names within a section of the scenario, all scaled by one factor.
    prior_log_sd
        Standard deviation of the logarithm of the factor, before any point is seen.
    starts
        Factors to search from besides 1: what hides behind compute has no slope there.
    """

    name: str
    section: Literal["workload", "cluster", "practice"]
    targets: tuple[str, ...]
    prior_log_sd: float
    starts: tuple[float, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        """Dotted names within the scenario."""
        return tuple(f"{self.section}.{target}" for target in self.targets)

    def values(self, scenario: Scenario, factor: float = 1.0) -> dict[str, float]:
        """The numbers under these names, scaled; a share of a rate by the inverse."""
        if self.section != "practice":
            return {path: scenario.value_at(path) * factor for path in self.paths}
        known = {**constants(), **scenario.practice}
        scaled = {name: known[name].value * (1.0 / factor if name.endswith("_share") else factor) for name in self.targets}
        return dict(zip(self.paths, scaled.values(), strict=True))

    def scaled(self, scenario: Scenario, factor: float) -> Scenario:
        """The scenario with all of them scaled."""
        values = self.values(scenario, factor)
        if self.section != "practice":
            return scenario.replaced(values)
        exact = {name: Known(value=value, low=value, high=value) for name, value in zip(self.targets, values.values(), strict=True)}
        return scenario.replaced({"practice": {**scenario.practice, **exact}})


_PASSES = ("forward.base_s", "forward.per_sample_s", "backward.base_s", "backward.per_sample_s")
# another clock, another thermal state, shared cores: mostly within a third of what was calibrated
_COMPUTE = Candidate("compute", "workload", _PASSES, 0.25)
# what runs of one shape by Megatron-LM scatter over versions of software
_LAUNCHING = Candidate("launching of kernels", "practice", (EAGER,), 0.35)
# known by its order of magnitude: twice or half at one standard deviation
_SERVER = Candidate("server time per gradient", "workload", ("server.base_s", "server.per_byte_s"), 0.7)


def _of_link(where: str, link: str) -> list[Candidate]:
    return [
        # what a port is sold as and what TensorFlow gets through it differ by a factor of two or more
        Candidate(f"bandwidth {where}", "cluster", (f"{link}.bandwidth_bytes_per_s",), 0.7, (0.3, 0.1)),
        # includes software, which data sheets leave out
        Candidate(f"latency {where}", "cluster", (f"{link}.latency_s",), 1.0, (3.0, 10.0)),
    ]


_LINKS = {"intra_node": _of_link("inside a node", "intra_node"), "inter_node": _of_link("between nodes", "inter_node")}


def _of_compute(scenario: Scenario) -> list[Candidate]:
    """Compute by its times; where these are computed, by the constants that decide them, on any device and in any layout."""
    load = resolve(scenario).workload
    if load.computed is None or not load.is_computed:
        return [_COMPUTE]
    shares = tuple(name for name in load.computed.constants if name.endswith("_share") and name not in (*NEWER, *LAUNCH_SHARES))
    return [replace(_COMPUTE, section="practice", targets=shares), *([_LAUNCHING] if load.is_eager else [])]


def candidates_of(scenario: Scenario) -> tuple[list[Candidate], dict[str, str]]:
    """Quantities that a refit of the scenario may move, and for those that it may not, the reason by name."""
    wanted = [*_of_compute(scenario), *_LINKS.get(scenario.strategy.link or "", ()), *([_SERVER] if scenario.servers else [])]
    candidates: list[Candidate] = []
    left: dict[str, str] = {}
    for each in wanted:
        targets = tuple(name for name, value in zip(each.targets, each.values(scenario).values(), strict=True) if value > 0)
        if targets:
            candidates.append(replace(each, targets=targets))
        else:
            left[each.name] = f"is 0 in the scenario, which no factor changes: set {each.paths[0]} to fit it"
    return candidates, left


def with_factors(scenario: Scenario, candidates: Sequence[Candidate], factors: Sequence[float]) -> Scenario:
    """The scenario with each candidate's numbers scaled."""
    for candidate, factor in zip(candidates, factors, strict=True):
        scenario = candidate.scaled(scenario, factor)
    return scenario


class Model:
    """Residuals of settings under factors; what was predicted once is not simulated again."""

    def __init__(
        self, settings: Sequence[Setting], scenarios: Sequence[Scenario], unit: Unit, noise: float, replications: int, apply: Map
    ) -> None:
        # without what the fit of the workload left open and without spread between runs, which the mean of many runs does not have
        certain = {"workload.uncertainty": None, "workload.run_to_run_cv": 0.0, "cluster.uncertainty": None}
        # resolved, since a move to another device leaves something open too
        self.scenarios = [resolve(_sure(scenario)).replaced({**certain, "run.replications": replications}) for scenario in scenarios]
        self._measured = [statistics.fmean(setting.throughput) for setting in settings]
        self._measured_sd = [noise / math.sqrt(len(setting.throughput)) for setting in settings]
        self._sd = [max(sd, _LEAST_SD) for sd in self._measured_sd]
        self._rate = partial(_rate, unit)
        self._apply = apply
        self._known: dict[str, Rate] = {}

    def residuals(self, candidates: Sequence[Candidate], logs: Array, places: Sequence[int]) -> Array:
        """Residuals of the settings at ``places``, then of the priors."""
        rates = self._rates(candidates, logs, places)
        errors = [math.log(rate / self._measured[place]) / self._sd[place] for place, (rate, _) in zip(places, rates, strict=True)]
        return np.array([*errors, *(logs / _priors(candidates))])

    def weigh(self, candidates: Sequence[Candidate], logs: Array) -> None:
        """Count chance in the simulation as noise too, as large as it is under these factors."""
        rates = self._rates(candidates, logs, range(len(self.scenarios)))
        self._sd = [max(math.hypot(sd, error), _LEAST_SD) for sd, (_, error) in zip(self._measured_sd, rates, strict=True)]

    def _rates(self, candidates: Sequence[Candidate], logs: Array, places: Sequence[int]) -> list[Rate]:
        asked = [with_factors(self.scenarios[place], candidates, np.exp(logs).tolist()) for place in places]
        new = {scenario.hash: scenario for scenario in asked if scenario.hash not in self._known}
        self._known.update(zip(new, self._apply(self._rate, new.values()), strict=True))
        return [self._known[scenario.hash] for scenario in asked]


def _sure(scenario: Scenario) -> Scenario:
    """With the constants that computed times follow from at their values."""
    load = resolve(scenario).workload
    names = load.computed.constants if load.computed is not None and load.is_computed else ()
    exact = {name: Known(value=value, low=value, high=value) for name, value in nominal_values(scenario.practice).items() if name in names}
    return scenario.replaced({"practice": {**scenario.practice, **exact}})


def _priors(candidates: Sequence[Candidate]) -> Array:
    return np.array([candidate.prior_log_sd for candidate in candidates])


def _rate(unit: Unit, scenario: Scenario) -> Rate:
    resolved = resolve(scenario)
    runs = [replicate(resolved, replication) for replication in range(scenario.run.replications)]
    if unit == "samples/s":
        samples = (1.0 - scenario.training.skipped) * resolved.batch / as_workers(resolved).layout.ranks_per_replica  # of a step of a rank
        rates = [run.accepted_steps * samples / run.window_s for run in runs]
    else:
        rates = [run.updates / run.window_s for run in runs]
    mean = statistics.fmean(rates)
    return mean, statistics.stdev(rates) / mean / math.sqrt(len(rates))


# -- what points say of it ------------------------------------------------------------------


@dataclass(frozen=True)
class Moved:
    """A quantity that points determine, by the logarithm of its factor and the standard deviation of that, others held as they are."""

    candidate: Candidate
    log: float
    log_sd: float

    @property
    def factor(self) -> float:
        """By which it is scaled."""
        return math.exp(self.log)

    @property
    def at_bound(self) -> bool:
        """Tell whether the factor lies as far out as it may, so that the points ask for more."""
        return abs(self.log) >= math.log(BOUND) - _STEP

    @property
    def interval(self) -> tuple[float, float]:
        """90% interval of the factor."""
        half = 1.645 * self.log_sd
        return math.exp(self.log - half), math.exp(self.log + half)


@dataclass(frozen=True)
class Fitted:
    """Factors that some points give.

    Attributes
    ----------
    moved
        Quantities that the points determine.
    covariance
        Of the logarithms of their factors, shape (n, n).
    held
        Reason by name, for candidates that the points do not determine.
    scatter
        Root mean square of the points' residuals in units of their noise.
    """

    moved: tuple[Moved, ...]
    covariance: Array
    held: dict[str, str] = field(default_factory=dict)
    scatter: float = 0.0

    @property
    def factors(self) -> dict[str, float]:
        """By which each quantity is scaled, by its name."""
        return {moved.candidate.name: moved.factor for moved in self.moved}


@dataclass(frozen=True)
class Refit:
    """Fits to all points, and to all but each.

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

    def without_each(self, name: str) -> list[float]:
        """The factor of a quantity without each setting; 1 where it is held then."""
        return [part.factors.get(name, 1.0) for part in self.left_out]

    def decisive(self, moved: Moved) -> int | None:
        """The setting without which a factor changes most."""
        changes = [abs(math.log(factor / moved.factor)) for factor in self.without_each(moved.candidate.name)]
        return changes.index(max(changes)) if changes else None


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
    report = progress or (lambda *_: None)
    report(0, fits)
    everywhere = range(len(settings))
    start = _best_start(model, candidates, everywhere)
    model.weigh(candidates, start)
    fitted = _selected(model, candidates, held, everywhere, start)
    report(1, fits)
    left_out = []
    if len(settings) > 1 and fitted.moved:
        for place in range(len(settings)):
            others = [index for index in everywhere if index != place]
            candidates = [moved.candidate for moved in fitted.moved]
            left_out.append(_selected(model, candidates, {}, others, np.array([moved.log for moved in fitted.moved])))
            report(place + 2, fits)
    return Refit(fitted=fitted, noise=noise, noise_measured=measured, left_out=tuple(left_out))


def noise_of(settings: Sequence[Setting]) -> tuple[float, bool]:
    """Relative standard deviation of a run's throughput, pooled over settings, and whether there were repeats to see it."""
    squares, freedom = 0.0, 0
    for setting in settings:
        if len(setting.throughput) > 1:
            squares += statistics.variance(setting.throughput) / statistics.fmean(setting.throughput) ** 2 * (len(setting.throughput) - 1)
            freedom += len(setting.throughput) - 1
    return (math.sqrt(squares / freedom), True) if freedom else (_USUAL_NOISE, False)


def _searched(model: Model, candidates: Sequence[Candidate], start: Array, places: Sequence[int]) -> Any:
    """The factors that the settings at ``places`` give: logarithms ``x``, and residuals and Jacobian, of points first and then priors."""

    def residuals(logs: Array) -> Array:
        return model.residuals(candidates, logs, places)

    limit = math.log(BOUND)
    from scipy import optimize

    solved = optimize.least_squares(
        residuals,
        start,
        jac=lambda logs: optimize.approx_fprime(logs, residuals, _STEP),
        bounds=(-limit, limit),
        x_scale=_priors(candidates),
        ftol=1e-3,
        xtol=3e-3,
        max_nfev=15,
    )
    if not np.all(np.isfinite(solved.x)):
        raise CalibrationError("the refit does not converge to finite values: check the units of the measured throughputs")
    return solved


def _covariance(jacobian: Array, candidates: Sequence[Candidate]) -> Array:
    """Covariance of the logarithms, shape (n, n), from points (points, n) and priors together."""
    return np.asarray(np.linalg.inv(jacobian.T @ jacobian + np.diag(_priors(candidates) ** -2.0)), dtype=np.float64)


def _selected(model: Model, candidates: Sequence[Candidate], held: dict[str, str], places: Sequence[int], start: Array) -> Fitted:
    """The optimum over those candidates that the points determine; of the others the vaguest is held first."""
    held, kept = dict(held), list(candidates)
    while kept:
        solved = _searched(model, kept, start, places)
        residuals, jacobian = solved.fun[: len(places)], solved.jac[: len(places)]
        covariance = _covariance(jacobian, kept)
        narrowed = np.sqrt(np.diag(covariance)) / _priors(kept)
        worst = int(np.argmax(narrowed))
        if narrowed[worst] <= DETERMINED:
            # wider by the scatter beyond noise, of which a fit through every point shows none
            squares, freedom = float(np.sum(residuals**2)), len(places) - len(kept)
            wider = max(1.0, squares / freedom) if freedom > 0 else 1.0
            covariance = _covariance(jacobian / math.sqrt(wider), kept)
            deviations = np.sqrt(np.diag(covariance)).tolist()
            moved = tuple(map(Moved, kept, solved.x.tolist(), deviations))
            return Fitted(moved, covariance, held, math.sqrt(squares / len(places)))
        # by how much of their noise the points change when a factor moves by its prior's standard deviation
        felt = np.linalg.norm(jacobian, axis=0) * _priors(kept)
        vague = (narrowed > _UNTOUCHED) & (felt < 1.0)
        vague[worst] = True
        held.update((kept[index].name, _reason(kept, index, covariance, felt)) for index in np.flatnonzero(vague).tolist())
        start = solved.x[~vague]
        kept = [candidate for candidate, is_vague in zip(kept, vague, strict=True) if not is_vague]
    scatter = float(np.sqrt(np.mean(model.residuals([], np.zeros(0), places) ** 2)))
    return Fitted((), np.zeros((0, 0)), held, scatter)


def _best_start(model: Model, candidates: Sequence[Candidate], places: Sequence[int]) -> Array:
    """The lowest of the optima reached from the scenario as it is, and from the most promising other start."""
    others = [
        np.where(np.arange(len(candidates)) == index, math.log(factor), 0.0)
        for index, candidate in enumerate(candidates)
        for factor in candidate.starts
    ]
    ranked = sorted(others, key=lambda start: float(np.sum(model.residuals(candidates, start, places) ** 2)))
    optima = [_searched(model, candidates, start, places) for start in (np.zeros(len(candidates)), *ranked[:1])]
    return np.asarray(min(optima, key=lambda solved: float(solved.cost)).x)


def _reason(kept: Sequence[Candidate], index: int, covariance: Array, felt: Array) -> str:
    """Say why the points do not determine a candidate: they hardly depend on it, or cannot tell it from another."""
    spread = np.sqrt(np.diag(covariance))
    together = np.abs(covariance[index] / spread[index] / spread)
    together[index] = 0.0
    other = len(kept) - 1 - int(np.argmax(together[::-1]))
    if together[other] < 0.5 or felt[index] < 1.0 / DETERMINED:
        return "the points hardly depend on it"
    return f"the points cannot distinguish it from {kept[other].name} (correlation {together[other]:.2f})"


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
        The scenario as in its file.
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
        for index, moved in enumerate(fitted.moved):
            if moved.candidate.section == section:
                for target, path in zip(moved.candidate.targets, moved.candidate.paths, strict=True):
                    old = base.value_at(path)
                    own = _with(own, target.split("."), digits(old * moved.factor))
                    columns[target] = [digits(old * factor) for factor in np.exp(logs[:, index]).tolist()]
        if columns:
            own["uncertainty"] = _uncertainty(getattr(base, section).uncertainty, columns)
            if about:
                own = _with(own, ["provenance", "refit"], about)
        result[section] = own
    for moved in fitted.moved:
        if moved.candidate.section == "practice":
            found = (moved.candidate.values(base, factor).values() for factor in (moved.factor, *moved.interval))
            for name, (value, *ends) in zip(moved.candidate.targets, zip(*found, strict=True), strict=True):
                known = {"value": digits(value), "low": digits(min(ends)), "high": digits(max(ends))}
                result["practice"] = {**result.get("practice", {}), name: known}
    return result


def _draws_wanted(base: Scenario) -> int:
    return max(_DRAWS, *(len(each.draws) for each in (base.workload.uncertainty, base.cluster.uncertainty) if each is not None), 0)


def _drawn_logs(fitted: Fitted, count: int) -> NDArray[np.float64]:
    """Logarithms of the factors, shape (count, n); their mean is the optimum itself."""
    if not fitted.moved:
        return np.zeros((count, 0))
    normal = np.random.default_rng(_SEED).standard_normal((count, len(fitted.moved)))
    normal -= normal.mean(axis=0)
    return np.array([moved.log for moved in fitted.moved]) + normal @ np.linalg.cholesky(fitted.covariance).T


def _uncertainty(old: Uncertainty | None, columns: dict[str, list[float]]) -> dict[str, Any]:
    """The old draws of unchanged quantities, in turn, with the new ones."""
    count = len(next(iter(columns.values())))
    kept = [] if old is None else [(place, name) for place, name in enumerate(old.parameters) if name not in columns]
    draws = [
        [old.draws[row % len(old.draws)][place] for place, _ in kept if old is not None] + [column[row] for column in columns.values()]
        for row in range(count)
    ]
    return {"parameters": [*(name for _, name in kept), *columns], "draws": draws}


def _with(table: Mapping[str, Any], path: list[str], value: float | str) -> dict[str, Any]:
    """A copy with a key set, only under its full name."""
    head, *rest = path
    inner = table.get(head)
    new: Any = _with(inner if isinstance(inner, Mapping) else {}, rest, value) if rest else value
    kept = {key: old for key, old in table.items() if rest or key != short_name(head)}
    return {**kept, head: new}
