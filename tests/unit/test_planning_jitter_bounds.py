"""How far chance may carry a sum: limits that the bounds rest on."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import TypeAdapter
from support.scenarios import scenario_table

from paceline.planning.bounds import Ceilings, jitter_bounds, least_mean, worst_of
from simulator import scenario_from_table, simulate
from simulator.base.rng import Streams
from simulator.engine.slowdowns import drawn
from simulator.resolve.resolve import Asked
from simulator.spec.distributions import Distribution, Slowdown

DISTRIBUTIONS = [
    {"kind": "constant"},
    {"kind": "normal", "cv": 0.25},
    {"kind": "lognormal", "sigma": 0.5},
    {"kind": "gamma", "shape": 2.0},
    {"kind": "exponential"},
    {"kind": "shifted-exponential", "tail": 2.0},
    {"kind": "empirical", "values": [2.0, 3.0, 3.0, 9.0]},
]


@pytest.mark.parametrize("given", DISTRIBUTIONS[1:], ids=lambda law: law["kind"])
@pytest.mark.parametrize("persistence", [0.3, 0.9, 1.0])
def test_no_mean_of_steps_that_persist_leaves_its_limits(given: dict[str, object], persistence: float) -> None:
    law: Distribution = TypeAdapter(Distribution).validate_python({**given, "persistence": persistence})
    limits = jitter_bounds(law)
    draws = np.empty((4000, 100))
    drawn(law, Streams(5, 0), "compute", np.arange(4000)).fill(np.arange(4000), draws)
    draws /= law.mean()
    for count in (1, 10, 100):
        assert least_mean(limits, count) <= draws[:, :count].mean(axis=1).min() + 1e-12
    assert least_mean(limits, 1e6) <= least_mean(jitter_bounds(law.model_copy(update={"persistence": 0.0})), 1e6)
    assert (least_mean(limits, 1e12) > 0.98) == (persistence < 1)


@pytest.mark.parametrize("given", DISTRIBUTIONS, ids=lambda law: law["kind"])
def test_no_draw_and_no_mean_leaves_its_limits(given: dict[str, object]) -> None:
    law: Distribution = TypeAdapter(Distribution).validate_python(given)
    draws = law.sample(np.random.default_rng(5), 400_000) / law.mean()
    limits = jitter_bounds(law)
    assert limits.least <= draws.min()
    assert draws.max() <= limits.most * (1 + 1e-12)
    assert draws.var() == pytest.approx(limits.variance, rel=0.05)
    for count in (1, 10, 100, 1000):
        means = draws[: len(draws) // count * count].reshape(-1, count).mean(axis=1)
        assert least_mean(limits, count) <= means.min() + 1e-12
    # it is of use: a mean of many is bounded closely
    assert least_mean(limits, 1e6) > 0.98


def test_a_slow_down_makes_steps_longer_and_nothing_shorter() -> None:
    law: Distribution = TypeAdapter(Distribution).validate_python({"kind": "normal", "cv": 0.1})
    plain, slow = jitter_bounds(law), jitter_bounds(law, Slowdown(factor=4.0, mean_slow_steps=2, mean_normal_steps=8))
    assert slow == plain._replace(most=4 * plain.most)
    assert worst_of([plain, slow._replace(variance=1.0, least=0.0)]) == (1.0, 0.0, slow.most, 0.0)


def test_the_bound_draws_what_the_simulation_draws() -> None:
    # nothing but compute, no jitter: what the bound and the simulation leave open is the draw of each replication
    load = {
        "run_to_run_cv": 0.3,
        "uncertainty": {"parameters": ["forward.base_s"], "draws": [[0.001], [0.004], [0.016]]},
    }
    table = scenario_table(strategy={"kind": "single"}, workload=load, run={"replications": 19, "seed": 11})
    scenario = scenario_from_table(table, "test")
    rates = simulate(scenario).throughput_of_each_replication
    assert Ceilings().of(Asked.of(scenario)) == pytest.approx(rates, rel=1e-9)


def test_where_steps_are_not_known_beforehand_nothing_is_bounded() -> None:
    own = {"kind": "parameter-server", "mode": "async", "workers": 2}
    run = {"sharing": "each-its-own", "drain": False}
    scenario = scenario_from_table(scenario_table(strategy=own, run=run), "test")
    assert np.isinf(Ceilings().of(Asked.of(scenario))).all()
