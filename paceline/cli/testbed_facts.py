"""What a testbed run measured as plain data: the one source of its tables and of its JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from calibrate.records import LinkCheck, Note, Repeat
from calibrate.testbed.readings import OneRun, Readings
from calibrate.testbed.setting import TestbedSetting
from simulator.figures import Estimate
from simulator.intervals import prediction_interval

__all__ = ["Facts", "Job", "Part", "RepeatFacts", "facts_of", "samples_per_update"]

_JOBS = ("worker", "ps", "chief")


@dataclass(frozen=True)
class RepeatFacts:
    """One repeat; ``link_bytes_per_s`` is what plain sockets moved between two hosts before it, None on loopback."""

    repeat: int
    updates: int
    seconds: float
    updates_per_s: float
    samples_per_s: float
    mean_staleness: float | None
    link_bytes_per_s: float | None


@dataclass(frozen=True)
class Part:
    """Seconds of one part of a step, over the steps of all workers and repeats."""

    name: str
    mean_s: float
    p50_s: float
    p95_s: float


@dataclass(frozen=True)
class Job:
    """All tasks of a job; bytes and CPU seconds are those of one repeat, in the mean.

    ``sent_bytes`` is None on loopback, where all tasks share one interface.
    """

    job: str
    tasks: int
    sent_bytes: float | None
    cpu_s: float
    cpu_s_per_step: float


@dataclass(frozen=True)
class Facts:
    """A measurement file of the testbed.

    Attributes
    ----------
    label
        The setting in words.
    updates_per_s, samples_per_s
        Mean over repeats and the 90% interval for the next one; None of a single repeat.
    staleness
        Updates by staleness, all repeats together; empty where all workers step together.
    parts
        Pull, compute and push of a step, and the gap from a worker's step to its next.
    loopback_bytes
        Sent over the shared loopback interface in one repeat, in the mean; None with links.
    asked_link_bytes_per_s
        The rate that the links were shaped to; None on loopback.
    pulled_dense
        Sparse variables that real compute pulled whole.
    complete
        All repeats asked for have come to their end.
    failure
        Why the run stopped, if it said so.
    """

    file: str
    label: str
    hash: str
    setting: dict[str, Any]
    machine: dict[str, Any]
    repeats: tuple[RepeatFacts, ...]
    updates_per_s: Estimate | None
    samples_per_s: Estimate | None
    staleness: dict[int, int]
    parts: tuple[Part, ...]
    jobs: tuple[Job, ...]
    loopback_bytes: float | None
    asked_link_bytes_per_s: float | None
    pulled_dense: tuple[str, ...]
    complete: bool
    failure: str | None


def samples_per_update(setting: TestbedSetting) -> int:
    """Samples that an update of the model is computed from: one batch, or where workers step together, those of all that count."""
    if setting.mode in ("ring", "mirrored"):
        return setting.batch * setting.workers
    return setting.batch * (setting.workers - setting.backup_workers) if setting.mode == "sync" else setting.batch


def facts_of(readings: Readings) -> Facts:
    """All that is shown of one measurement file."""
    setting, measured = readings.setting, readings.files[0]
    checks = {check.repeat: check.bytes_per_s for check in measured.of(LinkCheck)}
    samples = samples_per_update(setting)
    repeats = tuple(
        RepeatFacts(
            repeat=record.repeat,
            updates=run.updates,
            seconds=run.seconds,
            updates_per_s=run.updates_per_s,
            samples_per_s=run.updates_per_s * samples,
            mean_staleness=run.mean_staleness,
            link_bytes_per_s=checks.get(record.repeat),
        )
        for record, run in zip(measured.of(Repeat), readings.runs, strict=True)
    )
    shaped = setting.link is not None
    sent = [max((one.sent_bytes for one in run.used), default=0.0) for run in readings.runs]
    return Facts(
        file=str(measured.path),
        label=setting.label,
        hash=setting.hash,
        setting=setting.model_dump(mode="json"),
        machine=measured.fingerprint.model_dump(mode="json", exclude={"kind"}),
        repeats=repeats,
        updates_per_s=_interval([one.updates_per_s for one in repeats]),
        samples_per_s=_interval([one.samples_per_s for one in repeats]),
        staleness=dict(sorted(readings.staleness.items())),
        parts=_parts(readings.runs),
        jobs=tuple(_job(job, readings.runs, shaped=shaped) for job in _JOBS if any(_tasks(job, run) for run in readings.runs)),
        loopback_bytes=None if shaped else float(np.mean(sent)),
        asked_link_bytes_per_s=None if setting.link is None else setting.link.bandwidth_bytes_per_s,
        pulled_dense=tuple(sorted({str(name) for note in measured.of(Note) for name in (note.model_extra or {}).get("pulled_dense", ())})),
        complete=measured.complete,
        failure=measured.failure.message if measured.failure else None,
    )


def _interval(values: list[float]) -> Estimate | None:
    return prediction_interval(values) if len(values) > 1 else None


def _parts(runs: tuple[OneRun, ...]) -> tuple[Part, ...]:
    parts = [run.parts() for run in runs]
    # without knowing which worker made a step, there is no gap between its steps
    known = all(step.worker >= 0 for run in runs for step in run.steps)
    found = []
    for name in parts[0]:
        values = np.concatenate([part[name] for part in parts])
        if len(values) and (known or name != "gap"):
            middle, high = np.quantile(values, [0.5, 0.95])
            found.append(Part(name, float(values.mean()), float(middle), float(high)))
    return tuple(found)


def _tasks(job: str, run: OneRun) -> int:
    return sum(one.task.startswith(job) for one in run.used)


def _job(job: str, runs: tuple[OneRun, ...], *, shaped: bool) -> Job:
    cpu = [run.cpu_s(job) for run in runs]
    return Job(
        job=job,
        tasks=_tasks(job, runs[0]),
        sent_bytes=float(np.mean([run.sent_bytes(job) for run in runs])) if shaped else None,
        cpu_s=float(np.mean(cpu)),
        cpu_s_per_step=float(sum(cpu) / sum(len(run.steps) for run in runs)),
    )
