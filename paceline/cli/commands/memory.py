"""``paceline memory``: what a device holds while it trains, whether it fits, and the largest batch that does.

It calls ``paceline.api.memory`` and prints by :mod:`paceline.cli.showing_results`.
"""

from __future__ import annotations

from typing import Annotated

import typer

from paceline.cli.commands import MISSED, Panel
from paceline.cli.options import Given, calling

PANEL, ORDER = Panel.PREDICT, 25


@calling("memory")
def memory(given: Given, *, json: Annotated[bool, typer.Option("--json", help="Print every part as JSON.")] = False) -> None:
    """Does the model fit into a device? Shows what it holds while it trains, part by part.

    Nothing is simulated. A pipeline has a row for each stage. The exit code is 3 if it does not
    fit. If something is not known, such as the memory of the device, it says so.

    Example: [bold]paceline memory fsdp --set training.recompute=full[/bold]

    Example: [bold]paceline memory ring --set cluster.use=p3.16xlarge[/bold]
    """
    from paceline import api
    from paceline.cli.showing_results import show_memory
    from paceline.cli.terminal import show_json

    found = api.memory(**given)
    if json:
        show_json({**found.model_dump(mode="json"), "rows": found.rows_of([found])})
    else:
        show_memory(found)
    if found.refused is not None:
        raise typer.Exit(MISSED)
