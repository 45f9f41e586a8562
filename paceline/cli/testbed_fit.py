"""``paceline testbed fit`` and ``predict``: from small runs to parameters, from parameters to what larger runs will show."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from calibrate.testbed.platform import Platform
    from calibrate.testbed.prediction import Prediction
    from calibrate.testbed.setting import TestbedSetting

__all__ = ["fit", "predict"]


def fit(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Measurement files of `paceline testbed run`: emulated, constant compute, 1 worker, a ring's 2.",
            show_default=False,
        ),
    ],
    name: Annotated[str, typer.Option("--name", help="Of the machine.")] = "testbed",
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE.json", help="Where the parameters go.")] = Path("testbed.json"),
    seed: Annotated[int, typer.Option("--seed", help="Of the draws that hold what the fit leaves open.", min=0)] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print the parameters as JSON.")] = False,
) -> None:
    """Fit what this machine and TensorFlow cost beyond bytes and compute, from small runs.

    Each parameter gets a 90% interval and a sentence on what determines it; one that the
    runs do not determine keeps a documented prior, and is marked.

    The fewest: [bold]paceline testbed run --workers 1 --compute 'constant 50 ms' --model ladder-4mb[/bold],
    and the same with [bold]--model ladder-1mb/16[/bold]; for rings one with 2 workers.

    Example: [bold]paceline testbed fit measurements/*-testbed-*.ndjson -o machine.json[/bold]
    """
    from calibrate.testbed.fitting import fit_platform
    from calibrate.testbed.platform import Platform
    from calibrate.testbed.readings import read_run
    from paceline.cli.terminal import note, progress_bar
    from simulator.errors import CalibrationError, InputError

    Platform.check_replaceable(out, "--out")
    readings = []
    for path in files:
        try:
            readings.append(read_run(path))
        except CalibrationError as error:  # such as a run that was stopped
            note(f"paceline: left out: {error}")
    if not readings:
        raise InputError("testbed fit: none of the files can be fitted; measure with `paceline testbed run`")
    cores = float(readings[0].files[0].fingerprint.model_dump().get("cores", 1))
    with progress_bar("fitting") as advance:
        try:
            platform = fit_platform(readings, name, cores, seed=seed, progress=lambda done, total, _: advance(done, total))
        except CalibrationError as error:  # nothing has failed: the files are not the ones that are needed
            raise InputError(f"{', '.join(map(str, files[:3]))}: {error}") from None
    platform.write(out)
    if json:
        typer.echo(platform.model_dump_json(indent=2, exclude={"draws"}))
    else:
        _show_parameters(platform)
    note(f"wrote {out}; predict with `paceline testbed predict {out} --workers 8 --servers 2`")


def predict(
    platform: Annotated[Path, typer.Argument(metavar="FILE.json", help="As `paceline testbed fit` has written it.", show_default=False)],
    setting: Annotated[
        Path | None,
        typer.Option("--setting", metavar="FILE.toml", help="Read the setting from a file; options override it.", show_default=False),
    ] = None,
    mode: Annotated[str | None, typer.Option("--mode", help="As in `paceline testbed run`.", show_default="async")] = None,
    workers: Annotated[int | None, typer.Option("--workers", help="Workers.", show_default="4")] = None,
    servers: Annotated[int | None, typer.Option("--servers", help="Parameter servers.", show_default="1")] = None,
    backup_workers: Annotated[
        int | None, typer.Option("--backup-workers", help="sync: gradients not waited for.", show_default="0")
    ] = None,
    link: Annotated[
        str | None, typer.Option("--link", metavar="RATE|loopback", help="Rate of each host's link.", show_default="400 Mbit/s")
    ] = None,
    sharing: Annotated[str | None, typer.Option("--sharing", help="fair or tcp.", show_default="fair")] = None,
    model: Annotated[str | None, typer.Option("--model", help="One of the ladder, or a workload.", show_default="ladder-1mb")] = None,
    compute: Annotated[
        str | None, typer.Option("--compute", metavar="LAW TIME", help="Law and mean of compute.", show_default="exponential 100 ms")
    ] = None,
    by_layer: Annotated[bool | None, typer.Option("--by-layer/--at-once", help="Overlap.", show_default="at once")] = None,
    start_spread: Annotated[
        str | None, typer.Option("--start-spread", metavar="TIME", help="Workers start within it.", show_default="0 s")
    ] = None,
    steps: Annotated[int | None, typer.Option("--steps", help="Steps of each worker.", show_default="50")] = None,
    replications: Annotated[int, typer.Option("--replications", help="Simulated runs.", min=19, max=10_000)] = 59,
    seed: Annotated[int, typer.Option("--seed", help="Of the simulation.", min=0)] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Predict what `paceline testbed run` would measure in a setting, without running it.

    Example: [bold]paceline testbed predict machine.json --workers 16 --servers 2 --compute 'gamma(16) 400 ms'[/bold]
    """
    from calibrate.testbed.model import describe_model
    from calibrate.testbed.platform import Platform
    from calibrate.testbed.prediction import predict_setting
    from paceline.cli.testbed_options import Asked, setting_of
    from simulator.errors import InputError

    asked = Asked(
        mode=mode,
        workers=workers,
        servers=servers,
        backup_workers=backup_workers,
        link=link,
        sharing=sharing,
        model=model,
        compute=compute,
        by_layer=by_layer,
        steps=steps,
        start_spread=start_spread,
    )
    fitted = Platform.read(platform)
    wanted = setting_of(asked, setting, lambda target, samples: describe_model(target, None, samples))
    if wanted.compute.kind == "real":
        raise InputError("--compute real: its time is not known without a run; give a law, or compare in a matrix (`paceline validate`)")
    _show_prediction(wanted, predict_setting(wanted, fitted, replications=replications, seed=seed), fitted, as_json=json)


def _show_parameters(platform: Platform) -> None:
    from rich.console import Console
    from rich.table import Table

    from calibrate.testbed.platform import MEANINGS
    from simulator.text import format_number

    table = Table(box=None, padding=(0, 1), header_style="bold")
    for column in ("parameter", "value", "90% interval", "determined"):
        table.add_column(column, no_wrap=True)
    table.add_column("what it is")
    for name, one in platform.parameters.items():
        interval = f"{format_number(one.low)} to {format_number(one.high)}"
        table.add_row(name, format_number(one.value), interval, "yes" if one.determined else "no: prior", MEANINGS[name])
    console = Console()
    console.print(table)
    console.print("Seconds and bytes. What determines each stands in the file.", markup=False)


def _show_prediction(wanted: TestbedSetting, found: Prediction, platform: Platform, *, as_json: bool) -> None:
    import json as json_

    from paceline.cli.testbed_facts import samples_per_update

    undetermined = sorted(name for name in _of_concern(wanted) if not platform.parameters[name].determined)
    rate = found.updates_per_s
    if as_json:
        data = {
            "setting": wanted.model_dump(mode="json"),
            "updates_per_s": rate.model_dump(),
            "samples_per_s": {key: value * samples_per_update(wanted) for key, value in rate.model_dump().items()},
            "mean_staleness": found.mean_staleness,
            "staleness": {str(value): count for value, count in sorted(found.staleness.items())},
            "undetermined": undetermined,
        }
        typer.echo(json_.dumps(data, indent=2))
        return
    typer.echo(wanted.label)
    typer.echo(f"  updates/s   {rate.mean:.4g}   90% of single runs: {rate.low:.4g} to {rate.high:.4g}")
    if found.mean_staleness is not None:
        typer.echo(f"  staleness   {found.mean_staleness:.3g} in the mean")
    if undetermined:
        typer.echo(f"  rests on priors, which no run of the fit has determined: {', '.join(undetermined)}")


def _of_concern(wanted: TestbedSetting) -> set[str]:
    """Parameters that a prediction of the setting rests on most."""
    names = {"wire_bytes_per_byte" if wanted.link is not None else "loopback_bytes_per_s"}
    if wanted.link is None:
        step = "loopback_async_step_s" if wanted.mode == "async" else "loopback_step_s"
        names |= {step, "loopback_per_byte_s", "loopback_waited_share"} if wanted.servers else {"loopback_ring_per_byte_s"}
    else:
        names |= {"tensor_s", "tensor_per_byte_s"} if wanted.servers else {"turn_s", "turn_per_byte_s"}
    names |= {
        "async": {"dispatch_s", "coordinator_s"},
        "ring": {"ring_step_s"},
        "mirrored": {"mirrored_step_s", "mirrored_per_byte_s"},
    }.get(wanted.mode, {"session_s"})
    if wanted.link is not None and wanted.link.sharing == "tcp":
        names |= {"weight_sigma", "queue_s"}
    return names
