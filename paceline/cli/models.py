"""``paceline models``: the catalogue of workloads and clusters."""

from __future__ import annotations

import json as json_module
from typing import Annotated

import typer

__all__ = ["models"]

models = typer.Typer(no_args_is_help=True, help="List and show the workloads and clusters that a scenario can name with `use`.")

_LOADERS = {"workloads": "load_workload", "clusters": "load_cluster"}


@models.command("list")
def list_(json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False) -> None:
    """List every workload and cluster by name.

    Example: [bold]paceline models list[/bold]
    """
    from simulator import catalog, loading
    from simulator.errors import PacelineError

    rows = []
    for kind, loader in _LOADERS.items():
        for name, path in catalog.entries(kind).items():  # type: ignore[arg-type]
            try:
                text = getattr(loading, loader)(path).description
            except PacelineError as error:
                text = f"cannot be used: {error}"
            rows.append({"kind": kind[:-1], "name": name, "file": str(path), "description": text})
    if json:
        typer.echo(json_module.dumps(rows))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table("kind", "name", "description", box=box.SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        table.add_row(row["kind"], row["name"], row["description"])
    Console().print(table)


@models.command()
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of a workload or cluster, or a path to its file.", show_default=False)],
    json: Annotated[bool, typer.Option("--json", help="Print as JSON, with every default filled in.")] = False,
) -> None:
    """Show one workload or cluster: its file, or all of it as JSON.

    Example: [bold]paceline models show ethernet-25g[/bold]
    """
    from simulator import catalog, loading
    from simulator.errors import ScenarioError

    path = catalog.find_any(name, "models show")
    keys = loading.read_toml(path)
    if "variables" not in keys and "inter_node" not in keys:
        raise ScenarioError(f"{path}: must be a workload, with variables, or a cluster, with an inter_node, and is neither")
    spec = getattr(loading, _LOADERS["workloads" if "variables" in keys else "clusters"])(path)
    if json:
        typer.echo(spec.model_dump_json())
    else:
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise ScenarioError(f"{path}: cannot be read: {error.strerror}") from None
        typer.echo(f"# {path}\n{text}", nl=False)
