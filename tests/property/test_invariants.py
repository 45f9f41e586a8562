"""Laws that hold for every scenario, over random ones."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sample_scenarios import scenario_table

from simulator import scenario_from_table, simulate
from simulator.invariants import audit

LAWS_OF_JITTER = st.sampled_from(
    [
        {"kind": "constant"},
        {"kind": "exponential"},
        {"kind": "gamma", "shape": 4.0},
        {"kind": "lognormal", "sigma": 0.5},
        {"kind": "shifted-exponential", "tail": 0.2},
        {"kind": "empirical", "values": [1.0, 1.0, 7.0]},
    ]
)
SECONDS = st.sampled_from([0.0, 1e-6, 3e-4, 2e-3])
LINKS = st.fixed_dictionaries({"bandwidth_bytes_per_s": st.sampled_from([1e7, 1e8, 1e9, 1e12]), "latency_s": SECONDS})


@st.composite
def workloads(draw):
    count = draw(st.integers(1, 6))
    sizes = draw(st.lists(st.sampled_from([4.0, 1e3, 1e5, 1e6, 3e6]), min_size=count, max_size=count))
    order = draw(st.permutations(range(count)))
    ready = sorted(draw(st.lists(st.sampled_from([0.0, 0.2, 0.5, 0.5, 0.9, 1.0]), min_size=count, max_size=count)))
    sparse = draw(st.booleans())
    variables = [{"name": f"v{i}", "size_bytes": sizes[i], "creation_index": order[i], "ready": ready[i]} for i in range(count)]
    if sparse:
        variables[0]["sparse_bytes_per_sample"] = 100.0
    return {
        "jitter": draw(LAWS_OF_JITTER),
        "apply": None,
        "apply_s": draw(SECONDS),
        "input": {"base_s": draw(SECONDS), "per_sample_s": 0.0},
        "server": {"base_s": draw(SECONDS), "per_byte_s": draw(st.sampled_from([0.0, 1e-10, 1e-9]))},
        "variables": variables,
    }


@st.composite
def scenarios(draw):
    workers = draw(st.integers(1, 9))
    load = {key: value for key, value in draw(workloads()).items() if value is not None}
    kind = draw(st.sampled_from(["single", "mirrored", "multi-worker-mirrored", "parameter-server"]))
    cluster = {
        "devices_per_node": draw(st.sampled_from([1, 2, 4])),
        "replicas_per_device": draw(st.sampled_from([1, 1, 2])),
        "node_speed": draw(st.lists(st.sampled_from([0.3, 1.0, 2.0]), max_size=3)),
        "inter_node": draw(LINKS),
        "intra_node": draw(LINKS),
    }
    bucket = draw(st.sampled_from([{}, {"bucket_size_bytes": 1e5}]))
    messages = {"messages": draw(st.booleans())}
    strategy = {"kind": kind}
    if kind == "mirrored":
        strategy |= {"replicas": min(workers, cluster["devices_per_node"] * cluster["replicas_per_device"])} | bucket | messages
    elif kind == "multi-worker-mirrored":
        strategy |= {"workers": workers} | bucket | messages
    elif kind == "parameter-server":
        strategy |= {
            "mode": draw(st.sampled_from(["sync", "async"])),
            "workers": workers,
            "servers": draw(st.integers(1, len(load["variables"]))),
            "server_placement": draw(st.sampled_from(["dedicated", "colocated"])),
            "variable_placement": draw(st.sampled_from(["round-robin", "greedy"])),
            "tensor_grouping": draw(st.sampled_from(["none", "per-server"])),
        }
    start = draw(st.sampled_from([{}, {"start": "random-phase"}, {"start": "staggered", "start_spread_s": 0.05}]))
    table = scenario_table(
        workload=load, cluster=cluster, strategy=strategy, run={"steps": 8, "warmup_steps": 2, "seed": draw(st.integers(0, 99)), **start}
    )
    del table["workload"]["apply"]
    return scenario_from_table(table, "random")


@settings(max_examples=250, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(scenarios())
def test_every_law_holds(scenario):
    recording = audit(scenario)
    assert recording.steps


@settings(max_examples=120, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(scenarios())
def test_results_are_consistent(scenario):
    result = simulate(scenario)
    parts = result.breakdown_s
    total = parts.input + parts.compute + parts.exposed_communication + parts.waiting + parts.apply
    assert total == pytest.approx(result.step_time_s.mean, rel=1e-9, abs=1e-15)
    rate = result.throughput_samples_per_s
    assert 0 <= rate.low <= rate.mean <= rate.high
    use = result.utilisation
    for share in (use.devices, use.servers, use.busiest_server):
        assert 0 <= share <= 1 + 1e-9
    # a link's bytes are counted when a message ends: one that began before the window may end in it
    assert 0 <= use.links <= use.busiest_link * (1 + 1e-12)
    assert result.scaling_efficiency.mean * result.replicas == pytest.approx(result.speedup.mean)
    # byte-identical when simulated again
    again = simulate(scenario)
    assert again.model_copy(update={"wall_time_s": None}).to_json() == result.model_copy(update={"wall_time_s": None}).to_json()


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(scenarios(), st.sampled_from([0.5, 2.0, 8.0]))
def test_time_scales(scenario, factor):
    """All bandwidths divided, all latencies and times multiplied by a power of two: all times are multiplied, exactly."""
    table = scenario.model_dump(mode="python")
    load, cluster = table["workload"], table["cluster"]
    for part in ("forward", "backward", "input"):
        for key in load[part]:
            load[part][key] *= factor
    load["apply_s"] *= factor
    for key in load["server"]:
        load["server"][key] *= factor
    for link in (cluster["inter_node"], cluster["intra_node"]):
        link["bandwidth_bytes_per_s"] /= factor
        link["latency_s"] *= factor
    if table["run"]["start_spread_s"]:
        table["run"]["start_spread_s"] *= factor
    slow, fast = simulate(scenario_from_table(table, "scaled")), simulate(scenario)
    assert slow.step_time_s.mean == pytest.approx(factor * fast.step_time_s.mean, rel=1e-9)
    assert slow.staleness == fast.staleness
