"""Placement of variables by the traffic that they cause, and the warning where it piles up."""

from __future__ import annotations

import pytest

from simulator import Result, scenario_from_table, simulate
from simulator.spec.gradients import place


def _recommender(placement: str, engine: str = "auto") -> Result:
    """Twelve large sparse variables, then eight small dense ones, which are nearly all that travels; 16 servers."""
    sparse = [{"name": f"s{n}", "size": "400 MB", "creation_index": n, "ready": 1.0, "sparse_bytes_per_sample": 256.0} for n in range(12)]
    dense = [{"name": f"d{n}", "size": "8 MB", "creation_index": 12 + n, "ready": 0.5} for n in range(8)]
    table = {
        "workload": {
            "batch_per_replica": 1024,
            "forward": {"base": "5 ms", "per_sample": "0 s"},
            "backward": {"base": "10 ms", "per_sample": "0 s"},
            "variables": [*dense, *sparse],
        },
        "cluster": {"use": "ethernet-25g"},
        "strategy": {"kind": "parameter-server", "mode": "async", "workers": 8, "servers": 16, "variable_placement": placement},
        "run": {"steps": 20, "replications": 2, "seed": 1, "engine": engine},
    }
    return simulate(scenario_from_table(table, "test"))


def test_greedy_placement_takes_the_least_load_whatever_it_is_of():
    """As GreedyLoadBalancingStrategy does with any load_fn: the first of the least loaded."""
    assert place([4.0, 1.0, 1.0, 3.0], 2, "traffic") == [0, 1, 1, 1] == place([4.0, 1.0, 1.0, 3.0], 2, "greedy")


def test_dense_variables_that_bytes_pile_on_few_servers_are_named_and_spread_by_traffic():
    """By bytes 8 dense variables of 8 MB fall on the 4 servers without a sparse one: two each, 32 MB pulled and pushed."""
    by_bytes, by_traffic = _recommender("greedy"), _recommender("traffic")
    (told,) = [warning for warning in by_bytes.warnings if warning.code == "piled-traffic"]
    assert told.value == pytest.approx(32e6 / ((8 * 16e6 + 12 * 2 * 256 * 1024) / 16))
    assert 'variable_placement = "traffic"' in told.text
    assert by_traffic.throughput_samples_per_s.mean > by_bytes.throughput_samples_per_s.mean


def test_both_engines_place_by_traffic_alike():
    simple, compiled = _recommender("traffic", "simpy"), _recommender("traffic", "compiled")
    assert simple.throughput_of_each_replication == pytest.approx(compiled.throughput_of_each_replication, rel=1e-9)
