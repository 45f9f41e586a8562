"""``paceline schema``: JSON Schema of every file format."""

from __future__ import annotations

import json as json_module
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.cli.commands import Panel

if TYPE_CHECKING:
    from pydantic import BaseModel

__all__ = ["schema"]

PANEL, ORDER = Panel.LOOK_UP, 100


class Format(StrEnum):
    """The file formats."""

    scenario = "scenario"
    workload = "workload"
    cluster = "cluster"
    device = "device"
    result = "result"
    testbed_setting = "testbed-setting"


def schema(
    format_: Annotated[
        Format | None,
        typer.Argument(metavar="FORMAT", help="scenario, workload, cluster, device, result or testbed-setting; all of them if left out."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The output is JSON in any case.", hidden=True)] = True,  # noqa: ARG001
) -> None:
    """Print the JSON Schema of scenario, workload, cluster, device, result and setting of the testbed.

    A quantity may be given as text with a unit under its short name (latency = "20 us")
    or as a number under its full name (latency_s = 2e-5).

    Example: [bold]paceline schema scenario > scenario.schema.json[/bold]
    """
    chosen = [format_] if format_ else list(Format)
    schemas = {entry.value: _schema_of(entry) for entry in chosen}
    typer.echo(json_module.dumps(schemas[format_.value] if format_ else schemas, indent=2))


def _schema_of(entry: Format) -> dict[str, Any]:
    from calibrate.testbed.setting import TestbedSetting
    from simulator.accelerator import Accelerator
    from simulator.cluster import Cluster
    from simulator.results import Result
    from simulator.scenario import Scenario
    from simulator.workload import Workload

    formats: dict[Format, type[BaseModel]] = {
        Format.scenario: Scenario,
        Format.workload: Workload,
        Format.cluster: Cluster,
        Format.device: Accelerator,
        Format.result: Result,
        Format.testbed_setting: TestbedSetting,
    }
    found = formats[entry].model_json_schema()
    if entry is Format.scenario:
        # in a file, `use` names a catalogue entry, and the section's own keys overlay it
        for section in ("workload", "cluster"):
            named = {"type": "object", "required": ["use"], "properties": {"use": {"type": "string"}}}
            found["properties"][section] = {"anyOf": [named, found["properties"][section]]}
    return found
