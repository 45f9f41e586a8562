"""Warnings of results, said once each, with the results that they are about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.reporting.coordinates import setting_name
from simulator.base.text import written
from simulator.results.results import Result
from simulator.spec.figures import WARNINGS, Warned

__all__ = ["WarningGroup", "warnings_of"]

_ONE_OF_EACH = ("moved-device", "servers-not-moved", "device-not-known")
"""About a device: each device by itself, with a sentence that says its range."""


@dataclass(frozen=True)
class WarningGroup:
    """One kind of warning about one setting.

    Attributes
    ----------
    setting
        What is warned about, in words.
    texts
        What the warnings say: all where they are few, else the first and the last.
    values
        The values warned about, as text: one, or "smallest to largest".
    affected
        (name of the curve, its numbers of ranks) of the results that carry it.
    """

    code: str
    title: str
    setting: str
    texts: tuple[str, ...]
    values: str
    range: tuple[float, float] | None
    affected: tuple[tuple[str, tuple[int, ...]], ...]
    all_results: bool


def warnings_of(results: Sequence[Result], names: Sequence[str]) -> tuple[WarningGroup, ...]:
    """Group the warnings of all results by code and path, the most frequent first."""
    grouped: dict[tuple[str, str, str], list[tuple[Warned, str, int, str]]] = {}
    for name, result in zip(names, results, strict=True):
        for warned in result.warnings:
            key = warned.code, warned.path, str(warned.value) if warned.code in _ONE_OF_EACH else ""
            grouped.setdefault(key, []).append((warned, name, result.ranks, result.scenario_hash))
    return tuple(
        _group(code, path, held, len(results))
        for (code, path, _), held in sorted(grouped.items(), key=lambda item: (-len(item[1]), item[0]))
    )


def _group(code: str, path: str, held: list[tuple[Warned, str, int, str]], of: int) -> WarningGroup:
    ordered = sorted(held, key=lambda entry: entry[0].value if isinstance(entry[0].value, float) else 0.0)
    texts = tuple(dict.fromkeys(warned.text for warned, *_ in ordered))
    values = tuple(dict.fromkeys(_written(warned.value) for warned, *_ in ordered))
    numbers: dict[str, set[int]] = {}
    for _, name, ranks, _ in held:
        numbers.setdefault(name, set()).add(ranks)
    return WarningGroup(
        code=code,
        title=WARNINGS[code].title if code in WARNINGS else code.replace("-", " ").capitalize(),
        setting=setting_name(path),
        texts=texts if len(texts) <= 2 else (texts[0], texts[-1]),
        values=values[0] if len(values) == 1 else f"{values[0]} to {values[-1]}",
        range=held[0][0].range if code not in _ONE_OF_EACH else None,
        affected=tuple((name, tuple(sorted(counted))) for name, counted in numbers.items()),
        all_results=len({scenario_hash for *_, scenario_hash in held}) == of,
    )


def _written(value: float | str) -> str:
    return value if isinstance(value, str) else written(value, "setting")
