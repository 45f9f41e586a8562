"""Fusing gradients into buckets: fewer, larger all-reduces.

Li et al., "PyTorch Distributed", VLDB 2020, section 3.2.2; TensorFlow's ``bytes_per_pack``.
"""

from __future__ import annotations

from typing import NamedTuple

from simulator.workload import Variable, Workload

__all__ = ["Bucket", "buckets"]


class Bucket(NamedTuple):
    """Gradients that are reduced as one: the share of the backward pass after which all are ready, and their bytes."""

    ready: float
    size_bytes: float


def buckets(workload: Workload, batch: int, bucket_size_bytes: float | None, replicas: int) -> list[Bucket]:
    """Fuse gradients into all-reduces of at least ``bucket_size_bytes``, in the order in which they become ready; or all into one.

    Notes
    -----
    The rows that a sparse gradient touches differ from replica to replica, so TensorFlow
    gathers them all instead of summing them (``all_reduce_indexed_slices``): each rank
    sends (n - 1) S, which a ring all-reduce sends of n / 2 times S.
    """

    def size_of(variable: Variable) -> float:
        gathered = replicas / 2 if variable.sparse_bytes_per_sample is not None and replicas > 1 else 1.0
        return variable.gradient_bytes(batch) * gathered

    if bucket_size_bytes is None:
        return [Bucket(1.0, sum(size_of(variable) for variable in workload.variables))]
    fused: list[Bucket] = []
    size = 0.0
    for variable in workload.variables:
        size += size_of(variable)
        if size >= bucket_size_bytes:
            fused.append(Bucket(variable.ready, size))
            size = 0.0
    if size:
        fused.append(Bucket(workload.variables[-1].ready, size))
    # the last gradient ends the backward pass, whatever the clock of the measurement said
    fused[-1] = Bucket(1.0, fused[-1].size_bytes)
    return fused
