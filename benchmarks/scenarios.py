"""What the benchmarks simulate: asynchronous workers of parameter servers, and rings."""

from __future__ import annotations

from typing import Any

from simulator import Scenario, scenario_from_table

COMPUTE_S, BANDWIDTH, SIZE_BYTES = 0.1, 1.25e9, 10e6
"""A step's mean compute, a link's bytes per second, the parameters of asynchronous workers."""
RING_BYTES, LATENCY_S, SIGMA = 100e6, 1e-6, 0.1
"""What a ring reduces, the latency of its links, the jitter of its ranks."""


def asynchronous(
    workers: int,
    steps: int,
    *,
    servers: int = 1,
    tensors: int = 1,
    size_bytes: float = SIZE_BYTES,
    service_s: float = 0.0,
    host_s: float = 0.0,
    **run: Any,
) -> Scenario:
    """Workers that pull, compute an exponential time and push, each tensor by itself, over one link a server.

    ``host_s``: what each message costs each of its two hosts.
    """
    variables = [{"name": f"v{i}", "size_bytes": size_bytes / tensors, "creation_index": i, "ready": 1.0} for i in range(tensors)]
    return scenario_from_table(
        {
            "workload": {
                "name": "benchmark",
                "batch_per_replica": 1,
                "forward": {"base_s": 0.0, "per_sample_s": 0.0},
                "backward": {"base_s": COMPUTE_S, "per_sample_s": 0.0},
                "server": {"base_s": service_s},
                "jitter": {"kind": "exponential"},
                "variables": variables,
            },
            "cluster": {
                "name": "star",
                "inter_node": {"bandwidth_bytes_per_s": BANDWIDTH, "latency_s": 0.0},
                "transport": {"software": "given", "cpu_per_message_s": host_s},
            },
            "strategy": {"kind": "parameter-server", "mode": "async", "workers": workers, "servers": servers},
            "run": {"steps": steps, "warmup_steps": 1, "replications": 2, **run},
        },
        "benchmark",
    )


def ring(
    ranks: int,
    steps: int,
    *,
    tensors: int = 1,
    sigma: float = SIGMA,
    detail: str = "auto",
    odd: dict[str, Any] | None = None,
    **strategy: Any,
) -> Scenario:
    """Ranks with a jitter each that all-reduce around a ring; ``odd`` is what one of them has of its own."""
    variables = [
        {"name": f"v{i}", "size_bytes": RING_BYTES / tensors, "creation_index": tensors - 1 - i, "ready": (i + 1) / tensors}
        for i in range(tensors)
    ]
    return scenario_from_table(
        {
            "workload": {
                "name": "ring",
                "batch_per_replica": 1,
                "forward": {"base_s": 0.0, "per_sample_s": 0.0},
                "backward": {"base_s": COMPUTE_S, "per_sample_s": 0.0},
                "jitter": {"kind": "lognormal", "sigma": sigma} if sigma else {"kind": "constant"},
                "variables": variables,
            },
            "cluster": {
                "name": "ring",
                "inter_node": {"bandwidth_bytes_per_s": BANDWIDTH, "latency_s": LATENCY_S},
                "node_classes": [{"name": "odd", "nodes": 1, **odd}] if odd else [],
            },
            "strategy": {"kind": "multi-worker-mirrored", "workers": ranks, **strategy},
            "run": {"steps": steps, "warmup_steps": 1, "replications": 2, "detail": detail},
        },
        "benchmark",
    )


def hybrid(devices: int, steps: int, *, micro_batches: int, replications: int) -> Scenario:
    """A model of 32 equal layers on eight stages, tensors split over the eight devices of a node, and copies of that."""
    size_bytes, layers = 25e6, 32
    exchanged = {"forward_bytes_per_sample": [size_bytes] * 2, "backward_bytes_per_sample": [size_bytes] * 2}
    layer = {"forward": 1.0, "output_bytes_per_sample": size_bytes, "tensor": exchanged}
    return scenario_from_table(
        {
            "workload": {
                "name": "layers",
                "batch_per_replica": micro_batches,
                "forward": {"base_s": 0.0, "per_sample_s": COMPUTE_S},
                "backward": {"base_s": 0.0, "per_sample_s": 2 * COMPUTE_S},
                "jitter": {"kind": "normal", "cv": 0.02},
                "variables": [
                    {"name": f"v{i}", "size_bytes": RING_BYTES, "creation_index": layers - 1 - i, "ready": (i + 1) / layers}
                    for i in range(layers)
                ],
                "layers": [{"name": f"layer {i}", "variables": [i], **layer} for i in range(layers)],
            },
            "cluster": {
                "name": "nodes of eight",
                "devices_per_node": 8,
                "intra_node": {"bandwidth_bytes_per_s": 2.5e11, "latency_s": 2e-6},
                "inter_node": {"bandwidth_bytes_per_s": 1e11, "latency_s": 5e-6},
            },
            "strategy": {"kind": "hybrid", "workers": devices, "pipeline": 8, "tensor": 8, "bucket_size_bytes": 2 * RING_BYTES},
            "training": {"micro_batches": micro_batches},
            "run": {"steps": steps + 2, "warmup_steps": 2, "replications": replications},
        },
        "benchmark",
    )
