"""Measures whether asynchronous workers step in unison: the order of their phases in each round, and when it was lost.

A worker's phase is how far it is in its step, as an angle. The order is the length of the
mean of the workers' unit vectors (Kuramoto 1975): 1 if all are at the same point, about
1 / sqrt(n) if they are anywhere. Under fair sharing nothing pulls phases apart but the
jitter of compute, so workers that start together may stay together for a whole run, and a
run that begins otherwise has another throughput.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

_IN_A_ROW = 5
_EXCEEDED = 0.25
_AT_FIRST = 8
"""Rounds that are looked at together, as long as phases may not have mixed; then twice as many, and so on."""
_AT_A_TIME = 1 << 16
"""Workers whose phases are summed at a time."""


@cache
def random_order(workers: int) -> float:
    """The order that workers at independent, uniformly random phases exceed with a chance of one in four.

    Rayleigh: sqrt(-ln(1/4) / n) for many; drawn for few. A rarer order would let pass, of
    three or four workers, phases that still give another throughput.
    """
    if workers > 8:
        return float(np.sqrt(-np.log(_EXCEEDED) / workers))
    angles = np.random.default_rng(0).uniform(0, 2 * np.pi, (20_000, workers))
    return float(np.quantile(np.abs(np.exp(1j * angles).mean(axis=1)), 1 - _EXCEEDED))


class Phases:
    """Follows the order of one run, once a round (as many steps as there are workers), in fixed memory.

    Attributes
    ----------
    first, last
        Order in the first round, and the mean of the last rounds (at most five).
    mixed_s
        End of the first of five rounds in a row whose mean order is at most that of random phases; none if that did not happen.
    """

    def __init__(self, workers: int) -> None:
        self.first: float | None = None
        self.mixed_s: float | None = None
        self._begun_s = np.full(workers, np.nan)  # not yet
        self._workers = workers
        self._steps = 0
        self._total_s = 0.0
        # of the last rounds: their ends, and their orders
        self._recent_s, self._recent = np.zeros(0), np.zeros(0)

    def steps(self, workers: NDArray[np.int64], start_s: NDArray[np.float64], end_s: NDArray[np.float64]) -> None:
        """Workers have ended steps, in the order of their ends, and begin their next; shapes (n,)."""
        first = min(self._workers - self._steps, len(workers))
        self._begin(workers[:first], start_s[:first], end_s[:first])
        rounds = (len(workers) - first) // self._workers
        rest = first + rounds * self._workers
        if rounds:
            each = rounds, self._workers
            self._rounds(workers[first:rest].reshape(each), start_s[first:rest].reshape(each), end_s[first:rest].reshape(each))
        self._begin(workers[rest:], start_s[rest:], end_s[rest:])

    def end(self) -> None:
        """No more steps come: what is known of each worker is given back."""
        self._begun_s = np.empty(0)

    def _begin(self, workers: NDArray[np.int64], start_s: NDArray[np.float64], end_s: NDArray[np.float64]) -> None:
        """A part of a round, or its end."""
        if not len(workers):
            return
        self._begun_s[workers] = end_s
        # one after the other, which no other sum is equal to
        self._total_s = float(np.cumsum(np.append(self._total_s, end_s - start_s))[-1])
        self._steps += len(workers)
        if self._steps == self._workers:
            self._look(end_s[-1:], self._begun_s[None, :], np.array([self._total_s]))
            self._steps, self._total_s = 0, 0.0

    def _rounds(self, workers: NDArray[np.int64], start_s: NDArray[np.float64], end_s: NDArray[np.float64]) -> None:
        """Whole rounds, shapes (rounds, workers)."""
        begun_s = np.full((len(workers) + 1, self._workers), np.nan)
        begun_s[0] = self._begun_s
        begun_s[np.arange(1, len(begun_s))[:, None], workers] = end_s
        begun_s = np.fmax.accumulate(begun_s)[1:]  # who ends none in a round is where it was
        self._begun_s = begun_s[-1].copy()
        self._look(end_s[:, -1], begun_s, np.cumsum(end_s - start_s, axis=1)[:, -1])

    def _look(self, now_s: NDArray[np.float64], begun_s: NDArray[np.float64], total_s: NDArray[np.float64]) -> None:
        """At the end of some rounds, shape (rounds,): when each worker has begun its step, and seconds of the round's steps together."""
        seen = np.flatnonzero((total_s > 0) & ~np.isnan(begun_s).any(axis=1))
        at, many = 0, _AT_FIRST
        while at < len(seen):
            if self.mixed_s is not None:  # of all others no more is asked
                at, many = max(at, len(seen) - _IN_A_ROW), _IN_A_ROW
            some = seen[at : at + many]
            self._note(now_s[some], _orders(now_s[some], begun_s, some, total_s[some] / self._workers))
            at, many = at + len(some), 2 * many

    def _note(self, now_s: NDArray[np.float64], orders: NDArray[np.float64]) -> None:
        """Take the orders at some instants, shapes (rounds,)."""
        if self.first is None:
            self.first = float(orders[0])
        now_s, orders = np.append(self._recent_s, now_s), np.append(self._recent, orders)
        if self.mixed_s is None and len(orders) >= _IN_A_ROW:
            mixed = np.flatnonzero(sliding_window_view(orders, _IN_A_ROW).mean(axis=1) <= random_order(self._workers))
            if len(mixed):
                self.mixed_s = float(now_s[mixed[0]])
        self._recent_s, self._recent = now_s[-_IN_A_ROW:], orders[-_IN_A_ROW:]

    @property
    def last(self) -> float:
        """Mean order of the last rounds."""
        return float(self._recent.mean()) if len(self._recent) else 0.0


def _orders(
    now_s: NDArray[np.float64], begun_s: NDArray[np.float64], some: NDArray[np.intp], step_s: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The order at some instants, shape (rounds,), of workers that have begun their steps, at any instant, of such a length.

    Parameters
    ----------
    begun_s
        At all instants, shape (any, workers).
    some
        Which of these are asked for, shape (rounds,).
    """
    workers = begun_s.shape[1]
    along, across = np.zeros(len(some)), np.zeros(len(some))
    for at in range(0, workers, _AT_A_TIME):
        angles = now_s[:, None] - begun_s[some, at : at + _AT_A_TIME]
        angles *= 2 * np.pi
        angles /= step_s[:, None]
        along += np.cos(angles).sum(axis=1)
        across += np.sin(angles, out=angles).sum(axis=1)
    orders: NDArray[np.float64] = np.hypot(along / workers, across / workers)
    return orders
