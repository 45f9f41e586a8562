"""Double binary tree.

Each half of the buffer is reduced up a binary tree and broadcast down it again, in pieces
that follow one another. The two trees are such that a rank has children in at most one of
them, so that every rank sends and receives about the whole buffer twice. See Sanders,
Speck and Traff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
Parallel Computing 2009.

Ranks stand in the trees in order, so that all but the highest edges of ranks of one node
stay inside it.
"""

from __future__ import annotations

import math
from functools import lru_cache, partial

from simulator.collectives.around import Times
from simulator.collectives.by_messages import together_s
from simulator.collectives.collective import Plan, Scheduled
from simulator.collectives.schedule import Await, Lane, Message, Schedule
from simulator.collectives.wire import Wire

__all__ = ["DoubleTree", "double_tree_schedule", "parents"]

_STEADY = 5e-3
"""Relative change of the pace, from one doubling of the pieces to the next, below which it is taken to be steady."""


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
                up = partial(_piece, tree * pieces, True, tuple(below[rank]), tree)
                lanes[rank].append(Lane(rank, parent, tree, pieces, 0.5, up))
            source = tuple(below[rank]) if parent is None else (parent,)
            down = partial(_piece, tree * pieces, False, source, tree)
            lanes[rank].extend(Lane(rank, child, tree, pieces, 0.5, down) for child in below[rank])
    return Schedule(ranks, 2 * pieces, [tuple(some) for some in lanes].__getitem__)


def _piece(first: int, adds: bool, sources: tuple[int, ...], tree: int, index: int) -> Message:
    return Message(first + index, first + index + 1, adds, tuple(Await(source, tree, index + 1) for source in sources))


class DoubleTree(Scheduled):
    """From a trial run in which all ranks enter together.

    Of many pieces only so many are simulated, twice as many each time, until they follow
    one another at a steady pace; the others follow at that pace.

    Parameters
    ----------
    name, protocol, wire
        As in :class:`~simulator.collectives.collective.Scheduled`.
    ranks
        How many.
    chunk_bytes
        Each half is cut into the fewest equal pieces that are no larger.
    """

    _aligned = True

    def __init__(self, name: str, protocol: str, wire: Wire, ranks: int, chunk_bytes: float) -> None:
        def pieces(size_bytes: float) -> int:
            return max(math.ceil(size_bytes / 2 / chunk_bytes), 1)

        super().__init__(name, protocol, lambda size_bytes: double_tree_schedule(ranks, pieces(size_bytes)), wire)
        self._pieces = pieces

    def _received_s(self, ready_s: Times, size_bytes: float, free_s: Times) -> Times:  # noqa: ARG002 - all enter at 0
        pieces = self._pieces(size_bytes)
        piece_bytes = size_bytes / pieces
        count = max(2 * self._ranks.bit_length(), 8)  # about as many as fill the way up and down
        if 2 * count < pieces:
            passage_s, fewer_s, some_s = (self._trial_s(some, piece_bytes) for some in (1, count // 2, count))
            while 2 * count < pieces:
                more_s = self._trial_s(2 * count, piece_bytes)
                earlier_s, pace_s = 2 * (some_s - fewer_s).max() / count, (more_s - some_s).max() / count
                # steady at the earliest when the first pieces have come down again and share the links with those that go up
                if some_s.max() > 2 * passage_s.max() and abs(pace_s - earlier_s) <= _STEADY * pace_s:
                    finish_s: Times = more_s + (pieces - 2 * count) * pace_s
                    return finish_s
                fewer_s, some_s, count = some_s, more_s, 2 * count
        return self._trial_s(pieces, piece_bytes)

    def _trial_s(self, pieces: int, piece_bytes: float) -> Times:
        """When each rank has the result of so many pieces of each half, all together ``pieces * piece_bytes``."""
        return together_s(Plan(double_tree_schedule(self._ranks, pieces), self._wire), pieces * piece_bytes)
