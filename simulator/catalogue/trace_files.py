"""Reads what others send over links from a CSV file (``cluster.background.trace``).

Its columns are the fields of ``TracePoint`` in ``simulator.spec.background``: ``at_s``, and ``load``, ``flows`` or both.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simulator.base.errors import ScenarioError

__all__ = ["with_trace"]

_COLUMNS = ("at_s", "load", "flows")
_MOST_ROWS = 100_000


def with_trace(cluster: Any, where: str, beside: Path | None) -> Any:
    """A cluster's table with the rows of the file that its trace names in place of the name; as it is where there is none.

    Parameters
    ----------
    cluster
        As a scenario has it.
    where
        Begins a message.
    beside
        Folder that a relative path is also looked up in.

    Raises
    ------
    ScenarioError
        The file cannot be read, or is no such table.
    """
    background = cluster.get("background") if isinstance(cluster, Mapping) else None
    name = background.get("trace") if isinstance(background, Mapping) else None
    if not isinstance(name, str):
        return cluster
    places = [folder / name for folder in (beside, Path()) if folder is not None]
    path = next((place for place in places if place.is_file()), None)
    shown = f"{where}.background.trace: {name[:120]!r}"
    if path is None:
        raise ScenarioError(f"{shown}: there is no such file; give a CSV file with the columns {', '.join(_COLUMNS)}, or a list of points")
    return {**cluster, "background": {**(background or {}), "trace": _rows(path, shown)}}


def _rows(path: Path, shown: str) -> list[dict[str, float]]:
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            columns = [name.strip() for name in reader.fieldnames or ()]
            if "at_s" not in columns or not set(columns) <= set(_COLUMNS) or len(columns) < 2:
                raise ScenarioError(f"{shown}: has the columns {', '.join(columns)[:120] or 'none'}; give at_s, and load, flows or both")
            reader.fieldnames = columns
            found: list[dict[str, float]] = []
            for fields in reader:
                if len(found) == _MOST_ROWS:
                    raise ScenarioError(f"{shown}: has more than {_MOST_ROWS:,} rows; give fewer, such as means over longer times")
                if None in fields:
                    raise ScenarioError(f"{shown}: line {reader.line_num} has more values than the {len(columns)} columns")
                found.append({name: _number(fields[name], name, f"{shown}: line {reader.line_num}") for name in columns})
    except OSError as error:
        raise ScenarioError(f"{shown}: cannot be read: {error.strerror or type(error).__name__}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise ScenarioError(f"{shown}: is no CSV file in UTF-8: {str(error)[:80]}") from None
    if not found:
        raise ScenarioError(f"{shown}: has no rows; give one for 0 s, and one for each time at which something changes")
    return found


def _number(text: str | None, name: str, where: str) -> float:
    try:
        value = float(text or "")
    except ValueError:
        raise ScenarioError(f"{where}: {name} is {(text or '')[:40]!r}, which is no number") from None
    return int(value) if name == "flows" and value.is_integer() else value
