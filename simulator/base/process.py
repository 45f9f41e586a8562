"""Resources of this process: temporary folders that are removed however it ends, even if killed, and the memory that is still available.

A process that is killed cannot tidy up. So a second one does, which knows by a pipe that the first has ended: a keeper, this
file run as a program, in a session of its own where a kill of the whole process group does not reach it. It runs without Paceline
(``python -I -S``): this file may import only the standard library.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import glob
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

_ENDED_WITHIN_S = 5.0
_OTHERS_S = 2.0
"""For so long names that belong to a process are left to whoever else removes them: its children, which end by themselves, may look
for them until then.
"""
_EACH_S = 0.02
_NAMED_BY, _OF_RAY = ("TMPDIR", "RAY_TMPDIR"), b"ray::"
_BEGUN_S = time.time() - 0.1
"""When this process began, as far as the clock of files tells, which may be late by some hundredths of a second."""


@contextlib.contextmanager
def scratch(*beside: Path, within: str | None = None) -> Iterator[Path]:
    """A folder of the block's own; it is removed when the block ends, or this process, be it killed.

    Processes that still work there are ended, where the system tells of them in ``/proc``: those that were started with the folder
    as their ``TMPDIR`` or ``RAY_TMPDIR``, and no others, though they may have a file of it open; never this one.

    Parameters
    ----------
    *beside
        Files or folders elsewhere to remove too, if they exist then.
    within
        Where the folder is made; in the temporary folder, if None.

    Raises
    ------
    OSError
        The folder cannot be made, or no process be started.
    """
    folder = Path(tempfile.mkdtemp(prefix="paceline-", dir=within))
    try:
        keeper = _Keeper([glob.escape(os.path.abspath(place)) for place in (folder, *beside)])
    except BaseException:
        _remove([folder, *beside])
        raise
    try:
        yield folder
    finally:
        keeper.close()


@cache
def removed_after_this_process(pattern: str) -> None:
    """Have whatever a pattern of :mod:`glob`, an absolute path, fits be removed when this process has ended, be it killed.

    Only what belongs to this user and has come since this process began: of containers that share a folder, several have a
    process of the same number.

    Raises
    ------
    OSError
        No process can be started.
    """
    atexit.register(_Keeper([pattern], _BEGUN_S).close)


class _Keeper:
    """The process that tidies up what patterns fit, for the one that makes it: a child that was forked from that does nothing.

    Where ``since_s`` is given, seconds as files have them, it leaves alone what is older, or another user's.
    """

    def __init__(self, patterns: Sequence[str], since_s: float | None = None) -> None:
        self._patterns, self._since_s, self._for = patterns, since_s, os.getpid()
        self._process = subprocess.Popen(  # noqa: S603 - this Python
            [sys.executable, "-I", "-S", "-B", __file__, "" if since_s is None else repr(since_s), *patterns],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )

    def close(self) -> None:
        """Have it tidy up now, and wait until it has."""
        if os.getpid() != self._for:
            return
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # somebody has killed it
            self._process.stdin.write(b"\n")  # a child that was forked may hold the pipe open
            self._process.stdin.close()
        self._process.wait()
        _remove(_matching(self._patterns, self._since_s))  # where somebody has killed it


def _keep(since_s: float | None, patterns: Sequence[str]) -> None:
    """Wait for a word, or for the end of whoever would say it, then tidy up."""
    starter = os.getppid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    said = sys.stdin.buffer.read(1)
    _end_workers([place for place in _matching(patterns, since_s) if place.is_dir()], {starter, os.getpid()})
    deadline_s = time.monotonic() + (_OTHERS_S if since_s is not None and not said else 0.0)
    while _matching(patterns, since_s) and time.monotonic() < deadline_s:
        time.sleep(_EACH_S)
    _remove(_matching(patterns, since_s))


def _matching(patterns: Sequence[str], since_s: float | None) -> list[Path]:
    """Return what patterns fit; ``since_s`` as in :class:`_Keeper`."""
    places = [Path(place) for pattern in patterns for place in glob.glob(pattern)]
    return places if since_s is None else [place for place in places if _is_own(place, since_s)]


def _is_own(place: Path, since_s: float) -> bool:
    with contextlib.suppress(OSError):  # it is gone
        state = place.lstat()
        return state.st_uid == os.getuid() and state.st_mtime >= since_s
    return False


def _end_workers(folders: Sequence[Path], but: set[int]) -> None:
    """Kill whoever works in these folders, and wait until they are gone."""
    deadline_s = time.monotonic() + _ENDED_WITHIN_S
    while (at_work := [process for process in _processes() - but if _works_in(process, folders)]) and time.monotonic() < deadline_s:
        for process in at_work:
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
        time.sleep(_EACH_S)


def _processes() -> set[int]:
    """Return all that the system tells of; none where it has no ``/proc``."""
    with contextlib.suppress(OSError):
        return {int(name) for name in os.listdir("/proc") if name.isdecimal()}
    return set()


def _works_in(process: int, folders: Sequence[Path]) -> bool:
    """Return whether a process, of this user, was started with one of the folders as its temporary one.

    Ray's write their titles over what they were started with: those are known by a file in the folder that they have open.
    """
    state = Path("/proc", str(process))
    with contextlib.suppress(OSError):  # it has ended, or is another user's
        values = dict(line.partition("=")[::2] for line in os.fsdecode((state / "environ").read_bytes()).split("\0"))
        if any(Path(values.get(name, os.sep)) in folders for name in _NAMED_BY):
            return True
        if (state / "cmdline").read_bytes().startswith(_OF_RAY):
            opened = [os.path.realpath(file) for file in (state / "fd").iterdir()]
            return any(folder in Path(path).parents for path in opened for folder in folders)
    return False


def _remove(places: Sequence[Path]) -> None:
    for place in places:
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                place.unlink()


if __name__ == "__main__":
    _keep(float(sys.argv[1]) if sys.argv[1] else None, sys.argv[2:])


_CGROUPS = ((Path("/sys/fs/cgroup"), "memory.max", "memory.current"),
            (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.usage_in_bytes"))  # fmt: skip
"""Where a control group says what it may take and what it takes, in version 2 and 1."""
_MANY = 10_000


def available_bytes() -> float | None:
    """Bytes of memory that this process can take before something ends it; None where the system does not say."""
    return min(_limits(), default=None)


def give_back(items: int) -> None:
    """Let the system have what this process has freed, as far as the C library keeps it for later; without glibc, do nothing.

    Nor for tables of few ``items``: allocating those pages again costs as much as the rest of the start of such a simulation.
    """
    if items < _MANY:
        return
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):  # TypeError: on Windows
        return
    trim(0)


def _limits() -> Iterator[float]:
    """Yield what each limit leaves, as far as it is known."""
    known = _table(Path("/proc/meminfo"))
    if "MemAvailable" in known:
        yield known["MemAvailable"]
    elif hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        yield float(os.sysconf("SC_PHYS_PAGES")) * os.sysconf("SC_PAGE_SIZE")
    for folder, most, taken in _CGROUPS:
        limit, now = _number(folder / most), _number(folder / taken)
        if limit is not None and now is not None:
            # pages of files are given back when memory is wanted
            reclaimed = _table(folder / "memory.stat").get("inactive_file", 0.0)
            yield max(limit - now + reclaimed, 0.0)
    try:
        import resource
    except ImportError:  # not on Windows
        return
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        yield max(soft - _table(Path("/proc/self/status")).get("VmSize", 0.0), 0.0)


def _number(path: Path) -> float | None:
    """Return the number in a file; None without it, or where the file says that there is no limit."""
    try:
        return float(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _table(path: Path) -> dict[str, float]:
    """Bytes by name, of a file with a name and a number a line; those with the unit kB are multiplied out."""
    table: dict[str, float] = {}
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return table
    for line in lines:
        name, number, *unit = [*line.replace(":", " ").split(), "", ""][:3]
        if number.isdigit():
            table[name] = float(number) * (1024.0 if unit == ["kB"] else 1.0)
    return table
