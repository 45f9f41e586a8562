"""Synchronous and asynchronous steps against order statistics and renewal theory.

The mean of the k-th smallest of n draws is an integral of the law's distribution
function, done numerically here; for exponentials it is (H_n - H_(n-k)) / mu.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats
from support.runs import COMPUTE_S, FAST, assert_mean, seconds_per_update, steps_per_s
from support.sampling import a_few

from simulator import simulate
from tests.support.closed_forms import backup_step_exponential_s, harmonic, kth_of_n

FREE = {"apply": "0 s"}
RUN = {"steps": 220, "warmup_steps": 20}
DISTRIBUTIONS = {
    "exponential": ({"kind": "exponential"}, stats.expon()),
    "shifted": ({"kind": "shifted-exponential", "tail": 0.5}, stats.expon(loc=1 / 1.5, scale=0.5 / 1.5)),
    "gamma": ({"kind": "gamma", "shape": 4.0}, stats.gamma(4.0, scale=0.25)),
    "lognormal": ({"kind": "lognormal", "sigma": 0.6}, stats.lognorm(0.6, scale=np.exp(-0.18))),
}


def test_the_integral_is_the_harmonic_difference():
    assert kth_of_n(stats.expon(), 6, 8) == pytest.approx(harmonic(8) - harmonic(2), rel=1e-6)
    assert backup_step_exponential_s(8, 2, 3.0) == pytest.approx(3 * (harmonic(8) - harmonic(2)), rel=1e-15)
    assert backup_step_exponential_s(8, 0, 3.0) == pytest.approx(3 * harmonic(8), rel=1e-15)


@pytest.mark.statistics
@pytest.mark.parametrize(("law", "crew"), a_few(itertools.product(DISTRIBUTIONS, [(4, 1), (8, 3), (8, 7)]), 4))
def test_backup_workers_that_stop_wait_for_the_k_fastest(scenario, law, crew):
    """K-sync SGD (Dutta et al. 2018): every step all begin anew, and the k-th smallest draw ends it."""
    workers, backups = crew
    table, shape = DISTRIBUTIONS[law]
    strategy = {"kind": "parameter-server", "mode": "sync", "workers": workers, "backup_workers": backups, "late_workers": "cancel"}
    built = scenario(workload={**FREE, "jitter": table}, cluster=FAST, strategy=strategy, run=RUN)
    assert_mean(seconds_per_update(built, 40), COMPUTE_S * kth_of_n(shape, workers - backups, workers))


@pytest.mark.statistics
@pytest.mark.parametrize(("workers", "backups"), [(4, 1), (10, 4)])
def test_exponential_backup_workers_take_the_harmonic_difference(scenario, workers, backups):
    strategy = {"kind": "parameter-server", "mode": "sync", "workers": workers, "backup_workers": backups, "late_workers": "cancel"}
    built = scenario(workload={**FREE, "jitter": {"kind": "exponential"}}, cluster=FAST, strategy=strategy, run=RUN)
    assert_mean(seconds_per_update(built, 40), backup_step_exponential_s(workers, backups, COMPUTE_S))
    result = simulate(built)
    # of each step's gradients those of the backups are dropped, and the others enter an update
    assert result.dropped_share == pytest.approx(backups / workers, rel=1e-9)
    assert result.throughput_samples_per_s.mean == pytest.approx((workers - backups) * 10 * result.updates_per_s.mean, rel=1e-9)


@pytest.mark.statistics
@pytest.mark.parametrize(
    ("law", "strategy"),
    a_few(itertools.product(DISTRIBUTIONS, [{"kind": "multi-worker-mirrored"}, {"kind": "parameter-server", "mode": "sync"}]), 3, seed=3),
)
def test_synchronous_step_is_the_largest_of_n_draws(scenario, law, strategy):
    table, shape = DISTRIBUTIONS[law]
    built = scenario(workload={**FREE, "jitter": table}, cluster=FAST, strategy={**strategy, "workers": 8}, run=RUN)
    assert_mean(seconds_per_update(built, 40), COMPUTE_S * kth_of_n(shape, 8, 8))


@pytest.mark.statistics
@pytest.mark.parametrize("law", a_few(DISTRIBUTIONS, 2))
def test_an_asynchronous_update_takes_the_mean_over_n(scenario, law):
    """Renewal theory: n independent workers together make n / E[X] updates a second, whatever the law."""
    table, _ = DISTRIBUTIONS[law]
    built = scenario(
        workload={**FREE, "jitter": table}, cluster=FAST, strategy={"kind": "parameter-server", "mode": "async", "workers": 6}, run=RUN
    )
    assert_mean(steps_per_s(built, 40), 6 / COMPUTE_S)


@pytest.mark.statistics
@pytest.mark.parametrize(("messages", "every"), a_few(itertools.product([False, True], [2, 5]), 2, seed=2))
def test_local_sgd_waits_for_the_largest_of_n_sums(scenario, every, messages):
    """Between two averages each worker makes its steps alone: the sum of H exponentials is an Erlang."""
    built = scenario(
        workload={**FREE, "jitter": {"kind": "exponential"}},
        cluster=FAST,
        strategy={"kind": "multi-worker-mirrored", "workers": 6, "sync_every": every, "detail": "messages" if messages else "auto"},
        run={"steps": 44 * every, "warmup_steps": 4 * every},
    )
    assert_mean(seconds_per_update(built, 40), COMPUTE_S * kth_of_n(stats.gamma(every), 6, 6))


@pytest.mark.statistics
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_worker_that_is_slow_for_a_while_has_the_mean_factor(scenario, mode):
    """A renewal-reward argument: in the long run a step takes its mean times 1 + (factor - 1) x share of slow steps."""
    slow = {"name": "burst", "nodes": 1, "slowdown": {"factor": 5.0, "mean_slow_steps": 3.0, "mean_normal_steps": 9.0}}
    strategy = {"kind": "parameter-server", "mode": mode, "workers": 3 if mode == "sync" else 1}
    built = scenario(workload=FREE, cluster={**FAST, "node_classes": [slow]}, strategy=strategy, run={"steps": 600, "warmup_steps": 20})
    assert_mean(seconds_per_update(built, 60), COMPUTE_S * (1 + 4 * 3 / 12))
