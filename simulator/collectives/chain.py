"""Broadcast and reduction along a chain, in pieces that follow one another.

NCCL's ring does both so (``src/device/broadcast.h``, ``reduce.h``): from the root around to the rank before it, or from the rank
after the root around to the root. A rank passes a piece on when it has it, and has its own data; a piece crosses when the rank
behind has entered the collective as well, as a sender needs its receiver's buffers.

The messages (``chain_schedule``) and the times at once (:class:`Chain`) describe the same: change both together
(tests/oracle/test_groups.py compares them).
"""

from __future__ import annotations

import math
from functools import lru_cache, partial
from itertools import pairwise

import numpy as np

from simulator.collectives.around import Times
from simulator.collectives.collective import Scheduled
from simulator.collectives.exchanges import Plan
from simulator.collectives.trial import at_a_steady_pace_s, together_s
from simulator.collectives.wire import Wire
from simulator.program.operations import Operation
from simulator.program.schedule import Await, Lane, Schedule


def _order(ranks: int, operation: Operation, root: int) -> list[int]:
    """From the first of the chain to the last."""
    first = root if operation == "broadcast" else root + 1
    return [(first + place) % ranks for place in range(ranks)]


@lru_cache(maxsize=64)
def chain_schedule(ranks: int, pieces: int, operation: Operation, root: int = 0) -> Schedule:
    """A broadcast from the root, or a reduction to it, in pieces."""
    order = _order(ranks, operation, root)
    lanes: dict[int, tuple[Lane, ...]] = {}
    for place, (source, target) in enumerate(pairwise(order)):
        awaits = (Await(order[place - 1], 0, 1, 1),) if place else ()
        lanes[source] = (Lane(source, target, 0, pieces, 1, _itself, pieces if operation == "reduce" else 0, awaits, ()),)
    return Schedule(ranks, pieces, lambda rank: lanes.get(rank, ()))


def _itself(index: int) -> int:
    return index


def pieces_of(size_bytes: float, chunk_bytes: float) -> int:
    """The fewest equal pieces that are no larger than ``chunk_bytes``."""
    return max(math.ceil(size_bytes / chunk_bytes), 1)


class Chain(Scheduled):
    """By the recurrence of the pieces, if that is exact; else from ranks that enter together.

    It is exact if no two hops of the chain share a port. Chains of groups beside one
    another whose hops at the same place share a port have equal shares of it at all times:
    exact for ranks that enter together, otherwise never early. Where hops at different
    places share one, the times come from a trial run.

    Parameters
    ----------
    name, protocol, wire
        As in :class:`~simulator.collectives.collective.Scheduled`.
    operation
        Broadcast or reduce.
    root
        Place of the root in the group.
    chunk_bytes
        The buffer is cut into the fewest equal pieces that are no larger.
    """

    def __init__(self, name: str, protocol: str, wire: Wire, operation: Operation, root: int, chunk_bytes: float) -> None:
        ranks = len(wire.group)

        def schedule(size_bytes: float) -> Schedule:
            return chain_schedule(ranks, pieces_of(size_bytes, chunk_bytes), operation, root)

        super().__init__(name, protocol, schedule, wire)
        self._chain = ranks, operation, root
        self._chunk_bytes = chunk_bytes
        self._order = _order(ranks, operation, root)
        chain = np.array(self._order)
        laid = wire.laid(chain[:-1], chain[1:])
        paces = wire.paces(laid)
        self._s_per_byte, self._latency_s = paces.s_per_byte[0].tolist(), paces.latency_s[0].tolist()
        self._aligned = bool(laid.several(laid.path % max(ranks - 1, 1)).any())

    def _received_s(self, ready_s: Times, size_bytes: float, free_s: Times) -> Times:
        pieces = pieces_of(size_bytes, self._chunk_bytes)
        piece_bytes = size_bytes / pieces
        if self._aligned:
            return at_a_steady_pace_s(partial(self._trial_s, piece_bytes), pieces, self._ranks)
        order, has_s = self._order, ready_s.copy()
        number = np.arange(pieces)
        arrives_s = np.full(pieces, ready_s[order[0]])
        for (source, target), s_per_byte, latency_s in zip(pairwise(order), self._s_per_byte, self._latency_s, strict=True):
            piece_s = piece_bytes * s_per_byte
            begin_s = np.maximum(arrives_s, max(ready_s[source], ready_s[target], free_s[source]))
            # each piece leaves after it has come, and after the one before it
            left_s = np.maximum.accumulate(begin_s - piece_s * number) + piece_s * (number + 1)
            free_s[source] = left_s[-1]
            arrives_s = left_s + latency_s
            has_s[target] = max(has_s[target], arrives_s[-1])
        return has_s

    def _trial_s(self, piece_bytes: float, pieces: int) -> Times:
        ranks, operation, root = self._chain
        return together_s(Plan(chain_schedule(ranks, pieces, operation, root), self._wire), pieces * piece_bytes)
