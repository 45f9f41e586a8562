"""How to get the numbers of a report again: the scenario as a TOML file, and the commands.

The commands are text with options of ``paceline sweep`` and ``paceline simulate``: they change when these options do
(tests/unit/test_reporting_reproduce.py).
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import tomlkit

from paceline.reporting.coordinates import settings_of, varied_settings
from simulator.results.results import Result
from simulator.scenario import Scenario

_MOST_BESIDE = 6
"""Entries of an origin that stand beside something else; more have the whole width."""


@dataclass(frozen=True)
class RecipeStep:
    """Results that one command gives: the sections to put into the scenario file, and the command.

    Attributes
    ----------
    name
        The curve that they belong to; empty where it is all curves.
    toml
        Sections that take the place of those in the resolved scenario; empty where none differs.
    command
        One ``paceline sweep`` over a grid, or ``paceline simulate`` of a single scenario.
    out
        The file that it writes.
    hashes
        Of the scenarios, in the order of the grid.
    """

    name: str
    toml: str
    command: str
    out: str
    hashes: tuple[str, ...]


@dataclass(frozen=True)
class Origin:
    """Where the figures of a workload or a cluster come from."""

    what: str
    name: str
    description: str
    basis: str
    entries: tuple[tuple[str, str], ...]

    @property
    def long(self) -> bool:
        """Return whether it has more entries than fit beside something else."""
        return len(self.entries) > _MOST_BESIDE


@dataclass(frozen=True)
class Recipe:
    """Everything that a reader needs to repeat the work."""

    scenario_hash: str
    scenario_toml: str
    seeds: tuple[int, ...]
    replications: tuple[int, ...]
    steps: tuple[int, ...]
    varied: tuple[str, ...]
    steps_to_take: tuple[RecipeStep, ...]
    origins: tuple[Origin, ...]


def scenario_toml(scenario: Scenario) -> str:
    """The whole scenario as a file that ``paceline simulate`` reads back unchanged."""
    return tomlkit.dumps(scenario.model_dump(mode="json", exclude_none=True))


def recipe_of(results: Sequence[Result], names: Sequence[str]) -> Recipe:
    """Describe how to repeat these results: one sweep where they form a grid, else as few for each curve as do.

    Parameters
    ----------
    results
        At least one.
    names
        The name of the curve that each belongs to.
    """
    settings = [settings_of(result.scenario) for result in results]
    if (whole := _grid(settings, range(len(results)))) is not None:
        parts = [("", whole)]
    else:
        curves: dict[str, list[int]] = {}
        for index, name in enumerate(names):
            curves.setdefault(name, []).append(index)
        parts = [(name, part) for name, indices in curves.items() for part in _grids(settings, indices)]
    first = results[0].scenario
    return Recipe(
        scenario_hash=results[0].scenario_hash,
        scenario_toml=scenario_toml(first),
        seeds=tuple(sorted({result.seed for result in results})),
        replications=tuple(sorted({result.scenario.run.replications for result in results})),
        steps=tuple(sorted({result.scenario.run.steps for result in results})),
        varied=tuple(varied_settings(results)),
        steps_to_take=tuple(_step(number, name, part, results, first) for number, (name, part) in enumerate(parts, start=1)),
        origins=_origins(results),
    )


class _Part(NamedTuple):
    """A grid: its axes, and its results in the order of a sweep, the last axis fastest."""

    axes: tuple[tuple[str, tuple[Any, ...]], ...]
    indices: tuple[int, ...]


def _differing(settings: Sequence[dict[str, Any]], indices: Sequence[int]) -> dict[str, list[Any]]:
    """Values in order of occurrence of each setting that is not the same in all of these results."""
    seen: dict[str, list[Any]] = {}
    for index in indices:
        for path, value in settings[index].items():
            values = seen.setdefault(path, [])
            if value not in values:
                values.append(value)
    absent = {path for index in indices for path in seen if path not in settings[index]}
    return {path: values for path, values in seen.items() if len(values) > 1 or path in absent}


def _grid(settings: Sequence[dict[str, Any]], indices: Sequence[int]) -> _Part | None:
    """The results as the grid of a sweep, if they are one."""
    varied = _differing(settings, indices)
    size = math.prod(len(values) for values in varied.values())
    if size != len(indices) or any(path not in settings[index] for path in varied for index in indices):
        return None
    if not all(_sayable(path, value) for path, values in varied.items() for value in values):
        return None
    # the axis that changes most often from result to result is the last, as in the sweep that they come from
    pairs = list(pairwise(indices))
    changes = {path: sum(settings[before][path] != settings[after][path] for before, after in pairs) for path in varied}
    varied = {path: varied[path] for path in sorted(varied, key=changes.__getitem__)}
    ranks = {path: {value: rank for rank, value in enumerate(values)} for path, values in varied.items()}
    places = {tuple(ranks[path][settings[index][path]] for path in varied): index for index in indices}
    if len(places) != size:
        return None
    return _Part(tuple((path, tuple(values)) for path, values in varied.items()), tuple(places[place] for place in sorted(places)))


def _grids(settings: Sequence[dict[str, Any]], indices: Sequence[int]) -> list[_Part]:
    """The results as grids: cut along the setting with the fewest values until each part is one."""
    if (whole := _grid(settings, indices)) is not None:
        return [whole]
    varied = _differing(settings, indices)
    path = min(
        (path for path in varied if any(path in settings[index] for index in indices)), key=lambda each: len(varied[each]), default=""
    )
    parts: dict[str, list[int]] = {}
    for index in indices:
        parts.setdefault(repr(settings[index].get(path, ...)) if path else str(index), []).append(index)
    if len(parts) == 1:  # they differ in what no setting says, such as prose
        parts = {str(index): [index] for index in indices}
    return [grid for part in parts.values() for grid in _grids(settings, part)]


def _sayable(path: str, value: Any) -> bool:
    """Return whether ``--over`` can say it: one number, truth value or plain word; a name stands for a whole section."""
    word = isinstance(value, str) and not path.endswith("name") and value.replace("-", "").isalnum()
    return word or isinstance(value, (bool, int, float))


def _step(number: int, name: str, part: _Part, results: Sequence[Result], first: Scenario) -> RecipeStep:
    ordered = [results[index] for index in part.indices]
    own = ordered[0].scenario.model_dump(mode="json", exclude_none=True)
    reference = first.model_dump(mode="json", exclude_none=True)
    swept = {path for path, _ in part.axes}
    sections = {}
    for section in own:
        if isinstance(own[section], dict) and _without(own[section], section, swept) != _without(reference.get(section), section, swept):
            sections[section] = own[section]
    overs = [f"{path}={','.join(_value(value) for value in values)}" for path, values in part.axes]
    out = f"results-{number}.ndjson"
    command = "paceline simulate scenario.toml --json > " + out
    if overs:
        command = " ".join(["paceline sweep scenario.toml", *(f"--over {shlex.quote(over)}" for over in overs), f"--out {out}"])
    return RecipeStep(name, tomlkit.dumps(sections) if sections else "", command, out, tuple(result.scenario_hash for result in ordered))


def _without(table: Any, prefix: str, swept: set[str]) -> Any:
    """A section without the settings that a sweep sets anyway."""
    if not isinstance(table, dict):
        return table
    return {key: _without(value, f"{prefix}.{key}", swept) for key, value in table.items() if f"{prefix}.{key}" not in swept}


def _value(value: Any) -> str:
    """As TOML writes it; text in quotation marks only where it needs them."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str) else repr(value)


def _origins(results: Sequence[Result]) -> tuple[Origin, ...]:
    origins: dict[tuple[str, str], Origin] = {}
    for result in results:
        load, cluster = result.scenario.workload, result.scenario.cluster
        basis = "computed, not measured" if load.is_computed else "calibrated" if load.calibrated else "not calibrated"
        origins.setdefault(
            ("workload", load.name), Origin("Workload", load.name, load.description, basis, tuple(sorted(load.provenance.items())))
        )
        origins.setdefault(
            ("cluster", cluster.name),
            Origin("Cluster", cluster.name, cluster.description, cluster.basis, tuple(sorted(cluster.provenance.items()))),
        )
    return tuple(sorted(origins.values(), key=lambda origin: origin.what, reverse=True))
