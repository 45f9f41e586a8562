"""A table of text, as pages and Markdown of validations show it."""

from __future__ import annotations

from dataclasses import dataclass

from simulator import table

__all__ = ["Table", "in_words"]


@dataclass(frozen=True)
class Table:
    """A table of text.

    Attributes
    ----------
    rows
        Each with one text a column.
    text
        A sentence below the title.
    left
        Columns that hold words, by their index; the others hold numbers.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    text: str = ""
    left: tuple[int, ...] = (0,)


def in_words(typed: table.Table) -> Table:
    """A table as a reader sees it."""
    left = tuple(place for place, column in enumerate(typed.columns) if column.at_left)
    return Table(typed.title, tuple(column.title for column in typed.columns), tuple(typed.texts()), typed.note, left)
