"""What is counted as what: windows, waiting, hidden communication, input, and the resource that limits."""

from __future__ import annotations

import pytest

from simulator import simulate
from simulator.engine.replication import replicate
from simulator.observing.recording import Recording
from simulator.resolve.resolve import resolve

VARIABLES = [{"name": f"v{i}", "size_bytes": 10e6, "creation_index": 3 - i, "ready": (i + 1) / 4} for i in range(4)]
RING = {"kind": "multi-worker-mirrored"}
ASYNC = {"kind": "parameter-server", "mode": "async"}


def near(value: float):
    return pytest.approx(value, rel=1e-9)


def test_steps_that_end_with_the_first_finisher_count(scenario):
    """Equal workers end their last step in the same instant, whichever of them is looked at first."""
    parts = {"strategy": {**ASYNC, "workers": 16}}
    run = {"steps": 10, "warmup_steps": 0}
    own = simulate(scenario(**parts, run={**run, "sharing": "each-its-own"}))
    shared = simulate(scenario(**parts, run=run))
    assert own.throughput_samples_per_s.mean == near(shared.throughput_samples_per_s.mean)


def test_a_client_prepares_one_batch_after_the_other_while_variables_are_pulled(scenario):
    """Three workers, 50 ms to prepare a batch: one step a 50 ms; alone, a step is the longer of pull and feed, compute and push."""
    load = {"input": {"base": "50 ms", "per_sample": "0 s"}, "input_bytes_per_sample": 1e6}
    strategy = {**ASYNC, "replication": "in-graph"}
    several = simulate(scenario(workload=load, strategy={**strategy, "workers": 3}))
    assert several.updates_per_s.mean == pytest.approx(20.0, rel=0.02)  # the window ends within a round
    alone = simulate(scenario(workload=load, strategy={**strategy, "workers": 1}))
    assert alone.step_time_s.mean == near(0.05 + 10 * 1e6 / 1e9 + 6e-3 + 1e6 / 1e9)


@pytest.mark.at_once
def test_standing_still_for_the_slowest_is_waiting_in_the_next_forward_pass_too(scenario):
    cluster = {"inter_node": {"bandwidth": "1 TB/s"}, "node_speed": [0.1]}
    strategy = {**RING, "workers": 8, "bucket_size": "10 MB"}
    load = {"variables": VARIABLES, "apply": "0 s"}
    for priority in ("ready", "forward"):
        result = simulate(scenario(workload=load, cluster=cluster, strategy={**strategy, "priority": priority}))
        assert result.bottleneck.name == "stragglers"
        # seven of eight wait for nine tenths of the slow one's 60 ms
        assert result.breakdown_s.waiting == pytest.approx(7 / 8 * 54e-3, rel=0.02)


def test_no_more_communication_is_hidden_than_there_is_compute(scenario):
    """Copies of one bucket go on while another is reduced: time in which both do counts once."""
    load = {"variables": VARIABLES, "backward": {"base": "30 ms", "per_sample": "0 s"}}
    cluster = {"host_link": {"bandwidth": "2 GB/s"}}
    result = simulate(
        scenario(workload=load, cluster=cluster, strategy={**RING, "workers": 4, "bucket_size": "10 MB", "through_host": True})
    )
    assert 0 < result.hidden_communication_s <= result.breakdown_s.compute


def test_a_slow_link_to_the_host_limits_an_all_reduce_through_it(scenario):
    load = {"variables": VARIABLES}
    cluster = {"host_link": {"bandwidth": "20 MB/s"}}
    result = simulate(scenario(workload=load, cluster=cluster, strategy={**RING, "workers": 2, "through_host": True}))
    assert result.bottleneck.name == "host-link"
    # 40 MB out and 40 MB in, one after the other, at 20 MB/s
    assert result.utilisation.busiest_link == pytest.approx(2.0 / result.step_time_s.mean, rel=0.07)


@pytest.mark.parametrize(
    "transport",
    [{"cpu_per_message": "1 ms"}, {"copy_per_byte_s": 5e-9}, {"cpu_per_message": "1 ms", "copy_per_byte_s": 5e-9}],
    ids=" and ".join,
)
@pytest.mark.parametrize("algorithm", ["ring", "bidirectional-ring", "halving-doubling", "hierarchical"])
def test_hosts_work_on_one_message_at_a_time_in_every_all_reduce(scenario, algorithm, transport):
    cluster = {"devices_per_node": 4, "transport": transport}
    strategy = {**RING, "workers": 8, "algorithm": algorithm}
    ends = []
    for messages in (False, True):
        recording = Recording()
        replicate(resolve(scenario(cluster=cluster, strategy={**strategy, "detail": "messages" if messages else "auto"})), 0, recording)
        # the first step, which all ranks enter together; they need not end it together, and of two that meet at a host either goes first
        ends.append(sorted(step.end_s for step in recording.steps if step.start_s == 0.0))
    assert len(ends[0]) == 8
    assert ends[0] == pytest.approx(ends[1], rel=1e-9)


@pytest.mark.parametrize("messages", [False, True])
@pytest.mark.parametrize("ranks", [2, 5])
def test_a_ring_whose_hosts_copy(scenario, ranks, messages):
    """2 (n - 1) rounds: each chunk is copied out, crosses, has its latency and is copied in.

    A rank works on one message at a time; in step, it is done with what it sends before the next chunk is there.
    """
    cluster = {
        "inter_node": {"bandwidth": "1 GB/s", "latency": "30 us"},
        "transport": {"copy_per_byte_s": 3e-10, "cpu_per_message_s": 2e-5},
    }
    result = simulate(scenario(cluster=cluster, strategy={**RING, "workers": ranks, "detail": "messages" if messages else "auto"}))
    chunk = 1e6 / ranks
    want_s = 2 * (ranks - 1) * (2 * (2e-5 + 3e-10 * chunk) + chunk / 1e9 + 30e-6)
    assert result.breakdown_s.exposed_communication == near(want_s)


@pytest.mark.parametrize("grouping", ["none", "per-server"])
def test_a_step_alone_whose_hosts_copy(scenario, grouping):
    """Pull: both hosts copy a megabyte, which crosses in 1 ms; push likewise; 3 ms of compute between them for each pass."""
    cluster = {"transport": {"copy_per_byte_s": 4e-10, "wire_bytes_per_byte": 1.5}}
    result = simulate(scenario(cluster=cluster, strategy={**ASYNC, "workers": 1, "grouping": grouping}))
    assert result.step_time_s.mean == near(6e-3 + 2 * (1.5e-3 + 2 * 4e-4))


def test_tensors_that_hosts_copy_travel_one_by_one(scenario):
    """Four of 10 MB: each is copied out, crosses and is copied in while the next is copied out: 4 and 4 and 10 ms in a pipe of three."""
    cluster = {"transport": {"copy_per_byte_s": 4e-10}}
    load = {"variables": [{**one, "ready": 1.0} for one in VARIABLES]}
    result = simulate(scenario(workload=load, cluster=cluster, strategy={**ASYNC, "workers": 1}))
    assert result.breakdown_s.exposed_communication == near(2 * (4e-3 + 4 * 10e-3 + 4e-3))


def test_hosts_busy_with_messages_are_named(scenario):
    cluster = {"transport": {"cpu_per_message": "20 ms"}}
    result = simulate(scenario(cluster=cluster, strategy={**ASYNC, "workers": 4}))
    assert result.bottleneck.name == "host-cpu"


def test_a_cap_on_connections_is_not_blamed_inside_a_node(scenario):
    cluster = {"devices_per_node": 4, "transport": {"flow_cap": "100 MB/s"}}
    result = simulate(scenario(workload={"variables": VARIABLES}, cluster=cluster, strategy={"kind": "mirrored"}))
    assert "one connection" not in result.bottleneck.text


def test_random_phases_are_spread_over_the_step_of_the_loaded_cluster(scenario):
    """32 workers on one link: a step takes far longer than that of one worker alone."""
    load = {"jitter": {"kind": "exponential"}, "variables": VARIABLES}
    run = {"start": "random-phase", "replications": 8, "steps": 10, "warmup_steps": 1}
    result = simulate(scenario(workload=load, strategy={**ASYNC, "workers": 32, "grouping": "per-server"}, run=run))
    assert result.phase is not None
    assert result.phase.order_at_start < 0.6


def test_what_is_listed_as_reduced_has_been(scenario):
    load = {"variables": VARIABLES}
    fused = simulate(scenario(workload=load, strategy={**RING, "workers": 4, "bucket_size": "1 GB", "fusion_cycle": "1 s"}))
    assert [reduced.size_bytes for reduced in fused.all_reduces] == [40e6]
    local = simulate(scenario(workload={"variables": [{**VARIABLES[3], "sparse_bytes_per_sample": 10.0, "creation_index": 0}]},
                              strategy={**RING, "workers": 4, "sync_every": 2}))  # fmt: skip
    assert [reduced.size_bytes for reduced in local.all_reduces] == [10e6]
