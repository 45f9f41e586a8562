"""``paceline models``: the catalogue of workloads, clusters and devices."""

from __future__ import annotations

import json as json_module
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.cli.commands import Panel

if TYPE_CHECKING:
    from rich.table import Table


__all__ = ["app"]

PANEL, ORDER = Panel.LOOK_UP, 110

app = typer.Typer(no_args_is_help=True, help="List and show the workloads and clusters that a scenario can name with `use`, and devices.")


@app.command("list")
def list_(json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False) -> None:
    """List every workload, cluster and device by name.

    Example: [bold]paceline models list[/bold]
    """
    from paceline import api

    rows = [entry.summary() for entry in api.models()]
    if json:
        typer.echo(json_module.dumps(rows))
        return
    from rich.console import Console

    console = Console()
    for kind in _COLUMNS:
        console.print(_table(f"{kind}s", [row for row in rows if row["kind"] == kind]))


Columns = dict[str, Callable[[Mapping[str, Any]], str]]


def _table(kind: str, rows: list[dict[str, Any]]) -> Table:
    """One kind's table; it fits 100 columns, with what is long broken into lines."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    columns = _COLUMNS[kind.removesuffix("s")]
    # a device's figures say more than its description, unless it has none
    remarks = ["" if kind == "devices" and "device" in row else row["description"] for row in rows]
    table = Table(title=kind, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("name", no_wrap=True)
    for heading in columns:
        table.add_column(heading, overflow="fold", justify="right" if heading in _FIGURES else "left", no_wrap=heading in _FIGURES)
    if any(remarks):
        table.add_column("description", overflow="fold")
    for row, remark in zip(rows, remarks, strict=True):
        told = [tell(row) if "device" in row else "" for tell in columns.values()]
        table.add_row(*(Text(text) for text in (row["name"], *told, *([remark] if any(remarks) else []))))
    return table


def _device_of(row: Mapping[str, Any]) -> str:
    many = row.get("devices_per_node", 1)
    return f"{many} x {row['device']}" if row["device"] and many > 1 else row["device"] or "not stated"


def _price_of(row: Mapping[str, Any]) -> str:
    return "no price" if row["price"] is None else f"{row['price']['usd_per_node_hour']:,.2f}"


def _tera(row: Mapping[str, Any], name: str) -> str:
    peak = row["float32_flops_per_s"] if name == "float32" and row["cores"] else row["peak_flops_per_s"][name]
    return "" if peak is None else f"{peak / 1e12:.3g}"


_COLUMNS: dict[str, Columns] = {
    "workload": {"measured on": _device_of},
    "cluster": {"device": _device_of, "USD/node h": _price_of},
    "device": {
        "device": _device_of,
        "generation": lambda row: row["generation"],
        "GB": lambda row: "" if row["memory_bytes"] is None else f"{row['memory_bytes'] / 1e9:.0f}",
        "GB/s": lambda row: f"{row['memory_bandwidth_bytes_per_s'] / 1e9:,.0f}",
        "TF fp32": lambda row: _tera(row, "float32"),
        "tf32": lambda row: _tera(row, "tf32"),
        "fp16": lambda row: _tera(row, "float16"),
    },
}
_FIGURES = ("USD/node h", "GB", "GB/s", "TF fp32", "tf32", "fp16")


@app.command()
def show(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of a workload, cluster or device, or a path to its file.", show_default=False)
    ],
    json: Annotated[bool, typer.Option("--json", help="Print as JSON, with every default filled in.")] = False,
) -> None:
    """Show one workload, cluster or device: its file, or all of it as JSON.

    Example: [bold]paceline models show ethernet-25g[/bold]
    """
    from paceline import api

    entry = api.models()[name]
    spec = entry.spec  # a file that breaks a rule is not shown as if it could be used
    if json:
        typer.echo(spec.model_dump_json())
    else:
        typer.echo(f"# {entry.file}\n{entry.text}", nl=False)
