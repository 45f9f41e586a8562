"""Laws of what a program is made of: its tables, the order of a step, gates and passes."""

from __future__ import annotations

from collections import Counter

import numpy as np

from simulator.program.laws.walk import broken, ports_of, same, walks_of
from simulator.program.program import Program
from simulator.scenario import Scenario

__all__ = ["gates_have_rules", "passes_are_whole", "steps_begin_and_end", "tables_fit_together"]

_GATES = ("turn", "prepare", "input", "update")


def tables_fit_together(program: Program, scenario: Scenario) -> None:
    """Every number stands for something that there is; ports carry something; ranks that share a device have seats on it."""
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
    }
    for name, (column, end) in numbers.items():
        least = 0 if name in ("paths: ports", "ranks: devices", "ranks: routines") else -1
        if column.size and not least <= column.min() <= column.max() < end:
            raise broken(law, f"{name} lie between {column.min()} and {column.max()}, but there are {end}")
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
    return (
        len(ports) == 1 and ports[0] >= program.links and program.ports.capacity[ports[0]] == 1.0 and program.paths.latency_s[path] == 0.0
    )


def steps_begin_and_end(program: Program, scenario: Scenario) -> None:
    """A step begins with the gate "turn"; all else waits for something that is there; nothing waits for itself, in however many turns."""
    del scenario
    law = steps_begin_and_end
    for walk, routine in zip(walks_of(program), program.routines, strict=True):
        first = walk.operations[0] if walk.operations else None
        if first is None or (first.kind, first.name, first.after) != ("gate", "turn", ()):
            raise broken(law, f"routine {walk.number}: does not begin with the gate 'turn', after nothing")
        for index, its in enumerate(walk.operations):
            if any(not 0 <= earlier < len(walk.operations) for earlier in its.after) or len(set(its.after)) != len(its.after):
                raise broken(law, f"{walk.place(index)} is after {its.after}, of which one is not there or named twice")
            if index and not walk.before[index]:
                raise broken(law, f"{walk.place(index)} waits for nothing")
        first_shuffled, last = routine.shuffled
        drawn = walk.operations[first_shuffled:last]
        if not 0 <= first_shuffled <= last <= len(walk.operations) or any((its.kind, its.after) != ("send", (0,)) for its in drawn):
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
    """Gates are known; one holds compute up until the batch is there, one waits for the client and one for updates where there are such."""
    rules, batch = program.rules, scenario.batch
    fed_bytes = (scenario.workload.input_bytes_per_sample or 0.0) * batch
    for walk in walks_of(program):
        names = Counter(its.name for _, its in walk.of_kind("gate"))
        wanted = {"turn": 1, "input": 1, "prepare": int(rules.client is not None), "update": int(rules.updates is not None)}
        if {name: names[name] for name in {*_GATES, *names}} != wanted:
            raise broken(gates_have_rules, f"routine {walk.number}: has the gates {dict(names)}, not {wanted}")
        for index, its in walk.of_kind("gate"):
            if its.name == "update" and set(its.after) != {number for number, _ in walk.of_kind("serve")}:
                raise broken(gates_have_rules, f"{walk.place(index)} does not wait for all servers, and for nothing else")
            if its.name == "input" and walk.first_compute_after(index) != min(walk.computes, default=None):
                raise broken(gates_have_rules, f"{walk.place(index)} does not hold up the first compute")
        fed = [its for its in walk.operations if its.feeds]
        if len(fed) != int(scenario.layout.client):
            raise broken(gates_have_rules, f"routine {walk.number}: {len(fed)} messages bring the batch")
        if any(its.kind != "send" or its.source.kind != "client" or not same(its.size_bytes, fed_bytes) for its in fed):
            raise broken(gates_have_rules, f"routine {walk.number}: the client does not send the whole batch, {fed_bytes:g} bytes")


def passes_are_whole(program: Program, scenario: Scenario) -> None:
    """Shares of the forward pass sum to 1, then of the backward pass, then of the ranks' update; nobody waits for what joins the next."""
    del scenario
    for walk in walks_of(program):
        computes = [walk.operations[index] for index in walk.computes]
        totals = {"forward": 1.0, "backward": 1.0, "apply": 0.0 if program.servers.count else 1.0}
        for name, total in totals.items():
            shares_of = [getattr(its, name) for its in computes]
            if min(shares_of, default=0.0) < 0 or not same(sum(shares_of), total):
                raise broken(passes_are_whole, f"routine {walk.number}: shares of {name} {shares_of} do not sum to {total:g}")
        phases = [phase for its in computes for phase, share in enumerate((its.forward, its.backward, its.apply)) if share]
        if phases != sorted(phases):
            raise broken(passes_are_whole, f"routine {walk.number}: goes back from a pass to one before it")
        for index, following in zip(walk.computes, [*walk.computes[1:], None], strict=True):
            if walk.operations[index].joins and walk.then[index] != [following]:
                raise broken(passes_are_whole, f"{walk.place(index)} joins the next compute, and others wait for it")
