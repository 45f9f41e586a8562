"""What others send over the links that a training uses: the table ``cluster.background`` of a scenario, each field a key.

Neighbours share a link in two ways. Traffic whose rate does not depend on ours takes its
part of the capacity, and leaves the rest: a stream at a given rate, a class of traffic that
goes first, or many short transfers that come at a given rate. Flows that always have
something to send, as another training's gradients or a backup, share a link fairly with
ours instead (max-min, as long TCP flows with equal round trips do): beside k of them a flow
gets 1 / (k + 1) of it.

Short transfers count as load, since in an M/G/1 queue with processor sharing and load r, N of
them are there with chance (N + 1) r^N (1 - r)^2, and a transfer that is always there gets
E[1 / (N + 1)] = 1 - r of the link in the long run.

It is only described here: ``simulator.resolve.drawing`` draws the load of a run;
``simulator.program.neighbours`` draws loads of single links (``each_link``) and puts all on
ports; ``simulator.catalogue.trace_files`` reads a trace from a CSV file, whose columns are
the fields of :class:`TracePoint`.
"""

from __future__ import annotations

import bisect
import itertools
import math
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from simulator.base.spec import Seconds, Terse, one_or_two

Load = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
LoadOrTwo = Annotated[Load | tuple[Load, Load], one_or_two("must be a number from 0 to below 1, or a list of two")]
Flows = Annotated[int, Field(ge=0, le=10_000)]
_MOST_POINTS = 100_000


class TracePoint(Terse):
    """What others send from a time on."""

    terse: ClassVar[tuple[str, ...] | None] = None

    at_s: Seconds = Field(ge=0, le=1e9, description="since the beginning of the run")
    load: Load = Field(default=0.0, description="share of the bandwidth that unresponsive traffic takes")
    flows: Flows = Field(default=0, description="flows that share fairly with ours")


class Background(Terse):
    """What others send over some links, in both directions."""

    terse: ClassVar[tuple[str, ...]] = ("on", "nodes", "load", "flows", "each_link", "trace", "repeat_s")

    on: Literal["inter-node", "fabric", "intra-node"] = Field(
        default="inter-node",
        description="inter-node: the nodes' links; fabric: between leaves and spines; intra-node: between the devices of a node, "
        "of one island or of several",
    )
    nodes: tuple[Annotated[int, Field(ge=0, le=10_000_000)], ...] = Field(
        default=(),
        max_length=100_000,
        description="nodes whose links others use, by number (of a fabric: the leaves that they hang on); servers' nodes "
        "follow the workers'; left out: all",
    )
    load: LoadOrTwo = Field(
        default=0.0,
        description="share of the bandwidth that others take whatever we send; two numbers: drawn for each run, evenly between them",
    )
    flows: Flows = Field(
        default=0, description="flows of others on each link that always have something to send and share it fairly with ours"
    )
    each_link: bool = Field(default=False, description="each link, and each direction, draws a load of its own; else all have the same")
    trace: tuple[TracePoint, ...] = Field(
        default=(),
        max_length=_MOST_POINTS,
        description="in place of load and flows, what others send from given times on; or the name of a CSV file with the columns "
        "at_s, load and flows",
    )
    repeat_s: Seconds | None = Field(
        default=None, gt=0, description="time after which the trace begins again; left out: its last point holds"
    )

    @model_validator(mode="after")
    def _consistent(self) -> Background:
        least, most = self.between
        if least > most:
            raise ValueError(f"load ({least:g}, {most:g}): the first must be at most the second")
        if self.each_link and not self.drawn:
            raise ValueError("each_link draws a load for each link: give load as two numbers that differ, such as [0.1, 0.5]")
        if len(set(self.nodes)) < len(self.nodes):
            raise ValueError("nodes names a node twice")
        self._check_trace(most)
        return self

    def _check_trace(self, load: float) -> None:
        trace = self.trace
        if not trace:
            if self.repeat_s is not None:
                raise ValueError(f"repeat ({self.repeat_s:g} s) is of a trace: give one, or leave it out")
            return
        if load or self.flows:
            raise ValueError("a trace says load and flows from each time on: leave out load and flows beside it")
        if trace[0].at_s:
            raise ValueError(f"trace must begin at 0 s, not at {trace[0].at_s:g} s")
        for before, after in itertools.pairwise(trace):
            if after.at_s <= before.at_s:
                raise ValueError(f"trace must go on in time: {after.at_s:g} s comes after {before.at_s:g} s")
        if self.repeat_s is not None and self.repeat_s <= trace[-1].at_s:
            raise ValueError(f"repeat ({self.repeat_s:g} s) must be above the last time of the trace ({trace[-1].at_s:g} s)")

    @property
    def between(self) -> tuple[float, float]:
        """Least and most load that is given."""
        return self.load if isinstance(self.load, tuple) else (self.load, self.load)

    @property
    def drawn(self) -> bool:
        """Whether each run draws its load."""
        least, most = self.between
        return least < most

    @property
    def nothing(self) -> bool:
        """Whether nobody sends anything, ever."""
        return self.between[1] == 0 and not self.flows and all(point.load == 0 and not point.flows for point in self.trace)

    @property
    def changes(self) -> bool:
        """Whether what others send changes during a run."""
        return len({(point.load, point.flows) for point in self.trace}) > 1

    def changes_in(self, run_s: float) -> float:
        """How often what others send changes in a time, about."""
        if not self.changes:
            return 0.0
        if self.repeat_s is not None:
            return float(len(self.trace) * run_s / self.repeat_s)
        return float(bisect.bisect_right(self.trace, run_s, key=lambda point: point.at_s) - 1)

    def with_draw(self, rng: np.random.Generator) -> Background:
        """The load of one run, where all links have the same."""
        if not self.drawn or self.each_link:
            return self
        return self.model_copy(update={"load": float(rng.uniform(*self.between))})

    def at_beginning(self) -> tuple[float, int]:
        """Load and flows with which a run begins; of a load that is not drawn yet, the middle."""
        return (self.trace[0].load, self.trace[0].flows) if self.trace else (math.fsum(self.between) / 2, self.flows)

    def taken(self) -> float:
        """Share of a link that others take while one flow of ours uses it, in the mean over a trace."""
        if not self.trace:
            load, flows = self.at_beginning()
            return 1.0 - (1.0 - load) / (1 + flows)
        shares = [1.0 - (1.0 - point.load) / (1 + point.flows) for point in self.trace]
        if self.repeat_s is None:
            return shares[-1]
        ends_s = [*(point.at_s for point in self.trace[1:]), self.repeat_s]
        whole = math.fsum(share * (end_s - point.at_s) for share, point, end_s in zip(shares, self.trace, ends_s, strict=True))
        return float(whole / self.repeat_s)
