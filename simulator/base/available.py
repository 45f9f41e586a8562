"""How much memory this process may still take (of the machine, its control group, its own limit), and giving back what it has freed."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

_CGROUPS = ((Path("/sys/fs/cgroup"), "memory.max", "memory.current"),
            (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.usage_in_bytes"))  # fmt: skip
"""Where a control group says what it may take and what it takes, in version 2 and 1."""
_MANY = 10_000


def available_bytes() -> float | None:
    """Bytes of memory that this process can take before something ends it; None where the system does not say."""
    return min(_limits(), default=None)


def give_back(items: int) -> None:
    """Let the system have what this process has freed, as far as the C library keeps it for later; without glibc, do nothing.

    Nor for tables of few ``items``: to take those pages anew costs as much as the rest of such a simulation's beginning.
    """
    if items < _MANY:
        return
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):  # TypeError: on Windows
        return
    trim(0)


def _limits() -> Iterator[float]:
    """What each limit leaves, as far as it is known."""
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
    """What a file of one number says; None without it, or where it says that there is no limit."""
    try:
        return float(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _table(path: Path) -> dict[str, float]:
    """Bytes by name, of a file with a name and a number a line; those with the unit kB are multiplied out."""
    found: dict[str, float] = {}
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return found
    for line in lines:
        name, number, *unit = [*line.replace(":", " ").split(), "", ""][:3]
        if number.isdigit():
            found[name] = float(number) * (1024.0 if unit == ["kB"] else 1.0)
    return found
