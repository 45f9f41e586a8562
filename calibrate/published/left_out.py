"""What the rows of one source are predicted with: constants and a discrepancy that come out without it."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from calibrate.validation.discrepancy import Sample, deviations
from calibrate.validation.reaching import rows_from_csv
from simulator import catalog
from simulator.constants import Known
from simulator.discrepancy import Discrepancy
from simulator.loading import read_toml
from simulator.spec import Spec
from simulator.validation_errors import validated

__all__ = ["FILE", "discrepancy_without", "left_out"]

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


@lru_cache(maxsize=256)
def discrepancy_without(table: str, regime: str) -> Discrepancy:
    """What predictions of a regime are off by, estimated from the rows of ``models/validated`` without those of a table.

    Raises
    ------
    InputError
        A file of such rows is broken.
    """
    compute, communication = deviations(_sample(), regime, without=table)
    return Discrepancy(compute=compute, communication=communication, about=f"without {table}")


@lru_cache(maxsize=1)
def _sample() -> Sample:
    files = sorted((catalog.own_file("discrepancy.toml").parent / "validated").glob("*.csv"))
    return Sample.of(row for file in files for row in rows_from_csv(file))
