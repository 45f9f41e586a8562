"""Profiles as TensorFlow writes them (XPlane), read by TensorFlow's own protobuf classes in a child process.

A profile is a set of planes (the host, each device), a plane a set of lines (a thread, a
stream of a GPU), a line a sequence of events with name, start, duration and statistics.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibrate.probing import PROBES
from simulator.errors import CalibrationError, InputError

__all__ = ["Event", "Profile", "Timeline", "read_profiles", "run_reader"]

_EXIT_NO_TENSORFLOW = 4
_EXIT_USAGE = 5


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


@dataclass(frozen=True)
class Timeline:
    """One line of a plane: events in the order in which they began, the longer first of equals."""

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
        What was recorded of each plane, by name.
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


def read_profiles(files: Sequence[Path], python: str | None = None, timeout_s: float | None = None) -> list[Profile]:
    """Read XPlane files.

    Parameters
    ----------
    files
        One a host.
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
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "timelines.ndjson"
        run_reader("xplane.py", [str(file) for file in files], out, python, timeout_s)
        with out.open(encoding="utf-8") as lines:
            return list(_profiles(json.loads(line) for line in lines))


def run_reader(script: str, arguments: Sequence[str], out: Path, python: str | None, timeout_s: float | None) -> None:
    """Run a probe that reads files: it writes ``out``, and says on its last line why it could not.

    Raises
    ------
    InputError
        There is no such Python, or what it read cannot be used.
    CalibrationError
        That Python has no TensorFlow, it took too long, or it broke.
    """
    executable = python or sys.executable
    command = [executable, "-B", str(PROBES / script), *arguments, "--out", str(out)]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    try:
        done = subprocess.run(  # noqa: S603 - the Python that the user named
            command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, env=environment, timeout=timeout_s
        )
    except OSError as error:
        raise InputError(
            f"--python {executable!r} cannot be run: {error.strerror or error}; give the path of a Python that has TensorFlow"
        ) from None
    except subprocess.TimeoutExpired:
        raise CalibrationError(f"reading was given up after {timeout_s:g} s (--timeout)") from None
    if done.returncode == 0:
        return
    printed = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    last = printed[-1] if printed else "it printed nothing"
    if done.returncode == _EXIT_NO_TENSORFLOW:
        raise CalibrationError(
            f"{executable} cannot import TensorFlow ({last}), whose classes read the file; install it there with "
            "`pip install 'paceline[tensorflow]'`, or name another Python with --python"
        )
    if done.returncode == _EXIT_USAGE:
        raise InputError(last)
    raise CalibrationError(last if done.returncode > 0 else f"the reader was killed by signal {-done.returncode}: {last}")


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
