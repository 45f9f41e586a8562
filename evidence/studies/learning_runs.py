"""Real asynchronous and synchronous training of a small model, compared with replays of predicted schedules.

``python -m evidence.studies.learning_runs --out FILE.csv`` runs real TensorFlow clusters with emulated devices, whose gradients are real
and are applied; appends a row for each validation of each run; then predicts the schedule of each setting from a run of one worker,
replays it, and prints both results. Rows that are there are not measured again.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrate.learning import Curve, Phase, ReplayedRun, replay, target_of
from calibrate.measurements import Note, Repeat, Updated, Used, new_file, read_measurements
from calibrate.probing import run_probe
from calibrate.testbed.platform import PRIORS
from calibrate.testbed.scenarios import scenario_of
from calibrate.testbed.setting import TestbedSetting
from evidence.rows import add_rows, begin_rows, rows_in
from simulator.base.errors import CalibrationError
from simulator.base.files import check_folder
from simulator.base.process import scratch
from simulator.base.validation_errors import validated
from simulator.catalogue.loading import load_scenario
from simulator.engine.schedule import Schedule, schedule_of
from simulator.resolve.resolve import resolve
from simulator.scenario import Scenario

COLUMNS = ("mode", "workers", "run", "kind", "time_s", "version", "loss", "accuracy", "worker", "read_version", "others_share", "cpu_s")
"""Of a row: kind ``curve`` is a validation, ``step`` a step (worker, when applied, versions read and made), ``end`` the last's, and the
CPU time of all."""
MODES = ("async", "ssp", "sync")
PROBLEM = "digits-mlp"
_PROBE = str(Path(__file__).parents[1] / "probes" / "learning.py")
_BATCH, _RATE, _MOMENTUM, _BOUND = 8, 0.01, 0.9, 1
_MEAN_S, _SIGMA = 0.1, 0.3
_UPDATES, _ALONE = 1600, 200
"""Gradients that all workers compute together."""
_OTHERS, _ATTEMPTS = 0.1, 3
"""Share of the cores' time that others may take of a run, and how often one is tried for that."""
_KEEP = 20
"""How many validations of a run there are, about."""


@dataclass(frozen=True)
class LearningSetting:
    """What is run: a mode and how many workers; all else is the same for all."""

    mode: str
    workers: int

    @property
    def testbed(self) -> TestbedSetting:
        """As in the testbed: an emulated device whose step takes 100 ms on average, with a shaped link."""
        sizes = (("v0", (64, 64)), ("v1", (64,)), ("v2", (64, 10)), ("v3", (10,)))
        table = {
            "mode": "sync" if self.mode == "sync" else "between-graph",
            "workers": self.workers,
            "servers": 1,
            "model": PROBLEM,
            "link": {"bandwidth": "400 Mbit/s"},
            "variables": [{"name": name, "shape": shape, "ready": 1.0} for name, shape in sizes],
            "batch": _BATCH,
            "compute": {"kind": "emulated", "mean": f"{_MEAN_S} s", "law": {"kind": "lognormal", "sigma": _SIGMA}},
            "steps": (_UPDATES if self.workers > 1 else _ALONE) // self.workers,
        }
        return validated(TestbedSetting, table, "learning")

    def for_probe(self, repeats: int, seed: int) -> dict[str, Any]:
        """Input of the probe."""
        updates = _UPDATES // (self.workers if self.mode == "sync" else 1)
        more = {
            "problem": target_of(PROBLEM),
            "learning_rate": _RATE,
            "momentum": _MOMENTUM,
            "keep_every": max(updates // _KEEP, 1),
            "bound": _BOUND if self.mode == "ssp" else None,
        }
        return {**self.testbed.for_probe(repeats, seed, 300.0), **more}


@dataclass(frozen=True)
class Real:
    """One real run: how good the model was when, and who updated what."""

    time_s: NDArray[np.float64]
    loss: NDArray[np.float64]
    accuracy: NDArray[np.float64]
    steps: tuple[tuple[int, float, int, int], ...]
    """Of each the worker, when it was applied, the version that it read and the one that it made; rows keep those of ``async``."""
    end_s: float
    """When the last step was applied."""
    cpu_s: float
    """Of the processor, by all processes together."""
    others_share: float


def measure(setting: LearningSetting, folder: Path, repeats: int, seed: int) -> list[Real]:
    """Train really, as often as is asked for.

    Raises
    ------
    CalibrationError
        A task died, or hung.
    """
    check_folder(folder).mkdir(parents=True, exist_ok=True)
    path = new_file(folder, f"learning-{setting.mode}-{setting.workers}w", "testbed")
    with scratch() as own:
        spec = own / "setting.json"
        spec.write_text(json.dumps(setting.for_probe(repeats, seed)), encoding="utf-8")
        run_probe(_PROBE, ["--setting", str(spec), "--parent", str(os.getpid())], path, None, 300.0 * repeats + 60.0)
    return list(_read(path))


def _read(path: Path) -> Iterator[Real]:
    measured = read_measurements(path)
    for whole in measured.of(Repeat):
        notes = [its.model_extra or {} for its in measured.of(Note)]
        own = sorted((its for its in notes if its.get("repeat") == whole.repeat and "loss" in its), key=lambda its: its["at_s"])
        steps = [its for its in measured.of(Updated) if its.repeat == whole.repeat]
        if not own or not steps:
            raise CalibrationError(f"{path}: holds no curve; measure again")
        times_s, loss, accuracy = np.array([[its[name] for name in ("at_s", "loss", "accuracy")] for its in own], float).T
        made = tuple((its.worker, its.applied_s, its.read_version, its.version) for its in steps)
        cpu_s = math.fsum(its.user_s + its.system_s for its in measured.of(Used) if its.repeat == whole.repeat)
        yield Real(times_s, loss, accuracy, made, max(its[1] for its in made), cpu_s, whole.others_share or 0.0)


# -- what is predicted --------------------------------------------------------------------------


def predicted(setting: LearningSetting, alone: Sequence[Real], seeds: int) -> list[Schedule]:
    """Schedules of a setting, from runs of a single worker with the same program.

    Time of one worker's step beyond the emulated device and the wire counts as work of the hosts. All else is of the testbed's
    priors, which no run took part in.
    """
    mean_s, cpu_s = (statistics.fmean(values) / _ALONE for values in zip(*((run.end_s, run.cpu_s) for run in alone), strict=True))
    scenario = scenario_with(setting, mean_s - _MEAN_S, cpu_s)
    return [schedule_of(resolve(scenario), _UPDATES, seed) for seed in range(seeds)]


def scenario_with(setting: LearningSetting, beside_s: float, cpu_s: float) -> Scenario:
    """The scenario of a setting, where a step takes some time besides computing and sending, and so much of the processor's.

    The first is work of the hosts on its messages, in equal parts at both ends of each. Their further work overlaps with the step, like an
    input pipeline. All processes share this machine's cores.
    """
    tensors = len(setting.testbed.variables)
    values = {name: middle for name, (middle, _, _) in PRIORS.items()}
    sent_s = 2.0 * setting.testbed.moved_bytes * values["wire_bytes_per_byte"] / (400e6 / 8)
    values |= {"sleep_s": 0.0, "session_s": 0.0, "accumulate_s": 0.0, "tensor_s": max(beside_s - sent_s, 0.0) / (2 * 2 * tensors)}
    cores = float(os.cpu_count() or 1)
    scenario = scenario_of(setting.testbed, values, cores=cores, replications=2)
    beyond = {"base_s": max(cpu_s - beside_s, 0.0), "per_sample_s": 0.0}
    settings: list[tuple[str, object]] = [("cluster.shared_cores", cores), ("workload.input", beyond)]
    if setting.mode == "ssp":
        settings += [("strategy.coordinator", None), ("strategy.mode", "ssp"), ("strategy.bound", _BOUND)]
    return load_scenario(scenario, settings)


def recorded(run: Real, setting: LearningSetting) -> Schedule:
    """The schedule of a real asynchronous run, as it was recorded."""
    return Schedule.of_steps([(worker, at_s, read, made - 1) for worker, at_s, read, made in run.steps], setting.workers)


def replayed(schedules: Sequence[Schedule], folder: Path, jobs: int = 2) -> tuple[Curve, ...]:
    """Replay schedules with the optimizer's rate of the real runs."""
    runs = [ReplayedRun(seed, (Phase(its, len(its), _BATCH, rate=_RATE / 0.05, checkpoints=60),)) for seed, its in enumerate(schedules)]
    return replay(PROBLEM, runs, folder, jobs=jobs)


def at(times_s: NDArray[np.float64], curve: tuple[NDArray[np.float64], NDArray[np.float64]]) -> NDArray[np.float64]:
    """A curve at some times."""
    return np.interp(times_s, *curve)


def points_of(curve: Curve, metric: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Times and values of a metric."""
    return np.array([its.time_s for its in curve.points]), np.array([its.metrics[metric] for its in curve.points])


def inside(real: Sequence[Real], curves: Sequence[Curve], checkpoints: int = 20) -> float:
    """Share of the checkpoints, even in time, at which the median of the replays' losses lies within the range of the real ones."""
    end_s = min(run.time_s[-1] for run in real)
    times_s = np.linspace(end_s / checkpoints, end_s, checkpoints)
    theirs = np.array([at(times_s, (run.time_s, run.loss)) for run in real])
    ours = np.median([at(times_s, points_of(curve, "loss")) for curve in curves], axis=0)
    return float(np.mean((ours >= theirs.min(axis=0)) & (ours <= theirs.max(axis=0))))


def to_target(times_s: NDArray[np.float64], accuracy: NDArray[np.float64], target: float) -> float:
    """When a run first reaches an accuracy; infinity where it does not."""
    return float(next((at_s for at_s, value in zip(times_s, accuracy, strict=True) if value >= target), np.inf))


def compared(
    setting: LearningSetting, real: Sequence[Real], alone: Sequence[Real], folder: Path, target: float
) -> Mapping[str, float | str]:
    """A setting's real runs compared with replays of predicted and of recorded schedules."""
    schedules = predicted(setting, alone, len(real))
    curves = replayed(schedules, folder)
    row: dict[str, float | str] = {"mode": setting.mode, "workers": setting.workers, "runs": len(real)}
    row["inside"] = inside(real, curves)
    if setting.mode == "async":
        were = [recorded(run, setting) for run in real]
        row["inside_recorded"] = inside(real, replayed(were, folder))
        for name, its in (("real", were), ("predicted", schedules)):
            row[f"staleness_{name}"] = statistics.fmean(one.mean_staleness for one in its)
    row["real_s"] = statistics.median(to_target(run.time_s, run.accuracy, target) for run in real)
    row["predicted_s"] = statistics.median(to_target(*points_of(curve, "accuracy"), target) for curve in curves)
    row["last_real_s"] = statistics.median(run.end_s for run in real)
    row["last_predicted_s"] = statistics.median(curve.points[-1].time_s for curve in curves)
    return row


# -- rows -----------------------------------------------------------------------------------------


def rows_of(setting: LearningSetting, number: int, run: Real) -> Iterator[dict[str, object]]:
    """The rows of one run."""
    common = {"mode": setting.mode, "workers": setting.workers, "run": number}
    for at_s, loss, accuracy in zip(run.time_s, run.loss, run.accuracy, strict=True):
        yield {**common, "kind": "curve", "time_s": f"{at_s:.4f}", "loss": f"{loss:.6g}", "accuracy": f"{accuracy:.5g}",
               "others_share": f"{run.others_share:.3f}"}  # fmt: skip
    yield {**common, "kind": "end", "time_s": f"{run.end_s:.4f}", "cpu_s": f"{run.cpu_s:.3f}"}
    for worker, applied_s, read, made in run.steps if setting.mode == "async" else ():
        yield {**common, "kind": "step", "time_s": f"{applied_s:.4f}", "worker": worker, "read_version": read, "version": made}


def read_rows(path: Path) -> dict[LearningSetting, list[Real]]:
    """Real runs that a file has, by their settings."""
    found: dict[tuple[str, int, int], list[dict[str, str]]] = {}
    for row in rows_in(path):
        found.setdefault((row["mode"], int(row["workers"]), int(row["run"])), []).append(row)
    runs: dict[LearningSetting, list[Real]] = {}
    for (mode, workers, _), rows in found.items():
        curve, steps, (end,) = ([row for row in rows if row["kind"] == kind] for kind in ("curve", "step", "end"))
        times_s, loss, accuracy = np.array([[float(row[name]) for name in ("time_s", "loss", "accuracy")] for row in curve]).T
        made = tuple((int(row["worker"]), float(row["time_s"]), int(row["read_version"]), int(row["version"])) for row in steps)
        run = Real(times_s, loss, accuracy, made, float(end["time_s"]), float(end["cpu_s"]), float(curve[0]["others_share"]))
        runs.setdefault(LearningSetting(mode, workers), []).append(run)
    return runs


def _undisturbed(setting: LearningSetting, folder: Path, seed: int) -> Real:
    """A run with little other load on the machine; the least disturbed of some, where it is never so."""
    runs: list[Real] = []
    while len(runs) < _ATTEMPTS and not any(run.others_share <= _OTHERS for run in runs):
        runs += measure(setting, folder, 1, seed)
    return min(runs, key=lambda run: run.others_share)


def main() -> None:
    """Measure what is missing, and print the comparison."""
    parser = argparse.ArgumentParser(description="Real training compared with replays of predicted schedules.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--measurements", type=Path, default=Path("measurements"))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--workers", default="4,8")
    parser.add_argument("--target", type=float, default=0.93)
    parser.add_argument("--compare", action="store_true", help="measure nothing")
    arguments = parser.parse_args()
    begin_rows(arguments.out, COLUMNS)
    counts = [int(one) for one in arguments.workers.split(",")]
    settings = [LearningSetting(mode, count) for count in (1, *counts) for mode in MODES]
    there = read_rows(arguments.out)
    for setting in settings if not arguments.compare else []:
        done, wanted = len(there.get(setting, [])), 2 if setting.workers == 1 else arguments.repeats
        while done < wanted:
            run = _undisturbed(setting, arguments.measurements, done)
            add_rows(arguments.out, COLUMNS, rows_of(setting, done, run))
            said = f"{setting.mode} {setting.workers}: {run.time_s[-1]:.1f} s, accuracy {run.accuracy[-1]:.3f}"
            print(f"{said}, others {run.others_share:.0%}", flush=True)  # noqa: T201
            done += 1
    there, errors = read_rows(arguments.out), []
    for setting in settings[len(MODES) :]:
        if setting in there:
            alone = there[LearningSetting(setting.mode, 1)]
            row = compared(setting, there[setting], alone, arguments.measurements, arguments.target)
            errors.append(float(row["last_predicted_s"]) / float(row["last_real_s"]) - 1.0)
            print(row, flush=True)  # noqa: T201
    if errors:
        sizes = [abs(error) for error in errors]
        print(f"ends: {statistics.median(sizes):.1%} off in the median, {max(errors, key=abs):+.1%} at worst")  # noqa: T201


if __name__ == "__main__":
    main()
