"""What somebody may write and not mean: each is refused, warned of, or told in the result."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from syrupy.assertion import SnapshotAssertion

from paceline import memory
from paceline.catalogue import schema_of
from simulator import simulate
from simulator.base.catalog import Kind, entries
from simulator.base.errors import ReadingWarning, ScenarioError
from simulator.base.spec import Spec
from simulator.base.validation_errors import implausible
from simulator.catalogue.loading import load_cluster, load_faults, load_input, load_scenario, load_workload
from simulator.resolve.resolve import Asked
from simulator.results.cost import placement_of
from simulator.results.warnings import warnings_of
from simulator.scenario import Scenario
from simulator.spec.accelerator import load_accelerator

RING = {"kind": "multi-worker-mirrored", "workers": 4}
HYBRID = {"kind": "hybrid", "workers": 4}
JOB = {"samples": 1e5}
LEAVES = {"nodes_per_leaf": 2}
SLOW = {"mean_slow_steps": 5, "mean_normal_steps": 45}


def price(**more: Any) -> dict[str, Any]:
    return {"price": {"usd_per_node_hour": 1.0, **more}}


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    # more than there is
    ({"strategy": {**RING, "workers": 9}, "cluster": {"nodes": 8}}, "cluster.nodes (8)", "at least 9"),
    ({"strategy": {**RING, "workers": 9}, "cluster": {"available": 8}}, "cluster.available (8)", "at least 9"),
    ({"strategy": RING, "cluster": {"nodes": 8, "available": 4}}, "nodes (8)", "at most available (4)"),
    # bits for bytes
    ({"strategy": {**RING, "bucket_size": "25 Mb"}}, "strategy.bucket_size: '25 Mb'", '"25 MB"?'),
    ({"strategy": {**RING, "bucket_size": "25 Mbit"}}, "strategy.bucket_size: '25 Mbit'", '"25 Mbytes"?'),
    ({"strategy": {**RING, "algorithm": "double-binary-tree", "pipeline_chunk": "4 Kib"}}, "strategy.pipeline_chunk: '4 Kib'", '"4 KiB"?'),
    (
        {"workload": {"variables": [{"name": "v", "size": "8 megabits", "creation_index": 0, "ready": 1.0}]}},
        "workload.variables.0.size: '8 megabits'",
        '"8 megabytes"',
    ),
    ({"cluster": {"device_memory_limit": "8 Gib"}}, "cluster.device_memory_limit: '8 Gib'", "bits"),
    ({"job": {**JOB, "checkpoint": {"every_steps": 10, "size": "1 Gb"}}}, "job.checkpoint.size: '1 Gb'", "bits"),
    # days that are none
    ({"cluster": price(date="yesterday")}, "cluster.price.date: 'yesterday'", "1990 to 2100"),
    ({"cluster": price(date="2026-13-45")}, "'2026-13-45'", "calendar"),
    ({"cluster": price(date="2026-02-30")}, "'2026-02-30'", "calendar"),
    ({"job": {**JOB, "faults": {"node_mtbf": "5 h", "rates_90": [36, 365]}}}, "rates_90 (36, 365)", "must include 1"),
    ({"cluster": price(date="01.05.24")}, "'01.05.24'", "ambiguous"),
    ({"cluster": price(date="5000 USD list price")}, "'5000 USD list price'", "1990 to 2100"),
    ({"cluster": price(date=20240501)}, "cluster.price.date: 20240501", "text in quotes"),
    # a multiple, or a percentage, for a share
    ({"cluster": {"overlap_slowdown": 1.2}}, "cluster.overlap_slowdown: 1.2", "is 0.2"),
    ({"cluster": {"overlap_slowdown": 20}}, "cluster.overlap_slowdown: 20", "20% is 0.2"),
    ({"cluster": {"overlap_slowdown": "20%"}}, "cluster.overlap_slowdown: '20%'", "a number"),
    ({"cluster": {"overlap_slowdown": -0.1}}, "cluster.overlap_slowdown: -0.1", "at least 0"),
    ({"cluster": {"slow_nodes": {"share": 20, "factor": 1.5}}}, "cluster.slow_nodes.share: 20", "at most 1"),
    ({"cluster": {"background": {"load": 30}}}, "cluster.background.load: 30", "from 0 to below 1"),
    ({"cluster": {"fabric": {**LEAVES, "oversubscription": 0.5}}}, "cluster.fabric.oversubscription: 0.5", "at least 1"),
    ({"practice": {"crowding": 5}}, "crowding (5)", "at most 1; 5% is 0.05"),
    ({"practice": {"straggler_cv": 1.5}}, "straggler_cv (1.5)", "at most 0.3"),
    ({"practice": {"ethernet_share": 94}}, "ethernet_share (94)", "at most 1"),
    ({"strategy": {**RING, "compression": {"kind": "top-k", "ratio": 10}}}, "strategy.compression.ratio: 10", "at most 1"),
    # counts that are not whole
    ({"job": {**JOB, "evaluation": {"samples": 0.1}}}, "job.evaluation.samples: 0.1", "whole number"),
    ({"job": {"samples": 1.5}}, "job.samples: 1.5", "whole number"),
    ({"job": {"epochs": 3, "dataset_size": 0.8}}, "job.dataset_size: 0.8", "whole number"),
    ({"job": {"epochs": 3, "dataset_size": 50.5}}, "job.dataset_size: 50.5", "whole number"),
    ({"strategy": {**RING, "workers": 2.5}}, "strategy.workers: 2.5", "whole number"),
    # times without a unit, or with that of a size
    ({"cluster": {"inter_node": {"bandwidth": "1 GB/s", "latency": 50}}}, "cluster.inter_node.latency: 50", '"20 us"'),
    ({"cluster": {"inter_node": {"bandwidth": "1 GB", "latency": "1 us"}}}, "cluster.inter_node.bandwidth: '1 GB'", "a bandwidth"),
]
"""What is given, as it is named in the refusal, and what the rule asks for."""

WARNED: list[tuple[dict[str, Any], str, str]] = [
    # multiples that look like percentages
    ({"cluster": {"slow_nodes": {"share": 0.1, "factor": 20}}}, "as-multiple", "cluster.slow_nodes.factor = 20"),
    ({"cluster": {"slowdown": {"factor": 30, **SLOW}}}, "as-multiple", "cluster.slowdown.factor = 30"),
    ({"cluster": {"slow_nodes": {"share": 0.1, "factor": [1.2, 20]}}}, "as-multiple", "cluster.slow_nodes.factor.1 = 20"),
    ({"cluster": {"node_speed": [80, 100]}}, "as-multiple", "cluster.node_speed.1 = 100"),
    (
        {"cluster": {"upgrades": [{"name": "GPU", "usd_per_node": 10.0, "device_speed": 200}]}},
        "as-multiple",
        "cluster.upgrades.0.device_speed = 200",
    ),
    (
        {"cluster": price() | {"price": {"purchase_usd": 1e4, "owned": {"years": 36}}}},
        "implausible",
        "cluster.price.owned.years means 36",
    ),
    ({"cluster": {"node_classes": [{"name": "old", "nodes": 2, "speed": 80}]}}, "as-multiple", "cluster.node_classes.0.speed = 80"),
    ({"cluster": {"transport": {"wire_bytes_per_byte": 5}}}, "as-multiple", "cluster.transport.wire_bytes_per_byte = 5"),
    ({"cluster": {"protocols": {"simple": {"wire_bytes_per_byte": 5}}}}, "as-multiple", "cluster.protocols.simple.wire_bytes_per_byte = 5"),
    # seconds for microseconds
    (
        {"cluster": {"inter_node": {"bandwidth": "1 GB/s", "latency_s": 50}}},
        "implausible",
        "cluster.inter_node.latency_s means 50 s, far outside the usual range (1 ns to 1 s)",
    ),
    (
        {"cluster": {"inter_node": {"bandwidth": "1 GB/s", "latency": "1 d"}}},
        "implausible",
        "cluster.inter_node.latency_s means 24 h,",
    ),
    (
        {"cluster": {"inter_node": {"bandwidth": "10 Gbit per microsecond"}}},
        "implausible",
        "cluster.inter_node.bandwidth_bytes_per_s means 10,000 Tbit/s",
    ),
    (
        {"cluster": {"intra_node": {"bandwidth_bytes_per_s": 25}}},
        "implausible",
        "cluster.intra_node.bandwidth_bytes_per_s means 200 bit/s",
    ),
    ({"cluster": {"fabric": {**LEAVES, "latency": "3 s"}}}, "implausible", "cluster.fabric.latency_s means 3 s"),
    (
        {"cluster": {"node_classes": [{"name": "old", "nodes": 2, "inter_node": {"bandwidth": "1 GB/s", "latency": "5 s"}}]}},
        "implausible",
        "cluster.node_classes.0.inter_node.latency_s means 5 s",
    ),
    ({"cluster": {"device_memory_limit": "64 PiB"}}, "implausible", "cluster.device_memory_limit_bytes means 65,536 TiB"),
    (
        {"cluster": price(usd_per_node_hour=5000)},
        "implausible",
        "cluster.price.usd_per_node_hour means $5,000",
    ),
    ({"workload": {"apply": "365 d"}}, "implausible", "workload.apply_s means 8,760 h, far outside the usual range (0.001 ns to 1 h)"),
    ({"workload": {"counted": {"flops_per_sample": 1e21}}}, "implausible", "workload.counted.flops_per_sample means"),
    ({"job": {**JOB, "faults": {"worker_mtbf": "1 ms"}}}, "implausible", "job.faults.worker_mtbf_s means 1 ms"),
    # keys that change nothing beside the others
    (
        {"strategy": {**HYBRID, "capacity": 1.25}},
        "no-effect",
        "strategy.capacity = 1.25",
    ),
    (
        {"strategy": {**HYBRID, "expert_imbalance": {"kind": "lognormal", "sigma": 0.1}}},
        "no-effect",
        'strategy.expert_imbalance = "lognormal"',
    ),
    ({"strategy": {**HYBRID, "host_factor": 10.0}}, "no-effect", "strategy.host_factor = 10"),
    ({"strategy": {**HYBRID, "prefetch": 3}}, "no-effect", "strategy.prefetch = 3"),
    ({"strategy": {**HYBRID, "weights_share": 0.3}}, "no-effect", "strategy.weights_share = 0.3"),
    (
        {"strategy": {**HYBRID, "sequence_parallel": True}},
        "no-effect",
        "strategy.sequence_parallel = true",
    ),
    ({"strategy": {**RING, "pipeline_chunk": "1 MB"}}, "no-effect", "strategy.pipeline_chunk_bytes"),
    ({"cluster": {"rails": 1}}, "no-effect", "cluster.rails = 1"),
    ({"cluster": {"pxn": False}}, "no-effect", "cluster.pxn = false"),
    ({"cluster": {"fabric": {"nodes_per_leaf": 16, "oversubscription": 4.0}}}, "no-effect", "cluster.fabric.nodes_per_leaf = 16"),
    ({"cluster": {"device_sharing": "concurrent"}}, "no-effect", "cluster.device_sharing"),
    ({"cluster": {"intra_device": {"bandwidth": "500 GB/s"}}}, "no-effect", "cluster.intra_device"),
    ({"cluster": {"time_slice": "5 ms"}}, "no-effect", "cluster.time_slice_s = 0.005"),
    ({"cluster": {"devices_per_node": 2, "devices_per_host_link": 2}}, "no-effect", "cluster.devices_per_host_link"),
    ({"run": {"sharing": "each-its-own"}}, "no-effect", 'run.sharing = "each-its-own"'),
    ({"run": {"drain": True}}, "no-effect", "run.drain = true"),
    (
        {"job": {"epochs": 3, "dataset_size": 1e4, "evaluation": {"samples": 1e3, "every_epochs": 5}}},
        "no-effect",
        "job.evaluation.every_epochs = 5",
    ),
    (
        {"job": {"epochs": 3, "dataset_size": 1e4, "checkpoint": {"every_epochs": 5, "write": "1 GB/s"}}},
        "no-effect",
        "job.checkpoint.every_epochs = 5",
    ),
    (
        {"job": {**JOB, "checkpoint": {"every_steps": 10, "snapshot": "1 s", "write": "1 GB/s"}}},
        "no-effect",
        "job.checkpoint.snapshot = ",
    ),
    ({"job": {**JOB, "faults": {"worker_mtbf": "9 h", "min_workers": 2}}}, "no-effect", "job.faults.min_workers = 2"),
    # who shares what
    (
        {"strategy": {**RING, "workers": 9}, "cluster": {"nodes": 8, "replicas_per_device": 2}},
        "shared-beside-idle",
        "up to 2 replicas share a device while 3 of 8 nodes are idle",
    ),
    ({"cluster": {"inter_node": {"bandwidth": "1 Gbit/s"}}}, "no-sort", "cluster.inter_node"),
]


def refusal(build: Callable[..., Scenario], parts: dict[str, Any]) -> str:
    with pytest.raises(ScenarioError) as refused:
        build(**{"strategy": RING, **parts})
    return str(refused.value)


@pytest.mark.parametrize(("parts", "given", "rule"), REFUSED)
def test_what_cannot_be_meant_is_refused(scenario, parts: dict[str, Any], given: str, rule: str) -> None:
    text = refusal(scenario, parts)
    assert given in text
    assert rule in text.partition(given)[2]
    assert "\n" not in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("parts", "is_valid"),
    [
        ({"cluster": {"overlap_slowdown": 1}}, True),
        ({"cluster": {"overlap_slowdown": 1.2}}, False),
        ({"cluster": price(date="list of 2024-05-01")}, True),
        ({"cluster": price(date="")}, True),
        ({"cluster": price(date="5000 USD list price")}, False),
        ({"job": {"samples": 1e6, "evaluation": {"samples": 500.0}}}, True),
        ({"job": {"samples": 1.5}}, False),
        ({"job": {"epochs": 3, "dataset_size": 50.5}}, False),
        ({"job": {"samples": 100, "evaluation": {"samples": 0.1}}}, False),
    ],
)
def test_the_schema_has_the_rules_of_the_program(scenario, parts: dict[str, Any], is_valid: bool) -> None:
    its = {key: {"inter_node": {"bandwidth": "1 GB/s"}, **table} if key == "cluster" else table for key, table in parts.items()}
    whole = {"workload": {}, "strategy": RING, **its}
    problems = [
        error
        for error in jsonschema.Draft202012Validator(schema_of("scenario")).iter_errors(whole)
        if error.path and error.path[0] in parts
    ]
    assert (not problems) is is_valid
    if is_valid:
        scenario(**{"strategy": RING, **parts})
    else:
        with pytest.raises(ScenarioError):
            scenario(**{"strategy": RING, **parts})


def told(built: Scenario) -> set[tuple[str, str]]:
    return {(warning.code, warning.text) for warning in warnings_of(Asked.of(built))}


@pytest.mark.parametrize(("parts", "code", "said"), WARNED)
def test_what_may_not_be_meant_is_warned_of(scenario, parts: dict[str, Any], code: str, said: str) -> None:
    assert [said in text for warned, text in told(scenario(**{"strategy": RING, **parts})) if warned == code].count(True) == 1


def test_each_is_told_in_a_sentence(scenario, snapshot: SnapshotAssertion) -> None:
    refused = [refusal(scenario, parts) for parts, _, _ in REFUSED]
    warned = [text for parts, code, _ in WARNED for its, text in sorted(told(scenario(**{"strategy": RING, **parts}))) if its == code]
    assert "\n".join(refused + warned) == snapshot


@pytest.mark.parametrize(
    "parts",
    [
        {"cluster": {"slow_nodes": {"share": 0.1, "factor": 1.2}, "transport": {"wire_bytes_per_byte": 1.05}, "node_speed": [1.0, 0.8]}},
        {"cluster": {"fabric": {"nodes_per_leaf": 2, "oversubscription": 4.0}}},
        {
            "cluster": {"fabric": {"nodes_per_leaf": 16, "sharp": True}},
            "strategy": {**RING, "algorithm": "sharp", "pipeline_chunk": "1 MB"},
        },
        {"cluster": {"replicas_per_device": 2, "device_sharing": "concurrent", "intra_device": {"bandwidth": "500 GB/s"}}},
        {"cluster": {"nodes": 2, "replicas_per_device": 2}},
        {"cluster": price(date="2024-05")},
        {"cluster": price(date=datetime.date(2024, 5, 1))},
        {"cluster": price(date="5000 USD in the list of 2024-05-01")},
        {"cluster": price(date="copy of no stated date, read 2026-11-21")},
        {"cluster": {"overlap_slowdown": 1.0}},
        {"job": {"epochs": 1.5, "dataset_size": 1e6, "evaluation": {"samples": 5e4}}},
        {"strategy": {"kind": "parameter-server", "mode": "async", "workers": 4}, "run": {"sharing": "each-its-own", "drain": False}},
    ],
)
def test_what_is_likely_meant_is_taken_without_a_word(scenario, parts: dict[str, Any]) -> None:
    about = {"no-effect", "as-multiple", "implausible", "shared-beside-idle", "one-switch"}
    assert not {code for code, _ in told(scenario(**{"strategy": RING, **parts}))} & about


def test_rails_that_no_fabric_joins_are_warned_of_once(scenario) -> None:
    railed = {"devices_per_node": 2, "nics_per_node": 2, "rails": 2}
    built = scenario(strategy=RING, cluster=railed)
    (text,) = (text for code, text in told(built) if code == "one-switch")
    assert text.startswith("cluster.rails = 2 ")
    assert not [its for its in Asked.of(built).assumed if its.path == "cluster.fabric"]
    for other in ({**railed, "fabric": {"nodes_per_leaf": 1}}, {**railed, "rails": 1}, {**railed, "devices_per_node": 4}):
        assert "one-switch" not in {code for code, _ in told(scenario(strategy=RING, cluster=other))}


def test_the_placement_says_how_many_replicas_a_device_has(scenario) -> None:
    shared = {"devices_per_node": 2, "replicas_per_device": 2}
    text = placement_of(scenario(strategy={**RING, "workers": 8}, cluster=shared)).text
    assert text == "8 replicas on 2 nodes with 2 devices each, 4 on each, up to 2 on a device"


@pytest.mark.parametrize(
    ("kind", "load", "where"),
    [
        ("workloads", load_workload, "workload"),
        ("clusters", load_cluster, "cluster"),
        ("inputs", load_input, "input"),
        ("faults", load_faults, "job.faults"),
        ("devices", load_accelerator, ""),
    ],
)
def test_nothing_that_comes_along_is_implausible(kind: Kind, load: Callable[[Path], Spec], where: str) -> None:
    assert [its.text for file in entries(kind).values() for its in implausible(load(file), where)] == []


def test_a_device_that_is_like_no_other_is_warned_of(tmp_path: Path) -> None:
    text = entries("devices")["t4"].read_text(encoding="utf-8").replace('memory = "16 GB"', 'memory = "64 PiB"')
    (tmp_path / "d.toml").write_text(text, encoding="utf-8")
    with pytest.warns(ReadingWarning, match=r"d.toml: memory_bytes means 65,536 TiB.*\(1 MiB to 8,192 TiB\)"):
        load_accelerator(tmp_path / "d.toml")


def test_what_simulates_nothing_warns_by_itself() -> None:
    with pytest.warns(ReadingWarning, match="cluster.inter_node.latency_s means 24 h"):
        memory("ring", {"cluster.inter_node.latency": "1 d"})


@pytest.mark.parametrize("name", [*entries("scenarios")])
def test_no_example_is_misread(name: str) -> None:
    about = {"no-effect", "as-multiple", "implausible", "shared-beside-idle", "one-switch"}
    assert not {code for code, _ in told(load_scenario(name))} & about


def test_uneven_experts_of_which_every_device_has_all_are_warned_of() -> None:
    settings = [
        ("strategy.expert", 1),
        ("strategy.shard", "optimizer"),
        ("run.memory", "ignore"),
        ("run.steps", 10),
        ("run.replications", 2),
    ]
    texts = [its.text for its in simulate(load_scenario("experts", settings)).warnings if its.code == "no-effect"]
    assert any("strategy.expert_imbalance" in text and "strategy.expert = 1" in text for text in texts)
    assert not [its for its in simulate(load_scenario("experts", settings[1:])).warnings if its.code == "no-effect"]
