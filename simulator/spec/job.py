"""``[job]``: the whole training, of which steps are a part: epochs, evaluations, checkpoints and faults; and ``[overheads]`` of a workload.

Keys and their rules alone. ``simulator.job`` works out how long a job takes; what a job does not give (start-up, tracing, checkpoints,
ends of iterators) is taken from the workload's :class:`Overheads`, which ``calibrate.fit.step`` fits. Rules between the job and
other tables are in :mod:`simulator.scenario`.
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
    """A time and its 90% interval over runs; a file may give a text such as ``"20 s"`` alone, which is then taken as exact."""

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
        """Seconds, of a lognormal with mean ``value_s`` whose 5% and 95% points are as far apart as low and high."""
        if self.low_s == self.high_s or not self.low_s:
            return float(self.value_s)
        return Known(value=self.value_s, low=self.low_s, high=self.high_s).quantile(probability)


class IteratorEnds(Spec):
    """How often the end of a ``tf.data`` iterator waited for the thread that tunes it."""

    ended: int = Field(ge=1, description="iterators that were ended while their thread slept")
    waited: int = Field(ge=0, description="of them, those whose end waited until the thread woke up by itself")

    def _broken_rules(self) -> Iterator[str]:
        if self.waited > self.ended:
            yield f"waited ({self.waited}) must be at most ended ({self.ended})"


class Overheads(Terse):
    """``[overheads]`` of a workload: what its jobs spend beside steps, measured on the user's own code."""

    startup: Duration | None = Field(default=None, description="time from the start of a process until its first step begins")
    tracing: Duration | None = Field(default=None, description="by how much the first step takes longer than later ones")
    evaluation_tracing: Duration | None = Field(default=None, description="by how much the first step of the first evaluation takes longer")
    checkpoint_bytes: Annotated[Bytes, _CHECKPOINT] | None = Field(default=None, gt=0, description="size of a checkpoint as it is written")
    write_bytes_per_s: Rate | None = Field(default=None, description="rate at which a checkpoint was written")
    restore_bytes_per_s: Rate | None = Field(default=None, description="rate at which a checkpoint was read again")
    snapshot: Duration | None = Field(
        default=None, description="time for which an asynchronous checkpoint stops the training, to copy what it then writes"
    )
    iterators: IteratorEnds | None = Field(default=None, description="how often the end of a tf.data iterator stops the training")


Share90 = Annotated[Moderate, Field(gt=0, le=1000)]
"""A limit of by how much a rate may differ."""


def _is_whole(value: float) -> float:
    """Require that samples are counted, not given as a share of the data set or in thousands."""
    if value != int(value):
        share = ", not a share of the data set" if value < 1 else ""
        raise ValueError(f"must be a whole number of samples{share}")
    return value


Samples = Annotated[Moderate, Field(gt=0, json_schema_extra={"multipleOf": 1}), AfterValidator(_is_whole)]
"""A number of samples."""

_MOST_EPOCHS = 100_000
"""Every run goes through each of them."""


class Evaluation(Spec):
    """``[job.evaluation]``: passes over other data after some epochs, without gradients."""

    samples: Samples = Field(description="samples of the evaluation's data set")
    every_epochs: int = Field(default=1, ge=1, description="epochs between evaluations")
    batch: int | None = Field(default=None, ge=1, description="samples that a replica takes at a time; left out: as in training")


class Checkpoint(Terse):
    """``[job.checkpoint]``: how often the state is written, and what that costs."""

    every_s: Annotated[PositiveSeconds, Usual(1e-3, YEAR_S)] | None = Field(
        default=None, description="time of steps between checkpoints; this, every_steps or every_epochs"
    )
    every_steps: int | None = Field(default=None, ge=1, description="steps between checkpoints")
    every_epochs: int | None = Field(default=None, ge=1, description="epochs between checkpoints")
    interval: Literal["given", "best"] = Field(
        default="given",
        description="given: as the keys above say; best: the interval with which the job is expected to end soonest, given its faults; "
        "where nothing fails, as at an on-demand price beside a spot offer, none is written",
    )
    mode: Literal["blocking", "asynchronous"] = Field(
        default="blocking",
        description="blocking: training waits until a checkpoint is written; asynchronous: it waits only while the state is copied",
    )
    size_bytes: Annotated[Bytes, _CHECKPOINT] | None = Field(
        default=None, gt=0, description="size of a checkpoint; left out: as measured, or that of variables and optimizer slots"
    )
    duration_s: Annotated[PositiveSeconds, Usual(1e-6, DAY_S)] | None = Field(
        default=None,
        description="time to write a checkpoint, in place of its size and rates; restoring takes as long unless restore is given",
    )
    write_bytes_per_s: Rate | None = Field(
        default=None, description="rate at which a checkpoint is written; left out: that of cluster.storage, or as measured"
    )
    restore_bytes_per_s: Rate | None = Field(
        default=None, description="rate at which a checkpoint is read again; left out: as it is written"
    )
    snapshot: Duration | None = Field(
        default=None,
        description="with mode = asynchronous: time for which it stops training; left out: as measured, or the copy over cluster.host_link",
    )

    def _broken_rules(self) -> Iterator[str]:
        given = [name for name in ("every_s", "every_steps", "every_epochs") if getattr(self, name) is not None]
        if self.interval == "best" and given:
            yield f'interval = "best" finds how often; leave {given[0].removesuffix("_s")} out'
        if self.interval == "given" and len(given) != 1:
            what = " and ".join(given) if given else "nothing"
            yield f'has {what}: give one of every, every_steps and every_epochs, or interval = "best"'
        if self.duration_s is not None and self.write_bytes_per_s is not None:
            yield "has duration and write, which both say how long a checkpoint takes: leave one of them out"


class Fault(Spec):
    """One fault of a trace."""

    at_s: Seconds = Field(description="time from the start of the job")
    of: Literal["worker", "server", "node"] = Field(
        description="what dies: a worker process, a parameter server, or a machine with all on it"
    )
    number: int = Field(default=0, ge=0, description="which worker, server or node, from 0 on")


class Nodes(Spec):
    """A point of a trace: from when on how many nodes are to be had."""

    at_s: Seconds = Field(description="time from the start of the trace")
    nodes: int = Field(ge=0, le=10**7, description="nodes that are to be had from then on")


def _rules_of_rates(rates_90: tuple[float, float] | None) -> Iterator[str]:
    if rates_90 is not None and not rates_90[0] <= 1 <= rates_90[1]:
        low, high = rates_90
        yield f"rates_90 ({low:g}, {high:g}): must be from at most 1 to at least 1, since 1 is what the mean times say"


class Preemption(Terse, only=("of", "mtbf_s", "shape", "most_s", "rates_90", "wait_s", "available", "begins")):
    """Machines that are taken away, as spot instances are, and replaced: each lives by a law, or by a trace of what was to be had."""

    of: Literal["nodes", "worker-nodes"] = Field(
        default="nodes", description="what is taken; worker-nodes: servers, and a coordinator, are on nodes that nobody takes"
    )
    mtbf_s: MeanLife | None = Field(default=None, description="mean life of a node, from when it is there until it is taken")
    shape: Annotated[Moderate, Field(ge=0.1, le=20)] | None = Field(
        default=None,
        description="shape of the Weibull law of a node's life: below 1 many are taken early, and who has lived long lives longer; left "
        "out: that of the other faults",
    )
    most_s: MeanLife | None = Field(default=None, description="life after which every node is taken, such as 24 h; left out: none")
    rates_90: tuple[Share90, Share90] | None = Field(
        default=None,
        description="from how many times to how many times as often nodes may be taken as mtbf says, 90% sure; each run draws its own; "
        "left out: as it says",
    )
    notice_s: Overhead = Field(default=0.0, description="warning before a node is taken; a checkpoint that fits into it loses no work")
    wait_s: Overhead = Field(default=0.0, description="mean time until another node is to be had, memoryless")
    replacement_s: Overhead = Field(description="time until a node that is to be had is there")
    available: tuple[Nodes, ...] = Field(
        default=(), max_length=100_000, description="a trace of how many nodes are to be had when, in place of laws; its last point ends it"
    )
    begins: Literal["anywhere", "at-start"] = Field(
        default="anywhere",
        description="where in the trace the job begins; anywhere: each run at another place, and after its end comes its beginning",
    )

    def _broken_rules(self) -> Iterator[str]:
        if (self.mtbf_s is None) == (not self.available):
            both = "both mtbf and available" if self.available else "neither mtbf nor available"
            yield f"has {both}: give the mean life of a node, or a trace of the nodes that are to be had"
        if self.available:
            law = [name for name in ("shape", "most_s", "rates_90", "wait_s") if getattr(self, name)]
            if law:
                yield f"has {law[0].removesuffix('_s')} and available: a trace follows no law, leave one of the two out"
            times = [point.at_s for point in self.available]
            if len(times) < 2 or times != sorted(set(times)) or times[0]:
                yield "available needs two points or more, the first at 0 s, each later than the one before; the last ends it"
            if not any(point.nodes for point in self.available[:-1]):
                yield "available has no node at any time, so that the job never begins"
        yield from _rules_of_rates(self.rates_90)


class Faults(Terse):
    """``[job.faults]``: what dies, how often, and what becomes of the job then.

    Files of ``models/faults`` have the same keys: what others have seen fail, which a scenario may ``use`` under its own keys.
    """

    name: str = Field(default="", max_length=200, description="for readers: whose faults these are")
    description: str = Field(default="", max_length=10_000, description="for readers")
    source: str = Field(default="", max_length=10_000, description="where the figures were published, and how the rates follow from them")
    worker_mtbf_s: MeanLife | None = Field(default=None, description="mean time between crashes of one worker process")
    server_mtbf_s: MeanLife | None = Field(default=None, description="mean time between crashes of one parameter server")
    node_mtbf_s: MeanLife | None = Field(default=None, description="mean time between crashes of one node, with all that runs on it")
    job_mtbf_s: MeanLife | None = Field(
        default=None, description="mean time between faults of the job as a whole, however many nodes it has: its own code, data, storage"
    )
    preemption: Preemption | None = Field(default=None, description="nodes that are taken away, as spot instances are; left out: none")
    shape: Annotated[Moderate, Field(ge=0.1, le=20)] = Field(
        default=1.0, description="shape of the Weibull law of the times between faults: 1 is memoryless, below it faults come in clusters"
    )
    rates_90: tuple[Share90, Share90] | None = Field(
        default=None,
        description="from how many times to how many times the rates of faults may be what the mean times say, 90% sure; each run draws "
        "its own, the same for all kinds but preemption, which has its own key; left out: as they say",
    )
    rates_90_of: tuple[Literal["worker", "server", "node", "job"], ...] = Field(
        default=(), description="whose mean times rates_90 is of; left out: all, or with use, those that the scenario does not give itself"
    )
    trace: tuple[Fault, ...] = Field(
        default=(), max_length=100_000, description="faults as they came, in place of mean times or beside them"
    )
    detection_s: Overhead = Field(
        default=0.0, description="time until a fault is noticed, such as a time-out of heartbeats or of a collective"
    )
    restart_s: Overhead = Field(default=0.0, description="time until a crashed process runs again, before its start-up")
    startup_s: Overhead | None = Field(
        default=None,
        description="start-up time of what starts again, such as a worker that returns alone; left out: the job's, with its tracing",
    )
    replacement_s: Overhead = Field(default=0.0, description="time until a crashed node is back or replaced, before its start-up")
    retries: int | None = Field(default=None, ge=0, description="restarts after which the job is given up; left out: never")
    elastic: bool = Field(
        default=False, description="true: synchronous training goes on with fewer workers until the crashed one is back; false: all wait"
    )
    min_workers: int = Field(default=1, ge=1, description="fewest workers that go on, of elastic or asynchronous training")

    def _broken_rules(self) -> Iterator[str]:
        if self.rates_90_of and self.rates_90 is None:
            yield "rates_90_of says which rates are uncertain, not by how much: give rates_90"
        yield from _rules_of_rates(self.rates_90)

    @property
    def happen(self) -> bool:
        """Return whether anything fails."""
        mean_times = (self.worker_mtbf_s, self.server_mtbf_s, self.node_mtbf_s, self.job_mtbf_s, self.preemption)
        return bool(self.trace) or any(known is not None for known in mean_times)


class Job(Terse):
    """``[job]`` of a scenario: how much is trained, and what happens beside steps."""

    epochs: Annotated[Moderate, Field(gt=0)] | None = Field(default=None, description="passes over the data set")
    samples: Samples | None = Field(default=None, description="samples in all, in place of epochs")
    dataset_size: Samples | None = Field(default=None, description="samples of the data set; left out: one epoch has all samples")
    startup: Duration | None = Field(default=None, description="time until the first step begins; left out: as measured, else none")
    tracing: Duration | None = Field(
        default=None, description="by how much the first step takes longer than later ones; left out: as measured, else none"
    )
    evaluation_tracing: Duration | None = Field(
        default=None, description="by how much the first evaluation takes longer than later ones; left out: as measured, else none"
    )
    iterators: Literal["renewed", "kept"] = Field(
        default="renewed",
        description="renewed: each epoch ends a tf.data iterator and begins another, as Keras does with a finite data set; "
        "kept: one goes on, as of a data set that repeats, with steps_per_epoch; evaluations end theirs either way",
    )
    evaluation: Evaluation | None = Field(default=None, description="evaluations between epochs; left out: none")
    checkpoint: Checkpoint | None = Field(default=None, description="how often checkpoints are written, and how; left out: none is written")
    faults: Faults | None = Field(default=None, description="what fails, how often, and what it takes to go on; left out: nothing fails")

    def _broken_rules(self) -> Iterator[str]:
        if self.samples is None and (self.epochs is None or self.dataset_size is None):
            lacking = (
                "dataset_size" if self.epochs is not None else "epochs" if self.dataset_size is not None else "epochs and dataset_size"
            )
            yield f"has no length: give samples, or epochs and dataset_size ({lacking} is missing)"
        if self.samples is not None and self.epochs is not None and self.dataset_size is not None:
            yield "has samples, epochs and dataset_size; two of them say how long it is: leave one out"
        epochs = self.total_samples / self.epoch_samples
        if epochs > _MOST_EPOCHS:
            yield (
                f"has {epochs:,.0f} epochs, and at most {_MOST_EPOCHS:,} can be gone through: give fewer epochs or samples, or a "
                "dataset_size in samples, not in batches"
            )

    @property
    def total_samples(self) -> float:
        """Samples that are trained on in all."""
        if self.samples is not None:
            return float(self.samples)
        assert self.epochs is not None
        assert self.dataset_size is not None
        return float(self.epochs * self.dataset_size)

    @property
    def epoch_samples(self) -> float:
        """Samples of an epoch; all, where there is no data set."""
        if self.dataset_size is not None:
            return float(self.dataset_size)
        return self.total_samples / float(self.epochs) if self.epochs is not None else self.total_samples
