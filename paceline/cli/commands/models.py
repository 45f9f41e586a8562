"""``paceline models``: the catalogue of workloads, clusters and devices."""

from __future__ import annotations

import json as json_module
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.cli.commands import Panel

if TYPE_CHECKING:
    from rich.table import Table

    from simulator.accelerator import Accelerator
    from simulator.catalog import Kind
    from simulator.cluster import Cluster
    from simulator.workload import Workload

__all__ = ["app"]

PANEL, ORDER = Panel.LOOK_UP, 110

app = typer.Typer(no_args_is_help=True, help="List and show the workloads and clusters that a scenario can name with `use`, and devices.")

_KINDS: tuple[Kind, ...] = ("workloads", "clusters", "devices")
_MARKS = {"variables": "workloads", "inter_node": "clusters", "generation": "devices"}
"""A key that the files of one kind, and no others, have."""


def _load(kind: str, path: Path) -> Workload | Cluster | Accelerator:
    from simulator.accelerator import load_accelerator
    from simulator.loading import load_cluster, load_workload

    if kind == "workloads":
        return load_workload(path)
    return load_cluster(path) if kind == "clusters" else load_accelerator(path)


@app.command("list")
def list_(json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False) -> None:
    """List every workload, cluster and device by name.

    Example: [bold]paceline models list[/bold]
    """
    from simulator import catalog
    from simulator.errors import PacelineError

    rows: list[dict[str, Any]] = []
    for kind in _KINDS:
        for name, path in catalog.entries(kind).items():
            row: dict[str, Any] = {"kind": kind[:-1], "name": name, "file": str(path)}
            try:
                spec = _load(kind, path)
            except PacelineError as error:
                row["description"] = f"cannot be used: {error}"
            else:
                row |= {"description": spec.description, **_particulars(spec)}
            rows.append(row)
    if json:
        typer.echo(json_module.dumps(rows))
        return
    from rich.console import Console

    console = Console()
    for kind in _KINDS:
        console.print(_table(kind, [row for row in rows if row["kind"] == kind[:-1]]))


def _particulars(spec: Workload | Cluster | Accelerator) -> dict[str, Any]:
    """What the list tells of a kind besides its description, in SI; as its file has it."""
    from simulator.cluster import Cluster
    from simulator.workload import Workload

    if isinstance(spec, Workload):
        return {"device": spec.calibrated.device if spec.calibrated else ""}
    if isinstance(spec, Cluster):
        price = None if spec.price is None else spec.price.model_dump(mode="json")
        return {"device": spec.device, "devices_per_node": spec.devices_per_node, "price": price}
    kept = {"name", "aliases", "generation", "year", "memory_bytes", "memory_bandwidth_bytes_per_s", "peak_flops_per_s", "cores"}
    told = spec.model_dump(mode="json", include=kept)
    return {"device": told.pop("name"), **told, "float32_flops_per_s": spec.peak("float32")}


Columns = dict[str, Callable[[Mapping[str, Any]], str]]


def _table(kind: str, rows: list[dict[str, Any]]) -> Table:
    """One kind's table; it fits 100 columns, with what is long broken into lines."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    columns = _COLUMNS[kind]
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
    "workloads": {"measured on": _device_of},
    "clusters": {"device": _device_of, "USD/node h": _price_of},
    "devices": {
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
    from simulator import catalog, loading
    from simulator.errors import ScenarioError

    path = catalog.find_any(name, "models show")
    keys = loading.read_toml(path)
    kind = next((kind for mark, kind in _MARKS.items() if mark in keys), None)
    if kind is None:
        expected = "a workload, with variables, or a cluster, with an inter_node, or a device, with a generation"
        raise ScenarioError(f"{path}: must be {expected}, and is none of them")
    spec = _load(kind, path)
    if json:
        typer.echo(spec.model_dump_json())
    else:
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise ScenarioError(f"{path}: cannot be read: {error.strerror}") from None
        typer.echo(f"# {path}\n{text}", nl=False)
