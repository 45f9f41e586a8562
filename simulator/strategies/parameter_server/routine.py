"""A step of a worker of parameter servers, as a program.

Every worker repeats: pull all variables, compute on its batch, push each gradient as it
becomes ready in the backward pass, wait. Asynchronously (Dean et al., "Large Scale
Distributed Deep Networks", 2012) it goes on once its last gradient is applied;
synchronously when an update lets it.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from simulator.program.program import (
    Asynchronous,
    Client,
    Cores,
    Devices,
    Dispatcher,
    Integers,
    Names,
    Operation,
    Program,
    Ranks,
    Routine,
    Rules,
    Servers,
    Synchronous,
)
from simulator.program.wiring import Wiring
from simulator.records import OWN, Place
from simulator.rng import Streams
from simulator.scenario import Scenario
from simulator.strategies.parameter_server.tensors import Tensors, tensors_of
from simulator.strategy import ParameterServer

__all__ = ["compile_servers"]

_WORKER, _DEVICE, _HOST = Place("worker", OWN), Place("device", OWN), Place("host", OWN)
_CLIENT = Place("client")


class _Slots(NamedTuple):
    """Where a rank's paths stand: from and to each server, and if there are such, between host and device, and from the client."""

    down: int
    up: int
    into: int | None
    out: int | None
    feed: int | None


def compile_servers(scenario: Scenario, streams: Streams) -> Program:
    """The program of workers and parameter servers.

    Parameters
    ----------
    scenario
        As drawn for a replication.
    streams
        Choose the routes of connections.
    """
    strategy, cluster, ranks = scenario.strategy, scenario.cluster, scenario.replicas
    assert isinstance(strategy, ParameterServer)
    wiring = Wiring(
        cluster,
        streams,
        first_server_node=scenario.worker_nodes if strategy.server_placement == "dedicated" else 0,
        client_node=scenario.nodes_needed - 1 if strategy.replication == "in-graph" else None,
    )
    slots, path = _paths(wiring, scenario, strategy)
    seat, server_seat = _seats(wiring, scenario, strategy)
    ports, links, paths, hosts = wiring.tables()
    on_cores = cluster.shared_cores is not None
    tensors = tensors_of(scenario)
    return Program(
        ports=ports,
        links=links,
        paths=paths,
        hosts=hosts,
        devices=Devices(
            -(-ranks // cluster.replicas_per_device),
            on_cores and cluster.device_is_host,
            cluster.overlap_slowdown,
            scenario.workload.busy_core_slowdown,
        ),
        servers=Servers(strategy.servers, server_seat, on_cores),
        ranks=Ranks(
            device=np.arange(ranks) // cluster.replicas_per_device,
            copy=np.arange(ranks),
            routine=np.zeros(ranks, dtype=np.int64),
            seat=seat,
            path=path,
            names=Names(ranks, lambda rank: f"worker {rank}"),
        ),
        routines=(_routine(scenario, strategy, tensors, slots),),
        rules=_rules(scenario, strategy, tensors),
        transport=cluster.transport,
        cores=Cores(cluster.shared_cores, cluster.time_slice_s) if cluster.shared_cores is not None else None,
        groups=(np.arange(ranks),),
    )


# -- paths -------------------------------------------------------------------------------


def _paths(wiring: Wiring, scenario: Scenario, strategy: ParameterServer) -> tuple[_Slots, Integers]:
    """The paths of every rank, shape (ranks, slots)."""
    ranks, servers = scenario.replicas, strategy.servers
    rank = np.arange(ranks)
    everyone, server = np.repeat(rank, servers), np.tile(np.arange(servers), ranks)
    columns = [wiring.from_server(server, everyone).reshape(ranks, servers), wiring.to_server(everyone, server).reshape(ranks, servers)]
    into = out = feed = None
    if scenario.cluster.host_link is not None:
        into, out = 2 * servers, 2 * servers + 1
        columns += [wiring.to_device(rank)[:, None], wiring.from_device(rank)[:, None]]
    if strategy.replication == "in-graph":
        feed = sum(column.shape[1] for column in columns)
        columns.append(wiring.from_client(rank)[:, None])
    return _Slots(0, servers, into, out, feed), np.concatenate(columns, axis=1)


def _seats(wiring: Wiring, scenario: Scenario, strategy: ParameterServer) -> tuple[Integers, Integers]:
    """The seats of ranks and of servers on devices that several of them use; -1 where there is none."""
    cluster, ranks = scenario.cluster, scenario.replicas
    device = np.arange(ranks) // cluster.replicas_per_device
    neighbour = np.arange(strategy.servers) * cluster.replicas_per_node  # the first replica on a server's node
    on_devices = cluster.servers_on_devices and strategy.server_placement == "colocated"
    with_rank = (neighbour < ranks) & on_devices
    seat, server_seat = np.full(ranks, -1), np.full(strategy.servers, -1)
    shared = np.isin(device, device[neighbour[with_rank]]) | (cluster.replicas_per_device > 1)
    if shared.any():
        seat[shared] = wiring.on_device(device[shared])
        server_seat[with_rank] = wiring.on_device(device[neighbour[with_rank]])
    return seat, server_seat


# -- the routine -------------------------------------------------------------------------


def _routine(scenario: Scenario, strategy: ParameterServer, tensors: Tensors, slots: _Slots) -> Routine:
    """Read, compute as what is read comes in, push what becomes ready, wait for the update."""
    operations = [Operation(kind="gate", name="turn")]

    def then(operation: Operation) -> int:
        operations.append(operation)
        return len(operations) - 1

    if slots.feed is not None:
        prepared = then(Operation(kind="gate", name="prepare", after=(0,)))
        input_bytes = (scenario.workload.input_bytes_per_sample or 0.0) * scenario.batch
        then(_send("input", slots.feed, input_bytes, _CLIENT, _WORKER, (prepared,), feeds=True))
    first = len(operations)
    pulled = [
        then(_send(f"pull {one.index}", slots.down + one.server, one.size_bytes, Place("server", one.server), _WORKER, (0,),
                   departs=True, lands=slots.into is None))
        for one in tensors.variables
    ]  # fmt: skip
    shuffled = (first, len(operations)) if strategy.pulls == "random" and len(pulled) > 1 else (0, 0)
    if slots.into is not None:
        pulled = [
            then(_send(f"to device {one.index}", slots.into, one.size_bytes, _HOST, _DEVICE, (pull,), lands=True))
            for one, pull in zip(tensors.variables, pulled, strict=True)
        ]
    needs: tuple[int, ...] = ()
    for number, (share, needed) in enumerate(tensors.forward):
        needs = tuple(pulled[index] for index in sorted(needed))
        if not number:
            needs = (then(Operation(kind="gate", name="input", after=needs)),)
        following = tensors.forward[number + 1][0] if number + 1 < len(tensors.forward) else 1.0
        then(Operation(kind="compute", name="forward", after=needs, forward=following - share, joins=True))
    served: list[int] = []
    done = 0.0
    for number, (ready, indices) in enumerate(tensors.backward):
        name = "backward" if number else "forward and backward"
        computed = then(Operation(kind="compute", name=name, backward=ready - done))
        done = ready
        for gradient in (tensors.gradients[index] for index in indices):
            copied = computed
            if slots.out is not None:
                copied = then(_send(f"from device {gradient.index}", slots.out, gradient.size_bytes, _DEVICE, _HOST,
                                    (computed,), departs=True))  # fmt: skip
            pushed = then(_send(f"push {gradient.index}", slots.up + gradient.server, gradient.size_bytes, _WORKER,
                                Place("server", gradient.server), (copied,), departs=slots.out is None, lands=True))  # fmt: skip
            served.append(
                then(
                    Operation(
                        kind="serve",
                        name=f"{'accumulate' if strategy.mode == 'sync' else 'apply'} {gradient.index}",
                        after=(pushed,),
                        server=gradient.server,
                        tensor=gradient.index,
                        cost_s=gradient.cost_s,
                    )
                )
            )
    then(Operation(kind="gate", name="update", after=tuple(served)))
    return Routine(tuple(operations), shuffled)


def _send(
    name: str,
    slot: int,
    size_bytes: float,
    source: Place,
    target: Place,
    after: tuple[int, ...],
    *,
    departs: bool = False,
    lands: bool = False,
    feeds: bool = False,
) -> Operation:
    return Operation(kind="send", name=name, after=after, slot=slot, size_bytes=size_bytes, source=source, target=target,
                     departs=departs, lands=lands, feeds=feeds)  # fmt: skip


# -- the rules ---------------------------------------------------------------------------


def _rules(scenario: Scenario, strategy: ParameterServer, tensors: Tensors) -> Rules:
    run, ranks = scenario.run, scenario.replicas
    dispatcher = None
    if strategy.coordinator is not None:
        dispatcher = Dispatcher(strategy.coordinator.dispatch_s, strategy.coordinator.latency_s)
    client = Client(float(scenario.workload.input(scenario.batch))) if strategy.replication == "in-graph" else None
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
