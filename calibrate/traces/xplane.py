"""Reads profiles as TensorFlow and JAX write them (XPlane), by TensorFlow's own protobuf classes in a child process.

A profile is a set of planes (the host, each device), each plane a set of lines (here timelines: a thread, a stream of a GPU),
each line a sequence of events with name, start, duration and statistics. The child process is ``calibrate/probes/xplane.py``; its
docstring says what JSON it writes, and its ``KEPT`` which statistics.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from pathlib import Path
from statistics import median
from typing import Any

from calibrate.probing import run_reader
from calibrate.traces.trace import (
    InputPipeline,
    Marks,
    Op,
    Role,
    Trace,
    Window,
    launched_at,
    launched_windows,
    whole_number,
    windows_of,
)
from simulator.base.errors import CalibrationError, InputError

_SUFFIX = ".xplane.pb"
_HOW_TO = "tf.profiler.experimental.start(LOGDIR) and stop(), or the callback TensorBoard(LOGDIR, profile_batch=(10, 30)), writes one"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that took a while on a timeline.

    Attributes
    ----------
    name
        As recorded, such as ``dense/MatMul:MatMul``.
    start_s, end_s
        Seconds since the first timeline of the profile began.
    statistics
        What else was recorded of it, by name.
    """

    name: str
    start_s: float
    end_s: float
    statistics: dict[str, Any]

    @property
    def duration_s(self) -> float:
        """Seconds from start to end."""
        return self.end_s - self.start_s

    def number(self, statistic: str) -> int | None:
        """A statistic that is a whole number; None where it was not recorded, or as something else."""
        return whole_number(self.statistics.get(statistic))


@dataclass(frozen=True)
class Timeline:
    """One line of a plane: its events by start; of those that start together the longer first."""

    plane: str
    name: str
    events: tuple[Event, ...]

    @property
    def on_device(self) -> bool:
        """The line belongs to a GPU or TPU, not to the host."""
        return self.plane.startswith("/device:")


@dataclass(frozen=True)
class Profile:
    """All timelines that one host has written.

    Attributes
    ----------
    path, sha256
        The file, and the hash of its content as hexadecimal digits.
    host
        Name of the host.
    planes
        The statistics of each plane, by the plane's name.
    timelines
        All lines with at least one event.
    """

    path: Path
    sha256: str
    host: str
    planes: dict[str, dict[str, Any]]
    timelines: tuple[Timeline, ...]

    @property
    def devices(self) -> list[str]:
        """Names of the planes of GPUs and TPUs that did something, sorted."""
        return sorted({line.plane for line in self.timelines if line.on_device})

    @property
    def host_lines(self) -> list[Timeline]:
        """The timelines of the host."""
        return [line for line in self.timelines if not line.on_device]


def profile_files(place: Path, run: str | None = None, others: tuple[str, ...] = ()) -> list[Path]:
    """The XPlane files of one profiling run, one for each host, sorted.

    ``place`` is a TensorBoard log directory (``plugins/profile/RUN/HOST.xplane.pb`` somewhere below it), the folder of one run, or one
    file, which may end in one of ``others`` too. ``run`` names the run's folder; None takes the last by name, which is the newest, as
    TensorFlow names runs by their date.

    Raises
    ------
    InputError
        There is no profile, or none of that name.
    """
    if place.is_file():
        if run is not None:
            raise InputError(f"`profile_run`: {run!r}: {place} is already one profile: leave it out, or give its log directory")
        if not place.name.endswith((_SUFFIX, *others)):
            raise InputError(
                f"`profiles`: {str(place)!r}: must end in {', '.join((_SUFFIX, *others))} like profilers' files, or be a folder"
            )
        return [place]
    if not place.is_dir():
        raise InputError(f"`profiles`: {str(place)!r}: there is no such file or folder; check the path")
    runs: dict[Path, list[Path]] = {}
    for file in place.rglob(f"*{_SUFFIX}"):
        runs.setdefault(file.parent, []).append(file)
    if not runs:
        if any(place.rglob("*.trace.json*")):
            raise InputError(f"`profiles`: {str(place)!r}: has traces of PyTorch: give the file of one rank")
        raise InputError(f"`profiles`: {str(place)!r}: has no profile (*{_SUFFIX}); {_HOW_TO}")
    folders = sorted(runs, key=lambda folder: (folder.name, str(folder)))
    chosen = folders if run is None else [folder for folder in folders if folder.name == run]
    if not chosen:
        known = ", ".join(folder.name for folder in folders[-5:])
        raise InputError(f"`profile_run`: {run!r}: {place} has no run of that name; it has {known}")
    return sorted(runs[chosen[-1]])


def read_profiles(files: Sequence[Path], python: str | None = None, timeout_s: float | None = None) -> list[Profile]:
    """Read XPlane files, one for each host, by TensorFlow's protobuf classes in ``python``; this one, if None.

    Raises
    ------
    InputError
        A file is no XPlane protobuf, or there is no such Python.
    CalibrationError
        That Python has no TensorFlow.
    """
    rows = [json.loads(line) for line in run_reader("xplane", [str(file) for file in files], python, timeout_s).splitlines()]
    # the row of a file stands before those of its lines
    heads = [number for number, row in enumerate(rows) if "file" in row]
    return [_profile(rows[head], rows[head + 1 : end]) for head, end in itertools.pairwise([*heads, len(rows)])]


def _profile(head: dict[str, Any], lines: list[dict[str, Any]]) -> Profile:
    path = Path(head["file"])
    # whole numbers first: nanoseconds since 1970 have more digits than a float keeps
    origin_ns = min((line["start_ns"] for line in lines), default=0)
    return Profile(
        path=path,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        host=head["hosts"][0] if head["hosts"] else path.name.removesuffix(".xplane.pb"),
        planes=head["planes"],
        timelines=tuple(_timeline(line, origin_ns) for line in lines),
    )


def _timeline(line: dict[str, Any], origin_ns: int) -> Timeline:
    begun_ps = (line["start_ns"] - origin_ns) * 1000
    names = line["names"]
    events = [
        Event(names[index][0], (begun_ps + offset_ps) * 1e-12, (begun_ps + offset_ps + duration_ps) * 1e-12, statistics)
        for index, offset_ps, duration_ps, statistics in line["events"]
    ]
    events.sort(key=lambda event: (event.start_s, -event.end_s))
    return Timeline(line["plane"], line["line"], tuple(events))


# TensorFlow's own rules for the name of a node and of its type
_FULL_NAME = re.compile(r"([A-Za-z0-9.][A-Za-z0-9_./>\-]*):([A-Z_][A-Za-z0-9_]*)")
_GRADIENT = re.compile(r"(^|/)(gradient_tape|gradients(_\d+)?)/|_grad/|(^|/)transpose\(")
_OPTIMIZER = re.compile(
    r"(^|/)(adam|adamw|adamax|nadam|sgd|rmsprop|adagrad|adadelta|adafactor|ftrl|lion|lamb|muon|momentum|gradientdescent|"
    r"loss_scale_optimizer|update_[^/]*)(_\d+)?/",
    re.IGNORECASE,
)
_APPLY = re.compile(r"(Resource|Sparse)*(Sparse)?Apply[A-Z]")
_COLLECTIVE = re.compile(r"(?i)nccl|^Collective|^_?Xla?AllReduce|^(all-reduce|all-gather|reduce-scatter|all-to-all)\b")
_TRANSFER = ("_Send", "_Recv", "_HostSend", "_HostRecv", "RecvTensor", "RecvBuf")
_DERIVED = ("TensorFlow Ops", "XLA Ops")


def role_of(path: str, kind: str) -> Role:
    """The part of a step that an operation belongs to, by the scopes in its name and by its type.

    ``tf.GradientTape`` names what it adds ``gradient_tape/...``, ``tf.gradients`` names it
    ``gradients/..._grad/...``, JAX ``.../transpose(jvp(...))/...``; optimizers open a scope
    of their own name; whatever is left counts as forward.
    """
    if kind.startswith("Memcpy"):
        return "copy"
    if _COLLECTIVE.search(kind) or kind in _TRANSFER:
        return "communication"
    if "Iterator" in kind:
        return "input"
    if _GRADIENT.search(path):
        return "gradient"
    if _APPLY.match(kind) or _OPTIMIZER.search(path):
        return "optimizer"
    return "forward"


def host_ops(lines: Iterable[Timeline]) -> list[Op]:
    """Operations that ran on the host's threads, in the order in which they began."""
    ops = []
    for event in itertools.chain.from_iterable(line.events for line in lines):
        if match := _FULL_NAME.fullmatch(event.name):
            ops.append(Op(match[1], match[2], role_of(match[1], match[2]), event.start_s, event.end_s, _bytes(event)))
        elif event.name.startswith(_TRANSFER[-2:]):
            ops.append(Op("", event.name, "communication", event.start_s, event.end_s, _bytes(event)))
        elif "hlo_op" in event.statistics:  # of XLA
            path, kind = str(event.statistics.get("tf_op", "")), event.name.partition(".")[0]
            ops.append(Op(path, kind, role_of(path, kind), event.start_s, event.end_s))
    return sorted(ops, key=lambda op: (op.start_s, op.end_s))


def device_ops(lines: Iterable[Timeline]) -> list[Op]:
    """Kernels and copies on one device, in the order in which they began.

    Taken from the device's streams; where a plane has none, from the line of TensorFlow's
    operations or of XLA's.
    """
    ours = list(lines)
    streams = [line for line in ours if line.name.startswith("Stream")]
    for name in _DERIVED:
        streams = streams or [line for line in ours if line.name == name]
    return sorted((op for line in streams for op in _of_stream(line)), key=lambda op: (op.start_s, op.end_s))


def _of_stream(line: Timeline) -> Iterator[Op]:
    for event in line.events:
        statistics = event.statistics
        named = str(statistics.get("tf_op") or (event.name if line.name in _DERIVED else ""))
        path, _, kind = named.partition(":")
        # a kernel's own name tells copies and collectives, whatever operation asked for them
        kind = event.name if event.name.startswith("Memcpy") or "nccl" in event.name.lower() else kind or event.name
        yield Op(path, kind, role_of(path, kind), event.start_s, event.end_s, _bytes(event), event.number("correlation_id"))


def _bytes(event: Event) -> float:
    """Bytes moved: ``memcpy_details`` reads ``kind_src:... kind_dst:... size:4096 dest:0 async:1``."""
    transferred = event.number("bytes_transferred")
    if transferred is not None:
        return float(transferred)
    match = re.search(r"\bsize:(\d+)", str(event.statistics.get("memcpy_details", "")))
    return float(match[1]) if match else 0.0


# -- steps -------------------------------------------------------------------------------------

_STEP_LINE = "Steps"
_HOW_TO_MARK = (
    "mark each step with `with tf.profiler.experimental.Trace('train', step_num=n, _r=1):`, or train by Model.fit with the callback "
    "TensorBoard(profile_batch=(10, 30)), or make the step a tf.function"
)


def trace_of(profile: Profile) -> Trace:
    """Find the steps of a profile, and what ran in each.

    Times are those of the first GPU or TPU that did something; where there is none, of the host's threads. A device's own line of steps
    needs no marks of the host.

    Raises
    ------
    CalibrationError
        There are no steps.
    """
    device = profile.devices[0] if profile.devices else ""
    own_line = next((line for line in profile.timelines if line.plane == device and line.name == _STEP_LINE), None)
    own = () if own_line is None else tuple(windows_of(_marks_of(own_line.events))[0])
    try:
        marks = _host_marks(profile)
    except CalibrationError:
        if not own:
            raise
        marks = Marks(_STEP_LINE, own)
    # when a step asked tf.data for a batch, and had it
    fetched = [event for line in profile.host_lines for event in line.events if _is_fetch(event.name)]
    pipeline = _pipeline(profile.host_lines, marks, fetched)
    if not device:
        ops = host_ops(profile.host_lines)
        steps: dict[Window, Sequence[Op]] = {window: _begun_in(window, ops) for window in marks.windows}
    else:
        ops = device_ops(line for line in profile.timelines if line.plane == device)
        if own:
            steps = {window: _begun_in(window, ops) for window in own}
        else:
            launched = {
                number: event.start_s
                for line in profile.host_lines
                for event in line.events
                if (number := event.number("correlation_id")) is not None
            }
            steps = launched_windows(profile.path, device, marks, [launched_at(op, launched) for op in ops], _HOW_TO_MARK)
    begun_ns = whole_number(profile.planes.get("Task Environment", {}).get("profile_start_time"))
    kind = profile.planes.get(device, {}).get("device_type_string", "") or device.removeprefix("/device:") or "CPU"
    return Trace(
        path=profile.path,
        sha256=profile.sha256,
        host=profile.host,
        started=datetime.fromtimestamp(begun_ns * 1e-9).astimezone().isoformat(timespec="seconds") if begun_ns else "",
        device=device or "/host:CPU",
        device_name=f"{kind} of {profile.host}",
        devices=tuple(profile.devices),
        marks=marks,
        steps=steps,
        # where nothing is prefetched, preparing the input is a part of the step
        waits=[(event.start_s, event.end_s) for event in fetched] if pipeline.prefetched else [],
        input=pipeline,
        backend="jax"
        if any(event.name.startswith("PjitFunction") for line in profile.host_lines for event in line.events)
        else "tensorflow",
    )


def _begun_in(window: Window, ops: Sequence[Op]) -> Sequence[Op]:
    """The operations, sorted by their beginning, that begin in a step."""
    begin = attrgetter("start_s")
    return ops[bisect_left(ops, window.start_s, key=begin) : bisect_left(ops, window.end_s, key=begin)]


def _host_marks(profile: Profile) -> Marks:
    """The steps of a profile.

    Events with a step number (``tf.profiler.experimental.Trace``, Keras' TensorBoard callback,
    ``TraceContext``) are taken; where there is none, calls of the ``tf.function`` that took the
    most time in all, or of ``Session.run``. A step lasts until the next one begins, so that
    what happens between two steps counts, as it does in training.

    Raises
    ------
    CalibrationError
        There is no step; the message says what there is and how steps are marked.
    """
    name, line, events = _marked(profile)
    traced = [event.start_s for event in line.events if str(event.statistics.get("tf_function_call", "")).startswith("traced")]
    windows, pauses = windows_of(_marks_of(events))
    kept = tuple(window for window in windows if not any(window.start_s <= start < window.end_s for start in traced))
    if not kept:
        raise CalibrationError(
            f"{profile.path}: each of its {len(windows)} steps traced a graph, so none is a training step: profile later steps"
        )
    return Marks(name, kept, len(windows) - len(kept), pauses)


def _marked(profile: Profile) -> tuple[str, Timeline, list[Event]]:
    """The marks of steps: their name, the line that they lie on, and themselves."""
    numbered: dict[tuple[int, str], list[Event]] = defaultdict(list)
    functions: dict[tuple[int, str], list[Event]] = defaultdict(list)
    lines = profile.host_lines
    for index, line in enumerate(lines):
        for event in line.events:
            if "step_num" in event.statistics and event.end_s > event.start_s:
                numbered[index, event.name].append(event)
            elif event.name == "SessionRun":
                functions[index, event.name].append(event)
            elif event.name == "EagerExecute" and event.statistics.get("is_func"):
                functions[index, str(event.statistics.get("eager_op", ""))].append(event)
    if numbered:
        (index, name), events = max(numbered.items(), key=lambda item: (len(item[1]), _total_s(item[1])))
    elif functions:
        (index, name), events = max(functions.items(), key=lambda item: _total_s(item[1]))
    else:
        count = sum(len(line.events) for line in profile.timelines)
        planes = ", ".join(sorted({line.plane for line in profile.timelines})) or "nothing"
        raise CalibrationError(f"{profile.path}: has no training steps among its {count} events ({planes}); {_HOW_TO_MARK}")
    return name, lines[index], events


def _total_s(events: Iterable[Event]) -> float:
    return math.fsum(event.duration_s for event in events)


def _marks_of(events: Sequence[Event]) -> list[Window]:
    """Marks of steps, numbered as they say, or else in turn."""
    numbers = [whole_number(event.statistics.get("step_num", event.name)) for event in events]
    return [
        Window(turn if number is None else number, event.start_s, event.end_s)
        for turn, (number, event) in enumerate(zip(numbers, events, strict=True))
    ]


def _is_fetch(name: str) -> bool:
    return name.endswith("::DoCompute") and "Iterator" in name and "GetNext" in name


def _pipeline(lines: Sequence[Timeline], marks: Marks, fetched: Sequence[Event]) -> InputPipeline:
    events = [event for line in lines for event in line.events if event.name.startswith("Iterator::")]
    sizes = [size for event in fetched if (size := event.number("element_size")) is not None]
    stages: dict[str, list[float]] = defaultdict(list)
    shapes = ""
    for event in events:
        if event.name == "Iterator::Root":
            shapes = str(event.statistics.get("shapes", shapes))
        stages[event.name].append(event.duration_s)
    # the stage that the outermost prefetch calls, in a thread of its own
    behind = [name for name in stages if "Prefetch" in name.rpartition("::")[0]]
    prefetched = any("Prefetch" in name for name in stages)
    outermost = min(behind, key=lambda name: (name.count("::"), name), default=None)
    prepare_s = math.fsum(stages[outermost]) / len(stages[outermost]) if outermost is not None else 0.0
    counts = [sum(window.start_s <= event.start_s < window.end_s for event in fetched) for window in marks.windows]
    return InputPipeline(
        prepare_s=prepare_s if prefetched else 0.0,
        prefetched=prefetched,
        batch_bytes=math.fsum(sizes) / len(sizes) if sizes else 0.0,
        shapes=shapes,
        batches_a_step=max(int(median(counts)), 1) if counts else 1,
    )
