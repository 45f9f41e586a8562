"""How to get the same numbers again: the scenario as a file, and the commands."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tomlkit

from paceline.reporting.naming import varied_settings
from simulator.results import Result
from simulator.scenario import Scenario

__all__ = ["Origin", "Recipe", "RecipeStep", "recipe_of", "scenario_toml"]


@dataclass(frozen=True)
class RecipeStep:
    """One curve: the sections to put into the scenario file, and the sweep that draws it."""

    name: str
    toml: str
    command: str
    hashes: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class Origin:
    """Where the figures of a workload or a cluster come from."""

    what: str
    name: str
    description: str
    basis: str
    entries: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Recipe:
    """Everything that a reader needs to repeat the work."""

    scenario_hash: str
    scenario_toml: str
    seeds: tuple[int, ...]
    replications: tuple[int, ...]
    steps: tuple[int, ...]
    varied: tuple[str, ...]
    series: tuple[RecipeStep, ...]
    origins: tuple[Origin, ...]


def scenario_toml(scenario: Scenario) -> str:
    """The whole scenario as a file that ``paceline simulate`` reads back unchanged."""
    return tomlkit.dumps(_plain(scenario.model_dump(mode="json")))


def recipe_of(results: Sequence[Result], names: Sequence[str]) -> Recipe:
    """Describe how to repeat these results, curve by curve."""
    grouped: dict[str, list[Result]] = {}
    for name, result in zip(names, results, strict=True):
        grouped.setdefault(name, []).append(result)
    first = results[0].scenario
    return Recipe(
        scenario_hash=results[0].scenario_hash,
        scenario_toml=scenario_toml(first),
        seeds=_each(result.seed for result in results),
        replications=_each(result.scenario.run.replications for result in results),
        steps=_each(result.scenario.run.steps for result in results),
        varied=tuple(varied_settings(results)),
        series=tuple(_step(number, name, group, first) for number, (name, group) in enumerate(grouped.items(), start=1)),
        origins=_origins(results),
    )


def _each(values: Any) -> tuple[int, ...]:
    return tuple(sorted(set(values)))


def _step(number: int, name: str, group: list[Result], first: Scenario) -> RecipeStep:
    ordered = sorted(group, key=lambda result: result.replicas)
    own = _plain(ordered[0].scenario.model_dump(mode="json"))
    reference = _plain(first.model_dump(mode="json"))
    sections = {key: own[key] for key in ("workload", "cluster", "run") if own.get(key) != reference.get(key)}
    over = _over(ordered)
    varied = over.partition("=")[0]
    strategy = {key: value for key, value in own["strategy"].items() if varied != f"strategy.{key}"}
    out = f"curve-{number}.ndjson"
    command = (
        f"paceline sweep scenario.toml --over {shlex.quote(over)} --out {out}"
        if over
        else f"paceline simulate scenario.toml --json > {out}"
    )
    hashes = tuple((result.replicas, result.scenario_hash) for result in ordered)
    return RecipeStep(name, tomlkit.dumps({"strategy": strategy, **sections}), command, hashes)


def _over(ordered: list[Result]) -> str:
    """The ``--over`` that runs through the numbers of workers, or nothing for a single result."""
    for path in ("workers", "replicas"):
        counts = [getattr(result.scenario.strategy, path, None) for result in ordered]
        if len(counts) > 1 and all(isinstance(count, int) for count in counts):
            return f"strategy.{path}=" + ",".join(str(count) for count in counts)
    nodes = [result.scenario.cluster.nodes for result in ordered]
    if len(nodes) > 1 and all(count is not None for count in nodes):
        return "cluster.nodes=" + ",".join(str(count) for count in nodes)
    return ""


def _origins(results: Sequence[Result]) -> tuple[Origin, ...]:
    found: dict[tuple[str, str], Origin] = {}
    for result in results:
        load, cluster = result.scenario.workload, result.scenario.cluster
        basis = "calibrated" if load.calibrated else "not calibrated"
        found.setdefault(
            ("workload", load.name), Origin("Workload", load.name, load.description, basis, tuple(sorted(load.provenance.items())))
        )
        found.setdefault(
            ("cluster", cluster.name),
            Origin("Cluster", cluster.name, cluster.description, cluster.basis, tuple(sorted(cluster.provenance.items()))),
        )
    return tuple(sorted(found.values(), key=lambda origin: origin.what, reverse=True))


def _plain(value: Any) -> Any:
    """Without the keys that are not set, which TOML cannot say."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items() if inner is not None}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value
