"""``[job]``, the whole training around steps (epochs, evaluations, checkpoints, faults), and ``[overheads]`` of a workload.

Only keys and their rules. ``simulator.job`` computes the time of a job; what a job does not give (start-up, tracing, checkpoints, ends of
iterators) comes from the workload's :class:`Overheads`, which ``calibrate.fit.step`` fits. Rules between the job and other tables are in
:mod:`simulator.scenario`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, GetJsonSchemaHandler, ValidationError, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

from simulator.base.spec import DAY_S, YEAR_S, Bytes, MeanLife, Moderate, Overhead, PositiveSeconds, Rate, Seconds, Spec, Terse, Usual
from simulator.base.validation_errors import rule_of
from simulator.spec.constants import Known

_CHECKPOINT = Usual(1.0, 2.0**53)


class _Exact(Spec):
    """A time."""

    value_s: Seconds = Field(description="the time")


class Duration(Spec):
    """A time and its 90% interval over runs; a file may give only a text such as ``"20 s"``, which is then exact."""

    value_s: Overhead = Field(description="mean time")
    low_s: Seconds = Field(description="low end of its 90% interval over runs")
    high_s: Seconds = Field(description="high end of its 90% interval over runs")

    @model_validator(mode="before")
    @classmethod
    def _exact(cls, data: Any) -> Any:
        if not isinstance(data, str):
            return data
        try:
            seconds = _Exact.model_validate({"value": data}).value_s
        except ValidationError as error:  # said once, not of each of the three
            rule = rule_of(error.errors(include_url=False)[0])
            raise PydanticCustomError("rule", "{rule}", {"rule": rule, "given": data}) from None
        return {"value_s": seconds, "low_s": seconds, "high_s": seconds}

    def _broken_rules(self) -> Iterator[str]:
        if not self.low_s <= self.value_s <= self.high_s:
            yield f"value ({self.value_s:g} s) must lie between low ({self.low_s:g} s) and high ({self.high_s:g} s)"

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler, /) -> JsonSchemaValue:
        schema = super().__get_pydantic_json_schema__(core_schema, handler)
        table = dict(schema)
        schema.clear()
        schema.update({"anyOf": [{"type": "string", "description": 'a time with its unit, such as "20 s", that is exact'}, table]})
        return schema

    def quantile_s(self, probability: float) -> float:
        """Draw seconds from a lognormal distribution with mean ``value_s`` and the ratio of low and high between its 5% and 95% points."""
        if self.low_s == self.high_s or not self.low_s:
            return float(self.value_s)
        return Known(value=self.value_s, low=self.low_s, high=self.high_s).quantile(probability)


class IteratorEnds(Spec):
    """How often the end of a ``tf.data`` iterator waited for the thread that tunes it."""

    ended: int = Field(ge=1, description="iterators that ended while their thread slept")
    waited: int = Field(ge=0, description="of those, how many waited until the thread woke up")

    def _broken_rules(self) -> Iterator[str]:
        if self.waited > self.ended:
            yield f"waited ({self.waited}) must be at most ended ({self.ended})"


class Overheads(Terse):
    """``[overheads]`` of a workload: the time of its jobs outside steps, measured on the user's own code."""

    startup: Duration | None = Field(default=None, description="time from the start of a process to its first step")
    tracing: Duration | None = Field(default=None, description="extra time of the first step")
    evaluation_tracing: Duration | None = Field(default=None, description="extra time of the first step of the first evaluation")
    checkpoint_bytes: Annotated[Bytes, _CHECKPOINT] | None = Field(default=None, gt=0, description="size of a checkpoint as written")
    write_bytes_per_s: Rate | None = Field(default=None, description="rate at which a checkpoint was written")
    restore_bytes_per_s: Rate | None = Field(default=None, description="rate at which a checkpoint was restored")
    snapshot: Duration | None = Field(
        default=None, description="time for which an asynchronous checkpoint stops training to copy the state"
    )
    iterators: IteratorEnds | None = Field(default=None, description="how often the end of a tf.data iterator stops training")


Share90 = Annotated[Moderate, Field(gt=0, le=1000)]
"""A limit of the factor on a rate."""


def _is_whole(value: float) -> float:
    """Require a count of samples, not a share of the data set or thousands."""
    if value != int(value):
        share = ", not a share of the data set" if value < 1 else ""
        raise ValueError(f"must be a whole number of samples{share}")
    return value


Samples = Annotated[Moderate, Field(gt=0, json_schema_extra={"multipleOf": 1}), AfterValidator(_is_whole)]
"""A number of samples."""

_MOST_EPOCHS = 100_000
"""Limit on epochs, because every run simulates each of them."""


class Evaluation(Spec):
    """``[job.evaluation]``: passes over other data after some epochs, without gradients."""

    samples: Samples = Field(description="samples of the evaluation's data set")
    every_epochs: int = Field(default=1, ge=1, description="epochs between evaluations")
    batch: int | None = Field(default=None, ge=1, description="batch of a replica; left out: as in training")


class Checkpoint(Terse):
    """``[job.checkpoint]``: how often the state is written, and the cost."""

    every_s: Annotated[PositiveSeconds, Usual(1e-3, YEAR_S)] | None = Field(
        default=None, description="time of steps between checkpoints; give this, every_steps or every_epochs"
    )
    every_steps: int | None = Field(default=None, ge=1, description="steps between checkpoints")
    every_epochs: int | None = Field(default=None, ge=1, description="epochs between checkpoints")
    interval: Literal["given", "best"] = Field(
        default="given",
        description="given: from the keys above; best: the interval that minimises the expected time of the job, given its faults; if "
        "nothing fails (an on-demand price next to a spot offer), no checkpoint is written",
    )
    mode: Literal["blocking", "asynchronous"] = Field(
        default="blocking",
        description="blocking: training waits while a checkpoint is written; asynchronous: it waits only while the state is copied",
    )
    size_bytes: Annotated[Bytes, _CHECKPOINT] | None = Field(
        default=None, gt=0, description="size of a checkpoint; left out: as measured, or the size of variables and optimizer slots"
    )
    duration_s: Annotated[PositiveSeconds, Usual(1e-6, DAY_S)] | None = Field(
        default=None,
        description="time to write a checkpoint, in place of its size and rates; restoring takes as long unless restore is given",
    )
    write_bytes_per_s: Rate | None = Field(
        default=None, description="rate at which a checkpoint is written; left out: from cluster.storage, or as measured"
    )
    restore_bytes_per_s: Rate | None = Field(
        default=None, description="rate at which a checkpoint is restored; left out: same as for writing"
    )
    snapshot: Duration | None = Field(
        default=None,
        description="with mode = asynchronous: time for which it stops training; left out: as measured, or the time of a copy over "
        "cluster.host_link",
    )

    def _broken_rules(self) -> Iterator[str]:
        given = [name for name in ("every_s", "every_steps", "every_epochs") if getattr(self, name) is not None]
        if self.interval == "best" and given:
            yield f'interval = "best" chooses the interval: leave {given[0].removesuffix("_s")} out'
        if self.interval == "given" and len(given) != 1:
            what = " and ".join(given) if given else "nothing"
            yield f'has {what}: give one of every, every_steps and every_epochs, or interval = "best"'
        if self.duration_s is not None and self.write_bytes_per_s is not None:
            yield "has duration and write, which both set the time of a checkpoint: leave one of them out"


class Fault(Spec):
    """One fault of a trace."""

    at_s: Seconds = Field(description="time from the start of the job")
    of: Literal["worker", "server", "node"] = Field(
        description="what fails: a worker process, a parameter server, or a machine with everything on it"
    )
    number: int = Field(default=0, ge=0, description="number of the worker, server or node, from 0")


class Nodes(Spec):
    """A point of a trace: the number of available nodes from a time on."""

    at_s: Seconds = Field(description="time from the start of the trace")
    nodes: int = Field(ge=0, le=10**7, description="nodes available from then on")


def _rules_of_rates(rates_90: tuple[float, float] | None) -> Iterator[str]:
    if rates_90 is not None and not rates_90[0] <= 1 <= rates_90[1]:
        low, high = rates_90
        yield f"rates_90 ({low:g}, {high:g}): must include 1, which means the given mean times"


class Preemption(Terse, only=("of", "mtbf_s", "shape", "most_s", "rates_90", "wait_s", "available", "begins")):
    """Preemption and replacement of machines, as of spot instances: by a distribution of lifetimes, or by a trace of available nodes."""

    of: Literal["nodes", "worker-nodes"] = Field(
        default="nodes", description="which nodes are preempted; worker-nodes: nodes of servers and of a coordinator are never preempted"
    )
    mtbf_s: MeanLife | None = Field(default=None, description="mean lifetime of a node, from its start until it is preempted")
    shape: Annotated[Moderate, Field(ge=0.1, le=20)] | None = Field(
        default=None,
        description="shape of the Weibull distribution of a node's lifetime; below 1, many nodes are preempted early and older nodes "
        "live longer; left out: the shape for other faults",
    )
    most_s: MeanLife | None = Field(default=None, description="maximum lifetime of a node, such as 24 h; left out: none")
    rates_90: tuple[Share90, Share90] | None = Field(
        default=None,
        description="90% interval of the factor on the preemption rate given by mtbf; each run draws its own factor; left out: exactly 1",
    )
    notice_s: Overhead = Field(default=0.0, description="warning time before a preemption; if a checkpoint fits into it, no work is lost")
    wait_s: Overhead = Field(default=0.0, description="mean time until another node is available (exponential)")
    replacement_s: Overhead = Field(description="time until an available node is ready")
    available: tuple[Nodes, ...] = Field(
        default=(),
        max_length=100_000,
        description="a trace of available nodes over time, in place of distributions; the last point ends it",
    )
    begins: Literal["anywhere", "at-start"] = Field(
        default="anywhere",
        description="where in the trace the job begins; anywhere: each run begins at a random point, and the trace repeats",
    )

    def _broken_rules(self) -> Iterator[str]:
        if (self.mtbf_s is None) == (not self.available):
            both = "both mtbf and available" if self.available else "neither mtbf nor available"
            yield f"has {both}: give the mean lifetime of a node, or a trace of available nodes"
        if self.available:
            law = [name for name in ("shape", "most_s", "rates_90", "wait_s") if getattr(self, name)]
            if law:
                yield f"has {law[0].removesuffix('_s')} and available: a trace replaces the distribution, leave one of them out"
            times = [point.at_s for point in self.available]
            if len(times) < 2 or times != sorted(set(times)) or times[0]:
                yield "available needs at least two points in order of time, the first at 0 s; the last one ends the trace"
            if not any(point.nodes for point in self.available[:-1]):
                yield "available never has a node, so the job cannot begin"
        yield from _rules_of_rates(self.rates_90)


class Faults(Terse):
    """``[job.faults]``: what fails, how often, and how the job recovers.

    Files of ``models/faults`` have the same keys: published faults, which a scenario may ``use`` under its own keys.
    """

    name: str = Field(default="", max_length=200, description="for readers: origin of the faults")
    description: str = Field(default="", max_length=10_000, description="for readers")
    source: str = Field(default="", max_length=10_000, description="where the figures were published and how the rates follow from them")
    worker_mtbf_s: MeanLife | None = Field(default=None, description="mean time between crashes of one worker process")
    server_mtbf_s: MeanLife | None = Field(default=None, description="mean time between crashes of one parameter server")
    node_mtbf_s: MeanLife | None = Field(default=None, description="mean time between crashes of one node, with everything on it")
    job_mtbf_s: MeanLife | None = Field(
        default=None, description="mean time between faults of the job as a whole (code, data, storage), whatever the number of nodes"
    )
    preemption: Preemption | None = Field(default=None, description="preemption of nodes, as of spot instances; left out: none")
    shape: Annotated[Moderate, Field(ge=0.1, le=20)] = Field(
        default=1.0, description="shape of the Weibull distribution of times between faults: 1 is memoryless; below 1, faults cluster"
    )
    rates_90: tuple[Share90, Share90] | None = Field(
        default=None,
        description="90% interval of the factor on all fault rates except preemption (which has its own key); each run draws one factor "
        "for all kinds; left out: exactly 1",
    )
    rates_90_of: tuple[Literal["worker", "server", "node", "job"], ...] = Field(
        default=(), description="kinds that rates_90 applies to; left out: all, or with use, those that the scenario does not set itself"
    )
    trace: tuple[Fault, ...] = Field(
        default=(), max_length=100_000, description="faults as recorded, in place of mean times or in addition"
    )
    detection_s: Overhead = Field(
        default=0.0, description="time until a fault is detected, such as a time-out of heartbeats or of a collective"
    )
    restart_s: Overhead = Field(default=0.0, description="time until a crashed process runs again, before its start-up")
    startup_s: Overhead | None = Field(
        default=None,
        description="start-up time of a restarted part, such as a single worker; left out: the job's start-up and tracing",
    )
    replacement_s: Overhead = Field(default=0.0, description="time until a crashed node is back or replaced, before its start-up")
    retries: int | None = Field(default=None, ge=0, description="number of restarts after which the job gives up; left out: no limit")
    elastic: bool = Field(
        default=False, description="true: synchronous training continues with fewer workers until the crashed one is back; false: all wait"
    )
    min_workers: int = Field(default=1, ge=1, description="fewest workers that continue, for elastic or asynchronous training")

    def _broken_rules(self) -> Iterator[str]:
        if self.rates_90_of and self.rates_90 is None:
            yield "rates_90_of needs rates_90: give the interval too"
        yield from _rules_of_rates(self.rates_90)

    @property
    def happen(self) -> bool:
        """Return whether anything fails."""
        mean_times = (self.worker_mtbf_s, self.server_mtbf_s, self.node_mtbf_s, self.job_mtbf_s, self.preemption)
        return bool(self.trace) or any(known is not None for known in mean_times)


class Job(Terse):
    """``[job]`` of a scenario: the length of training, and everything outside steps."""

    epochs: Annotated[Moderate, Field(gt=0)] | None = Field(default=None, description="passes over the data set")
    samples: Samples | None = Field(default=None, description="samples in total, in place of epochs")
    tokens: Annotated[Moderate, Field(gt=0)] | None = Field(
        default=None, description="tokens in total, in place of samples: sequences of workload.transformer.sequence, rounded up"
    )
    dataset_size: Samples | None = Field(default=None, description="samples of the data set; left out: one epoch has all samples")
    startup: Duration | None = Field(default=None, description="time until the first step begins; left out: as measured, else none")
    tracing: Duration | None = Field(default=None, description="extra time of the first step; left out: as measured, else none")
    evaluation_tracing: Duration | None = Field(
        default=None, description="extra time of the first evaluation; left out: as measured, else none"
    )
    iterators: Literal["renewed", "kept"] = Field(
        default="renewed",
        description="renewed: each epoch creates a new tf.data iterator, as Keras does for a finite data set; kept: one iterator serves "
        "all epochs, as for a repeating data set with steps_per_epoch. Evaluations always end theirs",
    )
    evaluation: Evaluation | None = Field(default=None, description="evaluations between epochs; left out: none")
    checkpoint: Checkpoint | None = Field(default=None, description="checkpoints: how often and how; left out: none")
    faults: Faults | None = Field(
        default=None, description="faults: what fails, how often, and the time to recover; left out: nothing fails"
    )

    def _broken_rules(self) -> Iterator[str]:
        if self.samples is None and self.tokens is None and (self.epochs is None or self.dataset_size is None):
            lacking = (
                "dataset_size" if self.epochs is not None else "epochs" if self.dataset_size is not None else "epochs and dataset_size"
            )
            yield f"has no length: give samples, or epochs and dataset_size (missing: {lacking})"
        if self.samples is not None and self.epochs is not None and self.dataset_size is not None:
            yield "has samples, epochs and dataset_size, but two of them set the length: leave one out"
        epochs = self.total_samples / self.epoch_samples if self.tokens is None else 0.0
        if epochs > _MOST_EPOCHS:
            yield (
                f"has {epochs:,.0f} epochs, at most {_MOST_EPOCHS:,} are possible: give fewer epochs or samples; dataset_size counts "
                "samples, not batches"
            )

    @property
    def total_samples(self) -> float:
        """Samples trained on over the whole job."""
        if self.samples is not None:
            return float(self.samples)
        assert self.epochs is not None
        assert self.dataset_size is not None
        return float(self.epochs * self.dataset_size)

    @property
    def epoch_samples(self) -> float:
        """Samples of an epoch; all samples if there is no data set."""
        if self.dataset_size is not None:
            return float(self.dataset_size)
        return self.total_samples / float(self.epochs) if self.epochs is not None else self.total_samples
