"""First epochs of real trainings compared with their predictions: where a small job's time goes, start-up and tracing included.

    python -m evidence.studies.first_epochs models/measured/first-epochs.toml

predicts every setting of the file that has rows in ``models/measured/first-epochs.csv`` (``--rows``; :mod:`evidence.studies.timed_epochs`
measures them) from its workload alone, and writes each part to ``evidence/tables/first-epochs.csv`` (``--out``).

Four trainings of three runs each (AMD EPYC, 2 cores, TensorFlow 2.21, Keras 3.15, 2026-11-26; others took less than 1% of the machine): a
small convolutional network and BERT-tiny, on one replica and on two logical devices of the processor. Whole jobs are predicted 6% too long
to 21% too short, and 12 of 12 runs lie inside their 90% intervals; from steady throughput alone, it is 41 to 69% too short. Two replicas
are the worst: the strategy adds a second of start-up, BERT-tiny's first step takes twice as long as one tracing per replica explains, and a
distributed evaluation costs more than its passes.
"""

from __future__ import annotations

import argparse
import csv
import io
import itertools
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evidence.rows import rows_in
from evidence.studies.timed_epochs import EpochTimes, JobSetting, JobTimes, read_job_settings
from simulator import scenario_from_table, simulate
from simulator.base.files import Output, csv_kind, read_toml
from simulator.results.results import Result
from simulator.scenario import Scenario
from simulator.spec.figures import Epoch, JobOutcome

TABLE = Path(__file__).parents[1] / "tables" / "first-epochs.csv"
COLUMNS = ("setting", "part", "measured_s", "predicted_s", "low_s", "high_s", "error")
"""Of a row: the mean of each repeat; the prediction, with its 90% interval for a whole job; predicted over measured, less 1."""
WHOLE, BY_THROUGHPUT = "the whole job", "the same by steady throughput"


@dataclass(frozen=True)
class Beside:
    """One part of a job, measured in each repeat and predicted, in seconds."""

    what: str
    measured: tuple[float, ...]
    predicted: float
    interval: tuple[float, float] | None = None

    @property
    def error(self) -> float:
        """Predicted over the mean of what was measured, less 1; above 0: predicted too long."""
        return self.predicted / statistics.fmean(self.measured) - 1.0


def scenario_of(setting: JobSetting, workload: Mapping[str, Any]) -> Scenario:
    """The scenario that predicts a setting: its workload on one device, which several replicas share.

    Start-up, tracing and checkpoints are those of the workload.
    """
    several = setting.replicas > 1
    job: dict[str, Any] = {"epochs": setting.epochs, "dataset_size": setting.dataset_size}
    if setting.evaluation_steps:
        job["evaluation"] = {"samples": setting.evaluation_samples}
    if setting.checkpoint:
        job["checkpoint"] = {"every_epochs": 1}
    table = {
        "workload": {**workload, "batch_per_replica": setting.batch},
        "cluster": {
            "name": "this machine",
            "replicas_per_device": setting.replicas,
            "inter_node": {"bandwidth_bytes_per_s": 1e10, "latency_s": 1e-5},
            "intra_node": {"bandwidth_bytes_per_s": 1e10, "latency_s": 1e-5},
        },
        "strategy": {"kind": "mirrored", "replicas": setting.replicas} if several else {"kind": "single"},
        "run": {"steps": setting.steps, "replications": 19, "seed": 0},
        "job": job,
    }
    return scenario_from_table(table, setting.name)


def jobs_of_rows(rows: Sequence[Mapping[str, str]]) -> dict[str, list[JobTimes]]:
    """Repeats by the name of their setting, from rows that :mod:`evidence.studies.timed_epochs` wrote."""
    found: dict[str, list[JobTimes]] = {}
    for (name, _), its in itertools.groupby(rows, key=lambda row: (row["name"], row["repeat"])):
        epochs = []
        for row in its:
            times = {key: float(row[key]) for key in ("first_step_s", "steps_s", "step_s", "evaluation_s", "checkpoint_s")}
            epochs.append(EpochTimes(int(row["epoch"]), **times))
            startup_s = float(row["startup_s"])
        found.setdefault(name, []).append(JobTimes(startup_s, tuple(epochs)))
    return found


def compared_jobs(setting: JobSetting, jobs: Sequence[JobTimes], result: Result) -> list[Beside]:
    """Each part of a job with its prediction; last the total, from throughput only."""
    assert result.job is not None
    outcome, epochs = result.job, list(_each_epoch(result.job))
    whole, interval = outcome.time_s.mean, (outcome.time_s.low, outcome.time_s.high)
    samples = setting.epochs * setting.dataset_size

    def of(what: str, measured: Callable[[JobTimes], float], predicted: float) -> Beside:
        return Beside(what, tuple(measured(job) for job in jobs), predicted)

    def later(epoch_part: Callable[[Any], float]) -> tuple[Callable[[JobTimes], float], float]:
        return lambda job: statistics.fmean(map(epoch_part, job.epochs[1:])), statistics.fmean(map(epoch_part, epochs[1:]))

    found = [
        of("start-up", lambda job: job.startup_s, outcome.parts_s.startup),
        of("first step", lambda job: job.epochs[0].first_step_s, epochs[0].first_step_s),
        of("a later step", lambda job: statistics.fmean(epoch.step_s for epoch in job.epochs), epochs[0].step_s),
        of("first epoch", lambda job: job.epochs[0].time_s, epochs[0].time_s),
    ]
    if setting.epochs > 1:
        found.append(of("a later epoch", *later(lambda epoch: float(epoch.time_s))))
    if setting.evaluation_steps:
        found.append(of("first evaluation", lambda job: job.epochs[0].evaluation_s, epochs[0].evaluation_s))
        if setting.epochs > 1:
            found.append(of("a later evaluation", *later(lambda epoch: float(epoch.evaluation_s))))
    if setting.checkpoint:
        mean = statistics.fmean(epoch.checkpoint_s for epoch in epochs)
        found.append(of("a checkpoint", lambda job: statistics.fmean(epoch.checkpoint_s for epoch in job.epochs), mean))
    times = tuple(job.time_s for job in jobs)
    found.append(Beside(WHOLE, times, whole, interval))
    found.append(Beside(BY_THROUGHPUT, times, samples / result.throughput_samples_per_s.mean))
    return found


def _each_epoch(outcome: JobOutcome) -> Iterator[Epoch]:
    """The epochs in order, equal ones listed once."""
    for epoch in outcome.each_epoch:
        yield from itertools.repeat(epoch, epoch.like_it)


def compared(settings: Path, rows_file: Path) -> dict[str, list[Beside]]:
    """The parts of every setting that was measured, in the order of the settings."""
    jobs = jobs_of_rows(rows_in(rows_file))
    return {
        setting.name: compared_jobs(
            setting, jobs[setting.name], simulate(scenario_of(setting, read_toml(settings.parent / setting.workload)))
        )
        for setting in read_job_settings(settings)
        if setting.name in jobs
    }


def table_of(found: Mapping[str, Sequence[Beside]]) -> str:
    """A row for each part of each setting, as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for name, parts in found.items():
        for part in parts:
            ends = [f"{end:.4g}" for end in part.interval] if part.interval else ["", ""]
            measured = " ".join(f"{value:.4g}" for value in part.measured)
            writer.writerow([name, part.what, measured, f"{part.predicted:.4g}", *ends, f"{part.error:.3f}"])
    return text.getvalue()


def main() -> None:
    """Predict what was measured, and write the comparison."""
    parser = argparse.ArgumentParser(description="Compares predictions with the first epochs of real trainings.")
    parser.add_argument("settings", type=Path)
    parser.add_argument("--rows", type=Path, metavar="CSV", help="what was measured; left out: next to the settings, with their name")
    parser.add_argument("--out", type=Path, metavar="CSV", default=TABLE, help="where the comparison is written")
    arguments = parser.parse_args()
    found = compared(arguments.settings, arguments.rows or arguments.settings.with_suffix(".csv"))
    Output(arguments.out, csv_kind(COLUMNS)).write(table_of(found))


if __name__ == "__main__":
    main()
