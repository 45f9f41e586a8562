"""Validates tables from files against specifications, and says what is wrong in one line: dotted path, value, rule, what to try.

The rules themselves are in the specifications; ``_RULES`` puts pydantic's complaints, by their types, into our words. Figures that are
allowed but implausible give a warning (:func:`implausible`).
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError

from simulator.base.errors import ReadingWarning, ResultsError, ScenarioError
from simulator.base.files import CHANGED, Is, bytes_of, checksum_holds, mistaken
from simulator.base.spec import QUANTITY_EXAMPLE, SI_NAME, Spec, Usual, keys_of, mark_of, parts_of, short_name
from simulator.base.text import Kind, did_you_mean, format_interval, kind_of_setting, listed, nearest, printable, written

SpecT = TypeVar("SpecT", bound=BaseModel)
Tables = list[type[BaseModel]]


def validated(model: type[SpecT], data: Any, source: str) -> SpecT:
    """Validate, turning each of pydantic's complaints into one line of ours."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        problems = error.errors(include_url=False)
        faulty = {problem["loc"][:depth] for problem in problems for depth in range(len(problem["loc"]))}
        # a list whose entries are all faulty is not too short besides, and what would follow from what is faulty is not told
        told = [problem for problem in problems if problem["type"] != "too_short" or problem["loc"] not in faulty]
        told = [problem for problem in told if problem["type"] != "default_factory_not_called"]
        raise ScenarioError(*(_sentence(problem, model, data) for problem in told[:5]), source=source) from None
    except RecursionError:
        raise ScenarioError("is nested too deeply", source=source) from None


_RULES = {
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be below {lt}",
    "less_than_equal": "must be at most {le}",
    "finite_number": "must be a finite number",
    "float": "must be a number",
    "bool": "must be true or false",
    "int": "must be a whole number",
    "int_parsing_size": "must be a smaller number",
    "string_type": "must be text in quotes",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters",
    "model": "must be a table",
    "dict": "must be a table",
    "tuple_type": "must be a list",
    "too_short": "must have at least {min_length} entries, not {actual_length}",
    "too_long": "must have at most {max_length} entries, not {actual_length}",
    "missing": "is missing",
    "union_tag_not_found": "is missing",
    "union_tag_invalid": "must be one of {expected_tags}",
}
"""Rules by the type of pydantic's complaint, or by its first word."""
_ABSENT = object()
_SEVERAL = re.compile(r"\d{1,15}(?:(?:,|\.\.|-)\d{1,15})+")
"""A list or a range of whole numbers, as a person may type it."""


def is_valid(model: type[BaseModel], data: Any) -> bool:
    """Return whether a table is a valid specification of this kind."""
    try:
        model.model_validate(data)
    except ValidationError:
        return False
    return True


def _sentence(problem: Any, model: type[BaseModel], data: Any) -> str:
    """``dotted.path: VALUE rule; what to try``."""
    kind, context = problem["type"], problem.get("ctx", {})
    keys, given = _located(problem["loc"], data)
    rule = no_key(model, problem["loc"]) if kind == "extra_forbidden" else rule_of(problem)
    if kind == "missing":
        keys[-1] = short_name(keys[-1])  # as a person would write it
    if kind.startswith("union_tag"):
        keys.append("kind")
        given = given.get("kind", _ABSENT) if isinstance(given, Mapping) else _ABSENT
    if isinstance(given, str) and (choices := _choices(context)):
        short = _keys_of_short_names(tables_at(model, problem["loc"])[0]) if kind == "union_tag_invalid" else {}
        meant = did_you_mean(given, [*choices, *(name for name in short if name not in choices)], written="'{}'")
        keys_meant = next((text for name, text in short.items() if meant.endswith(f"'{name}'?") and name not in choices), "")
        hint = f"'{given}' is short for {short[given]}" if given in short else f"did you mean {keys_meant}?" if keys_meant else meant
        rule += f"; {hint}" if hint else ""
    if kind.startswith("int_") and isinstance(given, str) and _SEVERAL.fullmatch(given):
        rule += f"; several are for `paceline sweep --over {'.'.join(keys)}={given.replace('-', '..')}`"
    given = context.get("given", given)
    if kind.endswith("_type") and isinstance(given, (Mapping, list, tuple)):
        rule += ", not a table" if isinstance(given, Mapping) else ", not a list"
    shown = "" if given is _ABSENT or kind == "extra_forbidden" or isinstance(given, (Mapping, list, tuple)) else f"{quoted(given)} "
    return ": ".join(filter(None, (".".join(keys), shown + rule)))


def rule_of(problem: Any) -> str:
    """The rule that one of pydantic's complaints is about, in our words: ``must be above 0``."""
    rule = _RULES.get(problem["type"]) or _RULES.get(problem["type"].partition("_")[0])
    if rule is not None:
        return rule.format(**{name: _plainly(value) for name, value in problem.get("ctx", {}).items()})
    said = str(problem["msg"]).removeprefix("Value error, ")
    return said.replace("Input should", "must", 1) if said.startswith("Input should ") else said


def read_answer(model: type[SpecT], path: Path, kind: Is | None, command: str, again: str) -> SpecT:
    """Read the JSON that a command of Paceline has written.

    Parameters
    ----------
    model, kind
        What it holds, and its kind of file, by which a file of another kind is told.
    command, again
        Writes such a file, as a whole command line, and what to do with one of another version.

    Raises
    ------
    ResultsError
        The file is missing, unreadable, changed, of a newer version, or something else.
    """
    content = bytes_of(path, ResultsError, missing=f"`{command}` writes it")
    try:
        data = json.loads(content)
    except (ValueError, RecursionError):
        raise ResultsError(f"{path}: {mistaken(path, kind) or f'must be JSON, as `{command}` writes it'}") from None
    if checksum_holds(content) is False:
        raise ResultsError(f"{path}: {CHANGED}; {again}")
    newest = get_args(model.model_fields["schema_version"].annotation)[0]
    version = data.get("schema_version") if isinstance(data, dict) else None
    if isinstance(version, int) and version != newest:
        than, todo = ("newer", f"update Paceline, or {again}") if version > newest else ("older", again)
        raise ResultsError(f"{path}: schema_version {version} is {than} than {newest}, the one that this Paceline reads; {todo}")
    try:
        return model.model_validate_json(content)
    except ValidationError as error:
        problem = f"{fault_of(error)}: this is not an answer of `{command}`"
        raise ResultsError(f"{path}: {(mistaken(path, kind) if kind else None) or problem}") from None


def fault_of(error: ValidationError) -> str:
    """The first complaint about a record, in a clause: ``place: VALUE must be above 0``."""
    problem = error.errors(include_url=False)[0]
    place = ".".join(printable(str(part))[:60] for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        return f"{place} is not a field of this record"
    said = problem["type"] == "missing" or isinstance(problem["input"], (dict, list)) or not place
    return ": ".join(filter(None, (place, ("" if said else f"{printable(quoted(problem['input']))} ") + rule_of(problem))))


def _keys_of_short_names(tables: Tables) -> dict[str, str]:
    """Return the keys that short names of kinds, such as those of strategies, stand for."""
    names = {name: keys for table in tables for name, keys in getattr(table, "short_names", {}).items()}
    return {name: listed([f"{key} = {json.dumps(value)}" for key, value in keys.items()]) for name, keys in names.items()}


def _choices(context: Mapping[str, Any]) -> list[str]:
    """The words of a choice, as pydantic lists them, in quotes."""
    return re.findall(r"'([^']+)'", str(context.get("expected", context.get("expected_tags", ""))))


def _located(location: Sequence[int | str], data: Any) -> tuple[list[str], Any]:
    """Locate a problem in the file's own keys, and return the value there."""
    keys = []
    for part in location:
        if isinstance(data, Mapping) and part not in data:
            if part == data.get("kind"):  # pydantic puts the tag of a union into the path; files know no such key
                continue
            if short_name(str(part)) in data:
                part = short_name(str(part))
        keys.append(_as_key(part))
        if isinstance(data, Mapping):
            data = data.get(part, _ABSENT)
        else:
            data = data[part] if isinstance(data, (list, tuple)) and isinstance(part, int) and part < len(data) else _ABSENT
    return keys, data


def no_key(model: type[BaseModel], location: Sequence[int | str]) -> str:
    """Say that there is no such key, and which one may have been meant."""
    key = str(location[-1])[:60]
    tables, others, kind = tables_at(model, location[:-1])
    owners = [str(table.model_fields["kind"].default) for table in others if key in keys_of(table)]
    if owners:
        kinds = " or ".join(f'"{owner}"' for owner in owners)
        return f'is not a key of kind = "{kind}"; it belongs to kind = {kinds}'
    known = sorted({name for table in tables for name in keys_of(table)})
    elsewhere = list(dict.fromkeys(_places_of(key, model)))
    if not nearest(key, known, least=_HARDLY_ANOTHER) and 0 < len(elsewhere) <= 2:
        hint = f"did you mean {' or '.join(elsewhere)}?"
    else:
        hint = did_you_mean(key, known, "`paceline schema` lists all keys")
    return f"is not a key of this table; {hint}"


_HARDLY_ANOTHER = 0.85
"""Minimum similarity of a key to one of its table to be preferred to the same key elsewhere."""


def tables_at(model: type[BaseModel], path: Sequence[int | str]) -> tuple[Tables, Tables, str]:
    """Return the tables that may be at a place; where there are kinds, also those of other kinds than the given, and its name."""
    tables: Tables = [model]
    others: Tables = []
    kind = ""
    for part in path:
        tagged = [table for table in tables if "kind" in table.model_fields and table.model_fields["kind"].default == part]
        others, kind = ([table for table in tables if table not in tagged], str(part)) if tagged else ([], "")
        if isinstance(part, str) and not tagged:
            inner = [table.model_fields[part].annotation for table in tables if part in table.model_fields]
            tables = [table for annotation in inner for table in parts_of(annotation) if issubclass(table, BaseModel)]
        tables = tagged or tables
    return tables, others, kind


_FITTED = ("calibrated", "fit", "fit_hosts", "uncertainty")


def _places_of(key: str, model: type[BaseModel], where: str = "") -> Iterator[str]:
    """Dotted names of a key in the tables of a file; not in its lists and laws."""
    for name, field in model.model_fields.items():
        inner = [part for part in parts_of(field.annotation) if issubclass(part, BaseModel)]
        if name not in _FITTED and (name == "strategy" or (len(inner) == 1 and get_origin(field.annotation) is not tuple)):
            for table in inner:
                if key in keys_of(table):
                    yield f"{where}{name}.{key}"
                yield from _places_of(key, table, f"{where}{name}.")


def _as_key(part: int | str) -> str:
    text = str(part)
    return text if re.fullmatch(r"[A-Za-z0-9_-]{1,60}", text) else quoted(text)


def _plainly(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1e16 else value


def quoted(value: object) -> str:
    """A value as a file would have it, cut to 60 characters; text that is cut still ends with its quote."""
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    if len(text) <= 60:
        return text
    return f"{text[:56]}...{text[-1]}" if isinstance(value, str) else f"{text[:57]}..."


class Implausible(NamedTuple):
    """A figure that is beyond all that there is."""

    path: str
    """Dotted path of its key."""
    value: float
    """In SI units, or US dollars."""
    range: Usual
    text: str
    """How it is read, what there is, and how it may be written instead."""


def implausible(spec: Spec, where: str = "") -> Iterator[Implausible]:
    """Figures of a specification that are beyond all that there is, the first of each key; ``where`` begins their paths.

    Nothing is refused for it: a reader learns how a figure is read, of a scenario by ``simulator.results.misread``.
    """
    seen = set()
    for path, key, owner, name, value, usual in _figures(spec, where, where):
        if value and not usual.least <= value <= usual.most and (key, name) not in seen:
            seen.add((key, name))
            path = _below(path, name)
            kind: Kind = "usd" if "usd" in name.split("_") else kind_of_setting(name)
            text = f"{path} means {written(value, kind)}, far outside the usual range ({format_interval(*usual, kind)})"
            if (dimension := owner.quantities().get(name)) is not None:
                written_so = f'{short_name(name)} = "{QUANTITY_EXAMPLE[dimension]}"'
                text += f"; a plain number is in {SI_NAME[dimension]}; with a unit, write {written_so}"
            yield Implausible(path, value, usual, text)


def warn_of_implausible(spec: Spec, where: str = "", source: str = "") -> None:
    """Warn of the figures that :func:`implausible` finds, where no result will tell of them; ``source`` begins the messages.

    Warns
    -----
    ReadingWarning
        For each key.
    """
    for figure in implausible(spec, where):
        warnings.warn(f"{source}{figure.text}", ReadingWarning, stacklevel=3)


_NOT_BY_HAND = ("fit", "fit_hosts", "uncertainty", "calibrated", "provenance", "computed", "moved", "recast", "passes")
"""Keys that nobody writes by hand."""


def _figures(spec: Spec, path: str, key: str) -> Iterator[tuple[str, str, type[Spec], str, float, Usual]]:
    """Yield of each figure that has a range: path of its table, the same without places in lists, its class, name, value and range."""
    owner = type(spec)
    for name, usual in _ranges(owner).items():
        value: Any = getattr(spec, name)
        if usual is not None:
            if isinstance(value, (int, float)):
                yield path, key, owner, name, float(value), usual
        elif isinstance(value, Spec):
            yield from _figures(value, _below(path, name), _below(key, name))
        elif isinstance(value, tuple):
            for place, each in enumerate(value):
                if isinstance(each, Spec):
                    yield from _figures(each, f"{_below(path, name)}.{place}", _below(key, name))


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


@cache
def _ranges(table: type[BaseModel]) -> dict[str, Usual | None]:
    """Fields of a table that have a range, with it, and those that hold tables with some, with none."""
    ranges: dict[str, Usual | None] = {}
    for name, field in table.model_fields.items():
        inner = [part for part in parts_of(field.annotation) if issubclass(part, BaseModel)]
        usual = mark_of(field, Usual)
        if usual is not None or (name not in _NOT_BY_HAND and any(_ranges(part) for part in inner)):
            ranges[name] = usual
    return ranges
