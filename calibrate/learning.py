"""Replays the learning of runs in child processes of the user's Python, and keeps what was learned.

Each process adds a measurement file to a folder. A run is known by a key of all that decides it, so that one that was replayed before
is read in place of being replayed again, whatever it was called for then. The probe is ``calibrate/probes/replay.py``; its request and
records are made and read here.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from calibrate.fit.noise_scale import fit_noise_scale
from calibrate.measurements import Learned, Measurements, MeasurementsError, Problem, Replayed, new_file, read_measurements
from calibrate.probing import Progress, keeping, run_probes
from calibrate.profiling import profile_noise_scale
from simulator.base.catalog import builder
from simulator.base.errors import InputError
from simulator.base.files import bytes_of
from simulator.base.process import scratch
from simulator.base.text import did_you_mean
from simulator.engine.schedule import Schedule
from simulator.spec.training import NoiseScale

PROBLEMS: Mapping[str, tuple[str, str]] = {
    "digits-mlp": ("digits", "mlp"),
    "digits-cnn": ("digits", "cnn"),
    "linear-regression": ("linear_regression", "build"),
}
"""Models with data that come along: file in ``models/problems``, and function."""
_PROBE = "replay"
_VERSION = 2
"""Of the rules of a replay: a change of ``calibrate/probes/replay.py`` or ``learner.py`` that changes what is learned needs another."""


class Phase(NamedTuple):
    """A part of a run with one schedule.

    Attributes
    ----------
    schedule
        Who reads and applies what.
    updates
        How many of its first updates are replayed.
    batch
        Samples of each gradient.
    rate
        What the optimizer's learning rate is multiplied by.
    by_staleness
        Whether it is divided by an update's staleness besides.
    checkpoints
        How often the model is validated, evenly.
    """

    schedule: Schedule
    updates: int
    batch: int
    rate: float = 1.0
    by_staleness: bool = False
    checkpoints: int = 50


@dataclass(frozen=True)
class ReplayedRun:
    """A run to replay, with its own seed for initial values and order of data, phase by phase."""

    seed: int
    phases: tuple[Phase, ...]


@dataclass(frozen=True)
class Curve:
    """Learning curve of one run.

    Attributes
    ----------
    points
        How good the model was, from before the first update on.
    diverged
        Whether the loss became something else than a finite number, with which the run ends.
    """

    points: tuple[Learned, ...]
    diverged: bool


def target_of(problem: str, argument: str = "problem") -> str:
    """``FILE.py:FUNCTION`` of a problem: one that comes along, or the user's as it is; ``argument`` is what messages call it.

    Raises
    ------
    InputError
        There is none of this name.
    """
    if problem in PROBLEMS:
        file, function = PROBLEMS[problem]
        return f"{builder(file, 'problems')}:{function}"
    if not problem.rpartition(":")[0] or not problem.rpartition(":")[2]:
        raise InputError(f"`{argument}`: {problem[:60]!r} is unknown; {did_you_mean(problem, PROBLEMS, _KNOWN)}")
    return problem


_KNOWN = f"there are {', '.join(PROBLEMS)}, or give FILE.py:FUNCTION, which returns (model, (x, y), (x, y))"


def problem_of(problem: str, folder: Path, python: str | None = None, timeout_s: float | None = None) -> Problem:
    """Return what a problem is, as its function makes it; it is asked once, and remembered in the folder of measurements.

    Raises
    ------
    InputError
        There is no such function, or it returns something else.
    CalibrationError
        It failed.
    """
    target = target_of(problem)
    for measured in _earlier(folder, target):
        for known in measured.of(Problem):
            return known
    out = new_file(_made(folder), _stem(problem), _PROBE)
    run_probes(_PROBE, [(_arguments(target), out)], python, timeout_s)
    return read_measurements(out).of(Problem)[0]


def replay(
    problem: str,
    runs: Sequence[ReplayedRun],
    folder: Path,
    *,
    metric: str | None = None,
    python: str | None = None,
    jobs: int = 1,
    timeout_s: float | None = None,
    progress: Progress | None = None,
) -> tuple[Curve, ...]:
    """Replay runs of a problem, but for those that were replayed before; returns the curve of each.

    Parameters
    ----------
    folder
        Where measurement files are, and are added.
    metric
        One that the model must have.
    jobs
        Processes at once, each on one core: what is learned does not depend on how many there are.
    timeout_s
        Seconds after which they are stopped; what was replayed is kept.
    progress
        Called with updates done and in all, and what is going on.

    Raises
    ------
    InputError
        The problem cannot be used, or has no such metric.
    CalibrationError
        The user's function or model failed.
    """
    target = target_of(problem)
    keys = [_key(target, run) for run in runs]
    curves = dict(_replayed(_earlier(folder, target)))
    todo = {key: run for key, run in zip(keys, runs, strict=True) if key not in curves}
    if todo:
        shares = [list(todo.items())[at::jobs] for at in range(min(jobs, len(todo)))]
        outs = []
        with scratch() as requests:
            asked = []
            for number, share in enumerate(shares):
                request = requests / f"request-{number}.json"
                request.write_text(json.dumps({"metric": metric, "runs": [_requested(key, run, requests) for key, run in share]}))
                outs.append(new_file(_made(folder), f"{_stem(problem)}-{os.getpid()}-{number}", _PROBE))  # two commands may begin at once
                asked.append(([*_arguments(target), "--request", str(request)], outs[-1]))
            with keeping(*outs):
                run_probes(_PROBE, asked, python, timeout_s, progress)
        curves |= dict(_replayed(map(read_measurements, outs)))
    return tuple(curves[key] for key in keys)


def noise_scale_of(
    problem: str,
    folder: Path,
    *,
    batch: int,
    epochs: float,
    python: str | None = None,
    timeout_s: float | None = None,
    progress: Progress | None = None,
) -> NoiseScale:
    """The gradient noise scale of a problem: measured now, or as it was measured before in the same way.

    ``batch`` are samples of a step, ``epochs`` passes over the training data; the others are those of :func:`replay`.
    """
    target = target_of(problem)
    name = f"noise-{hashlib.sha256(f'{_identity(target)} {batch} {epochs:g}'.encode()).hexdigest()[:12]}"
    for path in sorted(folder.glob(f"{name}-*.ndjson")):
        try:
            complete = read_measurements(path).complete
        except MeasurementsError:
            continue  # damaged: it is measured again
        if complete:
            return fit_noise_scale(path).noise_scale
    path = profile_noise_scale(
        target, name, batch=batch, epochs=epochs, python=python, timeout_s=timeout_s, folder=folder, progress=progress
    )
    return fit_noise_scale(path).noise_scale


def _requested(key: str, run: ReplayedRun, folder: Path) -> dict[str, object]:
    """A run as the probe takes it, its schedules as files."""
    phases, begins_s = [], 0.0
    for number, phase in enumerate(run.phases):
        file = folder / f"{key}-{number}.npz"
        file.write_bytes(phase.schedule.written())
        phases.append({
            "schedule": str(file), "updates": phase.updates, "batch": phase.batch, "begins_s": begins_s, "rate": phase.rate,
            "by_staleness": phase.by_staleness, "checkpoints": phase.checkpoints,
        })  # fmt: skip
        begins_s += float(phase.schedule.time_s[phase.updates - 1])
    return {"name": key, "seed": run.seed, "phases": phases}


def _key(target: str, run: ReplayedRun) -> str:
    """Of all that decides what is learned in a run, but for versions of software, and what the problem's file imports or reads."""
    key = hashlib.sha256(f"{_VERSION} {_identity(target)}{run.seed}".encode())
    for phase in run.phases:
        key.update(phase.schedule.written())
        key.update(json.dumps(phase[1:]).encode())
    return key.hexdigest()[:16]


def _identity(target: str) -> str:
    """Of a problem: its file's content, and the function."""
    file, _, function = target.rpartition(":")
    content = bytes_of(file, named=f"`problem`: {file}")
    return f"{hashlib.sha256(content).hexdigest()[:16]}:{function}"


def _arguments(target: str) -> list[str]:
    return ["--problem", target, "--identity", _identity(target)]


def _earlier(folder: Path, target: str) -> Iterator[Measurements]:
    """Files of earlier replays of the same problem."""
    identity = _identity(target)
    for path in sorted(folder.glob(f"*-{_PROBE}-*.ndjson")):
        try:
            measured = read_measurements(path)
        except MeasurementsError:
            continue  # cut off, or somebody else's: it is replayed again
        if measured.header.probe == _PROBE and measured.header.arguments.get("identity") == identity:
            yield measured


def _replayed(files: Iterable[Measurements]) -> Iterator[tuple[str, Curve]]:
    """Runs that came to their end, by their keys."""
    for measured in files:
        points: dict[str, list[Learned]] = {}
        for point in measured.of(Learned):
            points.setdefault(point.run, []).append(point)
        for run in measured.of(Replayed):
            yield run.run, Curve(tuple(points.get(run.run, ())), run.diverged)


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"`measurements`: {folder}: cannot be created: {error.strerror or error}; choose another folder") from None
    return folder


def _stem(problem: str) -> str:
    """Return what files of a problem begin with."""
    return problem if problem in PROBLEMS else f"{Path(problem.rpartition(':')[0]).stem}-{problem.rpartition(':')[2]}"
