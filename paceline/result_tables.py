"""Tables and short texts of a result's whole job, of its stages, and of what its devices exchange: for terminal, page and CSV alike.

Names of the parts of a job come from :data:`simulator.results.rows.COLUMNS`, which has all other figures of a result as columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from simulator.base.table import Cell, Column, Table
from simulator.base.text import Kind, format_bytes, format_interval, format_seconds, format_share, format_throughput, format_usd, written
from simulator.results.next_measurement import width_of
from simulator.results.results import Result
from simulator.results.rows import COLUMNS
from simulator.spec.figures import Checkpointing, Epoch, JobOutcome, JobParts, Share

PART_LABELS = {part: COLUMNS[f"job_{part}_s"].heading for part in JobParts.model_fields} | {"steps": "Steps"}
"""What each of :class:`~simulator.spec.figures.JobParts` is called, in their order."""

PART_COLUMNS = (
    Column("part", "text", "Part", "the parts of a job, which together are its time"),
    Column("seconds", "seconds", "Time", "mean over replications"),
    Column("share", "share", "Of the job", "share of the job's mean time"),
    Column("meaning", "text", "What it is", "in words"),
)
EPOCH_COLUMNS = (
    Column("epochs", "text", "Epochs", "the numbers of those that are alike"),
    Column("time_s", "seconds", "Time of each", "without faults"),
    Column("first_step_s", "seconds", "First step", "waiting for its batch and tracing included"),
    Column("step_s", "seconds", "Later steps", "mean time of one"),
    Column("steps", "number", "Steps", "of all replicas together; asynchronous: updates"),
    Column("evaluation_s", "seconds", "Evaluation", "after it"),
    Column("checkpoint_s", "seconds", "Checkpoints", "for which training waits in it"),
    Column("iterators_s", "seconds", "Iterators", "until those of the last epoch have ended, before it"),
)


def part_rows(result: Result) -> Iterator[tuple[Cell, ...]]:
    """A row for each part of the job that takes any time, in the order of :data:`PART_COLUMNS`; none without a job."""
    job = result.job
    if job is None:
        return
    for name, label in PART_LABELS.items():
        seconds = getattr(job.parts_s, name)
        if seconds:
            share = seconds / job.time_s.mean if job.time_s.mean else None
            yield label, seconds, share, JobParts.model_fields[name].description


def parts_table(result: Result) -> Table:
    """Where the time of the job goes."""
    return Table("Where the time of the job goes", PART_COLUMNS, tuple(part_rows(result)), "job-parts")


def epoch_rows(result: Result) -> Iterator[tuple[Cell, ...]]:
    """A row for all epochs that are alike, in the order of :data:`EPOCH_COLUMNS`; none without a job."""
    for its in result.job.each_epoch if result.job is not None else ():
        yield _numbers(its), *(getattr(its, column.name) for column in EPOCH_COLUMNS[1:])


def epochs_table(result: Result) -> Table:
    """The epochs, those that are alike as one; evaluation, checkpoints and waits for iterators only where there are any."""
    its = result.job.each_epoch if result.job is not None else ()
    idle = [name for name in ("evaluation_s", "checkpoint_s", "iterators_s") if not any(getattr(one, name) for one in its)]
    names = [column.name for column in EPOCH_COLUMNS if column.name not in idle]
    whole = all(float(one.steps).is_integer() for one in its)
    columns = tuple(replace(column, kind="count") if whole and column.name == "steps" else column for column in EPOCH_COLUMNS)
    return Table("Epochs, without faults", columns, tuple(epoch_rows(result)), "job-epochs").only(*names)


def _numbers(its: Epoch) -> str:
    """``"3"``, or ``"3 and 9 like it"``: those that are alike need not follow each other."""
    return f"{its.number:,}" if its.like_it <= 1 else f"{its.number:,} and {its.like_it - 1:,} like it"


def jobs_table(results: Sequence[Result], counted: str = "replicas") -> Table:
    """The whole jobs of several results, a line each, for a narrow place: how long, for how much, and what of it is no lasting step."""
    columns = (
        Column("ranks", "count", counted),
        Column("time_s", "seconds", "whole job"),
        Column("low_s", "seconds", "low"),
        Column("high_s", "seconds", "high"),
        Column("cost_usd", "usd", "cost"),
        Column("goodput", "share", "goodput"),
        Column("beside", "text", "most of the rest"),
    )
    rows = []
    for result in results:
        job = result.job
        if job is not None:
            cost = job.cost_usd.mean if job.cost_usd is not None else None
            time_s = job.time_s
            rows.append((result.ranks, time_s.mean, time_s.low, time_s.high, cost, job.goodput.mean, _most_beside(job)))
    table = Table("The whole job", columns, tuple(rows), "jobs")
    return table if any(row[4] is not None for row in rows) else table.only(*(its.name for its in columns if its.name != "cost_usd"))


def _most_beside(job: JobOutcome) -> str:
    """The part that takes most beside steps, with its share."""
    beside = [(seconds, name) for name, seconds in job.parts_s.model_dump().items() if name != "steps" and seconds]
    if not beside:
        return "nothing"
    seconds, name = max(beside)
    return f"{PART_LABELS[name].lower()} {format_share(seconds / job.time_s.mean)}"


# -- sentences -----------------------------------------------------------------------------


def job_in_words(result: Result) -> list[tuple[str, str]]:
    """What there is to say of a job, each under a heading; nothing without one."""
    job = result.job
    if job is None:
        return []
    time_s, cost = job.time_s, job.cost_usd
    said = [("time", f"{format_seconds(time_s.mean)}{_ends(time_s.low, time_s.high, 'seconds')} for {length_in_words(job)}")]
    if cost is not None:
        said.append(("cost", f"{format_usd(cost.mean)}{_ends(cost.low, cost.high, 'usd')} for all of it"))
    rate, steady = job.samples_per_s.mean, result.throughput_samples_per_s.mean
    good = f"{written(job.goodput.mean, 'share')}{_ends(job.goodput.low, job.goodput.high, 'share')} of the time"
    said.append(("goodput", f"{good}; {format_throughput(rate)} samples/s over the whole job, {format_throughput(steady)} while it steps"))
    if job.each_epoch:
        said.append(("epochs", epochs_in_words(job)))
    if job.checkpointing is not None:
        said.append(("checkpoints", checkpoints_in_words(job.checkpointing)))
    if text := faults_in_words(job):
        said.append(("faults", text))
    return said


def length_in_words(job: JobOutcome) -> str:
    """How long the job is: ``1,280,000 samples in 10 epochs, 2,500 steps``."""
    epochs = f"{written(job.epochs, 'setting')} epoch{'' if job.epochs == 1 else 's'}"
    return f"{written(job.samples, 'setting')} samples in {epochs}, {written(job.steps, 'setting')} steps"


def epochs_in_words(job: JobOutcome) -> str:
    """The first epoch, and the one that most of the others are like."""
    first, *later = job.each_epoch
    text = f"the first {format_seconds(first.time_s)}, of that its first step {format_seconds(first.first_step_s)}"
    if later:
        most = max(later, key=lambda its: its.like_it)
        count = f", as {most.like_it:,} of {sum(its.like_it for its in job.each_epoch):,} are" if most.like_it > 1 else ""
        text += f"; later ones {format_seconds(most.time_s)}{count}"
    return text


def checkpoints_in_words(its: Checkpointing) -> str:
    """How often, at what cost, and how often would be best."""
    waits = f"{format_seconds(its.cost_s)} of waiting each ({format_bytes(its.size_bytes)})"
    text = f"after every {format_seconds(its.interval_s)} of steps, {format_seconds(its.interval_s + its.cost_s)} with {waits}"
    if its.set_s is not None and written(its.set_s, "seconds") != written(its.interval_s, "seconds"):
        text += f"; set to {format_seconds(its.set_s)}, which whole steps make {format_seconds(its.interval_s)}"
    if its.best_s is None:
        return text
    rules = ", ".join(f"{name} {format_seconds(value)}" for name, value in (("Young", its.young_s), ("Daly", its.daly_s)) if value)
    return f"{text}; best after {format_seconds(its.best_s)} of steps{f' ({rules})' if rules else ''}"


def faults_in_words(job: JobOutcome) -> str:
    """How many are expected; empty where nothing fails."""
    if not job.faults and job.mtbf_s is None:
        return ""
    if job.faults:
        between = f", one every {format_seconds(job.time_s.mean / job.faults)}" if job.faults > 1 else ""
        text = f"{written(job.faults, 'number')} on average until the job ends{between}"
    else:
        expected = f"; the mean times say one every {format_seconds(job.mtbf_s)}" if job.mtbf_s is not None else ""
        text = f"none in any run until the job ends{expected}"
    return f"{text}; {format_share(job.given_up)} of runs are given up" if job.given_up else text


def _ends(low: float, high: float, kind: Kind) -> str:
    """An interval in brackets, where its ends can be told apart."""
    return f" (90% of runs: {format_interval(low, high, kind)})" if written(low, kind) != written(high, kind) else ""


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
    Column("among", "text", "Among", "who takes part (docs/ways-of-training.md)"),
    Column("does", "text", "What", "the collective, or what stages hand on"),
    Column("devices", "count", "Devices", "that take part in one"),
    Column("links", "text", "Links", "which links it has to cross"),
    Column("stage", "any", "Stage", "of the stages the one for which it takes longest", left=True),
    Column("times", "count", "Times", "how often a device takes part in a step"),
    Column("size_bytes", "bytes", "Bytes", "of the buffers of a device's step together"),
    Column("seconds", "seconds", "Takes", "one after the other, had they the links for themselves and those that do the same"),
)


def stage_rows(result: Result) -> Iterator[tuple[Cell, ...]]:
    """A row for each stage, in the order of :data:`STAGE_COLUMNS`."""
    for number, its in enumerate(result.stages):
        yield (number, *(getattr(its, column.name) for column in STAGE_COLUMNS[1:]))


def exchange_rows(result: Result) -> Iterator[tuple[Cell, ...]]:
    """A row for each exchange, in the order of :data:`EXCHANGE_COLUMNS`."""
    for its in result.exchanges:
        yield tuple(getattr(its, column.name) for column in EXCHANGE_COLUMNS)


def stages_table(result: Result) -> Table:
    """The stages; staleness and input only where there is any."""
    always = [column.name for column in STAGE_COLUMNS if column.name not in ("input", "staleness")]
    some = [name for name in ("input", "staleness") if any(getattr(its, name) for its in result.stages)]
    return Table("Stages", STAGE_COLUMNS, tuple(stage_rows(result)), "stages").only(*always, *some)


def exchanges_table(result: Result) -> Table:
    """What devices exchange in a step; without the number of the stage where there is only one."""
    names = [column.name for column in EXCHANGE_COLUMNS if column.name != "stage" or result.stages]
    return Table("What devices exchange in a step", EXCHANGE_COLUMNS, tuple(exchange_rows(result)), "exchanges").only(*names)


_LEAST_SHARE = 0.005
"""A quantity that contributes less is not shown."""


def width_table(result: Result) -> Table:
    """What the width of the throughput's interval is made of, the largest part first; no rows where nothing varies."""
    columns = (
        Column("quantity", "text", "Quantity", "what is uncertain"),
        Column("first", "share", "By itself", "share of the variance that is expected to go if it alone became known"),
        Column("known", "text", "Known to", "90% interval of that share; the runs may be too few to tell it"),
        Column("total", "share", "With others", "share that would stay if all else became known"),
    )
    rows = tuple(
        (its.name, its.first.mean, _known(its.first), its.total.mean)
        for its in width_of(result).contributions
        if max(its.total.mean, its.first.high) >= _LEAST_SHARE
    )
    return Table("What the width is made of", columns, rows, "width")


def _known(share: Share) -> str | None:
    if share.low == share.high:
        return None
    text = format_interval(share.low, share.high, "share")
    return text if share.told else f"{text}: cannot be told"


MEASUREMENT_COLUMNS = (
    Column("command", "text", "Command"),
    Column("low", "throughput", "Low then"),
    Column("high", "throughput", "High then", "ends of the interval that is expected afterwards, samples/s"),
    Column("left", "share", "Width left", "share of the interval's width that is left, in logarithms"),
    Column("best_case", "text", "Best case", "whether nothing tells what such a measurement leaves open"),
    Column("narrows", "text", "Narrows"),
    Column("rests_on", "text", "Rests on"),
)


def measurement_rows(result: Result) -> Iterator[tuple[Cell, ...]]:
    """A row for each command that would narrow the interval, in the order of :data:`MEASUREMENT_COLUMNS`."""
    for its in width_of(result).measure_next:
        then = its.throughput_samples_per_s
        yield its.command, then.low, then.high, its.left, "yes" if its.at_best else None, ", ".join(its.narrows), its.rests_on


def measurements_table(result: Result) -> Table:
    """What would narrow the interval, each with the one that is expected afterwards; no rows where nothing would."""
    return Table("What would narrow it", MEASUREMENT_COLUMNS, tuple(measurement_rows(result)), "measurements")
