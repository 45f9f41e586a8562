"""``paceline models`` and ``paceline schema``: the catalogue, and the JSON Schema of every file format."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from json import dumps
from operator import itemgetter
from textwrap import shorten
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_args

import typer

from paceline.arguments import Typed
from paceline.cli.options import Given, calling

if TYPE_CHECKING:
    from simulator.base.table import Cell, Table

_Kind: TypeAlias = Literal["workloads", "clusters", "devices", "inputs", "faults", "scenarios"]
_LONG = re.compile(r"^(?P<key>draws|values) = \[(?P<inside>.*?)\]$(?=\n(?:\n|\Z|[a-z\[#]))", re.MULTILINE | re.DOTALL)
"""Long lists of a file: draws of parameters and ratios of an empirical distribution."""
_LINE = 54
"""Letters of a scenario's description, which says its strategy, that fit next to its name."""
_MOST = 12
"""Most entries of such a list that are shown."""

ABOUT_MODELS = "List and show what a scenario can name."


@calling()
def list_(*, kind: Annotated[_Kind | None, Typed(place=True, metavar="KIND")] = None, json: bool = False) -> None:
    """List the names of all kinds, or describe those of one kind.

    Example: `paceline models list`

    Example: `paceline models list clusters`

    Your own come first: the files in ./models, where calibrations write them.

    Parameters
    ----------
    kind
        workloads, clusters, devices, inputs, faults or scenarios.
    json
        Print as JSON, with descriptions.
    """
    from paceline import api
    from paceline.cli.terminal import Styled, display

    chosen = [entry for entry in api.models() if kind in (None, f"{entry.kind}s")]
    rows = [{**entry.summary(), "own": entry.is_own} for entry in sorted(chosen, key=lambda entry: not entry.is_own)]
    if json:
        typer.echo(dumps(rows))
        return
    if kind is not None:
        display(_table(kind.removesuffix("s"), rows))
        return
    for each in get_args(_Kind):
        names = [_name(row) for row in rows if f"{row['kind']}s" == each]
        display(f"{len(names)} {each}", Styled(", ".join(names), indent=2))
    own = "* your own. " if any(row["own"] for row in rows) else ""
    display("", f"{own}Tables: paceline models list KIND. Files: paceline models show NAME.")


@calling()
def show(*, name: Annotated[str, Typed(place=True, metavar="NAME")], json: bool = False) -> None:
    """Print one file, or all of it as JSON.

    Example: `paceline models show ethernet-25g`

    Parameters
    ----------
    name
        A name of `paceline models list`, or the path of a file.
    json
        Print as JSON, with every default filled in.
    """
    from paceline import api
    from simulator.base.validation_errors import warn_of_implausible

    entry = api.models()[name]
    spec = entry.spec  # a file that breaks a rule is not shown as if it could be used
    if entry.kind != "device":  # which is warned of where it is read
        warn_of_implausible(spec, "" if entry.kind == "scenario" else entry.kind)
    if json:
        typer.echo(spec.model_dump_json(context={"filled": True}))
    else:
        typer.echo(f"# {entry.file}\n{_LONG.sub(_left_out, entry.text)}", nl=False)


def _left_out(long: re.Match[str]) -> str:
    """Return a list of a file, shortened if it is long."""
    inside = long["inside"]
    many = inside.count("[") or inside.count(",") + 1
    return long[0] if many <= _MOST else f"# {long['key']}: {many:,} values, shown in full by --json"


Row: TypeAlias = Mapping[str, Any]


def _name(row: Row) -> str:
    broken = " (cannot be used)" if row["description"].startswith("cannot be used") else ""
    return f"{row['name']}{' *' if row['own'] else ''}{broken}"


def _table(kind: str, rows: Sequence[Row]) -> Table:
    """Return the table of one kind."""
    from simulator.base.table import Column, Table
    from simulator.base.text import format_seconds

    def per(unit: float, value: Callable[[Row], float | None]) -> Callable[[Row], Cell]:
        return lambda row: "" if (figure := value(row)) is None else figure / unit

    def peak(precision: str) -> Callable[[Row], Cell]:
        return per(1e12, lambda row: row["peak_flops_per_s"][precision])

    def measured_on(row: Row) -> Cell:
        return f"computed for {row['device']}" if row.get("computed") else row["device"] or "not stated"

    def devices(row: Row) -> Cell:
        many = f"{row['devices_per_node']} x " if row["device"] and row["devices_per_node"] > 1 else ""
        return f"{many}{row['device'] or 'not stated'}"

    def means(row: Row) -> Cell:
        kinds = (("of a node", row["node_mtbf_s"]), ("of a job", row["job_mtbf_s"]), ("life", row["life_s"]))
        return ", ".join(f"{format_seconds(mean_s)} {name}" for name, mean_s in kinds if mean_s is not None)

    of_kind: Mapping[str, tuple[Column, ...]] = {
        "workload": (Column("measured_on", "text", "measured on", by=measured_on),),
        "cluster": (
            Column("device", "text", by=devices),
            Column("usd_per_node_hour", "hourly", "a node hour", left=False,
                   by=lambda row: "no price" if row["price"] is None else row["price"]["usd_per_node_hour"]),
        ),
        "device": (
            Column("device", "text"),
            Column("generation", "text"),
            Column("memory_gb", "count", "GB", by=per(1e9, itemgetter("memory_bytes"))),
            Column("memory_bandwidth_gb_per_s", "count", "GB/s", by=per(1e9, itemgetter("memory_bandwidth_bytes_per_s"))),
            Column("float32_tflops_per_s", "number", "TF fp32",
                   by=per(1e12, lambda row: row["float32_flops_per_s"] if row["cores"] else row["peak_flops_per_s"]["float32"])),
            Column("tf32_tflops_per_s", "number", "tf32", by=peak("tf32")),
            Column("float16_tflops_per_s", "number", "fp16", by=peak("float16")),
        ),
        "input": (
            Column("measured_on", "text", "measured on", by=measured_on),
            Column("parallel_calls", "count", "calls"),
            Column("prefetch", "count"),
            Column("shuffle_buffer", "count", "shuffle buffer"),
            Column("cached", "text", by=lambda row: "yes" if row["cached"] else "no"),
        ),
        "fault": (
            Column("mean", "text", "mean time between", by=means),
            Column("rates_90", "text", "as often, 90%",
                   by=lambda row: "" if row["rates_90"] is None else "{:.2g} to {:.2g} times".format(*row["rates_90"])),
        ),
    }  # fmt: skip
    columns = of_kind.get(kind, ())
    # figures of a device and of faults say more than their descriptions, unless there are none
    cells = tuple(
        (
            f"{row['name']} *" if row["own"] else row["name"],
            *(column.read(row) if row.keys() & {"device", "rates_90"} else "" for column in columns),
            ""
            if kind in ("device", "fault") and row.keys() & {"device", "rates_90"}
            else shorten(row["description"], _LINE, placeholder=" …")
            if "strategy" in row
            else row["description"],
        )
        for row in rows
    )
    every = Column("name"), *columns, Column("description", "text")
    return Table(f"{kind}s{' (* your own)' if any(row['own'] for row in rows) else ''}", every, cells).without_empty_columns()


@calling("schema", hints={"format": "scenario, workload, cluster, device, input, faults, result or testbed-setting."})
def schema(given: Given, *, json: bool = True) -> None:  # noqa: ARG001 - the output is JSON in any case
    """Print the JSON Schema of a file format.

    Example: `paceline schema scenario > scenario.schema.json`

    A quantity may be text with a unit under its short name (latency = "20 us"), or a number under its full name (latency_s = 2e-5).
    """
    from paceline import api

    typer.echo(dumps(api.schema(**given), indent=2))
