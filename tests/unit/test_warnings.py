"""Every warning comes when it should, with value and range, and only then."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from support.scenarios import scenario_table

import simulator
from simulator import scenario_from_table, simulate
from simulator.resolve.resolve import Asked
from simulator.results.warnings import warnings_of
from simulator.spec.figures import WARNINGS

RANGE = {"batch": [8, 64], "tensor_bytes": [1e3, 1e7], "workers": [1, 4], "servers": [0, 2], "device": "CPU"}
DRAWS = {"parameters": ["apply_s"], "draws": [[1e-3], [2e-3]]}
LINK_DRAWS = {"parameters": ["inter_node.latency_s"], "draws": [[1e-5]]}
KNOWN = {"calibrated": RANGE, "uncertainty": DRAWS}
MEASURED = {
    "basis": "measured",
    "uncertainty": LINK_DRAWS,
    "calibrated": {"message_bytes": [1e3, 1e8], "nodes": [1, 9], "bandwidth_bytes_per_s": [9e8, 1.1e9]},
    "device": "CPU",
}
SERVERS = {"kind": "parameter-server", "mode": "async", "workers": 4, "servers": 1}
JITTER = {"jitter": {"kind": "gamma", "shape": 9.0}, "server": {"base": "10 us"}}
RUN = {"replications": 19}


def codes(**parts) -> set[tuple[str, str]]:
    parts = {"workload": {**KNOWN, **JITTER}, "cluster": MEASURED, "strategy": SERVERS, "run": RUN, **parts}
    return {(warning.code, warning.path) for warning in warnings_of(Asked.of(scenario_from_table(scenario_table(**parts), "test")))}


def test_every_code_is_explained():
    """Those of all places that warn, and no others."""
    given = {
        call.args[0].value
        for path in Path(simulator.__path__[0]).rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "Warned.of"
    }
    assert given == WARNINGS.keys()
    page = (Path(simulator.__path__[0]).parent / "docs" / "reference.md").read_text(encoding="utf-8")
    explained = re.findall(r"^\| `([a-z-]+)` \| \*\*(.+?)\.\*\*", page, re.MULTILINE)
    assert {code: title.replace("\\", "") for code, title in explained} == {code: kind.title for code, kind in WARNINGS.items()}
    assert len(explained) == len(WARNINGS)


def test_inside_all_ranges_nothing_is_said():
    assert codes() == set()


@pytest.mark.parametrize(
    ("parts", "code", "path"),
    [
        ({"workload": {**KNOWN, **JITTER, "batch_per_replica": 65}}, "outside-calibration", "workload.batch_per_replica"),
        ({"strategy": {**SERVERS, "workers": 17}}, "outside-calibration", "strategy.workers"),
        (
            {"cluster": {**MEASURED, "inter_node": {"bandwidth": "2 GB/s"}}},
            "outside-calibration",
            "cluster.inter_node.bandwidth_bytes_per_s",
        ),
        (
            {"workload": {**KNOWN, **JITTER, "moved": {"factor": [0.5, 1], "source": "a test"}}, "cluster": {**MEASURED, "device": "GPU"}},
            "moved-device",
            "workload.moved",
        ),
        (
            {"workload": {**KNOWN, **JITTER, "overridden": ["forward", "backward"]}, "cluster": {**MEASURED, "device": "GPU"}},
            "other-device",
            "cluster.device",
        ),
        ({"cluster": {}}, "assumed-network", "cluster.basis"),
        ({"cluster": {**MEASURED, "uncertainty": None}}, "no-uncertainty", "cluster.uncertainty"),
        ({"workload": {**JITTER, "calibrated": RANGE}}, "no-uncertainty", "workload.uncertainty"),
        ({"workload": {**JITTER, "uncertainty": DRAWS}}, "not-calibrated", "workload.calibrated"),
        ({"workload": {**KNOWN, "server": {"base": "10 us"}}}, "phase-locked", "run.start"),
        ({"workload": {**KNOWN, **JITTER, "server": {}}}, "free-apply", "workload.server"),
        ({"run": {**RUN, "start": "staggered", "start_spread_s": 60.0}}, "start-in-window", "run.start_spread_s"),
        ({"workload": {**KNOWN, **JITTER, "batch_per_replica": None, "global_batch": 80}}, "outside-calibration", "workload.global_batch"),
        ({"run": {"replications": 18}}, "few-replications", "run.replications"),
        ({"workload": {**KNOWN, **JITTER, "provenance": {"disturbed": "others ran"}}}, "disturbed-calibration", "workload.provenance"),
        ({"run": {**RUN, "steps": 30, "job_steps": 60}}, "steps-not-used", "run.steps"),
    ],
)
def test_each_warning(parts, code, path):
    found = codes(**parts)
    assert (code, path) in found
    assert len(found) <= 3


def test_steps_that_were_left_out_or_say_the_same_as_the_jobs_are_no_contradiction():
    assert (
        codes(run={**RUN, "steps": 15, "job_steps": 60}) == codes(run={**RUN, "steps": 100, "job_steps": 60}) == set()
    )  # 100 are those of no key


def test_a_ring_of_many_sends_messages_below_the_calibrated_size():
    small = {**MEASURED, "calibrated": {"message_bytes": [1e5, 1e8]}}
    assert codes(cluster=small, strategy={"kind": "multi-worker-mirrored", "workers": 4}) == set()
    strict = {**MEASURED, "calibrated": {"message_bytes": [3e5, 1e8]}}
    assert codes(cluster=strict, strategy={"kind": "multi-worker-mirrored", "workers": 4}) == {
        ("outside-calibration", "cluster.calibrated.message_bytes")
    }


def test_what_an_all_reduce_at_once_does_not_feel(scenario):
    ring = {"kind": "multi-worker-mirrored", "workers": 3}
    weighted = {"transport": {"discipline": "weighted", "weight_sigma": 0.5, "incast_loss": 0.1}}
    found = {warning.code: warning for warning in warnings_of(Asked.of(scenario(strategy=ring, cluster=weighted)))}
    assert found["transport-not-felt"].value == "discipline = 'weighted'"
    for felt in (
        scenario(strategy={**ring, "detail": "messages"}, cluster=weighted),
        scenario(strategy=ring, cluster={"transport": {"cpu_per_message": "1 us"}}),
        scenario(strategy=ring, cluster={**weighted, "devices_per_node": 3}),
        scenario(strategy={"kind": "parameter-server", "mode": "async", "workers": 3}, cluster=weighted),
    ):
        assert "transport-not-felt" not in {warning.code for warning in warnings_of(Asked.of(felt))}


def test_classes_that_no_node_is_left_for(scenario):
    classes = {"node_classes": [{"name": "new", "nodes": 3}, {"name": "old", "nodes": 1, "speed": 0.5}]}
    ring = {"kind": "multi-worker-mirrored", "workers": 3}
    found = [
        warning.value
        for warning in warnings_of(Asked.of(scenario(strategy=ring, cluster=classes)))
        if warning.code == "class-without-nodes"
    ]
    assert found == ["old"]
    assert all(
        warning.code != "class-without-nodes"
        for warning in warnings_of(Asked.of(scenario(strategy={**ring, "workers": 4}, cluster=classes)))
    )


@pytest.mark.parametrize(
    ("strategy", "replicas", "warns"),
    [
        ({"kind": "multi-worker-mirrored"}, 4, False),
        ({"kind": "multi-worker-mirrored"}, 12, True),
        ({"kind": "parameter-server", "mode": "sync"}, 12, True),
        ({"kind": "parameter-server", "mode": "async"}, 12, False),
    ],
)
def test_more_replicas_than_steps_that_the_tail_was_seen_in(scenario, strategy, replicas, warns):
    """Only where each step waits for the slowest; a law that was given, not measured, is certain."""
    for given in (False, True):
        load = {**JITTER} if given else {**JITTER, "jitter_steps": 11}
        found = warnings_of(Asked.of(scenario(workload=load, strategy={**strategy, "workers": replicas})))
        assert ("tail-not-seen" in {warning.code for warning in found}) == (warns and not given)


def test_workers_whose_messages_come_in_random_order_are_in_no_phase(scenario):
    """One variable in shards comes in an order that is drawn for each step; all of a server as one message does not."""
    pulled = {**SERVERS, "pull_order": "random"}
    variables = [{"name": f"v{i}", "size": "1 MB", "creation_index": i, "ready": (1 + i) / 2} for i in range(2)]
    cut = {**pulled, "partitioner": {"kind": "fixed-shards", "shards": 2}, "servers": 2}
    assert "phase-locked" not in {warning.code for warning in warnings_of(Asked.of(scenario(strategy=cut)))}
    assert "phase-locked" not in {
        warning.code for warning in warnings_of(Asked.of(scenario(strategy=pulled, workload={"variables": variables})))
    }
    as_one = scenario(strategy=pulled, workload={"variables": variables}, run={"grouping": "per-server"})
    assert "phase-locked" in {warning.code for warning in warnings_of(Asked.of(as_one))}


GRADIENTS = {"variables": [{"name": f"v{n}", "size": "1 MB", "creation_index": n, "ready": (4 - n) / 4} for n in (3, 2, 1, 0)]}
RING = {"kind": "multi-worker-mirrored", "workers": 4}


@pytest.mark.parametrize(
    ("strategy", "said"),
    [
        ({}, "because strategy.bucket_size is left out, TensorFlow's default (bytes_per_pack = 0): exposed communication"),
        ({"bucket_size": "25 MB"}, "because they fit into one bucket (23.8 MiB): exposed communication takes"),
        ({"bucket_size": "4 MB"}, "because they fit into one bucket (3.81 MiB): "),
        ({"bucket_size": "3 MB"}, ""),  # the fourth follows in a bucket of its own
        ({"bucket_size": "1 MB"}, ""),
        ({"bucket_size": "25 MB", "fusion_cycle": "1 ms"}, ""),  # whatever is ready goes at each cycle
        ({"sync_every": 5}, ""),
        ({"workers": 1}, ""),
    ],
)
def test_gradients_that_all_wait_for_the_end_of_the_backward_pass(scenario, strategy, said):
    result = simulate(scenario(workload=GRADIENTS, strategy={**RING, **strategy}))
    found = [warning.text for warning in result.warnings if warning.code == "one-bucket"]
    assert len(found) == bool(said)
    assert all(said in text for text in found)


def test_one_bucket_is_no_matter_where_nothing_could_be_hidden_or_won(scenario):
    at_once = {"variables": [{"name": "v", "size": "4 MB", "creation_index": 0, "ready": 1.0}]}
    for parts in ({"workload": at_once}, {"workload": GRADIENTS, "cluster": {"inter_node": {"bandwidth": "1000 GB/s"}}}):
        assert "one-bucket" not in {warning.code for warning in simulate(scenario(strategy=RING, **parts)).warnings}


def test_smaller_buckets_do_win_where_that_is_promised(scenario):
    one, several = (simulate(scenario(workload=GRADIENTS, strategy={**RING, "bucket_size": size})) for size in ("4 MB", "1 MB"))
    assert several.mean_step_s.mean < one.mean_step_s.mean


def test_times_that_the_scenario_sets_do_not_keep_the_spread_of_measured_ones():
    """Both passes set: steps are as without any spread; one of them: it stays, and the warning says how large it is."""
    table = {"workload": {"use": "cnn-cpu", "batch_per_replica": 32}, "cluster": {"use": "ethernet-25g"}, "strategy": SERVERS, "run": RUN}
    forward, backward = ({"base": "0 s", "per_sample": time} for time in ("100 us", "200 us"))

    def scenario(**own: object) -> simulator.Scenario:
        return scenario_from_table({**table, "workload": {**table["workload"], **own}}, "test")

    def said(its: simulator.Scenario) -> str:
        return next(warning.text for warning in warnings_of(Asked.of(its)) if warning.code == "overridden")

    both = scenario(forward=forward, backward=backward)
    assert (both.workload.jitter.kind, both.workload.run_to_run_cv, both.workload.jitter_least) == ("constant", 0.0, None)
    assert "left out" in said(both)
    kept = scenario(forward=forward, backward=backward, jitter={"kind": "gamma", "shape": 9.0})
    assert (kept.workload.jitter.kind, kept.workload.run_to_run_cv) == ("gamma", 0.0)
    part = scenario(forward=forward)
    assert part.workload.jitter.kind == "empirical"
    assert "keep the measured jitter" in said(part)
