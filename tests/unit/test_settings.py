"""Keys that are set, unset, or leave no room for others."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from paceline import load, sweep
from paceline.ranges import numbers_in
from simulator.base.errors import InputError, ScenarioError, SettingWarning

SHORT = {"run.steps": 5, "run.replications": 2}


def loaded(name: str, settings: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """A scenario with keys set, as tables, and what was said of keys that were left out."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        scenario = load(name, settings)
    assert all(issubclass(its.category, SettingWarning) for its in said)
    return scenario.model_dump(mode="json", exclude_none=True), [str(its.message) for its in said]


def test_another_kind_drops_the_keys_that_it_does_not_have_and_names_them():
    table, said = loaded("ring", {"strategy.kind": "single"})
    assert table["strategy"] == {"kind": "single"}
    (text,) = said
    assert text.startswith('strategy.workers = 8 and strategy.bucket_size = "4 MiB" ')
    assert 'strategy.kind = "single"' in text


def test_keys_that_both_kinds_have_stay():
    table, said = loaded("ring", {"strategy.kind": "gossip"})
    assert table["strategy"]["workers"] == 8
    assert all("workers" not in text for text in said)


def test_a_key_of_another_kind_that_is_set_too_is_refused():
    with pytest.raises(ScenarioError, match=r'workers: .*kind = "single"'):
        load("ring", {"strategy.kind": "single", "strategy.workers": 4})


@pytest.mark.parametrize("key", ["job.", ".x", "run..steps", ""])
@pytest.mark.parametrize("value", [3, None])
def test_a_key_with_an_empty_part_is_refused(key: str, value: object) -> None:
    with pytest.raises(ScenarioError, match=f"'{key}' must be a dotted key"):
        load("ring", {key: value})


def test_the_same_kind_again_drops_nothing(tmp_path: Path):
    assert loaded("ring", {"strategy.kind": "multi-worker-mirrored"}) == loaded("ring", {})
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(Path("models/scenarios/ring.toml").read_text().replace("workers = 8", "wrokers = 8"))
    with pytest.raises(ScenarioError, match="wrokers"):
        load(wrong, {"strategy.kind": "multi-worker-mirrored"})


def test_of_a_loaded_scenario_only_what_was_chosen_is_named():
    with pytest.warns(SettingWarning) as said:
        single = load(load("ring"), {"strategy.kind": "single"})
    assert single.strategy.model_dump() == {"kind": "single"}
    (text,) = (str(its.message) for its in said)
    assert "strategy.workers = 8" in text
    assert "priority" not in text  # as it is by itself


@pytest.mark.parametrize(
    ("name", "settings", "section", "left", "named"),
    [
        (
            "ssp",
            {"strategy.mode": "async"},
            "strategy",
            "bound",
            "strategy.bound = 3 is left out: ",
        ),
        ("ring", {"workload.global_batch": 256}, "workload", "batch_per_replica", "workload.batch_per_replica = 32 "),
    ],
)
def test_keys_that_exclude_each_other(name: str, settings: dict[str, Any], section: str, left: str, named: str):
    table, said = loaded(name, settings)
    assert left not in table[section]
    assert any(text.startswith(named) for text in said)


JOB = {"samples": 1e5, "checkpoint": {"every": "10 min", "size": "1 GB"}, "faults": {"worker_mtbf": "10 h"}}
AT_A_RATE = {"job.checkpoint.write_bytes_per_s": 1e9}


def with_job(checkpoint: dict[str, Any]) -> dict[str, Any]:
    """The tables of a scenario that writes checkpoints."""
    ring = load("ring").model_dump(mode="json", exclude_none=True)
    return {**ring, "job": {**JOB, "checkpoint": {**JOB["checkpoint"], "write_bytes_per_s": 1e9, **checkpoint}}}  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("setting", "kept"),
    [
        ({"interval": "best"}, {"interval": "best"}),
        ({"every_steps": 50}, {"every_steps": 50}),
        ({"every": "1 h"}, {"every_s": 3600.0}),
        ({"interval": "given"}, {"every_s": 600.0}),
    ],
)
def test_how_often_checkpoints_are_written_is_said_once(setting: dict[str, Any], kept: dict[str, Any]):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SettingWarning)
        job = load(with_job({}), {f"job.checkpoint.{key}": value for key, value in setting.items()}).job
    assert job is not None
    assert job.checkpoint is not None
    found = job.checkpoint.model_dump(mode="json", exclude_none=True)
    assert {key: value for key, value in found.items() if key.startswith(("every", "interval"))} == kept


def test_a_key_set_to_none_is_back_at_its_default():
    scenario = load("ring", {"strategy.workers": None, "strategy.bucket_size": None, "cluster.nodes": 3})
    assert scenario.replicas == 3
    assert scenario.strategy.model_dump()["bucket_size_bytes"] is None


def test_what_comes_from_a_file_in_use_is_unset_too():
    assert load("ring").cluster.fabric is None
    used = load("ring", {"cluster.use": "p3.16xlarge"})
    assert used.cluster.price is not None
    assert load("ring", {"cluster.use": "p3.16xlarge", "cluster.price": None}).cluster.price is None


def test_a_section_is_unset_as_a_whole():
    assert load(with_job({}), {"job": None}).job is None


def test_what_no_scenario_has_cannot_be_unset():
    with pytest.raises(ScenarioError, match=r"strategy\.wrokers: .*did you mean workers"):
        load("ring", {"strategy.wrokers": None})


@pytest.mark.slow
def test_a_sweep_over_modes_leaves_the_bound_to_the_mode_that_has_it():
    with pytest.warns(SettingWarning, match=r'strategy\.bound = 3 .*strategy\.mode = "ssp"'):
        swept = sweep("ssp", {"strategy.mode": ["sync", "async", "ssp"]}, settings=SHORT, jobs=1)
    bounds = [result.scenario.strategy.model_dump()["bound"] for result in swept.results]
    assert bounds == [None, None, 3]


def test_a_sweep_over_a_range_and_over_what_is_left_out():
    swept = sweep("ring", {"strategy.workers": "1..3", "strategy.bucket_size": [None, "1 MB"]}, settings=SHORT, jobs=1)
    found = [(result.replicas, result.scenario.strategy.model_dump()["bucket_size_bytes"]) for result in swept.results]
    assert found == [(1, None), (1, 1e6), (2, None), (2, 1e6), (3, None), (3, 1e6)]


@pytest.mark.parametrize(
    ("text", "numbers"), [("1..4,8", [1, 2, 3, 4, 8]), (" 3 .. 5 ", [3, 4, 5]), ("7", [7]), ("1,two", None), ("", None)]
)
def test_lists_of_numbers(text: str, numbers: list[int] | None):
    assert numbers_in(text) == numbers


@pytest.mark.parametrize(("text", "says"), [("8..1", r"8 is above 1; write 1\.\.8"), ("1..9999999", "names more than")])
def test_ranges_that_cannot_be(text: str, says: str):
    with pytest.raises(InputError, match=says):
        numbers_in(text)
    with pytest.raises(InputError, match=says):
        sweep("ring", {"strategy.workers": text})
