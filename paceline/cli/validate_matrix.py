"""``paceline validate``: settings measured on the testbed, beside predictions from smaller ones."""

from __future__ import annotations

from pathlib import Path

from calibrate.testbed.platform import MEANINGS, Platform
from calibrate.validation.comparison import Compared
from calibrate.validation.matrix import Matrix, read_matrix
from calibrate.validation.running import MatrixValidation, validate_matrix
from calibrate.validation.scores import scores_of
from paceline.cli.calibrating import command_line
from paceline.cli.ending import keeping
from paceline.cli.showing import note, progress_bar
from paceline.cli.validating import Wanted, check_outputs, finish, machine, today
from paceline.reporting.validation.content import Table, Validation
from paceline.reporting.wording import amount
from simulator.catalog import find

__all__ = ["validate_on_testbed"]


def validate_on_testbed(
    matrix: str, measurements: Path, wanted: Wanted, *, python: str | None, timeout_s: float, platform: Path | None
) -> None:
    """Measure a matrix of settings, fit to one part, predict the other, compare."""
    check_outputs(wanted)
    if platform is not None:
        Platform.check_replaceable(platform, "--platform")
    plan = read_matrix(find("matrices", matrix, "--matrix"))
    note(
        f"{plan.name}: {len(plan.fit)} settings to fit, {len(plan.held_out)} held out, {plan.repeats} repeats each; raw measurements go to "
        f"{measurements}, and what is there already is used"
    )
    with progress_bar("settings") as advance, keeping(lambda: _kept(measurements)):
        found = validate_matrix(
            plan, measurements, python=python, timeout_s=timeout_s, progress=lambda done, total, _: advance(done, total)
        )
    if platform is not None:
        found.platform.write(platform)
        note(f"wrote {platform}")
    finish(matrix_validation(plan, found), wanted)


def _kept(measurements: Path) -> str:
    """What an interrupted validation leaves behind."""
    if not any(measurements.glob("*-testbed-*.ndjson")):
        return ""
    return f"what was measured is kept in {measurements}; the same command goes on there"


def matrix_validation(plan: Matrix, found: MatrixValidation) -> Validation:
    """What is told of it."""
    return Validation(
        key=f"testbed-{plan.name}",
        title=f"Real TensorFlow runs on this machine ({plan.name})",
        rows=found.rows,
        scores=tuple(scores_of(found.rows)),
        command=command_line(),
        date=today(),
        machine=machine(),
        about=(
            f"{len(plan.fit)} small settings (1 worker, 2 where it must be) were measured and fitted; {len(plan.held_out)} others, named "
            f"before anything was measured, were predicted and measured. Each was run {plan.repeats} times, a cluster of processes started "
            "anew each time.",
            "An interval holds 90% of single runs: the law of compute, what the fit leaves open, and the spread of repeats.",
        ),
        tables=(_parameters(found.platform), _meanings(found.platform), _losses(found.rows)),
        extra={"platform": found.platform.model_dump(mode="json")},
    )


def _parameters(platform: Platform) -> Table:
    cells = tuple(
        (name, amount(one.value), f"{amount(one.low)} to {amount(one.high)}", "yes" if one.determined else "no")
        for name, one in platform.parameters.items()
    )
    return Table(
        "What was fitted",
        ("parameter", "value", "90% interval", "determined"),
        cells,
        text="Seconds and bytes. A parameter that the runs do not determine keeps a documented prior.",
        left=(0, 3),
    )


def _meanings(platform: Platform) -> Table:
    cells = tuple((name, MEANINGS[name], one.why) for name, one in platform.parameters.items())
    return Table("What each parameter is, and what determines it", ("parameter", "meaning", "by what"), cells, left=(0, 1, 2), long=True)


def _losses(rows: tuple[Compared, ...]) -> Table:
    """How well the fit describes its own settings, which no score counts."""
    cells = tuple((row.name, f"{row.mean:.3f}", f"{row.predicted.mean:.3f}", f"{row.error:+.1%}") for row in rows if row.fitted)
    return Table("How well the fit describes what it was fitted to", ("setting", "measured", "fitted", "error"), cells)
