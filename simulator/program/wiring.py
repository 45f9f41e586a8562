"""The ports of a cluster's nodes and devices, and the paths between them, as tables.

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache, partial
from typing import Literal, NamedTuple, cast
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from simulator.base.compact import Names, compact, numbers
from simulator.base.rng import Streams
from simulator.program.neighbours import Neighbours
from simulator.program.port_names import Owner, OwnerKind, PortKind, PortName, SwitchKind, is_switch, kind_of, place_of
from simulator.program.program import Changes, Floats, Hosts, Integers, Paths, Ports
from simulator.spec.cluster import Cluster, Link


class End(IntEnum):
    """Ends of a path inside a node."""

    DEVICE = 0
    SERVER = 1
    CLIENT = 2


_OWNERS: dict[End, Literal["device", "server", "client"]] = {End.DEVICE: "device", End.SERVER: "server", End.CLIENT: "client"}

_BITS = 29
_MOST = 1 << _BITS
_NONE = -1
_WIDEST = 7
"""Ports of the longest path: out, to a spine and from it, in, two hosts, a cap of its own."""
_FEW = 1 << 11
"""Crossings of ports up to which what is laid out is kept for the next program, in which paths may cross the same ones."""


class _Ends(NamedTuple):
    """Where paths begin, or where they end: ends of a kind by number, and the node of each."""

    kind: End
    number: Integers
    node: Integers


class _Block(NamedTuple):
    """Some paths.

    Attributes
    ----------
    keys, crossed
        Of the ports of one path after the other, and how many each path crosses.
    latency_s
        Of each, in seconds.
    hosts, nodes
        At both ends of each, shape (paths, 2): where hosts work on messages, and where links are taken in turns, or weighed; -1: nowhere.
    asked_for
        Whether its messages are answers to requests.
    """

    keys: Integers = np.empty(0, dtype=np.int64)
    crossed: NDArray[np.uint8] = np.empty(0, dtype=np.uint8)
    latency_s: Floats = np.empty(0)
    hosts: Integers = np.empty((0, 2), dtype=np.int64)
    nodes: Integers = np.empty((0, 2), dtype=np.int64)
    asked_for: NDArray[np.bool_] = np.empty(0, dtype=np.bool_)


class _Crossed(NamedTuple):
    """Keys of the ports of some paths, one row each; their latencies in seconds, and the nodes at their ends."""

    keys: Integers
    latency_s: NDArray[np.float64]
    nodes: Integers


def _key(kind: PortKind, owner: Integers | int, other: Integers | int = 0) -> Integers:
    return (np.int64(kind) << (2 * _BITS)) | (np.asarray(owner, dtype=np.int64) << _BITS) | np.asarray(other, dtype=np.int64)


def _process_key(kind: End, number: Integers) -> Integers:
    return np.int64(kind) * _MOST + np.asarray(number, dtype=np.int64)


class Wiring:
    """Collects paths, and gives the tables of all that they cross.

    Parameters
    ----------
    cluster
        Its links.
    worker_nodes
        Nodes that hold replicas.
    first_server_node
        The node of server 0 where servers have nodes of their own; 0: they share the workers'.
    client_node
        The node of the client of in-graph replication; none: there is none.
    streams
        Chooses the spine of each connection.
    device_pace
        Combined speed of all replicas on a device relative to a single one: they share it equally, and none is faster than alone.
    processes
        Whether every replica, server and client is a process, which works on its own messages whoever else is on its node.
    """

    def __init__(
        self,
        cluster: Cluster,
        streams: Streams,
        *,
        first_server_node: int = 0,
        client_node: int | None = None,
        device_pace: float = 1.0,
        processes: bool = False,
    ) -> None:
        transport = cluster.transport
        self._cluster = cluster
        self._neighbours = Neighbours(cluster, streams)
        self._first_server_node = first_server_node
        self._client_node = client_node
        self._device_pace = device_pace
        self._processes = processes
        self._has_hosts, self._has_sides = transport.has_hosts, transport.discipline != "fair"
        cap = transport.flow_cap_bytes_per_s or math.inf
        # weights are drawn anew for each message, so that the cap of a connection is no multiple of its weight: it has a port of its own
        self._cap_of_its_own = cap if transport.weight_sigma is not None else math.inf
        self._ceiling = math.inf if transport.weight_sigma is not None else cap
        self._route_key = int(streams.generator("routes").integers(2**63)) if cluster.fabric is not None else 0
        self._blocks = [_Block()]
        self._weights: list[tuple[Integers, Floats]] = []  # of paths whose weight is another than 1
        self._count = 0

    # -- nodes -----------------------------------------------------------------------

    def node_of(self, replica: Integers) -> Integers:
        """The node that each replica sits on."""
        return replica // self._cluster.replicas_per_node

    def node_of_server(self, server: Integers) -> Integers:
        """The node that each parameter server sits on."""
        return self._first_server_node + server

    # -- paths -----------------------------------------------------------------------

    def between_replicas(self, source: Integers, target: Integers, added_s: Floats | float = 0.0) -> Integers:
        """Paths from one replica's device to another's, by number; ``added_s``: to the latency of each, in seconds.

        Numbers below 0 are switches that sum what they receive (:mod:`simulator.program.port_names`): data to one crosses only the sender's
        link, and data from one only the receiver's; each has half of the latency from device to device.
        """
        if ((source < 0) | (target < 0)).any():
            return self._with_switches(source, target, added_s)
        return self._add(self._devices(source), self._devices(target), added_s=added_s)

    def _with_switches(self, source: Integers, target: Integers, added_s: Floats | float) -> Integers:
        """Paths between replicas, between them and switches, and between switches; all without hosts."""
        cluster = self._cluster
        keys = np.full((len(source), _WIDEST + 2), _NONE, dtype=np.int64)
        latency_s = np.zeros(len(source))
        plain = ~(is_switch(source) | is_switch(target))
        if plain.any():
            crossed = self._crossed_by(self._devices(source[plain]), self._devices(target[plain]))
            keys[np.flatnonzero(plain)[:, None], np.arange(crossed.keys.shape[1])], latency_s[plain] = crossed.keys, crossed.latency_s
        for here, there, inside, between in (
            (source, target, PortKind.INSIDE_OUT, PortKind.NODE_OUT), (target, source, PortKind.INSIDE_IN, PortKind.NODE_IN)
        ):  # fmt: skip
            at = ~is_switch(here) & is_switch(there)
            inner = at & (kind_of(there) == SwitchKind.INSIDE)
            keys[inner, 0] = _key(inside, here[inner])
            latency_s[inner] = cluster.intra_node.latency_s / 2
            outer, replica = at & ~inner, here[at & ~inner]
            rail, _ = self._rails(self._devices(replica), self._devices(replica))
            keys[outer, 0] = _key(between, self.node_of(replica), rail)
            latency_s[outer] = self._latency_s(self.node_of(replica)) / 2
            if cluster.transport.cpu_per_byte_s:
                keys[outer, 1] = _key(PortKind.CPU, self.node_of(replica))
        if cluster.fabric is not None:
            for leaf, spine, kind in ((source, target, PortKind.LEAF_UP), (target, source, PortKind.LEAF_DOWN)):
                at = is_switch(source) & is_switch(target) & (kind_of(leaf) == SwitchKind.LEAF)
                keys[at, 0] = _key(kind, place_of(leaf[at]), place_of(spine[at]))
                latency_s[at] = cluster.fabric.latency_s / 2
        return self._append(keys, latency_s + added_s)

    def to_server(self, replica: Integers, server: Integers) -> Integers:
        """Paths on which workers push gradients."""
        return self._add(self._devices(replica), self._servers(server))

    def from_server(self, server: Integers, replica: Integers) -> Integers:
        """Paths on which workers pull variables."""
        return self._add(self._servers(server), self._devices(replica), asked_for=True)

    def from_client(self, replica: Integers) -> Integers:
        """Paths on which the client of in-graph replication sends workers their input."""
        assert self._client_node is not None, "there is a client with in-graph replication only"
        client = _Ends(End.CLIENT, np.zeros_like(replica), np.full_like(replica, self._client_node))
        return self._add(client, self._devices(replica))

    def to_device(self, replica: Integers) -> Integers:
        """Paths from the host's memory to that of the replica's device."""
        return self._host_link(replica, PortKind.HOST_LINK_IN)

    def from_device(self, replica: Integers) -> Integers:
        """Paths from the memory of the replica's device to the host's."""
        return self._host_link(replica, PortKind.HOST_LINK_OUT)

    def on_device(self, device: Integers) -> Integers:
        """Seats on devices that several use: paths over the device's port, without latency."""
        return self._over(_key(PortKind.DEVICE, device))

    def on_host_cores(self, node: Integers, threads: Floats) -> Integers:
        """Paths over the cores of nodes that prepare batches: each thread gets at most a core, and as much as any other."""
        paths = self._over(_key(PortKind.HOST_CORES, node))
        self._weights.append((paths, threads))
        return paths

    def on_shared_links(self, links: Sequence[Sequence[int]]) -> Integers:
        """Paths over seconds of links that several groups use, by number."""
        keys = np.full((len(links), max(map(len, links))), _NONE, dtype=np.int64)
        for row, crossed in zip(keys, links, strict=True):
            row[: len(crossed)] = _key(PortKind.SHARED_LINK, np.array(crossed))
        return self._over(keys)

    def from_storage(self, node: Integers) -> Integers:
        """Paths on which nodes read from storage."""
        storage = self._cluster.storage
        assert storage is not None
        keys = np.full((len(node), 3), _NONE, dtype=np.int64)
        if storage.bandwidth_bytes_per_s is not None:
            keys[:, 0] = _key(PortKind.STORAGE, 0)
        if storage.node_bandwidth_bytes_per_s is not None:
            keys[:, 1] = _key(PortKind.NODE_STORAGE, node)
        if storage.over_network:
            keys[:, 2] = _key(PortKind.NODE_IN, node, int(self._cluster.rails is not None))
        return self._over(keys, storage.latency_s)

    def _host_link(self, replica: Integers, kind: PortKind) -> Integers:
        link, cluster = self._cluster.host_link, self._cluster
        assert link is not None
        return self._over(_key(kind, replica // cluster.replicas_per_device // cluster.devices_per_host_link), link.latency_s)

    def _over(self, keys: Integers, latency_s: float = 0.0) -> Integers:
        """Paths over ports that no hosts work for; keys of shape (paths,) or (paths, ports)."""
        return self._append(keys if keys.ndim > 1 else keys[:, None], np.full(len(keys), latency_s))

    def _devices(self, replica: Integers) -> _Ends:
        return _Ends(End.DEVICE, replica, self.node_of(replica))

    def _servers(self, server: Integers) -> _Ends:
        return _Ends(End.SERVER, server, self.node_of_server(server))

    def _add(self, source: _Ends, target: _Ends, *, asked_for: bool = False, added_s: Floats | float = 0.0) -> Integers:
        crossed = self._crossed_by(source, target)
        hosts = crossed.nodes
        if self._hosts_are_processes:
            hosts = np.stack([np.broadcast_to(_process_key(end.kind, end.number), len(hosts)) for end in (source, target)], axis=1)
        return self._append(crossed.keys, crossed.latency_s + added_s, hosts, crossed.nodes, asked_for=asked_for)

    @property
    def _hosts_are_processes(self) -> bool:
        """Tell whether each process works on its own messages, those inside a node too, and a node has several."""
        return self._processes and (self._cluster.replicas_per_node > 1 or not self._first_server_node)

    def _crossed_by(self, begin: _Ends, end: _Ends) -> _Crossed:
        """Return what paths between ends on some nodes cross."""
        cluster = self._cluster
        source, target, from_end, to_end = np.broadcast_arrays(begin.node, end.node, begin.number, end.number)
        begin, end = _Ends(begin.kind, from_end, source), _Ends(end.kind, to_end, target)
        devices = begin.kind == end.kind == End.DEVICE
        nodes = np.stack([source, target], axis=1).astype(np.int64)
        apart = source != target
        if cluster.islands is not None and devices:
            apart = apart & (from_end // cluster.replicas_joined != to_end // cluster.replicas_joined)
        inside = ~apart
        latency_s = np.where(apart, np.maximum(self._latency_s(source), self._latency_s(target)), cluster.intra_node.latency_s)
        handed, at = inside, 0
        out_rail, in_rail = self._rails(begin, end)
        if cluster.rails is not None and cluster.fabric is not None and cluster.fabric.rail_optimised and cluster.pxn and devices:
            handed, at = apart & (out_rail != in_rail), 2
            out_rail = np.where(handed, in_rail, out_rail)
        keys = np.full((len(source), _WIDEST + at), _NONE, dtype=np.int64)
        if at:
            by = source * cluster.replicas_per_node + to_end % cluster.replicas_per_node
            latency_s[handed] += self._inside(keys, handed, begin, end._replace(number=by))
        keys[apart, at] = _key(PortKind.NODE_OUT, source[apart], out_rail[apart] if cluster.rails is not None else 0)
        if cluster.fabric is not None:
            leaf, other_leaf = self._leaf_of(source, out_rail), self._leaf_of(target, in_rail)
            by_spine = apart & (leaf != other_leaf)
            latency_s[by_spine] += cluster.fabric.latency_s
            spine = self._spines(by_spine, begin, end)
            keys[by_spine, at + 1] = _key(PortKind.LEAF_UP, leaf[by_spine], spine)
            keys[by_spine, at + 2] = _key(PortKind.LEAF_DOWN, other_leaf[by_spine], spine)
        keys[apart, at + 3] = _key(PortKind.NODE_IN, target[apart], in_rail[apart] if cluster.rails is not None else 0)
        if cluster.transport.cpu_per_byte_s:
            keys[apart, at + 4] = _key(PortKind.CPU, source[apart])
            keys[apart, at + 5] = _key(PortKind.CPU, target[apart])
        if self._cap_of_its_own < math.inf:
            keys[apart, at + 6] = _key(PortKind.CONNECTION, self._count + np.flatnonzero(apart))
        if cluster.intra_device is not None and devices:
            beside = inside & (from_end // cluster.replicas_per_device == to_end // cluster.replicas_per_device)
            keys[beside, 0] = _key(PortKind.DEVICE_MEMORY, from_end[beside] // cluster.replicas_per_device)
            latency_s[beside] = cluster.intra_device.latency_s
            nodes[beside] = _NONE
            inside &= ~beside
        if inside.any():
            latency_s[inside] = self._inside(keys, inside, begin, end)
            nodes[inside] = _NONE
        return _Crossed(keys, latency_s, nodes)

    def _inside(self, keys: Integers, chosen: NDArray[np.bool_], begin: _Ends, end: _Ends) -> NDArray[np.float64]:
        """Have some paths begin between two ends in a node or an island; the latency of each, in seconds."""
        cluster, ends, others = self._cluster, begin.number[chosen], end.number[chosen]
        outs, ins = int(begin.kind) * (_MOST // 4) + ends, int(end.kind) * (_MOST // 4) + others
        mesh = cluster.intra_node_topology == "mesh"
        keys[chosen, 0] = _key(PortKind.MESH, outs, ins) if mesh else _key(PortKind.INSIDE_OUT, outs)
        keys[chosen, 1] = _NONE if mesh else _key(PortKind.INSIDE_IN, ins)
        latency_s = np.full(len(ends), cluster.intra_node.latency_s)
        if cluster.islands is not None and cluster.islands.between is not None and begin.kind == end.kind == End.DEVICE:
            unlike = ends // cluster.replicas_joined != others // cluster.replicas_joined
            rows = np.flatnonzero(chosen)[unlike]
            keys[rows, 0], keys[rows, 1] = _key(PortKind.ISLAND_OUT, outs[unlike]), _key(PortKind.ISLAND_IN, ins[unlike])
            latency_s[unlike] = cluster.islands.between.latency_s
        return latency_s

    def _rails(self, begin: _Ends, end: _Ends) -> tuple[Integers, Integers]:
        """The rail by which each path leaves its node, and enters the other, from 1 on; 0: all. Hosts use that of the device they serve."""
        cluster = self._cluster
        if cluster.rails is None:
            return (np.broadcast_to(np.int64(0), begin.number.shape),) * 2
        each = cluster.devices_per_node // cluster.rails
        per_device, per_node = cluster.replicas_per_device, cluster.devices_per_node
        out, into = (ends.number // per_device % per_node // each + 1 for ends in (begin, end))
        if begin.kind is not End.DEVICE:
            out = into if end.kind is End.DEVICE else np.ones_like(into)
        return out, into if end.kind is End.DEVICE else out

    def _leaf_of(self, node: Integers, rail: Integers) -> Integers:
        """The leaf that a rail of each node hangs on."""
        fabric = self._cluster.fabric
        assert fabric is not None
        rack = node // fabric.nodes_per_leaf
        if not fabric.rail_optimised:
            return rack
        assert self._cluster.rails is not None
        return rack * self._cluster.rails + rail - 1

    def _append(
        self,
        keys: Integers,
        latency_s: NDArray[np.float64],
        hosts: Integers | None = None,
        nodes: Integers | None = None,
        *,
        asked_for: bool = False,
    ) -> Integers:
        first, self._count = self._count, self._count + len(keys)
        crossed, nobody = keys != _NONE, np.broadcast_to(_NONE, (len(keys), 2))
        hosts, nodes = nobody if hosts is None or not self._has_hosts else hosts, nobody if nodes is None or not self._has_sides else nodes
        counts, asked = crossed.sum(axis=1, dtype=np.uint8), np.full(len(keys), asked_for)
        self._blocks.append(_Block(keys[crossed], counts, compact(latency_s), hosts, nodes, asked))
        return np.arange(first, self._count)

    def _spines(self, chosen: NDArray[np.bool_], begin: _Ends, end: _Ends) -> Integers:
        """The spine of each path: the same one for the same endpoints whoever else there is."""
        fabric = self._cluster.fabric
        assert fabric is not None
        if fabric.spines == 1:
            return np.zeros(int(chosen.sum()), dtype=np.int64)
        ends = zip(begin.number[chosen].tolist(), end.number[chosen].tolist(), strict=True)
        names = (f"{Owner(_OWNERS[begin.kind], source)} to {Owner(_OWNERS[end.kind], target)}" for source, target in ends)
        return np.array([_scatter(crc32(name.encode()) ^ self._route_key) % fabric.spines for name in names], dtype=np.int64)

    # -- figures of nodes ------------------------------------------------------------

    def _latency_s(self, nodes: Integers) -> NDArray[np.float64]:
        return self._of_links(nodes, lambda link: link.latency_s)

    def _bytes_per_s(self, nodes: Integers) -> NDArray[np.float64]:
        wire = self._cluster.transport.wire_bytes_per_byte
        return self._of_links(nodes, lambda link: link.bandwidth_bytes_per_s / wire)

    def _of_links(self, nodes: Integers, value_of: Callable[[Link], float]) -> NDArray[np.float64]:
        """Return what is so of the link of each node."""
        if not self._cluster.node_classes:
            return np.full(nodes.shape, value_of(self._cluster.link_of(0)))
        unique, which = np.unique(nodes, return_inverse=True)
        return np.array([value_of(self._cluster.link_of(int(node))) for node in unique])[which].reshape(nodes.shape)

    # -- tables ----------------------------------------------------------------------

    def tables(self) -> tuple[Ports, int, Paths, Hosts]:
        """Ports (links before caps and devices), how many of them are links, paths, and hosts; each in the order of its first use."""
        column = {name: partial(np.concatenate, [getattr(block, name) for block in self._blocks]) for name in _Block._fields}
        keys, crossed = column["keys"](), np.concatenate([[np.uint8(0)], column["crossed"]()])
        laid = (_kept if len(keys) <= _FEW else _laid)(keys.tobytes(), crossed.tobytes())
        source: Integers = np.broadcast_to(np.int32(_NONE), self._count)
        target = source
        names: Sequence[PortName] = ()
        sender: Integers | None = None
        receiver: Integers | None = None
        if self._has_hosts:
            hosts, source, target = _ends(column["hosts"]())
            called = _ProcessCalled if self._hosts_are_processes else _HostCalled
            names = Names(len(hosts), called(hosts, self._first_server_node, self._client_node))
        if self._has_sides:
            _, sender, receiver = _ends(column["nodes"]())
        latency_s, asked_for = compact(column["latency_s"]()), compact(column["asked_for"]())
        paths = Paths(laid.first, laid.port, latency_s, source, target, asked_for, self._weight(), sender, receiver)
        return self._ports(laid), laid.links, paths, Hosts(len(names), names)

    def changes(self) -> Changes | None:
        """Return what others take from the ports of the tables that were asked for last, where that changes while a run goes on."""
        return self._neighbours.changes()

    def _weight(self) -> Floats | None:
        if not self._weights:
            return None
        weight = np.ones(self._count)
        for paths, weights in self._weights:
            weight[paths] = weights
        return weight

    def _ports(self, laid: _Laid) -> Ports:
        transport, owner, count = self._cluster.transport, laid.owner, len(laid.keys)
        capacity, ceiling = np.ones(count), np.full(count, math.inf)
        loss, flows = np.zeros(count), np.ones(count, dtype=np.int64)
        for kind, at in laid.of_kind.items():
            capacity[at] = self._capacity(kind, owner[at], laid.keys[at])
            if kind <= PortKind.LEAF_DOWN:
                ceiling[at] = self._ceiling
            elif kind is PortKind.HOST_CORES or (kind is PortKind.DEVICE and self._device_pace > 1.0):
                ceiling[at] = 1.0
            if kind is PortKind.NODE_IN:
                loss[at], flows[at] = transport.incast_loss, transport.incast_flows
        names = Names(count, _PortCalled(laid.keys, self._first_server_node, self._client_node))
        ports = Ports(compact(capacity), compact(ceiling), compact(loss), compact(flows), names)
        return self._neighbours.on(ports, laid.kind, lambda: self._places(laid.kind, owner))

    def _capacity(self, kind: PortKind, owner: Integers, keys: Integers) -> Floats | float:
        """Bytes, or seconds of work, per second of some ports of a kind; ``owner``: whose each is."""
        cluster, transport = self._cluster, self._cluster.transport
        if kind in (PortKind.NODE_OUT, PortKind.NODE_IN):
            bytes_per_s = self._bytes_per_s(owner)
            if cluster.rails is not None:
                bytes_per_s[keys & (_MOST - 1) > 0] /= cluster.rails
            return bytes_per_s
        if kind in (PortKind.LEAF_UP, PortKind.LEAF_DOWN) and cluster.fabric is not None:
            node_bytes_per_s = cluster.inter_node.bandwidth_bytes_per_s * cluster.nics_per_node / transport.wire_bytes_per_byte
            spine = cluster.fabric.nodes_per_leaf * node_bytes_per_s / cluster.fabric.oversubscription / cluster.fabric.spines
            return float(spine / cluster.rails if cluster.fabric.rail_optimised and cluster.rails is not None else spine)
        between, storage = None if cluster.islands is None else cluster.islands.between, cluster.storage
        links = {
            PortKind.INSIDE_OUT: cluster.intra_node, PortKind.INSIDE_IN: cluster.intra_node, PortKind.MESH: cluster.intra_node,
            PortKind.ISLAND_OUT: between, PortKind.ISLAND_IN: between, PortKind.HOST_LINK_OUT: cluster.host_link,
            PortKind.HOST_LINK_IN: cluster.host_link, PortKind.DEVICE_MEMORY: cluster.intra_device,
        }  # fmt: skip
        if (link := links.get(kind)) is not None:
            return float(link.bandwidth_bytes_per_s)
        amounts = {
            PortKind.CPU: 1.0 / transport.cpu_per_byte_s if transport.cpu_per_byte_s else 1.0,
            PortKind.CONNECTION: self._cap_of_its_own,
            PortKind.DEVICE: max(self._device_pace, 1.0),
            PortKind.HOST_CORES: float(cluster.host_cores or 1.0),
            PortKind.STORAGE: (storage and storage.bandwidth_bytes_per_s) or math.inf,
            PortKind.NODE_STORAGE: (storage and storage.node_bandwidth_bytes_per_s) or math.inf,
        }
        return amounts.get(kind, 1.0)

    def _places(self, kind: Integers, owner: Integers) -> Integers:
        """The node that each port is of, or the leaf; of others than links any number."""
        end, number = owner // (_MOST // 4), owner % (_MOST // 4)
        inside = (kind >= PortKind.INSIDE_OUT) & (kind <= PortKind.ISLAND_IN)
        of_end = np.choose(end, [self.node_of(number), self.node_of_server(number), np.full_like(number, self._client_node or 0), number])
        return np.where(inside, of_end, owner)


class _Laid(NamedTuple):
    """Which ports some paths cross, whatever their rates: the same for every draw of them.

    Attributes
    ----------
    keys, kind, owner
        Of each port, in the order of its first use, links before all else: its key, and of that the kind and the first number.
    of_kind
        The ports of each kind that there is.
    links
        How many of the ports are links.
    first, port
        The columns of :class:`~simulator.program.program.Paths`.
    """

    keys: Integers
    kind: Integers
    owner: Integers
    of_kind: Mapping[PortKind, Integers]
    links: int
    first: Integers
    port: Integers


def _laid(keys: bytes, crossed: bytes) -> _Laid:
    """Return what paths cross: the keys of the ports of one path after the other, and how many each crosses, behind a 0."""
    used, port = _by_first_use(np.frombuffer(keys, dtype=np.int64))
    is_no_link = used >> (2 * _BITS) >= PortKind.CONNECTION
    links = len(used) - int(is_no_link.sum())
    if is_no_link.any():
        order = np.argsort(is_no_link, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        used, port = used[order], place[port]
    kind = used >> (2 * _BITS)
    of_kind = {PortKind(number): np.flatnonzero(kind == number) for number in np.unique(kind).tolist()}
    first = numbers(np.cumsum(np.frombuffer(crossed, dtype=np.uint8), dtype=np.int64))
    return _Laid(used, kind, used >> _BITS & (_MOST - 1), of_kind, links, first, numbers(port))


_kept = lru_cache(maxsize=32)(_laid)
"""Replications, and scenarios of a sweep, cross the same ports at other rates."""


@dataclass(frozen=True, eq=False)
class _Called:
    """Says what ports are by their keys, or the hosts of nodes; equal where all are the same."""

    keys: Integers
    """Or, of hosts, nodes."""
    first_server_node: int
    client_node: int | None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self._where == other._where and np.array_equal(self.keys, other.keys)

    __hash__ = None  # type: ignore[assignment]

    @property
    def _where(self) -> tuple[int, int | None]:
        return self.first_server_node, self.client_node

    def _node(self, node: int) -> Owner:
        first = self.first_server_node
        if node == self.client_node:
            return Owner("client node")
        return Owner("server node", node - first) if first and node >= first else Owner("node", node)


class _HostCalled(_Called):
    def __call__(self, number: int) -> PortName:
        return PortName(PortKind.MESSAGES, self._node(int(self.keys[number])))


class _ProcessCalled(_Called):
    def __call__(self, number: int) -> PortName:
        kind, number = divmod(int(self.keys[number]), _MOST)
        return PortName(PortKind.MESSAGES, Owner("client") if kind == End.CLIENT else Owner(_OWNERS[End(kind)], number))


class _PortCalled(_Called):
    def __call__(self, number: int) -> PortName:
        key = int(self.keys[number])
        kind, owner, other = PortKind(key >> (2 * _BITS)), key >> _BITS & (_MOST - 1), key & (_MOST - 1)
        if kind.owner == "node":
            return PortName(kind, self._node(owner), Owner("rail", other - 1) if other else None)
        if kind.owner == "inside":
            return PortName(kind, _inside(owner), _inside(other) if kind is PortKind.MESH else None)
        return PortName(kind, Owner(cast(OwnerKind, kind.owner), owner), Owner("spine", other) if kind.owner == "leaf" else None)


def _ends(keys: Integers) -> tuple[Integers, Integers, Integers]:
    """Of the keys at both ends of paths: the different ones, and of each path the numbers of its two ends among them."""
    ends = np.full(keys.shape, _NONE)
    there = keys[:, 0] != _NONE
    unique, number = _by_first_use(keys[there].ravel())
    ends[there] = number.reshape(-1, 2)
    return unique, compact(numbers(ends[:, 0])), compact(numbers(ends[:, 1]))


def _by_first_use(values: Integers) -> tuple[Integers, Integers]:
    """The different values in the order of their first use, and of each value its number among them."""
    unique, first, which = np.unique(values, return_index=True, return_inverse=True)
    order = np.argsort(first)
    number = np.empty_like(order)
    number[order] = np.arange(len(order))
    return unique[order], number[which.ravel()]


def _inside(packed: int) -> Owner:
    """The end inside a node that a key packs."""
    kind, index = divmod(packed, _MOST // 4)
    return Owner(_OWNERS[End(kind)], index)


def _scatter(number: int) -> int:
    """Mix the bits of a 64-bit number, as SplitMix64 ends (Steele, Lea and Flood, 2014)."""
    mask = 2**64 - 1
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & mask
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & mask
    return number ^ (number >> 31)
