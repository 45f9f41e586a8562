"""Parameter servers as closed queueing networks: exact mean value analysis, bounds, and Little's law.

A link that its flows share equally is a processor-sharing station, for which mean value
analysis is exact whatever the law of its demands and of the time spent elsewhere.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from support.runs import COMPUTE_S, FAST, assert_mean, recorded, steps_per_s
from support.sampling import a_few

from simulator import simulate
from simulator.engine.replication import replicate
from simulator.resolve.resolve import resolve
from tests.support.closed_forms import asynchronous_server_bound, mean_value_analysis

EXPONENTIAL = {"jitter": {"kind": "exponential"}, "apply": "0 s"}
RUN = {"steps": 330, "warmup_steps": 30}


def one_variable(size_bytes: float) -> list[dict]:
    return [{"name": "v", "size_bytes": size_bytes, "creation_index": 0, "ready": 1.0}]


@pytest.mark.statistics
@pytest.mark.parametrize(("workers", "host_bytes_per_s"), [(3, 2e9), (5, 0.8e9)])
def test_a_shared_host_link_is_two_stations_more(scenario, workers, host_bytes_per_s):
    """All devices in one node: the node's link and its one PCIe link, each with two directions, and compute."""
    cluster = {
        "devices_per_node": 6,
        "devices_per_host_link": 6,
        "host_link": {"bandwidth_bytes_per_s": host_bytes_per_s, "latency_s": 1e-4},
        "inter_node": {"bandwidth": "1 GB/s", "latency": "200 us"},
    }
    built = scenario(
        workload=EXPONENTIAL, cluster=cluster, strategy={"kind": "parameter-server", "mode": "async", "workers": workers}, run=RUN
    )
    network_s, host_s = 1e6 / 1e9, 1e6 / host_bytes_per_s
    think_s = COMPUTE_S + 2 * 1e-4 + 2 * 2e-4
    want, _ = mean_value_analysis(workers, [network_s, host_s, host_s, network_s], think_s)
    assert_mean(steps_per_s(built, 30), want)
    largest_s = max(network_s, host_s)
    assert want <= asynchronous_server_bound(workers, largest_s, think_s + 2 * (network_s + host_s) - largest_s)


@pytest.mark.statistics
@pytest.mark.parametrize("workers", [2, 8])
def test_a_host_link_of_its_own_only_delays(scenario, workers):
    """One a device: nobody else queues there, so its time belongs to the time spent elsewhere."""
    cluster = {"host_link": {"bandwidth": "2 GB/s", "latency": "100 us"}}
    built = scenario(
        workload=EXPONENTIAL, cluster=cluster, strategy={"kind": "parameter-server", "mode": "async", "workers": workers}, run=RUN
    )
    want, _ = mean_value_analysis(workers, [1e-3, 1e-3], COMPUTE_S + 2 * (0.5e-3 + 1e-4))
    assert_mean(steps_per_s(built, 30), want)


@pytest.mark.statistics
@pytest.mark.parametrize("workers", [2, 10])
def test_the_client_that_feeds_all_workers_is_a_station(scenario, workers):
    """In-graph replication: a megabyte of input for each step leaves the client by its one link."""
    load = {**EXPONENTIAL, "variables": one_variable(4.0), "input_bytes_per_sample": 1e5}
    strategy = {"kind": "parameter-server", "mode": "async", "workers": workers, "replication": "in-graph"}
    built = scenario(workload=load, strategy=strategy, run=RUN)
    want, _ = mean_value_analysis(workers, [1e-3], COMPUTE_S)
    assert_mean(steps_per_s(built, 30), want)
    assert want <= asynchronous_server_bound(workers, 1e-3, COMPUTE_S)


@pytest.mark.statistics
@pytest.mark.parametrize(("workers", "service_ms"), a_few(itertools.product([1, 3, 8, 24], [0.5, 2.0]), 3, seed=2))
def test_no_throughput_beats_the_operational_bound(scenario, workers, service_ms):
    """min(1 / D, n / (D + Z)) for the server's processor: holds for any law and any discipline, so for each replication but its ends."""
    load = {**EXPONENTIAL, "server": {"base_s": service_ms * 1e-3}}
    built = scenario(workload=load, cluster=FAST, strategy={"kind": "parameter-server", "mode": "async", "workers": workers}, run={**RUN})
    rates = steps_per_s(built, 10)
    bound = asynchronous_server_bound(workers, service_ms * 1e-3, COMPUTE_S)
    # a window cuts one step a worker at each end, and its mean compute differs from the law's by 1 / sqrt(steps)
    steps = 300 * workers
    assert np.all(rates <= 1 / (service_ms * 1e-3) * (1 + 2 / steps))
    assert rates.mean() <= bound * (1 + 4 / np.sqrt(10 * steps))


@pytest.mark.statistics
@pytest.mark.parametrize("workers", [1, 2, 4, 5, 12])
def test_deterministic_workers_reach_the_bound(scenario, workers):
    """A D/D/1 repairman: once spread out, nobody queues below n D = D + Z, and the server never idles above."""
    load = {"apply": "0 s", "server": {"base": "2 ms"}}
    built = scenario(
        workload=load,
        cluster=FAST,
        strategy={"kind": "parameter-server", "mode": "async", "workers": workers},
        run={"steps": 40, "warmup_steps": 10},
    )
    assert steps_per_s(built, 2) == pytest.approx(asynchronous_server_bound(workers, 2e-3, COMPUTE_S), rel=1e-4)


@pytest.mark.statistics
@pytest.mark.parametrize("workers", [1, 3, 4, 9])
def test_the_coordinator_hands_out_one_step_at_a_time(scenario, workers):
    """Dispatching is a station of 2 ms: never more than 500 steps a second, however many workers."""
    strategy = {"kind": "parameter-server", "mode": "async", "workers": workers, "coordinator": {"dispatch": "2 ms", "latency": "1 ms"}}
    built = scenario(workload={"apply": "0 s"}, cluster=FAST, strategy=strategy, run={"steps": 40, "warmup_steps": 10})
    assert steps_per_s(built, 2) == pytest.approx(asynchronous_server_bound(workers, 2e-3, COMPUTE_S + 1e-3), rel=1e-4)
    waited_s = workers / asynchronous_server_bound(workers, 2e-3, COMPUTE_S + 1e-3) - COMPUTE_S
    assert simulate(built).breakdown_s.waiting == pytest.approx(waited_s, rel=1e-4)


@pytest.mark.statistics
@pytest.mark.parametrize(
    ("gap_ms", "law"), a_few(itertools.product([0.0, 3.0, 30.0], [{"kind": "exponential"}, {"kind": "gamma", "shape": 9.0}]), 2, seed=2)
)
def test_who_is_not_between_two_steps_is_in_flight(scenario, gap_ms, law):
    """Little's law: updates in flight = updates a second x mean seconds from read to application = n - rate x gap."""
    load = {"apply": "0 s", "jitter": law, "server": {"base": "200 us"}}
    strategy = {"kind": "parameter-server", "mode": "async", "workers": 8, "coordinator": {"latency_s": gap_ms * 1e-3}}
    updates = recorded(scenario(workload=load, strategy=strategy, run={"steps": 1000, "warmup_steps": 1})).updates
    rate = len(updates) / (updates[-1].applied_s - updates[0].applied_s)
    in_flight = rate * np.mean([update.applied_s - update.read_s for update in updates])
    # the run cuts one step a worker at each of its ends, of 1,000
    assert in_flight == pytest.approx(8 - rate * gap_ms * 1e-3, abs=2 * 8 / 1000)
    # an update is as stale as there were other updates in flight whenever one was applied: counted the other way round
    reads = np.array([update.read_s for update in updates])
    ends = np.array([update.applied_s for update in updates])
    others = [((reads < at) & (ends > at)).sum() for at in ends]
    staleness = np.mean([update.staleness for update in updates])
    assert np.mean(others) == pytest.approx(staleness, abs=2 * 8 * 8 / 8000)


@pytest.mark.statistics
@pytest.mark.parametrize("gap_ms", [0.0, 3.0, 30.0])
def test_staleness_is_what_one_worker_fewer_has_in_flight(scenario, gap_ms):
    """The arrival theorem: whoever ends finds the others as a network of n - 1 workers is in the long run.

    So staleness is n - 1 only if no gap lies between an update and the next read; with one
    it is X (R - gap) of n - 1 workers, by mean value analysis (Sevcik and Mitrani 1981).
    """
    workers = 8
    strategy = {"kind": "parameter-server", "mode": "async", "workers": workers, "coordinator": {"latency_s": gap_ms * 1e-3}}
    built = scenario(workload=EXPONENTIAL, strategy=strategy, run={"steps": 430, "warmup_steps": 30})
    rate, _ = mean_value_analysis(workers - 1, [1e-3, 1e-3], COMPUTE_S + gap_ms * 1e-3)
    want = workers - 1 - rate * gap_ms * 1e-3
    means = [replicate(resolve(built), number).staleness.mean() for number in range(20)]
    if gap_ms:
        assert_mean(means, want)
    else:
        assert means == pytest.approx([want] * 20, abs=2 * workers / 400)


@pytest.mark.statistics
@pytest.mark.parametrize("servers", [2, 3])
def test_each_server_counts_its_own_updates(scenario, servers):
    """A server's updates are as many as all; in the mean as many by others come between a read and an application there."""
    load = {**EXPONENTIAL, "variables": [{"name": f"v{i}", "size": "1 MB", "creation_index": i, "ready": 1.0} for i in range(servers)]}
    strategy = {"kind": "parameter-server", "mode": "async", "workers": 6, "servers": servers}
    result = simulate(scenario(workload=load, strategy=strategy, run={"steps": 600, "warmup_steps": 20, "replications": 4}))
    assert len(result.staleness.per_server_mean) == servers
    for mean in result.staleness.per_server_mean:
        # a worker's parts are applied before its next read, and its own wait for the other parts is short of a step
        assert 4 <= mean <= 5 + 0.05
    assert result.staleness.mean == pytest.approx(5, abs=2 * 6 * 6 / (580 * 6))
