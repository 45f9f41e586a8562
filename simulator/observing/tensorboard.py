"""An observer that writes the course of a run as an event file for TensorBoard, without TensorFlow.

Event files are made of tensorboardX's protocol buffers. Its ``SummaryWriter`` is not used: it stamps files
with the clock and the name of the host, whereas here the same scenario gives the same bytes. Wall times are simulated seconds since
1970. Tags of scalars are called as the figures of a result (``step_time_s``, ``breakdown_s/compute``).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping
from operator import add
from pathlib import Path
from types import TracebackType
from typing import Any

from tensorboardX.proto.event_pb2 import Event
from tensorboardX.proto.summary_pb2 import HistogramProto, Summary
from tensorboardX.record_writer import masked_crc32c

from simulator.base.files import Output, OutputKind, check_folder
from simulator.base.records import Record, Step, Update
from simulator.resolve.drawing import as_workers
from simulator.scenario import Resolved
from simulator.spec.figures import Breakdown

EVENT_FILE = "events.out.tfevents.0.paceline"
"""In the folder given; written again by each run, so that a folder holds one run."""

_FIRST = Event(wall_time=0.0, file_version="brain.Event:2")


def _is_run(path: Path) -> bool:
    with path.open("rb") as file:
        return bool(file.read(len(_framed(_FIRST))) == _framed(_FIRST))


EVENTS = OutputKind("is not a run of Paceline", _is_run)
"""Runs that a new one may replace: TensorFlow's own begin with the time of a clock."""
_MOST_POINTS = 1000
_MOST_HISTOGRAMS = 50
_TAGS = "step_time_s", *(f"breakdown_s/{part}" for part in Breakdown.model_fields)


def _framed(event: Event) -> bytes:
    """An event as a record of a file: its length and itself, each with its check sum."""
    data: bytes = event.SerializeToString()
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc32c(length)) + data + struct.pack("<I", masked_crc32c(data))


def _event(at_s: float, step: int, values: Mapping[str, Any]) -> bytes:
    """Scalars or histograms of a step, by their tags."""
    named = ({"histo": value} if isinstance(value, HistogramProto) else {"simple_value": value} for value in values.values())
    summary = Summary(value=[Summary.Value(tag=tag, **value) for tag, value in zip(values, named, strict=True)])
    return _framed(Event(wall_time=at_s, step=step, summary=summary))


class TensorBoard:
    """Observes a run and writes its scalars and histograms, in bounded memory.

    A point is the mean over some steps of all replicas, few enough for the curve and
    many enough for at most a thousand points. Warm-up steps are shown as well. To be used
    in a ``with`` statement; the file appears at its end, if that is not an error.

    Parameters
    ----------
    folder
        TensorBoard's ``--logdir``, or a folder in it; made if it is not there.
    scenario
        What is simulated, resolved.
    force
        Replace the folder's file of this name whatever it is.

    Raises
    ------
    InputError
        The folder is a file, or cannot be made or written to, or its file of this name is not a run of Paceline.
    """

    def __init__(self, folder: Path, scenario: Resolved, *, force: bool = False) -> None:
        self._output = Output(check_folder(folder, "tensorboard") / EVENT_FILE, EVENTS, force=force, argument="tensorboard")
        self.file = self._output.path
        simulated = as_workers(scenario)  # whose steps are written: devices taken together are one
        self._replicas = simulated.ranks
        self._batch = simulated.batch / simulated.layout.ranks_per_replica
        total = simulated.run.total_steps(simulated.ranks)
        self._each = simulated.ranks * -(-total // (simulated.ranks * _MOST_POINTS))
        self._each_histogram = -(-total // (self._each * _MOST_HISTOGRAMS)) * self._each
        self._ended = 0
        self._opened_s = self._now_s = 0.0
        self._records = [_framed(_FIRST)]
        self._begin_point()
        self._begin_histograms()

    def _begin_point(self) -> None:
        self._sums = [0.0] * len(_TAGS)
        self._steps = self._stale = self._updates = 0
        self._opened_s = self._now_s

    def _begin_histograms(self) -> None:
        self._times, self._staleness = EventHistogram(whole=False), EventHistogram(whole=True)

    def __enter__(self) -> TensorBoard:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self._write_point()
            self._write_histograms()
            self._output.write(b"".join(self._records))

    def record(self, record: Record) -> None:
        """Take one record."""
        if isinstance(record, Update):
            self._stale += record.staleness
            self._updates += 1
            self._staleness.add(record.staleness)
        elif isinstance(record, Step):
            self._ended += 1
            self._now_s = record.end_s
            duration_s = record.end_s - record.start_s
            self._times.add(duration_s)
            parts = record.input_s, record.compute_s, record.communication_s, record.waiting_s, record.apply_s
            self._sums = list(map(add, self._sums, (duration_s, *parts)))
            self._steps += 1
            if self._ended % self._each == 0:
                self._write_point()
            if self._ended % self._each_histogram == 0:
                self._write_histograms()

    def _write_point(self) -> None:
        if not self._steps:
            return
        means = {tag: value / self._steps for tag, value in zip(_TAGS, self._sums, strict=True)}
        if self._now_s > self._opened_s:
            means["throughput_samples_per_s"] = self._steps * self._batch / (self._now_s - self._opened_s)
        if self._updates:
            means["staleness"] = self._stale / self._updates
        self._write(means)
        self._begin_point()

    def _write_histograms(self) -> None:
        named = ("distribution/step_time_s", self._times), ("distribution/staleness", self._staleness)
        self._write({tag: HistogramProto(**histogram.fields()) for tag, histogram in named if histogram.count})
        self._begin_histograms()

    def _write(self, values: Mapping[str, Any]) -> None:
        """At the number of steps that each replica has made, on average."""
        if values:
            self._records.append(_event(self._now_s, -(-self._ended // self._replicas), values))


class ScalarFiles:
    """Writes scalars of several runs, each into the event file of a folder of its own.

    Parameters
    ----------
    folder
        TensorBoard's ``--logdir``; made if it is not there.
    force
        Replace event files of Paceline's name whatever they are.

    Raises
    ------
    InputError
        It is a file, or cannot be written to.
    """

    def __init__(self, folder: Path, *, force: bool = False) -> None:
        self._folder, self._force = check_folder(folder, "tensorboard"), force

    def write(self, run: str, points: Iterable[tuple[float, int, Mapping[str, float]]]) -> Path:
        """Write a run: seconds, step, and values by their tags, in order; returns its file.

        Raises
        ------
        InputError
            There is a run of somebody else.
        """
        output = Output(self._folder / run / EVENT_FILE, EVENTS, force=self._force, argument="tensorboard")
        return output.write(_framed(_FIRST) + b"".join(_event(*point) for point in points))


class EventHistogram:
    """Counts values in bins: whole numbers each in its own, times in ones whose edges grow by 5%.

    Parameters
    ----------
    whole
        Whether the values are whole numbers.
    """

    _GROWTH = math.log(1.05)
    _LEAST = 1e-12

    def __init__(self, *, whole: bool) -> None:
        self._whole = whole
        self._bins: dict[int, int] = {}
        self._least, self._most = math.inf, -math.inf
        self._total = self._squares = 0.0
        self.count = 0

    def add(self, value: float) -> None:
        """Take a value, not negative."""
        key = int(value) if self._whole else math.floor(math.log(max(value, self._LEAST)) / self._GROWTH)
        self._bins[key] = self._bins.get(key, 0) + 1
        self._least, self._most = min(self._least, value), max(self._most, value)
        self._total += value
        self._squares += value * value
        self.count += 1

    def fields(self) -> dict[str, float | list[float]]:
        """The fields of the message ``HistogramProto``; a bin's limit is the least value above it."""
        limits: list[float] = []
        counts: list[float] = []
        for key in sorted(self._bins):
            below, above = self._edge(key), self._edge(key + 1)
            if limits and limits[-1] < below:  # nothing was counted in between
                limits.append(below)
                counts.append(0.0)
            limits.append(above)
            counts.append(float(self._bins[key]))
        return {
            "min": self._least,
            "max": self._most,
            "num": float(self.count),
            "sum": self._total,
            "sum_squares": self._squares,
            "bucket_limit": limits,
            "bucket": counts,
        }

    def _edge(self, key: int) -> float:
        return key - 0.5 if self._whole else math.exp(key * self._GROWTH)
