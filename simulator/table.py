"""What specifications, results and plans look like in a notebook: as a pandas table, and as a small HTML one.

Whatever gives *rows* (plain values by column name) can be shown in both ways.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import BaseModel

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Cell", "Row", "Tabular", "flat", "frame_of", "frame_of_rows", "html_of", "html_of_rows"]

Cell = str | int | float | bool | None
"""A plain value; None where there is none."""
Row = dict[str, Cell]
"""Values by column."""

_NOT_SHOWN = frozenset({"schema_version", "provenance", "uncertainty", "fit"})
_MOST_ITEMS = 32
_MOST_ROWS = 20
_LONGEST_CELL = 200
_LONGEST_LINE = 1000


class Tabular(Protocol):
    """What can be put into a table."""

    @classmethod
    def rows_of(cls, items: Iterable[Any]) -> list[Row]:
        """One row an item."""

    @classmethod
    def shown_columns(cls, rows: Sequence[Row]) -> list[str]:
        """Columns of those rows that a small table shows."""


def flat(item: BaseModel) -> Row:
    """The plain values of a model under dotted names; lists of models, fits and provenance left out.

    >>> from simulator.cluster import Link
    >>> flat(Link(bandwidth_bytes_per_s=1e9))
    {'bandwidth_bytes_per_s': 1000000000.0, 'latency_s': 0.0, 'sort': 'given'}
    """
    row: Row = {}
    for name in type(item).model_fields:
        value = getattr(item, name)
        if name in _NOT_SHOWN:
            continue
        if isinstance(value, BaseModel):
            row |= {f"{name}.{inner}": cell for inner, cell in flat(value).items()}
        elif isinstance(value, tuple):
            if all(isinstance(part, (str, int, float)) for part in value[:_MOST_ITEMS]):
                more = len(value) - _MOST_ITEMS
                row[name] = ", ".join(str(part) for part in value[:_MOST_ITEMS]) + (f" and {more:,} more" if more > 0 else "")
        elif value is None or isinstance(value, (str, int, float)):
            row[name] = value
    return row


def frame_of(items: Iterable[Tabular]) -> pd.DataFrame:
    """A pandas table of one row an item: of scenarios, workloads, clusters, results, candidates.

    Of results the columns are those of :data:`simulator.rows.COLUMNS`, after the settings
    that differ among them.

    Parameters
    ----------
    items
        All of one kind; results may stand among failures.

    Returns
    -------
    pandas.DataFrame
        Empty if there is no item.

    Examples
    --------
    >>> from simulator.cluster import Link
    >>> table = frame_of([Link(bandwidth_bytes_per_s=1e9), Link(bandwidth_bytes_per_s=2e9, latency_s=1e-5)])
    >>> table["latency_s"].tolist()
    [0.0, 1e-05]
    """
    waiting = iter(items)
    first = next(waiting, None)
    return frame_of_rows([] if first is None else type(first).rows_of(chain([first], waiting)))


def frame_of_rows(rows: Sequence[Mapping[str, Cell]]) -> pd.DataFrame:
    """A pandas table of rows, columns in the order in which they first occur.

    Whole numbers stay whole where a row has none of them (``Int64``), a column without any
    value is of numbers that are missing; all else has pandas' own types.

    Examples
    --------
    >>> frame_of_rows([{"workers": 4, "bound": 2}, {"workers": 8}]).dtypes.astype(str).to_dict()
    {'workers': 'int64', 'bound': 'Int64'}
    """
    import pandas as pd

    columns = dict.fromkeys(name for row in rows for name in row)
    series = {}
    for name in columns:
        cells = [row.get(name) for row in rows]
        known = [cell for cell in cells if cell is not None]
        whole = bool(known) and all(isinstance(cell, int) and not isinstance(cell, bool) for cell in known)
        number = not whole and bool(known) and all(isinstance(cell, (int, float)) and not isinstance(cell, bool) for cell in known)
        kind = "Int64" if whole and len(known) < len(cells) else "float64" if number or not known else None
        series[name] = pd.Series(cells, dtype=kind) if kind else pd.Series(cells)
    return pd.DataFrame(series)


def html_of(items: Iterable[Tabular], caption: str, *, total: int | None = None) -> str:
    """A small HTML table: of one item all that it says, of several a line each, the first 20.

    Every text is escaped, cut to 200 characters and rid of control and direction marks.

    Parameters
    ----------
    items
        All of one kind; only the first 21 are looked at.
    caption
        Above the table.
    total
        How many there are, where that is known without looking.

    Examples
    --------
    >>> from simulator.cluster import Link
    >>> "<script>" in html_of([Link(bandwidth_bytes_per_s=1e9)], "<script>")
    False
    """
    held = list(islice(items, _MOST_ROWS + 1))
    if not held:
        return html_of_rows([], caption)
    rows = type(held[0]).rows_of(held[:_MOST_ROWS])
    columns = type(held[0]).shown_columns(rows)
    if total is None:
        more = "and more" if len(held) > _MOST_ROWS else ""
    else:
        more = f"and {total - len(rows):,} more" if total > len(rows) else ""
    return html_of_rows([{name: row.get(name) for name in columns} for row in rows], caption, more)


def html_of_rows(rows: Sequence[Mapping[str, Cell]], caption: str, more: str = "") -> str:
    """Rows as an HTML table: one row downwards, its empty values left out; several one below the other.

    Examples
    --------
    >>> html_of_rows([{"name": "a & b", "replicas": 4096}], "Run")
    '<table><caption>Run</caption><tr><th>name</th><td>a &amp; b</td></tr><tr><th>replicas</th><td>4,096</td></tr></table>'
    """
    title = f"<caption>{_escaped(caption, _LONGEST_LINE)}</caption>"
    if not rows:
        return f"<table>{title}<tr><td>none</td></tr></table>"
    if len(rows) == 1:
        cells = [(name, _shown(cell)) for name, cell in rows[0].items() if cell not in (None, "")]
        body = "".join(f"<tr><th>{_escaped(name)}</th><td>{_escaped(shown)}</td></tr>" for name, shown in cells)
        return f"<table>{title}{body}</table>"
    columns = list(dict.fromkeys(name for row in rows for name in row))
    head = "".join(f"<th>{_escaped(name)}</th>" for name in columns)
    lines = ["".join(f"<td>{_escaped(_shown(row.get(name)))}</td>" for name in columns) for row in rows]
    lines += [f'<td colspan="{len(columns)}">{_escaped(more, _LONGEST_LINE)}</td>'] if more else []
    return f"<table>{title}<tr>{head}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _shown(cell: Cell) -> str:
    """A value for people: five digits, thousands apart."""
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    if isinstance(cell, float):
        return f"{cell:,.0f}" if 1e4 <= abs(cell) < 1e15 else f"{cell:.5g}"
    return cell


def _escaped(text: str, longest: int = _LONGEST_CELL) -> str:
    """Text that is harmless in HTML: no markup, no control or direction marks, not too long."""
    cut = text if len(text) <= longest else text[: longest - 1] + "…"
    # surrogates, control and direction marks are not printable
    return html.escape("".join(char if char.isprintable() else " " for char in cut))
