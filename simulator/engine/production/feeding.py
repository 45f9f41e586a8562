"""When each rank has its batch, at once for all pipelines of a program that share nothing.

The same rule is ``wait_s`` in ``simulator.engine.production.inputs``: change both together (tests/oracle/test_at_once.py compares
steps with inputs).
"""

from __future__ import annotations

from collections import deque

import numpy as np

from simulator.engine.draws import Draws
from simulator.program.program import Feed, Floats


class Feeder:
    """When each rank has its batches: one is begun when the one before is there, and that one taken which makes room for it.

    Parameters
    ----------
    feed
        Pipelines that share nothing.
    draws
        When ranks begin, and how long each batch takes.
    """

    def __init__(self, feed: Feed, draws: Draws) -> None:
        self._of_rank, self._batch_s, self._prefetch = feed.of_rank, feed.own_s, feed.prefetch
        self._shares = len(feed) < len(feed.of_rank)  # else each rank has a pipeline to itself, in their order
        self._pipelines = np.arange(len(feed))
        self._jitter = draws.of_batches(len(feed))
        self._block = draws.block
        self._factors = np.ones((0, len(feed)))
        self._row = 0
        self._ready_s = self._first(draws.start_s)
        self._taken_s: deque[Floats] = deque(maxlen=feed.prefetch)

    def take(self, asked_s: Floats) -> Floats:
        """When each rank has its next batch that asks for it at some time, shape (ranks,)."""
        begun_s = self._ready_s
        if not self._prefetch:
            begun_s = self._first(asked_s)
        elif len(self._taken_s) == self._prefetch:
            begun_s = np.maximum(begun_s, self._taken_s[0])
        self._ready_s = begun_s + self._next_s()
        has_s: Floats = np.maximum(asked_s, self._ready_s if not self._shares else self._ready_s[self._of_rank])
        self._taken_s.append(self._first(has_s))
        return has_s

    def _first(self, times_s: Floats) -> Floats:
        """The earliest of the times of each pipeline's ranks."""
        if not self._shares:
            return times_s
        first_s = np.full(len(self._pipelines), np.inf)
        np.minimum.at(first_s, self._of_rank, times_s)
        return first_s

    def _next_s(self) -> Floats:
        """Seconds of the next batch of each pipeline."""
        if self._jitter is None:
            return self._batch_s
        if self._row == len(self._factors):
            drawn = np.empty((len(self._pipelines), self._block))
            self._jitter.fill(self._pipelines, drawn)
            self._factors, self._row = drawn.T, 0
        self._row += 1
        seconds: Floats = self._batch_s * self._factors[self._row - 1]
        return seconds
