"""The form of a scenario: a field for each key that its schema has for what is chosen, with what the text says of it.

Everything comes from the JSON Schema that ``paceline schema scenario`` prints: sections, choices, what a key means. A quantity has one
field, under the name that takes text with a unit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import tomlkit

from paceline.catalogue import schema_of
from simulator.base.catalog import entries
from simulator.base.spec import short_name
from simulator.base.text import kind_of_setting, written
from simulator.catalogue.loading import NAMED
from simulator.scenario import Scenario

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
    found = next((own[name] for name in names if name in own), None)
    return {
        "path": path,
        "key": names[0],
        "help": about,
        "choices": choices,
        "value": "" if found is None else _in_text(found),
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
    """What may stand at a place, by the name of its kind; plain values and tables of one kind under their titles."""
    found: dict[str, Mapping[str, Any]] = {}
    for its in schema.get("anyOf", schema.get("oneOf", [schema])):
        whole = _followed(its)
        if "oneOf" in whole or "anyOf" in whole:
            found |= _kinds(whole)
        elif whole.get("type") == "object" and whole.get("required") != ["use"]:
            kind = whole.get("properties", {}).get("kind", {})
            found[str(kind.get("const", whole.get("title", "")))] = whole
    return found


def _followed(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """A schema, or what it refers to."""
    reference = str(schema.get("$ref", ""))
    followed: Mapping[str, Any] = _schema()["$defs"][reference.rpartition("/")[2]] if reference else schema
    return followed


def _choices(schema: Mapping[str, Any]) -> list[str]:
    """The words that a value may be; none where it is typed."""
    kinds = [_followed(its) for its in schema.get("anyOf", [schema])]
    words = [str(word) for its in kinds for word in its.get("enum", ())]
    if any(its.get("type") == "boolean" for its in kinds):
        words += ["true", "false"]
    plain = all(its.get("type") in ("null", "boolean") or "enum" in its for its in kinds)
    return words if plain else []
