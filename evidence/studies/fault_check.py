"""Real testbed jobs whose tasks are killed and restarted, compared with simulated jobs with the same faults.

``python -m evidence.studies.fault_check models/measured/faults.toml`` measures what is missing and appends a row for each run (``--out
models/measured/faults.csv --machine models/measured/faults-machine.json``). With ``--predict`` it prints ``evidence/tables/faults.csv``:
means of four runs and their predictions, in seconds, measured / predicted. Predictions rest on runs without faults and on faults at other
times, never on the run that is predicted.

``time`` is from the common start to the last checkpoint, ``longer`` that less the time of the same job without faults, ``down`` from a
fault until all train again, ``lost`` training since the last checkpoint, ``fewer`` by how much steps took longer while asynchronous
workers were missing. Two cores (AMD EPYC), TensorFlow 2.21, one server in ``async``, 100 steps of 100 ms (gamma 16) a worker, a
checkpoint every 20 steps.

The time of the seven held-out jobs is within 3%, ``longer`` within 7% but for one worker of 4 (asynchronous; 0.4 s too long, no more than
pace explains), ``down`` within 2%, ``fewer`` within 11%. A worker that restarts alone is accepted again 0.1 to 1.1 s after its start,
mostly the wait for the next attempt to connect. These are predictions for a quiet machine: while other processes took up to 61% of the
cores, all seven jobs took 2 to 8% longer than predicted, and faults seemed to cost up to 1.5 times as much. Not measured: hosts that
vanish, hangs, settings whose faults differ in ``back_after`` or that kill workers and servers.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calibrate.testbed.fitting import fit_platform
from calibrate.testbed.loading import load_setting
from calibrate.testbed.platform import Platform
from calibrate.testbed.readings import OneRun, Readings, faults_of, lost_steps, read_run
from calibrate.testbed.running import measure_setting, retried
from calibrate.testbed.setting import TestbedSetting
from evidence.rows import add_rows, begin_rows, rows_in
from evidence.studies.job_prediction import JobCosts, job_scenario
from evidence.studies.job_readings import checkpoint_stops_s, fewer_workers_s, finished_s, rates, restores_s, startups_s
from simulator import simulate
from simulator.base.files import read_toml
from simulator.base.text import format_change
from simulator.spec.figures import JobOutcome

COLUMNS = (
    "name", "part", "mode", "workers", "repeat", "time_s", "startup_s", "stop_s", "detection_s", "rejoin_s", "restore_s", "down_s",
    "lost_s", "lost_steps", "fewer_workers_s", "updates_per_s", "updates_per_s_missing", "others_share", "device", "tensorflow", "measured",
)  # fmt: skip
HEADER = ("mode", "job", "time measured", "predicted", "error", "longer", "down", "lost", "fewer")
_FIT_REPEATS, _FIT_SEED = 3, 0
_TIMEOUT_S = 90.0


@dataclass(frozen=True)
class Experiment:
    """A job, what it is for (``fault-free``, ``calibration`` or ``held-out``), how often it is run and with which seed."""

    name: str
    part: str
    setting: TestbedSetting
    repeats: int
    seed: int

    def is_of(self, row: Mapping[str, str]) -> bool:
        """Whether a row has measured it."""
        return (row["name"], row["part"], row["mode"]) == (self.name, self.part, self.setting.mode)


def read_experiments(path: Path) -> tuple[tuple[TestbedSetting, ...], tuple[Experiment, ...]]:
    """The settings that the machine is fitted to, and the jobs, of a file such as ``models/measured/faults.toml``."""
    table = read_toml(path)
    found = []
    for entry in table["job"]:
        own = {key: value for key, value in entry.items() if key not in ("name", "part", "modes", "repeats", "seed")}
        for mode in entry["modes"]:
            setting = _setting({**table["common"], **own, "mode": mode, "servers": int(mode == "async")})
            found.append(Experiment(entry["name"], entry["part"], setting, entry["repeats"], entry["seed"]))
    return tuple(_setting(one) for one in table["fit"]), tuple(found)


def _setting(table: Mapping[str, Any]) -> TestbedSetting:
    return load_setting(table, [])


# -- what was measured -------------------------------------------------------------------


def _rows(experiment: Experiment, readings: Readings) -> Iterable[dict[str, Any]]:
    fingerprint = readings.file.fingerprint
    for number, run in enumerate(readings.runs):
        met = faults_of(run)
        whole, missing = rates(run) if run.setting.mode == "async" else (run.updates_per_s, None)
        values = {
            "name": experiment.name,
            "part": experiment.part,
            "mode": run.setting.mode,
            "workers": run.setting.workers,
            "repeat": number,
            "time_s": finished_s(run),
            "startup_s": startups_s(run)[0],
            "stop_s": _mean(checkpoint_stops_s(run)),
            "detection_s": _mean([one.detection_s for one in met]),
            "rejoin_s": _mean([one.start_up_s for one in met if not one.stopped]),
            "restore_s": _mean(restores_s(run)),
            "down_s": math.fsum(one.back_s - one.killed_s for one in met if one.stopped and one.back_s is not None),
            "lost_s": math.fsum(one.lost_s for one in met),
            "lost_steps": lost_steps(run),
            "fewer_workers_s": _fewer(run),
            "updates_per_s": whole,
            "updates_per_s_missing": missing,
            "others_share": run.others_share,
            "device": fingerprint.device_name,
            "tensorflow": fingerprint.tensorflow,
            "measured": readings.file.header.started,
        }
        yield {key: "" if value is None else f"{value:.6g}" if isinstance(value, float) else value for key, value in values.items()}


def _fewer(run: OneRun) -> float:
    return fewer_workers_s(run) if run.setting.mode == "async" else 0.0


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _measured(setting: TestbedSetting, folder: Path, repeats: int, seed: int) -> Readings:
    """Of a file in the folder that has all of it, or else measured now."""
    for path in sorted(folder.rglob(f"*-{setting.hash}-testbed-*.ndjson")):
        found = read_run(path)
        if len(found.runs) >= repeats and found.file.header.arguments["seed"] == seed:
            return found
    return retried(lambda: measure_setting(setting, folder, repeats=repeats, seed=seed, timeout_s=_TIMEOUT_S), setting.label)


# -- what is predicted -------------------------------------------------------------------


@dataclass(frozen=True)
class Compared:
    """A job's means over its repeats, with its prediction; times are seconds from the common start."""

    experiment: Experiment
    measured: Mapping[str, float]
    predicted: Mapping[str, float]

    def error(self, what: str) -> float:
        """Relative, of a predicted figure."""
        return self.predicted[what] / self.measured[what] - 1.0


def costs_for(experiment: Experiment, experiments: Sequence[Experiment], rows: Sequence[Mapping[str, str]]) -> JobCosts:
    """Findings from other runs: start-up and checkpoints from those without faults and the same number of workers, the rest from those with
    such faults."""
    setting = experiment.setting
    kinds = {one.of for one in setting.faults}
    same = [one for one in experiments if one.setting.mode == setting.mode]
    alike = [one for one in same if one.part == "calibration" and kinds & {its.of for its in one.setting.faults}]
    free = [one for one in same if one.part == "fault-free" and one.setting.workers == setting.workers]

    def mean(chosen: Sequence[Experiment], column: str) -> float:
        return _mean([float(row[column]) for row in rows if row[column] and any(one.is_of(row) for one in chosen)]) or 0.0

    return JobCosts(
        startup_s=mean(free, "startup_s"),
        stop_s=max(mean(free, "stop_s"), 0.0),
        detection_s=mean(alike, "detection_s"),
        rejoin_s=mean(alike, "rejoin_s"),
        restore_s=mean(alike, "restore_s"),
    )


def compared(experiments: Sequence[Experiment], rows: Sequence[Mapping[str, str]], platform: Platform) -> list[Compared]:
    """Every job without faults, or held out, with rows, compared with its prediction."""
    found = []
    for one in experiments:
        own = [row for row in rows if one.is_of(row)]
        if one.part == "calibration" or not own:
            continue
        measured = {name: float(np.mean([float(row[name]) for row in own])) for name in FIGURES}
        costs = costs_for(one, experiments, rows)
        outcome = simulate(job_scenario(one.setting, platform, costs, replications=_REPLICATIONS, seed=one.seed)).job
        assert outcome is not None
        found.append(Compared(one, measured, {name: figure(outcome) for name, figure in FIGURES.items()}))
    return found


_REPLICATIONS = 12
FIGURES: dict[str, Callable[[JobOutcome], float]] = {
    "time_s": lambda job: job.time_s.mean - job.parts_s.startup,
    "down_s": lambda job: job.parts_s.down,
    "lost_s": lambda job: job.parts_s.lost_work,
    "fewer_workers_s": lambda job: job.parts_s.fewer_workers,
}
"""Figures of a job, as its prediction has them; rows have them by the same names."""


def lines(found: Sequence[Compared]) -> list[list[str]]:
    """Rows of the table: mode, job, time measured and predicted, error, how much longer than without faults, and its parts."""
    whole = {(one.experiment.setting.mode, one.experiment.setting.workers): one for one in found if one.experiment.part == "fault-free"}
    rows = ((one, whole[one.experiment.setting.mode, one.experiment.setting.workers]) for one in found)
    return [list(_cells(one, without)) for one, without in rows]


def _cells(one: Compared, whole: Compared) -> tuple[str, ...]:
    kept = [name for name in FIGURES if name != "time_s"]
    pairs = [f"{one.measured[name]:.2f} / {one.predicted[name]:.2f}" for name in kept]
    longer = (
        f"{its['time_s'] - without['time_s']:.2f}" for its, without in ((one.measured, whole.measured), (one.predicted, whole.predicted))
    )
    return (
        one.experiment.setting.mode, one.experiment.name, f"{one.measured['time_s']:.2f}", f"{one.predicted['time_s']:.2f}",
        format_change(one.error("time_s")), " / ".join(longer), *pairs,
    )  # fmt: skip


def main() -> None:
    """Measure every job of which there are too few rows yet; or compare with predictions."""
    parser = argparse.ArgumentParser(description="Measures real jobs whose tasks are killed and come back.")
    parser.add_argument("jobs", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="rows; appended to where it exists, so that what was stopped goes on")
    parser.add_argument("--machine", type=Path, required=True, help="the fitted machine; written where it does not exist")
    parser.add_argument("--measurements", type=Path, default=Path("measurements"), help="raw measurements; what is there already is taken")
    parser.add_argument("--predict", action="store_true", help="measure nothing; print the rows and their predictions, as CSV")
    arguments = parser.parse_args()
    fit, experiments = read_experiments(arguments.jobs)
    if not arguments.predict:
        _measure(arguments, fit, experiments)
        return
    rows = rows_in(arguments.out)
    found = compared(experiments, rows, Platform.model_validate_json(arguments.machine.read_text(encoding="utf-8")))
    csv.writer(sys.stdout, lineterminator="\n").writerows([HEADER, *lines(found)])


def _measure(arguments: argparse.Namespace, fit: Sequence[TestbedSetting], experiments: Sequence[Experiment]) -> None:
    begin_rows(arguments.out, COLUMNS)
    if not arguments.machine.exists():
        readings = [_measured(one, arguments.measurements, _FIT_REPEATS, _FIT_SEED) for one in fit]
        platform = fit_platform(readings, "testbed", readings[0].cores).model_copy(update={"draws": ()})
        platform.write(arguments.machine)
    there = Counter((row["name"], row["part"], row["mode"]) for row in rows_in(arguments.out))
    for one in experiments:
        if there[one.name, one.part, one.setting.mode]:
            continue
        rows = list(_rows(one, _measured(one.setting, arguments.measurements, one.repeats, one.seed)))
        add_rows(arguments.out, COLUMNS, rows)
        print(f"{one.setting.mode}, {one.name}: {', '.join(row['time_s'] for row in rows)} s", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
