"""One line of a results file, read fast and kept small: equal workloads and clusters of many lines are one object."""

from __future__ import annotations

import json
import re
from collections import deque
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel
from pydantic_core import from_json

from simulator.cluster import Cluster
from simulator.results import Failure, Result
from simulator.workload import Workload

__all__ = ["Line", "LineReader", "begins_line", "hash_of_line", "line_of", "timeless"]

SectionT = TypeVar("SectionT", bound=BaseModel)

_BEGINNING = b'{"schema_version":1,"scenario_hash":"'
_HASH = re.compile(re.escape(_BEGINNING) + rb'([0-9a-f]{16})","scenario":')
_WORKLOAD = re.compile(_HASH.pattern + rb'\{"schema_version":1,"workload":(?=\{)')
_CLUSTER = b',"cluster":'
_KEPT = 256


class Line(NamedTuple):
    """A line, and what is known of it without reading it."""

    text: bytes
    """With its end."""
    scenario_hash: str
    took_s: float | None
    """How long the simulation took, as far as that is known; it does not stand in the line."""
    failed: bool


def line_of(outcome: Result | Failure) -> Line:
    """The line of an outcome."""
    took_s = outcome.wall_time_s if isinstance(outcome, Result) else None
    return Line(timeless(outcome).to_json().encode() + b"\n", outcome.scenario_hash, took_s, isinstance(outcome, Failure))


def timeless(outcome: Result | Failure) -> Result | Failure:
    """An outcome without the time that it took, which files must not depend on."""
    return outcome.model_copy(update={"wall_time_s": None}) if isinstance(outcome, Result) else outcome


def hash_of_line(line: bytes) -> str | None:
    """The scenario's hash, where the line begins as those that a sweep writes."""
    found = _HASH.match(line)
    return found[1].decode() if found else None


def begins_line(part: bytes, scenario_hash: str | None = None) -> bool:
    """Whether a half-written line is what the outcome of a scenario, or of any, begins with."""
    start = _BEGINNING if scenario_hash is None else _BEGINNING + scenario_hash.encode()
    return part.startswith(start) or start.startswith(part)


class _Sections:
    """Sections seen, by the very text that they were read from; those seen last are kept."""

    def __init__(self, model: type[BaseModel]) -> None:
        self._model = model
        self._seen: deque[tuple[bytes, BaseModel]] = deque(maxlen=_KEPT)

    def at(self, line: bytes, begin: int) -> tuple[BaseModel, int]:
        """The section that begins there, and where it ends.

        Raises
        ------
        ValueError
            None does: it is no JSON, or against the rules of its format.
        """
        for place, (text, section) in enumerate(self._seen):
            # no object in JSON is the beginning of another one
            if line.startswith(text, begin):
                if place:
                    del self._seen[place]
                    self._seen.appendleft((text, section))
                return section, begin + len(text)
        text = _object_at(line, begin)
        section = self._model.model_validate_json(text)
        self._seen.appendleft((text, section))
        return section, begin + len(text)


def _object_at(line: bytes, begin: int) -> bytes:
    """The text of the JSON object that begins there."""
    rest = line[begin:].decode()
    _, length = json.JSONDecoder().raw_decode(rest)
    return rest[:length].encode()


class LineReader:
    """Reads lines of results files into results and failures."""

    def __init__(self) -> None:
        self._workloads, self._clusters = _Sections(Workload), _Sections(Cluster)

    def read(self, line: bytes) -> Result | Failure:
        """The outcome that a line holds.

        Raises
        ------
        ValueError
            It holds none; pydantic's own error where the line is JSON, but no outcome.
        """
        data = self._with_shared_sections(line)
        if data is None:
            data = from_json(line, allow_inf_nan=False)
        model: type[Result | Failure] = Failure if isinstance(data, dict) and "failed" in data else Result
        return model.model_validate(data)

    def _with_shared_sections(self, line: bytes) -> dict[str, Any] | None:
        """The line's data with workload and cluster in place; None where it is not laid out as sweeps write it."""
        if (found := _WORKLOAD.match(line)) is None:
            return None
        try:
            workload, end = self._workloads.at(line, found.end())
            if not line.startswith(_CLUSTER, end):
                return None
            cluster, rest = self._clusters.at(line, end + len(_CLUSTER))
            data = from_json(line[: found.end()] + b"null" + _CLUSTER + b"null" + line[rest:], allow_inf_nan=False)
        except (ValueError, RecursionError):  # read as a whole it is told what is wrong
            return None
        data["scenario"].update(workload=workload, cluster=cluster)
        return data  # type: ignore[no-any-return]
