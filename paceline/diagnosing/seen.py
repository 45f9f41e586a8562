"""What was seen of a real run, as far as a diagnosis uses it: its step time, and what is known of where that went."""

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
"""Standard error, as a share, of a step time of which nothing is known but itself."""
LEAST_ERROR = 0.005
"""The least of one that was measured several times: two processes differ that much on the quietest machines."""


class Seen(Observed):
    """One run, or several alike, with one number of workers.

    Times are those of a step, in seconds: the mean over the steady steps, without what stands between steps where that is known.
    What lists workers has one value for each of them, in their order; an empty list was not measured.
    """

    step_s: float = Field(gt=0, description="time of a step")
    error: float = Field(default=_OF_A_NUMBER, gt=0, description="standard error of it, as a share")
    is_average: bool = Field(default=False, description="a number that may hold start-up, checkpoints and evaluations")
    between_s: float = Field(default=0.0, ge=0, description="what stands between steps, such as checkpoints, as time for each step")
    between_error_s: float = Field(default=0.0, ge=0, description="standard error of that")
    between_every: int | None = Field(default=None, ge=1, description="steps after which that comes again; null: not regularly")
    start_s: float = Field(default=0.0, ge=0, description="what the first steps took longer, as time for each step of the run")
    own_step_s: tuple[float, ...] = Field(default=(), description="of each worker, where they do not wait for each other")
    compute_s: tuple[float, ...] = Field(default=(), description="what each worker's device computes")
    input_s: tuple[float, ...] = Field(default=(), description="for how long each worker waits for its input")
    cpu_s: tuple[float, ...] = Field(default=(), description="processor time of each worker's process")
    source: str = Field(default="", description="where it comes from, in words")
    quantity: Quantity | None = Field(default=None, description="how it was typed; null: it was recorded")

    @field_validator("compute_s", "cpu_s")
    @classmethod
    def _is_measured(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        """Nothing computes for no time: such columns are there and not filled."""
        return value if all(each > 0.0 for each in value) else ()

    @property
    def whole_s(self) -> float:
        """Time of a step with what stands between steps, in seconds: what its throughput tells."""
        return self.step_s + self.between_s

    @property
    def uneven(self) -> float | None:
        """How much longer the slowest worker computes than the middle one; None where it is not known."""
        each = self.compute_s or self.own_step_s
        return max(each) / statistics.median_low(each) if len(each) > 1 else None

    @property
    def slowest(self) -> int:
        """The worker that computes longest, from 0 on; the first where that is not known."""
        each = self.compute_s or self.own_step_s
        return max(range(len(each)), key=each.__getitem__) if len(each) > 1 else 0


def seen_in_figures(quantity: Quantity, values: Mapping[int | str, float], told: Scenario) -> list[Seen]:
    """Figures of one kind by their counts, as somebody types them (:func:`calibrate.observations.observed_at`).

    Raises
    ------
    InputError
        A count is none, or there is nothing else than one device alone without servers.
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
    """A run of which averages are known, from repeats or one."""
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
    """Times of epochs by their counts, in seconds, and what had to be taken for granted.

    Parameters
    ----------
    values
        Seconds of an epoch.
    told
        The scenario, whose ``job.dataset_size`` says how many samples an epoch has.
    dataset_size
        The same, in its place; None, with none in the scenario either: the smallest run is as fast as predicted.
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
            f"how many samples an epoch has is not known; {dataset_size:,.0f} are those with which {observed[first].name} would be as "
            "fast as predicted (give the data set's size with --dataset-size)"
        )
    seen = [
        _averaged(own, [values[count] * samples_of_step(own, told) / dataset_size], f"--epoch {count}", "epoch_s")
        for count, own in observed.items()
    ]
    return seen, remarks


def seen_in_points(settings: Iterable[Setting], told: Scenario, source: str) -> list[Seen]:
    """Speeds of a file of measured points; rows of the same setting are repeats."""
    seen = []
    for setting in settings:
        observed = _alone_if_it_is(Observed(workers=setting.workers, servers=setting.servers, batch=setting.batch), told)
        samples = samples_of_step(observed, told)
        steps_s = [samples / rate for rate in setting.as_throughput(told).throughput]
        seen.append(_averaged(observed, steps_s, f"{source}:{setting.line}", setting.quantity))
    return seen


def _alone_if_it_is(observed: Observed, told: Scenario) -> Observed:
    """A run of one worker as that of one device alone, where it is nothing else."""
    if observed.workers > 1 or observed.servers:
        return observed
    scenario = observed.scenario_of(told)
    return observed.model_copy(update={"devices": 1}) if scenario.ranks == 1 and not scenario.servers else observed


def seen_in_runs(runs: Sequence[tuple[int | str | None, RecordedRun]], told: Scenario) -> tuple[list[Seen], list[str]]:
    """Records of the steps of runs, each of one worker, with its count where the file does not tell it.

    Runs of as many workers are the workers of one training. What is not steady does not count; what is said of it is returned beside.
    The batch that a record tells is that of its run, whatever the scenario's is.

    Raises
    ------
    InputError
        A file does not tell how many workers there were, and nobody else does, or it tells otherwise; more workers were recorded than
        there were; or a run has no steady part.

    Warns
    -----
    ReadingWarning
        A file's figures look wrong, or are of another training.
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
            remarks.append(f"{run.name}: holds {counted(len(run), 'mean' if run.each != 'step' else 'step')} only, taken as they are")
        else:
            together.setdefault(observed, []).append(record)
    for observed, records in sorted(together.items(), key=lambda pair: pair[0].workers):
        if len(records) > observed.workers:
            raise InputError(
                f"{records[-1].run.name}: is the record of worker {len(records)} of {observed.workers}; say of how many workers each file "
                "is"
            )
        seen.append(_seen_together(observed, records, waits=not told.strategy.pace.asynchronous))
    return seen, remarks


def _observed_in(count: int | str | None, run: RecordedRun, told: Scenario) -> Observed:
    """Number of workers and batch of a record."""
    facts = run.facts
    if count is None and facts.workers is None and facts.devices_in_all is not None:
        count = f"{facts.devices_in_all} devices"
    if count is None:
        count = facts.workers
    if count is None:
        raise InputError(f"{run.name}: does not say of how many workers it is; say it, such as --run 8={run.source}")
    observed = _alone_if_it_is(observed_at(count, told, f"--run {count}"), told)
    # one process may drive all replicas
    if (facts.workers or 1) > 1 and facts.workers != observed.workers:
        raise InputError(
            f"{run.name}: was recorded with {facts.workers:,} workers, not {observed.workers:,}; say --run {facts.workers}={run.source}"
        )
    return observed.model_copy(update={"batch": _batch_in(facts, observed, told)})


def _batch_in(facts: Facts, observed: Observed, told: Scenario) -> int | None:
    """The batch of a record, as :class:`Observed` has it; None where the record tells none, or the scenario's."""
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
    """One training, of which some workers were recorded."""
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
    """Fields of :class:`Seen` of the workers of one training: of some rows of the record of each, and their mean steps."""

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
    """Time by which the first steps are longer than steady ones, spread over all steps of the run."""
    beyond_s = math.fsum(apart.extra_s for apart in record.apart if apart.why in ("first", "epoch"))
    return beyond_s / max(int(record.run.counts.sum()), 1)


def check_seen(seen: Sequence[Seen], told: Scenario) -> None:
    """Check that what was seen can be compared.

    Raises
    ------
    InputError
        There is nothing, or nothing but one device alone; or the same setting twice.
    """
    if not seen:
        raise InputError("nothing was seen; give step times such as --step 1=60ms --step 8=170ms, or files with --run")
    if not told.strategy.count_key:
        raise InputError(f'strategy.kind = "{told.strategy.kind}" has one device; give the scenario of the run on several')
    if all(own.alone for own in seen):
        raise InputError(f"only {seen[0].name} was seen; give the step time of several workers too, such as --step 8=170ms")
    keys = [(own.workers, own.devices, own.servers, own.batch) for own in seen]
    for place, key in enumerate(keys):
        if key in keys[:place]:
            raise InputError(f"{seen[place].name}: is given twice; keep one, or put repeats into a file for --run")
