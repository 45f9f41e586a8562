"""Measurement files (NDJSON): how they are named, read and checked; each fault is reported with its line.

What a line may hold is in :mod:`calibrate.records`. Probes write the files (``calibrate/probes/recorder.py``), with a checksum
in each line, which is checked here by :mod:`simulator.base.files`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pydantic import ValidationError

from calibrate.records import (
    SCHEMA_VERSION,
    Batches,
    End,
    Exchange,
    Failure,
    Fingerprint,
    GradientNorms,
    Header,
    Problem,
    Repeat,
    Replayed,
    ServerTime,
    Split,
    StepTime,
    Transfer,
    WarmUp,
    record_adapter,
)
from simulator.base.errors import CalibrationError
from simulator.base.files import CHANGED, Output, OutputKind, checksum_holds, has_header, mistaken
from simulator.base.files import KEY as CHECKSUM
from simulator.base.text import printable
from simulator.base.validation_errors import quoted, rule_of

RecordT = TypeVar("RecordT")
CUT_SHORT = "the file was cut short, or the probe stopped too early; take the whole file, or measure again"
"""Why measurements lack what comes late in a run, and what to try, whether they were taken just now or lie stored."""
_ABOUT = {
    "step": "a training step",
    "links": "links",
    "servers": "a parameter server",
    "input": "an input pipeline",
    "replay": "a model that learns",
    "noise_scale": "gradient norms",
}
_OTHER_FILE = "is this a measurement file of this version of Paceline?"


class MeasurementsError(CalibrationError):
    """A measurement file is damaged, or not the one that is needed: bad input, exit code 2, since no run has failed."""

    exit_code: ClassVar[int] = 2


@dataclass(frozen=True)
class Measurements:
    """Everything that one run of a probe has written.

    Attributes
    ----------
    path
        The file.
    sha256
        Of its content, as hexadecimal digits.
    records
        In the order in which they were measured.
    truncated
        The last line was cut off in the middle of writing, and left out.
    """

    path: Path
    sha256: str
    records: tuple[Any, ...]
    truncated: bool

    def of(self, kind: type[RecordT]) -> list[RecordT]:
        """The records of one kind."""
        return [record for record in self.records if isinstance(record, kind)]

    @property
    def header(self) -> Header:
        """What was asked for."""
        return self.of(Header)[0]

    @property
    def fingerprint(self) -> Fingerprint:
        """What it was measured on."""
        found = self.of(Fingerprint)
        if not found:
            raise CalibrationError(f"{self.path}: has no fingerprint of the device: {CUT_SHORT}")
        return found[0]

    @property
    def about(self) -> str:
        """What was measured, in words."""
        return _ABOUT.get(self.header.probe, f"a {self.header.probe}")

    def check_probe(self, probe: str, made_by: str) -> None:
        """Raise MeasurementsError unless it is what a probe of this name has written; ``made_by`` says which files are."""
        if self.header.probe != probe:
            raise MeasurementsError(f"{self.path}: holds measurements of {self.about}, not of {_ABOUT[probe]}; use {made_by}")

    @property
    def empty(self) -> bool:
        """Nothing was timed."""
        return not any(
            isinstance(
                record, WarmUp | StepTime | Split | ServerTime | Transfer | Exchange | Repeat | Batches | Problem | Replayed | GradientNorms
            )
            for record in self.records
        )

    @property
    def complete(self) -> bool:
        """The probe came to its end."""
        return bool(self.of(End))

    @property
    def failure(self) -> Failure | None:
        """Why the probe stopped, if it said so."""
        found = self.of(Failure)
        return found[-1] if found else None


def begin_rows(path: Path, columns: Sequence[str]) -> None:
    """Begin a table (CSV) that rows are appended to, where there is none yet with this very heading.

    Raises
    ------
    InputError
        Something else is there, or the file cannot be written.
    """
    output = Output(path, OutputKind("is no table of these rows", lambda its: has_header(its, columns)))
    if not path.exists() or not path.stat().st_size:
        output.write(",".join(columns) + "\n")


def new_file(folder: Path, name: str, probe: str) -> Path:
    """A name for a measurement file that does not exist yet: nothing measured is ever overwritten."""
    stamp = datetime.now().strftime("%Y%m%dT%H%M%S")
    stem = f"{name}-{probe}-{stamp}"
    path = folder / f"{stem}.ndjson"
    count = 2
    while path.exists():
        path = folder / f"{stem}-{count}.ndjson"
        count += 1
    return path


def read_measurements(path: Path) -> Measurements:
    """Read and validate a measurement file.

    A last line that was cut off in writing is left out and remembered; any other fault is
    an error.

    Raises
    ------
    MeasurementsError
        One line with file, line number and what is wrong with it.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise MeasurementsError(f"{path}: cannot be read: {error.strerror or error}; check the path") from None
    records: list[Any] = []
    truncated = False
    lines = content.split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            data = json.loads(line)
        except (ValueError, RecursionError):
            if number == len(lines):  # no newline behind it: the writer was stopped
                truncated = True
                break
            _check_kind(path, number)
            raise MeasurementsError(f"{path}:{number}: is no JSON ({_shown(line)}); {_hint(number)}") from None
        if checksum_holds(line) is False:
            raise MeasurementsError(f"{path}:{number}: {CHANGED}; {_hint(number)}")
        if isinstance(data, dict):
            data.pop(CHECKSUM, None)
        records.append(_record(data, path, number))
    _check_start(records, path)
    return Measurements(path, hashlib.sha256(content).hexdigest(), tuple(records), truncated)


def _record(data: Any, path: Path, number: int) -> Any:
    try:
        return record_adapter.validate_python(data)
    except ValidationError as error:
        _check_kind(path, number)
        raise MeasurementsError(f"{path}:{number}: {next(_sentences(error))}; {_hint(number)}") from None
    except RecursionError:
        raise MeasurementsError(f"{path}:{number}: is nested too deeply; {_hint(number)}") from None


def _check_kind(path: Path, number: int) -> None:
    """Refuse a file of another kind, which its first line shows, with what it is."""
    if number == 1 and (said := mistaken(path, "measurements")):
        raise MeasurementsError(f"{path}: {said}")


def _hint(number: int) -> str:
    """What to try about a faulty line: without the first, which is the header, a file says nothing."""
    return _OTHER_FILE if number == 1 else "delete the line, or measure again"


def _sentences(error: ValidationError) -> Iterator[str]:
    for problem in error.errors(include_url=False):
        place = ".".join(printable(str(part))[:60] for part in problem["loc"][1:])
        if problem["type"] == "model_attributes_type":
            yield "must be an object in braces with a kind"
        elif problem["type"].startswith("union_tag"):
            yield "is no record with a known kind"
        elif problem["type"] == "missing":
            yield f"{place} is missing"
        elif problem["type"] == "extra_forbidden":
            yield f"{place} is no field of this record"
        else:
            given = problem["input"]
            shown = "" if isinstance(given, (dict, list)) else f"{printable(quoted(given))} "
            yield f"{place}: {shown}{rule_of(problem)}" if place else rule_of(problem)


def _check_start(records: list[Any], path: Path) -> None:
    if not records:
        raise MeasurementsError(f"{path}: holds no measurements; measure again")
    if not isinstance(records[0], Header):
        raise MeasurementsError(f"{path}:1: must be a header with schema_version {SCHEMA_VERSION}; {_OTHER_FILE}")


def _shown(line: bytes) -> str:
    text = printable(line[:40].decode("utf-8", "backslashreplace"))
    return f"'{text}{'...' if len(line) > 40 else ''}'"
