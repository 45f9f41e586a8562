"""Reads traces that a scenario names by their file: what others send over links, and how many nodes were to be had.

A CSV file has the fields of a point as columns: of ``TracePoint`` (``simulator.spec.transport``) and ``Nodes`` (``simulator.spec.job``).
Nodes may also come as JSON of the SkyPilot spot traces: a number of nodes for each tick of a fixed number of seconds.
"""

from __future__ import annotations

import csv
import itertools
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from simulator.base.errors import ScenarioError
from simulator.catalogue.settings import at, put

_MOST_ROWS = 100_000


_TICKS = 'JSON as in the SkyPilot spot traces ({"metadata": {"gap_seconds": 600}, "data": [4, 4, 3]})'


class _Format(NamedTuple):
    """Format of a trace in a file."""

    columns: tuple[str, ...]
    """That there may be; the first must be, and another."""
    needs: str
    """Says so."""
    whole: str
    """Of them, that of whole numbers."""
    kinds: str
    """Kinds of files."""


TRACES = {
    "cluster.background.trace": _Format(
        ("at_s", "load", "flows"), "at_s, and load, flows or both", "flows", "a CSV file with the columns at_s, load, flows"
    ),
    "job.faults.preemption.available": _Format(
        ("at_s", "nodes"), "at_s and nodes", "nodes", f"a CSV file with the columns at_s, nodes, {_TICKS}"
    ),
}
"""Keys that may name a file in place of a list of points."""


def with_traces(table: Mapping[str, Any], source: str, beside: Path | None) -> dict[str, Any]:
    """A scenario's table with the points of the files that its traces name in place of their names.

    Parameters
    ----------
    table
        The scenario as in its file, with the files that its sections ``use`` filled in.
    source
        Begins messages.
    beside
        Folder that a relative path is also looked up in.

    Raises
    ------
    ScenarioError
        A file cannot be read, or is no such trace.
    """
    result = dict(table)
    for path, form in TRACES.items():
        name = at(result, path)
        if isinstance(name, str):
            result = put(result, path, _points(name, form, f"{source}: {path}: {name[:120]!r}", beside))
    return result


def _points(name: str, form: _Format, shown: str, beside: Path | None) -> list[dict[str, float]]:
    places = [folder / name for folder in (beside, Path()) if folder is not None]
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        raise ScenarioError(f"{shown}: there is no such file; give {form.kinds}, or a list of points")
    try:
        points = _ticks(path, shown) if _TICKS in form.kinds and path.suffix == ".json" else _rows(path, form, shown)
    except OSError as error:
        raise ScenarioError(f"{shown}: cannot be read: {error.strerror or type(error).__name__}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise ScenarioError(f"{shown}: is not a CSV file in UTF-8: {str(error)[:80]}") from None
    if not points:
        raise ScenarioError(f"{shown}: has no rows; give one for 0 s and one for each change")
    return points


def _rows(path: Path, form: _Format, shown: str) -> list[dict[str, float]]:
    with open(path, newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        columns = [name.strip() for name in reader.fieldnames or ()]
        if form.columns[0] not in columns or not set(columns) <= set(form.columns) or len(columns) < 2:
            raise ScenarioError(f"{shown}: has the columns {', '.join(columns)[:120] or 'none'}; give {form.needs}")
        reader.fieldnames = columns
        rows: list[dict[str, float]] = []
        for fields in reader:
            if len(rows) == _MOST_ROWS:
                raise ScenarioError(f"{shown}: has more than {_MOST_ROWS:,} rows; give fewer, such as means over longer times")
            if None in fields:
                raise ScenarioError(f"{shown}: line {reader.line_num} has more values than the {len(columns)} columns")
            rows.append({name: _number(fields[name], name, name == form.whole, f"{shown}: line {reader.line_num}") for name in columns})
    return rows


def _number(text: str | None, name: str, whole: bool, where: str) -> float:
    try:
        value = float(text or "")
    except ValueError:
        raise ScenarioError(f"{where}: {name} is {(text or '')[:40]!r}, which is not a number") from None
    return int(value) if whole and value.is_integer() else value


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _ticks(path: Path, shown: str) -> list[dict[str, float]]:
    """A point for each tick at which the number of nodes changes, and one at the end."""
    try:
        trace = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise ScenarioError(f"{shown}: is not JSON; give {_TICKS}") from None
    gap_s = at(trace, "metadata.gap_seconds")
    ticks = at(trace, "data")
    if not isinstance(ticks, list):
        raise ScenarioError(f"{shown}: has no list of ticks; give {_TICKS}")
    if not _is_number(gap_s) or not 0 < gap_s < math.inf:
        raise ScenarioError(f"{shown}: metadata.gap_seconds is {str(gap_s)[:40]}, but must be a number of seconds above 0")
    for place, nodes in enumerate(ticks):
        if not _is_number(nodes) or nodes < 0 or nodes % 1:
            raise ScenarioError(f"{shown}: data.{place} is {str(nodes)[:40]}, but must be a whole number of nodes")
    changes = [place for place, (before, nodes) in enumerate(itertools.pairwise([None, *ticks])) if nodes != before]
    if len(changes) >= _MOST_ROWS:
        raise ScenarioError(f"{shown}: changes more than {_MOST_ROWS:,} times; give a part of it")
    points: list[dict[str, float]] = [{"at_s": place * gap_s, "nodes": int(ticks[place])} for place in changes]
    return [*points, {"at_s": len(ticks) * gap_s, "nodes": 0}] if points else []
