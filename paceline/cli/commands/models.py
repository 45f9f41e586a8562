"""``paceline models``: the catalogue of workloads, clusters, devices, input pipelines, faults and scenarios."""

from __future__ import annotations

import json as json_module
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_args

import typer

from paceline.cli.commands import Panel

if TYPE_CHECKING:
    from simulator.base.table import Cell, Table


PANEL, ORDER = Panel.LOOK_UP, 110
_Kind: TypeAlias = Literal["workloads", "clusters", "devices", "inputs", "faults", "scenarios"]
_LONG = re.compile(r"^(?P<key>draws|values) = \[(?P<inside>.*?)\]$(?=\n(?:\n|\Z|[a-z\[#]))", re.MULTILINE | re.DOTALL)
"""The lists of a file that are too long to read: draws of parameters, a line each, and ratios of an empirical law."""
_MOST = 12
"""Entries that such a list is shown with."""

app = typer.Typer(
    no_args_is_help=True,
    help="List and show what a scenario can name: workloads, clusters, input pipelines, devices, faults; list example scenarios.",
)


@app.command("list")
def list_(
    kind: Annotated[
        _Kind | None,
        typer.Argument(metavar="KIND", help=f"Of one kind only: {', '.join(get_args(_Kind))}.", show_choices=False, show_default=False),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """List every workload, cluster, device, input pipeline, file of faults and example scenario by name, your own first.

    Your own are the files in ./models, where calibrations write them.

    Example: [bold]paceline models list workloads[/bold]
    """
    from paceline import api

    chosen = [entry for entry in api.models() if kind in (None, f"{entry.kind}s")]
    rows = [{**entry.summary(), "own": entry.is_own} for entry in sorted(chosen, key=lambda entry: not entry.is_own)]
    if json:
        typer.echo(json_module.dumps(rows))
        return
    from paceline.cli.terminal import printer

    console = printer()
    for each in get_args(_Kind):
        if its := [row for row in rows if f"{row['kind']}s" == each]:
            console.print(_table(each.removesuffix("s"), its).to_rich())
            console.print()


def _table(kind: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """One kind's table; what its figures do not tell stands in a description."""
    from simulator.base.table import Column, Table

    columns = {
        "workload": (Column("measured_on", "text", "measured on"),),
        "cluster": (Column("device", "text"), Column("usd_per_node_hour", "hourly", "a node hour", left=False)),
        "device": (
            Column("device", "text"),
            Column("generation", "text"),
            Column("memory_gb", "count", "GB"),
            Column("memory_bandwidth_gb_per_s", "count", "GB/s"),
            Column("float32_tflops_per_s", "number", "TF fp32"),
            Column("tf32_tflops_per_s", "number", "tf32"),
            Column("float16_tflops_per_s", "number", "fp16"),
        ),
        "input": (
            Column("measured_on", "text", "measured on"),
            Column("parallel_calls", "count", "calls"),
            Column("prefetch", "count"),
            Column("shuffle_buffer", "count", "shuffle buffer"),
            Column("cached", "text"),
        ),
        "fault": (Column("mean", "text", "mean time between"), Column("rates_90", "text", "as often, 90%")),
        "scenario": (Column("workload", "text"), Column("cluster", "text"), Column("strategy", "text")),
    }[kind]
    usable = {"workload": _workload, "cluster": _cluster, "device": _device, "input": _input, "fault": _fault, "scenario": _scenario}[kind]
    nothing = ("",) * len(columns)
    # figures of a device and of faults say more than their descriptions, unless there are none
    cells = tuple(
        (
            f"{row['name']} *" if row["own"] else row["name"],
            *(usable(row) if row.keys() & {"device", "strategy", "rates_90"} else nothing),
            "" if kind in ("device", "fault") and row.keys() & {"device", "rates_90"} else row["description"],
        )
        for row in rows
    )
    every = Column("name"), *columns, Column("description", "text")
    return Table(f"{kind}s{' (* your own)' if any(row['own'] for row in rows) else ''}", every, cells).without_empty_columns()


def _workload(row: Mapping[str, Any]) -> tuple[Cell, ...]:
    return (f"computed for {row['device']}" if row["computed"] else row["device"] or "not stated",)


def _cluster(row: Mapping[str, Any]) -> tuple[Cell, ...]:
    many = f"{row['devices_per_node']} x " if row["device"] and row["devices_per_node"] > 1 else ""
    return f"{many}{row['device'] or 'not stated'}", "no price" if row["price"] is None else row["price"]["usd_per_node_hour"]


def _input(row: Mapping[str, Any]) -> tuple[Cell, ...]:
    return row["device"] or "not stated", row["parallel_calls"], row["prefetch"], row["shuffle_buffer"], "yes" if row["cached"] else "no"


def _fault(row: Mapping[str, Any]) -> tuple[Cell, ...]:
    from simulator.base.text import format_seconds

    means = (("of a node", row["node_mtbf_s"]), ("of a job", row["job_mtbf_s"]), ("life", row["life_s"]))
    told = ", ".join(f"{format_seconds(mean_s)} {what}" for what, mean_s in means if mean_s is not None)
    return told, "" if row["rates_90"] is None else "{:.2g} to {:.2g} times".format(*row["rates_90"])


def _scenario(row: Mapping[str, Any]) -> tuple[Cell, ...]:
    return row["workload"], row["cluster"], row["strategy"]


def _device(row: Mapping[str, Any]) -> tuple[Cell, ...]:
    peaks = row["peak_flops_per_s"]
    float32 = row["float32_flops_per_s"] if row["cores"] else peaks["float32"]
    scaled = (
        (row["memory_bytes"], 1e9),
        (row["memory_bandwidth_bytes_per_s"], 1e9),
        (float32, 1e12),
        (peaks["tf32"], 1e12),
        (peaks["float16"], 1e12),
    )
    return row["device"], row["generation"], *("" if value is None else value / unit for value, unit in scaled)


@app.command()
def show(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="Name of an entry, or a path to its file.", show_default=False),
    ],
    json: Annotated[bool, typer.Option("--json", help="Print as JSON, with every default filled in.")] = False,
) -> None:
    """Show one workload, cluster, device, input pipeline or file of faults: its file, or all of it as JSON.

    Example: [bold]paceline models show ethernet-25g[/bold]
    """
    from paceline import api
    from simulator.spec.plausible import warn_of_implausible

    entry = api.models()[name]
    spec = entry.spec  # a file that breaks a rule is not shown as if it could be used
    if entry.kind != "device":  # which is warned of where it is read
        warn_of_implausible(spec, "" if entry.kind == "scenario" else entry.kind)
    if json:
        typer.echo(spec.model_dump_json(context={"filled": True}))
    else:
        typer.echo(f"# {entry.file}\n{_LONG.sub(_left_out, entry.text)}", nl=False)


def _left_out(found: re.Match[str]) -> str:
    """A list of a file, as it stands where it is short."""
    inside = found["inside"]
    many = inside.count("[") or inside.count(",") + 1
    return found[0] if many <= _MOST else f"# {found['key']}: {many:,} left out here; the file and --json have them"
