"""Quantiles and tails without scipy are scipy's."""

from __future__ import annotations

import math

import pytest
from scipy import special

from simulator.base.probability import gamma_tail, gamma_tail_quantile, student_quantile


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 10, 31, 100, 1000])
@pytest.mark.parametrize("probability", [0.6, 0.95, 0.99865])
def test_students_quantile(probability: float, freedom: int) -> None:
    assert student_quantile(probability, freedom) == pytest.approx(special.stdtrit(freedom, probability), rel=1e-12)


@pytest.mark.parametrize("shape", [0.05, 0.5, 1.0, 1.7, 5.0, 30.0, 1e3, 1e5])
def test_the_tail_of_a_gamma_variable(shape: float) -> None:
    for share in (0.0, 1e-3, 0.3, 1.0, 1.0 + 1.0 / shape, 1.1, 2.0, 10.0):
        assert gamma_tail(shape, share * shape) == pytest.approx(special.gammaincc(shape, share * shape), rel=1e-7, abs=1e-14)
    assert gamma_tail_quantile(shape, 40.0) == pytest.approx(special.gammainccinv(shape, math.exp(-40.0)), rel=1e-11)
