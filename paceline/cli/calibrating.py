"""What the two calibrating commands share: names, progress, warnings, summaries."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from paceline.cli.ending import Terminated, keeping
from paceline.cli.terminal import note, progress_bar
from simulator.cluster import Cluster
from simulator.errors import InputError
from simulator.text import format_rate, format_seconds
from simulator.workload import Workload

__all__ = [
    "batches_of",
    "check_name",
    "command_line",
    "measure_step",
    "measuring",
    "numbers_of",
    "serve_until_interrupted",
    "show_cluster",
    "show_workload",
    "warn_of_measurements",
]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")


def check_name(name: str) -> None:
    """Raise InputError unless a file can be called so."""
    if not _NAME.fullmatch(name):
        raise InputError(
            f"--name {name[:60]!r}: must be letters, digits, '.', '_', '+' or '-', beginning with a letter or digit, such as my-model"
        )


def numbers_of(text: str, option: str) -> list[int]:
    """Whole numbers separated by commas."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"{option} {text!r}: must be whole numbers separated by commas, such as 16,32,64") from None


def batches_of(text: str) -> list[int]:
    """Batch sizes that a curve can be fitted to."""
    from calibrate.profiling import check_batches

    batches = numbers_of(text, "--batch")
    check_batches(batches)
    return sorted(batches)


def command_line() -> str:
    """This command, as it can be typed again."""
    return shlex.join(["paceline", *sys.argv[1:]])


@contextmanager
def measuring(raw: Path, title: str) -> Iterator[Callable[[int, int, str], None]]:
    """A progress bar around a probe; where it is stopped, says where the measurements are."""
    from calibrate.probing import kept_in

    with progress_bar(title) as advance, keeping(lambda: kept_in(raw)):
        yield lambda done, total, _what: advance(done, total)


def measure_step(
    target: str, name: str, folder: Path, *, runs: int, at_once: int, launches: int, accept_disturbed: bool, **options: Any
) -> list[Path]:
    """Time steps in separate runs, and then in several processes at once where that is asked for and possible; the files."""
    from calibrate import fit_workload, profile_at_once, profile_runs
    from calibrate.measurements import new_file, read_measurements
    from calibrate.profiling import obstacle_to_at_once

    raw = new_file(folder, name, "step")
    with measuring(raw, "steps") as progress:
        files = profile_runs(target, name, runs=runs, out=raw, progress=progress, **options)
    if at_once > 1:
        obstacle = obstacle_to_at_once(at_once, read_measurements(files[0]).fingerprint.device_kind)
        if obstacle:
            note(f"paceline: --at-once {at_once} is left out: {obstacle}; what processes of one machine share stays open")
            return files
        fit_workload(files, name, accept_disturbed=accept_disturbed)  # what cannot be trusted is refused before more is measured
        with measuring(raw, "launches at once") as progress:
            files += profile_at_once(target, name, processes=at_once, launches=launches, out=raw, progress=progress, **options)
    return files


def warn_of_measurements(provenance: Mapping[str, str]) -> None:
    """Say loudly that a GPU of this machine was not used, or that disturbed measurements were fitted; and quietly what was left out."""
    hints = {
        "warning": "Install the CUDA libraries: `pip install 'paceline[tensorflow-cuda]'`; or check the driver with nvidia-smi.",
        "disturbed": "Stop what else runs here, and calibrate again.",
    }
    for key, hint in hints.items():
        if key in provenance:
            from rich.console import Console
            from rich.panel import Panel

            Console(stderr=True).print(Panel(f"WARNING: {provenance[key]}.\n{hint}", style="bold red", expand=False), markup=False)
    for key in ("left_out", "at_once"):
        if key in provenance:
            note(f"paceline: {provenance[key]}")


def serve_until_interrupted(address: str, python: str | None) -> None:
    """Be the serving half of a link measurement; Ctrl-C is the way to end it."""
    from calibrate.profiling import serve_link

    note(
        f"serving at {address}; TensorFlow's server listens on ALL interfaces of this host, "
        "and whoever reaches the port can run code here. Ctrl-C ends it."
    )
    try:
        serve_link(
            address, python, ready=lambda: note(f"ready: on the other host run `paceline calibrate-link --peer {address} --name NAME`")
        )
    except Terminated:
        raise
    except KeyboardInterrupt:
        note("stopped serving")


def show_workload(workload: Workload, path: Path, raw: Path, as_json: bool) -> None:
    """The fitted summary on stdout: for people, or as JSON."""
    if as_json:
        data = {**workload.model_dump(mode="json", exclude={"uncertainty"}), "file": str(path), "measurements": str(raw)}
        typer.echo(json.dumps(data, indent=2))
        return
    intervals = workload.fit.intervals_90 if workload.fit else {}

    def line(label: str, key: str, value: float) -> str:
        if intervals and key not in intervals:
            return f"  {label:<22} {format_seconds(value):>9}   not determined by what was measured"
        low, high = intervals.get(key, (value, value))
        return f"  {label:<22} {format_seconds(value):>9}   90%: {format_seconds(low)} to {format_seconds(high)}"

    typer.echo(f"{workload.name}: {len(workload.variables)} variables, {workload.parameter_bytes / 2**20:.3g} MiB, {workload.description}")
    typer.echo(line("forward, a step", "forward.base_s", workload.forward.base_s))
    typer.echo(line("forward, a sample", "forward.per_sample_s", workload.forward.per_sample_s))
    typer.echo(line("backward, a step", "backward.base_s", workload.backward.base_s))
    typer.echo(line("backward, a sample", "backward.per_sample_s", workload.backward.per_sample_s))
    typer.echo(line("apply", "apply_s", workload.apply_s))
    residual = workload.fit.relative_residual if workload.fit else 0.0
    alone = "the parts of one profile" if "profiles" in workload.provenance else "the rounds of one run (--runs 3 would show more)"
    between = "runs" if workload.provenance.get("runs", "1") != "1" else alone
    spread = f"spread between {between} {workload.run_to_run_cv:.1%}"
    typer.echo(f"  step-time law: {workload.jitter.kind}; {spread}; largest distance from the curve {residual:.1%}")
    if "load" in workload.provenance:
        typer.echo(f"  load: {workload.provenance['load']}")
    note(f"wrote {path}; {'fitted to' if 'profiles' in workload.provenance else 'raw measurements in'} {raw}")


def show_cluster(cluster: Cluster, path: Path, raw: Path, as_json: bool) -> None:
    """The fitted summary on stdout: for people, or as JSON."""
    if as_json:
        data = {**cluster.model_dump(mode="json", exclude={"uncertainty"}, exclude_none=True), "file": str(path), "measurements": str(raw)}
        typer.echo(json.dumps(data, indent=2))
        return
    intervals = cluster.fit.intervals_90 if cluster.fit else {}
    link = cluster.inter_node
    low, high = intervals.get("inter_node.latency_s", (link.latency_s, link.latency_s))
    typer.echo(f"{cluster.name}: {cluster.description}")
    typer.echo(f"  latency    {format_seconds(link.latency_s):>12}   90%: {format_seconds(low)} to {format_seconds(high)}")
    low, high = intervals.get("inter_node.bandwidth_bytes_per_s", (link.bandwidth_bytes_per_s, link.bandwidth_bytes_per_s))
    typer.echo(f"  bandwidth  {format_rate(link.bandwidth_bytes_per_s):>12}   90%: {format_rate(low)} to {format_rate(high)}")
    note(f"wrote {path}; raw measurements in {raw}")
