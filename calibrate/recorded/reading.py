"""Chooses how a source of step times is read, and reads it, once or as it grows.

TensorBoard's event files, profiles and documents of JSON are read here: a scalar that tells steps/s or a step's time, or else the wall
times of the scalars of successive steps. An event file is a chain of records (TFRecord): eight bytes of length, its check sum, the
record, its check sum; each record is an ``Event`` (tensorboardX has both the check sum and the protocol buffer). TensorFlow 2 writes
a scalar as a tensor, version 1 as a number.
"""

from __future__ import annotations

import itertools
import math
import re
import struct
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from calibrate.recorded.growing_file import GrowingFile
from calibrate.recorded.log import Log
from calibrate.recorded.log_formats import Pattern, compiled, fits_a_pattern
from calibrate.recorded.rows import StepsFile, StepsTable, is_steps_line, is_table
from calibrate.recorded.run import Each, Facts, Growing, RecordedRun
from calibrate.traces.kineto import json_of, trace_in
from calibrate.traces.steps import StepsOfProfile, steps_of
from calibrate.traces.xplane import profile_files, read_profiles, trace_of
from simulator.base.errors import InputError
from simulator.base.files import mistaken

_FIRST_BYTES = 2**16
_JSON = re.compile(r"\s*(\{(?!')|\[\s*(\{|$))")
_CHOSEN = re.compile(r"(?P<path>.+)#(?P<number>\d{1,9})", re.DOTALL)


class Reader(Protocol):
    """Reads one source of step times as it grows."""

    def more(self) -> None:
        """Read what is new."""

    def runs(self) -> tuple[RecordedRun, ...]:
        """Return what was read until now: a run for each worker."""


def read_recorded(
    sources: Sequence[str | Path], *, pattern: str | None = None, samples: int | None = None, python: str | None = None
) -> tuple[RecordedRun, ...]:
    """Read what is there of some sources, a run for each worker.

    Parameters
    ----------
    sources
        Files and folders: of the Keras callback, tables, TensorBoard's event files, logs, profiles, Chrome traces. ``#3`` after the name
        chooses the third of several runs in a log.
    pattern
        A regular expression with named groups by which the lines of logs tell steps; None: one of those that are known.
    samples
        Samples of a step of all workers together, where a source tells throughput and not them; None: not known.

    Raises
    ------
    InputError
        A source is not there, is none of these, or is damaged; or it holds no steps, or several runs.
    CalibrationError
        A profile has no steps.
    """
    runs: list[RecordedRun] = []
    for source in sources:
        reader = reader_of(Path(source), pattern=pattern, samples=samples, python=python)
        reader.more()
        if isinstance(reader, Log):
            reader.check()
        made = [run for run in reader.runs() if len(run)]
        if not made:
            raise InputError(f"{source}: has no steps yet: wait until training has made some")
        runs += made
    return tuple(runs)


def reader_of(path: Path, *, pattern: str | None = None, samples: int | None = None, python: str | None = None) -> Reader:
    """Return what reads a source; arguments as of :func:`read_recorded`.

    Raises
    ------
    InputError
        It is not there, is empty, or is nothing that steps are read from.
    """
    chosen = None if pattern is None else compiled(pattern)
    path, number = file_and_run(path)
    reader = _reader(path, chosen, samples, python, number)
    if number is not None and not isinstance(reader, Log):
        raise InputError(f"{path}#{number}: chooses one of several runs, but only a log can have several: leave #{number} out")
    return reader


def file_and_run(source: Path) -> tuple[Path, int | None]:
    """The file of a source, and which of its runs ``#3`` behind the name chooses; None: it chooses none."""
    several = _CHOSEN.fullmatch(str(source))
    if several is None or source.exists():
        return source, None
    return Path(several["path"]), int(several["number"])


def _reader(path: Path, chosen: Pattern | None, samples: int | None, python: str | None, number: int | None) -> Reader:
    if path.is_dir() or is_event_file(path) or path.name.endswith((".xplane.pb", ".json.gz")):
        if chosen is not None:
            raise InputError(f"`pattern`: {path} is not a log of lines: leave the pattern out")
        return _of_no_lines(path, python)
    first = _first_line(path)
    if chosen is not None:
        return Log(path, chosen, samples, number)
    if is_steps_line(first):
        return StepsFile(path)
    if path.suffix.lower() in (".csv", ".tsv") or is_table(first):
        return StepsTable(path, samples)
    if _JSON.match(first) and not fits_a_pattern(first):
        return WholeFile(lambda: _document(path))
    return Log(path, None, samples, number)


def _of_no_lines(path: Path, python: str | None) -> Reader:
    if path.is_dir():
        if any(is_event_file(file) for file in path.rglob("*")):
            return EventFiles(path)
        if not any(path.rglob("*.xplane.pb")):
            raise InputError(f"{path}: is a folder without TensorBoard event files or profiles: give the file with the recorded steps")
    elif path.name.endswith(".json.gz"):
        return WholeFile(lambda: _document(path))
    elif not path.name.endswith(".xplane.pb"):
        return EventFiles(path)
    return WholeFile(lambda: _profiles(path, python))


def _first_line(path: Path) -> str:
    content = GrowingFile(path).read(_FIRST_BYTES)
    if not content.strip():
        raise InputError(f"{path}: is empty: wait until training has made some steps")
    if b"\0" in content:
        raise InputError(f"{path}: is not text: give a file of the callback, a table, a log, or a TensorBoard folder")
    return next((line for line in content.decode("utf-8-sig", "replace").splitlines() if line.strip() and not line.startswith("#")), "")


@dataclass
class WholeFile:
    """A source that does not grow, and is read once."""

    _read: Callable[[], tuple[RecordedRun, ...]]
    _runs: tuple[RecordedRun, ...] = ()

    def more(self) -> None:
        """Read it, once.

        Raises
        ------
        InputError
            It is nothing of its kind, or damaged.
        CalibrationError
            A profile has no steps.
        """
        self._runs = self._runs or self._read()

    def runs(self) -> tuple[RecordedRun, ...]:
        """Return what was read."""
        return self._runs


# -- profiles ------------------------------------------------------------------------------


def _profiles(path: Path, python: str | None) -> tuple[RecordedRun, ...]:
    """The steps of a profile (XPlane) as :mod:`calibrate.traces` finds them: of the newest one of a log directory, a run for each host."""
    profiles = [steps_of(trace_of(profile)) for profile in read_profiles(profile_files(path), python)]
    return tuple(_of_profile(steps, steps.trace.host if len(profiles) > 1 else "") for steps in profiles)


def _of_profile(steps: StepsOfProfile, worker: str) -> RecordedRun:
    trace = steps.trace
    run = Growing(str(trace.path), "profile", worker, ended=True)
    run.facts = Facts(hostname=trace.host, devices=trace.devices, devices_in_all=trace.world_size, started=trace.started)
    run.remark(_SLOWED)
    if trace.marks.traced:
        run.remark(f"{trace.marks.traced} of its steps traced a graph and are left out")
    for key in filter(trace.lacks.__contains__, ("rank", "kernels")):
        run.remark(trace.lacks[key])
    for step in steps.steps:
        compute_s, input_s = (step.compute_s, step.input_s) if step.ops else (math.nan, math.nan)
        run.add(step.number, step.whole_s, compute_s=compute_s, input_s=input_s)
    return run.run()


_SLOWED = "profiled steps are somewhat longer than others, because recording takes time"


# -- documents of JSON ---------------------------------------------------------------------
#
# Formats: the Trace Event Format of Chrome (``ts`` and ``dur`` in microseconds), of PyTorch (``calibrate/traces/kineto.py``) and of
# Horovod's ``timeline.cc``, in which each tensor is a process of its own; ``TrainerState`` of transformers.

_KNOWN = (
    "the Chrome trace of PyTorch's profiler with ProfilerStep#N (call step() of the profiler), Horovod's timeline, "
    "trainer_state.json of Hugging Face, and the files of paceline.keras_callback.RecordSteps"
)


def _document(path: Path) -> tuple[RecordedRun, ...]:
    """The run of a file that is one JSON document; compressed where its name ends in ``.gz``, as Chrome traces often are."""
    data = json_of(path, _KNOWN)
    events = data.get("traceEvents") if isinstance(data, dict) else data
    if isinstance(events, list):
        events = [event for event in events if isinstance(event, dict) and "ph" in event]
    try:
        if events:
            return (_of_trace(path, data if isinstance(data, dict) else {}, events),)
        if isinstance(data, dict) and isinstance(data.get("log_history"), list):
            return (_of_trainer(path, data),)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise InputError(f"{path}: is damaged or not a known kind of trace ({error!r:.80}); known are {_KNOWN}") from None
    raise InputError(f"{path}: {mistaken(path) or f'is JSON but not a record of steps; known are {_KNOWN}'}")


def _of_trace(path: Path, data: dict[str, Any], events: list[dict[str, Any]]) -> RecordedRun:
    if (trace := trace_in(path, {**data, "traceEvents": events})) is not None:
        return _of_profile(steps_of(trace), str(trace.rank) if (trace.world_size or 1) > 1 else "")
    run = Growing(str(path), "profile", ended=True)
    _all_reduces(run, events)
    if len(run):
        return run.run()
    raise InputError(f"{path}: is a Chrome trace without marked steps; known are {_KNOWN}")


def _of_trainer(path: Path, data: dict[str, Any]) -> RecordedRun:
    """A mean over the whole run, which the last entry has."""
    run = Growing(str(path), "log", each="interval", ended=True)
    for entry in data["log_history"]:
        if "train_runtime" not in entry:
            continue
        steps = int(entry.get("step") or data["global_step"])
        rates = entry.get("train_samples_per_second"), entry.get("train_steps_per_second")
        run.facts = Facts(global_batch=round(rates[0] / rates[1]) if all(rates) else None)
        run.add(steps, float(entry["train_runtime"]) / steps, count=steps)
    if not len(run):
        raise InputError(f"{path}: the Trainer's state has no times before training ends (train_runtime): give it then")
    run.remark("the Trainer gives one mean over the whole training, including everything between steps")
    return run.run()


def _all_reduces(run: Growing, events: list[dict[str, Any]]) -> None:
    """From each all-reduce of a tensor to its next: of one that is reduced as often as most are, which is once a step."""
    names = {event["pid"]: str(event["args"]["name"]) for event in events if event["ph"] == "M" and event.get("name") == "process_name"}
    starts: dict[str, list[float]] = {}
    for event in events:
        if event["ph"] == "B" and event.get("name") == "ALLREDUCE":
            starts.setdefault(names.get(event["pid"], str(event["pid"])), []).append(float(event["ts"]) * 1e-6)
    if not starts:
        return
    usual = Counter(len(times) for times in starts.values()).most_common(1)[0][0]
    tensor = min(name for name, times in starts.items() if len(times) == usual)
    run.remark(f"steps are those between the all-reduces of {tensor} in Horovod's timeline")
    for step, (before_s, start_s) in enumerate(itertools.pairwise(starts[tensor]), 1):
        run.add(step, start_s - before_s, end_s=start_s)


_HEAD = struct.Struct("<QI")
_CHECKED_BYTES = 4096
"""A record's own check sum is looked at up to this size: larger ones are graphs and images."""
_MOST_RECORD_BYTES = 2**28
_RATES = re.compile(r"(^|[/_])(global_step/sec|steps?/s(ec)?|steps_per_s(ec(ond)?)?)$")
_SECONDS = re.compile(r"(^|/)step_time_s$")
_OF_EPOCHS = re.compile(r"^epoch_|^evaluation_|/evaluation")
_DIRECT = ("batch_steps_per_second", "step_time_s", "global_step/sec")
_HOW_TO = "keras.callbacks.TensorBoard(LOGDIR, update_freq='batch', write_steps_per_second=True) writes them"
_FEWEST = 2


def is_event_file(path: Path) -> bool:
    """Return whether a file is named as TensorFlow names event files."""
    return "tfevents" in path.name


class EventFiles:
    """One run's event files, read as they grow: a file, or a folder with those below it.

    Each folder that holds steps is one worker where there are several.

    Parameters
    ----------
    path
        The file or folder.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._streams: dict[Path, _Stream] = {}

    def more(self) -> None:
        """Read what is new, of new files as well.

        Raises
        ------
        InputError
            There is no event file, or one is damaged.
        """
        files = sorted(file for file in self._path.rglob("*") if is_event_file(file)) if self._path.is_dir() else [self._path]
        if not files:
            raise InputError(f"{self._path}: has no event files (*tfevents*); {_HOW_TO}")
        for file in files:
            if file not in self._streams:
                self._streams[file] = _Stream(file)
            self._streams[file].more()

    def runs(self) -> tuple[RecordedRun, ...]:
        """The runs of those folders that tell most directly how long steps take.

        Raises
        ------
        InputError
            None tells it.
        """
        by_folder: dict[Path, dict[str, list[_Point]]] = defaultdict(lambda: defaultdict(list))
        for file, stream in self._streams.items():
            for tag, points in stream.points.items():
                by_folder[file.parent][tag] += points
        ranked = [(*chosen, folder) for folder, tags in by_folder.items() if (chosen := _chosen(tags)) is not None]
        if not ranked:
            names = sorted({tag for tags in by_folder.values() for tag in tags})
            if not names:
                return (Growing(str(self._path), "event files").run(),)
            some = ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
            raise InputError(f"{self._path}: has only scalars of whole epochs ({some}), which give no time of a step; {_HOW_TO}")
        best = min(rank for rank, *_ in ranked)
        kept = [(tag, points, folder) for rank, tag, points, folder in ranked if rank == best]
        return tuple(
            _run(str(self._path), str(folder.relative_to(self._path)) if len(kept) > 1 else "", tag, points) for tag, points, folder in kept
        )


_Point = tuple[int, float, float]
"""Step, wall time in seconds, value."""


class _Stream(GrowingFile):
    """The scalars of one file, by their tags."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.points: dict[str, list[_Point]] = {}
        self._rest = b""
        self._records = 0

    def more(self) -> None:
        from tensorboardX.proto.event_pb2 import Event

        for record in self._new():
            try:
                event = Event.FromString(record)
            except Exception:  # protobuf has no common class for what it raises
                raise InputError(f"{self.path}: record {self._records}: is not an event; is this a TensorBoard file?") from None
            for value in event.summary.value:
                scalar = _scalar(value)
                if scalar is not None:
                    self.points.setdefault(value.tag, []).append((event.step, event.wall_time, scalar))

    def _new(self) -> Iterator[bytes]:
        from tensorboardX.record_writer import masked_crc32c

        while content := self.read():
            data = self._rest + content
            place = 0
            while len(data) - place >= _HEAD.size:
                length, check = _HEAD.unpack_from(data, place)
                if masked_crc32c(data[place : place + 8]) != check or length > _MOST_RECORD_BYTES:
                    raise InputError(
                        f"{self.path}: record {self._records + 1}: does not match its checksum (damaged, or not a TensorBoard file)"
                    )
                end = place + _HEAD.size + length + 4
                if end > len(data):
                    break
                record = data[place + _HEAD.size : end - 4]
                self._records += 1
                if length <= _CHECKED_BYTES and masked_crc32c(record) != struct.unpack_from("<I", data, end - 4)[0]:
                    raise InputError(f"{self.path}: record {self._records}: does not match its checksum (damaged)")
                yield record
                place = end
            self._rest = data[place:]


def _scalar(value: object) -> float | None:
    """The number of a summary's value; None where it is none."""
    kind = value.WhichOneof("value")  # type: ignore[attr-defined]
    if kind == "simple_value":
        return float(value.simple_value)  # type: ignore[attr-defined]
    if kind != "tensor":
        return None
    tensor = value.tensor  # type: ignore[attr-defined]
    if tensor.tensor_shape.dim or value.metadata.plugin_data.plugin_name not in ("", "scalars"):  # type: ignore[attr-defined]
        return None
    for field in (tensor.float_val, tensor.double_val, tensor.int64_val, tensor.int_val):
        if len(field) == 1:
            return float(field[0])
    content = tensor.tensor_content
    if len(content) in (4, 8):
        return float(struct.unpack("<f" if len(content) == 4 else "<d", content)[0])
    return None


def _chosen(tags: dict[str, list[_Point]]) -> tuple[int, str, list[_Point]] | None:
    """Return what tells most directly how long steps take: how directly, from 0 on, the tag and its points."""
    for rank, tag in enumerate(_DIRECT):
        if len(tags.get(tag, ())):
            return rank, tag, tags[tag]
    rates = [tag for tag in tags if _RATES.search(tag) or _SECONDS.search(tag)]
    if rates:
        tag = max(rates, key=lambda name: (not name.startswith("epoch_"), len(tags[name])))
        return len(_DIRECT) + tag.startswith("epoch_"), tag, tags[tag]
    others = {tag: points for tag, points in tags.items() if not _OF_EPOCHS.search(tag) and len({step for step, *_ in points}) >= _FEWEST}
    if not others:
        return None
    tag = max(sorted(others), key=lambda name: len(others[name]))
    return len(_DIRECT) + 2, tag, others[tag]


def _run(source: str, worker: str, tag: str, points: list[_Point]) -> RecordedRun:
    if not (_RATES.search(tag) or _SECONDS.search(tag)):
        return _by_wall_times(source, worker, tag, points)
    each: Each = "epoch" if tag.startswith("epoch_") or tag == "steps_per_s" else "step" if tag.startswith("batch_") else "interval"
    run = Growing(source, "event files", worker, each=each)
    run.remark(f"steps are those of the scalar {tag}" + (", a mean over each epoch" if each == "epoch" else ""))
    before = None
    for step, wall_s, value in points:
        if before is not None and step <= before:
            run.mark("restart")
        count = step - before if each == "interval" and before is not None and step > before else 1
        inverse = 1 / value if value > 0 else math.inf
        duration_s = value if _SECONDS.search(tag) else inverse
        run.add(step, duration_s, count=count, end_s=wall_s)
        before = step
    return run.run()


def _by_wall_times(source: str, worker: str, tag: str, points: list[_Point]) -> RecordedRun:
    """Time between the scalars of successive steps, over the steps between them."""
    run = Growing(source, "event files", worker, each="interval")
    run.remark(f"no scalar gives steps/s: times are measured between the points of {tag}, and include everything between steps")
    for (before, began_s, _), (step, wall_s, _) in itertools.pairwise(points):
        if step <= before:
            if step < before:
                run.mark("restart")
            continue
        run.add(step, (wall_s - began_s) / (step - before), count=step - before, end_s=wall_s)
    return run.run()
