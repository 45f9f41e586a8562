"""How many steps a job has, who makes them, and when the measurement ends: exact counts and windows.

Without a network and jitter a step of worker 0 takes 6 ms and of worker 1, twice as fast, 3 ms.
"""

from __future__ import annotations

from collections import Counter

import pytest
from support.runs import FAST, recorded

from simulator import simulate
from simulator.engine.replication import replicate
from simulator.resolve.resolve import resolve

PACES = {**FAST, "node_classes": [{"name": "plain", "nodes": 1}, {"name": "fast", "nodes": 1, "speed": 2.0}]}
ASYNC = {"kind": "parameter-server", "mode": "async", "workers": 2}
LOAD = {"apply": "0 s"}


def counted(scenario, **run) -> tuple[Counter, float]:
    """Steps that each worker has ended, and the window in milliseconds."""
    built = scenario(workload=LOAD, cluster=PACES, strategy=ASYNC, run={"warmup_steps": 0, **run})
    measured = replicate(resolve(built), 0)
    records = recorded(built)
    steps = Counter(step.replica for step in records.steps)
    assert measured.steps == steps.total()
    assert measured.updates == len(records.updates)
    return steps, measured.window_s * 1e3


def close(value: float):
    # the network of nothing takes nanoseconds
    return pytest.approx(value, rel=1e-4)


def test_shared_steps_go_to_whoever_is_free_until_the_last_has_ended(scenario):
    """A third to worker 0: of 30 steps 10 in 60 ms, when both end one; the job ends in that instant."""
    steps, window = counted(scenario, steps=15)
    assert steps.total() == 30
    assert steps[1] in (20, 19)
    assert window == close(60)


def test_job_steps_count_all_workers_together(scenario):
    """31 steps: two thirds and one more, worker 1's, at 63 ms; worker 0 would have been at 6 of its 11th."""
    steps, window = counted(scenario, job_steps=31)
    assert steps == {0: 10, 1: 21}
    assert window == close(63)


def test_a_drained_job_lasts_until_its_last_step_has_ended(scenario):
    """The 32nd step is taken by worker 0 at 60 ms and ends at 66, when worker 1, with no step left, has been idle since 63."""
    steps, window = counted(scenario, job_steps=32, drain=True)
    assert steps == {0: 11, 1: 21}
    assert window == close(66)


def test_a_job_that_is_not_drained_ends_with_as_many_steps_whosesoever(scenario):
    """Worker 1 goes on meanwhile: its 22nd step, or worker 0's 11th, at 66 ms is the 32nd to end."""
    steps, window = counted(scenario, job_steps=32)
    assert steps.total() == 32
    assert window == close(66)


def test_each_its_own_ends_with_the_first_to_have_made_all(scenario):
    """Worker 1 makes its 20 steps in 60 ms; by then worker 0 has made 9, or in that very instant 10."""
    steps, window = counted(scenario, steps=20, sharing="each-its-own")
    assert steps[1] == 20
    assert steps[0] in (9, 10)
    assert window == close(60)


def test_each_its_own_drained_lasts_as_long_as_the_slowest(scenario):
    steps, window = counted(scenario, steps=20, sharing="each-its-own", drain=True)
    assert steps == {0: 20, 1: 20}
    assert window == close(120)


@pytest.mark.parametrize("drain", [False, True])
def test_synchronous_workers_make_as_many_each(scenario, drain):
    strategy = {**ASYNC, "mode": "sync"}
    run = {"steps": 12, "warmup_steps": 2, "drain": drain}
    built = scenario(workload=LOAD, cluster=PACES, strategy=strategy, run=run)
    assert Counter(step.replica for step in recorded(built).steps) == {0: 12, 1: 12}
    assert replicate(resolve(built), 0).window_s == pytest.approx(10 * 6e-3, rel=1e-4)


def test_warm_up_steps_are_counted_as_they_end(scenario):
    """Of a job of 31 steps the first 6 are cut: at 12 ms, when worker 1 has made 4 and worker 0 two."""
    built = scenario(workload=LOAD, cluster=PACES, strategy=ASYNC, run={"job_steps": 31, "warmup_steps": 3})
    measured = replicate(resolve(built), 0)
    assert measured.steps == 25
    assert measured.window_s == pytest.approx(51e-3, rel=1e-4)


def test_staggered_workers_begin_within_the_spread(scenario):
    run = {"steps": 4, "warmup_steps": 0, "start": "staggered", "start_spread": "40 ms"}
    built = scenario(workload=LOAD, cluster=FAST, strategy={**ASYNC, "workers": 400}, run=run)
    first: dict[int, float] = {}
    for step in recorded(built).steps:
        first.setdefault(step.replica, step.start_s)
    starts = sorted(first.values())
    assert len(starts) == 400
    assert 0 <= starts[0] < starts[-1] <= 40e-3
    # the mean of 400 uniform starts has a standard error of 40 ms / sqrt(12 x 400) = 0.58 ms
    assert sum(starts) / 400 == pytest.approx(20e-3, abs=4 * 0.58e-3)


def test_random_phases_spread_over_one_step(scenario):
    """Without jitter and queues the phases stay where they began, so the order is that of random ones."""
    built = scenario(
        workload=LOAD, strategy={**ASYNC, "workers": 2}, run={"steps": 30, "start": "random-phase", "warmup_steps": 5, "replications": 30}
    )
    assert built.lone_step_s == pytest.approx(6e-3 + 2e-3)
    starts = [recorded(built, number).steps[0].start_s for number in range(5)]
    assert all(0 <= start <= built.lone_step_s for start in starts)
    assert len(set(starts)) == 5
    result = simulate(built)
    assert result.phase is not None
    # mean of |1 + e^(i phi)| / 2 over uniform angles is 2 / pi, its standard deviation 0.31; 30 replications. Queueing drives phases apart
    assert result.phase.order_at_start < 2 / 3.14159 + 4 * 0.31 / 30**0.5
