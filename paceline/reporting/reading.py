"""Results files: one result a line, read to the last whole line, every fault with file and line."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from simulator.errors import ResultsError
from simulator.results import Result

__all__ = ["ResultsFile", "read_results"]

_VERSION = 1


@dataclass(frozen=True)
class ResultsFile:
    """What a results file holds.

    Attributes
    ----------
    results
        In the order of the file.
    notes
        Sentences on what a reader must know about the file, such as that it was cut off.
    """

    results: tuple[Result, ...]
    notes: tuple[str, ...] = ()


def read_results(path: Path) -> ResultsFile:
    """Read the results that a sweep wrote.

    A last line that was cut off (the sweep was interrupted while writing) is left out,
    and a note says so.

    Raises
    ------
    ResultsError
        The file is missing, not readable or holds no result; or a line is no JSON, no
        result, or of a newer schema.
    """
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise ResultsError(
            f"{path}: there is no such file; check the path, or write it with `paceline sweep SCENARIO.toml --out {path}`"
        ) from None
    except OSError as error:
        raise ResultsError(f"{path}: cannot be read: {error.strerror or type(error).__name__}") from None
    results: list[Result] = []
    notes: list[str] = []
    lines = raw.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        unfinished = number == len(lines)
        try:
            results.append(_result(line))
        except _NotJsonError as error:
            if not unfinished:
                raise ResultsError(f"{path}:{number}: {error}") from None
            notes.append(f"The results file ends in the middle of line {number}, as after an interrupted sweep; that line is left out.")
        except ResultsError as error:
            raise ResultsError(f"{path}:{number}: {error}") from None
    if not results:
        raise ResultsError(
            f"{path}: holds no {'complete ' if notes else ''}result; write one with `paceline sweep SCENARIO.toml --out {path}`"
        )
    return ResultsFile(tuple(results), tuple(notes))


class _NotJsonError(ResultsError):
    """The line is no JSON, which a cut-off line is not either."""


def _result(line: bytes) -> Result:
    try:
        return _plausible(Result.model_validate_json(line))
    except ValidationError as error:
        problems = error.errors(include_url=False)
    data = _parsed(line)
    if not isinstance(data, dict):
        raise ResultsError(f"must be a result (a JSON object), not {_shown(data)}")
    version = data.get("schema_version")
    if isinstance(version, int) and version > _VERSION:
        raise ResultsError(
            f"schema_version {version} is newer than {_VERSION}, the newest that this Paceline reads; "
            "update Paceline, or sweep again with this one"
        )
    first = problems[0]
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "missing":
        raise ResultsError(f"{where} is missing, so this is no result of `paceline sweep` or `paceline simulate --json`")
    if first["type"] == "extra_forbidden":
        raise ResultsError(
            f"{where} is no key of a result that this Paceline knows; it was written by another version, so sweep again with this one"
        )
    raise ResultsError(f"{where + ': ' if where else ''}{_shown(first['input'])} is not valid: {' '.join(str(first['msg']).split())}")


def _plausible(result: Result) -> Result:
    """Refuse what no simulation gives, so that a line edited by hand cannot mislead."""
    rate, step, stale = result.throughput_samples_per_s, result.step_time_s, result.staleness
    if result.replicas < 1:
        raise ResultsError(f"replicas: {result.replicas} must be at least 1")
    for where, value in (("throughput_samples_per_s.mean", rate.mean), ("speedup", result.speedup), ("step_time_s.mean", step.mean)):
        if value <= 0:
            raise ResultsError(f"{where}: {value:g} must be above zero")
    if not rate.low <= rate.high:
        raise ResultsError(f"throughput_samples_per_s: low ({rate.low:g}) must not be above high ({rate.high:g})")
    if len(stale.histogram.values) != len(stale.histogram.counts):
        raise ResultsError("staleness.histogram: must have as many counts as values")
    return result


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:  # a ValueError too where it is no UTF-8
        reason = error.msg if isinstance(error, json.JSONDecodeError) else type(error).__name__
        raise _NotJsonError(f"must be JSON, one result a line: {reason}") from None


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
