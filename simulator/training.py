"""How a step is computed whatever the strategy: micro-batches, what is computed again instead of kept, the optimizer."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from simulator.spec import Spec

__all__ = ["ASSUMED_OPTIMIZER", "Optimizer", "Training"]

Optimizer = Literal["sgd", "momentum", "adagrad", "rmsprop", "adam", "lamb", "adafactor"]
"""An optimizer by what it keeps of each parameter: :data:`simulator.memory.SLOTS`."""

ASSUMED_OPTIMIZER: Optimizer = "adam"
"""Where it is left out and memory is computed from layers."""


class Training(Spec):
    """``[training]`` of a scenario."""

    micro_batches: int = Field(
        default=1,
        ge=1,
        le=100_000,
        description="parts that the batch of a replica is cut into, computed one after the other; their gradients are summed, and reduced "
        "and applied once (gradient accumulation; the micro-batches of a pipeline)",
    )
    recompute: Literal["none", "selective", "full"] = Field(
        default="none",
        description="activations that are not kept but computed again in the backward pass; full: all but what each layer gets; selective: "
        "those that layers say are cheap",
    )
    optimizer: Optimizer | None = Field(
        default=None,
        description="whose slots devices keep beside the parameters (docs/memory.md); left out: adam where memory is computed from layers, "
        "else what was measured",
    )
