"""Real runs with causes planted in them, as they were recorded: the diagnosis of some of each kind is made again."""

from __future__ import annotations

from pathlib import Path

import pytest

from evidence.studies.planted_causes import NAMED, VARIANTS, Planting, answers, diagnosed, drawn, read_rows

ROWS = Path(__file__).parents[2] / "models" / "measured" / "planted_causes.csv"
RUNS = read_rows(ROWS)
THERE = [case for case in drawn() if (case.number, "alone") in RUNS]


def test_what_is_planted_follows_from_the_seed() -> None:
    assert [case.table for case in drawn()] == [case.table for case in drawn()]
    assert [case.table for case in drawn(1)] != [case.table for case in drawn()]
    kinds = [kind for case in drawn() for kind in case.kinds]
    assert set(kinds) == set(NAMED) - {"none"}
    assert len(drawn()) == 30


def test_every_run_is_whole() -> None:
    assert THERE
    for case in THERE:
        assert {variant for number, variant in RUNS if number == case.number} == set(case.variants)


@pytest.mark.parametrize("case", THERE, ids=lambda case: " + ".join(case.kinds) or "none")
def test_the_largest_cause_is_named_first(case: Planting) -> None:
    runs = {variant: RUNS[case.number, variant] for variant in VARIANTS if (case.number, variant) in RUNS}
    assert answers(case, runs, diagnosed(case, runs)).right
