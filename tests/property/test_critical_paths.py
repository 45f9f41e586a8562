"""Critical paths and traces of random scenarios."""

from __future__ import annotations

import json
import math
from collections import defaultdict

import pytest
from hypothesis import given
from support.examples import examples
from support.random_scenarios import plain_scenarios, random_scenarios
from support.scenarios import scenario_table

from simulator import scenario_from_table
from simulator.base.records import EVERYBODY, NOTHING, Service, Transfer, begin_of, end_of
from simulator.engine.replication import replicate
from simulator.observing.chrome_trace import chrome_trace
from simulator.observing.recording import Recording, bound_of_step, critical_path
from simulator.resolve.resolve import resolve

VARIABLES = [{"name": f"v{index}", "size": "1 MB", "creation_index": index, "ready": (index + 1) / 4} for index in range(4)]
LOAD = {"variables": VARIABLES, "server": {"base_s": 2e-4}, "jitter": {"kind": "gamma", "shape": 4.0}}
SERVERS = {"kind": "parameter-server", "mode": "async", "workers": 4, "servers": 2}
RING = {"kind": "multi-worker-mirrored", "workers": 8}
HOST_LINK = {"host_link": {"bandwidth": "4 GB/s", "latency": "5 us"}}
MECHANISMS = {
    "random-pulls": {"strategy": SERVERS | {"pull_order": "random"}},
    "stale-synchronous": {"strategy": SERVERS | {"mode": "ssp", "bound": 1}, "run": {"sharing": "each-its-own"}},
    "backup-workers": {"strategy": SERVERS | {"mode": "sync", "backup_workers": 1}},
    "cancelled-workers": {"strategy": SERVERS | {"mode": "sync", "backup_workers": 1, "late_workers": "cancel"}},
    "coordinator": {"strategy": SERVERS | {"coordinator": {"dispatch": "100 us", "latency": "100 us"}}},
    "in-graph": {"strategy": SERVERS | {"replication": "in-graph"}, "workload": {"input_bytes_per_sample": 1e4}},
    "host-copies": {"strategy": SERVERS, "cluster": HOST_LINK},
    "shards": {"strategy": SERVERS | {"partitioner": {"kind": "fixed-shards", "shards": 2}}},
    "server-on-the-device": {"strategy": SERVERS | {"server_placement": "colocated"}, "cluster": {"device_is_host": True}},
    "buckets": {"strategy": RING | {"bucket_size": "1 MB"}},
    "two-ways-round": {"strategy": RING | {"algorithm": "bidirectional-ring", "detail": "messages"}},
    "halving-doubling": {"strategy": RING | {"algorithm": "halving-doubling", "detail": "messages"}},
    "trees": {"strategy": RING | {"algorithm": "double-binary-tree", "detail": "messages"}},
    "hierarchy": {"strategy": RING | {"algorithm": "hierarchical", "detail": "messages"}, "cluster": {"devices_per_node": 4}},
    "priority": {"strategy": RING | {"priority": "forward", "bucket_size": "1 MB"}},
    "fusion-cycle": {"strategy": RING | {"fusion_cycle": "1 ms", "bucket_size": "2 MB"}},
    "through-hosts": {"strategy": RING | {"through_host": True, "bucket_size": "1 MB"}, "cluster": HOST_LINK},
    "local-steps": {"strategy": RING | {"sync_every": 3}},
    "local-steps-with-messages": {"strategy": RING | {"sync_every": 3, "detail": "messages"}},
    "gossip": {"strategy": {"kind": "gossip", "workers": 5}},
    "shared-devices": {"strategy": RING, "cluster": {"replicas_per_device": 2}},
    "shared-devices-local-steps": {"strategy": RING | {"sync_every": 2}, "cluster": {"replicas_per_device": 2}},
}


AT_ONCE = ("buckets", "priority", "fusion-cycle", "through-hosts", "local-steps", "shared-devices", "shared-devices-local-steps")
"""Mechanisms of which all ranks' all-reduces are computed at once, so that they are told at once as well."""


def recorded(scenario):
    recording = Recording()
    replicate(resolve(scenario), 0, recording)
    return recording


def check_path(path):
    """It covers its step without gaps, by work that was going on at the time."""
    step = path.step
    at_s = step.start_s
    for segment in path.segments:
        assert segment.start_s == at_s < segment.end_s
        at_s = segment.end_s
        if segment.record is not None:
            slack_s = 1e-11 * step.end_s
            assert begin_of(segment.record) - slack_s <= segment.start_s
            assert segment.end_s <= end_of(segment.record) + slack_s
        else:
            assert segment.kind in {"input", "all-reduce", "wait"}
    assert at_s == step.end_s
    total_s = math.fsum(segment.end_s - segment.start_s for segment in path.segments)
    assert math.isclose(total_s, step.end_s - step.start_s, rel_tol=1e-12, abs_tol=1e-15 * step.end_s)
    assert bound_of_step(path).startswith(f"Step {path.number} of ")


def check_causes(recording, *, at_once):
    """Work is numbered without gaps as it ends, and what let it begin had ended by then."""
    work = recording.by_number()
    assert sorted(work) == list(range(len(work)))
    assert len(work) == sum(1 for _ in recording.work)
    for number, one in work.items():
        assert begin_of(one) <= end_of(one)
        assert one.cause < number  # so that causes lead in no circle
        if one.cause == NOTHING:
            assert begin_of(one) == 0.0  # only the beginning has no cause
        else:
            assert end_of(work[one.cause]) <= begin_of(one)
        if isinstance(one, Transfer | Service) and one.sender != NOTHING:
            assert one.sender < number
            assert end_of(work[one.sender]) <= (one.sent_s if isinstance(one, Transfer) else one.start_s)
    if not at_once:
        ends = [end_of(work[number]) for number in range(len(work))]
        assert ends == sorted(ends)
    for step in recording.steps:
        assert end_of(work[step.cause]) == step.end_s


@pytest.mark.slow
@examples(40)
@given(random_scenarios())
def test_causes_end_before_what_they_let_begin_and_leave_no_time_unexplained(scenario):
    recording = recorded(scenario)
    check_causes(recording, at_once=any(transfer.target == EVERYBODY for transfer in recording.transfers))
    work = recording.by_number()
    for step in recording.steps:
        path = critical_path(recording, step, work)
        check_path(path)
        assert all(segment.record is not None for segment in path.segments)


@examples(40)
@given(plain_scenarios())
def test_a_path_covers_its_step_without_gaps(scenario):
    recording = recorded(scenario)
    work = recording.by_number()
    for step in recording.steps:
        path = critical_path(recording, step, work)
        check_path(path)
        # of these mechanisms everything is recorded: only who began late is waited for without a reason
        assert {segment.what for segment in path.segments if segment.kind == "wait"} <= {"late start"}


@pytest.mark.slow
@pytest.mark.parametrize("name", MECHANISMS)
def test_paths_and_traces_of_every_mechanism(name):
    parts = MECHANISMS[name]
    run = {"steps": 12, "warmup_steps": 2} | parts.get("run", {})
    table = scenario_table(**(parts | {"workload": LOAD | parts.get("workload", {}), "run": run}))
    scenario = scenario_from_table(table, name)
    recording = recorded(scenario)
    work = recording.by_number()
    paths = [critical_path(recording, step, work) for step in recording.steps]
    for path in paths:
        check_path(path)
    waits = [segment for path in paths for segment in path.segments if segment.kind == "wait"]
    assert {segment.what for segment in waits} == ({"dispatch"} if name == "coordinator" else set())
    check_causes(recording, at_once=name in AT_ONCE)
    check_trace(json.loads(chrome_trace(recording, paths[-1], replicas_per_device=scenario.cluster.replicas_per_device)))


@examples(40)
@given(plain_scenarios())
def test_a_trace_nests_and_its_arrows_have_two_ends(scenario):
    recording = recorded(scenario)
    path = critical_path(recording, recording.steps[-1])
    check_trace(json.loads(chrome_trace(recording, path, replicas_per_device=scenario.cluster.replicas_per_device)))


def check_trace(trace):
    """What Perfetto and chrome://tracing need."""
    events = trace["traceEvents"]
    names = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
    order = [event["args"]["sort_index"] for event in events if event["name"] == "thread_sort_index"]
    assert len(order) == len(set(order)) == len(names)
    tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            begin = math.trunc(event["ts"] * 1000)  # as Perfetto reads it
            tracks[event["pid"], event["tid"]].append((begin, begin + math.trunc(event["dur"] * 1000)))
    assert set(tracks) == names
    for slices in tracks.values():
        ends = []
        for begin, end in sorted(slices, key=lambda one: (one[0], -one[1])):
            while ends and ends[-1] <= begin:
                ends.pop()
            assert not ends or end <= ends[-1]
            ends.append(end)
    arrows = defaultdict(dict)
    for event in events:
        if event["ph"] in "sf":
            assert event["ph"] not in arrows[event["id"]]
            arrows[event["id"]][event["ph"]] = event
            at = math.trunc(event["ts"] * 1000)
            assert any(begin <= at < end or begin == at == end for begin, end in tracks[event["pid"], event["tid"]])
    for arrow in arrows.values():
        assert arrow["s"]["ts"] <= arrow["f"]["ts"]
        assert (arrow["s"]["name"], arrow["s"]["cat"]) == (arrow["f"]["name"], arrow["f"]["cat"])
        assert arrow["f"]["bp"] == "e"
