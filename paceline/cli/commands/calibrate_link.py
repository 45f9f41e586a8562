"""``paceline calibrate-link``: real transfers in, a fitted cluster out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli.commands import Panel
from paceline.cli.options import Given, calling, command_line
from simulator.base.errors import InputError

if TYPE_CHECKING:
    from paceline.arguments import Carrying
    from simulator.spec.cluster import Cluster

PANEL, ORDER = Panel.MEASURE, 70


@calling("calibrate_link", optional=("name",), left_out={"out": "models/clusters/NAME.toml"})
def calibrate_link(
    given: Given,
    *,
    address: Annotated[
        str | None,
        typer.Option(
            "--serve",
            metavar="HOST:PORT",
            help="Be the other end: wait at this address of this host until Ctrl-C. TensorFlow's server listens on all interfaces, "
            "and whoever reaches it can run code here: use it only in a network that you trust.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print what was fitted as JSON.")] = False,
) -> None:
    """Measure the network between two hosts with TensorFlow or PyTorch, and write a cluster file.

    Example: [bold]paceline calibrate-link --serve 10.0.0.2:2222[/bold] on one host, then
    [bold]paceline calibrate-link --peer 10.0.0.2:2222 --name lab[/bold] on the other, then
    [bold]paceline simulate ring --set cluster.use=lab[/bold]

    It sends messages through TensorFlow's own gRPC transport, and fits latency and bandwidth.
    Without --peer it measures between two processes of this machine, in a network namespace that
    nobody else can reach; on a machine with GPUs also copies between host and device, and all-reduce.
    With --from it reads what nccl-tests, OSU micro-benchmarks, gloo's benchmark or iperf3 printed.
    With --carrier gloo, on both hosts, it all-reduces over PyTorch's gloo instead, as DDP on CPUs does.
    """
    from paceline import api
    from paceline.cli.measuring import measuring

    if address is not None:
        if "peer" in given:
            raise InputError("calibrate-link: --serve and --peer are two halves; give one of them on each host")
        _serve(address, given.get("python"), given["carrier"])
        return
    if "name" not in given:
        raise InputError("calibrate-link: --name is missing; name the cluster, such as --name lab")
    result = given.get("out") or Path("models/clusters") / f"{given['name']}.toml"
    with measuring() as progress:
        cluster = api.calibrate_link(**{**given, "out": result}, command=command_line(), progress=progress)
    raw = given.get("from_table") or given["measurements"] / cluster.provenance["measurements"]
    _show(cluster, result, raw, as_json=json)


def _serve(address: str, python: str | None, carrier: Carrying) -> None:
    """Be the serving half of a link measurement; Ctrl-C is the way to end it."""
    from paceline import api
    from paceline.cli.ending import Interrupted, Terminated
    from paceline.cli.terminal import note

    what = "TensorFlow's server listens on ALL interfaces of this host, and whoever reaches the port can run code here"
    if carrier == "gloo":
        what = "PyTorch's store and gloo ask nobody who connects: serve in a network that you trust"
    note(f"serving at {address}; {what}. Ctrl-C ends it.")
    try:
        api.serve_link(
            address,
            python=python,
            carrier=carrier,
            ready=lambda: note(
                f"ready: on the other host run `paceline calibrate-link --carrier gloo --peer {address} --name NAME`"
                if carrier == "gloo"
                else f"ready: on the other host run `paceline calibrate-link --peer {address} --name NAME`, "
                "and `paceline calibrate-server` with the same for what messages cost the hosts"
            ),
        )
    except Terminated:
        raise
    except Interrupted as interrupted:
        interrupted.heed()
        note("stopped serving")


def _show(cluster: Cluster, path: Path, raw: Path, *, as_json: bool) -> None:
    """The fitted summary on stdout: for a reader, or as JSON."""
    from paceline.cli.measuring import note_of_file, print_fitted
    from paceline.cli.terminal import say
    from simulator.base.text import format_rate, format_seconds

    if as_json:
        print_fitted(cluster, path, raw)
        return
    intervals = cluster.fit.intervals_90 if cluster.fit else {}
    say(f"{cluster.name}: {cluster.description}")
    for label, key, value, written in (
        ("latency", "latency_s", cluster.inter_node.latency_s, format_seconds),
        ("bandwidth", "bandwidth_bytes_per_s", cluster.inter_node.bandwidth_bytes_per_s, format_rate),
    ):
        low, high = intervals.get(f"inter_node.{key}", (value, value))
        say(f"  {label:<10} {written(value):>12}   90%: {written(low)} to {written(high)}")
    note_of_file(path, "cluster", beside=f"raw measurements in {raw}")
