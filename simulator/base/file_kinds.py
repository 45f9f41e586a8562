"""Tells what kind of file a file is by its keys, so that the wrong one is named, with the command that takes it.

Keys are those that the formats have elsewhere (specifications, lines of results, measurements), commands and options those of the
command line: a format or command that changes must be changed here too. Contents are validated elsewhere.
"""

from __future__ import annotations

import json
import shlex
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

Is: TypeAlias = Literal[
    "scenario",
    "workload",
    "cluster",
    "device",
    "input",
    "fault",
    "testbed-setting",
    "matrix",
    "results",
    "plan",
    "learned",
    "measurements",
    "steps",
    "keras-model",
    "package",
]


@dataclass(frozen=True)
class FileKind:
    """A kind of file.

    Attributes
    ----------
    what
        With its article: ``a workload``.
    use
        What a person does with one; ``{}`` is its path.
    holds
        Whether a table read from TOML, or the first line of JSON, is of this kind.
    """

    what: str
    use: str
    holds: Callable[[Mapping[str, Any]], bool]


_SECTIONS = ("workload", "cluster", "strategy", "run", "training", "job")


def _any(*keys: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda table: any(key in table for key in keys)


def _every(*keys: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda table: all(key in table for key in keys)


def _is_matrix(table: Mapping[str, Any]) -> bool:
    return any(isinstance(table.get(key), list) for key in ("fit", "held_out"))


def _is_scenario(table: Mapping[str, Any]) -> bool:
    return any(isinstance(table.get(key), Mapping) for key in _SECTIONS)


def _is_faults(table: Mapping[str, Any]) -> bool:
    means = (f"{what}_mtbf{unit}" for what in ("worker", "server", "node", "job") for unit in ("", "_s"))
    return any(key in table for key in (*means, "preemption"))


def _is_measurement(table: Mapping[str, Any]) -> bool:
    return table.get("kind") == "header" and "probe" in table


def _is_steps(table: Mapping[str, Any]) -> bool:
    return table.get("format") == "paceline-steps"


def _is_package(table: Mapping[str, Any]) -> bool:
    return "name" in table and any(isinstance(table.get(key), Mapping) for key in ("dependencies", "devDependencies", "scripts"))


def _is_setting(table: Mapping[str, Any]) -> bool:
    return "mode" in table and ("workers" in table or "model" in table)


_IN_TOML: dict[Is, FileKind] = {
    "scenario": FileKind("a scenario", "simulate it with `paceline simulate {}`", _is_scenario),
    "matrix": FileKind("a matrix of testbed settings", "run it with `paceline validate --matrix {}`", _is_matrix),
    "workload": FileKind(
        "a workload", "try it in a scenario: `paceline simulate ring --set workload.use={}`", _any("variables", "transformer", "residual")
    ),
    "cluster": FileKind("a cluster", "try it in a scenario: `paceline simulate ring --set cluster.use={}`", _any("inter_node")),
    "device": FileKind("a device", "see it with `paceline models show {}`", _any("generation")),
    "input": FileKind("an input pipeline", "try it in a scenario: `paceline simulate ring --set input.use={}`", _any("work")),
    "fault": FileKind(
        "a file of faults", "try it in a job: `paceline simulate ring --set job.samples=1e9 --set job.faults.use={}`", _is_faults
    ),
    "testbed-setting": FileKind("a setting of the testbed", "run it with `paceline testbed run {}`", _is_setting),
}
_IN_JSON: dict[Is, FileKind] = {
    "results": FileKind("a results file", "draw it with `paceline report {}`", _any("scenario_hash")),
    "measurements": FileKind("a file of measurements", "", _is_measurement),
    "steps": FileKind("a record of steps", "compare it with a prediction: `paceline watch SCENARIO.toml {}`", _is_steps),
    "learned": FileKind("an answer about learning", "draw it with `paceline report {}`", _every("problem", "target", "ways")),
    "plan": FileKind(
        "the answer of a plan", "draw it with its results: `paceline report RESULTS.ndjson --plan {}`", _every("goal", "chosen")
    ),
    "keras-model": FileKind("the configuration of a Keras model", "", _every("class_name", "config")),
    "package": FileKind("a package.json of Node.js", "", _is_package),
}
_WITH_MEASUREMENTS: Mapping[str, str] = {
    "step": "fit them with `paceline calibrate --from-measurements {}`",
    "input": "fit them with `paceline calibrate-input --from-measurements {}`",
    "testbed": "sum them up with `paceline testbed show {}`",
}
"""What is done with measurements, by the probe that made them."""
_PYTHON = FileKind("a file of Python", "measure a model that it builds with `paceline calibrate {}:FUNCTION --name NAME`", lambda _: True)
_PAGE = FileKind("an HTML page", "open it in a browser", lambda _: True)
_CELLS = FileKind("a table (CSV)", "give it to `paceline report --measured` or `paceline validate --measured`", lambda _: True)
_FIRST_BYTES = 2**26


def kind_of_table(table: Mapping[str, Any]) -> Is | None:
    """What a table read from TOML is; None where it is nothing that Paceline reads."""
    return next((name for name, kind in _IN_TOML.items() if kind.holds(table)), None)


def is_json_of(path: Path, kind: Is) -> bool:
    """Whether a file is one object of JSON, and of this kind."""
    try:
        data = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return False
    return isinstance(data, dict) and _IN_JSON[kind].holds(data)


def mistaken_table(table: Mapping[str, Any], path: str | Path, wanted: Is | None) -> str | None:
    """That a table is of another kind than the one that is wanted, and what to do with it; None where it is not."""
    found = kind_of_table(table)
    return None if found is None or found == wanted else _sentence(_IN_TOML[found], path)


def mistaken(path: str | Path, wanted: Is | None = None) -> str | None:
    """That a file is of another kind than the one that is wanted, and what to do with it; None where that cannot be told."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(_FIRST_BYTES)
    except (OSError, ValueError):
        return None
    text = content.decode("utf-8-sig", "replace")
    try:
        return mistaken_table(tomllib.loads(text), path, wanted)
    except (ValueError, RecursionError):
        pass
    return _other_text(text, path, wanted)


def _other_text(text: str, path: str | Path, wanted: Is | None) -> str | None:
    """What is no TOML: lines of JSON, one of it, a page or a table."""
    for candidate in (text.partition("\n")[0], text):
        try:
            data = json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        found = next((name for name, kind in _IN_JSON.items() if isinstance(data, dict) and kind.holds(data)), None)
        if found is None or found == wanted:
            return None
        return _sentence(_IN_JSON[found], path, _WITH_MEASUREMENTS.get(str(data.get("probe")), ""))
    if str(path).endswith(".py"):
        return _sentence(_PYTHON, path)
    start = text.lstrip()[:200].lower()
    if start.startswith(("<!doctype html", "<html")):
        return _sentence(_PAGE, path)
    if "," in start.partition("\n")[0] and str(path).endswith(".csv"):
        return _sentence(_CELLS, path)
    return None


def _sentence(kind: FileKind, path: str | Path, use: str = "") -> str:
    todo = (use or kind.use).format(shlex.quote(str(path)))
    return f"is {kind.what}; {todo}" if todo else f"is {kind.what}"
