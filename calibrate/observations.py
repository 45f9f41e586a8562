"""Turns what people have observed of a training into a scenario: what a count counts, whose samples a step has, which unit is meant.

``paceline why``, ``watch``, ``validate --measured``, ``report --measured`` and ``refit`` all read observations here, so that the same
figure means the same to each of them. :class:`Predicted` decides whether a measured step is as predicted.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

from pydantic import Field

from calibrate.recorded.run import RecordedRun, thousand_times
from simulator.base.errors import InputError
from simulator.base.spec import Spec
from simulator.base.text import counted, format_number, format_seconds, format_share
from simulator.results.results import Result
from simulator.results.what_if import changed
from simulator.scenario import Scenario
from simulator.spec.uncertainty import Z_90
from simulator.spec.workload import Workload

Quantity = Literal["throughput", "steps_per_s", "step_time_s", "epoch_s"]
"""How the speed of a training is said: samples/s of all workers together, steps/s, seconds of a step, seconds of an epoch."""

_COUNT = re.compile(r"(\d{1,7})\s*(|workers?|replicas?|devices?|gpus?)", re.IGNORECASE | re.ASCII)
_PARAMETER_BYTES = (4.0, 2.0, 8.0)
"""Of a parameter, as a gradient or a variable may hold it."""
_SAME_MODEL = 0.02
"""How far numbers of parameters of the same model may differ, as a logarithm."""
_NO_STEP_S = 3600.0
"""No step of a training takes this long."""
_WRONG, _RIGHT = math.log(6.0), math.log(2.0)
"""Factors, as logarithms: from the first on a figure may be in another unit, which it is where the other brings it within the second."""


class Observed(Spec):
    """One training that was observed: how many workers and servers it had, and which batch."""

    workers: int = Field(ge=1, description="workers, or replicas if one process drives all")
    servers: int | None = Field(default=None, ge=0, description="parameter servers; null: as in the scenario")
    devices: int | None = Field(
        default=None, ge=1, description="devices of all workers together; 1: a single device without servers; null: as in the scenario"
    )
    batch: int | None = Field(
        default=None, ge=1, description="samples per replica and step, or global if the scenario has global_batch; null: as in the "
                                        "scenario",
    )  # fmt: skip

    @property
    def alone(self) -> bool:
        """Return whether it is a single device."""
        return self.devices == 1

    @property
    def name(self) -> str:
        """In words: ``8 workers, 2 servers, batch 64``."""
        parts = ["1 device" if self.alone else counted(self.workers, "worker")]
        if self.devices is not None and not self.alone:
            parts.append(counted(self.devices, "device"))
        if self.servers:
            parts.append(counted(self.servers, "server"))
        if self.batch is not None:
            parts.append(f"batch {self.batch:,}")
        return ", ".join(parts)

    def scenario_of(self, told: Scenario, where: str = "what was observed") -> Scenario:
        """A scenario with workers, servers, devices and batch as they were, of one that tells the rest; errors name ``where``.

        Raises
        ------
        InputError
            The scenario has no such number of workers or servers.
        ScenarioError
            The numbers break a rule of it.
        """
        strategy, load = told.strategy, told.workload
        if not strategy.count_key and self.workers != 1:
            raise InputError(
                f'{where}: workers: {self.workers:,} must be 1, because the scenario\'s strategy.kind is "{strategy.kind}": give the '
                "measured scenario"
            )
        if self.servers and not strategy.has_servers:
            raise InputError(
                f"{where}: servers: {self.servers:,} must be 0 or empty, because strategy.kind {strategy.kind!r} has no parameter "
                "servers: give the measured scenario"
            )
        strategy = strategy.with_count(self.workers)
        if self.servers is not None:
            strategy = strategy.with_servers(self.servers)
        if self.devices is not None:
            strategy = strategy.with_devices_each(max(self.devices // self.workers, 1)) or strategy
        if self.batch is not None:
            key = "batch_per_replica" if load.batch_per_replica is not None else "global_batch"
            load = load.model_copy(update={key: self.batch})
        cluster = told.cluster.with_room_for(strategy.layout(told.cluster).nodes)
        return changed(told, where, workload=load, strategy=strategy, cluster=cluster)


def observed_at(count: int | str, told: Scenario, option: str = "a count") -> Observed:
    """Parse a count: ``8`` or ``8 workers``, as the scenario counts them, or ``16 devices``; ``1`` is a single device.

    A plain number that is more than the workers that the scenario's nodes have room for counts devices, where workers have several.

    Raises
    ------
    InputError
        It is no count, or no number of devices that the scenario's workers can have.
    """
    match = _COUNT.fullmatch(str(count).strip())
    number = int(match[1]) if match else 0
    if match is None or not number:
        raise InputError(f"{option}: {count!r} must be a number of workers of at least 1, such as 8, or of devices, such as '16 devices'")
    unit = match[2].lower()
    per_worker = max(told.ranks // told.workers, 1)
    if number == 1 and not unit.startswith(("worker", "replica")):
        return Observed(workers=1, devices=1)
    room = told.cluster.room
    beyond = room is not None and number > room * max(told.cluster.replicas_per_node // per_worker, 1)
    if not unit.startswith(("device", "gpu")) and not (not unit and per_worker > 1 and beyond):
        return Observed(workers=number)
    if number % per_worker == 0:
        return Observed(workers=number // per_worker)
    if number < per_worker and told.strategy.with_devices_each(number) is not None:
        return Observed(workers=1, devices=number)
    raise InputError(f"{option}: {number:,} devices are not a multiple of {counted(per_worker, 'device')} per worker: give workers")


def samples_of_step(observed: Observed, told: Scenario) -> int:
    """Samples per step of all workers together, or of a single device; with a global batch, those of all."""
    load = told.workload
    if load.global_batch is not None:
        return observed.batch or load.global_batch
    replicas = 1 if observed.alone else observed.scenario_of(told).replicas
    return replicas * (observed.batch or told.batch)


def throughput_of(quantity: Quantity, value: float, observed: Observed, told: Scenario) -> float:
    """Samples/s of all workers together, from a speed that is said in another way.

    Raises
    ------
    InputError
        It is the time of an epoch, and the scenario does not say how many samples that has.
    """
    if quantity == "throughput":
        return value
    if quantity == "epoch_s":
        if told.job is None:
            raise InputError(f"{observed.name}: the time of an epoch needs the size of the data set: give job.dataset_size")
        return told.job.epoch_samples / value
    samples = samples_of_step(observed, told)
    return samples * value if quantity == "steps_per_s" else samples / value


# -- figures that mean something else ----------------------------------------------------------------


@dataclass(frozen=True)
class Figure:
    """One figure next to its prediction.

    Attributes
    ----------
    said
        The figure as typed, or its place, for messages.
    quantity
        What it is said to be.
    measured_s, predicted_s
        Seconds of a step: by the figure, and predicted.
    samples, workers
        Samples of that step of all workers together, and how many there are.
    """

    said: str
    quantity: Quantity
    measured_s: float
    predicted_s: float
    samples: int
    workers: int


def check_units(figures: Sequence[Figure], steps_per_s: str = "--steps-per-s", epoch: str = "--epoch") -> Iterator[str]:
    """Ask where figures seem to be in another unit, a question each: what a figure may be instead, where it may also be right.

    ``steps_per_s`` and ``epoch`` say how steps/s, and times of an epoch, are given there.

    Raises
    ------
    InputError
        A step of an hour and more; or samples/s that are too few by the samples of a step, of one worker or at every of several counts.
    """
    for figure in figures:
        if figure.quantity in ("step_time_s", "throughput") and figure.measured_s >= _NO_STEP_S:
            raise InputError(
                f"{figure.said}: {format_seconds(figure.measured_s)} is too long for a step: is it the time of an epoch? Then give {epoch}"
            )
    rates = [figure for figure in figures if figure.quantity == "throughput" and figure.samples > 1]
    if rates and all(_explains(figure, math.log(figure.samples)) for figure in rates):
        figure = rates[0]
        asked = (
            f"{figure.said}: as samples/s, a step of {figure.samples:,} samples takes {format_seconds(figure.measured_s)}, "
            f"{format_number(figure.measured_s / figure.predicted_s)} times the predicted {format_seconds(figure.predicted_s)}: are they "
            f"steps/s? Then give {steps_per_s}"
        )
        # many workers alone may be as slow as that
        if len(rates) > 1 or figure.workers == 1:
            raise InputError(asked)
        yield asked
    for figure in [figure for figure in figures if thousand_times(figure.measured_s / figure.predicted_s) is not None][:1]:
        meant_s = figure.measured_s * (1e3 if figure.measured_s < figure.predicted_s else 1e-3)
        yield (
            f"{figure.said}: a step takes {format_seconds(figure.measured_s)}, but {format_seconds(figure.predicted_s)} is predicted: "
            f"is it {format_seconds(meant_s)}, or another model?"
        )
    for figure in figures:
        ratio = figure.measured_s / figure.predicted_s
        if figure.workers > 3 and figure.quantity == "throughput" and abs(math.log(ratio / figure.workers)) < 0.1:
            yield f"{figure.said}: is {figure.workers:,} times lower than predicted: is it the throughput of one worker?"


def _explains(figure: Figure, factor: float) -> bool:
    """Return whether a factor, as a logarithm, brings a figure that is far from its prediction near to it."""
    ratio = math.log(figure.measured_s / figure.predicted_s)
    return ratio > _WRONG and abs(ratio - factor) < min(_RIGHT, ratio / 2.0)


# -- records of something else -----------------------------------------------------------------------


def differences(run: RecordedRun, scenario: Scenario) -> Iterator[str]:
    """Say in what a record is of another training than a scenario: workers, devices, batch, precision, model; a sentence each."""
    facts = run.facts
    if facts.workers is not None and facts.workers not in (scenario.workers, scenario.processes):
        yield (
            f"{run.name}: was recorded with {facts.workers:,} workers, but the scenario has {scenario.workers:,}: predict with "
            f"strategy.{scenario.strategy.count_key or 'workers'}={facts.workers}"
        )
    if facts.devices_in_all is not None and facts.devices_in_all != scenario.ranks:
        yield f"{run.name}: was recorded on {counted(facts.devices_in_all, 'device')}, but the scenario has {scenario.ranks:,}"
    batch, together = scenario.batch * scenario.replicas // scenario.processes, scenario.batch * scenario.replicas
    if facts.global_batch is not None:
        if facts.global_batch != together:
            yield (
                f"{run.name}: this record has another batch: {facts.global_batch:,} samples per step over all workers, but the scenario "
                f"has {together:,}"
            )
    elif facts.batch is not None and facts.batch not in (batch, scenario.batch):
        yield f"{run.name}: was recorded with {facts.batch:,} samples per worker and step, but the scenario has {batch:,}"
    precision = scenario.training.precision
    if facts.precision and precision is not None and ("16" in facts.precision) != ("16" in precision):
        yield f"{run.name}: was recorded in {facts.precision}, but the scenario trains in {precision}"
    if (doubt := another_model(run, scenario.workload)) is not None:
        yield doubt


def another_model(run: RecordedRun, load: Workload) -> str | None:
    """Why a run is of another model than a workload, a sentence; None where nothing says so."""
    parameters = run.facts.parameters
    if not parameters or not load.parameter_bytes:
        return None
    each_bytes = load.parameter_bytes / parameters
    if min(abs(math.log(each_bytes / size)) for size in _PARAMETER_BYTES) <= _SAME_MODEL:
        return None
    return (
        f"{run.name}: has a model of {parameters:,} parameters, but the workload {load.name} has "
        f"{load.parameter_bytes / _PARAMETER_BYTES[0]:,.0f} of four bytes: is it another model?"
    )


def alone_step_of(result: Result) -> float:
    """Predicted seconds of a step on a single device: for the replica's batch, or for the whole global batch."""
    scenario = result.scenario
    samples = scenario.batch if scenario.workload.global_batch is None else scenario.batch * scenario.replicas
    return samples * result.speedup.mean / result.throughput_samples_per_s.mean


State = Literal["unclear", "inside", "beyond", "slower", "faster"]
"""``unclear``: cannot tell; ``beyond``: outside the 90% interval, as one run in ten is; ``slower``, ``faster``: outside."""

_SURE = 0.99865
"""Three standard deviations of a normal distribution, on one side."""
_KNOWN = 0.1
"""A mean that is known to such a share of the predicted one can be judged, however narrow the interval."""
_DIGITS = 1e-6
"""Nobody writes a time with more digits than that, as a share."""
_STANDS = {
    "unclear": "not yet enough steps to compare with the prediction",
    "inside": "inside its 90% interval",
    "beyond": "outside its 90% interval, as for one correctly predicted run in ten",
    "slower": "slower than {wide} of correctly predicted runs",
    "faster": "faster than {wide} of correctly predicted runs",
}


def half_width_s(error_s: float, count: int) -> float:
    """How far a mean of ``count`` values with this standard error is known on each side: Student's quantile of 99.73%, in seconds.

    Infinite for fewer than two values.
    """
    from scipy.special import stdtrit

    return float(stdtrit(count - 1, _SURE)) * error_s if count > 1 else math.inf


@dataclass(frozen=True)
class Predicted:
    """A step as it is predicted, in seconds.

    Attributes
    ----------
    mean_s, low_s, high_s
        The mean step of a run, and its 90% interval.
    least_s, most_s
        Between which ``coverage`` of runs as predicted lie: the same interval with logarithms stretched as those of a normal distribution.
    p50_s, p95_s
        Quantiles of single steps.
    coverage
        Share of runs.
    samples
        Of a step of all workers together.
    """

    mean_s: float
    low_s: float
    high_s: float
    least_s: float
    most_s: float
    p50_s: float
    p95_s: float
    coverage: float
    samples: int

    @classmethod
    def of(cls, result: Result, coverage: float) -> Predicted:
        """Return what a result predicts."""
        step, wider = result.mean_step_s, NormalDist().inv_cdf(0.5 + coverage / 2) / Z_90
        return cls(
            step.mean,
            step.low,
            step.high,
            step.mean * (step.low / step.mean) ** wider if step.low > 0 else 0.0,
            step.mean * (step.high / step.mean) ** wider,
            result.step_time_s.p50,
            result.step_time_s.p95,
            coverage,
            result.scenario.batch * result.scenario.replicas,
        )

    def state(self, mean_s: float, half_s: float) -> State:
        """Where a measured mean lies that is known to ``half_s`` on each side; 0 where its error is not known."""
        half_s = max(half_s, _DIGITS * self.mean_s)
        if mean_s - half_s > self.most_s:
            return "slower"
        if mean_s + half_s < self.least_s:
            return "faster"
        if not half_s <= max(_KNOWN * self.mean_s, self.most_s - self.mean_s):
            return "unclear"
        rounded_s = _DIGITS * self.mean_s
        return "inside" if self.low_s - rounded_s <= mean_s <= self.high_s + rounded_s else "beyond"

    def stands(self, state: State) -> str:
        """A state in words, as a clause after the measured figure."""
        return _STANDS[state].format(wide=format_share(self.coverage))
