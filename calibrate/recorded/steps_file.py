"""Reads what the Keras callback writes (``paceline/keras_callback.py``, which says what each field means): lines of JSON."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from calibrate.recorded.growing_file import Lines
from calibrate.recorded.run import MOST_STEPS, Facts, Growing, RecordedRun
from simulator.base.errors import InputError
from simulator.base.files import mistaken
from simulator.base.validation_errors import quoted, rule_of

FORMAT = "paceline-steps"
SCHEMA_VERSION = 1


class _Line(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="ignore", strict=True)


class _Header(_Line):
    kind: Literal["header"]
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
    kind: Literal["step"]
    step: int = Field(ge=-MOST_STEPS, le=MOST_STEPS)
    end_s: float
    duration_s: float
    between_s: float = 0.0
    cpu_s: float = math.nan
    sent_bytes: float = math.nan
    received_bytes: float = math.nan
    steps: int = Field(default=1, ge=1, le=MOST_STEPS)


class _Machine(_Line):
    kind: Literal["machine"]
    busy_s: float
    own_s: float


class _Mark(_Line):
    kind: Literal["mark"]
    what: str = Field(max_length=40)
    duration_s: float = math.nan


class _End(_Line):
    kind: Literal["end"]


_OF_KIND: dict[str, type[_Line]] = {"header": _Header, "step": _Step, "machine": _Machine, "mark": _Mark, "end": _End}


def is_steps_line(line: str) -> bool:
    """Whether a line is one of the callback's, or meant to be."""
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
        """What was read until now."""
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
            raise InputError(f"{self._path}:{number}: must be a header first; take the whole file")
        elif isinstance(line, _Step):
            self._step(line)
        elif isinstance(line, _Machine):
            self._run.others(max(line.busy_s - line.own_s, 0.0))
        elif isinstance(line, _Mark):
            self._run.mark(line.what, line.duration_s)
        else:
            self._run.ended = True

    def _parsed(self, number: int, text: str) -> Any:
        """The line; None where it is cut off, which the next line decides: a training that begins anew, or damage."""
        try:
            data = json.loads(text)
            data = data if isinstance(data, dict) else {}
            model = _OF_KIND.get(str(data.get("kind")))
        except (ValueError, RecursionError):
            self._check_first(number)
            self._broken = (number, f"is no JSON ({quoted(text)})")
            return None
        if data.get("format", FORMAT) != FORMAT or "probe" in data or model is None:
            self._check_first(number)
            raise InputError(f"{self._path}:{number}: is no line of the callback's ({quoted(text)}); delete the line, or record again")
        try:
            return model.model_validate(data)
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            place = ".".join(str(part) for part in problem["loc"])
            said = "is missing" if problem["type"] == "missing" else f"{quoted(problem['input'])} {rule_of(problem)}"
            raise InputError(f"{self._path}:{number}: {place}: {said}; delete the line, or record again") from None

    def _check_first(self, number: int) -> None:
        if number == 1:
            said = mistaken(self._path) or "is no file of Paceline's Keras callback; its first line is a header"
            raise InputError(f"{self._path}: {said}")

    def _header(self, number: int, line: _Header) -> None:
        if line.format != FORMAT or line.schema_version != SCHEMA_VERSION:
            known = f"{FORMAT} {SCHEMA_VERSION}"
            fault = f"schema_version: {line.format} {line.schema_version} must be {known}; record with the callback of this version"
            raise InputError(f"{self._path}:{number}: {fault}")
        if self._broken is not None:
            self._run.remark(f"line {self._broken[0]} was cut off as the training was killed, and is left out")
            self._broken = None
        if self._begun:
            self._run.mark("restart")
        self._begun, self._run.ended = True, False
        self._run.worker = str(line.worker) if (line.workers or 1) > 1 else ""
        self._run.facts = Facts(
            workers=line.workers,
            batch=line.batch,
            hostname=line.hostname,
            cpu=line.cpu,
            devices=tuple(line.devices),
            cores=line.cores,
            model=line.model,
            parameters=line.parameters,
            tensorflow=line.tensorflow,
            started=line.started,
        )

    def _step(self, line: _Step) -> None:
        """A step lasts from the end of the one before, unless there is something between that is no part of it."""
        apart = not len(self._run) or (bool(self._run.marks) and self._run.marks[-1].row == len(self._run))
        whole_s = line.duration_s + (0.0 if apart else line.between_s)
        self._run.add(
            line.step,
            whole_s / line.steps,
            count=line.steps,
            end_s=line.end_s,
            cpu_s=line.cpu_s / line.steps,
            sent_bytes=line.sent_bytes / line.steps,
            received_bytes=line.received_bytes / line.steps,
        )
