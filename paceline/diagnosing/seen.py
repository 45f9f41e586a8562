"""Observations of a real run that a diagnosis uses: its step time, and the known parts of it."""

from __future__ import annotations

import math
import statistics
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from calibrate.observations import Observed, Quantity, differences, observed_at, samples_of_step, throughput_of
from calibrate.recorded.run import Facts, RecordedRun
from calibrate.recorded.steadiness import FEWEST_STEADY, Steadiness, steadiness_of
from calibrate.validation.points import Setting
from simulator.base.errors import InputError, ReadingWarning
from simulator.base.text import counted
from simulator.scenario import Scenario

_OF_A_NUMBER = 0.03
"""Standard error, as a share, of a single step time."""
LEAST_ERROR = 0.005
"""Least standard error of repeated measurements, since processes differ that much even on quiet machines."""


class Seen(Observed):
    """A run, or several equal ones, with one number of workers.

    Times are seconds per step: the mean over steady steps, without time between steps where that is known. Lists have a value for each
    worker, in order; an empty list was not measured.
    """

    step_s: float = Field(gt=0, description="time of a step")
    error: float = Field(default=_OF_A_NUMBER, gt=0, description="its standard error, as a share")
    is_average: bool = Field(default=False, description="whether the time may include start-up, checkpoints and evaluations")
    between_s: float = Field(default=0.0, ge=0, description="time between steps, such as checkpoints, per step")
    between_error_s: float = Field(default=0.0, ge=0, description="its standard error")
    between_every: int | None = Field(default=None, ge=1, description="number of steps between such pauses; null: irregular")
    start_s: float = Field(default=0.0, ge=0, description="extra time of the first steps, per step of the run")
    own_step_s: tuple[float, ...] = Field(default=(), description="step of each worker, if they do not wait for each other")
    compute_s: tuple[float, ...] = Field(default=(), description="compute time of each worker's device")
    input_s: tuple[float, ...] = Field(default=(), description="time that each worker waits for input")
    cpu_s: tuple[float, ...] = Field(default=(), description="processor time of each worker's process")
    source: str = Field(default="", description="its source, in words")
    quantity: Quantity | None = Field(default=None, description="the option that gave it; null: recorded")

    @field_validator("compute_s", "cpu_s")
    @classmethod
    def _is_measured(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        """Return whether a column has values; a compute time of 0 means that it is not filled."""
        return value if all(each > 0.0 for each in value) else ()

    @property
    def whole_s(self) -> float:
        """Seconds per step including time between steps, which determines throughput."""
        return self.step_s + self.between_s

    @property
    def uneven(self) -> float | None:
        """Ratio of the slowest worker's compute time to the median; None if unknown."""
        each = self.compute_s or self.own_step_s
        return max(each) / statistics.median_low(each) if len(each) > 1 else None

    @property
    def slowest(self) -> int:
        """Index of the worker with the longest compute time; the first if unknown."""
        each = self.compute_s or self.own_step_s
        return max(range(len(each)), key=each.__getitem__) if len(each) > 1 else 0


def seen_in_figures(quantity: Quantity, values: Mapping[int | str, float], told: Scenario) -> list[Seen]:
    """Return runs from figures of one kind by counts, as they are typed (:func:`calibrate.observations.observed_at`).

    Raises
    ------
    InputError
        A count is invalid, or the only run is a single device without servers.
    """
    seen = []
    for count, value in values.items():
        observed = observed_at(count, told, f"--{_OPTIONS[quantity]} {count}")
        if len(values) == 1 and observed.alone and told.servers:  # one worker with servers, which is what people try first
            observed = Observed(workers=1)
        step_s = samples_of_step(observed, told) / throughput_of(quantity, value, observed, told)
        seen.append(_averaged(observed, [step_s], f"--{_OPTIONS[quantity]} {count}", quantity))
    return seen


def _averaged(observed: Observed, steps_s: Sequence[float], source: str, quantity: Quantity | None = None) -> Seen:
    """Return a run from averages of one or several repeats."""
    error = _OF_A_NUMBER
    if len(steps_s) > 1:
        error = max(statistics.stdev(steps_s) / statistics.fmean(steps_s) / math.sqrt(len(steps_s)), LEAST_ERROR)
    mean_s = statistics.fmean(steps_s)
    return Seen(**dict(observed), step_s=mean_s, error=error, is_average=True, source=source, quantity=quantity)


_OPTIONS: Mapping[Quantity, str] = {
    "step_time_s": "step", "throughput": "throughput", "steps_per_s": "steps-per-s", "epoch_s": "epoch",
}  # fmt: skip


def seen_in_epochs(
    values: Mapping[int | str, float], told: Scenario, dataset_size: float | None, predicted_s: Callable[[Observed], float]
) -> tuple[list[Seen], list[str]]:
    """Return runs from times of epochs by counts, and the assumptions made.

    Parameters
    ----------
    values
        Seconds of an epoch.
    told
        The scenario, whose ``job.dataset_size`` gives the samples of an epoch.
    dataset_size
        Samples of an epoch, instead. If neither gives it, the smallest run is assumed to be as fast as predicted.
    predicted_s
        The predicted step of a run, in seconds.
    """
    remarks: list[str] = []
    if not values:
        return [], remarks
    observed = {count: observed_at(count, told, f"--epoch {count}") for count in values}
    if dataset_size is None and told.job is not None:
        dataset_size = told.job.epoch_samples
    if dataset_size is None:
        first = min(observed, key=lambda count: (observed[count].workers, not observed[count].alone))
        dataset_size = samples_of_step(observed[first], told) * values[first] / predicted_s(observed[first])
        remarks.append(
            f"the samples of an epoch are unknown; {dataset_size:,.0f} are those with which {observed[first].name} would be as "
            "fast as predicted (give the data set's size with --dataset-size)"
        )
    seen = [
        _averaged(own, [values[count] * samples_of_step(own, told) / dataset_size], f"--epoch {count}", "epoch_s")
        for count, own in observed.items()
    ]
    return seen, remarks


def seen_in_points(settings: Iterable[Setting], told: Scenario, source: str) -> list[Seen]:
    """Return runs from a file of measured points; rows with the same setting are repeats."""
    seen = []
    for setting in settings:
        observed = _alone_if_it_is(Observed(workers=setting.workers, servers=setting.servers, batch=setting.batch), told)
        samples = samples_of_step(observed, told)
        steps_s = [samples / rate for rate in setting.as_throughput(told).throughput]
        seen.append(_averaged(observed, steps_s, f"{source}:{setting.line}", setting.quantity))
    return seen


def _alone_if_it_is(observed: Observed, told: Scenario) -> Observed:
    """Return a run of one worker as that of a single device, if it is equivalent."""
    if observed.workers > 1 or observed.servers:
        return observed
    scenario = observed.scenario_of(told)
    return observed.model_copy(update={"devices": 1}) if scenario.ranks == 1 and not scenario.servers else observed


def seen_in_runs(runs: Sequence[tuple[int | str | None, RecordedRun]], told: Scenario) -> tuple[list[Seen], list[str]]:
    """Return runs from recorded steps of single workers, with their numbers of workers where the files lack them.

    Files with the same number of workers belong to one training. Only steady steps count; remarks on others are returned too. A recorded
    batch takes precedence over the scenario's.

    Raises
    ------
    InputError
        The number of workers of a file is missing or contradicts the given one; more workers were recorded than exist; or a run has no
        steady part.

    Warns
    -----
    ReadingWarning
        A file's figures look wrong, or belong to another training.
    """
    together: dict[Observed, list[Steadiness]] = {}
    seen: list[Seen] = []
    remarks: list[str] = []
    for count, run in runs:
        observed = _observed_in(count, run, told)
        record = steadiness_of(run)
        # means of many steps, and what was traced, are few
        few = record.steady is None and len(run) < FEWEST_STEADY and (run.each != "step" or run.kind == "profile")
        if record.steady is None and not few:
            kinds = f" ({record.rare.text})" if record.rare is not None else ""
            raise InputError(
                f"{run.name}: {record.why_not}{kinds}; record more steps, or give the time of a step with --step {observed.workers}=TIME"
            )
        for doubt in (*record.doubts, *differences(run, observed.model_copy(update={"batch": None}).scenario_of(told))):
            warnings.warn(doubt, ReadingWarning, stacklevel=2)
        remarks += [f"{run.name}: {remark}" for remark in record.remarks]
        if few:
            seen.append(_averaged(observed, [float((run.duration_s * (run.counts / run.counts.sum())).sum())], run.source))
            remarks.append(f"{run.name}: has only {counted(len(run), 'mean' if run.each != 'step' else 'step')}, all of which are used")
        else:
            together.setdefault(observed, []).append(record)
    for observed, records in sorted(together.items(), key=lambda pair: pair[0].workers):
        if len(records) > observed.workers:
            raise InputError(
                f"{records[-1].run.name}: is the record of worker {len(records)} of {observed.workers}; give the workers of each file"
            )
        seen.append(_seen_together(observed, records, waits=not told.strategy.pace.asynchronous))
    return seen, remarks


def _observed_in(count: int | str | None, run: RecordedRun, told: Scenario) -> Observed:
    """Return number of workers and batch of a record."""
    facts = run.facts
    if count is None and facts.workers is None and facts.devices_in_all is not None:
        count = f"{facts.devices_in_all} devices"
    if count is None:
        count = facts.workers
    if count is None:
        raise InputError(f"{run.name}: lacks the number of workers; give it, such as --run 8={run.source}")
    observed = _alone_if_it_is(observed_at(count, told, f"--run {count}"), told)
    # one process may drive all replicas
    if (facts.workers or 1) > 1 and facts.workers != observed.workers:
        raise InputError(
            f"{run.name}: was recorded with {facts.workers:,} workers, not {observed.workers:,}; write --run {facts.workers}={run.source}"
        )
    return observed.model_copy(update={"batch": _batch_in(facts, observed, told)})


def _batch_in(facts: Facts, observed: Observed, told: Scenario) -> int | None:
    """Return the batch of a record, for :class:`Observed`; None if the record has none, or the scenario's."""
    scenario = observed.scenario_of(told)
    replicas = 1 if observed.alone else scenario.replicas
    together = facts.global_batch
    if together is None and facts.batch is not None:
        together = facts.batch * (scenario.replicas if scenario.layout.one_process else scenario.workers)
    if together is None or together % replicas:
        return None
    own = together if told.workload.global_batch is not None else together // replicas
    usual = told.workload.global_batch if told.workload.global_batch is not None else told.batch
    return None if own == usual else own


def _seen_together(observed: Observed, records: Sequence[Steadiness], *, waits: bool) -> Seen:
    """Return one training from the records of some of its workers."""
    levels = [(record, level) for record in records if (level := record.steady) is not None]
    rare = [record.rare_per_step_s(level) for record, level in levels]
    steps = [record.mean_s(level) for record, level in levels]
    errors = [record.error_s(level) / step for (record, level), step in zip(levels, steps, strict=True)]
    beside_errors = [math.hypot(*(periodic.error_s / periodic.every for periodic in record.periodic)) for record in records]
    beside = [own + math.fsum(periodic.per_step_s for periodic in record.periodic) for record, own in zip(records, rare, strict=True)]
    known = measured_in([(record, record.rows_of(level)) for record, level in levels], steps, waits=waits)
    # workers that wait for each other wait for what holds up one of them; of others, each makes its own throughput less
    whole = [step + more for step, more in zip(steps, beside, strict=True)]
    between_s = max(beside) if waits else statistics.harmonic_mean(whole) - known["step_s"]
    every = next((periodic.every for record in records for periodic in record.periodic), None)
    return Seen(
        **dict(observed),
        **known,
        error=max(statistics.fmean(errors), LEAST_ERROR),
        between_s=max(between_s, 0.0),
        between_error_s=max(beside_errors) if waits else math.hypot(*beside_errors) / len(records),
        between_every=every if not any(rare) else None,
        start_s=max(_start_s(record) for record in records),
    )


def measured_in(workers: Sequence[tuple[Steadiness, NDArray[np.int64]]], steps_s: Sequence[float], *, waits: bool) -> dict[str, Any]:
    """Return fields of :class:`Seen` for one training, from rows of its workers' records and their mean steps."""

    def means(name: str) -> tuple[float, ...]:
        values = [values[np.isfinite(values)] for values in (getattr(record.run, name)[rows] for record, rows in workers)]
        return tuple(float(known.mean()) for known in values) if all(map(len, values)) else ()

    return {
        "step_s": statistics.fmean(steps_s) if waits else statistics.harmonic_mean(steps_s),
        "own_step_s": () if waits else tuple(steps_s),
        **{name: means(name) for name in ("compute_s", "input_s", "cpu_s")},
        "source": ", ".join(dict.fromkeys(record.run.source for record, _ in workers)),
    }


def _start_s(record: Steadiness) -> float:
    """Return the extra time of the first steps compared with steady ones, spread over all steps of the run."""
    beyond_s = math.fsum(apart.extra_s for apart in record.apart if apart.why in ("first", "epoch"))
    return beyond_s / max(int(record.run.counts.sum()), 1)


def check_seen(seen: Sequence[Seen], told: Scenario) -> None:
    """Check that the runs can be compared.

    Raises
    ------
    InputError
        There is no run, only a single device, or a setting twice.
    """
    if not seen:
        raise InputError("no runs are given; give step times such as --step 1=60ms --step 8=170ms, or files with --run")
    if not told.strategy.count_key:
        raise InputError(f'strategy.kind = "{told.strategy.kind}" has one device; give the scenario of the run on several devices')
    if all(own.alone for own in seen):
        raise InputError(f"only {seen[0].name} is given; give the step time of several workers too, such as --step 8=170ms")
    keys = [(own.workers, own.devices, own.servers, own.batch) for own in seen]
    for place, key in enumerate(keys):
        if key in keys[:place]:
            raise InputError(f"{seen[place].name}: is given twice; keep one, or put repeats into a file for --run")
