"""``paceline sweep``: a grid of scenarios into a results file.

It calls ``paceline.api.sweep`` and prints by :mod:`paceline.cli.showing_results`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli.commands import Panel
from paceline.cli.options import Given, Require, Yes, calling

if TYPE_CHECKING:
    from paceline.sweeping import Sweep

PANEL, ORDER = Panel.PREDICT, 30

_ALL_SHOWN = 200
_OF_EACH_END = 20


@calling("sweep", keys=("epochs", "samples", "dataset_size", "replications"), left_out={"out": "the scenario's name, ending in .ndjson"})
def sweep(
    given: Given,
    *,
    require: Require = None,
    yes: Yes = False,
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
    With --require the exit code is 3 if any result does not meet it.

    On a cluster: [bold]--backend dask --scheduler tcp://10.0.0.5:8786[/bold], or [bold]--backend ray
    --scheduler auto[/bold]. Its workers need this version of Paceline, and the same versions of Python, numpy and
    what else results depend on: one that differs is refused, since bytes could. A Dask or Ray cluster runs
    whatever it is sent, and this machine runs what it sends back: use one that you trust, on your own
    network, with ports that others cannot reach.
    """
    from paceline import api
    from paceline.cli.asking import asking
    from paceline.cli.ending import Counted, keeping
    from paceline.cli.showing_results import exit_if_unmet
    from paceline.cli.terminal import note, progress_bar
    from paceline.requirements import requirements_of
    from simulator.base.text import counted

    scenario, axes = given["scenario"], given["over"]
    requirements = requirements_of(require or ())
    out = given.get("out") or Path(f"{scenario.stem}.ndjson")
    with progress_bar("scenarios") as advance, keeping((count := Counted(advance, out)).kept):
        swept = api.sweep(**{**given, "out": out}, progress=count, agree=None if yes else asking(scenario, yes=yes))
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
    exit_if_unmet(requirements, ((f"{_combination(axes, place)}: ", outcome) for place, outcome in enumerate(swept)))


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
