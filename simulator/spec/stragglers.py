"""Nodes that are slow: for a while, one device or many at once, or for a whole run (``cluster.slowdown``, ``cluster.slow_nodes``).

Keys and means alone: ``simulator.engine.slowdowns`` and ``simulator.engine.draws`` draw who is slow when. The jitter of single steps
is in distributions.py; nodes of a known speed are ``node_speed`` and ``node_classes`` of cluster.py.
"""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from simulator.base.spec import Terse, one_or_two

Times = Annotated[float, Field(ge=1, le=1e4, allow_inf_nan=False)]
"""By how much something takes longer."""
TimesOrTwo = Annotated[Times | tuple[Times, Times], one_or_two("must be a number from 1 to 10000, or a list of two")]


class Slowdown(Terse):
    """Devices that stay slow for a while: two states, normal and slow, each left with a fixed chance a step.

    The two-state Markov chain of Gilbert, "Capacity of a burst-noise channel" (1960); the
    first step is in either state with its share of the time in the long run. Who has a chain
    in common is slow in the same steps, by their number.
    """

    terse: ClassVar[tuple[str, ...]] = ("of",)

    factor: float = Field(gt=1, le=1e4, description="by how much a step takes longer while the device is slow")
    mean_slow_steps: float = Field(ge=1, le=1e9, description="steps that it stays slow, in the mean")
    mean_normal_steps: float = Field(ge=1, le=1e9, description="steps that it then stays normal, in the mean")
    of: Literal["device", "node", "rack", "cluster"] = Field(
        default="device",
        description="who is slow at the same time: each device by itself; all of a node; of a rack (fabric.nodes_per_leaf); all there are",
    )

    @property
    def slow_share(self) -> float:
        """Share of the steps that are slow, in the long run."""
        return self.mean_slow_steps / (self.mean_slow_steps + self.mean_normal_steps)

    def mean(self) -> float:
        """Mean factor over all steps."""
        return 1.0 + (self.factor - 1.0) * self.slow_share


class SlowNodes(Terse):
    """Nodes whose devices differ for as long as a run lasts, by chance: some are slow, and all may spread a little.

    Each run draws anew, each node for itself, so that a larger cluster has the nodes of a
    smaller one and others besides.
    """

    terse: ClassVar[tuple[str, ...] | None] = None

    share: float = Field(default=0.0, ge=0, le=1, description="chance of each node to be slow in a run")
    factor: TimesOrTwo = Field(
        default=1.0, description="by how much steps take longer on a slow node; two numbers: drawn for each, evenly between them"
    )
    spread_cv: float = Field(
        default=0.0, ge=0, le=1, description="standard deviation over mean of all nodes' step times, slow or not: lognormal around 1"
    )

    @model_validator(mode="after")
    def _consistent(self) -> SlowNodes:
        least, most = self.between
        if least > most:
            raise ValueError(f"factor ({least:g}, {most:g}): the first must be at most the second")
        if self.share > 0 and most <= 1:
            raise ValueError(f"share ({self.share:g}) needs factor, by how much slow nodes take longer (above 1), such as factor = 1.5")
        return self

    @property
    def between(self) -> tuple[float, float]:
        """Least and most by which a slow node takes longer."""
        return self.factor if isinstance(self.factor, tuple) else (self.factor, self.factor)

    @property
    def constant(self) -> bool:
        """Whether all nodes are as measured."""
        return not self.share and not self.spread_cv

    def mean(self) -> float:
        """Mean factor of a node's step times."""
        return 1.0 + self.share * (math.fsum(self.between) / 2 - 1.0)
