"""From a scenario file to a validated :class:`Scenario`; every fault named in one line."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from simulator import catalog
from simulator.cluster import Cluster
from simulator.errors import ScenarioError
from simulator.scenario import Scenario
from simulator.spec import short_name
from simulator.workload import Workload

__all__ = [
    "apply_settings",
    "load_cluster",
    "load_scenario",
    "load_workload",
    "parse_setting",
    "read_toml",
    "scenario_from_table",
    "validated",
]

SpecT = TypeVar("SpecT", bound=BaseModel)
Table = dict[str, Any]

_MAX_FILE_BYTES = 64 * 2**20
_MEASURED_ON_THE_DEVICE = ("precision",)


def read_toml(path: Path) -> Table:
    """Parse a TOML file.

    Raises
    ------
    ScenarioError
        It is missing, not readable, too large, no UTF-8 or no TOML.
    """
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise ScenarioError(f"{path}: larger than {_MAX_FILE_BYTES} bytes, which no scenario is")
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ScenarioError(f"{path}: there is no such file; check the path") from None
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else " ".join(str(error).split())
        raise ScenarioError(f"{path}: cannot be read as TOML: {reason or type(error).__name__}") from None


def parse_setting(text: str, option: str = "--set") -> tuple[str, Any]:
    """Split ``key=value``; the value is TOML where it parses as TOML, else text.

    Raises
    ------
    ScenarioError
        There is no ``=``, or no key.
    """
    key, equals, raw = text.partition("=")
    key = key.strip()
    if not equals or not key or not all(part.strip() for part in key.split(".")):
        raise ScenarioError(f"{option} {text!r}: must be key=value with a dotted key, such as strategy.workers=8")
    return key, parse_value(raw)


def parse_value(raw: str) -> Any:
    """A value from the command line: TOML where it parses as TOML, else text."""
    try:
        return tomllib.loads(f"value = {raw}\n")["value"]
    except (ValueError, RecursionError):
        return raw.strip()


def apply_settings(table: Mapping[str, Any], settings: Iterable[tuple[str, Any]]) -> Table:
    """A copy of a table with dotted keys set, sub-tables made where they are missing."""
    result = dict(table)
    for key, value in settings:
        head, _, rest = key.partition(".")
        if rest:
            inner = result.get(head, {})
            if not isinstance(inner, Mapping):
                raise ScenarioError(f"{key}: {head} is a value, not a table, so nothing can be set inside it")
            value = apply_settings(inner, [(rest, value)])
        result = _merged(result, {head: value}) if not rest else {**result, head: value}
    return result


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> Table:
    """``base`` overlaid by ``over``; a quantity is replaced under whichever of its names."""
    result = dict(base)
    for key, value in over.items():
        for old in [name for name in result if name != key and short_name(name) == short_name(key)]:
            if {old, key} & {short_name(key)}:
                del result[old]
        inner = result.get(key)
        tagged = isinstance(value, Mapping) and "kind" in value
        result[key] = _merged(inner, value) if isinstance(inner, Mapping) and isinstance(value, Mapping) and not tagged else value
    return result


def _resolved(kind: catalog.Kind, section: Any, where: str, beside: Path | None) -> Any:
    """A section with what it ``use``s filled in below its own keys."""
    if not isinstance(section, Mapping) or "use" not in section:
        return section
    name = section["use"]
    if not isinstance(name, str):
        raise ScenarioError(f"{where}.use: {name!r} must be a name or a path in quotes")
    own = {key: value for key, value in section.items() if key != "use"}
    base = read_toml(catalog.find(kind, name, f"{where}.use", beside))
    for key in _MEASURED_ON_THE_DEVICE:
        if key in own and own[key] != base.get(key, "float32"):
            raise ScenarioError(
                f"{where}.{key}: {own[key]!r} is not what {name!r} was measured in; "
                f"run `paceline calibrate` with --{key}, its cost cannot be guessed"
            )
    return _merged(base, own)


def scenario_from_table(table: Mapping[str, Any], source: str, beside: Path | None = None) -> Scenario:
    """Validate a scenario given as nested tables, as its file has them.

    Parameters
    ----------
    table
        Sections ``workload``, ``cluster``, ``strategy`` and ``run``.
    source
        File name for messages.
    beside
        Folder that relative ``use`` paths are also looked up in.

    Raises
    ------
    ScenarioError
        One line for each rule broken.
    """
    resolved = dict(table)
    for section, kind in (("workload", "workloads"), ("cluster", "clusters")):
        if section in resolved:
            resolved[section] = _resolved(kind, resolved[section], f"{source}: {section}", beside)  # type: ignore[arg-type]
    load = resolved.get("workload")
    if isinstance(load, Mapping) and isinstance(own := table.get("workload"), Mapping):
        # a workload of the catalogue may carry a batch; the scenario's own replaces it
        for key, other in (("batch_per_replica", "global_batch"), ("global_batch", "batch_per_replica")):
            if key in own and other not in own and isinstance(resolved["workload"], dict):
                resolved["workload"].pop(other, None)
    return validated(Scenario, resolved, source)


def load_scenario(path: Path, settings: Iterable[tuple[str, Any]] = ()) -> Scenario:
    """Read a scenario file, apply ``--set`` settings, resolve names, validate."""
    return scenario_from_table(apply_settings(read_toml(path), settings), str(path), path.parent)


def load_workload(path: Path) -> Workload:
    """Read and validate a workload file."""
    return validated(Workload, read_toml(path), str(path))


def load_cluster(path: Path) -> Cluster:
    """Read and validate a cluster file."""
    return validated(Cluster, read_toml(path), str(path))


def validated(model: type[SpecT], data: Any, source: str) -> SpecT:
    """Validate, turning each of pydantic's complaints into one line of ours."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise ScenarioError(*(_sentence(problem, source) for problem in error.errors(include_url=False)[:5])) from None
    except RecursionError:
        raise ScenarioError(f"{source}: is nested too deeply") from None


def _sentence(problem: Any, source: str) -> str:
    """``FILE: dotted.path: VALUE rule; what to try``."""
    context = problem.get("ctx", {})
    # pydantic puts the tag of a union into the path; files know no such key
    location = [str(part) for part in problem["loc"] if part not in _TAGS]
    message = str(problem["msg"]).removeprefix("Value error, ")
    kind = problem["type"]
    if kind == "unit" and "given" in context and location:
        location[-1] = short_name(location[-1])
    path = ".".join(location)
    if kind == "extra_forbidden":
        message = "is no key of this table; check the spelling (`paceline schema` lists all keys)"
        value = ""
    elif kind == "missing":
        message, value = "is missing", ""
    elif kind == "union_tag_not_found":
        message, value = "needs a kind: " + str(context.get("discriminator", "kind")) + " is missing", ""
    elif kind == "union_tag_invalid":
        message = f"must have a kind among {context.get('expected_tags')}, not {_shown(context.get('tag'))}"
        value = ""
    else:
        given = context.get("given", problem["input"])
        value = "" if isinstance(given, (Mapping, list, tuple, BaseModel)) else f"{_shown(given)} "
        message = message.removeprefix("Input should").strip()
        message = f"must{message}" if message.startswith(" ") else message
        message = f"must {message}" if message.startswith(("be ", "have ")) else message
    return f"{source}: {path + ': ' if path else ''}{value}{message}"


_TAGS = frozenset(
    {"single", "mirrored", "multi-worker-mirrored", "parameter-server"}
    | {"constant", "normal", "lognormal", "gamma", "exponential", "shifted-exponential", "empirical"}
)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
