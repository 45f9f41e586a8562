"""``paceline plan``: which cluster, how many workers, at what cost, and how sure.

It calls ``paceline.api.plan`` and prints by :mod:`paceline.cli.showing_plan`; with ``--report`` it also writes a page.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from paceline.cli.commands import MISSED, Panel
from paceline.cli.options import YES_HELP, Given, calling

PANEL, ORDER = Panel.PREDICT, 40

_SHOWN = 12
_OF_TARGET = ("problem", "seeds", "rates", "measurements", "python", "timeout_s")
_OF_RATES = (
    "target_throughput", "samples", "dataset_size", "confidence", "prefer", "trainings_per_month", "scaling", "runs_on", "backend",
    "scheduler",
)  # fmt: skip
"""Options that say nothing with --target."""
_WORK = "How to work and what to write"


@calling(
    "plan", "plan_to_target",
    keys=("replications",),
    optional=("target",),
    only={"plan_to_target": "With --target"},
    hints={"force": "Replaces --report too."},
    panels={
        "Goal: give one kind": (
            "target_throughput", "samples", "epochs", "dataset_size", "deadline", "budget", "confidence", "prefer", "trainings_per_month",
        ),
        "Goal: or a model that is good enough": ("target", "problem", "seeds", "rates", "measurements", "python", "timeout_s"),
        "What to choose from": (
            "clusters", "strategies", "workers", "servers", "scaling", "batches", "runs_on", "over", "settings", "prices",
        ),
        _WORK: ("replications", "out", "force", "jobs", "backend", "scheduler"),
    },
)  # fmt: skip
def plan(
    given: Given,
    *,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="Also write a report that begins with the plan.", show_default=False, rich_help_panel=_WORK),
    ] = None,
    details: Annotated[
        bool,
        typer.Option(
            "--details",
            help="Also print the best on each cluster and of each way of training, cost against time, what improvements bring, and notes.",
            rich_help_panel=_WORK,
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help=YES_HELP, rich_help_panel=_WORK)] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.", rich_help_panel=_WORK)] = False,
) -> None:
    """Find the cluster, the strategy and the number of workers that reach a goal.

    The goal is a throughput, or a data set to train on within a deadline, a budget, or both.
    The answer says how sure it is, and which configurations come next. --details adds cost against
    time, how many parameter servers are enough, where more workers stop paying, and what would help most.

    Example: [bold]paceline plan ring --samples 1e9 --deadline 12h
    --clusters ethernet-10g,ethernet-25g --price 0.40/h[/bold]

    Or it is a model that is good enough: the fastest and the cheapest way there, with what of the answer is simulated, measured and
    assumed. [bold]paceline plan ring --target accuracy=0.95 --problem digits-mlp --strategies ring,async-ps --workers 1..16[/bold]

    Example: [bold]paceline plan ring --target-throughput '20000 samples/s'
    --strategies ring,sync-ps,async-ps --workers 1..64[/bold]

    The exit code is 0 if the goal can be reached. It is 3 if it cannot; then the nearest
    configuration is shown. docs/planning.md defines every word of the answer.
    """
    from paceline import api
    from paceline.cli.asking import asking
    from paceline.cli.ending import Counted, keeping
    from paceline.cli.showing_plan import show_plan
    from paceline.cli.terminal import note, stages_bar
    from paceline.planning.answer import plan_file_of
    from paceline.reporting.render import REPORT
    from simulator.base.catalog import scenario_file
    from simulator.base.files import Output, check_apart

    scenario, out, force, jobs = given["scenario"], given.get("out"), given["force"], given["jobs"]
    if report is not None:
        if out is not None:
            check_apart([("--report", report), ("--out", out), ("a file beside --out", plan_file_of(out))])
        Output(report, REPORT, force=force, argument="report", reads=[scenario_file(scenario)])
    if "target" in given:
        _plan_to_target(given, report, json=json, yes=yes)
        return
    given.needs("--target", _OF_TARGET)
    with stages_bar(soon=True) as advance, keeping((count := Counted(advance, out, of="scenarios")).kept):
        answer = api.plan(**given.of(api.plan), progress=count, agree=None if yes else asking(scenario, yes=yes))
    if json:
        typer.echo(answer.to_json())
    else:
        show_plan(answer, details=details)
    kept = plan_file_of(out) if out is not None else None
    if out is not None:
        note(f"wrote {out} ({answer.simulated} scenarios) and {kept}; draw them with: paceline report {out} --plan {kept}")
    if report is not None:
        with stages_bar() as parts, keeping(lambda: f"the plan is kept: {kept}" if kept else ""):
            api.report(answer, report, force=force, jobs=jobs, progress=parts)
        note(f"wrote {report}; open it in a browser")
    if not answer.feasible:
        raise typer.Exit(MISSED)


def _plan_to_target(given: Given, report: Path | None, *, json: bool, yes: bool) -> None:
    """The fastest and the cheapest way to a model that is good enough."""
    from rich.text import Text

    from paceline import api
    from paceline.cli.asking import asking
    from paceline.cli.ending import keeping
    from paceline.cli.terminal import note, printer, stages_bar

    given.useless("--target", (*_OF_RATES, "details"))
    with stages_bar() as progress, keeping():
        agree = None if yes else asking(given["scenario"], yes=yes)
        answer = api.plan_to_target(**given.of(api.plan_to_target), progress=progress, agree=agree)
    if json:
        typer.echo(answer.to_json())
    else:
        console = printer(highlight=False)
        for sentence in answer.sentences:
            console.print(Text(sentence))
        table = answer.table().without_empty_columns()
        left = len(table.rows) - _SHOWN
        more = f"and {left} more: --json has all" if left > 0 else ""
        console.print(replace(table, rows=table.rows[:_SHOWN], more=more).to_rich())
        for warning in answer.learned.warnings:
            note(f"warning: {warning}")
    if report is not None:
        api.report(answer.learned, report, force=given["force"], jobs=given["jobs"])
        note(f"wrote {report}; open it in a browser")
    if not answer.feasible:
        raise typer.Exit(MISSED)
