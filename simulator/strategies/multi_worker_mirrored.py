"""``multi-worker-mirrored`` (MultiWorkerMirroredStrategy): worker processes on several nodes all-reduce.

Here are its keys, its layout and its short names; the step is that of all_reduce.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import Field

from simulator.spec.cluster import Cluster
from simulator.strategies.all_reduce import AllReduceStrategy
from simulator.strategies.setup import Layout, Setup
from simulator.strategies.strategy import Count, check_workers


def _with(algorithm: str) -> dict[str, str]:
    return {"kind": "multi-worker-mirrored", "algorithm": algorithm}


class MultiWorkerMirrored(AllReduceStrategy):
    """``tf.distribute.MultiWorkerMirroredStrategy``: all-reduce over all replicas, node by node."""

    short_names: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "ring": _with("ring"),
        "halving-doubling": _with("halving-doubling"),
        "tree": _with("double-binary-tree"),
        "hierarchical": _with("hierarchical"),
        "sharp": _with("sharp"),
        "nvls": _with("nvls"),
        "auto": _with("auto"),
    }

    kind: Literal["multi-worker-mirrored"] = Field(default="multi-worker-mirrored", description="this strategy")
    workers: Count | None = Field(default=None, description="worker processes; left out: as many as fill the cluster")
    replicas_per_worker: int = Field(default=1, ge=1, le=1024, description="a worker is a process on one node, with as many devices")

    def layout(self, cluster: Cluster) -> Layout:
        """Worker processes fill node after node."""
        fill = (cluster.room or 1) * cluster.replicas_per_node // self.replicas_per_worker
        return Layout(
            replicas=(self.workers or max(fill, 1)) * self.replicas_per_worker,
            replicas_per_node=cluster.replicas_per_node,
            replicas_per_process=self.replicas_per_worker,
        )

    def check_layout(self, cluster: Cluster) -> None:
        """Raise ValueError if it is not known how many workers there are, or nodes cannot hold whole ones."""
        check_workers(cluster, self.workers, self.replicas_per_worker)

    def checked_as(self, setup: Setup) -> tuple[str, bool] | None:
        """Its algorithm, and whether gradients overlap with compute; none if no such training was run."""
        if self.sync_every > 1 or self.priority == "forward" or self.fusion_cycle_s is not None:
            return None
        if self.through_host or self.protocol != "none" or self.compression is not None:
            return None
        layers = len({variable.ready for variable in setup.workload.variables}) > 1
        return self.algorithm, layers and self.bucket_size_bytes is not None

    def title(self, *, servers: bool = True) -> str:  # noqa: ARG002
        """What a curve is called."""
        return f"{self.algorithm.replace('-', ' ').capitalize()} all-reduce (multi-worker mirrored)"

    def fewer(self, replicas: int, before: int) -> Self:  # noqa: ARG002
        """With fewer workers of as many devices, one at least, which exchanges nothing with others."""
        return self.changed(workers=max(1, replicas // self.replicas_per_worker))
