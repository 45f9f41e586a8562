"""Small trainings that cut a model of eight equal layers, for tests of what is shown of them."""

from __future__ import annotations

from typing import Any

from simulator import Scenario, scenario_from_table
from support.scenarios import scenario_table

LAYERS, BATCH = 8, 32
FAST: dict[str, Any] = {"bandwidth": "1000 TB/s", "latency": "0 s"}
"""A link that takes no time."""


def hybrid(
    strategy: dict[str, Any],
    micro_batches: int = 1,
    *,
    cluster: dict[str, Any] | None = None,
    layer: dict[str, Any] | None = None,
    work: tuple[float, ...] = (1.0,) * LAYERS,
    workload: dict[str, Any] | None = None,
    **run: Any,
) -> Scenario:
    """Layers of a megabyte each, 30 ms forward and 60 ms backward for all samples, and links that take no time unless others are given."""
    load: dict[str, Any] = {
        "name": "eight layers",
        "batch_per_replica": BATCH,
        "forward": {"base": "0 s", "per_sample_s": 0.03 * LAYERS / BATCH},
        "backward": {"base": "0 s", "per_sample_s": 0.06 * LAYERS / BATCH},
        "apply_s": 0.008,
        "variables": [
            {"name": f"v{at}", "size_bytes": 1e6, "creation_index": at, "ready": 1 - at / LAYERS} for at in reversed(range(LAYERS))
        ],
        "layers": [
            {"name": f"layer {at}", "forward": its, "variables": [at], "output_bytes_per_sample": 0.0, **(layer or {})}
            for at, its in enumerate(work)
        ],
        **(workload or {}),
    }
    table = scenario_table(
        strategy={"kind": "hybrid", **strategy},
        training={"micro_batches": micro_batches},
        cluster={"inter_node": FAST, "intra_node": FAST, **(cluster or {})},
        run={"steps": 12, "warmup_steps": 4, **run},
    )
    return scenario_from_table({**table, "workload": load}, "test")
