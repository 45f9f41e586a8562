"""Tables of results: of their whole job, stages, exchanges and intervals, and of all that a report holds; for terminal, page and CSV alike.

Each table is its columns, which say what they are called and what they read. Columns of results themselves are in
:data:`simulator.results.rows.COLUMNS`, tables of plans in :mod:`paceline.planning.tables`. A table's name is that of its CSV file, and its
columns are the heading by which such a file may be replaced.
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
    from paceline.reporting.content import Change
    from paceline.reporting.coordinates import Coordinates
    from paceline.reporting.measured import Beside, Overlay
    from paceline.reporting.timeline import Timeline

PART_LABELS = {part: COLUMNS[f"job_{part}_s"].heading for part in JobParts.model_fields} | {"steps": "Steps"}
"""What each of :class:`~simulator.spec.figures.JobParts` is called, in their order."""
CONFIGURATION = Column("configuration", "text", "Strategy", "the curve, and its settings where more than the number of replicas is swept")
"""The column that says which result a row is of."""


# -- the whole job -------------------------------------------------------------------------

PART_COLUMNS = (
    Column("part", "text", "Part", "the parts of a job, which together are its time"),
    Column("seconds", "seconds", "Time", "mean over replications"),
    Column("share", "share", "Of the job", "share of the job's mean time"),
    Column("meaning", "text", "What it is", "in words"),
)
EPOCH_COLUMNS = (
    Column("epochs", "text", "Epochs", "the numbers of those that are alike", by=lambda epoch: _numbers(epoch)),
    Column("time_s", "seconds", "Time of each", "without faults"),
    Column("first_step_s", "seconds", "First step", "waiting for its batch and tracing included"),
    Column("step_s", "seconds", "Later steps", "mean time of one"),
    Column("steps", "number", "Steps", "of all replicas together; asynchronous: updates"),
    Column("evaluation_s", "seconds", "Evaluation", "after it"),
    Column("checkpoint_s", "seconds", "Checkpoints", "for which training waits in it"),
    Column("iterators_s", "seconds", "Iterators", "until those of the last epoch have ended, before it"),
)


def job_parts(result: Result) -> Iterator[Row]:
    """The parts of the job that take any time, in their order; none without a job."""
    for name, label in PART_LABELS.items():
        if result.job is not None and (seconds := getattr(result.job.parts_s, name)):
            share = seconds / result.job.time_s.mean if result.job.time_s.mean else None
            yield {"part": label, "seconds": seconds, "share": share, "meaning": JobParts.model_fields[name].description}


def job_epochs(result: Result) -> tuple[Epoch, ...]:
    """The epochs of the job, those that are alike as one; none without a job."""
    return result.job.each_epoch if result.job is not None else ()


def _numbers(epoch: Epoch) -> str:
    """``"3"``, or ``"3 and 9 like it"``: those that are alike need not follow each other."""
    return f"{epoch.number:,}" if epoch.like_it <= 1 else f"{epoch.number:,} and {epoch.like_it - 1:,} like it"


def parts_table(result: Result) -> Table:
    """Where the time of the job goes."""
    return Table.reading("Where the time of the job goes", PART_COLUMNS, job_parts(result), "job-parts")


def epochs_table(result: Result) -> Table:
    """The epochs, those that are alike as one; evaluation, checkpoints and waits for iterators only where there are any."""
    epochs = job_epochs(result)
    idle = [name for name in ("evaluation_s", "checkpoint_s", "iterators_s") if not any(getattr(epoch, name) for epoch in epochs)]
    whole = all(float(epoch.steps).is_integer() for epoch in epochs)
    columns = (replace(column, kind="count") if whole and column.name == "steps" else column for column in EPOCH_COLUMNS)
    return Table.reading("Epochs, without faults", (column for column in columns if column.name not in idle), epochs, "job-epochs")


def jobs_table(results: Sequence[Result], counted: str = "replicas") -> Table:
    """The whole jobs of several results, a line each, for a narrow place: how long, for how much, and what of it is no lasting step."""
    job = [COLUMNS[f"job_{name}"] for name in ("time_s", "time_low_s", "time_high_s", "cost_usd")]
    rest = Column("rest", "text", short="most of the rest", by=lambda result: _most_of_the_rest(result.job))
    columns = (Column("ranks", "count", short=counted), *job, COLUMNS["goodput"], rest)
    table = Table.reading("The whole job", columns, [result for result in results if result.job is not None], "jobs")
    return table.narrow(*(column.name for column in columns))


def _most_of_the_rest(job: JobOutcome) -> str:
    """The part that takes most beside steps, with its share."""
    rest = [(seconds, name) for name, seconds in job.parts_s.model_dump().items() if name != "steps" and seconds]
    if not rest:
        return "nothing"
    seconds, name = max(rest)
    return f"{PART_LABELS[name].lower()} {format_share(seconds / job.time_s.mean)}"


# -- stages, and what devices exchange -----------------------------------------------------

STAGE_COLUMNS = (
    Column("stage", "any", "Stage", "its number, from 0 on", left=True),
    Column("layers", "text", "Layers", "the first and the last of its layers, of each chunk"),
    Column("devices", "count", "Devices", "of all copies together"),
    Column("parameter_bytes", "bytes", "Parameters", "bytes of its layers' variables in one copy of the model"),
    Column("busy", "share", "Busy", "share of the time in which its devices compute"),
    Column("communication", "share", "Communication", "share in which they wait for messages and collectives alone"),
    Column("bubble", "share", "Bubble", "share in which they wait for other stages or copies"),
    Column("input", "share", "Input", "share in which they wait for their batch"),
    Column("staleness", "count", "Staleness", "updates by which its gradients are late"),
)
EXCHANGE_COLUMNS = (
    Column("among", "text", "Among", "who takes part (docs/strategies.md)"),
    Column("does", "text", "What", "the collective, or what stages hand on"),
    Column("devices", "count", "Devices", "that take part in one"),
    Column("links", "text", "Links", "which links it has to cross"),
    Column("stage", "any", "Stage", "of the stages the one for which it takes longest", left=True),
    Column("times", "count", "Times", "how often a device takes part in a step"),
    Column("size_bytes", "bytes", "Bytes", "of the buffers of a device's step together"),
    Column("seconds", "seconds", "Takes", "one after the other, had they the links for themselves and those that do the same"),
)


def numbered_stages(result: Result) -> list[dict[str, Any]]:
    """The stages with their numbers."""
    return [{"stage": number, **vars(stage)} for number, stage in enumerate(result.stages)]


def stages_table(result: Result) -> Table:
    """The stages; staleness and input only where there is any."""
    idle = [name for name in ("input", "staleness") if not any(getattr(stage, name) for stage in result.stages)]
    columns = (column for column in STAGE_COLUMNS if column.name not in idle)
    return Table.reading("Stages", columns, numbered_stages(result), "stages")


def exchanges_table(result: Result) -> Table:
    """What devices exchange in a step; without the number of the stage where there is only one."""
    columns = (column for column in EXCHANGE_COLUMNS if column.name != "stage" or result.stages)
    return Table.reading("What devices exchange in a step", columns, result.exchanges, "exchanges")


# -- the width of the interval -------------------------------------------------------------

_LEAST_SHARE = 0.005
"""A quantity that contributes less is not shown."""
_WIDTH_COLUMNS = (
    Column("quantity", "text", "Quantity", "what is uncertain", of="name"),
    Column("first", "share", "By itself", "share of the variance that is expected to go if it alone became known", of="first.mean"),
    Column(
        "known", "text", "Known to", "90% interval of that share; the runs may be too few to tell it", by=lambda part: _known(part.first)
    ),
    Column("total", "share", "With others", "share that would stay if all else became known", of="total.mean"),
)


def _best_case(measurement: Measurement) -> str | None:
    return "yes" if measurement.at_best else None


MEASUREMENT_COLUMNS = (
    Column("command", "text", "Command"),
    Column("low", "throughput", "Low then", of="throughput_samples_per_s.low"),
    Column("high", "throughput", "High then", "ends of the interval that is expected then, samples/s", "throughput_samples_per_s.high"),
    Column("left", "share", "Width left", "share of the interval's width that is left, in logarithms"),
    Column("best_case", "text", "Best case", "whether nothing tells what such a measurement leaves open", by=_best_case),
    Column("narrows", "text", "Narrows", by=lambda each: ", ".join(each.narrows)),
    Column("rests_on", "text", "Rests on"),
)


def width_table(result: Result) -> Table:
    """What the width of the throughput's interval is made of, the largest part first; no rows where nothing varies."""
    parts = [part for part in width_of(result).contributions if max(part.total.mean, part.first.high) >= _LEAST_SHARE]
    return Table.reading("What the width is made of", _WIDTH_COLUMNS, parts, "width")


def _known(share: Share) -> str | None:
    if share.low == share.high:
        return None
    text = format_interval(share.low, share.high, "share")
    return text if share.told else f"{text}: cannot be told"


def measurements_table(result: Result) -> Table:
    """What would narrow the interval, each with the one that is expected afterwards; no rows where nothing would."""
    return Table.reading("What would narrow it", MEASUREMENT_COLUMNS, width_of(result).measure_next, "measurements")


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
    Column("median_error", "share", "Median error, sign left out", by=lambda curve: median(abs(row.error) for row in curve["rows"])),
    Column("inside", "count", "Inside the interval", by=lambda curve: sum(row.inside for row in curve["rows"])),
)


def calibration_table(workloads: Iterable[Workload]) -> Table:
    """The measured points of workloads, and the step that the fit gives there."""
    points = [(load, point) for load in workloads if load.fit is not None for point in load.fit.points]
    rows = [{**vars(point), "workload": load.name, "fitted_step_s": load.compute_s(point.batch) + load.apply_s} for load, point in points]
    return Table.reading("Measured and fitted step times", _CALIBRATION_COLUMNS, rows, "calibration")


def measured_table(measured: Overlay, results: Sequence[Result]) -> Table:
    """Every measured setting: with each prediction of it, and below them those without, with the reason."""
    scaling = {result.scenario_hash: result.scenario.scaling for result in results}
    rows = [{**vars(row), "scaling": scaling.get(row.scenario_hash), "repeats": len(row.repeats)} for row in measured.rows]
    return Table.reading("Measured against predicted", _MEASURED_COLUMNS, [*rows, *map(vars, measured.unmatched)], "measured")


def curve_errors_table(places: Sequence[tuple[int, Beside]], results: Sequence[Result], at: Coordinates) -> Table:
    """How well each curve fits, since a measured setting may stand beside several.

    Parameters
    ----------
    places
        Measured settings, each with the index of its prediction among the results.
    results, at
        The results, and where each stands.
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
    Column("reason", "text", "Limited by, or why it is not known"),
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
    """What single changes would gain or lose, to a configuration of this scaling."""
    return Table.reading(
        "What one change would do", SENSITIVITY_COLUMNS, ({**vars(change), "scaling": scaling} for change in changes), "sensitivity"
    )


def timeline_table(timeline: Timeline) -> Table:
    """The bars of a timeline."""
    return Table.reading("Bars of the timeline", TIMELINE_COLUMNS, timeline.bars, "timeline")


# -- files ---------------------------------------------------------------------------------


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
