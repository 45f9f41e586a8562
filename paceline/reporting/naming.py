"""What a curve is called: its strategy, and whatever else tells it from the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from simulator.results import Result
from simulator.scenario import Scenario
from simulator.strategies.catalogue import KEYS_OF_NAMES
from simulator.text import clean, format_bytes, format_rate, format_seconds

__all__ = ["series_names", "setting_text", "settings_of", "varied_settings"]

_ALWAYS_APART = KEYS_OF_NAMES | {"cluster.nodes", "schema_version", "run.seed"}
_PROSE = ("description", "provenance", "fit", "calibrated", "uncertainty", "variables", "schema_version")
_OF_ANY_DEVICE = ("workload.name", "workload.batch_per_replica", "workload.global_batch", "workload.precision")
_MOST_NAMED = 3


def series_names(results: Sequence[Result]) -> list[str]:
    """The name of the curve that each result belongs to.

    Results of one strategy that differ in another setting too (a sweep over the
    bandwidth, say) are told apart by that setting.
    """
    settings = [settings_of(result.scenario) for result in results]
    varied = _varied(settings)
    names = []
    for result, own in zip(results, settings, strict=True):
        name = result.scenario.strategy.title()
        parts = [setting_text(path, own[path]) for path in varied if path in own and path not in _ALWAYS_APART]
        shown = parts[:_MOST_NAMED] + ([f"and {len(parts) - _MOST_NAMED} more"] if len(parts) > _MOST_NAMED else [])
        names.append(" · ".join([name, *shown]))
    return _told_apart(names, results, settings)


def varied_settings(results: Sequence[Result]) -> list[str]:
    """Dotted names of the settings that are not the same in all results."""
    settings = [settings_of(result.scenario) for result in results]
    return _varied(settings, apart=False)


def _told_apart(names: list[str], results: Sequence[Result], settings: list[dict[str, Any]]) -> list[str]:
    """Different scenarios that would fall on one point get their seed, or a number, into the name."""
    seen: dict[tuple[str, int], str] = {}
    clash = False
    for name, result in zip(names, results, strict=True):
        clash |= seen.setdefault((name, result.replicas), result.scenario_hash) != result.scenario_hash
    if not clash:
        return names
    if len({own["run.seed"] for own in settings}) > 1:
        return [f"{name} · seed {own['run.seed']}" for name, own in zip(names, settings, strict=True)]
    rank: dict[tuple[str, int], list[str]] = {}
    numbered = []
    for name, result in zip(names, results, strict=True):
        hashes = rank.setdefault((name, result.replicas), [])
        if result.scenario_hash not in hashes:
            hashes.append(result.scenario_hash)
        place = hashes.index(result.scenario_hash)
        numbered.append(name if place == 0 else f"{name} · variant {place + 1}")
    return numbered


def _varied(settings: list[dict[str, Any]], *, apart: bool = True) -> list[str]:
    found = []
    for path in dict.fromkeys(path for own in settings for path in own):
        if apart and path in _ALWAYS_APART:
            continue
        # a key of one strategy alone is compared among the results of that strategy
        values = {repr(own[path]) for own in settings if path in own}
        if len(values) > 1:
            found.append(path)
    if any(path.startswith("workload.moved") for path in found):  # with another device all times are others; the cluster's name says it
        found = [path for path in found if not path.startswith("workload.") or path in _OF_ANY_DEVICE]
    for section in ("workload", "cluster"):
        if f"{section}.name" in found:  # another workload differs in everything; its name says it
            found = [path for path in found if path == f"{section}.name" or not path.startswith(f"{section}.")]
    return found


def settings_of(scenario: Scenario) -> dict[str, Any]:
    """Every setting of a scenario under its dotted name, prose and tables of measurements left out."""
    flat: dict[str, Any] = {}

    def walk(prefix: str, value: Any) -> None:
        if isinstance(value, BaseModel):
            value = {name: getattr(value, name) for name in type(value).model_fields}
        if isinstance(value, Mapping):
            for key, inner in value.items():
                if key not in _PROSE:
                    walk(f"{prefix}.{key}" if prefix else key, inner)
        else:
            flat[prefix] = value

    walk("", scenario)
    return flat


def setting_text(path: str, value: Any) -> str:
    """A setting in words, such as ``"bandwidth 10 Gbit/s"``."""
    *_, leaf = path.split(".")
    if leaf == "name":
        return clean(str(value), 40)
    if value is None:
        return f"{leaf.replace('_', ' ')} not set"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        for suffix, write in (("_bytes_per_s", format_rate), ("_bytes", format_bytes), ("_s", format_seconds)):
            if leaf.endswith(suffix):
                return f"{leaf.removesuffix(suffix).replace('_', ' ')} {write(value)}"
        value = f"{value:g}" if isinstance(value, float) else value
    if isinstance(value, bool):
        value = "on" if value else "off"
    if isinstance(value, tuple):
        value = ", ".join(str(getattr(item, "name", item)) for item in value) or "none"
    return f"{leaf.replace('_', ' ')} {clean(str(value), 40)}"
