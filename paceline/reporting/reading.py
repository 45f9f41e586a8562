"""Results files: one outcome a line, read to the last whole line, every fault with file and line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from pydantic_core import from_json

from paceline.sweeping.lines import LineReader
from simulator.errors import ResultsError
from simulator.results import Failure, Result
from simulator.table import frame_of, html_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ResultsFile", "iter_results", "read_results"]

_VERSION = 1
_NAMED = 3


@dataclass(frozen=True)
class ResultsFile:
    """What a results file holds.

    Attributes
    ----------
    results
        In the order of the file; equal workloads and clusters of theirs are one object.
    notes
        Sentences on what a reader must know about the file, such as that it was cut off.
    failures
        Scenarios that could not be simulated, in the order of the file.
    """

    results: tuple[Result, ...]
    notes: tuple[str, ...] = ()
    failures: tuple[Failure, ...] = ()

    def to_frame(self) -> pd.DataFrame:
        """A row an outcome, failures last: the settings that differ, then :data:`simulator.rows.COLUMNS`."""
        return frame_of((*self.results, *self.failures))

    def _repr_html_(self) -> str:
        """What a notebook shows: the first rows, with the most important figures."""
        held = (*self.results, *self.failures)
        return html_of(held, f"Results of {len(held)} scenarios. {' '.join(self.notes)}".rstrip(), total=len(held))


def read_results(path: str | Path) -> ResultsFile:
    """Read the results that a sweep wrote.

    A last line that was cut off (the sweep was interrupted while writing) is left out,
    and a note says so. Another tells of scenarios that failed.

    Raises
    ------
    ResultsError
        The file is missing, not readable or holds no result; or a line is no JSON, no
        result, or of a newer schema.

    Examples
    --------
    >>> import paceline
    >>> from tempfile import TemporaryDirectory
    >>> settings = {"run.steps": 10, "run.replications": 3}
    >>> with TemporaryDirectory() as folder:
    ...     swept = paceline.sweep("ring", {"strategy.workers": [1, 2]}, settings=settings, out=f"{folder}/ring.ndjson", jobs=1)
    ...     read = read_results(f"{folder}/ring.ndjson")
    >>> read.to_frame()["replicas"].tolist()
    [1, 2]
    """
    path = Path(path)
    notes: list[str] = []
    results: list[Result] = []
    failures: list[Failure] = []
    for outcome in _outcomes(path, notes):
        if isinstance(outcome, Result):
            results.append(outcome)
        else:
            failures.append(outcome)
    if failures:
        count = len(results) + len(failures)
        reasons = "; ".join(dict.fromkeys(failure.failed.text for failure in failures[:_NAMED]))
        notes.append(f"{len(failures)} of {count} scenarios failed: {reasons}{'; ...' if len(failures) > _NAMED else ''}")
    if not results:
        if failures:
            raise ResultsError(f"{path}: holds no result: {notes[-1]}")
        raise ResultsError(
            f"{path}: holds no {'complete ' if notes else ''}result; write one with `paceline sweep SCENARIO.toml --out {path}`"
        )
    return ResultsFile(tuple(results), tuple(notes), tuple(failures))


def iter_results(path: Path) -> Iterator[Result | Failure]:
    """The outcomes that a sweep wrote, one by one, in the order of the file; a last line that was cut off is left out.

    Raises
    ------
    ResultsError
        As :func:`read_results`, once the line is reached; a file that holds nothing is none.
    """
    return _outcomes(path, [])


def _outcomes(path: Path, notes: list[str]) -> Iterator[Result | Failure]:
    """Outcomes line by line; what a reader must know is added to the notes."""
    reader = LineReader()
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
                if not text.strip():
                    continue
                try:
                    yield _outcome(reader, text)
                except _NotJsonError as error:
                    if line.endswith(b"\n"):
                        raise ResultsError(f"{path}:{number}: {error}") from None
                    notes.append(
                        f"The results file ends in the middle of line {number}, as after an interrupted sweep; that line is left out."
                    )
                except ResultsError as error:
                    raise ResultsError(f"{path}:{number}: {error}") from None
    except FileNotFoundError:
        raise ResultsError(
            f"{path}: there is no such file; check the path, or write it with `paceline sweep SCENARIO.toml --out {path}`"
        ) from None
    except (OSError, ValueError) as error:  # a ValueError where the path has a zero byte
        raise ResultsError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or type(error).__name__}") from None


class _NotJsonError(ResultsError):
    """The line is no JSON, which a cut-off line is not either."""


def _outcome(reader: LineReader, line: bytes) -> Result | Failure:
    try:
        outcome = reader.read(line)
    except ValidationError as error:
        problems = error.errors(include_url=False)
    except (ValueError, RecursionError) as error:
        raise _not_json(line, error) from None
    else:
        return _plausible(outcome) if isinstance(outcome, Result) else outcome
    data = from_json(line, allow_inf_nan=False)
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
    for where, value in (
        ("throughput_samples_per_s.mean", rate.mean),
        ("speedup.mean", result.speedup.mean),
        ("step_time_s.mean", step.mean),
    ):
        if value <= 0:
            raise ResultsError(f"{where}: {value:g} must be above zero")
    if not rate.low <= rate.high:
        raise ResultsError(f"throughput_samples_per_s: low ({rate.low:g}) must not be above high ({rate.high:g})")
    if len(stale.histogram.values) != len(stale.histogram.counts):
        raise ResultsError("staleness.histogram: must have as many counts as values")
    return result


def _not_json(line: bytes, error: ValueError | RecursionError) -> _NotJsonError:
    """Why a line cannot be read at all."""
    reason = str(error)
    try:
        json.loads(line)
    except json.JSONDecodeError as told:
        reason = told.msg
    except (ValueError, RecursionError) as told:  # a ValueError where it is no UTF-8
        reason = type(told).__name__
    return _NotJsonError(f"must be JSON, one result a line: {reason}")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
