"""All published tables compared with their predictions."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from pydantic import Field

from calibrate.probing import Progress
from calibrate.validation.comparison import Compared
from calibrate.validation.validation import Outline, Score, Validation, largest_errors, scores_of
from evidence.published.device_transfer import BY_RATIO, MOVED_BY, moved_rows
from evidence.published.prediction import base_of, compared, left_out, row_name, tables_of
from evidence.published.scenarios import PublishedCase, cases_of
from evidence.published.tables import Accounted, Excluded, Row, Tables, load_tables
from simulator.base.errors import InputError
from simulator.base.spec import Spec
from simulator.base.table import Column, Table
from simulator.base.text import did_you_mean, format_throughput, listed
from simulator.spec.constants import Constant, Known, constants

REGIMES = ("sync PS", "async PS", "all-reduce", "staleness", "NCCL")
MOVED = "moved"
"""Not a way of training: trainings on one device, moved to another."""
THROUGHPUT = "throughput"
HEADLINES = {THROUGHPUT: "throughput", "NCCL": "rate of all-reduces", "staleness": "mean staleness"}
"""Groups with separate scores, because their errors are not comparable, and what each predicts, in words."""

_KEY, _KEY_OF_MOVED = "published", "moved"
_MOST_REASONS, _MOST_OF_A_SERIES = 12, 2
_LISTING = "`python -m evidence published --only TABLE --json`"
_OF_STALENESS, _OF_NCCL = "staleness", "nccl_allreduce"
"""Tables whose rows are not predicted by scenarios of trainings."""
_ABOUT_MOVED = (
    "Trainings moved from one device to another (rules in docs/numbers.md) are groups apart too: throughput of one device on the newer, "
    "from that on the older. By a published pair: from pairs of the same model in other sources, with the scatter of other models. By two "
    "rooflines: the ratio of the bounds of both devices, with the scatter of other models. By one roofline, as from a processor: the bound "
    "of the device there, with the efficiencies of other models. No row of the same training takes part, but the form of the bound was "
    "chosen among five with these rows in view. Simpler rules beside them: throughput grows as peaks, or as bandwidths of memory, do.",
)


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

    @property
    def validation(self) -> Validation:
        """Summary: scores of each regime, and separately of scaled trainings."""
        rows = self.rows
        if all(row.group in MOVED_BY for row in rows):
            return _validation_of_moved(rows)
        headlines = _headlines([row for row in rows if row.group in REGIMES])
        moved = any(row.group in MOVED_BY for row in rows)
        return Validation(
            key=_KEY,
            title="Published tables",
            rows=rows,
            scores=(*_scores_apart(rows), *(score for each in headlines for score in each.scores)),
            apart=tuple((each.scores[-1].group, each.what) for each in headlines),
            checked=REGIMES,
            about=(
                "Of the tables collected are predicted "
                + "; ".join(
                    f"of {HEADLINES[each.of]}, {each.series_in:,} of {each.series:,} series and {each.rows_in:,} of {each.rows:,} rows"
                    for each in self.coverage
                )
                + ". The others are excluded, each with its reason.",
                "A series is predicted by simulating the scenario that a user would write of it: a machine of the catalogue, the "
                "software's settings, and a workload with which its smallest row comes out as measured. Rates that software gets of "
                "nominal ones are constants of models/practice.toml; each row is predicted with the values that come out without its "
                "table.",
                *(_ABOUT_MOVED if moved else ()),
            ),
            tables=(
                *(largest_errors(each.rows, each.what, of_a_series=_MOST_OF_A_SERIES) for each in headlines),
                *(
                    (largest_errors((row for row in rows if row.group in MOVED_BY), "moved trainings", of_a_series=_MOST_OF_A_SERIES),)
                    if moved
                    else ()
                ),
                _reasons(self.excluded),
            ),
            family=lambda row: row.group,
            details=(*_moved(rows), _constants(self.constants), _excluded(self.excluded)),
            extra={
                "coverage": {each.of: each.model_dump(mode="json", exclude={"of"}) for each in self.coverage},
                "constants": [each.model_dump(mode="json") for each in self.constants],
                "excluded": [each.model_dump(mode="json") for each in self.excluded],
            },
        )


Spread = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]
"""A ``map``, perhaps over several processes: answers in the order of what is asked."""


def outlines_of(regimes: Sequence[str] = (), only: Sequence[str] = ()) -> tuple[Outline, ...]:
    """What tables there may be of published ones; a validation of only scaled trainings is separate.

    Parameters
    ----------
    regimes, only
        As :func:`validate_published` takes them; none: all.
    """
    others = tuple(regime for regime in REGIMES if not regimes or regime in regimes)
    moved = not regimes or MOVED in regimes
    found = []
    if others:
        details = (*((_WAYS_MOVED,) if moved else ()), _constants(()), _excluded(()))
        found.append(Outline(_KEY, (*others, *(MOVED_BY if moved else ())), details))
    if moved and (only or not others):
        found.append(Outline(_KEY_OF_MOVED, MOVED_BY, (_WAYS_MOVED,)))
    return tuple(found)


def validate_published(
    regimes: Sequence[str] | None = None,
    progress: Progress | None = None,
    *,
    spread: Spread = map,
    as_shipped: bool = False,
    only: Sequence[str] = (),
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
    only
        Some tables or series; none: all.

    Raises
    ------
    InputError
        There is no such regime, table or series, or none of its rows is of these regimes.
    ScenarioError
        A file of the tables is missing or broken.
    """
    known = (*REGIMES, MOVED)
    wanted = tuple(regimes or known)
    for regime in wanted:
        if regime not in known:
            hint = did_you_mean(regime, known, f"choose from {', '.join(known)}")
            raise InputError(f"`regimes`: there is no published regime {str(regime)[:60]!r}; {hint}")
    tables = load_tables()
    others = None if as_shipped else left_out(tables.home)
    cases = cases_of(tables)
    names = {name for case, _ in cases for name in (case.series.table, case.series.id)} | {each.table for each in tables.accounted}
    for name in only:
        if name not in names:
            otherwise = f"tables are {listed(names_of_tables(cases))}, and {_LISTING} lists the series of one"
            hint = did_you_mean(str(name), sorted(names), otherwise)
            raise InputError(f"`only`: there is no published table or series {str(name)[:60]!r}; {hint}")
    jobs = [(case, rows) for case, rows in cases if case.series.regime in wanted and _is_named(case.series.table, case.series.id, only)]
    rows: list[Compared] = []
    done = spread(partial(_compared, others), jobs)
    for number, ((case, _), found) in enumerate(zip(jobs, done, strict=True), start=1):
        rows += found
        if progress is not None:
            progress(number, len(jobs), case.series.id)
    if "staleness" in wanted and (not only or _OF_STALENESS in only):
        from evidence.published.staleness import staleness_rows

        rows += staleness_rows()
    if "NCCL" in wanted and (not only or _OF_NCCL in only):
        from evidence.published.nccl import nccl_rows

        rows += nccl_rows()
    if MOVED in wanted:
        rows += [row for row in moved_rows() if not only or row.settings["table"] in only]
    if not rows:
        raise InputError(f"`only`: {', '.join(map(str, only))}: no row of it is predicted for {', '.join(wanted)}; choose another")
    return PublishedValidation(
        rows=tuple(rows), constants=tuple(constants().values()), excluded=tuple(tables.excluded), coverage=coverage_of(tables)
    )


def names_of_tables(cases: Iterable[tuple[PublishedCase, Sequence[Row]]]) -> list[str]:
    """The tables that are predicted: those of the cases, and those whose rows are no trainings."""
    return list(dict.fromkeys((*(case.series.table for case, _ in cases), _OF_STALENESS, _OF_NCCL)))


def _is_named(table: str, series: str, only: Sequence[str]) -> bool:
    return not only or table in only or series in only


class PublishedRow(NamedTuple):
    """The scenario of a row of a published table: the nested tables of its file, and lines that say which row it is and whose."""

    table: dict[str, Any]
    about: tuple[str, ...]


def row_of(name: str) -> PublishedRow:
    """The scenario by which a published row is predicted.

    Parameters
    ----------
    name
        Of the row, as the validation has it: ``"SERIES: 8 on 2"``.

    Raises
    ------
    InputError
        No row that a scenario predicts has this name.
    """
    tables = load_tables()
    cases = {row_name(case, row): (case, rows, place) for case, rows in cases_of(tables) for place, row in enumerate(rows)}
    if name not in cases:
        hint = did_you_mean(name, list(cases), f"{_LISTING} lists those of a table, such as {next(iter(cases))!r}")
        raise InputError(f"`row`: no published row that a scenario predicts is named {name[:80]!r}; {hint}")
    case, rows, place = cases[name]
    table, row = case.series.table, rows[place]
    found, _ = tables_of(case, rows, left_out(tables.home).get(table, {}), table)
    measured = ", ".join(map(format_throughput, row.throughput))
    return PublishedRow(
        found[place],
        (
            f"The row {name!r} of models/published/{table}.csv, as `python -m evidence published` predicts it; measured: {measured} "
            f"{row.unit}",
            f"Its workload is the one with which the smallest row of the series, {row_name(case, base_of(rows))!r}, comes out as measured",
            f"Source: {row.source}",
        ),
    )


def _compared(others: Mapping[str, Mapping[str, Known]] | None, job: tuple[PublishedCase, list[Row]]) -> list[Compared]:
    """One series with its predictions, with constants and a discrepancy from other tables, or as for users."""
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


# -- what is said of it, and its tables -----------------------------------------------------------


class _Headline(NamedTuple):
    """Settings with comparable errors: what was predicted, in words, and its scores, the total last."""

    what: str
    rows: tuple[Compared, ...]
    scores: tuple[Score, ...]


def _headlines(held_out: Sequence[Compared]) -> list[_Headline]:
    """Throughputs, all-reduces and staleness, each with its own scores; without those of which nothing is scored."""
    its: dict[str, list[Compared]] = {}
    for row in held_out:
        its.setdefault(headline_of(row.group), []).append(row)
    found = [_Headline(what, tuple(its[name]), tuple(scores_of(its[name], name))) for name, what in HEADLINES.items() if name in its]
    return [each for each in found if each.scores]


def _scores_apart(rows: Sequence[Compared]) -> Iterator[Score]:
    """Of the groups in no headline: trainings that were moved."""
    others = [row for row in rows if row.group not in REGIMES]
    for group in dict.fromkeys(row.group for row in others):
        yield from scores_of(row for row in others if row.group == group)


def _validation_of_moved(rows: Sequence[Compared]) -> Validation:
    """Moved trainings by themselves."""
    return Validation(
        key=_KEY_OF_MOVED,
        title="Published trainings moved to another device",
        rows=tuple(rows),
        scores=tuple(score for group in MOVED_BY for score in scores_of(row for row in rows if row.group == group)),
        headline=BY_RATIO,
        about=_ABOUT_MOVED,
        tables=(largest_errors(rows, of_a_series=_MOST_OF_A_SERIES),),
        family=lambda row: row.group,
        details=_moved(rows),
    )


def _moved(rows: Sequence[Compared]) -> tuple[Table, ...]:
    """Each way from one device to another with the errors of every rule that led there."""
    ways: dict[tuple[str, str, str], list[Compared]] = {}
    for row in rows:
        if row.group in MOVED_BY:
            way = f"{row.settings.get('from', 'a processor')} to {row.settings['to']}"
            ways.setdefault((row.group, way, str(row.settings["precision"])), []).append(row)
    cells = tuple(
        (
            group.removeprefix("moved, "),
            way,
            precision,
            len(its),
            statistics.median(row.error for row in its),
            max((row.error for row in its), key=abs),
            sum(row.inside for row in its),
        )
        for (group, way, precision), its in sorted(ways.items())
    )
    return (replace(_WAYS_MOVED, rows=cells),) if cells else ()


_WAYS_MOVED = Table(
    "Moved from one device to another",
    (
        Column("rule", "text"),
        Column("way", "text", "from, to"),
        Column("precision", "text"),
        Column("trainings", "count"),
        Column("median_error", "error", "median error"),
        Column("worst_error", "error", "worst"),
        Column("inside", "count", "inside 90%", "trainings inside the 90% interval"),
    ),
    (),
    "moved",
)


def _constants(known: Sequence[Constant]) -> Table:
    columns = (
        Column("constant", "text"),
        Column("value", "number"),
        Column("low", "number", "5%"),
        Column("high", "number", "95%"),
        Column("determined_by", "text", "determined by"),
        Column("meaning", "text"),
    )
    cells = tuple(
        (
            each.name.replace("_", " "),
            each.value,
            each.low,
            each.high,
            ", ".join(each.tables) if each.determined else f"nothing: {each.prior.source}",
            each.meaning,
        )
        for each in known
    )
    return Table("What software gets of nominal rates", columns, cells, "constants")


def _excluded(left: Sequence[Excluded]) -> Table:
    columns = Column("table", "text"), Column("series", "text"), Column("rows", "count"), Column("reason", "text")
    return Table("What is not predicted", columns, tuple((each.table, each.series, each.rows, each.reason) for each in left), "excluded")


def _reasons(left: Sequence[Excluded]) -> Table:
    """Excluded rows, by reason."""
    its: dict[str, list[Excluded]] = {}
    for each in left:
        its.setdefault(each.reason, []).append(each)
    ordered = sorted(its.items(), key=lambda item: -sum(each.rows for each in item[1]))
    few = [each for _, some in ordered[_MOST_REASONS:] for each in some]
    shown = ordered[:_MOST_REASONS]
    if few:
        shown.append((f"{len(ordered) - _MOST_REASONS} other reasons, of {max(each.rows for each in few)} rows and fewer", few))
    columns = Column("reason", "text"), Column("series", "count"), Column("rows", "count")
    cells = tuple((reason, len(some), sum(each.rows for each in some)) for reason, some in shown)
    return Table("What is not predicted, and why", columns, cells, "reasons")
