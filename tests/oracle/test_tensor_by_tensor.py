"""Pulls that overlap the forward pass and pushes that overlap the backward pass, against hand-computed steps.

One worker. Of two variables "first" is of the first layers: needed from the beginning,
its gradient ready last; "last" is needed halfway through the forward pass (2 ms), its
gradient ready halfway through the backward pass (4 ms). 1 GB/s: 1 ms a megabyte. Times in
milliseconds.
"""

from __future__ import annotations

import numpy as np
import pytest
from support.runs import recorded

from simulator import simulate
from simulator.engine.replication import replicate
from simulator.resolve.resolve import resolve


def load(first_mb: float, last_mb: float) -> dict:
    return {
        "apply": "0 s",
        "variables": [
            {"name": "last", "size_bytes": last_mb * 1e6, "creation_index": 1, "ready": 0.5},
            {"name": "first", "size_bytes": first_mb * 1e6, "creation_index": 0, "ready": 1.0},
        ],
    }


def strategy(**parts) -> dict:
    return {"kind": "parameter-server", "mode": "async", "workers": 1, **parts}


def assert_step(result, step: float, compute: float, hidden: float) -> None:
    assert result.step_time_s.mean == pytest.approx(step * 1e-3, rel=1e-9)
    assert result.breakdown_s.compute == pytest.approx(compute * 1e-3, rel=1e-9)
    assert result.breakdown_s.exposed_communication == pytest.approx((step - compute) * 1e-3, rel=1e-9)
    assert result.hidden_communication_s == pytest.approx(hidden * 1e-3, rel=1e-9, abs=1e-15)


def test_forward_order_computes_with_what_has_come(scenario):
    """Pulls 0-1 and 1-5; half of the forward pass 1-2, the rest with half of the backward pass 5-8; pushes 8-12 and, ready at 10, 12-13."""
    result = simulate(scenario(workload=load(1, 4), strategy=strategy()))
    # hidden: the pull behind the forward pass 1-2, the push behind the backward pass 8-10
    assert_step(result, 13, 6, 1 + 2)


def test_together_the_forward_pass_waits_for_the_last_byte(scenario):
    """Pull 0-5, compute 5-9, push 9-13 behind compute until 11, push 13-14."""
    assert_step(simulate(scenario(workload=load(1, 4), strategy=strategy(pull_order="together"))), 14, 6, 2)


def test_per_server_nothing_overlaps(scenario):
    """Pull 0-5, compute 5-11, push 11-16."""
    assert_step(simulate(scenario(workload=load(1, 4), strategy=strategy(grouping="per-server"))), 16, 6, 0)


def test_random_order_is_one_or_the_other(scenario):
    """Half of the steps find the first layers' variable first (13 ms), the others last (14 ms)."""
    built = scenario(workload=load(1, 4), strategy=strategy(pull_order="random"), run={"steps": 400, "warmup_steps": 0})
    steps = np.array([step.end_s - step.start_s for step in recorded(built).steps]) * 1e3
    assert set(steps.round(6)) == {13.0, 14.0}
    # a share of 1/2 over 400 steps has a standard error of 0.025
    assert (steps < 13.5).mean() == pytest.approx(0.5, abs=4 * 0.025)
    assert replicate(resolve(built), 0).window_s == pytest.approx(steps.sum() * 1e-3)


def test_two_servers_send_at_the_same_time(scenario):
    """Half of the worker's link each until 2, when the small one has come; the large one at 5. Pushes: 8-13 and 10-12."""
    records = recorded(scenario(workload=load(1, 4), strategy=strategy(servers=2), run={"steps": 2, "warmup_steps": 0}))
    times = {f"{t.name}{t.source}{t.target}": (t.sent_s * 1e3, t.arrived_s * 1e3) for t in records.transfers[:4]}
    assert times == {
        "pull 0server 0worker 0": pytest.approx((0, 2)),
        "pull 1server 1worker 0": pytest.approx((0, 5)),
        "push 0worker 0server 1": pytest.approx((8, 13)),
        "push 1worker 0server 0": pytest.approx((10, 12)),
    }
    assert [(s.start_s * 1e3, s.end_s * 1e3) for s in records.spans[:3]] == [pytest.approx(x) for x in ((2, 3), (5, 8), (8, 10))]


def test_compute_is_stretched_exactly_while_messages_are_on_their_way(scenario):
    """Half as slow again beside a message. Pulls 0-1 and 1-1.9: of the first 1 ms of work 0.6 is done by 1.9, the rest by 2.3.

    3 ms of work until 5.3; push 5.3-6.2, by when 0.6 of 2 ms is done, the rest by 7.6; push 7.6-8.6.
    """
    result = simulate(scenario(workload=load(1, 0.9), cluster={"overlap_slowdown": 0.5}, strategy=strategy()))
    assert_step(result, 8.6, 1.3 + 3 + 2.3, 0.9 + 0.9)
    assert result.utilisation.devices == pytest.approx(6.6 / 8.6, rel=1e-9)


def test_the_network_and_the_host_link_are_a_pipeline(scenario):
    """1 and 3 MB; PCIe of 2 GB/s and 0.1 ms of latency, both ways.

    In: network 0-1 and 1-4, PCIe 1-1.5 and 4-5.5, there at 1.6 and 5.6. Forward 1.6-2.6
    and 5.6-6.6, half of the backward pass until 8.6, the rest until 10.6. Out: PCIe
    8.6-10.1, there at 10.2, network until 13.2; the other one from 10.6, there at 11.2,
    network 13.2-14.2.
    """
    cluster = {"host_link": {"bandwidth": "2 GB/s", "latency": "100 us"}}
    built = scenario(workload=load(1, 3), cluster=cluster, strategy=strategy(), run={"steps": 2, "warmup_steps": 0})
    # hidden: 1.6-2.6 behind the second pull, 8.6-10.6 behind the push
    assert_step(simulate(built), 14.2, 6, 3)
    got = [(t.name, round(t.sent_s * 1e3, 6), round(t.arrived_s * 1e3, 6)) for t in recorded(built).transfers[:8]]
    assert sorted(got) == sorted(
        [
            ("pull 0", 0, 1), ("to device 0", 1, 1.6), ("pull 1", 0, 4), ("to device 1", 4, 5.6),
            ("from device 0", 8.6, 10.2), ("push 0", 10.2, 13.2), ("from device 1", 10.6, 11.2), ("push 1", 11.2, 14.2),
        ]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("partitioner", "servers", "megabytes"),
    [
        # rows in shards of 4, 3, 3 and 4, 3, 3, in turn over two servers: 4 + 3 + 3 and 3 + 4 + 3
        ({"kind": "fixed-shards", "shards": 3}, 2, [1.0, 1.0]),
        # in turn over three: 4 + 4, 3 + 3, 3 + 3
        ({"kind": "fixed-shards", "shards": 3}, 3, [0.8, 0.6, 0.6]),
        # at most 0.45 MB, so 4 of 0.1 MB a shard: the same shards
        ({"kind": "max-size", "shard_size_bytes": 4.5e5}, 3, [0.8, 0.6, 0.6]),
        # at least 0.5 MB, so two shards each: 5 + 5 and 5 + 5
        ({"kind": "min-size", "shards": 8, "shard_size_bytes": 5e5}, 2, [1.0, 1.0]),
        (None, 2, [1.0, 1.0]),
    ],
)
def test_shards_go_to_servers_in_turn(scenario, partitioner, servers, megabytes):
    table = load(1, 1)
    for variable in table["variables"]:
        variable["rows"] = 10
    built = scenario(workload=table, strategy=strategy(servers=servers, partitioner=partitioner), run={"steps": 2, "warmup_steps": 0})
    records = recorded(built)
    for prefix, end in (("pull", "source"), ("push", "target")):
        moved = dict.fromkeys(range(servers), 0.0)
        for transfer in records.transfers:
            if transfer.name.startswith(prefix):
                moved[getattr(transfer, end).number] += transfer.size_bytes / 2e6
        assert list(moved.values()) == pytest.approx(megabytes)


def test_a_server_with_more_bytes_is_the_limit(scenario):
    """Four in-step workers, 0.8 MB on the fullest of three servers: 3.2 ms each way; greedily placed shards divide it better."""
    table = load(1, 1)
    for variable in table["variables"]:
        variable |= {"rows": 10, "ready": 1.0}
    turn = strategy(workers=4, servers=3, mode="sync", pull_order="together", partitioner={"kind": "fixed-shards", "shards": 3})
    in_turn = simulate(scenario(workload=table, strategy=turn)).step_time_s.mean
    greedy = simulate(scenario(workload=table, strategy={**turn, "variable_placement": "greedy"})).step_time_s.mean
    assert in_turn == pytest.approx(6e-3 + 2 * 3.2e-3, rel=1e-9)
    # 4, 3, 3, then 4 onto the second, 3 onto the third, 3 onto the first: 7, 7 and 6 rows
    assert greedy == pytest.approx(6e-3 + 2 * 2.8e-3, rel=1e-9)
