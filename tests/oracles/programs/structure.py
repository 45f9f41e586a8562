"""Laws of what a program is made of (tables, the order of a step, gates, passes) and of what the scenario says outright."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from oracles.programs.walk import SLACK, broken, ports_of, same, walks_of
from simulator.program.neighbours import PORTS_OF
from simulator.program.port_names import Owner, PortKind, PortName
from simulator.program.program import Asynchronous, Operation, Program, Synchronous
from simulator.scenario import Scenario
from simulator.strategies.setup import Layout

_GATES = ("turn", "prepare", "input", "update")


def tables_fit_together(program: Program, scenario: Scenario) -> None:
    """Every number in a table refers to something that exists; ports have a capacity; ranks that share a device have seats on it."""
    law = tables_fit_together
    paths, ranks, ports = program.paths, program.ranks, len(program.ports.capacity)
    if len(paths.first) != len(paths) + 1 or paths.first[0] != 0 or paths.first[-1] != len(paths.port) or np.any(np.diff(paths.first) < 0):
        raise broken(law, "paths: the first ports of paths do not cut the list of ports")
    numbers = {
        "paths: ports": (paths.port, ports),
        "paths: sources": (paths.source, program.hosts.count),
        "paths: targets": (paths.target, program.hosts.count),
        "ranks: devices": (ranks.device, program.devices.count),
        "ranks: routines": (ranks.routine, len(program.routines)),
        "ranks: seats": (ranks.seat, len(paths)),
        "ranks: paths": (ranks.path, len(paths)),
        "ranks: peers": (ranks.peer, len(ranks)),
        "servers: seats": (program.servers.seat, len(paths)),
        "groups: paths": (np.array(program.over, dtype=np.int64), len(paths)),
    }
    for name, (column, end) in numbers.items():
        least = 0 if name in ("paths: ports", "ranks: devices", "ranks: routines") else -1
        if column.size and not least <= column.min() <= column.max() < end:
            raise broken(law, f"{name} lie between {column.min()} and {column.max()}, but there are {end}")
    if len(program.over) not in (0, len(program.groups)):
        raise broken(law, f"groups: {len(program.over)} of {len(program.groups)} have or lack a path over shared links")
    if not np.all(program.ports.capacity > 0) or not np.all(program.ports.ceiling > 0) or not np.all(paths.latency_s >= 0):
        raise broken(law, "ports and paths: a capacity is not above 0, or a latency is below 0")
    if sorted(set(ranks.copy.tolist())) != list(range(int(ranks.copy.max()) + 1)):
        raise broken(law, "ranks: data-parallel copies are not numbered from 0 on")
    if ranks.copy.max() + 1 != scenario.replicas:
        raise broken(law, f"ranks: make up {ranks.copy.max() + 1} copies, not {scenario.replicas}")
    of_device: dict[int, int] = {}
    users = np.bincount(ranks.device)
    if np.any((ranks.seat < 0) & (users[ranks.device] > 1)):
        raise broken(law, "ranks: some share a device and have no seat on it")
    for rank, (device, seat) in enumerate(zip(ranks.device.tolist(), ranks.seat.tolist(), strict=True)):
        if seat >= 0 and (not _is_seat(program, seat) or of_device.setdefault(device, port := ports_of(program, seat)[0]) != port):
            raise broken(law, f"rank {rank}: its seat is no path over the one port of its device")
    if len(set(of_device.values())) != len(of_device):
        raise broken(law, "ranks: two devices share a port")
    for server, seat in enumerate(program.servers.seat.tolist()):
        if seat >= 0 and (not _is_seat(program, seat) or ports_of(program, seat)[0] not in of_device.values()):
            raise broken(law, f"server {server}: its seat is no path over the one port of a rank's device")


def _is_seat(program: Program, path: int) -> bool:
    ports = ports_of(program, path)
    if len(ports) != 1 or ports[0] < program.links or program.paths.latency_s[path]:
        return False
    # together they may compute faster than one alone, and none of them does
    pace, most = program.ports.capacity[ports[0]], program.ports.ceiling[ports[0]]
    return bool(pace == 1.0 or (pace > 1.0 and most == 1.0))


def steps_begin_and_end(program: Program, scenario: Scenario) -> None:
    """A step begins with the gate "turn"; each other operation waits for one that exists; none waits for itself, even by way of others."""
    del scenario
    law = steps_begin_and_end
    for walk, routine in zip(walks_of(program), program.routines, strict=True):
        first = walk.operations[0] if walk.operations else None
        if first is None or (first.kind, first.name, first.after) != ("gate", "turn", ()):
            raise broken(law, f"routine {walk.number}: does not begin with the gate 'turn', after nothing")
        for index, each in enumerate(walk.operations):
            if any(not 0 <= earlier < len(walk.operations) for earlier in each.after) or len(set(each.after)) != len(each.after):
                raise broken(law, f"{walk.place(index)} is after {each.after}, of which one is not there or named twice")
            if index and not walk.before[index]:
                raise broken(law, f"{walk.place(index)} waits for nothing")
        first_shuffled, last = routine.shuffled
        drawn = walk.operations[first_shuffled:last]
        if not 0 <= first_shuffled <= last <= len(walk.operations) or any((each.kind, each.after) != ("send", (0,)) for each in drawn):
            raise broken(law, f"routine {walk.number}: begins what is no message of the step's begin in an order that is drawn")
        missing = [len(before) for before in walk.before]
        ended = [0]
        for index in ended:
            for following in walk.then[index]:
                missing[following] -= 1
                if not missing[following]:
                    ended.append(following)
        if len(ended) < len(walk.operations):
            stuck = min(set(range(len(walk.operations))) - set(ended))
            raise broken(law, f"{walk.place(stuck)} waits for itself, by way of others")


def gates_have_rules(program: Program, scenario: Scenario) -> None:
    """Every gate is a known one: one holds compute back until the batch is there; one waits for the client, and one for updates, if any."""
    rules, batch = program.rules, scenario.batch
    fed_bytes = (scenario.workload.input_bytes_per_sample or 0.0) * batch
    for walk in walks_of(program):
        names = Counter(each.name for _, each in walk.of_kind("gate"))
        wanted = {"turn": 1, "input": 1, "prepare": int(rules.client is not None), "update": int(rules.updates is not None)}
        if {name: names[name] for name in {*_GATES, *names}} != wanted:
            raise broken(gates_have_rules, f"routine {walk.number}: has the gates {dict(names)}, not {wanted}")
        for index, each in walk.of_kind("gate"):
            if each.name == "update" and set(each.after) != {number for number, _ in walk.of_kind("serve")}:
                raise broken(gates_have_rules, f"{walk.place(index)} does not wait for all servers, and for nothing else")
            if each.name == "input" and walk.first_compute_after(index) != min(walk.computes, default=None):
                raise broken(gates_have_rules, f"{walk.place(index)} does not hold up the first compute")
        fed = [each for each in walk.operations if each.feeds]
        if len(fed) != int(scenario.layout.client):
            raise broken(gates_have_rules, f"routine {walk.number}: {len(fed)} messages bring the batch")
        if any(each.kind != "send" or each.source.kind != "client" or not same(each.size_bytes, fed_bytes) for each in fed):
            raise broken(gates_have_rules, f"routine {walk.number}: the client does not send the whole batch, {fed_bytes:g} bytes")


def passes_are_whole(program: Program, scenario: Scenario) -> None:
    """Shares of the forward pass sum to 1, then those of the backward pass and the update; nothing waits for a compute that joins the next.

    Where a strategy cuts batches into micro-batches, and the model, passes take turns, and take what their parts take.
    """
    cuts = scenario.strategy.cuts_batches
    for walk in walks_of(program):
        computes = [walk.operations[index] for index in walk.computes]
        totals = {"forward": 1.0, "backward": 1.0, "apply": 0.0 if program.servers.count else 1.0}
        for name, total in totals.items():
            shares_of = [getattr(each, name) for each in computes]
            if min(shares_of, default=0.0) < 0 or not (same(math.fsum(shares_of), total) or cuts):
                raise broken(passes_are_whole, f"routine {walk.number}: shares of {name} {shares_of} do not sum to {total:g}")
        phases = [phase for each in computes for phase, share in enumerate((each.forward, each.backward, each.apply)) if share]
        if phases != sorted(phases) and not cuts:
            raise broken(passes_are_whole, f"routine {walk.number}: goes back from a pass to one before it")
        for index, following in zip(walk.computes, [*walk.computes[1:], None], strict=True):
            if walk.operations[index].joins and walk.then[index] != [following]:
                raise broken(passes_are_whole, f"{walk.place(index)} joins the next compute, and others wait for it")


def rules_are_those_of_the_strategy(program: Program, scenario: Scenario) -> None:
    """Ranks wait for those that the strategy names, get steps and batches from where it says, and make as many steps as are asked for."""
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
    for port, capacity in enumerate(program.ports.whole.tolist()):
        wanted = _capacity(program.ports.names[port], scenario)
        if not same(capacity, wanted):
            raise broken(law, f"port {str(program.ports.names[port])!r} carries {capacity:g} a second, not {wanted:g}")
    _others_take_what_they_should(program, scenario)
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
    between = np.zeros(len(paths), dtype=bool)
    links = np.array([name.kind == PortKind.NODE_OUT for name in program.ports.names], dtype=bool)
    if len(paths):
        between = np.logical_or.reduceat(links[paths.port], paths.first[:-1])
    nobody = np.full(len(paths), -1)
    sides = np.stack([nobody if nodes is None else nodes for nodes in (paths.sender, paths.receiver)]) >= 0
    if np.any(sides != (between & (transport.discipline != "fair"))):
        raise broken(law, "paths: between nodes are taken in turns, weighed or queued where the discipline says so, and nowhere else")
    if scenario.servers:  # whose processes work on messages inside a node too
        slots = {
            each.slot for routine in program.routines for each in routine.operations if each.kind == "send" and "server" in _ends_of(each)
        }
        between[program.ranks.path[:, sorted(slots)].ravel()] = True
    ends = np.stack([paths.source, paths.target]) >= 0
    if np.any(ends != (between & transport.has_hosts)):
        raise broken(law, "paths: between processes have hosts at their ends where those cost something, and nowhere else; these do not")


def _ends_of(operation: Operation) -> tuple[str, str]:
    return operation.source.kind, operation.target.kind


def _others_take_what_they_should(program: Program, scenario: Scenario) -> None:
    """Others leave as much of each port as ``cluster.background`` says, and nothing of it is left out or changes on other ports."""
    law, ports, background = machines_are_those_of_the_cluster, program.ports, scenario.cluster.background
    used = np.zeros(len(ports.capacity), dtype=bool)
    least, most, flows = 0.0, 0.0, 0
    if background is not None:
        used[:] = [name.kind in PORTS_OF[background.on] for name in ports.names]
        (least, most), flows = background.between, background.flows
        if background.trace:
            (least, flows), most = background.at_beginning(), background.at_beginning()[0]
    taken = np.where(ports.capacity == ports.whole, 0.0, 1.0 - ports.capacity / np.where(np.isinf(ports.whole), 1.0, ports.whole))
    few = background is not None and bool(background.nodes)  # then some of these ports are not used either
    fits = (taken >= least - SLACK) & (taken <= most + SLACK) & (ports.others == flows)
    free = (taken == 0) & (ports.others == 0)
    if not np.all(np.where(used, fits | (free & few), free)):
        port = int(np.flatnonzero(~np.where(used, fits | (free & few), free))[0])
        raise broken(law, f"port {str(ports.names[port])!r}: others take {taken[port]:g} of it, and {ports.others[port]:g} flows share it")
    changes = program.changes
    if changes is not None and (not used[changes.port].all() or background is None or len(changes.at_s) != len(background.trace)):
        raise broken(law, "changes: are not those of cluster.background.trace")


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
            of_node = cluster.link_of(_node(port.owner, layout)).bandwidth_bytes_per_s / transport.wire_bytes_per_byte
            return float(of_node / cluster.rails if cluster.rails is not None else of_node)
        case PortKind.LEAF_UP | PortKind.LEAF_DOWN:
            assert cluster.fabric is not None
            each = cluster.inter_node.bandwidth_bytes_per_s * cluster.nics_per_node / transport.wire_bytes_per_byte
            return float(cluster.fabric.nodes_per_leaf * each / cluster.fabric.oversubscription / cluster.fabric.spines) / (
                cluster.rails or 1 if cluster.fabric.rail_optimised else 1
            )
        case PortKind.ISLAND_OUT | PortKind.ISLAND_IN:
            assert cluster.islands is not None
            assert cluster.islands.between is not None
            return float(cluster.islands.between.bandwidth_bytes_per_s)
        case PortKind.HOST_LINK_OUT | PortKind.HOST_LINK_IN:
            assert cluster.host_link is not None
            return float(cluster.host_link.bandwidth_bytes_per_s)
        case PortKind.CONNECTION:
            assert transport.flow_cap_bytes_per_s is not None
            return float(transport.flow_cap_bytes_per_s)
        case PortKind.DEVICE_MEMORY:
            assert cluster.intra_device is not None
            return float(cluster.intra_device.bandwidth_bytes_per_s)
        case PortKind.DEVICE:
            return cluster.pace_together(scenario.workload.busy_share(scenario.batch))
        case PortKind.SHARED_LINK:
            return 1.0
        case PortKind.HOST_CORES:
            return float(cluster.host_cores or math.inf)
        case PortKind.STORAGE | PortKind.NODE_STORAGE:
            assert cluster.storage is not None
            rate = cluster.storage.bandwidth_bytes_per_s if port.kind == PortKind.STORAGE else cluster.storage.node_bandwidth_bytes_per_s
            return float(rate or math.inf)
        case _:
            return float(cluster.intra_node.bandwidth_bytes_per_s)
