"""Which parameter server holds which variable, or which shard of a variable.

The rules are TensorFlow's; ``simulator.strategies.tensors`` makes the messages of a step by them. On which nodes the servers sit is
another matter: ``Layout`` of ``simulator.strategies.setup``.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from simulator.base.spec import Bytes, Spec
from simulator.spec.workload import Variable

_MIN_SHARD_BYTES = 256 * 1024.0


class Partitioner(Spec):
    """How large variables are cut into shards along their first dimension (``tf.distribute.experimental.partitioners``)."""

    goes_with: ClassVar[Mapping[str, tuple[str, tuple[str, ...]]]] = {"shard_size_bytes": ("kind", ("min-size", "max-size"))}

    kind: Literal["fixed-shards", "min-size", "max-size"] = Field(
        description="fixed-shards: a fixed number of shards; min-size: as many as give each at least a size; max-size: "
        "none larger than a size"
    )
    shards: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        default=None, description="with fixed-shards: how many shards; with the others: at most this number"
    )
    shard_size_bytes: Annotated[Bytes, Field(gt=0)] | None = Field(
        default=None,
        description="with min-size: shards are about this large or larger (256 KiB if left out); with max-size: at most this large",
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


def shard_count(variable: Variable, partitioner: Partitioner | None) -> int:
    """How many shards a variable is cut into."""
    if partitioner is None:
        return 1
    rows = _rows(variable)
    most = min(partitioner.shards, rows) if partitioner.shards is not None else rows
    if partitioner.kind == "fixed-shards":
        return most
    if partitioner.kind == "min-size":
        wanted = variable.size_bytes / (partitioner.shard_size_bytes or _MIN_SHARD_BYTES)
        return max(1, math.ceil(min(float(wanted), most)))
    assert partitioner.shard_size_bytes is not None
    rows_a_shard = max(1, math.floor(min(float(partitioner.shard_size_bytes / (variable.size_bytes / rows)), rows)))
    return min(most, -(-rows // rows_a_shard))


def _rows(variable: Variable) -> int:
    """Places where a variable may be cut, and one."""
    return variable.rows if variable.rows is not None else max(int(variable.size_bytes // 4), 1)


def shards_of(variable: Variable, partitioner: Partitioner | None) -> list[float]:
    """Shares of a variable that its shards hold, in order; ``[1.0]`` if it is not cut.

    As ``tf.distribute.experimental.partitioners`` does it: a variable of ``rows`` rows is
    cut between rows, the first shards taking one more where they do not divide. One whose
    rows are not known may be cut anywhere. (TensorFlow's MinSizePartitioner rounds the
    number of shards up, so that they can be smaller than its minimum.)
    """
    if partitioner is None:
        return [1.0]
    rows, count = _rows(variable), shard_count(variable, partitioner)
    if variable.rows is None:
        return [1.0 / count] * count
    return [(rows // count + (index < rows % count)) / rows for index in range(count)]


Placement = Literal["round-robin", "greedy", "traffic"]


def place(loads: Sequence[float], servers: int, how: Placement) -> list[int]:
    """Server of each tensor, given in the order in which the model created them.

    In turn (``tf.compat.v1.train.replica_device_setter``'s and ParameterServerStrategy's
    default, which gives the shards of a variable their turns as well), or each on the
    server with the least load so far, the first of equals
    (``tf.contrib.training.GreedyLoadBalancingStrategy``, whose ``load_fn`` gives ``loads``:
    ``byte_size_load_fn`` the bytes of each tensor, one of the user's own what a step pulls and pushes of it).
    """
    if how == "round-robin":
        return [turn % servers for turn in range(len(loads))]
    heap = [(0.0, server) for server in range(servers)]
    chosen = []
    for load in loads:
        total, server = heap[0]
        chosen.append(server)
        heapq.heapreplace(heap, (total + load, server))
    return chosen
