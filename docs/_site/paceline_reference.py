"""The parts of the reference that follow from the code: a page asks for one with a comment, ``<!-- generated: keys -->``.

Each is Markdown, made when the site is built, from where the code itself takes it: keys from the JSON Schema of
each file format, commands and options from the command line, columns from their one list, the library from its docstrings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import typer
from pydantic import BaseModel

import paceline
from paceline.cli.app import app
from paceline.cli.help import examples_in
from simulator.base.spec import short_name
from simulator.base.text import kind_of_setting, written
from simulator.results.rows import COLUMNS

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_COMMENT = re.compile(r"^.*\n<!-- generated: (\w+) -->$", re.MULTILINE)
"""The comment, with the line above it, which says to who reads the page alone where the list is."""
_CODE = re.compile(r"(`[^`]*`)")
_SPECIAL = re.compile(r"([\\*_\[\]<>{}|#$~])")
_OPTION = re.compile(r"(?<![\w`-])--[a-z][\w-]*(?:[= ][A-Z]+\b)?(?![\w`])")
_PAGE = re.compile(r"\bdocs/([\w-]+\.md)")
_ROLE = re.compile(r":\w+:`~?(?:[\w.]+\.)?(\w+)`")
_QUANTITIES = {
    "_bytes_per_s": ("bandwidth", "25 Gbit/s", "bytes per second"),
    "_bytes": ("size", "64 MiB", "bytes"),
    "_s": ("time", "20 us", "seconds"),
    "_w": ("power", "5 kW", "watts"),
}
_LIMITS = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}
_TYPES = {"integer": "whole number", "number": "number", "string": "text", "boolean": "`true` or `false`", "object": "table"}
_UNITS = {
    "seconds": "seconds",
    "bytes": "bytes",
    "share": "share, 0 to 1",
    "usd": "US dollars",
    "hourly": "US dollars per hour",
    "count": "whole number",
    "number": "number",
    "throughput": "number",
    "updates": "number of updates",
    "text": "text",
    "any": "",
}


def _text(words: str) -> str:
    """Plain words as Markdown: what is no code is escaped, and a page that is named is a link to it."""
    parts = _CODE.split(_ROLE.sub(r"`\1`", words.replace("``", "`")))
    parts = [inner for part in parts for inner in ([part] if part.startswith("`") else _CODE.split(_OPTION.sub(r"`\g<0>`", part)))]
    plain = (part if part.startswith("`") else _PAGE.sub(r"[\1](\1)", _SPECIAL.sub(r"\\\1", part)) for part in parts)
    return "".join(plain)


def _sentence(words: str) -> str:
    """With a capital letter, where it does not begin with a name, and a full stop."""
    first = re.match(r"[a-z]+(?=[\s,;:.]|$)", words)
    words = words[0].upper() + words[1:] if first else words
    return _text(f"{words.removesuffix('.')}.")


def _directive(name: str, argument: str, options: dict[str, str], text: str) -> str:
    lines = [f"````{{{name}}} {argument}", *(f":{key}: {value}".rstrip() for key, value in options.items()), "", text, "````", ""]
    return "\n".join(lines)


# -- keys of files ---------------------------------------------------------------------


class _Key(NamedTuple):
    """A key of a file, as its schema has it."""

    path: str
    schema: dict[str, Any]
    needed: bool
    full: str
    """Of a quantity the name under which it is a plain number."""


class _Table(NamedTuple):
    """A table of keys, with where it stands."""

    path: str
    title: str
    text: str
    keys: tuple[_Key, ...]


class _Format:
    """The tables of a file format, from the outermost in."""

    def __init__(self, schema: dict[str, Any], path: str = "") -> None:
        self._tables = schema.get("$defs", {})
        self._choices: dict[str, str] = {}
        self.tables: list[_Table] = []
        self._add(path, path, schema)

    def _add(self, path: str, title: str, schema: dict[str, Any]) -> None:
        properties, needed = schema.get("properties", {}), set(schema.get("required", ()))
        needed |= {name for both in schema.get("allOf", ()) for one in both.get("oneOf", ()) for name in one["required"]}
        keys = []
        for name, its in properties.items():
            short = short_name(name)
            if any(short_name(other) == name and other != name for other in properties):
                continue  # the short name of a quantity, listed with the full one
            if short not in properties:
                short = name
            keys.append(_Key(f"{path}.{short}".lstrip("."), its, name in needed, name if short != name else ""))
        self.tables.append(_Table(path, title, schema.get("description", ""), tuple(keys)))
        for key in keys:
            for place, inner in self._inner(key.schema, key.path):
                self._enter(place, inner)

    def _enter(self, path: str, schema: dict[str, Any]) -> None:
        choices = schema.get("discriminator", {}).get("mapping")
        if "use" in schema.get("properties", {}):
            self._add(path, f"{path}, by name", schema)
        elif choices is None:
            self._add(path, path, schema)
        elif (alike := self._choices.setdefault(json.dumps(choices), path)) == path:
            for kind, reference in choices.items():
                self._add(path, f"{path}, {kind}", self._at(reference))
        else:
            self.tables.append(_Table(path, path, f"Its keys are those of `{alike}`.", ()))

    def _at(self, reference: str) -> dict[str, Any]:
        found: dict[str, Any] = self._tables[reference.rpartition("/")[2]]
        return found

    def _inner(self, schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """The tables that a key may hold, with their paths: ``variables[]`` is one of a list."""
        if "discriminator" in schema:
            yield path, schema
        elif "$ref" in schema:
            table = self._at(schema["$ref"])
            if "anyOf" in table:
                yield from self._inner(table, path)
            else:
                yield path, table
        elif schema.get("type") == "array" and isinstance(schema.get("items"), dict):
            yield from self._inner(schema["items"], f"{path}[]")
        elif isinstance(schema.get("additionalProperties"), dict):
            yield from self._inner(schema["additionalProperties"], f"{path}.NAME")
        elif schema.get("type") == "object" and "properties" in schema:
            yield path, schema
        else:
            for one in schema.get("anyOf", ()):
                yield from self._inner(one, path)

    def type_of(self, schema: dict[str, Any], full: str = "") -> str:
        """What a key takes, in words; of a quantity, with its full name."""
        if "const" in schema:
            return f"`{json.dumps(schema['const'])}`"
        if "enum" in schema:
            return "one of " + ", ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
        if "$ref" in schema:
            table = self._at(schema["$ref"])
            return self.type_of(table) if "anyOf" in table else "table"
        if "anyOf" in schema:
            return " or ".join(dict.fromkeys(self.type_of(one, full) for one in schema["anyOf"] if one.get("type") != "null"))
        if "prefixItems" in schema:
            return f"list of {len(schema['prefixItems'])}: " + ", ".join(self.type_of(one) for one in schema["prefixItems"])
        if schema.get("type") == "array":
            return f"list of: {self.type_of(schema.get('items', {}))}"
        limits = [f"{words} {_number(schema[limit], full)}" for limit, words in _LIMITS.items() if limit in schema]
        if not full:
            return ", ".join([_TYPES.get(schema.get("type", "object"), "table"), *limits])
        what, example, unit = next(its for ending, its in _QUANTITIES.items() if full.endswith(ending))
        return ", ".join([f'{what} such as `"{example}"`', *limits, f"or `{full}`, a number of {unit}"])


def _number(value: float, full: str) -> str:
    """A limit or a default, with its unit where it is of a quantity."""
    return written(value, kind_of_setting(full)) if full else f"{int(value) if value == int(value) else value:,}"


def _entry(key: _Key, form: _Format, seen: set[str], *, given: bool) -> str:
    options = {"type": form.type_of(key.schema, key.full)}
    default = key.schema.get("default")
    if given and key.needed:
        options["default"] = "must be given"
    elif given and isinstance(default, (bool, str, int, float)) and default != "":
        options["default"] = f"`{json.dumps(default) if isinstance(default, (bool, str)) else _number(default, key.full)}`"
    if key.path in seen:
        options["no-index"] = ""
    seen.add(key.path)
    return _directive("confval", key.path, options, _sentence(key.schema["description"]))


def _keys_of(form: _Format, *, given: bool = True) -> Iterator[str]:
    """The tables of a format, with their keys; ``given`` tells what a person writes from what Paceline does, which has no defaults."""
    seen: set[str] = set()
    for table in form.tables:
        if table.title:
            yield f"{'###' if '.' not in table.path else '####'} {_text(table.title)}\n"
        yield f"{_text(table.text)}\n"
        yield from (_entry(key, form, seen, given=given) for key in table.keys)


def _keys() -> Iterator[str]:
    """Every key of a scenario, and of what a scenario can name."""
    yield from _keys_of(_Format(paceline.schema("scenario")))


def _files() -> Iterator[str]:
    """Every key of the files that are neither a scenario nor a part of one."""
    for name in ("device", "testbed-setting"):
        yield from _keys_of(_Format(paceline.schema(name), name))


def _results() -> Iterator[str]:
    """Every figure of a result."""
    schema = paceline.schema("result")
    scenario = {"type": "object", "description": schema["properties"]["scenario"]["description"]}
    yield from _keys_of(_Format({**schema, "properties": {**schema["properties"], "scenario": scenario}}, "result"), given=False)


# -- columns ---------------------------------------------------------------------------


def _columns() -> Iterator[str]:
    """Every column of a table of results."""
    for name, its in COLUMNS.items():
        unit = f", {_UNITS[its.kind]}" if _UNITS[its.kind] else ""
        yield f"- `{name}` (*{_text(its.heading)}*{unit}): {_text(its.meaning)}"


# -- command line ----------------------------------------------------------------------


def _from_help(text: str) -> str:
    """A help text of the command line as Markdown."""

    def markdown(paragraph: str) -> str:
        examples = [f"$ {command}{f'  # {remark}' if remark else ''}" for command, remark in examples_in(paragraph)]
        return "\n".join(["```console", *examples, "```"]) if examples else _text(paragraph)

    return "\n\n".join(map(markdown, text.split("\n\n")))


def _commands() -> Iterator[str]:
    """Every command with its arguments and options."""
    yield from _command(typer.main.get_command(app), ("paceline",))


def _command(command: Any, path: tuple[str, ...]) -> Iterator[str]:
    context = command.make_context(path[-1], [], resilient_parsing=True)
    name = " ".join(path)
    yield f"{'###' if len(path) <= 2 else '####'} {name}\n"
    usage = " ".join(piece.strip("{}") for piece in command.collect_usage_pieces(context))
    yield f"```console\n$ {name} {usage}\n```\n"
    yield f"{_from_help(command.help or '')}\n"
    yield f"```{{program}} {name}\n```\n"
    for parameter in command.params:
        record = parameter.get_help_record(context)
        if record is not None and not parameter.hidden:
            words, facts = parameter.help or "", record[1].removeprefix(parameter.help or "")  # such as its default
            yield _directive("option", record[0], {}, f"{_from_help(words)}{_text(facts)}")
    for inner, its in getattr(command, "commands", {}).items():
        if not its.hidden:
            yield from _command(its, (*path, inner))


# -- library ---------------------------------------------------------------------------


def _library() -> Iterator[str]:
    """Every public name of the library."""
    functions = [name for name in paceline.__all__ if not isinstance(getattr(paceline, name), type)]
    yield "### Functions\n"
    yield from (f"```{{eval-rst}}\n.. autofunction:: paceline.{name}\n```\n" for name in functions)
    yield "### What they return\n"
    classes = (name for name in paceline.__all__ if name not in functions)
    yield from (_class_of_library(name, getattr(paceline, name)) for name in classes)


_LISTED = {"Result": "figures-of-a-result", "Scenario": "keys-of-a-scenario", "Workload": "keys-of-a-scenario"}
"""Classes whose attributes have a section of their own."""


def _class_of_library(name: str, it: type) -> str:
    own = f"```{{eval-rst}}\n.. autoclass:: paceline.{name}\n   :members:\n   :exclude-members: model_config\n```\n"
    if not issubclass(it, BaseModel):
        return own
    if name in _LISTED:
        return f"{own}\n[](#{_LISTED[name]}) lists its attributes.\n"
    return "\n".join([own, *(f"- `{key}`: {_sentence(field.description or '')}" for key, field in it.model_fields.items()), ""])


PARTS: dict[str, Callable[[], Iterator[str]]] = {
    "keys": _keys,
    "files": _files,
    "results": _results,
    "columns": _columns,
    "commands": _commands,
    "library": _library,
}
"""What a page can ask for."""


def with_generated(text: str) -> str:
    """A page with what it asks for in the place of its comments."""
    return _COMMENT.sub(lambda found: "\n".join(PARTS[found[1]]()), text)


def _read(app: Sphinx, name: str, source: list[str]) -> None:
    del app, name
    source[0] = with_generated(source[0])


def _without_arguments(_: Sphinx, what: str, *_more: object) -> tuple[str, str] | None:
    """Classes are shown without their constructors' arguments: functions make their objects."""
    return ("", "") if what == "class" else None


def setup(app: Sphinx) -> dict[str, bool]:
    """What Sphinx calls."""
    app.connect("source-read", _read, priority=400)  # before links are looked at
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("autodoc-process-signature", _without_arguments)
    return {"parallel_read_safe": True}
