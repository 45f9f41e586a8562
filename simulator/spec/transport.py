"""``cluster.transport`` and ``cluster.background``: costs of messages between nodes on links and hosts, and the traffic of others.

Only keys and their rules. Transport (TCP, gRPC, an RDMA stack) is simulated in ``simulator.engine.production``, where state.py reads it,
and more simply in ``simulator.engine.textbook.messages``; ``HostWork`` of ``calibrate.fit.server`` has the costs of hosts in closed form,
and ``simulator.resolve.measured_defaults`` fills in what gRPC costs where nothing is given.

Neighbours share a link in two ways. Traffic whose rate does not depend on ours takes its part of the capacity: a stream at a given rate, a
class of traffic with priority, or many short transfers at a given rate. Flows that always send, such as another training's gradients or a
backup, share a link fairly with ours (max-min, like long TCP flows with equal round trips): next to k of them a flow gets 1 / (k + 1) of
it. Short transfers count as load, since in an M/G/1 queue with processor sharing and load r, N of them are there with chance (N + 1) r^N (1
- r)^2, and a transfer that is always there gets E[1 / (N + 1)] = 1 - r of the link in the long run. ``simulator.resolve.drawing`` draws the
load of a run, ``simulator.program.neighbours`` draws loads of single links (``each_link``) and puts all on ports.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterator
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from simulator.base.spec import DELAY, EACH_BYTE, Delay, Latency, Moderate, PositiveSeconds, Rate, Seconds, Share, Terse, one_or_two

Carrier = Literal["grpc", "given"]
"""Software that carries tensors between processes and sets their host costs; given: the scenario gives the costs."""


class Transport(Terse, only=("software", "weights_of")):
    """Between nodes: how concurrent messages share a node's link, and their costs beyond their bytes.

    By default messages share fairly. Their host costs are measured defaults if TensorFlow's gRPC carries them (docs/numbers.md), and
    otherwise 0.
    """

    software: Carrier | None = Field(
        default=None,
        description="software that carries tensors between processes. grpc: host costs of TensorFlow's gRPC per tensor and byte, and of "
        "a coordinator per step, default to measured values; given: messages cost hosts what these keys say, or nothing. "
        "Left out: grpc with parameter servers, else given",
    )

    discipline: Literal["fair", "in-order", "streams", "weighted"] = Field(
        default="fair",
        description="how messages share a link. fair: max-min fairly (fair queueing, or many short messages); in-order: one at a time in "
        "order of arrival, per direction of each node; streams: a few at a time; weighted: each message has a random weight "
        "(TCP without fair queues)",
    )
    streams: int | None = Field(default=None, ge=1, le=100_000, description="with discipline = streams: number of messages at a time")
    weight_sigma: Annotated[float, Field(gt=0, le=3)] | None = Field(
        default=None, description="with discipline = weighted: standard deviation of the logarithm of a message's lognormal weight"
    )
    weights_of: Literal["message", "transfer"] = Field(
        default="message",
        description="with discipline = weighted, what draws one weight. message: each message; transfer: all messages that a node "
        "requests or sends at the same time (a pull from all servers, a push to all)",
    )
    queue_s: Delay | None = Field(
        default=None,
        description="with discipline = weighted: data that each message in flight keeps queued before its sender's link, as time at the "
        "link's rate; a message that starts later waits behind it and behind the queue at its receiver",
    )
    buffer_s: Annotated[PositiveSeconds, DELAY] | None = Field(default=None, description="with queue_s: limit of one queue")
    requests_per_pull: int = Field(
        default=1, ge=0, le=100, description="with queue_s: short messages to a server, in sequence, that a pull waits for"
    )
    wire_bytes_per_byte: float = Field(
        default=1.0, ge=1, le=100, description="bytes on the link for each byte of a tensor (headers, encoding)"
    )
    cpu_per_message_s: Latency = Field(
        default=0.0, description="host time per tensor of a message, on each side, one tensor at a time; 0: default of software"
    )
    copy_per_byte_s: Annotated[Moderate, Field(ge=0, le=1), EACH_BYTE] = Field(
        default=0.0,
        description="host time per byte of a tensor, on each side, before the message is sent (serialising) and after it has arrived "
        "(parsing), as in gRPC; it does not overlap the transfer",
    )
    cpu_per_byte_s: Annotated[Moderate, Field(ge=0, le=1), EACH_BYTE] = Field(
        default=0.0, description="host time per byte sent or received, on each side, during the transfer"
    )
    flow_cap_bytes_per_s: Rate | None = Field(
        default=None, description="maximum rate of one connection, even on a free link (one TCP stream seldom fills a NIC)"
    )
    incast_loss: Share = Field(
        default=0.0,
        description="bandwidth into a node with k flows is divided by 1 + incast_loss x (k - incast_flows), for k above incast_flows",
    )
    incast_flows: int = Field(default=1, ge=1, le=100_000, description="number of flows into a node without loss")

    def _broken_rules(self) -> Iterator[str]:
        for discipline, key, given, example in (
            ("streams", "streams", self.streams, "streams = 4"),
            ("weighted", "weight_sigma", self.weight_sigma, "weight_sigma = 0.5"),
        ):
            if self.discipline == discipline and given is None:
                yield f'discipline = "{discipline}" needs {key}; give it, such as {example}'
            if self.discipline != discipline and given is not None:
                yield f'{key} ({given}) applies to discipline = "{discipline}", not to "{self.discipline}": leave one of them out'
        if self.weights_of != "message" and self.weight_sigma is None:
            yield f'weights_of ("{self.weights_of}") applies to discipline = "weighted", not to "{self.discipline}": leave it out'
        if self.queue_s is not None and (self.weight_sigma is None or self.buffer_s is None):
            yield f'queue_s ({self.queue_s}) needs discipline = "weighted" and buffer_s; give them, such as buffer = "20 ms"'
        if self.buffer_s is not None and self.queue_s is None:
            yield f"buffer_s ({self.buffer_s}) has no effect without queue_s: give both, or leave it out"
        if self.incast_flows > 1 and not self.incast_loss:
            yield f"incast_flows ({self.incast_flows}) has no effect without incast_loss: give that too, such as 0.05"

    @property
    def has_hosts(self) -> bool:
        """Return whether hosts spend time on messages, order them or weight them."""
        return self.at_a_time is not None or self.weight_sigma is not None or self.works_on_messages

    @property
    def works_on_messages(self) -> bool:
        """Return whether hosts work on a message before it is sent and after it has arrived."""
        return self.cpu_per_message_s > 0 or self.copy_per_byte_s > 0

    @property
    def at_a_time(self) -> int | None:
        """Number of messages at a time in one direction of a node; None: no limit."""
        return 1 if self.discipline == "in-order" else self.streams


Load = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
LoadOrTwo = Annotated[Load | tuple[Load, Load], one_or_two("must be a number from 0 to below 1, or a list of two")]
Flows = Annotated[int, Field(ge=0, le=10_000)]
_MOST_POINTS = 100_000


class TracePoint(Terse):
    """Background traffic from a time on."""

    at_s: Seconds = Field(ge=0, le=1e9, description="time since the start of the run")
    load: Load = Field(default=0.0, description="share of the bandwidth that unresponsive traffic takes")
    flows: Flows = Field(default=0, description="background flows that share fairly with ours")


class Background(Terse):
    """Background traffic on some links, in both directions."""

    on: Literal["inter-node", "fabric", "intra-node"] = Field(
        default="inter-node",
        description="inter-node: the nodes' links; fabric: between leaves and spines; intra-node: between the devices of a node, "
        "of one island or of several",
    )
    nodes: tuple[Annotated[int, Field(ge=0, le=10_000_000)], ...] = Field(
        default=(),
        max_length=100_000,
        description="numbers of the nodes whose links others use (with a fabric, their leaves); servers' nodes come after workers' "
        "nodes; left out: all",
    )
    load: LoadOrTwo = Field(
        default=0.0,
        description="share of the bandwidth that others take regardless of our traffic; two numbers: drawn uniformly between them for "
        "each run",
    )
    flows: Flows = Field(default=0, description="background flows on each link that always send and share it fairly with ours")
    each_link: bool = Field(default=False, description="true: each link and direction draws its own load; false: all have the same load")
    trace: tuple[TracePoint, ...] = Field(
        default=(),
        max_length=_MOST_POINTS,
        description="load and flows over time, in place of load and flows; or the name of a CSV file with columns at_s, load and flows",
    )
    repeat_s: PositiveSeconds | None = Field(
        default=None, description="time after which the trace repeats; left out: the last point stays in force"
    )

    def _broken_rules(self) -> Iterator[str]:
        least, most = self.between
        if least > most:
            yield f"load ({least:g}, {most:g}): the first number must be at most the second"
        if self.each_link and not self.drawn:
            yield "each_link needs a range to draw from: give load as two different numbers, such as [0.1, 0.5]"
        if len(set(self.nodes)) < len(self.nodes):
            yield "nodes lists a node twice"
        yield from self._rules_of_trace(most)

    def _rules_of_trace(self, load: float) -> Iterator[str]:
        trace = self.trace
        if not trace:
            if self.repeat_s is not None:
                yield f"repeat ({self.repeat_s:g} s) needs a trace: give one, or leave it out"
            return
        if load or self.flows:
            yield "a trace sets load and flows: leave load and flows out"
        if trace[0].at_s:
            yield f"trace must begin at 0 s, not at {trace[0].at_s:g} s"
        for before, after in itertools.pairwise(trace):
            if after.at_s <= before.at_s:
                yield f"trace must be in order of time: {after.at_s:g} s comes after {before.at_s:g} s"
        if self.repeat_s is not None and self.repeat_s <= trace[-1].at_s:
            yield f"repeat ({self.repeat_s:g} s) must be above the last time of the trace ({trace[-1].at_s:g} s)"

    @property
    def between(self) -> tuple[float, float]:
        """Least and most load that is given."""
        return self.load if isinstance(self.load, tuple) else (self.load, self.load)

    @property
    def drawn(self) -> bool:
        """Return whether each run draws its load."""
        least, most = self.between
        return least < most

    @property
    def nothing(self) -> bool:
        """Return whether there is never any background traffic."""
        return self.between[1] == 0 and not self.flows and all(point.load == 0 and not point.flows for point in self.trace)

    @property
    def changes(self) -> bool:
        """Return whether background traffic changes during a run."""
        return len({(point.load, point.flows) for point in self.trace}) > 1

    def changes_in(self, run_s: float) -> float:
        """Estimate how often background traffic changes within a time."""
        if not self.changes:
            return 0.0
        if self.repeat_s is not None:
            return float(len(self.trace) * run_s / self.repeat_s)
        return float(bisect.bisect_right(self.trace, run_s, key=lambda point: point.at_s) - 1)

    def with_draw(self, rng: np.random.Generator) -> Background:
        """The load of one run, if all links have the same."""
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
