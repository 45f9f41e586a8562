"""All-reduce by a double binary tree.

Each half of the buffer is reduced up a binary tree and broadcast down it again, in pieces that follow one another. The two trees are
such that a rank has children in at most one of them, so that every rank sends and receives about the whole buffer twice. See
Sanders, Speck and Traff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", Parallel Computing 2009. Ranks
stand in the trees in order, so that all but the highest edges of ranks of one node stay inside it.

Times at once come from ``trial`` runs of the messages. ``nvls`` uses :func:`parents` between nodes.
"""

from __future__ import annotations

import math
from functools import lru_cache

from simulator.collectives.around import Times
from simulator.collectives.collective import Scheduled
from simulator.collectives.exchanges import Plan
from simulator.collectives.trial import at_a_steady_pace_s, together_s
from simulator.collectives.wire import Wire
from simulator.program.schedule import Await, Lane, Schedule


def parents(ranks: int, tree: int) -> list[int | None]:
    """The parent of each rank in one of the two trees (0 or 1); none for the root.

    At place x of 1..n, counted in order, a node of the tree stands at the height of the
    lowest set bit of x: odd places are leaves. The second tree has the ranks in the
    opposite order (n even) or one place further on (n odd), which makes leaves of all
    that are none in the first.
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


@lru_cache(maxsize=64)
def double_tree_schedule(ranks: int, pieces: int) -> Schedule:
    """Parts 0 to ``pieces - 1`` by the first tree, the others by the second."""
    lanes: list[list[Lane]] = [[] for _ in range(ranks)]
    for tree in (0, 1):
        above = parents(ranks, tree)
        below: list[list[int]] = [[] for _ in range(ranks)]
        for rank, parent in enumerate(above):
            if parent is not None:
                below[parent].append(rank)
        for rank, parent in enumerate(above):
            if parent is not None:
                lanes[rank].append(Lane(rank, parent, tree, pieces, 1, (tree * pieces).__add__, pieces, _same(below[rank], tree)))
            come = _same(below[rank] if parent is None else [parent], tree)
            lanes[rank].extend(Lane(rank, child, tree, pieces, 1, (tree * pieces).__add__, 0, come) for child in below[rank])
    return Schedule(ranks, 2 * pieces, [tuple(some) for some in lanes].__getitem__)


def _same(sources: list[int], tree: int) -> tuple[Await, ...]:
    """The same piece from each of some ranks."""
    return tuple(Await(source, tree, 1, 1) for source in sources)


class DoubleTree(Scheduled):
    """From a trial run in which all ranks enter together.

    Where there are many pieces, only some are simulated, twice as many each time, until they follow
    one another at a steady pace; the others follow at that pace.

    Parameters
    ----------
    name, protocol, wire
        As in :class:`~simulator.collectives.collective.Scheduled`.
    chunk_bytes
        Each half is cut into the fewest equal pieces that are no larger.
    """

    _aligned = True

    def __init__(self, name: str, protocol: str, wire: Wire, chunk_bytes: float) -> None:
        ranks = len(wire.group)

        def pieces(size_bytes: float) -> int:
            return max(math.ceil(size_bytes / 2 / chunk_bytes), 1)

        super().__init__(name, protocol, lambda size_bytes: double_tree_schedule(ranks, pieces(size_bytes)), wire)
        self._pieces = pieces

    def _received_s(self, ready_s: Times, size_bytes: float, free_s: Times) -> Times:  # noqa: ARG002 - all enter at 0
        pieces = self._pieces(size_bytes)

        def trial_s(some: int) -> Times:
            """So many pieces of each half, all of the same size."""
            return together_s(Plan(double_tree_schedule(self._ranks, some), self._wire), some * (size_bytes / pieces))

        return at_a_steady_pace_s(trial_s, pieces, 2 * self._ranks.bit_length())  # about as many as fill the way up and down
