"""A matrix of testbed settings, split into fit and held-out before anything is measured."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import Field

from calibrate.testbed.loading import validated_setting, with_model
from calibrate.testbed.model import Describe, describe_model
from calibrate.testbed.setting import TestbedSetting
from simulator.errors import ScenarioError
from simulator.loading import read_toml
from simulator.spec import Spec
from simulator.validation_errors import validated

__all__ = ["HeldOut", "Matrix", "matrix_of", "read_matrix"]

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
    return matrix_of({"name": path.stem} | read_toml(path), str(path), path.parent, python=python, describe=describe)


def matrix_of(
    table: dict[str, Any], source: str, beside: Path | None = None, *, python: str | None = None, describe: Describe | None = None
) -> Matrix:
    """The matrix that the table of a file means; ``source`` names it, ``beside`` is its folder. See :func:`read_matrix`."""
    described = functools.cache(describe or (lambda model, batch: describe_model(model, python, batch)))
    unknown = sorted(set(table) - {"name", "repeats", "seed", "fit", "held_out"})
    if unknown:
        raise ScenarioError(f"{source}: {unknown[0]}: is no key of a matrix; it has name, repeats, seed, [[fit]] and [[held_out]]")
    fit = [setting for _, setting in _settings(source, beside, table, "fit", described)]
    held_out = [HeldOut(group=group or one.mode, setting=one) for group, one in _settings(source, beside, table, "held_out", described)]
    fitted = {setting.kind_of_run for setting in fit}
    probes = [one.setting for one in held_out if one.setting.mode == "apart"]
    if probes:
        raise ScenarioError(f"{source}: held_out: {probes[0].label!r} only measures what busy cores cost; put it into [[fit]]")
    both = next((one.setting for one in held_out if one.setting.kind_of_run in fitted), None)
    if both is not None:
        raise ScenarioError(f"{source}: held_out: {both.label!r} is fitted as well; take it out of one of the two")
    defaults = {"repeats": 3, "seed": 0}
    return validated(Matrix, {**defaults, **table, "fit": tuple(fit), "held_out": tuple(held_out)}, source)


def _settings(
    source: str, beside: Path | None, table: dict[str, Any], part: str, describe: Describe
) -> Iterator[tuple[str, TestbedSetting]]:
    tables = table.get(part, [])
    if not isinstance(tables, list) or not all(isinstance(one, dict) for one in tables):
        raise ScenarioError(f"{source}: {part}: must be tables, written as [[{part}]]")
    for number, given in enumerate(tables):
        where = f"{source}: {part}[{number}]"
        group = str(given.get("group", ""))
        plain = {key: value for key, value in given.items() if key != "group"}
        lists = [key for key in _PRODUCT if isinstance(plain.get(key), list)]
        for values in itertools.product(*(plain[key] for key in lists)):
            setting = plain | dict(zip(lists, values, strict=True))
            yield group, validated_setting(with_model(setting, where, f"{where}: model", describe, beside), where)
