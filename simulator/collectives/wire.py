"""What the messages of a collective cross: the group's ranks, connections, and the protocol's cost of a message.

NCCL's protocols trade latency for bytes: see :class:`simulator.cluster.Protocols`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

import numpy as np

from simulator.cluster import Protocol
from simulator.collectives.around import Times
from simulator.network.ports import Connection, Port

__all__ = ["Connect", "Group", "Paces", "Wire", "equal_share_s", "seconds_per_byte"]

Connect = Callable[[int, int], Connection]
"""A new connection from one rank of the topology to another."""


@dataclass(frozen=True)
class Group:
    """Ranks that do something together, in order.

    Attributes
    ----------
    ranks
        Ranks of the topology.
    nodes
        The node that each sits on; any numbers that differ for different nodes.
    """

    ranks: tuple[int, ...]
    nodes: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.ranks) != len(self.nodes) or len(set(self.ranks)) != len(self.ranks) or not self.ranks:
            raise ValueError(
                f"a group needs at least one rank, each once and with its node: {len(self.ranks)} ranks, {len(self.nodes)} nodes"
            )

    @classmethod
    def in_order(cls, ranks: int, ranks_per_node: int) -> Group:
        """Ranks 0 to ``ranks - 1``, which fill one node after the other."""
        return cls(tuple(range(ranks)), tuple(rank // ranks_per_node for rank in range(ranks)))

    def __len__(self) -> int:
        """How many take part."""
        return len(self.ranks)

    @cached_property
    def neighbours(self) -> int:
        """The largest number that all runs of neighbours on one node can be cut into: the ranks of equal rings that stay on their nodes."""
        return math.gcd(*(sum(1 for _ in run) for _, run in groupby(self.nodes)))

    @cached_property
    def on_one_node(self) -> bool:
        """Whether all sit on the same node."""
        return len(set(self.nodes)) == 1


class Paces(NamedTuple):
    """What connections take that send at the same time, shape (groups, connections): the group's own first, then those beside it."""

    s_per_byte: Times
    """Seconds for each byte of data."""
    latency_s: Times


@dataclass(frozen=True)
class Wire:
    """The network as a collective sees it.

    Attributes
    ----------
    connect
        Connections of the simulation itself, between ranks of the topology.
    fresh
        A copy of the network that nobody else uses, for trial runs.
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
    """

    connect: Connect
    fresh: Callable[[], Connect]
    protocol: Protocol | None
    group: Group
    beside: tuple[Group, ...] = ()
    message_s: float = 0.0
    copy_per_byte_s: float = 0.0
    shared_cores: float | None = None
    time_slice_s: float = math.inf

    @property
    def bytes_per_byte(self) -> float:
        """Bytes that cross for each byte of data."""
        return self.protocol.wire_bytes_per_byte if self.protocol else 1.0

    def connection(self, source: int, target: int, connect: Connect | None = None) -> Connection:
        """A new connection between two of the group, the protocol's latency included; of the simulation, or of a copy."""
        ranks, nodes = self.group.ranks, self.group.nodes
        connection = (connect or self.connect)(ranks[source], ranks[target])
        if self.protocol is not None:
            connection.latency_s += self.protocol.intra_node_latency_s if nodes[source] == nodes[target] else self.protocol.latency_s
        return connection

    def of_all(self) -> list[Wire]:
        """The same for this group and for each of those beside it."""
        return [replace(self, group=group, beside=()) for group in (self.group, *self.beside)]

    def connections(self, pairs: Sequence[tuple[int, int]], connect: Connect) -> list[list[Connection]]:
        """Connections of a copy between pairs of ranks, source and target: those of the group, then those of each group beside it."""
        return [[wire.connection(*pair, connect) for pair in pairs] for wire in self.of_all()]

    def paces(self, connections: Sequence[Sequence[Connection]]) -> Paces:
        """What such connections take if all of them send at once and share each port equally."""
        every = [connection for of_group in connections for connection in of_group]
        shape = len(connections), len(connections[0])
        latency_s = np.array([connection.latency_s for connection in every]).reshape(shape)
        return Paces(seconds_per_byte(every).reshape(shape) * self.bytes_per_byte, latency_s)


def seconds_per_byte(connections: Sequence[Connection]) -> Times:
    """Seconds that a byte takes on each of some connections that send at once and share each port equally, shape (connections,)."""
    users = Counter(port for connection in connections for port in connection.ports)
    slowness = {port: equal_share_s(port, count) for port, count in users.items()}
    return np.array([max((slowness[port] for port in connection.ports), default=0.0) for connection in connections])


def equal_share_s(port: Port, users: int) -> float:
    """Seconds that a byte takes each of so many connections that share a port equally."""
    limits = port.limits
    if limits is None:
        return users / port.capacity
    return max(users / limits.capacity(port.capacity, users), 1.0 / limits.ceiling)
