"""How gradients are sent: fusion into buckets, compression (``[strategy.compression]``), and placement on parameter servers.

Buckets: Li et al., "PyTorch Distributed", VLDB 2020, section 3.2.2; TensorFlow's ``bytes_per_pack``. The order in which they are reduced,
and fusing by the clock (``strategy.fusion_cycle``), are simulated in ``simulator.engine.production.fusing``; layers of a model that is
cut are fused by ``fused`` of ``simulator.strategies.holding``. Placement on servers follows TensorFlow's rules;
``simulator.strategies.server_steps`` makes the messages of a step by them. Compression:

==========  ====================================  ===================  =======================================
kind        a tensor of V values is sent as       collective           source
==========  ====================================  ===================  =======================================
fp16        2 V bytes                             all-reduce           Horovod, ``Compression.fp16``
int8        V bytes and a scale of 4              all-gather           Alistarh et al., "QSGD", NeurIPS 2017
1-bit       V / 8 bytes and two values of 4       all-gather           Seide et al., Interspeech 2014
top-k       the k = ratio V largest, each with    all-gather           Lin et al., "Deep gradient compression",
            its place: 8 k bytes                                       ICLR 2018
powersgd    rank (rows + columns) values of 4,    two all-reduces,     Vogels et al., "PowerSGD",
            first rank rows, then rank columns    one after the other  NeurIPS 2019, algorithm 1
==========  ====================================  ===================  =======================================

Values with different scales or positions cannot be summed on the way, so every rank receives those of all ranks, and the volume grows with
their number. With int8 and 1-bit ranks may instead each add one part of all and compress the sum once more (``exchange = "all-reduce"``:
Seide et al., section 3; Tang et al., "1-bit Adam", ICML 2021), which sends as much as an all-reduce of the compressed bytes.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, ClassVar, Literal, NamedTuple

from pydantic import Field

from simulator.base.spec import MessageBytes, PerByte, PositiveShare, Spec, Terse
from simulator.spec.workload import Variable, Workload

_VALUE_BYTES, _PLACE_BYTES, _SCALE_BYTES = 4.0, 4.0, 4.0
_MIN_SHARD_BYTES = 256 * 1024.0
_FEEDS_BACK = ("1-bit", "top-k", "powersgd")
"""Kinds whose authors use error feedback."""
_TRAFFIC: dict[str, tuple[float, float]] = {
    "fp16": (1.5, 1.5),
    "int8": (2.25, 1.25),
    "1-bit": (2.03, 1.03),
    "top-k": (2.0, 3.0),
    "powersgd": (2.0, 1.0),
}
"""Minimum bytes moved between a device and its memory to compress and to decompress a byte of gradient.

fp16: 4 bytes of each value are read and 2 written, and the other way. int8, 1-bit and top-k:
all is read for the scale or the threshold, and once more to be written short; a value that
comes is read with its place and added. PowerSGD: the matrix is multiplied from both sides,
and its approximation written.
"""
_FEEDBACK_TRAFFIC = 4.0
"""Memory traffic of error feedback: read the residual, write the sum, then read both and write the new residual."""


class Compression(Terse):
    """``[strategy.compression]``: what is sent in place of float32 gradients."""

    goes_with: ClassVar[Mapping[str, tuple[str, tuple[str, ...]]]] = {
        "ratio": ("kind", ("top-k",)),
        "rank": ("kind", ("powersgd",)),
        "exchange": ("kind", ("int8", "1-bit")),
    }

    kind: Literal["fp16", "int8", "1-bit", "top-k", "powersgd"] = Field(
        description="what is sent: values of 2 bytes, 1 byte or 1 bit, only the largest values, or two thin matrices for each matrix"
    )
    ratio: PositiveShare | None = Field(default=None, description="top-k: share of values sent")
    rank: int | None = Field(default=None, ge=1, le=10_000, description="powersgd: columns of the thin matrices")
    error_feedback: bool | None = Field(
        default=None,
        description="keep what was not sent and add it to the next gradient (error feedback); left out: true for 1-bit, top-k and powersgd",
    )
    exchange: Literal["all-gather", "all-reduce"] | None = Field(
        default=None,
        description="with int8 and 1-bit between replicas. all-gather: each replica receives what all others send; all-reduce: each sums "
        "one part, compresses the sum again and sends it to all; left out: all-gather",
    )
    compress_per_byte_s: PerByte | None = Field(
        default=None, description="seconds a device needs to compress a byte of float32 gradient; left out: the time of its memory accesses"
    )
    decompress_per_byte_s: PerByte | None = Field(
        default=None,
        description="seconds to decompress a byte of float32 gradient, for each rank's gradient if all are gathered; left out: the time "
        "of memory accesses",
    )

    def _broken_rules(self) -> Iterator[str]:
        for key, (_, kinds) in self.goes_with.items():
            if getattr(self, key) is not None and self.kind not in kinds:
                yield f'{key} ({getattr(self, key)}) applies to kind = "{kinds[0]}", not to "{self.kind}": leave it out or change kind'
        if self.kind == "top-k" and self.ratio is None:
            yield 'kind = "top-k" needs ratio, the share of values sent, such as ratio = 0.01'
        if self.kind == "powersgd" and self.rank is None:
            yield 'kind = "powersgd" needs rank, the columns of the thin matrices, such as rank = 4'

    @property
    def feeds_back(self) -> bool:
        """Return whether error feedback is used."""
        return self.kind in _FEEDS_BACK if self.error_feedback is None else self.error_feedback

    @property
    def gathers(self) -> bool:
        """Return whether every replica receives what all others send, because it cannot be summed on the way."""
        return self.kind == "top-k" or (self.kind in ("int8", "1-bit") and self.exchange != "all-reduce")

    @property
    def rounds(self) -> int:
        """Number of collectives in sequence for the gradients of a bucket."""
        return 2 if self.kind == "powersgd" else 1

    def sent_bytes(self, variable: Variable, batch: int) -> tuple[float, ...]:
        """Bytes of a gradient that one rank sends in each round; sparse gradients (rows and indices) are not compressed."""
        if variable.sparse_bytes_per_sample is not None:
            return (variable.gradient_bytes(batch), 0.0)[: self.rounds]
        values = variable.size_bytes / _VALUE_BYTES
        if self.kind == "powersgd":
            rows, columns = _matrix(variable, values)
            rank = min(float(self.rank or 1), rows, columns)
            if rank * (rows + columns) >= values:
                return variable.size_bytes, 0.0  # vectors, and what would not become shorter, go whole with the first
            return rank * rows * _VALUE_BYTES, rank * columns * _VALUE_BYTES
        if self.kind == "top-k":
            return (math.ceil((self.ratio or 1.0) * values) * (_VALUE_BYTES + _PLACE_BYTES),)
        each = {"fp16": 2.0, "int8": 1.0, "1-bit": 0.125}[self.kind]
        scales = {"fp16": 0.0, "int8": _SCALE_BYTES, "1-bit": 2 * _SCALE_BYTES}[self.kind]
        return (math.ceil(values * each) + scales,)

    def collective_bytes(self, variable: Variable, batch: int, replicas: int) -> tuple[float, ...]:
        """Return its part of the size of each round's collective: summed, or gathered from all replicas."""
        if self.gathers:
            return tuple(replicas * sent for sent in self.sent_bytes(variable, batch))
        # the rows of a sparse gradient are gathered, (n - 1) S, by a ring that sends 2 (n - 1) / n of its size
        gathered = replicas / 2 if variable.sparse_bytes_per_sample is not None and replicas > 1 else 1.0
        return tuple(gathered * sent for sent in self.sent_bytes(variable, batch))

    def kept_bytes(self, variables: Iterable[Variable]) -> float:
        """Bytes that a device keeps between steps: the residual that was not sent, and PowerSGD's second matrix."""
        dense = [variable for variable in variables if variable.sparse_bytes_per_sample is None]
        kept = math.fsum(variable.size_bytes for variable in dense) if self.feeds_back else 0.0
        return float(kept + (math.fsum(self.sent_bytes(variable, 1)[1] for variable in dense) if self.kind == "powersgd" else 0.0))

    def compress_s(self, variables: Iterable[Variable], memory_bytes_per_s: float | None) -> float:
        """Seconds to compress the gradients of some variables.

        Parameters
        ----------
        variables
            Sparse ones are not compressed.
        memory_bytes_per_s
            Between the device and its memory, by which the cost is found where it is not given; none: it costs nothing.
        """
        per_byte_s = self.compress_per_byte_s
        if per_byte_s is None:
            traffic = _TRAFFIC[self.kind][0] + (_FEEDBACK_TRAFFIC if self.feeds_back else 0.0)
            per_byte_s = traffic / memory_bytes_per_s if memory_bytes_per_s else 0.0
        return float(per_byte_s * _dense_bytes(variables))

    def decompress_s(self, variables: Iterable[Variable], memory_bytes_per_s: float | None, ranks: int = 1) -> float:
        """Seconds to decompress gradients from ``ranks`` ranks; parameters as for :meth:`compress_s`."""
        per_byte_s = self.decompress_per_byte_s
        if per_byte_s is None:
            per_byte_s = _TRAFFIC[self.kind][1] / memory_bytes_per_s if memory_bytes_per_s else 0.0
        share = self.ratio or 1.0 if self.kind == "top-k" else 1.0
        return float(per_byte_s * _dense_bytes(variables) * share * ranks)

    def among_replicas_s(self, variables: Iterable[Variable], memory_bytes_per_s: float | None, replicas: int) -> tuple[float, float]:
        """Seconds before and after the collectives of one of several replicas.

        With all-gather, a replica decompresses what all have sent; with all-reduce, it decompresses one part from each, compresses the sum,
        and decompresses the whole.
        """
        variables = tuple(variables)
        before_s = self.compress_s(variables, memory_bytes_per_s)
        if self.exchange == "all-reduce":
            return before_s * (1.0 + 1.0 / replicas), self.decompress_s(variables, memory_bytes_per_s, 2)
        return before_s, self.decompress_s(variables, memory_bytes_per_s, replicas if self.gathers else 1)

    @property
    def in_words(self) -> str:
        """Name for tables and plans: ``top-k 1%``, ``PowerSGD rank 4``."""
        if self.kind == "top-k":
            return f"top-k {100 * (self.ratio or 0.0):g}%"
        return f"PowerSGD rank {self.rank}" if self.kind == "powersgd" else f"{self.kind} gradients"


def _matrix(variable: Variable, values: float) -> tuple[float, float]:
    """Rows and columns of a variable as a matrix: by its last or its first dimension, whichever is known; else a vector."""
    if variable.columns is not None:
        return values / variable.columns, float(variable.columns)
    rows = float(variable.rows or values)
    return rows, values / rows


def _dense_bytes(variables: Iterable[Variable]) -> float:
    return float(math.fsum(variable.size_bytes for variable in variables if variable.sparse_bytes_per_sample is None))


class Bucket(NamedTuple):
    """A bucket of gradients: the share of the backward pass after which all are ready, and their bytes."""

    ready: float
    size_bytes: float


def buckets(
    workload: Workload,
    batch: int,
    bucket_size_bytes: float | None,
    replicas: int,
    compression: Compression | None = None,
    first_bucket_bytes: float | None = None,
) -> list[Bucket]:
    """Fuse gradients into all-reduces of at least ``bucket_size_bytes``, in the order in which they become ready; or all into one.

    The first all-reduce has at least ``first_bucket_bytes``, if given (PyTorch's DDP). Compressed gradients are fused by the bytes that one
    rank sends. Gradients with several collectives in sequence have one bucket per collective, all ready at the same time.

    Notes
    -----
    The rows that a sparse gradient touches differ from replica to replica, so TensorFlow
    gathers them all instead of summing them (``all_reduce_indexed_slices``): each rank
    sends (n - 1) S, which a ring all-reduce sends of n / 2 times S.
    """

    def sizes_of(variable: Variable) -> tuple[tuple[float, ...], float]:
        """Return its part of each round's collective, and its size within a bucket."""
        if compression is not None:
            return compression.collective_bytes(variable, batch, replicas), math.fsum(compression.sent_bytes(variable, batch))
        gathered = replicas / 2 if variable.sparse_bytes_per_sample is not None and replicas > 1 else 1.0
        size = variable.gradient_bytes(batch) * gathered
        return (size,), size

    if bucket_size_bytes is None and compression is None:
        return [Bucket(1.0, math.fsum(sizes_of(variable)[1] for variable in workload.variables))]
    rounds = 1 if compression is None else compression.rounds
    fused: list[Bucket] = []
    sizes, filled, full = [0.0] * rounds, 0.0, first_bucket_bytes or bucket_size_bytes
    last = workload.variables[-1]
    for variable in workload.variables:
        parts, counted = sizes_of(variable)
        sizes = [size + part for size, part in zip(sizes, parts, strict=True)]
        filled += counted
        if variable is last or (full is not None and filled >= full):
            # the last gradient ends the backward pass, whatever the clock of the measurement said
            ready = 1.0 if variable is last else variable.ready
            fused += [Bucket(ready, size) for size in sizes if size]
            sizes, filled, full = [0.0] * rounds, 0.0, bucket_size_bytes
    return fused


class Partitioner(Spec):
    """How large variables are split into shards along their first dimension (``tf.distribute.experimental.partitioners``)."""

    goes_with: ClassVar[Mapping[str, tuple[str, tuple[str, ...]]]] = {"shard_size_bytes": ("kind", ("min-size", "max-size"))}

    kind: Literal["fixed-shards", "min-size", "max-size"] = Field(
        description="fixed-shards: a fixed number of shards; min-size: as many shards as possible of at least shard_size; max-size: "
        "shards of at most shard_size"
    )
    shards: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        default=None, description="with fixed-shards: number of shards; with the others: at most this number"
    )
    shard_size_bytes: MessageBytes | None = Field(
        default=None,
        description="with min-size: shards are about this large or larger (256 KiB if left out); with max-size: at most this large",
    )

    def _broken_rules(self) -> Iterator[str]:
        if self.kind == "fixed-shards" and (self.shards is None or self.shard_size_bytes is not None):
            yield 'kind = "fixed-shards" takes shards (their number) and no shard_size; use kind = "max-size" for a size'
        if self.kind == "min-size" and self.shards is None:
            yield 'kind = "min-size" needs shards, the maximum per variable (TensorFlow\'s max_shards)'
        if self.kind == "max-size" and self.shard_size_bytes is None:
            yield 'kind = "max-size" needs shard_size, the maximum size of a shard, such as shard_size = "64 MiB"'


def shard_count(variable: Variable, partitioner: Partitioner | None) -> int:
    """Return the number of shards of a variable."""
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
    """Number of places where a variable may be split, plus one."""
    return variable.rows if variable.rows is not None else max(int(variable.size_bytes // 4), 1)


def shards_of(variable: Variable, partitioner: Partitioner | None) -> list[float]:
    """Shares of a variable that its shards hold, in order; ``[1.0]`` if it is not split.

    As in ``tf.distribute.experimental.partitioners``, a variable of ``rows`` rows is split between rows, the first shards taking one more
    if the division has a remainder. A variable with unknown rows may be split anywhere. (TensorFlow's MinSizePartitioner rounds the number
    of shards up, so that they can be smaller than its minimum.)
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
