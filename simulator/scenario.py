"""A scenario: everything that one simulation depends on, and the only thing."""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field, model_validator

from simulator.cluster import Cluster
from simulator.spec import Seconds, Spec
from simulator.strategy import Mirrored, MultiWorkerMirrored, ParameterServer, Single, Strategy
from simulator.workload import Workload

__all__ = ["Run", "Scenario"]


class Run(Spec):
    """How long, how often and from which start the training is simulated."""

    steps: int = Field(
        default=100, ge=2, le=10_000_000, description="steps of each worker; in async mode the workers share steps x workers updates"
    )
    warmup_steps: int | None = Field(default=None, ge=1, description="first steps that are not measured; left out: a tenth, at least 1")
    start: Literal["together", "staggered", "random-phase"] = Field(
        default="together", description="all at once; spread evenly at random over start_spread; or over the time of one step"
    )
    start_spread_s: Annotated[Seconds, Field(gt=0)] | None = None
    seed: int = Field(default=0, ge=0, le=2**63 - 1)
    replications: int = Field(
        default=19, ge=2, le=100_000, description="independent runs; 19 is the fewest that give a distribution-free 90% interval"
    )

    @model_validator(mode="after")
    def _consistent(self) -> Run:
        if self.warmup_steps is not None and self.warmup_steps >= self.steps:
            raise ValueError(f"warmup_steps ({self.warmup_steps}) must be below steps ({self.steps})")
        if (self.start == "staggered") != (self.start_spread_s is not None):
            raise ValueError('start = "staggered" and start_spread belong together; give both or neither')
        return self

    @property
    def warmup(self) -> int:
        """Steps of each worker that are cut."""
        return self.warmup_steps if self.warmup_steps is not None else max(1, self.steps // 10)


class Scenario(Spec):
    """Workload, cluster, strategy and run; validated together."""

    schema_version: Literal[1] = 1
    workload: Workload
    cluster: Cluster
    strategy: Strategy
    run: Run = Run()

    @model_validator(mode="after")
    def _consistent(self) -> Scenario:
        load, cluster = self.workload, self.cluster
        if (load.batch_per_replica is None) == (load.global_batch is None):
            has = (
                "neither batch_per_replica (weak scaling) nor global_batch (strong scaling)"
                if load.global_batch is None
                else f"both batch_per_replica ({load.batch_per_replica}) and global_batch ({load.global_batch})"
            )
            raise ValueError(f"workload has {has}; it needs exactly one of them")
        if isinstance(self.strategy, Mirrored) and self.replicas > cluster.replicas_per_node:
            raise ValueError(
                f"strategy.replicas ({self.replicas}) must be at most the {cluster.replicas_per_node} that one node takes "
                "(cluster.devices_per_node x cluster.replicas_per_device); over several nodes use multi-worker-mirrored"
            )
        if isinstance(self.strategy, (MultiWorkerMirrored, ParameterServer)) and self.strategy.workers is None and cluster.nodes is None:
            raise ValueError("strategy.workers is left out and so is cluster.nodes; give one of them")
        if cluster.nodes is not None and self.nodes_needed > cluster.nodes:
            raise ValueError(
                f"cluster.nodes ({cluster.nodes}) must be at least {self.nodes_needed}, "
                f"which the strategy's {self.replicas} replicas and {self.servers} servers need"
            )
        if isinstance(self.strategy, MultiWorkerMirrored) and cluster.replicas_per_node % self.strategy.replicas_per_worker:
            raise ValueError(
                f"strategy.replicas_per_worker ({self.strategy.replicas_per_worker}) must divide the {cluster.replicas_per_node} replicas "
                "that a node takes (cluster.devices_per_node x cluster.replicas_per_device), since a worker is a process on one node"
            )
        if isinstance(self.strategy, ParameterServer) and self.servers > len(load.variables):
            raise ValueError(
                f"strategy.servers ({self.servers}) must be at most the workload's {len(load.variables)} variables, "
                "since a variable is not split"
            )
        if load.global_batch is not None and load.global_batch % self.replicas:
            raise ValueError(f"workload.global_batch ({load.global_batch}) must be a multiple of the {self.replicas} replicas")
        return self

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
        return strategy.workers or max(worker_nodes, 1) * cluster.replicas_per_node

    @property
    def lone_step_s(self) -> float:
        """Seconds of a step whose transfers have all links to themselves and whose compute has no jitter."""
        load, strategy, batch = self.workload, self.strategy, self.batch
        step_s = float(load.compute_s(batch) + load.apply_s)
        link = self.cluster.intra_node if isinstance(strategy, Mirrored) else self.cluster.inter_node
        size = sum(variable.gradient_bytes(batch) for variable in load.variables)
        if isinstance(strategy, ParameterServer):
            size += sum(variable.pull_bytes(batch) for variable in load.variables)
            return step_s + float(size / link.bandwidth_bytes_per_s + 2 * link.latency_s)
        turns = 2 * (self.replicas - 1)
        return step_s + float(turns * (size / self.replicas / link.bandwidth_bytes_per_s + link.latency_s))

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
            if self.strategy.server_placement == "colocated":
                return max(self.worker_nodes, self.servers)
            return self.worker_nodes + self.servers
        return self.worker_nodes

    @property
    def batch(self) -> int:
        """Samples that each replica takes a step."""
        if self.workload.batch_per_replica is not None:
            return self.workload.batch_per_replica
        assert self.workload.global_batch is not None
        return self.workload.global_batch // self.replicas

    @cached_property
    def hash(self) -> str:
        """Content hash: equal scenarios, and only they, have it in common."""
        canonical = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]
