"""Planning discards by closed forms: no simulation may exceed them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from support.examples import examples
from support.layered import layered
from support.scenarios import scenario_table

from paceline.planning.bounds import Ceilings
from simulator import load_scenario, scenario_from_table, simulate
from simulator.base.errors import ScenarioError
from simulator.resolve.resolve import Asked
from simulator.scenario import Scenario

ROOT = Path(__file__).parents[2]
JITTERS: list[dict[str, Any]] = [
    {"kind": "constant"},
    {"kind": "normal", "cv": 0.2},
    {"kind": "lognormal", "sigma": 0.4},
    {"kind": "gamma", "shape": 3.0},
    {"kind": "exponential"},
    {"kind": "shifted-exponential", "tail": 0.5},
    {"kind": "empirical", "values": [0.7, 0.9, 1.0, 1.4]},
]
VARIABLES = [
    {"name": "head", "size": "400 kB", "creation_index": 1, "ready": 0.3},
    {"name": "rows", "size": "2 MB", "creation_index": 0, "ready": 0.6},
    {"name": "kernel", "size": "1 MB", "creation_index": 2, "ready": 1.0},
]


@some.composite
def scenarios(draw: some.DrawFn) -> Scenario:
    """Small scenarios of every strategy, with and without everything that a bound has to know of."""

    def choose(*options: Any) -> Any:
        return draw(some.sampled_from(options))

    workers = draw(some.integers(1, 6))
    servers_kind = choose(True, False)
    sparse = choose({}, {"sparse_bytes_per_sample": 2000.0})
    workload: dict[str, Any] = {
        "jitter": choose(*JITTERS),
        "run_to_run_cv": choose(0.0, 0.1),
        "input": {"base": choose("0 s", "2 ms", "20 ms"), "per_sample": "0 s"},
        "server": {"base": choose("0 s", "1 ms"), "per_byte_s": choose(0.0, 1e-9, 1e-8)},
        "variables": [VARIABLES[0], {**VARIABLES[1], **sparse}, VARIABLES[2]],
        "uncertainty": choose(None, {"parameters": ["forward.base_s", "apply_s"], "draws": [[0.0005, 0.0], [0.002, 0.001]]}),
    }
    cluster: dict[str, Any] = {
        "inter_node": {"bandwidth": choose("100 MB/s", "1 GB/s", "20 GB/s"), "latency": choose("0 s", "1 ms")},
        "intra_node_topology": choose("switch", "mesh"),
        "devices_per_node": choose(1, 2),
        "replicas_per_device": choose(1, 1, 2),
        "node_speed": choose([], [0.5], [1.0, 2.0]),
        "node_classes": [],
        "transport": {
            "wire_bytes_per_byte": choose(1.0, 1.25),
            **choose({}, {"cpu_per_message_s": 2e-3}, {"copy_per_byte_s": 1e-8}, {"cpu_per_byte_s": 1e-8}),
        },
        **choose({}, {"host_link": {"bandwidth": "500 MB/s", "latency": "0 s"}}),
        "uncertainty": choose(None, {"parameters": ["inter_node.bandwidth_bytes_per_s"], "draws": [[2e8], [1e9], [4e9]]}),
    }
    slow_nodes = choose(
        None, None, {"share": 0.5, "factor": [1.5, 3.0]}, {"share": 0.3, "factor": 2.0, "spread_cv": 0.1}, {"spread_cv": 0.3}
    )
    cluster |= {"slow_nodes": slow_nodes} if slow_nodes else {}
    background = choose(None, None, {"load": [0.1, 0.6]}, {"flows": 2}, {"trace": [{"at": "0 s"}, {"at": "20 ms", "load": 0.5}]})
    cluster |= {"background": background} if background else {}
    if choose(True, False, False):
        slow = {"factor": 3.0, "mean_slow_steps": 3, "mean_normal_steps": 10}
        cluster["node_speed"] = []
        cluster["node_classes"] = [
            {"name": "odd", "nodes": 2, "speed": choose(0.5, 2.0), "slowdown": choose(None, slow), "jitter": choose(None, *JITTERS)}
        ]
    run: dict[str, Any] = {"steps": choose(6, 40), "warmup_steps": choose(0, 2), "start": choose("together", "random-phase")}
    if servers_kind:
        mode = choose("sync", "async", "ssp")
        strategy: dict[str, Any] = {"kind": "parameter-server", "mode": mode, "workers": workers, "servers": choose(1, 2, 3)}
        strategy["server_placement"] = choose("dedicated", "colocated")
        strategy["variable_placement"] = choose("round-robin", "greedy")
        strategy["pull_order"] = choose("forward", "together")
        run["grouping"] = choose("none", "per-server")
        if mode == "ssp":
            strategy["bound"] = choose(0, 2)
        if mode == "async" and choose(True, False):
            strategy["coordinator"] = {"dispatch": choose("100 us", "5 ms"), "latency": "1 ms"}
        if mode == "sync" and workers > 1:
            strategy["backup_workers"] = choose(0, 1)
            if strategy["backup_workers"]:
                strategy["late_workers"] = choose("finish", "cancel")
        if mode != "sync":
            run |= {"sharing": choose("shared", "each-its-own"), "drain": mode != "ssp" or choose(True, False)}
    else:
        strategy = {
            "kind": "multi-worker-mirrored",
            "workers": workers,
            "algorithm": choose("ring", "halving-doubling", "hierarchical", "auto"),
        }
        strategy["sync_every"] = choose(1, 1, 3)
        if choose(False, False, True):
            strategy = {"kind": "gossip", "workers": workers}
        elif strategy["sync_every"] == 1:
            strategy |= choose({}, {"bucket_size": "1 MB"}, {"bucket_size": "2 MB", "fusion_cycle": "3 ms"}, {"priority": "forward"})
        if workers <= 2 and choose(True, False):
            strategy = {"kind": "mirrored", "replicas": workers}
    batch = choose({"batch_per_replica": 7}, {"batch_per_replica": None, "global_batch": 60})
    parts = {"workload": {**workload, **batch}, "cluster": cluster, "strategy": strategy, "run": run}
    if choose(False, False, True):
        work = {choose("serial", "parallel"): {"base_s": choose(2e-3, 20e-3), "per_sample_s": 0.0}, "read_bytes_per_sample": 1e5}
        cluster["storage"] = {"bandwidth": choose("10 MB/s", "1 GB/s"), "node_bandwidth": choose(None, "50 MB/s")}
        cluster["storage"] = {key: value for key, value in cluster["storage"].items() if value is not None}
        parts["input"] = {"work": work, "prefetch": choose(0, 1, 3), "per": choose("process", "replica"), "jitter": choose(*JITTERS)}
    try:
        return scenario_from_table(scenario_table(**parts), "drawn")
    except ScenarioError:
        return draw(scenarios())


@pytest.mark.slow
@examples(100)
@given(scenario=scenarios())
def test_no_replication_exceeds_its_ceiling(scenario: Scenario) -> None:
    rates = np.array(simulate(scenario).throughput_of_each_replication)
    ceilings = Ceilings().of(Asked.of(scenario))
    assert (rates <= ceilings * (1 + 1e-9)).all(), (rates, ceilings)


@pytest.mark.parametrize(
    "strategy",
    [
        {"kind": "gossip", "workers": 11},
        {"kind": "parameter-server", "mode": "sync", "workers": 11, "servers": 3},
        {"kind": "parameter-server", "mode": "async", "workers": 12, "servers": 2},
    ],
    ids=lambda strategy: f"{strategy['kind']} {strategy.get('mode', '')}",
)
@pytest.mark.parametrize("bandwidth", ["20 MB/s", "100 GB/s"])
def test_of_many_ranks_the_program_of_some_tells(strategy: dict[str, Any], bandwidth: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = {"devices_per_node": 2, "inter_node": {"bandwidth": bandwidth, "latency": "0 s"}, "transport": {"cpu_per_message_s": 1e-3}}
    scenario = scenario_from_table(scenario_table(workload={"variables": VARIABLES}, cluster=cluster, strategy=strategy), "test")
    of_all = Ceilings().of(Asked.of(scenario))
    monkeypatch.setattr("paceline.planning.bounds._READ", 4)
    of_some = Ceilings().of(Asked.of(scenario))
    assert (of_some >= of_all * (1 - 1e-9)).all()
    assert of_some == pytest.approx(of_all, rel=0.1)


def test_a_server_that_always_works_is_at_its_ceiling() -> None:
    strategy = {"kind": "parameter-server", "mode": "async", "workers": 8, "servers": 1}
    table = scenario_table(workload={"server": {"base": "50 ms", "per_byte_s": 0.0}}, strategy=strategy, run={"steps": 100})
    scenario = scenario_from_table(table, "test")
    rates = np.array(simulate(scenario).throughput_of_each_replication)
    assert rates == pytest.approx(Ceilings().of(Asked.of(scenario)), rel=0.02)


@pytest.mark.parametrize("size", ["1 MB", "5 MB"])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_step_that_was_measured_with_servers_holds_its_messages_already(size: str, workers: int) -> None:
    load: dict[str, Any] = {
        "measured_with": "servers",
        "forward": {"base": "10 ms", "per_sample": "0 s"},
        "backward": {"base": "10 ms", "per_sample": "0 s"},
    }
    load["variables"] = [{"name": "all", "size": size, "creation_index": 0, "ready": 1.0}]
    cluster = {"inter_node": {"bandwidth": "1 GB/s", "latency": "100 us"}}
    strategy = {"kind": "parameter-server", "mode": "async", "workers": workers}
    scenario = scenario_from_table(scenario_table(workload=load, cluster=cluster, strategy=strategy), "test")
    rates = np.array(simulate(scenario).throughput_of_each_replication)
    assert (rates <= Ceilings().of(Asked.of(scenario)) * (1 + 1e-9)).all()


@pytest.mark.slow
@pytest.mark.parametrize("file", sorted((ROOT / "models" / "scenarios").glob("*.toml")), ids=lambda file: file.stem)
def test_no_scenario_of_the_catalogue_exceeds_its_ceiling(file: Path) -> None:
    scenario = load_scenario(file, [("run.steps", 20), ("run.warmup_steps", 3), ("run.replications", 3)])
    rates = np.array(simulate(scenario).throughput_of_each_replication)
    assert (rates <= Ceilings().of(Asked.of(scenario)) * (1 + 1e-9)).all()


@pytest.mark.parametrize(
    "strategy",
    [
        {"kind": "single"},
        {"kind": "multi-worker-mirrored", "workers": 4},
        {"kind": "parameter-server", "mode": "sync", "workers": 3},
        {"kind": "parameter-server", "mode": "async", "workers": 3, "servers": 1},
        {"kind": "hybrid", "workers": 4, "pipeline": 1},
        {"kind": "hybrid", "workers": 4, "pipeline": 2},
    ],
    ids=lambda strategy: " ".join(str(value) for value in strategy.values()),
)
def test_a_ceiling_is_that_of_the_nodes_that_a_run_draws(strategy: dict[str, Any]) -> None:
    """Nodes faster than the measured one, and slow ones: in no run beyond the ceiling, and with little else in a step near it."""
    cluster = {"slow_nodes": {"share": 0.3, "factor": 2.0, "spread_cv": 0.3}, "inter_node": {"bandwidth": "100 GB/s", "latency": "0 s"}}
    table = scenario_table(cluster=cluster, strategy=strategy, run={"steps": 12, "warmup_steps": 2, "replications": 12})
    if strategy["kind"] == "hybrid":
        table["workload"] = layered(size_bytes=1e3, output_bytes=1e3, batch=8)
    if strategy.get("mode") == "async":
        table["run"]["drain"] = True
    scenario = scenario_from_table(table, "test")
    rates, ceilings = np.array(simulate(scenario).throughput_of_each_replication), Ceilings().of(Asked.of(scenario))
    assert (rates <= ceilings * (1 + 1e-9)).all()
    assert rates.max() > 1.05 * rates.min()  # runs differ
    if strategy.get("pipeline", 1) == 1 and strategy.get("mode") != "async":
        assert (rates > 0.8 * ceilings).all()
