"""Real runs with causes planted in them, as they were recorded, and threads of others: the diagnosis of some is made again."""

from __future__ import annotations

from pathlib import Path

import pytest

from evidence.published.threads import answered, section, threads
from evidence.studies.planted_causes import LATER, NAMED, SEED, Planting, answers, diagnosed, drawn, read_rows

HOME = Path(__file__).parents[2]
PAGE = (HOME / "docs" / "fidelity-causes.md").read_text(encoding="utf-8")
THREADS = (HOME / "docs" / "fidelity-threads.md").read_text(encoding="utf-8")
RUNS = {seed: read_rows(HOME / "models" / "measured" / f"planted-causes-{seed}.csv") for seed in (SEED, LATER)}
AGAIN = {" + ".join(case.kinds) or "none": case for case in reversed(drawn(LATER))}
"""One case of each kind, of the later list."""


def rows_of(seed: int) -> list[list[str]]:
    """Cells of the page's table of a list."""
    part = PAGE.split(f"## Seed {seed}\n")[1].split("\n## ")[0]
    return [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("| ") and line[2].isdigit()]


def test_what_is_planted_follows_from_the_seed() -> None:
    assert [case.table for case in drawn()] == [case.table for case in drawn()]
    assert [case.table for case in drawn(1)] != [case.table for case in drawn()]
    kinds = [kind for case in drawn() for kind in case.kinds]
    assert set(kinds) == set(NAMED) - {"none"}
    assert len(drawn()) == 30


@pytest.mark.parametrize("seed", RUNS)
def test_every_case_was_run_with_and_without(seed: int) -> None:
    assert set(RUNS[seed]) == {(case.number, variant) for case in drawn(seed) for variant in case.variants}


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=name, marks=[pytest.mark.long] * (name != "checkpoint")) for name, case in AGAIN.items()]
)
def test_a_case_is_answered_as_the_page_says(case: Planting) -> None:
    runs = {variant: RUNS[LATER][case.number, variant] for variant in case.variants}
    assert answers(case, runs, diagnosed(case, runs)).row in PAGE


@pytest.mark.parametrize("name", ["horovod#2581", "horovod#752"])
def test_a_thread_is_explained_as_the_page_says(name: str) -> None:
    (thread,) = (its for its in threads() if its.name == name)
    assert section(thread, answered(thread)) in THREADS


def test_every_thread_is_on_the_page() -> None:
    assert all(f"- [{its.name}]({its.url}): {its.asked}." in THREADS and its.unknown in THREADS for its in threads())


@pytest.mark.parametrize("seed", RUNS)
def test_the_page_counts_its_rows(seed: int) -> None:
    rows = rows_of(seed)
    planted = [cells for cells in rows if cells[2] != "nothing"]
    right = sum("**" not in cells[3] for cells in planted)
    inside = sum("**" not in cells[4] for cells in planted)
    none = sum(cells[3] == "none" for cells in rows if cells[2] == "nothing")
    assert f"| seed {seed} | {right} of {len(planted)} | {none} of {len(rows) - len(planted)} | {inside} of {len(planted)} |" in PAGE
    assert right + none >= 0.9 * len(rows)
