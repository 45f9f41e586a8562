"""Which quantity contributes what to the variance over runs: functions whose Sobol' indices are known in closed form."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from support.examples import examples

from simulator.results.variance import Contributed, decomposed


def columns(draws: np.ndarray) -> dict[str, np.ndarray]:
    return {str(place): draws[:, [place]] for place in range(draws.shape[1])}


def test_ishigamis_function() -> None:
    """sin a + 7 sin^2 b + c^4 sin a / 10, evenly from -pi to pi: Ishigami and Homma 1990; its indices as in Saltelli et al. 2000."""
    x = np.random.default_rng(1).uniform(-math.pi, math.pi, (1024, 3))
    found = decomposed(np.sin(x[:, 0]) + 7 * np.sin(x[:, 1]) ** 2 + 0.1 * x[:, 2] ** 4 * np.sin(x[:, 0]), columns(x), errors=False)
    first = {"0": 0.3139, "1": 0.4424, "2": 0.0}
    total = {"0": 0.5576, "1": 0.4424, "2": 0.2437}
    for name, its in found.shares.items():
        assert its.first == pytest.approx(first[name], abs=0.05)
        assert its.total == pytest.approx(total[name], abs=0.05)
    assert found.chance < 0.03


def test_a_product_is_shared_by_both() -> None:
    """(1 + a)(1 + b) of standard normal a and b: 1/3 each by itself, 1/3 together (Sobol' 1993)."""
    x = np.random.default_rng(2).standard_normal((2000, 2))
    found = decomposed((1 + x[:, 0]) * (1 + x[:, 1]), columns(x), errors=False).shares
    for its in found.values():
        assert its == pytest.approx(Contributed(1 / 3, 2 / 3), abs=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.3, 1.0])
def test_shares_of_few_runs_are_right_on_average_and_their_intervals_hold(noise: float) -> None:
    """A sum of normal draws and chance, in 19 runs: c_i^2 over the sum of squares; the last draw does nothing."""
    weights = np.array([1.0, 0.6, 0.0])
    truth = weights**2 / (weights @ weights + noise**2)
    rng = np.random.default_rng(3)
    shares, held = [], []
    for _ in range(150):
        x = rng.standard_normal((19, 3))
        found = decomposed(x @ weights + noise * rng.standard_normal(19), columns(x))
        shares.append([its.first for its in found.shares.values()])
        held.append([abs(its.first - true) <= 1.645 * error.first for its, error, true in zip(
            found.shares.values(), found.errors.values(), truth, strict=True)])  # fmt: skip
    assert np.mean(shares, axis=0) == pytest.approx(truth, abs=0.06)
    assert np.mean(held) > 0.85


def test_a_group_of_dependent_numbers_has_one_pair_of_shares() -> None:
    rng = np.random.default_rng(4)
    one, other, apart = rng.standard_normal((3, 400))
    group = np.column_stack([one, 0.9 * one + 0.1 * other])
    found = decomposed(one + other + 0.5 * apart, {"group": group, "apart": apart[:, None]}, errors=False).shares
    assert found["group"].first == pytest.approx(2 / 2.25, abs=0.02)
    assert found["apart"].first == pytest.approx(0.25 / 2.25, abs=0.02)


def test_a_fit_of_several_terms_is_that_of_least_squares() -> None:
    """With all terms in, what is left is what the usual solution leaves, and weights are its squared coefficients less their variance."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal((40, 2))
    values = 2.0 * x[:, 0] - x[:, 1] + 0.1 * rng.standard_normal(40)
    found = decomposed(values, columns(x), errors=False)
    scaled = (x - x.mean(axis=0)) / x.std(axis=0)
    solution, *_ = np.linalg.lstsq(np.column_stack([np.ones(40), scaled]), values, rcond=None)
    ratio = found.shares["0"].first / found.shares["1"].first
    assert ratio == pytest.approx((solution[1] / solution[2]) ** 2, rel=0.01)


@pytest.mark.parametrize("runs", [2, 3, 4, 5, 19])
def test_nothing_that_varies_and_few_runs_are_no_error(runs: int) -> None:
    draws = np.random.default_rng(6).standard_normal((runs, 2))
    still = decomposed(np.full(runs, 3.0), columns(draws))
    assert all(its == Contributed(0.0, 0.0) for its in still.shares.values())
    assert still.chance == 0.0
    assert decomposed(draws[:, 0], {}).chance == 1.0
    assert decomposed(np.arange(runs, dtype=float), {"same": np.ones((runs, 1))}).chance == 1.0


@examples(60)
@given(some.integers(2, 30), some.integers(0, 4), some.integers(0, 10**6))
def test_shares_are_shares(runs: int, quantities: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    draws = rng.standard_normal((runs, quantities)) if quantities else np.empty((runs, 0))
    found = decomposed(rng.standard_normal(runs) + draws.sum(axis=1) ** 2, columns(draws))
    firsts = math.fsum(its.first for its in found.shares.values())
    assert 0.0 <= found.chance <= 1.0
    assert firsts <= 1.0 - found.chance + 1e-9
    assert all(0.0 <= its.first <= its.total + 1e-12 <= 1.0 + 1e-9 for its in found.shares.values())
