"""Compares a scenario with a user's own measured points: as it is, and refitted to them.

Points are read in points.py; the fit itself is in refit.py. Here predictions and refits become rows and tables of
a validation, and :func:`own_discrepancy` scales the scenario's discrepancy to one's own points.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import tomlkit

from calibrate.validation.comparison import Compared
from calibrate.validation.points import Setting, Unit, base_scenario, check_figures, compared, scenarios_at
from calibrate.validation.refit import BOUND, Fitted, Map, Moved, Refit, refit, refitted_table
from calibrate.validation.validation import Outline, Score, Validation, scores_of
from simulator.base.files import EDITED, Output
from simulator.base.table import Cell, Column, Table
from simulator.base.text import Kind, Short, digits, format_interval, format_number, format_rate, format_share
from simulator.resolve.resolve import resolve
from simulator.results.inadequacy import discrepancy_of
from simulator.results.intervals import widened
from simulator.results.results import Result
from simulator.scenario import Scenario
from simulator.spec.accelerator import accelerator_named
from simulator.spec.figures import Estimate, Warned
from simulator.spec.uncertainty import PRIOR_POINTS, Z_90, Deviation, Discrepancy, LeftOutRows

if TYPE_CHECKING:
    import pandas as pd

AS_GIVEN = "as given"
LEFT_OUT = "each point from the others"
REFITTED = "refitted to all points"
"""Groups of rows of a refit."""

OUTLINE = Outline("points")
"""Names of the tables."""
_MUCH_SCATTER = 3.0
"""Residuals of a refit that are more times their noise than this are worth a word."""

Simulate = Callable[[Sequence[Scenario]], Sequence[Result]]
"""Simulates all replications of every scenario; results in the same order."""


@dataclass(frozen=True)
class PointsCase:
    """A scenario, and the points that were measured of it.

    Attributes
    ----------
    table
        The scenario as nested tables.
    source, beside
        Its name in messages, and the folder of its relative paths.
    points
        The file of the points.
    settings
        What it holds, as :func:`~calibrate.validation.points.read_points` gives it.
    unit
        Of the throughputs measured.
    """

    table: Mapping[str, Any]
    source: str
    beside: Path | None
    points: Path
    settings: tuple[Setting, ...]
    unit: Unit

    @cached_property
    def base(self) -> Scenario:
        """The scenario with nothing left out: what a refit scales."""
        return resolve(base_scenario(self.table, self.settings, source=self.source, beside=self.beside))

    @cached_property
    def scenarios(self) -> tuple[Scenario, ...]:
        """The scenario at every setting.

        Raises
        ------
        InputError
            It is not valid, or cannot be at one of the settings.
        """
        return tuple(self.scenarios_of(self.table))

    def scenarios_of(self, table: Mapping[str, Any], settings: Sequence[Setting] | None = None) -> list[Scenario]:
        """The scenario of other tables at every setting, or at some."""
        chosen = self.settings if settings is None else settings
        return scenarios_at(table, chosen, source=self.source, points=self.points, beside=self.beside)

    def validation(self, rows: Sequence[Compared], scores: Sequence[Score], results: Sequence[Result], **more: Any) -> Validation:
        """Rows and their scores with what must be known of them; ``more`` are further attributes of the validation."""
        run = self.base.run
        runs = sum(len(setting.throughput) for setting in self.settings)
        length = f"a job of {run.job_steps:,} steps" if run.job_steps else f"{run.steps:,} steps of each worker"
        about = (
            f"{self.points.name} holds {runs} run{'s' if runs > 1 else ''} at {len(self.settings)} "
            f"setting{'s' if len(self.settings) > 1 else ''}; each setting was simulated as {Path(self.source).name} with its workers, "
            f"servers and batch: {run.replications} replications of {length}, seed {run.seed}.",
        )
        notes = [*more.pop("notes", ()), *_warnings(results)]
        if all(len(setting.throughput) == 1 for setting in self.settings):
            notes.insert(0, "No setting was measured twice, so the noise in the errors is unknown: repeat some runs.")
        return Validation(
            key=OUTLINE.key,
            title=f"{self.base.workload.name}, {self.base.strategy.way}",
            rows=tuple(rows),
            scores=tuple(scores),
            about=about,
            notes=tuple(notes),
            overlay=tuple(dict.fromkeys(row.group for row in rows if row.group != LEFT_OUT)),
            **more,
        )


def _warnings(results: Sequence[Result]) -> Iterator[str]:
    """Warnings of the predictions, each kind once; those that question the figures come first."""
    kinds: dict[tuple[str, str], list[Warned]] = {}
    for result in results:
        for warning in result.warnings:
            kinds.setdefault((warning.code, warning.path), []).append(warning)
    for alike in sorted(kinds.values(), key=lambda alike: -alike[0].doubts):
        everywhere = len(alike) in (1, len(results)) and len({warning.text for warning in alike}) == 1
        yield alike[-1].text if everywhere else f"{alike[-1].text} ({len(alike)} of {len(results)} settings)"


def validate_points(case: PointsCase, simulate: Simulate) -> Validation:
    """Predict every setting from the scenario as it is, and compare.

    Raises
    ------
    SimulationError
        A prediction failed.
    """
    results = simulate(case.scenarios)
    asked = check_figures(case.points, case.settings, results) if case.unit == "samples/s" else ()
    rows = compared(case.settings, results, case.unit)
    return case.validation(rows, scores_of(rows), results, notes=asked)


@dataclass(frozen=True, repr=False)
class Refitted(Short):
    """A scenario that was brought to measured points.

    Attributes
    ----------
    scenario
        The scenario with fitted values, their uncertainty, and the model error of its predictions.
    table
        The same as nested tables, as its file has them.
    fit
        Factors of the quantities that were moved with their covariance, and what was not moved, with the reason.
    validation
        Predictions of every point as given, refitted, and each from the others; scores of the first and the last.
    """

    see: ClassVar[str] = "to_frame() has every factor, .validation has the errors, write(path) writes the scenario"

    scenario: Scenario
    table: Mapping[str, Any]
    fit: Refit
    validation: Validation

    def _in_short(self) -> Iterator[str]:
        yield self.scenario.workload.name + " on " + self.scenario.cluster.name
        for moved in self.fit.fitted.moved:
            yield f"{moved.candidate.name} x {format_number(moved.factor)} (90% interval {format_interval(*moved.interval)})"
        yield "" if self.factors else "nothing was changed"

    @property
    def factors(self) -> dict[str, float]:
        """By which each quantity was scaled, by its name."""
        return self.fit.fitted.factors

    @property
    def intervals_90(self) -> dict[str, tuple[float, float]]:
        """90% interval of each factor, with the quantities that were not moved as they are."""
        return {moved.candidate.name: moved.interval for moved in self.fit.fitted.moved}

    def write(self, out: Path, *, force: bool = False) -> Path:
        """Write the scenario's file, which `paceline simulate` takes; with ``force`` in place of one that is there.

        Raises
        ------
        InputError
            It cannot be written, or is there already.
        """
        return Output(out, EDITED, force=force).write(tomlkit.dumps(self.table))

    def to_frame(self) -> pd.DataFrame:
        """A pandas table of one row for each quantity that was moved: its factor with the 90% interval."""
        rows = tuple((moved.candidate.name, moved.factor, *moved.interval) for moved in self.fit.fitted.moved)
        return Table("", tuple(map(Column, ("name", "factor", "low", "high"))), rows).to_frame()

    def _repr_html_(self) -> str:
        return "".join(table.to_html() for table in self.validation.tables)


def refit_to_points(
    case: PointsCase,
    simulate: Simulate,
    *,
    apply: Map = map,
    command: str = "",
    progress: Callable[[int, int], None] | None = None,
) -> Refitted:
    """Fit compute, links and servers of the scenario to the points, and predict each point from the others.

    Parameters
    ----------
    case
        The scenario and its points.
    simulate
        Simulates scenarios.
    apply
        How the fit's own predictions are spread over processes.
    command
        Goes into the provenance of what changes.
    progress
        Called with fits done and in all.

    Raises
    ------
    CalibrationError
        The search does not end at a finite optimum.
    SimulationError
        A prediction failed.
    """
    as_given = simulate(case.scenarios)
    asked = check_figures(case.points, case.settings, as_given) if case.unit == "samples/s" else ()
    outcome = refit(case.settings, case.scenarios, case.unit, apply=apply, progress=progress)
    about = f"fitted to {case.points.name}" + (f" by {command}" if command else "")

    def table_of(fitted: Fitted) -> dict[str, Any]:
        beyond = [text for moved in fitted.moved for text in _beyond(moved, case.base)]
        return refitted_table(case.table, case.base, fitted, about="; ".join([about, *beyond]), beside=case.beside)

    final = table_of(outcome.fitted)
    alone = [
        scenario
        for setting, fitted in zip(case.settings, outcome.left_out, strict=False)
        for scenario in case.scenarios_of(table_of(fitted), [setting])
    ]
    results = simulate([*(case.scenarios_of(final) if outcome.fitted.moved else []), *alone])
    rows = compared(case.settings, as_given, case.unit, group=AS_GIVEN)
    if outcome.fitted.moved:
        rows += compared(case.settings, results[: len(as_given)], case.unit, group=REFITTED, fitted=True)
    notes = [*asked, *_about(outcome, case.base, case.settings)]
    if alone:
        left_out = compared(case.settings, results[-len(alone) :], case.unit, group=LEFT_OUT)
        rows += left_out
        own = own_discrepancy(left_out, results[-len(alone) :])
        if own is not None:
            final = {**final, "discrepancy": own[0].model_dump(exclude_defaults=True)}
            notes.append(f"The model error in [discrepancy] of the refitted scenario is {own[0].about}.")
    validation = case.validation(
        rows,
        [score for score in scores_of(rows) if score.group in (AS_GIVEN, LEFT_OUT)],
        as_given,
        notes=notes,
        tables=tuple(_tables(outcome, case.base, case.settings)),
        headline=LEFT_OUT if alone else AS_GIVEN,
        checked=(LEFT_OUT if alone else AS_GIVEN,),
        extra={"refit": _data(outcome, case.base, case.settings)},
    )
    return Refitted(base_scenario(final, case.settings, source=case.source, beside=case.beside), final, outcome, validation)


# -- what a refit found, as tables, sentences and data ------------------------------------------

_MOVED = "Quantities changed by the refit"
_PASSES = "workload.forward", "workload.backward", "practice."
"""How paths of what a pass takes begin."""
_NAMES: dict[Kind, str] = {"seconds": "times", "rate": "bandwidths"}


def _beyond(moved: Moved, base: Scenario) -> Iterator[str]:
    """Say that the fit makes a part faster than it can be: a link than its port, a device than its peak."""
    load, cluster, path = base.workload, base.cluster, moved.candidate.paths[0]
    _, before, kind = _measure(base, path)
    fit = limit = ""
    if kind == "rate" and moved.factor > 1.0:
        nominal = getattr(cluster, moved.candidate.targets[0].partition(".")[0]).sort != "given"
        fit = format_rate(before * moved.factor)
        if nominal or cluster.basis != "measured":
            limit = f"a port of {format_rate(before)} can carry" + ("" if nominal else ", if that is the rate of a port")
    elif path.startswith(_PASSES) and load.counted is not None:
        device = accelerator_named(cluster.device or load.device)
        peak = None if device is None else device.peak(load.precision)
        flops_per_s = load.counted.flops(base.batch) / (load.compute_s(base.batch) * moved.factor)
        if device is not None and peak is not None and flops_per_s > peak:
            fit, limit = f"{flops_per_s / 1e12:.3g} TFLOP/s", f"the {peak / 1e12:.3g} TFLOP/s of {device.name}'s peak"
    if limit:
        yield (
            f"{moved.candidate.name}: the fit gives {fit}, more than {limit}. The cause is something else: check the unit of the points, "
            "and the sizes and machines of the scenario."
        )


def _measure(base: Scenario, path: str) -> tuple[str, float, Kind]:
    """One number that represents a quantity: its meaning, its value in the scenario, and its format."""
    load, batch = base.workload, base.batch
    if path.startswith(_PASSES):
        return f"forward and backward pass, batch {batch:,}", load.compute_s(batch), "seconds"
    if path.startswith("workload.server"):
        return "all gradients of a step", math.fsum(load.server(variable.gradient_bytes(batch)) for variable in load.variables), "seconds"
    return "", base.value_at(path), "rate" if path.endswith("_bytes_per_s") else "seconds"


def _tables(outcome: Refit, base: Scenario, settings: Sequence[Setting]) -> Iterator[Table]:
    """Tables of what was moved, times and rates apart, and of what was not."""
    rows: dict[Kind, list[tuple[Cell, ...]]] = {}
    keys: dict[Kind, list[str]] = {}
    for moved in outcome.fitted.moved:
        candidate, decisive = moved.candidate, outcome.decisive(moved)
        measure, before, kind = _measure(base, candidate.paths[0])
        without = 1.0 if decisive is None else outcome.without_each(candidate.name)[decisive]
        rows.setdefault(kind, []).append((
            f"{candidate.name} ({measure})" if measure else candidate.name, before, before * moved.factor,
            *(before * end for end in moved.interval), moved.factor,
            "the only setting" if decisive is None else settings[decisive].name, None if without == 1.0 else without,
        ))  # fmt: skip
        keys.setdefault(kind, []).append(f"{candidate.name}: {', '.join(candidate.paths)}")
    for kind in rows:
        columns = (
            Column("quantity", "text"),
            Column("from", kind),
            Column("to", kind),
            Column("low", kind, "5%"),
            Column("high", kind, "95%"),
            Column("factor", "number"),
            Column("most_determined_by", "text", "most determined by"),
            Column("factor_without", "number", "factor without it"),
        )
        note = (
            f"All keys of a quantity change by its factor. {'; '.join(keys[kind])}. Intervals assume that the other quantities are exact."
        )
        yield Table(_MOVED if len(rows) == 1 else f"{_MOVED}: {_NAMES[kind]}", columns, tuple(rows[kind]), "moved", note)
    if outcome.fitted.held:
        reasons = Column("quantity", "text"), Column("why", "text")
        note = "These stay as in the scenario, because the points do not determine them."
        yield Table("Quantities that the points do not determine", reasons, tuple(outcome.fitted.held.items()), "held", note)


def _about(outcome: Refit, base: Scenario, settings: Sequence[Setting]) -> Iterator[str]:
    """Sentences that a reader must know of a refit."""
    fitted = outcome.fitted
    if not fitted.moved:
        yield "The points determine none of the scenario's quantities, so nothing was changed."
    if len(settings) == 1:
        yield "There is only one setting: no point can be predicted from others, so the refit is not tested."
    if not outcome.noise_measured:
        yield f"Without repeats, the refit assumes a noise of {format_share(outcome.noise)} per run."
    for moved in fitted.moved:
        if moved.at_bound:
            yield (
                f"{moved.candidate.name}: the points need a factor above {BOUND:g}; the scenario describes another machine or another unit."
            )
        yield from _beyond(moved, base)
    if fitted.scatter > _MUCH_SCATTER:
        yield (
            f"After the refit the points still differ from the predictions by {fitted.scatter:.1f} times their noise: these runs have a "
            "cause that the scenario lacks, and no value of these quantities explains it."
        )


def _data(outcome: Refit, base: Scenario, settings: Sequence[Setting]) -> dict[str, Any]:
    """The refit for JSON."""
    moved_data = []
    for moved in outcome.fitted.moved:
        candidate, decisive = moved.candidate, outcome.decisive(moved)
        moved_data.append({
            "name": candidate.name, "factor": moved.factor, "interval_90": list(moved.interval),
            "keys": {
                path: {"from": value, "to": candidate.values(base, moved.factor)[path]} for path, value in candidate.values(base).items()
            },
            "factors_without_each_setting": outcome.without_each(candidate.name),
            "most_determined_by": None if decisive is None else settings[decisive].name, "at_bound": moved.at_bound,
        })  # fmt: skip
    return {
        "moved": moved_data, "not_determined": outcome.fitted.held, "noise": outcome.noise, "noise_measured": outcome.noise_measured,
        "scatter_over_noise": outcome.fitted.scatter,
    }  # fmt: skip


# -- the error of predictions ------------------------------------------------------------------


def own_discrepancy(rows: Sequence[Compared], results: Sequence[Result]) -> tuple[Discrepancy, float] | None:
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
    (Discrepancy, float) or None
        With how intervals hold the points, each with the factor of the others; and the factor of all. None if no point has a discrepancy: a
        single replica, or a discrepancy switched off.
    """
    used = [
        (row, result.discrepancy.relative_error, row.reached)
        for row, result in zip(rows, results, strict=True)
        if result.discrepancy is not None and row.reached is not None and result.discrepancy.relative_error.sd > 0
    ]
    regime = discrepancy_of(results[0].scenario) if results else None
    if not used or regime is None:
        return None
    squares = []
    for row, error, reached in used:
        residual = math.log(row.mean / row.predicted.mean)
        chance = math.log(reached.high / max(reached.low, 1e-9 * reached.high)) / (2 * Z_90)
        squares.append(max(residual**2 - chance**2, 0.0) / error.sd**2)
    inside = 0.0
    for (row, error, reached), square in zip(used, squares, strict=True):
        others = _factor(math.fsum(squares) - square, len(squares) - 1)
        drawn = Estimate(mean=row.predicted.mean, low=reached.low, high=reached.high)
        ends = widened(drawn, error.times(others))
        inside += sum(ends.low <= value <= ends.high for value in row.measured) / len(row.measured)
    factor = _factor(math.fsum(squares), len(squares))
    scaled = {name: _scaled(getattr(regime, name), factor) for name in ("compute", "communication", "staleness")}
    points = f"{len(used)} points, each predicted from the others, with the regime's own error counted as 3 points"
    about = f"{format_number(factor, 2)} times that of the regime: {points}"
    checked = LeftOutRows(inside=round(inside / len(used), 3), rows=len(used), sources=1)
    return Discrepancy(**scaled, checked=checked, about=about), factor


def _factor(squares: float, points: int) -> float:
    return math.sqrt((PRIOR_POINTS + squares) / (PRIOR_POINTS + points))


def _scaled(deviation: Deviation, factor: float) -> Deviation:
    return Deviation(at=min(digits(deviation.at * factor, 2), 3.0), per_doubling=min(digits(deviation.per_doubling * factor, 2), 3.0))
