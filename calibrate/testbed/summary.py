"""All that is shown of a testbed run: plain data for JSON, tables, and remarks.

``TestbedRun.to_dict`` is what ``paceline testbed run --json`` and ``show --json`` print. The figures come from readings.py and jobs.py.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from calibrate.measurements import LinkCheck, Note, Repeat
from calibrate.testbed.jobs import faults_of, lost_steps
from calibrate.testbed.readings import OneRun, Readings, read_run
from simulator.base.table import Column, Table
from simulator.base.text import Short, counted, estimated, format_bytes, format_rate, format_share
from simulator.results.intervals import prediction_interval
from simulator.spec.figures import Estimate

if TYPE_CHECKING:
    import pandas as pd

_JOBS = ("worker", "ps", "chief")
_WIDEST_BAR = 30
_MOST_BARS = 20
_NAMED = 4
_INTERVAL = (Column("mean", "throughput"), Column("low", "throughput", "90% from"), Column("high", "throughput", "to"))
_WAITS = {
    "ring": {"push": "all-reduce and wait"},
    "mirrored": {"push": "all-reduce and wait"},
    "sync": {"push": "push and wait"},
}
"""What the parts of a step are where workers step together."""
_WITHOUT = {"ring": ("pull",), "mirrored": ("pull",), "apart": ("pull", "push")}
"""Parts that a step does not have where every worker has its own copy of the model."""


@dataclass(frozen=True)
class MeasuredRepeat:
    """One repeat; ``link_bytes_per_s`` is what plain sockets moved between two hosts before it, None on loopback."""

    repeat: int
    updates: int
    seconds: float
    updates_per_s: float
    samples_per_s: float
    mean_staleness: float | None
    link_bytes_per_s: float | None


@dataclass(frozen=True)
class MeasuredPart:
    """Seconds of one part of a step, over the steps of all workers and repeats."""

    name: str
    mean_s: float
    p50_s: float
    p95_s: float


@dataclass(frozen=True)
class MeasuredJob:
    """All tasks of a job; bytes and CPU seconds are those of one repeat, on average.

    ``sent_bytes`` is None on loopback, where all tasks share one interface.
    """

    job: str
    tasks: int
    sent_bytes: float | None
    cpu_s: float
    cpu_s_per_step: float


@dataclass(frozen=True)
class MeasuredFault:
    """A task that was killed; times are seconds since the common start, None where the job had ended before.

    ``noticed_after_s`` is from the kill until a task heard of it, ``lost_s`` training since the last
    checkpoint that was destroyed.
    """

    repeat: int
    killed: str
    at_s: float
    noticed_after_s: float | None
    started_again_s: float | None
    back_s: float | None
    lost_s: float


@dataclass(frozen=True, repr=False)
class TestbedRun(Short):
    """What a file of measurements of the testbed holds; a table in notebooks.

    Attributes
    ----------
    file
        The raw measurements.
    label
        The setting in words.
    hash
        Content hash of the setting.
    setting, machine
        What ran, and on what.
    repeats
        Each that came to its end.
    updates_per_s, samples_per_s
        Mean over repeats and the 90% interval for the next one; None of a single repeat.
    staleness
        Updates by staleness, all repeats together; empty where all workers step together.
    parts
        Pull, compute and push of a step, and the gap from a worker's step to its next.
    jobs
        What the tasks of each job sent and computed.
    loopback_bytes
        Sent over the shared loopback interface in one repeat, on average; None with links.
    asked_link_bytes_per_s
        The rate that the links were shaped to; None on loopback.
    pulled_dense
        Sparse variables that real compute pulled whole.
    complete
        All repeats asked for have come to their end.
    failure
        Why the run stopped, if it said so.
    faults
        Of all repeats.
    lost_steps
        Steps that were made again, of each repeat; empty of a setting without faults.
    """

    __test__ = False  # pytest takes names that begin with Test for tests
    see: ClassVar[str] = "to_frame() has every repeat, .staleness and .parts the distributions"

    file: str
    label: str
    hash: str
    setting: dict[str, Any]
    machine: dict[str, Any]
    repeats: tuple[MeasuredRepeat, ...]
    updates_per_s: Estimate | None
    samples_per_s: Estimate | None
    staleness: dict[int, int]
    parts: tuple[MeasuredPart, ...]
    jobs: tuple[MeasuredJob, ...]
    loopback_bytes: float | None
    asked_link_bytes_per_s: float | None
    pulled_dense: tuple[str, ...]
    complete: bool
    failure: str | None
    faults: tuple[MeasuredFault, ...] = ()
    lost_steps: tuple[int, ...] = ()

    def _in_short(self) -> Iterator[str]:
        yield self.label
        if (rate := self.samples_per_s) is not None:
            yield estimated(rate.mean, rate.low, rate.high, "throughput", "samples/s")
        yield f"{counted(len(self.repeats), 'repeat')}{'' if self.complete else ', not all that were asked for'}"
        yield self.failure or ""

    @classmethod
    def read(cls, path: Path) -> TestbedRun:
        """Read a file of measurements; a repeat that was not ended is left out.

        Raises
        ------
        CalibrationError
            The file is damaged, is no testbed run, or holds no whole repeat.
        """
        return cls.of(read_run(path))

    @classmethod
    def of(cls, readings: Readings) -> TestbedRun:
        """All that is shown of one file of measurements."""
        setting, measured, runs = readings.setting, readings.files[0], readings.runs
        checks = {check.repeat: check.bytes_per_s for check in measured.of(LinkCheck)}
        samples = setting.samples_per_update
        repeats = tuple(
            MeasuredRepeat(
                repeat=record.repeat,
                updates=run.updates,
                seconds=run.seconds,
                updates_per_s=run.updates_per_s,
                samples_per_s=run.updates_per_s * samples,
                mean_staleness=run.mean_staleness,
                link_bytes_per_s=checks.get(record.repeat),
            )
            for record, run in zip(measured.of(Repeat), runs, strict=True)
        )
        shaped = setting.link is not None
        sent = [max((one.sent_bytes for one in run.used), default=0.0) for run in runs]
        return cls(
            file=str(measured.path),
            label=setting.label,
            hash=setting.hash,
            setting=setting.model_dump(mode="json"),
            machine=measured.fingerprint.model_dump(mode="json", exclude={"kind"}),
            repeats=repeats,
            updates_per_s=_interval([one.updates_per_s for one in repeats]),
            samples_per_s=_interval([one.samples_per_s for one in repeats]),
            staleness=dict(sorted(readings.staleness.items())),
            parts=_parts(runs),
            jobs=tuple(_job(job, runs, shaped=shaped) for job in _JOBS if any(_tasks(job, run) for run in runs)),
            loopback_bytes=None if shaped else float(np.mean(sent)),
            asked_link_bytes_per_s=None if setting.link is None else setting.link.bandwidth_bytes_per_s,
            pulled_dense=tuple(sorted({name for note in measured.of(Note) for name in note.pulled_dense})),
            complete=measured.complete,
            failure=measured.failure.message if measured.failure else None,
            faults=tuple(
                MeasuredFault(one.repeat, f"{its.of} {its.number}", its.killed_s, its.detection_s, its.started_s, its.back_s, its.lost_s)
                for one, run in zip(repeats, runs, strict=True)
                for its in faults_of(run)
            ),
            lost_steps=tuple(lost_steps(run) for run in runs) if setting.faults else (),
        )

    @property
    def mean_updates_per_s(self) -> float:
        """Over the repeats."""
        return math.fsum(one.updates_per_s for one in self.repeats) / len(self.repeats)

    @property
    def mean_staleness(self) -> float | None:
        """Over the repeats; None where all workers step together."""
        means = [one.mean_staleness for one in self.repeats if one.mean_staleness is not None]
        return math.fsum(means) / len(means) if means else None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON has them."""
        found = dataclasses.asdict(self)
        for name in ("updates_per_s", "samples_per_s"):
            value: Estimate | None = getattr(self, name)
            found[name] = None if value is None else value.model_dump()
        if not self.setting.get("faults"):
            del found["faults"], found["lost_steps"]
        return found

    def to_frame(self) -> pd.DataFrame:
        """The repeats as a pandas table, one row each."""
        return Table.of([dataclasses.asdict(one) for one in self.repeats]).to_frame()

    def _repr_html_(self) -> str:
        return self.tables()[0].to_html()

    def lines(self) -> tuple[str, ...]:
        """What ran, and how fast its links were, as lines of text."""
        setting, machine = self.setting, self.machine
        cores = f", {machine['cores']} cores" if "cores" in machine else ""
        repeats = len(self.repeats)
        lines = [
            f"{setting['steps']} steps per worker, batch {setting['batch']}, {repeats} repeat{'s' if repeats > 1 else ''}; "
            f"TensorFlow {machine['tensorflow']} on {machine['device_name']}{cores}"
        ]
        rates = [one.link_bytes_per_s for one in self.repeats if one.link_bytes_per_s is not None]
        asked = self.asked_link_bytes_per_s
        if asked is not None and rates:
            low, high = format_rate(min(rates)), format_rate(max(rates))
            moved = low if low == high else f"{low} to {high}"
            share = format_share(math.fsum(rates) / len(rates) / asked)
            lines.append(f"links: asked {format_rate(asked)}, plain sockets moved {moved} ({share})")
        return tuple(lines)

    def tables(self) -> tuple[Table, ...]:
        """Repeats, the interval of the next one, staleness, parts of a step, jobs."""
        rates = () if self.updates_per_s is None or self.samples_per_s is None else (_next(self.updates_per_s, self.samples_per_s),)
        faults = (self._faults(),) if self.faults else ()
        return (self._repeats(), *rates, *faults, *((self._histogram(),) if self.staleness else ()), self._step(), self._by_job())

    def remarks(self) -> tuple[str, ...]:
        """What a reader of the tables has to know."""
        found = []
        if self.loopback_bytes is not None and self.setting["mode"] not in ("mirrored", "apart"):
            found.append(f"all tasks share the loopback interface, over which {format_bytes(self.loopback_bytes)} went in a repeat")
        if self.setting["overlap"]:
            found.append("by layer: compute begins with the first variable that is there; other pulls and pushes go on meanwhile")
        if self.pulled_dense:
            names = ", ".join(self.pulled_dense[:_NAMED]) + (", ..." if len(self.pulled_dense) > _NAMED else "")
            found.append(f"real compute pulled sparse variables whole: {names}")
        if self.lost_steps:
            found.append(f"steps that were lost and made again, by repeat: {', '.join(map(str, self.lost_steps))}")
        if self.updates_per_s is None:
            found.append("one repeat has no interval; measure 2 repeats or more")
        if self.failure is not None:
            found.append(f"the run failed after these repeats: {' '.join(self.failure.split())}")
        elif not self.complete:
            found.append("the run was stopped before its end; only whole repeats are shown")
        return tuple(found)

    def _repeats(self) -> Table:
        rows = tuple(
            (one.repeat + 1, one.updates, one.seconds, one.updates_per_s, one.samples_per_s, one.mean_staleness) for one in self.repeats
        )
        columns = (
            Column("repeat", "count"),
            Column("updates", "count"),
            Column("seconds", "seconds", "time"),
            Column("updates_per_s", "throughput", "updates/s"),
            Column("samples_per_s", "throughput", "samples/s"),
            Column("mean_staleness", "number", "mean staleness"),
        )
        return Table("Repeats", columns, rows).without_empty_columns()

    def _faults(self) -> Table:
        rows = tuple(
            (one.repeat + 1, one.killed, one.at_s, one.noticed_after_s, one.started_again_s, one.back_s, one.lost_s) for one in self.faults
        )
        columns = (
            Column("repeat", "count"),
            Column("killed", "text"),
            Column("at_s", "seconds", "at"),
            Column("noticed_after_s", "seconds", "noticed after"),
            Column("started_again_s", "seconds", "started again at"),
            Column("back_s", "seconds", "back at"),
            Column("lost_s", "seconds", "lost"),
        )
        return Table("Faults", columns, rows)

    def _histogram(self) -> Table:
        total = sum(self.staleness.values())
        bars = [(str(value), self.staleness.get(value, 0)) for value in range(max(self.staleness) + 1)]
        if len(bars) > _MOST_BARS:
            bars = [*bars[: _MOST_BARS - 1], (f"{_MOST_BARS - 1} and more", sum(count for _, count in bars[_MOST_BARS - 1 :]))]
        highest = max(count for _, count in bars)
        rows = tuple((name, count, count / total, "█" * round(_WIDEST_BAR * count / highest)) for name, count in bars)
        columns = (
            Column("staleness", left=False),
            Column("updates", "count"),
            Column("share", "share"),
            Column("bar", "text", " "),
        )
        return Table("Staleness: updates between read and own", columns, rows)

    def _step(self) -> Table:
        mode = self.setting["mode"]
        names = {"gap": "gap to the next step"} | _WAITS.get(mode, {})
        shown = [part for part in self.parts if part.name not in _WITHOUT.get(mode, ())]
        rows = tuple((names.get(part.name, part.name), part.mean_s, part.p50_s, part.p95_s) for part in shown)
        columns = (Column("part", "text"), *(Column(f"{name}_s", "seconds", name) for name in ("mean", "p50", "p95")))
        return Table("Parts of a step", columns, rows)

    def _by_job(self) -> Table:
        rows = tuple((job.job, job.tasks, job.sent_bytes, job.cpu_s, job.cpu_s_per_step) for job in self.jobs)
        columns = (
            Column("job", "text"),
            Column("tasks", "count"),
            Column("sent_bytes", "bytes", "sent"),
            Column("cpu_s", "seconds", "CPU time"),
            Column("cpu_s_per_step", "seconds", "CPU time per step"),
        )
        return Table("Jobs, per repeat", columns, rows).without_empty_columns()


def side_by_side(runs: Iterable[TestbedRun]) -> Table:
    """Several runs, one row each."""
    rows = []
    for one in runs:
        interval = one.updates_per_s
        low, high = (None, None) if interval is None else (interval.low, interval.high)
        rows.append((one.label, one.mean_updates_per_s, low, high, one.mean_staleness))
    columns = (
        Column("setting", "text"),
        Column("updates_per_s", "throughput", "updates/s"),
        Column("low", "throughput", "90% from"),
        Column("high", "throughput", "to"),
        Column("mean_staleness", "number", "staleness"),
    )
    return Table("All files", columns, tuple(rows))


def _next(updates_per_s: Estimate, samples_per_s: Estimate) -> Table:
    rows = tuple((name, one.mean, one.low, one.high) for name, one in (("updates/s", updates_per_s), ("samples/s", samples_per_s)))
    columns = (Column("rate", "text"), *_INTERVAL)
    return Table("The next repeat", columns, rows)


def _interval(values: list[float]) -> Estimate | None:
    return prediction_interval(values) if len(values) > 1 else None


def _parts(runs: tuple[OneRun, ...]) -> tuple[MeasuredPart, ...]:
    parts = [run.parts() for run in runs]
    # without knowing which worker made a step, there is no gap between its steps
    known = all(step.worker >= 0 for run in runs for step in run.steps)
    found = []
    for name in parts[0]:
        values = np.concatenate([part[name] for part in parts])
        if len(values) and (known or name != "gap"):
            middle, high = np.quantile(values, [0.5, 0.95])
            found.append(MeasuredPart(name, float(values.mean()), float(middle), float(high)))
    return tuple(found)


def _tasks(job: str, run: OneRun) -> int:
    return sum(one.task.startswith(job) for one in run.used)


def _job(job: str, runs: tuple[OneRun, ...], *, shaped: bool) -> MeasuredJob:
    cpu = [run.cpu_s(job) for run in runs]
    return MeasuredJob(
        job=job,
        tasks=_tasks(job, runs[0]),
        sent_bytes=float(np.mean([run.sent_bytes(job) for run in runs])) if shaped else None,
        cpu_s=float(np.mean(cpu)),
        cpu_s_per_step=float(math.fsum(cpu) / sum(len(run.steps) for run in runs)),
    )
