"""Fusing gradients into buckets: fewer, larger all-reduces.

Li et al., "PyTorch Distributed", VLDB 2020, section 3.2.2; TensorFlow's ``bytes_per_pack``.
"""

from __future__ import annotations

from simulator.workload import Workload

__all__ = ["buckets"]


def buckets(workload: Workload, batch: int, bucket_size_bytes: float | None) -> list[tuple[float, float]]:
    """Fuse gradients into all-reduces.

    Returns
    -------
    list of (ready, size)
        Share of the backward pass after which the bucket is complete, and its bytes.
    """
    if bucket_size_bytes is None:
        return [(1.0, sum(variable.gradient_bytes(batch) for variable in workload.variables))]
    fused: list[tuple[float, float]] = []
    size = 0.0
    for variable in workload.variables:
        size += variable.gradient_bytes(batch)
        if size >= bucket_size_bytes:
            fused.append((variable.ready, size))
            size = 0.0
    if size:
        fused.append((workload.variables[-1].ready, size))
    # the last gradient ends the backward pass, whatever the clock of the measurement said
    fused[-1] = (1.0, fused[-1][1])
    return fused
