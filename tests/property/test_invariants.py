"""Laws that hold for every scenario, over random ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.audit import audit
from support.examples import examples
from support.random_scenarios import plain_scenarios

from simulator import scenario_from_table, simulate


@examples(60)
@given(plain_scenarios())
def test_every_law_holds(scenario):
    recording = audit(scenario)
    assert recording.steps


@pytest.mark.slow
@examples(40)
@given(plain_scenarios())
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
    assert again.to_json() == result.to_json()


@examples(20)
@given(plain_scenarios(), st.sampled_from([0.5, 2.0, 8.0]))
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
