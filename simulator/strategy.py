"""Strategies: how replicas share the work and keep their parameters together.

The names are those of ``tf.distribute``. What each does when simulated stands in
``simulator/strategies/``, one folder or file a mechanism.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from simulator.spec import Bytes, Seconds, Spec

__all__ = [
    "Algorithm",
    "AllReduceStrategy",
    "Coordinator",
    "Mirrored",
    "MultiWorkerMirrored",
    "ParameterServer",
    "Partitioner",
    "Single",
    "Strategy",
]

Count = Annotated[int, Field(ge=1, le=100_000)]
Algorithm = Literal[
    "ring",
    "bidirectional-ring",
    "halving-doubling",
    "double-binary-tree",
    "hierarchical",
    "reduce-to-one-device",
    "hierarchical-copy",
    "auto",
]


class Single(Spec):
    """One replica on one device, nothing to communicate: ``tf.distribute.get_strategy()``."""

    kind: Literal["single"] = "single"


class AllReduceStrategy(Spec):
    """What the two strategies that all-reduce have in common."""

    algorithm: Algorithm = Field(
        default="ring",
        description="how gradients are all-reduced; auto: whichever is fastest for the size of each bucket, with one of NCCL's protocols "
        "among what NCCL has (ring, double-binary-tree), with protocol = none among all",
    )
    protocol: Literal["none", "simple", "ll", "ll128", "auto"] = Field(
        default="none", description="cost and extra bytes of a message, from cluster.protocols; none: those of the links alone"
    )
    pipeline_chunk_bytes: Annotated[Bytes, Field(gt=0)] = Field(
        default=512 * 1024.0, description="pieces in which the double binary tree passes a buffer on"
    )
    bucket_size_bytes: Annotated[Bytes, Field(gt=0)] | None = Field(
        default=None,
        description="gradients are fused into all-reduces of at least this size as they become ready "
        "(tf.distribute's bytes_per_pack); with fusion_cycle, of at most this size; left out: one all-reduce after the backward pass",
    )
    fusion_cycle_s: Annotated[Seconds, Field(ge=1e-6)] | None = Field(
        default=None,
        description="every cycle, the gradients that are ready on all replicas are fused and reduced (Horovod's HOROVOD_CYCLE_TIME)",
    )
    priority: Literal["ready", "forward"] = Field(
        default="ready",
        description="ready: buckets are reduced in the order in which they become ready, and all before the next step begins; forward: "
        "those go first that the next forward pass needs first, and it begins when they have come (ByteScheduler, P3)",
    )
    through_host: bool = Field(
        default=False, description="gradients are copied to the host, reduced there and copied back (gRPC rings); needs cluster.host_link"
    )
    sync_every: int = Field(
        default=1,
        ge=1,
        le=10**6,
        description="local SGD: replicas average their variables every so many steps and are on their own between",
    )


class Mirrored(AllReduceStrategy):
    """``tf.distribute.MirroredStrategy``: all-reduce among the devices of one node."""

    kind: Literal["mirrored"] = "mirrored"
    replicas: Count | None = Field(default=None, description="left out: all that one node takes")


class MultiWorkerMirrored(AllReduceStrategy):
    """``tf.distribute.MultiWorkerMirroredStrategy``: all-reduce over all replicas, node by node."""

    kind: Literal["multi-worker-mirrored"] = "multi-worker-mirrored"
    workers: Count | None = Field(default=None, description="left out: as many as fill the cluster")
    replicas_per_worker: int = Field(default=1, ge=1, le=1024, description="a worker is a process on one node, with so many devices")


class Partitioner(Spec):
    """How large variables are cut into shards along their first dimension (``tf.distribute.experimental.partitioners``)."""

    kind: Literal["fixed-shards", "min-size", "max-size"] = Field(
        description="so many shards; or as many as give each at least a size; or no more than one"
    )
    shards: Count | None = Field(default=None, description="fixed-shards: how many; the others: at most so many")
    shard_size_bytes: Annotated[Bytes, Field(gt=0)] | None = Field(
        default=None, description="min-size: shards are about this large or larger (256 KiB if left out); max-size: at most this large"
    )

    @model_validator(mode="after")
    def _consistent(self) -> Partitioner:
        if self.kind == "fixed-shards" and (self.shards is None or self.shard_size_bytes is not None):
            raise ValueError('kind = "fixed-shards" takes shards (how many), and no shard size; kind = "max-size" takes that')
        if self.kind == "min-size" and self.shards is None:
            raise ValueError('kind = "min-size" needs shards, the most that a variable is cut into (TensorFlow\'s max_shards)')
        if self.kind == "max-size" and self.shard_size_bytes is None:
            raise ValueError('kind = "max-size" needs shard_size, what a shard holds at most, such as shard_size = "64 MiB"')
        return self


class Coordinator(Spec):
    """The one process that hands out steps in ParameterServerStrategy (``ClusterCoordinator``)."""

    dispatch_s: Seconds = Field(default=0.0, ge=0, description="its own work for a step; it does one at a time")
    latency_s: Seconds = Field(default=0.0, ge=0, description="between a step's end and the next one's begin besides")


class ParameterServer(Spec):
    """``tf.distribute.ParameterServerStrategy`` (async) or ``SyncReplicasOptimizer`` (sync)."""

    kind: Literal["parameter-server"] = "parameter-server"
    mode: Literal["sync", "async", "ssp"] = Field(
        description="sync: gradients are averaged each step; async: each is applied when it comes; ssp: async, but nobody "
        "runs more than bound steps ahead of the slowest"
    )
    workers: Count | None = Field(default=None, description="left out: as many as fill the cluster's nodes")
    replicas_per_worker: int = Field(
        default=1,
        ge=1,
        le=1024,
        description="a worker is a process on one node, with so many devices, which sum their gradients before it pushes them as one",
    )
    servers: Count = Field(default=1, description="parameter servers, which hold the variables")
    bound: int | None = Field(default=None, ge=0, le=10**9, description="ssp: steps that a worker may be ahead of the slowest")
    backup_workers: int = Field(
        default=0,
        ge=0,
        le=100_000,
        description="sync: each step averages the first workers - backup_workers gradients and drops the others",
    )
    late_workers: Literal["finish", "cancel"] = Field(
        default="finish",
        description="what a worker does whose gradient comes too late: finish its step for nothing (SyncReplicasOptimizer), "
        "or stop computing and begin the next (Chen et al. 2016)",
    )
    server_placement: Literal["dedicated", "colocated"] = Field(
        default="dedicated", description="servers on nodes of their own, or server i on worker node i, sharing its link"
    )
    variable_placement: Literal["round-robin", "greedy"] = Field(
        default="round-robin",
        description="variables in turn (TensorFlow's default), or each onto the server with the fewest bytes so far "
        "(GreedyLoadBalancingStrategy)",
    )
    partitioner: Partitioner | None = Field(default=None, description="left out: a variable is not cut")
    pull_order: Literal["forward", "random", "together"] | None = Field(
        default=None,
        description="in which order a server sends its variables, while the forward pass goes on with those that have come: as that "
        "pass needs them, at random, or all at once, so that it begins when the last has come; left out: at random, as TensorFlow does",
    )
    coordinator: Coordinator | None = Field(default=None, description="left out: none, each worker drives itself (between-graph)")
    replication: Literal["between-graph", "in-graph"] = Field(
        default="between-graph", description="each worker reads its own input, or one client on a node of its own feeds them all"
    )

    @model_serializer(mode="wrap")
    def _written(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without the devices of a worker where it has one, so that the hash of such a scenario stays what it was."""
        written: dict[str, Any] = handler(self)
        if self.replicas_per_worker == 1:
            written.pop("replicas_per_worker", None)
        return written

    @property
    def pulls(self) -> Literal["forward", "random", "together"]:
        """In which order a server sends its variables: as given, or at random, as TensorFlow does."""
        return self.pull_order or "random"

    @model_validator(mode="after")
    def _consistent(self) -> ParameterServer:
        if self.mode == "ssp" and self.bound is None:
            raise ValueError('mode = "ssp" needs bound, the steps that a worker may be ahead of the slowest, such as bound = 3')
        if self.mode != "ssp" and self.bound is not None:
            raise ValueError(f'bound ({self.bound}) is of mode = "ssp", not of "{self.mode}"; leave it out or change mode')
        if self.backup_workers and self.mode != "sync":
            raise ValueError(f'backup_workers ({self.backup_workers}) need mode = "sync": where nobody waits, nobody is late')
        if self.late_workers == "cancel" and not self.backup_workers:
            raise ValueError('late_workers = "cancel" needs backup_workers: without them no gradient comes too late; give both or neither')
        if self.coordinator is not None and self.mode != "async":
            raise ValueError(f'coordinator needs mode = "async", not "{self.mode}": ClusterCoordinator hands out steps one by one')
        return self


Strategy = Annotated[Single | Mirrored | MultiWorkerMirrored | ParameterServer, Field(discriminator="kind")]
