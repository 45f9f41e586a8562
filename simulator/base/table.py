"""Tables: columns with a kind, rows of plain values; shown on a terminal, in HTML, in Markdown, as CSV and as a pandas frame.

Everything that is a table for a reader is a :class:`Table`: values stay numbers in SI units, and what a
reader sees follows from the kind of the column (:func:`simulator.base.text.written`). Specifications,
results and plans, which give *rows* (plain values by column name), show themselves in notebooks as one.
Which columns results have is declared in ``simulator.results.rows``.
"""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from simulator.base.errors import what_to_install
from simulator.base.text import Kind, Short, clean, printable, written

if TYPE_CHECKING:
    import pandas as pd
    import rich.table

Cell = str | int | float | bool | None
"""A plain value; None where there is none."""
Row = dict[str, Cell]
"""Values by column."""

_NOT_SHOWN = frozenset({"schema_version", "provenance", "uncertainty", "fit", "fit_hosts"})
_MOST_ITEMS = 32
_MOST_ROWS = 20
_LONGEST_CELL = 200
_LONGEST_LINE = 1000
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""Characters that a spreadsheet takes as the beginning of a formula (OWASP, "CSV Injection")."""
_MARKDOWN = re.compile(r"([\\`*_\[\]|#~])")
_TEXT_KINDS: tuple[Kind, ...] = ("text", "any")


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes
    ----------
    name
        Of the value, with its unit, as frames and CSV have it: ``"step_mean_s"``.
    kind
        How values are written for a reader.
    heading
        What a reader sees above them; the name where it is left out.
    meaning
        A sentence on what the values are.
    of
        Which figure of an item it is, as a dotted name; the column's own name where it is left out.
    by
        What reads the value of an item, where no name says it.
    short
        Short heading for narrow output, such as a terminal.
    left
        Whether they begin at the left; left out: from the kind.
    """

    name: str
    kind: Kind = "any"
    heading: str = ""
    meaning: str = ""
    of: str = ""
    by: Callable[[Any], Cell] | None = None
    short: str = ""
    left: bool | None = None

    @property
    def title(self) -> str:
        """Heading for a reader."""
        return self.heading or self.name

    @property
    def path(self) -> str:
        """Dotted name of the figure."""
        return self.of or self.name

    def read(self, item: object, facts: Mapping[str, Any] | None = None) -> Cell:
        """The value for an item: one of the facts that follow from it, else its own.

        A dotted name ends where something is None; of a mapping, which may lack keys, where it has none.

        Raises
        ------
        AttributeError
            The item has nothing of this name.
        """
        if self.by is not None:
            return self.by(item)
        first, *rest = self.path.split(".")
        known = facts if facts is not None else item if isinstance(item, Mapping) else {}
        value: Any = known.get(first) if first in known or isinstance(item, Mapping) else getattr(item, first)
        for part in rest:
            value = None if value is None else getattr(value, part)
        cell: Cell = value
        return cell

    @property
    def at_left(self) -> bool:
        """Return whether values begin at the left."""
        return self.kind in _TEXT_KINDS if self.left is None else self.left


@dataclass(frozen=True)
class Table:
    """A table, whatever it is shown on.

    Attributes
    ----------
    title
        Title above the table.
    columns
        Its columns.
    rows
        As many plain values as there are columns; None where nothing is known.
    name
        Of its element in a page, and of its CSV file without the ending.
    note
        A sentence below the title.
    more
        Text below the rows if some are left out, such as ``"and 80 more"``.

    Examples
    --------
    >>> table = Table("Runs", (Column("strategy", "text"), Column("step_mean_s", "seconds", "step")), (("ring", 0.0131), ("tree", None)))
    >>> print(table.to_markdown())
    ### Runs
    <BLANKLINE>
    | strategy | step |
    | --- | ---: |
    | ring | 13.1 ms |
    | tree | – |
    >>> table.to_csv().split()
    ['strategy,step_mean_s', 'ring,0.0131', 'tree,']
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    name: str = ""
    note: str = ""
    more: str = ""

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Cell]], title: str = "", *, name: str = "", note: str = "", more: str = "") -> Table:
        """A table of rows that are values by column name, columns in the order in which they first occur."""
        names = dict.fromkeys(column for row in rows for column in row)
        cells = tuple(tuple(row.get(column) for column in names) for row in rows)
        return cls(title, tuple(Column(column) for column in names), cells, name, note, more)

    @classmethod
    def reading(cls, title: str, columns: Iterable[Column], items: Iterable[object], name: str = "", note: str = "") -> Table:
        """A table of items, of which each column reads its value.

        >>> Table.reading("", (Column("half", by=lambda number: number / 2), Column("part", of="imag")), [3, 1j]).rows
        ((1.5, 0), (0.5j, 1.0))
        """
        held = tuple(columns)
        return cls(title, held, tuple(tuple(column.read(item) for column in held) for item in items), name, note)

    def only(self, *names: str) -> Table:
        """The table with only these columns, in this order.

        >>> Table.of([{"workers": 4, "seed": 1, "kind": "ring"}]).only("kind", "workers").rows
        (('ring', 4),)
        """
        place = {column.name: index for index, column in enumerate(self.columns)}
        kept = [place[name] for name in names]
        return replace(
            self, columns=tuple(self.columns[index] for index in kept), rows=tuple(tuple(row[index] for index in kept) for row in self.rows)
        )

    def narrow(self, *names: str) -> Table:
        """For narrow output: those of these columns that exist and have values, with short headings."""
        there = {column.name for column in self.columns}
        kept = self.only(*(name for name in names if name in there)).without_empty_columns()
        return replace(kept, columns=tuple(replace(column, heading=column.short or column.heading) for column in kept.columns))

    def without_empty_columns(self) -> Table:
        """The table without columns in which no row has a value."""
        said = (column.name for place, column in enumerate(self.columns) if any(row[place] not in (None, "") for row in self.rows))
        return self.only(*said)

    def transposed(self, heading: str = "") -> Table:
        """A row for each column and a column for each row, for showing: cells as a reader sees them.

        Parameters
        ----------
        heading
            Above what were the headings.

        Examples
        --------
        >>> Table("Runs", (Column("strategy", "text"), Column("step_s", "seconds")), (("ring", 0.0131),)).transposed("what").rows
        (('step_s', '13.1 ms'),)
        """
        texts = list(self.texts())
        columns = (Column(heading, "text"), *(Column(row[0] if row else "", "text", left=False) for row in texts))
        return replace(self, columns=columns, rows=tuple(zip((column.title for column in self.columns), *texts, strict=True))[1:])

    def texts(self) -> Iterator[tuple[str, ...]]:
        """Each row as a reader sees it."""
        for row in self.rows:
            yield tuple(written(cell, column.kind) for cell, column in zip(row, self.columns, strict=True))

    def to_frame(self) -> pd.DataFrame:
        """A pandas table.

        Whole numbers stay whole where a row has none of them (``Int64``), a column without any
        value is of numbers that are missing; all else has pandas' own types.

        Examples
        --------
        >>> Table.of([{"workers": 4, "bound": 2}, {"workers": 8}]).to_frame().dtypes.astype(str).to_dict()
        {'workers': 'int64', 'bound': 'Int64'}
        """
        try:
            import pandas as pd
        except ModuleNotFoundError as error:
            raise what_to_install(error) from None
        series = {}
        for place, column in enumerate(self.columns):
            cells = [row[place] for row in self.rows]
            known = [cell for cell in cells if cell is not None]
            whole = bool(known) and all(isinstance(cell, int) and not isinstance(cell, bool) for cell in known)
            number = not whole and bool(known) and all(isinstance(cell, (int, float)) and not isinstance(cell, bool) for cell in known)
            kind = "Int64" if whole and len(known) < len(cells) else "float64" if number or not known else None
            series[column.name] = pd.Series(cells, dtype=kind) if kind else pd.Series(cells)
        return pd.DataFrame(series)

    def to_csv(self) -> str:
        """Comma-separated values: floats as short as they come back the same, truth as 0 and 1, nothing as an empty cell."""
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\r\n")
        writer.writerow([column.name for column in self.columns])
        writer.writerows([csv_cell(cell) for cell in row] for row in self.rows)
        return text.getvalue()

    def to_html(self) -> str:
        """A small HTML table for notebooks: one row downwards, its empty values left out; several one below the other.

        Examples
        --------
        >>> Table.of([{"name": "a & b", "replicas": 4096}], "Run").to_html()
        '<table><caption>Run</caption><tr><th>name</th><td>a &amp; b</td></tr><tr><th>replicas</th><td>4,096</td></tr></table>'
        """
        title = f"<caption>{_escaped(self.title, _LONGEST_LINE)}</caption>"
        if not self.rows:
            return f"<table>{title}<tr><td>none</td></tr></table>"
        heads = [f"<th>{_escaped(column.title)}</th>" for column in self.columns]
        lines = [["<td></td>" if cell is None else f"<td>{_escaped(text)}</td>" for cell, text in zip(*each, strict=True)]
                 for each in zip(self.rows, self.texts(), strict=True)]  # fmt: skip
        if len(lines) == 1:
            known = [cell not in (None, "") for cell in self.rows[0]]
            body = "".join(f"<tr>{head}{text}</tr>" for head, text, shown in zip(heads, lines[0], known, strict=True) if shown)
            return f"<table>{title}{body}</table>"
        last = [[f'<td colspan="{len(heads)}">{_escaped(self.more, _LONGEST_LINE)}</td>']] if self.more else []
        body = "".join(f"<tr>{''.join(line)}</tr>" for line in [heads, *lines, *last])
        return f"<table>{title}{body}</table>"

    def to_markdown(self) -> str:
        """A section of Markdown: title, note and table."""
        rules = ["---" if column.at_left else "---:" for column in self.columns]
        lines = [[_in_markdown(column.title) or " " for column in self.columns], rules]
        lines += [[_in_markdown(text, _LONGEST_CELL) or " " for text in row] for row in self.texts()]
        grid = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        parts = (f"### {_in_markdown(self.title)}" if self.title else "", _in_markdown(self.note, _LONGEST_LINE), grid, self.more)
        return "\n\n".join(filter(None, parts))

    def to_rich(self) -> rich.table.Table:
        """For a terminal, which breaks long texts into lines."""
        from rich import box
        from rich.table import Table as Grid
        from rich.text import Text

        grid = Grid(
            box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), title_justify="left", title_style="bold",
            title=Text(clean(printable(self.title), _LONGEST_LINE)) if self.title else None,
            caption=Text(printable(self.more)) if self.more else None, caption_justify="left",
        )  # fmt: skip
        for column in self.columns:
            words = column.kind == "text"
            grid.add_column(
                Text(printable(column.title)),
                justify="left" if column.at_left else "right",
                no_wrap=not words,
                overflow="fold" if words else "ellipsis",
            )
        shown = tuple(tuple(printable(cell) if isinstance(cell, str) else cell for cell in row) for row in self.rows)
        for texts in replace(self, rows=shown).texts():
            grid.add_row(*map(Text, texts))
        return grid


def csv_cell(value: Cell) -> str:
    """A value as a cell of CSV; text that a spreadsheet would calculate gets an apostrophe before it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, str):
        return f"'{value}" if value.startswith(FORMULA) else value
    return repr(value)


def _in_markdown(text: str, longest: int = 120) -> str:
    """Text that Markdown shows as it is."""
    return _MARKDOWN.sub(r"\\\1", html.escape(clean(text, longest), quote=False)) if text else ""


def flat(item: BaseModel) -> Row:
    """The plain values of a model under dotted names; lists of models, fits and provenance left out.

    >>> from simulator.spec.cluster import Link
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


class Tabular(Short):
    """Base of what pandas and notebooks show as its table."""

    def table(self) -> Table:
        """Return its table."""
        raise NotImplementedError

    def to_frame(self) -> pd.DataFrame:
        """Return its table for pandas."""
        return self.table().to_frame()

    def _repr_html_(self) -> str:
        return self.table().to_html()


def frame_of(items: Iterable[Any]) -> pd.DataFrame:
    """A pandas table of one row an item: of scenarios, workloads, clusters, results, candidates.

    For results, the columns are :data:`simulator.results.rows.COLUMNS`, after the settings that differ between them.

    Parameters
    ----------
    items
        Specifications of one kind; results may be mixed with failures.

    Returns
    -------
    pandas.DataFrame
        Empty if there is no item.

    Examples
    --------
    >>> from simulator.spec.cluster import Link
    >>> table = frame_of([Link(bandwidth_bytes_per_s=1e9), Link(bandwidth_bytes_per_s=2e9, latency_s=1e-5)])
    >>> table["latency_s"].tolist()
    [0.0, 1e-05]
    """
    waiting = iter(items)
    first = next(waiting, None)
    return Table.of([] if first is None else type(first).rows_of(chain([first], waiting))).to_frame()


def html_of(items: Iterable[Any], caption: str, *, total: int | None = None) -> str:
    """A small HTML table: of one item all that it says, of several a line each, the first 20.

    Every text is escaped, cut to 200 characters and rid of control and direction marks.

    Parameters
    ----------
    items
        Specifications of one kind, of which only the first 21 are looked at.
    caption
        Above the table.
    total
        How many there are, where that is known without looking.

    Examples
    --------
    >>> from simulator.spec.cluster import Link
    >>> "<script>" in html_of([Link(bandwidth_bytes_per_s=1e9)], "<script>")
    False
    """
    held = list(islice(items, _MOST_ROWS + 1))
    if not held:
        return Table(caption, (), ()).to_html()
    rows = type(held[0]).rows_of(held[:_MOST_ROWS])
    columns = type(held[0]).shown_columns(rows)
    if total is None:
        more = "and more" if len(held) > _MOST_ROWS else ""
    else:
        more = f"and {total - len(rows):,} more" if total > len(rows) else ""
    return Table.of([{name: row.get(name) for name in columns} for row in rows], caption, more=more).to_html()


def _escaped(text: str, longest: int = _LONGEST_CELL) -> str:
    """Text that is harmless in HTML: no markup, no control or direction marks, not too long."""
    cut = text if len(text) <= longest else text[: longest - 1] + "…"
    # surrogates, control and direction marks are not printable
    return html.escape("".join(char if char.isprintable() else " " for char in cut))
