"""``torch-ddp`` (torch.nn.parallel.DistributedDataParallel): one process for each device; gradients are reduced in buckets.

Here are its keys, its defaults and its layout; the step is that of all_reduce.py. All is read from PyTorch 2.14
(``torch/nn/parallel/distributed.py``, ``torch/csrc/distributed/c10d/reducer.cpp`` and ``ProcessGroupGloo.cpp``) and gloo
(``gloo/allreduce.cc``):

- Buckets begin with the gradients that are ready first: in reverse order of registration, and after the first step in the order in
  which they became ready (``rebuild_buckets``). A bucket is full as soon as it holds ``bucket_cap_mb`` or more (25 MiB). The first is
  full with 1 MiB, unless ``bucket_cap_mb`` is given. It is reduced at once, while the backward pass goes on.
- Gloo reduces by a ring unless another algorithm is asked for, and DDP asks for none. Its messages are cut into segments, one of which
  is on its way while another is added up, so that a ring's link is never idle. NCCL has rings and trees (``algorithm = "auto"``).
- With ``gradient_as_bucket_view`` gradients lie in their buckets; without, these are a second copy of all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from simulator.base.spec import MESSAGE, Bytes
from simulator.spec.cluster import Cluster
from simulator.strategies.all_reduce import AllReduceStrategy
from simulator.strategies.setup import Layout, Setup
from simulator.strategies.strategy import Count, Reduction, Software, check_workers

_CAP_BYTES = 25.0 * 2**20
"""``bucket_cap_mb``, which is of MiB."""
_FIRST_BYTES = 1.0 * 2**20
"""``dist._DEFAULT_FIRST_BUCKET_BYTES``."""


class TorchDDP(AllReduceStrategy, only=("first_bucket_size_bytes",)):
    """``torch.nn.parallel.DistributedDataParallel``: a process for each device, which all-reduces its buckets with all others."""

    short_names: ClassVar[Mapping[str, Mapping[str, Any]]] = {"ddp": {"kind": "torch-ddp"}}

    kind: Literal["torch-ddp"] = Field(default="torch-ddp", description="this strategy")
    workers: Count | None = Field(default=None, description="processes, each with one device; left out: as many as fill the cluster")
    bucket_size_bytes: Annotated[Bytes, Field(gt=0), MESSAGE] | None = Field(
        default=_CAP_BYTES,
        description="bucket_cap_mb: gradients are fused into all-reduces of at least this size as they become ready, and reduced while the "
        "backward pass goes on; with fusion_cycle, of at most this size",
    )
    first_bucket_size_bytes: Annotated[Bytes, Field(gt=0)] | None = Field(
        default=None, description="the same of the first bucket; left out: 1 MiB, or bucket_size where that is another than 25 MiB"
    )
    gradient_as_bucket_view: bool = Field(
        default=False, description="gradients lie in their buckets (PyTorch's option of this name), instead of being copied into them"
    )

    def layout(self, cluster: Cluster) -> Layout:
        """Processes of one device each fill node after node."""
        workers = self.workers or (cluster.room or 1) * cluster.replicas_per_node
        return Layout(replicas=workers, replicas_per_node=cluster.replicas_per_node, replicas_per_process=1)

    def check_layout(self, cluster: Cluster) -> None:
        """Raise ValueError if it is not known how many processes there are."""
        check_workers(cluster, self.workers, 1)

    def check(self, setup: Setup) -> None:
        """Raise ValueError as every all-reduce does; or where a first bucket is given, and no others are."""
        if self.first_bucket_size_bytes is not None and self.bucket_size_bytes is None:
            raise ValueError("strategy.first_bucket_size is of the first of several buckets: give bucket_size too, or leave it out")
        super().check(setup)

    @property
    def reduction(self) -> Reduction:
        """The all-reduce of a step, whose first bucket is smaller."""
        first = self.first_bucket_size_bytes
        if first is None and self.bucket_size_bytes == _CAP_BYTES and self.sync_every == 1:
            first = _FIRST_BYTES
        held: Literal["none", "all"] = "none" if self.gradient_as_bucket_view else "all"
        return super().reduction._replace(first_bucket_bytes=first, buckets_held=held)

    @property
    def software(self) -> tuple[Software, ...]:
        """PyTorch, if what is asked for is among what it does."""
        return tuple(name for name in super().software if name == "pytorch")

    @property
    def in_words(self) -> str:
        """DDP, and the algorithm."""
        return f"DDP, {self.way}{self._local}"

    def title(self, *, servers: bool = True) -> str:  # noqa: ARG002
        """What a curve is called."""
        return f"PyTorch DDP ({self.algorithm.replace('-', ' ')})"
