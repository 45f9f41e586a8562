"""Small tables of the page: columns with a kind, rows of plain values; what is written follows from the kind."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.text import Kind

__all__ = ["Cell", "Column", "Grid"]

Cell = str | float | int | None


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
