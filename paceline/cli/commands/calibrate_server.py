"""``paceline calibrate-server``: real pulls and pushes in, a cluster out that knows what messages cost its hosts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli.commands import Panel
from paceline.cli.options import Given, calling, command_line

if TYPE_CHECKING:
    from simulator.spec.cluster import Cluster

PANEL, ORDER = Panel.MEASURE, 75

_EXAMPLE = (161, 102e6)
"""Tensors and bytes of the model that the summary counts with: ResNet-50."""


@calling("calibrate_server", left_out={"out": "models/clusters/NAME.toml"})
def calibrate_server(given: Given, *, json: Annotated[bool, typer.Option("--json", help="Print what was fitted as JSON.")] = False) -> None:
    """Measure what each tensor and byte costs a parameter server's host, and write that into a cluster file.

    Example: [bold]paceline calibrate-server --name lab --cluster ethernet-10g[/bold], then
    [bold]paceline simulate async-ps --set cluster.use=lab[/bold]

    A worker pulls variables from a server and pushes gradients to it, through TensorFlow's own gRPC, for some
    half a minute. Without --peer both are processes of this machine, in a network namespace that
    nobody else can reach. The link is that of --cluster, or what calibrate-link wrote under this name.
    """
    from paceline import api
    from paceline.cli.measuring import measuring

    result = given.get("out") or Path("models/clusters") / f"{given['name']}.toml"
    with measuring() as progress:
        its = api.calibrate_server(**{**given, "out": result}, command=command_line(), progress=progress)
    _show(its, result, given["measurements"] / its.provenance["measurements"], as_json=json)


def _show(cluster: Cluster, path: Path, raw: Path, *, as_json: bool) -> None:
    """The fitted summary on stdout: for a reader, or as JSON."""
    from paceline.cli.measuring import note_of_file, note_of_measurements, print_fitted
    from paceline.cli.terminal import printer, say
    from paceline.server_load import ServerLoad
    from simulator.base.table import Column, Table
    from simulator.base.text import format_share
    from simulator.spec.constants import constants

    assert cluster.fit_hosts is not None
    fit, transport = cluster.fit_hosts, cluster.transport
    tensor, byte = "transport.cpu_per_message_s", "transport.copy_per_byte_s"
    known = {tensor: constants()["grpc_tensor_s"], byte: constants()["grpc_byte_s"]}
    load = ServerLoad(*_EXAMPLE, transport.cpu_per_message_s, transport.copy_per_byte_s or known[byte].value)
    note_of_measurements(cluster.provenance)
    if as_json:
        print_fitted(cluster, path, raw, parameter_server=load.to_dict())
        return
    say(f"{cluster.name}: {cluster.description}")
    columns = (
        Column("work", "text", "each host works"), Column("fitted", "text"), Column("interval", "text", "90%"),
        Column("pull", "text"), Column("push", "text"), Column("practice", "text", "in practice"),
    )  # fmt: skip
    rows = tuple(
        (label, written(value), written(*fit.intervals_90.get(key, (None,))), written(pull), written(push),
         f"{written(known[key].value)} ({written(known[key].low, known[key].high)})")
        for label, key, written, value, pull, push in (
            ("on a tensor", tensor, _micro, transport.cpu_per_message_s, fit.pull.per_tensor_s, fit.push.per_tensor_s),
            ("on a byte", byte, _nano, transport.copy_per_byte_s or None, fit.pull.per_byte_s, fit.push.per_byte_s),
        )
    )  # fmt: skip
    printer().print(Table("", columns, rows).to_rich())
    if not transport.copy_per_byte_s:
        say(f"  –: {cluster.provenance['bytes']}")
    distances = sorted(abs(point.fitted_s / point.median_s - 1.0) for point in fit.points)
    half = distances[len(distances) // 2] if distances else 0.0
    say(
        f"  distance of pulls and pushes from the fit: {format_share(half)} for half of them, {format_share(fit.relative_residual)} at most"
    )
    say(f"  {load.as_rate}")
    if "link" in cluster.provenance:
        say(f"  link: {cluster.provenance['link']}")
    note_of_file(path, "cluster", beside=f"raw measurements in {raw}", scenario="async-ps")


def _micro(*values_s: float | None) -> str:
    """A time in microseconds, or both ends of an interval."""
    return _in_units(values_s, 1e6, "µs")


def _nano(*values_s: float | None) -> str:
    """The same in nanoseconds."""
    return _in_units(values_s, 1e9, "ns")


def _in_units(values: tuple[float | None, ...], factor: float, unit: str) -> str:
    from simulator.base.text import format_number

    known = [format_number(value * factor) for value in values if value is not None]
    return f"{' to '.join(known)} {unit}" if known else "–"
