"""Fits a workload to the measurement files of a training step, with intervals and provenance.

This module checks the files, reads their records and puts the workload together, with its variables, its layers, and what a job
costs besides its steps. :mod:`calibrate.fit.runs` decides which parts of the files are used; the cost of a step and the
distribution around it are fitted in :mod:`calibrate.fit.step_times`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError
from scipy import stats

from calibrate.fit.estimators import DRAWS_KEPT, MessageCosts, drawn, intervals_90, line_of_means, line_of_medians
from calibrate.fit.runs import ConcurrentProcesses, DisturbedError, check_levels, choose_rounds, concurrent_processes, is_concurrent
from calibrate.fit.step_times import StepTable, fit_steps, smooth
from calibrate.fit.writing import provenance
from calibrate.measurements import (
    CUT_SHORT,
    CheckpointTime,
    CountedStep,
    EvaluationTime,
    Header,
    IteratorEnd,
    LayerRecord,
    LayerTimes,
    Load,
    Measurements,
    MeasurementsError,
    Memory,
    Plan,
    Ready,
    RecordT,
    Rows,
    ServerTime,
    StartUpTime,
    StepTime,
    Unmeasured,
    VariableRecord,
    WarmUp,
    read_measurements,
)
from simulator.base.errors import CalibrationError
from simulator.base.text import counted, digits, format_change
from simulator.base.validation_errors import fault_of
from simulator.job.costs import longest_wait_s
from simulator.spec.job import Duration, IteratorEnds, Overheads
from simulator.spec.layers import Layer
from simulator.spec.workload import Affine, CalibrationFit, Counted, ServerCost, Variable, Workload, WorkloadRange

_MOST_SLOWDOWN = 10.0
"""By a busy core; no workload takes more."""


def fit_workload(
    measurements: Path | Sequence[Path],
    name: str,
    command: str = "",
    accept_disturbed: bool = False,
    stored: bool = False,
) -> Workload:
    """Fit a workload to the measurements of a step.

    Parameters
    ----------
    measurements
        The file of a run of a step, or the files of several runs of the same step, from which the spread between runs is
        seen; and those of processes at once, from which is seen what processes of one machine have in common.
    command
        Command line that made it, for the provenance.
    accept_disturbed
        Fit measurements that cannot be trusted too, with a warning in the provenance:
        ``disturbed``.
    stored
        The files were not measured just now, but given: what they lack is bad input, exit code 2.

    Raises
    ------
    MeasurementsError
        A file is damaged, is given twice, or holds no training steps (exit code 2); or
        ``stored`` is set and the files hold too little to be fitted.
    CalibrationError
        What was measured is too little to be fitted; or too few rounds are undisturbed, or the
        runs are at different levels, and ``accept_disturbed`` is not set.
    """
    files = [measurements] if isinstance(measurements, Path) else list(measurements)
    runs = [read_measurements(file, "step") for file in files]
    for file, measured in zip(files, runs, strict=True):
        if len(headers := measured.of(Header)) > 1:
            raise MeasurementsError(f"{file}: has {len(headers)} headers, so it is several files in one: give each as a separate file")
        if (replicas := measured.header.arguments.get("replicas") or 1) > 1:
            raise MeasurementsError(
                f"{file}: has steps of {replicas} replicas on logical devices, but a workload describes one: give files measured without"
            )
    # one run counted twice would look like two that agree
    seen: dict[str, Path] = {}
    for run in runs:
        if run.sha256 in seen:
            before = "given twice" if run.path == seen[run.sha256] else f"the same measurements as {seen[run.sha256]}"
            raise MeasurementsError(f"{run.path}: {before}, which would count one run twice: leave one of them out")
        seen[run.sha256] = run.path
    alone = [run for run in runs if not is_concurrent(run)]
    if not alone:
        raise MeasurementsError(
            f"{files[0]}: is one of several simultaneous processes, which cannot be fitted without single runs: give the runs too"
        )
    measurements = alone[0].path
    try:
        remarks: dict[str, str] = {}
        table = StepTable.of(*alone, left_out=choose_rounds(alone, accept_disturbed, remarks))
        if apart := check_levels(table, [run.path.name for run in alone], accept_disturbed):
            remarks["disturbed"] = "; ".join(filter(None, (remarks.get("disturbed"), apart)))
        beside = [run for run in runs if is_concurrent(run)]
        together = concurrent_processes(beside, alone, accept_disturbed) if beside else None
        facts = provenance(alone, command) | {"runs": str(len(set(table.runs)))} | remarks
        if (plan := next(iter(alone[0].of(Plan)), None)) is not None and not plan.whole:
            facts["budget"] = (
                f"time for {counted(plan.processes, 'run')} of {counted(plan.rounds, 'round')}; a longer `budget` narrows the interval"
            )
        return _fitted(alone, table, together, name, facts)
    except ValidationError as error:
        kind = MeasurementsError if stored else CalibrationError
        raise kind(f"{measurements}: gives no valid workload ({fault_of(error)}): measure again") from None
    except CalibrationError as error:
        if isinstance(error, DisturbedError):
            raise DisturbedError(str(error), files) from None
        prefix = "" if str(error).startswith(str(measurements)) else f"{measurements}: "
        kind = MeasurementsError if stored else CalibrationError
        raise kind(f"{prefix}{error}") from None


def _fitted(
    runs: Sequence[Measurements], table: StepTable, together: ConcurrentProcesses | None, name: str, facts: dict[str, str]
) -> Workload:
    measured = runs[0]
    rng = np.random.default_rng(0)
    times = fit_steps(table, rng, few_runs=bool(measured.of(Plan)))
    assert times.draws is not None
    names, draws = list(times.parameters), times.draws
    intervals = intervals_90(names, draws)
    share = slowdown = None
    if together is not None:
        share, slowdown = together.shared.share, together.slowdown
        intervals["run_to_run_shared"] = _rounded(together.shared.interval_90)
    if slowdown is not None:
        intervals["busy_core_slowdown"] = _rounded(slowdown.interval_90)
        draws = draws[:DRAWS_KEPT]
        clipped = np.clip(rng.normal(slowdown.value, slowdown.error, len(draws)), 0.0, _MOST_SLOWDOWN)
        names, draws = [*names, "busy_core_slowdown"], np.column_stack([draws, clipped])
    variables = _variables(measured)
    sizes = [variable.size_bytes for variable in variables]
    created = sorted(record.created for record in measured.of(VariableRecord))
    overheads = _overheads(runs, table, facts)
    if together is not None:
        facts["at_once"] = together.text
    layers = _layers(runs, table, {number: place for place, number in enumerate(created)}, facts)
    fingerprint = measured.fingerprint
    device = f"{fingerprint.device_name} ({fingerprint.device_kind})"
    model, batches = _model(measured), f"{table.batches[0]} to {table.batches[-1]}"
    return Workload(
        name=name,
        description=f"{model or name}: batches of {batches} on {device}, {fingerprint.software}",
        model=model,
        backend=fingerprint.backend,
        precision=measured.header.arguments.get("precision", "float32"),
        **times.fields,
        run_to_run_shared=digits(share) if share is not None else None,
        busy_core_slowdown=digits(min(slowdown.value, _MOST_SLOWDOWN)) if slowdown is not None else 0.0,
        device_work=_device_work(runs, table),
        server=_server_cost(measured),
        variables=variables,
        calibrated=WorkloadRange(
            batch=(table.batches[0], table.batches[-1]),
            tensor_bytes=(min(sizes), max(sizes)),
            device=device,
        ),
        uncertainty=drawn(names, draws),
        fit=CalibrationFit(
            **times.quality,
            intervals_90=intervals,
            peak_memory_bytes={str(record.batch): float(record.peak_bytes) for record in measured.of(Memory)},
        ),
        provenance=facts,
        counted=_counted(measured),
        layers=layers,
        overheads=overheads,
    )


def _all(runs: Iterable[Measurements], kind: type[RecordT]) -> list[RecordT]:
    return [record for run in runs for record in run.of(kind)]


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def _rounded(interval: tuple[float, float]) -> tuple[float, float]:
    return digits(interval[0]), digits(interval[1])


def _server_cost(measured: Measurements) -> ServerCost:
    """Seconds to apply one gradient tensor on a CPU, per tensor and per byte; zero where it was not measured."""
    sizes, seconds, errors = MessageCosts.of_chains(
        (record.size_bytes, record.applies, record.round, record.seconds) for record in measured.of(ServerTime)
    ).points()
    if len(sizes) < 2:
        return ServerCost()
    line = line_of_medians(sizes, seconds, errors)
    return ServerCost(base_s=digits(line.base), per_byte_s=digits(line.slope))


def _device_work(runs: Sequence[Measurements], table: StepTable) -> Affine | None:
    """Of a processor: its seconds in a step over its cores, by batch; none of another device, or where it was not measured.

    Threads that wait for work spin for a while, which counts as work: that is the most that
    a step needs of the processor.
    """
    if runs[0].fingerprint.device_kind != "CPU":
        return None
    cores = max((record.cores for record in _all(runs, Load)), default=0)
    used = {batch: [step.cpu_s for step in _all(runs, StepTime) if step.batch == batch] for batch in table.batches}
    seconds = {batch: [cpu_s for cpu_s in each if cpu_s is not None] for batch, each in used.items()}
    if not cores or any(len(seconds[batch]) < len(used[batch]) for batch in used):
        return None
    return line_of_means(list(seconds), [math.fsum(each) / len(each) / cores for each in seconds.values()]).affine()


def _model(measured: Measurements) -> str:
    """The file that builds what was measured, without its ending: by this name other workloads of it are known."""
    arguments = measured.header.arguments
    target = arguments.get("model") or arguments.get("step") or ""
    return Path(str(target).rpartition(":")[0]).stem


def _counted(measured: Measurements) -> Counted | None:
    """Operations and bytes as a line through the smallest and the largest batch; none where a step could not be counted."""
    steps = sorted(measured.of(CountedStep), key=lambda record: record.batch)
    counted = [(step.batch, step.flops, step.bytes, step.kernels) for step in steps if step.flops and step.bytes and step.kernels]
    if len(counted) < max(2, len(steps)):
        return None
    (fewest, _, first_bytes, _), (most, flops, last_bytes, kernels) = counted[0], counted[-1]
    slope = max(0.0, (last_bytes - first_bytes) / (most - fewest))
    return Counted(
        flops_per_sample=digits(flops / most),
        base_bytes=digits(max(0.0, last_bytes - slope * most)),
        per_sample_bytes=digits(slope),
        kernels=kernels,
    )


def variable_of(name: str, shape: Sequence[int], size_bytes: float, place: int, ready: float, sparse: float | None = None) -> Variable:
    """A variable of a workload; ``place`` is that in the order of creation, ``sparse`` bytes that a sample touches."""
    return Variable(
        name=name,
        size_bytes=size_bytes,
        creation_index=place,
        ready=ready,
        # a scalar has no rows to be cut between
        rows=shape[0] if shape and shape[0] > 0 else None,
        # of a matrix they follow from its rows
        columns=shape[-1] if len(shape) > 2 and shape[-1] > 0 else None,
        sparse_bytes_per_sample=sparse,
    )


def in_order_of_readiness(variables: Iterable[Variable]) -> tuple[Variable, ...]:
    """Variables in the order in which their gradients become ready, the last of them at the end of the backward pass.

    Where gradients become ready together, that of the variable created last comes first, as backward passes run.
    """
    ordered = sorted(variables, key=lambda variable: (variable.ready, -variable.creation_index))
    # medians of shares end just below 1; the last gradient is ready when the pass ends
    last = ordered[-1].ready
    return tuple(
        variable.model_copy(update={"ready": min(round(variable.ready / last, 6), 1.0) if last > 0 else 1.0}) for variable in ordered
    )


def _variables(measured: Measurements) -> tuple[Variable, ...]:
    """Variables with size, creation order, readiness and the bytes of sparse gradients.

    ``ready`` is the median over all steps with clocks inside of the time from the loss to
    the gradient, divided by the time from the loss to the last gradient. Where gradients
    were computed outside any ``tf.function`` their times cannot be seen, and each counts
    as ready at the end of the backward pass.
    """
    records = sorted(measured.of(VariableRecord), key=lambda record: (record.created, record.index))
    if not records:
        raise CalibrationError(f"has no variables: {CUT_SHORT}")
    # by index, so that two records of one variable break the rule that each has a place of its own
    creation = {record.index: place for place, record in enumerate(records)}
    shares, sparse = _ready_shares(measured), _sparse_bytes_per_sample(measured)
    return in_order_of_readiness(
        variable_of(
            record.name, record.shape, record.size_bytes, creation[record.index], shares.get(record.index, 1.0), sparse.get(record.index)
        )
        for record in records
    )


def _ready_shares(measured: Measurements) -> dict[int, float]:
    seen: dict[int, list[float]] = defaultdict(list)
    for record in measured.of(Ready):
        last = max(record.ready_s.values(), default=0.0)
        if not record.observed or last <= 0:
            continue
        for index, seconds in record.ready_s.items():
            seen[index].append(seconds / last)
    return {index: float(np.median(values)) for index, values in seen.items()}


def _sparse_bytes_per_sample(measured: Measurements) -> dict[int, float]:
    """Mean bytes of the rows and indices that a sample touches, by variable."""
    row_bytes = {record.index: record.sparse_row_bytes for record in measured.of(VariableRecord)}
    per_sample: dict[int, list[float]] = defaultdict(list)
    for record in measured.of(Rows):
        size = row_bytes.get(record.variable)
        if size is not None and record.rows > 0:
            per_sample[record.variable].append(record.rows * size / record.batch)
    return {index: float(np.mean(values)) for index, values in per_sample.items()}


# -- layers --------------------------------------------------------------------------------


def _layers(runs: Sequence[Measurements], table: StepTable, creation: Mapping[int, int], facts: dict[str, str]) -> tuple[Layer, ...]:
    """Layers with the time of each pass, what they hand on and keep, and their operations; empty where none were measured.

    Times are means over all steps with clocks between the layers, at the middle one of the
    batch sizes; steps that took more than 1.5 times as long as the fastest are left out. Bytes
    and operations for each sample are slopes between the smallest and the largest batch, so
    that what does not grow with the batch is no sample's.

    ``facts`` gets how they were measured, and how far their sum is from forward and backward pass of the whole step, in words.
    ``creation`` is the place of each variable in the workload's order of creation, by the order that the records tell.

    Raises
    ------
    CalibrationError
        The records of layers are incomplete.
    """
    records = runs[0].of(LayerRecord)
    if not records:
        return ()
    times: dict[int, list[tuple[float, ...]]] = defaultdict(list)
    for step in _all(runs, LayerTimes):
        times[step.batch].append((*step.forward_s, *step.backward_s))
    by_batch: dict[int, dict[int, LayerRecord]] = defaultdict(dict)
    for record in records:
        by_batch[record.batch][record.index] = record
    small, large = by_batch[min(by_batch)], by_batch[max(by_batch)]
    whole = len(by_batch) == 2 and list(small) == list(large) == list(range(len(small)))
    if not whole or any({len(row) for row in times[batch]} != {2 * len(small)} for batch in table.batches):
        raise CalibrationError(f"has incomplete layers: {CUT_SHORT}")
    means = {batch: smooth(np.array(times[batch])).mean(axis=0) for batch in table.batches}
    middle = table.batches[len(table.batches) // 2]
    forward, backward = means[middle][: len(small)], means[middle][len(small) :]
    ratios = []
    for batch in table.batches:
        of_step = table.mean(batch) * table.shares(batch)[:2].sum()
        ratios.append(f"{format_change(means[batch].sum() / of_step - 1.0)} at batch {batch}")
    facts["layers"] = (
        f"mean seconds at batch {middle}, from {sum(map(len, times.values()))} steps with clocks between the layers; their sum minus the "
        f"forward and backward pass of the whole step is {', '.join(ratios)} of these"
    )
    return tuple(
        Layer(
            name=layer.name,
            forward=digits(float(forward[index])),
            backward=digits(float(backward[index])),
            variables=tuple(sorted(creation[variable] for variable in layer.variables if variable in creation)),
            output_bytes_per_sample=_slope(layer, large[index], "output_bytes") or 0.0,
            kept_bytes_per_sample=_slope(layer, large[index], "kept_bytes") or 0.0,
            flops_per_sample=_slope(layer, large[index], "flops"),
        )
        for index, layer in small.items()
    )


def _slope(small: LayerRecord, large: LayerRecord, field: str) -> float | None:
    low, high = getattr(small, field), getattr(large, field)
    if low is None or high is None:
        return None
    return max(0.0, float(high - low) / (large.batch - small.batch))


# -- what a job costs besides its steps ----------------------------------------------------

_JUDGED_S = 0.02
"""Time to the next turn from which on a wait for it can be distinguished from the work of ending an iterator, a millisecond or so."""


def _overheads(runs: Sequence[Measurements], table: StepTable, facts: dict[str, str]) -> Overheads | None:
    """Return what the runs measured outside steps; None if the files have nothing of it.

    ``facts`` gets ``overheads``, how often it was measured, and ``unmeasured``, what could not be, and why.
    """
    startups, written = _all(runs, StartUpTime), _all(runs, CheckpointTime)
    if startups:
        checkpoints = f", {len(written)} checkpoints" if written else ""
        facts["overheads"] = f"{len(startups)} process{'es' if len(startups) > 1 else ''}{checkpoints}"
        if not all(record.of_process for record in startups):
            facts["overheads"] += "; start-up without that of the interpreter, which this system does not report"
        if written and not all(record.cold for record in written):
            facts["overheads"] += "; checkpoints were read from the page cache"
    if failures := {record.what: record.why for record in _all(runs, Unmeasured)}:
        facts["unmeasured"] = "; ".join(f"{what} could not be measured ({why})" for what, why in failures.items())
    fields: dict[str, Any] = {
        "startup": duration_of([record.seconds for record in startups]),
        "tracing": duration_of(_tracings(runs, table) if startups else []),
        "evaluation_tracing": duration_of([seconds for run in runs if (seconds := _first_evaluation(run)) is not None]),
        "iterators": _iterator_ends(_all(runs, IteratorEnd)),
    }
    if written:
        size = _mean(record.size_bytes for record in written)
        writing_s = _mean(record.write_s + record.sync_s for record in written)
        fields |= {
            "checkpoint_bytes": digits(size),
            "write_bytes_per_s": digits(size / writing_s) if writing_s > 0 else None,
            "restore_bytes_per_s": digits(size / _mean(record.restore_s for record in written)),
            # copies of one process are alike; processes differ
            "snapshot": duration_of([_mean(record.snapshot_s for record in own) for run in runs if (own := run.of(CheckpointTime))]),
        }
    known = {key: value for key, value in fields.items() if value is not None}
    return Overheads(**known) if known else None


def duration_of(values: Sequence[float]) -> Duration | None:
    """Mean of a time over runs, and the 90% prediction interval for one run more.

    The interval is Student's, of logarithms: ``mean ± t s sqrt(1 + 1/n)`` (as of a lognormal
    distribution, since a time is above zero); of times of which one is zero, it is taken without
    logarithms and cut off at zero. A single value is used as it is and gives no spread.

    >>> duration_of([2.0, 2.0, 2.0]).high_s
    2.0
    """
    if not values:
        return None
    times = np.asarray(values, dtype=float)
    mean = float(times.mean())
    low = high = mean
    if times.size > 1:
        by_logarithm = times.min() > 0
        scaled = np.log(times) if by_logarithm else times
        half = float(stats.t.ppf(0.95, times.size - 1)) * math.sqrt(1.0 + 1.0 / times.size) * float(scaled.std(ddof=1))
        low, high = (math.exp(end) if by_logarithm else max(0.0, end) for end in (scaled.mean() - half, scaled.mean() + half))
    value = digits(mean)
    return Duration(value_s=value, low_s=min(value, digits(low)), high_s=max(value, digits(high)))


def _iterator_ends(records: Sequence[IteratorEnd]) -> IteratorEnds | None:
    """How many ends of iterators waited for the next turn of the thread that tunes them, of those that came well before it.

    One that waited took as long as was left until that turn, half of which nothing else takes; None without any that can be judged.
    """
    judged = [(record.wait_s, left_s) for record in records if (left_s := longest_wait_s(record.age_s)) >= _JUDGED_S]
    return IteratorEnds(ended=len(judged), waited=sum(wait_s > left_s / 2 for wait_s, left_s in judged)) if judged else None


def _tracings(runs: Sequence[Measurements], table: StepTable) -> list[float]:
    """By which the first step of each run takes longer than the plain steps of the same batch size and run."""
    tracings = []
    for number, run in enumerate(runs):
        for first in run.of(WarmUp)[:1]:
            rounds = [times for times, of in zip(table.rounds[first.batch], table.runs, strict=True) if of == number]
            if rounds:
                tracings.append(max(0.0, first.seconds - float(np.concatenate(rounds).mean())))
    return tracings


def _first_evaluation(run: Measurements) -> float | None:
    """By which the first evaluation step of a run takes longer than the others."""
    times = [record.seconds for record in sorted(run.of(EvaluationTime), key=lambda record: record.index)]
    return max(0.0, times[0] - float(np.mean(times[1:]))) if len(times) > 1 else None
