"""A scenario: everything that one simulation depends on.

This module has the table ``[run]``, rules between tables, and what follows from several of them; tables are in ``simulator.spec``,
strategies in ``simulator.strategies``, which see a scenario as ``Setup``. :attr:`Scenario.hash` identifies results in files: an unset new
key must not change it. ``paceline.sweeping.results_file`` finds workload, cluster and strategy in the bytes of a line by their order.
:data:`Resolved` and :data:`Drawn` are later forms of a scenario.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, NewType, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from simulator.base.spec import DAY_S, Itself, PositiveSeconds, Terse, Usual, canonical
from simulator.base.text import Short, counted, listed
from simulator.base.validation_errors import is_valid
from simulator.spec.cluster import Cluster
from simulator.spec.constants import Known, constants
from simulator.spec.figures import Unit
from simulator.spec.input_pipeline import InputPipeline, InputWork
from simulator.spec.job import Faults, Job, Preemption
from simulator.spec.training import Training
from simulator.spec.uncertainty import Discrepancy
from simulator.spec.workload import Workload
from simulator.strategies.catalogue import AnyStrategy
from simulator.strategies.setup import Layout

HOW_SIMULATED = ("detail", "grouping", "engine", "memory")
"""Keys of ``run`` that set how a scenario is simulated, not what; its identity does not depend on them."""


class Run(Terse, only=HOW_SIMULATED):
    """How long, how often and from which start training is simulated."""

    goes_with: ClassVar[Mapping[str, tuple[str, tuple[str, ...]]]] = {"start_spread_s": ("start", ("staggered",))}

    steps: int = Field(default=100, ge=2, le=10_000_000, description="steps of each worker")
    job_steps: int | None = Field(
        default=None, ge=1, le=10**12, description="asynchronous: steps of the whole job, over all workers, in place of steps x workers"
    )
    sharing: Literal["shared", "each-its-own"] = Field(
        default="shared",
        description="how asynchronous workers share the job. shared: a free worker takes the next step (ClusterCoordinator); "
        "each-its-own: every worker makes the same number and stops. No effect on synchronous training",
    )
    drain: bool = Field(
        default=False,
        description="asynchronous workers. true: hand out only the job's steps and measure until the last worker ends; false: all "
        "workers stay busy until the job's last step ends",
    )
    warmup_steps: int | None = Field(
        default=None,
        ge=0,
        description="first steps of each worker, excluded from the measurement; left out: a tenth, at least 1; with job_steps none",
    )
    start: Literal["together", "staggered", "random-phase"] | None = Field(
        default=None,
        description="when workers begin. together; staggered: uniformly at random over start_spread; random-phase: at random within one "
        "step. Left out: random-phase if each asynchronous worker drives itself, else together",
    )
    start_spread_s: Annotated[PositiveSeconds, Usual(1e-9, DAY_S)] | None = Field(
        default=None, description="with start = staggered: period over which workers begin"
    )
    seed: int = Field(
        default=0, ge=0, le=2**63 - 1, description="seed of all random numbers: the same seed gives the same result, byte for byte"
    )
    replications: int = Field(
        default=19, ge=2, le=100_000, description="independent runs; 19 is the fewest that give a distribution-free 90% interval"
    )
    detail: Literal["auto", "at-once", "messages"] = Field(
        default="auto",
        description="detail of all-reduces. at-once: evaluated for all ranks together; messages: every message of every rank is "
        "simulated (slower, shown in traces); auto: at-once, unless host work on messages shares cores or "
        "cluster.background.trace changes",
    )
    grouping: Literal["none", "per-server"] = Field(
        default="none",
        description="messages of parameter servers. none: each gradient is sent and applied as soon as it is ready; per-server: all "
        "gradients for a server are sent as one message after the backward pass, and all variables before the forward pass "
        "(several times faster to simulate); servers are ordered by their first ready gradient",
    )
    engine: Literal["auto", "simpy", "compiled"] = Field(
        default="auto",
        description="simulation engine. simpy: the textbook engine; compiled: all ranks at once if possible, else the compiled engine; "
        "auto: the same, in Python where there is no machine code (slower, with equal results)",
    )
    memory: Literal["refuse", "ignore"] = Field(
        default="refuse",
        description="refuse: refuse a scenario that needs more memory than its devices have, if both are known; ignore: simulate it anyway",
    )

    def _broken_rules(self) -> Iterator[str]:
        if self.job_steps is None and self.warmup >= self.steps:
            yield f"warmup_steps ({self.warmup}) must be below steps ({self.steps})"
        if self.job_steps is not None and self.sharing == "each-its-own":
            yield 'job_steps are shared by all workers: with sharing = "each-its-own" give steps'
        if (self.start == "staggered") != (self.start_spread_s is not None):
            yield 'start = "staggered" and start_spread belong together; give both or neither'

    @property
    def warmup(self) -> int:
        """Warm-up steps of each worker; by default 0 for a job with ``job_steps``."""
        if self.warmup_steps is not None:
            return self.warmup_steps
        return 0 if self.job_steps is not None else max(1, self.steps // 10)

    def total_steps(self, replicas: int) -> int:
        """Steps of all replicas together."""
        return self.job_steps if self.job_steps is not None else self.steps * replicas


_AT_MOST = {"straggler_cv": 0.3, "crowding": 1.0}
"""Constants that are shares of a step, and their upper limits."""


def _or_none(schema: dict[str, Any]) -> None:
    """Read the text "none" as a discrepancy of zero."""
    schema["anyOf"].append({"const": "none"})


class Scenario(Short, Terse, only=("training", "discrepancy", "practice", "input", "job", "measured_in")):
    """Workload, cluster, strategy and run; validated together."""

    see: ClassVar[str] = "to_frame() has every key; paceline.simulate(scenario) answers it, paceline.load(scenario, {...}) changes it"

    schema_version: Literal[1] = Field(default=1, description="version of this format")
    workload: Workload = Field(description="the workload: a file of the catalogue (use), with your own keys over it, or all keys in place")
    cluster: Cluster = Field(description="the cluster: a file of the catalogue (use), with your own keys over it, or all keys in place")
    strategy: AnyStrategy = Field(description="how training is distributed")
    run: Run = Field(default=Run(), description="how the training is simulated")
    training: Training = Field(
        default=Training(), description="how each step is computed: micro-batches, recomputation, precision, optimizer"
    )
    input: InputPipeline | None = Field(default=None, description="a tf.data pipeline; left out: workload.input gives the time of a batch")
    job: Job | None = Field(default=None, description="the whole job; left out: only steps are simulated")
    discrepancy: Discrepancy | None = Field(
        default=None,
        description='model error of predictions of this kind, used only for intervals: your own figures, or "none"; left out: from its '
        "regime (models/discrepancy.toml)",
        json_schema_extra=_or_none,
    )
    practice: dict[str, Known] = Field(
        default_factory=dict,
        description="shares of nominal rates that software achieves, by name of the constant, in place of Paceline's own "
        "(docs/numbers.md); a number, or value, low and high of a 90% interval",
    )
    measured_in: dict[str, Any] | None = Field(
        default=None,
        description='with workload.measured_with = "servers", the scenario in which the step was measured; filled in when a change is '
        "tried; left out: this one",
    )

    @field_validator("practice")
    @classmethod
    def _of_known_names(cls, given: dict[str, Known]) -> dict[str, Known]:
        for name in given:
            if name not in constants():
                raise ValueError(f"there is no constant {name[:60]!r}; known are {', '.join(constants())}")
            if name in _AT_MOST and given[name].high > _AT_MOST[name]:
                raise ValueError(f"{name} ({given[name].high:g}) is a share of a step and must be at most {_AT_MOST[name]:g}; 5% is 0.05")
            if name.endswith("_share") and given[name].high > 1:
                raise ValueError(f"{name} ({given[name].high:g}) is a share of a nominal rate and must be at most 1")
        return given

    @field_validator("measured_in")
    @classmethod
    def _a_whole_scenario(cls, given: dict[str, Any] | None) -> dict[str, Any] | None:
        """Require a complete scenario with parameter servers."""
        if given is not None and not (is_valid(cls, given) and cls.model_validate(given).servers):
            raise ValueError("must be a complete scenario with parameter servers; leave it out to use this one")
        return given

    @field_validator("discrepancy", mode="before")
    @classmethod
    def _table_or_none(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        if value != "none":
            raise ValueError('must be "none" or a table with compute and communication (docs/intervals.md)')
        return Discrepancy()

    def _broken_rules(self) -> Iterator[str]:
        load, cluster = self.workload, self.cluster
        if (load.batch_per_replica is None) == (load.global_batch is None):
            has = (
                "neither batch_per_replica (weak scaling) nor global_batch (strong scaling)"
                if load.global_batch is None
                else f"both batch_per_replica ({load.batch_per_replica}) and global_batch ({load.global_batch})"
            )
            yield f"workload has {has}; it needs exactly one of them"
        strategy, layout = self.strategy, self.layout
        strategy.check_layout(cluster)
        if cluster.room is not None and layout.nodes > cluster.room:
            needing = [counted(layout.replicas, "replica")]
            needing += [counted(layout.servers, "server")] * bool(layout.servers) + ["the client"] * layout.client
            yield (
                f"{cluster.room_key} ({cluster.room}) must be at least {layout.nodes}, for {listed(needing)} of the strategy: take fewer "
                f"workers, or a larger {cluster.room_key}"
            )
        if load.global_batch is not None and load.global_batch % layout.replicas:
            yield f"workload.global_batch ({load.global_batch}) must be a multiple of the {layout.replicas} replicas"
        yield from _rules_of_training(self)
        yield from _rules_of_input(self)
        strategy.check(self)
        yield from _rules_of_run(self)
        if self.job is not None:
            yield from _rules_of_job(self, self.job)

    @property
    def eager(self) -> bool | None:
        """Whether a framework launches each kernel; None: unknown, or as a workload was computed already."""
        return {"eager": True, "graph": False, None: self.strategy.cuts_batches or None}[self.training.launch]

    @property
    def sections(self) -> dict[str, Any]:
        """Parts by name, for a similar scenario that is validated again."""
        return {name: getattr(self, name) for name in type(self).model_fields}

    def _in_short(self) -> Iterator[str]:
        yield f"{self.strategy.in_words}, {counted(self.workers, 'worker')}, {self.workload.name} on {self.cluster.name}"
        run, length = self.run, "" if self.job is None else ", a whole job"
        yield f"{counted(self.batch, 'sample')} per step each{length}"
        yield f"{counted(run.replications, 'replication')} of {counted(run.job_steps or run.steps, 'step')}, seed {run.seed}"

    @cached_property
    def layout(self) -> Layout:
        """Layout of the strategy's processes on the cluster."""
        return self.strategy.layout(self.cluster)

    @property
    def replicas(self) -> int:
        """Replicas: copies of the model that train."""
        return self.layout.replicas

    @property
    def ranks(self) -> int:
        """Number of ranks: replicas, or their parts if the model is split."""
        return self.layout.ranks

    @property
    def replicas_per_process(self) -> int:
        """Replicas per worker process: all of them with MirroredStrategy."""
        return self.layout.replicas_per_process

    @property
    def processes(self) -> int:
        """Worker processes."""
        return self.layout.processes

    @property
    def waits_for_iterators(self) -> bool:
        """Return whether all workers wait for the ends of iterators; asynchronous workers wait only for their own, and with servers data
        sets repeat."""
        return not self.strategy.pace.asynchronous and not self.layout.servers

    def machines_of(self, replicas: NDArray[np.int64]) -> NDArray[np.int64]:
        """The machines of replicas' processes: their nodes, or the single machine on which all nodes are processes."""
        return replicas // self.cluster.replicas_per_node if self.cluster.shared_cores is None else np.zeros_like(replicas)

    @property
    def workers(self) -> int:
        """Number of workers as the strategy counts them: worker processes, or the replicas of a single process."""
        return self.layout.workers

    @property
    def warmup(self) -> int:
        """Unmeasured steps of each worker: ``run.warmup``, increased with local SGD to leave whole averaging periods."""
        steps, every = self.run.steps, self.strategy.pace.every
        return steps - (steps - self.run.warmup) // every * every

    def shortened(self, steps: int, warmup: int) -> Self:
        """Return the scenario with fewer steps per worker, with at least one averaging period of local SGD after the warm-up."""
        steps = max(steps, warmup + self.strategy.pace.every)
        run = self.run.model_copy(update={"steps": steps, "job_steps": None, "warmup_steps": warmup})
        return self.model_copy(update={"run": run})

    @property
    def rank_messages(self) -> bool:
        """Return whether each message of an all-reduce is simulated: on request, or because host work shares cores or links change."""
        changing = self.hosts_share_cores or self.reads_share_links or self.follows_trace
        return self.strategy.reduction is not None and (self.run.detail == "messages" or changing)

    @property
    def reads_share_links(self) -> bool:
        """Return whether reads of input pipelines from storage share the links between nodes with collectives."""
        storage, work = self.cluster.storage, self.input_work
        reads = storage is not None and storage.over_network and work is not None and work.read_bytes_per_sample > 0
        return reads and self.worker_nodes > 1

    @property
    def hosts_share_cores(self) -> bool:
        """Return whether host work on messages between nodes queues for shared cores."""
        cluster = self.cluster
        return cluster.shared_cores is not None and cluster.transport.works_on_messages and self.worker_nodes > 1

    @property
    def follows_trace(self) -> bool:
        """Return whether background traffic on links of ranks changes during the run."""
        background = self.cluster.background
        if background is None or not background.changes:
            return False
        return self.layout.ranks > 1 if background.on == "intra-node" else self.nodes_needed > 1

    @property
    def faults(self) -> Faults | None:
        """Faults of the job, including preemptions of the price in use; None if nothing fails."""
        job, price = self.job, self.cluster.price
        if job is None:
            return None
        faults = job.faults or Faults()
        if price is not None and price.preemption is not None:
            faults = faults.model_copy(update={"preemption": price.preemption})
        return faults if faults.happen else None

    @cached_property
    def lone_step_s(self) -> float:
        """Seconds of a step without contention and jitter."""
        return self.strategy.lone_step_s(self)

    @cached_property
    def full_step_s(self) -> float:
        """Seconds of a step with all workers: the step without contention, or the time that one link, server or the cores need for all."""
        return self.strategy.full_step_s(self)

    @property
    def servers(self) -> int:
        """Parameter servers; 0 for other strategies."""
        return self.layout.servers

    @property
    def worker_nodes(self) -> int:
        """Nodes that hold replicas."""
        return self.layout.worker_nodes

    @property
    def nodes_needed(self) -> int:
        """Nodes for replicas, servers and a client together."""
        return self.layout.nodes

    @property
    def batch(self) -> int:
        """Samples per replica and step."""
        if self.workload.batch_per_replica is not None:
            return self.workload.batch_per_replica
        assert self.workload.global_batch is not None
        return self.workload.global_batch // self.replicas

    @property
    def unit(self) -> Unit:
        """What its training counts."""
        model = self.workload.transformer
        return Unit("samples", 1) if model is None else Unit("tokens", model.sequence)

    @property
    def input_work(self) -> InputWork | None:
        """Work of a pipeline per batch in the simulated epochs: those after the first, unless the job has only one."""
        pipeline, job = self.input, self.job
        if pipeline is None or pipeline.cached is None or (job is not None and job.total_samples <= job.epoch_samples):
            return pipeline.work if pipeline is not None else None
        return pipeline.cached

    @property
    def scaling(self) -> Literal["weak", "strong"]:
        """Weak: the batch per replica is fixed; strong: the global batch."""
        return "weak" if self.workload.global_batch is None else "strong"

    @cached_property
    def hash(self) -> str:
        """Content hash, equal for scenarios that differ only in how they are simulated."""
        content = self.model_dump(mode="json", exclude={"workload", "cluster"})
        return hash_of(content, {"workload": canonical(Itself(self.workload)), "cluster": canonical(Itself(self.cluster))})


def hash_of(content: Mapping[str, Any], texts: Mapping[str, str] | None = None) -> str:
    """Content hash of a scenario given as JSON data; some of its tables may be given as canonical text."""
    run = {key: value for key, value in content["run"].items() if key not in HOW_SIMULATED}
    written = {key: json.dumps(value, sort_keys=True, separators=(",", ":")) for key, value in {**content, "run": run}.items()}
    text = ",".join(f'"{key}":{value}' for key, value in sorted({**written, **(texts or {})}.items()))
    return hashlib.sha256(f"{{{text}}}".encode()).hexdigest()[:16]


NO_SEQUENCES = "the workload has no sequences of tokens ([workload.transformer]); give samples"


def _rules_of_job(scenario: Scenario, job: Job) -> Iterator[str]:
    layout, faults, price = scenario.layout, scenario.faults, scenario.cluster.price
    said = job.faults.preemption if job.faults is not None else None
    if said is not None and price is not None and price.preemption not in (None, said):
        yield "cluster.price.preemption and job.faults.preemption both set how often nodes are preempted: keep one of them"
    if scenario.run.job_steps is not None:
        yield "run.job_steps and [job] both set the length of the job: keep [job], and give run.steps for the steps to simulate"
    if job.tokens is not None:
        both = job.samples is not None
        yield "job.samples and job.tokens both set the length of the job: leave one out" if both else f"job.tokens: {NO_SEQUENCES}"
    if faults is None:
        if not any(offer.preemption for offer in scenario.cluster.ways_to_pay):  # with which the same job may be planned
            yield from _rules_of_without_faults(job)
        return
    if faults.server_mtbf_s is not None and not layout.servers:
        yield "job.faults.server_mtbf applies to parameter servers, and the strategy has none: leave it out"
    if (taken := faults.preemption) is not None:
        if taken.of == "worker-nodes" and layout.servers_beside:
            yield 'job.faults.preemption.of = "worker-nodes" needs servers on their own nodes; here they share nodes with workers'
        most = max((point.nodes for point in taken.available[:-1]), default=math.inf)
        needed = _needed_nodes(scenario, faults, taken)
        if most < needed:
            yield (
                f"job.faults.preemption.available has at most {most} node{'' if most == 1 else 's'}, but the strategy needs {needed} at "
                "once: take fewer workers, or set job.faults.elastic; with parameter servers on their own nodes, set preemption.of = "
                '"worker-nodes"'
            )
    counts = {"worker": layout.processes, "server": layout.servers, "node": layout.nodes}
    for number, fault in enumerate(faults.trace):
        if fault.number >= counts[fault.of]:
            name, most = f"job.faults.trace.{number}.number", counts[fault.of]
            yield f"{name} ({fault.number}) must be below the number of {fault.of}s ({most}); numbers begin at 0"
    if faults.min_workers > layout.processes:
        yield f"job.faults.min_workers ({faults.min_workers}) must be at most the number of workers ({layout.processes})"


def _rules_of_without_faults(job: Job) -> Iterator[str]:
    if job.faults is not None:
        yield (
            "job.faults has no fault: give worker_mtbf, server_mtbf, node_mtbf, job_mtbf, preemption, trace or a spot price with "
            "cluster.price.preemption, or leave [job.faults] out"
        )
    if job.checkpoint is not None and job.checkpoint.interval == "best":
        yield (
            'job.checkpoint.interval = "best" needs faults, and nothing fails here: give job.faults, or an interval such as '
            'job.checkpoint.every = "30 min"'
        )


def _needed_nodes(scenario: Scenario, faults: Faults, taken: Preemption) -> int:
    """Fewest preemptible nodes, from the first on, with which the job continues."""
    layout = scenario.layout
    of_workers = taken.of == "worker-nodes"
    everything = layout.worker_nodes if of_workers else layout.nodes
    goes_on = scenario.strategy.pace.asynchronous if layout.servers else faults.elastic
    if not goes_on or (layout.servers and not of_workers and not layout.servers_beside):  # servers are on the last nodes
        return everything
    fewest = math.ceil(faults.min_workers * layout.replicas_per_process / layout.replicas_per_node)
    return max(fewest, 0 if of_workers else layout.servers)


def _rules_of_training(scenario: Scenario) -> Iterator[str]:
    training, load = scenario.training, scenario.workload
    if scenario.strategy.compresses and (training.precision or load.precision) == "bfloat16":
        yield "strategy.compression applies to float32 gradients, and training in bfloat16 already has 2 bytes per value: leave it out"
    if scenario.batch % training.micro_batches:
        yield (
            f"training.micro_batches ({training.micro_batches}) must divide the batch of a replica ({scenario.batch} samples): give a "
            "divisor, or another batch"
        )
    if training.recompute == "selective" and not load.layers:
        yield (
            f'training.recompute = "selective" needs the layers of the workload {load.name[:60]!r}, which mark what is cheap to '
            'recompute: measure it with "paceline calibrate --layers", or give recompute = "full"'
        )


def _rules_of_input(scenario: Scenario) -> Iterator[str]:
    pipeline, cluster = scenario.input, scenario.cluster
    if pipeline is None:
        return
    for name, work in (("work", pipeline.work), ("cached", pipeline.cached)):
        if work is not None and work.read_bytes_per_sample and cluster.storage is None:
            yield (
                f"input.{name}.read_bytes_per_sample ({work.read_bytes_per_sample:g}) needs cluster.storage, which sets the speed of "
                "reading: give it, or leave the bytes out if reading takes no time"
            )
    if scenario.layout.client:
        yield (
            'strategy.replication = "in-graph" has one client that prepares all batches in sequence, which [input] does not describe: '
            "give workload.input instead, or use between-graph replication"
        )
    if cluster.shared_cores is not None and cluster.host_cores is not None:
        yield (
            f"cluster.host_cores ({cluster.host_cores}) and cluster.shared_cores ({cluster.shared_cores:g}) both set the cores that "
            "prepare batches: keep one of them"
        )


def _rules_of_run(scenario: Scenario) -> Iterator[str]:
    run, cluster = scenario.run, scenario.cluster
    if cluster.overlap_slowdown and (cluster.replicas_per_device > 1 or cluster.device_is_host):
        yield "cluster.overlap_slowdown needs one replica per device: set replicas_per_device to 1"
    if cluster.shared_cores is not None and cluster.transport.cpu_per_byte_s:
        yield (
            "cluster.shared_cores and cluster.transport.cpu_per_byte exclude each other, because shared cores do not simulate work during "
            "a transfer: give copy_per_byte instead"
        )
    if cluster.shared_cores is not None and cluster.device_is_host and cluster.replicas_per_device > 1:
        yield (
            f"cluster.replicas_per_device ({cluster.replicas_per_device}) must be 1 with compute on cluster.shared_cores, where a task "
            "has a core to itself for its time slice: give devices_per_node"
        )
    if not scenario.strategy.pace.asynchronous and run.job_steps is not None:
        yield "run.job_steps applies to asynchronous workers, which share a job's steps: for synchronous training give run.steps"
    if run.job_steps is not None and run.warmup * scenario.replicas >= run.job_steps:
        yield f"run.warmup_steps ({run.warmup}) of each of {scenario.replicas} workers must be fewer than the job's {run.job_steps} steps"


Resolved = NewType("Resolved", Scenario)
"""A complete scenario: times are for the cluster's device and precision, and defaults are filled in.

Made by :func:`simulator.resolve.resolve.resolve`, once per written scenario. Changed copies of it stay resolved.
"""
Drawn = NewType("Drawn", Resolved)
"""Input of one replication: a resolved scenario with one draw of every uncertain quantity, and achieved rates in place of nominal ones.

Made by :func:`simulator.resolve.drawing.drawn_of`; programs and engines take nothing else.
"""
