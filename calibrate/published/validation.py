"""All published tables beside their predictions: ``paceline validate --published``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from pydantic import Field

from calibrate.probing import Progress
from calibrate.published.prediction import compared, left_out
from calibrate.published.scenarios import PublishedCase, cases_of
from calibrate.published.tables import Accounted, Excluded, Row, Tables, load_tables
from calibrate.validation.comparison import Compared
from simulator.constants import Constant, Known, constants
from simulator.errors import InputError
from simulator.spec import Spec

__all__ = [
    "HEADLINES",
    "MOVED",
    "REGIMES",
    "Coverage",
    "PublishedValidation",
    "coverage_of",
    "headline_of",
    "validate_published",
]

REGIMES = ("sync PS", "async PS", "all-reduce", "staleness", "NCCL")
MOVED = "moved"
"""Not a way of training: trainings on one device, moved to another."""
THROUGHPUT = "throughput"
HEADLINES = {THROUGHPUT: "throughput", "NCCL": "rate of all-reduces", "staleness": "mean staleness"}
"""What is scored and counted apart, because errors of one say nothing of another, and what each predicts, in words."""


class Coverage(Spec):
    """How much of the tables of one headline is predicted, of those that were collected."""

    of: str = Field(description="one of HEADLINES")
    series: int
    series_in: int
    rows: int
    rows_in: int


class PublishedValidation(Spec):
    """Predictions of published tables, and what they rest on."""

    rows: tuple[Compared, ...]
    constants: tuple[Constant, ...]
    excluded: tuple[Excluded, ...]
    coverage: tuple[Coverage, ...]


Spread = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]
"""A ``map``, perhaps over several processes: answers in the order of what is asked."""


def validate_published(
    regimes: Sequence[str] | None = None, progress: Progress | None = None, *, spread: Spread = map, as_shipped: bool = False
) -> PublishedValidation:
    """Predict the published tables from their smallest rows and facts about hardware and software, and compare.

    Each row is predicted by simulating its scenario as a user would write it, with the
    constants of ``models/practice.toml`` and the discrepancy as they come out without the row's table.

    Parameters
    ----------
    regimes
        Some of :data:`REGIMES` and :data:`MOVED`; left out: all.
    progress
        Called with how many series are done, of how many, and the next one's name.
    spread
        Predicts the series, one after the other if left out.
    as_shipped
        With the constants and the discrepancy that users get, in which all tables have a part.

    Raises
    ------
    InputError
        There is no such regime.
    ScenarioError
        A file of the tables is missing or broken.
    """
    known = (*REGIMES, MOVED)
    wanted = tuple(regimes or known)
    for regime in wanted:
        if regime not in known:
            raise InputError(f"there is no published regime {regime!r}; choose from {', '.join(known)}")
    tables = load_tables()
    others = None if as_shipped else left_out(tables.home)
    jobs = [(case, rows) for case, rows in cases_of(tables) if case.series.regime in wanted]
    rows: list[Compared] = []
    done = spread(partial(_compared, others), jobs)
    for number, ((case, _), found) in enumerate(zip(jobs, done, strict=True), start=1):
        rows += found
        if progress is not None:
            progress(number, len(jobs), case.series.id)
    if "staleness" in wanted:
        from calibrate.published.staleness import staleness_rows

        rows += staleness_rows()
    if "NCCL" in wanted:
        from calibrate.published.nccl import nccl_rows

        rows += nccl_rows()
    if MOVED in wanted:
        from calibrate.published.device_transfer import moved_rows

        rows += moved_rows()
    return PublishedValidation(
        rows=tuple(rows), constants=tuple(constants().values()), excluded=tuple(tables.excluded), coverage=coverage_of(tables)
    )


def _compared(others: Mapping[str, Mapping[str, Known]] | None, job: tuple[PublishedCase, list[Row]]) -> list[Compared]:
    """One series beside its predictions, with constants and a discrepancy from other tables, or as users get them."""
    case, rows = job
    if others is None:
        return compared(case, rows, {})
    table = case.series.table
    return compared(case, rows, others.get(table, {}), table)


def headline_of(group: str) -> str:
    """Which of :data:`HEADLINES` the rows of a group belong to."""
    return group if group in HEADLINES else THROUGHPUT


def coverage_of(tables: Tables) -> tuple[Coverage, ...]:
    """Series and rows of the collected tables, and how many of them are predicted, of each headline."""
    left_out = {(each.table, each.series): each.rows for each in tables.excluded}
    apart: dict[str, list[Accounted]] = {name: [] for name in HEADLINES}
    for each in tables.accounted:
        apart[_headline_of_table(each.table)].append(each)
    return tuple(
        Coverage(
            of=name,
            series=len(its),
            series_in=sum(left_out.get((each.table, each.series), 0) < each.rows for each in its),
            rows=sum(each.rows for each in its),
            rows_in=sum(each.rows - left_out.get((each.table, each.series), 0) for each in its),
        )
        for name, its in apart.items()
    )


def _headline_of_table(table: str) -> str:
    if table.startswith("staleness"):
        return "staleness"
    return "NCCL" if table.startswith("nccl") else THROUGHPUT
