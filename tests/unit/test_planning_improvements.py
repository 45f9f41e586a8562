"""What one improvement would bring, against closed forms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from support.scenarios import scenario_table

from paceline.planning import Improvement
from paceline.planning.improvements import improved
from simulator import scenario_from_table, simulate
from simulator.results.results import Failed, Failure, Result
from simulator.results.what_if import with_compute, with_latency, with_network
from simulator.scenario import Scenario
from tests.support.closed_forms import ring_all_reduce_s

RING = {"kind": "multi-worker-mirrored", "workers": 4}
ASYNC = {"kind": "parameter-server", "mode": "async", "workers": 4, "servers": 1}
LINK = {"bandwidth": "1 GB/s", "latency": "1 ms"}


def run(scenarios: Sequence[Scenario]) -> list[Result | Failure]:
    return [simulate(scenario) for scenario in scenarios]


def changes_of(strategy: dict[str, Any], **parts: Any) -> dict[str, Improvement]:
    scenario = scenario_from_table(scenario_table(strategy=strategy, **parts), "test")
    found = tuple(one for _, one in improved(scenario, simulate(scenario), run))
    gains = [one.gain if one.gain is not None else float("-inf") for one in found]
    assert gains == sorted(gains, reverse=True)
    return {one.name: one for one in found}


def step_s(*, compute: float = 1.0, samples: int = 10, bandwidth: float = 1e9, latency: float = 1e-3) -> float:
    """Of a ring of 4 with 1 MB of gradients: closed form."""
    return compute * (3.5e-3 + samples * 0.3e-3) + ring_all_reduce_s(4, 1e6, bandwidth, latency)


def test_each_gain_of_a_ring_is_that_of_its_closed_form() -> None:
    found = changes_of(RING, cluster={"inter_node": LINK})
    before = 10 / step_s()
    for name, rate in {
        "2x network": 10 / step_s(bandwidth=2e9),
        "half latency": 10 / step_s(latency=0.5e-3),
        "2x device": 10 / step_s(compute=0.5),
        "2x batch": 20 / step_s(samples=20),
    }.items():
        assert found[name].gain == pytest.approx(rate / before - 1, rel=1e-9), name
        assert found[name].throughput_samples_per_s is not None
    assert found["2x device"].bottleneck == "communication"
    assert "the limit moves from" in found["2x batch"].text or "limits before and after" in found["2x batch"].text
    assert found["one more PS"].gain is None
    assert found["one more PS"].text == "nothing to gain: this strategy has no parameter servers"
    assert found["mixed precision"].gain is None
    assert "neither cluster nor workload names a device" in found["mixed precision"].text


def test_limits_in_balance_are_both_told_before_and_after() -> None:
    scenario = scenario_from_table(scenario_table(strategy=RING, cluster={"inter_node": LINK}), "test")
    base = simulate(scenario)
    even = base.model_copy(update={"bottleneck": base.bottleneck.model_copy(update={"balance": "input"})})
    both = f"{base.bottleneck.group} and input"

    def all_even(scenarios: Sequence[Scenario]) -> list[Result | Failure]:
        return [even for _ in scenarios]

    told = {one.name: one.text for _, one in improved(scenario, even, run)}
    assert any(f"the limit moves from {both} to " in text for text in told.values()), told
    stay = {one.name: one for _, one in improved(scenario, even, all_even)}["2x network"]
    assert f"; {both} limit before and after" in stay.text
    assert stay.bottleneck == both


def test_a_server_more_costs_a_node_and_helps_where_servers_limit() -> None:
    variables = [{"name": f"v{index}", "size": "1 kB", "creation_index": index, "ready": (index + 1) / 2} for index in range(2)]
    load = {"variables": variables, "server": {"base": "5 ms", "per_byte_s": 0.0}}
    cluster = {"nodes": 5, "price": {"usd_per_node_hour": 3.0}, "inter_node": {"bandwidth": "100 GB/s", "latency": "0 s"}}
    more = changes_of(ASYNC, workload=load, cluster=cluster)["one more PS"]
    # 10 ms of one server a step, of either of two 5 ms, while four workers ask every 6 ms at the most
    assert more.gain == pytest.approx(1.0, rel=0.05)
    assert more.usd_per_hour == 18.0
    assert "1 to 2 parameter servers on its own node" in more.text


def test_a_server_more_takes_an_idle_node_first() -> None:
    variables = [{"name": f"v{index}", "size": "1 kB", "creation_index": index, "ready": (index + 1) / 2} for index in range(2)]
    more = changes_of(ASYNC, workload={"variables": variables}, cluster={"nodes": 6, "price": {"usd_per_node_hour": 3.0}})["one more PS"]
    assert (more.usd_per_hour, more.nodes) == (18.0, 6)
    assert "cluster.nodes" not in more.text


def test_what_a_rule_forbids_or_cannot_be_gained_carries_the_reason() -> None:
    found = changes_of(ASYNC, workload={"precision": "mixed_float16"})
    assert found["one more PS"].gain is None
    assert found["one more PS"].text.startswith("not possible: ")
    assert "must be at most 1, the number of the workload's variables" in found["one more PS"].text
    assert found["half latency"].text == "nothing to gain: the cluster's latency between nodes is 0"
    assert found["mixed precision"].text == "nothing to gain: the workload was measured in mixed_float16"
    alone = changes_of({"kind": "single"})
    assert alone["2x network"].text == "nothing to gain: all devices are on one node"


def test_mixed_precision_is_a_cited_range_that_widens_the_interval() -> None:
    found = changes_of(RING, cluster={"inter_node": {"bandwidth": "1000 Tbit/s", "latency": "0 s"}, "device": "Tesla V100-SXM2"})
    mixed = found["mixed precision"]
    assert mixed.gain is not None
    assert mixed.throughput_samples_per_s is not None
    rate = mixed.throughput_samples_per_s
    assert rate.low < rate.mean < rate.high
    assert mixed.gain_low is not None
    assert mixed.gain_high is not None
    assert mixed.gain_low < mixed.gain < mixed.gain_high, "from the low end of the range to its high end"
    assert "published pairs" in mixed.text
    assert "gradients stay float32" in mixed.text


@pytest.mark.slow
def test_each_gain_is_that_of_pairs_of_runs() -> None:
    """What the fit leaves open of the device stays out of what another network brings."""
    load = {
        "uncertainty": {"parameters": ["forward.base_s"], "draws": [[1e-3], [4e-3], [8e-3]]},
        "jitter": {"kind": "lognormal", "sigma": 0.1},
    }
    table = scenario_table(workload=load, strategy=RING, cluster={"inter_node": LINK}, run={"replications": 19})
    scenario = scenario_from_table(table, "test")
    base = simulate(scenario)
    found = {one.name: one for _, one in improved(scenario, base, run)}
    for name, change in (("2x network", with_network(scenario, 2.0)), ("2x device", with_compute(scenario, 0.5))):
        pairs = zip(simulate(change).throughput_of_each_replication, base.throughput_of_each_replication, strict=True)
        gains = [ours / theirs - 1 for ours, theirs in pairs]
        one = found[name]
        assert (one.gain_low, one.gain_high) == pytest.approx((min(gains), max(gains))), "19 runs: the least and the largest"
        assert one.gain == pytest.approx(sum(gains) / 19)
    assert found["2x network"].throughput_samples_per_s is not None
    rate, effect = found["2x network"].throughput_samples_per_s, found["2x network"].effect
    assert effect is not None
    assert (effect.high - effect.low) / effect.mean < (rate.high - rate.low) / rate.mean / 3
    assert found["one more PS"].effect is None


def test_a_change_that_cannot_be_simulated_says_so() -> None:
    scenario = scenario_from_table(scenario_table(strategy=RING), "test")

    def failing(scenarios: Sequence[Scenario]) -> list[Result | Failure]:
        failed = Failed(kind="DeadlockError", text="everybody waits")
        return [Failure(scenario_hash=its.hash, scenario=its, failed=failed) for its in scenarios]

    for _, one in improved(scenario, simulate(scenario), failing):
        assert one.gain is None
        assert one.throughput_samples_per_s is None
    texts = {one.name: one.text for _, one in improved(scenario, simulate(scenario), failing)}
    assert texts["2x device"].endswith("it could not be simulated: everybody waits")


def test_what_the_fit_leaves_open_is_changed_as_well() -> None:
    load = {"uncertainty": {"parameters": ["forward.base_s", "run_to_run_cv"], "draws": [[0.004, 0.1], [0.002, 0.2]]}}
    cluster = {
        "uncertainty": {"parameters": ["inter_node.bandwidth_bytes_per_s"], "draws": [[1e9], [2e9]]},
        "node_classes": [{"name": "odd", "nodes": 1, "inter_node": {"bandwidth": "3 GB/s", "latency": "2 ms"}}],
        "fabric": {"nodes_per_leaf": 2, "latency": "4 us"},
    }
    scenario = scenario_from_table(scenario_table(strategy=RING, workload=load, cluster=cluster), "test")
    slower = with_compute(scenario, 0.5).workload
    assert slower.uncertainty is not None
    assert slower.uncertainty.draws == ((0.002, 0.1), (0.001, 0.2))
    assert slower.server == scenario.workload.server
    faster = with_network(scenario, 2.0).cluster
    assert faster.uncertainty is not None
    assert faster.uncertainty.draws == ((2e9,), (4e9,))
    assert faster.node_classes[0].inter_node is not None
    assert faster.node_classes[0].inter_node.bandwidth_bytes_per_s == 6e9
    assert faster.node_classes[0].inter_node.latency_s == 2e-3
    nearer = with_latency(scenario, 0.5).cluster
    assert nearer.fabric is not None
    assert nearer.fabric.latency_s == 2e-6
    assert nearer.node_classes[0].inter_node is not None
    assert nearer.node_classes[0].inter_node.latency_s == 1e-3
