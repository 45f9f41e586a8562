"""Sequences of names that are made only when they are asked for: a million ports need no million texts.

:func:`device_name` must be what ``simulator.engine.textbook`` calls a device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar, overload

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
