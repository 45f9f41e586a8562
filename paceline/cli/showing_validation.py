"""Print a validation on stdout (scores, tables and settings), and the settings of a matrix.

:mod:`paceline.reporting.validation.content` makes the tables. This module chooses the columns and rows that fit a terminal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from calibrate.validation.against_points import LEFT_OUT
from calibrate.validation.validation import Validation
from paceline.cli.terminal import Styled, display, display_answer
from paceline.reporting.validation.content import answer_of_validation, rows_table, scores_table, summary
from simulator.base.table import Cell, Table
from simulator.base.text import clean, written

if TYPE_CHECKING:
    from calibrate.validation.matrix import Matrix

_NARROW = ("setting", "measured", "predicted", "90% interval", "error", "noise", "error of staleness")
_NOT_IN_SCORES = ("worst setting", "interval score")
_BELOW = ("most_determined_by", "factor_without")
"""Columns of a refit that are shown below the table, where their texts fit."""
_MOST_ROWS = 60
"""Most settings of a group that are shown."""
_MOST_IN_ALL, _FEW_ROWS = 120, 6
_LONG_TABLE = 24


def show_validation(validation: Validation, *, details: bool = False, kept: bool = False, command: str = "paceline validate") -> None:
    """Show the quality of predictions and the settings with the largest errors; with ``details`` every score, table and note.

    If the refitted scenario is ``kept`` in a file, nothing says how to write it. Next steps begin with the ``command`` that was run.
    """
    if not details:
        group = validation.score.group if validation.score is not None and validation.score.group in validation.groups else None
        predicted = (row for row in validation.rows if not row.fitted and group in (None, row.group))
        rows = sorted(predicted, key=lambda row: -abs(row.error))[:_FEW_ROWS]
        unit = f", {rows[0].unit}" if len({row.unit for row in rows}) == 1 else ""
        what = f", {group}" if group == LEFT_OUT else ""
        table = replace(rows_table(Validation("", "", tuple(rows), ())).narrow(*_NARROW), title=f"Largest errors{what}{unit}")
        moved = [_narrow(table) for table in validation.tables if {*_BELOW} <= {column.name for column in table.columns}]
        answer = answer_of_validation(validation)
        display_answer(
            replace(answer, next="" if kept else answer.next.replace("`--", f"`{command} --")),
            *moved,
            *([table] if rows else []),
            footer="Details: --details   Page: --out FILE.html",
        )
        return
    display(Styled(clean(validation.title), "bold"), " ".join(summary(validation)), "")
    if validation.scores:
        display(_scores(validation))
        for score in validation.scores:
            display(Styled(f"worst of {clean(score.group)}: {clean(score.worst_setting)}, {written(score.worst_error, 'error')}", "dim", 2))
        display("")
    for table in validation.tables:
        if len(table.rows) > _LONG_TABLE:
            display(f"{table.title}: {len(table.rows):,} rows; --out, --markdown and --json have them", "")
            continue
        table = _narrow(table)
        display(table, *([Styled(clean(table.note, 1000), "dim", 2)] if table.note else []), "")
    display(*(_rows(validation, group) for group in validation.groups))
    if any(row.fitted for row in validation.rows):
        display(Styled("* used in the fit, so not counted in scores", "dim"))
    display(*(Styled(clean(note, 1000), "dim", 2) for note in validation.notes))


def show_matrix(matrix: Matrix) -> None:
    """Print the settings of a matrix, with about how long each takes."""
    from simulator.base.text import format_rough_seconds

    display(
        matrix.table(),
        f"{matrix.name}: {len(matrix.fit)} settings to fit, {len(matrix.held_out)} held out, {matrix.repeats} repeats each; about "
        f"{format_rough_seconds(matrix.guessed_s)} in all (estimated from rates and means){matrix.left_out}",
    )


def _narrow(table: Table) -> Table:
    """Reduce the table of a refit to columns that fit a terminal; return other tables unchanged."""
    names = [column.name for column in table.columns]
    if not {*_BELOW} <= {*names}:
        return table
    told = [
        f"{row[0]}: determined mostly by {row[names.index('most_determined_by')]}; without it the factor is {_factor(row, names)}."
        for row in table.rows
    ]
    return replace(table.only(*(name for name in names if name not in _BELOW)), note=" ".join([*told, table.note]))


def _factor(row: Sequence[Cell], names: Sequence[str]) -> str:
    value = row[names.index("factor_without")]
    return "not determined" if value is None else written(value, "number")


def _scores(validation: Validation) -> Table:
    whole = scores_table(validation)
    shown = whole.only(*(column.name for column in whole.columns if column.name not in _NOT_IN_SCORES))
    return replace(shown, note="").transposed("measure")


def _rows(validation: Validation, group: str) -> Table:
    """Return the settings of a group, or only the worst if there are very many."""
    rows = [row for row in validation.rows if row.group == group]
    title = group
    most = _MOST_ROWS if len(validation.rows) <= _MOST_IN_ALL else _FEW_ROWS
    if len(rows) > most:
        rows = sorted(rows, key=lambda row: (row.fitted, -abs(row.error)))[:most]
        title = f"{group}: the {most} largest errors of {sum(row.group == group for row in validation.rows)}"
    unit = f", {rows[0].unit}" if len({row.unit for row in rows}) == 1 else ""
    whole = rows_table(Validation("", "", tuple(rows), ()))
    return replace(whole.narrow(*_NARROW), title=title + unit)
