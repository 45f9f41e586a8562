"""``paceline simulate``: one scenario in, one result out.

It calls ``paceline.api.observe``, with ``--program`` shows what would be simulated, and prints by :mod:`paceline.cli.showing_results`.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from json import dumps
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli.commands import Panel
from paceline.cli.options import Given, Require, Yes, calling

if TYPE_CHECKING:
    from rich.table import Table as Grid

    from paceline.observing import Observation
    from simulator.program.printing import Listing, Printed
    from simulator.scenario import Scenario

PANEL, ORDER = Panel.PREDICT, 20


@calling(
    "observe",
    keys=("epochs", "samples", "dataset_size", "replications"),
    hints={"audit": "Exit 1 if it breaks one."},
)
def simulate(
    given: Given,
    *,
    program: Annotated[
        bool,
        typer.Option(
            "--program",
            help="Simulate nothing. Print what would be simulated: links, ranks, operations of a step, and rules; with --json all of it, "
            "one row per line.",
        ),
    ] = False,
    assumptions: Annotated[
        bool,
        typer.Option("--assumptions", help="Also show every value that the scenario leaves out, what was taken in its place, and why."),
    ] = False,
    details: Annotated[
        bool,
        typer.Option(
            "--details",
            help="Also show what the width of the interval is made of, and each command that would narrow it, with what is left.",
        ),
    ] = False,
    require: Require = None,
    yes: Yes = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Predict one training: throughput with its interval, and what limits it.

    Also prints scaling efficiency, staleness of gradients, and where the time of a step goes.
    With --epochs or --samples it predicts a whole job: time, cost, and where they go.

    Example: [bold]paceline simulate async-ps --set strategy.workers=64[/bold]

    A whole job: [bold]paceline simulate ring --epochs 90 --dataset-size 1.28e6[/bold]
    """
    from paceline import api
    from paceline.cli.asking import asking
    from paceline.cli.showing_results import exit_if_unmet, show_result
    from paceline.cli.terminal import note, progress_bar
    from paceline.requirements import requirements_of
    from simulator.results.next_measurement import width_of

    if program:
        given.useless("--program, which simulates nothing", ("trace", "tensorboard", "audit", "force", "assumptions", "details", "require"))
        _print_program(api.load(**given.of(api.load)), json=json)
        return
    if json:
        given.useless("--json, which prints everything", ["assumptions"])
    if not {"trace", "tensorboard"} & {*given}:
        given.needs("--trace or --tensorboard", ["force"])
    requirements = requirements_of(require or ())
    with progress_bar("replications") as advance:
        seen = api.observe(**given, progress=advance, agree=asking(given["scenario"], yes=yes))
    if seen.trace is not None:
        note(f"wrote {seen.trace}; open it at ui.perfetto.dev or chrome://tracing")
    if seen.bound:
        note(seen.bound)
    if seen.tensorboard is not None:
        note(f"wrote {seen.tensorboard}; open it with: tensorboard --logdir {shlex.quote(str(seen.tensorboard))}")
    if json:
        # the result's own format stays as it is, whatever stands beside it
        text = seen.result.to_json()
        beside = [f'"audit":{{"laws":{dumps(list(seen.laws))}}}'] if given["audit"] else []
        beside += [f'"width":{dumps(width_of(seen.result).as_data())}'] if details else []
        typer.echo(f'{{"result":{text},{",".join(beside)}}}' if beside else text)
    else:
        show_result(seen.result, assumptions=assumptions, details=details)
        if given["audit"]:
            _show_laws(seen)
    exit_if_unmet(requirements, [("", seen.result)])


def _show_laws(seen: Observation) -> None:
    """The laws that hold, one per line, each with what it says."""
    from rich.table import Table

    from paceline.cli.terminal import printer

    console = printer()
    tick = "\u2713" if console.encoding.lower().startswith("utf") else "ok"
    lines = Table.grid(padding=(0, 1, 0, 0))
    for name, says in seen.laws.items():
        lines.add_row(f"[green]{tick}[/green]", f"[bold]{name}[/bold]\n{says}")
    console.print(f"audit of the first replication: {', '.join(f'{count:,} {kind}' for kind, count in seen.records.items())}")
    console.print(lines)


def _print_program(scenario: Scenario, *, json: bool) -> None:
    """Print the program of a scenario: summed up, or with ``json`` every row of every table, one per line."""
    from paceline import api
    from simulator.program.printing import rows_of
    from simulator.spec.plausible import warn_of_implausible

    warn_of_implausible(scenario)
    printed = api.preview(scenario)
    if json:
        sys.stdout.writelines(f"{dumps(row, allow_nan=False)}\n" for row in rows_of(printed))
    else:
        _show_program(scenario, printed)


def _show_program(scenario: Scenario, printed: Printed) -> None:
    from rich.padding import Padding
    from rich.text import Text

    from paceline.cli.terminal import printer
    from simulator.program.printing import sentences_of, tables_of

    console = printer(highlight=False)
    for line in _heading(scenario, printed):
        console.print(Text(line))
    for listing in tables_of(printed):
        console.print()
        console.print(_grid(listing))
    console.print()
    console.print(Text("Rules", style="bold"))
    for sentence in sentences_of(printed.program):
        console.print(Padding(Text(sentence), (0, 0, 0, 2)))


def _heading(scenario: Scenario, printed: Printed) -> Iterator[str]:
    """What the program is repeated over, and what it leaves to draws."""
    from simulator.base.text import counted, format_seconds
    from simulator.resolve.resolve import start_of

    run, load, layout = scenario.run, scenario.workload, scenario.layout
    workers = "" if layout.workers == layout.replicas else f", {counted(layout.workers, 'worker')}"
    replicas = f"{counted(layout.replicas, 'replica')}{workers}, {counted(layout.nodes, 'node')}"
    yield f"{load.name} on {scenario.cluster.name}: {replicas}, {scenario.batch:,} samples a step each"
    parts = ("forward", printed.forward_s), ("backward", printed.backward_s), ("apply", printed.apply_s)
    means = ", ".join(f"{name} {format_seconds(seconds)}" for name, seconds in parts if seconds)
    yield f"mean compute of a rank on a device of speed 1: {means or 'none'}; jitter {load.jitter.kind}"
    length = f"{run.steps:,} steps of each worker" if run.job_steps is None else f"{run.job_steps:,} steps of the job"
    yield f"{length}, {run.warmup:,} of each not measured; {_BEGIN[start_of(scenario)]}; {run.replications:,} replications"


_BEGIN = {
    "together": "they begin together",
    "staggered": "they begin spread over a time",
    "random-phase": "they begin at random within the time of a step",
}


def _grid(listing: Listing) -> Grid:
    """A table of the program for the terminal."""
    from simulator.base.table import Column, Table

    columns = tuple(Column(heading, "text", left=heading not in ("count", "number")) for heading in listing.columns)
    return Table(listing.title, columns, tuple(map(tuple, listing.rows))).to_rich()
