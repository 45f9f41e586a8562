"""What speaks for a prediction: graded by the batch, and by real runs of its kind of training."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from support.scenarios import scenario_table

from simulator import load_scenario, scenario_from_table, simulate
from simulator.resolve.resolve import Asked, resolve
from simulator.results.inadequacy import checked_kinds, coverage
from simulator.results.warnings import warnings_of

ROOT = Path(__file__).parents[2]
LAYERS = [{"name": f"v{i}", "size_bytes": 1e6, "creation_index": i, "ready": (i + 1) / 2} for i in range(2)]
LINKS = {"inter_node": {"bandwidth": "600 Mbit/s"}}
REFITTED = {"batch": [8, 64], "workers": [1, 32], "servers": [0, 2]}
MEASURED = {"calibrated": {"batch": [8, 64]}}
ASYNC = {"kind": "parameter-server", "mode": "async", "workers": 4, "servers": 1}
RING = {"kind": "multi-worker-mirrored", "workers": 4}


def graded(**parts) -> dict[str, str]:
    table = scenario_table(**{"workload": MEASURED, "strategy": ASYNC, **parts, "cluster": {**LINKS, **parts.get("cluster", {})}})
    return {its.about: its.grade for its in coverage(resolve(scenario_from_table(table, "test")))}


@pytest.mark.parametrize(
    ("parts", "grade"),
    [
        ({}, "checked"),
        ({"strategy": {**ASYNC, "workers": 16}}, "checked"),
        ({"strategy": {**ASYNC, "workers": 17}}, "uncovered"),
        ({"strategy": RING}, "checked"),
        ({"strategy": {**RING, "workers": 8}}, "uncovered"),
        # refitted to runs of the user's own
        ({"workload": {"calibrated": REFITTED}, "strategy": {**ASYNC, "workers": 20}}, "interpolation"),
        # layer by layer fewer workers were run
        ({"workload": {**MEASURED, "variables": LAYERS}, "strategy": {**ASYNC, "workers": 6}}, "checked"),
        ({"workload": {**MEASURED, "variables": LAYERS}, "strategy": {**ASYNC, "workers": 8}}, "uncovered"),
        ({"workload": {**MEASURED, "variables": LAYERS}, "strategy": {**ASYNC, "workers": 8, "grouping": "per-server"}}, "checked"),
        # ways that nobody has run
        ({"strategy": {**ASYNC, "mode": "ssp", "bound": 2}}, "uncovered"),
        ({"strategy": {**RING, "algorithm": "halving-doubling"}}, "uncovered"),
        ({"strategy": {**RING, "sync_every": 4}}, "uncovered"),
        ({"cluster": {"devices_per_node": 2}}, "uncovered"),
        ({"cluster": {"fabric": {"nodes_per_leaf": 2}}}, "uncovered"),
        # links that nobody has run, slower and faster, and so fast that they count for little
        ({"cluster": {"inter_node": {"bandwidth": "100 Mbit/s"}}}, "uncovered"),
        ({"cluster": {"inter_node": {"bandwidth": "10 Gbit/s"}}}, "uncovered"),
        ({"cluster": {"inter_node": {"bandwidth": "400 Gbit/s"}}}, "interpolation"),
    ],
)  # fmt: skip
def test_workers_are_graded_by_real_runs_of_the_kind(parts, grade):
    assert graded(**parts)["workers"] == grade


def test_one_replica_is_what_was_calibrated():
    assert graded(strategy={"kind": "single"}) == {"batch": "interpolation"}


@pytest.mark.parametrize(("batch", "grade"), [(8, "checked"), (10, "interpolation"), (65, "uncovered"), (7, "uncovered")])
def test_a_batch_was_timed_or_lies_between_or_outside(batch, grade):
    times = {"mean_s": 6e-3, "p5_s": 6e-3, "median_s": 6e-3, "p95_s": 6e-3, "forward_s": 2e-3, "backward_s": 4e-3, "apply_s": 0.0}
    fit = {"relative_residual": 0.0, "points": [{"batch": each, "steps": 9, **times} for each in (8, 64)]}
    assert graded(workload={**MEASURED, "fit": fit, "batch_per_replica": batch}, strategy={"kind": "single"})["batch"] == grade


def test_only_what_nothing_speaks_for_is_warned_about():
    def warned(workers):
        built = scenario_from_table(scenario_table(workload=MEASURED, cluster=LINKS, strategy={**ASYNC, "workers": workers}), "test")
        return [warning.path for warning in warnings_of(Asked.of(built)) if warning.code == "outside-calibration"]

    assert warned(16) == []
    assert warned(17) == ["strategy.workers"]


def test_a_result_says_its_grade_and_what_it_assumed():
    table = scenario_table(workload={**MEASURED, "variables": LAYERS}, cluster=LINKS, strategy={**ASYNC, "pull_order": None})
    table["run"].pop("start")
    result = simulate(scenario_from_table(table, "test"))
    assert {its.path: its.value for its in result.assumed} == {"strategy.pull_order": "random", "run.start": "random-phase"}
    assert (result.grade, result.extrapolated) == ("interpolation", False)
    row = result.to_frame().iloc[0]
    assert (row["coverage"], row["assumed"]) == ("interpolation", "strategy.pull_order = random, run.start = random-phase")


@pytest.mark.parametrize(
    ("strategy", "start"),
    [
        ({}, "random-phase"),
        ({"mode": "ssp", "bound": 1}, "random-phase"),
        ({"coordinator": {"latency": "1 ms"}}, "together"),
        ({"mode": "sync"}, None),
    ],
)
def test_asynchronous_workers_start_as_their_way_of_training_has_them_start(strategy, start):
    """What is left out is the same as what is said to have been assumed."""
    table = scenario_table(strategy={**ASYNC, **strategy}, workload={"jitter": {"kind": "exponential"}})
    explicit = scenario_from_table({**table, "run": {**table["run"], "start": start or "together"}}, "test")
    table["run"].pop("start")
    left_out = simulate(scenario_from_table(table, "test"))
    assert [its.value for its in left_out.assumed] == ([start] if start else [])
    assert left_out.throughput_of_each_replication == simulate(explicit).throughput_of_each_replication


def test_errors_are_those_of_the_rows():
    """The larger median and the worst error of the two lists that were committed before they ran."""
    with (ROOT / "evidence" / "tables" / "scores.csv").open(encoding="utf-8", newline="") as file:
        scores = [row for row in csv.DictReader(file) if row["files"] in ("testbed-headline.csv", "testbed-first.csv")]
    for kind in checked_kinds():
        of_kind = [row for row in scores if row["group"] == kind.group]
        assert len(of_kind) == 2
        medians, worsts = ([abs(float(row[column])) for row in of_kind] for column in ("median", "worst"))
        assert (kind.median_error, kind.worst_error) == pytest.approx((max(medians), max(worsts)), abs=1.1e-3), kind.what


def test_another_device_by_a_factor_was_never_measured():
    moved = {"factor": [0.2, 0.8], "source": "a test"}
    load = {
        "calibrated": {"batch": [8, 64], "device": "here"},
        "moved": moved,
        "jitter": {"kind": "normal", "cv": 0.1},
        "jitter_least": 0.9,
    }
    table = scenario_table(workload=load, cluster={**LINKS, "device": "there"}, strategy={"kind": "single"}, run={"replications": 19})
    result = simulate(scenario_from_table(table, "test"))
    assert {its.about: its.grade for its in result.coverage} == {"batch": "interpolation", "device": "uncovered"}
    assert result.extrapolated
    assert "moved-device" in {warning.code for warning in result.warnings}
    # how fast the fastest step is there, nobody has seen: no two runs meet at a ceiling
    assert len(set(result.throughput_of_each_replication)) == 19


def test_servers_stay_as_fast_as_where_they_were_measured():
    def codes(**parts):
        load = {"calibrated": {"batch": [8, 64], "device": "here"}, "moved": {"factor": [0.2, 0.8], "source": "a test"}, **parts}
        table = scenario_table(workload=load, cluster={**LINKS, "device": "there"}, strategy=ASYNC)
        return {warning.code for warning in warnings_of(Asked.of(scenario_from_table(table, "test")))}

    assert "servers-not-moved" in codes(server={"base": "10 us"})
    assert "servers-not-moved" not in codes()


def test_a_workload_without_a_device_is_taken_as_the_clusters():
    table = scenario_table(workload=MEASURED, cluster={**LINKS, "device": "there"})
    assert "device-not-known" in {warning.code for warning in warnings_of(Asked.of(scenario_from_table(table, "test")))}


def test_what_intervals_were_compared_with_is_not_denied():
    result = simulate(load_scenario("tensor-pipeline", [("run.steps", 5)]))
    texts = [each.text for each in result.coverage if each.about == "workers"]
    assert result.discrepancy is not None
    assert result.discrepancy.checked is not None
    assert texts
    assert not any("nothing of this kind" in text or "no run of this kind" in text for text in texts)
