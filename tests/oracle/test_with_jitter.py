"""Strategies with jitter against exact results of queueing and order statistics.

Tolerances come from the sample: z standard errors of the replications' mean. z = 4 makes
a false alarm a matter of one in ten thousand; seeds are fixed, so there is none.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from oracles.audit import audit
from support.runs import COMPUTE_S, FAST, assert_mean, steps_per_s
from support.sampling import a_few

from simulator import simulate
from tests.support.closed_forms import asynchronous_server_bound, harmonic, mean_value_analysis, ring_all_reduce_s, sync_step_exponential_s

EXPONENTIAL = {"jitter": {"kind": "exponential"}, "apply": "0 s"}


@pytest.mark.statistics
@pytest.mark.parametrize(
    ("workers", "strategy"),
    a_few(itertools.product([2, 8, 32], [{"kind": "multi-worker-mirrored"}, {"kind": "parameter-server", "mode": "sync"}]), 2, seed=2),
)
def test_synchronous_step_is_the_largest_of_n_exponentials(scenario, strategy, workers):
    built = scenario(workload=EXPONENTIAL, cluster=FAST, strategy={**strategy, "workers": workers}, run={"steps": 220, "warmup_steps": 20})
    steps_s = 1 / steps_per_s(built, 30) * workers
    assert_mean(steps_s, sync_step_exponential_s(workers, COMPUTE_S, 0.0))


@pytest.mark.statistics
@pytest.mark.parametrize("workers", [2, 8])
def test_ring_begins_when_the_last_is_ready(scenario, workers):
    """Whoever is last, an equal ring then needs all of its 2 (n - 1) steps."""
    built = scenario(
        workload=EXPONENTIAL, strategy={"kind": "multi-worker-mirrored", "workers": workers}, run={"steps": 220, "warmup_steps": 20}
    )
    steps_s = 1 / steps_per_s(built, 30) * workers
    assert_mean(steps_s, sync_step_exponential_s(workers, COMPUTE_S, ring_all_reduce_s(workers, 1e6, 1e9, 0.0)))


@pytest.mark.statistics
@pytest.mark.parametrize("workers", [2, 16])
def test_asynchronous_workers_without_a_network_are_independent(scenario, workers):
    built = scenario(
        workload=EXPONENTIAL,
        cluster=FAST,
        strategy={"kind": "parameter-server", "mode": "async", "workers": workers},
        run={"steps": 220, "warmup_steps": 20},
    )
    assert_mean(steps_per_s(built, 30), workers / COMPUTE_S)


@pytest.mark.statistics
@pytest.mark.parametrize(("workers", "megabytes"), a_few([(2, 6), (4, 3), (12, 1), (12, 3)], 2, seed=2))
def test_asynchronous_servers_link_is_a_shared_station(scenario, workers, megabytes):
    """Pull, compute, push: two processor-sharing stations and a delay, for which mean value analysis is exact."""
    size = [{"name": "v", "size": f"{megabytes} MB", "creation_index": 0, "ready": 1.0}]
    built = scenario(
        workload={**EXPONENTIAL, "variables": size},
        strategy={"kind": "parameter-server", "mode": "async", "workers": workers},
        run={"steps": 330, "warmup_steps": 30},
    )
    demand_s = megabytes * 1e6 / 1e9
    want, _ = mean_value_analysis(workers, [demand_s, demand_s], COMPUTE_S)
    assert_mean(steps_per_s(built, 30), want)
    assert want <= asynchronous_server_bound(workers, demand_s, COMPUTE_S + demand_s)


@pytest.mark.statistics
@pytest.mark.parametrize("workers", [2, 5, 16])
def test_mean_staleness_is_workers_less_one(scenario, workers):
    """Each worker reads the moment its update is applied, so that all others' updates lie in between: exactly, in the long run."""
    built = scenario(
        workload={**EXPONENTIAL, "server": {"base": "100 us"}},
        strategy={"kind": "parameter-server", "mode": "async", "workers": workers},
        run={"steps": 400, "warmup_steps": 50, "replications": 5},
    )
    result = simulate(built)
    # the window cuts at most one update a worker at each of its ends
    assert result.staleness.mean == pytest.approx(workers - 1, abs=2 * workers * workers / (350 * workers))
    assert sum(result.staleness.histogram.counts) == 5 * 350 * workers


@pytest.mark.slow
def test_little(scenario):
    """Updates in flight = update rate x mean time from read to apply; what an update meets there is all but itself."""
    built = scenario(
        workload={**EXPONENTIAL, "server": {"base": "200 us"}},
        strategy={"kind": "parameter-server", "mode": "async", "workers": 8, "servers": 1},
        run={"steps": 500, "warmup_steps": 50},
    )
    updates = audit(built).updates
    rate = len(updates) / (max(update.applied_s for update in updates) - min(update.read_s for update in updates))
    flight_s = np.mean([update.applied_s - update.read_s for update in updates])
    staleness = np.mean([update.staleness for update in updates])
    assert rate * flight_s == pytest.approx(8, rel=0.01)
    assert staleness == pytest.approx(rate * flight_s - 1, rel=0.02)


@pytest.mark.statistics
def test_shifted_exponential_and_gamma_keep_their_mean(scenario):
    """Jitter has mean 1 whatever its law: the mean step of one replica is the fit's."""
    for law in (
        {"kind": "shifted-exponential", "tail": 0.4},
        {"kind": "gamma", "shape": 4.0},
        {"kind": "lognormal", "sigma": 0.3},
        {"kind": "normal", "cv": 0.1},
        {"kind": "empirical", "values": [1.0, 1.5, 4.0]},
    ):
        built = scenario(workload={"jitter": law, "apply": "0 s"}, run={"steps": 500, "warmup_steps": 10})
        steps_s = 1 / steps_per_s(built, 30)
        # a ratio of sums: its bias is of the order of its variance, far below the tolerance
        assert_mean(steps_s, COMPUTE_S)


@pytest.mark.statistics
def test_interval_covers_a_new_run(scenario):
    """The 90% prediction interval holds 90% of runs that it has not seen: 400 new ones against intervals of 20 seeds."""
    covered = []
    for seed in range(20):
        parts = {"workload": {**EXPONENTIAL, "run_to_run_cv": 0.1}, "strategy": {"kind": "multi-worker-mirrored", "workers": 4}}
        built = scenario(**parts, run={"steps": 30, "warmup_steps": 3, "replications": 19, "seed": seed})
        interval = simulate(built).throughput_samples_per_s
        fresh = steps_per_s(scenario(**parts, run={"steps": 30, "warmup_steps": 3, "seed": 10_000 + seed}), 20) * 10
        covered += [interval.low <= value <= interval.high for value in fresh]
    share = np.mean(covered)
    # the coverage of one interval has standard deviation 0.065 (beta(18, 2)); the mean of 20, with 20 draws each, 0.021
    assert 0.9 - 4 * 0.021 < share < 0.9 + 4 * 0.021


def test_harmonic():
    assert harmonic(4) == pytest.approx(1 + 1 / 2 + 1 / 3 + 1 / 4, rel=1e-15)
