"""Every strategy without jitter against its closed form, to 1e-9."""

from __future__ import annotations

import numpy as np
import pytest

from simulator import simulate
from tests.support.closed_forms import ring_all_reduce_s, single_connection_step_s, sync_in_phase_step_s, uneven_ring_step_s

COMPUTE_S = 1e-3 + 2e-3 + 10 * 300e-6
APPLY_S = 500e-6
GIGA = 1e9


def near(value: float):
    return pytest.approx(value, rel=1e-9)


def variables(*sizes: float) -> list[dict]:
    return [{"name": f"v{i}", "size_bytes": size, "creation_index": i, "ready": 1.0} for i, size in enumerate(sizes)]


def test_single_is_compute_and_apply(scenario):
    result = simulate(scenario())
    assert result.step_time_s.mean == near(COMPUTE_S + APPLY_S)
    assert result.throughput_samples_per_s.mean == near(10 / (COMPUTE_S + APPLY_S))
    assert result.speedup.mean == near(1.0)
    assert result.scaling_efficiency.mean == near(1.0)
    assert result.staleness.mean == 0


@pytest.mark.parametrize("messages", [False, True])
@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
@pytest.mark.parametrize("kind", ["mirrored", "multi-worker-mirrored"])
def test_ring_is_compute_reduce_apply(scenario, kind, ranks, messages):
    size = {"replicas": ranks} if kind == "mirrored" else {"workers": ranks}
    link = {"bandwidth": "1 GB/s", "latency": "20 us"}
    result = simulate(
        scenario(
            strategy={"kind": kind, "detail": "messages" if messages else "auto", **size},
            cluster={"devices_per_node": 8 if kind == "mirrored" else 1, "inter_node": link, "intra_node": link},
        )
    )
    ring_s = ring_all_reduce_s(ranks, 1e6, GIGA, 20e-6)
    assert result.step_time_s.mean == near(COMPUTE_S + ring_s + APPLY_S)
    assert result.breakdown_s.exposed_communication == pytest.approx(ring_s, rel=1e-9, abs=1e-15)
    assert result.throughput_samples_per_s.mean == near(ranks * 10 / (COMPUTE_S + ring_s + APPLY_S))
    assert result.updates_per_s.mean == near(1 / (COMPUTE_S + ring_s + APPLY_S))


def test_ring_of_one_equals_single_exactly(scenario):
    jitter = {"jitter": {"kind": "gamma", "shape": 5.0}}
    alone = simulate(scenario(workload=jitter))
    ring = simulate(scenario(workload=jitter, strategy={"kind": "multi-worker-mirrored", "workers": 1}))
    assert ring.throughput_samples_per_s == alone.throughput_samples_per_s
    assert ring.step_time_s == alone.step_time_s


def test_overlapped_buckets_hide_communication(scenario):
    """Two buckets, the first ready halfway: hand-computed. The second waits for the wire only if the first is still on it."""
    load = {
        "variables": [
            {"name": "late", "size": "4 MB", "creation_index": 1, "ready": 0.5},
            {"name": "early", "size": "2 MB", "creation_index": 0, "ready": 1.0},
        ]
    }
    strategy = {"kind": "multi-worker-mirrored", "workers": 2, "bucket_size": "2 MB"}
    result = simulate(scenario(workload=load, strategy=strategy))
    forward_s, backward_s = 2e-3, 4e-3
    first_done_s = forward_s + 0.5 * backward_s + 4e6 / GIGA
    end_s = max(first_done_s, forward_s + backward_s) + 2e6 / GIGA
    assert result.step_time_s.mean == near(end_s + APPLY_S)


@pytest.mark.parametrize("grouping", ["none", "per-server"])
@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("sizes", [(1e6,), (1e6, 3e6, 0.2e6), (1e3, 5e6)])
def test_one_worker_one_server(scenario, sizes, mode, grouping):
    cost = {"base": "100 us", "per_byte_s": 2e-10}
    result = simulate(
        scenario(
            workload={"variables": variables(*sizes), "server": cost},
            cluster={"inter_node": {"bandwidth": "1 GB/s", "latency": "30 us"}},
            strategy={"kind": "parameter-server", "mode": mode, "workers": 1, "grouping": grouping},
        )
    )
    services = [100e-6 + 2e-10 * size for size in sizes]
    pushes = list(sizes)
    if grouping == "per-server":
        pushes, services = [sum(pushes)], [sum(services)]
    if mode == "async":
        want = single_connection_step_s(sum(sizes), pushes, COMPUTE_S, services, GIGA, 30e-6)
        assert result.step_time_s.mean == near(want)
    else:
        # a gradient is accumulated, then applied, which doubles each service in the same queue
        wire_s = np.cumsum(pushes) / GIGA + 30e-6
        free_s, queue = 0.0, sorted((at_s, 0, k) for k, at_s in enumerate(wire_s))
        while queue:
            at_s, stage, k = queue.pop(0)
            free_s = max(free_s, at_s) + services[k]
            if stage == 0:
                queue = sorted([*queue, (free_s, 1, k)])
        want = sum(sizes) / GIGA + 30e-6 + COMPUTE_S + free_s
        assert result.step_time_s.mean == near(want)


@pytest.mark.parametrize("workers", [1, 2, 5, 16])
def test_synchronous_workers_in_phase(scenario, workers):
    result = simulate(
        scenario(
            workload={"server": {"base": "50 us"}},
            cluster={"inter_node": {"bandwidth": "1 GB/s", "latency": "10 us"}},
            strategy={"kind": "parameter-server", "mode": "sync", "workers": workers},
        )
    )
    want = sync_in_phase_step_s(workers, 1e6, COMPUTE_S, 50e-6, GIGA, 10e-6)
    assert result.step_time_s.mean == near(want)
    assert result.throughput_samples_per_s.mean == near(10 * workers / want)
    assert result.updates_per_s.mean == near(1 / want)
    assert result.staleness.max == 0


@pytest.mark.parametrize("servers", [1, 2, 4])
def test_servers_divide_the_work(scenario, servers):
    """Equal variables on as many servers: each server's link carries its part; a worker's own link then is the limit of one worker."""
    result = simulate(
        scenario(
            workload={"variables": variables(1e6, 1e6, 1e6, 1e6)},
            strategy={"kind": "parameter-server", "mode": "sync", "workers": 4, "servers": servers, "grouping": "per-server"},
        )
    )
    assert result.step_time_s.mean == near(COMPUTE_S + 2 * 4 * 4e6 / servers / GIGA)


def test_asynchronous_workers_in_phase(scenario):
    """Deterministic workers that start together stay together: n S / B each way."""
    result = simulate(scenario(strategy={"kind": "parameter-server", "mode": "async", "workers": 4}))
    step_s = COMPUTE_S + 2 * 4 * 1e6 / GIGA
    assert result.step_time_s.mean == near(step_s)
    assert result.updates_per_s.mean == near(4 / step_s)
    assert "phase-locked" in {warning.code for warning in result.warnings}


def test_asynchronous_workers_in_opposite_phase(scenario):
    """One worker that starts half a step later never meets the other: S / B each way."""
    alone_s = COMPUTE_S + 2 * 1e6 / GIGA
    spread = {"start": "staggered", "start_spread_s": alone_s, "steps": 40, "warmup_steps": 10, "replications": 20}
    result = simulate(scenario(strategy={"kind": "parameter-server", "mode": "async", "workers": 2}, run=spread))
    # each replication is one of the two regimes or in between; the best ones are the opposite phase
    assert result.throughput_samples_per_s.high == pytest.approx(2 * 10 / alone_s, rel=0.02)
    assert result.throughput_samples_per_s.low > 10 * 2 / (COMPUTE_S + 4 * 1e6 / GIGA) * 0.99


def test_strong_scaling_divides_the_batch(scenario):
    load = {"batch_per_replica": None, "global_batch": 40}
    table = {key: value for key, value in load.items() if value is not None}
    build = scenario(workload={**table, "batch_per_replica": None}, strategy={"kind": "multi-worker-mirrored", "workers": 4})
    result = simulate(build)
    assert build.batch == 10
    alone_s = 3e-3 + 40 * 300e-6 + APPLY_S
    step_s = COMPUTE_S + ring_all_reduce_s(4, 1e6, GIGA, 0.0) + APPLY_S
    assert result.speedup.mean == near(alone_s / step_s)


@pytest.mark.parametrize("sharing", [1, 2, 4])
def test_replicas_share_a_device_equally(scenario, sharing):
    result = simulate(
        scenario(
            cluster={"devices_per_node": 1, "replicas_per_device": sharing, "intra_node": {"bandwidth": "1000000 GB/s"}},
            strategy={"kind": "mirrored", "replicas": sharing},
        )
    )
    assert result.step_time_s.mean == pytest.approx(sharing * (COMPUTE_S + APPLY_S), rel=1e-5)
    assert result.utilisation.devices == pytest.approx(1.0, rel=1e-4)


def test_input_that_is_slower_than_the_step_sets_the_pace(scenario):
    result = simulate(scenario(workload={"input": {"base": "20 ms", "per_sample": "0 s"}}))
    assert result.step_time_s.mean == near(20e-3)
    assert result.bottleneck.name == "input"


def test_a_slow_node_sets_the_pace_of_a_ring(scenario):
    result = simulate(scenario(cluster={"node_speed": [1.0, 0.5]}, strategy={"kind": "multi-worker-mirrored", "workers": 3}))
    slow_s = 2 * (COMPUTE_S + APPLY_S)
    assert result.step_time_s.p50 >= slow_s
    assert result.breakdown_s.waiting > 0


@pytest.mark.parametrize("speeds", [[1.0, 0.4, 1.3, 0.9, 1.0], [0.2], [1.0, 1.0, 3.0]])
@pytest.mark.parametrize("bucket", [None, 0.9e6])
@pytest.mark.parametrize("per_node", [1, 2])
def test_ring_of_times_equals_ring_of_messages(scenario, speeds, bucket, per_node):
    """The recurrence against every message through the network: unequal ranks, buckets, hops inside and between nodes."""
    load = {
        "jitter": {"kind": "gamma", "shape": 3.0},
        "variables": [{"name": f"v{i}", "size_bytes": 0.5e6 * (i + 1), "creation_index": i, "ready": (i + 1) / 4} for i in range(4)],
    }
    cluster = {
        "devices_per_node": per_node,
        "node_speed": speeds,
        "inter_node": {"bandwidth": "1 GB/s", "latency": "50 us"},
        "intra_node": {"bandwidth": "3 GB/s", "latency": "5 us"},
    }
    strategy = {"kind": "multi-worker-mirrored", "workers": 6, **({"bucket_size_bytes": bucket} if bucket else {})}
    times = simulate(scenario(workload=load, cluster=cluster, strategy=strategy))
    messages = simulate(scenario(workload=load, cluster=cluster, strategy={**strategy, "detail": "messages"}))
    assert times.step_time_s.mean == near(messages.step_time_s.mean)
    assert times.throughput_samples_per_s.mean == near(messages.throughput_samples_per_s.mean)
    # bytes are counted when all ranks have joined, or message by message: at most one of the window's 18 steps apart
    assert times.utilisation.links == pytest.approx(messages.utilisation.links, rel=1 / 18)


@pytest.mark.parametrize("messages", [False, True])
@pytest.mark.parametrize(("nodes", "devices"), [(2, 4), (2, 8), (8, 2)])
def test_ring_with_slow_hops_takes_what_they_take(scenario, nodes, devices, messages):
    """A rank that has its result still sends: the next step does not begin before its link is free."""
    ranks, compute_s = nodes * devices, COMPUTE_S + APPLY_S
    result = simulate(
        scenario(
            workload={"variables": variables(1e8)},
            cluster={"devices_per_node": devices, "inter_node": {"bandwidth": "10 Gbit/s"}, "intra_node": {"bandwidth": "16 GB/s"}},
            strategy={"kind": "multi-worker-mirrored", "workers": ranks, "detail": "messages" if messages else "auto"},
        )
    )
    assert ranks * 10 / result.throughput_samples_per_s.mean == near(uneven_ring_step_s(ranks, 1e8, 1.25e9, compute_s))
    assert result.hidden_communication_s == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("messages", [False, True])
def test_an_oversubscribed_fabric_is_a_slow_hop(scenario, messages):
    result = simulate(
        scenario(
            workload={"variables": variables(1e8)},
            cluster={
                "inter_node": {"bandwidth": "10 Gbit/s"},
                "fabric": {"nodes_per_leaf": 4, "oversubscription": 6.0},
            },
            strategy={"kind": "multi-worker-mirrored", "workers": 8, "detail": "messages" if messages else "auto"},
        )
    )
    # a leaf's links to the spine carry one hop of the ring: 4 x 1.25 GB/s / 6
    assert 80 / result.throughput_samples_per_s.mean == near(uneven_ring_step_s(8, 1e8, 4 * 1.25e9 / 6, COMPUTE_S + APPLY_S))


@pytest.mark.parametrize("messages", [False, True])
@pytest.mark.parametrize("every", [1, 7, 16, 50, 60, 90])
def test_local_sgd_measures_whole_averaging_periods(scenario, every, messages):
    """100 steps, the first ten or more not measured: each measured average belongs to as many steps as lie between two."""
    result = simulate(
        scenario(
            workload={"variables": variables(4e9)},
            strategy={"kind": "multi-worker-mirrored", "workers": 8, "sync_every": every, "detail": "messages" if messages else "auto"},
            run={"steps": 100, "warmup_steps": None},
        )
    )
    step_s = COMPUTE_S + APPLY_S + ring_all_reduce_s(8, 4e9, GIGA, 0.0) / every
    assert 80 / result.throughput_samples_per_s.mean == near(step_s)
    assert result.step_time_s.mean == near(step_s)
    assert result.updates_per_s.mean == near(1 / step_s / every)
