"""Reads profiles as TensorFlow writes them (XPlane), by TensorFlow's own protobuf classes in a child process.

A profile is a set of planes (the host, each device), each plane a set of lines (here timelines: a thread, a stream of a GPU),
each line a sequence of events with name, start, duration and statistics. The child process is ``calibrate/probes/xplane.py``; its
docstring says what JSON it writes, and its ``KEPT`` which statistics.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from calibrate.probing import run_reader
from simulator.base.errors import InputError

_SUFFIX = ".xplane.pb"
_HOW_TO = "tf.profiler.experimental.start(LOGDIR) and stop(), or the callback TensorBoard(LOGDIR, profile_batch=(10, 30)), writes one"


def whole_number(value: Any) -> int | None:
    """A statistic as a whole number of at least 0; None where it is not one."""
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if number >= 0 else None


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


def profile_files(place: Path, run: str | None = None) -> list[Path]:
    """The XPlane files of one profiling run, one for each host, sorted.

    ``place`` is a TensorBoard log directory (``plugins/profile/RUN/HOST.xplane.pb`` somewhere below it), the folder of one run, or one
    file. ``run`` names the run's folder; None takes the last by name, which is the newest, as TensorFlow names runs by their date.

    Raises
    ------
    InputError
        There is no profile, or none of that name.
    """
    if place.is_file():
        if run is not None:
            raise InputError(f"`profile_run`: {run!r}: {place} is already one profile: leave it out, or give its log directory")
        if not place.name.endswith(_SUFFIX):
            raise InputError(f"`profiles`: {str(place)!r}: must end in {_SUFFIX} like the profiler's files: give one, or its log directory")
        return [place]
    if not place.is_dir():
        raise InputError(f"`profiles`: {str(place)!r}: there is no such file or folder; check the path")
    runs: dict[Path, list[Path]] = {}
    for file in place.rglob(f"*{_SUFFIX}"):
        runs.setdefault(file.parent, []).append(file)
    if not runs:
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


Role = Literal["forward", "gradient", "optimizer", "input", "communication", "copy"]

# TensorFlow's own rules for the name of a node and of its type
_FULL_NAME = re.compile(r"([A-Za-z0-9.][A-Za-z0-9_./>\-]*):([A-Z_][A-Za-z0-9_]*)")
_GRADIENT = re.compile(r"(^|/)(gradient_tape|gradients(_\d+)?)/|_grad/")
_OPTIMIZER = re.compile(
    r"(^|/)(adam|adamw|adamax|nadam|sgd|rmsprop|adagrad|adadelta|adafactor|ftrl|lion|lamb|muon|momentum|gradientdescent|"
    r"loss_scale_optimizer|update_[^/]*)(_\d+)?/",
    re.IGNORECASE,
)
_APPLY = re.compile(r"(Resource|Sparse)*(Sparse)?Apply[A-Z]")
_COLLECTIVE = re.compile(r"(?i)nccl|^Collective|^_?Xla?AllReduce")
_TRANSFER = ("_Send", "_Recv", "_HostSend", "_HostRecv", "RecvTensor", "RecvBuf")
_DERIVED = ("TensorFlow Ops", "XLA Ops")


@dataclass(frozen=True, slots=True)
class Op:
    """One operation, or one kernel of it on a GPU.

    Attributes
    ----------
    path
        Name of the node in the graph, such as ``gradient_tape/dense/MatMul/MatMul_1``.
    kind
        Its type, such as ``MatMul``; the kernel's name where none was recorded.
    role
        The part of a step that it belongs to.
    start_s, end_s
        Seconds since the profile began.
    size_bytes
        Bytes that it moves, where that was recorded; else 0.
    correlation
        Number that a kernel shares with the call on the host that launched it; else None.
    """

    path: str
    kind: str
    role: Role
    start_s: float
    end_s: float
    size_bytes: float = 0.0
    correlation: int | None = None


def role_of(path: str, kind: str) -> Role:
    """The part of a step that an operation belongs to, by the scopes in its name and by its type.

    ``tf.GradientTape`` names what it adds ``gradient_tape/...``, ``tf.gradients`` names it
    ``gradients/..._grad/...``; optimizers open a scope of their own name; whatever is left
    counts as forward.
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


def union_s(spans: Iterable[tuple[float, float]]) -> float:
    """Seconds that at least one of the spans (start, end) covers."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(end - max(start, reached), 0.0)
        reached = max(reached, end)
    return total


def uncovered_s(spans: Iterable[tuple[float, float]], others: Iterable[tuple[float, float]]) -> float:
    """Seconds that some span covers and none of the others does."""
    ours, theirs = list(spans), list(others)
    return union_s([*ours, *theirs]) - union_s(theirs)
