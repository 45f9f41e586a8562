"""What takes little memory however much it describes: statistics of any number of values, columns, and names made when asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

_GROWTH = float(np.log(1.01))
_LEAST_S = 1e-12
_SMALL, _ROOMY = 1 << 13, 64


class TimeSketch:
    """Mean and quantiles of positive times, to half a percent, whatever their number.

    Values are counted in bins whose edges grow by 1%, the sketch of Masson, Rim and Lee,
    "DDSketch" (VLDB 2019); the mean is exact.
    """

    def __init__(self) -> None:
        self._first = 0  # key of the first bin
        self._bins = np.zeros(0, dtype=np.int64)
        self.count = 0
        self.total = 0.0

    def add(self, values: NDArray[np.float64]) -> None:
        """Take values, in seconds, shape (n,)."""
        self.add_each(values[None, :])

    def add_each(self, values: NDArray[np.float64]) -> None:
        """Take several rows of values one after the other, shape (rows, n)."""
        if not values.size:
            return
        keys = np.rint(np.log(np.maximum(values, _LEAST_S)) / _GROWTH).astype(np.int64)
        first = int(keys.min())
        self._count(first, np.bincount((keys - first).ravel()))
        self.count += values.size
        for total in values.sum(axis=1).tolist():
            self.total += total

    def _count(self, first: int, counts: NDArray[np.int64]) -> None:
        """Add counts of successive bins."""
        bins, end = self._bins, first + len(counts)
        if not len(counts):
            return
        if not len(bins):
            self._first, self._bins = first, counts.copy()
            return
        before, behind = max(self._first - first, 0), max(end - self._first - len(bins), 0)
        if before or behind:
            self._first -= before
            self._bins = bins = np.concatenate([np.zeros(before, dtype=np.int64), bins, np.zeros(behind, dtype=np.int64)])
        bins[first - self._first : end - self._first] += counts

    def merge(self, other: TimeSketch) -> None:
        """Take all that another sketch has taken."""
        self._count(other._first, other._bins)
        self.count += other.count
        self.total += other.total

    def mean(self) -> float:
        """Exact mean, in seconds; 0 of nothing."""
        return self.total / self.count if self.count else 0.0

    def quantiles(self, *shares: float) -> list[float]:
        """Quantiles in seconds, each to half a percent; zeros of nothing."""
        if not self.count:
            return [0.0 for _ in shares]
        filled = np.flatnonzero(self._bins)
        places: NDArray[np.intp] = np.searchsorted(np.cumsum(self._bins[filled]), np.asarray(shares) * self.count)
        values = np.exp((self._first + filled[np.minimum(places, len(filled) - 1)]) * _GROWTH)
        return [0.0 if value <= _LEAST_S * 1.01 else float(value) for value in values]


class CountHistogram:
    """Exact histogram of whole numbers, such as staleness; of those that lie together each takes eight bytes."""

    def __init__(self) -> None:
        self._first = 0  # what the first count is of
        self._near = np.zeros(0, dtype=np.int64)
        self._far: dict[int, int] = {}  # how often came what lies too far from these
        self._counted = 0

    @property
    def counts(self) -> dict[int, int]:
        """How often each value was counted, those that lie together in order."""
        near = np.flatnonzero(self._near)
        found = dict(zip((near + self._first).tolist(), self._near[near].tolist(), strict=True))
        for value, times in self._far.items():
            found[value] = found.get(value, 0) + times
        return found

    def add(self, value: int, times: int = 1) -> None:
        """Count a value, or the same value several times."""
        self._counted += times
        if self._reach(value, value):
            self._near[value - self._first] += times
        else:
            self._far[value] = self._far.get(value, 0) + times

    def add_all(self, values: NDArray[np.int64]) -> None:
        """Count values, shape (n,)."""
        if not len(values):
            return
        least, most = int(values.min()), int(values.max())
        self._counted += len(values)
        if not self._reach(least, most):
            self._counted -= len(values)
            distinct, times = np.unique(values, return_counts=True)
            for value, count in zip(distinct.tolist(), times.tolist(), strict=True):
                self.add(value, count)
        elif most - least < len(values) + _SMALL:
            self._add_near(least, np.bincount(values - least))
        else:
            np.add.at(self._near, values - self._first, 1)

    def merge(self, other: CountHistogram) -> None:
        """Take all that another histogram has taken."""
        near = np.flatnonzero(other._near)
        if len(near):
            low, high = int(near[0]), int(near[-1])
            if self._reach(other._first + low, other._first + high):
                self._counted += int(other._near.sum())
                self._add_near(other._first + low, other._near[low : high + 1])
            else:
                for value, count in zip((near + other._first).tolist(), other._near[near].tolist(), strict=True):
                    self.add(value, count)
        for value, count in other._far.items():
            self.add(value, count)

    def _add_near(self, least: int, counts: NDArray[np.int64]) -> None:
        """Add counts of successive values that are all in reach."""
        begin = least - self._first
        self._near[begin : begin + len(counts)] += counts

    def _reach(self, least: int, most: int) -> bool:
        """Make room for all values between two, unless there would be few counts in much room; whether there is."""
        first, end = self._first, self._first + len(self._near)
        if first <= least and most < end:
            return True
        if len(self._near):
            room = len(self._near) // 4  # for more of them
            least = first if least >= first else min(least, max(first - room, 0))
            most = end - 1 if most < end else max(most, end - 1 + room)
        if most - least >= _SMALL + _ROOMY * self._counted:
            return False
        counts = np.zeros(most - least + 1, dtype=np.int64)
        counts[first - least : end - least] = self._near
        self._first, self._near = least, counts
        return True

    def mean(self) -> float:
        """Exact mean; 0 of nothing."""
        near = int(self._near.sum())
        total = near + sum(self._far.values())
        sums = near * self._first + int(self._near @ np.arange(len(self._near)))
        sums += sum(value * count for value, count in self._far.items())
        return sums / total if total else 0.0

    def quantile(self, share: float) -> int:
        """Smallest value that at least this share of all values do not exceed; 0 of nothing."""
        if not self._far:
            reached = np.cumsum(self._near)
            total = int(reached[-1]) if len(reached) else 0
            return self._first + int(np.searchsorted(reached, max(share * total, 1))) if total else 0
        counts = self.counts
        need = share * sum(counts.values())
        seen = 0
        for value in sorted(counts):
            seen += counts[value]
            if seen >= need:
                return value
        return 0


_EXACT = 16
_WIDTH = float(np.log(1.25))
_BINS = 56
_TABLED = 1 << 13
"""Numbers up to here, which most are, have their bin in a table."""


def _bins_of(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """The bin of each of some whole numbers."""
    above = _EXACT + np.floor(np.log(np.maximum(values, _EXACT) / _EXACT) / _WIDTH + 1e-9)
    return np.minimum(np.where(values < _EXACT, values, above), _BINS - 1).astype(np.int64)


@cache
def _bins_up_to(most: int) -> NDArray[np.int64]:
    """The same of all numbers up to one."""
    return _bins_of(np.arange(most + 1))


class GroupedCounts:
    """Counts of whole numbers for each of many groups, such as the staleness of each worker's updates.

    Mean and maximum are exact; quantiles are exact up to 16 and to 12% above (the middle
    of bins that grow by 25%). 240 bytes a group, whatever the number of values.
    """

    def __init__(self, groups: int) -> None:
        self.total = np.zeros(groups)
        self.largest = np.zeros(groups, dtype=np.int64)
        self._bins = np.zeros((groups, _BINS), dtype=np.uint32)

    def add(self, groups: NDArray[np.int64], values: NDArray[np.int64]) -> None:
        """Count ``values[i]`` in group ``groups[i]``, shapes (n,)."""
        count = len(self.total)
        self.total += np.bincount(groups, weights=values, minlength=count)  # of whole numbers, so exact
        np.maximum.at(self.largest, groups, values)
        bins = _bins_up_to(_TABLED)[values] if values.size and values.max() <= _TABLED else _bins_of(values)
        np.add.at(self._bins.reshape(-1), groups * _BINS + bins, np.uint32(1))

    def merge(self, other: GroupedCounts) -> None:
        """Take all that another has taken, group by group."""
        self.total += other.total
        self.largest = np.maximum(self.largest, other.largest)
        self._bins = self._bins + other._bins

    def means(self) -> list[float]:
        """Mean of each group; 0 of nothing."""
        counts = self._bins.sum(axis=1)
        return [float(mean) for mean in self.total / np.maximum(counts, 1)]

    def quantiles(self, share: float) -> list[int]:
        """Of each group the smallest value that at least this share does not exceed, to the precision of the bins."""
        reached = np.cumsum(self._bins, axis=1)
        places = (reached < share * reached[:, -1:]).sum(axis=1)
        values = np.where(places < _EXACT, places, np.round(_EXACT * np.exp((np.maximum(places - _EXACT, 0) + 0.5) * _WIDTH)))
        return [int(value) for value in np.minimum(values, self.largest)]


_Item = TypeVar("_Item", bound=np.generic)


def compact(column: NDArray[_Item]) -> NDArray[_Item]:
    """The same column; one whose values are all the same takes the memory of one, and cannot be written to."""
    return np.broadcast_to(column[0], column.shape) if len(column) and (column == column[0]).all() else column


def numbers(column: NDArray[Any]) -> NDArray[np.int32]:
    """Numbers of rows, or counts, in four bytes each; the same array where they are so already.

    Raises
    ------
    OverflowError
        One of them needs more.
    """
    if column.dtype == np.int32:
        return column
    if column.size and not -(1 << 31) <= int(column.min()) <= int(column.max()) < 1 << 31:
        raise OverflowError(f"numbers of rows take four bytes, and {int(column.max()):,} does not fit")
    return column.astype(np.int32)


Name = TypeVar("Name", covariant=True)


class Names(Sequence[Name], Generic[Name]):
    """Names that are made when they are asked for: texts, or what says more than a text.

    Parameters
    ----------
    count
        How many.
    name_of
        Gives each from its place. Two lists of the same places by equal functions are equal.
    """

    def __init__(self, count: int, name_of: Callable[[int], Name]) -> None:
        self._places = range(count)
        self._name_of = name_of

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, place: int) -> Name: ...
    @overload
    def __getitem__(self, place: slice) -> Names[Name]: ...
    def __getitem__(self, place: int | slice) -> Name | Names[Name]:
        """The name at a place, or those of a part."""
        places = self._places[place]
        if isinstance(places, int):
            return self._name_of(places)
        part = Names(0, self._name_of)
        part._places = places
        return part

    def __iter__(self) -> Iterator[Name]:
        return map(self._name_of, self._places)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Names) and self._name_of == other._name_of:
            return self._places == other._places
        return isinstance(other, Sequence) and len(self) == len(other) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


def joined(*parts: Sequence[Name]) -> Names[Name]:
    """Several sequences of names, one after the other."""
    return Names(sum(map(len, parts)), _Joined(parts))


@dataclass(frozen=True)
class _Joined(Generic[Name]):
    parts: tuple[Sequence[Name], ...]

    def __call__(self, place: int) -> Name:
        for part in self.parts:
            if place < len(part):
                return part[place]
            place -= len(part)
        raise IndexError(place)


def device_name(number: int) -> str:
    """What a device is called wherever its use is measured."""
    return f"device {number}"
