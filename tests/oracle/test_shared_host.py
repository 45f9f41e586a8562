"""Servers on workers' nodes, a client that feeds all, replicas that share: against hand-computed schedules, in milliseconds."""

from __future__ import annotations

import pytest
from support.runs import recorded

from simulator import simulate

NOTHING = {"inter_node": {"bandwidth": "1000000 GB/s", "latency": "0 s"}, "intra_node": {"bandwidth": "1000000 GB/s", "latency": "0 s"}}
"""A megabyte takes a nanosecond."""
NODES = [{"name": "server's", "nodes": 1}, {"name": "other", "nodes": 1, "speed": 2.4}]
COLOCATED = {"kind": "parameter-server", "mode": "async", "workers": 2, "server_placement": "colocated"}
LOAD = {"apply": "0 s", "server": {"base": "1.5 ms"}}


def rows(work, *kept) -> list[tuple]:
    return [tuple(round(getattr(one, key) * 1e3, 4) if key.endswith("_s") else getattr(one, key) for key in kept) for one in work]


def test_a_server_on_a_workers_cpu_shares_it(scenario):
    """Worker 0 computes 6 ms on the server's node, worker 1 2.5 ms elsewhere; 1.5 ms of service.

    2.5-5.5 service and worker 0 at half speed, which has 2 ms left and ends at 7.5. Its
    own gradient is served alone, 7.5-9. Worker 1 computes 5.5-8, waits, and is served 9-12
    beside worker 0; then computes until 14.5, when worker 0 has 2 ms left; 14.5-17.5
    beside each other; worker 0 ends at 18.
    """
    built = scenario(
        workload=LOAD, cluster={**NOTHING, "node_classes": NODES, "device_is_host": True}, strategy=COLOCATED, run={"steps": 4}
    )
    records = recorded(built)
    assert rows(records.services[:4], "worker", "start_s", "end_s") == [(1, 2.5, 5.5), (0, 7.5, 9), (1, 9, 12), (1, 14.5, 17.5)]
    assert rows([span for span in records.spans if span.replica == 0][:2], "start_s", "end_s") == [(0, 7.5), (9, 18)]


def test_a_server_with_a_processor_of_its_own_disturbs_nobody(scenario):
    """The same, device and host apart: worker 0 computes 0-6 and is served 6.5-8, behind worker 1's second."""
    built = scenario(workload=LOAD, cluster={**NOTHING, "node_classes": NODES}, strategy=COLOCATED, run={"steps": 4})
    records = recorded(built)
    # worker 1: computes 0-2.5, served until 4, computes until 6.5, which is behind worker 0
    assert rows(records.services[:4], "worker", "start_s", "end_s") == [(1, 2.5, 4), (0, 6, 7.5), (1, 7.5, 9), (1, 11.5, 13)]


def test_a_colocated_server_shares_its_nodes_link(scenario):
    """Worker 0 reaches it inside the node (10 GB/s, 0.1 ms a megabyte), worker 1 by the network (1 ms)."""
    records = recorded(scenario(workload={"apply": "0 s"}, strategy=COLOCATED, run={"steps": 2, "warmup_steps": 0}))
    pulls = {str(t.target): (t.sent_s, t.arrived_s * 1e3) for t in records.transfers[:2]}
    assert pulls == {"worker 0": (0, pytest.approx(0.1)), "worker 1": (0, pytest.approx(1))}


@pytest.mark.parametrize("workers", [1, 4, 16])
def test_the_clients_link_feeds_all_workers(scenario, workers):
    """A megabyte of input each, from one link of 1 GB/s: in step, n ms of input and 6 ms of compute."""
    load = {"apply": "0 s", "input_bytes_per_sample": 1e5, "variables": [{"name": "v", "size": "4 B", "creation_index": 0, "ready": 1.0}]}
    strategy = {"kind": "parameter-server", "mode": "async", "workers": workers, "replication": "in-graph"}
    result = simulate(scenario(workload=load, strategy=strategy))
    assert result.breakdown_s.input == pytest.approx(workers * (1e-3 - 4e-9), rel=1e-6)  # pulled meanwhile: 4 bytes
    assert result.step_time_s.mean == pytest.approx(workers * 1e-3 + 6e-3, rel=1e-4)
    own = simulate(scenario(workload=load, strategy={**strategy, "replication": "between-graph"}))
    assert own.step_time_s.mean == pytest.approx(6e-3, rel=1e-4)


def test_two_replicas_share_a_device_and_a_server_takes_its_part_too(scenario):
    """Three on one CPU: while all work each has a third."""
    cluster = {**NOTHING, "replicas_per_device": 2, "device_is_host": True}
    built = scenario(workload={"apply": "0 s", "server": {"base": "1 ms"}}, cluster=cluster, strategy=COLOCATED, run={"steps": 4})
    records = recorded(built)
    # both compute at half speed until 12; the first service alone until 13; then it and a compute, half each, until 15
    assert rows(records.spans[:2], "start_s", "end_s") == [(0, 12), (0, 12)]
    assert rows(records.services[:2], "start_s", "end_s") == [(12, 13), (13, 15)]


@pytest.mark.parametrize(
    "discipline", [{}, {"discipline": "in-order"}, {"discipline": "streams", "streams": 2}, {"discipline": "weighted", "weight_sigma": 0.5}]
)
def test_messages_inside_a_node_cost_both_processes_however_links_are_shared(scenario, discipline):
    """1 ms of each process on a message: the server sends until 1 and 2, workers compute 2-8 and 3-5.5, it takes in until 10 and 7.5."""
    transport = {"software": "given", "cpu_per_message": "1 ms", **discipline}
    run = {"steps": 2, "warmup_steps": 0}
    built = scenario(
        workload={"apply": "0 s"}, cluster={**NOTHING, "node_classes": NODES, "transport": transport}, strategy=COLOCATED, run=run
    )
    assert rows(recorded(built).updates[:2], "worker", "applied_s") == [(1, 7.5), (0, 10)]
