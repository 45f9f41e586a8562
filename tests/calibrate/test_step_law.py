"""The law of step times: chosen by an information criterion, empirical where none fits."""

from __future__ import annotations

import numpy as np
import pytest

from calibrate.fit.estimators import StepTimeLaw, drawn_laws
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
        fitted = StepTimeLaw().fit(_draws(kind, np.random.default_rng(seed), 2000))
        wins += fitted.scores_[0].kind == kind
    assert wins >= 9


@pytest.mark.parametrize(
    ("kind", "name", "truth"), [("lognormal", "sigma", 0.6), ("gamma", "shape", 2.0), ("shifted-exponential", "tail", 0.3)]
)
def test_parameters_are_recovered(kind: str, name: str, truth: float) -> None:
    n = 4000
    fitted = StepTimeLaw().fit(_draws(kind, np.random.default_rng(3), n))
    # the relative standard error of each is below 2/sqrt(n)
    assert getattr(fitted.law_, name) == pytest.approx(truth, rel=4.5 * 2 / np.sqrt(n))


def test_two_modes_stay_empirical() -> None:
    rng = np.random.default_rng(0)
    factors = np.where(rng.random(1000) < 0.5, rng.normal(1, 0.02, 1000), rng.normal(2, 0.02, 1000))
    law = StepTimeLaw().fit(factors).law_
    assert law.kind == "empirical"
    assert law.values == tuple(np.round(np.sort(factors / factors.mean()), 5))  # every one of them
    assert law.mean() == pytest.approx(1.0, abs=1e-3)
    assert np.std(law.values) == pytest.approx(np.std(factors / factors.mean()), rel=0.05)


def test_no_spread_is_constant() -> None:
    assert StepTimeLaw().fit(np.full(50, 0.2)).law_.kind == "constant"


def test_too_few_are_refused() -> None:
    with pytest.raises(CalibrationError, match="at least 10"):
        StepTimeLaw().fit([1.0, 2.0])


def test_the_test_rejects_seldom_what_is_true() -> None:
    kept = sum(StepTimeLaw().fit(_draws("gamma", np.random.default_rng(seed), 150)).law_.kind != "empirical" for seed in range(60))
    # at a level of 5% or less: 60 tries, 8 or more rejections have a chance below 2%
    assert kept >= 52


def test_of_very_many_steps_neighbours_are_averaged() -> None:
    rng = np.random.default_rng(1)
    factors = np.where(rng.random(2500) < 0.5, rng.normal(1, 0.02, 2500), rng.normal(2, 0.02, 2500))
    factors[7] = 9.0
    factors /= factors.mean()
    law = StepTimeLaw().fit(factors).law_
    assert len(law.values) == 1000
    assert law.mean() == pytest.approx(1.0, abs=1e-5)
    # the largest 2.5 steps stand behind the last value: their share of the time is kept
    top = np.sort(factors)[-3:]
    assert law.values[-1] == pytest.approx((0.5 * top[0] + top[1] + top[2]) / 2.5, abs=1e-5)


def test_laws_are_drawn_with_their_kind() -> None:
    rng = np.random.default_rng(2)
    factors = rng.gamma(25.0, 1 / 25.0, 100)
    samples = [rng.choice(factors, 100) for _ in range(60)]
    laws = drawn_laws(StepTimeLaw().fit(factors).law_, samples)
    assert len(laws) == 60
    assert len({law.kind for law in laws}) > 1
    assert len(drawn_laws(StepTimeLaw().fit(factors).law_, [factors[:8], factors[:10]])) == 1
    assert drawn_laws(StepTimeLaw().fit(np.full(20, 1.0)).law_, samples) == ()
