"""Correlation between draws of steps: persistence of jitter, two-state chains of slow devices or groups, and draws shared by ranks.

Only ``draws`` uses it. The names of streams here decide what existing scenarios draw.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.base.rng import Rows, Streams
from simulator.spec.distributions import Constant, Distribution, Slowdown
from simulator.strategies.setup import InCommon

_AT_ONCE = 1 << 18
"""Steps of all workers that are worked out at once."""
_LEAST_AHEAD = 32
"""Steps that are drawn of what many have in common."""


def drawn(distribution: Distribution, streams: Streams, name: str, numbers: NDArray[np.int64]) -> Rows | Persistent:
    """Return what many draw of a distribution, one step after the other.

    Parameters
    ----------
    distribution
        Not constant.
    streams
        Of the replication.
    name
        Of the streams.
    numbers
        Of those who draw, ascending, shape (n,).
    """
    rows = streams.rows(name, numbers, distribution.sample)
    assert not isinstance(distribution, Constant), "nothing is drawn of a constant"
    return Persistent(distribution, streams, name, numbers, rows) if distribution.persistence else rows


class Persistent:
    """Draws that stay what they were before with a fixed chance; parameters as of :func:`drawn`, and the independent draws."""

    def __init__(self, distribution: Distribution, streams: Streams, name: str, numbers: NDArray[np.int64], rows: Rows) -> None:
        assert not isinstance(distribution, Constant), "nothing is drawn of a constant"
        self._rows = rows
        self._stays = streams.rows(f"{name} stays", numbers, np.random.Generator.random)
        self._persistence = distribution.persistence
        self._last = streams.once(f"{name} at first", numbers, distribution.sample)

    def fill(self, which: NDArray[np.int64], out: NDArray[np.float64]) -> None:
        """The next draws of some, by their place in the list of them, as of :meth:`Rows.fill`."""
        size = out.shape[1]
        stays = np.empty((len(which), size))
        self._stays.fill(which, stays)
        self._rows.fill(which, out)
        renewed = np.maximum.accumulate(np.where(stays >= self._persistence, np.arange(1, size + 1), 0), axis=1)
        out[...] = np.take_along_axis(np.column_stack((self._last[which], out)), renewed, axis=1)
        if size:
            self._last[which] = out[:, -1]


def slowed(slowdown: Slowdown, streams: Streams, workers: NDArray[np.int64], groups: NDArray[np.int64] | None) -> Apart | Together:
    """The chains of some workers.

    Parameters
    ----------
    slowdown
        Of their devices.
    streams
        Of the replication.
    workers
        Their numbers, ascending, shape (n,).
    groups
        What each has a chain in common with, by number, shape (n,); none: with nobody.
    """
    return Apart(slowdown, streams, workers) if groups is None else Together(slowdown, streams, groups)


class _Chains:
    """Chains of two states, each of which takes a uniform draw a step.

    Parameters
    ----------
    slowdown
        The chances that they change by.
    streams
        Of the replication.
    numbers
        Of the chains, ascending, shape (n,).
    """

    def __init__(self, slowdown: Slowdown, streams: Streams, numbers: NDArray[np.int64]) -> None:
        name = f"slowdown of {slowdown.of}"
        self._slow = streams.once(f"{name} at first", numbers, np.random.Generator.random) < slowdown.slow_share
        self._rows = streams.rows(name, numbers, np.random.Generator.random)
        self._begins, self._stays = 1.0 / slowdown.mean_normal_steps, 1.0 - 1.0 / slowdown.mean_slow_steps

    def next(self, which: NDArray[np.int64], size: int) -> NDArray[np.bool_]:
        """In which of their next steps some chains are slow, by their place in the list of them: shape (chains, size)."""
        draws = np.empty((len(which), size))
        self._rows.fill(which, draws)
        # below both chances whatever is becomes slow, above both normal; between them it stays as it is, or changes
        low, high = sorted((self._begins, self._stays))
        becomes_slow = draws < low
        becomes = becomes_slow | (draws >= high)
        last = np.maximum.accumulate(np.where(becomes, np.arange(1, size + 1), 0), axis=1)
        slow = np.take_along_axis(np.column_stack((self._slow[which], becomes_slow)), last, axis=1)
        if self._begins > self._stays:
            changes = np.cumsum(~becomes, axis=1)
            before = np.take_along_axis(np.column_stack((np.zeros_like(which), changes)), last, axis=1)
            slow ^= (changes - before) % 2 == 1
        in_each = np.column_stack((self._slow[which], slow[:, :-1]))
        self._slow[which] = slow[:, -1]
        return in_each


class Apart:
    """Workers are slow independently; parameters as of :func:`slowed`."""

    def __init__(self, slowdown: Slowdown, streams: Streams, workers: NDArray[np.int64]) -> None:
        self._factor = slowdown.factor
        self._chains = _Chains(slowdown, streams, workers)

    def slow_down(self, which: NDArray[np.int64], out: NDArray[np.float64]) -> None:
        """Multiply the next factors of some workers, by their place in the list of them; shape (workers, any)."""
        size = out.shape[1]
        rows = max(_AT_ONCE // size, 1)
        for begin in range(0, len(which), rows):
            out[begin : begin + rows][self._chains.next(which[begin : begin + rows], size)] *= self._factor


class Together:
    """All workers of a group are slow in the same steps, by their number; parameters as of :func:`slowed`."""

    def __init__(self, slowdown: Slowdown, streams: Streams, groups: NDArray[np.int64]) -> None:
        self._factor = slowdown.factor
        numbers, group = np.unique(groups, return_inverse=True)
        chains, every = _Chains(slowdown, streams, numbers), np.arange(len(numbers))
        self._ahead = _Ahead(group, lambda count: chains.next(every, count))

    def slow_down(self, which: NDArray[np.int64], out: NDArray[np.float64]) -> None:
        """Multiply the next factors of some workers, by their place in the list of them; shape (workers, any)."""
        out[self._ahead.next(which, out.shape[1])] *= self._factor


class SharedDraws:
    """Common factor on the work of all ranks of a group in a step.

    Each group draws step after step, so that all its ranks find the same whenever they ask.

    Parameters
    ----------
    common
        Who has what in common.
    streams
        Of the replication.
    """

    def __init__(self, common: InCommon, streams: Streams) -> None:
        self._common = common
        weights = np.concatenate(common.weights)
        things = np.arange(len(weights))  # that vary, group by group
        first = np.cumsum([0, *map(len, common.weights[:-1])])
        rows, mean = drawn(common.distribution, streams, "in common", things), common.distribution.mean()

        def more(count: int) -> NDArray[np.float64]:
            draws = np.empty((len(things), count))
            rows.fill(things, draws)
            summed: NDArray[np.float64] = np.add.reduceat(weights[:, None] * (draws / mean), first)
            return summed

        self._of = np.flatnonzero(common.group >= 0)
        self._place = np.cumsum(common.group >= 0) - 1
        self._ahead = _Ahead(common.group[self._of], more)

    def multiply(self, ranks: NDArray[np.int64], out: NDArray[np.float64]) -> None:
        """Multiply the next factors of some ranks, shape (ranks, any)."""
        of = np.flatnonzero(self._common.group[ranks] >= 0)
        factors = self._ahead.next(self._place[ranks[of]], out.shape[1])
        out[of] *= 1.0 + self._common.share[ranks[of], None] * (factors - 1.0)


class _Ahead:
    """Draws of groups step by step, kept from the first step that one of them still needs.

    Parameters
    ----------
    group
        Of each who asks, shape (n,).
    more
        The next ``count`` steps of all groups, shape (groups, count).
    """

    def __init__(self, group: NDArray[np.int64], more: Callable[[int], NDArray[Any]]) -> None:
        self._group, self._more = group, more
        self._known, self._first = more(_LEAST_AHEAD), 0
        self._step = np.zeros(len(group), dtype=np.int64)  # that each asks for next

    def next(self, which: NDArray[np.int64], size: int) -> NDArray[Any]:
        """The next steps of some who ask, shape (n, size)."""
        begins = self._step[which]
        missing = int(begins.max(initial=0)) + size - self._first - self._known.shape[1]
        if missing > 0:
            passed = int(self._step.min()) - self._first
            more = self._more(max(missing, self._known.shape[1] - passed, _LEAST_AHEAD))
            self._known, self._first = np.concatenate((self._known[:, passed:], more), axis=1), self._first + passed
        self._step[which] += size
        steps: NDArray[Any] = self._known[self._group[which, None], (begins - self._first)[:, None] + np.arange(size)]
        return steps
