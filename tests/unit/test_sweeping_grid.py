"""Grids: the same scenarios as one by one, built when asked for, with what they have in common shared."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from paceline.cli.options import parse_axis
from paceline.sweeping import Grid, grid
from simulator import load_scenario, scenario_from_table
from simulator.base.catalog import entries
from simulator.base.errors import ScenarioError
from simulator.catalogue.loading import apply_settings
from simulator.resolve.resolve import resolve

AXES = [("strategy.workers", [1, 2, 3]), ("workload.batch_per_replica", [8, 16]), ("run.seed", [1, 2])]


def table(**cluster: object) -> dict[str, object]:
    workload = {
        "name": "plain",
        "batch_per_replica": 10,
        "forward": {"base": "1 ms", "per_sample": "100 us"},
        "backward": {"base": "2 ms", "per_sample": "200 us"},
        "variables": [{"name": "kernel", "size": "1 MB", "creation_index": 0, "ready": 1.0}],
    }
    lab = {"name": "lab", "inter_node": {"bandwidth": "1 GB/s", "latency": "0 s"}, **cluster}
    return {
        "workload": workload,
        "cluster": lab,
        "strategy": {"kind": "parameter-server", "mode": "async", "workers": 2},
        "run": {"steps": 20},
    }


def test_a_grid_is_the_product_with_the_last_axis_fastest() -> None:
    made = grid(table(), AXES, [("run.steps", 30)])
    one_by_one = [
        scenario_from_table(
            apply_settings(table(), [("run.steps", 30), ("strategy.workers", n), ("workload.batch_per_replica", b), ("run.seed", s)]), "x"
        )
        for n in (1, 2, 3)
        for b in (8, 16)
        for s in (1, 2)
    ]
    assert len(made) == 12
    assert list(made) == one_by_one
    assert [scenario.hash for scenario in made[3:5]] == [scenario.hash for scenario in one_by_one[3:5]]
    assert made[-1] == one_by_one[-1]
    assert made.combination(5) == {"strategy.workers": 2, "workload.batch_per_replica": 8, "run.seed": 2}
    with pytest.raises(IndexError):
        made[12]


def test_what_combinations_have_in_common_is_one_object() -> None:
    made = grid(table(), AXES)
    assert made[0].workload is made[1].workload is made[4].workload
    assert made[0].workload is not made[2].workload
    assert len({id(scenario.workload) for scenario in made}) == 2


@pytest.mark.parametrize("key", ["cluster.use", "cluster.device", "cluster"])
def test_a_workload_is_moved_for_each_device(key: str, tmp_path: Path) -> None:
    files = []
    for name, device in (("here", "device-a"), ("there", "device-b")):
        files.append(tmp_path / f"{name}.toml")
        files[-1].write_text(f'name = "{name}"\ndevice = "{device}"\ninter_node = {{bandwidth = "1 GB/s"}}\n')
    measured = table(device="device-a")
    measured["workload"] |= {"calibrated": {"batch": [1, 64], "device": "device-a"}, "moved": {"factor": [0.5, 0.5], "source": "my own"}}  # type: ignore[operator]
    values = {
        "cluster.use": [str(file) for file in files],
        "cluster": [{"use": str(file)} for file in files],
        "cluster.device": ["device-a", "device-b"],
    }[key]
    if key != "cluster.device":
        measured["cluster"] = {}
    axes = [(key, values), ("workload.batch_per_replica", [8, 16]), ("strategy.workers", [1, 2])]
    made = grid(measured, axes)
    alone = [scenario_from_table(apply_settings(measured, made.combination(index).items()), "x") for index in range(len(made))]
    assert list(made) == alone
    assert list(reversed([made[index] for index in reversed(range(len(made)))])) == alone
    assert made[0].workload == made[4].workload  # as it was written
    here, there = (resolve(made[index]).workload for index in (0, 4))
    assert here.forward.base_s == 2 * there.forward.base_s


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(entries("scenarios")))
def test_a_grid_around_a_scenario_is_that_around_its_file(name: str) -> None:
    axes = [("run.seed", [1, 2])]
    assert [scenario.hash for scenario in grid(load_scenario(name), axes)] == [scenario.hash for scenario in grid(name, axes)]


def test_a_price_can_be_set_on_a_scenario_that_has_none() -> None:
    made = grid(scenario_from_table(table(), "x"), [("cluster.price.usd_per_node_hour", [1.0, 2.0]), ("strategy.workers", [1, 2])])
    assert [scenario.cluster.price.usd_per_node_hour for scenario in made if scenario.cluster.price] == [1.0, 1.0, 2.0, 2.0]


def test_the_combination_that_breaks_a_rule_is_named() -> None:
    with pytest.raises(ScenarioError, match=r"^scenario `over` strategy.workers=2 `over` run.steps=1: run.steps: 1 must"):
        grid(table(), [("strategy.workers", [2]), ("run.steps", [5, 1])])
    unchecked = Grid(table(), [("strategy.workers", [2]), ("run.steps", [5, 1])])
    assert unchecked[0].run.steps == 5
    with pytest.raises(ScenarioError, match=r"`over` run\.steps=1: run\.steps"):
        unchecked[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("axes", "possible"),
    [
        ([("strategy.workers", [1, 2, 3, 4, 5, 6, 7, 8])], ["1..3"]),
        ([("strategy.workers", [8, 1, 2])], ["1,2"]),
        ([("strategy.workers", [1, 2, 3, 4]), ("run.seed", [1, 2])], ["1..3"]),
        ([("strategy.workers", [1, 2, 3]), ("cluster.nodes", [2, 3, 4])], ["1"]),
        ([("strategy.workers", [4, 5])], []),
        ([("strategy.workers", [1, 4]), ("run.seed", list(range(5_001)))], []),
    ],
)
def test_a_refused_grid_says_which_of_it_can_be_simulated(axes: list[tuple[str, list[int]]], possible: list[str]) -> None:
    with pytest.raises(ScenarioError) as told:
        grid(table(nodes=4), axes)
    hint = str(told.value).partition("take fewer workers, or a larger cluster.nodes")[2]
    assert re.findall(r"`over` strategy\.workers=([\d.,]+) ", hint) == possible
    assert str(told.value).count("must be at least") == 1


def test_axes_given_twice_or_with_too_many_values_are_refused() -> None:
    with pytest.raises(ScenarioError, match=r"run\.seed: is given twice"):
        grid(table(), [("run.seed", [1]), ("run.seed", [2])])
    with pytest.raises(ScenarioError, match="1,000,002 scenarios, more than the limit of 1,000,000"):
        grid(table(), [("run.seed", list(range(333_334))), ("strategy.workers", [1, 2, 3])])


def test_values_of_an_axis_are_toml_where_they_can_be() -> None:
    assert parse_axis("a.b=1,2.5,true,'x',[1, 2],{c = 3}") == ("a.b", [1, 2.5, True, "x", [1, 2], {"c": 3}])
    assert parse_axis("strategy.mode = sync, async") == ("strategy.mode", ["sync", "async"])
