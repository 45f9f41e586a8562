"""The ports of a cluster's nodes and devices, and the paths between them.

Replica ``r`` sits on node ``r // replicas_per_node``. A node's link to the switch is one
port in each direction; so is each device's link to the other devices of its node. Paths
between nodes cross the sender's and the receiver's port and have the latency of
``inter_node``; paths inside a node likewise, with ``intra_node``.
"""

from __future__ import annotations

from simulator.ports import Connection, Port
from simulator.scenario import Scenario

__all__ = ["Topology"]


class Topology:
    """Ports of one simulation, made when first used."""

    def __init__(self, scenario: Scenario) -> None:
        self._cluster = scenario.cluster
        self._per_node = scenario.cluster.replicas_per_node
        self._ports: dict[str, Port] = {}
        dedicated = getattr(scenario.strategy, "server_placement", "") == "dedicated"
        self._first_server_node = scenario.worker_nodes if dedicated else 0  # 0: servers share the workers' nodes

    @property
    def ports(self) -> list[Port]:
        """Every port used so far."""
        return list(self._ports.values())

    def node_of(self, replica: int) -> int:
        """The node that a replica sits on."""
        return replica // self._per_node

    def node_of_server(self, server: int) -> int:
        """The node that a parameter server sits on."""
        return self._first_server_node + server

    def between_replicas(self, source: int, target: int) -> Connection:
        """A connection from one replica's device to another's."""
        return self._path(self.node_of(source), self.node_of(target), f"device {source}", f"device {target}")

    def to_server(self, replica: int, server: int) -> Connection:
        """A connection on which a worker pushes gradients."""
        return self._path(self.node_of(replica), self.node_of_server(server), f"device {replica}", f"server {server}")

    def from_server(self, server: int, replica: int) -> Connection:
        """A connection on which a worker pulls variables."""
        return self._path(self.node_of_server(server), self.node_of(replica), f"server {server}", f"device {replica}")

    def _path(self, source: int, target: int, local_source: str, local_target: str) -> Connection:
        if source == target:
            link = self._cluster.intra_node
            names = f"{local_source} out", f"{local_target} in"
        else:
            link = self._cluster.inter_node
            names = f"{self._name(source)} out", f"{self._name(target)} in"
        ports = tuple(self._port(name, link.bandwidth_bytes_per_s) for name in names)
        return Connection(ports, link.latency_s)

    def _name(self, node: int) -> str:
        first = self._first_server_node
        return f"server node {node - first}" if first and node >= first else f"node {node}"

    def _port(self, name: str, capacity: float) -> Port:
        if name not in self._ports:
            self._ports[name] = Port(name, capacity)
        return self._ports[name]
