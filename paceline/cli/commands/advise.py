"""``paceline advise``: ways of training on 1 to N machines, and whether more than one is worth it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from paceline.cli.commands import Panel
from paceline.cli.options import BACKEND_HELP, JOBS_HELP, PRICE_HELP, SCHEDULER_HELP, YES_HELP, names_of, prices_of, settings_of

__all__ = ["advise"]

PANEL, ORDER = Panel.PREDICT, 35


def advise(
    scenario: Annotated[
        Path,
        typer.Argument(
            metavar="SCENARIO.toml", help="Scenario file to start from, or the name of an example such as ring.", show_default=False
        ),
    ],
    machines: Annotated[
        str | None,
        typer.Option(
            metavar="RANGE",
            help="Numbers of machines, those of parameter servers among them: of a range such as 1..16 1, 2, 4 and so on and its end, of "
            "a list each; left out: up to as many as the cluster has, else 8.",
            show_default=False,
        ),
    ] = None,
    strategies: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help="Strategies to compare, as for plan; left out: one device, ring all-reduce, parameter servers (sync-ps, backup, "
            "async-ps, ssp), decentralised training, and for a model with layers fsdp, pipeline, tensor and hybrid.",
            show_default=False,
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a key in all configurations. Repeatable.", show_default=False),
    ] = None,
    prices: Annotated[list[str] | None, typer.Option("--price", metavar="[NAME=]PRICE", help=PRICE_HELP, show_default=False)] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.ndjson",
            help="Save every result here. After an interruption the same command goes on there.",
            show_default=False,
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option("--force", "-f", help="Replace --out and the files beside it, whatever they are; results of this advice are kept."),
    ] = False,
    jobs: Annotated[int, typer.Option(help=JOBS_HELP, min=0, metavar="N")] = 0,
    backend: Annotated[Literal["local", "dask", "ray"], typer.Option(help=BACKEND_HELP)] = "local",
    scheduler: Annotated[str | None, typer.Option(help=SCHEDULER_HELP, metavar="ADDRESS", show_default=False)] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help=YES_HELP)] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the advice as JSON.")] = False,
) -> None:
    """Compare ways of training on 1 to N machines, without a goal.

    One table has the throughput of each, with the size of buckets that is best for it. The advice
    is the fastest of what beats one machine for certain, and one machine where nothing does.

    Example: [bold]paceline advise ring --machines 1..8[/bold]

    With a deadline, a budget or a throughput to reach, ask plan.
    """
    from paceline import api
    from paceline.cli.asking import asking
    from paceline.cli.ending import Counted, keeping
    from paceline.cli.showing_plan import show_advice
    from paceline.cli.terminal import note, progress_bar

    with progress_bar("scenarios") as advance, keeping((count := Counted(advance, out)).kept):
        found = api.advise(
            scenario,
            machines=machines,
            strategies=names_of(strategies, "--strategies"),
            settings=settings_of(settings),
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
        typer.echo(found.to_json())
    else:
        show_advice(found)
    if out is not None:
        note(f"wrote {out}; draw it with: paceline report {out}")
