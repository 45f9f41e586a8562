"""Laws that every step program must obey and that need no run, and :func:`check_program`, which checks them.

They compare a program with the scenario that it stands for: what is trained, where it runs,
and how what travels is cut (:meth:`simulator.strategies.strategy.Strategy.tensors`).
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from simulator.collectives.laws import least_shares, shares
from simulator.errors import InvariantError
from simulator.program.program import Asynchronous, Operation, Program, Routine, Synchronous
from simulator.records import Place
from simulator.rng import Streams
from simulator.scenario import Scenario
from simulator.strategies.reducing import collective_of

__all__ = ["PROGRAM_LAWS", "check_program"]

_SLACK = 1e-9
_GATES = ("turn", "prepare", "input", "update")


def check_program(program: Program, scenario: Scenario) -> None:
    """Check every law of :data:`PROGRAM_LAWS`.

    Parameters
    ----------
    program
        What happens in a step.
    scenario
        What it was made of, as drawn for a replication.

    Raises
    ------
    InvariantError
        A law is broken; names the law and the place.
    """
    for law in PROGRAM_LAWS:
        law(program, scenario)


def _broken(law: Callable[..., None], place: str) -> InvariantError:
    return InvariantError(f"law of programs broken: {law.__name__}: {place}")


def _same(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=_SLACK, abs_tol=1e-12)


class _Walk:
    """A routine with what follows from its order.

    Attributes
    ----------
    before
        Of each operation those that must have ended: what it is after, and of a compute the one before it.
    then
        Of each operation those that wait for it.
    computes
        The computes, in their order.
    forward_before, backward_by
        Of each compute, the share of the forward pass made before it begins, and that of the backward pass made when it has ended.
    """

    def __init__(self, number: int, routine: Routine) -> None:
        self.number = number
        self.operations = routine.operations
        self.computes = [index for index, its in enumerate(routine.operations) if its.kind == "compute"]
        self.before = [set(its.after) for its in routine.operations]
        for earlier, later in itertools.pairwise(self.computes):
            self.before[later].add(earlier)
        self.then: list[list[int]] = [[] for _ in routine.operations]
        for index, before in enumerate(self.before):
            for earlier in before:
                if 0 <= earlier < len(self.then):
                    self.then[earlier].append(index)
        self.forward_before: dict[int, float] = {}
        self.backward_by: dict[int, float] = {}
        forward = backward = 0.0
        for index in self.computes:
            self.forward_before[index] = forward
            forward += routine.operations[index].forward
            backward += routine.operations[index].backward
            self.backward_by[index] = backward

    def of_kind(self, kind: str) -> Iterator[tuple[int, Operation]]:
        """Operations of a kind, by number."""
        return ((index, its) for index, its in enumerate(self.operations) if its.kind == kind)

    def place(self, index: int) -> str:
        """An operation, for people."""
        return f"routine {self.number}, operation {index} ({self.operations[index].kind} {self.operations[index].name!r})"

    def sends_before(self, index: int) -> list[int]:
        """The messages that bring what an operation needs, the last one first; empty where it waits for none or for several."""
        found: list[int] = []
        while len(self.operations[index].after) == 1:
            (index,) = self.operations[index].after
            if self.operations[index].kind != "send":
                break
            found.append(index)
        return found

    def compute_before(self, index: int) -> int | None:
        """The compute that an operation waits for by itself."""
        found = [earlier for earlier in self.operations[index].after if self.operations[earlier].kind == "compute"]
        return found[0] if len(found) == len(self.operations[index].after) == 1 else None

    def first_compute_after(self, index: int) -> int | None:
        """The first compute that cannot begin before an operation has ended."""
        seen, ahead = {index}, [index]
        while ahead:
            for following in self.then[ahead.pop()]:
                if following not in seen:
                    seen.add(following)
                    ahead.append(following)
        return min((number for number in self.computes if number in seen), default=None)


def _walks(program: Program) -> list[_Walk]:
    return [_Walk(number, routine) for number, routine in enumerate(program.routines)]


# -- tables ------------------------------------------------------------------------------


def tables_fit_together(program: Program, scenario: Scenario) -> None:
    """Every number that stands for something stands for something that there is; ports carry something; seats are on their device."""
    del scenario
    law = tables_fit_together
    paths, ranks, ports = program.paths, program.ranks, len(program.ports.capacity)
    if len(paths.first) != len(paths) + 1 or paths.first[0] != 0 or paths.first[-1] != len(paths.port) or np.any(np.diff(paths.first) < 0):
        raise _broken(law, "paths: the first ports of paths do not cut the list of ports")
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
            raise _broken(law, f"{name} lie between {column.min()} and {column.max()}, but there are {end}")
    if not np.all(program.ports.capacity > 0) or not np.all(program.ports.ceiling > 0) or not np.all(paths.latency_s >= 0):
        raise _broken(law, "ports and paths: a capacity is not above 0, or a latency is below 0")
    if sorted(set(ranks.copy.tolist())) != list(range(int(ranks.copy.max()) + 1)):
        raise _broken(law, "ranks: data-parallel copies are not numbered from 0 on")
    for number, group in enumerate(program.groups):
        if sorted(set(group.tolist())) != sorted(group.tolist()) or not 0 <= group.min() <= group.max() < len(ranks):
            raise _broken(law, f"group {number}: names a rank twice, or one that is not there")
    of_device: dict[int, int] = {}
    for rank, (device, seat) in enumerate(zip(ranks.device.tolist(), ranks.seat.tolist(), strict=True)):
        if seat >= 0 and (not _is_seat(program, seat) or of_device.setdefault(device, port := _ports(program, seat)[0]) != port):
            raise _broken(law, f"rank {rank}: its seat is no path over the one port of its device")
    if len(set(of_device.values())) != len(of_device):
        raise _broken(law, "ranks: two devices share a port")
    for server, seat in enumerate(program.servers.seat.tolist()):
        if seat >= 0 and (not _is_seat(program, seat) or _ports(program, seat)[0] not in of_device.values()):
            raise _broken(law, f"server {server}: its seat is no path over the one port of a rank's device")


def _ports(program: Program, path: int) -> list[int]:
    first = program.paths.first
    ports: list[int] = program.paths.port[first[path] : first[path + 1]].tolist()
    return ports


def _is_seat(program: Program, path: int) -> bool:
    ports = _ports(program, path)
    return (
        len(ports) == 1 and ports[0] >= program.links and program.ports.capacity[ports[0]] == 1.0 and program.paths.latency_s[path] == 0.0
    )


# -- order -------------------------------------------------------------------------------


def steps_begin_and_end(program: Program, scenario: Scenario) -> None:
    """A step begins with the gate "turn"; all else waits for something that is there; nothing waits for itself, in however many turns."""
    del scenario
    law = steps_begin_and_end
    for walk in _walks(program):
        first = walk.operations[0] if walk.operations else None
        if first is None or (first.kind, first.name, first.after) != ("gate", "turn", ()):
            raise _broken(law, f"routine {walk.number}: does not begin with the gate 'turn', after nothing")
        for index, its in enumerate(walk.operations):
            if any(not 0 <= earlier < len(walk.operations) for earlier in its.after) or len(set(its.after)) != len(its.after):
                raise _broken(law, f"{walk.place(index)} is after {its.after}, of which one is not there or named twice")
            if index and not walk.before[index]:
                raise _broken(law, f"{walk.place(index)} waits for nothing")
        missing = [len(before) for before in walk.before]
        ended = [0]
        for index in ended:
            for following in walk.then[index]:
                missing[following] -= 1
                if not missing[following]:
                    ended.append(following)
        if len(ended) < len(walk.operations):
            stuck = min(set(range(len(walk.operations))) - set(ended))
            raise _broken(law, f"{walk.place(stuck)} waits for itself, by way of others")


def gates_have_rules(program: Program, scenario: Scenario) -> None:
    """Gates are known; one holds compute up until the batch is there, one waits for the client and one for updates where there are such."""
    del scenario
    rules = program.rules
    for walk in _walks(program):
        names = Counter(its.name for _, its in walk.of_kind("gate"))
        wanted = {"turn": 1, "input": 1, "prepare": int(rules.client is not None), "update": int(rules.updates is not None)}
        if {name: names[name] for name in {*_GATES, *names}} != wanted:
            raise _broken(gates_have_rules, f"routine {walk.number}: has the gates {dict(names)}, not {wanted}")
        for index, its in walk.of_kind("gate"):
            if its.name == "update" and set(its.after) != {number for number, _ in walk.of_kind("serve")}:
                raise _broken(gates_have_rules, f"{walk.place(index)} does not wait for all servers, and for nothing else")
            if its.name == "input" and walk.first_compute_after(index) != min(walk.computes, default=None):
                raise _broken(gates_have_rules, f"{walk.place(index)} does not hold up the first compute")
        if sum(its.feeds for its in walk.operations) > 1:
            raise _broken(gates_have_rules, f"routine {walk.number}: several messages bring the batch")


def passes_are_whole(program: Program, scenario: Scenario) -> None:
    """Shares of the forward pass sum to 1, then those of the backward pass, then those of the update where ranks make it."""
    del scenario
    for walk in _walks(program):
        computes = [walk.operations[index] for index in walk.computes]
        totals = {"forward": 1.0, "backward": 1.0, "apply": 0.0 if program.servers.count else 1.0}
        for name, total in totals.items():
            shares_of = [getattr(its, name) for its in computes]
            if min(shares_of, default=0.0) < 0 or not _same(sum(shares_of), total):
                raise _broken(passes_are_whole, f"routine {walk.number}: shares of {name} {shares_of} do not sum to {total:g}")
        phases = [phase for its in computes for phase, share in enumerate((its.forward, its.backward, its.apply)) if share]
        if phases != sorted(phases):
            raise _broken(passes_are_whole, f"routine {walk.number}: goes back from a pass to one before it")


# -- messages ------------------------------------------------------------------------------


class _End(NamedTuple):
    """Where a message begins or ends: what it is called inside its node, and the name of the node."""

    name: str
    node: str
    in_device: bool


def _end(place: Place, program: Program, scenario: Scenario, rank: int, slot: int) -> _End:
    layout = scenario.layout
    place = place.of(rank, int(program.ranks.peer[rank, slot]))
    index = place.number
    if place.kind == "client":
        return _End(str(place), "client node", in_device=False)
    if place.kind == "server":
        node = f"node {layout.node_of_server(index)}" if layout.servers_beside else f"server node {index}"
        return _End(str(place), node, in_device=False)
    return _End(f"device {index}", f"node {layout.node_of(index)}", in_device=place.kind != "host")


def messages_go_where_they_say(program: Program, scenario: Scenario) -> None:
    """A message has a path for every rank; its first port is at the sender's side, its last at the receiver's."""
    law = messages_go_where_they_say
    for walk in _walks(program):
        ranks = np.flatnonzero(program.ranks.routine == walk.number).tolist()
        for index, its in walk.of_kind("send"):
            if not 0 <= its.slot < program.ranks.path.shape[1] or its.size_bytes < 0:
                raise _broken(law, f"{walk.place(index)} has no slot, or less than nothing to send")
            for rank in ranks:
                source, target = (_end(place, program, scenario, rank, its.slot) for place in (its.source, its.target))
                _check_path(
                    law, f"{walk.place(index)} of rank {rank}", program, scenario, int(program.ranks.path[rank, its.slot]), source, target
                )


def _check_path(law: Callable[..., None], place: str, program: Program, scenario: Scenario, path: int, source: _End, target: _End) -> None:
    """Raise InvariantError if a path does not lead from the one end to the other."""
    if path < 0:
        raise _broken(law, f"{place} has no path")
    crossed = [program.ports.names[port] for port in _ports(program, path)]
    links = [name for name in crossed if not name.endswith(" cpu") and not name.startswith("connection ")]
    wanted = _wanted_ports(source, target, scenario)
    if not links or (links[0], links[-1]) != wanted:
        raise _broken(law, f"{place} crosses {', '.join(crossed)}, not from {wanted[0]!r} to {wanted[1]!r}")


def _wanted_ports(source: _End, target: _End, scenario: Scenario) -> tuple[str, str]:
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
    for walk in _walks(program):
        landed: Counter[int] = Counter()
        for index, its in enumerate(walk.operations):
            if not its.departs:
                continue
            at = index
            while not walk.operations[at].lands:
                onward = [number for number in walk.then[at] if walk.operations[number].kind == "send"]
                if len(onward) != 1 or walk.operations[onward[0]].departs:
                    raise _broken(what_departs_lands, f"{walk.place(index)} departs and does not land")
                (at,) = onward
            landed[at] += 1
        for index, its in enumerate(walk.operations):
            if landed[index] != int(its.lands):
                raise _broken(what_departs_lands, f"{walk.place(index)} lands, but {landed[index]} messages that depart come there")


def what_is_sent_to_ranks_is_received(program: Program, scenario: Scenario) -> None:
    """Of each channel a rank receives in a step as many messages as others send it; only what goes to a rank has a channel."""
    del scenario
    law = what_is_sent_to_ranks_is_received
    sent: Counter[tuple[int, int]] = Counter()
    received: Counter[tuple[int, int]] = Counter()
    for walk in _walks(program):
        ranks = np.flatnonzero(program.ranks.routine == walk.number).tolist()
        for index, its in walk.of_kind("send"):
            for rank in ranks:
                peer = int(program.ranks.peer[rank, its.slot])
                if (peer >= 0) != (its.channel >= 0) or peer == rank:
                    raise _broken(law, f"{walk.place(index)} of rank {rank} has the channel {its.channel} and leads to rank {peer}")
                if peer >= 0:
                    sent[peer, its.channel] += 1
        for _, its in walk.of_kind("receive"):
            received.update((rank, its.channel) for rank in ranks)
    for rank, channel in {*sent, *received}:
        if sent[rank, channel] != received[rank, channel]:
            counts = f"{sent[rank, channel]} messages are sent to it and {received[rank, channel]} received"
            raise _broken(law, f"rank {rank}, channel {channel}: {counts}")


# -- servers -------------------------------------------------------------------------------


def gradients_reach_their_server_once(program: Program, scenario: Scenario) -> None:
    """Every gradient leaves each rank once a step, when its share of the backward pass is done, and arrives whole where its variable is."""
    law = gradients_reach_their_server_once
    if not program.servers.count:
        _no_service(program, law)
        return
    tensors = scenario.strategy.tensors(scenario)
    ready = {index: share for share, indices in tensors.backward for index in indices}
    for walk in _walks(program):
        served = Counter(its.tensor for _, its in walk.of_kind("serve"))
        if served != Counter(gradient.index for gradient in tensors.gradients):
            raise _broken(law, f"routine {walk.number}: serves the gradients {dict(served)}, of which there are {len(tensors.gradients)}")
        pushed: Counter[int] = Counter()
        for index, its in walk.of_kind("serve"):
            gradient = tensors.gradients[its.tensor]
            sends = walk.sends_before(index)
            pushed.update(sends)
            ports = [walk.operations[send] for send in sends]
            if not ports or ports[0].target != Place("server", gradient.server) or its.server != gradient.server:
                raise _broken(law, f"{walk.place(index)} is not after one message to server {gradient.server}, which has its variable")
            if any(not _same(send.size_bytes, gradient.size_bytes) for send in ports):
                raise _broken(law, f"{walk.place(index)} gets {ports[0].size_bytes:g} bytes, not {gradient.size_bytes:g}")
            compute = walk.compute_before(sends[-1])
            if compute is None or not _same(walk.backward_by[compute], ready[gradient.index]):
                raise _broken(law, f"{walk.place(sends[-1])} does not leave when {ready[gradient.index]:g} of the backward pass are done")
        if any(times > 1 for times in pushed.values()):
            raise _broken(law, f"routine {walk.number}: one message brings several gradients")
        up = [its for _, its in walk.of_kind("send") if its.target.kind == "server"]
        total = sum(variable.gradient_bytes(scenario.batch) for variable in scenario.workload.variables)
        if len(up) != len(tensors.gradients) or not _same(sum(its.size_bytes for its in up), total):
            raise _broken(
                law, f"routine {walk.number}: sends {len(up)} messages to servers, not {total:g} bytes in {len(tensors.gradients)}"
            )


def _no_service(program: Program, law: Callable[..., None]) -> None:
    for walk in _walks(program):
        for index, _ in walk.of_kind("serve"):
            raise _broken(law, f"{walk.place(index)} has no server")


def variables_are_pulled_once(program: Program, scenario: Scenario) -> None:
    """Every variable comes to each rank once a step, whole, from the server that has it, before the forward pass needs it."""
    law = variables_are_pulled_once
    if not program.servers.count:
        return
    tensors, load, batch = scenario.strategy.tensors(scenario), scenario.workload, scenario.batch
    needed: dict[tuple[int, float], float] = defaultdict(float)
    for share, indices in tensors.forward:
        for index in indices:
            variable = tensors.variables[index]
            needed[variable.server, round(share, 9)] += variable.size_bytes
    for walk in _walks(program):
        come: dict[tuple[int, float], float] = defaultdict(float)
        for index, its in walk.of_kind("send"):
            if its.source.kind != "server":
                continue
            compute = walk.first_compute_after(index)
            if compute is None:
                raise _broken(law, f"{walk.place(index)} brings what no compute needs")
            come[its.source.number, round(walk.forward_before[compute], 9)] += its.size_bytes
            for following in walk.then[index]:
                onward = walk.operations[following]
                if onward.kind == "send" and not _same(onward.size_bytes, its.size_bytes):
                    raise _broken(law, f"{walk.place(following)} hands on {onward.size_bytes:g} of {its.size_bytes:g} bytes")
        if set(come) != set(needed) or any(not _same(come[key], needed[key]) for key in needed):
            wrong = next(key for key in {**needed, **come} if not _same(come.get(key, 0.0), needed.get(key, 0.0)) or key not in come)
            told = f"{come.get(wrong, 0.0):g} bytes, not {needed.get(wrong, 0.0):g}, of server {wrong[0]} before share {wrong[1]:g}"
            raise _broken(law, f"routine {walk.number}: the forward pass waits for {told}")
        total, pulled = sum(variable.pull_bytes(batch) for variable in load.variables), sum(come.values())
        if not _same(pulled, total):
            raise _broken(law, f"routine {walk.number}: pulls {pulled:g} bytes, not {total:g}")
        pushed: dict[Place, float] = defaultdict(float)
        for _, its in walk.of_kind("send"):
            pushed[its.target] += its.size_bytes
        dense = all(variable.sparse_bytes_per_sample is None for variable in load.variables)
        for server in range(program.servers.count):
            read = sum(size for (its_server, _), size in come.items() if its_server == server)
            sent = pushed[Place("server", server)]
            if read > sent * (1 + _SLACK) or (dense and not _same(read, sent)):
                raise _broken(law, f"routine {walk.number}: reads {read:g} bytes from server {server} and sends it {sent:g}")


def servers_work_as_measured(program: Program, scenario: Scenario) -> None:
    """A server takes for each gradient what the workload says of its bytes; the rule of updates knows the same gradients."""
    law, cost, rule = servers_work_as_measured, scenario.workload.server, program.rules.updates
    if (rule is None) != (not program.servers.count):
        raise _broken(law, "rules: there are servers without a rule of updates, or the other way round")
    if rule is None:
        return
    for walk in _walks(program):
        whole_s = parts = 0.0
        for index, its in walk.of_kind("serve"):
            size_bytes = walk.operations[walk.sends_before(index)[0]].size_bytes if walk.sends_before(index) else 0.0
            pieces = (its.cost_s - cost.per_byte_s * size_bytes) / cost.base_s if cost.base_s else 1.0
            if not math.isclose(pieces, round(pieces), rel_tol=1e-6) or round(pieces) < 1:
                raise _broken(law, f"{walk.place(index)} costs {its.cost_s:g} s, which is no number of tensors of {size_bytes:g} bytes")
            if not cost.base_s and not _same(its.cost_s, cost.per_byte_s * size_bytes):
                raise _broken(law, f"{walk.place(index)} costs {its.cost_s:g} s, not {cost.per_byte_s * size_bytes:g}")
            parts += round(pieces)
            whole_s += its.cost_s
        if parts < len(scenario.workload.variables) and cost.base_s:
            raise _broken(law, f"routine {walk.number}: servers work on {parts:g} tensors, of {len(scenario.workload.variables)} variables")
        served = sorted((its.tensor, its.server, its.cost_s) for _, its in walk.of_kind("serve"))
        if isinstance(rule, Asynchronous):
            on = Counter(server for _, server, _ in served)
            if rule.parts != tuple(on[server] for server in range(program.servers.count)):
                raise _broken(law, f"rules: {rule.parts} gradients are waited for on the servers, not {dict(on)}")
        elif served != [(tensor, *its) for tensor, its in enumerate(zip(rule.server, rule.cost_s, strict=True))]:
            raise _broken(law, "rules: the chief applies other gradients than the servers accumulate")
    if isinstance(rule, Synchronous) and not 1 <= rule.required <= len(program.ranks):
        raise _broken(law, f"rules: an update averages {rule.required} gradients of {len(program.ranks)} ranks")


# -- collectives ---------------------------------------------------------------------------


def gradients_enter_one_bucket(program: Program, scenario: Scenario) -> None:
    """Every gradient enters one bucket of a step, when it is ready; of local SGD all variables are averaged as one."""
    law, load, ranks = gradients_enter_one_bucket, scenario.workload, len(program.ranks)
    every = program.rules.sync_every
    for walk in _walks(program):
        reduced = list(walk.of_kind("collective"))
        if [its.bucket for _, its in reduced] != list(range(len(reduced))) or any(its.every != every for _, its in reduced):
            raise _broken(law, f"routine {walk.number}: buckets are not numbered in their order, or not reduced every {every} steps")
        if bool(reduced) != (scenario.strategy.reduction is not None and ranks > 1):
            raise _broken(law, f"routine {walk.number}: has {len(reduced)} buckets among {ranks} ranks")
        if not reduced:
            continue
        apply = [index for index in walk.computes if walk.operations[index].apply]
        if every > 1:
            if len(reduced) > 1 or not _same(reduced[0][1].size_bytes, load.parameter_bytes) or not set(apply) & set(reduced[0][1].after):
                raise _broken(law, f"{walk.place(reduced[0][0])} does not average all variables, after the update")
            continue
        # (n - 1) S of a sparse gradient are gathered, 2 (n - 1) / n S of a dense one reduced
        sizes = [
            variable.gradient_bytes(scenario.batch) * (ranks / 2 if variable.sparse_bytes_per_sample is not None else 1.0)
            for variable in load.variables
        ]
        last = 0
        for index, its in reduced:
            compute = walk.compute_before(index)
            if compute is None or not _same(walk.backward_by[compute], its.ready):
                raise _broken(law, f"{walk.place(index)} does not begin when {its.ready:g} of the backward pass are done")
            first, size_bytes = last, 0.0
            while last < len(sizes) and not _same(size_bytes, its.size_bytes) and size_bytes < its.size_bytes:
                size_bytes += sizes[last]
                last += 1
            if not _same(size_bytes, its.size_bytes) or last == first:
                raise _broken(law, f"{walk.place(index)} has {its.size_bytes:g} bytes, which are no gradients from number {first} on")
            if its.ready < load.variables[last - 1].ready - _SLACK:
                raise _broken(law, f"{walk.place(index)} begins before its last gradient is ready")
        if last < len(sizes):
            raise _broken(law, f"routine {walk.number}: gradients from number {last} on enter no bucket")
        if any(set(walk.operations[index].after) != {number for number, _ in reduced} for index in apply[:1]):
            raise _broken(law, f"{walk.place(apply[0])} does not wait for all buckets")


def all_reduces_move_enough(program: Program, scenario: Scenario) -> None:
    """The messages of an all-reduce move all that any algorithm must: 2 (n - 1) / n of the buffer a rank, and everybody's once."""
    streams = Streams(scenario.run.seed, 0)
    sizes = {its.size_bytes for walk in _walks(program) for _, its in walk.of_kind("collective")}
    collective = collective_of(scenario, scenario.strategy.reduction, streams) if sizes else None
    if collective is None:
        return
    ranks = len(program.ranks)
    least = least_shares("all-reduce", ranks)
    for size_bytes in sorted(sizes):
        moved = shares(collective.plan(size_bytes).schedule)
        place = f"an all-reduce of {size_bytes:g} bytes among {ranks} ranks"
        if moved.sent.sum() < least.total * (1 - _SLACK):
            raise _broken(all_reduces_move_enough, f"{place} moves {moved.sent.sum():g} buffers, not {least.total:g}")
        for name, its, bound in (("sends", moved.sent, least.sent), ("receives", moved.received, least.received)):
            if np.any(its < bound * (1 - _SLACK)):
                raise _broken(all_reduces_move_enough, f"{place}: rank {int(np.argmin(its - bound))} {name} {its.min():g} buffers")
        both = moved.sent + moved.received
        if np.any(both < 2 * (ranks - 1) / ranks * (1 - _SLACK)):
            raise _broken(all_reduces_move_enough, f"{place}: {both.min():g} buffers cross the links of rank {int(np.argmin(both))}")


def exchanges_carry_the_buckets(program: Program, scenario: Scenario) -> None:
    """Where the messages of collectives are simulated one by one, each goes from its rank to its rank, and together they are enough."""
    law = exchanges_carry_the_buckets
    if not program.exchanges:
        return
    reduced = [its for _, its in _walks(program)[0].of_kind("collective")]
    if len(reduced) != len(program.exchanges):
        raise _broken(law, f"there are {len(program.exchanges)} exchanges for {len(reduced)} buckets")
    group = program.groups[0].tolist()
    for number, (its, exchange) in enumerate(zip(reduced, program.exchanges, strict=True)):
        tables = exchange.tables
        for lane, (source, target, path) in enumerate(zip(tables.source, tables.target, exchange.path.tolist(), strict=True)):
            ends = (_End(f"device {group[end]}", f"node {scenario.layout.node_of(group[end])}", in_device=True) for end in (source, target))
            _check_path(law, f"exchange {number}, lane {lane}", program, scenario, path, *ends)
        sent_bytes = np.bincount(tables.source, tables.messages * exchange.size_bytes, len(group))
        least = least_shares("all-reduce", len(group))
        if sent_bytes.sum() < least.total * its.size_bytes * (1 - _SLACK) or np.any(
            sent_bytes < least.sent * its.size_bytes * (1 - _SLACK)
        ):
            raise _broken(law, f"exchange {number} sends {sent_bytes.sum():g} bytes, of which {sent_bytes.min():g} leave one rank")


PROGRAM_LAWS: Sequence[Callable[[Program, Scenario], None]] = (
    tables_fit_together,
    steps_begin_and_end,
    gates_have_rules,
    passes_are_whole,
    messages_go_where_they_say,
    what_departs_lands,
    what_is_sent_to_ranks_is_received,
    gradients_reach_their_server_once,
    variables_are_pulled_once,
    servers_work_as_measured,
    gradients_enter_one_bucket,
    all_reduces_move_enough,
    exchanges_carry_the_buckets,
)
"""Every law that :func:`check_program` checks."""
