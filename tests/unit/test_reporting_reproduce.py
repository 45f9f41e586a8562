"""The commands of a report give the very same scenarios, however many keys were swept."""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.results import STRATEGIES, grid, hostile_sweep, plausible, scenario_of, sweep

from paceline.cli.options import parse_axis
from paceline.reporting.content import content_of
from paceline.reporting.reproduce import Recipe, scenario_toml
from paceline.sweeping import grid as grid_of
from simulator.catalogue.loading import scenario_from_table
from simulator.results.results import Result

RING, SYNC, ASYNC = STRATEGIES


def recipe(results: list[Result], labels: list[str] | None = None) -> Recipe:
    return content_of(results, labels=labels).recipe


def given(recipe: Recipe) -> list[str]:
    """Hashes of all scenarios that following the recipe simulates."""
    found = []
    for step in recipe.steps_to_take:
        table: Mapping[str, Any] = tomllib.loads(recipe.scenario_toml) | tomllib.loads(step.toml)
        words = shlex.split(step.command)
        assert words[:3] in (["paceline", "sweep", "scenario.toml"], ["paceline", "simulate", "scenario.toml"])
        axes = [parse_axis(words[index + 1]) for index, word in enumerate(words) if word == "--over"]
        held = [scenario.hash for scenario in grid_of(table, axes)] if axes else [scenario_from_table(table, "recipe").hash]
        assert tuple(held) == step.hashes
        found += held
    return found


def test_a_sweep_over_workers_is_a_command_a_curve() -> None:
    found = recipe(sweep((ASYNC, RING), (1, 4)))
    assert [step.command for step in found.steps_to_take] == [
        "paceline sweep scenario.toml --over strategy.workers=1,4 --out results-1.ndjson",
        "paceline sweep scenario.toml --over strategy.workers=1,4 --out results-2.ndjson",
    ]
    assert tomllib.loads(found.steps_to_take[1].toml)["strategy"]["kind"] == "multi-worker-mirrored"


def test_a_whole_grid_is_one_command_with_every_axis() -> None:
    results = [result for result in grid() if result.scenario.servers]
    found = recipe(results)
    assert len(found.steps_to_take) == 1
    (step,) = found.steps_to_take
    assert step.toml == ""
    assert step.command.count("--over") == 5
    assert "--over strategy.mode=sync,async" in step.command
    assert sorted(given(found)) == sorted(result.scenario_hash for result in results)


def test_a_single_result_is_simulated() -> None:
    found = recipe(sweep((RING,), (4,)))
    assert [step.command for step in found.steps_to_take] == ["paceline simulate scenario.toml --json > results-1.ndjson"]


@pytest.mark.parametrize(
    "results",
    [
        grid(),
        grid()[:-3],
        grid()[5:40:3],
        [*sweep(), *sweep((ASYNC,), (1, 4), workload={"batch_per_replica": None, "global_batch": 1024})],
        [
            *sweep(workers=(1, 2, 8), run={"steps": 50}),
            *sweep(workers=(1, 2), cluster={"inter_node": {"bandwidth_bytes_per_s": 3.125e9, "latency_s": 5e-5}, "name": "fast"}),
        ],
        [*sweep((ASYNC,), (1, 2)), *sweep((ASYNC,), (1, 2), run={"start": "random-phase"})],
        hostile_sweep(),
    ],
    ids=["grid", "grid cut short", "part of a grid", "weak and strong", "clusters", "words", "hostile"],
)
def test_following_the_recipe_gives_the_very_same_scenarios(results: list[Result]) -> None:
    assert sorted(given(recipe(results))) == sorted({result.scenario_hash for result in results})


def test_files_that_are_compared_are_each_told() -> None:
    results = sweep((RING,), (1, 2))
    found = recipe(results * 2, ["a", "a", "b", "b"])
    assert [step.name.split(" · ")[1] for step in found.steps_to_take] == ["a", "b"]


@pytest.mark.parametrize("result", [*sweep(workers=(4,)), *hostile_sweep()], ids=lambda result: result.scenario_hash)
def test_the_scenario_in_the_report_is_the_one_simulated(result: Result) -> None:
    assert scenario_from_table(tomllib.loads(scenario_toml(result.scenario)), "report").hash == result.scenario_hash


def test_results_that_differ_in_what_no_key_says_get_a_scenario_each() -> None:
    first = plausible(scenario_of(RING, 2))
    load = first.scenario.workload.model_copy(update={"description": "another text"})
    other = plausible(first.scenario.model_copy(update={"workload": load}))
    assert sorted(given(recipe([first, other]))) == sorted([first.scenario_hash, other.scenario_hash])


def test_a_real_sweep_is_repeated_by_its_command_in_its_order() -> None:
    source = Path(__file__).parents[2] / "models" / "scenarios" / "async-ps.toml"
    axes = [parse_axis("strategy.workers=1,2"), parse_axis("cluster.inter_node.bandwidth_bytes_per_s=1.25e9,3.125e9")]
    scenarios = list(grid_of(source, axes))
    results = [plausible(scenario) for scenario in scenarios]
    found = recipe(results)
    assert len(found.steps_to_take) == 1
    assert given(found) == [scenario.hash for scenario in scenarios]
