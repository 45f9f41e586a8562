"""Writes ``paceline/cli/keys.json``, what Tab offers for keys, from the formats of files: ``python docs/completion_keys.py``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel

from calibrate.testbed.setting import TestbedSetting
from paceline.cli.completing import KEYS_FILE, first_words
from paceline.scenario_text import BEGUN_WITH, SORTS
from simulator.base.spec import keys_of, parts_of, short_name
from simulator.catalogue.loading import NAMED
from simulator.scenario import Scenario
from simulator.strategies.catalogue import SHORT_NAMES
from simulator.strategies.strategy import SOFTWARE

_NOT_SET = (
    "schema_version",
    "calibrated",
    "fit",
    "fit_hosts",
    "uncertainty",
    "provenance",
    "overridden",
    "computed",
    "moved",
    "recast",
    "checked",
)
"""What calibration and Paceline write; nobody sets it by hand."""


def data_of_keys() -> dict[str, Any]:
    """What ``keys.json`` holds, from the formats of files."""
    uses: dict[str, dict[str, Any]] = {
        f"{section}.use": {"help": f"one of {kind} of `paceline models list`, or a file", "of": [kind]} for section, kind in NAMED.items()
    }
    return {
        "scenario": dict(sorted({**dict(_keys_of(Scenario)), **uses}.items())),
        "testbed-setting": dict(sorted(_keys_of(TestbedSetting))),
        "strategies": list(SHORT_NAMES),
        "begun_with": list(BEGUN_WITH),
        "software": list(SOFTWARE),
        "sorts": dict(SORTS),
    }


def text_of_keys() -> str:
    """The text of ``keys.json``: one line per key."""
    text = json.dumps(data_of_keys(), indent=1, ensure_ascii=False)
    return re.sub(r"\n(?: {3,}|  (?=[}\]]))", "", text) + "\n"


def _keys_of(table: type[BaseModel], where: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Dotted keys of a table and of those inside it; of kinds of a table, all of their keys."""
    both = keys_of(table)
    keys: dict[str, dict[str, Any]] = {}
    for name, field in table.model_fields.items():
        if name in _NOT_SET:
            continue
        key = where + (short_name(name) if short_name(name) in both else name)
        inner = [] if _is_list(field.annotation) else [part for part in parts_of(field.annotation) if issubclass(part, BaseModel)]
        for part in inner:
            for deeper, about in _keys_of(part, f"{key}."):
                same = keys.setdefault(deeper, about)
                if more := [value for value in about.get("values", ()) if value not in same.get("values", ())]:
                    same["values"] = [*same.get("values", ()), *more]
        if not inner:
            values = {"of": ["devices"]} if name == "device" else {"values": _choices(field.annotation)}
            about = {"help": first_words(field.description or name.replace("_", " "))}
            keys[key] = about | {kind: known for kind, known in values.items() if known}
    yield from keys.items()


def _is_list(annotation: Any) -> bool:
    return get_origin(annotation) in (tuple, list, dict) or any(_is_list(part) for part in get_args(annotation) if get_origin(part))


def _choices(annotation: Any) -> list[str]:
    """Texts and truth values that an annotation allows by name."""
    if annotation is bool:
        return ["true", "false"]
    if get_origin(annotation) is Literal:
        return [value for value in get_args(annotation) if isinstance(value, str)]
    return [value for part in get_args(annotation) for value in _choices(part)]


if __name__ == "__main__":
    KEYS_FILE.write_text(text_of_keys(), encoding="utf-8")
