"""All-reduce by trees: the double binary tree, and those of tf.distribute that go by the memory of one device or of two.

In a double binary tree each half of the buffer is reduced up a binary tree and broadcast down it again, in pieces that follow one
another. The two trees are such that a rank has children in at most one of them, so that every rank sends and receives about the whole
buffer twice. See Sanders, Speck and Traff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", Parallel Computing
2009. Ranks are placed in the trees in order, so that all but the highest edges of ranks of one node stay inside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from simulator.program.schedule import Await, Lane, Schedule, whole_buffer


def parents(ranks: int, tree: int) -> list[int | None]:
    """The parent of each rank in one of the two trees (0 or 1); none for the root.

    At place x of 1..n, counted in order, a node of the tree is at the height of the lowest set bit of x: odd places are leaves. The second
    tree has the ranks in the opposite order (n even) or one place further on (n odd), which makes leaves of all that are none in the first.
    """
    if tree == 0:
        place = list(range(1, ranks + 1))
    elif ranks % 2 == 0:
        place = list(range(ranks, 0, -1))
    else:
        place = [*range(2, ranks + 1), 1]
    rank_at = {at: rank for rank, at in enumerate(place)}
    above = (_place_above(at, ranks) for at in place)
    return [rank_at[at] if at else None for at in above]


def _place_above(place: int, places: int) -> int:
    """0 if it is the root's."""
    bit = place & -place
    above = (place - bit) | (bit << 1)
    return above if above <= places else place - bit


def lanes_up_and_down(
    members: Sequence[int], tree: int, number: int, messages: int, first: Callable[[int], int], own: Sequence[tuple[Await, ...]]
) -> tuple[list[Lane], list[tuple[Await, ...]]]:
    """The lanes of one of the two trees, and what each member awaits when it passes the sum on.

    Parameters
    ----------
    members
        Members of the tree, in order.
    tree
        Which it is, 0 or 1.
    number, messages, first
        Of all of its lanes, as in :class:`~simulator.program.schedule.Lane`.
    own
        What each member awaits for its own data.
    """
    above = parents(len(members), tree)
    below: list[list[int]] = [[] for _ in members]
    for place, parent in enumerate(above):
        if parent is not None:
            below[parent].append(place)
    lanes: list[Lane] = []
    falls: list[tuple[Await, ...]] = []
    for place, (member, parent) in enumerate(zip(members, above, strict=True)):
        rises = (*own[place], *(Await(members[child], number, 1, 1) for child in below[place]))
        if parent is not None:
            lanes.append(Lane(member, members[parent], number, messages, 1, first, messages, rises))
        falls.append(rises if parent is None else (Await(members[parent], number, 1, 1),))
        lanes += [Lane(member, members[child], number, messages, 1, first, 0, falls[-1]) for child in below[place]]
    return lanes, falls


@lru_cache(maxsize=64)
def double_tree_schedule(ranks: int, pieces: int) -> Schedule:
    """Parts 0 to ``pieces - 1`` by the first tree, the others by the second."""
    lanes: list[list[Lane]] = [[] for _ in range(ranks)]
    for tree in (0, 1):
        for lane in lanes_up_and_down(range(ranks), tree, tree, pieces, (tree * pieces).__add__, [()] * ranks)[0]:
            lanes[lane.source].append(lane)
    return Schedule(ranks, 2 * pieces, [tuple(some) for some in lanes].__getitem__)


@lru_cache(maxsize=16)
def reduce_to_one_schedule(ranks: int) -> Schedule:
    """All to rank 0, and the sum from there (``tf.distribute.ReductionToOneDevice``)."""
    sums = tuple(Await(rank, 0, 1) for rank in range(1, ranks))
    lanes = [tuple(_copy(0, rank, False, sums) for rank in range(1, ranks)), *((_copy(rank, 0, True),) for rank in range(1, ranks))]
    return Schedule(ranks, 1, lanes.__getitem__)


@lru_cache(maxsize=16)
def hierarchical_copy_schedule(ranks: int) -> Schedule:
    """Two groups that follow one another in rank; the first rank of each leads it (``tf.distribute.HierarchicalCopyAllReduce``)."""
    lead = ranks // 2  # of the second group; the first group's leader is rank 0
    if lead == 0:
        return reduce_to_one_schedule(ranks)
    first, second = range(1, lead), range(lead + 1, ranks)
    lanes = [[_copy(member, lead if member > lead else 0, True)] if member not in (0, lead) else [] for member in range(ranks)]
    everything = (*(Await(member, 0, 1) for member in first), Await(lead, 0, 1))
    lanes[0] = [_copy(0, to, False, everything) for to in (lead, *first)]
    lanes[lead] = [_copy(lead, 0, True, tuple(Await(member, 0, 1) for member in second))]
    lanes[lead] += [_copy(lead, member, False, (Await(0, 0, 1),)) for member in second]
    return Schedule(ranks, 1, [tuple(some) for some in lanes].__getitem__)


def _copy(source: int, target: int, adds: bool, awaits: tuple[Await, ...] = ()) -> Lane:
    return Lane(source, target, 0, 1, 1, whole_buffer, int(adds), awaits)
