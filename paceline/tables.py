"""Tables of results (whole job, stages, exchanges, intervals) and of reports, shared by terminal, page and CSV.

A table consists of columns, each with a heading and the value it reads. Columns of results are in
:data:`simulator.results.rows.COLUMNS`, tables of plans in :mod:`paceline.planning.tables`. A table's name is that of its CSV file, and its
column names identify a file that may be replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from simulator.base.files import Output, check_folder, csv_kind
from simulator.base.table import Column, Row, Table
from simulator.base.text import format_interval, format_share
from simulator.results.next_measurement import width_of
from simulator.results.results import Result
from simulator.results.rows import COLUMNS
from simulator.spec.figures import Epoch, JobOutcome, JobParts, Measurement, Share
from simulator.spec.workload import Workload

if TYPE_CHECKING:
    from paceline.comparing import Change
    from paceline.reporting.coordinates import Coordinates
    from paceline.reporting.measured import Beside, Overlay
    from paceline.reporting.timeline import Timeline

PART_LABELS = {part: COLUMNS[f"job_{part}_s"].heading for part in JobParts.model_fields} | {"steps": "Steps"}
"""Labels of :class:`~simulator.spec.figures.JobParts`, in order."""
CONFIGURATION = Column("configuration", "text", "Strategy")
"""Column that identifies a row's result."""


# -- the whole job -------------------------------------------------------------------------

PART_COLUMNS = (
    Column("part", "text", "Part"),
    Column("seconds", "seconds", "Time"),
    Column("share", "share", "Share of job"),
    Column("meaning", "text", "What it is"),
)
EPOCH_COLUMNS = (
    Column("epochs", "text", "Epochs", by=lambda epoch: _numbers(epoch)),
    Column("time_s", "seconds", "Each takes"),
    Column("first_step_s", "seconds", "First step"),
    Column("step_s", "seconds", "Later steps"),
    Column("steps", "number", "Steps"),
    Column("evaluation_s", "seconds", "Evaluation"),
    Column("checkpoint_s", "seconds", "Checkpoints"),
    Column("iterators_s", "seconds", "Iterators"),
)


def job_parts(result: Result) -> Iterator[Row]:
    """Yield the parts of the job that take time, in order; none without a job."""
    for name, label in PART_LABELS.items():
        if result.job is not None and (seconds := getattr(result.job.parts_s, name)):
            share = seconds / result.job.time_s.mean if result.job.time_s.mean else None
            yield {"part": label, "seconds": seconds, "share": share, "meaning": JobParts.model_fields[name].description}


def job_epochs(result: Result) -> tuple[Epoch, ...]:
    """Return the epochs of the job, equal ones merged; none without a job."""
    return result.job.each_epoch if result.job is not None else ()


def _numbers(epoch: Epoch) -> str:
    """Return ``"3"``, or ``"10 like 3"``; equal epochs need not be consecutive."""
    return f"{epoch.number:,}" if epoch.like_it <= 1 else f"{epoch.like_it:,} like {epoch.number:,}"


def parts_table(result: Result) -> Table:
    """Return the table of the job's parts."""
    return Table.reading("Where the time of the job goes", PART_COLUMNS, job_parts(result), "job-parts")


def epochs_table(result: Result) -> Table:
    """Return the table of epochs, equal ones merged; empty columns are left out."""
    epochs = job_epochs(result)
    idle = [name for name in ("evaluation_s", "checkpoint_s", "iterators_s") if not any(getattr(epoch, name) for epoch in epochs)]
    whole = all(float(epoch.steps).is_integer() for epoch in epochs)
    columns = (replace(column, kind="count") if whole and column.name == "steps" else column for column in EPOCH_COLUMNS)
    return Table.reading("Epochs, without faults", (column for column in columns if column.name not in idle), epochs, "job-epochs")


def jobs_table(results: Sequence[Result], counted: str = "replicas") -> Table:
    """Return a narrow table of whole jobs, a row for each result: time, cost, goodput, and the largest part outside steps."""
    job = [COLUMNS[f"job_{name}"] for name in ("time_s", "time_low_s", "time_high_s", "cost_usd")]
    rest = Column("rest", "text", short="most of the rest", by=lambda result: _most_of_the_rest(result.job))
    columns = (Column("ranks", "count", short=counted), *job, COLUMNS["goodput"], rest)
    table = Table.reading("The whole job", columns, [result for result in results if result.job is not None], "jobs")
    return table.narrow(*(column.name for column in columns))


def _most_of_the_rest(job: JobOutcome) -> str:
    """Return the largest part outside steps, with its share."""
    rest = [(seconds, name) for name, seconds in job.parts_s.model_dump().items() if name != "steps" and seconds]
    if not rest:
        return "nothing"
    seconds, name = max(rest)
    return f"{PART_LABELS[name].lower()} {format_share(seconds / job.time_s.mean)}"


# -- stages, and what devices exchange -----------------------------------------------------

STAGE_COLUMNS = (
    Column("stage", "any", "Stage", left=True),
    Column("layers", "text", "Layers"),
    Column("devices", "count", "Devices"),
    Column("parameter_bytes", "bytes", "Parameters"),
    Column("busy", "share", "Busy"),
    Column("communication", "share", "Communication"),
    Column("bubble", "share", "Bubble"),
    Column("input", "share", "Input"),
    Column("staleness", "count", "Staleness"),
)
EXCHANGE_COLUMNS = (
    Column("among", "text", "Among"),
    Column("does", "text", "What"),
    Column("devices", "count", "Devices"),
    Column("links", "text", "Links"),
    Column("stage", "any", "Stage", left=True),
    Column("times", "count", "Times"),
    Column("size_bytes", "bytes", "Bytes"),
    Column("seconds", "seconds", "Takes"),
)


def numbered_stages(result: Result) -> list[dict[str, Any]]:
    """Return the stages with their numbers."""
    return [{"stage": number, **vars(stage)} for number, stage in enumerate(result.stages)]


def stages_table(result: Result) -> Table:
    """Return the table of stages; empty columns are left out."""
    idle = [name for name in ("input", "staleness") if not any(getattr(stage, name) for stage in result.stages)]
    columns = (column for column in STAGE_COLUMNS if column.name not in idle)
    return Table.reading("Stages", columns, numbered_stages(result), "stages")


def exchanges_table(result: Result) -> Table:
    """Return the table of exchanges in a step; the stage's number is left out if there is only one."""
    columns = (column for column in EXCHANGE_COLUMNS if column.name != "stage" or result.stages)
    return Table.reading("What devices exchange in a step", columns, result.exchanges, "exchanges")


# -- the width of the interval -------------------------------------------------------------

_LEAST_SHARE = 0.005
"""A quantity that contributes less is not shown."""
_WIDTH_COLUMNS = (
    Column("quantity", "text", "Quantity", of="name"),
    Column("first", "share", "Alone", of="first.mean"),
    Column("known", "text", "90% interval", by=lambda part: _known(part.first)),
    Column("total", "share", "With interactions", of="total.mean"),
)


def _best_case(measurement: Measurement) -> str | None:
    return "yes" if measurement.at_best else None


MEASUREMENT_COLUMNS = (
    Column("command", "text", "Command"),
    Column("low", "throughput", "Low after", of="throughput_samples_per_s.low"),
    Column("high", "throughput", "High after", of="throughput_samples_per_s.high"),
    Column("left", "share", "Width left"),
    Column("best_case", "text", "Best case", by=_best_case),
    Column("narrows", "text", "Narrows", by=lambda each: ", ".join(each.narrows)),
    Column("rests_on", "text", "Rests on"),
)


def width_table(result: Result) -> Table:
    """Return the table of the sources of the throughput interval's width, largest first; no rows where nothing varies."""
    parts = [part for part in width_of(result).contributions if max(part.total.mean, part.first.high) >= _LEAST_SHARE]
    return Table.reading("Sources of the interval's width", _WIDTH_COLUMNS, parts, "width")


def _known(share: Share) -> str | None:
    if share.low == share.high:
        return None
    text = format_interval(share.low, share.high, "share")
    return text if share.told else f"{text}: too few runs"


def measurements_table(result: Result) -> Table:
    """Return the table of measurements that narrow the interval, each with the expected interval; no rows where none does."""
    times, best = result.scenario.unit.per_sample, width_of(result).measure_next
    then = [each.replaced({"throughput_samples_per_s": each.throughput_samples_per_s.times(times)}) for each in best]
    return Table.reading("Measurements that narrow it", MEASUREMENT_COLUMNS, then, "measurements")


# -- what was measured ---------------------------------------------------------------------

_CALIBRATION_COLUMNS = (
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
_MEASURED_COLUMNS = (
    Column("setting", "text", "Setting"),
    Column("prediction", "text", "Strategy", of="name"),
    COLUMNS["scaling"],
    replace(COLUMNS["replicas"], of=""),
    replace(COLUMNS["ranks"], of=""),
    Column("measured_samples_per_s", "throughput", "Measured (samples/s)", of="measured"),
    Column("repeats", "count", "Repeats"),
    Column("predicted_samples_per_s", "throughput", "Predicted (samples/s)", of="predicted.mean"),
    Column("predicted_low", "throughput", "Low", of="predicted.low"),
    Column("predicted_high", "throughput", "High", of="predicted.high"),
    Column("error", "change", "Error"),
    Column("inside", "text", "Inside the interval"),
    Column("staleness_measured", "number", "Measured staleness"),
    Column("staleness_predicted", "number", "Predicted staleness"),
    Column("line", "count", "Line"),
    Column("why_not", "text", "Why", of="why"),
    COLUMNS["scenario_hash"],
)
_CURVE_ERROR_COLUMNS = (
    Column("curve", "text", "Strategy"),
    COLUMNS["scaling"],
    Column("settings", "count", "Settings", by=lambda curve: len(curve["rows"])),
    Column("median_error", "share", "Median absolute error", by=lambda curve: median(abs(row.error) for row in curve["rows"])),
    Column("inside", "count", "Inside the interval", by=lambda curve: sum(row.inside for row in curve["rows"])),
)


def calibration_table(workloads: Iterable[Workload]) -> Table:
    """Return the table of measured points of workloads, each with its fitted step."""
    points = [(load, point) for load in workloads if load.fit is not None for point in load.fit.points]
    rows = [{**vars(point), "workload": load.name, "fitted_step_s": load.compute_s(point.batch) + load.apply_s} for load, point in points]
    return Table.reading("Measured and fitted step times", _CALIBRATION_COLUMNS, rows, "calibration")


def measured_table(measured: Overlay, results: Sequence[Result]) -> Table:
    """Return the table of measured settings with their predictions; settings without one come last, with the reason."""
    scaling = {result.scenario_hash: result.scenario.scaling for result in results}
    rows = [{**vars(row), "scaling": scaling.get(row.scenario_hash), "repeats": len(row.repeats)} for row in measured.rows]
    return Table.reading("Measured and predicted", _MEASURED_COLUMNS, [*rows, *map(vars, measured.unmatched)], "measured")


def curve_errors_table(places: Sequence[tuple[int, Beside]], results: Sequence[Result], at: Coordinates) -> Table:
    """Return the table of each curve's error; a measured setting may be compared with several curves.

    Parameters
    ----------
    places
        Measured settings, each with the index of its prediction among the results.
    results, at
        The results, and their coordinates.
    """
    scaling = {curve: result.scenario.scaling for curve, result in zip(at.curve_of, results, strict=True)}
    of_curve: dict[int, list[Beside]] = {}
    for index, row in places:
        of_curve.setdefault(at.curve_of[index], []).append(row)
    rows = [{"curve": at.curves[curve].name, "scaling": scaling[curve], "rows": settings} for curve, settings in of_curve.items()]
    return Table.reading("Error of each curve", _CURVE_ERROR_COLUMNS, rows, "measured-by-curve")


# -- what is simulated for a report --------------------------------------------------------

SENSITIVITY_COLUMNS = (
    Column("change", "text", "Change", of="name"),
    Column("of", "text", "What is changed", of="row"),
    COLUMNS["scaling"],
    Column("gain", "change", "Throughput changes by"),
    Column("gain_low", "change", "Low", of="low"),
    Column("gain_high", "change", "High", of="high"),
    Column("text", "text", "What it is"),
    Column("reason", "text", "Limit, or why the gain is unknown"),
    Column("run", "text", "Simulated"),
)
TIMELINE_COLUMNS = (
    Column("lane", "text", "Lane"),
    Column("start_s", "seconds", "From"),
    Column("end_s", "seconds", "To"),
    Column("kind", "text", "Kind"),
    Column("critical", "text", "Critical"),
    Column("text", "text", "What"),
)


def sensitivity_table(changes: Iterable[Change], scaling: str) -> Table:
    """Return the table of gains and losses of single changes, for a configuration of this scaling."""
    return Table.reading(
        "Effect of one change", SENSITIVITY_COLUMNS, ({**vars(change), "scaling": scaling} for change in changes), "sensitivity"
    )


def timeline_table(timeline: Timeline) -> Table:
    """Return the table of a timeline's bars."""
    return Table.reading("Bars of the timeline", TIMELINE_COLUMNS, timeline.bars, "timeline")


# -- files ---------------------------------------------------------------------------------


def check_tables(tables: Iterable[Table], folder: Path, *, force: bool = False, reads: Iterable[Path] = ()) -> dict[str, Output]:
    """Return the output file of each table, ``NAME.csv``: a new file, one with the same heading, or with ``force`` any.

    Raises
    ------
    InputError
        Another kind of file exists there, the file is an input, or the folder is not writable.
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
    """Write each table to its output, atomically; if one cannot be written, none is."""
    for name in tables:
        outputs[name].check()
    return tuple(outputs[name].write(table.to_csv()) for name, table in tables.items())
