"""Input pipelines, which prepare batches while devices compute."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from simulator.engine.textbook.clock import Clock, Going


class Pipeline:
    """Prepares one batch after the other, as the thread of tf.data's ``PrefetchDataset`` does.

    Parameters
    ----------
    prefetch
        Batches that stand ready at most before another is begun; 0: each is begun when it is asked for.
    parts
        What a batch takes, all at the same time: each does its part, multiplied by a factor.
    factors
        Of the batches.
    first_s
        When the first of the ranks that it feeds begins.
    """

    def __init__(
        self, clock: Clock, prefetch: int, parts: Sequence[Callable[[float], Going]], factors: Iterator[float], first_s: float
    ) -> None:
        self._clock, self._prefetch, self._parts, self._factors = clock, prefetch, parts, factors
        self._made = self._asked = 0
        self._news = clock.event()
        clock.process(self._prepare(first_s))

    def _prepare(self, first_s: float) -> Going:
        if self._prefetch:
            yield self._clock.timeout(first_s)
        while True:
            while self._made >= max(min(self._asked, self._made) + self._prefetch, self._asked):
                yield self._news
            factor = next(self._factors)
            yield self._clock.all_of([self._clock.process(part(factor)) for part in self._parts])
            self._made += 1
            self._announce()

    def batch(self, number: int) -> Going:
        """Wait for a batch by its number, from 1 on; a rank that asks takes its part of it."""
        self._asked = max(self._asked, number)
        self._announce()
        while self._made < number:
            yield self._news

    def _announce(self) -> None:
        self._news.succeed()
        self._news = self._clock.event()
