"""Digits, intervals and draws that all fits share."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrate.fit.estimators import DRAWS_KEPT, drawn, intervals_90, quantiles
from simulator.base.text import digits


@given(st.floats(1e-12, 1e15), st.integers(1, 12))
def test_digits_are_significant_ones_and_final(value: float, count: int) -> None:
    rounded = digits(value, count)
    assert rounded == pytest.approx(value, rel=0.5 * 10.0 ** (1 - count) * (1 + 1e-9))
    assert digits(rounded, count) == rounded
    assert len(f"{rounded:.{count - 1}e}".partition("e")[0].replace(".", "")) <= count


def test_an_interval_holds_nine_tenths_of_the_draws_and_what_it_is_widened_to() -> None:
    draws = np.column_stack([np.linspace(0.0, 1.0, 101), np.linspace(10.0, 20.0, 101)])
    assert intervals_90(["a", "b"], draws) == {"a": (0.05, 0.95), "b": (10.5, 19.5)}
    assert intervals_90(["a", "b"], draws, around=[0.5, 21.0]) == {"a": (0.05, 0.95), "b": (10.5, 21.0)}
    assert quantiles(draws[:, 0]) == (0.05, 0.5, 0.95)


def test_the_first_draws_are_kept_row_by_row() -> None:
    draws = np.arange(400.0).reshape(200, 2) / 3.0
    kept = drawn(["a", "b"], draws)
    assert kept.parameters == ("a", "b")
    assert len(kept.draws) == DRAWS_KEPT
    assert kept.draws[1] == (0.6666667, 1.0)
