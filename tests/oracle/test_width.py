"""What the width of an interval is made of, in scenarios whose variance is known in closed form, and whether promises come true."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

import paceline.comparing
from simulator import load_scenario, simulate
from simulator.resolve.measured_defaults import COMPUTE, LINK
from simulator.results.inadequacy import discrepancy_of
from simulator.results.next_measurement import width_of
from simulator.results.results import Result

RING = {"kind": "multi-worker-mirrored", "workers": 2}
"""Both hold 1 MB, ready at the end of the backward pass: a step is compute and then 2 (n - 1) / n MB over the link, and nothing hides."""


def drawn(parameter: str, value: float, sd: float, seed: int) -> dict[str, Any]:
    draws = value * np.exp(np.random.default_rng(seed).normal(0.0, sd, 400))
    return {"parameters": [parameter], "draws": [[float(one)] for one in draws]}


def uncertain(scenario: Any, compute_sd: float, link_sd: float, runs: int = 200, **workload: Any) -> Any:
    parts: dict[str, Any] = {"workload": dict(workload), "cluster": {}}
    if compute_sd:
        parts["workload"]["uncertainty"] = drawn("backward.per_sample_s", 2e-4, compute_sd, 1)
    if link_sd:
        parts["cluster"]["uncertainty"] = drawn("inter_node.bandwidth_bytes_per_s", 1e9, link_sd, 2)
    return scenario(**parts, strategy=RING, run={"replications": runs})


def shares(result: Result) -> dict[str, tuple[float, float]]:
    return {its.name: (its.first.mean, its.total.mean) for its in width_of(result).contributions}


@pytest.mark.slow
def test_of_compute_alone_all_is_computes(scenario) -> None:
    found = shares(simulate(uncertain(scenario, 0.3, 0.0)))
    assert found[COMPUTE][0] == pytest.approx(1.0, abs=0.02)


@pytest.mark.slow
def test_of_a_link_alone_all_is_the_links(scenario) -> None:
    found = shares(simulate(uncertain(scenario, 0.0, 0.3)))
    assert found[LINK][0] == pytest.approx(1.0, abs=0.02)


@pytest.mark.statistics
def test_of_both_the_shares_are_those_of_the_closed_form(scenario) -> None:
    """By the pick-freeze estimator of scipy (Saltelli et al. 2010) on -log(time of a step), which is known."""
    compute_sd, link_sd = 0.2, 0.6

    def minus_log_step(draws: np.ndarray) -> np.ndarray:
        compute, bandwidth = np.exp(compute_sd * draws[0]), np.exp(link_sd * draws[1])
        return -np.log(1e-3 * 2 + 2e-3 + 2e-3 * compute + 5e-4 + 1e-3 / bandwidth)

    known = stats.sobol_indices(func=minus_log_step, n=2**14, dists=[stats.norm(), stats.norm()], rng=np.random.default_rng(1))
    found = shares(simulate(uncertain(scenario, compute_sd, link_sd, 400)))
    for place, name in enumerate((COMPUTE, LINK)):
        assert found[name] == pytest.approx((known.first_order[place], known.total_order[place]), abs=0.08)


@pytest.mark.slow
def test_a_measured_fit_narrows_as_promised(scenario) -> None:
    """Four times as many processes halve the spread of compute; the interval is then simulated again with half the spread."""
    jitter = {"jitter": {"kind": "lognormal", "sigma": 0.02}, "provenance": {"runs": "3"}}
    wide = simulate(uncertain(scenario, 0.4, 0.3, 99, **jitter))
    promised = next(its for its in width_of(wide).measure_next if its.command.startswith("paceline calibrate MODEL"))
    assert promised.command.endswith("--runs 12")
    assert promised.narrows == (COMPUTE,)
    then = simulate(uncertain(scenario, 0.2, 0.3, 99, **jitter)).throughput_samples_per_s
    assert promised.left == pytest.approx(math.log(then.high / then.low) / _width(wide), rel=0.1)


@pytest.mark.slow
def test_a_measured_link_narrows_what_communication_is_off_by_and_nothing_else() -> None:
    """The width promised is that with the communication of measured links and the compute that it has."""
    settings = [("cluster.use", "ethernet-1g"), ("strategy.workers", 4), ("run.steps", 30)]
    assumed = simulate(load_scenario("ring", settings))
    promised = next(each for each in width_of(assumed).measure_next if each.command.startswith("paceline calibrate-link"))
    link = {"cluster.basis": "measured", "cluster.inter_node.sort": "given", "cluster.inter_node.bandwidth": "0.846 Gbit/s"}
    then = load_scenario("ring", [*settings, *link.items()])
    rate = simulate(then).throughput_samples_per_s
    assert promised.left == pytest.approx(math.log(rate.high / rate.low) / _width(assumed), rel=0.1)
    now, measured = discrepancy_of(assumed.scenario), discrepancy_of(then)
    assert now is not None
    assert measured is not None
    assert now.compute == measured.compute
    assert now.communication.at > measured.communication.at


def test_decisions_of_two_lognormal_rates_are_those_of_the_closed_form() -> None:
    """P(A is faster) = Phi(m / s), and the expected gain of the better one is Margrabe's (1978): of exchanging one for the other."""
    rng = np.random.default_rng(1)
    mean, sd = np.array([0.1, 0.0]), np.array([0.2, 0.1])
    logs = mean[:, None] + sd[:, None] * rng.standard_normal((2, 400_000))
    apart, spread = mean[0] - mean[1], math.hypot(*sd)
    one, other = paceline.comparing.stakes(np.exp(logs), 10_000, most=True)
    assert one.best == pytest.approx(stats.norm.cdf(apart / spread), abs=0.003)
    assert one.best + other.best == pytest.approx(1.0)
    means = np.exp(mean + sd**2 / 2)
    above = (math.log(means[1] / means[0]) + spread**2 / 2) / spread
    regret = means[1] * stats.norm.cdf(above) - means[0] * stats.norm.cdf(above - spread)  # E max(B - A, 0): of choosing A
    assert one.regret == pytest.approx(regret, rel=0.01)
    # as a share of the better, E max(1 - A / B, 0), of a lognormal A / B with -m and s
    below = stats.norm.cdf(-apart / spread) - math.exp(apart + spread**2 / 2) * stats.norm.cdf(-apart / spread - spread)
    assert one.share == pytest.approx(below, rel=0.01)


def _width(result: Result) -> float:
    its = result.throughput_samples_per_s
    return math.log(its.high / its.low)
