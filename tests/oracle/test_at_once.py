"""All ranks at once against every rank as a process whose messages cross the network one by one."""

from __future__ import annotations

import itertools
from typing import get_args

import pytest
from support.sampling import a_few

from simulator import simulate
from simulator.collectives.factory import IN_SWITCHES
from simulator.strategies.all_reduce import Algorithm
from tests.support.closed_forms import ring_all_reduce_s

VARIABLES = [{"name": f"v{i}", "size_bytes": 0.5e6 * (i + 1), "creation_index": i, "ready": (i + 1) / 4} for i in range(4)]
CLASSES = [
    {"name": "slow", "nodes": 1, "speed": 0.4},
    {"name": "jittery", "nodes": 1, "jitter": {"kind": "exponential"}, "inter_node": {"bandwidth": "0.7 GB/s", "latency": "90 us"}},
    {"name": "bursts", "nodes": 1, "slowdown": {"factor": 3.0, "mean_slow_steps": 3.0, "mean_normal_steps": 6.0}},
]
LINKS = {"inter_node": {"bandwidth": "1 GB/s", "latency": "50 us"}, "intra_node": {"bandwidth": "3 GB/s", "latency": "5 us"}}
CASES = {
    "plain": ({}, {}, {}),
    "buckets": ({"bucket_size_bytes": 0.9e6}, {}, {}),
    "every tensor": ({"bucket_size_bytes": 1.0}, {}, {}),
    "two a node": ({"bucket_size_bytes": 0.9e6}, {"devices_per_node": 2}, {}),
    "three NICs": ({}, {"nics_per_node": 3}, {}),
    "LL128": ({"protocol": "ll128"}, {}, {}),
    "staggered": ({"bucket_size_bytes": 0.9e6}, {}, {"start": "staggered", "start_spread": "30 ms"}),
    "random phase": ({}, {}, {"start": "random-phase"}),
    "local SGD": ({"sync_every": 3}, {}, {}),
    "local SGD, staggered": ({"sync_every": 3}, {}, {"start": "staggered", "start_spread": "30 ms"}),
}
INPUTS = {"no input": {}, "slow input": {"input": {"base": "9 ms", "per_sample": "0 s"}}}


@pytest.mark.slow
@pytest.mark.parametrize(("case", "nodes", "feed"), a_few(itertools.product(CASES, ("equal", "different"), INPUTS), 16))
def test_at_once_is_rank_by_rank(scenario, case, nodes, feed):
    strategy, cluster, run = CASES[case]
    load = {"jitter": {"kind": "gamma", "shape": 3.0}, "variables": VARIABLES, **INPUTS[feed]}
    classes = {"node_classes": CLASSES} if nodes == "different" else {}
    parts = {"workload": load, "cluster": {**LINKS, **cluster, **classes}, "run": {"steps": 33, "warmup_steps": 3, **run}}
    ring = {"kind": "multi-worker-mirrored", "workers": 6, **strategy}
    at_once = simulate(scenario(**parts, strategy=ring))
    one_by_one = simulate(scenario(**parts, strategy={**ring, "detail": "messages"}))
    assert at_once.throughput_of_each_replication == pytest.approx(one_by_one.throughput_of_each_replication, rel=1e-9)
    assert at_once.step_time_s.model_dump() == pytest.approx(one_by_one.step_time_s.model_dump(), rel=1e-9)
    assert at_once.breakdown_s.model_dump() == pytest.approx(one_by_one.breakdown_s.model_dump(), rel=1e-9, abs=1e-15)
    assert at_once.hidden_communication_s == pytest.approx(one_by_one.hidden_communication_s, rel=1e-9, abs=1e-15)
    assert at_once.updates_per_s.mean == pytest.approx(one_by_one.updates_per_s.mean, rel=1e-9)
    # all at once, a device's use is counted step by step: a part of one of the 30 more or less at each end of the window
    assert at_once.utilisation.devices == pytest.approx(one_by_one.utilisation.devices, abs=2 / 30)


@pytest.mark.parametrize("algorithm", [name for name in get_args(Algorithm) if name not in IN_SWITCHES])
@pytest.mark.parametrize("kind", ["multi-worker-mirrored", "mirrored"])
def test_one_worker_is_a_single_replica_exactly(scenario, algorithm, kind):
    load = {"jitter": {"kind": "lognormal", "sigma": 0.4}, "variables": VARIABLES, "input": {"base": "6 ms", "per_sample": "0 s"}}
    size = {"workers": 1} if kind == "multi-worker-mirrored" else {"replicas": 1}
    alone = simulate(scenario(workload=load))
    ring = simulate(scenario(workload=load, strategy={"kind": kind, "algorithm": algorithm, **size}))
    for key in ("throughput_of_each_replication", "updates_per_s", "step_time_s", "breakdown_s", "speedup", "staleness"):
        assert getattr(ring, key) == getattr(alone, key)


def test_ranks_that_share_a_device_take_equal_parts_of_it(scenario):
    """Rank by rank without messages: two a device, so everything that computes takes twice as long."""
    cluster = {**LINKS, "replicas_per_device": 2, "intra_node": {"bandwidth": "1 GB/s", "latency": "50 us"}}
    result = simulate(scenario(cluster=cluster, strategy={"kind": "multi-worker-mirrored", "workers": 4}))
    assert result.step_time_s.mean == pytest.approx(2 * 6.5e-3 + ring_all_reduce_s(4, 1e6, 1e9, 50e-6), rel=1e-9)


@pytest.mark.parametrize("steps", [(34, 4), (33, 4), (34, 3)])
def test_local_sgd_counts_whole_steps_wherever_the_window_lies(scenario, steps):
    """A window that does not begin or end with an average: as many steps, whose mean time is that of other windows to a step's spread."""
    strategy = {"kind": "multi-worker-mirrored", "workers": 6, "sync_every": 3}
    load = {"jitter": {"kind": "gamma", "shape": 3.0}, "variables": VARIABLES}
    run = {"steps": steps[0], "warmup_steps": steps[1]}
    at_once, one_by_one = (
        simulate(scenario(workload=load, cluster=LINKS, strategy={**strategy, "detail": detail}, run=run))
        for detail in ("auto", "messages")
    )
    # the windows of ranks at once begin and end with the slowest rank's step, the others with as many steps, whosesoever
    assert at_once.throughput_samples_per_s.mean == pytest.approx(one_by_one.throughput_samples_per_s.mean, rel=2 / 30)


@pytest.mark.statistics
@pytest.mark.parametrize("steps", [90, 95, 100, 104])
def test_local_sgd_by_messages_is_no_slower_where_steps_are_no_multiple(scenario, steps):
    """In the mean over runs: the window closes amid the steps of ranks that are ahead, as it opens."""
    strategy = {"kind": "multi-worker-mirrored", "workers": 8, "sync_every": 10}
    load = {"jitter": {"kind": "exponential"}, "variables": VARIABLES}
    run = {"steps": steps, "warmup_steps": 10, "replications": 60}
    at_once, one_by_one = (
        simulate(scenario(workload=load, cluster=LINKS, strategy={**strategy, "detail": detail}, run=run))
        for detail in ("auto", "messages")
    )
    assert one_by_one.throughput_samples_per_s.mean == pytest.approx(at_once.throughput_samples_per_s.mean, rel=0.01)
