"""A run as it was recorded: a row for each step, or for each mean of several, what lay between steps, and what is known of the run."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from simulator.base.errors import InputError

Array = NDArray[np.float64]

Source = Literal["steps file", "table", "event files", "log", "profile"]
"""The kinds of files that steps are read from."""

Each = Literal["step", "interval", "epoch"]
"""Steps of which a row is the mean: one step, some steps, or all steps of an epoch."""

SECONDS_OF: Mapping[str, Callable[[float, float], float]] = {
    **dict.fromkeys(("time_s", "step_time_s", "total_s"), lambda value, _: value),
    **dict.fromkeys(("time_ms", "step_time_ms"), lambda value, _: value * 1e-3),
    "time_us": lambda value, _: value * 1e-6,
    **dict.fromkeys(("rate", "steps_per_s"), lambda value, _: 1 / value if value else math.inf),
    "throughput": lambda value, samples: samples / value if value else math.inf,
}
"""Seconds of a step, by what a source calls its time: of the figure and of the samples of a step."""

MOST_ROWS = 2_000_000
"""Of one source."""
MOST_STEPS = 10**12
"""Largest number of a step: sums of this number of rows still fit into 64 bits."""


def thousand_times(ratio: float) -> str | None:
    """What times that are this multiple of the expected ones look like; None where their unit may be right."""
    if 300.0 <= ratio <= 3000.0:
        return "milliseconds read as seconds"
    return "seconds read as milliseconds" if 300.0 <= 1 / ratio <= 3000.0 else None


@dataclass(frozen=True)
class Facts:
    """Facts about a run in its file; None, "" or () where it does not.

    Attributes
    ----------
    workers
        Worker processes of the training.
    batch, global_batch
        Samples that each takes per step, and that all take together.
    devices_in_all
        Devices of all workers together (the world size).
    hostname, cpu, devices, cores
        Of the machine: its name, its processor, its accelerators, and processor cores that the process may use.
    model, parameters
        The name of the model, and how many numbers of it are trained.
    precision
        In which it is computed, such as ``float16``.
    tensorflow, started
        TensorFlow's version; when the run began, as ISO 8601.
    """

    workers: int | None = None
    batch: int | None = None
    global_batch: int | None = None
    devices_in_all: int | None = None
    hostname: str = ""
    cpu: str = ""
    devices: tuple[str, ...] = ()
    cores: int | None = None
    model: str = ""
    parameters: int | None = None
    precision: str = ""
    tensorflow: str = ""
    started: str = ""


@dataclass(frozen=True)
class Mark:
    """Time between two steps that belongs to neither.

    Attributes
    ----------
    what
        ``epoch`` (its start), ``evaluation``, ``checkpoint``, ``restart`` (the process restarted), or a name given by the user.
    row
        It lies before the row of this index; as many as there are rows: behind the last.
    duration_s
        How long it took; nan where that is not known.
    """

    what: str
    row: int
    duration_s: float


@dataclass(frozen=True)
class RecordedRun:
    """The steps of one worker as a file has them; arrays have the shape (rows,), and nan where nothing is known.

    Attributes
    ----------
    source, kind
        The file or folder, and what it is.
    worker
        Its name or rank where the source tells it, else "".
    facts
        What is known of the run.
    each
        What a row is the mean of.
    steps
        The number of the (last) step of each row, as the source counts.
    counts
        Of how many steps each row is the mean; 1 of epochs whose steps are not told.
    duration_s
        Seconds per step, from the end of the step before to its own, without what marks tell.
    end_s
        When it ended, on the source's clock, whose zero means nothing.
    cpu_s
        Processor seconds of the process, per step.
    sent_bytes, received_bytes
        Of the machine's network interfaces, per step.
    compute_s
        What the worker's device computes, per step.
    input_s
        Waiting for input, per step.
    others_s
        Processor time that others took of the cores that the process may use, per step.
    marks
        In the order of time.
    ended
        Whether the source says that the training came to its end.
    remarks
        What a reader should know, a sentence each: lines that were left out, how figures were made.
    """

    source: str
    kind: Source
    worker: str
    facts: Facts
    each: Each
    steps: NDArray[np.int64]
    counts: NDArray[np.int64]
    duration_s: Array
    end_s: Array
    cpu_s: Array
    sent_bytes: Array
    received_bytes: Array
    compute_s: Array
    input_s: Array
    others_s: Array
    marks: tuple[Mark, ...] = ()
    ended: bool = False
    remarks: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Rows."""
        return len(self.duration_s)

    @property
    def name(self) -> str:
        """Source and worker, for messages."""
        return f"{self.source} (worker {self.worker})" if self.worker else self.source


_WHOLE = "steps", "counts"
_SECONDS = "duration_s", "end_s", "cpu_s", "sent_bytes", "received_bytes", "compute_s", "input_s", "others_s"


def _no_rows() -> dict[str, array[Any]]:
    return {**{name: array("q") for name in _WHOLE}, **{name: array("d") for name in _SECONDS}}


@dataclass
class Growing:
    """A run that is being read: rows and marks are added, and :meth:`run` gives what there is."""

    source: str
    kind: Source
    worker: str = ""
    facts: Facts = field(default_factory=Facts)
    each: Each = "step"
    ended: bool = False
    marks: list[Mark] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    _rows: dict[str, array[Any]] = field(default_factory=_no_rows)
    _rows_with_others: int = 0

    def __len__(self) -> int:
        """Rows until now."""
        return len(self._rows["steps"])

    @property
    def last_step(self) -> int:
        """The number of the last row's step; 0 where there is none."""
        return self._rows["steps"][-1] if len(self) else 0

    def add(self, step: int, duration_s: float, *, count: int = 1, **numbers: float) -> None:
        """Add a row; figures as of :class:`RecordedRun`, which are not known where they are left out.

        Raises
        ------
        InputError
            It is one too many, or its step has no number that a training reaches.
        TypeError
            A row has no such figure.
        """
        if len(self) >= MOST_ROWS:
            raise InputError(f"{self.source}: has more than {MOST_ROWS:,} steps: give a part of it")
        if not max(abs(step), count) <= MOST_STEPS:
            raise InputError(f"{self.source}: a step is number {step}, of {count} steps; each must be at most {MOST_STEPS:,}")
        if unknown := numbers.keys() - self._rows.keys():
            raise TypeError(f"a row has no {', '.join(sorted(unknown))}")
        row = {"steps": step, "counts": count, "duration_s": duration_s, **numbers}
        for name, values in self._rows.items():
            values.append(row.get(name, math.nan))

    def amend(self, step: int, duration_s: float | None = None, *, count: int | None = None) -> None:
        """The last row ends with another step; None: its mean, or the steps that this is of, stay."""
        for name, value in {"steps": step, "counts": count, "duration_s": duration_s}.items():
            if value is not None:
                self._rows[name][-1] = value

    def add_time_of_others(self, taken_s: float) -> None:
        """Others took so much processor time since this was said last."""
        steps = sum(self._rows["counts"][self._rows_with_others :])
        for row in range(self._rows_with_others, len(self)):
            self._rows["others_s"][row] = taken_s / steps
        self._rows_with_others = len(self)

    def mark(self, what: str, duration_s: float = math.nan) -> None:
        """Something lies between the last row and the next."""
        self.marks.append(Mark(what, len(self), duration_s))

    def remark(self, sentence: str) -> None:
        """Say something once."""
        if sentence not in self.remarks:
            self.remarks.append(sentence)

    def run(self) -> RecordedRun:
        """Return what was read until now."""
        rows: dict[str, Any] = {name: np.array(values) for name, values in self._rows.items()}
        known = self.source, self.kind, self.worker, self.facts, self.each
        return RecordedRun(*known, **rows, marks=tuple(self.marks), ended=self.ended, remarks=tuple(self.remarks))
