"""Laws of messages: where they go, and that whoever they are for gets them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from simulator.program.laws.walk import broken, ports_of, walks_of
from simulator.program.program import Program
from simulator.records import Place
from simulator.scenario import Scenario

__all__ = ["End", "check_path", "messages_go_where_they_say", "what_departs_lands", "what_is_sent_to_ranks_is_received"]


class End(NamedTuple):
    """Where a message begins or ends: what it is called inside its node, and the name of the node."""

    name: str
    node: str
    in_device: bool


def _end(place: Place, program: Program, scenario: Scenario, rank: int, slot: int) -> End:
    layout = scenario.layout
    place = place.of(rank, int(program.ranks.peer[rank, slot]))
    index = place.number
    if place.kind == "client":
        return End(str(place), "client node", in_device=False)
    if place.kind == "server":
        node = f"node {layout.node_of_server(index)}" if layout.servers_beside else f"server node {index}"
        return End(str(place), node, in_device=False)
    return End(f"device {index}", f"node {layout.node_of(index)}", in_device=place.kind != "host")


def messages_go_where_they_say(program: Program, scenario: Scenario) -> None:
    """A message has a path for every rank; its first port is at the sender's side, its last at the receiver's."""
    law = messages_go_where_they_say
    for walk in walks_of(program):
        ranks = np.flatnonzero(program.ranks.routine == walk.number).tolist()
        for index, its in walk.of_kind("send"):
            if not 0 <= its.slot < program.ranks.path.shape[1] or its.size_bytes < 0:
                raise broken(law, f"{walk.place(index)} has no slot, or less than nothing to send")
            for rank in ranks:
                source, target = (_end(place, program, scenario, rank, its.slot) for place in (its.source, its.target))
                check_path(
                    law, f"{walk.place(index)} of rank {rank}", program, scenario, int(program.ranks.path[rank, its.slot]), source, target
                )


def check_path(law: Callable[..., None], place: str, program: Program, scenario: Scenario, path: int, source: End, target: End) -> None:
    """Raise InvariantError if a path does not lead from the one end to the other."""
    if path < 0:
        raise broken(law, f"{place} has no path")
    crossed = [program.ports.names[port] for port in ports_of(program, path)]
    links = [name for name in crossed if not name.endswith(" cpu") and not name.startswith("connection ")]
    wanted = _wanted_ports(source, target, scenario)
    if not links or (links[0], links[-1]) != wanted:
        raise broken(law, f"{place} crosses {', '.join(crossed)}, not from {wanted[0]!r} to {wanted[1]!r}")


def _wanted_ports(source: End, target: End, scenario: Scenario) -> tuple[str, str]:
    """First and last link of a message."""
    cluster = scenario.cluster
    if source.name == target.name and source.in_device != target.in_device:
        rank = int(source.name.removeprefix("device "))
        link = rank // cluster.replicas_per_device // cluster.devices_per_host_link
        name = f"host link {link} {'from' if source.in_device else 'to'} device"
        return name, name
    if source.node != target.node:
        return f"{source.node} out", f"{target.node} in"
    between = f"{source.name} to {target.name}"
    return (f"{source.name} out", f"{target.name} in") if cluster.intra_node_topology == "switch" else (between, between)


def what_departs_lands(program: Program, scenario: Scenario) -> None:
    """A message that departs lands, itself or after it has been handed on, once; nothing lands that has not departed."""
    del scenario
    for walk in walks_of(program):
        landed: Counter[int] = Counter()
        for index, its in enumerate(walk.operations):
            if not its.departs:
                continue
            at = index
            while not walk.operations[at].lands:
                onward = [number for number in walk.then[at] if walk.operations[number].kind == "send"]
                if len(onward) != 1 or walk.operations[onward[0]].departs:
                    raise broken(what_departs_lands, f"{walk.place(index)} departs and does not land")
                (at,) = onward
            landed[at] += 1
        for index, its in enumerate(walk.operations):
            if landed[index] != int(its.lands):
                raise broken(what_departs_lands, f"{walk.place(index)} lands, but {landed[index]} messages that depart come there")


def what_is_sent_to_ranks_is_received(program: Program, scenario: Scenario) -> None:
    """Of each channel a rank receives in a step as many messages as others send it; only what goes to a rank has a channel."""
    del scenario
    law = what_is_sent_to_ranks_is_received
    sent: Counter[tuple[int, int]] = Counter()
    received: Counter[tuple[int, int]] = Counter()
    for walk in walks_of(program):
        ranks = np.flatnonzero(program.ranks.routine == walk.number).tolist()
        for index, its in walk.of_kind("send"):
            for rank in ranks:
                peer = int(program.ranks.peer[rank, its.slot])
                if (peer >= 0) != (its.channel >= 0) or peer == rank:
                    raise broken(law, f"{walk.place(index)} of rank {rank} has the channel {its.channel} and leads to rank {peer}")
                if peer >= 0:
                    sent[peer, its.channel] += 1
        for _, its in walk.of_kind("receive"):
            received.update((rank, its.channel) for rank in ranks)
    for rank, channel in {*sent, *received}:
        if sent[rank, channel] != received[rank, channel]:
            counts = f"{sent[rank, channel]} messages are sent to it and {received[rank, channel]} received"
            raise broken(law, f"rank {rank}, channel {channel}: {counts}")
