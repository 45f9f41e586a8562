"""Asynchronous training without jitter against schedules written out by hand, event by event.

One server and one variable of 1 MB, a link of 1 GB/s that the workers share equally, 6 ms
of compute, 0.5 ms of service in order of arrival. All times in milliseconds.
"""

from __future__ import annotations

import pytest
from support.runs import recorded

from simulator.base.records import Place

ASYNC = {"kind": "parameter-server", "mode": "async"}
LOAD = {"apply": "0 s", "server": {"base": "500 us"}}
RUN = {"steps": 3, "warmup_steps": 0}


def close(want: list[tuple]):
    return [pytest.approx(row, abs=1e-9) for row in want]


def of(records, worker: int):
    """A worker's pulls (sent, there), compute, pushes, services and steps, in milliseconds."""
    return {
        "pulls": [
            (t.sent_s * 1e3, t.arrived_s * 1e3) for t in records.transfers if t.name == "pull 0" and t.target == Place("worker", worker)
        ],
        "compute": [(s.start_s * 1e3, s.end_s * 1e3) for s in records.spans if s.replica == worker],
        "pushes": [
            (t.sent_s * 1e3, t.arrived_s * 1e3) for t in records.transfers if t.name == "push 0" and t.source == Place("worker", worker)
        ],
        "services": [(s.start_s * 1e3, s.end_s * 1e3) for s in records.services if s.worker == worker],
        "steps": [(s.start_s * 1e3, s.end_s * 1e3) for s in records.steps if s.replica == worker],
    }


def assert_schedule(records, worker: int, want: dict[str, list[tuple]]) -> None:
    got = of(records, worker)
    for what, rows in want.items():
        assert got[what][: len(rows)] == close(rows), f"{what} of worker {worker}"


def test_two_workers_and_a_latency(scenario):
    """Latency 0.1 ms. Both begin in step; the server's queue sets them 0.5 ms apart, and so they stay: 9.7 ms a step."""
    built = scenario(
        workload=LOAD,
        cluster={"inter_node": {"bandwidth": "1 GB/s", "latency": "100 us"}},
        strategy={**ASYNC, "workers": 2},
        run={"steps": 4, "warmup_steps": 0},
    )
    records = recorded(built)
    assert_schedule(
        records,
        0,
        {
            # half of the link each for 2 ms; then 0.5 ms alone, 1 ms with half: 1.5 ms, plus 0.1
            "pulls": [(0, 2.1), (10.7, 12.3), (20.4, 22.0)],
            "compute": [(2.1, 8.1), (12.3, 18.3), (22.0, 28.0)],
            "pushes": [(8.1, 10.2), (18.3, 19.9), (28.0, 29.6)],
            "services": [(10.2, 10.7), (19.9, 20.4), (29.6, 30.1)],
            "steps": [(0, 10.7), (10.7, 20.4), (20.4, 30.1)],
        },
    )
    assert_schedule(
        records,
        1,
        {
            "pulls": [(0, 2.1), (11.2, 12.8), (20.9, 22.5)],
            "compute": [(2.1, 8.1), (12.8, 18.8), (22.5, 28.5)],
            "pushes": [(8.1, 10.2), (18.8, 20.4), (28.5, 30.1)],
            # at 10.2 and at 20.4 the other one's gradient is before it, or has just gone
            "services": [(10.7, 11.2), (20.4, 20.9), (30.1, 30.6)],
            "steps": [(0, 11.2), (11.2, 20.9), (20.9, 30.6)],
        },
    )
    assert [update.staleness for update in records.updates[:6]] == [0, 1, 1, 1, 1, 1]


def test_three_workers(scenario):
    """Worker 0 gets ahead in the second step, by which the others meet each other only."""
    records = recorded(scenario(workload=LOAD, strategy={**ASYNC, "workers": 3}, run=RUN))
    assert_schedule(
        records,
        0,
        {
            # 12.5: 0.5 MB alone, 0.25 as one of two, 0.25 as one of three
            "pulls": [(0, 3), (12.5, 14.25), (21.75, 22.75)],
            "compute": [(3, 9), (14.25, 20.25), (22.75, 28.75)],
            # its last byte is there as worker 1 begins
            "pushes": [(9, 12), (20.25, 21.25), (28.75, 29.75)],
            "services": [(12, 12.5), (21.25, 21.75), (29.75, 30.25)],
            "steps": [(0, 12.5), (12.5, 21.75), (21.75, 30.25)],
        },
    )
    assert_schedule(
        records,
        1,
        {
            # 13: 0.25 MB as one of two, 0.25 as one of three, 0.5 as one of two
            "pulls": [(0, 3), (13, 15.25), (23.5, 25)],
            "compute": [(3, 9), (15.25, 21.25), (25, 31)],
            # 0.25 MB alone, then as one of two
            "pushes": [(9, 12), (21.25, 23), (31, 32.5)],
            "services": [(12.5, 13), (23, 23.5), (32.5, 33)],
            "steps": [(0, 13), (13, 23.5), (23.5, 33)],
        },
    )
    assert_schedule(
        records,
        2,
        {
            "pulls": [(0, 3), (13.5, 15.5), (24, 25.5)],
            "compute": [(3, 9), (15.5, 21.5), (25.5, 31.5)],
            "pushes": [(9, 12), (21.5, 23.25), (31.5, 33)],
            # 23.25: worker 1's gradient is in service
            "services": [(13, 13.5), (23.5, 24)],
            "steps": [(0, 13.5), (13.5, 24)],
        },
    )
    order = [(update.worker, update.read_version, update.applied_version) for update in records.updates[:7]]
    assert order == [(0, 0, 0), (1, 0, 1), (2, 0, 2), (0, 1, 3), (1, 2, 4), (2, 3, 5), (0, 4, 6)]


def test_in_order_the_link_is_a_queue(scenario):
    """One message at a time in each direction: 1 ms each, first come first served; the queue spreads the workers for good."""
    built = scenario(workload=LOAD, cluster={"transport": {"discipline": "in-order"}}, strategy={**ASYNC, "workers": 3}, run=RUN)
    records = recorded(built)
    assert_schedule(
        records,
        0,
        {
            "pulls": [(0, 1), (8.5, 9.5)],
            "compute": [(1, 7), (9.5, 15.5)],
            "pushes": [(7, 8), (15.5, 16.5)],
            "services": [(8, 8.5), (16.5, 17)],
        },
    )
    assert_schedule(
        records,
        1,
        {
            "pulls": [(0, 2), (9.5, 10.5)],
            "compute": [(2, 8), (10.5, 16.5)],
            "pushes": [(8, 9), (16.5, 17.5)],
            "services": [(9, 9.5), (17.5, 18)],
        },
    )
    assert_schedule(
        records,
        2,
        {"pulls": [(0, 3), (10.5, 11.5)], "compute": [(3, 9), (11.5, 17.5)], "pushes": [(9, 10), (17.5, 18.5)], "services": [(10, 10.5)]},
    )


def test_a_node_with_a_slow_link_and_one_with_a_fast_device(scenario):
    """Worker 0 gets a quarter of the server's link at most, worker 1 the rest; worker 2 computes in 3 ms."""
    classes = [
        {"name": "thin", "nodes": 1, "inter_node": {"bandwidth": "0.25 GB/s", "latency": "1 ms"}},
        {"name": "plain", "nodes": 1},
        {"name": "fast", "nodes": 1, "speed": 2.0},
    ]
    built = scenario(workload={"apply": "0 s"}, cluster={"node_classes": classes}, strategy={**ASYNC, "workers": 3}, run=RUN)
    records = recorded(built)
    # 0.25 GB/s to worker 0; 0.375 each to the others, done at 8/3; the thin link's latency counts for both directions
    assert_schedule(records, 0, {"pulls": [(0, 5)], "compute": [(5, 11)]})
    third = 8 / 3
    assert_schedule(records, 1, {"pulls": [(0, third)], "compute": [(third, third + 6)], "pushes": [(third + 6, third + 7)]})
    # worker 2 has the server's link to itself: worker 0 has its bytes since 4 ms, and the others push later
    assert_schedule(
        records,
        2,
        {"pulls": [(0, third), (third + 4, third + 5)], "compute": [(third, third + 3)], "pushes": [(third + 3, third + 4)]},
    )


def test_synchronous_gradients_queue_and_the_mean_is_applied(scenario):
    """Two workers of speeds 1 and 2: the first gradient is served at once, the second after it has come, then the mean."""
    classes = [{"name": "plain", "nodes": 1}, {"name": "fast", "nodes": 1, "speed": 2.0}]
    built = scenario(
        workload=LOAD, cluster={"node_classes": classes}, strategy={"kind": "parameter-server", "mode": "sync", "workers": 2}, run=RUN
    )
    records = recorded(built)
    # both pull until 2; worker 1 computes until 5 and pushes until 6; worker 0 computes until 8 and pushes until 9
    assert [(s.name, s.worker, s.start_s * 1e3, s.end_s * 1e3) for s in records.services[:3]] == [
        ("accumulate", 1, pytest.approx(6), pytest.approx(6.5)),
        ("accumulate", 0, pytest.approx(9), pytest.approx(9.5)),
        ("apply", -1, pytest.approx(9.5), pytest.approx(10)),
    ]
    first = {step.replica: step for step in records.steps[:2]}
    parts = {worker: [round(value * 1e3, 9) for value in step[3:8]] for worker, step in first.items()}
    # input, compute, communication, waiting for the other's gradient, service
    assert parts == {0: [0, 6, 3, 0, 1], 1: [0, 3, 3, 3, 1]}
    assert [update.staleness for update in records.updates] == [0, 0, 0]


def test_a_class_has_its_own_jitter(scenario):
    """Worker 0 always takes 6 ms, worker 1 has the workload's exponential law."""
    classes = [{"name": "steady", "nodes": 1, "jitter": {"kind": "constant"}}]
    load = {"apply": "0 s", "jitter": {"kind": "exponential"}}
    built = scenario(workload=load, cluster={"node_classes": classes}, strategy={**ASYNC, "workers": 2}, run={"steps": 40})
    spans = recorded(built).spans
    assert {round((s.end_s - s.start_s) * 1e3, 9) for s in spans if s.replica == 0} == {6.0}
    assert len({s.end_s - s.start_s for s in spans if s.replica == 1}) > 30
