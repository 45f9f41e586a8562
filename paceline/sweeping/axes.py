"""Axes of a grid: a dotted key, and the values that it takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from simulator.errors import InputError
from simulator.loading import plain

__all__ = ["Axis", "axes_of"]

Axis = tuple[str, list[Any]]
"""A dotted key and the values that it takes."""


def axes_of(over: Mapping[str, Iterable[Any]]) -> list[Axis]:
    """Keys with their values; specifications among these as nested tables.

    Raises
    ------
    InputError
        Values are text, or there are none.
    """
    wrong = next((key for key, values in over.items() if isinstance(values, str)), None)
    if wrong is not None:
        raise InputError(f"`over`: {wrong}: must be a list of values, such as [1, 2, 4], not {str(over[wrong])[:60]!r}")
    axes = [(key, [plain(value) for value in values]) for key, values in over.items()]
    if empty := next((key for key, values in axes if not values), None):
        raise InputError(f"`over`: {empty}: must be a list of one value or more, such as [1, 2, 4]")
    return axes
