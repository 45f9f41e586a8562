"""Sees what else a machine does while steps are timed (other processes, stolen time, clock, GPU), and judges which rounds that disturbs.

Linux only where it reads /proc and /sys; what cannot be read is None, and never counts as
a disturbance. The reasons go into ``load`` records as ``why``; calibrate/fit/runs.py leaves such rounds out.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import statistics
import subprocess
import time
from typing import Any

LIMIT = 0.05
"""Share of the processor's time that others may take of a round."""
NOTICED = 0.02
"""Share from which on a round that is slow as well counts as disturbed."""
SLOW = 1.10
"""Mean step of such a round, over the median of all rounds."""
CLOCK = 0.85
"""The clock of a round, over the median of all rounds, below which it has fallen."""
GPU_LIMIT = 5.0
"""Per cent of the GPU's time that others may take before the first step."""
SIGMAS = 2.0


def cores_of_process() -> list[int]:
    """Processor cores that this process may run on, by number."""
    try:
        return sorted(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS and Windows
        return list(range(os.cpu_count() or 1))


def ticks(cores: list[int]) -> tuple[float, float] | None:
    """Seconds that these cores were busy, and that the hypervisor gave to other machines, since the start of the machine."""
    try:
        with open("/proc/stat", encoding="ascii") as lines:
            rows = dict(line.split(None, 1) for line in lines if re.match(r"cpu\d", line))
        hertz = os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, AttributeError):
        return None
    busy = stolen = 0.0
    for core in cores:
        if f"cpu{core}" not in rows:
            return None
        # user nice system idle iowait irq softirq steal; what guests take is in user already
        fields = [int(field) for field in rows[f"cpu{core}"].split()] + [0] * 8
        busy += sum(fields[:3]) + sum(fields[5:7])
        stolen += fields[7]
    return busy / hertz, stolen / hertz


def _switches() -> int:
    """How often this process was taken off a core although it had work."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw)


def _clock_hz(cores: list[int]) -> float | None:
    """Clock of the fastest of the cores: the ones that are idle may be slow without harm."""
    found = []
    for core in cores[:16]:  # each file takes a moment to read
        try:
            with open(f"/sys/devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq", encoding="ascii") as file:
                found.append(float(file.read()) * 1e3)
        except (OSError, ValueError):
            break
    if not found:
        try:
            with open("/proc/cpuinfo", encoding="utf-8") as file:
                found = [float(value) * 1e6 for value in re.findall(r"^cpu MHz\s*:\s*([\d.]+)", file.read(), re.MULTILINE)]
        except (OSError, ValueError):
            pass
    return max(found) if found and max(found) > 0 else None


def _throttled(cores: list[int]) -> int:
    """How often these cores were slowed down because they were hot, since the start of the machine."""
    count = 0
    for core in cores:
        for path in glob.glob(f"/sys/devices/system/cpu/cpu{core}/thermal_throttle/core_throttle_count"):
            try:
                with open(path, encoding="ascii") as file:
                    count += int(file.read())
            except (OSError, ValueError):
                pass
    return count


def gpu_used(device: str) -> float | None:
    """Per cent of its time that a GPU computes at the moment; asked before this process computes, it is what others do."""
    index = device.rpartition(":")[2]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        named = visible.split(",")
        index = named[int(index)].strip() if index.isdigit() and int(index) < len(named) else ""
    if not index.isdigit() or shutil.which("nvidia-smi") is None:
        return None
    query = ["nvidia-smi", "-i", index, "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False)
        return float(answer.stdout) if answer.returncode == 0 else None
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


class Watch:
    """Looks at the machine at the beginning and at the end of a stretch of time."""

    def __init__(self) -> None:
        self.cores = cores_of_process()
        self.begin()

    def _now(self) -> tuple[float, float, tuple[float, float] | None, int, int]:
        return time.perf_counter(), time.process_time(), ticks(self.cores), _switches(), _throttled(self.cores)

    def begin(self) -> None:
        """From here on."""
        self._begun = self._now()

    def end(self) -> dict[str, Any]:
        """What happened since, as the fields of a record."""
        wall, own, ticks, switches, throttled = self._begun
        wall_now, own_now, ticks_now, switches_now, throttled_now = self._now()
        others: float | None = None
        stolen = 0.0
        if ticks is not None and ticks_now is not None and ticks_now[0] > ticks[0]:
            others = round(max(ticks_now[0] - ticks[0] - (own_now - own), 0.0), 6)
            stolen = round(max(ticks_now[1] - ticks[1], 0.0), 6)
        return {
            "wall_s": wall_now - wall,
            "cores": len(self.cores),
            "own_s": own_now - own,
            "others_s": others,
            "stolen_s": stolen,
            "switches": switches_now - switches,
            "throttled": max(throttled_now - throttled, 0),
            "clock_hz": _clock_hz(self.cores),
        }


def _resolution_s(seen: dict[str, Any]) -> float:
    """Standard deviation of what others seem to take: the kernel looks at each tick who has the core, and counts the tick as his."""
    capacity = seen["wall_s"] * seen["cores"]
    own = min(max(seen["own_s"] / capacity, 0.02), 0.98)
    hertz = float(os.sysconf("SC_CLK_TCK"))
    return max(float((capacity * own * (1.0 - own) / hertz) ** 0.5), 1.0 / hertz)


def taken(seen: dict[str, Any], limit: float, sigmas: float = SIGMAS) -> float | None:
    """Share of the processor's time that others took, if it is surely above a limit; None if not."""
    if seen["others_s"] is None or seen["wall_s"] <= 0:
        return None
    capacity = seen["wall_s"] * seen["cores"]
    lost = seen["others_s"] + seen["stolen_s"]
    return lost / capacity if lost > limit * capacity + sigmas * _resolution_s(seen) else None


class Judge:
    """Tells disturbed rounds from others, by what was seen of them and of the rounds before."""

    def __init__(self) -> None:
        self._means: list[float] = []
        self._clocks: list[float] = []
        self._calm: list[dict[str, Any]] = []

    def round(self, seen: dict[str, Any], mean: float) -> str:
        """Why a round does not count; "" if it does. ``mean``: of its steps, comparable between rounds."""
        self._means.append(mean)
        clock = seen["clock_hz"]
        if clock is not None:
            self._clocks.append(clock)
        why = self._why(seen, mean, clock)
        if not why:
            self._calm.append(seen)
        return why

    def _why(self, seen: dict[str, Any], mean: float, clock: float | None) -> str:
        share = taken(seen, LIMIT)
        if share is not None:
            return f"others took {share:.0%} of the processor's time"
        if clock is not None and clock < CLOCK * statistics.median(self._clocks):
            return f"the clock fell to {clock / 1e9:.2f} GHz"
        slow = mean / statistics.median(self._means)
        if slow > SLOW:
            share = taken(seen, NOTICED, sigmas=1.0)
            if share is not None:
                return f"others took {share:.0%} of the processor's time, and steps took {slow:.2f} times as long as in other rounds"
            if seen["throttled"]:
                return f"the processor was throttled, and steps took {slow:.2f} times as long as in other rounds"
        return ""

    def all_rounds(self) -> dict[str, Any] | None:
        """All rounds that count, as one stretch: a load too small to be sure of in any one of them shows here."""
        if not self._calm:
            return None
        total = {key: sum(one[key] for one in self._calm) for key in ("wall_s", "own_s", "stolen_s", "switches", "throttled")}
        known = all(one["others_s"] is not None for one in self._calm)
        total["others_s"] = sum(one["others_s"] for one in self._calm) if known else None
        total["cores"] = self._calm[0]["cores"]
        total["clock_hz"] = statistics.median(self._clocks) if self._clocks else None
        share = taken(total, LIMIT)
        total["why"] = "" if share is None else f"others took {share:.0%} of the processor's time in all rounds together"
        return total
