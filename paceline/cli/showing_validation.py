"""Prints a validation on stdout: scores, further tables, and every setting; and the settings of a matrix.

The tables are made in :mod:`paceline.reporting.validation.content`; here is chosen which columns and rows a terminal has room for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from calibrate.validation.validation import Validation
from paceline.reporting.validation.content import rows_table, scores_table, summary
from simulator.base.table import Cell, Table
from simulator.base.text import clean, written

if TYPE_CHECKING:
    from rich.table import Table as Grid

    from calibrate.validation.matrix import Matrix

_NARROW = ("setting", "measured", "predicted", "90% interval", "error", "noise", "error of staleness")
_NOT_IN_SCORES = ("worst setting", "interval score")
_BELOW = ("most_determined_by", "factor_without")
"""Columns of what a refit moved that stand below it, where there is room for their words."""
_MOST_ROWS = 60
"""Of a group."""
_MOST_IN_ALL, _FEW_ROWS = 120, 6
_LONG_TABLE = 24


def show_validation(validation: Validation) -> None:
    """Print what a person needs at the terminal; the page and the JSON have the rest."""
    from rich.padding import Padding
    from rich.text import Text

    from paceline.cli.terminal import printer

    console = printer()
    console.print(Text(clean(validation.title), style="bold"))
    console.print(Text(" ".join(summary(validation))))
    console.print()
    if validation.scores:
        console.print(_scores(validation))
        for score in validation.scores:
            console.print(
                Padding(
                    Text(f"worst of {clean(score.group)}: {clean(score.worst_setting)}, {written(score.worst_error, 'error')}"),
                    (0, 0, 0, 2),
                ),
                style="dim",
            )
        console.print()
    for table in validation.tables:
        if len(table.rows) > _LONG_TABLE:
            console.print(Padding(Text(f"{table.title}: {len(table.rows):,} rows; --out, --markdown and --json have them"), (0, 0, 1, 0)))
            continue
        table = _narrow(table)
        console.print(table.to_rich())
        console.print(Padding(Text(clean(table.note, 1000)), (0, 0, 1, 2)) if table.note else "", style="dim")
    for group in validation.groups:
        console.print(_rows(validation, group))
    if any(row.fitted for row in validation.rows):
        console.print("* took part in the fit, so it counts in no score", style="dim")
    for note in validation.notes:
        console.print(Padding(Text(clean(note, 1000)), (0, 0, 0, 2)), style="dim")


def show_matrix(matrix: Matrix) -> None:
    """Print the settings of a matrix, with about how long each takes."""
    from paceline.cli.terminal import printer
    from simulator.base.text import format_rough_seconds

    console = printer()
    console.print(matrix.to_table().to_rich())
    console.print(
        f"{matrix.name}: {len(matrix.fit)} settings to fit, {len(matrix.held_out)} held out, {matrix.repeats} repeats each; about "
        f"{format_rough_seconds(matrix.guessed_s)} in all, a guess from rates and means{matrix.left_out}",
        markup=False,
        highlight=False,
    )


def _narrow(table: Table) -> Table:
    """What a refit moved as a terminal has room for it; any other table as it is."""
    names = [column.name for column in table.columns]
    if not {*_BELOW} <= {*names}:
        return table
    told = [
        f"{row[0]}: most determined by {row[names.index('most_determined_by')]}; without it the factor is {_factor(row, names)}."
        for row in table.rows
    ]
    return replace(table.only(*(name for name in names if name not in _BELOW)), note=" ".join([*told, table.note]))


def _factor(row: Sequence[Cell], names: Sequence[str]) -> str:
    value = row[names.index("factor_without")]
    return "not determined" if value is None else written(value, "number")


def _scores(validation: Validation) -> Grid:
    whole = scores_table(validation)
    return (
        replace(whole.only(*(column.name for column in whole.columns if column.name not in _NOT_IN_SCORES)), note="")
        .transposed("measure")
        .to_rich()
    )


def _rows(validation: Validation, group: str) -> Grid:
    """The settings of one group, the worst ones where there are very many."""
    rows = [row for row in validation.rows if row.group == group]
    title = group
    most = _MOST_ROWS if len(validation.rows) <= _MOST_IN_ALL else _FEW_ROWS
    if len(rows) > most:
        rows = sorted(rows, key=lambda row: (row.fitted, -abs(row.error)))[:most]
        title = f"{group}: the {most} largest errors of {sum(row.group == group for row in validation.rows)}"
    unit = f", {rows[0].unit}" if len({row.unit for row in rows}) == 1 else ""
    whole = rows_table(Validation("", "", tuple(rows), ()))
    return replace(whole.narrow(*_NARROW), title=title + unit).to_rich()
