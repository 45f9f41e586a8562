"""Chooses how a source of step times is read, and reads it, once or as it grows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from calibrate.recorded.event_files import EventFiles, is_event_file
from calibrate.recorded.log import Log
from calibrate.recorded.log_formats import Pattern, compiled, fits_a_pattern
from calibrate.recorded.profile import ProfiledSteps
from calibrate.recorded.run import RecordedRun
from calibrate.recorded.steps_file import StepsFile, is_steps_line
from calibrate.recorded.table import StepsTable, is_table
from calibrate.recorded.traces import JsonRecord
from simulator.base.errors import InputError
from simulator.base.text import no_such_file

_FIRST_BYTES = 2**16
_JSON = re.compile(r"\s*(\{(?!')|\[\s*(\{|$))")
_CHOSEN = re.compile(r"(?P<path>.+)#(?P<number>\d{1,9})", re.DOTALL)


class Reader(Protocol):
    """Reads one source of step times as it grows."""

    def more(self) -> None:
        """Read what is new."""

    def runs(self) -> tuple[RecordedRun, ...]:
        """What was read until now: a run for each worker."""


def read_recorded(
    sources: Sequence[str | Path], *, pattern: str | None = None, samples: int | None = None, python: str | None = None
) -> tuple[RecordedRun, ...]:
    """Read what is there of some sources, a run for each worker.

    Parameters
    ----------
    sources
        Files and folders: of the Keras callback, tables, TensorBoard's event files, logs, profiles, Chrome traces. Of a log of several
        runs, ``#3`` behind the name chooses the third.
    pattern
        A regular expression with named groups by which the lines of logs tell steps; None: one of those that are known.
    samples
        Samples of a step of all workers together, where a source tells throughput and not them; None: not known.
    python
        A Python that has TensorFlow, which reads profiles; this one, if None.

    Raises
    ------
    InputError
        A source is not there, is none of these, or is damaged; or it holds no steps, or several runs.
    CalibrationError
        A profile has no steps.
    """
    runs: list[RecordedRun] = []
    for source in sources:
        reader = reader_of(Path(source), pattern=pattern, samples=samples, python=python)
        reader.more()
        if isinstance(reader, Log):
            reader.check()
        found = reader.runs()
        if not any(len(run) for run in found):
            raise InputError(f"{source}: holds no steps yet; give it when the training has made some")
        runs.extend(run for run in found if len(run))
    return tuple(runs)


def reader_of(path: Path, *, pattern: str | None = None, samples: int | None = None, python: str | None = None) -> Reader:
    """What reads a source; arguments as of :func:`read_recorded`.

    Raises
    ------
    InputError
        It is not there, is empty, or is nothing that steps are read from.
    """
    chosen = None if pattern is None else compiled(pattern)
    path, number = file_and_run(path)
    reader = _reader(path, chosen, samples, python, number)
    if number is not None and not isinstance(reader, Log):
        raise InputError(f"{path}#{number}: chooses one of several runs, and only a log holds several; leave #{number} out")
    return reader


def file_and_run(source: Path) -> tuple[Path, int | None]:
    """The file of a source, and which of its runs ``#3`` behind the name chooses; None: it chooses none."""
    several = _CHOSEN.fullmatch(str(source))
    if several is None or source.exists():
        return source, None
    return Path(several["path"]), int(several["number"])


def _reader(path: Path, chosen: Pattern | None, samples: int | None, python: str | None, number: int | None) -> Reader:
    if path.is_dir():
        return _of_folder(path, chosen, python)
    if path.name.endswith(".xplane.pb"):
        _no_pattern(path, chosen)
        return ProfiledSteps(path, python)
    if path.name.endswith(".json.gz"):
        _no_pattern(path, chosen)
        return JsonRecord(path)
    if is_event_file(path):
        _no_pattern(path, chosen)
        return EventFiles(path)
    first = _first_line(path)
    if chosen is not None:
        return Log(path, chosen, samples, number)
    if is_steps_line(first):
        return StepsFile(path)
    if path.suffix.lower() in (".csv", ".tsv") or is_table(first):
        return StepsTable(path, samples)
    if _JSON.match(first) and not fits_a_pattern(first):
        return JsonRecord(path)
    return Log(path, None, samples, number)


def _of_folder(path: Path, pattern: Pattern | None, python: str | None) -> Reader:
    _no_pattern(path, pattern)
    if any(is_event_file(file) for file in path.rglob("*")):
        return EventFiles(path)
    if any(path.rglob("*.xplane.pb")):
        return ProfiledSteps(path, python)
    raise InputError(f"{path}: is a folder without TensorBoard's event files or profiles; give the file that steps are recorded in")


def _no_pattern(path: Path, pattern: Pattern | None) -> None:
    if pattern is not None:
        raise InputError(f"`pattern`: {path} is no log of lines; leave it out")


def _first_line(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(_FIRST_BYTES)
    except FileNotFoundError:
        raise InputError(f"{path}: {no_such_file(path)}") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(f"{path}: cannot be read: {reason or type(error).__name__}") from None
    if not content.strip():
        raise InputError(f"{path}: is empty; give it when the training has made some steps")
    if b"\0" in content:
        raise InputError(f"{path}: is no text; give a file of the callback, a table, a log, or TensorBoard's folder")
    return next((line for line in content.decode("utf-8-sig", "replace").splitlines() if line.strip() and not line.startswith("#")), "")
