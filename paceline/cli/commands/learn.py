"""``paceline learn``: how long until a model is good enough, with each way of training.

It calls ``paceline.api.learn``; sentences and the table are those of :class:`paceline.learning.Learned`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli.commands import MISSED, Panel
from paceline.cli.options import Given, calling

if TYPE_CHECKING:
    from paceline.learning import Learned

PANEL, ORDER = Panel.PREDICT, 45


@calling("learn")
def learn(given: Given, *, json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False) -> None:
    """Predict how long a model learns until it is good enough, and what that costs.

    Asynchronous training makes more updates a second and learns less from each; this says which wins. It simulates who reads which
    version of the model and when each gradient is applied, and replays that with real gradients, in processes with TensorFlow.

    Example: [bold]paceline learn async-ps --strategies sync-ps,async-ps,ssp,backup --batch 8 --target accuracy=0.95[/bold]

    Your own model and data: [bold]--problem my_model.py:build[/bold], where build() returns (model, (x, y), (x, y)).

    What was replayed is kept in --measurements: the same command goes on where it was stopped, and another target needs no new replay.
    Exits with 3 where no way always reaches the target.
    """
    from paceline import api
    from paceline.cli.measuring import measuring
    from paceline.cli.terminal import note

    with measuring() as progress:
        found = api.learn(**given, progress=progress)
    if json:
        typer.echo(found.to_json())
    else:
        _show(found)
    for name in ("out", "curves", "tensorboard"):
        if (file := given.get(name)) is not None:
            note(f"wrote {file}")
    if found.first is None:
        raise typer.Exit(MISSED)


_SHOWN = ("way", "staleness", "rate", "reached", "time_s", "cost_usd", "samples", "last")
"""Columns that a terminal has room for; --json and --curves have all."""


def _show(found: Learned) -> None:
    """The answer, the table, and what to know."""
    from rich.text import Text

    from paceline.cli.terminal import note, printer

    console = printer(highlight=False)
    for sentence in found.sentences:
        console.print(Text(sentence))
    console.print(found.table().only(*_SHOWN).without_empty_columns().to_rich())
    for warning in found.warnings:
        note(f"warning: {warning}")
