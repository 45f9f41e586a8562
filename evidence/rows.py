"""Tables (CSV) of rows: read, written whole, or begun and added to, a row for each measurement."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from simulator.base.files import Output, OutputKind, csv_kind, has_header


def rows_in(path: Path) -> list[dict[str, str]]:
    """The rows of a table, by the names of its columns."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def text_of_rows(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows as a table with its heading."""
    text = io.StringIO()
    table = csv.DictWriter(text, columns, lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return text.getvalue()


def write_rows(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write a table in place of whatever is there."""
    Output(path, csv_kind(columns), force=True).write(text_of_rows(columns, rows))


def begin_rows(path: Path, columns: Sequence[str]) -> None:
    """Begin a table that rows are added to, where there is none yet with this very heading.

    Raises
    ------
    InputError
        Something else is there, or the file cannot be written.
    """
    output = Output(path, OutputKind("is no table of these rows", lambda path: has_header(path, columns)))
    if not path.exists() or not path.stat().st_size:
        output.write(",".join(columns) + "\n")


def add_rows(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Add rows to a table that was begun."""
    with path.open("a", encoding="utf-8", newline="") as file:
        csv.DictWriter(file, columns, lineterminator="\n").writerows(rows)
