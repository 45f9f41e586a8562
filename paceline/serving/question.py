"""What the page asks, read as data of a stranger: it names no files, and nothing in it is larger than the page answers at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import tomlkit
from pydantic import BaseModel, ConfigDict, Field
from tomlkit.exceptions import TOMLKitError

from paceline.catalogue import schema_of
from paceline.planning.space import Line, space_of
from paceline.ranges import doubled
from simulator.base.catalog import entries, scenario_file
from simulator.base.errors import InputError, ScenarioError
from simulator.base.files import read_toml, toml_in, toml_value
from simulator.base.spec import short_name
from simulator.base.text import kind_of_setting, written
from simulator.base.validation_errors import quoted
from simulator.catalogue.loading import NAMED, Settings, apply_settings, pairs_of, scenario_from_table
from simulator.catalogue.settings import Pairs, at, put
from simulator.catalogue.trace_files import TRACES
from simulator.scenario import Scenario
from simulator.strategies.catalogue import SHORT_NAMES

MOST_BYTES = 256 * 1024
"""Of a scenario's text."""
MOST_WORKERS = 1024
"""Ranks of a scenario that the page answers about."""
MOST_PLAN_S = 120.0
"""What a plan may take."""
_MOST_CHOSEN = 6
_MOST_LINES = 12
"""Configurations that are compared: beyond these nobody tells their curves apart."""
_MOST_CHANGES = 100
_LONGEST = 10_000


class Question(BaseModel):
    """What the page asks.

    Attributes
    ----------
    text
        The scenario, as TOML.
    changes
        Dotted keys with what is typed for them; None, or nothing, unsets a key.
    most
        Figures run over 1, 2, 4, ... workers up to this number.
    strategies, clusters
        What the scenario's own are compared with: short names of strategies, and names of the catalogue.
    form
        Whether the form is wanted too, which may have changed.
    all_of_it
        Whether it is answered to the end: else bounds, a first look and the steps in time are enough, as while a slider moves.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: str = Field(max_length=MOST_BYTES)
    changes: tuple[tuple[str, str | None], ...] = Field(default=(), max_length=_MOST_CHANGES)
    most: int = Field(default=64, ge=1, le=MOST_WORKERS)
    strategies: tuple[str, ...] = Field(default=(), max_length=_MOST_CHOSEN)
    clusters: tuple[str, ...] = Field(default=(), max_length=_MOST_CHOSEN)
    form: bool = True
    all_of_it: bool = True


class Goal(BaseModel):
    """What a plan from the page is to reach: arguments of :func:`paceline.plan`, as typed; nothing is left out."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    samples: str = Field(default="", max_length=40)
    tokens: str = Field(default="", max_length=40)
    deadline: str = Field(default="", max_length=40)
    budget: str = Field(default="", max_length=40)
    price: str = Field(default="", max_length=40)

    def given(self) -> dict[str, str]:
        """Those that were typed."""
        return {name: text.strip() for name, text in self if text.strip()}


class PlanQuestion(BaseModel):
    """A question, and the goal of a plan from there."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    question: Question
    goal: Goal


@dataclass(frozen=True)
class Served:
    """The scenario that the page begins with.

    Attributes
    ----------
    text
        As its file has it, with the settings of the command line.
    name
        Of its file.
    beside
        The folder that its relative paths start from.
    """

    text: str
    name: str
    beside: Path | None

    def files(self) -> dict[str, str]:
        """Files that it names itself, by the dotted keys that name them, where they are: the page may name these, and no others."""
        table = toml_in(self.text)
        named = {key: name for key in _NAMING if isinstance(name := at(table, key), str) and name not in _names_of(key)}
        return {key: str(self._found(name, first=self.beside if key in TRACES else Path())) for key, name in named.items()}

    def _found(self, name: str, first: Path | None) -> Path:
        """Where the scenario's loader finds it, which looks for a trace beside the scenario first."""
        places = [folder / name for folder in (first, Path(), self.beside) if folder is not None]
        return next((place for place in places if place.is_file()), Path(name)).resolve()


def served_of(scenario: str | Path, settings: Settings = ()) -> Served:
    """The scenario of a file, or an example, as the page begins with it; it need not be right, since the page says what is wrong.

    Raises
    ------
    ScenarioError
        There is no such file or name, or it is no TOML.
    """
    path = scenario_file(scenario)
    read_toml(path)
    text = path.read_text(encoding="utf-8-sig")
    if len(text) > MOST_BYTES:
        raise ScenarioError(f"{path}: has more than {MOST_BYTES:,} bytes, which no page shows; let it `use` its workload from a file")
    return Served(with_settings(text, pairs_of(settings)), path.name, path.parent)


_NAMING = (*(f"{path}.use" for path in NAMED), *TRACES)
"""Keys that may name a file."""


def _names_of(key: str) -> Mapping[str, Path]:
    """Return what the catalogue has for a key that names something."""
    path = key.removesuffix(".use")
    return entries(NAMED[path]) if path in NAMED else {}


def changed(text: str, changes: tuple[tuple[str, str | None], ...]) -> str:
    """The text with keys set as a person has typed them; its comments and its order stay.

    >>> changed("[strategy]\\nworkers = 4  # mine\\n", (("strategy.workers", "8"), ("cluster.inter_node.latency", "20 us")))
    '[strategy]\\nworkers = 8  # mine\\n\\n[cluster.inter_node]\\nlatency = "20 us"\\n'

    Raises
    ------
    ScenarioError
        The text is no TOML, or a key leads into a value.
    """
    return with_settings(text, [(key, _typed(value)) for key, value in changes])


def with_settings(text: str, settings: Pairs) -> str:
    """The text with keys set; errors as of :func:`changed`."""
    if not settings:
        return text
    table = apply_settings(toml_in(text), settings)
    try:
        document = tomlkit.parse(text)
        _take(document, table)
        return tomlkit.dumps(document)
    except (TOMLKitError, RecursionError) as error:
        raise ScenarioError(f"cannot be changed: {' '.join(str(error).split())[:200]}; change the text itself") from None


def _typed(value: str | None) -> Any:
    """Return what was typed into a field: numbers, truths, lists and tables as TOML has them, else text; nothing is None."""
    text = (value or "").strip()
    if len(text) > _LONGEST:
        raise ScenarioError(f"{quoted(text)} is longer than {_LONGEST:,} characters; change the text itself")
    if not text:
        return None
    value = toml_value(text)
    return value if isinstance(value, (str, int, float, list, dict)) else text  # more keys, or a date, are text that happens to be TOML


def _take(document: Any, table: Mapping[str, Any]) -> None:
    """Change a document of tomlkit where it differs from a table."""
    for key in [key for key in document if key not in table]:
        del document[key]
    for key, value in table.items():
        if key not in document:
            document[key] = _in_one_line(value)
        elif isinstance(value, Mapping) and isinstance(document[key], Mapping):
            _take(document[key], value)
        elif document[key] != value or type(document[key]) is bool is not type(value):
            document[key] = value


def _in_one_line(value: Any) -> Any:
    """A table as one line, as a person would write a small one."""
    if not isinstance(value, Mapping) or any(isinstance(inner, Mapping) for inner in value.values()):
        return value
    table = tomlkit.inline_table()
    table.update(value)
    return table


def loaded(table: Mapping[str, Any], served: Served) -> Scenario:
    """The scenario of a table that the page sent.

    Raises
    ------
    InputError
        It breaks a rule, names a file, or is larger than the page answers about.
    """
    scenario = scenario_from_table(_without_files(table, served), served.name)
    _check_size(scenario)
    return scenario


def asked_of(table: Mapping[str, Any], question: Question, served: Served) -> tuple[Scenario, int, list[Line], tuple[str, ...]]:
    """Return what a question comes to, validated; errors as of :func:`loaded`.

    Returns
    -------
    Scenario
        The one in the text.
    int
        Its own number of workers; 1 where its strategy has none.
    list of Line
        Its own configuration over the numbers of workers first, then those that it is compared with.
    tuple of str
        Sentences on what cannot be.
    """
    scenario = loaded(table, served)
    key = scenario.strategy.count_key
    count = int(table["strategy"].get(key) or 0) if key else 1
    if not count:  # left out: as many as fill the cluster
        count = scenario.ranks // max(scenario.strategy.with_count(1).layout(scenario.cluster).replicas, 1)
    counts = sorted({*(number for number in doubled(1, question.most) if number <= question.most), count})
    read = {**table, "workload": scenario.workload, "cluster": scenario.cluster}  # once, not again for each configuration
    lines: list[Line] = []
    left_out: list[str] = []
    for clusters in dict.fromkeys(((), question.clusters)):
        for name in clusters:
            if name not in entries("clusters"):
                raise ScenarioError(f"cluster.use: {quoted(name)} must be a name from `paceline models list`")
        for strategy in ("", *question.strategies):
            if strategy and strategy not in SHORT_NAMES:
                raise ScenarioError(f"strategy.kind: {quoted(strategy)} must be one of {', '.join(SHORT_NAMES)}")
            try:
                space = space_of(read, clusters=clusters, strategies=(strategy,), workers=counts)
            except InputError as error:
                if not lines:
                    raise
                on = f"on {clusters[0]}" if clusters else ""
                left_out.append(f"Left out: {strategy or 'the same'} {on}: {str(error).splitlines()[0]}.")
                continue
            lines += space.lines[:1] if strategy else space.lines
            for refusal in space.refused:
                many = "" if refusal.configurations == 1 else f" ({refusal.configurations} numbers of workers)"
                left_out.append(f"Left out: {refusal.name}{many}: {refusal.text}.")
    unlike: dict[frozenset[str], Line] = {}
    for line in lines:
        unlike.setdefault(frozenset(asked.given.hash for asked in line.candidates.values()), line)
    kept = list(unlike.values())
    left_out += [f"Left out: {line.name}: at most {_MOST_LINES} configurations are compared." for line in kept[_MOST_LINES:]]
    return scenario, count, kept[:_MOST_LINES], tuple(dict.fromkeys(left_out))


def _without_files(table: Mapping[str, Any], served: Served) -> dict[str, Any]:
    """The table, where files that the served scenario names itself stand with their whole paths.

    Raises
    ------
    ScenarioError
        It names another file.
    """
    result, own = dict(table), served.files()
    given = toml_in(served.text)
    for key in _NAMING:
        name = at(result, key)
        if not isinstance(name, str) or name in _names_of(key):
            continue
        if key not in own or name != at(given, key):
            what = "a name from `paceline models list`" if key.endswith(".use") else "a list of points"
            raise ScenarioError(
                f"{key}: {quoted(name)} must be {what}: of files, the page reads those that the scenario names which is served"
            )
        result = put(result, key, own[key])
    return result


def _check_size(scenario: Scenario) -> None:
    """Refuse what is larger than the page answers about."""
    for key, size in (("workers", scenario.ranks), ("servers", scenario.servers)):
        if size > MOST_WORKERS:
            raise ScenarioError(
                f"strategy.{key}: {size:,} is more than the page answers about, {MOST_WORKERS:,}; save the scenario, and simulate it with "
                "`paceline simulate`"
            )


def problems_of(error: InputError, served: Served) -> list[tuple[str, str]]:
    """The rules that are broken, each with the dotted key that breaks it; "" where that is no matter of one key."""
    problems = []
    for line in getattr(error, "problems", ()) or (str(error),):
        text = line.removeprefix(f"{served.name}: ")
        path, colon, rest = text.partition(": ")
        is_key = bool(colon) and path.partition(".")[0] in Scenario.model_fields and " " not in path
        problems.append((path, rest) if is_key else ("", text))
    return problems


FORM_SECTIONS = ("workload", "cluster", "strategy", "training", "input", "job", "run")
"""Sections in the order of the form; the others say what was measured, which nobody types."""
_NOT_TYPED = {
    "schema_version", "calibrated", "uncertainty", "fit", "fit_hosts", "provenance", "overridden", "counted", "moved", "recast", "passes",
    "computed", "residual", "rates_90", "source", "basis", "description", "variables", "layers", "jitter_draws",
}  # fmt: skip
"""Keys that measurements fill in, and lists of tables: they are written in the text."""
_DEEPEST = 3
_LONGEST_VALUE = 200


def form_of(table: Mapping[str, Any], scenario: Scenario | None) -> list[dict[str, Any]]:
    """Sections with their fields.

    Parameters
    ----------
    table
        What the text says.
    scenario
        The same, loaded: what holds where the text says nothing; None where it breaks a rule.

    Returns
    -------
    list of dict
        Each a table: ``path``, ``help`` and ``parts``. A part that has ``parts`` is a table in it; a field has ``path``, ``key``, ``help``,
        ``choices`` or none, ``value`` as the text has it, and as ``holds`` what holds without.
    """
    schema = _schema()
    effective = None if scenario is None else scenario.model_dump(mode="json", exclude_none=True)  # TOML has no null
    return [
        _table(name, schema["properties"][name], table.get(name), None if effective is None else effective.get(name), 1)
        for name in FORM_SECTIONS
    ]


@lru_cache(maxsize=1)
def _schema() -> dict[str, Any]:
    return schema_of("scenario")


def _table(path: str, schema: Mapping[str, Any], given: Any, holds: Any, depth: int) -> dict[str, Any]:
    """A table with its parts, of the kind that is given, or that holds."""
    own = given if isinstance(given, Mapping) else {}
    known = holds if isinstance(holds, Mapping) else {}
    kinds = _kinds(schema)
    parts: list[dict[str, Any]] = []
    if path in NAMED:
        about = "name of the catalogue; keys below are laid over what it has"
        parts.append(_field(f"{path}.use", about, own, {}, ("use",), list(entries(NAMED[path]))))
    chosen: Mapping[str, Any] = {}
    if len(kinds) > 1:
        parts.append(_field(f"{path}.kind", "which of these it is; each has keys of its own", own, known, ("kind",), list(kinds)))
        chosen = kinds.get(str(own.get("kind", known.get("kind", ""))), {})
    elif kinds:
        chosen = next(iter(kinds.values()))
    parts += _parts(path, chosen, own, known, depth)
    return {"path": path, "key": path.rpartition(".")[2], "help": schema.get("description", ""), "parts": parts, "given": bool(own)}


def _parts(path: str, schema: Mapping[str, Any], own: Mapping[str, Any], known: Mapping[str, Any], depth: int) -> Iterator[dict[str, Any]]:
    properties: Mapping[str, Any] = schema.get("properties", {})
    for full, of_full in properties.items():
        key = short_name(full)
        if (
            full in _NOT_TYPED
            or "const" in of_full
            or (key == full and any(name != key and short_name(name) == key for name in properties))
        ):
            continue
        inner = _kinds(of_full)
        if any(kind.get("properties") for kind in inner.values()):
            if depth < _DEEPEST:
                yield _table(f"{path}.{full}", of_full, own.get(full), known.get(full), depth + 1)
            continue
        if key != full and key in properties:  # a quantity, whose short name takes text with a unit
            about = f"{of_full.get('description', '')}; with its unit"
            yield _field(f"{path}.{key}", about, own, known, (key, full), [], of_full.get("default"))
        else:
            yield _field(
                f"{path}.{full}", str(of_full.get("description", "")), own, known, (full,), _choices(of_full), of_full.get("default")
            )


def _field(
    path: str, about: str, own: Mapping[str, Any], known: Mapping[str, Any], names: Sequence[str], choices: list[str], default: Any = None
) -> dict[str, Any]:
    """A field, whose value stands under whichever of its names; the last is the one of figures in SI units."""
    value = next((own[name] for name in names if name in own), None)
    return {
        "path": path,
        "key": names[0],
        "help": about,
        "choices": choices,
        "value": "" if value is None else _in_text(value),
        "holds": _held(known.get(names[-1], default), f"{path.rpartition('.')[0]}.{names[-1]}"),
    }


def _held(value: Any, path: str) -> str:
    """A value as results write it; nothing of what is too long for a field."""
    if value is None or isinstance(value, Mapping) or (isinstance(value, (list, tuple)) and not value):
        return ""
    text = written(value, kind_of_setting(path)) if isinstance(value, (int, float)) and not isinstance(value, bool) else _in_text(value)
    return text if len(text) <= _LONGEST_VALUE else ""


def _in_text(value: Any) -> str:
    """A value as it is typed into a field: text without quotes, all else as TOML has it."""
    if isinstance(value, str):
        return value
    inline = tomlkit.array()  # in which tables are written as one typed in a field has to be
    inline.append(value)
    return " ".join(inline.as_string()[1:-1].split())


def _kinds(schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return what may stand at a place, by the name of its kind; plain values and tables of one kind under their titles."""
    kinds: dict[str, Mapping[str, Any]] = {}
    for part in schema.get("anyOf", schema.get("oneOf", [schema])):
        whole = _followed(part)
        if "oneOf" in whole or "anyOf" in whole:
            kinds |= _kinds(whole)
        elif whole.get("type") == "object" and whole.get("required") != ["use"]:
            kind = whole.get("properties", {}).get("kind", {})
            kinds[str(kind.get("const", whole.get("title", "")))] = whole
    return kinds


def _followed(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """A schema, or what it refers to."""
    reference = str(schema.get("$ref", ""))
    followed: Mapping[str, Any] = _schema()["$defs"][reference.rpartition("/")[2]] if reference else schema
    return followed


def _choices(schema: Mapping[str, Any]) -> list[str]:
    """The words that a value may be; none where it is typed."""
    kinds = [_followed(kind) for kind in schema.get("anyOf", [schema])]
    words = [str(word) for kind in kinds for word in kind.get("enum", ())]
    if any(kind.get("type") == "boolean" for kind in kinds):
        words += ["true", "false"]
    plain = all(kind.get("type") in ("null", "boolean") or "enum" in kind for kind in kinds)
    return words if plain else []
