"""What was seen of a real run, as far as a diagnosis uses it: its step time, and what is known of where that went."""

from __future__ import annotations

import math
import statistics
import warnings
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from calibrate.fit.estimators import variance_of_mean
from calibrate.recorded.run import RecordedRun
from calibrate.recorded.steadiness import Steadiness, steadiness_of
from calibrate.validation.points import Setting
from simulator.base.errors import InputError, ReadingWarning
from simulator.base.spec import Spec
from simulator.base.text import counted
from simulator.results.what_if import changed, with_strategy
from simulator.scenario import Scenario
from simulator.spec.workload import Workload

__all__ = ["Seen", "another_model", "as_settings", "scenario_of", "seen_in_points", "seen_in_runs", "seen_in_steps", "seen_in_throughputs"]

_STANDS_OUT = 3.0
"""A step that takes so many medians is no step like the others."""
_OF_A_NUMBER = 0.03
"""Standard error, as a share, of a step time of which nothing is known but itself."""
_LEAST = 0.005
"""The least of one that was measured several times: two processes differ that much on the quietest machines."""
_PARAMETERS = 0.02
"""How far numbers of parameters may differ, as a logarithm, that are of one model."""
_BYTES = (4.0, 2.0, 8.0)
"""Of a parameter, as a gradient or a variable may hold it."""


class Seen(Spec):
    """One run, or several alike, with one number of workers.

    Times are those of a step, in seconds: the mean over the steady steps, without what stands between steps where that is known.
    What lists workers has one value for each of them, in their order; an empty list was not measured.
    """

    workers: int = Field(ge=1, description="workers, or replicas where one process drives all")
    servers: int | None = Field(default=None, ge=0, description="parameter servers; null: as the scenario has them")
    batch: int | None = Field(default=None, ge=1, description="samples of a worker's step; null: as the scenario has it")
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

    @field_validator("compute_s", "cpu_s")
    @classmethod
    def _is_measured(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        """Nothing computes for no time: such columns are there and not filled."""
        return value if all(each > 0.0 for each in value) else ()

    @property
    def name(self) -> str:
        """In words, such as ``8 workers``."""
        return counted(self.workers, "worker")

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


def scenario_of(scenario: Scenario, seen: Seen) -> Scenario:
    """The scenario with workers, servers and batch as they were.

    Raises
    ------
    ScenarioError
        They break a rule of it.
    """
    strategy = scenario.strategy.with_count(seen.workers)
    if seen.servers is not None:
        strategy = strategy.with_servers(seen.servers)
    load = scenario.workload
    if seen.batch is not None and load.batch_per_replica is not None:
        load = load.model_copy(update={"batch_per_replica": seen.batch})
    return with_strategy(changed(scenario, workload=load) if load is not scenario.workload else scenario, strategy)


def seen_in_steps(steps_s: Mapping[int, float]) -> list[Seen]:
    """Step times by the number of workers, as somebody types them."""
    return [Seen(workers=workers, step_s=value, is_average=True, source="given") for workers, value in sorted(steps_s.items())]


def seen_in_throughputs(rates: Mapping[int, float], scenario: Scenario) -> list[Seen]:
    """Throughputs in samples/s of all workers together, by their number."""
    return [
        Seen(workers=workers, step_s=_step_s(scenario, workers, rate), is_average=True, source="given")
        for workers, rate in sorted(rates.items())
    ]


def seen_in_points(settings: Iterable[Setting], scenario: Scenario, source: str) -> list[Seen]:
    """Throughputs of a file of measured points; rows of the same setting are repeats."""
    found = []
    for its in settings:
        batch = its.batch if scenario.workload.batch_per_replica is not None else None
        steps = [_step_s(scenario, its.workers, rate, batch) for rate in its.throughput]
        own = Seen(
            workers=its.workers, servers=its.servers, batch=batch, step_s=statistics.fmean(steps), error=_error(steps),
            is_average=True, source=source,
        )  # fmt: skip
        found.append(own)
    return found


def seen_in_runs(runs: Sequence[tuple[int | None, RecordedRun]], scenario: Scenario) -> tuple[list[Seen], list[str]]:
    """What was recorded of the steps of runs, each of one worker, with the number of workers where the file does not tell it.

    Runs of as many workers are the workers of one training. What is not steady does not count; what is said of it is returned beside.

    Raises
    ------
    InputError
        A file does not tell how many workers there were, and nobody else does, or it tells otherwise; more workers were recorded than
        there were; or a run has no steady part.

    Warns
    -----
    ReadingWarning
        A file's figures look wrong, or are of another model.
    """
    together: dict[int, list[Steadiness]] = {}
    remarks: list[str] = []
    for workers, run in runs:
        facts = run.facts
        count = workers if workers is not None else facts.workers
        if count is None:
            raise InputError(f"{run.name}: does not say of how many workers it is; say it, such as --run 8={run.source}")
        # one process may drive all replicas
        if (facts.workers or 1) > 1 and facts.workers != count:
            raise InputError(
                f"{run.name}: was recorded with {facts.workers:,} workers, not {count:,}; say --run {facts.workers}={run.source}"
            )
        its = steadiness_of(run)
        if its.steady is None:
            raise InputError(f"{run.name}: {its.why_not}; record more steps, or give the time of a step with --step {count}=TIME")
        for doubt in (*its.doubts, *filter(None, [another_model(run, scenario.workload)])):
            warnings.warn(doubt, ReadingWarning, stacklevel=2)
        remarks += [f"{run.name}: {remark}" for remark in its.remarks]
        together.setdefault(count, []).append(its)
    found = []
    for count, each in sorted(together.items()):
        if len(each) > count:
            raise InputError(f"{each[-1].run.name}: is the record of worker {len(each)} of {count}; say of how many workers each file is")
        found.append(_seen_together(count, each, waits=not scenario.strategy.pace.asynchronous))
    return found, remarks


def another_model(run: RecordedRun, load: Workload) -> str | None:
    """In words, why a run is of another model than a workload; None where nothing says so."""
    parameters = run.facts.parameters
    if not parameters or not load.parameter_bytes:
        return None
    each = load.parameter_bytes / parameters
    if min(abs(math.log(each / size)) for size in _BYTES) <= _PARAMETERS:
        return None
    return (
        f"{run.name}: is of a model of {parameters:,} parameters, and the workload {load.name} has "
        f"{load.parameter_bytes / _BYTES[0]:,.0f} of four bytes: is it another model?"
    )


def _seen_together(workers: int, each: Sequence[Steadiness], *, waits: bool) -> Seen:
    """One training, of which some workers were recorded."""
    rare = [_rare_s(its) for its in each]
    steps = [its.mean_s(its.steady) - own for its, own in zip(each, rare, strict=True) if its.steady is not None]
    errors = [_error_without(its) for its in each]
    beside_errors = [math.hypot(*(periodic.error_s / periodic.every for periodic in its.periodic)) for its in each]
    beside = [own + math.fsum(periodic.per_step_s for periodic in its.periodic) for its, own in zip(each, rare, strict=True)]
    step_s = statistics.fmean(steps) if waits else statistics.harmonic_mean(steps)
    # workers that wait for each other wait for what holds up one of them; of others, each makes its own throughput less
    whole = [step + more for step, more in zip(steps, beside, strict=True)]
    between_s = max(beside) if waits else statistics.harmonic_mean(whole) - step_s
    every = next((periodic.every for its in each for periodic in its.periodic), None)
    batches = {its.run.facts.batch for its in each} - {None}

    def means(name: str) -> tuple[float, ...]:
        found = tuple(_steady_mean(its, name) for its in each)
        return found if all(math.isfinite(one) for one in found) else ()

    return Seen(
        workers=workers,
        batch=batches.pop() if len(batches) == 1 else None,
        step_s=step_s,
        error=max(statistics.fmean(errors), _LEAST),
        between_s=max(between_s, 0.0),
        between_error_s=max(beside_errors) if waits else math.hypot(*beside_errors) / len(each),
        between_every=every if not any(rare) else None,
        start_s=max(_start_s(its) for its in each),
        own_step_s=() if waits else tuple(steps),
        compute_s=means("compute_s"),
        input_s=means("input_s"),
        cpu_s=means("cpu_s"),
        source=", ".join(dict.fromkeys(its.run.source for its in each)),
    )


def _long(its: Steadiness) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Times of the steady steps, and which of them stand out."""
    assert its.steady is not None
    times = its.run.duration_s[its.rows_of(its.steady)]
    return times, times > _STANDS_OUT * float(np.median(times))


def _rare_s(its: Steadiness) -> float:
    """What steps that stand out, at no regular interval, take beyond the median, for each step."""
    times, long = _long(its)
    return float(np.sum(times[long] - np.median(times)) / len(times))


def _error_without(its: Steadiness) -> float:
    """Standard error of the mean of the other steps, as a share."""
    times, long = _long(its)
    rest = times[~long]
    deviation = float(np.std(rest, ddof=1)) if len(rest) > 1 else 0.0
    return deviation / float(rest.mean()) * math.sqrt(variance_of_mean(max(len(rest), 2), its.persistence))


def _steady_mean(its: Steadiness, name: str) -> float:
    assert its.steady is not None
    rows = its.rows_of(its.steady)
    values = getattr(its.run, name)[rows]
    known = values[values == values]
    return float(known.mean()) if len(known) else math.nan


def _start_s(its: Steadiness) -> float:
    """What the beginning took longer than steady steps, for each step of the run."""
    beyond_s = math.fsum(apart.extra_s for apart in its.apart if apart.why in ("first", "epoch"))
    return beyond_s / max(int(its.run.counts.sum()), 1)


def as_settings(seen: Sequence[Seen], scenario: Scenario) -> None:
    """Check that what was seen can be compared.

    Raises
    ------
    InputError
        There is nothing, or nothing of more than one worker; or the same setting twice.
    """
    if not seen:
        raise InputError("nothing was seen; give step times such as --step 1=60ms --step 8=170ms, or files with --run")
    if max(its.workers for its in seen) < 2:
        raise InputError(f"only {seen[0].name} was seen; give the step time of several workers too, such as --step 8=170ms")
    if not scenario.strategy.count_key:
        raise InputError(f'strategy.kind = "{scenario.strategy.kind}" has one device; give the scenario of the run on several')
    keys = [(its.workers, its.servers, its.batch) for its in seen]
    for place, key in enumerate(keys):
        if key in keys[:place]:
            raise InputError(f"{seen[place].name}: is given twice; keep one, or put repeats into a file for --run")


def _step_s(scenario: Scenario, workers: int, rate: float, batch: int | None = None) -> float:
    """Time of a worker's step at a throughput."""
    load = scenario.workload
    together = load.global_batch if load.global_batch is not None else workers * (batch or load.batch_per_replica or 1)
    return together / rate


def _error(repeats: Sequence[float]) -> float:
    """Standard error of their mean, as a share."""
    if len(repeats) < 2:
        return _OF_A_NUMBER
    return max(statistics.stdev(repeats) / statistics.fmean(repeats) / math.sqrt(len(repeats)), _LEAST)
