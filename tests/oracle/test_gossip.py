"""Decentralised training against its closed form, order statistics, and the laws of every run."""

from __future__ import annotations

import numpy as np
import pytest
from oracles.audit import audit

from paceline.planning.bounds import Ceilings
from simulator import scenario_from_table, simulate
from simulator.resolve.resolve import Asked

LOAD = {
    "name": "one-variable",
    "batch_per_replica": 10,
    "forward": {"base": "2 ms", "per_sample": "0 s"},
    "backward": {"base": "4 ms", "per_sample": "0 s"},
    "apply": "500 us",
    "variables": [{"name": "kernel", "size": "4 MB", "creation_index": 0, "ready": 1.0}],
}
RUN = {"steps": 40, "warmup_steps": 10, "replications": 3}


def scenario(workers, bandwidth="1 GB/s", latency="100 us", jitter=None, strategy=None, **cluster):
    table = {
        "workload": LOAD | ({"jitter": jitter} if jitter else {}),
        "cluster": {"name": "lab", "inter_node": {"bandwidth": bandwidth, "latency": latency}, **cluster},
        "strategy": strategy or {"kind": "gossip", "workers": workers},
        "run": RUN,
    }
    return scenario_from_table(table, "test")


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
@pytest.mark.parametrize(("bandwidth", "bytes_per_s"), [("1 GB/s", 1e9), ("10 GB/s", 1e10)])
def test_without_jitter_a_step_takes_what_the_closed_form_says(workers, bandwidth, bytes_per_s):
    beside = min(workers - 1, 2)
    communication_s = beside * 4e6 / bytes_per_s + 100e-6 if beside else 0.0
    result = simulate(scenario(workers, bandwidth))
    assert result.throughput_samples_per_s.mean == pytest.approx(workers * 10 / (max(6e-3, communication_s) + 500e-6), rel=1e-9)
    assert result.breakdown_s.exposed_communication == pytest.approx(max(communication_s - 6e-3, 0.0), abs=1e-12)
    assert result.hidden_communication_s == pytest.approx(min(communication_s, 6e-3), rel=1e-9)
    assert result.staleness.max == 0


def test_with_jitter_it_waits_for_some_but_not_for_all():
    """Between the mean of one worker's time and that of the slowest of all, which of n exponential times is 1 + 1/2 + ... + 1/n."""
    result = simulate(scenario(16, "1000000 GB/s", "0 s", {"kind": "exponential"}))
    slowest = sum(1 / place for place in range(1, 17))
    assert 1.1 * 6.5e-3 < result.step_time_s.mean < 0.9 * slowest * 6.5e-3
    assert result.breakdown_s.waiting > 0


@pytest.mark.slow
def test_it_is_faster_than_a_ring_that_waits_for_all():
    """In every run; how far the model is off of either is another matter, and of a kind that was never held against runs not known."""
    jitter = {"kind": "gamma", "shape": 4.0}
    ring = simulate(scenario(16, jitter=jitter, strategy={"kind": "multi-worker-mirrored", "workers": 16}))
    assert min(simulate(scenario(16, jitter=jitter)).throughput_of_each_replication) > max(ring.throughput_of_each_replication)


@pytest.mark.parametrize("cluster", [{}, {"devices_per_node": 2}, {"replicas_per_device": 2}, {"transport": {"cpu_per_message": "20 us"}}])
def test_every_law_holds(cluster):
    assert audit(scenario(6, jitter={"kind": "gamma", "shape": 9.0}, **cluster)).transfers


@pytest.mark.slow
def test_no_plan_discards_what_a_simulation_reaches():
    for jitter in (None, {"kind": "exponential"}):
        for node_speed in ([], [0.5, 2.0]):
            swept = [scenario(workers, jitter=jitter, node_speed=node_speed) for workers in (1, 2, 5, 12)]
            for one in swept:
                assert np.all(np.array(simulate(one).throughput_of_each_replication) <= Ceilings().of(Asked.of(one)) * (1 + 1e-9))


def test_compute_is_slower_beside_messages():
    result = simulate(scenario(8, "10 GB/s", overlap_slowdown=0.1))
    communication_s = 2 * 4e6 / 1e10 + 100e-6  # in which 1 / 1.1 of as much is computed
    assert result.step_time_s.mean == pytest.approx(6e-3 + communication_s * (1 - 1 / 1.1) + 500e-6, rel=1e-9)
