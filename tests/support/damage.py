"""Damage to valid tables and files, at random: from a seed, or from Hypothesis, which then finds the simplest that matters."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

Pick = Callable[[Sequence[Any]], Any]
"""Picks one of several options."""

ODD: tuple[Any, ...] = (
    *(0, 1, 2, 3, -1, 2**63, 10**30, 0.0, -0.0, 0.5, 1e-320, 1e300, -1e300, float("nan"), float("inf"), float("-inf"), True, False),
    *("", "x", "1 s", "1 GB/s", "-3 us", "3", "nan s", "1 GB", "25 Mb", "1.000 USD", "1e-400 s", "2026-13-45", "sync", "single", "gamma"),
    *("forward.base_s", "\x00", "\x1b[31mred", "\u2028", "\u202e", "ß" * 99, "n" * 101, "9" * 5000, "../../etc/passwd", "<b>bold</b>"),
    *([], [[]], [1, 2], [2, 1], ["a"], [{}], [None], {}, {"kind": "single"}, {"kind": "empirical", "values": [1.0, 2.0]}, {"a": {"b": 1}}),
    *({"base": "1 s"}, {"kind": []}, {"use": "ethernet-25g"}, {"use": "../.."}, {"use": 3}, {"use": "nowhere.toml"}),
)  # fmt: skip
"""What stands in no file that somebody has thought about."""
_DEEDS = ("delete", "rename", "double", "swap", "number", "replace", "replace")
_BYTES = ("flip", "digit", "insert", "delete", "line", "truncate")


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something stands inside nested tables and lists."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, inner in pairs for found in ((*path, key), *places(inner, (*path, key)))]


def mutated(valid: Any, pick: Pick) -> Any:
    """A valid table or list with one to three things deleted, renamed, doubled, swapped, or replaced."""
    table = deepcopy(valid)
    for _ in range(pick((1, 2, 3))):
        where = places(table)
        if not where:
            break
        _mutate(table, where, pick)
    return table


def _owner(table: Any, path: Sequence[Any]) -> Any:
    for part in path:
        table = table[part]
    return table


def _mutate(table: Any, where: list[tuple[Any, ...]], pick: Pick) -> None:
    *path, key = pick(where)
    owner, deed = _owner(table, path), pick(_DEEDS)
    if deed == "delete":
        del owner[key]
    elif deed == "rename" and isinstance(owner, dict):
        new = pick((f"{key}_s", str(key)[:-1], str(key).removesuffix("_s"), "kind", "name", "use", "a.b"))
        owner[new] = owner.pop(key)
    elif deed == "double" and isinstance(owner, list):
        owner.insert(key, deepcopy(owner[key]))
    elif deed == "double":
        owner[f"{key}2"] = deepcopy(owner[key])
    elif deed == "swap":
        *other_path, other = pick(where)
        owner[key] = deepcopy(_owner(table, other_path)[other])
    elif deed == "number":
        number = pick((-1, 1)) * pick((1, 2.5, 7, 9.99)) * 10.0 ** pick(range(-12, 20))
        owner[key] = pick((float, int))(number)
    else:
        owner[key] = deepcopy(pick(ODD))


def damaged(valid: bytes, pick: Pick) -> bytes:
    """A valid file with bits flipped, bytes put in or taken out, lines doubled, or the end missing."""
    content = bytearray(valid)
    for _ in range(pick((1, 2, 3, 4))):
        if not content:
            break
        at, deed = pick(range(len(content))), pick(_BYTES)
        if deed == "flip":
            content[at] ^= 1 << pick(range(8))
        elif deed == "digit":
            content[at] = pick(b"0123456789-.e\"'[]{}=,\n# ")
        elif deed == "insert":
            content[at:at] = bytes(pick(range(256)) for _ in range(pick((1, 2, 3))))
        elif deed == "delete":
            del content[at : at + pick(range(1, 21))]
        elif deed == "line":
            start = content.rfind(b"\n", 0, at) + 1
            end = content.find(b"\n", at) + 1 or len(content)
            content[at:at] = content[start:end]
        else:
            del content[at:]
    return bytes(content)


def flipped(valid: bytes, pick: Pick) -> tuple[bytes, int]:
    """A file with one bit flipped that is no end of a line, and the number of the line, from 1 on."""
    content = bytearray(valid)
    while True:
        at, bit = pick(range(len(content))), 1 << pick(range(8))
        if b"\n"[0] not in (content[at], content[at] ^ bit):
            content[at] ^= bit
            return bytes(content), valid.count(b"\n", 0, at) + 1


def as_file(table: dict[str, Any]) -> str:
    """TOML of a table, one line for each key; what TOML has no word for becomes text."""
    return "".join(f"{json.dumps(str(key))} = {_toml(value)}\n" for key, value in table.items())


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(key))} = {_toml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value) if value is not None else '"none"'
