"""Fits a workload to the measurement files of a training step, with intervals and provenance.

This module checks the files, reads their records and puts the workload together. The estimates are beside it: ``disturbance``
(what may be used), ``step_times`` (cost and law), ``layers``, ``overheads``, ``concurrent``.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError
from scipy import stats

from calibrate.fit.estimators import DRAWS_KEPT, AffineCost, AffineMean, ChainSlope, drawn, intervals_90
from calibrate.fit.runs import ConcurrentProcesses, DisturbedError, check_levels, choose_rounds, concurrent_processes, is_concurrent
from calibrate.fit.step_times import StepFit, StepTable, smooth
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
    Ready,
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
from simulator.base.text import digits, format_change
from simulator.base.validation_errors import rule_of
from simulator.job.costs import longest_wait_s
from simulator.spec.job import Duration, IteratorEnds, Overheads
from simulator.spec.layers import Layer
from simulator.spec.workload import Affine, Counted, ServerCost, Variable, Workload, WorkloadRange


def fit_overheads(runs: Sequence[Measurements], table: StepTable) -> tuple[Overheads | None, dict[str, str]]:
    """What the runs measured beside steps, and what the provenance says of it.

    Parameters
    ----------
    runs
        Measurements of one step, each of a process of its own.
    table
        Their plain steps, in the same order of runs.

    Returns
    -------
    Overheads or None
        None where the files have none of it.
    dict of str to str
        ``overheads``: how often it was measured; ``unmeasured``: what could not be, and why.
    """
    startups = [record.seconds for run in runs for record in run.of(StartUpTime)]
    tracings = _tracings(runs, table) if startups else []
    evaluations = [seconds for run in runs if (seconds := _first_evaluation(run)) is not None]
    written = [record for run in runs for record in run.of(CheckpointTime)]
    facts: dict[str, str] = {}
    if startups:
        checkpoints = f", {len(written)} checkpoints" if written else ""
        facts["overheads"] = f"{len(startups)} process{'es' if len(startups) > 1 else ''}{checkpoints}"
        if not all(record.of_process for run in runs for record in run.of(StartUpTime)):
            facts["overheads"] += "; start-up without that of the interpreter, which this system does not tell"
        if written and not all(record.cold for record in written):
            facts["overheads"] += "; checkpoints were read from the page cache"
    if failures := {record.what: record.why for run in runs for record in run.of(Unmeasured)}:
        facts["unmeasured"] = "; ".join(f"{what} could not be measured ({why})" for what, why in failures.items())
    fields: dict[str, Any] = {
        "startup": duration_of(startups),
        "tracing": duration_of(tracings),
        "evaluation_tracing": duration_of(evaluations),
        "iterators": iterator_ends([record for run in runs for record in run.of(IteratorEnd)]),
        **_of_checkpoints(runs, written),
    }
    found = {key: value for key, value in fields.items() if value is not None}
    return (Overheads(**found) if found else None), facts


def duration_of(values: Sequence[float]) -> Duration | None:
    """Mean of a time over runs, and the 90% prediction interval for one run more.

    The interval is Student's, of logarithms: ``mean ± t s sqrt(1 + 1/n)`` (as of a lognormal
    law, since a time is above zero); of times of which one is zero, it is taken without
    logarithms and cut off at zero. One value is taken as it is: it says nothing of a spread.

    >>> duration_of([2.0, 2.0, 2.0]).high_s
    2.0
    """
    if not values:
        return None
    times = np.asarray(values, dtype=float)
    mean = float(times.mean())
    low = high = mean
    if times.size > 1:
        t = float(stats.t.ppf(0.95, times.size - 1)) * math.sqrt(1.0 + 1.0 / times.size)
        if times.min() > 0:
            logs = np.log(times)
            half = t * float(logs.std(ddof=1))
            low, high = math.exp(float(logs.mean()) - half), math.exp(float(logs.mean()) + half)
        else:
            half = t * float(times.std(ddof=1))
            low, high = max(0.0, mean - half), mean + half
    value = digits(mean)
    return Duration(value_s=value, low_s=min(value, digits(low)), high_s=max(value, digits(high)))


def iterator_ends(records: Sequence[IteratorEnd]) -> IteratorEnds | None:
    """How many ends of iterators waited for the next turn of the thread that tunes them, of those that came well before it.

    One that waited took as long as was left until that turn, half of which nothing else takes; None without any that can be judged.
    """
    judged = [(record.wait_s, left_s) for record in records if (left_s := longest_wait_s(record.age_s)) >= _JUDGED_S]
    if not judged:
        return None
    return IteratorEnds(ended=len(judged), waited=sum(1 for wait_s, left_s in judged if wait_s > left_s / 2))


_JUDGED_S = 0.02
"""Time to the next turn from which on a wait for it can be distinguished from the work of ending an iterator, a millisecond or so."""


def _tracings(runs: Sequence[Measurements], table: StepTable) -> list[float]:
    """By which the first step of each run takes longer than the plain steps of the same batch size and run."""
    found = []
    for number, run in enumerate(runs):
        first = next(iter(run.of(WarmUp)), None)
        rounds = [] if first is None else [its for its, of in zip(table.rounds[first.batch], table.runs, strict=True) if of == number]
        if first is not None and rounds:
            found.append(max(0.0, first.seconds - float(np.concatenate(rounds).mean())))
    return found


def _first_evaluation(run: Measurements) -> float | None:
    """By which the first evaluation step of a run takes longer than the others."""
    times = [record.seconds for record in sorted(run.of(EvaluationTime), key=lambda record: record.index)]
    return max(0.0, times[0] - float(np.mean(times[1:]))) if len(times) > 1 else None


def _of_checkpoints(runs: Sequence[Measurements], written: Sequence[CheckpointTime]) -> dict[str, Any]:
    if not written:
        return {}
    size = float(np.mean([record.size_bytes for record in written]))
    writing = float(np.mean([record.write_s + record.sync_s for record in written]))
    reading = float(np.mean([record.restore_s for record in written]))
    # copies of one process are alike; processes differ
    snapshots = [float(np.mean([one.snapshot_s for one in its])) for run in runs if (its := run.of(CheckpointTime))]
    return {
        "checkpoint_bytes": digits(size),
        "write_bytes_per_s": digits(size / writing) if writing > 0 else None,
        "restore_bytes_per_s": digits(size / reading),
        "snapshot": duration_of(snapshots),
    }


def fit_layers(runs: Sequence[Measurements], table: StepTable, creation: Mapping[int, int]) -> tuple[tuple[Layer, ...], str]:
    """Layers with the time of each pass, what they hand on and keep, and their operations; empty where none were measured.

    Times are means over all steps with clocks between the layers, at the middle one of the
    batch sizes; steps that took more than 1.5 times as long as the fastest are left out. Bytes
    and operations for each sample are slopes between the smallest and the largest batch, so
    that what does not grow with the batch is no sample's.

    Parameters
    ----------
    runs
        The measurements, one a run.
    table
        The same runs' whole steps, to which the sum of the layers is compared.
    creation
        Place of each variable in the workload's order of creation, by the order that the records tell.

    Returns
    -------
    (tuple of Layer, str)
        The layers in the order of the forward pass; and how they were measured, and how far
        their sum is from forward and backward pass of the whole step, in words.

    Raises
    ------
    CalibrationError
        The records of layers are incomplete.
    """
    records = runs[0].of(LayerRecord)
    if not records:
        return (), ""
    times: dict[int, list[tuple[float, ...]]] = defaultdict(list)
    for run in runs:
        for one in run.of(LayerTimes):
            times[one.batch].append((*one.forward_s, *one.backward_s))
    by_batch = {batch: {one.index: one for one in records if one.batch == batch} for batch in sorted({one.batch for one in records})}
    small, large = (by_batch[batch] for batch in (min(by_batch), max(by_batch)))
    whole = len(by_batch) == 2 and list(small) == list(large) == list(range(len(small)))
    if not whole or any({len(row) for row in times[batch]} != {2 * len(small)} for batch in table.batches):
        raise CalibrationError(f"holds layers that are not complete: {CUT_SHORT}")
    means = {batch: smooth(np.array(times[batch])).mean(axis=0) for batch in table.batches}
    middle = table.batches[len(table.batches) // 2]
    forward, backward = means[middle][: len(small)], means[middle][len(small) :]
    layers = tuple(
        Layer(
            name=small[index].name,
            forward=digits(float(forward[index])),
            backward=digits(float(backward[index])),
            variables=tuple(sorted(creation[one] for one in small[index].variables if one in creation)),
            output_bytes_per_sample=_slope(small[index], large[index], "output_bytes") or 0.0,
            kept_bytes_per_sample=_slope(small[index], large[index], "kept_bytes") or 0.0,
            flops_per_sample=_slope(small[index], large[index], "flops"),
        )
        for index in range(len(small))
    )
    return layers, _in_words(means, table, middle, sum(len(one) for one in times.values()))


def _slope(small: LayerRecord, large: LayerRecord, field: str) -> float | None:
    low, high = getattr(small, field), getattr(large, field)
    if low is None or high is None:
        return None
    return max(0.0, float(high - low) / (large.batch - small.batch))


def _in_words(means: Mapping[int, NDArray[np.float64]], table: StepTable, middle: int, steps: int) -> str:
    ratios = []
    for batch in table.batches:
        of_step = table.mean(batch) * (table.share(batch, "forward") + table.share(batch, "backward"))
        ratios.append(f"{format_change(means[batch].sum() / of_step - 1.0)} at batch {batch}")
    return (
        f"mean seconds at batch {middle}, from {steps} steps with clocks between the layers; "
        f"their sum, less forward and backward pass of the whole step, is {', '.join(ratios)} of these"
    )


_MOST_SLOWDOWN = 10.0
"""By a busy core; no workload takes more."""


def fit_workload(
    measurements: Path | Sequence[Path],
    name: str,
    command: str = "",
    seed: int = 0,
    accept_disturbed: bool = False,
    stored: bool = False,
) -> Workload:
    """Fit a workload to the measurements of a step.

    Parameters
    ----------
    measurements
        File written by :func:`calibrate.profiling.profile_step`, or the files of several runs of the
        same step, from which the spread between runs is seen; and the files written by
        :func:`calibrate.profiling.profile_at_once`, from which is seen what processes of one machine
        have in common.
    name
        Of the workload.
    command
        Command line that made it, for the provenance.
    seed
        Of the bootstrap.
    accept_disturbed
        Fit measurements that cannot be trusted too, with a warning in the provenance:
        ``disturbed``.
    stored
        The files were not measured just now, but given: what they lack is bad input, exit code 2.

    Returns
    -------
    Workload
        Forward, backward and apply as affine functions of the batch, the law of step times,
        variables in the order in which their gradients become ready, 90% intervals and joint
        bootstrap draws.

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
    runs = [read_measurements(file) for file in files]
    for file, measured in zip(files, runs, strict=True):
        measured.check_probe("step", "files that `paceline calibrate` made")
        if len(headers := measured.of(Header)) > 1:
            raise MeasurementsError(
                f"{file}: has {len(headers)} headers: it is several files in one; give each of them as a file of its own"
            )
        if (replicas := measured.header.arguments.get("replicas") or 1) > 1:
            raise MeasurementsError(
                f"{file}: holds steps of {replicas} replicas on logical devices; a workload is of one: give files measured without"
            )
    _check_different(runs)
    alone = [run for run in runs if not is_concurrent(run)]
    if not alone:
        raise MeasurementsError(f"{files[0]}: is one of several processes at once, which alone are not fitted; give the runs too")
    measurements = alone[0].path
    try:
        chosen = choose_rounds(alone, accept_disturbed)
        table = StepTable.of(*alone, left_out=chosen.left_out)
        apart = check_levels(table, [run.path.name for run in alone], accept_disturbed)
        remarks = dict(chosen.remarks)
        if apart:
            remarks["disturbed"] = "; ".join(filter(None, (remarks.get("disturbed"), apart)))
        beside = [run for run in runs if is_concurrent(run)]
        together = concurrent_processes(beside, alone, accept_disturbed) if beside else None
        facts = provenance(alone, command) | {"runs": str(len(set(table.runs)))} | remarks
        return _fitted(alone, table, together, name, facts, seed)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        fault = ": ".join(filter(None, (".".join(map(str, problem["loc"])), rule_of(problem))))
        kind = MeasurementsError if stored else CalibrationError
        raise kind(f"{measurements}: gives no valid workload ({fault}); measure again") from None
    except CalibrationError as error:
        prefix = "" if str(error).startswith(str(measurements)) else f"{measurements}: "
        kind = MeasurementsError if stored and not isinstance(error, DisturbedError) else CalibrationError
        kept = ""
        if isinstance(error, DisturbedError) and not stored:
            given = " ".join(f"`from_measurements={str(file)!r}`" for file in files)
            kept = f"; nothing has to be measured again for that: leave out what is measured and give {given}"
        raise kind(f"{prefix}{error}{kept}") from None


def _check_different(runs: Sequence[Measurements]) -> None:
    """One run counted twice would look like two that agree."""
    seen: dict[str, Path] = {}
    for run in runs:
        if run.sha256 in seen:
            before = "given twice" if run.path == seen[run.sha256] else f"the same measurements as {seen[run.sha256]}"
            raise MeasurementsError(f"{run.path}: {before}, which would count one run as two; leave one of the two out")
        seen[run.sha256] = run.path


def _fitted(
    runs: Sequence[Measurements], table: StepTable, together: ConcurrentProcesses | None, name: str, facts: dict[str, str], seed: int
) -> Workload:
    measured = runs[0]
    rng = np.random.default_rng(seed)
    times = StepFit().fit(table, rng)
    assert times.draws_ is not None
    names, draws = list(times.parameters_), times.draws_
    intervals = intervals_90(names, draws)
    share = slowdown = None
    if together is not None:
        share, slowdown = together.share, together.slowdown
        intervals["run_to_run_shared"] = (digits(together.interval_90[0]), digits(together.interval_90[1]))
    if slowdown is not None:
        intervals["busy_core_slowdown"] = (digits(slowdown.interval_90[0]), digits(slowdown.interval_90[1]))
        draws = draws[:DRAWS_KEPT]
        clipped = np.clip(rng.normal(slowdown.value, slowdown.error, len(draws)), 0.0, _MOST_SLOWDOWN)
        names, draws = [*names, "busy_core_slowdown"], np.column_stack([draws, clipped])
    variables = _variables(measured)
    sizes = [variable.size_bytes for variable in variables]
    layers, of_layers = fit_layers(runs, table, _creation(measured))
    overheads, of_overheads = fit_overheads(runs, table)
    fingerprint = measured.fingerprint
    device = f"{fingerprint.device_name} ({fingerprint.device_kind})"
    model, batches = _model(measured), f"{table.batches[0]} to {table.batches[-1]}"
    return Workload(
        name=name,
        description=f"{model or name}: batches of {batches} on {device}, {fingerprint.software}",
        model=model,
        backend=fingerprint.backend,
        precision=measured.header.arguments.get("precision", "float32"),
        **times.fields(),
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
        fit=times.quality(intervals, {str(record.batch): float(record.peak_bytes) for record in measured.of(Memory)}),
        provenance=facts
        | of_overheads
        | ({"at_once": together.text} if together is not None else {})
        | ({"layers": of_layers} if layers else {}),
        counted=_counted(measured),
        layers=layers,
        overheads=overheads,
    )


def _server_cost(measured: Measurements) -> ServerCost:
    """Seconds to apply one gradient tensor on a CPU, per tensor and per byte; zero where it was not measured."""
    records = measured.of(ServerTime)
    chain = ChainSlope().fit(
        [one.size_bytes for one in records],
        [one.applies for one in records],
        [one.round for one in records],
        [one.seconds for one in records],
    )
    sizes, seconds, errors = chain.points()
    if len(sizes) < 2:
        return ServerCost()
    cost = AffineCost().fit(sizes, seconds, errors)
    return ServerCost(base_s=digits(cost.base_), per_byte_s=digits(cost.slope_))


def _device_work(runs: Sequence[Measurements], table: StepTable) -> Affine | None:
    """Of a processor: its seconds in a step over its cores, by batch; none of another device, or where it was not measured.

    Threads that wait for work spin for a while, which counts as work: that is the most that
    a step needs of the processor.
    """
    if runs[0].fingerprint.device_kind != "CPU":
        return None
    cores = max((record.cores for run in runs for record in run.of(Load)), default=0)
    used = {batch: [one.cpu_s for run in runs for one in run.of(StepTime) if one.batch == batch] for batch in table.batches}
    seconds = {batch: [one for one in each if one is not None] for batch, each in used.items()}
    if not cores or any(len(seconds[batch]) < len(used[batch]) for batch in used):
        return None
    line = AffineMean().fit(list(seconds), [math.fsum(each) / len(each) / cores for each in seconds.values()])
    return Affine(base_s=digits(line.base_), per_sample_s=digits(line.slope_))


def _model(measured: Measurements) -> str:
    """The file that builds what was measured, without its ending: by this name other workloads of it are known."""
    arguments = measured.header.arguments
    target = arguments.get("model") or arguments.get("step") or ""
    return Path(str(target).rpartition(":")[0]).stem


def _counted(measured: Measurements) -> Counted | None:
    """Operations and bytes as a line through the smallest and the largest batch; none where a step could not be counted."""
    found = [
        (record.batch, record.flops, record.bytes, record.kernels)
        for record in sorted(measured.of(CountedStep), key=lambda record: record.batch)
        if record.flops and record.bytes and record.kernels
    ]
    if len(found) < 2 or len(found) < len(measured.of(CountedStep)):
        return None
    (fewest, _, first_bytes, _), (most, flops, last_bytes, kernels) = found[0], found[-1]
    slope = max(0.0, (last_bytes - first_bytes) / (most - fewest))
    return Counted(
        flops_per_sample=digits(flops / most),
        base_bytes=digits(max(0.0, last_bytes - slope * most)),
        per_sample_bytes=digits(slope),
        kernels=kernels,
    )


def in_order_of_readiness(variables: Sequence[Variable]) -> tuple[Variable, ...]:
    """Variables in the order in which their gradients become ready, the last of them at the end of the backward pass.

    Where gradients become ready together, that of the variable created last comes first, as backward passes run.
    """
    ordered = sorted(variables, key=lambda one: (one.ready, -one.creation_index))
    # medians of shares end just below 1; the last gradient is ready when the pass ends
    last = ordered[-1].ready
    return tuple(one.model_copy(update={"ready": min(round(one.ready / last, 6), 1.0) if last > 0 else 1.0}) for one in ordered)


def _variables(measured: Measurements) -> tuple[Variable, ...]:
    """Variables with size, creation order, readiness and the bytes of sparse gradients.

    ``ready`` is the median over all steps with clocks inside of the time from the loss to
    the gradient, divided by the time from the loss to the last gradient. Where gradients
    were computed outside any ``tf.function`` their times cannot be seen, and each counts
    as ready at the end of the backward pass.
    """
    records = sorted(measured.of(VariableRecord), key=lambda record: (record.created, record.index))
    if not records:
        raise CalibrationError(f"holds no variables: {CUT_SHORT}")
    # by index, so that two records of one variable break the rule that each has a place of its own
    creation = {record.index: place for place, record in enumerate(records)}
    shares, sparse = _ready_shares(measured), _sparse_bytes_per_sample(measured)
    return in_order_of_readiness(
        [
            Variable(
                name=record.name,
                size_bytes=record.size_bytes,
                creation_index=creation[record.index],
                ready=shares.get(record.index, 1.0),
                # a scalar has no rows to be cut between
                rows=record.shape[0] if record.shape and record.shape[0] > 0 else None,
                # of a matrix they follow from its rows
                columns=record.shape[-1] if len(record.shape) > 2 and record.shape[-1] > 0 else None,
                sparse_bytes_per_sample=sparse.get(record.index),
            )
            for record in records
        ]
    )


def _creation(measured: Measurements) -> dict[int, int]:
    """Place of each variable among those of the workload, by its place among those of the model."""
    return {created: place for place, created in enumerate(sorted(record.created for record in measured.of(VariableRecord)))}


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
