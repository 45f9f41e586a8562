"""A scenario: everything that one simulation depends on, and the only thing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SerializerFunctionWrapHandler, field_validator, model_serializer, model_validator

from simulator.cluster import Cluster
from simulator.constants import Known, constants
from simulator.discrepancy import Discrepancy
from simulator.rules import check
from simulator.spec import Seconds, Spec
from simulator.strategy import AllReduceStrategy, Mirrored, MultiWorkerMirrored, ParameterServer, Single, Strategy
from simulator.workload import Workload

__all__ = ["HOW_SIMULATED", "NAMED_BEFORE", "Run", "Scenario"]

HOW_SIMULATED = ("detail", "grouping", "engine")
"""Keys of ``run`` that say how a scenario is simulated, not what: its identity does not depend on them."""
NAMED_BEFORE = {"strategy.messages": "run.detail", "strategy.tensor_grouping": "run.grouping"}
"""Keys under which files of before set how a scenario is simulated; they are still read."""
_HASHED: dict[str, dict[str, Any]] = {
    "mirrored": {"messages": False},
    "multi-worker-mirrored": {"messages": False},
    "parameter-server": {"tensor_grouping": "none"},
}
"""By kind of strategy: what those keys said where they were left out. Every content hash holds it, so that it is what it was."""


class Run(Spec):
    """How long, how often and from which start the training is simulated."""

    steps: int = Field(default=100, ge=2, le=10_000_000, description="steps of each worker")
    job_steps: int | None = Field(
        default=None, ge=1, le=10**12, description="asynchronous: steps of the whole job, all workers together, in place of steps x workers"
    )
    sharing: Literal["shared", "each-its-own"] = Field(
        default="shared",
        description="of asynchronous workers (no effect where all make each step together); shared: whoever is free takes the job's next "
        "step (ClusterCoordinator); each-its-own: every worker makes as many and stops",
    )
    drain: bool = Field(
        default=False,
        description="of asynchronous workers: hand out no more steps than the job has and measure until the last one has ended; "
        "else all workers stay busy until as many have",
    )
    warmup_steps: int | None = Field(
        default=None, ge=0, description="first steps of each worker that are not measured; left out: a tenth, at least 1"
    )
    start: Literal["together", "staggered", "random-phase"] | None = Field(
        default=None,
        description="all at once; spread evenly at random over start_spread; or over the time of one step; left out: as workers of that "
        "kind start (random-phase where each asynchronous worker drives itself, else together)",
    )
    start_spread_s: Annotated[Seconds, Field(gt=0)] | None = Field(default=None, description="start = staggered: over how long")
    seed: int = Field(default=0, ge=0, le=2**63 - 1, description="the same seed gives the same result, byte for byte")
    replications: int = Field(
        default=19, ge=2, le=100_000, description="independent runs; 19 is the fewest that give a distribution-free 90% interval"
    )
    detail: Literal["auto", "at-once", "messages"] = Field(
        default="auto",
        description="of all-reduces; at-once: evaluated for all ranks together; messages: every message is a transfer of its own, rank by "
        "rank (slower, shown in traces); auto: at once, unless hosts' work on messages shares cores",
    )
    grouping: Literal["none", "per-server"] = Field(
        default="none",
        description="of parameter servers; none: each gradient travels and is applied on its own, as soon as it is ready; "
        "per-server: all gradients for a server travel as one after the backward pass, all variables before the forward pass "
        "(several times faster to simulate)",
    )
    engine: Literal["auto", "simpy", "compiled"] = Field(
        default="auto", description="what runs the simulation; auto: by the number of events that is expected"
    )

    @model_validator(mode="after")
    def _consistent(self) -> Run:
        if self.job_steps is None and self.warmup >= self.steps:
            raise ValueError(f"warmup_steps ({self.warmup}) must be below steps ({self.steps})")
        if self.job_steps is not None and self.sharing == "each-its-own":
            raise ValueError('job_steps are shared; with sharing = "each-its-own" give steps')
        if (self.start == "staggered") != (self.start_spread_s is not None):
            raise ValueError('start = "staggered" and start_spread belong together; give both or neither')
        return self

    @property
    def warmup(self) -> int:
        """Steps of each worker that are cut; none of a job that is counted as a whole, if left out."""
        if self.warmup_steps is not None:
            return self.warmup_steps
        return 0 if self.job_steps is not None else max(1, self.steps // 10)

    @model_serializer(mode="wrap")
    def _written(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without what only says how it is simulated, where it is not given: files stay what they were."""
        written: dict[str, Any] = handler(self)
        for name in HOW_SIMULATED:
            if getattr(self, name) == type(self).model_fields[name].default:
                written.pop(name, None)
        return written

    def total_steps(self, replicas: int) -> int:
        """Steps of all replicas together."""
        return self.job_steps if self.job_steps is not None else self.steps * replicas


def _or_none(schema: dict[str, Any]) -> None:
    """That the text "none" may stand for a discrepancy of nothing."""
    schema["anyOf"].append({"const": "none"})


class Scenario(Spec):
    """Workload, cluster, strategy and run; validated together."""

    schema_version: Literal[1] = 1
    workload: Workload
    cluster: Cluster
    strategy: Strategy
    run: Run = Run()
    discrepancy: Annotated[Discrepancy | None, BeforeValidator(lambda given: Discrepancy() if given == "none" else given)] = Field(
        default=None,
        description='what predictions of this kind are off by, for intervals alone: your own figures, or "none"; left out: that of its '
        "regime (models/discrepancy.toml)",
        json_schema_extra=_or_none,
    )
    practice: dict[str, Known] = Field(
        default_factory=dict,
        description="what software gets of nominal rates, by the name of the constant, in place of Paceline's own (docs/practice.md); "
        "a number, or value, low and high of a 90% interval",
    )

    @model_validator(mode="before")
    @classmethod
    def _of_before(cls, data: Any) -> Any:
        """With what files of before say in ``strategy`` on how it is simulated moved to ``run``, where that does not say it."""
        strategy, run = (data.get("strategy"), data.get("run", {})) if isinstance(data, Mapping) else (None, None)
        if not isinstance(strategy, Mapping) or not isinstance(run, (Mapping, Run)):
            return data
        old = {key: strategy[key] for key in _HASHED.get(str(strategy.get("kind")), {}) if key in strategy}
        if not old:
            return data
        run = run.model_dump() if isinstance(run, Run) else run
        for key, value in old.items():
            if key == "messages" and not isinstance(value, bool):
                raise ValueError(f"strategy.messages: {str(value)[:60]!r} must be true or false; its name is run.detail now")
            if key == "tensor_grouping" and value not in ("none", "per-server"):
                raise ValueError(
                    f"strategy.tensor_grouping: {str(value)[:60]!r} must be 'none' or 'per-server'; its name is run.grouping now"
                )
            if value == _HASHED[strategy["kind"]][key]:
                continue  # as it is by itself
            run = {NAMED_BEFORE[f"strategy.{key}"].removeprefix("run."): "messages" if key == "messages" else value, **run}
        return {**data, "strategy": {key: value for key, value in strategy.items() if key not in old}, "run": run}

    @field_validator("practice")
    @classmethod
    def _of_known_names(cls, given: dict[str, Known]) -> dict[str, Known]:
        for name in given:
            if name not in constants():
                raise ValueError(f"there is no constant {name[:60]!r}; known are {', '.join(constants())}")
            if name.endswith("_share") and given[name].high > 1:
                raise ValueError(f"{name} ({given[name].high:g}) is a share of a nominal rate: it must be at most 1")
        return given

    @field_validator("discrepancy", mode="before")
    @classmethod
    def _table_or_none(cls, given: Any) -> Any:
        if isinstance(given, str) and given != "none":
            raise ValueError('must be "none", or a table with compute and communication (docs/metrics.md)')
        return given

    @model_validator(mode="after")
    def _consistent(self) -> Scenario:
        check(self)
        return self

    @model_serializer(mode="wrap")
    def _written(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without constants or a discrepancy where none are set, so that the hash of such a scenario stays what it was."""
        written: dict[str, Any] = handler(self)
        for name in ("discrepancy", "practice"):
            if not getattr(self, name):
                written.pop(name, None)
        return written

    @property
    def sections(self) -> dict[str, Any]:
        """All its parts by name, for another scenario like it that is validated anew."""
        return {name: getattr(self, name) for name in type(self).model_fields}

    @property
    def replicas(self) -> int:
        """Copies of the model that train."""
        strategy, cluster = self.strategy, self.cluster
        if isinstance(strategy, Single):
            return 1
        if isinstance(strategy, Mirrored):
            return strategy.replicas or cluster.replicas_per_node
        if isinstance(strategy, MultiWorkerMirrored):
            fill = (cluster.nodes or 1) * cluster.replicas_per_node // strategy.replicas_per_worker
            return (strategy.workers or max(fill, 1)) * strategy.replicas_per_worker
        worker_nodes = (cluster.nodes or 1) - (strategy.servers if strategy.server_placement == "dedicated" else 0)
        worker_nodes -= int(strategy.replication == "in-graph")
        fill = max(worker_nodes, 1) * cluster.replicas_per_node // strategy.replicas_per_worker
        return (strategy.workers or max(fill, 1)) * strategy.replicas_per_worker

    @property
    def replicas_per_process(self) -> int:
        """Replicas that one worker process drives: MirroredStrategy's one drives all."""
        if isinstance(self.strategy, (MultiWorkerMirrored, ParameterServer)):
            return self.strategy.replicas_per_worker
        return self.replicas

    @property
    def processes(self) -> int:
        """Worker processes."""
        return -(-self.replicas // self.replicas_per_process)

    def machine_of(self, replica: int) -> int:
        """The machine that a replica's process runs on: its node, or the one on which all nodes are processes."""
        return replica // self.cluster.replicas_per_node if self.cluster.shared_cores is None else 0

    @property
    def warmup(self) -> int:
        """Steps of each worker that are not measured: ``run.warmup``, and of local SGD what leaves whole averaging periods."""
        steps, warmup = self.run.steps, self.run.warmup
        if not isinstance(self.strategy, AllReduceStrategy):
            return warmup
        every = self.strategy.sync_every
        return steps - (steps - warmup) // every * every

    def shortened(self, steps: int, warmup: int) -> Scenario:
        """With fewer steps of each worker, but of local SGD no fewer than one averaging period after the warm-up."""
        every = self.strategy.sync_every if isinstance(self.strategy, AllReduceStrategy) else 1
        run = self.run.model_copy(update={"steps": max(steps, warmup + every), "job_steps": None, "warmup_steps": warmup})
        return self.model_copy(update={"run": run})

    @property
    def rank_messages(self) -> bool:
        """Whether every message of an all-reduce is simulated: asked for, or because hosts' work on them shares cores."""
        if not isinstance(self.strategy, AllReduceStrategy):
            return False
        return self.run.detail == "messages" or self.hosts_share_cores

    @property
    def hosts_share_cores(self) -> bool:
        """Whether hosts' work on messages between nodes waits for cores that all share."""
        cluster = self.cluster
        return cluster.shared_cores is not None and cluster.transport.works_on_messages and self.worker_nodes > 1

    @property
    def lone_step_s(self) -> float:
        """Seconds of a step whose transfers have all links to themselves and whose compute has no jitter."""
        load, strategy, batch = self.workload, self.strategy, self.batch
        step_s = float(load.compute_s(batch) + load.apply_s)
        link = self.cluster.intra_node if isinstance(strategy, Mirrored) else self.cluster.inter_node
        size = sum(variable.gradient_bytes(batch) for variable in load.variables)
        copy_s = 0.0  # of both hosts, for each byte on the wire
        if link is self.cluster.inter_node:
            size *= self.cluster.transport.wire_bytes_per_byte
            copy_s = 2 * self.cluster.transport.copy_per_byte_s / self.cluster.transport.wire_bytes_per_byte
        if isinstance(strategy, ParameterServer):
            size += sum(variable.pull_bytes(batch) for variable in load.variables) * self.cluster.transport.wire_bytes_per_byte
            if strategy.coordinator is not None:
                step_s += strategy.coordinator.dispatch_s + strategy.coordinator.latency_s
            return step_s + float(size / link.bandwidth_bytes_per_s + 2 * link.latency_s + copy_s * size)
        turns = 2 * (self.replicas - 1)
        chunk = size / self.replicas
        return step_s + float(turns * (chunk / link.bandwidth_bytes_per_s + link.latency_s + copy_s * chunk))

    @property
    def full_step_s(self) -> float:
        """Seconds of a step when all workers are under way: what it takes alone, or what one link, server or the cores need for all."""
        load, strategy, batch = self.workload, self.strategy, self.batch
        if not isinstance(strategy, ParameterServer):
            return max(self.lone_step_s, float(load.input(batch)), self._cores_s)
        s_per_byte = self.cluster.transport.wire_bytes_per_byte / self.cluster.link_of(0).bandwidth_bytes_per_s
        sizes = [variable.gradient_bytes(batch) for variable in load.variables]
        pulled = sum(variable.pull_bytes(batch) for variable in load.variables)
        each_s = max(pulled, sum(sizes)) * s_per_byte / strategy.servers, sum(load.server(size) for size in sizes) / strategy.servers
        dispatch_s = strategy.coordinator.dispatch_s if strategy.coordinator is not None else 0.0
        copied_s = (pulled + sum(sizes)) * self.cluster.transport.copy_per_byte_s / strategy.servers
        return float(max(self.lone_step_s, self.replicas * max(*each_s, dispatch_s, copied_s), load.input(batch), self._cores_s))

    @property
    def _cores_s(self) -> float:
        """Seconds that the cores which all nodes share need for a step of every replica; their hosts' work on single messages left out."""
        load, strategy, cluster, batch = self.workload, self.strategy, self.cluster, self.batch
        if cluster.shared_cores is None:
            return 0.0
        sizes = [variable.gradient_bytes(batch) for variable in load.variables]
        busy = min(float(self.replicas), cluster.shared_cores)
        slowed = 1.0 + load.busy_core_slowdown * (busy - 1.0)
        work_s = load.input(batch) + (load.compute_s(batch) * slowed if cluster.device_is_host else 0.0)
        copied = 2 * (self.replicas - 1) / self.replicas * sum(sizes) if self.worker_nodes > 1 else 0.0
        if isinstance(strategy, ParameterServer):
            copied = sum(sizes) + sum(variable.pull_bytes(batch) for variable in load.variables)
            work_s += sum(load.server(size) for size in sizes)
            work_s += strategy.coordinator.dispatch_s if strategy.coordinator is not None else 0.0
        elif cluster.device_is_host:
            work_s += load.apply_s * slowed
        return float(self.replicas * (work_s + 2 * cluster.transport.copy_per_byte_s * copied) / cluster.shared_cores)

    @property
    def servers(self) -> int:
        """Parameter servers; 0 for other strategies."""
        return self.strategy.servers if isinstance(self.strategy, ParameterServer) else 0

    @property
    def worker_nodes(self) -> int:
        """Nodes that hold replicas."""
        return -(-self.replicas // self.cluster.replicas_per_node)

    @property
    def nodes_needed(self) -> int:
        """Nodes that replicas and servers take together."""
        if isinstance(self.strategy, ParameterServer):
            client = int(self.strategy.replication == "in-graph")
            if self.strategy.server_placement == "colocated":
                return max(self.worker_nodes, self.servers) + client
            return self.worker_nodes + self.servers + client
        return self.worker_nodes

    @property
    def batch(self) -> int:
        """Samples that each replica takes a step."""
        if self.workload.batch_per_replica is not None:
            return self.workload.batch_per_replica
        assert self.workload.global_batch is not None
        return self.workload.global_batch // self.replicas

    @property
    def hash(self) -> str:
        """Content hash: scenarios that are equal but for how they are simulated, and only they, have it in common."""
        content = self.model_dump(mode="json", exclude={"run": set(HOW_SIMULATED)})
        content["strategy"] |= _HASHED.get(self.strategy.kind, {})
        canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]
