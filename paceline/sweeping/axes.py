"""Axes of a grid: a dotted key, and the values that it takes."""

from __future__ import annotations

import tomllib
from typing import Any

from simulator.errors import ScenarioError
from simulator.loading import is_dotted_key, parse_value

__all__ = ["Axis", "parse_axis"]

Axis = tuple[str, list[Any]]
"""A dotted key and the values that it takes."""


def parse_axis(text: str) -> Axis:
    """Read ``key=v1,v2,...``; each value is TOML where it parses as TOML, else text.

    >>> parse_axis("strategy.workers=1,2,4")
    ('strategy.workers', [1, 2, 4])

    Raises
    ------
    ScenarioError
        There is no key, or no value.
    """
    key, equals, raw = text.partition("=")
    key = key.strip()
    if not equals or not is_dotted_key(key):
        raise ScenarioError(f"--over {text[:80]!r}: must be key=v1,v2,..., such as strategy.workers=1,2,4,8")
    try:
        values = list(tomllib.loads(f"values = [{raw}]\n")["values"])
    except (ValueError, RecursionError):
        values = [parse_value(part) for part in raw.split(",")]
    if not values or values == [""]:
        raise ScenarioError(f"--over {text[:80]!r}: has no values; write {key}=v1,v2,...")
    return key, values
