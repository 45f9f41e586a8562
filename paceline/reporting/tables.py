"""Every table of a report as CSV, from the results themselves: numbers as they are, in SI units."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.planning.answer import Candidate, Plan
from paceline.reporting.answer import name_at
from paceline.reporting.coordinates import coordinates_of, scaling_of
from paceline.reporting.measured import Overlay
from paceline.reporting.sensitivity import Change
from paceline.reporting.timeline import Timeline
from simulator.figures import Breakdown, Estimate, Utilisation
from simulator.files import write_whole
from simulator.results import Failure, Result
from simulator.table import Cell

__all__ = ["Table", "cell", "tables_of", "write_tables"]

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""What a spreadsheet takes for the beginning of a formula (OWASP, "CSV Injection")."""


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes
    ----------
    name
        Of its file, without the ending.
    columns
        Names of the columns, each with its unit.
    rows
        As many values as there are columns; none where nothing is known.
    """

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def to_csv(self) -> str:
        """The table as text: floats as short as they come back the same, truth as 0 and 1, nothing as an empty cell."""
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\r\n")
        writer.writerow(self.columns)
        writer.writerows([cell(value) for value in row] for row in self.rows)
        return text.getvalue()


def cell(value: Cell) -> str:
    """A value as a cell; text that a spreadsheet would calculate gets an apostrophe before it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_FORMULA) else value
    return repr(value)


def tables_of(
    results: Sequence[Result],
    *,
    labels: Sequence[str] | None = None,
    plan: Plan | None = None,
    measured: Overlay | None = None,
    timeline: Timeline | None = None,
    sensitivity: Sequence[Change] = (),
    failures: Sequence[Failure] = (),
) -> tuple[Table, ...]:
    """The tables of a report; those that would have no row are left out.

    Parameters
    ----------
    results, labels, plan, measured, timeline, sensitivity
        As :func:`paceline.reporting.write_report` takes them.
    failures
        Scenarios that have no result.
    """
    at = coordinates_of(results, labels)
    names = [name_at(at, index) for index in range(len(results))]
    keys: list[tuple[Cell, ...]] = [
        (name, scaling_of(result.scenario), result.replicas, result.scenario_hash) for name, result in zip(names, results, strict=True)
    ]
    rows = Result.rows_of(results)
    found = [
        Table(
            "results",
            ("configuration", *rows[0]),
            tuple((name, *row.values()) for name, row in zip(names, rows, strict=True)),
        ),
        _each(
            "breakdown",
            (*(f"{part}_s" for part in Breakdown.model_fields), "hidden_communication_s", "step_mean_s"),
            keys,
            [[(*_numbers(its.breakdown_s), its.hidden_communication_s, its.step_time_s.mean)] for its in results],
        ),
        _each("utilisation", tuple(Utilisation.model_fields), keys, [[_numbers(its.utilisation)] for its in results]),
        _each("staleness", ("staleness", "updates", "share"), keys, map(_staleness, results)),
        _each(
            "replications",
            ("replication", "samples_per_s"),
            keys,
            (enumerate(its.throughput_of_each_replication) for its in results),
        ),
        _each(
            "all_reduces",
            ("size_bytes", "algorithm", "protocol"),
            keys,
            ([(each.size_bytes, each.algorithm, each.protocol) for each in its.all_reduces] for its in results),
        ),
        _each(
            "warnings",
            ("code", "path", "value", "low", "high", "text"),
            keys,
            ([(each.code, each.path, each.value, *(each.range or (None, None)), each.text) for each in its.warnings] for its in results),
        ),
        Table("calibration", _POINT, tuple(_calibration(results))),
        Table(
            "failures",
            ("scenario_hash", "strategy", "cluster", "replicas", "kind", "text"),
            tuple(
                (
                    its.scenario_hash,
                    its.scenario.strategy.title(),
                    its.scenario.cluster.name,
                    its.scenario.replicas,
                    its.failed.kind,
                    its.failed.text,
                )
                for its in failures
            ),
        ),
    ]
    if plan is not None:
        found += _of_plan(plan)
    if measured is not None:
        found.append(_of_measured(measured))
    if sensitivity:
        changes = tuple((its.name, its.row, its.gain, its.low, its.high, its.text, its.reason, its.run) for its in sensitivity)
        found.append(Table("sensitivity", ("change", "of", "gain", "gain_low", "gain_high", "text", "reason", "run"), changes))
    if timeline is not None:
        bars = tuple((bar.lane, bar.start_s, bar.end_s, bar.kind, bar.critical, bar.text) for bar in timeline.bars)
        found.append(Table("timeline", ("lane", "start_s", "end_s", "kind", "critical", "text"), bars))
    return tuple(table for table in found if table.rows)


def write_tables(tables: Iterable[Table], folder: Path) -> tuple[Path, ...]:
    """Write each table as ``NAME.csv``, whole or not at all; files of the same names are replaced.

    Raises
    ------
    InputError
        The folder cannot be written to.
    """
    return tuple(write_whole(folder / f"{table.name}.csv", table.to_csv()) for table in tables)


def _each(name: str, columns: tuple[str, ...], keys: Sequence[tuple[Cell, ...]], of: Iterable[Iterable[tuple[Cell, ...]]]) -> Table:
    """A table with some rows, or none, for each result, which each begin with what tells it from the others."""
    rows = tuple((*key, *row) for key, its in zip(keys, of, strict=True) for row in its)
    return Table(name, ("configuration", "scaling", "replicas", "scenario_hash", *columns), rows)


def _estimate(its: Estimate | None) -> tuple[Cell, ...]:
    return (its.mean, its.low, its.high) if its is not None else (None, None, None)


def _numbers(spec: Breakdown | Utilisation) -> tuple[Cell, ...]:
    return tuple(getattr(spec, name) for name in type(spec).model_fields)


def _staleness(result: Result) -> Iterable[tuple[Cell, ...]]:
    """The histogram of an asynchronous training; any other has no staleness."""
    if not result.scenario.strategy.pace.asynchronous:
        return
    histogram = result.staleness.histogram
    total = sum(histogram.counts)
    for value, count in zip(histogram.values, histogram.counts, strict=True):
        yield value, count, count / total if total else None


_POINT = ("workload", "batch", "steps", "mean_s", "p5_s", "median_s", "p95_s", "forward_s", "backward_s", "apply_s", "fitted_step_s")


def _calibration(results: Sequence[Result]) -> Iterable[tuple[Cell, ...]]:
    """The measured points of each workload, and the step that the fit gives there."""
    loads = {result.scenario.workload.name: result.scenario.workload for result in results}
    for load in loads.values():
        for point in load.fit.points if load.fit is not None else ():
            measured = (getattr(point, name) for name in _POINT[1:-1])
            yield load.name, *measured, load.compute_s(point.batch) + load.apply_s


def _of_plan(plan: Plan) -> list[Table]:
    """Candidates, the answer first; other numbers of workers and servers; improvements; what cannot be."""
    front = {its.key for its in plan.pareto}
    ranks = {its.key: rank for rank, its in enumerate((plan.chosen, *plan.runners_up), 1)}
    candidates = {its.key: its for its in (plan.chosen, *plan.runners_up, *plan.candidates)}
    rows = Candidate.rows_of(candidates.values())
    workers = tuple((its.workers, its.replicas, *_estimate(its.throughput_samples_per_s), its.usd_per_hour) for its in plan.workers)
    servers = tuple((its.servers, *_estimate(its.throughput_samples_per_s), its.usd_per_hour) for its in plan.servers)
    better = tuple(
        (
            its.name, its.gain, its.gain_low, its.gain_high, *_estimate(its.throughput_samples_per_s), its.usd_per_hour,
            its.bottleneck, its.text,
        )
        for its in plan.improvements
    )  # fmt: skip
    rate = ("samples_per_s", "samples_per_s_low", "samples_per_s_high")
    return [
        Table(
            "plan",
            ("rank", "pareto", *rows[0]),
            tuple((ranks.get(key), key in front, *row.values()) for key, row in zip(candidates, rows, strict=True)),
        ),
        Table("plan_workers", ("workers", "replicas", *rate, "usd_per_hour"), workers),
        Table("plan_servers", ("servers", *rate, "usd_per_hour"), servers),
        Table("plan_improvements", ("improvement", "gain", "gain_low", "gain_high", *rate, "usd_per_hour", "bottleneck", "text"), better),
        Table("plan_refused", ("name", "configurations", "text"), tuple((its.name, its.configurations, its.text) for its in plan.refused)),
    ]


def _of_measured(measured: Overlay) -> Table:
    """Every measured setting: with each prediction of it, or why there is none."""
    columns = (
        "setting", "prediction", "replicas", "measured_samples_per_s", "repeats", "predicted_samples_per_s", "predicted_low",
        "predicted_high", "error", "inside", "staleness_measured", "staleness_predicted", "line", "why_not", "scenario_hash",
    )  # fmt: skip
    rows: list[tuple[Cell, ...]] = [
        (
            its.setting, its.name, its.replicas, its.measured, len(its.repeats), *_estimate(its.predicted), its.error, its.inside,
            its.staleness_measured, its.staleness_predicted, its.line, None, its.scenario_hash,
        )
        for its in measured.rows
    ]  # fmt: skip
    empty = (None,) * 4
    rows += [(its.setting, None, None, its.measured, None, *empty, None, None, None, its.line, its.why, None) for its in measured.unmatched]
    return Table("measured", columns, tuple(rows))
