"""Makes the collective for an algorithm (or ``auto``), a protocol and a group of ranks.

Names of algorithms are those of :data:`~simulator.program.schedule.ALGORITHMS`, for a strategy's key also ``Algorithm`` of
``simulator.strategies.all_reduce``: a new one is named there, and built here in ``_made``. Copies between hosts and devices are in
``simulator.engine.production.fusing``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np

from simulator.collectives.collective import Auto, Collective, InPieces, Memory
from simulator.collectives.pairwise import Direct, HalvingDoubling, direct_schedule, halving_doubling_schedule
from simulator.collectives.rings import Hierarchical, Rings, hierarchical_schedule, ring_schedule
from simulator.collectives.switches import Sharp, nvls, switches_of_trees, trees_of
from simulator.collectives.trees import double_tree_schedule, hierarchical_copy_schedule, reduce_to_one_schedule
from simulator.collectives.wire import Cabling, Group, Use, Wire
from simulator.program.port_names import SwitchKind, number_of
from simulator.program.program import Integers
from simulator.program.schedule import ALGORITHMS, Does, Schedule
from simulator.spec.cluster import Cluster

IN_SWITCHES = "sharp", "nvls"
"""All-reduces in which switches add; NCCL uses only its protocol Simple for them (``src/graph/tuning.cc``)."""
_OF_NCCL = "ring", "double-binary-tree", *IN_SWITCHES
"""NCCL's all-reduces (algos_of_coll in its src/device/generate.py)."""


def collective_for(
    algorithm: str,
    protocol: str,
    cluster: Cluster,
    group: Group,
    fresh: Callable[[], Cabling],
    chunk_bytes: float,
    network: Callable[[], str] | None = None,
    *,
    operation: Does = "all-reduce",
    beside: tuple[Group, ...] = (),
) -> Collective:
    """A collective of any size in one group of ranks.

    Parameters
    ----------
    algorithm
        A name of :data:`~simulator.program.schedule.ALGORITHMS`, or ``auto``: whichever
        is fastest for each size. With one of NCCL's protocols it chooses among what NCCL
        has, otherwise among all that are sensible.
    protocol, chunk_bytes
        As in :class:`~simulator.strategies.strategy.Reduction`.
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
    beside
        Parallel groups: the same shape and operation at the same time, over ports that they may share with this one; see
        :class:`~simulator.collectives.wire.Wire`.

    Raises
    ------
    ValueError
        The operation has no such algorithm, or a parallel group has another shape or a rank of this one.
    """
    names = ALGORITHMS[operation]
    if algorithm not in (*names, "auto"):
        raise ValueError(f"{operation} has no algorithm {algorithm!r}; it has {', '.join(names)} and auto")
    if beside:
        ranks = np.concatenate([each.numbers for each in (group, *beside)])
        if any(len(each) != len(group) or each.neighbours != group.neighbours for each in beside) or len(np.unique(ranks)) < len(ranks):
            raise ValueError("parallel groups must have the same shape and no rank in common")
    protocols = _sensible_protocols(cluster) if protocol == "auto" else (protocol,)
    wires = {kind: Wire(fresh, getattr(cluster.protocols, kind) if kind != "none" else None, group, beside, cluster) for kind in protocols}
    algorithms = _sensible(operation, cluster, group, of_nccl=protocol != "none") if algorithm == "auto" else (algorithm,)
    candidates = [
        _made(operation, name, kind, wire, chunk_bytes)
        for name in algorithms
        for kind, wire in wires.items()
        if name not in IN_SWITCHES or kind in ("none", "simple")
    ]
    for candidate in candidates:
        if network is not None and candidate.aligned:
            kind = candidate.choice(0.0)
            candidate.together = _memory((operation, kind.algorithm, kind.protocol, group, beside, chunk_bytes, network()))
    if len(candidates) == 1:
        return candidates[0]
    use = Use(fresh())
    for candidate in candidates:
        candidate.use = use
    return Auto(candidates)


@lru_cache(maxsize=32)
def _memory(key: tuple[object, ...]) -> Memory:  # noqa: ARG001 - what it is remembered by
    """Return what is known of one kind of collective on one network."""
    return {}


def _sensible_protocols(cluster: Cluster) -> tuple[str, ...]:
    """The protocols among which is chosen, that which is quick to evaluate first."""
    among = cluster.protocols.auto
    return tuple(kind for kind in ("simple", "ll128", "ll") if among is None or kind in among)


def _sensible(operation: Does, cluster: Cluster, group: Group, *, of_nccl: bool) -> tuple[str, ...]:
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
    return tuple(name for name in sensible if not of_nccl or name in _OF_NCCL)


def _rails(cluster: Cluster, group: Group) -> int:
    """How many rails the ranks of a group have in each of several nodes: rings that go by one each carry all that a node's NICs can."""
    if cluster.rails is None or group.on_one_node or group.neighbours > cluster.replicas_per_node:
        return 1
    return math.gcd(group.neighbours, max(group.neighbours * cluster.rails // cluster.replicas_per_node, 1))


def _made(operation: Does, algorithm: str, protocol: str, wire: Wire, chunk_bytes: float) -> Collective:
    """An algorithm by a protocol: evaluated for all ranks at once where that is known, else from trial runs."""
    cluster, group, ranks = wire.cluster, wire.group, len(wire.group)
    both, rails = algorithm == "bidirectional-ring", _rails(cluster, group) if algorithm == "ring" else 1
    by_fabric = cluster.fabric is not None and cluster.fabric.sharp and not group.on_one_node
    if algorithm == "double-binary-tree" or (algorithm == "nvls" and group.neighbours == 1 and not by_fabric):
        # a device alone has nothing for its switch to add
        return InPieces(algorithm, protocol, wire, partial(double_tree_schedule, ranks), 2, chunk_bytes, 2 * ranks.bit_length())
    in_node = algorithm == "sharp" and len(group) == group.neighbours  # where there is nothing for the fabric to add
    if algorithm in IN_SWITCHES and not in_node:
        return _in_switches(algorithm, protocol, wire, chunk_bytes, by_fabric=by_fabric or algorithm == "sharp")
    schedules: dict[str, Callable[[], Schedule]] = {
        "halving-doubling": lambda: halving_doubling_schedule(ranks),
        "hierarchical": lambda: hierarchical_schedule(ranks, group.neighbours),
        "sharp": lambda: hierarchical_schedule(ranks, group.neighbours),
        "reduce-to-one-device": lambda: reduce_to_one_schedule(ranks),
        "hierarchical-copy": lambda: hierarchical_copy_schedule(ranks),
        "direct": lambda: direct_schedule(ranks),
    }
    of_rings = partial(ring_schedule, ranks, operation, both=both, joined=group.neighbours if rails > 1 else 1, rails=rails)
    schedule = schedules.get(algorithm, of_rings)()
    rings = partial(Rings, operation=operation, both=both, rails=rails)
    at_once: dict[str, Callable[..., Collective]] = {
        "ring": rings, "bidirectional-ring": rings, "halving-doubling": HalvingDoubling, "hierarchical": Hierarchical,
        "sharp": Hierarchical, "direct": Direct,
    }  # fmt: skip
    if cluster.transport.works_on_messages and not group.on_one_node:
        at_once = {}  # hosts that work on each message meet in ways that no recurrence knows
    return at_once.get(algorithm, Collective)(algorithm, protocol, lambda _: schedule, wire)


def _in_switches(algorithm: str, protocol: str, wire: Wire, chunk_bytes: float, *, by_fabric: bool) -> Collective:
    """Added by switches of the fabric, or inside nodes."""
    cluster = wire.cluster
    trees = trees_of(cluster, wire.group) if by_fabric else ()
    if by_fabric:  # groups beside it whose nodes hang on other leaves have trees of another shape
        wire = replace(wire, beside=tuple(other for other in wire.beside if trees_of(cluster, other) == trees))
    if algorithm == "sharp" or wire.group.neighbours == 1:
        return Sharp(algorithm, protocol, replace(wire, switches=partial(switches_of_trees, cluster)), trees, chunk_bytes)
    wire = replace(wire, switches=partial(_switches_of_nodes, cluster, by_fabric))
    return nvls(algorithm, protocol, wire, trees, chunk_bytes)


def _switches_of_nodes(cluster: Cluster, by_fabric: bool, group: Group) -> Integers:
    """Return what adds inside each node or island of a group, and where the fabric adds as well, its switches."""
    inside = np.atleast_1d(number_of(SwitchKind.INSIDE, group.places[:: group.neighbours]))
    return np.concatenate([inside, switches_of_trees(cluster, group)]) if by_fabric else inside
