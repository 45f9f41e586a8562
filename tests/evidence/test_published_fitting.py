"""The fit of what software gets of nominal rates: by sources, each left out in turn."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from evidence.published import fitting
from evidence.published.fitting import Curves, choose, chosen_by_source, grid_of, interval_of
from evidence.published.prediction import left_out
from evidence.published.tables import load_tables
from simulator.spec.constants import Constant, Known, Prior, constants

TABLES = load_tables()
SHARE = Constant(
    name="made_up_share", value=0.5, low=0.25, high=1.0, fitted=True, determined=False, meaning="a share that is made up for a test",
    prior=Prior(value=0.5, low=0.25, high=1.0, source="made up for a test"),
)  # fmt: skip
OTHER = SHARE.model_copy(update={"name": "made_up_cost", "value": 0.02, "low": 0.005, "high": 0.08,
                                 "prior": Prior(value=0.02, low=0.005, high=0.08, source="made up for a test")})  # fmt: skip


def curves(table: str, share: float, rows: int = 4) -> Curves:
    """Rows that come out right with this share, and are off by the logarithm of what it differs by."""
    base = np.full(rows, np.log(0.5 / share))
    return Curves(table, base, {SHARE.name: np.tile(np.log(grid_of(SHARE) / share), (rows, 1))})


def test_the_value_that_the_sources_have_in_common_is_found():
    found = choose({f"{table}{number}": curves(table, 0.4) for table in "ab" for number in range(5)}, {SHARE.name: SHARE})
    assert found.values[SHARE.name] == pytest.approx(0.4, rel=0.03)
    assert max(np.abs(errors).max() for errors in found.errors.values()) < 0.03


def test_a_source_left_out_has_no_say():
    of = {"a1": curves("a", 0.3), "a2": curves("a", 0.3), "b1": curves("b", 0.8), "b2": curves("b", 0.8)}
    moved = {**of, "b1": curves("b", 0.9), "b2": curves("b", 0.9)}
    without, again = (choose(each, {SHARE.name: SHARE}, without="b") for each in (of, moved))
    assert without.values == again.values
    assert without.values[SHARE.name] == pytest.approx(0.3, rel=0.1)
    assert choose(of, {SHARE.name: SHARE}).values != without.values


def test_a_large_source_counts_by_the_root_of_its_series():
    """Sixteen series of one source, as much as four others of which each is a source."""
    large = {f"a{number}": curves("a", 0.35) for number in range(16)}
    small = {f"b{number}": curves(f"b{number}", 0.7) for number in range(6)}
    assert choose({**large, **small}, {SHARE.name: SHARE}).values[SHARE.name] == pytest.approx(0.7, rel=0.1)


def test_two_constants_are_told_apart_by_rows_that_feel_one_of_them():
    steep = np.log(grid_of(OTHER) / 0.04)
    both = Curves("a", np.full(4, np.log(0.5 / 0.4) - np.log(2.0)), {SHARE.name: np.tile(np.log(grid_of(SHARE) / 0.4), (4, 1)),
                                                                   OTHER.name: np.tile(steep, (4, 1))})  # fmt: skip
    found = choose({"one": curves("b", 0.4), "both": both}, {SHARE.name: SHARE, OTHER.name: OTHER})
    assert found.values[SHARE.name] == pytest.approx(0.4, rel=0.05)
    assert found.values[OTHER.name] == pytest.approx(0.04, rel=0.1)


def test_what_no_row_feels_stays_at_its_prior_and_is_not_determined():
    flat = {"one": Curves("a", np.full(3, 0.1), {SHARE.name: np.full((3, 7), 0.1)})}
    found = choose(flat, {SHARE.name: SHARE})
    assert found.values[SHARE.name] == pytest.approx(0.5, rel=0.03)
    assert chosen_by_source(flat, {SHARE.name: SHARE}, found, SHARE.name) == {}
    assert interval_of(SHARE, 0.5, []) == Known(value=0.5, low=0.25, high=1.0)


def test_what_is_not_fitted_stays_at_its_prior():
    fixed = SHARE.model_copy(update={"fitted": False})
    of = {"one": curves("a", 0.3)}
    found = choose(of, {SHARE.name: fixed})
    assert found.values == {SHARE.name: 0.5}
    assert chosen_by_source(of, {SHARE.name: fixed}, found, SHARE.name) == {}
    assert np.exp(found.errors["one"]) == pytest.approx(np.full(4, 0.5 / 0.3))


def test_each_source_has_a_value_of_its_own():
    of = {"a1": curves("a", 0.3), "b1": curves("b", 0.6)}
    found = choose(of, {SHARE.name: SHARE})
    assert chosen_by_source(of, {SHARE.name: SHARE}, found, SHARE.name) == pytest.approx({"a": 0.3, "b": 0.6}, rel=0.03)


def test_an_interval_is_wide_of_one_source_and_narrow_of_many_that_agree():
    """Of one source that agrees with itself: 1.645 x ln 1.5 x sqrt(2/3) x sqrt(2) on each side."""
    one, many, apart = (interval_of(SHARE, 0.2, its) for its in ([0.2], [0.2] * 12, [0.1, 0.4] * 6))
    assert np.log(one.high / one.value) == pytest.approx(1.6449 * np.log(1.5) * np.sqrt(2 / 3) * np.sqrt(2), rel=1e-3)
    assert one.high > many.high
    assert apart.high > many.high
    assert isinstance(one, Known)


def test_every_table_has_constants_that_were_fitted_without_it():
    known = left_out(TABLES.home)
    used = {series.table for series in TABLES.series}
    assert used <= set(known)
    for table in used:
        assert set(known[table]) == {name for name, constant in constants().items() if constant.fitted}


def test_constants_name_tables_that_there_are():
    used = {series.table for series in TABLES.series}
    for constant in constants().values():
        assert set(constant.tables) <= used
        assert constant.low <= constant.value <= constant.high
    assert any(constant.determined for constant in constants().values())


def test_what_is_kept_is_taken_again_and_never_run(tmp_path, monkeypatch):
    """A folder may be one in which others write: a pickle in it would be a program."""
    case, rows = fitting.cases_of(TABLES)[0]
    monkeypatch.setattr(fitting, "measure", lambda *_: np.array([[0.1, 0.2]]))
    monkeypatch.setattr(fitting, "Parallel", lambda **_: lambda tasks: [function(*given) for function, given, _ in tasks])
    measured = fitting._kept(tmp_path, "base", [(case, rows)], None)
    monkeypatch.setattr(fitting, "measure", None)
    assert fitting._kept(tmp_path, "base", [(case, rows)], None).keys() == measured.keys() == {case.series.id}
    assert fitting._kept(tmp_path, "base", [(case, rows)], None)[case.series.id].tolist() == [[0.1, 0.2]]
    (file,) = tmp_path.iterdir()
    file.write_bytes(pickle.dumps({}))
    with pytest.raises(ValueError, match="pickle"):
        fitting._kept(tmp_path, "base", [(case, rows)], None)
