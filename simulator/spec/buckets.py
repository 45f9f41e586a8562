"""Fusing gradients into buckets, each of which is all-reduced as one: fewer, larger all-reduces.

Li et al., "PyTorch Distributed", VLDB 2020, section 3.2.2; TensorFlow's ``bytes_per_pack``.
The order in which buckets are reduced, and fusing by the clock (``strategy.fusion_cycle``),
are simulated in ``simulator.engine.production.fusing``. Layers of a model that is cut are
fused by ``fused`` of ``simulator.strategies.holding``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from simulator.spec.compression import Compression
from simulator.spec.workload import Variable, Workload


class Bucket(NamedTuple):
    """Gradients that are reduced as one: the share of the backward pass after which all are ready, and their bytes."""

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

    The first all-reduce is one of at least ``first_bucket_bytes``, where that is given (PyTorch's DDP).
    Compressed gradients are fused by what one rank sends of them. Those that need several
    collectives one after the other have as many buckets, which are ready at the same time.

    Notes
    -----
    The rows that a sparse gradient touches differ from replica to replica, so TensorFlow
    gathers them all instead of summing them (``all_reduce_indexed_slices``): each rank
    sends (n - 1) S, which a ring all-reduce sends of n / 2 times S.
    """

    if compression is not None:
        return _compressed(workload, batch, bucket_size_bytes, replicas, compression, first_bucket_bytes)

    def size_of(variable: Variable) -> float:
        gathered = replicas / 2 if variable.sparse_bytes_per_sample is not None and replicas > 1 else 1.0
        return variable.gradient_bytes(batch) * gathered

    if bucket_size_bytes is None:
        return [Bucket(1.0, math.fsum(size_of(variable) for variable in workload.variables))]
    fused: list[Bucket] = []
    size, full = 0.0, first_bucket_bytes or bucket_size_bytes
    for variable in workload.variables:
        size += size_of(variable)
        if size >= full:
            fused.append(Bucket(variable.ready, size))
            size, full = 0.0, bucket_size_bytes
    if size:
        fused.append(Bucket(workload.variables[-1].ready, size))
    # the last gradient ends the backward pass, whatever the clock of the measurement said
    fused[-1] = Bucket(1.0, fused[-1].size_bytes)
    return fused


def _compressed(
    workload: Workload,
    batch: int,
    bucket_size_bytes: float | None,
    replicas: int,
    compression: Compression,
    first_bucket_bytes: float | None,
) -> list[Bucket]:
    fused: list[list[Bucket]] = []
    sizes, sent, full = [0.0] * compression.rounds, 0.0, first_bucket_bytes or bucket_size_bytes
    last = workload.variables[-1]
    for variable in workload.variables:
        sizes = [size + its for size, its in zip(sizes, compression.collective_bytes(variable, batch, replicas), strict=True)]
        sent += math.fsum(compression.sent_bytes(variable, batch))
        if variable is last or (full is not None and sent >= full):
            # the last gradient ends the backward pass, whatever the clock of the measurement said
            ready = 1.0 if variable is last else variable.ready
            fused.append([Bucket(ready, size) for size in sizes if size])
            sizes, sent, full = [0.0] * compression.rounds, 0.0, bucket_size_bytes
    return [bucket for of_round in fused for bucket in of_round]
