"""Compact data: statistics of any number of values, columns, and names made on demand."""

from __future__ import annotations

import bisect
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

_GROWTH = float(np.log(1.01))
_LEAST_S = 1e-12


class CountHistogram:
    """Exact histogram of whole numbers, such as staleness."""

    def __init__(self) -> None:
        self._times: Counter[int] = Counter()

    def add(self, value: int, times: int = 1) -> None:
        """Count a value, or the same value several times."""
        self._times[value] += times

    def add_all(self, values: NDArray[np.int64]) -> None:
        """Count values, shape (n,)."""
        if not len(values):
            return
        least = int(values.min())
        if int(values.max()) - least < len(values) + (1 << 13):
            times = np.bincount(values - least)
            distinct = np.flatnonzero(times)
            distinct, times = distinct + least, times[distinct]
        else:
            distinct, times = np.unique(values, return_counts=True)
        self._times.update(dict(zip(distinct.tolist(), times.tolist(), strict=True)))

    def merge(self, other: CountHistogram) -> None:
        """Take all that another histogram has taken."""
        self._times.update(other._times)

    @property
    def counts(self) -> dict[int, int]:
        """Number of times that each value came, values in order."""
        return dict(sorted(self._times.items()))

    def mean(self) -> float:
        """Exact mean; 0 of nothing."""
        return sum(value * times for value, times in self._times.items()) / self._times.total() if self._times else 0.0

    def quantile(self, share: float) -> int:
        """Smallest value that at least this share of all values do not exceed; 0 of nothing."""
        counts = self.counts
        if not counts:
            return 0
        reached = np.cumsum([*counts.values()])
        return [*counts][np.searchsorted(reached, max(share * int(reached[-1]), 1))]


class TimeSketch:
    """Mean and quantiles of positive times, to half a percent, whatever their number.

    Values are counted in bins whose edges grow by 1%, the sketch of Masson, Rim and Lee,
    "DDSketch" (VLDB 2019); the mean is exact.
    """

    def __init__(self) -> None:
        self._bins = CountHistogram()
        self.count = 0
        self.total = 0.0

    def add(self, values: NDArray[np.float64]) -> None:
        """Take values, in seconds, shape (n,)."""
        self.add_each(values[None, :])

    def add_each(self, values: NDArray[np.float64]) -> None:
        """Take several rows of values one after the other, shape (rows, n)."""
        self._bins.add_all(np.rint(np.log(np.maximum(values, _LEAST_S)) / _GROWTH).astype(np.int64).ravel())
        self.count += values.size
        for total in values.sum(axis=1).tolist():
            self.total += total

    def merge(self, other: TimeSketch) -> None:
        """Take all that another sketch has taken."""
        self._bins.merge(other._bins)
        self.count += other.count
        self.total += other.total

    def mean(self) -> float:
        """Exact mean, in seconds; 0 of nothing."""
        return self.total / self.count if self.count else 0.0

    def quantiles(self, *shares: float) -> list[float]:
        """Quantiles in seconds, each to half a percent; zeros of nothing."""
        if not self.count:
            return [0.0 for _ in shares]
        counts = self._bins.counts
        places: NDArray[np.intp] = np.searchsorted(np.cumsum([*counts.values()]), np.asarray(shares) * self.count)
        values = np.exp(np.array([*counts])[np.minimum(places, len(counts) - 1)] * _GROWTH)
        return [0.0 if value <= _LEAST_S * 1.01 else float(value) for value in values]


_EXACT = 16
_WIDTH = float(np.log(1.25))
_BINS = 56


def _bins_of(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """The bin of each of some whole numbers."""
    above = _EXACT + np.floor(np.log(np.maximum(values, _EXACT) / _EXACT) / _WIDTH + 1e-9)
    return np.minimum(np.where(values < _EXACT, values, above), _BINS - 1).astype(np.int64)


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
        np.add.at(self._bins.reshape(-1), groups * _BINS + _bins_of(values), np.uint32(1))

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
        """Return of each group the smallest value that at least this share does not exceed, to the precision of the bins."""
        reached = np.cumsum(self._bins, axis=1)
        places = (reached < share * reached[:, -1:]).sum(axis=1)
        values = np.where(places < _EXACT, places, np.round(_EXACT * np.exp((np.maximum(places - _EXACT, 0) + 0.5) * _WIDTH)))
        return [int(value) for value in np.minimum(values, self.largest)]


_Item = TypeVar("_Item", bound=np.generic)


def compact(column: NDArray[_Item]) -> NDArray[_Item]:
    """Return the column; if all its values are the same, as a view that takes the memory of one and cannot be written to."""
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
        raise OverflowError(f"row numbers take four bytes, and {int(column.max()):,} does not fit")
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
    ends = [*itertools.accumulate(map(len, parts))]

    def name_of(place: int) -> Name:
        part = bisect.bisect_right(ends, place)
        return parts[part][place - ends[part]]

    return Names(ends[-1], name_of)


def device_name(number: int) -> str:
    """Name of a device wherever its use is measured."""
    return f"device {number}"
