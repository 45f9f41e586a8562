"""A cluster: nodes, the devices in them, the links inside and between nodes, storage and prices (``[cluster]``, ``models/clusters``).

Keys, their rules, and what follows from them directly. ``simulator.program.wiring`` makes ports and paths;
``simulator.resolve.measured_defaults`` gives the achieved rates of links with a nominal bandwidth. A new kind of link belongs into
:attr:`Cluster.links`. A key that changes the times of collectives belongs into ``_network`` of ``simulator.strategies.assembling``, the key
of cached times. ``calibrate.fit.link`` and ``calibrate.fit.server`` fit clusters to measurements.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Annotated, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from simulator.base.spec import (
    MEMORY,
    Bytes,
    Delay,
    Interval,
    Latency,
    Machines,
    Moderate,
    PositiveSeconds,
    PositiveShare,
    Rate,
    Seconds,
    Share,
    Spec,
    Terse,
    Time,
    Usual,
)
from simulator.base.text import Short, counted, format_hourly, format_rate, format_seconds
from simulator.spec.distributions import Distribution, Slowdown, SlowNodes
from simulator.spec.paying import Price, Upgrade
from simulator.spec.transport import Background, Transport
from simulator.spec.uncertainty import Uncertainty

Sort = Literal["given", "nvlink", "pcie", "host-memory", "rdma", "ethernet"]
"""Kind of a link whose bandwidth is nominal; given: the bandwidth is what transfers achieve."""


class Link(Terse, only=("sort",)):
    """A full-duplex link: each direction has the whole bandwidth to itself."""

    bandwidth_bytes_per_s: Rate = Field(description="bandwidth of each direction")
    latency_s: Latency = Field(default=0.0, description="latency added to each message; it delays, but does not occupy the link")
    sort: Sort = Field(
        default="given",
        description="kind of link if the bandwidth is nominal; transfers then get a share of it (docs/numbers.md). Left out: the "
        "bandwidth is what transfers achieve, as measured or given",
    )

    @property
    def alone(self) -> Link:
        """The link for transfers while no device computes; the link itself unless more is known."""
        return self


class ClusterLink(NamedTuple):
    """A link of a cluster.

    Attributes
    ----------
    key
        Its dotted key in the cluster.
    joins
        The devices of a node; nodes, by the switch; a device and its host; or the replicas of one device, by its memory.
    link
        The link.
    """

    key: str
    joins: Literal["devices", "nodes", "host", "replicas"]
    link: Link


_SORTS: Mapping[str, tuple[Sort, ...]] = {
    "devices": ("nvlink", "pcie", "host-memory"),
    "nodes": ("rdma", "ethernet"),
    "host": ("pcie", "nvlink"),
    "replicas": (),
}
"""Sorts that a link can have, by what it joins."""


class Fabric(Terse, only=("rail_optimised", "sharp")):
    """Leaf and spine switches: each node connects to a leaf, and each leaf to every spine.

    The uplinks of a leaf together have the bandwidth of its nodes divided by ``oversubscription``, in each direction. A connection between
    leaves uses one spine, chosen at random as in equal-cost multi-path routing.
    """

    nodes_per_leaf: Machines = Field(description="nodes on one leaf switch (a rack), numbered from leaf 0 on")
    oversubscription: float = Field(
        default=1.0, ge=1, le=1000, description="bandwidth into a leaf from its nodes divided by its bandwidth to the spines"
    )
    spines: int = Field(default=1, ge=1, le=1024, description="switches that join the leaves; the uplinks of a leaf spread over them")
    latency_s: Latency = Field(default=0.0, description="latency added to a message that crosses a spine")
    rail_optimised: bool = Field(
        default=False,
        description="one leaf per rail: NIC i of all nodes_per_leaf nodes connects to the same leaf (needs cluster.rails); false: all "
        "NICs of a node connect to one leaf",
    )
    sharp: bool = Field(default=False, description='switches can sum gradients in the network (SHARP), for strategy.algorithm = "sharp"')


class Islands(Terse):
    """Groups of directly joined devices that are not nodes: parts of nodes, or several nodes (NVL72)."""

    devices: int = Field(
        ge=1, le=100_000, description="devices joined by cluster.intra_node; must divide devices_per_node or be a multiple of it"
    )
    between: Link | None = Field(
        default=None, description="link from each device to other islands in its node (PCIe); islands of whole nodes have none"
    )


class Nvls(Terse):
    """NVSwitches that sum the data of a node's or island's devices and multicast the result (NVLink SHARP): Hopper and later."""

    efficiency: PositiveShare = Field(
        default=0.85,
        description="share of intra_node's bandwidth that NVLS traffic gets; NCCL's tuner takes 0.85 on Hopper, 0.74 on Blackwell "
        "(nvlsEfficiency in src/graph/tuning.cc)",
    )


class Protocol(Spec):
    """How a collective library moves bytes: the cost of a message, and the bytes on the link for each byte of data."""

    latency_s: Latency = Field(default=0.0, description="latency added to each message between nodes")
    intra_node_latency_s: Latency = Field(default=0.0, description="latency added to each message inside a node")
    wire_bytes_per_byte: float = Field(default=1.0, ge=1, le=100, description="bytes on the link for each byte of data")


class Protocols(Terse, only=("auto",)):
    """NCCL's three protocols.

    LL stores a flag of 4 bytes with each 4 bytes of data, LL128 one of 8 with each 120; Simple moves data alone and synchronises by fences.
    Latencies: the ``hwLat`` table of NCCL's ``src/graph/tuning.cc`` (ring, NVLink and network), as that library assumes them; measure your
    own. NCCL's tuner also adds a few microseconds per collective, gives its trees other latencies and LL a quarter of the bandwidth; this
    is not modelled.
    """

    ll: Protocol = Field(
        default=Protocol(latency_s=2.7e-6, intra_node_latency_s=0.6e-6, wire_bytes_per_byte=2.0),
        description="LL: a 4-byte flag with every 4 bytes of data",
    )
    ll128: Protocol = Field(
        default=Protocol(latency_s=4.0e-6, intra_node_latency_s=1.9e-6, wire_bytes_per_byte=128 / 120),
        description="LL128: an 8-byte flag with every 120 bytes of data",
    )
    simple: Protocol = Field(
        default=Protocol(latency_s=14.0e-6, intra_node_latency_s=3.4e-6), description="Simple: data only, synchronised by fences"
    )
    auto: tuple[Literal["ll", "ll128", "simple"], ...] | None = Field(
        default=None,
        min_length=1,
        description='protocols that strategy.protocol = "auto" chooses from; left out: all three, without LL128 if '
        "cluster.intra_node.sort is something other than NVLink, as in NCCL",
    )


class NodeClass(Spec):
    """Nodes that differ from the measured ones: other devices, another link, stragglers."""

    name: str = Field(min_length=1, max_length=200, description="name of the class, shown in reports")
    nodes: Machines = Field(description="number of nodes of this class; classes are assigned to nodes in the order given")
    speed: Annotated[Moderate, Field(gt=0, le=1e6)] = Field(default=1.0, description="speed of the devices relative to the measured device")
    jitter: Distribution | None = Field(default=None, description="distribution of jitter in place of the workload's")
    slowdown: Slowdown | None = Field(default=None, description="temporary slowdowns of devices, in place of the cluster's")
    inter_node: Link | None = Field(default=None, description="link of these nodes, in place of the cluster's")


class ClusterRange(Spec):
    """Measured range of the links; results warn outside it."""

    message_bytes: Interval | None = Field(default=None, description="smallest and largest message")
    nodes: Interval | None = Field(default=None, description="fewest and most nodes")
    bandwidth_bytes_per_s: Interval | None = Field(default=None, description="bandwidth of the link between nodes, as measured")


class LinkPoint(Spec):
    """Times measured for one message size."""

    size_bytes: Bytes = Field(gt=0, description="size of the message")
    median_s: PositiveSeconds = Field(description="median time to send it")
    p5_s: PositiveSeconds = Field(description="5th percentile")
    p95_s: PositiveSeconds = Field(description="95th percentile")


class CalibrationFitLink(Spec):
    """How well latency and bandwidth describe the measurements on the link between nodes."""

    points: tuple[LinkPoint, ...] = Field(default=(), description="measured times for each message size")
    relative_residual: Annotated[float, Field(ge=0)] = Field(description="largest relative error of the fitted line at a measured median")
    intervals_90: dict[str, tuple[float, float]] = Field(default_factory=dict, description="90% interval of each parameter")


class HostCost(Spec):
    """Time of the two hosts of pulls, or of pushes, per tensor and per byte."""

    per_tensor_s: Seconds = Field(description="host time per tensor, on each side")
    per_byte_s: Annotated[Moderate, Field(ge=0)] | None = Field(
        default=None, description="host time per byte, on each side; left out: unknown, because the link was slower"
    )
    base_s: Seconds = Field(description="fixed time of a call, whatever the number of tensors")


class ExchangePoint(Spec):
    """Times measured for one pull or push."""

    direction: Literal["pull", "push"] = Field(description="pull: server to worker; push: worker to server")
    tensors: int = Field(ge=1, description="tensors moved")
    size_bytes: Bytes = Field(gt=0, description="size of each tensor")
    median_s: PositiveSeconds = Field(description="median time")
    fitted_s: PositiveSeconds = Field(description="time from the fitted costs")


class CalibrationFitHosts(Spec):
    """How well seconds for a tensor and for a byte describe pulls and pushes between a worker and a server."""

    pull: HostCost = Field(description="costs fitted to pulls only")
    push: HostCost = Field(description="costs fitted to pushes only; the server applies them")
    points: tuple[ExchangePoint, ...] = Field(default=(), description="measured times for each number and size of tensors")
    relative_residual: Annotated[float, Field(ge=0)] = Field(description="largest relative error of the fit at a measured median")
    intervals_90: dict[str, tuple[float, float]] = Field(default_factory=dict, description="90% interval of each parameter")


class Storage(Spec):
    """Storage that data sets are read from and checkpoints are written to."""

    bandwidth_bytes_per_s: Rate | None = Field(default=None, description="read bandwidth of all nodes together; left out: no limit")
    node_bandwidth_bytes_per_s: Rate | None = Field(default=None, description="read bandwidth of one node; left out: no separate limit")
    write_bytes_per_s: Rate | None = Field(default=None, description="write bandwidth of all nodes together; left out: same as for reads")
    node_write_bytes_per_s: Rate | None = Field(default=None, description="write bandwidth of one node; left out: same as for reads")
    latency_s: Delay = Field(default=0.0, description="latency added to the read of each batch and to each checkpoint")
    over_network: bool = Field(
        default=False, description="true: reads and writes use the nodes' links (inter_node) and share them with gradients"
    )


class Cluster(
    Short,
    Terse,
    only=(
        "storage",
        "host_cores",
        "device_sharing",
        "device_memory_limit_bytes",
        "intra_device",
        "slow_nodes",
        "slowdown",
        "background",
        "rails",
        "pxn",
        "islands",
        "nvls",
        "available",
        "fit_hosts",
        "offers",
        "upgrades",
    ),
):
    """Nodes with devices, joined by one switch that is never the bottleneck, or by a fabric of leaves and spines."""

    see: ClassVar[str] = "to_frame() lists every key; paceline.load('ring', {'cluster': cluster}) puts it into a scenario"

    @property
    def overlap_cost(self) -> float:
        """Seconds that compute loses per second of a simultaneous collective: 0 for a cluster as written."""
        return 0.0

    schema_version: Literal[1] = Field(default=1, description="version of this format")
    name: str = Field(default="own cluster", min_length=1, max_length=10_000, description="for readers")
    description: str = Field(default="", description="for readers")
    basis: Literal["assumed", "measured", "published"] = Field(
        default="assumed", description="origin of the figures; results say so if they are assumed"
    )
    device: str = Field(
        default="",
        description="device name from a device file; the times of a workload measured on another device are scaled to it",
    )
    available: Machines | None = Field(
        default=None,
        description="machines available, an upper limit for a run; unused ones cost nothing; left out: no limit",
    )
    nodes: Machines | None = Field(
        default=None, description="machines that a run occupies and pays for, including idle ones; left out: as many as the strategy needs"
    )
    devices_per_node: int = Field(default=1, ge=1, le=1024, description="GPUs per node; 1 if the CPU computes")
    replicas_per_device: int = Field(default=1, ge=1, le=1024, description="replicas that share a device equally")
    device_sharing: Literal["saturated", "concurrent"] = Field(
        default="saturated",
        description="how replicas share a device. saturated: one replica keeps it fully busy, so k replicas take k times as long; "
        "concurrent: one replica keeps it busy for the share of time given by workload.device_work, and others compute in "
        "the gaps",
    )
    device_memory_limit_bytes: Annotated[Bytes, Field(gt=0), MEMORY] | None = Field(
        default=None,
        description="memory of each replica's logical device (TensorFlow's memory_limit); left out: replicas on a device share all of it",
    )
    node_speed: tuple[Annotated[Moderate, Field(gt=0, le=1e6)], ...] = Field(
        default=(),
        max_length=10_000_000,
        description="speed of the devices of node 0, 1, ... relative to the measured device; 1 for nodes beyond the list",
    )
    node_classes: tuple[NodeClass, ...] = Field(
        default=(), max_length=1000, description="classes of nodes from node 0 on; the remaining nodes are as measured"
    )
    slow_nodes: SlowNodes | None = Field(default=None, description="nodes that are randomly slow for a whole run; left out: none")
    slowdown: Slowdown | None = Field(default=None, description="temporary slowdowns of devices; left out: none")
    device_is_host: bool = Field(
        default=False,
        description="the devices are the hosts' CPUs: a parameter server on a worker's node shares that CPU",
    )
    shared_cores: float | None = Field(
        default=None,
        ge=1,
        le=1e6,
        multiple_of=1,
        description="all nodes are processes on one machine with this number of cores. Work on messages, servers, the coordinator, input "
        "and (with device_is_host) compute queues for them, each task on one core at a time. Left out: nodes share no cores",
    )
    time_slice_s: Annotated[Time, Usual(1e-6, 10.0)] = Field(
        default=3e-3,
        ge=1e-6,
        description="with shared_cores: time slice of a task while others wait (Linux: base slice or minimum granularity, a few ms)",
    )
    overlap_slowdown: Share = Field(
        default=0.0, description="share, 0 to 1, by which compute slows down while the device communicates (measure it)"
    )
    intra_node: Link = Field(default=Link(bandwidth_bytes_per_s=16e9, latency_s=5e-6), description="link between the devices of a node")
    intra_device: Link | None = Field(
        default=None,
        description="link between replicas that share a device (copies in its memory), with one bandwidth for all of them together; left "
        "out: same as between devices of a node",
    )
    intra_node_topology: Literal["switch", "mesh"] = Field(
        default="switch", description="switch: one port per device in each direction; otherwise a separate link between every two devices"
    )
    host_link: Link | None = Field(
        default=None, description="link between device memory and host memory (PCIe), used as a separate stage; left out: no such copies"
    )
    devices_per_host_link: int = Field(default=1, ge=1, le=1024, description="devices that share one host link")
    inter_node: Link = Field(description="link between a node and the switch; its latency counts node to node")
    nics_per_node: int = Field(default=1, ge=1, le=64, description="number of such links per node; traffic spreads over all of them")
    rails: int | None = Field(
        default=None,
        ge=1,
        le=1024,
        description="NICs are dedicated to devices: a node's NICs are divided into this number of equal rails, each serving an equal "
        "part of its devices. Left out: all traffic spreads over all NICs",
    )
    pxn: bool = Field(
        default=True,
        description="on a rail-optimised fabric, traffic to another rail first moves to that rail's device inside the node (NCCL's PXN); "
        "false: it crosses a spine",
    )
    islands: Islands | None = Field(default=None, description="groups of devices joined by intra_node; left out: all devices of one node")
    nvls: Nvls | None = Field(
        default=None,
        description="switches inside a node that sum gradients (NVLink SHARP), for strategy.algorithm = nvls; left out: they cannot",
    )
    fabric: Fabric | None = Field(
        default=None, description="leaf and spine switches between nodes; left out: one switch that is never the bottleneck"
    )
    background: Background | None = Field(default=None, description="traffic of others on the links; left out: none")
    transport: Transport = Field(default=Transport(), description="how messages travel between nodes")
    protocols: Protocols = Field(default=Protocols(), description="NCCL's protocols, for strategy.protocol to choose from")
    storage: Storage | None = Field(default=None, description="storage of data sets and checkpoints; left out: reading takes no time")
    host_cores: int | None = Field(
        default=None, ge=1, le=100_000, description="cores of a node that prepare batches for all of its devices; left out: enough"
    )
    price: Price | None = Field(default=None, description="price of a node; left out: unknown, and no cost is shown")
    server_price: Price | None = Field(
        default=None, description="price of a node with parameter servers only; left out: same as other nodes"
    )
    offers: tuple[Price, ...] = Field(
        default=(),
        max_length=20,
        description="alternatives to price for the same nodes (spot, reserved, bought); a plan chooses the cheapest that reaches the goal",
    )
    upgrades: tuple[Upgrade, ...] = Field(
        default=(), max_length=20, description="upgrades of node parts and their prices; a plan says what each gains and when it pays off"
    )
    calibrated: ClusterRange | None = Field(default=None, description="measured range of the link between nodes; results warn outside it")
    uncertainty: Uncertainty | None = Field(default=None, description="uncertainty of the fit of the link")
    fit: CalibrationFitLink | None = Field(default=None, description="how well latency and bandwidth describe the measurements")
    fit_hosts: CalibrationFitHosts | None = Field(
        default=None, description="how well the host times per tensor and byte (transport) describe the measurements"
    )
    provenance: dict[str, str] = Field(default_factory=dict, description="source of each figure")
    overridden: tuple[str, ...] = Field(default=(), description="fitted or measured parts that the scenario overrides")

    def _in_short(self) -> Iterator[str]:
        nodes = "as many nodes as needed" if self.nodes is None else counted(self.nodes, "node")
        nodes += f" of {self.available:,} available" if self.available is not None else ""
        devices = f"{self.devices_per_node} x {self.device}" if self.device else counted(self.devices_per_node, "device")
        yield f"{self.name}, {nodes} of {devices}"
        link = self.inter_node
        yield f"{format_rate(link.bandwidth_bytes_per_s)} and {format_seconds(link.latency_s)} between nodes ({self.basis})"
        if self.price is not None:
            yield f"{format_hourly(self.price.usd_per_node_hour)} an hour for a node"

    @field_validator("overlap_slowdown", mode="before")
    @classmethod
    def _is_a_share(cls, value: object) -> object:
        """Suggest what a value above 1 may mean: compute that takes twice as long."""
        if isinstance(value, (int, float)) and 1 < value < math.inf:
            percent = min(value, 100)
            longer = f"compute that takes {percent:g} times as long is {percent - 1:g}"
            meant = longer if value <= 2 else f"{percent:g}% is {percent / 100:g}"
            raise ValueError(f"must be at most 1: it is the share by which compute slows down; {meant}")
        return value

    def _broken_rules(self) -> Iterator[str]:
        yield from self._rules_of_sorts()
        if self.nodes is not None and self.available is not None and self.nodes > self.available:
            yield f"nodes ({self.nodes}), the machines that a run takes, must be at most available ({self.available})"
        if (room := self.room) is not None and len(self.node_speed) > room:
            yield f"node_speed lists {len(self.node_speed)} nodes, but there are {room}"
        if self.node_classes and self.node_speed:
            yield "node_speed and node_classes both set the speed of nodes: keep one"
        classed = sum(kind.nodes for kind in self.node_classes)
        if room is not None and classed > room:
            yield f"node_classes list {classed} nodes, but there are {room}"
        if self.devices_per_node % self.devices_per_host_link:
            yield f"devices_per_host_link ({self.devices_per_host_link}) must divide devices_per_node ({self.devices_per_node})"
        yield from self._rules_of_neighbours()
        yield from self._rules_of_rails()
        yield from self._rules_of_islands()
        yield from self._rules_of_prices()
        if self.uncertainty is not None:
            yield from self.uncertainty.broken_rules_of(self)

    def _rules_of_prices(self) -> Iterator[str]:
        if self.offers and self.price is None:
            yield "offers are alternatives to price, which is missing: give price, or make the first offer the price"
        names = [way.called for way in self.ways_to_pay]
        if twice := next((name for name in names if names.count(name) > 1), ""):
            yield f"two ways to pay are called {twice!r}: give price and each offer a different name"
        if self.server_price is not None and self.server_price.preemption is not None:
            yield (
                'server_price.preemption: leave it out; price.preemption says which nodes are preempted (of = "worker-nodes" spares '
                "servers)"
            )

    @property
    def ways_to_pay(self) -> tuple[Price, ...]:
        """The price in use, and the other offers."""
        return () if self.price is None else (self.price, *self.offers)

    def paid_by(self, name: str) -> Self:
        """The cluster with one way to pay in use, and all others as offers."""
        price, *_ = (way for way in self.ways_to_pay if way.called == name)
        return self.model_copy(update={"price": price, "offers": tuple(way for way in self.ways_to_pay if way.called != name)})

    def _rules_of_neighbours(self) -> Iterator[str]:
        slow = [("slowdown", self.slowdown), *((f"node_classes: {kind.name}: slowdown", kind.slowdown) for kind in self.node_classes)]
        for where, slowdown in slow:
            if slowdown is not None and slowdown.of == "rack" and self.fabric is None:
                yield f'{where}.of = "rack" needs fabric: nodes_per_leaf says which nodes share a rack'
        background = self.background
        if background is not None and background.on == "fabric" and self.fabric is None:
            yield 'background.on = "fabric" needs fabric: give it, or set on = "inter-node"'
        if background is not None and self.room is not None and max(background.nodes, default=0) >= self.room:
            yield f"background.nodes lists node {max(background.nodes)}, but there are {self.room} nodes, numbered from 0"

    def _rules_of_rails(self) -> Iterator[str]:
        if self.rails is None:
            if self.fabric is not None and self.fabric.rail_optimised:
                yield "fabric.rail_optimised needs cluster.rails: give the number of rails"
            return
        for name in ("devices_per_node", "nics_per_node"):
            if (count := getattr(self, name)) % self.rails:
                yield f"rails ({self.rails}) must divide {name} ({count})"

    def _rules_of_islands(self) -> Iterator[str]:
        if self.nvls is not None and (self.intra_node_topology != "switch" or self.intra_node.sort not in ("given", "nvlink")):
            yield 'nvls needs NVSwitches: set intra_node_topology = "switch", and intra_node.sort = "nvlink" or leave it out'
        if (islands := self.islands) is None:
            return
        small, large = sorted((islands.devices, self.devices_per_node))
        if large % small:
            yield f"islands.devices ({islands.devices}) must divide devices_per_node ({self.devices_per_node}) or be a multiple"
        if islands.devices < self.devices_per_node and islands.between is None:
            yield "islands.between is missing: give the link from a device to other islands in its node"
        if islands.devices >= self.devices_per_node and islands.between is not None:
            yield "islands.between joins islands within a node, but here an island spans whole nodes: leave it out"

    def _rules_of_sorts(self) -> Iterator[str]:
        for where, joins, link in self.links:
            sorts = _SORTS[joins]
            if link.sort not in ("given", *sorts):
                allowed = f"one of {', '.join(sorts)}, or " if sorts else ""
                yield f'{where}.sort ("{link.sort}") must be {allowed}left out'

    @property
    def links(self) -> Iterator[ClusterLink]:
        """Yield each link that messages can cross."""
        yield ClusterLink("intra_node", "devices", self.intra_node)
        yield ClusterLink("inter_node", "nodes", self.inter_node)
        if self.host_link is not None:
            yield ClusterLink("host_link", "host", self.host_link)
        if self.intra_device is not None:
            yield ClusterLink("intra_device", "replicas", self.intra_device)
        if self.islands is not None and self.islands.between is not None:
            yield ClusterLink("islands.between", "devices", self.islands.between)
        for number, kind in enumerate(self.node_classes):
            if kind.inter_node is not None:
                yield ClusterLink(f"node_classes.{number}.inter_node", "nodes", kind.inter_node)

    def with_links(self, change: Callable[[ClusterLink], Link]) -> Self:
        """The cluster with each link replaced."""
        new = {link.key: change(link) for link in self.links}
        own = [new.pop(f"node_classes.{number}.inter_node", None) for number in range(len(self.node_classes))]
        classes = tuple(kind.replaced({"inter_node": link}) for kind, link in zip(self.node_classes, own, strict=True))
        return self.replaced({**new, "node_classes": classes})

    @property
    def room(self) -> int | None:
        """Maximum number of nodes for a run: ``nodes``, or all that are ``available``; None: no limit."""
        return self.nodes if self.nodes is not None else self.available

    @property
    def room_key(self) -> str:
        """The dotted key that sets it."""
        return "cluster.available" if self.nodes is None and self.available is not None else "cluster.nodes"

    def with_room_for(self, nodes: int) -> Cluster:
        """The cluster with at least ``nodes`` nodes if their number is limited."""
        limits = {name: limit for name in ("nodes", "available") if (limit := getattr(self, name)) is not None and limit < nodes}
        return self.model_copy(update=dict.fromkeys(limits, nodes)) if limits else self

    @property
    def replicas_per_node(self) -> int:
        """Number of replicas per node."""
        return self.devices_per_node * self.replicas_per_device

    def pace_together(self, busy_share: float) -> float:
        """Combined speed of all replicas on a device, relative to a single one; at least 1.

        A single replica keeps the whole device busy for ``busy_share`` of its time and does not use it otherwise: a closed network of one
        processor-sharing station and a delay, solved by mean-value analysis for any distributions (Reiser and Lavenberg, JACM 1980;
        Baskett, Chandy, Muntz and Palacios, JACM 1975).
        """
        if self.device_sharing == "saturated":
            return 1.0
        there = cycle = 0.0  # how many are at the station when one more comes; seconds of a replica's turn through both
        for replicas in range(1, self.replicas_per_device + 1):
            service = busy_share * (1.0 + there)
            cycle = 1.0 - busy_share + service
            there = replicas * service / cycle
        return self.replicas_per_device / cycle

    @property
    def replicas_joined(self) -> int:
        """Number of replicas on directly joined devices: of an island, or of a node."""
        return self.replicas_per_node if self.islands is None else self.islands.devices * self.replicas_per_device

    @property
    def servers_on_devices(self) -> bool:
        """Return whether a parameter server shares the CPU with the worker on its node."""
        return self.device_is_host and self.shared_cores is None

    @cached_property
    def _class_ends(self) -> tuple[int, ...]:
        """The first node after each class."""
        return tuple(itertools.accumulate(kind.nodes for kind in self.node_classes))

    def class_of(self, node: int) -> NodeClass | None:
        """The class of a node; None if it is as measured."""
        index = bisect.bisect_right(self._class_ends, node)
        return self.node_classes[index] if index < len(self.node_classes) else None

    def speed_of(self, node: int) -> float:
        """Relative speed of the devices of a node."""
        kind = self.class_of(node)
        if kind is not None:
            return kind.speed
        return self.node_speed[node] if node < len(self.node_speed) else 1.0

    def speeds_of(self, nodes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Relative speeds of the devices of some nodes, shape (n,)."""
        known = np.repeat([kind.speed for kind in self.node_classes], [kind.nodes for kind in self.node_classes])
        speeds = np.append(np.concatenate([known, self.node_speed]), 1.0)
        of_nodes: NDArray[np.float64] = speeds[np.minimum(nodes, len(speeds) - 1)]
        return of_nodes

    def slowdown_of(self, node: int) -> Slowdown | None:
        """Return the temporary slowdown of a node's devices; None if there is none."""
        kind = self.class_of(node)
        return kind.slowdown if kind is not None and kind.slowdown is not None else self.slowdown

    @property
    def even(self) -> bool:
        """Return whether all nodes always are as fast as the measured one."""
        return not (self.node_classes or self.node_speed or self.slowdown or (self.slow_nodes and not self.slow_nodes.constant))

    def link_of(self, node: int) -> Link:
        """Return the link from a node to the others: all its NICs together."""
        kind = self.class_of(node)
        link = kind.inter_node if kind is not None and kind.inter_node is not None else self.inter_node
        if self.nics_per_node == 1:
            return link
        return link.model_copy(update={"bandwidth_bytes_per_s": link.bandwidth_bytes_per_s * self.nics_per_node})
