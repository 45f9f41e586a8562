"""Chooses how a source of step times is read, and reads it, once or as it grows; profiles and documents of JSON are read here."""

from __future__ import annotations

import contextlib
import gzip
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from calibrate.recorded.event_files import EventFiles, is_event_file
from calibrate.recorded.log import Log
from calibrate.recorded.log_formats import Pattern, compiled, fits_a_pattern
from calibrate.recorded.rows import StepsFile, StepsTable, is_steps_line, is_table
from calibrate.recorded.run import Facts, Growing, GrowingFile, RecordedRun
from calibrate.xplane.reading import profile_files, read_profiles
from calibrate.xplane.steps import StepsOfProfile, steps_of
from simulator.base.errors import InputError
from simulator.base.files import mistaken
from simulator.base.text import no_such_file

_FIRST_BYTES = 2**16
_JSON = re.compile(r"\s*(\{(?!')|\[\s*(\{|$))")
_CHOSEN = re.compile(r"(?P<path>.+)#(?P<number>\d{1,9})", re.DOTALL)


class Reader(Protocol):
    """Reads one source of step times as it grows."""

    def more(self) -> None:
        """Read what is new."""

    def runs(self) -> tuple[RecordedRun, ...]:
        """What was read until now: a run for each worker."""


def read_recorded(
    sources: Sequence[str | Path], *, pattern: str | None = None, samples: int | None = None, python: str | None = None
) -> tuple[RecordedRun, ...]:
    """Read what is there of some sources, a run for each worker.

    Parameters
    ----------
    sources
        Files and folders: of the Keras callback, tables, TensorBoard's event files, logs, profiles, Chrome traces. Of a log of several
        runs, ``#3`` behind the name chooses the third.
    pattern
        A regular expression with named groups by which the lines of logs tell steps; None: one of those that are known.
    samples
        Samples of a step of all workers together, where a source tells throughput and not them; None: not known.
    python
        A Python that has TensorFlow, which reads profiles; this one, if None.

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
            raise InputError(f"{source}: holds no steps yet; give it when the training has made some")
        runs += made
    return tuple(runs)


def reader_of(path: Path, *, pattern: str | None = None, samples: int | None = None, python: str | None = None) -> Reader:
    """What reads a source; arguments as of :func:`read_recorded`.

    Raises
    ------
    InputError
        It is not there, is empty, or is nothing that steps are read from.
    """
    chosen = None if pattern is None else compiled(pattern)
    path, number = file_and_run(path)
    reader = _reader(path, chosen, samples, python, number)
    if number is not None and not isinstance(reader, Log):
        raise InputError(f"{path}#{number}: chooses one of several runs, and only a log holds several; leave #{number} out")
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
            raise InputError(f"`pattern`: {path} is no log of lines; leave it out")
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
            raise InputError(f"{path}: is a folder without TensorBoard's event files or profiles; give the file that steps are recorded in")
    elif path.name.endswith(".json.gz"):
        return WholeFile(lambda: _document(path))
    elif not path.name.endswith(".xplane.pb"):
        return EventFiles(path)
    return WholeFile(lambda: _profiles(path, python))


def _first_line(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(_FIRST_BYTES)
    except FileNotFoundError:
        raise InputError(f"{path}: {no_such_file(path)}") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(f"{path}: cannot be read: {reason or type(error).__name__}") from None
    if not content.strip():
        raise InputError(f"{path}: is empty; give it when the training has made some steps")
    if b"\0" in content:
        raise InputError(f"{path}: is no text; give a file of the callback, a table, a log, or TensorBoard's folder")
    return next((line for line in content.decode("utf-8-sig", "replace").splitlines() if line.strip() and not line.startswith("#")), "")


class WholeFile:
    """A source that does not grow, and is read once."""

    def __init__(self, read: Callable[[], tuple[RecordedRun, ...]]) -> None:
        self._read = read
        self._runs: tuple[RecordedRun, ...] = ()

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
        """What was read."""
        return self._runs


# -- profiles ------------------------------------------------------------------------------


def _profiles(path: Path, python: str | None) -> tuple[RecordedRun, ...]:
    """The steps of a profile (XPlane) as :mod:`calibrate.xplane` finds them: of the newest one of a log directory, a run for each host."""
    profiles = [steps_of(profile) for profile in read_profiles(profile_files(path), python)]
    return tuple(_of_profile(steps, several=len(profiles) > 1) for steps in profiles)


def _of_profile(steps: StepsOfProfile, *, several: bool) -> RecordedRun:
    profile = steps.profile
    run = Growing(str(profile.path), "profile", profile.host if several else "", ended=True)
    run.facts = Facts(hostname=profile.host, devices=tuple(profile.devices), started=steps.started)
    run.remark(_SLOWED)
    if steps.marks.traced:
        run.remark(f"{steps.marks.traced} of its steps traced a graph, and are left out")
    for step in steps.steps:
        run.add(step.number, step.whole_s, compute_s=step.compute_s, input_s=step.input_s)
    return run.run()


_SLOWED = "steps of a profile are somewhat longer than others, since recording takes time"


# -- documents of JSON ---------------------------------------------------------------------
#
# Formats: the Trace Event Format of Chrome (``ts`` and ``dur`` in microseconds); Kineto's marks ``ProfilerStep#N``, ``distributedInfo``
# and ``deviceProperties`` (``output_json.cpp``); ``timeline.json`` of TensorFlow 1 (``tensorflow/python/client/timeline.py``), which is
# of one ``session.run``; Horovod's ``timeline.cc``, in which each tensor is a process of its own; ``TrainerState`` of transformers.

_KNOWN = (
    "the Chrome trace of PyTorch's profiler with ProfilerStep#N (call step() of the profiler), the timeline of TensorFlow 1, Horovod's "
    "timeline, trainer_state.json of Hugging Face, and the files of paceline.keras_callback.RecordSteps"
)
_MARK = re.compile(r"ProfilerStep#(\d+)")


def _document(path: Path) -> tuple[RecordedRun, ...]:
    """The run of a file that is one JSON document; compressed where its name ends in ``.gz``, as Chrome traces often are."""
    data = _parsed(path)
    events = data.get("traceEvents") if isinstance(data, dict) else data
    if isinstance(events, list):
        events = [event for event in events if isinstance(event, dict) and "ph" in event]
    try:
        if events:
            return (_of_trace(path, data if isinstance(data, dict) else {}, events),)
        if isinstance(data, dict) and isinstance(data.get("log_history"), list):
            return (_of_trainer(path, data),)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise InputError(f"{path}: is damaged, or no trace of a kind that is known ({error!r:.80}); known are {_KNOWN}") from None
    raise InputError(f"{path}: {mistaken(path) or f'is JSON, but no record of steps; known are {_KNOWN}'}")


def _parsed(path: Path) -> Any:
    content = b"".join(iter(GrowingFile(path).read, b""))
    try:
        text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8-sig").rstrip()
    except (OSError, EOFError, UnicodeDecodeError):
        raise InputError(f"{path}: is no text, and no compressed text; give a Chrome trace, a table, a log, or event files") from None
    # a training that was killed, or is not over, leaves the array of its events open
    for candidate in (text, text.rstrip(",") + "]"):
        with contextlib.suppress(ValueError, RecursionError):
            return json.loads(candidate)
    raise InputError(f"{path}: {mistaken(path) or f'begins as JSON, and is none; known are {_KNOWN}'}")


def _of_trace(path: Path, data: dict[str, Any], events: list[dict[str, Any]]) -> RecordedRun:
    for read in (_profiler_steps, _all_reduces, _session_run):
        run = Growing(str(path), "profile", ended=True)
        read(run, data, events)
        if len(run):
            return run.run()
    raise InputError(f"{path}: is a Chrome trace, and nothing in it marks steps; known are {_KNOWN}")


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
        raise InputError(f"{path}: the Trainer's state has no times before the training ends (train_runtime); give it then")
    run.remark("the Trainer tells one mean over the whole training, with all that lies between steps")
    return run.run()


def _profiler_steps(run: Growing, data: dict[str, Any], events: list[dict[str, Any]]) -> None:
    """The steps that PyTorch's profiler marks on the host; it repeats them for the device."""
    marks: dict[int, dict[str, Any]] = {}
    for event in events:
        number = _MARK.fullmatch(str(event.get("name")))
        if number and event["ph"] == "X" and "gpu" not in str(event.get("cat")):
            marks.setdefault(int(number[1]), event)
    several = data.get("distributedInfo") or {}
    devices = data.get("deviceProperties") or []
    run.worker = str(several["rank"]) if several.get("world_size", 1) > 1 else ""
    run.facts = Facts(devices_in_all=several.get("world_size"), devices=tuple(str(device["name"]) for device in devices))
    run.remark(_SLOWED)
    for step, event in sorted(marks.items()):
        run.add(step, float(event["dur"]) * 1e-6, end_s=(float(event["ts"]) + float(event["dur"])) * 1e-6)


def _all_reduces(run: Growing, _: dict[str, Any], events: list[dict[str, Any]]) -> None:
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


def _session_run(run: Growing, _: dict[str, Any], events: list[dict[str, Any]]) -> None:
    """One call of ``session.run``, of which the timeline of TensorFlow 1 has the operations."""
    spans = [
        (float(event["ts"]), float(event["ts"]) + float(event["dur"]))
        for event in events
        if event["ph"] == "X" and event.get("cat") == "Op"
    ]
    if spans:
        begun, ended = min(spans)[0], max(end for _, end in spans)
        run.remark("the step is the span of the operations of one session.run")
        run.add(1, (ended - begun) * 1e-6, end_s=ended * 1e-6)
