"""Every table of a report, from its data: what the page shows of them, and all of them as CSV files with numbers as they are.

A table's name is the name of its CSV file, and its columns are the heading by which such a file may be replaced. Tables of plans come
from :mod:`paceline.planning.tables`, those of jobs and stages from :mod:`paceline.result_tables`.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.planning.tables import candidates_table, plan_tables
from paceline.reporting.content import answer_of
from paceline.reporting.coordinates import CONFIGURATION, Coordinates, coordinates_of
from paceline.result_tables import (
    EPOCH_COLUMNS,
    EXCHANGE_COLUMNS,
    MEASUREMENT_COLUMNS,
    PART_COLUMNS,
    STAGE_COLUMNS,
    epoch_rows,
    exchange_rows,
    measurement_rows,
    part_rows,
    stage_rows,
)
from simulator.base.files import Output, check_folder, csv_kind
from simulator.base.table import Cell, Column, Table
from simulator.results.next_measurement import width_of
from simulator.results.results import Failure, Result
from simulator.results.rows import COLUMNS
from simulator.spec.figures import Breakdown, Estimate, Utilisation
from simulator.spec.workload import Workload

if TYPE_CHECKING:
    from paceline.planning.answer import Plan
    from paceline.reporting.measured import Beside, Overlay
    from paceline.reporting.sensitivity import Change
    from paceline.reporting.timeline import Timeline

_KEYS = (CONFIGURATION, *(COLUMNS[name] for name in ("scaling", "replicas", "ranks", "scenario_hash")))
"""What tells the rows of one result from those of the others."""
_OF_PLAN = ("plan-workers", "plan-servers", "plan-improvements", "plan-refused")
"""Tables of a plan that are files of their own: those of candidates are part of one."""


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
    names = [at.title_of(index) for index in range(len(results))]
    keys: list[tuple[Cell, ...]] = [
        (name, result.scenario.scaling, result.replicas, result.ranks, result.scenario_hash)
        for name, result in zip(names, results, strict=True)
    ]
    parts = tuple(Column(f"{part}_s", "seconds") for part in (*Breakdown.model_fields, "hidden_communication", "step_mean"))
    found = [
        _results(results, names),
        _each(
            "breakdown",
            parts,
            keys,
            ([(*its.breakdown_s.model_dump().values(), its.hidden_communication_s, its.step_time_s.mean)] for its in results),
        ),
        _each(
            "utilisation",
            tuple(Column(name) for name in Utilisation.model_fields),
            keys,
            ([tuple(its.utilisation.model_dump().values())] for its in results),
        ),
        _each(
            "staleness",
            (Column("staleness", "count"), Column("updates", "count"), Column("share", "share")),
            keys,
            map(_staleness, results),
        ),
        _each(
            "replications",
            (Column("replication", "count"), Column("samples_per_s", "throughput")),
            keys,
            (enumerate(its.throughput_of_each_replication) for its in results),
        ),
        _each(
            "all_reduces",
            (Column("size_bytes", "count"), Column("algorithm", "text"), Column("protocol", "text")),
            keys,
            ([(each.size_bytes, each.algorithm, each.protocol) for each in its.all_reduces] for its in results),
        ),
        _each("stages", STAGE_COLUMNS, keys, map(stage_rows, results)),
        _each("exchanges", EXCHANGE_COLUMNS, keys, map(exchange_rows, results)),
        _each("job_parts", PART_COLUMNS, keys, map(part_rows, results)),
        _each("job_epochs", EPOCH_COLUMNS, keys, map(epoch_rows, results)),
        _each(
            "contributions",
            (
                *(Column(name, "text") for name in ("quantity", "kind")),
                *(Column(f"{name}{end}", "share") for name in ("first", "total") for end in ("", "_low", "_high")),
            ),
            keys,
            (
                [
                    (one.name, one.kind, *one.first.model_dump().values(), *one.total.model_dump().values())
                    for one in width_of(its).contributions
                ]
                for its in results
            ),
        ),
        _each("measurements", MEASUREMENT_COLUMNS, keys, map(measurement_rows, results)),
        _each(
            "warnings",
            (*(Column(name, "text") for name in ("code", "path")), *map(Column, ("value", "low", "high")), Column("text", "text")),
            keys,
            ([(each.code, each.path, each.value, *(each.range or (None, None)), each.text) for each in its.warnings] for its in results),
        ),
        calibration_table(list({result.scenario.workload.name: result.scenario.workload for result in results}.values())),
        _failures(failures),
    ]
    if plan is not None:
        found += [
            candidates_table(plan),
            *(replace(its, name=its.name.replace("-", "_")) for its in plan_tables(plan) if its.name in _OF_PLAN),
        ]
    if measured is not None:
        found.append(measured_table(measured, results))
    if sensitivity:
        answer = answer_of(results, at, plan.chosen.result.scenario_hash if plan is not None else None)
        found.append(sensitivity_table(sensitivity, answer.result.scenario.scaling))
    if timeline is not None:
        found.append(timeline_table(timeline))
    return tuple(table for table in found if table.rows)


def check_tables(tables: Iterable[Table], folder: Path, *, force: bool = False, reads: Iterable[Path] = ()) -> dict[str, Output]:
    """Where each table goes, by its name, ``NAME.csv``: a new file, or with ``force`` any, else one with the same heading.

    Raises
    ------
    InputError
        Something else is there, or the file is read, or the folder cannot be written to.
    """
    check_folder(folder, "tables")
    read = tuple(reads)
    return {
        table.name: Output(
            folder / f"{table.name}.csv", csv_kind([column.name for column in table.columns]), force=force, argument="tables", reads=read
        )
        for table in tables
    }


def write_tables(tables: Mapping[str, Table], outputs: Mapping[str, Output]) -> tuple[Path, ...]:
    """Write each table, whole or not at all, where the output of its name says; errors as of these, and none is written then."""
    for name in tables:
        outputs[name].check()
    return tuple(outputs[name].write(table.to_csv()) for name, table in tables.items())


# -- results -----------------------------------------------------------------------------


def brief_table(results: Sequence[Result], at: Coordinates, most: int) -> Table:
    """The most important figures of the first results."""
    rows = []
    for index, result in enumerate(results[:most]):
        row = result.row() | {"bottleneck": result.bottleneck.label}
        rows.append((at.name_of(index), *(row[name] for name in _BRIEF)))
    columns = (replace(CONFIGURATION, meaning=""), *(COLUMNS[name] for name in _BRIEF))
    more = f"The first {most:,} of {len(results):,} results." if len(results) > most else ""
    return Table("All results", columns, tuple(rows), "results", more=more)


_BRIEF = (
    "scaling", "replicas", "nodes", "throughput_samples_per_s", "throughput_low", "throughput_high", "scaling_efficiency",
    "scaling_efficiency_low", "scaling_efficiency_high", "bottleneck",
)  # fmt: skip


def _results(results: Sequence[Result], names: Sequence[str]) -> Table:
    rows = Result.rows_of(results)
    columns = tuple(COLUMNS.get(name, Column(name)) for name in rows[0])
    cells = tuple((name, *row.values()) for name, row in zip(names, rows, strict=True))
    return Table("Results", (CONFIGURATION, *columns), cells, "results")


def _each(name: str, columns: tuple[Column, ...], keys: Sequence[tuple[Cell, ...]], of: Iterable[Iterable[tuple[Cell, ...]]]) -> Table:
    """A table with some rows, or none, for each result, which each begin with what tells it from the others."""
    rows = tuple((*key, *row) for key, its in zip(keys, of, strict=True) for row in its)
    return Table(name.replace("_", "-").capitalize(), (*_KEYS, *columns), rows, name)


def _staleness(result: Result) -> Iterable[tuple[Cell, ...]]:
    """The histogram of an asynchronous training; any other has no staleness."""
    if not result.scenario.strategy.pace.asynchronous:
        return
    histogram = result.staleness.histogram
    total = sum(histogram.counts)
    for value, count in zip(histogram.values, histogram.counts, strict=True):
        yield value, count, count / total if total else None


def _failures(failures: Sequence[Failure]) -> Table:
    named = (COLUMNS[name] for name in ("scenario_hash", "strategy", "cluster", "replicas"))
    columns = (*named, Column("kind", "text"), Column("text", "text"))
    rows = tuple(
        (
            its.scenario_hash,
            its.scenario.strategy.title(),
            its.scenario.cluster.name,
            its.scenario.replicas,
            its.failed.kind,
            its.failed.text,
        )
        for its in failures
    )
    return Table("Scenarios that failed", columns, rows, "failures")


# -- what was measured -------------------------------------------------------------------


def calibration_table(workloads: Sequence[Workload]) -> Table:
    """The measured points of workloads, and the step that the fit gives there."""
    columns = (
        Column("workload", "text", "Workload"),
        Column("batch", "count", "Batch"),
        Column("steps", "count", "Steps measured"),
        Column("mean_s", "seconds", "Mean"),
        Column("p5_s", "seconds", "5%"),
        Column("median_s", "seconds", "Median"),
        Column("p95_s", "seconds", "95%"),
        Column("forward_s", "seconds", "Forward"),
        Column("backward_s", "seconds", "Backward"),
        Column("apply_s", "seconds", "Apply"),
        Column("fitted_step_s", "seconds", "Fitted"),
    )
    rows = tuple(
        (
            load.name,
            *(getattr(point, column.name) for column in columns[1:-1]),
            load.compute_s(point.batch) + load.apply_s,
        )
        for load in workloads
        for point in (load.fit.points if load.fit is not None else ())
    )
    return Table("Measured and fitted step times", columns, rows, "calibration")


def measured_table(measured: Overlay, results: Sequence[Result]) -> Table:
    """Every measured setting: with each prediction of it, and below them those without, with the reason."""
    columns = (
        Column("setting", "text", "Setting"),
        Column("prediction", "text", "Strategy"),
        COLUMNS["scaling"],
        COLUMNS["replicas"],
        COLUMNS["ranks"],
        Column("measured_samples_per_s", "throughput", "Measured (samples/s)"),
        Column("repeats", "count", "Repeats"),
        Column("predicted_samples_per_s", "throughput", "Predicted (samples/s)"),
        Column("predicted_low", "throughput", "Low"),
        Column("predicted_high", "throughput", "High"),
        Column("error", "change", "Error"),
        Column("inside", "text", "Inside the interval"),
        Column("staleness_measured", "number", "Measured staleness"),
        Column("staleness_predicted", "number", "Predicted staleness"),
        Column("line", "count", "Line"),
        Column("why_not", "text", "Why"),
        COLUMNS["scenario_hash"],
    )
    scaling = {result.scenario_hash: result.scenario.scaling for result in results}
    rows: list[tuple[Cell, ...]] = [
        (
            its.setting, its.name, scaling.get(its.scenario_hash), its.replicas, its.ranks, its.measured, len(its.repeats),
            *_ends(its.predicted), its.error, its.inside, its.staleness_measured, its.staleness_predicted, its.line, None,
            its.scenario_hash,
        )
        for its in measured.rows
    ]  # fmt: skip
    nothing = dict.fromkeys(column.name for column in columns)
    rows += [
        tuple((nothing | {"setting": its.setting, "measured_samples_per_s": its.measured, "line": its.line, "why_not": its.why}).values())
        for its in measured.unmatched
    ]
    return Table("Measured against predicted", columns, tuple(rows), "measured")


def curve_errors_table(places: Sequence[tuple[int, Beside]], results: Sequence[Result], at: Coordinates) -> Table:
    """How well each curve fits, since a measured setting may stand beside several.

    Parameters
    ----------
    places
        Measured settings, each with the index of its prediction among the results.
    results, at
        The results, and where each stands.
    """
    held: dict[int, list[Beside]] = {}
    for index, row in places:
        held.setdefault(at.curve_of[index], []).append(row)
    columns = (
        Column("curve", "text", "Strategy"),
        COLUMNS["scaling"],
        Column("settings", "count", "Settings"),
        Column("median_error", "share", "Median error, sign left out"),
        Column("inside", "count", "Inside the interval"),
    )
    scaling = {curve: result.scenario.scaling for curve, result in zip(at.curve_of, results, strict=True)}
    rows = tuple(
        (at.curves[curve].name, scaling[curve], len(its), statistics.median(abs(row.error) for row in its), sum(row.inside for row in its))
        for curve, its in held.items()
    )
    return Table("Error of each curve", columns, rows, "measured-by-curve")


def _ends(its: Estimate | None) -> tuple[Cell, ...]:
    return (its.mean, its.low, its.high) if its is not None else (None, None, None)


# -- what was simulated besides ----------------------------------------------------------


def sensitivity_table(changes: Sequence[Change], scaling: str) -> Table:
    """What single changes would gain or lose, to a configuration of this scaling."""
    rows = tuple((its.name, its.row, scaling, its.gain, its.low, its.high, its.text, its.reason, its.run) for its in changes)
    return Table("What one change would do", _SENSITIVITY, rows, "sensitivity")


def timeline_table(timeline: Timeline) -> Table:
    """The bars of a timeline."""
    rows = tuple((bar.lane, bar.start_s, bar.end_s, bar.kind, bar.critical, bar.text) for bar in timeline.bars)
    return Table("Bars of the timeline", _TIMELINE, rows, "timeline")


_SENSITIVITY = (
    Column("change", "text", "Change"),
    Column("of", "text", "What is changed"),
    COLUMNS["scaling"],
    Column("gain", "change", "Throughput changes by"),
    Column("gain_low", "change", "Low"),
    Column("gain_high", "change", "High"),
    Column("text", "text", "What it is"),
    Column("reason", "text", "Limited by, or why it is not known"),
    Column("run", "text", "Simulated"),
)
_TIMELINE = (
    Column("lane", "text", "Lane"),
    Column("start_s", "seconds", "From"),
    Column("end_s", "seconds", "To"),
    Column("kind", "text", "Kind"),
    Column("critical", "text", "Critical"),
    Column("text", "text", "What"),
)
SIMULATED_TABLES = (Table("", _SENSITIVITY, (), "sensitivity"), Table("", _TIMELINE, (), "timeline"))
"""Without rows: what is simulated for a report alone, and not known before."""
