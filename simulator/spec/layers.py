"""The layers of a model, which may be cut into stages, split over devices, or recomputed.

A step's forward pass goes through the layers in their order and its backward pass in the opposite order. Strategies that split a model need
each layer's share of the work, its variables, its output and its activations. Layers are measured by ``calibrate.fit.step`` or computed by
``simulator.spec.computed``; their time and memory on a device are computed in ``simulator.strategies.hybrid.parts`` and
``simulator.memory``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated

import numpy as np
from pydantic import Field

from simulator.base.spec import STEP_FLOPS, Moderate, Share, Spec, Terse

PerSample = Annotated[Moderate, Field(ge=0)]


class TensorSplit(Spec):
    """Effect of splitting a layer over devices (Shoeybi et al., "Megatron-LM", arXiv:1909.08053, section 3).

    Each device computes a part of every matrix; an all-reduce sums the parts at the end of each split block, in the forward and in the
    backward pass.
    """

    divided: Share = Field(
        default=1.0,
        description="share of the layer's work that is split; each device does the rest in full, unless sequence_parallel splits it",
    )
    forward_bytes_per_sample: tuple[PerSample, ...] = Field(
        default=(), max_length=64, description="size per sample of each all-reduce in the forward pass"
    )
    backward_bytes_per_sample: tuple[PerSample, ...] = Field(
        default=(), max_length=64, description="size per sample of each all-reduce in the backward pass"
    )
    kept_whole: Share = Field(
        default=0.0, description="share of the layer's activations that every device keeps whole, unless sequences are split too"
    )


class Attention(Spec):
    """Attention of a layer, in which tokens need the keys and values of others (Liu et al., "Ring Attention", arXiv:2310.01889)."""

    bytes_per_sample: PerSample = Field(description="bytes of the keys and values of all tokens of a sample")
    work: Share = Field(default=0.0, description="share of the layer's work during which strategy.context exchanges them")


class Experts(Spec):
    """Experts of a layer, which sends each token to some of them (Lepikhin et al., "GShard", ICLR 2021, section 2.2)."""

    count: int = Field(ge=2, le=100_000, description="experts of the layer")
    used: int = Field(default=2, ge=1, le=1000, description="experts that process each token")
    work: Share = Field(default=1.0, description="share of the layer's work done by experts")
    launched: Share = Field(default=0.0, description="share of the layer's kernels that are those of all experts")
    bytes_per_sample: PerSample = Field(description="bytes of all tokens of a sample, each sent to one expert")
    kept_bytes_per_sample: PerSample = Field(
        default=0.0, description="part of the layer's kept_bytes_per_sample that is tokens as sent to experts"
    )
    grouped: bool = Field(default=True, description="one kernel computes all experts of a device, in work space of its own")
    frozen_bytes: PerSample = Field(default=0.0, description="bytes of experts' variables that are not trained, as of trained ones")
    variables: tuple[int, ...] = Field(
        default=(), max_length=100_000, description="variables of the layer that belong to experts, by creation_index"
    )


class Layer(Terse):
    """One layer, or a few that are never separated; layers are listed in the order of the forward pass."""

    name: str = Field(min_length=1, max_length=200, description="for readers")
    forward: Annotated[Moderate, Field(ge=0)] = Field(
        description="work of the forward pass, in any unit that all layers share (seconds, operations)"
    )
    backward: Annotated[Moderate, Field(ge=0)] | None = Field(
        default=None, description="work of the backward pass in the same unit; left out: twice the forward work"
    )
    kernels: PerSample = Field(
        default=0.0, description="kernels that the host launches in both passes, whatever the batch; left out: in proportion to work"
    )
    variables: tuple[int, ...] = Field(default=(), max_length=100_000, description="variables of the layer, by creation_index")
    frozen_bytes: PerSample = Field(default=0.0, description="bytes of its variables that are not trained, as of trained ones (LoRA)")
    output_bytes_per_sample: PerSample = Field(description="output sent to the next layer; the backward pass returns the same amount")
    kept_bytes_per_sample: PerSample = Field(default=0.0, description="activations kept from the forward to the backward pass")
    kept_selectively_bytes_per_sample: PerSample | None = Field(
        default=None, description="part of kept_bytes_per_sample still kept with training.recompute = selective; left out: all"
    )
    temporary_bytes_per_sample: PerSample = Field(
        default=0.0, description="temporary memory of its backward pass for one micro-batch, such as gradients of what is inside"
    )
    logits_per_sample: PerSample = Field(
        default=0.0, description="values that its cross-entropy compares with the labels, whose bytes training.head decides"
    )
    flops_per_sample: Annotated[PerSample, STEP_FLOPS] | None = Field(
        default=None,
        description="floating-point operations of both passes per sample, counted from the graph; left out: not counted",
    )
    selective_work: Share = Field(
        default=0.0, description="share of the forward pass that is recomputed with training.recompute = selective"
    )
    tensor: TensorSplit | None = Field(default=None, description="how the layer splits over devices; left out: it cannot be split")
    attention: Attention | None = Field(
        default=None, description="attention of the layer, which strategy.context splits along the sequence; left out: it has none"
    )
    tied: tuple[int, ...] = Field(
        default=(),
        max_length=1000,
        description="variables of other layers that it shares, by creation_index, such as the embedding matrix in an output layer; a "
        "stage with only one of these layers holds a copy",
    )
    experts: Experts | None = Field(
        default=None, description="experts of the layer, each of which processes a part of the tokens; left out: none"
    )

    @property
    def backward_work(self) -> float:
        """Work of its backward pass."""
        return 2.0 * self.forward if self.backward is None else float(self.backward)


@lru_cache(maxsize=256)
def balanced(work: tuple[float, ...], parts: int) -> tuple[int, ...]:
    """Cut a chain so that its heaviest part is as light as possible; return the index after the last member of each part.

    Dynamic programming over prefixes, as PipeDream's planner without its replication
    (Narayanan et al., SOSP 2019, section 3.1). Every part has at least one member.

    Parameters
    ----------
    work
        Of each member, in any unit.
    parts
        How many, at most as many as there are members.

    Examples
    --------
    >>> balanced((1.0, 1.0, 1.0, 3.0), 2)
    (3, 4)
    """
    total = np.cumsum([0.0, *work])
    count = len(work)
    best, cuts = np.full(count + 1, np.inf), []
    best[0] = 0.0
    for _ in range(parts):
        worst = [np.maximum(best[:last], total[last] - total[:last]) for last in range(1, count + 1)]
        cuts.append([0, *(int(each.argmin()) for each in worst)])
        best = np.array([np.inf, *(each.min() for each in worst)])
    ends, last = [], count
    for cut in reversed(cuts):
        ends.append(last)
        last = cut[last]
    return tuple(reversed(ends))
