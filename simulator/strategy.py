"""Strategies: how replicas share the work and keep their parameters together.

The names are those of ``tf.distribute``. What each does when simulated stands in
``simulator/strategies/``, one file a mechanism.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from simulator.spec import Bytes, Spec

__all__ = ["Mirrored", "MultiWorkerMirrored", "ParameterServer", "Single", "Strategy"]

Count = Annotated[int, Field(ge=1, le=100_000)]


class Single(Spec):
    """One replica on one device, nothing to communicate: ``tf.distribute.get_strategy()``."""

    kind: Literal["single"] = "single"


class _Ring(Spec):
    bucket_size_bytes: Annotated[Bytes, Field(gt=0)] | None = Field(
        default=None,
        description="gradients are fused into all-reduces of at least this size as they become ready "
        "(tf.distribute's bytes_per_pack); left out: one all-reduce after the backward pass",
    )
    messages: bool = Field(
        default=False, description="simulate every message of the ring as a transfer of its own; same result, slower, shown in traces"
    )


class Mirrored(_Ring):
    """``tf.distribute.MirroredStrategy``: ring all-reduce among the devices of one node."""

    kind: Literal["mirrored"] = "mirrored"
    replicas: Count | None = Field(default=None, description="left out: all that one node takes")


class MultiWorkerMirrored(_Ring):
    """``tf.distribute.MultiWorkerMirroredStrategy``: ring all-reduce over all replicas, node by node."""

    kind: Literal["multi-worker-mirrored"] = "multi-worker-mirrored"
    workers: Count | None = Field(default=None, description="left out: as many as fill the cluster")
    replicas_per_worker: Annotated[int, Field(ge=1, le=1024)] = 1


class ParameterServer(Spec):
    """``tf.distribute.ParameterServerStrategy`` (async) or ``SyncReplicasOptimizer`` (sync)."""

    kind: Literal["parameter-server"] = "parameter-server"
    mode: Literal["sync", "async"]
    workers: Count | None = Field(default=None, description="left out: as many as fill the cluster's nodes")
    servers: Count = 1
    server_placement: Literal["dedicated", "colocated"] = Field(
        default="dedicated", description="servers on nodes of their own, or server i on worker node i, sharing its link"
    )
    variable_placement: Literal["round-robin", "greedy"] = Field(
        default="round-robin",
        description="variables in turn (TensorFlow's default), or each onto the server with the fewest bytes so far "
        "(GreedyLoadBalancingStrategy)",
    )
    tensor_grouping: Literal["none", "per-server"] = Field(
        default="none",
        description="none: each gradient travels and is applied on its own, as soon as it is ready; "
        "per-server: all gradients for a server travel as one after the backward pass (several times faster to simulate)",
    )


Strategy = Annotated[Single | Mirrored | MultiWorkerMirrored | ParameterServer, Field(discriminator="kind")]
