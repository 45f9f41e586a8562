"""Model, pipeline, tensor, expert and sharded data parallelism, separately or combined.

The devices of a job are laid out as copies of the model times stages of a pipeline times
devices that split each sequence times devices that split each tensor. Within a copy, micro-batches go through the stages by a
schedule (:mod:`simulator.strategies.hybrid.routine`); within a stage, the devices that
split tensors exchange partial results in each layer (Shoeybi et al., arXiv:1909.08053);
those that split sequences pass keys and values around a ring (Liu et al., arXiv:2310.01889);
experts are spread over copies, to which tokens are sent and come back (Lepikhin et al.,
ICLR 2021); copies reduce gradients stage by stage, as soon as a stage has done its last
backward pass, and may share optimizer slots, gradients and parameters instead of each
having all of them (Rajbhandari et al., SC 2020). How the three are laid over nodes follows
Narayanan et al. (SC 2021): devices that split tensors next to each other, then copies,
then stages.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from simulator.base.rng import Streams
from simulator.base.spec import MessageBytes, Share
from simulator.base.text import format_share
from simulator.program.program import Program
from simulator.spec.cluster import Cluster
from simulator.spec.distributions import Constant, Distribution, Empirical
from simulator.spec.figures import Warned
from simulator.strategies.all_reduce import check_switches
from simulator.strategies.data_parallel import MultiWorkerMirrored
from simulator.strategies.holding import Held, ReducePrecision
from simulator.strategies.hybrid.groups import Grid, Order, Timing
from simulator.strategies.hybrid.laid import Laid, Timed
from simulator.strategies.hybrid.parts import Cut
from simulator.strategies.hybrid.routine import Schedule, Shard, StageCosts, idle_passes
from simulator.strategies.setup import InCommon, Layout, ModelParallel, Setup, Together
from simulator.strategies.strategy import SOFTWARE, Count, Reduction, Software, Strategy, check_workers

Degree = Annotated[int, Field(ge=1, le=100_000)]

_DRAWS = 2048
_MOST_OPERATIONS = 30_000
"""Operations of a rank's step that both engines take."""


def _with(**keys: Any) -> dict[str, Any]:
    return {"kind": "hybrid", **keys}


_RUN_BY: Mapping[str, tuple[Software, ...]] = {
    "gpipe": ("pytorch",),
    "1f1b": ("pytorch", "deepspeed", "megatron-lm"),
    "interleaved": ("pytorch", "megatron-lm"),
    "zero-bubble": ("pytorch",),
}
"""Software that runs each pipeline schedule; those that never flush are research code's (PipeDream)."""
_SHARED_BY: Mapping[str, tuple[Software, ...]] = {
    "optimizer": ("pytorch", "deepspeed", "megatron-lm"),
    "gradients": ("pytorch", "deepspeed"),
    "parameters": ("pytorch", "deepspeed", "megatron-lm"),
}
"""Software that shards each part of the state over copies: ZeRO and FSDP, Megatron-LM's distributed optimizer and FSDP."""


class Hybrid(Strategy, only=("context", "expert_tensor", "keep_gathered", "reduce_precision", "pad_to_capacity")):
    """Copies of a model that is itself cut: into stages, within layers, by experts; or whose state copies share."""

    short_names: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "pipeline": _with(pipeline=2),
        "tensor": _with(tensor=2),
        "zero1": _with(shard="optimizer"),
        "zero2": _with(shard="gradients"),
        "fsdp": _with(shard="parameters"),
        "hybrid": _with(pipeline=2, tensor=2),
    }
    goes_with: ClassVar[Mapping[str, tuple[str, tuple[str, ...]]]] = {
        "chunks": ("schedule", ("interleaved",)),
        "shard_group": ("shard", ("optimizer", "gradients", "parameters")),
        "keep_gathered": ("shard", ("gradients", "parameters")),
    }
    cuts_batches: ClassVar[bool] = True

    kind: Literal["hybrid"] = Field(default="hybrid", description="this strategy")
    workers: Count | None = Field(
        default=None, description="total number of devices, one per worker; left out: as many as fill the cluster"
    )
    pipeline: Degree = Field(default=1, description="pipeline stages for the layers (training.micro_batches pass through them)")
    tensor: Degree = Field(default=1, description="devices that split each tensor")
    context: Degree = Field(
        default=1, description="devices that split each sequence, and pass keys and values around a ring (context parallelism)"
    )
    expert: Degree = Field(
        default=1, description="copies over which the experts of a layer are distributed; must divide the number of copies x context"
    )
    expert_tensor: Degree | None = Field(
        default=None,
        description="devices that split each expert, of those of tensor, over which and over copies the others are then distributed; needs "
        "sequence_parallel; left out: as tensor",
    )
    schedule: Schedule = Field(
        default="1f1b",
        description="order of a stage's passes: 1f1b, gpipe, interleaved (with chunks), zero-bubble (gradients of weights fill gaps), "
        "pipedream (asynchronous: no flush between steps, gradients of older weights)",
    )
    chunks: int = Field(default=1, ge=1, le=1000, description="with schedule = interleaved: parts of the model on each stage")
    stages: Cut | tuple[Annotated[int, Field(ge=1)], ...] = Field(
        default="balanced",
        description="where the model is cut; balanced: minimise the compute time of the slowest stage; even: equal numbers of the "
        "repeated layers per stage; or the number of the first layer of each stage except the first",
    )
    weights_share: Share = Field(
        default=0.5, description="with schedule = zero-bubble: share of a backward pass spent on gradients of weights"
    )
    sequence_parallel: bool = Field(
        default=False,
        description="split the remaining work and activations of tensor parallelism along the sequence (Korthikanti et al., 2022)",
    )
    expert_imbalance: Distribution = Field(
        default=Constant(), description="tokens of the busiest expert device divided by the mean, drawn for each step; at least 1"
    )
    capacity: float | None = Field(
        default=None,
        ge=1,
        le=1000,
        description="maximum tokens per expert divided by the mean; further tokens are dropped; left out: no limit",
    )
    pad_to_capacity: bool = Field(
        default=False,
        description="true: every expert receives and computes its full capacity, padded with empty tokens (GShard, Switch Transformer, "
        "DeepSpeed); false: only real tokens (Megatron-LM, MegaBlocks)",
    )
    on_host: tuple[Annotated[str, Field(min_length=1, max_length=200)], ...] = Field(
        default=(),
        max_length=10_000,
        description="names of layers computed on the host, such as a large embedding",
    )
    host_factor: float = Field(default=1.0, gt=0, le=1e6, description="time of such a layer on the host divided by its time on the device")
    shard: Shard = Field(
        default="none",
        description="what is sharded over copies: optimizer slots (ZeRO-1), also gradients (ZeRO-2), also parameters (ZeRO-3, fully "
        "sharded data parallelism)",
    )
    shard_group: Degree | None = Field(
        default=None,
        description="number of copies that shard one state (hybrid sharding); must divide the number of copies x context; left out: all",
    )
    keep_gathered: bool | None = Field(
        default=None,
        description="with shard = gradients or parameters: keep gathered parameters and gradients through all micro-batches of a step, "
        "which takes memory, instead of gathering and reducing for each; left out: true only in a pipeline, as in PyTorch",
    )
    reduce_precision: ReducePrecision = Field(
        default="float32",
        description="precision of reduced gradients in mixed precision: float32 (TensorFlow, Megatron-LM in bfloat16) or the precision "
        "of computing (DeepSpeed, and PyTorch's FSDP unless reduce_dtype is set)",
    )
    prefetch: int = Field(
        default=1,
        ge=0,
        le=1000,
        description="with shard = parameters: number of layers gathered ahead, before the gradients they produce are reduced",
    )
    order: Order = Field(
        default="data", description="which devices are neighbours: copies of a stage (data), or stages of a copy (pipeline)"
    )
    algorithm: Literal["ring", "bidirectional-ring", "halving-doubling", "double-binary-tree", "sharp", "nvls", "auto"] = Field(
        default="ring", description="all-reduce algorithm between copies"
    )
    protocol: Literal["none", "simple", "ll", "ll128", "auto"] = Field(
        default="none", description="message costs and extra bytes, from cluster.protocols; none: only those of the links"
    )
    pipeline_chunk_bytes: MessageBytes = Field(default=512 * 1024.0, description="size of the pieces that the double binary tree forwards")
    bucket_size_bytes: MessageBytes | None = Field(
        default=None,
        description="gradients are fused by layers into buckets of at least this size, and reduced during the last backward pass; left "
        "out: all gradients of a stage are reduced when the pass has ended",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.chunks > 1 and self.schedule != "interleaved":
            raise ValueError(f'chunks ({self.chunks}) need schedule = "interleaved": give it, or leave chunks out')
        if self.schedule == "interleaved" and (self.chunks == 1 or self.pipeline == 1):
            raise ValueError('schedule = "interleaved" needs chunks and pipeline of at least 2 each; otherwise use "1f1b"')
        if self.shard_group is not None and self.shard == "none":
            raise ValueError("shard_group needs shard: give shard, or leave shard_group out")
        if self.pad_to_capacity and self.capacity is None:
            raise ValueError("pad_to_capacity (true) needs a capacity: give it, such as 1.25, or leave pad_to_capacity out")
        if self.expert_imbalance.mean() < 1:
            raise ValueError(
                f"expert_imbalance has a mean of {self.expert_imbalance.mean():g}, but must be at least 1 for the busiest device"
            )
        return self

    @property
    def apart_on(self) -> Cluster | None:
        """The cluster whose devices split tensors, where those that do are taken together as one rank; else none."""
        return None

    # -- layout and rules ------------------------------------------------------------

    def layout(self, cluster: Cluster) -> Layout:
        """Devices fill node after node."""
        ranks = self.pipeline * self.context * (1 if self.apart_on is not None else self.tensor)
        fill = (cluster.room or 1) * cluster.replicas_per_node
        workers = self.workers or max(fill // ranks * ranks, ranks)
        return Layout(
            replicas=max(workers // ranks, 1),
            replicas_per_node=cluster.replicas_per_node,
            replicas_per_process=1,
            ranks_per_replica=ranks,
        )

    def check_layout(self, cluster: Cluster) -> None:
        """Raise ValueError if it is not known how many workers there are, or they are no whole copies, or nodes no whole tensors."""
        check_workers(cluster, self.workers, 1)
        each = self.pipeline * self.tensor * self.context
        if self.workers is not None and self.workers % each:
            with_context = f" x context {self.context}" if self.context > 1 else ""
            raise ValueError(
                f"strategy.workers ({self.workers}) must be a multiple of the {each} devices of a copy "
                f"(pipeline {self.pipeline} x tensor {self.tensor}{with_context})"
            )
        if self.is_plain:
            return
        if cluster.replicas_per_device > 1 or cluster.shared_cores is not None:
            raise ValueError('strategy.kind = "hybrid" needs one worker per device: leave out replicas_per_device and shared_cores')
        per_node = cluster.devices_per_node
        if per_node % self.tensor and self.tensor % per_node:
            raise ValueError(f"strategy.tensor ({self.tensor}) must divide the {per_node} devices of a node or be a multiple of them")
        if self.tensor > per_node and not cluster.even:
            raise ValueError(
                "strategy.tensor over several nodes needs equal nodes: leave out node_classes, node_speed, slow_nodes and slowdown"
            )
        copies = self.layout(cluster).replicas * self.context
        if self.tensor % self._experts_split:
            raise ValueError(f"strategy.expert_tensor ({self.expert_tensor}) must divide strategy.tensor ({self.tensor})")
        over, otherwise = self.expert * self._experts_split, self._experts_split != self.tensor
        if otherwise and (copies * self.tensor % over or (over % self.tensor and self.tensor % over)):
            raise ValueError(
                f"strategy.expert x expert_tensor ({over}) must divide the {copies * self.tensor} devices of a stage, and divide "
                f"strategy.tensor ({self.tensor}) or be a multiple of it"
            )
        if otherwise and not self.sequence_parallel:
            raise ValueError("strategy.expert_tensor needs sequence_parallel = true, so that each device has tokens of its own")
        for key, value in (("expert", self._expert_copies), ("shard_group", self.shard_group or 1)):
            if copies % value:
                raise ValueError(f"strategy.{key} ({value}) must divide the {copies} copies (workers / (pipeline x tensor))")

    @property
    def _experts_split(self) -> int:
        return self.expert_tensor or self.tensor

    @property
    def _expert_copies(self) -> int:
        """Copies that the experts of a layer are spread over, with all that split tensors."""
        return max(self.expert * self._experts_split // self.tensor, 1)

    @property
    def is_plain(self) -> bool:
        """Tell whether nothing is cut or shared, so that it is an all-reduce of whole replicas."""
        cut = max(self.pipeline, self.tensor, self.context, self.expert) > 1 or self.shard != "none" or bool(self.on_host)
        return not cut and self.reduce_precision == "float32"

    @property
    def simpler(self) -> Strategy | None:
        """An all-reduce of whole replicas, where nothing is cut."""
        if not self.is_plain:
            return None
        keys = ("workers", "algorithm", "protocol", "pipeline_chunk_bytes", "bucket_size_bytes")
        return WholeCopies.model_validate({key: getattr(self, key) for key in keys})

    def check(self, setup: Setup) -> None:
        """Raise ValueError, with a sentence that says why, if another part of the scenario excludes it."""
        load, training = setup.workload, setup.training
        cuts = max(self.pipeline, self.tensor, self.context, self.expert) > 1 or bool(self.on_host)
        cuts = cuts or self.shard == "parameters" or training.recompute == "selective"
        if cuts and not load.layers:
            raise ValueError(
                f"workload {load.name!r} has no layers, which this strategy needs: measure them with `paceline calibrate --layers`, or "
                "use a workload with layers"
            )
        if self.schedule == "pipedream":
            if training.micro_batches > 1 or self.shard != "none":
                raise ValueError('schedule = "pipedream" takes one batch per step and shards no state: leave out micro_batches and shard')
            if setup.run.warmup < self.pipeline - 1:
                raise ValueError(
                    f'schedule = "pipedream" fills its {self.pipeline} stages in the first steps: run.warmup_steps ({setup.run.warmup}) '
                    f"must be at least {self.pipeline - 1}"
                )
        check_switches(self.algorithm, self.protocol, setup.cluster)
        if setup.run.detail == "messages":
            raise ValueError('run.detail = "messages" is not simulated with strategy.kind = "hybrid": leave it out')
        if setup.follows_trace and (setup.layout.replicas > 1 or self.tensor > 1 or self.context > 1):
            raise ValueError(
                'cluster.background.trace changes links during collectives, which strategy.kind = "hybrid" evaluates at once: give a '
                "constant cluster.background.load, or a pipeline of one copy"
            )
        if load.layers:
            _ = Laid(self, setup).ends
            self._check_tensors(setup)
            self._check_hosts(setup)
        units = len(load.layers) if self.shard == "parameters" else 1
        operations = training.micro_batches * self.chunks * 8 * (1 + units // (self.pipeline * self.chunks)) + 8
        if operations > _MOST_OPERATIONS:
            raise ValueError(
                f"a step of a device has about {operations:,} operations, but at most {_MOST_OPERATIONS:,} can be simulated: use fewer "
                "training.micro_batches"
            )

    def _check_tensors(self, setup: Setup) -> None:
        layers = setup.workload.layers
        if self.tensor > 1 and all(layer.tensor is None for layer in layers):
            raise ValueError(
                f"strategy.tensor ({self.tensor}) splits layers, and no layer of workload {setup.workload.name!r} can be split"
            )
        if self.context > 1 and all(layer.attention is None for layer in layers):
            raise ValueError(
                f"strategy.context ({self.context}) splits sequences, and no layer of workload {setup.workload.name!r} has attention "
                "(workload.layers.attention): give it, or use a workload.transformer"
            )
        dimensions = setup.workload.transformer
        if dimensions is not None and dimensions.sequence % self.context:
            raise ValueError(f"strategy.context ({self.context}) must divide workload.transformer.sequence ({dimensions.sequence})")
        counts = [layer.experts.count for layer in layers if layer.experts is not None]
        if self.expert > 1 and not counts:
            raise ValueError(f"strategy.expert ({self.expert}) needs experts, and workload {setup.workload.name!r} has none")
        if any(count % self.expert for count in counts):
            raise ValueError(f"strategy.expert ({self.expert}) must divide the {min(counts)} experts of a layer")
        if self._experts_split != self.tensor and any(layer.experts and layer.tensor is None for layer in layers):
            raise ValueError("strategy.expert_tensor needs layers with experts to be split by strategy.tensor (workload.layers.tensor)")

    def _check_hosts(self, setup: Setup) -> None:
        if not self.on_host:
            return
        if setup.cluster.host_link is None:
            raise ValueError("strategy.on_host needs cluster.host_link, which copies activations between a device and its host")
        if self.shard == "parameters":
            raise ValueError(
                'strategy.on_host keeps layers whole on hosts, but shard = "parameters" gathers every layer on devices: leave one of them '
                "out"
            )
        names = [layer.name for layer in setup.workload.layers]
        for name in self.on_host:
            if name not in names:
                raise ValueError(f"strategy.on_host: there is no layer {name[:60]!r}; there are {', '.join(names[:20])}")

    def filled_in(self, setup: Setup) -> Self:
        """Cut by times as they are known, before one is drawn for each replication: all of these have the same stages."""
        if isinstance(self.stages, tuple) or self.pipeline == 1 or not setup.workload.layers:
            return self
        return self.model_copy(update={"stages": Laid(self, setup).ends[:-1]})

    # -- what a step does ------------------------------------------------------------

    def together(self, setup: Setup) -> Together | None:
        """Devices that split tensors; none where they have been taken together."""
        if self.apart_on is not None or self.tensor == 1:
            return None
        workers = None if self.workers is None else self.workers // self.tensor
        ours = HybridTogether.model_construct(**{**dict(self), "workers": workers, "apart": setup.cluster})
        return Together(self.tensor, in_step=True, strategy=ours)

    def model_parallel(self, setup: Setup) -> ModelParallel:
        """By its degrees."""
        return Laid(self, setup)

    @property
    def tokens(self) -> Distribution:
        """Tokens that the busiest device with experts computes, and is sent, over the mean.

        A capacity is where tokens are dropped (Lepikhin et al., "GShard", ICLR 2021, section 2.2; Fedus et al., "Switch Transformers",
        JMLR 2022, section 2.2), and with tensors of one shape what there is room for is sent and computed, be it empty. Without such
        tensors it is what there is (Gale et al., "MegaBlocks", MLSys 2023; ``moe_pad_expert_input_to_capacity`` of Megatron-LM).
        """
        distribution = self.expert_imbalance if self.expert > 1 else Constant()  # a device that has all experts has all tokens of its copy
        if self.capacity is None:
            return distribution
        if self.pad_to_capacity:
            return Empirical(values=(self.capacity,))
        if isinstance(distribution, Constant):
            return distribution
        values = distribution.values if isinstance(distribution, Empirical) else distribution.sample(np.random.default_rng(0), _DRAWS)
        return Empirical(values=tuple(np.minimum(values, self.capacity).tolist()), persistence=distribution.persistence)

    def in_common(self, setup: Setup) -> InCommon | None:
        """Tokens of the busiest device, of all copies that its experts lie on."""
        return Laid(self, setup).in_common()

    @property
    def delays(self) -> tuple[int, ...]:
        """Staleness of each stage's gradients in updates."""
        return tuple(reversed(range(self.pipeline))) if self.schedule == "pipedream" else (0,) * self.pipeline

    def program(self, setup: Setup, streams: Streams) -> Program:
        """Each stage its routine; ranks that split tensors are one."""
        return Laid(self, setup).program(streams)

    def grid(self, layout: Layout, tied: Sequence[int] = ()) -> Grid:
        """How its ranks are laid out, devices that split tensors as one; ``tied``: stages with copies of the same variables."""
        copies = layout.replicas * self.context
        return Grid(self.pipeline, copies, self.context, self.order, self.shard_group or copies, self._expert_copies, tied)

    def device_grid(self, layout: Layout) -> Grid:
        """How its devices are laid out, where those that split tensors do not all split each expert."""
        copies, split = layout.replicas * self.context, self._experts_split
        shard, each = (self.shard_group or copies) * self.tensor, self.context * self.tensor
        return Grid(self.pipeline, copies * self.tensor, each, self.order, shard, self.expert * split, split=split)

    @property
    def keeps(self) -> bool:
        """Tell whether what was gathered is kept through a step.

        ``torch.distributed.pipelining`` reduces after the last micro-batch, and torchtitan does not free parameters between those of a
        pipeline (``reshard_after_forward``: default), so that they are not gathered for each; without a pipeline both do, and DeepSpeed.
        """
        return self.pipeline > 1 if self.keep_gathered is None else self.keep_gathered

    def costs(self, setup: Setup, streams: Streams, timed: dict[Timed, Timing] | None = None) -> list[StageCosts]:
        """Return what each stage's step is made of.

        Parameters
        ----------
        setup
            With devices that split tensors taken together (:mod:`simulator.resolve.drawing`).
        streams
            Choose routes.
        timed
            How long collectives take, of groups that were timed before on the same cluster by strategies that differ in nothing but
            degrees and schedule; takes what is timed now.
        """
        return Laid(self, setup).costs(streams, timed)

    def held(self, setup: Setup) -> tuple[tuple[Held, ...], ...]:
        """Chunks of each stage."""
        return Laid(self, setup).held()

    def avoided(self, setup: Setup) -> Iterator[Warned]:
        """Pipelines that are not filled, and tensors split between nodes."""
        bubble, count, per_node = self.model_parallel(setup).bubble, setup.training.micro_batches, setup.cluster.devices_per_node
        if bubble is not None and bubble.share and count < self.pipeline:
            yield Warned.of(
                "pipeline-not-filled", count,
                f"{count} micro-batch{'es are' if count > 1 else ' is'} fewer than the {self.pipeline} stages, so some stages are always "
                f"idle, for at least {format_share(bubble.share)} of a step",
            )  # fmt: skip
        if self.tensor > per_node:
            yield Warned.of(
                "tensors-between-nodes", self.tensor,
                f"tensors are split over {self.tensor} devices and a node has {per_node}, so every layer's exchanges cross the links "
                "between nodes",
            )  # fmt: skip

    # -- estimates -------------------------------------------------------------------

    def lone_step_s(self, setup: Setup) -> float:
        """Seconds of a step without jitter: the slowest stage's passes, as many more of them as fill the pipeline, and the update."""
        load, training = setup.workload, setup.training
        if not load.layers:
            samples = setup.batch / training.micro_batches
            again = load.forward(samples) if training.recompute == "full" else 0.0
            return float(training.micro_batches * (load.compute_s(samples) + again) + load.apply_s)
        parts = Laid(self, setup).parts
        slowest_s = max(part.forward_s + part.backward_s + part.again_s for part in parts)
        count = training.micro_batches
        turns = 1 if self.schedule == "pipedream" else count * self.chunks + idle_passes(self.pipeline, self.chunks, count)
        return float(turns * slowest_s + load.apply_s / self.pipeline)

    def messages_a_step(self, setup: Setup) -> int:
        """Return what a device sends and what it does with others in a step."""
        each = 4 if self.pipeline > 1 else 2
        layers = len(setup.workload.layers) // (self.pipeline * self.chunks) if self.shard == "parameters" else 1
        return each * setup.training.micro_batches * self.chunks * max(layers, 1)

    def message_bytes(self, setup: Setup) -> Sequence[float]:
        """Activations that stages hand on, and gradients of a stage."""
        if not setup.workload.layers:
            return [setup.workload.parameter_bytes]
        parts = Laid(self, setup).parts
        return [part.output_bytes for part in parts[:-1]] + [part.dense.gradient_bytes + part.experts.gradient_bytes for part in parts]

    # -- names -----------------------------------------------------------------------

    def _pieces(self) -> list[tuple[str, str, str]]:
        """Return what it is made of: as others ask for it, in a word, and with its degree."""
        chunks = f", {self.chunks} chunks" if self.chunks > 1 else ""
        whole = "whole experts" if self.expert_tensor == 1 else f"experts split {self.expert_tensor}-way"
        experts = f" of {whole}" if self._experts_split != self.tensor else ""
        every = (
            (self.pipeline > 1, "pipeline", "pipeline", f"{self.pipeline}-stage pipeline ({self.schedule}{chunks})"),
            (self.tensor > 1, "tensor", "tensor", f"{self.tensor}-way tensor parallel"),
            (self.context > 1, "context", "context", f"{self.context}-way context parallel"),
            (self.expert > 1, "expert", "expert", f"{self.expert}-way expert parallel{experts}"),
            (self.shard != "none", "sharded", f"sharded {self.shard}", f"sharded {self.shard}"),
            (bool(self.on_host), "", "host", f"{len(self.on_host)} layers on the host"),
        )
        return [(cut, way, words) for there, cut, way, words in every if there]

    @property
    def way(self) -> str:
        """Return what it is made of."""
        return " + ".join(way for _, way, _ in self._pieces()) or "data parallel"

    @property
    def cuts(self) -> tuple[str, ...]:
        """Each whose degree is above 1."""
        return tuple(cut for cut, _, _ in self._pieces() if cut)

    @property
    def in_words(self) -> str:
        """In few words, with its degrees."""
        return ", ".join(words for _, _, words in self._pieces()) or f"{self.algorithm} all-reduce"

    @property
    def fuses(self) -> bool:
        """Unless parameters are shared, which are gathered and reduced by layers."""
        return self.shard != "parameters"

    @property
    def software(self) -> tuple[Software, ...]:
        """By schedule, shares and degrees.

        Schedules: Megatron-LM has 1f1b and interleaved, DeepSpeed's ``PipelineEngine`` 1f1b, PyTorch's ``torch.distributed.pipelining``
        all that flush. DeepSpeed refuses ZeRO-2 and ZeRO-3 with a pipeline; Megatron-LM's distributed optimizer is ZeRO-1. TensorFlow
        splits tensors by DTensor, and has no pipelines and no shared state. Megatron-LM and PyTorch (``context_parallel``) split sequences
        around a ring; DeepSpeed's Ulysses exchanges heads instead.
        """
        able: set[Software] = {"tensorflow", "pytorch", "deepspeed", "megatron-lm"}
        if self.pipeline > 1:
            able &= set(_RUN_BY.get(self.schedule, ()))
        if self.shard != "none":
            able &= set(_SHARED_BY[self.shard]) - ({"deepspeed"} if self.pipeline > 1 and self.shard != "optimizer" else set())
        if self.context > 1:
            able &= {"pytorch", "megatron-lm"}
        if self.expert > 1:
            able &= {"deepspeed", "megatron-lm"} if self.expert_tensor in (None, 1, self.tensor) else {"megatron-lm"}
        if self.on_host:
            able &= {"tensorflow"} if self.pipeline == 1 else set()
        return tuple(name for name in SOFTWARE if name in able)

    @classmethod
    def keys_of_names(cls) -> tuple[str, ...]:
        """Its degrees too, which :attr:`in_words` has."""
        return (
            *super().keys_of_names(),
            "pipeline",
            "schedule",
            "chunks",
            "tensor",
            "context",
            "expert",
            "expert_tensor",
            "shard",
            "on_host",
        )

    @classmethod
    def keys_for(cls, name: str, own: Mapping[str, Any]) -> dict[str, Any]:
        """Degrees that a scenario has itself are kept."""
        given = cls.short_names[name]
        kept = {key: own[key] for key in ("pipeline", "tensor") if key in given and own.get(key, 1) > 1}
        return {**own, **given, **kept}

    def fewer(self, replicas: int, before: int) -> Self:  # noqa: ARG002
        """With fewer devices: whole copies, one at least, and as many as groups of experts and of shared state need where these fit."""
        each = self.pipeline * self.tensor * self.context
        copies, group = max(replicas // each, 1), math.lcm(self._expert_copies, self.shard_group or 1, self.context) // self.context
        return self.changed(workers=(copies // group * group or copies) * each)


class WholeCopies(MultiWorkerMirrored):
    """A hybrid strategy that splits nothing: gradients lie in the reduced buffers, as in Megatron-LM and DeepSpeed.

    Nobody writes it: :attr:`Hybrid.simpler` makes it.
    """

    @property
    def reduction(self) -> Reduction:
        """The all-reduce of a step, for which no gradient is copied."""
        return super().reduction._replace(buckets_held="none")


class HybridTogether(Hybrid):
    """A hybrid strategy whose devices that split tensors are taken together as one rank (:mod:`simulator.resolve.drawing`).

    Nobody writes it: :meth:`Hybrid.together` makes it.
    """

    apart: Cluster = Field(description="the cluster whose devices split tensors")

    @property
    def apart_on(self) -> Cluster | None:
        """That cluster."""
        return self.apart
