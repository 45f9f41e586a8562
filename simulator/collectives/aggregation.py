"""Which switches of a fabric add what the ranks of a group send: a tree for each part of the buffer.

A leaf adds what its nodes send, a spine what the leaves send, and the sum comes back the
same way, piece by piece: Graham et al., "Scalable hierarchical aggregation protocol
(SHArP): a hardware architecture for efficient data reduction", 2016, and "Scalable
hierarchical aggregation and reduction protocol (SHARP) streaming-aggregation hardware
design and evaluation", 2020. Ranks that hold the same part have a tree of their own, whose
streams share the links with those of the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from simulator.collectives.wire import Group
from simulator.program.program import Integers
from simulator.program.schedule import Await, Lane
from simulator.program.switches import SwitchKind, number_of
from simulator.spec.cluster import Cluster

Trees = tuple[tuple[int, ...], ...]
"""Of each part (the ranks at the same place of their nodes) the leaf of each node, numbered from 0 on within the tree."""


def trees_of(cluster: Cluster, group: Group) -> Trees:
    """The leaves that a group's ranks hang on."""
    leaves = _leaves(cluster, group)
    return tuple(tuple(np.unique(column, return_inverse=True)[1].tolist()) for column in leaves.T)


def switches_of_trees(cluster: Cluster, group: Group) -> Integers:
    """The switches of all trees, tree by tree: its leaves, and a spine where there are several."""
    assert cluster.fabric is not None
    found: list[int] = []
    for place, column in enumerate(_leaves(cluster, group).T):
        its = np.unique(column).tolist()
        found += [int(number_of(SwitchKind.LEAF, leaf)) for leaf in its]
        if len(its) > 1:
            device = group.ranks[place] % cluster.replicas_per_node
            found.append(int(number_of(SwitchKind.SPINE, device % cluster.fabric.spines)))
    return np.array(found, dtype=np.int64)


def _leaves(cluster: Cluster, group: Group) -> Integers:
    """The leaf of each rank's NIC, shape (nodes, ranks a node)."""
    fabric = cluster.fabric
    assert fabric is not None
    node, replica = group.numbers // cluster.replicas_per_node, group.numbers % cluster.replicas_per_node
    leaf = node // fabric.nodes_per_leaf
    if fabric.rail_optimised:
        assert cluster.rails is not None
        leaf = leaf * cluster.rails + replica * cluster.rails // cluster.replicas_per_node
    return leaf.reshape(-1, group.neighbours)


def lanes_of_tree(
    leaf_of: tuple[int, ...], ranks: list[int], first_switch: int, number: int, pieces: int, first_part: int, before: list[Await]
) -> Iterator[Lane]:
    """The lanes of one tree.

    Parameters
    ----------
    leaf_of
        The leaf of each rank.
    ranks
        Who holds this part.
    first_switch
        The member that its first leaf is; its other leaves and its spine follow.
    number
        Of all of its lanes, by which others await them.
    pieces, first_part
        Parts of the buffer, from the first one on, that go one after the other.
    before
        What each rank awaits before it sends.
    """
    leaves = max(leaf_of) + 1
    top = first_switch + leaves if leaves > 1 else first_switch
    lane = partial(Lane, number=number, messages=pieces, parts=1, first=first_part.__add__)
    same = partial(Await, number=number, base=1, slope=1)
    below: list[tuple[Await, ...]] = [
        tuple(same(rank) for rank, its in zip(ranks, leaf_of, strict=True) if its == leaf) for leaf in range(leaves)
    ]
    for rank, leaf, needs in zip(ranks, leaf_of, before, strict=True):
        yield lane(source=rank, target=first_switch + leaf, adding=pieces, awaits=(needs,) if needs.base or needs.slope else ())
        yield lane(source=first_switch + leaf, target=rank, adding=0, awaits=below[leaf] if leaves == 1 else (same(top),))
    if leaves > 1:
        every = tuple(same(first_switch + leaf) for leaf in range(leaves))
        for leaf in range(leaves):
            yield lane(source=first_switch + leaf, target=top, adding=pieces, awaits=below[leaf])
            yield lane(source=top, target=first_switch + leaf, adding=0, awaits=every)
