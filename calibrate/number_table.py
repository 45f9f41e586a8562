"""Tables of numbers that somebody wrote or exported: separators, names of columns, rows, numbers."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from simulator.base.errors import InputError
from simulator.base.units import without_separators
from simulator.base.validation_errors import quoted

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)
_MOST = 1e15


def separator_of(head: str) -> str:
    """What separates the values, by the line that names the columns: commas, semicolons or tabs."""
    return max(",;\t", key=head.count)


def rows_of(path: Path, lines: Iterable[str], separator: str, first: int = 1) -> Iterator[tuple[int, list[str]]]:
    """Number and values of each line that holds any and is no comment; the first line's number is given."""
    reader = csv.reader(lines, delimiter=separator, strict=True)
    while True:
        try:
            cells = [cell.strip() for cell in next(reader)]
        except StopIteration:
            return
        except csv.Error as error:
            raise InputError(f"{path}:{first - 1 + max(reader.line_num, 1)}: is not a CSV line: {error}") from None
        if any(cells) and not cells[0].startswith("#"):
            yield first - 1 + reader.line_num, cells


def check_names(where: str, names: Sequence[str], example: str, hint: str = "") -> None:
    """Raise InputError if the first line has only numbers, or a name twice."""
    if all(NUMBER.fullmatch(name) for name in names if name):
        raise InputError(f"{where}: the first line must name the columns, such as {example}", hint)
    if double := next((name for name in names if name and names.count(name) > 1), ""):
        raise InputError(f"{where}: has the column {double} twice; keep one")


def named(where: str, names: Sequence[str], cells: Sequence[str], separator: str) -> dict[str, str]:
    """The values of a row by the names of their columns."""
    if len(cells) != len(names):
        hint = f"; write numbers with a decimal point and without {separator!r}" if len(cells) > len(names) else ""
        raise InputError(f"{where}: has {len(cells)} values, but the first line names {len(names)} columns{hint}")
    return dict(zip(names, cells, strict=True))


def number_in(where: str, name: str, cell: str) -> float:
    """The number in a cell."""
    if not NUMBER.fullmatch(cell):
        raise InputError(f"{where}: {name}: {quoted(cell) if cell else 'an empty value'} must be a number", without_separators(cell))
    value = float(cell)
    if abs(value) > _MOST:
        raise InputError(f"{where}: {name}: {cell[:30]} must be at most {_MOST:g}")
    return value
