"""Puts a strategy's program together: its tables, devices that several replicas share, and the input pipelines.

Every strategy ends with :func:`assembled`. Operations of a step come from the strategy itself, ports and paths from
``simulator.program.wiring``.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from simulator.base.compact import Names, numbers
from simulator.base.rng import Streams
from simulator.collectives.collective import Collective
from simulator.collectives.factory import collective_for
from simulator.collectives.wire import Group
from simulator.program.program import Cores, Devices, Integers, Program, Ranks, Routine, Rules, Servers
from simulator.program.wiring import Wiring
from simulator.strategies.pipelines import feed_of
from simulator.strategies.setup import Setup

if TYPE_CHECKING:
    from simulator.strategies.strategy import Reduction


def pace_together(setup: Setup) -> float:
    """Combined speed of all replicas on a device relative to a single one."""
    return setup.cluster.pace_together(setup.workload.busy_share(setup.batch))


def crowding(setup: Setup) -> float:
    """Slowdown of a replica's compute while all others on its device compute too."""
    return setup.cluster.replicas_per_device / pace_together(setup)


def device_of(setup: Setup) -> Integers:
    """The device that each replica computes on, shape (replicas,)."""
    replica = np.arange(setup.layout.ranks, dtype=np.int32)
    each = setup.cluster.replicas_per_device
    return replica // each if each > 1 else replica


def seats(setup: Setup, wiring: Wiring) -> Integers:
    """The seats of replicas on devices that several of them share; -1 where each has its own."""
    if setup.cluster.replicas_per_device > 1:
        return wiring.on_device(device_of(setup))
    return np.broadcast_to(np.int64(-1), setup.layout.ranks)


def assembled(
    setup: Setup,
    wiring: Wiring,
    word: str,
    routines: Routine | tuple[Routine, ...],
    rules: Rules,
    seat: Integers,
    path: Integers | None = None,
    peer: Integers | None = None,
    *,
    slowdown: float | None = None,
    routine_of: Integers | None = None,
    copy_of: Integers | None = None,
) -> Program:
    """The program of ranks without servers, all in one group; a strategy that has servers or several groups replaces those parts.

    Parameters
    ----------
    setup
        What is trained, and where.
    wiring
        Has all paths by now.
    word
        What records call a rank.
    routines, rules
        What ranks do in a step, and what is no graph.
    seat
        Of each rank, as :func:`seats` gives them.
    path
        The path of each slot, shape (ranks, slots); left out: there are none.
    peer
        The rank that each slot leads to, of the same shape; left out: they lead to none.
    slowdown
        Share by which compute slows down during messages; left out: the cluster's.
    routine_of
        Which of the routines each rank has, shape (ranks,); left out: there is one.
    copy_of
        The copy of the model that each rank is of, shape (ranks,); left out: each is one.
    """
    cluster, ranks = setup.cluster, setup.layout.ranks
    rank = np.arange(ranks, dtype=np.int32)
    own = np.empty((ranks, 0), dtype=np.int32) if path is None else numbers(path)
    feed = feed_of(setup, wiring)
    ports, links, table, hosts = wiring.tables()
    return Program(
        ports=ports,
        links=links,
        paths=table,
        hosts=hosts,
        devices=Devices(
            -(-ranks // cluster.replicas_per_device),
            cluster.shared_cores is not None and cluster.device_is_host,
            cluster.overlap_slowdown if slowdown is None else slowdown,
            setup.workload.busy_core_slowdown,
        ),
        servers=Servers(0, np.empty(0, dtype=np.int64), on_cores=False),
        ranks=Ranks(
            device=rank if cluster.replicas_per_device == 1 else device_of(setup),
            copy=rank if copy_of is None else numbers(copy_of),
            routine=np.broadcast_to(np.int64(0), ranks) if routine_of is None else numbers(routine_of),
            seat=seat,
            path=own,
            peer=np.broadcast_to(np.int64(-1), own.shape) if peer is None else peer,
            names=Names(ranks, lambda number: f"{word} {number}"),
        ),
        routines=(routines,) if isinstance(routines, Routine) else routines,
        rules=rules,
        transport=cluster.transport,
        cores=Cores(cluster.shared_cores, cluster.time_slice_s) if cluster.shared_cores is not None else None,
        groups=(rank,),
        changes=wiring.changes(),
        feed=feed,
    )


def collective_of(setup: Setup, reduction: Reduction | None, streams: Streams) -> Collective | None:
    """The collective of all replicas; none where there is nothing to reduce.

    Parameters
    ----------
    setup
        As drawn for a replication.
    reduction
        How they reduce; none: not at all.
    streams
        Choose the routes of connections.
    """
    cluster, replicas = setup.cluster, setup.layout.replicas
    if reduction is None or replicas == 1:
        return None
    return collective_for(
        reduction.algorithm,
        reduction.protocol,
        cluster,
        Group.in_order(replicas, cluster.replicas_joined),
        partial(Wiring, cluster, streams),
        reduction.pipeline_chunk_bytes,
        partial(_network, setup, streams),
        operation=reduction.does,
    )


def _network(setup: Setup, streams: Streams) -> str:
    """Return what times of collectives depend on, equal for equal networks; a new key of the cluster that changes them belongs here."""
    parts = {"devices_per_node", "intra_node", "intra_node_topology", "inter_node", "nics_per_node", "rails", "pxn",
             "islands", "nvls", "fabric", "transport", "protocols",
             "shared_cores", "time_slice_s", "intra_device", "replicas_per_device", "background"}  # fmt: skip
    cluster = setup.cluster
    network = cluster.model_dump_json(include=parts)
    links = [kind.model_dump_json(include={"nodes", "inter_node"}) for kind in cluster.node_classes]
    # routes over several spines, and loads of single links, are drawn for each replication
    fabric = cluster.fabric
    drawn = (fabric is not None and fabric.spines > 1) or (cluster.background is not None and cluster.background.each_link)
    routes = int(streams.generator("routes").integers(2**63)) if drawn else 0
    return "|".join([network, *links, str(cluster.replicas_per_node), str(routes)])
