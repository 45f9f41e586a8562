"""Parts of a step with parameter servers: its messages, their paths, operations and rules.

Variables are cut into shards, placed on servers and grouped by the rules of ``simulator.spec.gradients``; tests/oracles/programs holds
programs to them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from simulator.base.compact import compact
from simulator.base.records import OWN, Place
from simulator.base.rng import Streams
from simulator.program.program import (
    Asynchronous,
    Client,
    Dispatcher,
    Integers,
    Kind,
    Operation,
    Program,
    Routine,
    Rules,
    Servers,
    Synchronous,
)
from simulator.program.wiring import Wiring
from simulator.spec.cluster import Cluster
from simulator.spec.gradients import place, shards_of
from simulator.strategies.assembling import assembled, pace_together
from simulator.strategies.setup import Layout, Setup

if TYPE_CHECKING:
    from simulator.strategies.parameter_server import ParameterServer

_WORKER, _DEVICE, _HOST = Place("worker", OWN), Place("device", OWN), Place("host", OWN)
_CLIENT = Place("client")


class Message(NamedTuple):
    """One message between a worker and a server: a tensor, a shard, or everything on the server.

    Attributes
    ----------
    number
        From 0 on: of a gradient in the order in which they become ready, of a variable in that in which they are needed.
    server
        Where it goes, or comes from.
    size_bytes
        What travels.
    cost_s
        Of a gradient: service time at the server, to apply it or add it to others.
    whole_bytes
        Of a gradient: what is served, as much as travels, or what compression has made of it.
    unpack_s
        Of a gradient: time at the server to make it whole again.
    tensors
        Of the model, that go as one.
    """

    number: int
    server: int
    size_bytes: float
    cost_s: float = 0.0
    whole_bytes: float = 0.0
    unpack_s: float = 0.0
    tensors: float = 1.0


Cut = tuple[float, Collection[int]]
"""A point of a pass, as a share of it, and the messages that go (or must have come) there."""


@dataclass(frozen=True)
class Tensors:
    """All messages of a step.

    Attributes
    ----------
    gradients
        In the order in which they become ready.
    backward
        Shares of the backward pass, rising, with the gradients ready then.
    variables
        In the order in which the forward pass needs them.
    forward
        Shares of the forward pass, rising, with the variables needed to go on from there.
    """

    gradients: tuple[Message, ...] = ()
    backward: tuple[Cut, ...] = ()
    variables: tuple[Message, ...] = ()
    forward: tuple[Cut, ...] = ()


def tensors_of(setup: Setup, strategy: ParameterServer) -> Tensors:
    """Cut, place and group the variables of a training.

    A variable is needed in the forward pass where the backward pass would produce its
    gradient if it ran the other way: at share 1 - ready.
    """
    load, batch, compression = setup.workload, setup.batch, strategy.compression
    whole = [each for variable in load.variables for each in variable.each]
    shards = [shards_of(variable, strategy.partitioner) for variable in whole]
    created = sorted(range(len(shards)), key=lambda number: whole[number].creation_index)
    by_traffic = strategy.variable_placement == "traffic"
    loads = [each.pull_bytes(batch) + each.gradient_bytes(batch) if by_traffic else each.size_bytes for each in whole]
    sizes = [share * loads[number] for number in created for share in shards[number]]
    placed = iter(place(sizes, strategy.servers, strategy.variable_placement))
    homes = {number: [next(placed) for _ in shards[number]] for number in created}
    gradients: list[Message] = []
    variables: list[Message] = []
    ready_at: list[float] = []
    last = whole[-1].ready
    for number, variable in enumerate(whole):
        # the last gradient ends the backward pass, whatever the clock of the measurement said
        ready = 1.0 if variable.ready == last else variable.ready
        for share, server in zip(shards[number], homes[number], strict=True):
            size = variable.gradient_bytes(batch) * share
            sent, unpack_s = size, 0.0
            if compression is not None:
                sent = math.fsum(compression.sent_bytes(variable, batch)) * share
                unpack_s = compression.decompress_s((variable,), None) * share
            gradients.append(Message(len(gradients), server, sent, load.server(size), size, unpack_s))
            variables.append(Message(len(variables), server, variable.pull_bytes(batch) * share))
            ready_at.append(ready)
    if per_server := setup.run.grouping == "per-server":
        gradients = _by_server(gradients)
        ready_at = [1.0] * len(gradients)
    if per_server or strategy.pulls == "together":
        variables = _by_server(variables)
        needed_at = [0.0] * len(variables)
    else:
        first = load.first_pass(batch)  # of several micro-batches, the first needs them
        needed_at = [(1.0 - ready) * first for ready in reversed(ready_at)]
        needed_at[0] = 0.0  # the first layer begins the pass
        needed = list(zip(needed_at, reversed(variables), strict=True))
        if (strategy.pulls == "forward" or len(set(needed_at)) == 1) and _alike_in_one_message(setup):
            needed = _together(needed)
        variables = [variable._replace(number=number) for number, (_, variable) in enumerate(needed)]
        needed_at = [share for share, _ in needed]
    forward = tuple((share, frozenset(indices)) for share, indices in _cuts(needed_at))
    return Tensors(tuple(gradients), _cuts(ready_at), tuple(variables), forward)


def traffic_of(tensors: Tensors, servers: int) -> list[float]:
    """Bytes that a step of one worker pulls from each server and pushes to it."""
    traffic = [0.0] * servers
    for message in (*tensors.variables, *tensors.gradients):
        traffic[message.server] += message.size_bytes
    return traffic


def _alike_in_one_message(setup: Setup) -> bool:
    """Tell whether variables of one server, all needed at once, have come when one message with all of them would have."""
    transport = setup.cluster.transport
    return transport.discipline == "fair" and not transport.works_on_messages and setup.cluster.host_link is None


def _together(needed: Iterable[tuple[float, Message]]) -> list[tuple[float, Message]]:
    """Variables of one server that are needed at the same point, as one message."""
    sizes: dict[tuple[float, int], float] = {}
    for share, variable in needed:
        key = share, variable.server
        sizes[key] = sizes.get(key, 0.0) + variable.size_bytes
    return [(share, Message(0, server, size)) for (share, server), size in sizes.items()]


def _by_server(messages: Iterable[Message]) -> list[Message]:
    """Return what each server has as one message, servers in the order of their first."""
    of_each: dict[int, list[Message]] = {}
    for message in messages:
        of_each.setdefault(message.server, []).append(message)
    sums = [[math.fsum(column) for column in zip(*(message[2:] for message in here), strict=True)] for here in of_each.values()]
    return [Message(index, server, *amounts) for index, (server, amounts) in enumerate(zip(of_each, sums, strict=True))]


def _cuts(shares: Iterable[float]) -> tuple[tuple[float, tuple[int, ...]], ...]:
    """Messages by the share of a pass that they belong to."""
    cuts: dict[float, list[int]] = {}
    for index, share in enumerate(shares):
        cuts.setdefault(share, []).append(index)
    return tuple((share, tuple(indices)) for share, indices in cuts.items())


# -- the program -------------------------------------------------------------------------


def program_of(setup: Setup, strategy: ParameterServer, streams: Streams) -> Program:
    """Pull all variables, compute as they come, push each gradient as it becomes ready, wait."""
    cluster, layout, tensors = setup.cluster, setup.layout, tensors_of(setup, strategy)
    wiring = Wiring(
        cluster,
        streams,
        first_server_node=0 if layout.servers_beside else layout.worker_nodes,
        client_node=layout.client_node,
        device_pace=pace_together(setup),
        processes=True,
    )
    path = _paths(wiring, cluster, layout)
    seat, server_seat = _seats(wiring, cluster, layout)
    servers = Servers(layout.servers, server_seat, on_cores=cluster.shared_cores is not None)
    routine, rules = _routine(setup, strategy, tensors), _rules(setup, strategy, tensors)
    return replace(assembled(setup, wiring, "worker", routine, rules, seat, path), servers=servers)


def _paths(wiring: Wiring, cluster: Cluster, layout: Layout) -> Integers:
    """The paths of every rank: from and to each server, between device and host, and from the client; shape (ranks, slots)."""
    ranks, servers = layout.replicas, layout.servers
    rank = np.arange(ranks)
    everyone, server = np.repeat(rank, servers), np.tile(np.arange(servers), ranks)
    columns = [wiring.from_server(server, everyone).reshape(ranks, servers), wiring.to_server(everyone, server).reshape(ranks, servers)]
    if cluster.host_link is not None:
        columns += [wiring.to_device(rank)[:, None], wiring.from_device(rank)[:, None]]
    if layout.client:
        columns.append(wiring.from_client(rank)[:, None])
    return np.concatenate(columns, axis=1)


def _seats(wiring: Wiring, cluster: Cluster, layout: Layout) -> tuple[Integers, Integers]:
    """The seats of ranks and of servers on devices that several of them use; -1 where there is none."""
    ranks = layout.replicas
    device = np.arange(ranks) // cluster.replicas_per_device
    neighbour = np.arange(layout.servers) * cluster.replicas_per_node  # the first replica on a server's node
    on_devices = cluster.servers_on_devices and layout.servers_beside
    with_rank = (neighbour < ranks) & on_devices
    seat, server_seat = np.full(ranks, -1), np.full(layout.servers, -1)
    shared = np.isin(device, device[neighbour[with_rank]]) | (cluster.replicas_per_device > 1)
    if shared.any():
        seat[shared] = wiring.on_device(device[shared])
        server_seat[with_rank] = wiring.on_device(device[neighbour[with_rank]])
    return compact(seat), server_seat


def _routine(setup: Setup, strategy: ParameterServer, tensors: Tensors) -> Routine:
    """Read, compute as what is read comes in, push what becomes ready, wait for the update."""
    operations: list[Operation] = []

    def then(kind: Kind, name: str, after: Sequence[int] = (), **keys: Any) -> int:
        operations.append(Operation(kind=kind, name=name, after=tuple(after), **keys))
        return len(operations) - 1

    servers, host = strategy.servers, setup.cluster.host_link is not None
    into, out = 2 * servers, 2 * servers + 1  # slots, behind those from and to each server
    then("gate", "turn")
    if setup.layout.client:
        # a batch that takes the client no time leaves it before the variables leave their servers
        prepared = then("gate", "prepare", (0,)) if setup.workload.input(setup.batch) else 0
        input_bytes = (setup.workload.input_bytes_per_sample or 0.0) * setup.batch
        slot = 2 * servers + 2 * host
        then("send", "input", (prepared,), slot=slot, size_bytes=input_bytes, source=_CLIENT, target=_WORKER, feeds=True)
    first = len(operations)
    pulled = [
        then("send", "pull", (0,), number=variable.number, slot=variable.server, size_bytes=variable.size_bytes, tensors=variable.tensors,
             source=Place("server", variable.server), target=_WORKER, departs=True, lands=not host)
        for variable in tensors.variables
    ]  # fmt: skip
    shuffled = (first, len(operations)) if strategy.pulls == "random" and len(pulled) > 1 else (0, 0)
    if host:
        pulled = [
            then("send", "to device", (pull,), number=variable.number, slot=into, size_bytes=variable.size_bytes, source=_HOST,
                 target=_DEVICE, lands=True)
            for variable, pull in zip(tensors.variables, pulled, strict=True)
        ]  # fmt: skip
    for number, (share, needed) in enumerate(tensors.forward):
        needs = [pulled[index] for index in sorted(needed)]
        if not number:
            needs = [then("gate", "input", needs)]
        following = tensors.forward[number + 1][0] if number + 1 < len(tensors.forward) else 1.0
        then("compute", "forward", needs, forward=following - share, joins=True)
    served: list[int] = []
    done = 0.0
    for number, (ready, indices) in enumerate(tensors.backward):
        computed = then("compute", "backward" if number else "forward and backward", backward=ready - done)
        done = ready
        for gradient in (tensors.gradients[index] for index in indices):
            copied = computed
            if host:
                copied = then("send", "from device", (computed,), number=gradient.number, slot=out, size_bytes=gradient.size_bytes,
                              source=_DEVICE, target=_HOST, departs=True)  # fmt: skip
            pushed = then("send", "push", (copied,), number=gradient.number, slot=servers + gradient.server,
                          size_bytes=gradient.size_bytes, tensors=gradient.tensors, source=_WORKER,
                          target=Place("server", gradient.server), departs=not host, lands=True)  # fmt: skip
            name = "accumulate" if strategy.mode == "sync" else "apply"
            served.append(then("serve", name, (pushed,), number=gradient.number, server=gradient.server, tensor=gradient.number,
                               cost_s=gradient.cost_s + gradient.unpack_s))  # fmt: skip
    then("gate", "update", served)
    return Routine(tuple(operations), shuffled)


def _rules(setup: Setup, strategy: ParameterServer, tensors: Tensors) -> Rules:
    run, ranks = setup.run, setup.layout.replicas
    dispatcher = None
    if strategy.coordinator is not None:
        dispatcher = Dispatcher(strategy.pace.dispatch_s, strategy.pace.latency_s)
    input_s = float(setup.workload.input(setup.batch)) if strategy.replication == "in-graph" else 0.0
    client = Client(input_s) if input_s else None
    if strategy.mode == "sync":
        # an update needs as many workers to its end; with backups some make more steps than others
        updates = Synchronous(
            required=ranks - strategy.backup_workers,
            cancel=strategy.late_workers == "cancel",
            server=tuple(gradient.server for gradient in tensors.gradients),
            cost_s=tuple(gradient.cost_s for gradient in tensors.gradients),
        )
        return Rules(client=client, updates=updates)
    parts = Counter(gradient.server for gradient in tensors.gradients)
    each = run.sharing == "each-its-own"
    return Rules(
        steps_shared=run.total_steps(ranks) if run.drain and not each else None,
        steps_each=run.steps if each else None,
        closes=not run.drain,
        bound=strategy.bound,
        dispatcher=dispatcher,
        client=client,
        updates=Asynchronous(tuple(parts[server] for server in range(strategy.servers))),
    )
