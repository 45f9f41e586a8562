"""``paceline plan``: which cluster, how many workers, at what cost, and how sure."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from paceline.cli.commands import Panel
from paceline.cli.options import (
    BACKEND_HELP,
    JOBS_HELP,
    PRICE_HELP,
    SCHEDULER_HELP,
    YES_HELP,
    names_of,
    number_typed,
    over_of,
    prices_of,
    settings_of,
)

__all__ = ["plan"]

PANEL, ORDER = Panel.PREDICT, 40

_INFEASIBLE = 3
_GOAL, _CHOICE, _WORK = "Goal: give one kind", "What to choose from", "How to work and what to write"


def plan(
    scenario: Annotated[
        Path,
        typer.Argument(
            metavar="SCENARIO.toml", help="Scenario file to start from, or the name of an example such as ring.", show_default=False
        ),
    ],
    target_throughput: Annotated[
        str | None,
        typer.Option(metavar="RATE", help="Throughput to reach, such as '20000 samples/s'.", show_default=False, rich_help_panel=_GOAL),
    ] = None,
    samples: Annotated[
        float | None,
        typer.Option(
            parser=number_typed,
            metavar="N",
            help="Samples in the data set, such as 1.28e6; needs --deadline, --budget or both.",
            show_default=False,
            rich_help_panel=_GOAL,
        ),
    ] = None,
    epochs: Annotated[
        float | None,
        typer.Option(
            parser=number_typed,
            metavar="N",
            help="How often all samples are trained on; left out: as \\[job] of the scenario says, else once.",
            show_default=False,
            rich_help_panel=_GOAL,
        ),
    ] = None,
    dataset_size: Annotated[
        float | None,
        typer.Option(parser=number_typed, metavar="N", help="Another name for --samples.", show_default=False, rich_help_panel=_GOAL),
    ] = None,
    deadline: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Most time that the training may take, such as 12h, '30 min' or '2 d'.",
            show_default=False,
            rich_help_panel=_GOAL,
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="SUM",
            help="Most US dollars that it may cost, such as '500 USD', or with a BUY: price that its machines may cost to buy; "
            "clusters without a price need --price.",
            show_default=False,
            rich_help_panel=_GOAL,
        ),
    ] = None,
    confidence: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            help="How probable it must be that a real run reaches the goal. R replications can show up to R / (R + 1): 19 show 0.95.",
            rich_help_panel=_GOAL,
        ),
    ] = 0.95,
    prefer: Annotated[
        Literal["cheapest", "fastest", "fewest-devices"] | None,
        typer.Option(
            help="Which to choose of all that reach the goal; left out: the fastest if there is only a budget, else the cheapest.",
            show_default=False,
            rich_help_panel=_GOAL,
        ),
    ] = None,
    clusters: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help="Clusters to choose from: names from `paceline models list`, or files; left out: that of the scenario.",
            show_default=False,
            rich_help_panel=_CHOICE,
        ),
    ] = None,
    strategies: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help="Strategies to choose from: single, mirrored, ring, halving-doubling, tree, hierarchical, auto (the fastest all-reduce), "
            "sync-ps, backup, async-ps, ssp. For models with layers also pipeline, tensor, zero1, zero2, fsdp and hybrid, each in all of "
            "its degrees. Left out: that of the scenario, and for a model with layers all that cut it.",
            show_default=False,
            rich_help_panel=_CHOICE,
        ),
    ] = None,
    workers: Annotated[
        str | None,
        typer.Option(
            metavar="RANGE",
            help="Numbers of workers: a range such as 1..64 is searched, of a list such as 1,2,4,8 each is simulated; left out: 1..64.",
            show_default=False,
            rich_help_panel=_CHOICE,
        ),
    ] = None,
    servers: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Numbers of parameter servers, such as 1,2,4 or 1..4; left out: that of the scenario.",
            show_default=False,
            rich_help_panel=_CHOICE,
        ),
    ] = None,
    scaling: Annotated[
        Literal["weak", "strong", "both"] | None,
        typer.Option(
            help="What more workers do to the batch. weak: each replica keeps its own; strong: all together keep theirs; left "
            "out: as in the "
            "scenario.",
            show_default=False,
            rich_help_panel=_CHOICE,
        ),
    ] = None,
    batches: Annotated[
        str | None,
        typer.Option(
            "--batch",
            metavar="RANGE",
            help="Batches to choose from: of a range such as 16..512 16, 32, 64 and so on and its end, or a list; samples of each replica "
            "with weak scaling, of all together with strong; left out: as in the scenario.",
            show_default=False,
            rich_help_panel=_CHOICE,
        ),
    ] = None,
    runs_on: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help="Take only what one of these runs as it comes: tensorflow, horovod, pytorch, deepspeed, megatron-lm.",
            show_default=False,
            rich_help_panel=_CHOICE,
        ),
    ] = None,
    over: Annotated[
        list[str] | None,
        typer.Option(
            "--over",
            metavar="KEY=V1,V2,...",
            help="Values of any other key to choose from. Repeatable.",
            show_default=False,
            rich_help_panel=_CHOICE,
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change a key in all configurations, such as run.steps=200. Repeatable.",
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
            help="Replications of each configuration. Short for --set run.replications=R.",
            show_default=False,
            rich_help_panel=_WORK,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.ndjson",
            help="Save every result here, and the plan beside it as FILE.plan.json. After an interruption the same command goes on there.",
            show_default=False,
            rich_help_panel=_WORK,
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            "-f",
            help="Replace --out, the files beside it and --report, whatever they are; results of this plan are kept.",
            rich_help_panel=_WORK,
        ),
    ] = False,
    jobs: Annotated[int, typer.Option(help=JOBS_HELP, min=0, metavar="N", rich_help_panel=_WORK)] = 0,
    backend: Annotated[Literal["local", "dask", "ray"], typer.Option(help=BACKEND_HELP, rich_help_panel=_WORK)] = "local",
    scheduler: Annotated[
        str | None, typer.Option(help=SCHEDULER_HELP, metavar="ADDRESS", show_default=False, rich_help_panel=_WORK)
    ] = None,
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

    Example: [bold]paceline plan ring --target-throughput '20000 samples/s'
    --strategies ring,sync-ps,async-ps --workers 1..64[/bold]

    The exit code is 0 if the goal can be reached. It is 3 if it cannot; then the nearest
    configuration is shown. docs/planning.md defines every word of the answer.
    """
    from paceline import api
    from paceline.cli.asking import asking
    from paceline.cli.ending import Counted, keeping
    from paceline.cli.showing_plan import show_plan
    from paceline.cli.terminal import note, progress_bar, stages_bar
    from paceline.reporting.planned import plan_file_of
    from paceline.reporting.render import REPORT
    from paceline.sweeping import ResultsFile
    from simulator.base.catalog import scenario_file
    from simulator.base.outputs import Output, check_apart

    if report is not None:
        if out is not None:
            beside = plan_file_of(out), *ResultsFile.beside(out)
            check_apart([("--report", report), ("--out", out), *(("a file beside --out", file) for file in beside)])
        Output(report, REPORT, force=force, argument="report", reads=[scenario_file(scenario)])
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
            batches=batches,
            runs_on=names_of(runs_on, "--runs-on"),
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
    kept = plan_file_of(out) if out is not None else None
    if out is not None:
        note(f"wrote {out} ({answer.simulated} scenarios) and {kept}; draw them with: paceline report {out} --plan {kept}")
    if report is not None:
        with stages_bar() as parts, keeping(lambda: f"the plan is kept: {kept}" if kept else ""):
            api.report(answer, report, force=force, jobs=jobs, progress=parts)
        note(f"wrote {report}; open it in a browser")
    if not answer.feasible:
        raise typer.Exit(_INFEASIBLE)
