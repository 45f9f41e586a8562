"""The network as a collective sees it: its group of ranks, the paths of its messages, and the protocol's cost of a message.

:class:`Cabling` is the interface that ``simulator.program.wiring.Wiring`` has. NCCL's protocols trade latency for bytes: see
:class:`simulator.spec.cluster.Protocols`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from simulator.collectives.around import Times
from simulator.program.program import Flags, Floats, Hosts, Integers, Paths, Ports
from simulator.program.switches import SwitchKind, kind_of
from simulator.spec.cluster import Protocol as Cost


class Cabling(Protocol):
    """Collects connections between ranks, and gives the tables of all that they cross, as :class:`simulator.program.wiring.Wiring`."""

    def between_replicas(self, source: Integers, target: Integers, added_s: Floats | float = 0.0) -> Integers:
        """Paths from one rank's device to another's, by number; ``added_s``: to the latency of each, in seconds.

        Numbers below 0 are switches (:mod:`simulator.program.switches`).
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
                f"a group needs at least one rank, each once and with its node: {len(self.ranks)} ranks, {len(self.nodes)} nodes"
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
        """Whether all sit on the same node."""
        return bool((self.places == self.places[0]).all())


def _array(numbers: Sequence[int]) -> NDArray[np.int64]:
    return np.arange(numbers.start, numbers.stop, numbers.step) if isinstance(numbers, range) else np.array(numbers, dtype=np.int64)


class Laid(NamedTuple):
    """Connections of a group, then those of each group beside it, and all that they cross.

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
    """What connections take that send at the same time, shape (groups, connections): the group's own first, then those beside it."""

    s_per_byte: Times
    """Seconds for each byte of data."""
    latency_s: Times


@dataclass(frozen=True)
class Wire:
    """The network as a collective sees it.

    Attributes
    ----------
    fresh
        A network without connections.
    protocol
        Cost and extra bytes of a message; none: those of the links alone.
    group
        Who takes part.
    beside
        Groups of the same shape that do the same at the same time. Evaluated at once, and
        in trial runs, they have their part of the ports that they share with this one; what
        else crosses these ports is not known there. Message by message each group is a
        collective of its own, and this plays no role.
    message_s, copy_per_byte_s
        Work of each of two hosts on a message between nodes, and on each of its bytes.
    shared_cores
        Cores that all hosts share; none if each has its own.
    time_slice_s
        How long one keeps a core while others wait.
    switches
        The switches of a group's schedule, as paths call them; none where it has none.
    inner_share
        Share of the bandwidth that switches inside a node get of the links to and from them.
    """

    fresh: Callable[[], Cabling]
    protocol: Cost | None
    group: Group
    beside: tuple[Group, ...] = ()
    message_s: float = 0.0
    copy_per_byte_s: float = 0.0
    shared_cores: float | None = None
    time_slice_s: float = math.inf
    switches: Callable[[Group], Integers] | None = None
    inner_share: float = 1.0

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
        """Of each member what paths call it."""
        ranks = self.group.numbers
        return ranks if self.switches is None else np.concatenate([ranks, self.switches(self.group)])

    def _inside(self, source: Integers, target: Integers) -> Flags:
        """Which lanes stay inside a node."""
        one, other = self.members[source], self.members[target]
        places = np.concatenate([self.group.places, np.full(len(self.members) - len(self.group), -1)])
        inner = [(its < 0) & (kind_of(its) == SwitchKind.INSIDE) for its in (one, other)]
        found: Flags = inner[0] | inner[1] | ((one >= 0) & (other >= 0) & (places[source] == places[target]))
        return found

    def bytes_of(self, source: Integers, target: Integers) -> Times:
        """Bytes that cross for each byte of data, of each lane; shape (lanes,)."""
        cost = np.full(len(source), self.bytes_per_byte)
        if self.inner_share < 1:
            either = np.minimum(self.members[source], self.members[target])
            cost[(either < 0) & (kind_of(either) == SwitchKind.INSIDE)] /= self.inner_share
        return cost

    def of_all(self) -> list[Wire]:
        """The same for this group and for each of those beside it."""
        return [replace(self, group=group, beside=()) for group in (self.group, *self.beside)]

    def laid(self, source: Integers, target: Integers, stage: Integers | None = None) -> Laid:
        """Connections on a network of their own between ranks of the group, and likewise of each group beside it."""
        cabling, every = self.fresh(), self.of_all()
        for wire in every:
            wire.lay(cabling, source, target)
        ports, _, paths, _ = cabling.tables()
        path = np.repeat(np.arange(len(paths)), np.diff(paths.first))
        return Laid(ports, paths, path, None if stage is None else np.tile(stage, len(every)))

    def paces(self, laid: Laid) -> ConnectionTimes:
        """What such connections take if all of a stage send at once and share each port equally."""
        groups = 1 + len(self.beside)
        shape = groups, len(laid.paths) // groups
        return ConnectionTimes(seconds_per_byte(laid).reshape(shape) * self.bytes_per_byte, laid.paths.latency_s.reshape(shape))


def seconds_per_byte(laid: Laid) -> Times:
    """Seconds that a byte takes on each connection if all of a stage send at once and share each port equally, shape (paths,)."""
    port, path = laid.paths.port, laid.path
    at = port if laid.stage is None else laid.stage[path] * len(laid.ports.capacity) + port
    users = np.bincount(at)[at]
    slowest_s = np.zeros(len(laid.paths))
    np.maximum.at(slowest_s, path, equal_share_s(laid.ports, port, users))
    return slowest_s


def equal_share_s(ports: Ports, port: Integers, users: Integers) -> Times:
    """Seconds that a byte takes each of the connections that share a port equally, with those of others; of some ports, by number."""
    beyond = np.maximum(users - ports.incast_flows[port], 0)
    given = ports.capacity[port] / (1.0 + ports.incast_loss[port] * beyond)
    share_s: Times = np.maximum((users if ports.beside is None else users + ports.beside[port]) / given, 1.0 / ports.ceiling[port])
    return share_s
