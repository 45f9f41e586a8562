"""Reads profiles as TensorFlow writes them (XPlane), by TensorFlow's own protobuf classes in a child process.

A profile is a set of planes (the host, each device), each plane a set of lines (here timelines: a thread, a stream of a GPU),
each line a sequence of events with name, start, duration and statistics. The child process is ``calibrate/probes/xplane.py``; its
docstring says what JSON it writes, and its ``KEPT`` which statistics.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibrate.probing import run_reader
from simulator.base.errors import InputError
from simulator.base.process import scratch

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
    name, short
        As recorded, such as ``dense/MatMul:MatMul``, and its display name, such as ``MatMul``.
    start_s, end_s
        Seconds since the first timeline of the profile began.
    statistics
        What else was recorded of it, by name.
    """

    name: str
    short: str
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

    Parameters
    ----------
    place
        A TensorBoard log directory (``plugins/profile/RUN/HOST.xplane.pb`` somewhere below
        it), the folder of one run, or one file.
    run
        Name of the run's folder; None takes the newest, which is the last by name, as
        TensorFlow names runs by their date.

    Raises
    ------
    InputError
        There is no profile, or none of that name.
    """
    if place.is_file():
        if run is not None:
            raise InputError(f"`profile_run`: {run!r}: {place} is one profile already; leave it out, or give its log directory")
        if not place.name.endswith(_SUFFIX):
            raise InputError(
                f"`profiles`: {str(place)!r}: must end in {_SUFFIX}, which the profiler's files do; give one, or its log directory"
            )
        return [place]
    if not place.is_dir():
        raise InputError(f"`profiles`: {str(place)!r}: there is no such file or folder; check the path")
    runs: dict[Path, list[Path]] = {}
    for file in place.rglob(f"*{_SUFFIX}"):
        runs.setdefault(file.parent, []).append(file)
    if not runs:
        raise InputError(f"`profiles`: {str(place)!r}: holds no profile (*{_SUFFIX}); {_HOW_TO}")
    folders = sorted(runs, key=lambda folder: (folder.name, str(folder)))
    chosen = folders if run is None else [folder for folder in folders if folder.name == run]
    if not chosen:
        known = ", ".join(folder.name for folder in folders[-5:])
        raise InputError(f"`profile_run`: {run!r}: {place} has no run of that name; it has {known}")
    return sorted(runs[chosen[-1]])


def read_profiles(files: Sequence[Path], python: str | None = None, timeout_s: float | None = None) -> list[Profile]:
    """Read XPlane files.

    Parameters
    ----------
    files
        One for each host.
    python
        A Python that has TensorFlow, whose protobuf classes read the files; this one, if None.
    timeout_s
        Seconds after which reading is given up.

    Raises
    ------
    InputError
        A file is no XPlane protobuf, or there is no such Python.
    CalibrationError
        That Python has no TensorFlow.
    """
    with scratch() as folder:
        out = folder / "timelines.ndjson"
        run_reader("xplane", [str(file) for file in files], out, python, timeout_s)
        with out.open(encoding="utf-8") as lines:
            return list(_profiles(json.loads(line) for line in lines))


def _profiles(rows: Iterator[dict[str, Any]]) -> Iterator[Profile]:
    head: dict[str, Any] | None = None
    lines: list[dict[str, Any]] = []
    for row in rows:
        if "file" in row:
            if head is not None:
                yield _profile(head, lines)
            head, lines = row, []
        else:
            lines.append(row)
    if head is not None:
        yield _profile(head, lines)


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
        Event(names[index][0], names[index][1], (begun_ps + offset_ps) * 1e-12, (begun_ps + offset_ps + duration_ps) * 1e-12, statistics)
        for index, offset_ps, duration_ps, statistics in line["events"]
    ]
    events.sort(key=lambda event: (event.start_s, -event.end_s))
    return Timeline(line["plane"], line["line"], tuple(events))
