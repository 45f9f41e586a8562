"""Tables of whole published trainings for the terminal, and their rows as CSV."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

from calibrate.validation.comparison import Compared
from calibrate.validation.validation import scores_of
from evidence.published.accuracies import Accuracy, Learnt
from evidence.published.trainings import KEPT_BACK, OPEN
from simulator.base.files import OutputKind, csv_kind
from simulator.base.table import Column, Table

_COLUMNS = (
    Column("name", "text"), Column("group", "text"), Column("unit", "text"), Column("workers"), Column("servers"), Column("runs"),
    Column("measured"), Column("predicted"), Column("low"), Column("high"), Column("linear"), Column("error"), Column("inside"),
    Column("note", "text"), Column("source", "text"),
)  # fmt: skip
_LEARNT = tuple(Column(name) for name in Learnt._fields)

ROWS_FILE: OutputKind = csv_kind([column.name for column in _COLUMNS])
LEARNT_FILE: OutputKind = csv_kind([column.name for column in _LEARNT])


def rows_table(rows: Sequence[Compared]) -> Table:
    """Every duration and cost, as a CSV file has them."""
    cells = tuple(
        (
            row.name, row.group, row.unit, row.settings["workers"], row.settings["servers"], row.settings.get("runs", len(row.measured)),
            _short(row.mean), _short(row.predicted.mean), _short(row.predicted.low), _short(row.predicted.high),
            _short(row.baselines["linear"]), round(row.error, 4), row.inside, row.note, row.settings.get("source", ""),
        )
        for row in rows
    )  # fmt: skip
    return Table("Published trainings", _COLUMNS, cells, "trainings")


def learnt_table(runs: Sequence[Learnt]) -> Table:
    """Every replay of the stand-in, as a CSV file has them."""
    cells = tuple(
        (one.way, one.rate, one.seed, round(one.staleness, 3), round(one.accuracy, 4), _short(one.loss), one.diverged) for one in runs
    )
    return Table("The stand-in", _LEARNT, cells, "trainings-learnt")


def _short(value: float) -> float:
    return float(f"{value:.5g}")


def tables_of(
    rows: Sequence[Compared], eight: Sequence[Compared], accuracies: Sequence[Accuracy], runs: Sequence[Learnt]
) -> Mapping[str, str]:
    """Every table as Markdown, by its name."""
    learned = {"learnt": _lines(*_learnt(runs), left=1)} if runs else {}
    return {
        "scores": _lines(_HEAD_OF_SCORES, _scores(rows)),
        "durations": _lines(_HEAD_OF_ROWS, map(_line, (row for row in rows if row.unit == "s"))),
        "eight": _lines(_HEAD_OF_EIGHT, map(_line_of_eight, eight)),
        "accuracies": _lines(_HEAD_OF_ACCURACIES, map(_line_of_accuracy, accuracies), left=1),
        **learned,
    }


def _lines(head: str, lines: Iterator[str], left: int = 2) -> str:
    columns = head.count("|") - 1
    return "\n".join([head, "|" + " --- |" * left + " ---: |" * (columns - left), *lines])


_HEAD_OF_SCORES = "| part | of | experiments | median size | median | worst | linear scaling, median size | its worst | runs inside |"
_HEAD_OF_ROWS = "| experiment | part | runs | published | predicted | 90% interval | error | linear scaling |"
_HEAD_OF_EIGHT = "| gradients | compute | runs | published | predicted | error | linear scaling |"
_HEAD_OF_ACCURACIES = "| way of training | runs | median | least | most |"


def _scores(rows: Sequence[Compared]) -> Iterator[str]:
    for part in (OPEN, KEPT_BACK, "both"):
        for unit, what in (("s", "duration"), ("USD", "cost")):
            its = [row for row in rows if row.unit == unit and part in (row.group, "both")]
            score = scores_of(its, part)[-1]
            yield (
                f"| {part} | {what} | {score.settings} | {score.median_absolute_error:.1%} | {_signed(score.median_error)} "
                f"| {_signed(score.worst_error)} | {score.baselines['linear']:.1%} | {_signed(score.worst_of_baselines['linear'])} "
                f"| {score.inside:.0%} |"
            )


def _line(row: Compared) -> str:
    return (
        f"| {row.name} | {row.group} | {len(row.measured)} | {row.mean:,.0f} s | {row.predicted.mean:,.0f} s "
        f"| {row.predicted.low:,.0f} to {row.predicted.high:,.0f} | {_signed(row.error)} | {_signed(row.baseline_error('linear'))} |"
    )


def _line_of_eight(row: Compared) -> str:
    error = "(fitted)" if row.fitted else _signed(row.error)
    return (
        f"| {row.name} | {row.group} | {row.settings['runs']:.0f} | {row.mean:,.0f} s | {row.predicted.mean:,.0f} s "
        f"| {error} | {_signed(row.baseline_error('linear'))} |"
    )


def _line_of_accuracy(its: Accuracy) -> str:
    return f"| {its.way} | {len(its.values)} | {statistics.median(its.values):.1%} | {min(its.values):.1%} | {max(its.values):.1%} |"


def _learnt(runs: Sequence[Learnt]) -> tuple[str, Iterator[str]]:
    rates = list(dict.fromkeys(one.rate for one in runs))
    head = "| way | staleness |" + "".join(f" accuracy at rate x {rate:g} | loss |" for rate in rates)
    return head, (_of_way(runs, way, rates) for way in dict.fromkeys(one.way for one in runs))


def _of_way(runs: Sequence[Learnt], way: str, rates: Sequence[float]) -> str:
    cells = []
    for rate in rates:
        its = [one for one in runs if (one.way, one.rate) == (way, rate)]
        values = [one.accuracy for one in its]
        cells += (
            [
                f"{statistics.median(values):.1%} ({min(values):.1%} to {max(values):.1%})",
                f"{statistics.median(one.loss for one in its):.3g}",
            ]
            if its
            else ["", ""]
        )
    stale = next(one.staleness for one in runs if one.way == way)
    return f"| {way} | {stale:.2g} | " + " | ".join(cells) + " |"


def _signed(error: float) -> str:
    return f"{error:+.1%}".replace("-", "−")
