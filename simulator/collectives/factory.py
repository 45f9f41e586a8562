"""Makes the collective for an algorithm (or ``auto``), a protocol and a group of ranks.

Names of algorithms are those of ``simulator.program.operations.ALGORITHMS``, for a strategy's key also ``Algorithm`` of
``simulator.strategies.all_reduce``: a new one is named there, and built here in ``_at_once`` and ``_by_trial``. Two schedules stand
here as well: reduction to one device, and hierarchical copy. Copies between hosts and devices: ``simulator.engine.production.fusing``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np

from simulator.collectives.aggregation import switches_of_trees, trees_of
from simulator.collectives.auto import Auto
from simulator.collectives.chain import Chain, chain_schedule, pieces_of
from simulator.collectives.collective import Collective, Memory, Scheduled
from simulator.collectives.direct import Direct, direct_schedule
from simulator.collectives.double_tree import DoubleTree
from simulator.collectives.halving_doubling import HalvingDoubling, halving_doubling_schedule
from simulator.collectives.hierarchical import Hierarchical, hierarchical_schedule
from simulator.collectives.nvls import Nvls
from simulator.collectives.ring import Rings, bidirectional_ring_schedule, rail_ring_schedule, ring_schedule
from simulator.collectives.sharp import Sharp
from simulator.collectives.trial import ByTrial
from simulator.collectives.use import Use
from simulator.collectives.wire import Cabling, Group, Wire
from simulator.program.operations import ALGORITHMS, Operation, algorithms_of
from simulator.program.program import Integers
from simulator.program.schedule import Await, Lane, Schedule
from simulator.program.switches import SwitchKind, number_of
from simulator.spec.cluster import Cluster


class _Request(NamedTuple):
    """One algorithm by one protocol; see :func:`collective_for`."""

    operation: Operation
    algorithm: str
    protocol: str
    wire: Wire
    root: int
    chunk_bytes: float
    rails: int
    cluster: Cluster


def collective_for(
    algorithm: str,
    protocol: str,
    cluster: Cluster,
    group: Group,
    fresh: Callable[[], Cabling],
    chunk_bytes: float,
    network: Callable[[], str] | None = None,
    *,
    operation: Operation = "all-reduce",
    root: int = 0,
    beside: tuple[Group, ...] = (),
) -> Collective:
    """A collective of any size in one group of ranks.

    Parameters
    ----------
    algorithm
        A name of :data:`~simulator.program.operations.ALGORITHMS`, or ``auto``: whichever
        is fastest for each size. With one of NCCL's protocols it chooses among what NCCL
        has, otherwise among all that are sensible.
    protocol, chunk_bytes
        As in :class:`~simulator.strategies.strategy.Reduction`; chunks are also the pieces of a broadcast
        and of a reduction.
    cluster
        Its protocols count.
    group
        Who takes part.
    fresh
        Gives the network, without connections.
    network
        Names it, where there may be more collectives on the very same one: what takes a
        trial run is then found out once for all of them in this process.
    operation
        What is done.
    root
        Place in the group of the root of a broadcast or reduction.
    beside
        Groups of the same shape that do the same at the same time, over ports that they
        may share with this one; see :class:`~simulator.collectives.wire.Wire`.

    Raises
    ------
    ValueError
        The operation has no such algorithm, the root is not in the group, or a group beside
        it has another shape or a rank of this one.
    """
    names = algorithms_of(operation)
    if algorithm not in (*names, "auto"):
        raise ValueError(f"{operation} has no algorithm {algorithm!r}; it has {', '.join(names)} and auto")
    if not 0 <= root < len(group):
        raise ValueError(f"a group of {len(group)} ranks has no root {root}; take 0 to {len(group) - 1}")
    if beside:
        ranks = np.concatenate([each.numbers for each in (group, *beside)])
        if any(len(each) != len(group) or each.neighbours != group.neighbours for each in beside) or len(np.unique(ranks)) < len(ranks):
            raise ValueError("groups beside one another must have the same shape, and no rank in common")
    transport = cluster.transport
    wires = {
        kind: Wire(
            fresh,
            getattr(cluster.protocols, kind) if kind != "none" else None,
            group,
            beside,
            transport.cpu_per_message_s,
            transport.copy_per_byte_s,
            cluster.shared_cores,
            cluster.time_slice_s,
        )
        for kind in (_sensible_protocols(cluster) if protocol == "auto" else (protocol,))
    }
    algorithms = _sensible(operation, cluster, group, of_nccl=protocol != "none") if algorithm == "auto" else (algorithm,)
    rails = _rails(cluster, group)
    # hosts that work on each message meet in ways that no recurrence knows
    build = _by_trial if transport.works_on_messages and not group.on_one_node else _at_once
    candidates = [
        build(_Request(operation, name, kind, wire, root, chunk_bytes, rails, cluster))
        for name in algorithms
        for kind, wire in wires.items()
        if name not in IN_SWITCHES or kind in ("none", "simple")
    ]
    for candidate in candidates:
        if network is not None and candidate.aligned:
            kind = candidate.choice(0.0)
            candidate.remember_in(_memory((operation, kind.algorithm, kind.protocol, group, beside, root, chunk_bytes, network())))
    if len(candidates) == 1:
        return candidates[0]
    use = Use(fresh())
    for candidate in candidates:
        candidate.count_in(use)
    return Auto(candidates)


@lru_cache(maxsize=32)
def _memory(key: tuple[object, ...]) -> Memory:  # noqa: ARG001 - what it is remembered by
    """What is known of one kind of collective on one network."""
    return {}


def _sensible_protocols(cluster: Cluster) -> tuple[str, ...]:
    """The protocols among which is chosen, that which is quick to evaluate first."""
    among = cluster.protocols.auto
    return tuple(kind for kind in ("simple", "ll128", "ll") if among is None or kind in among)


def _sensible(operation: Operation, cluster: Cluster, group: Group, *, of_nccl: bool) -> tuple[str, ...]:
    """The algorithms that may be the fastest, those that are quick to evaluate first."""
    if operation != "all-reduce":
        return ("ring",) if operation != "all-to-all" else ("direct",)
    sensible = ["ring", "halving-doubling", "hierarchical", "reduce-to-one-device", "hierarchical-copy", "double-binary-tree"]
    if not group.on_one_node:
        sensible = [name for name in sensible if name not in ("reduce-to-one-device", "hierarchical-copy")]
    if group.on_one_node or group.neighbours == 1:
        sensible.remove("hierarchical")
    in_fabric = cluster.fabric is not None and cluster.fabric.sharp
    if not (in_fabric and cluster.transport.has_hosts):  # what a fabric's switches add is no work of hosts
        if cluster.nvls is not None and group.neighbours > 1:
            sensible.append("nvls")
        if in_fabric and not group.on_one_node:
            sensible.insert(1, "sharp")
    return tuple(name for name in sensible if not of_nccl or "nccl" in ALGORITHMS[operation, name].libraries)


def _rails(cluster: Cluster, group: Group) -> int:
    """How many rails the ranks of a group have in each of several nodes: rings that go by one each carry all that a node's NICs can."""
    if cluster.rails is None or group.on_one_node or group.neighbours > cluster.replicas_per_node:
        return 1
    return math.gcd(group.neighbours, max(group.neighbours * cluster.rails // cluster.replicas_per_node, 1))


def _at_once(request: _Request) -> Scheduled:
    """Evaluated for all ranks at once, where that is known."""
    operation, algorithm, protocol, wire, root, chunk_bytes, rails, _ = request
    if algorithm == "double-binary-tree":
        return DoubleTree(algorithm, protocol, wire, chunk_bytes)
    if algorithm in IN_SWITCHES:
        return _in_switches(request)
    if operation in ("broadcast", "reduce"):
        return Chain(algorithm, protocol, wire, operation, root, chunk_bytes)
    if algorithm in ("ring", "bidirectional-ring"):
        return Rings(algorithm, protocol, wire, operation, both=algorithm != "ring", rails=rails if algorithm == "ring" else 1)
    if algorithm == "halving-doubling":
        return HalvingDoubling(algorithm, protocol, wire)
    if algorithm == "hierarchical":
        return Hierarchical(algorithm, protocol, wire)
    if algorithm == "direct":
        return Direct(algorithm, protocol, wire)
    return _by_trial(request)


def _by_trial(request: _Request) -> Scheduled:
    """From trial runs in which all ranks enter together."""
    operation, algorithm, protocol, wire, root, chunk_bytes, rails, _ = request
    ranks = len(wire.group)
    if algorithm in IN_SWITCHES:
        return _in_switches(request)
    if algorithm == "double-binary-tree":
        return DoubleTree(algorithm, protocol, wire, chunk_bytes)
    if operation in ("broadcast", "reduce"):
        return ByTrial(
            algorithm, protocol, wire, lambda size_bytes: chain_schedule(ranks, pieces_of(size_bytes, chunk_bytes), operation, root)
        )
    schedules: dict[str, Callable[[], Schedule]] = {
        "ring": lambda: (
            rail_ring_schedule(ranks, wire.group.neighbours, rails, operation) if rails > 1 else ring_schedule(ranks, operation)
        ),
        "bidirectional-ring": lambda: bidirectional_ring_schedule(ranks, operation),
        "halving-doubling": lambda: halving_doubling_schedule(ranks),
        "hierarchical": lambda: hierarchical_schedule(ranks, wire.group.neighbours),
        "reduce-to-one-device": lambda: reduce_to_one_schedule(ranks),
        "hierarchical-copy": lambda: hierarchical_copy_schedule(ranks),
        "direct": lambda: direct_schedule(ranks),
    }
    schedule = schedules[algorithm]()
    return ByTrial(algorithm, protocol, wire, lambda _: schedule)


IN_SWITCHES = "sharp", "nvls"
"""All-reduces in which switches add; NCCL does them by its protocol Simple alone (``src/graph/tuning.cc``)."""


def _in_switches(request: _Request) -> Scheduled:
    """Added by switches of the fabric, or inside nodes."""
    algorithm, wire, cluster, group = request.algorithm, request.wire, request.cluster, request.wire.group
    by_fabric = algorithm == "sharp" or (cluster.fabric is not None and cluster.fabric.sharp and not group.on_one_node)
    if algorithm == "sharp" and len(group) == group.neighbours:
        return Hierarchical(algorithm, request.protocol, wire)  # inside a node there is nothing for the fabric to add
    if algorithm == "nvls" and group.neighbours == 1 and not by_fabric:
        return DoubleTree(algorithm, request.protocol, wire, request.chunk_bytes)  # a device alone has nothing for its switch to add
    trees = trees_of(cluster, group) if by_fabric else ()
    if by_fabric:  # groups beside it whose nodes hang on other leaves have trees of another shape
        wire = replace(wire, beside=tuple(other for other in wire.beside if trees_of(cluster, other) == trees))
    if algorithm == "sharp" or group.neighbours == 1:
        return Sharp(algorithm, request.protocol, replace(wire, switches=partial(switches_of_trees, cluster)), trees, request.chunk_bytes)
    assert cluster.nvls is not None
    wire = replace(wire, switches=partial(_switches_of_nodes, cluster, by_fabric), inner_share=cluster.nvls.efficiency)
    return Nvls(algorithm, request.protocol, wire, trees, request.chunk_bytes)


def _switches_of_nodes(cluster: Cluster, by_fabric: bool, group: Group) -> Integers:
    """What adds inside each node or island of a group, and where the fabric adds as well, its switches."""
    inside = number_of(SwitchKind.INSIDE, group.places[:: group.neighbours])
    return np.concatenate([np.atleast_1d(inside), switches_of_trees(cluster, group)]) if by_fabric else np.atleast_1d(inside)


@lru_cache(maxsize=16)
def reduce_to_one_schedule(ranks: int) -> Schedule:
    """All to rank 0, and the sum from there."""
    sums = tuple(Await(rank, 0, 1) for rank in range(1, ranks))
    lanes = [tuple(_copy(0, rank, False, sums) for rank in range(1, ranks)), *((_copy(rank, 0, True),) for rank in range(1, ranks))]
    return Schedule(ranks, 1, lanes.__getitem__)


@lru_cache(maxsize=16)
def hierarchical_copy_schedule(ranks: int) -> Schedule:
    """Two groups that follow one another in rank; the first rank of each leads it."""
    lead = ranks // 2  # of the second group; the first group's leader is rank 0
    if lead == 0:
        return reduce_to_one_schedule(ranks)
    first, second = range(1, lead), range(lead + 1, ranks)
    lanes: list[list[Lane]] = [[] for _ in range(ranks)]
    for member in first:
        lanes[member].append(_copy(member, 0, True))
    for member in second:
        lanes[member].append(_copy(member, lead, True))
    lanes[lead].append(_copy(lead, 0, True, tuple(Await(member, 0, 1) for member in second)))
    everything = (*(Await(member, 0, 1) for member in first), Await(lead, 0, 1))
    lanes[0].extend(_copy(0, to, False, everything) for to in (lead, *first))
    lanes[lead].extend(_copy(lead, member, False, (Await(0, 0, 1),)) for member in second)
    return Schedule(ranks, 1, [tuple(some) for some in lanes].__getitem__)


def _copy(source: int, target: int, adds: bool, awaits: tuple[Await, ...] = ()) -> Lane:
    return Lane(source, target, 0, 1, 1, _whole, int(adds), awaits)


def _whole(_: int) -> int:
    return 0
