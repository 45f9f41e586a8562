"""Laws of messages: where they go, and that whoever they are for gets them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from oracles.programs.walk import broken, ports_of, same, walks_of
from simulator.base.records import Place
from simulator.program.port_names import Owner, PortKind, PortName
from simulator.program.program import Program
from simulator.scenario import Scenario
from simulator.spec.cluster import Cluster, Link


class End(NamedTuple):
    """Where a message begins or ends: inside its node, the node as links call it, and its number among all nodes."""

    owner: Owner
    node: Owner
    number: int
    in_device: bool

    @classmethod
    def of_rank(cls, rank: int, scenario: Scenario, *, in_device: bool = True) -> End:
        """A rank, its device or that device's host."""
        node = scenario.layout.node_of(rank)
        return cls(Owner("device", rank), Owner("node", node), node, in_device)


def _end(place: Place, program: Program, scenario: Scenario, rank: int, slot: int) -> End:
    layout = scenario.layout
    place = place.of(rank, int(program.ranks.peer[rank, slot]))
    index = place.number
    if place.kind == "client":
        return End(Owner("client"), Owner("client node"), layout.nodes - 1, in_device=False)
    if place.kind == "server":
        node = layout.node_of_server(index)
        of_node = Owner("node", node) if layout.servers_beside else Owner("server node", index)
        return End(Owner("server", index), of_node, node, in_device=False)
    return End.of_rank(index, scenario, in_device=place.kind != "host")


def messages_go_where_they_say(program: Program, scenario: Scenario) -> None:
    """A message has a path for every rank, from the sender's link to the receiver's, with their latency; answers to requests are marked."""
    law = messages_go_where_they_say
    for walk in walks_of(program):
        ranks = np.flatnonzero(program.ranks.routine == walk.number).tolist()
        for index, operation in walk.of_kind("send"):
            if not 0 <= operation.slot < program.ranks.path.shape[1] or operation.size_bytes < 0:
                raise broken(law, f"{walk.place(index)} has no slot, or less than nothing to send")
            for rank in ranks:
                source, target = (_end(place, program, scenario, rank, operation.slot) for place in (operation.source, operation.target))
                path, place = int(program.ranks.path[rank, operation.slot]), f"{walk.place(index)} of rank {rank}"
                added_s = check_path(law, place, program, scenario, path, source, target)
                if not same(added_s, 0.0):
                    raise broken(law, f"{place} comes {added_s:g} s later than its links make it")
                if program.paths.asked_for[path] != (operation.source.kind == "server"):
                    raise broken(law, f"{place} is an answer to a request, or says so, and is not")


def check_path(law: Callable[..., None], place: str, program: Program, scenario: Scenario, path: int, source: End, target: End) -> float:
    """Seconds that a path's latency adds to that of its links; InvariantError if it does not lead from the one end to the other."""
    if path < 0:
        raise broken(law, f"{place} has no path")
    crossed = [program.ports.names[port] for port in ports_of(program, path)]
    links = [port for port in crossed if port.kind not in (PortKind.CPU, PortKind.CONNECTION)]
    wanted = _wanted_ports(source, target, scenario)
    if not links or (links[0], links[-1]) != wanted:
        raise broken(law, f"{place} crosses {', '.join(map(str, crossed))}, not from {str(wanted[0])!r} to {str(wanted[1])!r}")
    return float(program.paths.latency_s[path]) - _latency_s(source, target, scenario)


def _latency_s(source: End, target: End, scenario: Scenario) -> float:
    """Of the links that a message crosses."""
    cluster = scenario.cluster
    if source.owner == target.owner and source.in_device != target.in_device:
        assert cluster.host_link is not None
        return float(cluster.host_link.latency_s)
    if (beside := _on_one_device(source, target, scenario)) is not None:
        return float(beside.latency_s)
    if _joined(source, target, cluster):
        return float(cluster.intra_node.latency_s)
    if source.node == target.node:
        return _in_node_s(source, target.owner.number, cluster)
    latency_s = max(cluster.link_of(end.number).latency_s for end in (source, target))
    rails, fabric = _rails(source, target, cluster), cluster.fabric
    if fabric is None:
        return float(latency_s)
    racks = [end.number // fabric.nodes_per_leaf for end in (source, target)]
    if fabric.rail_optimised and rails[0] != rails[1]:
        if not cluster.pxn:
            return float(latency_s + fabric.latency_s)
        by = source.number * cluster.replicas_per_node + target.owner.number % cluster.replicas_per_node
        latency_s += _in_node_s(source, by, cluster)
    return float(latency_s + (fabric.latency_s if racks[0] != racks[1] else 0.0))


def _joined(source: End, target: End, cluster: Cluster) -> bool:
    """Whether what joins the devices of a node or an island leads from the one end to the other."""
    if cluster.islands is None or source.owner.kind != "device" or target.owner.kind != "device":
        return source.node == target.node
    return source.owner.number // cluster.replicas_joined == target.owner.number // cluster.replicas_joined


def _in_node_s(source: End, other: int, cluster: Cluster) -> float:
    """Latency from a device to another of its node, by number."""
    islands = cluster.islands
    if islands is None or islands.between is None or source.owner.number // cluster.replicas_joined == other // cluster.replicas_joined:
        return float(cluster.intra_node.latency_s)
    return float(islands.between.latency_s)


def _rails(source: End, target: End, cluster: Cluster) -> tuple[int, int]:
    """The rails of a message's two ends; what is no device uses that of the other one."""
    if cluster.rails is None:
        return 0, 0
    rails = [
        end.owner.number // cluster.replicas_per_device % cluster.devices_per_node * cluster.rails // cluster.devices_per_node
        for end in (source, target)
        if end.owner.kind == "device"
    ]
    return (rails[0], rails[-1]) if rails else (0, 0)


def _on_one_device(source: End, target: End, scenario: Scenario) -> Link | None:
    """The link between replicas that share a device, where these do; none: they reach each other as others of their node."""
    cluster, kinds = scenario.cluster, {source.owner.kind, target.owner.kind}
    each = cluster.replicas_per_device
    return cluster.intra_device if kinds == {"device"} and source.owner.number // each == target.owner.number // each else None


def _wanted_ports(source: End, target: End, scenario: Scenario) -> tuple[PortName, PortName]:
    """First and last link of a message."""
    cluster = scenario.cluster
    if source.owner == target.owner and source.in_device != target.in_device:
        link = source.owner.number // cluster.replicas_per_device // cluster.devices_per_host_link
        port = PortName(PortKind.HOST_LINK_OUT if source.in_device else PortKind.HOST_LINK_IN, Owner("host link", link))
        return port, port
    if _on_one_device(source, target, scenario) is not None:
        memory = PortName(PortKind.DEVICE_MEMORY, Owner("device", source.owner.number // cluster.replicas_per_device))
        return memory, memory
    if source.node == target.node or _joined(source, target, cluster):
        return _ports_inside(source, target.owner, _joined(source, target, cluster), cluster)
    if cluster.rails is None:
        return PortName(PortKind.NODE_OUT, source.node), PortName(PortKind.NODE_IN, target.node)
    out, into = _rails(source, target, cluster)
    first, last = PortName(PortKind.NODE_OUT, source.node, Owner("rail", out)), PortName(PortKind.NODE_IN, target.node, Owner("rail", into))
    if cluster.fabric is not None and cluster.fabric.rail_optimised and cluster.pxn and out != into:
        by = source.number * cluster.replicas_per_node + target.owner.number % cluster.replicas_per_node
        joined = cluster.islands is None or source.owner.number // cluster.replicas_joined == by // cluster.replicas_joined
        first, _ = _ports_inside(source, Owner("device", by), joined, cluster)
    return first, last


def _ports_inside(source: End, target: Owner, joined: bool, cluster: Cluster) -> tuple[PortName, PortName]:
    """First and last link between two ends in a node, or an island."""
    if not joined:
        return PortName(PortKind.ISLAND_OUT, source.owner), PortName(PortKind.ISLAND_IN, target)
    if cluster.intra_node_topology == "switch":
        return PortName(PortKind.INSIDE_OUT, source.owner), PortName(PortKind.INSIDE_IN, target)
    between = PortName(PortKind.MESH, source.owner, target)
    return between, between


def what_departs_lands(program: Program, scenario: Scenario) -> None:
    """A message that departs lands once, by itself or after it has been handed on; nothing lands that has not departed."""
    del scenario
    for walk in walks_of(program):
        landed: Counter[int] = Counter()
        for index, operation in enumerate(walk.operations):
            if not operation.departs:
                continue
            at = index
            while not walk.operations[at].lands:
                onward = [number for number in walk.then[at] if walk.operations[number].kind == "send"]
                if len(onward) != 1 or walk.operations[onward[0]].departs:
                    raise broken(what_departs_lands, f"{walk.place(index)} departs and does not land")
                (at,) = onward
            landed[at] += 1
        for index, operation in enumerate(walk.operations):
            if landed[index] != int(operation.lands):
                raise broken(what_departs_lands, f"{walk.place(index)} lands, but {landed[index]} messages that depart come there")


def what_is_sent_to_ranks_is_received(program: Program, scenario: Scenario) -> None:
    """A rank gets from other ranks what the strategy sends, receives each message of a channel once, and computes with it."""
    law = what_is_sent_to_ranks_is_received
    sent: Counter[tuple[int, int]] = Counter()
    received: Counter[tuple[int, int]] = Counter()
    for walk in walks_of(program):
        ranks = np.flatnonzero(program.ranks.routine == walk.number).tolist()
        for index, operation in walk.of_kind("send"):
            for rank in ranks:
                peer = int(program.ranks.peer[rank, operation.slot])
                if (peer >= 0) != (operation.channel >= 0) or peer == rank:
                    raise broken(law, f"{walk.place(index)} of rank {rank} has the channel {operation.channel} and leads to rank {peer}")
                if peer >= 0:
                    sent[peer, operation.channel] += 1
        sizes = sorted(operation.size_bytes for _, operation in walk.of_kind("send") if operation.channel >= 0)
        wanted = sorted(scenario.strategy.message_bytes(scenario))
        if sizes and (not set(sizes) <= set(wanted) if scenario.strategy.cuts_batches else sizes != wanted):
            raise broken(law, f"routine {walk.number}: sends other ranks {sizes} bytes")
        for index, operation in walk.of_kind("receive"):
            received.update((rank, operation.channel) for rank in ranks)
            if walk.first_compute_after(index) is None:
                raise broken(law, f"{walk.place(index)} gets what no compute waits for")
    for rank, channel in {*sent, *received}:
        if sent[rank, channel] != received[rank, channel]:
            counts = f"{sent[rank, channel]} messages are sent to it and {received[rank, channel]} received"
            raise broken(law, f"rank {rank}, channel {channel}: {counts}")
