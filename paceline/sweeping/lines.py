"""One line of a results file: what it holds, how it is read fast, and why it cannot be read."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError
from pydantic_core import from_json

from simulator.base.checksums import CHANGED, KEY, checksum_holds, with_checksum, without_checksum
from simulator.base.errors import ResultsError
from simulator.results.results import Failure, Result
from simulator.spec.cluster import Cluster
from simulator.spec.workload import Workload

__all__ = [
    "CutOffError",
    "DamagedError",
    "Line",
    "Outcome",
    "UnclearError",
    "begins_line",
    "checked_outcome_of",
    "holds_lines",
    "is_damage",
    "line_in",
    "line_of",
    "outcome_of",
    "timed",
    "timeless",
]

Outcome = Result | Failure

_VERSION = 1
_BEGINNING = b'{"schema_version":1,"scenario_hash":"'
_HASH = re.compile(re.escape(_BEGINNING) + rb'([0-9a-f]{16})","scenario":')
_WORKLOAD, _CLUSTER, _STRATEGY = b'{"schema_version":1,"workload":', b',"cluster":', b',"strategy":{'
_TIME = b',"wall_time_s":'
_TELLING = tuple(f'"{key}"'.encode() for key in ("scenario_hash", "scenario", KEY))
"""Keys from both ends of a line: two of them are in no other file of Paceline's, and survive what damages one end."""
_RENAMED = re.compile(rb'"[^"]*":"[0-9a-f]{16}"\}\s*$')
"""The end of a line whose checksum stands behind a damaged name."""
_OTHER_VERSION = ("missing", "extra_forbidden")
_MOST_SHOWN = 60


class DamagedError(ResultsError):
    """The line is one of ours, and not as it was written."""


class UnclearError(DamagedError):
    """The line does not show whose it is: it is damaged in a file of ours, and in any other file something else (:func:`is_damage`)."""


class CutOffError(UnclearError):
    """The line is no JSON, and has no end either."""


class Line(NamedTuple):
    """A line, and what is known of it without building its outcome."""

    text: bytes
    """With its end; it depends on the scenario alone."""
    scenario_hash: str
    took_s: float | None
    """Duration of the simulation, where it is known; it does not stand in the text."""
    failed: bool


def timeless(outcome: Outcome) -> Outcome:
    """An outcome without the time that it took, which files must not depend on."""
    return outcome.model_copy(update={"wall_time_s": None}) if isinstance(outcome, Result) else outcome


def line_of(outcome: Outcome) -> Line:
    """The line of an outcome."""
    took_s = outcome.wall_time_s if isinstance(outcome, Result) else None
    return Line(timeless(outcome).to_json().encode() + b"\n", outcome.scenario_hash, took_s, isinstance(outcome, Failure))


def timed(line: Line) -> bytes:
    """The text of a line with its time in it."""
    return line.text if line.took_s is None else _with_time(line.text, line.took_s)


def _with_time(text: bytes, took_s: float | None) -> bytes:
    """The text of a result with another time in it, and the checksum that belongs to that, if it has one: else nobody has checked it."""
    before = without_checksum(text).rpartition(_TIME)[0] + _TIME
    changed = f"{before.decode()}{json.dumps(took_s)}}}"
    return (changed if checksum_holds(text) is None else with_checksum(changed)).encode() + b"\n"


def line_in(text: bytes) -> Line | None:
    """The line that a text is, with its time or without; None where it is none that a sweep writes.

    Raises
    ------
    DamagedError
        It is one that is not as it was written: its checksum is another, or it has none and is no outcome of its scenario;
        or it is no JSON (:class:`UnclearError`).
    ResultsError
        It has no checksum, and was written by another version or holds what no simulation gives.
    """
    holds, found = checksum_holds(text), _HASH.match(text)
    if holds is False or (holds is None and found):
        checked_outcome_of(text)
    try:
        data = from_json(text, allow_inf_nan=False)
    except (ValueError, RecursionError) as error:
        raise _no_json(text, error) from None
    if found is None:
        return None
    took_s = data.get("wall_time_s")
    return Line(text if took_s is None else _with_time(text, None), found[1].decode(), took_s, "failed" in data)


def begins_line(part: bytes, scenario_hash: str | None = None) -> bool:
    """Whether a half-written text is what the line of a scenario, or of any, begins with."""
    start = _BEGINNING if scenario_hash is None else _BEGINNING + scenario_hash.encode()
    return part.startswith(start) or start.startswith(part)


def is_damage(error: ResultsError, path: Path) -> bool:
    """Whether a line of a file could not be read since it is damaged: one that is unclear goes by the other lines."""
    if not isinstance(error, UnclearError):
        return isinstance(error, DamagedError)
    return holds_lines(path)


def holds_lines(path: Path) -> bool:
    """Whether any line of a file, damaged as it may be, is one of ours; of a pipe, which is read but once, that is not known."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return any(map(_is_ours, file))


def _is_ours(text: bytes) -> bool:
    return sum(key in text for key in _TELLING) > 1


def outcome_of(text: bytes) -> Outcome:
    """The outcome that a line holds; equal workloads and clusters of many lines are one object.

    Raises
    ------
    DamagedError
        It has a checksum, and that does not hold.
    ValueError
        It holds none; pydantic's own error where the line is JSON, but no outcome.
    """
    if checksum_holds(text) is False:
        raise DamagedError(CHANGED)
    return _outcome_of(text)


def _outcome_of(text: bytes) -> Outcome:
    data = _with_shared_sections(text)
    if data is None:
        data = from_json(text, allow_inf_nan=False)
    model: type[Outcome] = Failure if isinstance(data, dict) and "failed" in data else Result
    return model.model_validate(data)


_workload = lru_cache(maxsize=256)(Workload.model_validate_json)
_cluster = lru_cache(maxsize=256)(Cluster.model_validate_json)


def _with_shared_sections(text: bytes) -> dict[str, Any] | None:
    """The line's data with workload and cluster in place; None where it is not laid out as sweeps write it."""
    found = _HASH.match(text)
    if found is None or not text.startswith(_WORKLOAD, found.end()):
        return None
    begin = found.end() + len(_WORKLOAD)
    # no string of JSON contains a quotation mark without a backslash before it: these are keys, or the sections cut here are no JSON
    end = text.find(b"}" + _CLUSTER + b"{", begin) + 1
    rest = text.find(b"}" + _STRATEGY, end) + 1
    if not 0 < end < rest:
        return None
    try:
        workload, cluster = _workload(text[begin:end]), _cluster(text[end + len(_CLUSTER) : rest])
        data = from_json(text[:begin] + b"null" + _CLUSTER + b"null" + text[rest:], allow_inf_nan=False)
    except (ValueError, RecursionError):  # reading all of it says what is wrong
        return None
    data["scenario"].update(workload=workload, cluster=cluster)
    return data  # type: ignore[no-any-return]


def checked_outcome_of(text: bytes) -> Outcome:
    """The outcome that a line from anywhere holds.

    Raises
    ------
    CutOffError
        It is no JSON, and has no end.
    UnclearError
        It is no JSON, or its checksum is another and nothing shows that a sweep wrote it.
    DamagedError
        It is one that a sweep wrote, and not as it was written.
    ResultsError
        It is no outcome, of another version, or holds what no simulation gives; the message says what.
    """
    holds = checksum_holds(text)
    if holds is False:
        cut = not text.rstrip().endswith(b"}")
        raise (CutOffError if cut else DamagedError if _is_ours(text) else UnclearError)(CHANGED)
    try:
        outcome = _outcome_of(text)
    except ValidationError as error:
        # without a checksum, its beginning shows that it is one of ours; other keys are those of another version
        other = error.errors()[0]["type"] in _OTHER_VERSION and not _RENAMED.search(text)
        damaged = holds is None and _HASH.match(text) and not other
        raise (DamagedError if damaged else ResultsError)(_why_no_outcome(text, error)) from None
    except (ValueError, RecursionError) as error:
        raise _no_json(text, error) from None
    if holds is None and outcome.scenario.hash != outcome.scenario_hash:
        raise DamagedError(f"its scenario is not the one of its scenario_hash, {outcome.scenario_hash}: one of them was changed")
    if isinstance(outcome, Result):
        _check_plausible(outcome)
    return outcome


def _why_no_outcome(text: bytes, error: ValidationError) -> str:
    data = from_json(text, allow_inf_nan=False)
    if not isinstance(data, dict):
        return f"must be a result (a JSON object), not {_shown(data)}"
    version = data.get("schema_version")
    if isinstance(version, int) and version > _VERSION:
        return (
            f"schema_version {version} is newer than {_VERSION}, the newest that this Paceline reads; "
            "update Paceline, or sweep again with this one"
        )
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "missing":
        return f"{where} is missing, so this is no result of `paceline sweep` or `paceline simulate --json`"
    if first["type"] == "extra_forbidden":
        return f"{where} is no key of a result that this Paceline knows; it was written by another version, so sweep again with this one"
    return f"{where + ': ' if where else ''}{_shown(first['input'])} is not valid: {' '.join(str(first['msg']).split())}"


def _no_json(text: bytes, error: ValueError | RecursionError) -> UnclearError:
    kind = UnclearError if text.endswith(b"\n") else CutOffError
    return kind(f"must be JSON, one result a line: {_why_no_json(text, error)}")


def _why_no_json(text: bytes, error: ValueError | RecursionError) -> str:
    try:
        json.loads(text.decode())
    except json.JSONDecodeError as found:
        return found.msg
    except UnicodeDecodeError:
        return "it is no text (UTF-8)"
    except (ValueError, RecursionError) as found:
        return type(found).__name__
    return str(error)


def _check_plausible(result: Result) -> None:
    """Refuse what no simulation gives, so that a line edited by hand cannot mislead."""
    rate, counts = result.throughput_samples_per_s, result.staleness.histogram
    if result.replicas < 1:
        raise ResultsError(f"replicas: {result.replicas} must be at least 1")
    means = {"throughput_samples_per_s": rate.mean, "speedup": result.speedup.mean, "step_time_s": result.step_time_s.mean}
    for name, mean in means.items():
        if mean <= 0:
            raise ResultsError(f"{name}.mean: {mean:g} must be above zero")
    if not rate.low <= rate.high:
        raise ResultsError(f"throughput_samples_per_s: low ({rate.low:g}) must not be above high ({rate.high:g})")
    if len(counts.values) != len(counts.counts):
        raise ResultsError("staleness.histogram: must have as many counts as values")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 3] + "..."
