"""One line of a results file: what it holds, how it is read fast, and why it cannot be read.

A line that a sweep writes is known by how it begins (``_BEGINNING`` and the patterns below it): by the order of the first fields of an
outcome (:mod:`simulator.results.results`) and of a scenario, which cannot change without these patterns.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError
from pydantic_core import from_json

from simulator.base.errors import ResultsError
from simulator.base.files import CHANGED, KEY, checksum_holds, with_checksum, without_checksum
from simulator.results.results import Failure, Result
from simulator.scenario import hash_of
from simulator.spec.cluster import Cluster
from simulator.spec.workload import Workload

Outcome = Result | Failure

_VERSION = 1
_BEGINNING = b'{"schema_version":1,"scenario_hash":"'
_HASH = re.compile(re.escape(_BEGINNING) + rb'([0-9a-f]{16})","scenario":')
_WORKLOAD, _CLUSTER, _STRATEGY = b'{"schema_version":1,"workload":', b',"cluster":', b',"strategy":{'
_PLACE = re.compile(rb'\s*,\s*"place"\s*:\s*\d+\s*\}\s*$')
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
    """With its end."""
    scenario_hash: str
    failed: bool
    place: int | None = None
    """Number, from 0, of its scenario in the sweep, as it stands in the line; a line of a finished file has none."""


def line_of(outcome: Outcome) -> Line:
    """The line of an outcome, which depends on its scenario alone: it has no place."""
    return Line(outcome.to_json().encode() + b"\n", outcome.scenario_hash, isinstance(outcome, Failure))


def with_place(text: bytes, place: int | None) -> bytes:
    """The text of a line with another place, or with none; it has a checksum only if it had one: else nobody has checked it."""
    bare = _PLACE.sub(b"}", without_checksum(text)).rstrip()
    placed = bare if place is None else bare.removesuffix(b"}") + b',"place":%d}' % place
    return (placed if checksum_holds(text) is None else with_checksum(placed.decode()).encode()) + b"\n"


def line_in(text: bytes) -> Line | None:
    """The line that a text is; None where it is none that a sweep writes.

    Raises
    ------
    DamagedError
        It is one that is not as it was written: its checksum or its scenario's hash is another, or it has no checksum and is no
        outcome of its scenario; or it is no JSON (:class:`UnclearError`).
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
    _check_hash(text, data)
    return Line(text, found[1].decode(), "failed" in data, _place_taken_from(data))


def _check_hash(text: bytes, data: Any) -> None:
    """Raise DamagedError where the scenario of a line, given with its data, is not the one of its hash."""
    scenario, named = data.get("scenario"), data.get("scenario_hash")
    with suppress(AttributeError, KeyError, TypeError, ValueError):  # it is no scenario
        sections = _sections(text)
        shared = {} if sections is None else {"workload": _canonical(sections[0]), "cluster": _canonical(sections[1])}
        if hash_of({key: value for key, value in scenario.items() if key not in shared}, shared) == named:
            return
    raise DamagedError(f"its scenario is not the one of its scenario_hash, {named}: one of them was changed")


def begins_line(part: bytes, scenario_hash: str = "") -> bool:
    """Whether a half-written text is what the line of a scenario, or of any, begins with."""
    start = _BEGINNING + scenario_hash.encode()
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
    return _placed_outcome_of(text)[0]


def _placed_outcome_of(text: bytes) -> tuple[Outcome, int | None]:
    data = _with_shared_sections(text)
    if data is None:
        data = from_json(text, allow_inf_nan=False)
    place = _place_taken_from(data)
    if isinstance(data, dict):
        data.pop("wall_time_s", None)  # of earlier versions, beside what follows from the scenario
    model: type[Outcome] = Failure if isinstance(data, dict) and "failed" in data else Result
    return model.model_validate(data), place


def _place_taken_from(data: Any) -> int | None:
    """The place that stands in the data of a line, which are left without it: it is none of an outcome's."""
    is_place = isinstance(data, dict) and type(data.get("place")) is int and data["place"] >= 0
    return data.pop("place") if is_place else None


@lru_cache(maxsize=256)
def _canonical(section: bytes) -> str:
    return json.dumps(from_json(section), sort_keys=True, separators=(",", ":"))


_workload = lru_cache(maxsize=256)(Workload.model_validate_json)
_cluster = lru_cache(maxsize=256)(Cluster.model_validate_json)


def _sections(text: bytes) -> tuple[bytes, bytes, bytes] | None:
    """Workload, cluster, and the line with null in their places; None where it is not laid out as sweeps write it."""
    found = _HASH.match(text)
    if found is None or not text.startswith(_WORKLOAD, found.end()):
        return None
    begin = found.end() + len(_WORKLOAD)
    # no string of JSON contains a quotation mark without a backslash before it: these are keys, or the sections cut here are no JSON
    end = text.find(b"}" + _CLUSTER + b"{", begin) + 1
    rest = text.find(b"}" + _STRATEGY, end) + 1
    if not 0 < end < rest:
        return None
    return text[begin:end], text[end + len(_CLUSTER) : rest], text[:begin] + b"null" + _CLUSTER + b"null" + text[rest:]


def _with_shared_sections(text: bytes) -> dict[str, Any] | None:
    """The line's data with workload and cluster in place; None where it is not laid out as sweeps write it."""
    if (sections := _sections(text)) is None:
        return None
    try:
        workload, cluster, data = _workload(sections[0]), _cluster(sections[1]), from_json(sections[2], allow_inf_nan=False)
    except (ValueError, RecursionError):  # reading all of it says what is wrong
        return None
    data["scenario"].update(workload=workload, cluster=cluster)
    return data  # type: ignore[no-any-return]


def checked_outcome_of(text: bytes) -> tuple[Outcome, int | None]:
    """The outcome that a line from anywhere holds, and its place in the sweep where that stands in it.

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
        outcome, place = _placed_outcome_of(text)
    except ValidationError as error:
        # without a checksum, its beginning shows that it is one of ours; other keys are those of another version
        other = error.errors()[0]["type"] in _OTHER_VERSION and not _RENAMED.search(text)
        damaged = holds is None and _HASH.match(text) and not other
        raise (DamagedError if damaged else ResultsError)(_why_no_outcome(text, error)) from None
    except (ValueError, RecursionError) as error:
        raise _no_json(text, error) from None
    if outcome.scenario.hash != outcome.scenario_hash:  # an earlier version may have written fewer keys than there are now
        _check_hash(text, from_json(text, allow_inf_nan=False))
    if isinstance(outcome, Result):
        _check_plausible(outcome)
    return outcome, place


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
