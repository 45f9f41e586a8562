"""Data parallelism: a single device, and whole copies of a model that all-reduce, as in TensorFlow, PyTorch and Keras on JAX.

Here are keys, defaults and layouts of each kind; the step is that of all_reduce.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field

from simulator.base.rng import Streams
from simulator.base.spec import Bytes, MessageBytes
from simulator.program.program import Program
from simulator.spec.cluster import Cluster
from simulator.strategies.all_reduce import AllReduceStrategy, program_together
from simulator.strategies.setup import Layout, Setup
from simulator.strategies.strategy import SOFTWARE, Count, Reduction, Software, Strategy, check_workers, filled


class Single(Strategy):
    """One replica on one device, nothing to communicate: ``tf.distribute.get_strategy()``."""

    count_key: ClassVar[str] = ""
    link: ClassVar[Literal["intra_node", "inter_node", ""]] = ""
    short_names: ClassVar[Mapping[str, Mapping[str, Any]]] = {"single": {"kind": "single"}}

    kind: Literal["single"] = Field(default="single", description="this strategy")

    def layout(self, cluster: Cluster) -> Layout:
        """One replica, one process."""
        return filled(cluster, 1)

    def program(self, setup: Setup, streams: Streams) -> Program:
        """Compute, and apply."""
        return program_together(setup, streams)

    @property
    def software(self) -> tuple[Software, ...]:
        """Any."""
        return tuple(SOFTWARE)

    @property
    def in_words(self) -> str:
        """Without its number of workers, which is one."""
        return "single device"


class Mirrored(AllReduceStrategy):
    """``tf.distribute.MirroredStrategy``: all-reduce among the devices of one node."""

    count_key: ClassVar[str] = "replicas"
    link: ClassVar[Literal["intra_node", "inter_node", ""]] = "intra_node"
    short_names: ClassVar[Mapping[str, Mapping[str, Any]]] = {"mirrored": {"kind": "mirrored"}}

    kind: Literal["mirrored"] = Field(default="mirrored", description="this strategy")
    replicas: Count | None = Field(default=None, description="replicas, one per device of the node; left out: as many as the node holds")

    def layout(self, cluster: Cluster) -> Layout:
        """One process drives all replicas."""
        replicas = self.replicas or cluster.replicas_per_node
        return filled(cluster, 1, replicas)._replace(one_process=True)

    def check_layout(self, cluster: Cluster) -> None:
        """Raise ValueError if one node does not take all replicas."""
        replicas = self.layout(cluster).replicas
        if replicas > cluster.replicas_per_node:
            raise ValueError(
                f"strategy.replicas ({replicas}) must be at most {cluster.replicas_per_node}, the replicas of one node "
                "(cluster.devices_per_node x cluster.replicas_per_device); for several nodes use multi-worker-mirrored"
            )

    @property
    def software(self) -> tuple[Software, ...]:
        """As of other all-reduces; ``fit`` of Keras 3 runs it too."""
        able = super().software
        return ("keras", *able) if "tensorflow" in able else able

    @property
    def in_words(self) -> str:
        """The algorithm, and that it stays in one node."""
        return f"{self.way} in one node{self._local}"

    def title(self, *, servers: bool = True) -> str:  # noqa: ARG002
        """Return what a curve is called."""
        return f"Mirrored ({self.algorithm.replace('-', ' ')} in one node)"


class MultiWorkerMirrored(AllReduceStrategy):
    """``tf.distribute.MultiWorkerMirroredStrategy``: all-reduce over all replicas, node by node."""

    short_names: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        name: {"kind": "multi-worker-mirrored", "algorithm": "double-binary-tree" if name == "tree" else name}
        for name in ("ring", "halving-doubling", "tree", "hierarchical", "sharp", "nvls", "auto")
    }

    kind: Literal["multi-worker-mirrored"] = Field(default="multi-worker-mirrored", description="this strategy")
    workers: Count | None = Field(default=None, description="worker processes; left out: as many as fill the cluster")
    replicas_per_worker: int = Field(
        default=1, ge=1, le=1024, description="devices (replicas) per worker process; a worker runs on one node"
    )

    def layout(self, cluster: Cluster) -> Layout:
        """Worker processes fill node after node."""
        return filled(cluster, self.workers, self.replicas_per_worker)

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
        """Return what a curve is called."""
        return f"{self.algorithm.replace('-', ' ').capitalize()} all-reduce (multi-worker mirrored)"

    def fewer(self, replicas: int, before: int) -> Self:  # noqa: ARG002
        """With fewer workers of as many devices, one at least, which exchanges nothing with others."""
        return self.changed(workers=max(1, replicas // self.replicas_per_worker))


# As PyTorch 2.14 has it (torch/nn/parallel/distributed.py, c10d/reducer.cpp and ProcessGroupGloo.cpp; gloo/allreduce.cc):
# - Buckets begin with the gradients that are ready first: in reverse order of registration, and after the first step in the order in
#   which they became ready (rebuild_buckets). A bucket is full as soon as it holds bucket_cap_mb or more (25 MiB). The first is full
#   with 1 MiB, unless bucket_cap_mb is given. It is reduced at once, while the backward pass goes on.
# - Gloo reduces by a ring unless another algorithm is asked for, and DDP asks for none. Its messages are cut into segments, one of which
#   is on its way while another is added up, so that a ring's link is never idle. NCCL has rings and trees (algorithm = "auto").
# - With gradient_as_bucket_view gradients lie in their buckets; without, these are a second copy of all of them.
_CAP_BYTES = 25.0 * 2**20
"""``bucket_cap_mb``, which is of MiB."""
_FIRST_BYTES = 1.0 * 2**20
"""``dist._DEFAULT_FIRST_BUCKET_BYTES``."""


class TorchDDP(AllReduceStrategy, only=("first_bucket_size_bytes",)):
    """``torch.nn.parallel.DistributedDataParallel``: a process for each device, which all-reduces its buckets with all others."""

    short_names: ClassVar[Mapping[str, Mapping[str, Any]]] = {"ddp": {"kind": "torch-ddp"}}

    kind: Literal["torch-ddp"] = Field(default="torch-ddp", description="this strategy")
    workers: Count | None = Field(default=None, description="processes, each with one device; left out: as many as fill the cluster")
    bucket_size_bytes: MessageBytes | None = Field(
        default=_CAP_BYTES,
        description="bucket_cap_mb: gradients are fused into all-reduces of at least this size as they become ready, and reduced during "
        "the backward pass; with fusion_cycle, of at most this size",
    )
    first_bucket_size_bytes: Annotated[Bytes, Field(gt=0)] | None = Field(
        default=None, description="size of the first bucket; left out: 1 MiB, or bucket_size if that is not 25 MiB"
    )
    gradient_as_bucket_view: bool = Field(
        default=False, description="gradients are stored in their buckets (PyTorch's option of this name) instead of being copied into them"
    )

    def layout(self, cluster: Cluster) -> Layout:
        """Processes of one device each fill node after node."""
        return filled(cluster, self.workers)

    def check_layout(self, cluster: Cluster) -> None:
        """Raise ValueError if it is not known how many processes there are."""
        check_workers(cluster, self.workers)

    def check(self, setup: Setup) -> None:
        """Raise ValueError as every all-reduce does; or where a first bucket is given, and no others are."""
        if self.first_bucket_size_bytes is not None and self.bucket_size_bytes is None:
            raise ValueError("strategy.first_bucket_size needs several buckets: give bucket_size too, or leave it out")
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
        """Return what a curve is called."""
        return f"PyTorch DDP ({self.algorithm.replace('-', ' ')})"


# XLA's partitioner puts one all-reduce behind each gradient of the one compiled step, and its combiner makes one of as many as fit 30 MiB
# (kDefaultAllReduceCombineThreshold of xla/service/collective_utils.h; on GPUs the flag xla_gpu_all_reduce_combine_threshold_bytes).
# Here a bucket is full once it holds that much or more, as DDP's is. On CPUs (JAX 0.10) the compiled step of a small model has one all-
# reduce of all gradients, which comes after the backward pass: nothing hides it. A workload measured under JAX says the same, whose
# gradients are all ready at the end.
class KerasDataParallel(AllReduceStrategy):
    """``keras.distribution.DataParallel`` on JAX: every device has all variables and its part of a batch."""

    short_names: ClassVar[Mapping[str, Mapping[str, Any]]] = {"keras-data-parallel": {"kind": "keras-data-parallel"}}

    kind: Literal["keras-data-parallel"] = Field(default="keras-data-parallel", description="this strategy")
    workers: Count | None = Field(default=None, description="processes; left out: as many as fill the cluster")
    replicas_per_worker: Annotated[int, Field(ge=1, le=1024)] | None = Field(
        default=None, description="devices per process, all on one node; left out: all devices of the node"
    )
    bucket_size_bytes: MessageBytes | None = Field(
        default=30.0 * 2**20,
        description="gradients are fused into all-reduces of at least this size as they become ready, as XLA combines them; with "
        "fusion_cycle, of at most this size; left out: 30 MiB",
    )

    def layout(self, cluster: Cluster) -> Layout:
        """Processes fill node after node, and each drives its devices."""
        return filled(cluster, self.workers, self.replicas_per_worker or cluster.replicas_per_node)

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
        """Return what a curve is called."""
        return f"Keras data parallel on JAX ({self.algorithm.replace('-', ' ')})"
