"""The file format of a matrix of testbed settings, split into fit and held-out, and the checks before anything is measured.

:data:`NEEDS` says which runs of the fit each prediction rests on: it has to follow what ``calibrate/testbed`` fits (clocks.py,
fitting.py). Matrices are run in running.py and drawn at random in random_matrix.py; ``models/matrices`` has those with names.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from pydantic import Field

from calibrate.testbed.clocks import computes_like, is_fitted
from calibrate.testbed.fitting import shows_tcp
from calibrate.testbed.loading import builder_of, describe_model, validated_setting, with_model
from calibrate.testbed.running import faults_of_machine, guessed_run_s, guessed_step_s
from calibrate.testbed.scenarios import NO_JOBS
from calibrate.testbed.setting import TestbedSetting
from simulator.base.errors import InputError, ScenarioError
from simulator.base.files import mistaken_table, read_toml
from simulator.base.spec import Spec
from simulator.base.table import Column, Table, Tabular
from simulator.base.text import counted, format_rough_seconds
from simulator.base.validation_errors import validated

_PRODUCT = ("mode", "workers", "servers", "backup_workers", "model", "link", "compute", "overlap", "steps")
"""Keys of a table that may have a list, for all of its values in turn."""


class HeldOut(Spec):
    """A setting that takes no part in the fit."""

    group: str = Field(min_length=1, max_length=100)
    setting: TestbedSetting


class Matrix(Tabular, Spec):
    """Settings to fit and to predict, and the number of runs of each."""

    see: ClassVar[str] = "to_frame() has every setting"

    name: str = Field(min_length=1, max_length=100, description="for readers")
    repeats: int = Field(default=3, ge=1, le=1000, description="number of runs per setting")
    seed: int = Field(default=0, ge=0, description="seed of all random numbers")
    fit: tuple[TestbedSetting, ...] = Field(min_length=1, description="settings to which the machine is fitted")
    held_out: tuple[HeldOut, ...] = Field(description="settings predicted before they are run")
    drawn_by: int | None = Field(default=None, ge=0, description="seed that drew the held-out settings; null: chosen by a person")

    def _in_short(self) -> Iterator[str]:
        yield self.name
        yield f"{counted(len(self.fit), 'setting')} to fit, {len(self.held_out):,} to predict, {counted(self.repeats, 'run')} of each"
        yield f"about {format_rough_seconds(self.guessed_s)}{self.left_out}"

    @property
    def settings(self) -> tuple[TestbedSetting, ...]:
        """All, those of the fit first."""
        return (*self.fit, *(held.setting for held in self.held_out))

    @property
    def guessed_s(self) -> float:
        """Seconds that all runs take, a guess from rates and means; those of models that are not built left out."""
        return math.fsum(guessed_s for _, _, guessed_s in self._by_group() if guessed_s is not None)

    @property
    def left_out(self) -> str:
        """Clause on what :attr:`guessed_s` leaves out, to be written behind it; "" where it is nothing."""
        count = sum(not setting.is_built for setting in self.settings)
        return f", without {counted(count, 'setting')} whose model file would have to be run" if count else ""

    def as_data(self) -> dict[str, Any]:
        """Its settings with the seconds that their runs take by a guess, as JSON has them; neither these nor variables without a model."""
        settings = [
            {
                "group": group, "label": setting.label, "guessed_s": None if guessed_s is None else round(guessed_s),
                "setting": setting.model_dump(mode="json", exclude=None if setting.is_built else {"variables"}),
            }
            for group, setting, guessed_s in self._by_group()
        ]  # fmt: skip
        return {"name": self.name, "drawn_by": self.drawn_by, "repeats": self.repeats, "seed": self.seed, "settings": settings}

    def table(self) -> Table:
        """A row for each setting, those of the fit first."""
        columns = Column("group", "text"), Column("setting", "text"), Column("steps", "count"), Column("guessed_s", "seconds", "about")
        rows = tuple((group, setting.label, setting.steps, guessed_s) for group, setting, guessed_s in self._by_group())
        return Table(self.name, columns, rows, "matrix")

    def _by_group(self) -> Iterator[tuple[str, TestbedSetting, float | None]]:
        """Group of each setting, and the seconds that its runs take by a guess; None where it is not built."""
        groups = ["fit"] * len(self.fit) + [held.group for held in self.held_out]
        for group, setting in zip(groups, self.settings, strict=True):
            yield group, setting, guessed_run_s(setting, self.repeats) if setting.is_built else None


def read_matrix(path: Path) -> Matrix:
    """Read a matrix file; no file that it names as a model is run, so that it is not built before :func:`with_models`.

    ``[[fit]]`` and ``[[held_out]]`` are tables of settings; a key with a list gives all combinations. ``[[held_out]]`` also has a
    ``group``. Models are named as for ``paceline testbed run``; relative paths are looked up in the file's folder first.

    Raises
    ------
    ScenarioError
        One line with file, table, key and rule. Also where a setting is in both parts:
        what is held out must not be fitted.
    InputError
        A model is not there.
    """
    table = read_toml(path)
    if said := mistaken_table(table, path, "matrix"):
        raise ScenarioError(f"{path}: {said}")
    return matrix_of({"name": path.stem} | table, str(path), path.parent)


def matrix_of(table: dict[str, Any], source: str, beside: Path | None = None) -> Matrix:
    """The matrix that the table of a file means; ``source`` names it, ``beside`` is its folder. See :func:`read_matrix`."""
    unknown = sorted(set(table) - {"name", "repeats", "seed", "fit", "held_out"})
    if unknown:
        raise ScenarioError(f"{source}: {unknown[0]}: is not a key of a matrix; keys are name, repeats, seed, [[fit]] and [[held_out]]")
    fit = [setting for _, _, setting in _settings(source, beside, table, "fit")]
    held_out = [
        validated(HeldOut, {"group": setting.mode if group is None else group, "setting": setting}, where)
        for where, group, setting in _settings(source, beside, table, "held_out")
    ]
    fitted = {setting.kind_of_run for setting in fit}
    probes = [held.setting for held in held_out if held.setting.mode == "apart"]
    if probes:
        raise ScenarioError(f"{source}: held_out: {probes[0].label!r} only measures the cost of busy cores: put it into [[fit]]")
    both = next((held.setting for held in held_out if held.setting.kind_of_run in fitted), None)
    if both is not None:
        raise ScenarioError(f"{source}: held_out: {both.label!r} is in [[fit]] too: remove it from one of them")
    defaults = {"repeats": 3, "seed": 0}
    return validated(Matrix, {**defaults, **table, "fit": tuple(fit), "held_out": tuple(held_out)}, source)


def with_models(matrix: Matrix, *, python: str | None = None) -> Matrix:
    """The matrix with the variables of all its models, for which their files are run in child processes, once for each batch.

    Parameters
    ----------
    matrix
        As it was read.
    python
        The user's Python, in which models are built; this one, if None.

    Raises
    ------
    InputError
        A model has no such function, or there is no such Python.
    CalibrationError
        A model cannot be built.
    """
    described = functools.cache(describe_model)

    def built(setting: TestbedSetting) -> TestbedSetting:
        return setting if setting.is_built else setting.model_copy(update={"variables": described(setting.model, python, setting.batch)})

    held_out = tuple(held.model_copy(update={"setting": built(held.setting)}) for held in matrix.held_out)
    return matrix.model_copy(update={"fit": tuple(map(built, matrix.fit)), "held_out": held_out})


def _settings(source: str, beside: Path | None, table: dict[str, Any], part: str) -> Iterator[tuple[str, Any, TestbedSetting]]:
    """Each setting of a part with its place, and the given group; None where none is."""
    tables = table.get(part, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ScenarioError(f"{source}: {part}: must be tables, written as [[{part}]]")
    for number, written in enumerate(tables):
        where = f"{source}: {part}[{number}]"
        plain = {key: value for key, value in written.items() if key != "group"}
        lists = [key for key in _PRODUCT if isinstance(plain.get(key), list)]
        for values in itertools.product(*(plain[key] for key in lists)):
            setting = plain | dict(zip(lists, values, strict=True))
            yield where, written.get("group"), validated_setting(with_model(setting, f"{where}: model", beside), where)


Test = Callable[[TestbedSetting], bool]
_EACH_S = 1.0
"""Part of a repeat's time limit reserved for its last step."""


class Need(NamedTuple):
    """What a prediction needs from the fit's part.

    Attributes
    ----------
    concerns
        Tells whether a held-out setting needs it.
    given_by
        Tells whether a setting of the fit gives it.
    fact
        What only such a setting shows.
    add
        A setting that would, in words.
    """

    concerns: Test
    given_by: Test
    fact: str
    add: str


def _also(concerns: Test, shows: Test, fact: str, add: str) -> Need:
    """A need that runs meet which have it themselves, as far as they show it."""
    return Need(concerns, lambda setting: concerns(setting) and shows(setting), fact, add)


def _alone(setting: TestbedSetting) -> bool:
    return setting.workers == 1


NEEDS = (
    _also(lambda setting: setting.servers > 0 and setting.link is not None, is_fitted,
          "the cost of tensors on a shaped link", "1 worker, a server, a link, constant compute"),
    _also(lambda setting: setting.servers > 0 and setting.link is None, is_fitted,
          "the cost of bytes over loopback", "1 worker, a server, no link, constant compute"),
    _also(lambda setting: setting.mode == "ring" and setting.link is not None, is_fitted,
          "the cost of a ring's messages on a shaped link", 'mode = "ring" with 2 workers, a link, constant compute'),
    _also(lambda setting: setting.mode == "ring" and setting.link is None, is_fitted,
          "the cost of a ring's bytes over loopback", 'mode = "ring" with 2 workers, no link, constant compute'),
    _also(lambda setting: setting.mode == "async", _alone,
          "the coordinator's work between steps", 'mode = "async" with 1 worker'),
    _also(lambda setting: setting.mode in ("between-graph", "sync"), _alone,
          "a session's work between steps", 'mode = "between-graph" with 1 worker'),
    _also(lambda setting: setting.mode == "sync", is_fitted,
          "the time that SyncReplicasOptimizer adds to a step", 'mode = "sync" with 1 worker, constant compute'),
    _also(lambda setting: setting.mode == "mirrored" and setting.compute.kind == "emulated", lambda setting: setting.workers == 2,
          "the slowdown between MirroredStrategy's replicas", 'mode = "mirrored" with 2 workers, emulated compute'),
    Need(lambda setting: setting.link is not None and setting.link.sharing == "tcp" and setting.servers > 0, shows_tcp,
         "how TCP shares a link", '2 workers, a server, a link with sharing = "tcp", emulated compute'),
)  # fmt: skip
"""Each thing that predictions need and only certain runs of the fit determine."""


def times_compute(alone: TestbedSetting, setting: TestbedSetting) -> bool:
    """Tell whether a run with a single worker times the real compute of a setting."""
    same = (alone.model, alone.batch, alone.threads) == (setting.model, setting.batch, setting.threads)
    # a mirrored model is timed from outside, with the call of its function
    return alone.compute.kind == "real" and alone.workers == 1 and same and (alone.mode == "mirrored") == (setting.mode == "mirrored")


def check_matrix(matrix: Matrix, pending: Sequence[TestbedSetting], folder: Path, *, python: str | None, timeout_s: float) -> None:
    """Refuse a matrix that cannot be measured, fitted and predicted whole on this machine.

    Parameters
    ----------
    matrix
        Whole.
    pending
        Those of its settings that are still to be measured.
    folder, python, timeout_s
        As for :func:`~calibrate.validation.running.measure_matrix`.

    Raises
    ------
    ScenarioError
        One line for each fault.
    """
    faults = faults_of(matrix, timeout_s)
    if pending:
        faults += faults_of_machine(pending, matrix.repeats, folder, python)
    if faults:
        raise ScenarioError(*faults)


def faults_of(matrix: Matrix, timeout_s: float = 600.0) -> list[str]:
    """Lines on what the matrix itself lacks or has wrong; nothing of the machine."""
    jobs = [f"{matrix.name}: {_listed([setting])}: {NO_JOBS}" for setting in matrix.settings if setting.is_job]
    return [*jobs, *_not_fitted(matrix), *_not_built(matrix.settings), *_too_long(matrix, timeout_s)]


def _not_fitted(matrix: Matrix) -> list[str]:
    held_out = [held.setting for held in matrix.held_out]
    faults = []
    if not any(setting.workers == 1 and setting.servers for setting in matrix.fit):
        faults.append(f"{matrix.name}: fit: no setting has 1 worker and a server, which the fit needs: add one to [[fit]]")
    for need in NEEDS:
        concerned = [setting for setting in held_out if need.concerns(setting)]
        if concerned and not any(need.given_by(setting) for setting in matrix.fit):
            faults.append(f"{matrix.name}: held_out: {_listed(concerned)}: no run of the fit shows {need.fact}; add to [[fit]]: {need.add}")
    lacking: dict[tuple[str, int, int, bool], list[TestbedSetting]] = {}
    for setting in held_out:
        timed = (times_compute(run, setting) or (run.mode == "apart" and computes_like(run, setting)) for run in matrix.fit)
        if setting.compute.kind == "real" and not any(timed):
            lacking.setdefault((setting.model, setting.batch, setting.threads, setting.mode == "mirrored"), []).append(setting)
    for (_, batch, threads, mirrored), some in lacking.items():
        mode = 'mode = "mirrored", ' if mirrored else ""
        faults.append(
            f"{matrix.name}: held_out: {_listed(some)}: no run of the fit times {some[0].model_name} with batch {batch}; add to [[fit]]: "
            f'{mode}1 worker, model = "{some[0].model_name}", batch = {batch}, threads = {threads}, compute = {{ kind = "real" }}'
        )
    return faults


def _not_built(settings: Sequence[TestbedSetting]) -> list[str]:
    faults = []
    for model in dict.fromkeys(setting.model for setting in settings if setting.compute.kind == "real"):
        try:
            builder_of(model)
        except InputError as error:
            faults.append(str(error))
    return faults


def _too_long(matrix: Matrix, timeout_s: float) -> list[str]:
    return [
        f"{setting.label}: {setting.steps:,} steps take about {lasts_s:,.0f} s, more than `timeout_s={timeout_s:g}`: give fewer steps"
        for setting in matrix.settings
        if (lasts_s := setting.steps * guessed_step_s(setting)) > timeout_s - _EACH_S
    ]


def _listed(settings: Sequence[TestbedSetting]) -> str:
    more = f" and {len(settings) - 1} more" if len(settings) > 1 else ""
    return f"{settings[0].label!r}{more}"
