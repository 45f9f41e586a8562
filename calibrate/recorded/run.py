"""A run as it was recorded: a row for each step, or for each mean of several, what lay between steps, and what is known of the run."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from simulator.base.errors import InputError
from simulator.base.text import no_such_file

MOST_BYTES = 2 * 2**30
"""Of one file."""
_AT_ONCE = 2**24
_LONGEST_LINE = 2**20
_ENDS = re.compile(rb"\r\n|\n|\r|\x08+")


class GrowingFile:
    """A file whose new bytes are read where the last reading ended.

    Parameters
    ----------
    path
        The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.place = 0

    def read(self, most: int = _AT_ONCE) -> bytes:
        """The next bytes, at most as many as this; b"" where nothing is new.

        Raises
        ------
        InputError
            The file is not there, cannot be read, is too large, or is shorter than before.
        """
        try:
            with self.path.open("rb") as file:
                file.seek(0, 2)
                size = file.tell()
                if size > MOST_BYTES:
                    raise InputError(f"{self.path}: is larger than {MOST_BYTES // 2**30} GiB; give a part of it")
                if size < self.place:
                    raise InputError(f"{self.path}: has become shorter while it was read; begin again")
                file.seek(self.place)
                content = file.read(most)
        except FileNotFoundError:
            raise InputError(f"{self.path}: {no_such_file(self.path)}") from None
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise InputError(f"{self.path}: cannot be read: {reason or type(error).__name__}") from None
        self.place += len(content)
        return content


class Lines:
    """The lines of a growing file, each once, when it is whole.

    Parameters
    ----------
    path
        The file.
    returns
        Whether a carriage return or backspaces end a line too, as where a progress bar is drawn anew.

    Attributes
    ----------
    count
        Lines until now, which is the number of the last one.
    rest
        What stands behind the last whole line: a line that is still written, or was cut off.
    """

    def __init__(self, path: Path, *, returns: bool = False) -> None:
        self._file = GrowingFile(path)
        self._ends = _ENDS if returns else re.compile(rb"\r?\n")
        self.path = path
        self.count = 0
        self.rest = b""

    def new(self) -> Iterator[tuple[int, str]]:
        """Number and text of each new line.

        Raises
        ------
        InputError
            As for :meth:`GrowingFile.read`; or a line is too long, or no text in UTF-8.
        """
        while content := self._file.read():
            *whole, self.rest = self._ends.split(self.rest + content)
            for line in whole:
                self.count += 1
                yield self.count, self._text(line)
            if len(self.rest) > _LONGEST_LINE:
                raise InputError(f"{self.path}:{self.count + 1}: is longer than {_LONGEST_LINE // 2**20} MiB; is this a file of lines?")

    def _text(self, line: bytes) -> str:
        try:
            return line.decode("utf-8-sig" if self.count == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"{self.path}:{self.count}: is no text in UTF-8 (byte {error.start})") from None


Array = NDArray[np.float64]

Source = Literal["steps file", "table", "event files", "log", "profile"]
"""The kinds of files that steps are read from."""

Each = Literal["step", "interval", "epoch"]
"""What a row is the mean of: one step, some steps, or all those of an epoch."""

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
"""Largest number of a step: sums of so many rows still fit into 64 bits."""


@dataclass(frozen=True)
class Facts:
    """What a file says of its run; None, "" or () where it does not.

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
    """What lies between two steps and is part of neither.

    Attributes
    ----------
    what
        ``epoch`` (its begin), ``evaluation``, ``checkpoint``, ``restart`` (the process began anew), or a name that the user gave.
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


_NUMBERS = ("duration_s", "end_s", "cpu_s", "sent_bytes", "received_bytes", "compute_s", "input_s", "others_s")


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
    _said: int = 0
    _numbers: dict[str, array[float]] = field(default_factory=lambda: {name: array("d") for name in _NUMBERS})
    _wholes: dict[str, array[int]] = field(default_factory=lambda: {name: array("q") for name in ("steps", "counts")})

    def __len__(self) -> int:
        """Rows until now."""
        return len(self._numbers["duration_s"])

    @property
    def last_step(self) -> int:
        """The number of the last row's step; 0 where there is none."""
        return self._wholes["steps"][-1] if len(self) else 0

    def add(self, step: int, duration_s: float, *, count: int = 1, **numbers: float) -> None:
        """Add a row; figures as of :class:`RecordedRun`, which are not known where they are left out.

        Raises
        ------
        InputError
            It is one too many, or its step has no number that a training reaches.
        """
        if len(self) >= MOST_ROWS:
            raise InputError(f"{self.source}: holds more than {MOST_ROWS:,} steps; give a part of it")
        if not max(abs(step), count) <= MOST_STEPS:
            raise InputError(f"{self.source}: a step is number {step}, of {count} steps; each must be at most {MOST_STEPS:,}")
        self._wholes["steps"].append(step)
        self._wholes["counts"].append(count)
        for name, values in self._numbers.items():
            values.append(duration_s if name == "duration_s" else numbers.get(name, math.nan))

    def amend(self, step: int, duration_s: float | None = None, *, count: int | None = None) -> None:
        """The last row ends with another step; None: its mean, or the steps that this is of, stay."""
        self._wholes["steps"][-1] = step
        if count is not None:
            self._wholes["counts"][-1] = count
        if duration_s is not None:
            self._numbers["duration_s"][-1] = duration_s

    def others(self, taken_s: float) -> None:
        """Others took so much processor time since this was said last."""
        rows = range(self._said, len(self))
        steps = sum(self._wholes["counts"][row] for row in rows)
        for row in rows:
            self._numbers["others_s"][row] = taken_s / steps
        self._said = len(self)

    def mark(self, what: str, duration_s: float = math.nan) -> None:
        """Something lies between the last row and the next."""
        self.marks.append(Mark(what, len(self), duration_s))

    def remark(self, sentence: str) -> None:
        """Say something once."""
        if sentence not in self.remarks:
            self.remarks.append(sentence)

    def run(self) -> RecordedRun:
        """What was read until now."""
        arrays: dict[str, Any] = {name: np.array(values) for name, values in (self._wholes | self._numbers).items()}
        known = self.source, self.kind, self.worker, self.facts, self.each
        return RecordedRun(*known, **arrays, marks=tuple(self.marks), ended=self.ended, remarks=tuple(self.remarks))
