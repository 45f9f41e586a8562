"""Costs as straight lines, robustly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from calibrate.fit.estimators import MessageCosts, line_of_medians
from simulator.base.errors import CalibrationError


@examples(40)
@given(base=st.floats(0.0, 1.0), slope=st.floats(1e-9, 1e-2), scale=st.sampled_from([1e-6, 1e-3, 1.0]))
def test_exact_data_are_met_exactly(base: float, slope: float, scale: float) -> None:
    sizes = np.array([1.0, 16.0, 64.0, 1024.0])
    cost = line_of_medians(sizes, scale * (base + slope * sizes))
    assert [cost(size) for size in sizes] == pytest.approx(scale * (base + slope * sizes), rel=1e-4)


def test_parameters_are_found_within_their_standard_error() -> None:
    sizes = np.repeat([16.0, 32.0, 64.0], 200)
    cv = 0.05
    design = np.column_stack([np.ones_like(sizes), sizes]) / (1e-3 + 2e-5 * sizes)[:, None]
    errors = cv * np.sqrt(np.diag(np.linalg.inv(design.T @ design)))
    for seed in range(10):
        noise = 1.0 + cv * np.random.default_rng(seed).standard_normal(len(sizes))
        cost = line_of_medians(sizes, (1e-3 + 2e-5 * sizes) * noise)
        # 4.5 standard errors: of 20 numbers one lies outside once in 7,000 tries
        assert abs(cost.base - 1e-3) < 4.5 * errors[0]
        assert abs(cost.slope - 2e-5) < 4.5 * errors[1]


def test_one_wild_outlier_in_ten_hardly_moves_the_line() -> None:
    rng = np.random.default_rng(1)
    sizes = np.repeat([16.0, 32.0, 64.0], 30)
    seconds = (1e-3 + 2e-5 * sizes) * (1 + 0.02 * rng.standard_normal(90))
    seconds[::10] *= 5
    cost = line_of_medians(sizes, seconds)
    assert cost(32) == pytest.approx(1e-3 + 2e-5 * 32, rel=0.05)


def test_falling_times_give_no_negative_slope() -> None:
    cost = line_of_medians([1, 2, 4], [3e-3, 2e-3, 1e-3])
    assert cost.slope == 0
    assert cost.base > 0


def test_a_line_through_zero_has_no_negative_base() -> None:
    cost = line_of_medians([1, 2, 4, 8], [0.9e-3, 2e-3, 4.1e-3, 8.3e-3])
    assert cost.base >= 0
    assert cost.slope == pytest.approx(1e-3, rel=0.1)


@pytest.mark.parametrize("seconds", [[1.0, float("nan")], [1.0, 0.0], [1.0, -1.0], [1.0, float("inf")]])
def test_unusable_times_are_refused(seconds: list[float]) -> None:
    with pytest.raises(CalibrationError, match="finite times above zero"):
        line_of_medians([1, 2], seconds)


def test_one_size_is_too_few() -> None:
    with pytest.raises(CalibrationError, match="two different sizes"):
        line_of_medians([4, 4, 4], [1, 2, 3])


def test_chains_are_free_of_the_cost_of_a_call() -> None:
    calls = [(size, length, turn, 7.0 + length * size * 0.1) for turn in range(3) for size in (10.0, 20.0) for length in (2, 10)]
    found_sizes, costs, errors = MessageCosts.of_chains(calls).points()
    assert list(found_sizes) == [10, 20]
    assert costs == pytest.approx([1.0, 2.0])
    assert errors == pytest.approx([0.0, 0.0], abs=1e-9)


def test_chains_that_noise_turned_over_are_left_out() -> None:
    chain = MessageCosts.of_chains([(1, 2, 0, 5.0), (1, 10, 0, 4.0), (2, 2, 0, 5.0), (2, 10, 0, 9.0)])
    assert list(chain.points()[0]) == [2]


def test_a_size_whose_rounds_disagree_does_not_pull_the_line() -> None:
    """Costs in seconds of three rounds, as a machine measured them that tests kept busy: gRPC of some 0.3 ms and a byte of some 0.8 ns.

    Of the smallest size and of 1 MiB one round is below zero and another ten times the median, which is near zero by chance.
    """
    rounds = {
        1024: (213.6e-6, 3.87e-6, -7.5e-6),
        65536: (334e-6, 230e-6, 354e-6),
        1048576: (1849e-6, 141e-6, -45e-6),
        8388608: (6979e-6, 4110e-6, 9007e-6),
    }
    rows = [(size, hops, turn, hops * cost) for size, costs in rounds.items() for turn, cost in enumerate(costs) for hops in (0, 1)]
    sizes, costs, errors = MessageCosts.of_chains(rows).points()
    alone, weighed = line_of_medians(sizes, costs, tolerance=0.05), line_of_medians(sizes, costs, errors, tolerance=0.05)
    assert alone.base < 1e-5
    assert weighed.base == pytest.approx(280e-6, rel=0.2)
    assert 1.0 / weighed.slope == pytest.approx(1.25e9, rel=0.2)
