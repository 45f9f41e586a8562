"""A strategy of another package, as docs/adding-a-strategy.md shows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import Field

from simulator.strategies.data_parallel import MultiWorkerMirrored
from simulator.strategies.setup import Setup


class Growing(MultiWorkerMirrored):
    """Local SGD that averages every step at first, and ever more seldom while the loss falls."""

    short_names: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    kind: Literal["growing"] = Field(default="growing", description="this strategy")
    progress: float = Field(default=0.0, ge=0, le=1, description="share of the training that is done when the simulated steps begin")
    slowest: int = Field(default=16, ge=1, le=1000, description="steps between averages at the end of the training")

    def filled_in(self, setup: Setup) -> Self:  # noqa: ARG002
        """With the period of the steps that are simulated."""
        return self.model_copy(update={"sync_every": round(self.slowest**self.progress)})
