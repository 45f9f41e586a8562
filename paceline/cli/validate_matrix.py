"""``paceline validate``: settings measured on the testbed, beside predictions from smaller ones."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from calibrate.testbed.platform import MEANINGS, Platform
from calibrate.testbed.running import guessed_run_s
from calibrate.validation.comparison import Compared
from calibrate.validation.matrix import Matrix, check_matrix, read_matrix
from calibrate.validation.random_matrix import DEFAULT_COUNT, is_random, random_matrix, random_text, seed_of
from calibrate.validation.running import MatrixValidation, pending_settings, validate_matrix
from calibrate.validation.validation import scores_of
from paceline.cli.asking import agree_to_measure, told_s
from paceline.cli.calibrating import command_line
from paceline.cli.ending import keeping
from paceline.cli.showing import note, progress_bar
from paceline.cli.validating import Wanted, check_outputs, finish, machine, today
from paceline.reporting.validation.content import Table, Validation
from simulator.catalog import find
from simulator.errors import InputError
from simulator.files import check_writable, write_whole
from simulator.text import format_number

__all__ = ["Measuring", "Plan", "list_matrix", "plan_of", "validate_on_testbed"]


@dataclass(frozen=True)
class Plan:
    """A matrix, and the seed that drew it; None where a person has chosen the settings."""

    matrix: Matrix
    seed: int | None = None


@dataclass(frozen=True)
class Measuring:
    """How a matrix is measured: folder of raw measurements, Python, limit of one repeat, and whether to go on without a question."""

    folder: Path
    python: str | None
    timeout_s: float
    yes: bool


def plan_of(name: str, count: int | None, out: Path | None, *, python: str | None, force: bool) -> Plan:
    """The matrix of a name, of a file, or drawn by ``random:SEED``; what was drawn is written to ``out``.

    Raises
    ------
    InputError
        There is no such matrix, or it breaks a rule; or an option does not go with it.
    """
    if is_random(name):
        seed, number = seed_of(name), DEFAULT_COUNT if count is None else count
        if out is not None:
            check_writable(out)
            if out.is_file() and out.stat().st_size and not force:
                raise InputError(f"--out-matrix {str(out)!r}: is there already; overwrite it with --force, or choose another")
        plan = Plan(random_matrix(seed, number, python=python), seed)
        if out is not None:
            write_whole(out, random_text(seed, number))
            note(f"wrote {out}")
        return plan
    for option, given in (("--count", count), ("--out-matrix", out)):
        if given is not None:
            raise InputError(f"{option}: goes with settings that are drawn, such as --matrix random:1; {name[:60]!r} has its own")
    return Plan(read_matrix(find("matrices", name, "--matrix"), python=python))


def list_matrix(plan: Plan, *, as_json: bool) -> None:
    """Show the settings of a matrix; nothing is measured."""
    matrix = plan.matrix
    rows = [("fit", one) for one in matrix.fit] + [(one.group, one.setting) for one in matrix.held_out]
    times_s = [guessed_run_s(one, matrix.repeats) for _, one in rows]
    if as_json:
        settings: list[dict[str, Any]] = [
            {"group": group, "label": one.label, "guessed_s": round(time_s), "setting": one.model_dump(mode="json")}
            for (group, one), time_s in zip(rows, times_s, strict=True)
        ]
        whole = {"name": matrix.name, "drawn_by": plan.seed, "repeats": matrix.repeats, "seed": matrix.seed, "settings": settings}
        typer.echo(json.dumps(whole, indent=2, ensure_ascii=False))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for column in ("group", "setting"):
        grid.add_column(column)
    for column in ("steps", "about"):
        grid.add_column(column, justify="right", no_wrap=True)
    for (group, one), time_s in zip(rows, times_s, strict=True):
        grid.add_row(Text(group), Text(one.label), f"{one.steps:,}", f"{time_s:.0f} s")
    console = Console()
    console.print(grid)
    console.print(
        f"{matrix.name}: {len(matrix.fit)} settings to fit, {len(matrix.held_out)} held out, {matrix.repeats} repeats each; about "
        f"{told_s(sum(times_s))} in all, a guess from rates and means",
        markup=False,
        highlight=False,
    )


def validate_on_testbed(plan: Plan, how: Measuring, wanted: Wanted, platform: Path | None) -> None:
    """Measure a matrix of settings, fit to one part, predict the other, compare.

    Raises
    ------
    InputError
        The matrix cannot be measured and predicted whole, which is found out before anything is measured; or nobody agrees to
        how long it takes.
    """
    check_outputs(wanted)
    if platform is not None:
        Platform.check_replaceable(platform, "--platform")
    matrix = plan.matrix
    pending = pending_settings(matrix, how.folder)
    check_matrix(matrix, pending, how.folder, python=how.python, timeout_s=how.timeout_s)
    took_s = sum(guessed_run_s(one, matrix.repeats) for one in pending)
    agree_to_measure(took_s, "--matrix", yes=how.yes)
    about = f"about {told_s(took_s)} to measure" if pending else "all measured before"
    note(
        f"{matrix.name}: {len(matrix.fit)} settings to fit, {len(matrix.held_out)} held out, {matrix.repeats} repeats each, {about}; raw "
        f"measurements go to {how.folder}, and what is there already is used"
    )
    with progress_bar("settings") as advance, keeping(lambda: _kept(how.folder)):
        found = validate_matrix(
            matrix, how.folder, python=how.python, timeout_s=how.timeout_s, progress=lambda done, total, _: advance(done, total)
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


def matrix_validation(plan: Plan, found: MatrixValidation) -> Validation:
    """What is told of it."""
    matrix = plan.matrix
    chosen = (
        "named before anything was measured"
        if plan.seed is None
        else f"drawn at random by seed {plan.seed} from the space that docs/testbed.md declares"
    )
    return Validation(
        key=f"testbed-{matrix.name}",
        title=f"Real TensorFlow runs on this machine ({matrix.name})",
        rows=found.rows,
        scores=tuple(scores_of(found.rows)),
        command=command_line(),
        date=today(),
        machine=machine(),
        about=(
            f"{len(matrix.fit)} small settings (1 worker, 2 where it must be) were measured and fitted; {len(matrix.held_out)} others, "
            f"{chosen}, were predicted and measured. Each was run {matrix.repeats} times, a cluster of processes started anew each time.",
            "An interval holds 90% of single runs: the law of compute, what the fit leaves open, how far settings of the fit are off as a "
            "whole (misfit), and how repeats of one setting differ (noise).",
            "The max-min rule shares links, and where compute is real the cores, evenly, puts 4 ms between steps, and knows nothing else.",
        ),
        tables=(_parameters(found.platform), _meanings(found.platform), _losses(found.rows)),
        extra={"platform": found.platform.model_dump(mode="json"), "drawn_by": plan.seed},
    )


def _parameters(platform: Platform) -> Table:
    cells = tuple(
        (name, format_number(one.value), f"{format_number(one.low)} to {format_number(one.high)}", "yes" if one.determined else "no")
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
