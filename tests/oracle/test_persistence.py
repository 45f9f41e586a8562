"""Steps that take what the one before took: the limits of none and for ever, and what lies between, against exact results.

How long steps take on the mean does not depend on their persistence, and so neither does a step in which all wait for all, nor the
rate of workers that wait for nobody. What depends on it is how far runs differ, how unequal workers are over many steps, and so
what a sum of several steps waits for, and how stale gradients are.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats
from support.runs import COMPUTE_S, FAST, assert_mean, seconds_per_update, steps_per_s
from support.sampling import a_few

from simulator import simulate
from simulator.base.rng import Streams
from simulator.engine.draws import Draws
from simulator.resolve.drawing import slowest_of
from simulator.resolve.resolve import resolve
from simulator.spec.distributions import Empirical, Exponential, Gamma
from tests.support.closed_forms import kth_of_n, mean_value_analysis

RUNS = 40
ASYNC = {"kind": "parameter-server", "mode": "async"}
RING = {"kind": "multi-worker-mirrored"}


def load(persistence: float, **jitter: object) -> dict[str, object]:
    """Gamma jitter of a standard deviation of half the mean, or other; nothing but computing."""
    return {"apply": "0 s", "jitter": {"kind": "gamma", "shape": 4.0, **jitter, "persistence": persistence}}


def run(steps: int) -> dict[str, int]:
    return {"steps": steps + steps // 10, "warmup_steps": steps // 10}


def variance_of_mean(count: int, persistence: float) -> float:
    """Of the mean of some successive draws, over the variance of one: (1 + 2 sum of (1 - k / n) r^k for k below n) / n."""
    apart = np.arange(1, count)
    return float((1 + 2 * ((1 - apart / count) * persistence**apart).sum()) / count)


@pytest.mark.statistics
@pytest.mark.parametrize(("persistence", "strategy"), a_few(itertools.product([0.5, 0.9], [RING, {**ASYNC, "mode": "sync"}]), 2, seed=2))
def test_who_waits_in_every_step_waits_as_long_whatever_persists(scenario, strategy, persistence):
    built = scenario(workload=load(persistence), cluster=FAST, strategy={**strategy, "workers": 8}, run=run(400))
    assert_mean(seconds_per_update(built, RUNS), COMPUTE_S * kth_of_n(stats.gamma(4.0, scale=0.25), 8, 8))


@pytest.mark.statistics
@pytest.mark.parametrize("persistence", a_few([0.0, 0.5, 0.9, 1.0], 2))
def test_runs_of_one_worker_differ_as_the_mean_of_correlated_draws(scenario, persistence):
    """A variance of a sample of n has itself a relative standard error of sqrt((kurtosis - 1) / n), with 2.5 for kurtosis at most here."""
    built = scenario(workload=load(persistence), cluster=FAST, strategy={"kind": "single"}, run=run(50))
    found = seconds_per_update(built, 400) / COMPUTE_S
    assert found.var(ddof=1) == pytest.approx(0.25 * variance_of_mean(50, persistence), rel=4 * np.sqrt(3.5 / 400))


@pytest.mark.statistics
def test_for_ever_a_run_is_the_slowest_of_its_draws(scenario):
    built = scenario(workload=load(1.0), cluster=FAST, strategy={**RING, "workers": 8}, run=run(20))
    found = seconds_per_update(built, 300) / COMPUTE_S
    expected = np.random.default_rng(0).gamma(4.0, 0.25, (100_000, 8)).max(axis=1)
    assert stats.ks_2samp(found, expected).pvalue > 1e-3


@pytest.mark.statistics
@pytest.mark.parametrize("persistence", a_few([0.5, 0.9], 1))
def test_who_waits_for_nobody_makes_as_many_steps_whatever_persists(scenario, persistence):
    """Renewal theory, of stretches of equal steps."""
    built = scenario(workload=load(persistence), cluster=FAST, strategy={**ASYNC, "workers": 6}, run=run(400))
    assert_mean(steps_per_s(built, RUNS), 6 / COMPUTE_S)


@pytest.mark.statistics
def test_who_is_fast_for_ever_makes_more_steps(scenario):
    """E[1 / X], which is k / (k - 1) for a gamma of shape k and mean 1: the mean of rates, not the rate of the mean."""
    built = scenario(workload=load(1.0, shape=6.0), cluster=FAST, strategy={**ASYNC, "workers": 6}, run=run(100))
    assert_mean(steps_per_s(built, 400), 6 / COMPUTE_S * 6 / 5)


@pytest.mark.statistics
@pytest.mark.parametrize("persistence", a_few([0.0, 0.5, 0.9, 1.0], 2))
def test_local_sgd_waits_longer_for_sums_of_steps_that_persist(scenario, persistence):
    """Sums of H = 5 successive draws of 6 workers, of which the largest counts: chains drawn here one draw after the other."""
    rng = np.random.default_rng(1)
    now = rng.gamma(4.0, 0.25, (40_000, 6))
    sums = np.zeros((40_000, 6))
    for _ in range(5):
        sums += now
        now = np.where(rng.random(now.shape) < persistence, now, rng.gamma(4.0, 0.25, now.shape))
    expected = sums.max(axis=1)
    built = scenario(workload=load(persistence), cluster=FAST, strategy={**RING, "workers": 6, "sync_every": 5}, run=run(200))
    found = seconds_per_update(built, 300) / COMPUTE_S
    error = np.sqrt(found.var(ddof=1) / len(found) + expected.var() / len(expected))
    assert found.mean() == pytest.approx(expected.mean(), abs=4 * error)
    assert error < 0.02 * expected.mean()
    if persistence in (0.0, 1.0):
        exact = kth_of_n(stats.gamma(20.0, scale=0.25), 6, 6) if not persistence else 5 * kth_of_n(stats.gamma(4.0, scale=0.25), 6, 6)
        assert expected.mean() == pytest.approx(exact, rel=0.01)


@pytest.mark.statistics
@pytest.mark.parametrize(("workers", "megabytes"), a_few([(4, 3), (12, 1)], 1))
def test_a_shared_link_is_used_as_much_whatever_persists(scenario, workers, megabytes):
    """Mean value analysis stays exact: a worker whose compute persists is a customer that changes its class, and processor sharing and
    delays do not mind (Baskett, Chandy, Muntz and Palacios, "Open, closed, and mixed networks of queues", 1975)."""
    size = [{"name": "v", "size": f"{megabytes} MB", "creation_index": 0, "ready": 1.0}]
    built = scenario(
        workload={"apply": "0 s", "jitter": {"kind": "exponential", "persistence": 0.8}, "variables": size},
        strategy={**ASYNC, "workers": workers},
        run=run(400),
    )
    want, _ = mean_value_analysis(workers, [megabytes * 1e-3] * 2, COMPUTE_S)
    assert_mean(steps_per_s(built, RUNS), want)


@pytest.mark.slow
def test_for_ever_staleness_is_what_the_others_do_in_ones_own_step(scenario):
    """Gradients of a worker whose steps take X are X (sum of 1 / X' over the others) updates late: slow workers' are the stalest."""
    built = scenario(workload=load(1.0), cluster=FAST, strategy={**ASYNC, "workers": 6}, run={**run(3000), "replications": 2, "seed": 5})
    factors = [Draws(resolve(built), Streams(5, number)).factors(np.arange(6), 3) for number in range(2)]
    assert all(np.array_equal(one[:, 0], one[:, 2]) for one in factors)
    rates = [1 / one[:, 0] for one in factors]
    shares = [rate / rate.sum() for rate in rates]  # of the updates of a run, and 1 / share - 1 is how stale each of them is
    expected = np.sum([1 - share for share in shares], axis=0) / np.sum(shares, axis=0)
    assert simulate(built).staleness.per_worker_mean == pytest.approx(expected.tolist(), rel=0.01)
    assert expected.max() > 1.5 * expected.min()


@pytest.mark.statistics
@pytest.mark.parametrize(
    "law",
    [
        Gamma(shape=4.0, persistence=0.4),
        Exponential(persistence=0.95),
        Gamma(shape=4.0, persistence=1.0),
        Empirical(values=(1.0, 2.0), persistence=0.3),  # a third long step replaces one that ends: the slowest persists far less
    ],
)
def test_of_several_that_persist_the_slowest_persists_as_well(law):
    slowest, _ = slowest_of(law, 4)
    rng = np.random.default_rng(8)
    now = law.sample(rng, (200_000, 4))
    then = np.where(rng.random(now.shape) < law.persistence, now, law.sample(rng, now.shape))
    expected = float(np.corrcoef(now.max(axis=1), then.max(axis=1))[0, 1])
    assert slowest.persistence == pytest.approx(expected, abs=0.06)  # 2,048 draws
    assert slowest_of(law.model_copy(update={"persistence": 0.0}), 4)[0].persistence == 0.0
