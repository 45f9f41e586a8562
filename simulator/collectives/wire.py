"""What the messages of a collective cross: connections, and the protocol's cost of a message.

NCCL's protocols trade latency for bytes: see :class:`simulator.cluster.Protocols`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from simulator.cluster import Protocol
from simulator.collectives.around import Times
from simulator.network.ports import Connection, Port

__all__ = ["Connect", "Wire", "seconds_per_byte"]

Connect = Callable[[int, int], Connection]
"""A new connection from one rank to another."""


@dataclass(frozen=True)
class Wire:
    """The network as a collective sees it.

    Attributes
    ----------
    connect
        Connections of the simulation itself.
    fresh
        A copy of the network that nobody else uses, for trial runs.
    protocol
        Cost and extra bytes of a message; none: those of the links alone.
    ranks_per_node
        Ranks r with the same ``r // ranks_per_node`` sit on one node.
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
    ranks_per_node: int
    message_s: float = 0.0
    copy_per_byte_s: float = 0.0
    shared_cores: float | None = None
    time_slice_s: float = math.inf

    @property
    def bytes_per_byte(self) -> float:
        """Bytes that cross for each byte of data."""
        return self.protocol.wire_bytes_per_byte if self.protocol else 1.0

    def connection(self, source: int, target: int, connect: Connect | None = None) -> Connection:
        """A new connection, the protocol's latency included; of the simulation, or of a copy."""
        connection = (connect or self.connect)(source, target)
        if self.protocol is not None:
            inside = source // self.ranks_per_node == target // self.ranks_per_node
            connection.latency_s += self.protocol.intra_node_latency_s if inside else self.protocol.latency_s
        return connection


def seconds_per_byte(connections: Sequence[Connection]) -> Times:
    """Seconds that a byte takes on each of some connections that send at once and share each port equally, shape (connections,)."""
    users: Counter[Port] = Counter(port for connection in connections for port in connection.ports)

    def slowness(port: Port) -> float:
        limits = port.limits
        if limits is None:
            return users[port] / port.capacity
        return max(users[port] / limits.capacity(port.capacity, users[port]), 1.0 / limits.ceiling)

    return np.array([max((slowness(port) for port in connection.ports), default=0.0) for connection in connections])
