"""Reads files whose lines are steps: tables (CSV), of which :data:`COLUMNS` is the format, and lines of JSON of the Keras callback.

``paceline/keras_callback.py`` explains each field of the callback.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from calibrate.number_table import NUMBER, check_names, named, number_in, rows_of, separator_of
from calibrate.recorded.growing_file import Lines
from calibrate.recorded.run import MOST_STEPS, SECONDS_OF, Facts, Growing, RecordedRun
from simulator.base.errors import InputError
from simulator.base.files import mistaken
from simulator.base.text import did_you_mean, listed
from simulator.base.validation_errors import fault_of, quoted

COLUMNS = {
    "step": "number of the step; left out: the rows are counted",
    "worker": "name or number of the worker, if the table has several",
    "step_time_s": "seconds of the step",
    "step_time_ms": "the same in milliseconds",
    "steps_per_s": "steps per second, the inverse",
    "throughput": "samples/s of all workers together; needs the batch and the workers",
    "end_s": "end of the step, in seconds of any clock",
    "cpu_s": "processor seconds of the process in the step",
    "sent_bytes": "bytes sent by the machine's network interfaces in the step",
    "received_bytes": "bytes received by them",
    "compute_s": "seconds of the step in which the worker's device computed",
    "input_s": "seconds of the step in which it waited for input",
}
"""Every column that a table of steps may have; one of those that tell a step's time must be there."""

_TIMES = ("step_time_s", "step_time_ms", "steps_per_s", "throughput")
_BESIDE = ("end_s", "cpu_s", "sent_bytes", "received_bytes", "compute_s", "input_s")
_WITHOUT_UNIT = ("time", "step_time", "duration", "seconds", "ms", "s", "duration_s", "duration_ms", "time_s", "time_ms")
_EXAMPLE = "step,step_time_s"
_MOST_WORKERS = 10_000
_LIGHTNING = re.compile(r"(train[/|])?device[/|]batches_per_sec")
"""Of ThroughputMonitor: a mean over its last steps."""


class StepsTable:
    """A table of steps, read as it grows.

    Parameters
    ----------
    path
        The file.
    samples
        Samples of a step of all workers together, by which a throughput becomes a time; None: not known.
    """

    def __init__(self, path: Path, samples: int | None = None) -> None:
        self._lines = Lines(path)
        self._path, self._samples = path, samples
        self._names: list[str] = []
        self._separator = ""
        self._sparse = False
        self._runs: dict[str, Growing] = {}

    def more(self) -> None:
        """Read what is new.

        Raises
        ------
        InputError
            It is no such table; names line, column, value and rule.
        """
        for number, text in self._lines.new():
            if not text.strip() or text.lstrip().startswith("#"):
                continue
            self._separator = self._separator or separator_of(text)
            for _, cells in rows_of(self._path, [text], self._separator, number):
                if self._names:
                    self._row(f"{self._path}:{number}", cells)
                else:
                    self._head(f"{self._path}:{number}", [cell.lower() for cell in cells])

    def runs(self) -> tuple[RecordedRun, ...]:
        """Return what was read until now, a run for each worker in the order in which they appear."""
        return tuple(run.run() for run in self._runs.values()) or (Growing(str(self._path), "table").run(),)

    def _head(self, where: str, names: list[str]) -> None:
        check_names(where, names, _EXAMPLE, "the unit of a time is ambiguous: name the column step_time_s or step_time_ms")
        if "throughput" in names and "workers" in names:
            raise InputError(f"{self._path}: {mistaken(self._path) or 'is a table of whole runs, not of steps'}")
        if "epoch" in names and not any(name in _TIMES for name in names):
            names = self._of_logger(where, names)
        for name in names:
            if name in COLUMNS or (self._sparse and not name):
                continue
            if name in _WITHOUT_UNIT:
                raise InputError(f"{where}: the column {name}: rename it to step_time_s or step_time_ms, according to its unit")
            known = did_you_mean(name, COLUMNS, f"known are {', '.join(COLUMNS)}")
            raise InputError(f"{where}: {quoted(name)} is not a column of steps; {known}")
        times = [name for name in _TIMES if name in names]
        if len(times) != 1:
            fault = f"has {listed(times)}; keep one" if times else f"has no time of a step; give one of {', '.join(_TIMES)}"
            raise InputError(f"{where}: {fault}")
        if times == ["throughput"] and self._samples is None:
            raise InputError(
                f"{where}: throughput: gives the time of a step only with the samples per step, which are unknown: give step_time_s"
            )
        self._names = names

    def _of_logger(self, where: str, names: list[str]) -> list[str]:
        """The columns of Lightning's CSVLogger, of which those that tell no steps are called ""; Keras' tells no times."""
        column = next((name for name in names if _LIGHTNING.fullmatch(name)), None)
        if column is None and "step" in names:
            raise InputError(
                f"{where}: Lightning's CSVLogger has no times here; add its callback ThroughputMonitor (device/batches_per_sec)"
            )
        if column is None:
            raise InputError(f"{where}: CSVLogger has no times; add paceline.keras_callback.RecordSteps to the callbacks too")
        self._sparse = True
        return ["steps_per_s" if name == column else name if name == "step" else "" for name in names]

    def _row(self, where: str, cells: list[str]) -> None:
        row = named(where, self._names, cells, self._separator)
        run = self._run(where, row.get("worker", ""))
        name = next(name for name in _TIMES if name in row)
        if self._sparse and not row[name]:
            return
        duration_s = SECONDS_OF[name](number_in(where, name, row[name]), self._samples or 1)
        step = number_in(where, "step", row["step"]) if "step" in row else run.last_step + 1
        if not float(step).is_integer() or not 0 <= step <= MOST_STEPS:
            raise InputError(f"{where}: step: {row['step'][:30]} must be a whole number from 0 to {MOST_STEPS:,}")
        beside = {key: number_in(where, key, row[key]) for key in _BESIDE if row.get(key)}
        count = int(step) - run.last_step if self._sparse and 0 < run.last_step < step else 1
        run.add(int(step), duration_s, count=count, **beside)

    def _run(self, where: str, worker: str) -> Growing:
        if worker not in self._runs:
            if len(self._runs) >= _MOST_WORKERS:
                raise InputError(f"{where}: has more than {_MOST_WORKERS:,} workers; does the column worker contain workers?")
            self._runs[worker] = Growing(str(self._path), "table", worker[:80], Facts(), each="interval" if self._sparse else "step")
        return self._runs[worker]


def is_table(first: str) -> bool:
    """Return whether a first line is that of a table of steps, or a row of only numbers."""
    cells = [cell.strip().lower() for cell in re.split("[,;\t]", first)]
    return any(cell in COLUMNS for cell in cells) or all(NUMBER.fullmatch(cell) for cell in cells)


FORMAT = "paceline-steps"
SCHEMA_VERSION = 1


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class _Header(_Line):
    format: str
    schema_version: int
    started: str = ""
    workers: int | None = Field(default=None, ge=1, le=MOST_STEPS)
    batch: int | None = Field(default=None, ge=1, le=MOST_STEPS)
    worker: int | str = 0
    hostname: str = ""
    cores: int | None = Field(default=None, ge=1, le=MOST_STEPS)
    cpu: str = ""
    devices: list[str] = []
    model: str = ""
    parameters: int | None = Field(default=None, le=10**18)
    tensorflow: str = ""


class _Step(_Line):
    step: int = Field(ge=-MOST_STEPS, le=MOST_STEPS)
    end_s: float
    duration_s: float
    between_s: float = 0.0
    cpu_s: float = math.nan
    sent_bytes: float = math.nan
    received_bytes: float = math.nan
    steps: int = Field(default=1, ge=1, le=MOST_STEPS)


class _Machine(_Line):
    busy_s: float
    own_s: float


class _Mark(_Line):
    what: str = Field(max_length=40)
    duration_s: float = math.nan


_OF_KIND: dict[str, type[_Line]] = {"header": _Header, "step": _Step, "machine": _Machine, "mark": _Mark, "end": _Line}


def is_steps_line(line: str) -> bool:
    """Return whether a line is one of the callback's, or meant to be."""
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(data, dict) and (data.get("format") == FORMAT or (data.get("kind") in _OF_KIND and "probe" not in data))


class StepsFile:
    """A file of the callback, read as it grows.

    Parameters
    ----------
    path
        The file.
    """

    def __init__(self, path: Path) -> None:
        self._lines = Lines(path)
        self._path = path
        self._run = Growing(str(path), "steps file")
        self._broken: tuple[int, str] | None = None
        self._begun = False

    def more(self) -> None:
        """Read what is new.

        Raises
        ------
        InputError
            A line is none of the callback's; names it and what is wrong.
        """
        for number, text in self._lines.new():
            if text.strip():
                self._take(number, text)

    def runs(self) -> tuple[RecordedRun, ...]:
        """Return what was read until now."""
        return (self._run.run(),)

    def _take(self, number: int, text: str) -> None:
        broken, line = self._broken, self._parsed(number, text)
        if broken is not None and not isinstance(line, _Header):
            raise InputError(f"{self._path}:{broken[0]}: {broken[1]}; delete the line, or record again")
        if line is None:
            return
        if isinstance(line, _Header):
            self._header(number, line)
        elif not self._begun:
            raise InputError(f"{self._path}:{number}: must be a header: use the whole file")
        elif isinstance(line, _Step):
            self._step(line)
        elif isinstance(line, _Machine):
            self._run.add_time_of_others(max(line.busy_s - line.own_s, 0.0))
        elif isinstance(line, _Mark):
            self._run.mark(line.what, line.duration_s)
        else:
            self._run.ended = True

    def _parsed(self, number: int, text: str) -> Any:
        """The line; None if it is cut off; the next line shows whether training restarted or the file is damaged."""
        try:
            data = json.loads(text)
            data = data if isinstance(data, dict) else {}
            model = _OF_KIND.get(str(data.get("kind")))
        except (ValueError, RecursionError):
            self._check_first(number)
            self._broken = (number, f"is not JSON ({quoted(text)})")
            return None
        if data.get("format", FORMAT) != FORMAT or "probe" in data or model is None:
            self._check_first(number)
            raise InputError(f"{self._path}:{number}: is not a line of the callback ({quoted(text)}): delete the line, or record again")
        try:
            return model.model_validate(data)
        except ValidationError as error:
            raise InputError(f"{self._path}:{number}: {fault_of(error)}; delete the line, or record again") from None

    def _check_first(self, number: int) -> None:
        if number == 1:
            said = mistaken(self._path) or "is not a file of Paceline's Keras callback, whose first line is a header"
            raise InputError(f"{self._path}: {said}")

    def _header(self, number: int, line: _Header) -> None:
        if line.format != FORMAT or line.schema_version != SCHEMA_VERSION:
            known = f"{FORMAT} {SCHEMA_VERSION}"
            fault = f"schema_version: {line.format} {line.schema_version} must be {known}; record with the callback of this version"
            raise InputError(f"{self._path}:{number}: {fault}")
        if self._broken is not None:
            self._run.remark(f"line {self._broken[0]} was cut off when training was killed, and is left out")
            self._broken = None
        if self._begun:
            self._run.mark("restart")
        self._begun, self._run.ended = True, False
        self._run.worker = str(line.worker) if (line.workers or 1) > 1 else ""
        facts = line.model_dump(exclude={"format", "schema_version", "worker", "devices"})
        self._run.facts = Facts(devices=tuple(line.devices), **facts)

    def _step(self, line: _Step) -> None:
        """A step lasts from the end of the one before, unless there is something between that is no part of it."""
        apart = not len(self._run) or (bool(self._run.marks) and self._run.marks[-1].row == len(self._run))
        whole_s = line.duration_s + (0.0 if apart else line.between_s)
        self._run.add(
            line.step,
            whole_s / line.steps,
            count=line.steps,
            end_s=line.end_s,
            **{key: getattr(line, key) / line.steps for key in ("cpu_s", "sent_bytes", "received_bytes")},
        )
