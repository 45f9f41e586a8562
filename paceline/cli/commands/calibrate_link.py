"""``paceline calibrate-link``: real transfers in, a fitted cluster out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from paceline.cli.commands import Panel

__all__ = ["calibrate_link"]

PANEL, ORDER = Panel.MEASURE, 70


def calibrate_link(
    name: Annotated[str | None, typer.Option("--name", help="Name of the cluster; needed unless --serve.", show_default=False)] = None,
    serve: Annotated[
        str | None,
        typer.Option(
            "--serve",
            metavar="HOST:PORT",
            help="Be the other half: wait at this address of this host until Ctrl-C. TensorFlow's server listens on all interfaces, "
            "and who reaches it can run code: use it in a trusted network only.",
        ),
    ] = None,
    peer: Annotated[
        str | None,
        typer.Option(
            "--peer",
            metavar="HOST:PORT",
            help="Measure with the half that serves there. It must be able to connect back to this host.",
        ),
    ] = None,
    sizes: Annotated[
        str, typer.Option("--sizes", help="Message sizes in bytes.")
    ] = "1024,4096,16384,65536,262144,1048576,4194304,16777216,67108864",
    rounds: Annotated[int, typer.Option("--rounds", help="How often each size is measured, in turn.", min=2)] = 7,
    python: Annotated[str | None, typer.Option("--python", help="Python that has TensorFlow; default: this one.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Cluster file; default: models/clusters/NAME.toml.", show_default=False)] = None,
    measurements: Annotated[Path, typer.Option("--measurements", help="Folder for raw measurements; each run adds a file.")] = Path(
        "measurements"
    ),
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds after which measuring is given up.")] = 900.0,
    json: Annotated[bool, typer.Option("--json", help="Print the fitted summary as JSON.")] = False,
) -> None:
    """Measure a link through TensorFlow's own gRPC transport, and fit latency and bandwidth.

    Without --peer: between two processes of this machine, in a network namespace that
    nobody else can reach; with GPUs also copies between host and device, and all-reduce.
    Between two hosts: start one half with --serve, then the other with --peer.

    Example: [bold]paceline calibrate-link --serve 10.0.0.2:2222[/bold] on one host, then
    [bold]paceline calibrate-link --peer 10.0.0.2:2222 --name lab[/bold] on the other.
    """
    from calibrate import fit_link, profile_link, write_cluster
    from calibrate.measurements import new_file
    from paceline.cli.calibrating import (
        check_name,
        command_line,
        measuring,
        numbers_of,
        serve_until_interrupted,
        show_cluster,
        warn_of_measurements,
    )
    from simulator.errors import InputError
    from simulator.files import check_writable

    if serve is not None:
        if peer is not None:
            raise InputError("calibrate-link: --serve and --peer are two halves; give one of them on each host")
        serve_until_interrupted(serve, python)
        return
    if name is None:
        raise InputError("calibrate-link: --name is missing; name the cluster, such as --name lab")
    check_name(name)
    result = out or Path("models/clusters") / f"{name}.toml"
    check_writable(result)
    raw = new_file(measurements, name, "links")
    with measuring(raw, "transfers") as progress:
        profile_link(
            name, peer=peer, sizes=numbers_of(sizes, "--sizes"), rounds=rounds, python=python, timeout_s=timeout, out=raw, progress=progress
        )
    cluster = fit_link(raw, name, command_line())
    warn_of_measurements(cluster.provenance)
    write_cluster(cluster, result)
    show_cluster(cluster, result, raw, as_json=json)
