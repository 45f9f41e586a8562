"""Constants fitted without one source: what its rows are predicted with."""

from __future__ import annotations

from pathlib import Path

from simulator.complaints import validated
from simulator.constants import Known
from simulator.loading import read_toml
from simulator.spec import Spec

__all__ = ["FILE", "left_out"]

FILE = "left_out.toml"


class _Entry(Known):
    table: str
    name: str


class _LeftOut(Spec):
    left_out: tuple[_Entry, ...]


def left_out(home: Path) -> dict[str, dict[str, Known]]:
    """Constants by name for each table, fitted on all other tables.

    Raises
    ------
    ScenarioError
        The file is missing or broken.
    """
    path = home / FILE
    found: dict[str, dict[str, Known]] = {}
    for entry in validated(_LeftOut, read_toml(path), str(path)).left_out:
        known = Known(value=entry.value, low=entry.low, high=entry.high)
        found.setdefault(entry.table, {})[entry.name] = known
    return found
