"""``paceline schema``: JSON Schema of every file format."""

from __future__ import annotations

import json as json_module
from typing import Annotated

import typer

from paceline.cli.commands import Panel
from paceline.cli.options import Given, calling

PANEL, ORDER = Panel.LOOK_UP, 100


@calling("schema", hints={"format": "scenario, workload, cluster, device, input, result or testbed-setting."})
def schema(
    given: Given,
    *,
    json: Annotated[bool, typer.Option("--json", help="The output is JSON in any case.", hidden=True)] = True,  # noqa: ARG001
) -> None:
    """Print the JSON Schema of scenario, workload, cluster, device, input and result.

    A quantity may be given as text with a unit under its short name (latency = "20 us")
    or as a number under its full name (latency_s = 2e-5).

    Example: [bold]paceline schema scenario > scenario.schema.json[/bold]
    """
    from paceline import api

    typer.echo(json_module.dumps(api.schema(**given), indent=2))
