"""What differs between worker processes and between samples of steps, against order statistics and resampling by hand."""

from __future__ import annotations

import numpy as np
import pytest
from oracles.audit import audit
from scipy import integrate, stats

from simulator import simulate
from simulator.base.rng import Streams
from simulator.spec.distributions import Empirical
from tests.support.closed_forms import ring_all_reduce_s

COMPUTE_S = 1e-3 + 2e-3 + 10 * 300e-6
APPLY_S = 500e-6
CV = 0.1
RUNS = 200


def step_s(result) -> np.ndarray:
    """Seconds of the mean step of each replication."""
    return result.replicas * 10 / np.array(result.throughput_of_each_replication)


def largest_of(count: int, cv: float) -> float:
    """Mean of the largest of some lognormal numbers of mean 1."""
    sigma = np.sqrt(np.log1p(cv**2))
    law = stats.lognorm(sigma, scale=np.exp(-(sigma**2) / 2))
    return float(integrate.quad(lambda x: 1.0 - law.cdf(x) ** count, 0.0, 4.0)[0])


def ring(scenario, shared, *, workers=8, cluster=None, **strategy):
    load = {"run_to_run_cv": CV} | ({} if shared is None else {"run_to_run_shared": shared})
    how = {"kind": "multi-worker-mirrored", "workers": workers, **strategy}
    run = {"steps": 4, "warmup_steps": 1, "replications": RUNS}
    return scenario(workload=load, cluster=cluster or {}, strategy=how, run=run)


@pytest.mark.statistics
@pytest.mark.parametrize(("shared", "processes"), [*(pytest.param(shared, 8, marks=pytest.mark.long) for shared in (None, 0.0)), (1.0, 8)])
def test_the_slowest_process_decides(scenario, shared, processes):
    """One process a node: what processes of one machine share is drawn for each by itself, too."""
    times_s = step_s(simulate(ring(scenario, shared)))
    expected_s = (COMPUTE_S + APPLY_S) * largest_of(processes, CV) + ring_all_reduce_s(8, 1e6, 1e9, 0.0)
    assert times_s.mean() == pytest.approx(expected_s, abs=4 * times_s.std() / np.sqrt(RUNS))


@pytest.mark.statistics
@pytest.mark.parametrize(
    ("shared", "strategy", "cluster"),
    [
        (1.0, {}, {"devices_per_node": 8}),  # eight processes of one machine that have all in common
        (1.0, {}, {"shared_cores": 64}),  # all nodes are processes of one machine
        (None, {"workers": 1, "replicas_per_worker": 8}, {"devices_per_node": 8}),  # one process
    ],
)
def test_what_is_shared_moves_all_alike(scenario, shared, strategy, cluster):
    times_s = step_s(simulate(ring(scenario, shared, cluster=cluster, **strategy)))
    # in a node the ring goes by links ten times as fast; between processes of one machine by those between nodes
    link_s = ring_all_reduce_s(8, 1e6, 1e9 if "shared_cores" in cluster else 1e10, 0.0)
    assert times_s.mean() == pytest.approx(COMPUTE_S + APPLY_S + link_s, abs=4 * times_s.std() / np.sqrt(RUNS))
    assert times_s.std() / (COMPUTE_S + APPLY_S) == pytest.approx(CV, rel=0.25)


@pytest.mark.statistics
def test_an_interval_of_independent_processes_is_that_of_their_largest(scenario):
    """Eight independent draws differ less between runs than one common draw: the old way made intervals too wide."""
    apart, together = (step_s(simulate(ring(scenario, shared, cluster={"devices_per_node": 8}))).std() for shared in (0.0, 1.0))
    draws = np.random.default_rng(0).lognormal(0, np.sqrt(np.log1p(CV**2)), (20_000, 8)).max(axis=1).std()
    assert apart == pytest.approx((COMPUTE_S + APPLY_S) * draws, rel=0.25)
    assert apart < 0.9 * together


@pytest.mark.statistics
def test_asynchronous_workers_average_over_processes(scenario):
    """Nobody waits: throughput is the sum of the workers' own rates, and mean(1 / factor) = 1 + cv^2 for lognormal factors of mean 1."""
    strategy = {"kind": "parameter-server", "mode": "async", "workers": 16, "servers": 1}
    built = scenario(
        workload={"run_to_run_cv": CV},
        cluster={"inter_node": {"bandwidth": "1000 TB/s"}},
        strategy=strategy,
        run={"steps": 200, "warmup_steps": 5, "replications": 60},
    )
    rates = np.array(simulate(built).throughput_of_each_replication)
    assert rates.mean() / (16 * 10) * COMPUTE_S == pytest.approx(1 + CV**2, abs=0.01)
    assert rates.std() / rates.mean() == pytest.approx(CV / 4, rel=0.3)


# -- the law of step times ------------------------------------------------------------------


def sample(outlier: float | None) -> list[float]:
    values = np.linspace(0.97, 1.03, 199 if outlier else 200).tolist()
    return [*values, outlier] if outlier else values


def measured(values, steps: int) -> dict:
    times = {"mean_s": 6e-3, "p5_s": 6e-3, "median_s": 6e-3, "p95_s": 6e-3, "forward_s": 2e-3, "backward_s": 4e-3, "apply_s": 0.0}
    fit = {"relative_residual": 0.0, "points": [{"batch": 10, "steps": steps, **times}]}
    return {"jitter": {"kind": "empirical", "values": values}, "fit": fit}


def of_64(scenario, load):
    return simulate(
        scenario(
            workload=load,
            strategy={"kind": "multi-worker-mirrored", "workers": 64},
            run={"steps": 30, "warmup_steps": 3, "replications": 39},
        )
    )


@pytest.mark.statistics
def test_one_measured_straggler_is_not_certain(scenario):
    """With 64 workers one value in 200 slows every third step: whether it is there at all, another sample may say otherwise."""
    with_it, without = of_64(scenario, measured(sample(2.27), 200)), of_64(scenario, measured(sample(None), 200))
    interval = with_it.throughput_samples_per_s
    assert interval.low < with_it.throughput_samples_per_s.mean < interval.high
    assert interval.low <= without.throughput_samples_per_s.mean <= interval.high
    # given as a law, not measured, it is certain, and the interval does not reach that far
    given = of_64(scenario, {"jitter": {"kind": "empirical", "values": sample(2.27)}})
    assert given.throughput_samples_per_s.high < without.throughput_samples_per_s.mean


def test_a_law_is_resampled_as_often_as_steps_were_seen():
    law = Empirical(values=tuple(sample(2.27)))
    tops = [max(law.resampled(200, np.random.default_rng(seed)).values) for seed in range(400)]
    # the chance that the one largest of 200 values is drawn in 200 draws
    assert np.mean(np.array(tops) > 2) == pytest.approx(1 - (1 - 1 / 200) ** 200, abs=4 * np.sqrt(0.63 * 0.37 / 400))
    assert all(len(law.resampled(seen, np.random.default_rng(0)).values) == min(seen, 4096) for seen in (5, 200, 100_000))


def test_each_run_takes_one_of_the_fitted_laws(scenario):
    laws = [{"kind": "constant"}, {"kind": "exponential"}]
    built = scenario(workload={"jitter": {"kind": "exponential"}, "jitter_draws": laws})
    kinds = [built.workload.with_drawn_distribution(Streams(3, run).generator("law")).jitter.kind for run in range(200)]
    assert kinds.count("constant") == pytest.approx(100, abs=4 * np.sqrt(50))


@pytest.mark.parametrize(
    "strategy", [{"kind": "multi-worker-mirrored", "workers": 3}, {"kind": "parameter-server", "mode": "sync", "workers": 3}]
)
def test_no_step_is_faster_than_the_fastest_seen(scenario, strategy):
    """Whatever the jitter, the speed of the process and the draw of the mean come to together."""
    uncertain = {"parameters": ["forward.base_s"], "draws": [[0.5e-3], [1e-3], [2e-3]]}
    load = {"jitter": {"kind": "normal", "cv": 0.3}, "jitter_least": 0.8, "run_to_run_cv": 0.1, "uncertainty": uncertain}
    built = scenario(workload=load, strategy=strategy, run={"steps": 60})
    # of a step seen, the optimizer's update is a part: it is drawn with compute
    whole = [min(step.compute_s for step in audit(built, replication).steps) for replication in range(12)]
    assert min(whole) == pytest.approx(0.8 * COMPUTE_S, rel=0.02)


@pytest.mark.statistics
@pytest.mark.parametrize("shared", [0.0, 1.0])
def test_a_speed_up_has_the_luck_of_its_own_processes_only(scenario, shared):
    """What processes of a machine share cancels; the one replica alone has their mean speed, not that of the first of them."""
    fast = {"devices_per_node": 8, "intra_node": {"bandwidth": "1000 TB/s"}}
    result = simulate(ring(scenario, shared, cluster=fast))
    rates = np.array(result.throughput_of_each_replication)
    if shared:
        assert (result.speedup.low, result.speedup.high) == pytest.approx((8, 8), rel=1e-6)
        assert rates.std() / rates.mean() > CV / 2
    else:
        assert result.speedup.mean == pytest.approx(rates.mean() * (COMPUTE_S + APPLY_S) / 10, rel=1e-9)


def test_one_process_that_drives_all_replicas_cancels_in_their_speed_up(scenario):
    load, fast = {"run_to_run_cv": CV}, {"devices_per_node": 4, "intra_node": {"bandwidth": "1000 TB/s"}}
    result = simulate(scenario(workload=load, cluster=fast, strategy={"kind": "mirrored", "replicas": 4}, run={"replications": 19}))
    assert (result.scaling_efficiency.low, result.scaling_efficiency.high) == pytest.approx((1, 1), rel=1e-6)


def test_a_law_that_was_drawn_from_equals_one_that_was_not():
    used, fresh = Empirical(values=(1.0, 2.0)), Empirical(values=(1.0, 2.0))
    used.sample(np.random.default_rng(0), 3)
    assert used == fresh == Empirical.model_validate(used.model_dump())
    assert used != Empirical(values=(1.0, 3.0))
    fresh.mean()
    assert used == fresh
