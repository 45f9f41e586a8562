"""``paceline plan`` and ``paceline learn``: find a configuration that reaches a goal, and the time until a model is good enough.

They call ``plan``, ``plan_to_target`` and ``learn`` of ``paceline.api``, which return the sentences and tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.arguments import Typed
from paceline.cli.ending import MISSED
from paceline.cli.options import Given, Yes, calling

if TYPE_CHECKING:
    from paceline.answers import Answer
    from simulator.base.table import Table

_SHOWN = 6
_OF_TARGET = ("problem", "seeds", "rates", "measurements", "python", "timeout_s")
_OF_RATES = (
    "target_throughput", "samples", "tokens", "dataset_size", "confidence", "prefer", "trainings_per_month", "scaling", "runs_on",
    "backend", "scheduler",
)  # fmt: skip
"""Options that have no effect with --target."""
_COLUMNS_SHOWN = ("way", "staleness", "rate", "reached", "time_s", "cost_usd", "samples", "last")
"""Columns of ``learn`` that fit a terminal; --json and --curves have all."""


@calling(
    "plan", "plan_to_target",
    keys=("replications",),
    optional=("target",),
    only={"plan_to_target": "With --target"},
    hints={"force": "Replaces --report too."},
    common={
        "Goal": ("target_throughput", "samples", "tokens", "deadline", "budget", "target", "problem"),
        "Choose from": ("clusters", "strategies", "workers", "prices", "settings"),
        "Output": ("report", "details", "yes", "json"),
    },
)  # fmt: skip
def plan(
    given: Given,
    *,
    report: Annotated[Path | None, Typed(metavar="FILE.html")] = None,
    details: bool = False,
    yes: Yes = False,
    json: bool = False,
) -> None:
    """Find cluster, strategy and workers that reach a goal.

    Example: `paceline plan ring --samples 1e9 --deadline 12h --clusters ethernet-10g,ethernet-25g --price 0.40/h`

    Example: `paceline plan ring --target accuracy=0.95 --problem digits-mlp --strategies ring,async-ps --workers 1..16`

    Example: `paceline plan ring --target-throughput '20000 samples/s' --strategies ring,sync-ps,async-ps --workers 1..64`

    The goal is a throughput; or samples to train on within a deadline, a budget, or both; or, with --target, a model that is good
    enough. The exit code is 3 if the goal cannot be reached; then the nearest configuration is shown. docs/plan.md defines the
    words of the answer.

    Parameters
    ----------
    report
        Also write a report that begins with the plan.
    details
        Also print the best of each cluster and strategy, the Pareto front, gains of improvements, and notes.
    json
        Print the plan as JSON.
    """
    from paceline import api
    from paceline.cli.ending import keeping, keeping_results
    from paceline.cli.showing_plan import show_plan
    from paceline.cli.terminal import asking, note, stages_bar
    from paceline.planning.answer import plan_file_of
    from paceline.reporting.render import REPORT
    from simulator.base.catalog import scenario_file
    from simulator.base.files import Output, check_apart

    scenario, out, force, jobs = given["scenario"], given.get("out"), given["force"], given["jobs"]
    if report is not None:
        if out is not None:
            check_apart([("--report", report), ("--out", out), ("a file next to --out", plan_file_of(out))])
        Output(report, REPORT, force=force, argument="report", reads=[scenario_file(scenario)])
    if "target" in given:
        _plan_to_target(given, report, details=details, json=json, yes=yes)
        return
    given.needs("--target", _OF_TARGET)
    with keeping_results(stages_bar(soon=True), out, of="scenarios") as count:
        answer = api.plan(**given.of(api.plan), progress=count, agree=None if yes else asking(scenario, yes=yes))
    if json:
        typer.echo(answer.to_json())
    else:
        show_plan(answer, details=details)
    kept = plan_file_of(out) if out is not None else None
    if out is not None:
        note(f"wrote {out} ({answer.simulated} scenarios) and {kept}; draw them with: paceline report {out} --plan {kept}")
    if report is not None:
        with stages_bar() as parts, keeping(lambda: f"the plan is saved: {kept}" if kept else ""):
            api.report(answer, report, force=force, jobs=jobs, progress=parts)
        note(f"wrote {report}; open it in a browser")
    if not answer.feasible:
        raise typer.Exit(MISSED)


def _plan_to_target(given: Given, report: Path | None, *, details: bool, json: bool, yes: bool) -> None:
    from paceline import api
    from paceline.cli.ending import keeping
    from paceline.cli.terminal import asking, note, stages_bar

    given.useless("--target", _OF_RATES)
    with stages_bar() as progress, keeping():
        agree = None if yes else asking(given["scenario"], yes=yes)
        answer = api.plan_to_target(**given.of(api.plan_to_target), progress=progress, agree=agree)
    if json:
        typer.echo(answer.to_json())
    else:
        table = answer.table().without_empty_columns()
        left = len(table.rows) - _SHOWN
        more = f"and {left} more: --details" if left > 0 else ""
        shown = table if details else replace(table, rows=table.rows[:_SHOWN], more=more)
        _show(answer.answer, shown, answer.learned.warnings, details=details)
    if report is not None:
        api.report(answer.learned, report, force=given["force"], jobs=given["jobs"])
        note(f"wrote {report}; open it in a browser")
    if not answer.feasible:
        raise typer.Exit(MISSED)


@calling(
    "learn",
    common={
        "What to compare": ("problem", "target", "strategies", "batch", "over", "settings", "prices"),
        "Replay": ("epochs", "seeds", "rates"),
        "Output": ("details", "curves", "out", "json"),
    },
)
def learn(given: Given, *, details: bool = False, json: bool = False) -> None:
    """Predict time and cost until a model is good enough.

    Example: `paceline learn async-ps --strategies sync-ps,async-ps,ssp,backup --batch 8 --target accuracy=0.95`

    Asynchronous training makes more updates per second but learns less from each. This command shows which effect wins. It simulates
    when each gradient is computed and applied, and replays that order with real gradients in TensorFlow.

    Finished replays are kept in --measurements: run the command again to resume; another target needs no new replay. The exit code is
    3 if no strategy always reaches the target.

    Parameters
    ----------
    details
        Also show every warning.
    json
        Print the answer as JSON.
    """
    from paceline import api
    from paceline.cli.terminal import measuring, note

    with measuring() as progress:
        learned = api.learn(**given, progress=progress)
    if json:
        typer.echo(learned.to_json())
    else:
        table = learned.table().only(*_COLUMNS_SHOWN).without_empty_columns()
        _show(learned.answer, table, learned.warnings, details=details)
    for name in ("out", "curves", "tensorboard"):
        if (file := given.get(name)) is not None:
            note(f"wrote {file}")
    if learned.first is None:
        raise typer.Exit(MISSED)


def _show(answer: Answer, table: Table, warnings: Sequence[str], *, details: bool) -> None:
    from paceline.cli.terminal import display, display_answer

    display_answer(answer, table, footer="" if details else "Details: --details")
    display(*(f"\n{text}" for text in warnings if details))
