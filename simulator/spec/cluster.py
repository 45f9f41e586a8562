"""A cluster: nodes, the devices in them, the links inside and between nodes, storage and prices (``[cluster]``, ``models/clusters``).

Keys, their rules, and what follows from them alone. Ports and paths are made of them in ``simulator.program.wiring``; rates of links
of which only the sort is known come from ``simulator.resolve.measured_defaults``. A new kind of link belongs into :attr:`Cluster.links`. A
key that changes the times of collectives belongs into ``_network`` of ``simulator.strategies.assembling``, by which times are kept.
``calibrate.fit.link`` and ``calibrate.fit.server`` fit clusters to measurements.
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
"""What a link is, where its bandwidth is the nominal one of which software gets a share; given: what transfers get."""


class Link(Terse, only=("sort",)):
    """A full-duplex link: each direction has the whole bandwidth to itself."""

    bandwidth_bytes_per_s: Rate = Field(description="bandwidth of each direction")
    latency_s: Latency = Field(default=0.0, description="latency added to each message; it delays, but does not occupy the link")
    sort: Sort = Field(
        default="given",
        description="what sort of link it is, where the bandwidth is nominal, so that transfers get a share of it (docs/numbers.md); "
        "left out: the bandwidth is what transfers get, as measured or given",
    )

    @property
    def alone(self) -> Link:
        """The link as transfers find it while no device computes: as it is, where nothing else is known."""
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
"""What sorts a link can be of, by what it joins."""


class Fabric(Terse, only=("rail_optimised", "sharp")):
    """Leaf and spine switches: each node hangs on a leaf, each leaf on every spine.

    A leaf's links to the spines carry together the bandwidths of what hangs on it divided
    by ``oversubscription``, in each direction. A connection between leaves keeps to one
    spine, chosen at random as equal-cost multi-path routing does.
    """

    nodes_per_leaf: Machines = Field(description="nodes on one leaf switch (a rack); node 0 on are those of leaf 0")
    oversubscription: float = Field(default=1.0, ge=1, le=1000, description="bandwidth into a leaf from its nodes over that to the spines")
    spines: int = Field(default=1, ge=1, le=1024, description="switches that join the leaves, over which these links spread")
    latency_s: Latency = Field(default=0.0, description="latency added to a message that goes by a spine")
    rail_optimised: bool = Field(
        default=False,
        description="a leaf for each rail: NIC i of all nodes_per_leaf nodes hangs on the same leaf; needs cluster.rails; "
        "false: all NICs of a node hang on one leaf",
    )
    sharp: bool = Field(default=False, description='switches can add what nodes send (SHARP): strategy.algorithm = "sharp"')


class Islands(Terse):
    """Devices that are joined directly, where that is not a node: parts of nodes, or several nodes (NVL72)."""

    devices: int = Field(
        ge=1, le=100_000, description="devices that cluster.intra_node joins; divides devices_per_node, or is a multiple of it"
    )
    between: Link | None = Field(
        default=None, description="link of each device to those of other islands in its node (PCIe); islands of whole nodes have none"
    )


class Nvls(Terse):
    """NVSwitches add what the devices of a node or island send, and send copies of it (NVLink SHARP): Hopper and later."""

    efficiency: PositiveShare = Field(
        default=0.85,
        description="share of intra_node's bandwidth that such traffic gets; NCCL's tuner takes 0.85 on Hopper, 0.74 on Blackwell "
        "(nvlsEfficiency in src/graph/tuning.cc)",
    )


class Protocol(Spec):
    """How a collective library moves bytes: what a message costs, and how many bytes cross the link for each byte of data."""

    latency_s: Latency = Field(default=0.0, description="latency added to each message between nodes")
    intra_node_latency_s: Latency = Field(default=0.0, description="latency added to each message inside a node")
    wire_bytes_per_byte: float = Field(default=1.0, ge=1, le=100, description="bytes that cross the link for each byte of data")


class Protocols(Terse, only=("auto",)):
    """NCCL's three protocols.

    LL stores a flag of 4 bytes with each 4 bytes of data, LL128 one of 8 with each 120;
    Simple moves data alone and synchronises by fences. Latencies: the ``hwLat`` table of
    NCCL's ``src/graph/tuning.cc`` (ring, NVLink and network), as that library assumes
    them; measure your own. NCCL's tuner adds some microseconds a collective, gives its
    trees other latencies and LL a quarter of the bandwidth; none of that is modelled.
    """

    ll: Protocol = Field(
        default=Protocol(latency_s=2.7e-6, intra_node_latency_s=0.6e-6, wire_bytes_per_byte=2.0),
        description="LL: a flag of 4 bytes with each 4 bytes of data",
    )
    ll128: Protocol = Field(
        default=Protocol(latency_s=4.0e-6, intra_node_latency_s=1.9e-6, wire_bytes_per_byte=128 / 120),
        description="LL128: a flag of 8 bytes with each 120 bytes of data",
    )
    simple: Protocol = Field(
        default=Protocol(latency_s=14.0e-6, intra_node_latency_s=3.4e-6), description="Simple: data alone, synchronised by fences"
    )
    auto: tuple[Literal["ll", "ll128", "simple"], ...] | None = Field(
        default=None,
        min_length=1,
        description='what strategy.protocol = "auto" chooses among; left out: all three, but no LL128 where cluster.intra_node.sort says '
        "that the devices of a node are joined by something else than NVLink, as NCCL does",
    )


class NodeClass(Spec):
    """Nodes that differ from what was measured: other devices, another link, stragglers."""

    name: str = Field(min_length=1, max_length=200, description="for readers; reports tell classes apart by it")
    nodes: Machines = Field(description="how many nodes of this class; classes fill the nodes in the order given")
    speed: Annotated[Moderate, Field(gt=0, le=1e6)] = Field(default=1.0, description="speed of the devices, relative to the measured one")
    jitter: Distribution | None = Field(default=None, description="law of jitter in place of the workload's")
    slowdown: Slowdown | None = Field(default=None, description="devices that stay slow for a while, in place of the cluster's")
    inter_node: Link | None = Field(default=None, description="link of these nodes, in place of the cluster's")


class ClusterRange(Spec):
    """Within what the links were measured; beyond it a result warns."""

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
    """How well latency and bandwidth describe what was measured on the link between nodes."""

    points: tuple[LinkPoint, ...] = Field(default=(), description="what was measured, for each message size")
    relative_residual: Annotated[float, Field(ge=0)] = Field(description="largest relative distance of a measured median from the line")
    intervals_90: dict[str, tuple[float, float]] = Field(default_factory=dict, description="90% interval of each parameter")


class HostCost(Spec):
    """What the two hosts of pulls, or of pushes, need for a tensor and for a byte."""

    per_tensor_s: Seconds = Field(description="work of each host on a tensor")
    per_byte_s: Annotated[Moderate, Field(ge=0)] | None = Field(
        default=None, description="work of each host on a byte; left out: the link was slower, so it is not known"
    )
    base_s: Seconds = Field(description="what each call took besides, however many tensors it moved")


class ExchangePoint(Spec):
    """Times measured for one pull or push."""

    direction: Literal["pull", "push"] = Field(description="from the server to the worker, or back")
    tensors: int = Field(ge=1, description="tensors that it moved")
    size_bytes: Bytes = Field(gt=0, description="size of each of them")
    median_s: PositiveSeconds = Field(description="median time")
    fitted_s: PositiveSeconds = Field(description="time by the fitted costs")


class CalibrationFitHosts(Spec):
    """How well seconds for a tensor and for a byte describe pulls and pushes between a worker and a server."""

    pull: HostCost = Field(description="what was fitted to pulls alone")
    push: HostCost = Field(description="what was fitted to pushes alone, which the server applies")
    points: tuple[ExchangePoint, ...] = Field(default=(), description="what was measured, for each number and size of tensors")
    relative_residual: Annotated[float, Field(ge=0)] = Field(description="largest relative distance of a measured median from the fit")
    intervals_90: dict[str, tuple[float, float]] = Field(default_factory=dict, description="90% interval of each parameter")


class Storage(Spec):
    """What data sets are read from and checkpoints are written to."""

    bandwidth_bytes_per_s: Rate | None = Field(default=None, description="rate of reads by all nodes together; left out: no limit")
    node_bandwidth_bytes_per_s: Rate | None = Field(default=None, description="rate of reads by one node; left out: no limit of its own")
    write_bytes_per_s: Rate | None = Field(default=None, description="rate of writes by all nodes together; left out: as of reads")
    node_write_bytes_per_s: Rate | None = Field(default=None, description="rate of writes by one node; left out: as of reads")
    latency_s: Delay = Field(default=0.0, description="latency added to each batch that is read, and to each checkpoint")
    over_network: bool = Field(
        default=False, description="reads and writes cross the nodes' links (inter_node), which they share with gradients; else they do not"
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

    see: ClassVar[str] = "to_frame() has every key; paceline.load('ring', {'cluster': cluster}) puts it into a scenario"

    @property
    def overlap_cost(self) -> float:
        """Seconds that compute loses for each second of a collective beside it: none, as a cluster is written."""
        return 0.0

    schema_version: Literal[1] = Field(default=1, description="version of this format")
    name: str = Field(default="own cluster", min_length=1, max_length=10_000, description="for readers")
    description: str = Field(default="", description="for readers")
    basis: Literal["assumed", "measured", "published"] = Field(
        default="assumed", description="where the figures come from; a result says when they are assumed"
    )
    device: str = Field(
        default="",
        description="name of the devices, as a device file has it; a workload that was measured on another device is moved to it",
    )
    available: Machines | None = Field(
        default=None,
        description="machines that there are: the most that a run can take; those that it leaves are not paid for; left out: no limit",
    )
    nodes: Machines | None = Field(
        default=None, description="machines that a run takes and pays for, idle ones among them; left out: as many as the strategy needs"
    )
    devices_per_node: int = Field(default=1, ge=1, le=1024, description="GPUs of a node, or 1 where the CPU computes")
    replicas_per_device: int = Field(default=1, ge=1, le=1024, description="replicas that share a device, each getting an equal part of it")
    device_sharing: Literal["saturated", "concurrent"] = Field(
        default="saturated",
        description="how replicas share a device. saturated: each alone keeps all of it busy, so that k take k times as "
        "long; concurrent: each alone keeps it busy for the share of its time that workload.device_work says, "
        "and one computes while others do not need it",
    )
    device_memory_limit_bytes: Annotated[Bytes, Field(gt=0), MEMORY] | None = Field(
        default=None,
        description="memory of each replica's logical device (TensorFlow's memory_limit); left out: replicas on a device share all of it",
    )
    node_speed: tuple[Annotated[Moderate, Field(gt=0, le=1e6)], ...] = Field(
        default=(),
        max_length=10_000_000,
        description="speed of the devices of node 0, 1, ... relative to the measured one; nodes beyond the list have 1",
    )
    node_classes: tuple[NodeClass, ...] = Field(
        default=(), max_length=1000, description="classes of nodes from node 0 on; nodes beyond them are as measured"
    )
    slow_nodes: SlowNodes | None = Field(default=None, description="nodes that are slow for a whole run, by chance; left out: none are")
    slowdown: Slowdown | None = Field(default=None, description="devices that stay slow for a while; left out: none does")
    device_is_host: bool = Field(
        default=False,
        description="the devices are the hosts' CPUs: a parameter server on a worker's node takes its time from the same device",
    )
    shared_cores: float | None = Field(
        default=None,
        ge=1,
        le=1e6,
        multiple_of=1,
        description="all nodes are processes of one machine with this number of cores, for which the hosts' work queues: that on messages, "
        "servers, the coordinator, input, and with device_is_host the replicas' compute, each on one core at a time; "
        "left out: nodes share none",
    )
    time_slice_s: Annotated[Time, Usual(1e-6, 10.0)] = Field(
        default=3e-3,
        ge=1e-6,
        description="with shared_cores: how long one task keeps a core while others wait (Linux: base slice or minimum "
        "granularity, some ms)",
    )
    overlap_slowdown: Share = Field(
        default=0.0, description="share, 0 to 1, by which compute takes longer while the device communicates (measure it)"
    )
    intra_node: Link = Field(default=Link(bandwidth_bytes_per_s=16e9, latency_s=5e-6), description="link between the devices of a node")
    intra_device: Link | None = Field(
        default=None,
        description="link between replicas that share a device: copies in its memory, one bandwidth for all of them "
        "together; left out: as between devices of a node",
    )
    intra_node_topology: Literal["switch", "mesh"] = Field(
        default="switch", description="one port a device in each direction, or a link of its own between every two devices"
    )
    host_link: Link | None = Field(
        default=None, description="link between a device's memory and its host's (PCIe), a stage of its own; left out: no such copies"
    )
    devices_per_host_link: int = Field(default=1, ge=1, le=1024, description="devices that share one such link")
    inter_node: Link = Field(description="link between a node and the switch; its latency is from node to node")
    nics_per_node: int = Field(default=1, ge=1, le=64, description="links of that kind a node has; all its traffic spreads over them")
    rails: int | None = Field(
        default=None,
        ge=1,
        le=1024,
        description="NICs belong to devices: this number of equal shares of a node's NICs, each with an equal part of its devices, whose "
        "traffic goes over it; left out: all traffic spreads over all NICs",
    )
    pxn: bool = Field(
        default=True,
        description="on a rail-optimised fabric, what goes to another rail first goes to the device of that rail inside the node "
        "(NCCL's PXN); false: it crosses a spine",
    )
    islands: Islands | None = Field(
        default=None, description="groups of devices that intra_node joins; left out: all devices of a node, and none of different nodes"
    )
    nvls: Nvls | None = Field(
        default=None,
        description="switches inside a node that add (NVLink SHARP): strategy.algorithm = nvls; left out: devices are "
        "joined by something that cannot add",
    )
    fabric: Fabric | None = Field(
        default=None, description="leaf and spine switches between nodes; left out: one switch that is never the bottleneck"
    )
    background: Background | None = Field(default=None, description="what others send over its links; left out: they have no neighbours")
    transport: Transport = Field(default=Transport(), description="how messages between nodes travel")
    protocols: Protocols = Field(default=Protocols(), description="NCCL's protocols, among which strategy.protocol chooses")
    storage: Storage | None = Field(default=None, description="storage of data sets and checkpoints; left out: reading takes no time")
    host_cores: int | None = Field(
        default=None, ge=1, le=100_000, description="cores of a node that prepare batches, for all of its devices; left out: enough"
    )
    price: Price | None = Field(default=None, description="price of a node; left out: not known, and no cost is shown")
    server_price: Price | None = Field(
        default=None, description="price of a node that holds parameter servers only; left out: the price of any node"
    )
    offers: tuple[Price, ...] = Field(
        default=(),
        max_length=20,
        description="other ways to pay for the same nodes than price: spot, reserved, bought; a plan chooses the cheapest that reaches "
        "the goal",
    )
    upgrades: tuple[Upgrade, ...] = Field(
        default=(), max_length=20, description="better parts of the nodes and their prices; a plan says what each gains and when it pays"
    )
    calibrated: ClusterRange | None = Field(
        default=None, description="range of what was measured on the link between nodes; beyond it a result warns"
    )
    uncertainty: Uncertainty | None = Field(default=None, description="what the fit of the link leaves open")
    fit: CalibrationFitLink | None = Field(default=None, description="how well latency and bandwidth describe what was measured")
    fit_hosts: CalibrationFitHosts | None = Field(
        default=None, description="how well the hosts' work on each tensor and byte (transport) describes what was measured"
    )
    provenance: dict[str, str] = Field(default_factory=dict, description="where each figure is from")
    overridden: tuple[str, ...] = Field(default=(), description="fitted or measured parts that the scenario has set itself")

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
        """Say what else a value above 1 may have meant: compute that takes twice as long."""
        if isinstance(value, (int, float)) and 1 < value < math.inf:
            percent = min(value, 100)
            longer = f"compute that takes {percent:g} times as long give {percent - 1:g}"
            meant = longer if value <= 2 else f"{percent:g}% give {percent / 100:g}"
            raise ValueError(f"is the share by which compute takes longer, and must be at most 1; for {meant}")
        return value

    def _broken_rules(self) -> Iterator[str]:
        yield from self._rules_of_sorts()
        if self.nodes is not None and self.available is not None and self.nodes > self.available:
            yield f"nodes ({self.nodes}), which a run takes, must be at most available ({self.available}), the machines that there are"
        if (room := self.room) is not None and len(self.node_speed) > room:
            yield f"node_speed names {len(self.node_speed)} nodes, but there are {room}"
        if self.node_classes and self.node_speed:
            yield "node_speed and node_classes both say how fast nodes are; keep one"
        classed = sum(kind.nodes for kind in self.node_classes)
        if room is not None and classed > room:
            yield f"node_classes name {classed} nodes, but there are {room}"
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
            yield "offers are other ways to pay than price, and there is none: give price, or make the first of offers the price"
        names = [way.called for way in self.ways_to_pay]
        if twice := next((name for name in names if names.count(name) > 1), ""):
            yield f"two ways to pay are called {twice!r}: give each of price and offers a name of its own"
        if self.server_price is not None and self.server_price.preemption is not None:
            yield 'server_price.preemption: price.preemption says what is taken (of = "worker-nodes" leaves servers be); leave it out here'

    @property
    def ways_to_pay(self) -> tuple[Price, ...]:
        """The price in use, and the offers beside it."""
        return () if self.price is None else (self.price, *self.offers)

    def paid_by(self, name: str) -> Self:
        """The cluster with one of its ways to pay in use, and all others as its offers."""
        price, *_ = (way for way in self.ways_to_pay if way.called == name)
        return self.model_copy(update={"price": price, "offers": tuple(way for way in self.ways_to_pay if way.called != name)})

    def _rules_of_neighbours(self) -> Iterator[str]:
        slow = [("slowdown", self.slowdown), *((f"node_classes: {kind.name}: slowdown", kind.slowdown) for kind in self.node_classes)]
        for where, slowdown in slow:
            if slowdown is not None and slowdown.of == "rack" and self.fabric is None:
                yield f'{where}.of = "rack" needs fabric, whose nodes_per_leaf says which nodes are in a rack'
        background = self.background
        if background is not None and background.on == "fabric" and self.fabric is None:
            yield 'background.on = "fabric" needs fabric, whose links others use: give it, or on = "inter-node"'
        if background is not None and self.room is not None and max(background.nodes, default=0) >= self.room:
            yield f"background.nodes names node {max(background.nodes)}, but there are {self.room}, numbered from 0 on"

    def _rules_of_rails(self) -> Iterator[str]:
        if self.rails is None:
            if self.fabric is not None and self.fabric.rail_optimised:
                yield "fabric.rail_optimised has a leaf for each rail, but cluster.rails is left out: give the number of rails"
            return
        for name in ("devices_per_node", "nics_per_node"):
            if (count := getattr(self, name)) % self.rails:
                yield f"rails ({self.rails}) must divide {name} ({count})"

    def _rules_of_islands(self) -> Iterator[str]:
        if self.nvls is not None and (self.intra_node_topology != "switch" or self.intra_node.sort not in ("given", "nvlink")):
            yield 'nvls is done by NVSwitches: intra_node_topology must be "switch", and intra_node.sort "nvlink" or left out'
        if (islands := self.islands) is None:
            return
        small, large = sorted((islands.devices, self.devices_per_node))
        if large % small:
            yield f"islands.devices ({islands.devices}) must divide devices_per_node ({self.devices_per_node}) or be a multiple"
        if islands.devices < self.devices_per_node and islands.between is None:
            yield "islands.between is missing: the link of a device to those of other islands in its node"
        if islands.devices >= self.devices_per_node and islands.between is not None:
            yield "islands.between joins islands of one node, but an island has whole nodes: leave it out"

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
        """The cluster with another link in place of each."""
        new = {link.key: change(link) for link in self.links}
        own = [new.pop(f"node_classes.{number}.inter_node", None) for number in range(len(self.node_classes))]
        classes = tuple(kind.replaced({"inter_node": link}) for kind, link in zip(self.node_classes, own, strict=True))
        return self.replaced({**new, "node_classes": classes})

    @property
    def room(self) -> int | None:
        """The most nodes that a run can take: ``nodes``, or all that are ``available``; none: as many as it needs."""
        return self.nodes if self.nodes is not None else self.available

    @property
    def room_key(self) -> str:
        """The dotted key that says so."""
        return "cluster.available" if self.nodes is None and self.available is not None else "cluster.nodes"

    def with_room_for(self, nodes: int) -> Cluster:
        """The cluster, with no fewer nodes than ``nodes`` where their number is limited."""
        limits = {name: limit for name in ("nodes", "available") if (limit := getattr(self, name)) is not None and limit < nodes}
        return self.model_copy(update=dict.fromkeys(limits, nodes)) if limits else self

    @property
    def replicas_per_node(self) -> int:
        """Number of replicas that a node takes."""
        return self.devices_per_node * self.replicas_per_device

    def pace_together(self, busy_share: float) -> float:
        """Seconds of work that all replicas on a device do together in a second, where one alone does one; at least 1.

        A replica alone keeps all of the device busy for ``busy_share`` of its time, and needs
        none of it else: a closed network of one station that is shared equally and of a
        delay, solved by mean-value analysis, whatever the stretches' distributions (Reiser and
        Lavenberg, JACM 1980; Baskett, Chandy, Muntz and Palacios, JACM 1975).
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
        """Number of replicas on devices that are joined directly: those of an island, or of a node."""
        return self.replicas_per_node if self.islands is None else self.islands.devices * self.replicas_per_device

    @property
    def servers_on_devices(self) -> bool:
        """Return whether a parameter server takes its time from the device of a worker on its node."""
        return self.device_is_host and self.shared_cores is None

    @cached_property
    def _class_ends(self) -> tuple[int, ...]:
        """The first node after each class."""
        return tuple(itertools.accumulate(kind.nodes for kind in self.node_classes))

    def class_of(self, node: int) -> NodeClass | None:
        """The class that a node belongs to; none if it is as measured."""
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
        """Return how the devices of a node stay slow for a while; None if they never do."""
        kind = self.class_of(node)
        return kind.slowdown if kind is not None and kind.slowdown is not None else self.slowdown

    @property
    def even(self) -> bool:
        """Return whether all nodes are as fast as the measured one, at all times."""
        return not (self.node_classes or self.node_speed or self.slowdown or (self.slow_nodes and not self.slow_nodes.constant))

    def link_of(self, node: int) -> Link:
        """Return what joins a node to the others: all its NICs together."""
        kind = self.class_of(node)
        link = kind.inter_node if kind is not None and kind.inter_node is not None else self.inter_node
        if self.nics_per_node == 1:
            return link
        return link.model_copy(update={"bandwidth_bytes_per_s": link.bandwidth_bytes_per_s * self.nics_per_node})
