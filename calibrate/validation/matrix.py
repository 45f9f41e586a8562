"""A matrix of testbed settings, split into fit and held-out before anything is measured."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import Field

from calibrate.testbed.model import Describe, describe_model, validated_setting, with_model
from calibrate.testbed.setting import TestbedSetting
from simulator.complaints import validated
from simulator.errors import ScenarioError
from simulator.loading import read_toml
from simulator.spec import Spec

__all__ = ["HeldOut", "Matrix", "read_matrix"]

_PRODUCT = ("mode", "workers", "servers", "backup_workers", "model", "link", "compute", "overlap", "steps")
"""Keys of a table that may have a list, for all of its values in turn."""


class HeldOut(Spec):
    """A setting that takes no part in the fit."""

    group: str = Field(min_length=1, max_length=100)
    setting: TestbedSetting


class Matrix(Spec):
    """What is fitted, what is predicted, how often each is run."""

    name: str = Field(min_length=1, max_length=100)
    repeats: int = Field(default=3, ge=1, le=1000)
    seed: int = Field(default=0, ge=0)
    fit: tuple[TestbedSetting, ...] = Field(min_length=1)
    held_out: tuple[HeldOut, ...]

    @property
    def settings(self) -> tuple[TestbedSetting, ...]:
        """All, those of the fit first."""
        return (*self.fit, *(one.setting for one in self.held_out))


def read_matrix(path: Path, *, python: str | None = None, describe: Describe | None = None) -> Matrix:
    """Read a matrix file.

    ``[[fit]]`` and ``[[held_out]]`` are tables of settings; where a key has a list, the
    table stands for all combinations. ``[[held_out]]`` also has a ``group``. Models are
    named as for ``paceline testbed run``; relative paths are looked up beside the file first.

    Parameters
    ----------
    path
        The file.
    python
        The user's Python, in which models are built; this one, if None.
    describe
        Called once for each model ``FILE.py:FUNCTION`` and batch, for its variables; builds
        it in a child process, if None.

    Raises
    ------
    ScenarioError
        One line with file, table, key and rule. Also where a setting is in both parts:
        what is held out must not be fitted.
    InputError
        A model is not there.
    CalibrationError
        A model cannot be built.
    """
    describe = functools.cache(describe or (lambda model, batch: describe_model(model, python, batch)))
    table = read_toml(path)
    unknown = sorted(set(table) - {"name", "repeats", "seed", "fit", "held_out"})
    if unknown:
        raise ScenarioError(f"{path}: {unknown[0]}: is no key of a matrix; it has name, repeats, seed, [[fit]] and [[held_out]]")
    fit = [setting for _, setting in _settings(path, table, "fit", describe)]
    held_out = [HeldOut(group=group or setting.mode, setting=setting) for group, setting in _settings(path, table, "held_out", describe)]
    fitted = {setting.kind_of_run for setting in fit}
    both = next((one.setting for one in held_out if one.setting.kind_of_run in fitted), None)
    if both is not None:
        raise ScenarioError(f"{path}: held_out: {both.label!r} is fitted as well; take it out of one of the two")
    whole = {
        "name": table.get("name", path.stem),
        "repeats": table.get("repeats", 3),
        "seed": table.get("seed", 0),
        "fit": tuple(fit),
        "held_out": tuple(held_out),
    }
    return validated(Matrix, whole, str(path))


def _settings(path: Path, table: dict[str, Any], part: str, describe: Describe) -> Iterator[tuple[str, TestbedSetting]]:
    tables = table.get(part, [])
    if not isinstance(tables, list) or not all(isinstance(one, dict) for one in tables):
        raise ScenarioError(f"{path}: {part}: must be tables, written as [[{part}]]")
    for number, given in enumerate(tables):
        group = str(given.get("group", ""))
        plain = {key: value for key, value in given.items() if key != "group"}
        lists = [key for key in _PRODUCT if isinstance(plain.get(key), list)]
        for values in itertools.product(*(plain[key] for key in lists)):
            setting = plain | dict(zip(lists, values, strict=True))
            source = f"{path}: {part}[{number}]"
            yield group, validated_setting(with_model(setting, source, f"{source}: model", describe, path.parent), source)
