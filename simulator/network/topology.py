"""The ports of a cluster's nodes and devices, and the paths between them.

Replica ``r`` sits on node ``r // replicas_per_node``; servers on nodes of their own come
after the workers', the client of in-graph replication after those. A path between nodes
crosses the sender's and the receiver's link, and has the larger of their latencies; on a
fabric of leaves and spines also the links of their leaves to one spine, and its latency.
A path inside a node crosses a port of each of the two devices, or where every two devices
have a link of their own, that. All links are full duplex.

Capacities between nodes are in bytes of tensors a second: where a tensor needs more bytes
on the wire, a link has so much less of it.
"""

from __future__ import annotations

import math
from typing import NamedTuple
from zlib import crc32

from simulator.network.hosts import Host
from simulator.network.limits import Limits
from simulator.network.ports import Connection, Port
from simulator.rng import Streams
from simulator.scenario import Scenario

__all__ = ["Topology"]


class _Node(NamedTuple):
    """What the paths between nodes need to know of one."""

    name: str
    bytes_per_s: float
    latency_s: float
    host: Host | None


class Topology:
    """Ports of one simulation, made when first used.

    Parameters
    ----------
    scenario
        What to simulate.
    streams
        Chooses the spine of each connection; left out: those of the first replication.
    """

    def __init__(self, scenario: Scenario, streams: Streams | None = None) -> None:
        cluster, transport = scenario.cluster, scenario.cluster.transport
        self._cluster = cluster
        self._per_node = cluster.replicas_per_node
        self._ports: dict[str, Port] = {}
        self._nodes: dict[int, _Node] = {}
        layout = scenario.layout
        self._first_server_node = layout.worker_nodes if layout.server_nodes else 0  # 0: servers share the workers' nodes
        self._client_node = layout.client_node
        self._has_hosts = transport.at_a_time is not None or transport.weight_sigma is not None or transport.works_on_messages
        cap = transport.flow_cap_bytes_per_s or math.inf
        # weights are drawn anew for each message, so that the cap of a connection is no multiple of its weight: it has a port of its own
        self._cap_of_its_own = cap if transport.weight_sigma is not None else math.inf
        ceiling = math.inf if transport.weight_sigma is not None else cap
        self._limits = Limits(ceiling) if ceiling < math.inf else None
        self._inward_limits = Limits(ceiling, transport.incast_loss, transport.incast_flows) if transport.incast_loss else self._limits
        streams = streams or Streams(scenario.run.seed, 0)
        self._route_key = int(streams.generator("routes").integers(2**63)) if cluster.fabric is not None else 0

    @property
    def ports(self) -> list[Port]:
        """Every port used so far."""
        return list(self._ports.values())

    @property
    def hosts(self) -> list[Host]:
        """Every host used so far that spends time on messages, takes them in turns or weighs them."""
        return [node.host for node in self._nodes.values() if node.host is not None]

    def node_of(self, replica: int) -> int:
        """The node that a replica sits on."""
        return replica // self._per_node

    def node_of_server(self, server: int) -> int:
        """The node that a parameter server sits on."""
        return self._first_server_node + server

    # -- connections -----------------------------------------------------------------

    def between_replicas(self, source: int, target: int) -> Connection:
        """A connection from one replica's device to another's."""
        return self._path(self.node_of(source), self.node_of(target), f"device {source}", f"device {target}")

    def to_server(self, replica: int, server: int) -> Connection:
        """A connection on which a worker pushes gradients."""
        return self._path(self.node_of(replica), self.node_of_server(server), f"device {replica}", f"server {server}")

    def from_server(self, server: int, replica: int) -> Connection:
        """A connection on which a worker pulls variables."""
        connection = self._path(self.node_of_server(server), self.node_of(replica), f"server {server}", f"device {replica}")
        connection.asked_for = True
        return connection

    def from_client(self, replica: int) -> Connection:
        """A connection on which the client of in-graph replication sends a worker its input."""
        assert self._client_node is not None, "there is a client with in-graph replication only"
        return self._path(self._client_node, self.node_of(replica), "client", f"device {replica}")

    def to_device(self, replica: int) -> Connection | None:
        """A connection from the host's memory to that of the replica's device; none where such copies are left out."""
        return self._host_link(replica, "to device")

    def from_device(self, replica: int) -> Connection | None:
        """A connection from the memory of the replica's device to the host's; none where such copies are left out."""
        return self._host_link(replica, "from device")

    def _host_link(self, replica: int, direction: str) -> Connection | None:
        link = self._cluster.host_link
        if link is None:
            return None
        device = replica // self._cluster.replicas_per_device
        number = device // self._cluster.devices_per_host_link
        return Connection((self._port(f"host link {number} {direction}", link.bandwidth_bytes_per_s),), link.latency_s)

    # -- paths -----------------------------------------------------------------------

    def _path(self, source: int, target: int, local_source: str, local_target: str) -> Connection:
        if source == target:
            return self._inside(local_source, local_target)
        sender, receiver = self._node(source), self._node(target)
        latency_s = max(sender.latency_s, receiver.latency_s)
        spine: tuple[Port, ...] = ()
        fabric = self._cluster.fabric
        if fabric is not None and source // fabric.nodes_per_leaf != target // fabric.nodes_per_leaf:
            spine = self._by_spine(source, target, f"{local_source} to {local_target}")
            latency_s += fabric.latency_s
        own: tuple[Port, ...] = ()
        if self._cap_of_its_own < math.inf:
            own = (Port(f"{local_source} to {local_target}", self._cap_of_its_own),)
        outward = self._port(f"{sender.name} out", sender.bytes_per_s, self._limits)
        inward = self._port(f"{receiver.name} in", receiver.bytes_per_s, self._inward_limits)
        ports = (outward, *spine, inward, *self._cpu(sender), *self._cpu(receiver), *own)
        return Connection(ports, latency_s, source=sender.host, target=receiver.host)

    def _inside(self, source: str, target: str) -> Connection:
        """A path inside a node."""
        link = self._cluster.intra_node
        names = (f"{source} to {target}",) if self._cluster.intra_node_topology == "mesh" else (f"{source} out", f"{target} in")
        return Connection(tuple(self._port(name, link.bandwidth_bytes_per_s) for name in names), link.latency_s)

    def _by_spine(self, source: int, target: int, endpoints: str) -> tuple[Port, ...]:
        """The links of two leaves to one spine, the same one for the same endpoints whoever else there is."""
        fabric, cluster = self._cluster.fabric, self._cluster
        assert fabric is not None
        node_bytes_per_s = cluster.inter_node.bandwidth_bytes_per_s * cluster.nics_per_node / cluster.transport.wire_bytes_per_byte
        capacity = fabric.nodes_per_leaf * node_bytes_per_s / fabric.oversubscription / fabric.spines
        spine = _scatter(crc32(endpoints.encode()) ^ self._route_key) % fabric.spines
        return (
            self._port(f"leaf {source // fabric.nodes_per_leaf} up to spine {spine}", capacity, self._limits),
            self._port(f"leaf {target // fabric.nodes_per_leaf} down from spine {spine}", capacity, self._limits),
        )

    # -- nodes -----------------------------------------------------------------------

    def _node(self, node: int) -> _Node:
        found = self._nodes.get(node)
        if found is None:
            link, transport, name = self._cluster.link_of(node), self._cluster.transport, self._name(node)
            host = Host(f"{name} messages", transport.at_a_time) if self._has_hosts else None
            found = self._nodes[node] = _Node(name, link.bandwidth_bytes_per_s / transport.wire_bytes_per_byte, link.latency_s, host)
        return found

    def _cpu(self, node: _Node) -> tuple[Port, ...]:
        """What a node's bytes in both directions share."""
        cost_s = self._cluster.transport.cpu_per_byte_s
        return (self._port(f"{node.name} cpu", 1.0 / cost_s, self._limits),) if cost_s else ()

    def _name(self, node: int) -> str:
        first = self._first_server_node
        if node == self._client_node:
            return "client node"
        return f"server node {node - first}" if first and node >= first else f"node {node}"

    def _port(self, name: str, capacity: float, limits: Limits | None = None) -> Port:
        port = self._ports.get(name)
        if port is None:
            port = self._ports[name] = Port(name, capacity, limits)
        return port


def _scatter(number: int) -> int:
    """Mix the bits of a 64-bit number, as SplitMix64 ends (Steele, Lea and Flood, 2014)."""
    mask = 2**64 - 1
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & mask
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & mask
    return number ^ (number >> 31)
