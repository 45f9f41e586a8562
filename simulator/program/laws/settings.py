"""Laws of what a scenario says outright: who waits for whom, how many steps are made, and what the machines are like."""

from __future__ import annotations

import numpy as np

from simulator.program.laws.walk import broken, same
from simulator.program.port_names import Owner, PortKind, PortName
from simulator.program.program import Asynchronous, Program, Synchronous
from simulator.scenario import Scenario
from simulator.strategies.setup import Layout

__all__ = ["machines_are_those_of_the_cluster", "rules_are_those_of_the_strategy"]


def rules_are_those_of_the_strategy(program: Program, scenario: Scenario) -> None:
    """Ranks wait for those whom the strategy says, get their steps and batches from whom it says, and make as many as are asked for."""
    law, rules, strategy, run = rules_are_those_of_the_strategy, program.rules, scenario.strategy, scenario.run
    pace, ranks = strategy.pace, len(program.ranks)
    if (rules.sync_every, rules.bound) != (pace.every, pace.bound):
        raise broken(
            law, f"rules: ranks agree every {rules.sync_every} steps within {rules.bound}, not every {pace.every} within {pace.bound}"
        )
    dispatcher = rules.dispatcher
    handed_out = None if dispatcher is None else (dispatcher.dispatch_s, dispatcher.latency_s)
    if handed_out != ((pace.dispatch_s, pace.latency_s) if pace.coordinated else None):
        raise broken(law, f"rules: the coordinator takes {handed_out} s for a step")
    input_s = float(scenario.workload.input(scenario.batch)) if scenario.layout.client else 0.0
    if (rules.client.input_s if rules.client is not None else 0.0) != input_s:
        raise broken(law, f"rules: the client does not take {input_s:g} s for a batch")
    updates = rules.updates
    if isinstance(updates, Asynchronous) != (pace.asynchronous and program.servers.count > 0):
        raise broken(law, "rules: updates are asynchronous, or the strategy is, but not both")
    if isinstance(updates, Synchronous) and (updates.required, updates.cancel) != (pace.awaited(ranks), pace.cancels):
        raise broken(law, f"rules: an update averages {updates.required} of {ranks} gradients, not {pace.awaited(ranks)}")
    shared = each = None
    if not program.servers.count or (pace.asynchronous and run.sharing == "each-its-own"):
        each = run.steps
    elif pace.asynchronous and run.drain:
        shared = run.total_steps(ranks)
    if (rules.steps_shared, rules.steps_each, rules.closes) != (shared, each, bool(updates) and pace.asynchronous and not run.drain):
        raise broken(law, f"rules: {rules.steps_shared} steps are shared and {rules.steps_each} each rank's own, not {shared} and {each}")
    if any(bool(routine.shuffled[1]) != strategy.in_random_order(scenario) for routine in program.routines):
        raise broken(law, "routines: messages begin in an order that is drawn, or the strategy says so, but not both")


def machines_are_those_of_the_cluster(program: Program, scenario: Scenario) -> None:
    """Links, hosts, cores and transport are those of the cluster."""
    law, cluster, devices = machines_are_those_of_the_cluster, scenario.cluster, program.devices
    if program.transport != cluster.transport:
        raise broken(law, "transport: is not the cluster's")
    for port, capacity in enumerate(program.ports.capacity.tolist()):
        wanted = _capacity(program.ports.names[port], scenario)
        if not same(capacity, wanted):
            raise broken(law, f"port {str(program.ports.names[port])!r} carries {capacity:g} a second, not {wanted:g}")
    cores = None if program.cores is None else (program.cores.number, program.cores.slice_s)
    if cores != (None if cluster.shared_cores is None else (cluster.shared_cores, cluster.time_slice_s)):
        raise broken(law, f"cores: {cores} are shared")
    on_cores = cores is not None and cluster.device_is_host, cores is not None and program.servers.count > 0
    if (devices.on_cores, program.servers.on_cores) != on_cores:
        raise broken(law, "devices and servers: are not on the cores that the cluster says")
    if (devices.slowdown, devices.busy_core_slowdown) != (
        cluster.overlap_slowdown if len(program.ranks) > 1 or program.servers.count else 0.0,
        scenario.workload.busy_core_slowdown,
    ):
        raise broken(law, f"devices: are slower by {devices.slowdown:g} and {devices.busy_core_slowdown:g}, as shares")
    transport, paths = cluster.transport, program.paths
    hosts = transport.at_a_time is not None or transport.weight_sigma is not None or transport.works_on_messages
    ends = np.stack([paths.source, paths.target]) >= 0
    between = np.zeros(len(paths), dtype=bool)
    links = np.array([name.kind == PortKind.NODE_OUT for name in program.ports.names], dtype=bool)
    if len(paths):
        between = np.array([bool(links[paths.port[first]]) for first in paths.first[:-1].tolist()])
    if np.any(ends != (between & hosts)):
        raise broken(law, "paths: between nodes have hosts at their ends where those cost something, and nowhere else; these do not")


def _node(owner: Owner, layout: Layout) -> int:
    """The number of a node among all."""
    match owner.kind:
        case "server node":
            return layout.node_of_server(owner.number)
        case "client node":
            return layout.nodes - 1
        case _:
            return owner.number


def _capacity(port: PortName, scenario: Scenario) -> float:
    """What such a port carries a second: bytes, or of a device, seconds of work."""
    cluster, layout, transport = scenario.cluster, scenario.layout, scenario.cluster.transport

    match port.kind:
        case PortKind.CPU:
            return float(1.0 / transport.cpu_per_byte_s)
        case PortKind.NODE_OUT | PortKind.NODE_IN:
            return float(cluster.link_of(_node(port.owner, layout)).bandwidth_bytes_per_s / transport.wire_bytes_per_byte)
        case PortKind.LEAF_UP | PortKind.LEAF_DOWN:
            assert cluster.fabric is not None
            each = cluster.inter_node.bandwidth_bytes_per_s * cluster.nics_per_node / transport.wire_bytes_per_byte
            return float(cluster.fabric.nodes_per_leaf * each / cluster.fabric.oversubscription / cluster.fabric.spines)
        case PortKind.HOST_LINK_OUT | PortKind.HOST_LINK_IN:
            assert cluster.host_link is not None
            return float(cluster.host_link.bandwidth_bytes_per_s)
        case PortKind.CONNECTION:
            assert transport.flow_cap_bytes_per_s is not None
            return float(transport.flow_cap_bytes_per_s)
        case PortKind.DEVICE:
            return 1.0
        case _:
            return float(cluster.intra_node.bandwidth_bytes_per_s)
