"""The network as a collective sees it: its group of ranks, the paths of its messages, the protocol's cost, and what links carry.

:class:`Cabling` is the interface that ``simulator.program.wiring.Wiring`` has. NCCL's protocols trade latency for bytes: see
:class:`simulator.spec.cluster.Protocols`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from simulator.program.port_names import PortName, SwitchKind, kind_of
from simulator.program.program import Exchange, Flags, Floats, Hosts, Integers, Paths, Ports
from simulator.program.schedule import Columns, Schedule, columns, flattened
from simulator.spec.cluster import Cluster
from simulator.spec.cluster import Protocol as Cost


class Cabling(Protocol):
    """Collects connections between ranks, and gives the tables of all that they cross, as :class:`simulator.program.wiring.Wiring`."""

    def between_replicas(self, source: Integers, target: Integers, added_s: Floats | float = 0.0) -> Integers:
        """Paths from one rank's device to another's, by number; ``added_s``: to the latency of each, in seconds.

        Numbers below 0 are switches (:mod:`simulator.program.port_names`).
        """

    def tables(self) -> tuple[Ports, int, Paths, Hosts]:
        """Ports (links before others), how many of them are links, paths, and hosts."""


@dataclass(frozen=True)
class Group:
    """Ranks that do something together, in order.

    Attributes
    ----------
    ranks
        Numbers that the network knows them by.
    nodes
        The node that each sits on; any numbers that differ for different nodes.
    """

    ranks: Sequence[int]
    nodes: Sequence[int]

    def __post_init__(self) -> None:
        if len(self.ranks) != len(self.nodes) or len(np.unique(self.numbers)) != len(self.ranks) or not self.ranks:
            raise ValueError(
                f"a group needs at least one rank, and each rank once with its node: {len(self.ranks)} ranks, {len(self.nodes)} nodes"
            )

    @classmethod
    def in_order(cls, ranks: int, ranks_per_node: int) -> Group:
        """Ranks 0 to ``ranks - 1``, which fill one node after the other."""
        every = range(ranks)
        return cls(every, every if ranks_per_node == 1 else tuple((np.arange(ranks) // ranks_per_node).tolist()))

    def __len__(self) -> int:
        """How many take part."""
        return len(self.ranks)

    @cached_property
    def numbers(self) -> Integers:
        """The ranks, shape (ranks,)."""
        return _array(self.ranks)

    @cached_property
    def places(self) -> Integers:
        """The node of each rank, shape (ranks,)."""
        return _array(self.nodes)

    @cached_property
    def neighbours(self) -> int:
        """The largest number that all runs of neighbours on one node can be cut into: the ranks of equal rings that stay on their nodes."""
        ends = np.flatnonzero(np.diff(self.places)) + 1
        return int(np.gcd.reduce(np.diff(np.concatenate(([0], ends, [len(self)])))))

    @cached_property
    def on_one_node(self) -> bool:
        """Tell whether all sit on the same node."""
        return bool((self.places == self.places[0]).all())


def _array(numbers: Sequence[int]) -> NDArray[np.int64]:
    return np.arange(numbers.start, numbers.stop, numbers.step) if isinstance(numbers, range) else np.array(numbers, dtype=np.int64)


class Laid(NamedTuple):
    """Connections of a group, then those of each parallel group, and the ports that they cross.

    Attributes
    ----------
    ports, paths
        The tables.
    path
        Of each crossing (``paths.port``) its path.
    stage
        Of each path; those of different stages do not send at the same time. None: all do.
    """

    ports: Ports
    paths: Paths
    path: Integers
    stage: Integers | None

    def several(self, of: Integers) -> Flags:
        """Which ports are crossed for more than one value of ``of``, which has one for each crossing; shape (ports,)."""
        count = len(self.ports.capacity)
        least, most = np.full(count, np.iinfo(np.int64).max), np.full(count, -1)
        np.minimum.at(least, self.paths.port, of)
        np.maximum.at(most, self.paths.port, of)
        return least < most


class ConnectionTimes(NamedTuple):
    """Times of simultaneous connections, shape (groups, connections): the group's own first, then those of parallel groups."""

    s_per_byte: Floats
    """Seconds for each byte of data."""
    latency_s: Floats


@dataclass(frozen=True)
class Wire:
    """The network as a collective sees it.

    Attributes
    ----------
    fresh
        A network without connections.
    protocol
        Cost and extra bytes of a message; none: only those of the links.
    group
        Who takes part.
    beside
        Parallel groups: the same shape and operation at the same time. Evaluated at once, and
        in trial runs, they have their part of the ports that they share with this one; what
        else crosses these ports is not known there. Message by message each group is a
        collective of its own, and this plays no role.
    cluster
        Whose hosts work on messages between nodes, each on its own cores or all on shared ones.
    switches
        The switches of a group's schedule, as paths call them; none where it has none.
    """

    fresh: Callable[[], Cabling]
    protocol: Cost | None
    group: Group
    beside: tuple[Group, ...]
    cluster: Cluster
    switches: Callable[[Group], Integers] | None = None

    @property
    def bytes_per_byte(self) -> float:
        """Bytes that cross for each byte of data."""
        return self.protocol.wire_bytes_per_byte if self.protocol else 1.0

    def lay(self, cabling: Cabling, source: Integers, target: Integers) -> Integers:
        """Connections between members of the group, the protocol's latency included; the paths, by number."""
        ranks, nodes, added_s = self.members, self.group.places, np.zeros(1)
        if self.protocol is not None:
            inside = self._inside(source, target) if self.switches else nodes[source] == nodes[target]
            added_s = np.where(inside, self.protocol.intra_node_latency_s, self.protocol.latency_s)
            added_s = np.where(source >= len(self.group), 0.0, added_s)  # a switch passes on what it gets
        return cabling.between_replicas(ranks[source], ranks[target], added_s)

    @cached_property
    def members(self) -> Integers:
        """Name of each member in paths."""
        ranks = self.group.numbers
        return ranks if self.switches is None else np.concatenate([ranks, self.switches(self.group)])

    def _inside(self, source: Integers, target: Integers) -> Flags:
        """Which lanes stay inside a node."""
        here, there = self.members[source], self.members[target]
        places = np.concatenate([self.group.places, np.full(len(self.members) - len(self.group), -1)])
        inner = [(end < 0) & (kind_of(end) == SwitchKind.INSIDE) for end in (here, there)]
        inside: Flags = inner[0] | inner[1] | ((here >= 0) & (there >= 0) & (places[source] == places[target]))
        return inside

    def bytes_of(self, source: Integers, target: Integers) -> Floats:
        """Bytes that cross for each byte of data, of each lane; shape (lanes,)."""
        cost = np.full(len(source), self.bytes_per_byte)
        if self.switches is not None and (nvls := self.cluster.nvls) is not None and nvls.efficiency < 1:
            either = np.minimum(self.members[source], self.members[target])
            cost[(either < 0) & (kind_of(either) == SwitchKind.INSIDE)] /= nvls.efficiency
        return cost

    def of_all(self) -> list[Wire]:
        """The same for this group and for each parallel group."""
        return [replace(self, group=group, beside=()) for group in (self.group, *self.beside)]

    def laid(self, source: Integers, target: Integers, stage: Integers | None = None) -> Laid:
        """Connections on a separate network between ranks of the group, and of each parallel group."""
        cabling, every = self.fresh(), self.of_all()
        for wire in every:
            wire.lay(cabling, source, target)
        ports, _, paths, _ = cabling.tables()
        path = np.repeat(np.arange(len(paths)), np.diff(paths.first))
        return Laid(ports, paths, path, None if stage is None else np.tile(stage, len(every)))

    def paces_of(self, lanes: Columns, chosen: Flags) -> ConnectionTimes:
        """Return what some lanes of a schedule take if all of them send at once, shape (lanes,)."""
        return ConnectionTimes(*(column[0] for column in self.paces(self.laid(lanes.source[chosen], lanes.target[chosen]))))

    def paces(self, laid: Laid) -> ConnectionTimes:
        """Return what such connections take if all of a stage send at once and share each port equally."""
        groups = 1 + len(self.beside)
        shape = groups, len(laid.paths) // groups
        return ConnectionTimes(seconds_per_byte(laid).reshape(shape) * self.bytes_per_byte, laid.paths.latency_s.reshape(shape))


def seconds_per_byte(laid: Laid) -> Floats:
    """Seconds that a byte takes on each connection if all of a stage send at once and share each port equally, shape (paths,)."""
    port, path = laid.paths.port, laid.path
    at = port if laid.stage is None else laid.stage[path] * len(laid.ports.capacity) + port
    users = np.bincount(at)[at]
    slowest_s = np.zeros(len(laid.paths))
    np.maximum.at(slowest_s, path, equal_share_s(laid.ports, port, users))
    return slowest_s


def equal_share_s(ports: Ports, port: Integers, users: Integers) -> Floats:
    """Seconds that a byte takes each of the connections that share a port equally, with those of others; of some ports, by number."""
    beyond = np.maximum(users - ports.incast_flows[port], 0)
    capacity = ports.capacity[port] / (1.0 + ports.incast_loss[port] * beyond)
    share_s: Floats = np.maximum((users if ports.beside is None else users + ports.beside[port]) / capacity, 1.0 / ports.ceiling[port])
    return share_s


# -- what links carry -------------------------------------------------------------------------


class Load(NamedTuple):
    """Load of a buffer on each port, per byte; shape (ports,).

    Attributes
    ----------
    shares
        Bytes.
    seconds
        Seconds of use: at least what the port needs for its bytes, and what the longest of
        the lanes that cross it needs at the pace of the slowest port on its way.
    """

    shares: Floats
    seconds: Floats


def load_of(schedule: Schedule, bytes_per_byte: Floats, ports: Ports, paths: Paths, first: int = 0) -> Load:
    """Load of a collective's lanes on the ports; ``bytes_per_byte``: what crosses for each byte of a lane; its paths begin at ``first``."""
    *_, messages, parts = columns(schedule)
    share = messages.astype(np.int64) * parts / schedule.parts * bytes_per_byte
    port = paths.port[paths.first[first] :]
    path = np.repeat(np.arange(len(share)), np.diff(paths.first[first:]))
    slowest = np.full(len(share), np.inf)
    np.minimum.at(slowest, path, ports.capacity[port])
    count = len(ports.capacity)
    shares: Floats = np.bincount(port, share[path], count).astype(np.float64)
    seconds = np.zeros(count)
    np.maximum.at(seconds, port, (share / slowest)[path])
    return Load(shares, np.maximum(seconds, shares / ports.capacity))


class Use:
    """Counts what crosses the links of a network.

    Parameters
    ----------
    cabling
        The network, without connections yet.

    Attributes
    ----------
    carried, busy_s
        Of each link bytes carried, and seconds in use.
    """

    def __init__(self, cabling: Cabling) -> None:
        self._cabling = cabling
        self._ports, _, _, self._hosts = cabling.tables()
        self.carried = np.zeros(0)
        self.busy_s = np.zeros(0)

    def lay(self, schedule: Schedule, wire: Wire) -> Load:
        """Have the links that a collective crosses counted from now on; what a buffer brings each link."""
        lanes = columns(schedule)
        numbers = wire.lay(self._cabling, lanes.source, lanes.target)
        self._ports, links, paths, self._hosts = self._cabling.tables()
        new = links - len(self.carried)
        self.carried, self.busy_s = (np.concatenate((before, np.zeros(new))) for before in (self.carried, self.busy_s))
        load = load_of(
            schedule, wire.bytes_of(lanes.source, lanes.target), self._ports, paths, int(numbers[0]) if len(numbers) else len(paths)
        )
        return Load(load.shares[:links], load.seconds[:links])  # those behind are caps of single connections

    def add(self, load: Load, size_bytes: float, times: int) -> None:
        """Count buffers of a size."""
        links = len(load.shares)
        self.carried[:links] += load.shares * size_bytes * times
        self.busy_s[:links] += load.seconds * size_bytes * times

    def forget(self) -> None:
        """Count from the beginning, on the same links."""
        self.carried, self.busy_s = np.zeros_like(self.carried), np.zeros_like(self.busy_s)

    @property
    def names(self) -> Sequence[PortName]:
        """Names of every counted link, and of the hosts at their ends."""
        links = self._ports.names[: len(self.carried)]
        return [*links, *self._hosts.names] if self._hosts.count else links

    @property
    def seconds(self) -> Floats:
        """For how long each of them has been in use; work of hosts is not counted. Shape (names,)."""
        links, ports = len(self.carried), self._ports
        # bytes stand for seconds of the whole capacity; where incast eats into it, seconds in use do
        used_s = np.where(ports.incast_loss[:links] > 0, self.busy_s, self.carried / ports.whole[:links])
        return np.concatenate((used_s, np.zeros(self._hosts.count)))


# -- messages of a program --------------------------------------------------------------------


class Plan(NamedTuple):
    """The messages of one collective, and what they cross."""

    schedule: Schedule
    wire: Wire


def exchanges_of(cabling: Cabling, plans: Sequence[Plan], buckets_bytes: Sequence[float], group: int = 0) -> tuple[Exchange, ...]:
    """The messages of one collective per bucket, all of the same group, and their paths on a network.

    Lanes between the same two ranks, of the same number and by the same protocol, are one
    connection: what one bucket has still to send delays the next.

    Parameters
    ----------
    cabling
        Where the paths are laid.
    plans
        The messages of each bucket, and the protocol that they go by.
    buckets_bytes
        Size of each bucket.
    group
        The group's number in the program.
    """
    paths: dict[tuple[int, object], Integers] = {}  # by schedule and protocol
    known: dict[tuple[object, ...], int] = {}
    exchanges = []
    for plan, size_bytes in zip(plans, buckets_bytes, strict=True):
        tables, wire = flattened(plan.schedule), plan.wire
        kind = id(plan.schedule), wire.protocol
        if kind not in paths:
            # protocols differ in latency, so that they do not share a connection
            called = [wire.members[end].tolist() for end in (tables.source, tables.target)]
            ends = zip(tables.source.tolist(), tables.target.tolist(), tables.number.tolist(), *called, strict=True)
            keys = [(*lane, wire.protocol) for lane in ends]
            new = np.array([lane for lane, key in enumerate(keys) if key not in known], dtype=np.int64)
            numbers = wire.lay(cabling, tables.source[new], tables.target[new])
            known.update((keys[lane], number) for lane, number in zip(new.tolist(), numbers.tolist(), strict=True))
            paths[kind] = np.array([known[key] for key in keys], dtype=np.int64)
        each_bytes = size_bytes * (tables.each / tables.parts) * wire.bytes_of(tables.source, tables.target)
        exchanges.append(Exchange(tables, paths[kind], each_bytes, group))
    return tuple(exchanges)


def exchanges_of_groups(cabling: Cabling, plans: Sequence[Plan], buckets_bytes: Sequence[float], first: int = 0) -> tuple[Exchange, ...]:
    """The messages of parallel groups of the same shape: of the plans' own group, and of the others.

    Parameters
    ----------
    cabling, plans, buckets_bytes
        As in :func:`exchanges_of`; all plans are of the same groups.
    first
        The number of the plans' own group in the program; the parallel groups follow.
    """
    groups = zip(*(plan.wire.of_all() for plan in plans), strict=True)
    of_each = [[Plan(plan.schedule, wire) for plan, wire in zip(plans, wires, strict=True)] for wires in groups]
    return tuple(exchange for at, group in enumerate(of_each) for exchange in exchanges_of(cabling, group, buckets_bytes, first + at))
