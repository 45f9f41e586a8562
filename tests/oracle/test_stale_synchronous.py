"""Stale-synchronous parallel against its own recurrence, and its two limits: lock-step and asynchronous.

A worker that has ended c steps begins the next one when all have ended c - s of them
(Ho et al. 2013): start[i, c] = max(end[i, c - 1], max over j of end[j, c - s - 1]).
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from support.runs import COMPUTE_S, FAST, assert_mean, recorded, seconds_per_update

from simulator import simulate
from simulator.base.rng import Streams
from simulator.engine.draws import Draws
from simulator.resolve.resolve import resolve
from tests.support.closed_forms import harmonic

SEED = 3  # of the sample scenario
EXPONENTIAL = {"jitter": {"kind": "exponential"}, "apply": "0 s"}
WORKERS = 5


def ssp(bound: int) -> dict:
    return {"kind": "parameter-server", "mode": "ssp", "workers": WORKERS, "bound": bound}


def recurrence(durations: np.ndarray, bound: int) -> np.ndarray:
    """When each step ends, shape (workers, steps), for compute times of that shape."""
    ends = np.zeros_like(durations)
    for step in range(durations.shape[1]):
        before = ends[:, step - 1] if step else 0.0
        slowest = ends[:, step - bound - 1].max() if step > bound else 0.0
        ends[:, step] = np.maximum(before, slowest) + durations[:, step]
    return ends


@pytest.mark.parametrize("bound", [0, 1, 2, 7])
def test_every_step_ends_when_the_recurrence_says(scenario, bound):
    built = scenario(workload=EXPONENTIAL, cluster=FAST, strategy=ssp(bound), run={"steps": 60})
    # the job ends with its 300th step, by when the fastest may have made so many more than 60
    factors = Draws(resolve(built), Streams(SEED, 0)).factors(np.arange(WORKERS), 61 + bound)
    want = recurrence(factors * COMPUTE_S, bound)
    made = [0] * WORKERS
    for step in recorded(built).steps:
        assert step.end_s == pytest.approx(want[step.replica, made[step.replica]], rel=1e-5)
        made[step.replica] += 1
    assert sum(made) == 60 * WORKERS


@pytest.mark.slow
@pytest.mark.parametrize("bound", [0, 1, 3])
@pytest.mark.parametrize("network", [{}, FAST])
def test_nobody_begins_a_step_more_than_bound_steps_ahead(scenario, bound, network):
    built = scenario(workload=EXPONENTIAL, cluster=network, strategy=ssp(bound), run={"steps": 200, "warmup_steps": 1})
    clocks, ahead = [0] * WORKERS, 0
    records = recorded(built)
    # reads before ends at the same instant: a worker may read in the very moment that the slowest lets it go
    moments = [(update.read_s, 1, update.worker) for update in records.updates] + [(step.end_s, 0, step.replica) for step in records.steps]
    for _, reads, worker in sorted(moments):
        if reads:
            ahead = max(ahead, clocks[worker] - min(clocks))
        else:
            clocks[worker] += 1
            assert max(clocks) - min(clocks) <= bound + 1
    assert ahead == bound
    assert max(update.staleness for update in records.updates) <= (WORKERS - 1) * (2 * bound + 1)


@pytest.mark.statistics
def test_bound_0_is_lock_step(scenario):
    """Nobody begins a step before all have ended the one before: the largest of n draws, as synchronously."""
    built = scenario(workload=EXPONENTIAL, cluster=FAST, strategy=ssp(0), run={"steps": 220, "warmup_steps": 20})
    assert_mean(seconds_per_update(built, 40) * WORKERS, harmonic(WORKERS) * COMPUTE_S)


@pytest.mark.parametrize("network", [{}, FAST])
def test_a_large_bound_is_asynchronous_exactly(scenario, network):
    run = {"steps": 80, "warmup_steps": 5}
    load = {**EXPONENTIAL, "server": {"base": "100 us"}}
    bound = simulate(scenario(workload=load, cluster=network, strategy=ssp(10**9), run=run))
    free = simulate(scenario(workload=load, cluster=network, strategy={**ssp(0), "mode": "async", "bound": None}, run=run))
    for key in ("throughput_of_each_replication", "step_time_s", "breakdown_s", "events", "phase"):
        assert getattr(bound, key) == getattr(free, key)
    assert bound.staleness.histogram == free.staleness.histogram


def test_a_larger_bound_is_never_slower_without_a_network(scenario):
    """Each end of the recurrence is a monotone function of the bound, draw by draw."""
    rates = [
        simulate(scenario(workload=EXPONENTIAL, cluster=FAST, strategy=ssp(bound), run={"steps": 60})).throughput_of_each_replication
        for bound in (0, 1, 2, 4, 16)
    ]
    for slower, faster in itertools.pairwise(rates):
        assert all(a <= b * (1 + 1e-6) for a, b in zip(slower, faster, strict=True))


def test_held_back_workers_wait(scenario):
    """A worker of half speed sets the pace; the others wait the rest of its step."""
    slow = [{"name": "slow", "nodes": 1, "speed": 0.5}]
    built = scenario(cluster={**FAST, "node_classes": slow}, strategy=ssp(2), run={"steps": 60, "warmup_steps": 10})
    result = simulate(built)
    assert result.step_time_s.mean == pytest.approx(2 * COMPUTE_S, rel=1e-5)
    assert result.breakdown_s.waiting == pytest.approx((WORKERS - 1) / WORKERS * COMPUTE_S, rel=1e-5)
