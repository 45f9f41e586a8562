"""The collective that a strategy asks for."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from simulator.cluster import Cluster
from simulator.collectives.auto import Auto
from simulator.collectives.collective import Collective, Memory, Scheduled
from simulator.collectives.copies import Copies, hierarchical_copy_schedule, reduce_to_one_schedule
from simulator.collectives.double_tree import DoubleTree
from simulator.collectives.halving_doubling import HalvingDoubling, halving_doubling_schedule
from simulator.collectives.hierarchical import Hierarchical, group_size, hierarchical_schedule
from simulator.collectives.ring import Rings, bidirectional_ring_schedule, ring_schedule
from simulator.collectives.wire import Connect, Wire

__all__ = ["collective_for"]

_Build = Callable[[str, str, Wire, int, float], Scheduled]

_ALGORITHMS: dict[str, _Build] = {
    "ring": lambda name, protocol, wire, ranks, _: Rings(name, protocol, wire, ranks, both=False),
    "bidirectional-ring": lambda name, protocol, wire, ranks, _: Rings(name, protocol, wire, ranks, both=True),
    "halving-doubling": lambda name, protocol, wire, ranks, _: HalvingDoubling(name, protocol, wire, ranks),
    "hierarchical": lambda name, protocol, wire, ranks, _: Hierarchical(name, protocol, wire, ranks),
    "double-binary-tree": DoubleTree,
    "reduce-to-one-device": lambda name, protocol, wire, ranks, _: Copies(name, protocol, wire, ranks, reduce_to_one_schedule),
    "hierarchical-copy": lambda name, protocol, wire, ranks, _: Copies(name, protocol, wire, ranks, hierarchical_copy_schedule),
}
_BY_TRIAL: dict[str, _Build] = {
    **_ALGORITHMS,
    "ring": lambda name, protocol, wire, ranks, _: Copies(name, protocol, wire, ranks, ring_schedule),
    "bidirectional-ring": lambda name, protocol, wire, ranks, _: Copies(name, protocol, wire, ranks, bidirectional_ring_schedule),
    "halving-doubling": lambda name, protocol, wire, ranks, _: Copies(name, protocol, wire, ranks, halving_doubling_schedule),
    "hierarchical": lambda name, protocol, wire, ranks, _: Copies(
        name, protocol, wire, ranks, lambda count: hierarchical_schedule(count, group_size(count, wire.ranks_per_node))
    ),
}
"""The same from trial runs in which all ranks enter together."""


def collective_for(
    algorithm: str,
    protocol: str,
    cluster: Cluster,
    ranks: int,
    ranks_per_node: int,
    connect: Connect,
    fresh: Callable[[], Connect],
    chunk_bytes: float,
    network: str = "",
) -> Collective:
    """All-reduces among ``ranks`` ranks.

    Parameters
    ----------
    algorithm, protocol, chunk_bytes
        As in :class:`simulator.strategies.all_reducing.AllReduceStrategy`.
    cluster
        Its protocols count.
    ranks_per_node
        Ranks r with the same ``r // ranks_per_node`` sit on one node.
    connect
        A new connection of the simulation, from one rank to another.
    fresh
        Gives the same for a copy of the network that nobody else uses.
    network
        Names the network, where there may be more collectives on the very same one: what
        takes a trial run is then found out once for all of them in this process.
    """
    protocols = ("simple", "ll128", "ll") if protocol == "auto" else (protocol,)
    transport = cluster.transport
    wires = {
        name: Wire(
            connect,
            fresh,
            getattr(cluster.protocols, name) if name != "none" else None,
            ranks_per_node,
            transport.cpu_per_message_s,
            transport.copy_per_byte_s,
            cluster.shared_cores,
            cluster.time_slice_s,
        )
        for name in protocols
    }
    algorithms = _sensible(ranks, ranks_per_node) if algorithm == "auto" else (algorithm,)
    # hosts that work on each message meet in ways that no recurrence knows
    builds = _BY_TRIAL if transport.works_on_messages and ranks > ranks_per_node else _ALGORITHMS
    candidates = [builds[name](name, kind, wire, ranks, chunk_bytes) for name in algorithms for kind, wire in wires.items()]
    for candidate in candidates:
        if network and candidate.aligned:
            kind = candidate.choice(0.0)
            candidate.remember_in(_memory(kind.algorithm, kind.protocol, ranks, ranks_per_node, chunk_bytes, network))
    return candidates[0] if len(candidates) == 1 else Auto(candidates)


@lru_cache(maxsize=32)
def _memory(algorithm: str, protocol: str, ranks: int, ranks_per_node: int, chunk_bytes: float, network: str) -> Memory:  # noqa: ARG001
    """What is known of one kind of collective on one network."""
    return {}


def _sensible(ranks: int, ranks_per_node: int) -> tuple[str, ...]:
    """The algorithms that may be the fastest, those that are quick to evaluate first."""
    if ranks <= ranks_per_node:
        return "ring", "halving-doubling", "reduce-to-one-device", "hierarchical-copy", "double-binary-tree"
    if group_size(ranks, ranks_per_node) > 1:
        return "ring", "halving-doubling", "hierarchical", "double-binary-tree"
    return "ring", "halving-doubling", "double-binary-tree"
