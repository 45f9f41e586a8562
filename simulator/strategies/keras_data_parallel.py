"""``keras-data-parallel`` (keras.distribution.DataParallel on JAX): one compiled step over all devices, whose all-reduces XLA makes.

Here are its keys, its defaults and its layout; the step is that of all_reduce.py. Variables are on every device and batches are cut
over all of them, so that XLA's partitioner puts one all-reduce behind each gradient, and its combiner makes one of as many as fit 30 MiB
(``kDefaultAllReduceCombineThreshold`` of ``xla/service/collective_utils.h``; on GPUs the flag
``xla_gpu_all_reduce_combine_threshold_bytes``). On CPUs (JAX 0.10) the compiled step of a small model has one all-reduce of all gradients,
which comes after the backward pass: nothing hides it. A workload measured under JAX says the same, whose gradients are all ready at the
end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field

from simulator.base.spec import MESSAGE, Bytes
from simulator.spec.cluster import Cluster
from simulator.strategies.all_reduce import AllReduceStrategy
from simulator.strategies.setup import Layout
from simulator.strategies.strategy import Count, Reduction, Software, check_workers


class KerasDataParallel(AllReduceStrategy):
    """``keras.distribution.DataParallel`` on JAX: every device has all variables and its part of a batch."""

    short_names: ClassVar[Mapping[str, Mapping[str, Any]]] = {"keras-data-parallel": {"kind": "keras-data-parallel"}}

    kind: Literal["keras-data-parallel"] = Field(default="keras-data-parallel", description="this strategy")
    workers: Count | None = Field(default=None, description="processes; left out: as many as fill the cluster")
    replicas_per_worker: Annotated[int, Field(ge=1, le=1024)] | None = Field(
        default=None, description="devices of a process, all on one node; left out: all of its node"
    )
    bucket_size_bytes: Annotated[Bytes, Field(gt=0), MESSAGE] | None = Field(
        default=30.0 * 2**20,
        description="gradients are fused into all-reduces of at least this size as they become ready, as XLA combines them; "
        "left out of a file: 30 MiB; with fusion_cycle, of at most this size",
    )

    def layout(self, cluster: Cluster) -> Layout:
        """Processes fill node after node, and each drives its devices."""
        each = self.replicas_per_worker or cluster.replicas_per_node
        fill = (cluster.room or 1) * cluster.replicas_per_node // each
        return Layout(
            replicas=(self.workers or max(fill, 1)) * each, replicas_per_node=cluster.replicas_per_node, replicas_per_process=each
        )

    def check_layout(self, cluster: Cluster) -> None:
        """Raise ValueError if it is not known how many processes there are, or nodes cannot hold whole ones."""
        check_workers(cluster, self.workers, self.replicas_per_worker or cluster.replicas_per_node)

    def fewer(self, replicas: int, before: int) -> Self:
        """With fewer processes of as many devices, one at least."""
        return self.changed(workers=max(1, (self.workers or 1) * replicas // before))

    @property
    def reduction(self) -> Reduction:
        """The all-reduce of a step; XLA reduces gradients where they are."""
        return super().reduction._replace(buckets_held="none")

    @property
    def software(self) -> tuple[Software, ...]:
        """Keras on JAX, where nothing is asked for that XLA has not."""
        plain = self.sync_every == 1 and self.compression is None and self.fusion_cycle_s is None and self.priority == "ready"
        return ("jax",) if plain and not self.through_host and self.algorithm in ("ring", "double-binary-tree", "auto", "nvls") else ()

    @property
    def in_words(self) -> str:
        """Data parallelism, and the algorithm."""
        return f"Keras data parallel, {self.way}{self._local}"

    def title(self, *, servers: bool = True) -> str:  # noqa: ARG002
        """What a curve is called."""
        return f"Keras data parallel on JAX ({self.algorithm.replace('-', ' ')})"
