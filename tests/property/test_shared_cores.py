"""Laws of nodes that copy messages and share cores, over random scenarios: the audit, and all work is done once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from oracles.audit import audit
from support.examples import examples
from support.modes import LOAD
from support.scenarios import scenario_table

from simulator import Scenario, scenario_from_table, simulate
from simulator.base.errors import ScenarioError
from simulator.engine.replication import replicate
from simulator.observing.recording import critical_path
from simulator.resolve.resolve import resolve

WAYS: list[dict[str, Any]] = [
    {"kind": "single"},
    {"kind": "mirrored"},
    {"kind": "parameter-server", "mode": "async", "servers": 2},
    {"kind": "parameter-server", "mode": "async", "pull_order": "together", "coordinator": {"dispatch": "500 us", "latency": "1 ms"}},
    {"kind": "parameter-server", "mode": "async", "replication": "in-graph", "grouping": "per-server"},
    {"kind": "parameter-server", "mode": "ssp", "bound": 1, "servers": 2, "server_placement": "colocated"},
    {"kind": "parameter-server", "mode": "sync", "server_placement": "colocated"},
    {"kind": "parameter-server", "mode": "sync", "backup_workers": 1, "partitioner": {"kind": "fixed-shards", "shards": 3}},
    {"kind": "multi-worker-mirrored"},
    {"kind": "multi-worker-mirrored", "bucket_size": "1 MB", "algorithm": "halving-doubling"},
    {"kind": "multi-worker-mirrored", "algorithm": "auto", "detail": "messages"},
    {"kind": "multi-worker-mirrored", "algorithm": "double-binary-tree"},
    {"kind": "multi-worker-mirrored", "sync_every": 3},
]
TRANSPORT = st.fixed_dictionaries(
    {"cpu_per_message_s": st.sampled_from([0.0, 2e-5, 1e-3]), "copy_per_byte_s": st.sampled_from([0.0, 1e-10, 3e-9])},
    optional={"discipline": st.just("in-order"), "wire_bytes_per_byte": st.just(1.1), "flow_cap_bytes_per_s": st.just(3e8)},
)
CLUSTER = st.fixed_dictionaries(
    {"transport": TRANSPORT},
    optional={
        "shared_cores": st.sampled_from([1.0, 2.0, 3.0, 64.0]),
        "time_slice_s": st.sampled_from([1e-4, 1e-3, 1.0]),
        "device_is_host": st.just(True),
        "devices_per_node": st.just(2),
        "replicas_per_device": st.just(2),
        "node_speed": st.just([0.5, 2.0]),
        "host_link": st.just({"bandwidth": "3 GB/s", "latency": "3 us"}),
    },
)
RUNS = st.sampled_from([{}, {"start": "random-phase"}, {"start": "staggered", "start_spread": "9 ms"}, {"job_steps": 40, "drain": True}])
SCENARIOS = st.tuples(st.sampled_from(WAYS), CLUSTER, RUNS, st.integers(2, 6), st.sampled_from(["exponential", "constant"]))


def built(parts: tuple[Any, ...]) -> Scenario:
    strategy, cluster, run, workers, law = parts
    if strategy["kind"] not in ("single", "mirrored"):
        strategy = {**strategy, "workers": workers}
    table = scenario_table(
        workload={**LOAD, "jitter": {"kind": law}},
        cluster=cluster,
        strategy=strategy,
        run={"steps": 12, "warmup_steps": 2, **run},
    )
    try:
        return scenario_from_table(table, "any")
    except ScenarioError:
        assume(False)
        raise


@examples(60)
@given(SCENARIOS)
def test_every_law_holds(parts):
    scenario = built(parts)
    recording = audit(scenario)
    assert recording.steps
    # what bounds a step is explained without a gap
    step = recording.steps[-1]
    segments = critical_path(recording, step).segments
    assert sum(segment.end_s - segment.start_s for segment in segments) == pytest.approx(step.end_s - step.start_s, rel=1e-9)


@examples(20)
@given(SCENARIOS)
def test_simulated_again_it_is_the_same_to_the_byte(parts):
    scenario = built(parts)
    first, again = (simulate(scenario).to_json() for _ in range(2))
    assert first == again
    assert Scenario.model_validate_json(scenario.model_dump_json()) == scenario


WORK = {"cpu_per_message_s": st.sampled_from([0.0, 2e-5, 1e-3]), "copy_per_byte_s": st.sampled_from([1e-10, 3e-9])}
POOLS = st.tuples(
    st.fixed_dictionaries(WORK), st.sampled_from([1.0, 2.0, 3.0, 64.0]), st.booleans(), st.integers(2, 6), st.sampled_from([1, 2, 4])
)
SIZES = [1e6, 2e6, 3e6, 4e6]
COMPUTE_S = 6e-3


def seconds_of_work(strategy: dict[str, Any], pool: tuple[Any, ...], run: dict[str, Any]) -> tuple[float, float]:
    """What the cores have done when a run without jitter has ended, and when that was."""
    transport, cores, device_is_host, workers, _ = pool
    cluster = {"transport": transport, "shared_cores": cores, "device_is_host": device_is_host}
    load = {key: value for key, value in LOAD.items() if key not in ("input", "jitter")}
    table = scenario_table(workload=load, cluster=cluster, strategy={**strategy, "workers": workers}, run={"warmup_steps": 0, **run})
    measured = replicate(resolve(scenario_from_table(table, "any")), 0)
    return float(measured.in_use_s["cores"][0]) * cores, measured.window_s


@examples(30)
@given(POOLS, st.integers(12, 40), st.sampled_from([0.0, 1e-3]))
def test_the_cores_do_all_the_work_of_a_drained_job_and_nothing_else(pool, steps, dispatch_s):
    transport, cores, device_is_host, _, servers = pool
    strategy = {
        "kind": "parameter-server",
        "mode": "async",
        "servers": servers,
        "coordinator": {"dispatch_s": dispatch_s, "latency_s": 1e-3},
    }
    done_s, run_s = seconds_of_work(strategy, pool, {"job_steps": steps, "drain": True})
    messages_s = sum(transport["cpu_per_message_s"] + transport["copy_per_byte_s"] * size for size in SIZES)
    # each tensor is pulled and pushed, and worked on at both ends
    each_s = 4 * messages_s + sum(20e-6 + 1e-11 * size for size in SIZES) + dispatch_s + COMPUTE_S * device_is_host
    assert done_s == pytest.approx(steps * each_s, rel=1e-9)
    assert run_s >= done_s / cores * (1 - 1e-9)


@examples(20)
@given(POOLS, st.sampled_from(["ring", "bidirectional-ring"]))
def test_the_cores_do_all_the_work_of_an_all_reduce_and_nothing_else(pool, algorithm):
    transport, cores, device_is_host, ranks, _ = pool
    done_s, run_s = seconds_of_work({"kind": "multi-worker-mirrored", "algorithm": algorithm}, pool, {"steps": 5})
    ways = 1 if algorithm == "ring" else 2
    chunk_s = transport["cpu_per_message_s"] + transport["copy_per_byte_s"] * sum(SIZES) / ranks / ways
    each_s = ways * 2 * (ranks - 1) * 2 * chunk_s + (COMPUTE_S + 0.5e-3) * device_is_host
    assert done_s == pytest.approx(5 * ranks * each_s, rel=1e-9)
    assert run_s >= done_s / cores * (1 - 1e-9)
