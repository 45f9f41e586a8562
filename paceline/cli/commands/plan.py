"""``paceline plan``: which cluster, how many workers, at what cost, and how sure."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from paceline.cli.commands import Panel
from paceline.cli.options import BACKEND_HELP, JOBS_HELP, PRICE_HELP, SCHEDULER_HELP, YES_HELP, names_of, over_of, prices_of, settings_of

__all__ = ["plan"]

PANEL, ORDER = Panel.PREDICT, 40

_INFEASIBLE = 3
_GOAL, _CHOICE, _WORK = "Goal: give one kind", "What to choose from", "How to work and what to write"


def plan(
    scenario: Annotated[
        Path, typer.Argument(metavar="SCENARIO.toml", help="Scenario that the ranges vary, or the name of one.", show_default=False)
    ],
    target_throughput: Annotated[
        str | None,
        typer.Option(metavar="RATE", help="Throughput to reach, such as '20000 samples/s'.", show_default=False, rich_help_panel=_GOAL),
    ] = None,
    samples: Annotated[
        float | None,
        typer.Option(
            metavar="N",
            help="Samples of the data set, such as 1.28e6; with --deadline, --budget or both.",
            show_default=False,
            rich_help_panel=_GOAL,
        ),
    ] = None,
    epochs: Annotated[
        float | None,
        typer.Option(
            metavar="N",
            help="Passes over all samples; left out: as the scenario's \\[job] says, else 1.",
            show_default=False,
            rich_help_panel=_GOAL,
        ),
    ] = None,
    dataset_size: Annotated[
        float | None, typer.Option(metavar="N", help="The same as --samples.", show_default=False, rich_help_panel=_GOAL)
    ] = None,
    deadline: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Time that the whole training may take, such as 12h, '30 min', '2 d'.",
            show_default=False,
            rich_help_panel=_GOAL,
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="SUM",
            help="US dollars that it may cost, such as '500 USD'; needs a price (--price).",
            show_default=False,
            rich_help_panel=_GOAL,
        ),
    ] = None,
    confidence: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            help="Share of real runs that must reach the goal. R replications support up to R / (R + 1): 19 support 0.95.",
            rich_help_panel=_GOAL,
        ),
    ] = 0.95,
    prefer: Annotated[
        Literal["cheapest", "fastest", "fewest-devices"] | None,
        typer.Option(
            help="What is best among all that reach the goal; left out: the fastest for a budget alone, else the cheapest.",
            show_default=False,
            rich_help_panel=_GOAL,
        ),
    ] = None,
    clusters: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help="Clusters of `paceline models list`, or paths of files; left out: the scenario's own.",
            show_default=False,
            rich_help_panel=_CHOICE,
        ),
    ] = None,
    strategies: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help="single, mirrored, ring, halving-doubling, tree, hierarchical, auto (whichever all-reduce is fastest), sync-ps, backup, "
            "async-ps, ssp; of models with layers also pipeline, tensor, zero1, zero2, fsdp, hybrid, each with all its degrees; "
            "left out: the scenario's own, and of a model with layers all of these.",
            show_default=False,
            rich_help_panel=_CHOICE,
        ),
    ] = None,
    workers: Annotated[
        str | None,
        typer.Option(
            metavar="RANGE",
            help="A range to search, or a list such as 1,2,4,8 to simulate; 1..64 if left out.",
            show_default=False,
            rich_help_panel=_CHOICE,
        ),
    ] = None,
    servers: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Parameter servers, such as 1,2,4; left out: the scenario's own.",
            show_default=False,
            rich_help_panel=_CHOICE,
        ),
    ] = None,
    scaling: Annotated[
        Literal["weak", "strong", "both"] | None,
        typer.Option(
            help="weak: each replica keeps its batch; strong: all together keep theirs; left out: as the scenario has it.",
            show_default=False,
            rich_help_panel=_CHOICE,
        ),
    ] = None,
    over: Annotated[
        list[str] | None,
        typer.Option(
            "--over", metavar="KEY=V1,V2,...", help="Any other key and its values. Repeatable.", show_default=False, rich_help_panel=_CHOICE
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Set a key for all configurations, such as run.steps=200. Repeatable.",
            show_default=False,
            rich_help_panel=_CHOICE,
        ),
    ] = None,
    prices: Annotated[
        list[str] | None,
        typer.Option("--price", metavar="[NAME=]PRICE", help=PRICE_HELP, show_default=False, rich_help_panel=_CHOICE),
    ] = None,
    replications: Annotated[
        int | None,
        typer.Option(
            metavar="R",
            help="Replications of each configuration; the same as --set run.replications=R; left out: the scenario's own.",
            show_default=False,
            rich_help_panel=_WORK,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.ndjson",
            help="Keep what is simulated, and the plan beside it (FILE.plan.json); the same command goes on there after an interruption.",
            show_default=False,
            rich_help_panel=_WORK,
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Replace --out if it holds something else, and --report if it is no report.", rich_help_panel=_WORK),
    ] = False,
    jobs: Annotated[int, typer.Option(help=JOBS_HELP, min=0, metavar="N", rich_help_panel=_WORK)] = 0,
    backend: Annotated[Literal["local", "dask", "ray"], typer.Option(help=BACKEND_HELP, rich_help_panel=_WORK)] = "local",
    scheduler: Annotated[
        str | None, typer.Option(help=SCHEDULER_HELP, metavar="ADDRESS", show_default=False, rich_help_panel=_WORK)
    ] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Write a report with the plan.", show_default=False, rich_help_panel=_WORK)
    ] = None,
    details: Annotated[
        bool,
        typer.Option(
            "--details",
            help="Also print each cluster and way of training, cost against time, what improvements bring, and every note.",
            rich_help_panel=_WORK,
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help=YES_HELP, rich_help_panel=_WORK)] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.", rich_help_panel=_WORK)] = False,
) -> None:
    """Find the cluster, the strategy and the number of workers that reach a goal.

    Closed forms discard what cannot reach it, simulation decides the rest. Tells the answer
    with its confidence, the runners-up, the front of cost against time, how many parameter
    servers are enough, where adding workers stops paying, and which improvement buys most.

    The exit code is 0 if the goal can be reached, and 3 if it cannot: then the nearest
    configuration is shown. docs/planning.md has every definition.

    Example: [bold]paceline plan models/scenarios/ring.toml --target-throughput '20000 samples/s'
    --clusters ethernet-10g,ethernet-25g --strategies ring,sync-ps,async-ps --workers 1..64
    --price 0.40/h[/bold]
    """
    from paceline import api
    from paceline.cli.asking import asking
    from paceline.cli.ending import Counted, keeping
    from paceline.cli.showing_plan import show_plan
    from paceline.cli.terminal import note, progress_bar, stages_bar
    from paceline.reporting.report import check_target
    from simulator.catalog import scenario_file
    from simulator.errors import InputError
    from simulator.files import check_writable

    if report is not None:
        if out is not None and report.resolve() == out.resolve():
            raise InputError(f"--out and --report: both are {str(report)!r}; give two names")
        check_writable(report, reads=scenario_file(scenario))
        check_target(report, force=force, argument="report")
    with progress_bar("scenarios") as advance, keeping((count := Counted(advance, out)).kept):
        answer = api.plan(
            scenario,
            target_throughput=target_throughput,
            samples=samples,
            epochs=epochs,
            dataset_size=dataset_size,
            deadline=deadline,
            budget=budget,
            confidence=confidence,
            prefer=prefer,
            clusters=names_of(clusters, "--clusters"),
            over=over_of(over),
            strategies=names_of(strategies, "--strategies"),
            workers=workers,
            servers=servers,
            scaling=scaling,
            settings=settings_of(settings, replications=replications),
            prices=prices_of(prices),
            out=out,
            jobs=jobs,
            backend=backend,
            scheduler=scheduler,
            force=force,
            progress=count,
            agree=None if yes else asking(scenario, yes=yes),
        )
    if json:
        typer.echo(answer.to_json())
    else:
        show_plan(answer, details=details)
    kept = out.with_suffix(".plan.json") if out is not None else None
    if out is not None:
        note(f"wrote {out} ({answer.simulated} scenarios) and {kept}; draw them with: paceline report {out} --plan {kept}")
    if report is not None:
        with stages_bar() as parts, keeping(lambda: f"the plan is kept: {kept}" if kept else ""):
            api.report(answer, report, force=True, jobs=jobs, progress=parts)
        note(f"wrote {report}; open it in a browser")
    if not answer.feasible:
        raise typer.Exit(_INFEASIBLE)
