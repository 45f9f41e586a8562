"""The law of step times: chosen by an information criterion, empirical where none fits."""

from __future__ import annotations

import numpy as np
import pytest
from support.measurements import gamma_of, persistent

from calibrate.fit.estimators import distribution_of, drawn_distributions, persistence_of, variance_of_mean
from simulator.base.errors import CalibrationError


def _draws(kind: str, rng: np.random.Generator, n: int) -> np.ndarray:
    return {
        "lognormal": lambda: rng.lognormal(0, 0.6, n),
        "gamma": lambda: rng.gamma(2.0, 1.0, n),
        "shifted-exponential": lambda: 1.0 + rng.exponential(0.3, n),
        "normal": lambda: rng.normal(1.0, 0.15, n),
    }[kind]()


@pytest.mark.parametrize("kind", ["lognormal", "gamma", "shifted-exponential", "normal"])
def test_the_right_law_wins(kind: str) -> None:
    wins = 0
    for seed in range(10):
        fitted = distribution_of(_draws(kind, np.random.default_rng(seed), 2000))
        wins += fitted.scores[0].kind == kind
    assert wins >= 9


@pytest.mark.parametrize(
    ("kind", "name", "truth"), [("lognormal", "sigma", 0.6), ("gamma", "shape", 2.0), ("shifted-exponential", "tail", 0.3)]
)
def test_parameters_are_recovered(kind: str, name: str, truth: float) -> None:
    n = 4000
    fitted = distribution_of(_draws(kind, np.random.default_rng(3), n))
    # the relative standard error of each is below 2/sqrt(n)
    assert getattr(fitted.distribution, name) == pytest.approx(truth, rel=4.5 * 2 / np.sqrt(n))


def test_two_modes_stay_empirical() -> None:
    rng = np.random.default_rng(0)
    factors = np.where(rng.random(1000) < 0.5, rng.normal(1, 0.02, 1000), rng.normal(2, 0.02, 1000))
    law = distribution_of(factors).distribution
    assert law.kind == "empirical"
    assert law.values == tuple(np.round(np.sort(factors / factors.mean()), 5))  # every one of them
    assert law.mean() == pytest.approx(1.0, abs=1e-3)
    assert np.std(law.values) == pytest.approx(np.std(factors / factors.mean()), rel=0.05)


def test_no_spread_is_constant() -> None:
    assert distribution_of(np.full(50, 0.2)).distribution.kind == "constant"


def test_too_few_are_refused() -> None:
    with pytest.raises(CalibrationError, match="at least 10"):
        distribution_of([1.0, 2.0])


def test_the_test_rejects_seldom_what_is_true() -> None:
    kept = sum(distribution_of(_draws("gamma", np.random.default_rng(seed), 150)).distribution.kind != "empirical" for seed in range(60))
    # at a level of 5% or less: 60 tries, 8 or more rejections have a chance below 2%
    assert kept >= 52


def test_of_very_many_steps_neighbours_are_averaged() -> None:
    rng = np.random.default_rng(1)
    factors = np.where(rng.random(2500) < 0.5, rng.normal(1, 0.02, 2500), rng.normal(2, 0.02, 2500))
    factors[7] = 9.0
    factors /= factors.mean()
    law = distribution_of(factors).distribution
    assert len(law.values) == 1000
    assert law.mean() == pytest.approx(1.0, abs=1e-5)
    # the largest 2.5 steps stand behind the last value: their share of the time is kept
    top = np.sort(factors)[-3:]
    assert law.values[-1] == pytest.approx((0.5 * top[0] + top[1] + top[2]) / 2.5, abs=1e-5)


def test_laws_are_drawn_with_their_kind() -> None:
    rng = np.random.default_rng(2)
    factors = rng.gamma(25.0, 1 / 25.0, 100)
    samples = [rng.choice(factors, 100) for _ in range(60)]
    laws = drawn_distributions(distribution_of(factors).distribution, samples)
    assert len(laws) == 60
    assert len({law.kind for law in laws}) > 1
    assert len(drawn_distributions(distribution_of(factors).distribution, [factors[:8], factors[:10]])) == 1
    assert drawn_distributions(distribution_of(np.full(20, 1.0)).distribution, samples) == ()


# -- steps that depend on the one before ----------------------------------------------------


@pytest.mark.parametrize(("steps", "stretches"), [(5, 60), (10, 15), (30, 10), (200, 2)])
@pytest.mark.parametrize("truth", [0.0, 0.3, 0.66, 0.9])
def test_persistence_comes_out_without_bias_however_short_stretches_are(steps: int, stretches: int, truth: float) -> None:
    rng, draw = np.random.default_rng(0), persistent(gamma_of(0.5), truth)
    found = [persistence_of([draw(rng, steps) for _ in range(stretches)], tested=False) for _ in range(60)]
    # none is below zero, which shifts the mean of what is near it
    assert np.median(found) == pytest.approx(truth, abs=4 * np.std(found) * 1.25 / np.sqrt(60) + 0.01)


def test_a_slow_stretch_is_no_persistence() -> None:
    """Stretches that differ from each other by more than their steps do; within them nothing depends on anything."""
    rng = np.random.default_rng(1)
    kept = [persistence_of([rng.normal(1.0, 0.05, 10) + rng.normal(0.0, 0.5) for _ in range(12)]) for _ in range(40)]
    assert np.count_nonzero(kept) <= 5  # 2 are expected by chance


def test_what_chance_may_show_is_taken_for_none_and_what_it_may_not_is_kept() -> None:
    rng = np.random.default_rng(2)
    sticky = [persistence_of([persistent(gamma_of(0.2), 0.6)(rng, 10) for _ in range(10)]) for _ in range(20)]
    assert np.count_nonzero(sticky) >= 19
    for nothing in ([], [[1.0, 2.0]], [[1.0, 1.0, 1.0]]):
        assert persistence_of(nothing) == 0.0


def test_the_mean_of_draws_that_persist_varies_as_it_says() -> None:
    rng = np.random.default_rng(3)
    means = np.array([persistent(gamma_of(1.0), 0.7)(rng, 12).mean() for _ in range(20_000)])
    assert means.var() == pytest.approx(variance_of_mean(12, 0.7), rel=0.06)
    assert variance_of_mean(12, 0.0) == pytest.approx(1 / 12)
    assert variance_of_mean(12, 1.0) == pytest.approx(1.0)
