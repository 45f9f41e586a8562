"""Real runs with causes planted in them, as they were recorded, and threads of others: the diagnosis of some is made again."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from evidence.published.threads import answered, row_of, threads
from evidence.studies.planted_causes import LATER, NAMED, SEED, Planting, answers, diagnosed, drawn, read_rows

HOME = Path(__file__).parents[2]
TABLES = HOME / "evidence" / "tables"
RUNS = {seed: read_rows(HOME / "models" / "measured" / f"planted-causes-{seed}.csv") for seed in (SEED, LATER)}
AGAIN = {" + ".join(case.kinds) or "none": case for case in reversed(drawn(LATER))}
"""One case of each kind, of the later list."""


def lines_of(name: str) -> list[dict[str, str]]:
    with (TABLES / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_what_is_planted_follows_from_the_seed() -> None:
    assert [case.table for case in drawn()] == [case.table for case in drawn()]
    assert [case.table for case in drawn(1)] != [case.table for case in drawn()]
    kinds = [kind for case in drawn() for kind in case.kinds]
    assert set(kinds) == set(NAMED) - {"none"}
    assert len(drawn()) == 30


def test_workers_short_of_compute_share_the_first_core() -> None:
    """Every machine has it."""
    plants = [case.plants["compute"] for case in drawn() if "compute" in case.kinds]
    assert plants
    assert all(plant == {"probe": {"core": 0}} for plant in plants)


@pytest.mark.parametrize("seed", RUNS)
def test_every_case_was_run_with_and_without(seed: int) -> None:
    assert set(RUNS[seed]) == {(case.number, variant) for case in drawn(seed) for variant in case.variants}


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=name, marks=[pytest.mark.long] * (name != "checkpoint")) for name, case in AGAIN.items()]
)
def test_a_case_is_answered_as_its_row_says(case: Planting) -> None:
    runs = {variant: RUNS[LATER][case.number, variant] for variant in case.variants}
    row = {"seed": str(LATER), **answers(case, runs, diagnosed(case, runs)).row}
    assert row in lines_of("planted-causes.csv")


@pytest.mark.parametrize("name", ["horovod#2581", "horovod#752"])
def test_a_thread_is_explained_as_its_row_says(name: str) -> None:
    (thread,) = (its for its in threads() if its.name == name)
    (row,) = (row for row in lines_of("threads.csv") if row["thread"] == name)
    assert row_of(thread, answered(thread)) == tuple(row.values())


def test_every_thread_has_a_row() -> None:
    assert [row["thread"] for row in lines_of("threads.csv")] == [its.name for its in threads()]
