"""``paceline calibrate --from-profile``: profiles that exist already in, a fitted workload out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from paceline.cli.calibrating import command_line, numbers_of
from paceline.cli.terminal import note
from simulator.errors import InputError
from simulator.text import format_bytes, format_seconds
from simulator.workload import Workload

if TYPE_CHECKING:
    from calibrate.xplane.profiles import Profiled, ProfileReport

__all__ = ["calibrate_profiles", "places_of"]

_SHOWN = 5


def places_of(logdirs: Sequence[str], batch: str | None) -> list[tuple[Path, int]]:
    """Pairs of a log directory and its batch size: from ``LOGDIR@BATCH``, or in turn from ``--batch``.

    Raises
    ------
    InputError
        A profile has no batch size, or a batch size no profile.
    """
    pairs = [logdir.rpartition("@") for logdir in logdirs]
    with_batch = [at == "@" and size.isdigit() and not Path(logdir).exists() for logdir, (_, at, size) in zip(logdirs, pairs, strict=True)]
    if all(with_batch):
        if batch is not None:
            raise InputError(f"--batch {batch}: each --from-profile names its batch size already; leave it out")
        return [(Path(place), int(size)) for place, _, size in pairs]
    if any(with_batch):
        raise InputError("--from-profile: give every profile its batch size as LOGDIR@BATCH, or none and --batch")
    if batch is None:
        raise InputError(f"--batch is missing: a profile does not tell how many samples a step takes; give --batch 32, or {logdirs[0]}@32")
    sizes = numbers_of(batch, "--batch")
    if len(sizes) != len(logdirs):
        raise InputError(
            f"--batch {batch}: has {len(sizes)} sizes for {len(logdirs)} profiles; give one for each --from-profile, in its order"
        )
    return [(Path(logdir), size) for logdir, size in zip(logdirs, sizes, strict=True)]


def calibrate_profiles(
    places: Sequence[tuple[Path, int]],
    name: str,
    *,
    run: str | None,
    model: str | None,
    checkpoint: Path | None,
    variables: Path | None,
    precision: str,
    python: str | None,
    timeout_s: float,
    as_json: bool,
) -> Workload:
    """Read profiles, tell what they show, and fit a workload to them.

    Raises
    ------
    InputError
        A profile cannot be used, or nothing tells the sizes of the variables.
    """
    from calibrate import fit_profiles
    from calibrate.xplane.profiles import read_steps
    from calibrate.xplane.variables import variables_of

    profiled = read_steps(places, run, python, timeout_s)
    found = variables_of(model, checkpoint, variables, python, timeout_s)
    if as_json and found is None:
        typer.echo(json.dumps({"profiles": [one.to_dict() for one in profiled.reports]}, indent=2))
    elif not as_json:
        _show(profiled)
    if found is None:
        raise InputError(
            "--from-profile: no workload is written, since a profile does not tell the sizes of the variables; "
            "add MODEL.py:FUNCTION, --checkpoint PATH or --variables FILE.json"
        )
    workload = fit_profiles(profiled, found, name, command_line(), precision=precision)
    for key in ("undetermined", "batch", "split", "gradients", "jitter", "communication", "steps_per_execution", "sparse"):
        if key in workload.provenance:
            note(f"paceline: {key}: {workload.provenance[key]}")
    return workload


def _show(profiled: Profiled) -> None:
    for one in profiled.profiles:
        note(f"read {one.profile.path}: {len(one.steps)} steps, marked by {one.marks.name!r}")
    for report in profiled.reports:
        typer.echo(
            f"batch {report.batch}: {report.steps} steps of {format_seconds(report.mean_s)} "
            f"(p5 {format_seconds(report.p5_s)}, median {format_seconds(report.median_s)}, p95 {format_seconds(report.p95_s)})"
        )
        for label, text in _lines(report):
            typer.echo(f"  {label:<14} {text}")


def _lines(report: ProfileReport) -> list[tuple[str, str]]:
    """What there is to tell of a batch size, by heading."""
    if report.backward_s is None or report.apply_s is None:
        lines = [("forward+backward", f"{format_seconds(report.forward_s)}: no operation is named as a gradient's")]
    else:
        parts = ("forward", report.forward_s), ("backward", report.backward_s), ("apply", report.apply_s)
        lines = [("of a step", ", ".join(f"{name} {format_seconds(value)}" for name, value in parts))]
    if report.input_s or report.prepare_s:
        lines.append(("input", f"waited for {format_seconds(report.input_s)}, prepared beside it in {format_seconds(report.prepare_s)}"))
    if report.collective_s:
        lines.append(("exposed", f"collectives while nothing was computed {format_seconds(report.collective_s)}"))
    for total in report.communication[:_SHOWN]:
        size = f", {format_bytes(total.size_bytes)}" if total.size_bytes else ""
        lines.append(("communication", f"{total.name}: {total.calls:.3g} a step, {format_seconds(total.seconds)}{size}"))
    if report.longest:
        lines.append(("longest", ", ".join(f"{total.name} {format_seconds(total.seconds)}" for total in report.longest[:_SHOWN])))
    if report.gradients:
        first, last = report.gradients[0][0], report.gradients[-1][0]
        lines.append(("gradients", f"{len(report.gradients)} operations, from {first} to {last}"))
    return lines
