"""Small tables of the page: columns with a kind, rows of plain values; what is written follows from the kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from paceline.reporting.naming import clean
from paceline.reporting.wording import amount, dollars, duration, percent, signed
from simulator.prices import rate_in_words, sum_in_words

__all__ = ["Cell", "Column", "Grid", "Kind", "written"]

Kind = Literal["text", "count", "number", "precise", "seconds", "share", "change", "usd", "hourly", "sum"]
Cell = str | float | int | None

_LONGEST = 400


@dataclass(frozen=True)
class Column:
    """A heading, and how the values below it are written; times are in seconds, shares 0 to 1.

    What a reader may multiply is "precise" and "hourly", with five significant digits, and "sum", with four.
    """

    name: str
    kind: Kind = "text"


@dataclass(frozen=True)
class Grid:
    """A table.

    Attributes
    ----------
    id
        Of its element, and of the CSV file.
    title
        What stands above it.
    rows
        As many cells as there are columns; none where nothing is known.
    """

    id: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]


def written(value: Cell, kind: Kind) -> str:
    """A value as a reader sees it."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return clean(value, _LONGEST) if value else ""
    match kind:
        case "count":
            return f"{value:,.0f}"
        case "seconds":
            return duration(value)
        case "share":
            return percent(value)
        case "change":
            return signed(value)
        case "usd":
            return dollars(value)
        case "precise":
            return amount(value, 5)
        case "hourly":
            return f"${rate_in_words(value)}"
        case "sum":
            return f"${sum_in_words(value)}"
        case _:
            return amount(value)
