"""Buckets by priority, by cycles, by the host and beside compute: against hand-computed steps.

Two equal workers, a ring of 1 GB/s: S bytes take S / B, 1 ms a megabyte. Forward pass
2 ms, backward pass 4 ms, update 0.5 ms. Times in milliseconds.
"""

from __future__ import annotations

import pytest
from support.runs import recorded

from simulator import simulate
from simulator.base.records import Place

SHORT = {"steps": 4, "warmup_steps": 0}


def ring(**parts) -> dict:
    return {"kind": "multi-worker-mirrored", "workers": 2, "bucket_size_bytes": 1.0, **parts}


def load(*variables: tuple[float, float]) -> dict:
    """Variables of so many megabytes, ready after such shares of the backward pass."""
    return {
        "variables": [
            {"name": f"v{i}", "size_bytes": size * 1e6, "creation_index": len(variables) - 1 - i, "ready": ready}
            for i, (size, ready) in enumerate(variables)
        ]
    }


def reductions(records) -> list[tuple[float, float]]:
    """When each all-reduce of worker 0 was asked for, and ended."""
    return [(round(t.sent_s * 1e3, 6), round(t.arrived_s * 1e3, 6)) for t in records.transfers if t.source == Place("device", 0)]


def step_ends(records) -> list[float]:
    return [round(step.end_s * 1e3, 6) for step in records.steps if step.replica == 0]


@pytest.mark.parametrize("late", [False, True])
def test_compute_beside_an_all_reduce_is_stretched(scenario, late):
    """Half as slow again. First gradient ready at 4, reduced until 6, by when 4/3 of the last 2 ms are done; the rest until 6 2/3."""
    sizes = load((4.0 if late else 2.0, 0.5), (1, 1.0))
    built = scenario(workload=sizes, cluster={"overlap_slowdown": 0.5}, strategy=ring())
    result = simulate(built)
    # of 4 MB, reduced until 8, the 2 ms beside it take 3 and end before
    compute, end, hidden = (7, 9, 3) if late else (6 + 2 / 3, 7 + 2 / 3, 2)
    assert result.breakdown_s.compute == pytest.approx(compute * 1e-3, rel=1e-9)
    assert result.step_time_s.mean == pytest.approx((end + 0.5) * 1e-3, rel=1e-9)
    assert result.hidden_communication_s == pytest.approx(hidden * 1e-3, rel=1e-9)
    assert result.breakdown_s.exposed_communication == pytest.approx((end - compute) * 1e-3, rel=1e-9)


def test_without_buckets_nothing_is_stretched(scenario):
    slow, plain = (
        simulate(scenario(cluster={"overlap_slowdown": slowdown}, strategy={"kind": "multi-worker-mirrored", "workers": 2}))
        for slowdown in (0.5, 0.0)
    )
    assert slow.step_time_s.mean == pytest.approx(plain.step_time_s.mean, rel=1e-12)


def test_every_cycle_what_is_ready_is_fused(scenario):
    """2, 1 and 1 MB ready at 4, 5 and 6; a cycle of 1.3, at most 3 MB at once.

    At 5.2 two are ready and reduced as one, until 8.2; the third is asked for at 6.5 and
    reduced until 9.2. The next step begins at 9.7: ready at 13.7, 14.7, 15.7. At 14.3 the
    first alone, until 16.3; at 15.6 the second, until 17.3; at 16.9 the third, until 18.3.
    """
    strategy = ring(bucket_size_bytes=3e6, fusion_cycle="1.3 ms")
    records = recorded(scenario(workload=load((2, 0.5), (1, 0.75), (1, 1)), strategy=strategy, run=SHORT))
    assert [end for _, end in reductions(records)][:5] == [8.2, 9.2, 16.3, 17.3, 18.3]
    assert step_ends(records)[:2] == [9.7, 18.8]


def test_a_cycle_fuses_no_more_than_the_threshold(scenario):
    """At most 2 MB: at 5.2 the first two one after the other, until 7.2 and 8.2; the third until 9.2."""
    strategy = ring(bucket_size_bytes=2e6, fusion_cycle="1.3 ms")
    records = recorded(scenario(workload=load((2, 0.5), (1, 0.75), (1, 1)), strategy=strategy, run=SHORT))
    assert [end for _, end in reductions(records)][:3] == [7.2, 8.2, 9.2]


def test_a_cycle_waits_for_the_slowest(scenario):
    """Worker 1 takes twice as long: its gradients are ready at 8, 10 and 12, so at 9.1, 10.4 and 13."""
    classes = [{"name": "plain", "nodes": 1}, {"name": "slow", "nodes": 1, "speed": 0.5}]
    strategy = ring(bucket_size_bytes=3e6, fusion_cycle="1.3 ms")
    built = scenario(workload=load((2, 0.5), (1, 0.75), (1, 1)), cluster={"node_classes": classes}, strategy=strategy, run=SHORT)
    assert reductions(recorded(built))[:3] == [(4, 11.1), (5, 12.1), (6, 14)]


@pytest.mark.at_once
def test_the_next_forward_pass_waits_for_what_it_needs_first(scenario):
    """Two buckets: of 2 MB, ready halfway, reduced 4-6, and of 1 MB, the first layers', reduced 6-7.

    The second step begins at 6 and waits until 7; a third of the update and half of the
    forward pass, until 8 1/6; the other bucket came long ago: the rest until 9.5, backward
    pass until 13.5, by when its first bucket, ready at 11.5, has just been reduced.
    """
    records = recorded(scenario(workload=load((2, 0.5), (1, 1)), strategy=ring(priority="forward"), run=SHORT))
    assert reductions(records)[:4] == [(4, 6), (6, 7), (11.5, 13.5), (13.5, 14.5)]
    assert step_ends(records)[:3] == [6, 13.5, 21]
    second = [step for step in records.steps if step.replica == 0][1]
    # input, compute, exposed communication, waiting, update
    assert [round(part * 1e3, 9) for part in second[3:8]] == [0, 6, 1, 0, 0.5]


@pytest.mark.at_once
def test_what_is_needed_first_overtakes(scenario):
    """4 MB ready at 3, 1 MB at 4 and 1 MB at 6: when the first is done, at 7, the last one goes before the second.

    The second step begins at 6, waits until 8, and takes 6.5 after that.
    """
    records = recorded(scenario(workload=load((4, 0.25), (1, 0.5), (1, 1)), strategy=ring(priority="forward"), run=SHORT))
    assert reductions(records)[:3] == [(3, 7), (6, 8), (4, 9)]
    assert step_ends(records)[:3] == [6, 14.5, 23]
    in_turn = recorded(scenario(workload=load((4, 0.25), (1, 0.5), (1, 1)), strategy=ring(), run=SHORT))
    assert reductions(in_turn)[:3] == [(3, 7), (4, 8), (6, 9)]
    assert step_ends(in_turn)[:2] == [9.5, 19]


def test_gradients_go_by_the_host(scenario):
    """PCIe of 2 GB/s and 0.1 ms. 2 MB ready at 4: out until 5.1, ring until 7.1, back until 8.2.

    1 MB ready at 6: out until 6.6, the ring is free at 7.1, until 8.1; back 8.1-8.7; update until 9.2.
    """
    cluster = {"host_link": {"bandwidth": "2 GB/s", "latency": "100 us"}}
    built = scenario(workload=load((2, 0.5), (1, 1)), cluster=cluster, strategy=ring(through_host=True), run=SHORT)
    records = recorded(built)
    assert reductions(records)[:2] == [(4, 8.2), (6, 8.7)]
    assert step_ends(records)[0] == 9.2
    # two devices on one PCIe link: half each, 2 ms for the first: 4-6.1, ring until 8.1, back until 10.2
    shared = {**cluster, "devices_per_node": 2, "devices_per_host_link": 2, "intra_node": {"bandwidth": "1 GB/s", "latency": "0 s"}}
    mirrored = {"kind": "mirrored", "replicas": 2, "bucket_size_bytes": 1.0, "through_host": True}
    records = recorded(scenario(workload=load((2, 0.5), (1, 1)), cluster=shared, strategy=mirrored, run=SHORT))
    # the second: out 6.1-7.1, there at 7.2; ring 8.1-9.1; back behind the first one's bytes, 10.1-11.1
    assert reductions(records)[:2] == [(4, 10.2), (6, 11.2)]


def test_an_average_of_local_sgd_moves_all_variables(scenario):
    """Three steps of 6.5 each on its own; after the third a ring of 3 MB: 22.5 for three steps."""
    records = recorded(
        scenario(
            workload=load((2, 0.5), (1, 1)),
            strategy={"kind": "multi-worker-mirrored", "workers": 2, "sync_every": 3},
            run={"steps": 6, "warmup_steps": 0},
        )
    )
    assert step_ends(records) == [6.5, 13, 22.5, 29, 35.5, 45]
    assert [round(update.applied_s * 1e3, 6) for update in records.updates] == [22.5, 45]


def test_a_slow_device_takes_longer_for_all_of_its_step(scenario):
    """Of half speed: compute until 12, the ring until 15, its own update 1 ms; the other one's 0.5 ms, then it computes and waits."""
    classes = [{"name": "plain", "nodes": 1}, {"name": "slow", "nodes": 1, "speed": 0.5}]
    strategy = {"kind": "multi-worker-mirrored", "workers": 2}
    records = recorded(scenario(workload=load((2, 0.5), (1, 1)), cluster={"node_classes": classes}, strategy=strategy, run=SHORT))
    ends = [(step.replica, round(step.end_s * 1e3, 6)) for step in records.steps]
    assert ends[:4] == [(0, 15.5), (1, 16), (0, 31.5), (1, 32)]
    # input, compute, exposed communication, waiting, update: of the second step, which began at 15.5 and at 16
    assert [round(part * 1e3, 6) for part in records.steps[2][3:8]] == [0, 6, 3, 6.5, 0.5]
    assert [round(part * 1e3, 6) for part in records.steps[3][3:8]] == [0, 12, 3, 0, 1]
