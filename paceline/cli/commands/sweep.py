"""``paceline sweep``: a grid of scenarios into a results file."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from paceline.cli.commands import Panel
from paceline.cli.options import (
    BACKEND_HELP,
    DATASET_SIZE_HELP,
    EPOCHS_HELP,
    JOBS_HELP,
    PRICE_HELP,
    SAMPLES_HELP,
    SCHEDULER_HELP,
    YES_HELP,
    number_typed,
    over_of,
    prices_of,
    settings_of,
)

if TYPE_CHECKING:
    from paceline.sweeping import Sweep

__all__ = ["sweep"]

PANEL, ORDER = Panel.PREDICT, 30

_ALL_SHOWN = 200
_OF_EACH_END = 20


def sweep(
    scenario: Annotated[
        Path,
        typer.Argument(
            metavar="SCENARIO.toml",
            help="Scenario file, or the name of an example such as ring, whose keys are varied.",
            show_default=False,
        ),
    ],
    over: Annotated[
        list[str],
        typer.Option(
            "--over",
            metavar="KEY=V1,V2,...",
            help="A key and its values, such as strategy.workers=1,4,16 or a range such as strategy.workers=1..8. Repeat for a grid.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE.ndjson",
            help="Results file: one line of JSON per scenario, in the order of the grid.",
            show_default="the scenario's name, ending in .ndjson",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a key in all scenarios, such as run.steps=50. Repeatable.", metavar="KEY=VALUE"),
    ] = None,
    epochs: Annotated[float | None, typer.Option(parser=number_typed, metavar="N", help=EPOCHS_HELP, show_default=False)] = None,
    samples: Annotated[float | None, typer.Option(parser=number_typed, metavar="N", help=SAMPLES_HELP, show_default=False)] = None,
    dataset_size: Annotated[
        float | None, typer.Option(parser=number_typed, metavar="N", help=DATASET_SIZE_HELP, show_default=False)
    ] = None,
    prices: Annotated[list[str] | None, typer.Option("--price", help=PRICE_HELP, metavar="[NAME=]PRICE")] = None,
    replications: Annotated[
        int | None, typer.Option(metavar="R", help="Replications of each scenario. Short for --set run.replications=R.")
    ] = None,
    jobs: Annotated[int, typer.Option(help=JOBS_HELP, min=0, metavar="N")] = 0,
    backend: Annotated[Literal["local", "dask", "ray"], typer.Option(help=BACKEND_HELP)] = "local",
    scheduler: Annotated[str | None, typer.Option(help=SCHEDULER_HELP, metavar="ADDRESS", show_default=False)] = None,
    force: Annotated[
        bool,
        typer.Option("--force", "-f", help="Replace --out and the files beside it, whatever they are; results of this sweep are kept."),
    ] = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Simulate again the scenarios that failed in an earlier run.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help=YES_HELP)] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the lines of the results file in place of a table.")] = False,
) -> None:
    """Simulate every combination of some values, such as 1, 4 and 16 workers.

    Example: [bold]paceline sweep async-ps --over strategy.workers=1,4,16,64
    --over strategy.mode=sync,async --out results.ndjson[/bold], then
    [bold]paceline report results.ndjson --open[/bold]

    Each result is saved as soon as it is there. You may stop the sweep at any moment, even with
    kill -9: the same command goes on where it was, and ends with the same file, byte for byte.
    If the scenario has changed meanwhile, it says so.

    If a scenario fails, the others go on, the failure is saved in its place, and the exit code is 1.
    The same command keeps the failure; --retry-failed simulates it again.

    On a cluster: [bold]--backend dask --scheduler tcp://10.0.0.5:8786[/bold], or [bold]--backend ray
    --scheduler auto[/bold]. Its workers need this version of Paceline, and the same versions of Python, numpy and
    what else results depend on: one that differs is refused, since bytes could. A Dask or Ray cluster runs
    whatever it is sent, and this machine runs what it sends back: use one that you trust, on your own
    network, with ports that others cannot reach.
    """
    from paceline import api
    from paceline.cli.asking import asking
    from paceline.cli.ending import Counted, keeping
    from paceline.cli.terminal import note, progress_bar
    from simulator.base.text import counted

    out = out or Path(f"{scenario.stem}.ndjson")
    axes = over_of(over)
    with progress_bar("scenarios") as advance, keeping((count := Counted(advance, out)).kept):
        swept = api.sweep(
            scenario,
            axes,
            settings=settings_of(settings, replications=replications, epochs=epochs, samples=samples, dataset_size=dataset_size),
            prices=prices_of(prices),
            out=out,
            jobs=jobs,
            backend=backend,
            scheduler=scheduler,
            force=force,
            retry_failed=retry_failed,
            progress=count,
            agree=None if yes else asking(scenario, yes=yes),
        )
    if json:
        with out.open(encoding="utf-8") as lines:
            for line in lines:
                typer.echo(line, nl=False)
    else:
        _show(swept)
    good = len(swept) - len(swept.failed)
    if good:
        note(f"wrote {out} ({counted(good, 'result')}); draw it with: paceline report {out}")
    swept.check(lambda place: _combination(axes, place))


def _combination(axes: Mapping[str, Sequence[object]], place: int) -> str:
    """The keys and values of the scenario at a place of the grid."""
    values = next(itertools.islice(itertools.product(*axes.values()), place, None))
    return ", ".join(f"{key}={value}" for key, value in zip(axes, values, strict=True))


def _show(swept: Sweep) -> None:
    """A table of all results, or of the first and the last where there are many."""
    from paceline.cli.showing_results import show_table
    from paceline.cli.terminal import note
    from simulator.results.results import Result

    shown = swept if len(swept) <= _ALL_SHOWN else [*swept[:_OF_EACH_END], *swept[-_OF_EACH_END:]]
    if results := [outcome for outcome in shown if isinstance(outcome, Result)]:
        show_table(results)
    if len(shown) < len(swept):
        note(f"shown are the first and the last {_OF_EACH_END} of {len(swept):,} scenarios; all are in {swept.path}")
