"""All that is shown of a testbed run: plain data for JSON, tables, and remarks.

``TestbedRun.to_dict`` is what ``paceline testbed run --json`` and ``show --json`` print. The figures come from readings.py.
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
from calibrate.testbed.readings import OneRun, Readings, faults_of, lost_steps, read_run
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
RATE_COLUMNS = (Column("mean", "throughput"), Column("low", "throughput", "90% from"), Column("high", "throughput", "to"))
"""Of a rate with its 90% interval."""
_WAITS = {
    "ring": {"push": "all-reduce and wait"},
    "mirrored": {"push": "all-reduce and wait"},
    "sync": {"push": "push and wait"},
}
"""Parts of a step for synchronous workers."""
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
    """Content of a file of testbed measurements; a table in notebooks.

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
        yield f"{counted(len(self.repeats), 'repeat')}{'' if self.complete else ', fewer than requested'}"
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
        setting, measured, runs = readings.setting, readings.file, readings.runs
        checks = {check.repeat: check.bytes_per_s for check in measured.of(LinkCheck)}
        samples = setting.samples_per_update
        numbers = [record.repeat for record in measured.of(Repeat)]
        repeats = tuple(
            MeasuredRepeat(
                number, run.updates, run.seconds, run.updates_per_s, run.updates_per_s * samples, run.mean_staleness, checks.get(number)
            )
            for number, run in zip(numbers, runs, strict=True)
        )
        faults = [
            MeasuredFault(
                number, f"{fault.of} {fault.number}", fault.killed_s, fault.detection_s, fault.started_s, fault.back_s, fault.lost_s
            )
            for number, run in zip(numbers, runs, strict=True)
            for fault in faults_of(run)
        ]
        shaped = setting.link is not None
        sent = [max((task.sent_bytes for task in run.used), default=0.0) for run in runs]
        return cls(
            file=str(measured.path),
            label=setting.label,
            hash=setting.hash,
            setting=setting.model_dump(mode="json"),
            machine=measured.fingerprint.model_dump(mode="json", exclude={"kind"}),
            repeats=repeats,
            updates_per_s=_interval([repeat.updates_per_s for repeat in repeats]),
            samples_per_s=_interval([repeat.samples_per_s for repeat in repeats]),
            staleness=dict(sorted(readings.staleness.items())),
            parts=_parts(runs),
            jobs=tuple(_job(job, runs, shaped=shaped) for job in _JOBS if any(_tasks(job, run) for run in runs)),
            loopback_bytes=None if shaped else float(np.mean(sent)),
            asked_link_bytes_per_s=None if setting.link is None else setting.link.bandwidth_bytes_per_s,
            pulled_dense=tuple(sorted({name for note in measured.of(Note) for name in note.pulled_dense})),
            complete=measured.complete,
            failure=measured.failure.message if measured.failure else None,
            faults=tuple(faults),
            lost_steps=tuple(lost_steps(run) for run in runs) if setting.faults else (),
        )

    @property
    def mean_updates_per_s(self) -> float:
        """Over the repeats."""
        return math.fsum(repeat.updates_per_s for repeat in self.repeats) / len(self.repeats)

    @property
    def mean_staleness(self) -> float | None:
        """Over the repeats; None where all workers step together."""
        means = [repeat.mean_staleness for repeat in self.repeats if repeat.mean_staleness is not None]
        return math.fsum(means) / len(means) if means else None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON has them."""
        data = dataclasses.asdict(self)
        for name in ("updates_per_s", "samples_per_s"):
            value: Estimate | None = getattr(self, name)
            data[name] = None if value is None else value.model_dump()
        if not self.setting.get("faults"):
            del data["faults"], data["lost_steps"]
        return data

    def to_frame(self) -> pd.DataFrame:
        """The repeats as a pandas table, one row each."""
        return Table.of([dataclasses.asdict(repeat) for repeat in self.repeats]).to_frame()

    def _repr_html_(self) -> str:
        return self.tables()[0].to_html()

    def lines(self) -> tuple[str, ...]:
        """Lines of text on what ran, and how fast its links were."""
        setting, machine = self.setting, self.machine
        cores = f", {machine['cores']} cores" if "cores" in machine else ""
        lines = [
            f"{setting['steps']} steps per worker, batch {setting['batch']}, {counted(len(self.repeats), 'repeat')}; "
            f"TensorFlow {machine['tensorflow']} on {machine['device_name']}{cores}"
        ]
        rates = [repeat.link_bytes_per_s for repeat in self.repeats if repeat.link_bytes_per_s is not None]
        asked = self.asked_link_bytes_per_s
        if asked is not None and rates:
            low, high = format_rate(min(rates)), format_rate(max(rates))
            moved = low if low == high else f"{low} to {high}"
            share = format_share(math.fsum(rates) / len(rates) / asked)
            lines.append(f"links: asked {format_rate(asked)}, plain sockets moved {moved} ({share})")
        return tuple(lines)

    def tables(self) -> tuple[Table, ...]:
        """Repeats, the interval of the next one, staleness, parts of a step, jobs."""
        shown = (
            (self._repeats, True), (self._next, self.updates_per_s is not None), (self._faults, bool(self.faults)),
            (self._histogram, bool(self.staleness)), (self._step, True), (self._by_job, True),
        )  # fmt: skip
        return tuple(made() for made, there in shown if there)

    def remarks(self) -> tuple[str, ...]:
        """Sentences that a reader of the tables has to know."""
        remarks = []
        if self.loopback_bytes is not None and self.setting["mode"] not in ("mirrored", "apart"):
            remarks.append(f"all tasks share the loopback interface, which carried {format_bytes(self.loopback_bytes)} per repeat")
        if self.setting["overlap"]:
            remarks.append("by layer: compute begins with the first available variable, and other pulls and pushes overlap with it")
        if self.pulled_dense:
            names = ", ".join(self.pulled_dense[:_NAMED]) + (", ..." if len(self.pulled_dense) > _NAMED else "")
            remarks.append(f"real compute pulled sparse variables in full: {names}")
        if self.lost_steps:
            remarks.append(f"lost and repeated steps, by repeat: {', '.join(map(str, self.lost_steps))}")
        if self.updates_per_s is None:
            remarks.append("one repeat gives no interval: measure at least 2 repeats")
        if self.failure is not None:
            remarks.append(f"the run failed after these repeats: {' '.join(self.failure.split())}")
        elif not self.complete:
            remarks.append("the run was stopped early; only complete repeats are shown")
        return tuple(remarks)

    def _repeats(self) -> Table:
        rows = tuple((repeat.repeat + 1, *dataclasses.astuple(repeat)[1:-1]) for repeat in self.repeats)
        columns = (
            Column("repeat", "count"),
            Column("updates", "count"),
            Column("seconds", "seconds", "time"),
            Column("updates_per_s", "throughput", "updates/s"),
            Column("samples_per_s", "throughput", "samples/s"),
            Column("mean_staleness", "number", "mean staleness"),
        )
        return Table("Repeats", columns, rows).without_empty_columns()

    def _next(self) -> Table:
        rates = (("updates/s", self.updates_per_s), ("samples/s", self.samples_per_s))
        rows = tuple((name, rate.mean, rate.low, rate.high) for name, rate in rates if rate is not None)
        return Table("The next repeat", (Column("rate", "text"), *RATE_COLUMNS), rows)

    def _faults(self) -> Table:
        rows = tuple((fault.repeat + 1, *dataclasses.astuple(fault)[1:]) for fault in self.faults)
        columns = (
            Column("repeat", "count"),
            Column("killed", "text"),
            Column("at_s", "seconds", "at"),
            Column("noticed_after_s", "seconds", "detected after"),
            Column("started_again_s", "seconds", "restarted at"),
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
        return Table("Staleness: updates between read and own update", columns, rows)

    def _step(self) -> Table:
        mode = self.setting["mode"]
        names = {"gap": "gap before the next step"} | _WAITS.get(mode, {})
        shown = [part for part in self.parts if part.name not in _WITHOUT.get(mode, ())]
        rows = tuple((names.get(part.name, part.name), part.mean_s, part.p50_s, part.p95_s) for part in shown)
        columns = (Column("part", "text"), *(Column(f"{name}_s", "seconds", name) for name in ("mean", "p50", "p95")))
        return Table("Parts of a step", columns, rows)

    def _by_job(self) -> Table:
        rows = tuple(map(dataclasses.astuple, self.jobs))
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
    for run in runs:
        interval = run.updates_per_s
        low, high = (None, None) if interval is None else (interval.low, interval.high)
        rows.append((run.label, run.mean_updates_per_s, low, high, run.mean_staleness))
    columns = (
        Column("setting", "text"),
        Column("updates_per_s", "throughput", "updates/s"),
        Column("low", "throughput", "90% from"),
        Column("high", "throughput", "to"),
        Column("mean_staleness", "number", "staleness"),
    )
    return Table("All files", columns, tuple(rows))


def _interval(values: list[float]) -> Estimate | None:
    return prediction_interval(values) if len(values) > 1 else None


def _parts(runs: tuple[OneRun, ...]) -> tuple[MeasuredPart, ...]:
    parts = [run.parts() for run in runs]
    # without knowing which worker made a step, there is no gap between its steps
    known = all(step.worker >= 0 for run in runs for step in run.steps)
    measured = []
    for name in parts[0]:
        values = np.concatenate([part[name] for part in parts])
        if len(values) and (known or name != "gap"):
            middle, high = np.quantile(values, [0.5, 0.95])
            measured.append(MeasuredPart(name, float(values.mean()), float(middle), float(high)))
    return tuple(measured)


def _tasks(job: str, run: OneRun) -> int:
    return sum(task.task.startswith(job) for task in run.used)


def _job(job: str, runs: tuple[OneRun, ...], *, shaped: bool) -> MeasuredJob:
    cpu = [run.cpu_s(job) for run in runs]
    return MeasuredJob(
        job=job,
        tasks=_tasks(job, runs[0]),
        sent_bytes=float(np.mean([run.sent_bytes(job) for run in runs])) if shaped else None,
        cpu_s=float(np.mean(cpu)),
        cpu_s_per_step=float(math.fsum(cpu) / sum(len(run.steps) for run in runs)),
    )
