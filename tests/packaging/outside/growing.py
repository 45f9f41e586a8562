"""A strategy of another package, as docs/extend.md shows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import Field

from simulator.strategies.data_parallel import MultiWorkerMirrored
from simulator.strategies.setup import Setup
from simulator.strategies.strategy import Software


class Growing(MultiWorkerMirrored):
    """Local SGD that averages every step at first, and ever more seldom while the loss falls."""

    short_names: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    kind: Literal["growing"] = Field(default="growing", description="this strategy")  # type: ignore[assignment]
    progress: float = Field(default=0.0, ge=0, le=1, description="share of the training that is done when the simulated steps begin")
    slowest: int = Field(default=16, ge=1, le=1000, description="steps between averages at the end of the training")

    @property
    def period(self) -> int:
        """Steps between averages, in the steps that are simulated."""
        return round(self.slowest**self.progress)

    def filled_in(self, setup: Setup) -> Self:  # noqa: ARG002
        """With the period of the steps that are simulated, which all other answers read."""
        return self if self.sync_every == self.period else self.changed(sync_every=self.period)

    def check(self, setup: Setup) -> None:
        """Raise ValueError if a period is given, or another part of the scenario excludes it."""
        if self.sync_every not in (1, self.period):
            raise ValueError(f"strategy.sync_every ({self.sync_every}) follows from progress and slowest: leave it out")
        super().check(setup)

    @property
    def fuses(self) -> bool:
        """Only while every step is averaged: a plan tries sizes of buckets where this holds."""
        return self.period == 1

    @property
    def in_words(self) -> str:
        """In few words, without its number of workers."""
        return f"local SGD, now every {self.period} steps"

    def title(self, *, servers: bool = True) -> str:  # noqa: ARG002
        """What a curve is called."""
        return "Growing local SGD"

    @property
    def software(self) -> tuple[Software, ...]:
        """None does it without code of one's own."""
        return ()
