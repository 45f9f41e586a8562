"""What a training costs, against sums worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from simulator import simulate
from simulator.base.errors import ScenarioError
from simulator.results.cost import (
    cost_of_samples,
    placement_of,
    time_of_samples_s,
    usd_per_hour,
    usd_per_million_samples,
    why_no_cost,
)

PRICE = {"usd_per_node_hour": 3.6, "source": "a made-up list", "date": "2026-01-01"}
CUT = {"kind": "fixed-shards", "shards": 2}


def cluster(**more: Any) -> dict[str, Any]:
    return {"price": PRICE, **more}


@pytest.mark.parametrize(
    ("parts", "hourly"),
    [
        ({"strategy": {"kind": "single"}}, 3.6),
        ({"strategy": {"kind": "multi-worker-mirrored", "workers": 4}}, 4 * 3.6),
        # whole nodes are paid: five replicas on nodes of four devices take two
        ({"strategy": {"kind": "multi-worker-mirrored", "workers": 5}, "cluster": cluster(devices_per_node=4)}, 2 * 3.6),
        ({"strategy": {"kind": "parameter-server", "mode": "async", "workers": 4, "servers": 2, "partitioner": CUT}}, 6 * 3.6),
        (
            {
                "strategy": {
                    "kind": "parameter-server",
                    "mode": "async",
                    "workers": 4,
                    "servers": 2,
                    "partitioner": CUT,
                    "server_placement": "colocated",
                }
            },
            4 * 3.6,
        ),
        (
            {
                "strategy": {"kind": "parameter-server", "mode": "async", "workers": 4, "servers": 2, "partitioner": CUT},
                "cluster": cluster(server_price={"usd_per_node_hour": 0.5}),
            },
            4 * 3.6 + 2 * 0.5,
        ),
        # a cluster of a given size is paid as a whole
        ({"strategy": {"kind": "multi-worker-mirrored", "workers": 4}, "cluster": cluster(nodes=8)}, 8 * 3.6),
        # what is there and not taken costs nothing
        ({"strategy": {"kind": "multi-worker-mirrored", "workers": 4}, "cluster": cluster(available=8)}, 4 * 3.6),
        ({"strategy": {"kind": "multi-worker-mirrored", "workers": 4}, "cluster": cluster(nodes=6, available=8)}, 6 * 3.6),
        ({"strategy": {"kind": "multi-worker-mirrored"}, "cluster": cluster(available=5)}, 5 * 3.6),
    ],
)
def test_an_hour_costs_what_its_nodes_cost(scenario, parts, hourly):
    assert usd_per_hour(scenario(**{"cluster": cluster(), **parts})) == pytest.approx(hourly, rel=1e-12)


BOUGHT = {**PRICE, "purchase_usd": 9000.0}


@pytest.mark.parametrize(
    ("its", "said"),
    [
        ({"available": 8}, ""),
        ({"nodes": 6, "available": 8}, ", 2 nodes of the cluster idle"),
        ({"available": 4, "price": BOUGHT}, ""),
        ({"available": 5, "price": BOUGHT}, ", 1 more node idle, not charged"),
        ({"nodes": 6, "available": 8, "price": BOUGHT}, ", 2 nodes of the cluster idle, 2 more nodes idle, not charged"),
    ],
)
def test_idle_machines_are_told_where_they_cost_somebody(scenario, its, said):
    found = scenario(strategy={"kind": "multi-worker-mirrored", "workers": 4}, cluster={"price": PRICE, **its})
    assert placement_of(found).text == f"4 replicas on 4 nodes with 1 device each{said}"


def test_a_run_takes_no_more_than_there_is(scenario):
    ring = {"kind": "multi-worker-mirrored", "workers": 5}
    with pytest.raises(ScenarioError, match=r"cluster\.available \(4\) must be at least 5"):
        scenario(strategy=ring, cluster={"available": 4})
    with pytest.raises(ScenarioError, match=r"nodes \(6\).* at most available \(4\)"):
        scenario(strategy=ring, cluster={"nodes": 6, "available": 4})
    plain = scenario(strategy=ring)
    assert scenario(strategy=ring, cluster={"available": 5}).hash != plain.hash  # how many there are is part of what is asked
    assert simulate(scenario(strategy=ring, cluster={"available": 9})).throughput_samples_per_s == simulate(plain).throughput_samples_per_s


def test_servers_have_nodes_of_their_own_only_where_they_are_dedicated(scenario):
    strategy = {"kind": "parameter-server", "mode": "sync", "workers": 3, "servers": 2, "partitioner": CUT}
    assert scenario(strategy=strategy).layout.server_nodes == 2
    assert scenario(strategy={**strategy, "server_placement": "colocated"}).layout.server_nodes == 0
    assert scenario(strategy={"kind": "single"}).layout.server_nodes == 0


@pytest.mark.parametrize(
    ("servers", "said"),
    [(1, "1 parameter server on 1 separate node"), (2, "2 parameter servers on 2 separate nodes")],
)
def test_one_server_has_a_node_of_its_own_and_several_of_their_own(scenario, servers, said):
    strategy = {"kind": "parameter-server", "mode": "sync", "workers": 3, "servers": servers, "partitioner": CUT}
    assert placement_of(scenario(strategy=strategy)).text.endswith(said)


def test_time_and_cost_of_a_training_in_closed_form(scenario):
    # 3 ms + 10 samples x 300 us + 500 us apply: 6.5 ms a step of 10 samples
    result = simulate(scenario(cluster=cluster()))
    rate = 10 / 6.5e-3
    assert time_of_samples_s(result, 1e6).mean == pytest.approx(1e6 / rate, rel=1e-9)
    cost = cost_of_samples(result, 2e6)
    assert cost is not None
    assert cost.mean == pytest.approx(2e6 / rate / 3600 * 3.6, rel=1e-9)
    million = usd_per_million_samples(result)
    assert million is not None
    assert cost.mean == pytest.approx(2 * million.mean, rel=1e-12)


def test_the_interval_of_a_time_is_that_of_the_throughput_turned_round(scenario):
    result = simulate(scenario(workload={"jitter": {"kind": "lognormal", "sigma": 0.3}}, cluster=cluster(), run={"replications": 19}))
    rate, time_s = result.throughput_samples_per_s, time_of_samples_s(result, 1000.0)
    assert rate.low < rate.mean < rate.high
    assert (time_s.low, time_s.high) == pytest.approx((1000 / rate.high, 1000 / rate.low))


def test_the_mean_of_times_counts_slow_runs_in_full(scenario):
    # runs that differ by half of their mean: at the mean throughput the time would be shorter, and the cost too low
    result = simulate(scenario(workload={"run_to_run_cv": 0.5}, cluster=cluster(), run={"replications": 19}))
    times = [1e6 / rate for rate in result.throughput_of_each_replication]
    mean_s = sum(times) / len(times)
    assert time_of_samples_s(result, 1e6).mean == pytest.approx(mean_s, rel=1e-12)
    assert mean_s > 1.05 * 1e6 / result.throughput_samples_per_s.mean
    cost = cost_of_samples(result, 1e6)
    assert cost is not None
    assert cost.mean == pytest.approx(mean_s / 3600 * 3.6, rel=1e-12)


def test_a_result_without_its_replications_is_taken_at_its_mean(scenario):
    result = simulate(scenario(cluster=cluster())).model_copy(update={"throughput_of_each_replication": ()})
    assert time_of_samples_s(result, 1e6).mean == pytest.approx(1e6 / result.throughput_samples_per_s.mean, rel=1e-12)


def test_without_a_price_there_is_no_cost_but_a_reason(scenario):
    lone = scenario()
    assert usd_per_hour(lone) is None
    assert cost_of_samples(simulate(lone), 1e6) is None
    assert "'lab'" in why_no_cost(lone)
