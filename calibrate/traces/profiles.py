"""Arranges profiles by batch size, and reports what they tell of a training step: its parts and its longest operations.

It works with or without the sizes of the model's variables, which a profile does not tell; a workload needs them
(:mod:`calibrate.fit.profile`).
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from calibrate.traces import kineto
from calibrate.traces.steps import Bucket, MeasuredStep, StepsOfProfile, buckets_of, steps_of
from calibrate.traces.trace import Collective, Op, Trace
from calibrate.traces.variables import gradient_ops
from calibrate.traces.xplane import profile_files, read_profiles, trace_of
from simulator.base.errors import InputError
from simulator.base.table import Column, Table
from simulator.base.text import Short, counted, listed

if TYPE_CHECKING:
    import pandas as pd

_LONGEST = 10
_SHOWN = 5
_BATCH = Column("batch", "count", meaning="samples per step")
_STEPS = (
    _BATCH,
    Column("steps", "count"),
    Column("mean_s", "seconds", "step", "time from the start of a step to the start of the next"),
    Column("p5_s", "seconds", "p5"),
    Column("median_s", "seconds", "median"),
    Column("p95_s", "seconds", "p95"),
)
_PARTS = (
    _BATCH,
    Column("forward_s", "seconds", "forward", "forward pass; includes backward and apply if no operation is named as a gradient's"),
    Column("backward_s", "seconds", "backward"),
    Column("apply_s", "seconds", "apply"),
    Column("input_s", "seconds", "input wait"),
    Column("prepare_s", "seconds", "input during compute", "time to prepare a batch during computation"),
    Column("collective_s", "seconds", "exposed", "collectives while a device did not compute"),
    Column("hidden_s", "seconds", "hidden", "collectives while it did"),
    Column("idle_s", "seconds", "idle", "neither; a part of the passes"),
)
_COLLECTIVES = (
    _BATCH,
    Column("collective", "text"),
    Column("dtype", "text"),
    Column("size_bytes", "bytes", "size"),
    Column("group", "text"),
    Column("ranks", "count"),
    Column("calls", "number", "calls", "per step"),
    Column("median_s", "seconds", "median"),
    Column("bus_bytes_per_s", "rate", "bus", "bandwidth of the fastest, as nccl-tests counts it; the others wait longer"),
)
_BUCKETS = (
    _BATCH,
    Column("number", "count", "bucket"),
    Column("collective", "text"),
    Column("size_bytes", "bytes", "size"),
    Column("ranks", "count"),
    Column("ready", "share", "ready", "share of the backward pass"),
    Column("ready_s", "seconds", "after", "since the beginning of the backward pass"),
    Column("start_s", "seconds", "begins"),
    Column("seconds", "seconds", "takes"),
)
_OPERATIONS = (
    _BATCH,
    Column("operation", "text"),
    Column("what", "text", "it"),
    Column("calls", "number", "calls per step"),
    Column("seconds", "seconds", "time per step"),
    Column("size_bytes", "bytes", "moved per step"),
)


class Total(NamedTuple):
    """Operations of one name or kind, as means over the steps.

    Attributes
    ----------
    name
        Of the operations.
    calls
        A step.
    seconds
        A step, added up over those that run at the same time.
    size_bytes
        A step, where recorded; else 0.
    """

    name: str
    calls: float
    seconds: float
    size_bytes: float


class CollectiveTotal(NamedTuple):
    """Equal collectives of the steps of one batch size; fields as those of :class:`Collective`.

    Attributes
    ----------
    collective, dtype, size_bytes, group, ranks
        What is known of it: ``ranks`` are how many take part.
    calls
        A step.
    median_s, fastest_s
        Seconds of one, with waiting for the slowest rank.
    bus_bytes_per_s
        Of the fastest; 0 where the size is not recorded.
    """

    collective: str
    dtype: str
    size_bytes: float
    group: str
    ranks: int
    calls: float
    median_s: float
    fastest_s: float
    bus_bytes_per_s: float


@dataclass(frozen=True)
class ProfileReport:
    """The steps of one batch size, in seconds.

    Attributes
    ----------
    batch
        Samples a step.
    steps
        How many.
    mean_s, p5_s, median_s, p95_s
        Of a step, from its beginning to the next one's.
    input_s, prepare_s
        Mean wait for input, and time to prepare a batch during computation.
    forward_s, backward_s, apply_s
        Means; backward and apply are None where no operation is named as a gradient's.
    collective_s, hidden_s, idle_s
        Means of collectives while a device did not compute, and while it did; and of neither.
    communication, longest
        Collectives, transfers and copies by kind; the operations that take the most time.
    gradients
        Operations of the backward pass in the order in which they end, with the share of the
        pass after which they do.
    collectives, buckets
        Where their sizes or their groups are recorded: all of them, and those that reduce gradients.
    """

    batch: int
    steps: int
    mean_s: float
    p5_s: float
    median_s: float
    p95_s: float
    input_s: float
    prepare_s: float
    forward_s: float
    backward_s: float | None
    apply_s: float | None
    collective_s: float
    hidden_s: float
    idle_s: float
    communication: tuple[Total, ...]
    longest: tuple[Total, ...]
    gradients: tuple[tuple[str, float], ...]
    collectives: tuple[CollectiveTotal, ...] = ()
    buckets: tuple[Bucket, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as for JSON."""
        rows = {key: [row._asdict() for row in getattr(self, key)] for key in ("communication", "longest", "collectives", "buckets")}
        return {**vars(self), **rows}


@dataclass(frozen=True, repr=False)
class Profiled(Short):
    """The profiles of one or more batch sizes.

    Attributes
    ----------
    by_batch
        Batch size -> the profiles of that size, one a run and host.
    """

    see: ClassVar[str] = "to_frame() has a row per batch size; paceline.calibrate_profile(profiled, ...) fits a workload"

    by_batch: dict[int, tuple[StepsOfProfile, ...]]

    def _in_short(self) -> Iterator[str]:
        yield counted(self.count, "step")
        yield f"of {listed([f'{batch:,}' for batch in self.batches])} samples"
        yield counted(len(self.profiles), "profile")

    @property
    def batches(self) -> list[int]:
        """Batch sizes, ascending."""
        return sorted(self.by_batch)

    @property
    def profiles(self) -> list[StepsOfProfile]:
        """All of them, by batch size."""
        return [profile for batch in self.batches for profile in self.by_batch[batch]]

    @property
    def reports(self) -> list[ProfileReport]:
        """Return what they tell, by batch size."""
        return [_report(batch, self.by_batch[batch]) for batch in self.batches]

    @property
    def count(self) -> int:
        """Steps in all."""
        return sum(len(profile.steps) for profile in self.profiles)

    @property
    def sized(self) -> bool:
        """They tell sizes of gradients: those of variables, or of buckets."""
        return any(profile.trace.gradients or any(own.size_bytes for own in buckets_of(profile.steps)) for profile in self.profiles)

    def tables(self) -> list[Table]:
        """Return what they tell, for a reader: steps and their parts by batch size, the longest operations, collectives, and buckets."""
        reports = self.reports
        steps = [vars(report) for report in reports]
        operations = [
            {"batch": report.batch, "operation": total.name, "what": what, **total._asdict()}
            for report in reports
            for what, totals in (("computes", report.longest), ("communicates", report.communication))
            for total in totals[:_SHOWN]
        ]

        def each(key: str) -> list[dict[str, Any]]:
            return [{"batch": report.batch, **row._asdict()} for report in reports for row in vars(report)[key]]

        tables = (
            ("Steps in the profiles", _STEPS, steps, ""),
            ("Parts of a step", _PARTS, steps, "Means over the steps."),
            ("Operations, as means over the steps", _OPERATIONS, operations, ""),
            ("Collectives", _COLLECTIVES, each("collectives"), ""),
            ("Buckets of gradients, as medians over the steps", _BUCKETS, each("buckets"), ""),
        )
        return [
            Table(title, columns, tuple(tuple(row[column.name] or None for column in columns) for row in rows), note=note)
            for title, columns, rows, note in tables
            if rows or columns is _OPERATIONS
        ]

    def to_frame(self) -> pd.DataFrame:
        """A row for each batch size, times in seconds."""
        names = [*(column.name for column in _STEPS), *(column.name for column in _PARTS[1:])]
        return Table.of([{name: vars(report)[name] for name in names} for report in self.reports]).to_frame()

    def _repr_html_(self) -> str:
        return "".join(table.to_html() for table in self.tables())


def read_steps(
    places: Sequence[tuple[Path, int]], run: str | None = None, python: str | None = None, timeout_s: float | None = None
) -> Profiled:
    """Read profiles and find their steps.

    ``places`` are pairs of a log directory, the folder of a run or a file, and the samples per step in it; ``run`` is the name of the
    profiling run in each log directory, None the newest.

    Raises
    ------
    InputError
        There is no profile, or it cannot be read.
    CalibrationError
        It has no steps.
    """
    if not places:
        raise InputError("`profiles`: give at least one log directory")
    bad = next((batch for _, batch in places if batch < 1), None)
    if bad is not None:
        raise InputError(f"`profiles`: {bad} samples per step: must be at least 1")
    files = [(file, batch) for place, batch in places for file in profile_files(place, run, kineto.SUFFIXES)]
    for file, count in Counter(file for file, _ in files).items():
        if count > 1:
            raise InputError(f"`profiles`: {file} is given twice: give each profile once")
    by_batch: dict[int, tuple[StepsOfProfile, ...]] = {}
    for trace, (_, batch) in zip(_read_traces([file for file, _ in files], python, timeout_s), files, strict=True):
        by_batch[batch] = (*by_batch.get(batch, ()), steps_of(trace))
    return Profiled(by_batch)


def _read_traces(files: Sequence[Path], python: str | None, timeout_s: float | None) -> list[Trace]:
    """Read traces of any kind; XPlane's in one process of ``python``."""
    others = [file for file in files if not file.name.endswith(kineto.SUFFIXES)]
    read = dict(zip(others, map(trace_of, read_profiles(others, python, timeout_s)), strict=True)) if others else {}
    return [read[file] if file in read else kineto.read_trace(file) for file in files]


def _report(batch: int, profiles: Sequence[StepsOfProfile]) -> ProfileReport:
    """Summarise all steps of one batch size; ``profiles`` has at least one, each with at least one step."""
    steps = [step for profile in profiles for step in profile.steps]
    whole = np.array([step.whole_s for step in steps])
    p5, median, p95 = (float(value) for value in np.quantile(whole, [0.05, 0.5, 0.95]))
    split = [step for step in steps if step.backward_s is not None]
    return ProfileReport(
        batch=batch,
        steps=len(steps),
        mean_s=float(whole.mean()),
        p5_s=p5,
        median_s=median,
        p95_s=p95,
        input_s=_mean([step.input_s for step in steps]),
        prepare_s=_mean([profile.trace.input.prepare_s for profile in profiles]),
        forward_s=_mean([step.forward_s for step in split or steps]),
        backward_s=_mean([step.backward_s or 0.0 for step in split]) if split else None,
        apply_s=_mean([step.apply_s or 0.0 for step in split]) if split else None,
        collective_s=_mean([step.collective_s for step in steps]),
        hidden_s=_mean([step.hidden_s for step in steps]),
        idle_s=_mean([step.idle_s for step in steps]),
        communication=_totals(steps, moving=True),
        longest=_totals(steps, moving=False)[:_LONGEST],
        # operators of PyTorch are not named after variables
        gradients=tuple((op.path, round(op.ready, 4)) for op in gradient_ops(steps) if not profiles[0].trace.by_launch),
        collectives=_collectives(steps),
        buckets=tuple(buckets_of(steps)),
    )


def _collectives(steps: Sequence[MeasuredStep]) -> tuple[CollectiveTotal, ...]:
    """Equal collectives together, those that take most time first."""
    seconds: dict[Collective, list[float]] = defaultdict(list)
    for op in itertools.chain.from_iterable(step.ops for step in steps):
        if op.collective is not None:
            seconds[op.collective].append(op.end_s - op.start_s)
    longest = sorted(seconds.items(), key=lambda item: -math.fsum(item[1]))
    return tuple(
        CollectiveTotal(
            own.name, own.dtype, own.size_bytes, own.group, own.size, len(times) / len(steps), float(np.median(times)), min(times),
            own.bus_bytes / min(times) if min(times) > 0 else 0.0,
        )
        for own, times in longest
    )  # fmt: skip


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _totals(steps: Sequence[MeasuredStep], *, moving: bool) -> tuple[Total, ...]:
    """Operations that move data, or those that compute, by kind; those that take most time first."""
    ops: dict[str, list[Op]] = defaultdict(list)
    for op in itertools.chain.from_iterable(step.ops for step in steps):
        if op.kind and moving == (op.role in ("communication", "copy")):
            ops[op.kind].append(op)
    count = len(steps)
    totals = (
        Total(
            kind, len(own) / count, math.fsum(op.end_s - op.start_s for op in own) / count, math.fsum(op.size_bytes for op in own) / count
        )
        for kind, own in ops.items()
    )
    return tuple(sorted(totals, key=lambda total: (-total.seconds, total.name)))
