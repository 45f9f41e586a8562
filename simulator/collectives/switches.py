"""All-reduces in which switches add: SHARP, by those of the fabric, and NVLS (NVLink SHARP), by those inside nodes.

SHARP. A ring inside each node reduces and scatters, as in the hierarchical all-reduce; of each part the ranks that hold it send it to a
tree of switches, piece by piece, and get the sum; rings inside the nodes gather. A leaf adds what its nodes send, a spine what the
leaves send, and the sum comes back the same way: Graham et al., "Scalable hierarchical aggregation protocol (SHArP): a hardware
architecture for efficient data reduction", 2016, and "Scalable hierarchical aggregation and reduction protocol (SHARP)
streaming-aggregation hardware design and evaluation", 2020. Ranks that hold the same part have a tree of their own, whose streams share
the links with those of the others.

NVLS. Each device owns a part. Piece by piece all devices put out a part, the switch adds it and gives the sum to the owner
(``multimem.ld_reduce``); the owner puts it out again, and the switch sends it to all (``multimem.st``). So (g + 1) / g S leave and
reach each of g devices, and not 2 (g - 1) / g S one after the other as in a ring: S. Jeaugey, NVIDIA/nccl-tests issue 212. Between
nodes the owners of a part reduce it in a double binary tree (NCCL's NVLSTree), or the fabric's switches do (NVLS with CollNet); all
of it is one pipeline. NCCL: ``src/device/all_reduce.h``, ``src/transport/nvls.cc``.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, partial

import numpy as np

from simulator.collectives.collective import Collective, InPieces, pieces_of
from simulator.collectives.rings import INNER, OUTER, around_the_ring, inner_lane, scattered
from simulator.collectives.trees import lanes_up_and_down
from simulator.collectives.wire import Group, Wire
from simulator.program.port_names import SwitchKind, number_of
from simulator.program.program import Floats, Integers
from simulator.program.schedule import Await, Lane, Schedule, columns
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
    switches: list[int | Integers] = []
    for place, column in enumerate(_leaves(cluster, group).T):
        leaves = np.unique(column).tolist()
        switches += [number_of(SwitchKind.LEAF, leaf) for leaf in leaves]
        if len(leaves) > 1:
            device = group.ranks[place] % cluster.replicas_per_node
            switches.append(number_of(SwitchKind.SPINE, device % cluster.fabric.spines))
    return np.array(switches, dtype=np.int64)


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
        tuple(same(rank) for rank, above in zip(ranks, leaf_of, strict=True) if above == leaf) for leaf in range(leaves)
    ]
    for rank, leaf, needs in zip(ranks, leaf_of, before, strict=True):
        yield lane(source=rank, target=first_switch + leaf, adding=pieces, awaits=(needs,) if needs.base or needs.slope else ())
        yield lane(source=first_switch + leaf, target=rank, adding=0, awaits=below[leaf] if leaves == 1 else (same(top),))
    if leaves > 1:
        every = tuple(same(first_switch + leaf) for leaf in range(leaves))
        for leaf in range(leaves):
            yield lane(source=first_switch + leaf, target=top, adding=pieces, awaits=below[leaf])
            yield lane(source=top, target=first_switch + leaf, adding=0, awaits=every)


# -- SHARP ----------------------------------------------------------------------------------


@lru_cache(maxsize=32)
def sharp_schedule(ranks: int, trees: Trees, pieces: int) -> Schedule:
    """A part of ``pieces`` parts for each tree, and inner rings of that number of ranks that follow one another."""
    joined = len(trees)
    below = [sum(map(_switches_in, trees[:column])) for column in range(joined + 1)]  # switches before each tree's
    lanes: list[list[Lane]] = [[] for _ in range(ranks + below[-1])]
    for rank in range(ranks if joined > 1 else 0):
        place, column = divmod(rank, joined)
        summed = Await(ranks + below[column] + trees[column][place], OUTER, pieces, 0, joined - 1)
        lanes[rank].append(inner_lane(rank, joined, pieces, (summed,)))
    for column, tree in enumerate(trees):
        holders = list(range(column, ranks, joined))
        part = (column + 1) % joined * pieces  # what device k has after the ring is part k + 1
        before = [scattered(rank, joined) for rank in holders]
        for lane in lanes_of_tree(tree, holders, ranks + below[column], OUTER, pieces, part, before):
            lanes[lane.source].append(lane)
    return Schedule(ranks, joined * pieces, [tuple(some) for some in lanes].__getitem__, switches=below[-1])


def _switches_in(tree: tuple[int, ...]) -> int:
    """Its leaves, and a spine where there are several."""
    return max(tree) + 1 + (max(tree) > 0)


class Sharp(Collective):
    """SHARP by the recurrences of its rings and of its pieces.

    Streams that share a port are taken to have equal shares of it at all times: exact for ranks that enter together if those streams are
    equal, otherwise never early.

    Parameters
    ----------
    name, protocol, wire
        As in :class:`~simulator.collectives.collective.Collective`.
    trees
        The leaves of the group's nodes.
    chunk_bytes
        What a rank sends is cut into the fewest equal pieces that are no larger.
    """

    _aligned = False

    def __init__(self, name: str, protocol: str, wire: Wire, trees: Trees, chunk_bytes: float) -> None:
        ranks, self._joined = len(wire.group), len(trees)

        def schedule(size_bytes: float) -> Schedule:
            return sharp_schedule(ranks, trees, pieces_of(size_bytes, len(trees), chunk_bytes))

        super().__init__(name, protocol, schedule, wire)
        self._trees, self._chunk_bytes = trees, chunk_bytes
        lanes = columns(sharp_schedule(ranks, trees, 1))
        self._inner = wire.paces_of(lanes, lanes.number == INNER) if self._joined > 1 else None
        self._tree = wire.paces_of(lanes, lanes.number == OUTER)
        outer = np.flatnonzero(lanes.number == OUTER)
        source, target = lanes.source[outer], lanes.target[outer]
        # lanes by what they lead from and to, each in the order of its source, or of its target
        self._up, self._down = np.flatnonzero(source < ranks), np.flatnonzero(target < ranks)
        self._up, self._down = self._up[np.argsort(source[self._up])], self._down[np.argsort(target[self._down])]
        leaf, top = target[self._up], {int(each) for each in target if each >= ranks} - set(target[self._up].tolist())
        self._leaf = leaf - ranks
        self._rising = np.flatnonzero(np.isin(target, list(top)))
        self._falling = np.flatnonzero(np.isin(source, list(top)))
        self._ends = source - ranks, target - ranks
        self._switches = sharp_schedule(ranks, trees, 1).switches

    def _received_s(self, ready_s: Floats, size_bytes: float, free_s: Floats) -> Floats:
        shape = -1, self._joined
        has_s, ring_free_s = ready_s.copy(), free_s.copy()
        if self._inner is not None:
            chunk_s, latency_s = (
                column.reshape(shape) for column in (size_bytes / self._joined * self._inner.s_per_byte, self._inner.latency_s)
            )
            ring_free_s = ring_free_s.reshape(shape)
            has_s = around_the_ring(has_s.reshape(shape), ring_free_s, chunk_s, latency_s, self._joined - 1).ravel()
        has_s, sent_s = self._through_switches(np.maximum(has_s, free_s), size_bytes / self._joined)
        if self._inner is not None:
            has_s = around_the_ring(has_s.reshape(shape), ring_free_s, chunk_s, latency_s, self._joined - 1).ravel()
            sent_s = np.maximum(sent_s, ring_free_s.ravel())
        free_s[:] = sent_s
        return has_s

    def _through_switches(self, start_s: Floats, part_bytes: float) -> tuple[Floats, Floats]:
        """When each rank has the sum of its part, and when its own data has left it."""
        pieces = pieces_of(part_bytes, 1, self._chunk_bytes)
        piece_s, latency_s = part_bytes / pieces * self._tree.s_per_byte, self._tree.latency_s
        up, down, rising, falling = self._up, self._down, self._rising, self._falling
        source, target = self._ends
        left_s = np.full(len(piece_s), -np.inf)  # of each lane: when its last piece so far has left
        left_s[up] = start_s
        for _ in range(pieces):
            left_s[up] += piece_s[up]
            at_s = np.full(self._switches, -np.inf)  # when each switch has all of the piece
            np.maximum.at(at_s, self._leaf, left_s[up] + latency_s[up])
            if len(rising):
                left_s[rising] = np.maximum(left_s[rising], at_s[source[rising]]) + piece_s[rising]
                np.maximum.at(at_s, target[rising], left_s[rising] + latency_s[rising])
                left_s[falling] = np.maximum(left_s[falling], at_s[source[falling]]) + piece_s[falling]
                at_s[target[falling]] = left_s[falling] + latency_s[falling]
            left_s[down] = np.maximum(left_s[down], at_s[source[down]]) + piece_s[down]
        return left_s[down] + latency_s[down], left_s[up]


# -- NVLS -----------------------------------------------------------------------------------

_OUT, _SUM, _BACK, _BETWEEN, _COPY = 0, 1, 2, 4, 6
"""Numbers of lanes: parts to the switch, sums to their owners, and back (one a stripe), between owners (likewise), copies to all."""


def nvls(name: str, protocol: str, wire: Wire, trees: Trees, chunk_bytes: float) -> Collective:
    """All-reduce by NVSwitches.

    Parameters
    ----------
    name, protocol, wire
        As in :class:`~simulator.collectives.collective.Collective`.
    trees
        Of the fabric's switches; empty where they do not add.
    chunk_bytes
        What a device owns is cut into the fewest equal pieces that are no larger.
    """
    ranks, joined = len(wire.group), wire.group.neighbours
    stripes = _stripes(ranks, joined, trees)
    schedule = lambda rounds: nvls_schedule(ranks, joined, rounds * stripes, trees)  # noqa: E731
    return InPieces(name, protocol, wire, schedule, joined * stripes, chunk_bytes, ranks.bit_length())


def _stripes(ranks: int, joined: int, trees: Trees) -> int:
    """Two if owners reduce in a double binary tree: every other piece uses the other tree."""
    return 2 if ranks > joined and not trees else 1


@lru_cache(maxsize=64)
def nvls_schedule(ranks: int, joined: int, pieces: int, trees: Trees = ()) -> Schedule:
    """Runs of ``joined`` ranks around a switch each, with a part of ``pieces`` parts for each of them.

    ``trees``: of the fabric's switches that add between nodes; empty: the owners of a part do in a double binary tree.
    """
    nodes, stripes = ranks // joined, _stripes(ranks, joined, trees)
    lanes: list[Lane] = []
    next_switch = ranks + nodes
    for place in range(nodes):
        lanes += _to_owners(ranks + place, range(place * joined, (place + 1) * joined), pieces)
    for column in range(joined):
        owners = range(column, ranks, joined)
        messages = [(pieces + stripes - 1 - stripe) // stripes for stripe in range(stripes)]
        firsts = [partial(_striped, column * pieces, stripe, stripes) for stripe in range(stripes)]
        # of each stripe and node, what its owner awaits for the sum of all nodes: to begin with, that of its own
        done: list[list[tuple[Await, ...]]] = [
            [(Await(ranks + at, _SUM, stripe + 1, stripes),) for at in range(nodes)] for stripe in range(stripes)
        ]
        if nodes > 1 and trees:
            before = [Await(ranks + place, _SUM, 1, 1) for place in range(nodes)]
            lanes += lanes_of_tree(trees[column], list(owners), next_switch, _BETWEEN, pieces, column * pieces, before)
            done = [[(Await(next_switch + leaf, _BETWEEN, 1, 1),) for leaf in trees[column]]]
            next_switch += _switches_in(trees[column])
        for stripe in range(stripes if stripes > 1 else 0):
            between, done[stripe] = lanes_up_and_down(owners, stripe, _BETWEEN + stripe, messages[stripe], firsts[stripe], done[stripe])
            lanes += between
        for place, owner in enumerate(owners):
            for stripe, first in enumerate(firsts):  # from the owner to its switch, and copies from there to all
                back, number = _BACK + stripe, _COPY + stripes * column + stripe
                lanes.append(Lane(owner, ranks + place, back, messages[stripe], 1, first, 0, done[stripe][place]))
                for rank in range(place * joined, (place + 1) * joined):
                    lanes.append(Lane(ranks + place, rank, number, messages[stripe], 1, first, 0, (Await(owner, back, 1, 1),)))
    of_member: list[list[Lane]] = [[] for _ in range(next_switch)]
    for lane in lanes:
        of_member[lane.source].append(lane)
    return Schedule(ranks, joined * pieces, [tuple(some) for some in of_member].__getitem__, switches=next_switch - ranks)


def _to_owners(switch: int, joined: range, pieces: int) -> Iterator[Lane]:
    """Yield what the devices of a switch put out, the parts in turn, and the sum of each part to its owner."""
    count = len(joined)
    for rank in joined:
        yield Lane(rank, switch, _OUT, count * pieces, 1, partial(_in_turn, count, pieces), count * pieces)
    for column, owner in enumerate(joined):
        awaits = tuple(Await(rank, _OUT, column + 1, count) for rank in joined)
        yield Lane(switch, owner, _SUM, pieces, 1, (column * pieces).__add__, 0, awaits)


def _in_turn(count: int, pieces: int, index: int) -> int:
    return index % count * pieces + index // count


def _striped(first: int, stripe: int, stripes: int, index: int) -> int:
    return first + stripes * index + stripe
