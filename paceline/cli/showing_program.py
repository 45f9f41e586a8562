"""``paceline simulate --program``: what would be simulated, for people to check or as data."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from json import dumps
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from simulator.program.printing import Listing, Printed
    from simulator.scenario import Scenario

__all__ = ["print_program"]


def print_program(scenario: Scenario, *, json: bool) -> None:
    """Print the program of a scenario: summed up, or with ``json`` every row of every table, one a line."""
    from simulator.preview import preview
    from simulator.program.printing import rows_of

    printed = preview(scenario)
    if json:
        sys.stdout.writelines(f"{dumps(row, allow_nan=False)}\n" for row in rows_of(printed))
    else:
        _show(scenario, printed)


def _show(scenario: Scenario, printed: Printed) -> None:
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    from simulator.program.printing import sentences_of, tables_of

    console = Console(highlight=False)
    for line in _heading(scenario, printed):
        console.print(Text(line))
    for listing in tables_of(printed):
        console.print()
        console.print(_table(listing))
    console.print()
    console.print(Text("Rules", style="bold"))
    for sentence in sentences_of(printed.program):
        console.print(Padding(Text(sentence), (0, 0, 0, 2)))


def _heading(scenario: Scenario, printed: Printed) -> Iterator[str]:
    """What the program is repeated over, and what it leaves to draws."""
    from simulator.defaults import start_of
    from simulator.text import format_seconds

    run, load, layout = scenario.run, scenario.workload, scenario.layout
    workers = "" if layout.workers == layout.replicas else f", {layout.workers:,} workers"
    replicas = f"{layout.replicas:,} replicas{workers}, {layout.nodes:,} nodes"
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


def _table(listing: Listing) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        title=listing.title,
        title_justify="left",
        title_style="bold",
    )
    for heading in listing.columns:
        table.add_column(heading, justify="right" if heading in ("count", "number") else "left", overflow="fold")
    for row in listing.rows:
        table.add_row(*map(Text, row))
    return table
