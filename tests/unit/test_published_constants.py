"""Constants shared by all published series: where they come from, and what is a test of them."""

from __future__ import annotations

import numpy as np
import pytest

from calibrate.published.constants import Constants, load_constants
from calibrate.published.fitting import NOISES, choose, fit_constants
from calibrate.published.prediction import compared, group_of
from calibrate.published.tables import load_tables
from calibrate.published.validation import situations_of

TABLES = load_tables()
CONSTANTS = load_constants(TABLES.home)


def test_each_constant_names_the_tables_that_determine_it():
    used = {series.table for series in TABLES.series}
    for constant in CONSTANTS.all:
        assert set(constant.fit_on) <= used
        assert constant.low <= constant.value <= constant.high


def test_some_tables_of_each_regime_are_held_out():
    for regime in ("sync PS", "async PS", "all-reduce"):
        tables = {series.table for series in TABLES.series if series.regime == regime}
        assert any(CONSTANTS.fitted_on(table) for table in tables), regime
        assert any(not CONSTANTS.fitted_on(table) for table in tables), regime


@pytest.mark.parametrize("table", ["tensorpack", "tf_benchmarks_2017"])
def test_the_group_of_a_row_says_whether_constants_were_fitted_on_its_table(table):
    situation, rows = next(each for each in situations_of(TABLES) if each[0].series.table == table)
    groups = {row.group for row in compared(situation, rows, CONSTANTS)}
    assert groups == {group_of(situation.series.regime, held_out=table == "tensorpack")}


def test_a_fit_looks_at_the_tables_of_a_constant_alone(monkeypatch):
    """What the fit predicts must all be of the tables that the constant names."""
    looked = []

    def errors(situation, rows, constants, name, grid):
        looked.append(situation.series.table)
        return np.zeros((0, len(grid)))

    class Serial:
        def __init__(self, **_):
            pass

        def __call__(self, jobs):
            return [function(*args, **kwargs) for function, args, kwargs in jobs]

    monkeypatch.setattr("calibrate.published.fitting._errors", errors)
    monkeypatch.setattr("calibrate.published.fitting.Parallel", Serial)
    same = fit_constants(TABLES, CONSTANTS, ["grpc_bytes_per_s"])
    assert set(looked) == set(next(each for each in CONSTANTS.all if each.name == "grpc_bytes_per_s").fit_on)
    assert dict(same) == dict(CONSTANTS), "no row felt it, so it stays"


def test_the_best_value_on_a_grid_is_between_its_points():
    """Errors log(x / 2) of many series: 2 is best; series that choose 1.8 and 2.2 span the interval."""
    grid = np.geomspace(1.0, 4.0, 7)
    centres = np.linspace(1.8, 2.2, 21)
    choice = choose(grid, [np.log(grid / centre)[None, :] for centre in centres])
    assert choice.value == pytest.approx(2.0, rel=0.02)
    assert choice.low == pytest.approx(1.82, rel=0.03)
    assert choice.high == pytest.approx(2.18, rel=0.03)


def test_a_constant_that_nobody_feels_is_not_chosen():
    assert choose(np.array([1.0, 2.0]), [np.full((3, 2), 0.1)]) is None


def test_draws_are_the_same_for_the_same_seed_and_span_the_interval():
    draws = CONSTANTS.draws(3, 4000)
    assert draws == CONSTANTS.draws(3, 4000)
    for constant in CONSTANTS.all:
        values = np.array([draw[constant.name] for draw in draws])
        ratio = np.quantile(values, 0.95) / np.quantile(values, 0.05)
        assert np.log(ratio) == pytest.approx(np.log(constant.high / constant.low), rel=0.08, abs=1e-9)


def test_other_values_take_their_intervals_along():
    doubled = CONSTANTS.with_values({"grpc_bytes_per_s": 2 * CONSTANTS["grpc_bytes_per_s"]})
    before, after = (next(each for each in its.all if each.name == "grpc_bytes_per_s") for its in (CONSTANTS, doubled))
    assert isinstance(doubled, Constants)
    assert after.high / after.low == pytest.approx(before.high / before.low)
    assert doubled["straggler_cv"] == CONSTANTS["straggler_cv"]


def test_noise_constants_exist():
    assert set(NOISES) <= set(CONSTANTS)
