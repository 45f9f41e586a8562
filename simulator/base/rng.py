"""Named, independent random streams, all from one seed, by numpy's counter-based generator.

The stream ``("compute", 3)`` of replication 5 depends only on the seed, the replication and its own name: adding a worker, or another use
of chance, changes no other stream. A stream that gets another name, or another size of blocks here, changes all results that draw from it.

Philox (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) makes draws of a key and a counter, so that any part of
its stream can be begun at once. A million workers need no generator each: what many of them draw of one name are rows of a table
(:class:`Rows`) that is drawn in blocks, each from a counter of its own.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from threading import local
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Sampled: TypeAlias = Callable[[np.random.Generator, tuple[int, int]], NDArray[Any]]

_COLUMNS, _CELLS = 32, 8192
"""Draws of a row in a block, and of all its rows."""
_NUMBERS_OF_A_ROW = 4096
"""In a block, at most, where a draw is several numbers."""
_KEPT_BYTES = 1 << 25
"""Remaining values of unfinished blocks, in one table."""


class Streams:
    """The random streams of one replication.

    Parameters
    ----------
    seed
        The scenario's seed.
    replication
        Number of the replication, from 0.

    Attributes
    ----------
    seed, replication
        As given.
    """

    def __init__(self, seed: int, replication: int) -> None:
        self.seed = seed
        self.replication = replication

    def generator(self, name: str, index: int = 0) -> np.random.Generator:
        """The stream of this name and index; asking twice gives it from its start."""
        return _generator(self.seed, (self.replication, _number(name), index))

    def of_the_seed(self, name: str, index: int = 0) -> np.random.Generator:
        """A stream that all replications have in common, from its start."""
        return _generator(self.seed, (_number(name), index))

    def rows(self, name: str, numbers: NDArray[np.int64], sample: Sampled, numbers_a_draw: int = 1) -> Rows:
        """Return what many draw of this name, from its start; parameters as in :class:`Rows`."""
        columns = max(min(_COLUMNS, _NUMBERS_OF_A_ROW // numbers_a_draw), 1)
        return Rows(self._key(name), numbers, sample, columns, max(_CELLS // (columns * numbers_a_draw), 1))

    def once(self, name: str, numbers: NDArray[np.int64], sample: Sampled, *, scattered: bool = False) -> NDArray[np.float64]:
        """One draw of each of many rows of this name, shape (n,); parameters as of :class:`Rows`.

        If the numbers are scattered over a wide range, each row is its own group.
        """
        draws = np.empty((len(numbers), 1))
        Rows(self._key(name), numbers, sample, 1, 1 if scattered else _CELLS).fill(np.arange(len(numbers)), draws)
        return draws[:, 0]

    def _key(self, name: str) -> tuple[int, int]:
        return _key(self.seed, (self.replication, _number(name), 0, 0))


class Rows:
    """Draws of many workers from one name: a row each, in sequence.

    Rows are cut into groups, draws into blocks of columns. Each block of a group is drawn at
    once, row by row, from a counter of its own: a row's draws depend neither on how many
    rows there are, nor on the order in which they are asked for, nor on how many at a time.

    Parameters
    ----------
    key
        Of the generator.
    numbers
        Of the rows, ascending, shape (n,).
    sample
        Fills an array of some shape, in the order of its elements, each draw from the next
        numbers of the generator; an element may be an array in turn.
    columns, height
        Draws of a row in a block, and rows of a group.
    """

    def __init__(self, key: tuple[int, int], numbers: NDArray[np.int64], sample: Sampled, columns: int, height: int) -> None:
        self._key, self._sample = key, sample
        self._columns, self._height = columns, height
        few = len(numbers) and numbers[-1] < 1 << 31
        self._group, self._row = np.divmod(numbers.astype(np.int32) if few else numbers, height)
        self._taken = np.zeros(len(numbers), dtype=np.int32)  # draws of each row
        last = np.flatnonzero(np.append(self._group[1:] != self._group[:-1], True))[: len(numbers)]  # row of each group
        # no more rows are drawn than are needed, since those before are the same whatever comes after
        self._rows = dict(zip(self._group[last].tolist(), (self._row[last] + 1).tolist(), strict=True))
        self._blocks: OrderedDict[tuple[int, int], tuple[NDArray[Any], int]] = OrderedDict()  # and how many draws are left of each

    def fill(self, which: NDArray[np.int64], out: NDArray[Any]) -> None:
        """The next draws of some rows, by their place in the list of them.

        Parameters
        ----------
        which
            Each once, shape (n,).
        out
            Takes the next draws of each: shape (n, any).
        """
        size = out.shape[1]
        for places in self._alike(which):
            first = which[places[0]]
            rows, into = _span(self._row[which[places]]), _span(places)
            group, at, done = int(self._group[first]), int(self._taken[first]), 0
            while done < size:
                number, column = divmod(at + done, self._columns)
                count = min(self._columns - column, size - done)
                block = self._block(group, number, len(places) * count)
                out[into, done : done + count] = block[rows, column : column + count]
                done += count
        self._taken[which] += size

    def _alike(self, which: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Places in a list of rows, those together that are of one group and as far as each other."""
        if not len(which):
            return []
        group, taken = self._group[which], self._taken[which]
        alike = group * np.int64(taken.max() + 1) + taken
        order = np.argsort(alike, kind="stable")
        alike = alike[order]
        if alike[0] == alike[-1]:
            return [order]
        return np.split(order, np.flatnonzero(alike[1:] != alike[:-1]) + 1)

    def _block(self, group: int, number: int, use: int) -> NDArray[Any]:
        """A block of a group, of which some draws are used; it is kept until all have been, or others need the room."""
        block, left = self._blocks.pop((group, number), (None, 0))
        if block is None:
            block = self._sample(_begun(self._key, number, group), (self._rows[group], self._columns))
            left = len(block) * self._columns
        if left > use:
            self._blocks[group, number] = block, left - use
            # of more groups than there is room for, those that are asked for together: before a group's turn comes again it were gone
            each = self._height * block[0].nbytes
            kept = _KEPT_BYTES // each
            while len(self._blocks) > (kept if len(self._rows) <= kept else kept // 8):
                self._blocks.popitem(last=False)
        return block


def _span(places: NDArray[np.int64]) -> slice | NDArray[np.int64]:
    """Return the places as a slice where they follow each other: numpy copies these faster."""
    first, last = int(places[0]), int(places[-1])
    return slice(first, last + 1) if last - first + 1 == len(places) and (places[1:] > places[:-1]).all() else places


def _number(name: str) -> int:
    return zlib.crc32(name.encode())


def _generator(seed: int, key: tuple[int, ...]) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(seed, spawn_key=key)))


@lru_cache(maxsize=256)
def _key(seed: int, key: tuple[int, ...]) -> tuple[int, int]:
    """Return the key of a table, which the scenarios of a sweep have in common; longer than that of any stream."""
    low, high = np.random.SeedSequence(seed, spawn_key=key).generate_state(2, np.uint64).tolist()
    return low, high


_own = local()


def _begun(key: tuple[int, int], number: int, group: int) -> np.random.Generator:
    """This thread's generator as ``Philox(key=key, counter=[0, 0, number, group])`` begins, which takes longer to make."""
    if not hasattr(_own, "generator"):
        _own.generator = np.random.Generator(np.random.Philox(key=0))
        _own.state = _own.generator.bit_generator.state
    generator: np.random.Generator = _own.generator
    state = {"counter": np.array([0, 0, number, group], dtype=np.uint64), "key": np.array(key, dtype=np.uint64)}
    generator.bit_generator.state = {**_own.state, "state": state}
    return generator
