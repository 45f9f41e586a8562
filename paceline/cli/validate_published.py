"""``paceline validate --published``: tables that others have measured and published, beside their predictions."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from calibrate.published.device_transfer import BY_RATIO, MOVED_BY
from calibrate.published.validation import HEADLINES, REGIMES, PublishedValidation, headline_of
from calibrate.published.validation import validate_published as run
from calibrate.validation.comparison import Compared
from calibrate.validation.validation import Score, scores_of
from paceline.cli.calibrating import command_line
from paceline.cli.showing import progress_bar
from paceline.cli.validating import Wanted, check_outputs, finish, machine, today
from paceline.reporting.validation.content import Table, Validation
from paceline.reporting.validation.facts import signed
from paceline.sweeping.backends import local_workers
from simulator.text import format_number

__all__ = ["validate_published"]

_WORST = 12
_ABOUT_MOVED = (
    "Trainings moved from one device to another (rules in docs/scenario.md) are groups apart too: throughput of one device on the newer, "
    "from that on the older. By a published pair: from pairs of the same model in other sources, with the scatter of other models. By two "
    "rooflines: the ratio of the bounds of both devices, with the scatter of other models. By one roofline, as from a processor: the bound "
    "of the device there, with the efficiencies of other models. No row of the same training takes part, but the form of the bound was "
    "chosen among five with these rows in view. Simpler rules beside them: throughput grows as peaks, or as bandwidths of memory, do.",
)


def validate_published(regimes: Sequence[str], wanted: Wanted) -> None:
    """Predict the published tables of some regimes, or of all, and compare."""
    check_outputs(wanted)
    with progress_bar("series") as advance, local_workers(0) as workers:
        found = run(tuple(regimes) or None, lambda done, total, _: advance(done, total), spread=workers.map)
    finish(published_validation(found), wanted)


def published_validation(found: PublishedValidation) -> Validation:
    """What is told of it: scores of each regime, and of moved trainings apart from the others."""
    if all(row.group in MOVED_BY for row in found.rows):
        return _validation_of_moved(found.rows)
    headlines = _headlines([row for row in found.rows if row.group in REGIMES])
    return Validation(
        key="published",
        title="Published tables",
        rows=found.rows,
        scores=(*_scores_apart(found.rows), *(score for each in headlines for score in each.scores)),
        apart=tuple((each.scores[-1].group, each.what) for each in headlines),
        checked=REGIMES,
        command=command_line(),
        date=today(),
        machine=machine(),
        about=(
            "Of the tables collected are predicted "
            + "; ".join(
                f"of {HEADLINES[each.of]}, {each.series_in:,} of {each.series:,} series and {each.rows_in:,} of {each.rows:,} rows"
                for each in found.coverage
            )
            + ". The others are excluded, each with its reason.",
            "A series is predicted by simulating the scenario that a user would write of it: a machine of the catalogue, the software's "
            "settings, and a workload with which its smallest row comes out as measured. Rates that software gets of nominal ones are "
            "constants of models/practice.toml; each row is predicted with the values that come out without its table.",
            *(_ABOUT_MOVED if any(row.group in MOVED_BY for row in found.rows) else ()),
        ),
        tables=(
            *(_worst(each.rows, f", {each.what}") for each in headlines),
            *_moved(found.rows),
            _constants(found),
            _excluded(found),
        ),
        extra={
            "coverage": {each.of: each.model_dump(mode="json", exclude={"of"}) for each in found.coverage},
            "constants": [each.model_dump(mode="json") for each in found.constants],
            "excluded": [each.model_dump(mode="json") for each in found.excluded],
        },
    )


def _validation_of_moved(rows: Sequence[Compared]) -> Validation:
    """Moved trainings by themselves."""
    return Validation(
        key="moved",
        title="Published trainings moved to another device",
        rows=tuple(rows),
        scores=tuple(score for group in MOVED_BY for score in scores_of(row for row in rows if row.group == group)),
        headline=BY_RATIO,
        command=command_line(),
        date=today(),
        machine=machine(),
        about=_ABOUT_MOVED,
        tables=(_worst(rows), *_moved(rows)),
    )


def _moved(rows: Sequence[Compared]) -> tuple[Table, ...]:
    """Each way from one device to another with the errors of every rule that led there."""
    ways: dict[tuple[str, str, str], list[Compared]] = {}
    for row in rows:
        if row.group in MOVED_BY:
            way = str(row.settings.get("from", "a processor")), str(row.settings["to"]), str(row.settings["precision"])
            ways.setdefault((row.group, f"{way[0]} to {way[1]}", way[2]), []).append(row)
    cells = tuple(
        (
            group.removeprefix("moved, "),
            way,
            precision,
            f"{len(its)}",
            signed(statistics.median(row.error for row in its)),
            signed(max((row.error for row in its), key=abs)),
            f"{sum(row.inside for row in its)} of {len(its)}",
        )
        for (group, way, precision), its in sorted(ways.items())
    )
    columns = ("rule", "from, to", "precision", "trainings", "median error", "worst", "inside 90%")
    return (Table("Moved from one device to another", columns, cells, left=(0, 1, 2), long=True),) if cells else ()


class _Headline(NamedTuple):
    """Settings whose errors are alike: what was predicted, in words, and its scores, of all together the last."""

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
    """Of the groups in no headline: tables that constants were fitted on, and trainings that were moved."""
    others = [row for row in rows if row.group not in REGIMES]
    for group in dict.fromkeys(row.group for row in others):
        yield from scores_of(row for row in others if row.group == group)


def _worst(rows: Sequence[Compared], of: str = "") -> Table:
    worst = sorted((row for row in rows if not row.fitted), key=lambda row: -abs(row.error))[:_WORST]
    cells = tuple((row.name, row.group, signed(row.error), row.note) for row in worst)
    return Table(f"The largest errors{of}", ("setting", "group", "error", "what is known of it"), cells, left=(0, 1, 3))


def _constants(found: PublishedValidation) -> Table:
    cells = tuple(
        (
            each.name.replace("_", " "),
            format_number(each.value),
            f"{format_number(each.low)} to {format_number(each.high)}",
            ", ".join(each.tables) if each.determined else f"nothing: {each.prior.source}",
            each.meaning,
        )
        for each in found.constants
    )
    columns = ("constant", "value", "90% interval", "determined by", "meaning")
    return Table("What software gets of nominal rates", columns, cells, left=(0, 3, 4), long=True)


def _excluded(found: PublishedValidation) -> Table:
    cells = tuple((each.table, each.series, f"{each.rows:,}", each.reason) for each in found.excluded)
    return Table("What is not predicted", ("table", "series", "rows", "reason"), cells, left=(0, 1, 3), long=True)
