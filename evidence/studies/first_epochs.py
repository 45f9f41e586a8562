"""First epochs of real trainings beside their predictions: where a small job's time goes, start-up and tracing included.

    python -m evidence.studies.first_epochs models/measured/first-epochs.toml

predicts every setting of the file that has rows in ``models/measured/first-epochs.csv`` (``--rows``),
from its workload alone, and prints the comparison as Markdown, which ``--markdown FILE`` puts
into a page in place of what stood there.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from evidence.studies.timed_epochs import EpochTimes, JobSetting, JobTimes, read_job_settings
from simulator import scenario_from_table, simulate
from simulator.base.errors import InputError
from simulator.base.files import EDITED, Output, read_toml
from simulator.base.text import format_change, format_seconds
from simulator.results.results import Result
from simulator.scenario import Scenario
from simulator.spec.figures import Epoch, JobOutcome

MARKS = {name: (f"<!-- {name}: begin -->", f"<!-- {name}: end -->") for name in ("whole jobs", "first epochs")}
"""Around what the command writes into a page: one table of whole jobs, and one of the parts of each."""
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
    """Each part of a job beside its prediction; last the whole, as throughput alone has it."""
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
    """The epochs one by one, of which those that are alike are told once."""
    for epoch in outcome.each_epoch:
        yield from itertools.repeat(epoch, epoch.like_it)


def markdown(setting: JobSetting, found: Sequence[Beside], workload: Mapping[str, Any], row: Mapping[str, str]) -> str:
    """A table of one setting, with what it was measured on."""
    batches = workload["calibrated"]["batch"]
    epoch = f"{setting.steps} steps, an evaluation of {setting.evaluation_steps} and a checkpoint"
    measured = [point["batch"] for point in workload.get("fit", {}).get("points", ())]
    calibrated = ", ".join(str(batch) for batch in measured) or f"{batches[0]} to {batches[1]}"
    head = (
        f"**{setting.name}**: {setting.epochs} epochs of {epoch}; calibrated at batch {calibrated}; {row['device']}, {row['cores']} cores, "
        f"TensorFlow {row['tensorflow']}, Keras {row['keras']}, {row['measured'][:10]}"
    )
    lines = [head, "", "| part | measured (each run) | predicted | error |", "| --- | --- | --- | --- |"]
    for one in found:
        mean, each = format_seconds(statistics.fmean(one.measured)), ", ".join(format_seconds(value) for value in one.measured)
        predicted = format_seconds(one.predicted)
        if one.interval is not None:
            predicted += f" ({format_seconds(one.interval[0])} to {format_seconds(one.interval[1])})"
        lines.append(f"| {one.what} | {mean} ({each}) | {predicted} | {format_change(one.error)} |")
    return "\n".join(lines)


class Compared(NamedTuple):
    """A setting that was measured beside its prediction."""

    setting: JobSetting
    workload: Mapping[str, Any]
    row: Mapping[str, str]
    parts: list[Beside]


def compared(settings: Path, rows_file: Path) -> list[Compared]:
    """Every setting that was measured, in the order of the settings."""
    with rows_file.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    jobs = jobs_of_rows(rows)
    found = []
    for setting in read_job_settings(settings):
        if setting.name not in jobs:
            continue
        workload = read_toml(settings.parent / setting.workload)
        parts = compared_jobs(setting, jobs[setting.name], simulate(scenario_of(setting, workload)))
        found.append(Compared(setting, workload, next(row for row in rows if row["name"] == setting.name), parts))
    return found


def whole_jobs(found: Sequence[Compared]) -> str:
    """One line for each setting: how long the whole job took, as predicted, and as throughput alone has it; as Markdown."""
    lines = ["| training | measured | predicted | error | error by throughput alone |", "| --- | --- | --- | --- | --- |"]
    for one in found:
        parts = {part.what: part for part in one.parts}
        whole = parts[WHOLE]
        times = f"{format_seconds(statistics.fmean(whole.measured))} | {format_seconds(whole.predicted)}"
        lines.append(f"| {one.setting.name} | {times} | {format_change(whole.error)} | {format_change(parts[BY_THROUGHPUT].error)} |")
    return "\n".join(lines)


def in_parts(found: Sequence[Compared]) -> str:
    """A table of the parts of each setting, as Markdown."""
    return "\n\n".join(markdown(one.setting, one.parts, one.workload, one.row) for one in found)


def into_page(page: Path, texts: Mapping[str, str]) -> None:
    """Put texts between their marks in a page.

    Parameters
    ----------
    page
        A page that has all of these marks.
    texts
        By the name of their marks (:data:`MARKS`).

    Raises
    ------
    InputError
        The page has no such marks.
    """
    whole = page.read_text(encoding="utf-8")
    for name, text in texts.items():
        before, begin, rest = whole.partition(MARKS[name][0])
        _, end, after = rest.partition(MARKS[name][1])
        if not begin or not end:
            raise InputError(f"{page}: has no line {MARKS[name][0]!r} and {MARKS[name][1]!r} below it; add both where the text is to stand")
        whole = f"{before}{begin}\n{text}\n{end}{after}"
    Output(page, EDITED._replace(ending=".md"), force=True).write(whole)  # what stands around the marks stays


def main() -> None:
    """Predict what was measured, and print or write the comparison."""
    parser = argparse.ArgumentParser(description="Holds predictions against the first epochs of real trainings.")
    parser.add_argument("settings", type=Path)
    parser.add_argument("--rows", type=Path, metavar="CSV", help="what was measured; left out: beside the settings, with their name")
    parser.add_argument("--markdown", type=Path, metavar="PAGE.md", help="put the tables between their marks in this page")
    arguments = parser.parse_args()
    found = compared(arguments.settings, arguments.rows or arguments.settings.with_suffix(".csv"))
    texts = {"whole jobs": whole_jobs(found), "first epochs": in_parts(found)}
    if arguments.markdown is not None:
        into_page(arguments.markdown, texts)
    print("\n\n".join(texts.values()))  # noqa: T201


if __name__ == "__main__":
    main()
