"""``paceline testbed``: a real TensorFlow cluster on this machine, measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli.commands import Panel
from paceline.cli.testbed_fit import fit, predict

if TYPE_CHECKING:
    from calibrate.testbed.setting import TestbedSetting

__all__ = ["app"]

PANEL, ORDER = Panel.MEASURE, 90

app = typer.Typer(no_args_is_help=True, help="Start a real TensorFlow cluster on this machine, measure it, and predict larger ones.")

_CLUSTER = "What runs"
_LINKS = "Links"
_STEP = "A worker's step"
_RUN = "Measuring"


@app.command()
def run(
    setting: Annotated[
        Path | None,
        typer.Option(
            "--setting",
            rich_help_panel=_CLUSTER,
            metavar="FILE.toml",
            help="Read the setting from a file; options override it.",
            show_default=False,
        ),
    ] = None,
    mode: Annotated[
        str | None,
        typer.Option(
            "--mode", rich_help_panel=_CLUSTER, help="async, between-graph, sync, ring, mirrored or apart: as above.", show_default="async"
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", rich_help_panel=_CLUSTER, help="Workers; mirrored: replicas.", show_default="4")
    ] = None,
    servers: Annotated[
        int | None,
        typer.Option("--servers", rich_help_panel=_CLUSTER, help="Parameter servers; ring and mirrored have none.", show_default="1"),
    ] = None,
    backup_workers: Annotated[
        int | None,
        typer.Option(
            "--backup-workers", rich_help_panel=_CLUSTER, help="sync: so many gradients of a step are not waited for.", show_default="0"
        ),
    ] = None,
    link: Annotated[
        str | None,
        typer.Option(
            "--link",
            rich_help_panel=_LINKS,
            metavar="RATE|loopback",
            help="Rate of each host's link, each way; needs root.",
            show_default="400 Mbit/s",
        ),
    ] = None,
    sharing: Annotated[
        str | None,
        typer.Option(
            "--sharing",
            rich_help_panel=_LINKS,
            help="How flows share a link: fair (a queue a peer) or tcp (as TCP decides).",
            show_default="fair",
        ),
    ] = None,
    buffer: Annotated[
        str | None,
        typer.Option("--buffer", rich_help_panel=_LINKS, metavar="TIME", help="What may queue at an interface.", show_default="20 ms"),
    ] = None,
    congestion: Annotated[
        str | None, typer.Option("--congestion", rich_help_panel=_LINKS, help="TCP's congestion control.", show_default="cubic")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            rich_help_panel=_STEP,
            help="ladder-1mb, -4mb, -16mb or -64mb, with /16 in 16 variables; or FILE.py:FUNCTION, as for `paceline calibrate`; or a "
            "workload of `paceline models list`.",
            show_default="ladder-1mb",
        ),
    ] = None,
    compute: Annotated[
        str | None,
        typer.Option(
            "--compute",
            rich_help_panel=_STEP,
            metavar="LAW TIME|real",
            help="A sleep drawn from a law: 'constant 50 ms', 'exponential 100 ms', 'gamma(16) 100 ms' or 'lognormal(0.3) 100 ms', where "
            "the time is the mean. Or real: the model's own passes. A workload's own law, and real of FILE.py:FUNCTION, are the default.",
            show_default="exponential 100 ms",
        ),
    ] = None,
    batch: Annotated[
        int | None, typer.Option("--batch", rich_help_panel=_STEP, help="Samples of a worker's step.", show_default="32")
    ] = None,
    by_layer: Annotated[
        bool | None,
        typer.Option(
            "--by-layer/--at-once", rich_help_panel=_STEP, help="Overlap: layers pull, compute and push one by one.", show_default="at once"
        ),
    ] = None,
    start_spread: Annotated[
        str | None,
        typer.Option(
            "--start-spread",
            rich_help_panel=_STEP,
            metavar="TIME",
            help="Asynchronous workers start within it; 0 s: together.",
            show_default="0 s",
        ),
    ] = None,
    steps: Annotated[
        int | None, typer.Option("--steps", rich_help_panel=_RUN, help="Steps of each worker, in the mean.", show_default="50")
    ] = None,
    warm_up: Annotated[
        int | None, typer.Option("--warm-up", rich_help_panel=_RUN, help="Steps of each worker before, not measured.", show_default="3")
    ] = None,
    threads: Annotated[
        int | None, typer.Option("--threads", rich_help_panel=_CLUSTER, help="TensorFlow's threads in a process.", show_default="1")
    ] = None,
    repeats: Annotated[
        int, typer.Option("--repeats", rich_help_panel=_RUN, help="How often; each starts a new cluster.", min=1, max=1000)
    ] = 3,
    seed: Annotated[int, typer.Option("--seed", rich_help_panel=_RUN, help="Of sleeps and staggered starts.", min=0)] = 0,
    timeout: Annotated[float, typer.Option("--timeout", rich_help_panel=_RUN, help="Seconds after which a repeat is given up.")] = 600.0,
    python: Annotated[
        str | None,
        typer.Option("--python", rich_help_panel=_RUN, help="Python that has TensorFlow; default: this one.", show_default=False),
    ] = None,
    measurements: Annotated[
        Path, typer.Option("--measurements", rich_help_panel=_RUN, help="Folder for raw measurements; each run adds a file.")
    ] = Path("measurements"),
    json: Annotated[bool, typer.Option("--json", rich_help_panel=_RUN, help="Print as JSON.")] = False,
) -> None:
    """Start a real TensorFlow cluster on this machine and measure it.

    Without options: 4 asynchronous workers and a server on links of 400 Mbit/s, in about
    a minute. Prints updates/s and samples/s of each repeat and the 90% interval of the
    next, staleness, where a step's time goes, bytes and CPU time of each job.

    Workers and servers are processes in network namespaces that nobody else can reach.
    Nothing of it is left behind, however it ends.

    [bold]async[/bold]: ParameterServerStrategy with a ClusterCoordinator: one process hands out steps,
    updates are applied as they come.

    [bold]between-graph[/bold]: the same without a coordinator, in sessions of tf.compat.v1: every
    worker drives itself.

    [bold]sync[/bold]: SyncReplicasOptimizer: servers average the gradients of all workers, or with
    --backup-workers of the first ones, before they update.

    [bold]ring[/bold]: MultiWorkerMirroredStrategy: all-reduce over a ring, no servers.

    [bold]mirrored[/bold]: MirroredStrategy: replicas on logical devices of one process, no network.

    [bold]apart[/bold]: processes that compute at the same time and exchange nothing: what busy cores cost.

    Example: [bold]paceline testbed run --mode async --workers 4 --servers 2
    --model ladder-4mb --compute 'constant 50 ms'[/bold]

    Example: [bold]paceline testbed run --mode ring --link loopback --repeats 5 --json[/bold]
    """
    from calibrate.measurements import new_file
    from calibrate.testbed.model import describe_model
    from calibrate.testbed.running import measure_setting
    from paceline.cli.showing_testbed import as_data, show_json, show_testbed
    from paceline.cli.testbed_facts import facts_of
    from paceline.cli.testbed_options import Asked, setting_of
    from simulator.errors import InputError
    from simulator.files import check_writable

    if not 0 < timeout < float("inf"):
        raise InputError(f"--timeout {timeout:g}: must be above 0 seconds, and finite")
    asked = Asked(
        mode=mode,
        workers=workers,
        servers=servers,
        backup_workers=backup_workers,
        link=link,
        sharing=sharing,
        buffer=buffer,
        congestion=congestion,
        model=model,
        compute=compute,
        batch=batch,
        by_layer=by_layer,
        steps=steps,
        warm_up=warm_up,
        start_spread=start_spread,
        threads=threads,
    )
    wanted = setting_of(asked, setting, lambda target, samples: describe_model(target, python, samples))
    defaulted = link is None and setting is None and (sharing, buffer, congestion) == (None, None, None)
    wanted = _with_links_to_be_had(wanted, "--link" if setting is None or link is not None else f"{setting}: link", defaulted=defaulted)
    raw = check_writable(new_file(measurements, f"{wanted.mode}-{wanted.workers}w{wanted.servers}s-{wanted.hash}", "testbed"))
    with _measuring(raw, repeats) as progress:
        readings = measure_setting(
            wanted, measurements, repeats=repeats, seed=seed, timeout_s=timeout, python=python, progress=progress, out=raw
        )
    facts = facts_of(readings)
    if json:
        show_json(as_data(facts))
    else:
        show_testbed([facts])


@app.command()
def show(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Measurement files that `paceline testbed run` has written.", show_default=False),
    ],
    json: Annotated[bool, typer.Option("--json", help="Print as JSON: a list, one entry a file.")] = False,
) -> None:
    """Read measurement files of the testbed again.

    Whole repeats of a run that failed, or was stopped, are shown too.

    Example: [bold]paceline testbed show measurements/*-testbed-*.ndjson[/bold]
    """
    from calibrate.testbed.readings import read_run
    from paceline.cli.showing_testbed import as_data, show_json, show_testbed
    from paceline.cli.testbed_facts import facts_of
    from simulator.errors import CalibrationError, InputError

    try:
        facts = [facts_of(read_run(path)) for path in files]
    except CalibrationError as error:  # no run has failed: the file is not one to be read
        raise InputError(str(error)) from None
    if json:
        show_json([as_data(one) for one in facts])
    else:
        show_testbed(facts)


def _with_links_to_be_had(wanted: TestbedSetting, where: str, *, defaulted: bool) -> TestbedSetting:
    """The setting as this machine can run it: on loopback where links cannot be shaped and nobody has asked for them."""
    from calibrate.testbed.running import check_congestion, obstacle_to_shaped_links
    from paceline.cli.showing import note
    from simulator.errors import InputError

    if wanted.link is None:
        return wanted
    obstacle = obstacle_to_shaped_links(wanted.link.sharing)
    if obstacle is None:
        check_congestion(wanted.link.congestion, where.replace("--link", "--congestion"))
        return wanted
    if not defaulted:
        raise InputError(f"{where}: links cannot be shaped: {obstacle}; or use loopback")
    note(f"paceline: links cannot be shaped: {obstacle}. Running on loopback instead.")
    return wanted.model_copy(update={"link": None})


@contextmanager
def _measuring(raw: Path, repeats: int) -> Iterator[Callable[[int, int, str], None]]:
    """A progress bar around the repeats; where they are stopped or fail, says how many are kept."""
    from calibrate.measurements import read_measurements
    from calibrate.records import Repeat
    from paceline.cli.ending import StoppedError
    from paceline.cli.showing import note, progress_bar
    from simulator.errors import CalibrationError

    try:
        with progress_bar("repeats") as advance:
            advance(0, repeats)
            yield lambda done, total, _what: advance(done, total)
    except (KeyboardInterrupt, CalibrationError) as error:
        try:
            whole = len(read_measurements(raw).of(Repeat)) if raw.exists() else 0
        except CalibrationError:  # cut off in its first line
            whole = 0
        kept = f"{whole} of {repeats} repeats had come to their end; read them with `paceline testbed show {raw}`" if whole else ""
        if isinstance(error, KeyboardInterrupt):
            if not whole:
                raw.unlink(missing_ok=True)
            raise StoppedError(kept or "no repeat had come to its end, so nothing is kept") from None
        if kept:
            note(f"paceline: {kept}")
        raise


app.command()(fit)
app.command()(predict)
