"""What steps are slow by besides jitter: chains of two states, one of each device or one that many have in common, and shared draws."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.base.pcg64 import Sampler, doubles
from simulator.base.rng import Streams
from simulator.spec.stragglers import Slowdown
from simulator.strategies.setup import InCommon

__all__ = ["Apart", "SharedDraws", "Together", "slowed"]


def slowed(
    slowdown: Slowdown, streams: Streams, workers: NDArray[np.int64], groups: NDArray[np.int64] | None, sampler: Sampler
) -> Apart | Together:
    """The chains of some workers.

    Parameters
    ----------
    slowdown
        Of their devices.
    streams
        Of the replication.
    workers
        Their numbers, shape (n,).
    groups
        What each has a chain in common with, by number, shape (n,); none: with nobody.
    sampler
        Draws from the streams.
    """
    return Apart(slowdown, streams, workers, sampler) if groups is None else Together(slowdown, streams, groups, sampler)


def _sojourn(slowdown: Slowdown, rng: np.random.Generator, *, slow: bool) -> int:
    """Steps that a state lasts."""
    return int(rng.geometric(1.0 / (slowdown.mean_slow_steps if slow else slowdown.mean_normal_steps)))


class Apart:
    """Each worker is slow by itself; parameters as of :func:`slowed`."""

    def __init__(self, slowdown: Slowdown, streams: Streams, workers: NDArray[np.int64], sampler: Sampler) -> None:
        self._slowdown, self._sampler = slowdown, sampler
        self._states = streams.states("slowdown", workers)
        self._now = doubles(self._states) < slowdown.slow_share
        self._left = np.empty(len(workers), dtype=np.int64)  # steps that the present state still lasts
        for worker in sampler.each(self._states, None, np.arange(len(workers))):
            self._left[worker] = _sojourn(slowdown, sampler.generator, slow=bool(self._now[worker]))

    def slow_down(self, which: NDArray[np.int64], out: NDArray[np.float64]) -> None:
        """Multiply the next factors of some workers, by their place in the list of them; shape (workers, any)."""
        size = out.shape[1]
        stays = self._left[which] > size
        out[stays & self._now[which]] *= self._slowdown.factor
        self._left[which[stays]] -= size
        changing = np.flatnonzero(~stays)
        for place, row in zip(self._sampler.each(self._states, None, which[changing]), out[changing], strict=True):
            self._changing(row, which[changing[place]])
            out[changing[place]] = row

    def _changing(self, row: NDArray[np.float64], worker: np.int64) -> None:
        """Slow down the steps of one worker, whose state changes within them."""
        at, now, left = 0, bool(self._now[worker]), int(self._left[worker])
        while at < len(row):
            run = min(left, len(row) - at)
            if now:
                row[at : at + run] *= self._slowdown.factor
            at += run
            left -= run
            if not left:
                now = not now
                left = _sojourn(self._slowdown, self._sampler.generator, slow=now)
        self._now[worker], self._left[worker] = now, left


class Together:
    """All workers of a group are slow in the same steps, by their number; parameters as of :func:`slowed`."""

    def __init__(self, slowdown: Slowdown, streams: Streams, groups: NDArray[np.int64], sampler: Sampler) -> None:
        self._slowdown, self._sampler = slowdown, sampler
        numbers, self._group = np.unique(groups, return_inverse=True)
        self._states = streams.states(f"slowdown of {slowdown.of}", numbers)
        self._first = doubles(self._states) < slowdown.slow_share
        self._ends: list[list[int]] = [[] for _ in numbers]  # of each group, the first step after each state
        self._step = np.zeros(len(groups), dtype=np.int64)  # that each worker asks for next

    def slow_down(self, which: NDArray[np.int64], out: NDArray[np.float64]) -> None:
        """Multiply the next factors of some workers, by their place in the list of them; shape (workers, any)."""
        size = out.shape[1]
        group = self._group[which]
        order = np.argsort(group, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
            if not len(rows):
                continue
            number, begins = int(group[rows[0]]), self._step[which[rows]]
            self._go_on(number, int(begins.max()) + size)
            passed = np.searchsorted(self._ends[number], begins[:, None] + np.arange(size), side="right")
            slow = (passed % 2 == 0) == self._first[number]
            part = out[rows]
            part[slow] *= self._slowdown.factor
            out[rows] = part
        self._step[which] += size

    def _go_on(self, group: int, step: int) -> None:
        """Draw the states of a group up to a step."""
        ends, slow = self._ends[group], bool(self._first[group])
        if ends and ends[-1] >= step:
            return
        for _ in self._sampler.each(self._states, None, np.array([group])):
            while not ends or ends[-1] < step:
                now = slow == (len(ends) % 2 == 0)
                ends.append((ends[-1] if ends else 0) + _sojourn(self._slowdown, self._sampler.generator, slow=now))


class SharedDraws:
    """What all ranks of a group have more, or less, to do in a step than in the mean.

    Each group draws from a stream of its own, step after step, so that all its ranks find the
    same whenever they ask.

    Parameters
    ----------
    its
        Who has what in common.
    streams
        Of the replication.
    sampler
        Draws from the streams.
    """

    def __init__(self, its: InCommon, streams: Streams, sampler: Sampler) -> None:
        groups = len(its.weights)
        self._its, self._sampler, self._mean = its, sampler, its.law.mean()
        self._states = streams.states("in common", np.arange(groups))
        # half of a word of 64 bits that a draw of 32 bits has left over
        self._spare = np.zeros(groups, dtype=np.uint64) if its.law.kind == "empirical" else None
        self._drawn = [np.empty(0) for _ in range(groups)]  # of each group, step after step
        self._step = np.zeros(len(its.group), dtype=np.int64)  # that each rank asks for next

    def multiply(self, ranks: NDArray[np.int64], out: NDArray[np.float64]) -> None:
        """Multiply the next factors of some ranks, shape (ranks, any)."""
        size, its = out.shape[1], self._its
        for place, rank in enumerate(ranks.tolist()):
            if (group := int(its.group[rank])) >= 0:
                begin = int(self._step[rank])
                self._go_on(group, begin + size)
                out[place] *= 1.0 + its.share[rank] * (self._drawn[group][begin : begin + size] - 1.0)
        self._step[ranks] += size

    def _go_on(self, group: int, step: int) -> None:
        """Draw what a group has in common up to a step."""
        known = self._drawn[group]
        if len(known) >= step:
            return
        weights, law = self._its.weights[group], self._its.law
        count = max(step, 2 * len(known)) - len(known)
        drawn = np.empty(count * len(weights))
        for _ in self._sampler.each(self._states, self._spare, np.array([group])):
            drawn[:] = law.drawn(self._sampler.generator, len(drawn))
        each = (law.shaped(drawn) / self._mean).reshape(count, len(weights))
        more = np.zeros(count)
        for column, weight in enumerate(weights):
            more += weight * each[:, column]
        self._drawn[group] = np.concatenate((known, more))
