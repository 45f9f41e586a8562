"""``paceline memory``: what a device holds while it trains, whether it fits, and the largest batch that does."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from paceline.cli.commands import Panel
from paceline.cli.options import settings_of

__all__ = ["memory"]

PANEL, ORDER = Panel.PREDICT, 25

_DOES_NOT_FIT = 3


def memory(
    scenario: Annotated[
        Path, typer.Argument(metavar="SCENARIO.toml", help="Scenario, or the name of one in models/scenarios.", show_default=False)
    ],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Set a key, such as training.recompute=full. Repeatable.", metavar="KEY=VALUE"),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Show what a device holds while it trains, part by part, and what is free; nothing is simulated.

    Of a pipeline each stage has its row. The exit code is 3 where it does not fit. What
    could not be checked is said.

    Example: [bold]paceline memory ring --set cluster.use=p3.16xlarge[/bold]
    """
    from paceline import api
    from paceline.cli.showing_results import show_memory
    from paceline.cli.terminal import show_json

    found = api.memory(scenario, settings_of(settings))
    if json:
        show_json({**found.model_dump(mode="json"), "rows": found.rows_of([found])})
    else:
        show_memory(found)
    if found.refused is not None:
        raise typer.Exit(_DOES_NOT_FIT)
