"""The machine that is measured on: its fingerprint, the choice of the device, and what else it does while steps are timed.

:func:`fingerprint` is the record of that name in calibrate/measurements.py; calibrate/fit/writing.py takes its fields by name. Disturbances
of a round (other processes, stolen time, clock, GPU) go into ``load`` records as ``why``; calibrate/fit/runs.py leaves such rounds out.
Linux only where it reads /proc and /sys; what cannot be read is None, and never counts as a disturbance.
"""

from __future__ import annotations

import glob
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from typing import Any

from .recording import UsageError, framework

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


def cpu_model() -> str:
    """Name of the processor, as the system tells it."""
    named = (line for line in read_file("/proc/cpuinfo").splitlines() if line.lower().startswith(("model name", "hardware", "cpu model")))
    return next((line.partition(":")[2].strip() for line in named), platform.processor() or platform.machine())


def read_file(path: str) -> str:
    """The text of a file of the system; "" where there is none."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, ValueError):
        return ""


def asked_of_gpus(*query: str) -> list[str]:
    """The lines of nvidia-smi's answer; none where there is none."""
    try:
        command = ["nvidia-smi", *query, "--format=csv,noheader,nounits"]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in answer.stdout.splitlines() if line.strip()] if answer.returncode == 0 else []


def gpus_of_machine() -> list[str]:
    """NVIDIA GPUs that the machine has, whether or not a framework sees them."""
    paths = sorted(glob.glob("/proc/driver/nvidia/gpus/*")) or sorted(glob.glob("/dev/nvidia[0-9]*"))
    return asked_of_gpus("--query-gpu=name,driver_version") or [os.path.basename(path) for path in paths]


def choose_device(tf: Any, wanted: str | None) -> tuple[str, str]:
    """Device to measure on.

    Parameters
    ----------
    tf
        The TensorFlow module.
    wanted
        Such as ``CPU`` or ``GPU:1``; None takes the first GPU that TensorFlow sees, else the CPU.

    Returns
    -------
    (str, str)
        TensorFlow's name of it, and its kind (``CPU`` or ``GPU``).
    """
    kind, index = chosen(wanted, len(tf.config.list_physical_devices("GPU")), "TensorFlow")
    return f"/{kind}:{index}", kind


def chosen(wanted: str | None, gpus: int, whose: str) -> tuple[str, int]:
    """Kind (``CPU`` or ``GPU``) and number of the device that is asked for, where a framework sees so many GPUs.

    Raises
    ------
    UsageError
        There is no such device.
    """
    if wanted is None:
        wanted = "GPU:0" if gpus else "CPU:0"
    kind, _, index = wanted.upper().lstrip("/").partition(":")
    index = index or "0"
    if kind not in ("CPU", "GPU") or not index.isdigit():
        raise UsageError(f"`device`: {wanted!r} must be CPU, GPU or GPU:INDEX")
    if int(index) >= (gpus if kind == "GPU" else 1):
        raise UsageError(f"`device`: {wanted!r}: {whose} sees {gpus} GPU(s) here; choose another device, or repair the driver")
    return kind, int(index)


def tensorflow_alike(recorder: Any, wanted: str | None) -> tuple[Any, Any]:
    """TensorFlow that computes the same numbers whatever else runs: on one core, since sums depend on how many share them.

    Several processes at once use the others; they may share a GPU too. Records the fingerprint. Returns the module, and a context in which
    it computes on the device that is asked for.
    """
    tf = framework("tensorflow")
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.experimental.enable_op_determinism()
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
    device, kind = choose_device(tf, wanted)
    recorder.write("fingerprint", **fingerprint(tf, device, kind))
    return tf, tf.device(device)


def fingerprint(tf: Any, device: str, kind: str) -> dict[str, Any]:
    """Everything that a measured time may depend on, as plain data."""
    seen = tf.config.list_physical_devices("GPU")
    build = tf.sysconfig.get_build_info()
    record = {
        "tensorflow": tf.__version__,
        "keras": _keras_version(),
        **of_machine(kind, int(device.rpartition(":")[2]), len(seen)),
        "intra_op_threads": tf.config.threading.get_intra_op_parallelism_threads() or _asked("TF_NUM_INTRAOP_THREADS"),
        "inter_op_threads": tf.config.threading.get_inter_op_parallelism_threads() or _asked("TF_NUM_INTEROP_THREADS"),
        "cuda": str(build.get("cuda_version", "")),
        "cudnn": str(build.get("cudnn_version", "")),
    }
    if seen and kind == "GPU":
        details = tf.config.experimental.get_device_details(seen[int(device.rpartition(":")[2])])
        record["device_name"] = details.get("device_name", "GPU")
    return record


def of_machine(kind: str, index: int, gpus_seen: int) -> dict[str, Any]:
    """The part of a fingerprint that does not depend on the framework, which sees so many GPUs."""
    present = gpus_of_machine()
    return {
        "python": platform.python_version(),
        "executable": sys.executable,
        "os": platform.platform(),
        "device": f"/{kind}:{index}",
        "device_kind": kind,
        "device_name": cpu_model(),
        "cpu": cpu_model(),
        "cores": len(cores_of_process()),
        "driver": present[0].rpartition(",")[2].strip() if kind == "GPU" and present and "," in present[0] else "",
        "gpus_present": present,
        "gpus_seen": gpus_seen,
        "gpu_unseen": bool(present) and not gpus_seen,
    }


def _asked(name: str) -> int:
    """Threads that the environment asks TensorFlow for; 0: as many as there are cores."""
    value = os.environ.get(name, "")
    return int(value) if value.isdigit() else 0


def _keras_version() -> str:
    try:
        import keras
    except ImportError:
        return ""
    return str(getattr(keras, "__version__", ""))


# -- what else it does ------------------------------------------------------------------------


def ticks(cores: list[int]) -> tuple[float, float] | None:
    """Seconds that these cores were busy, and that the hypervisor gave to other machines, since the start of the machine."""
    rows = dict(line.split(None, 1) for line in read_file("/proc/stat").splitlines() if re.match(r"cpu\d", line))
    if any(f"cpu{core}" not in rows for core in cores):
        return None
    hertz = os.sysconf("SC_CLK_TCK")
    busy = stolen = 0.0
    for core in cores:
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
    # each file takes a moment to read
    clocks = [
        float(text) * 1e3 for core in cores[:16] if (text := read_file(f"/sys/devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq"))
    ]
    if not clocks:
        clocks = [float(value) * 1e6 for value in re.findall(r"^cpu MHz\s*:\s*([\d.]+)", read_file("/proc/cpuinfo"), re.MULTILINE)]
    return max(clocks, default=0.0) or None


def _throttled(cores: list[int]) -> int:
    """How often these cores were slowed down because they were hot, since the start of the machine."""
    return sum(int(read_file(f"/sys/devices/system/cpu/cpu{core}/thermal_throttle/core_throttle_count") or 0) for core in cores)


def gpu_used(device: str) -> float | None:
    """Per cent of its time that a GPU computes at the moment; asked before this process computes, it is what others do."""
    index = device.rpartition(":")[2]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        named = visible.split(",")
        index = named[int(index)].strip() if index.isdigit() and int(index) < len(named) else ""
    answer = asked_of_gpus("-i", index, "--query-gpu=utilization.gpu") if index.isdigit() else []
    try:
        return float(answer[0]) if answer else None
    except ValueError:  # such as [N/A]
        return None


def before_steps(kind: str, index: int, watch: Watch) -> dict[str, Any]:
    """The fields of a ``load`` record for the time from the start of the process on."""
    used = gpu_used(f"/{kind}:{index}") if kind == "GPU" else None
    why = f"other load took {used:.0f}% of GPU time" if used is not None and used > GPU_LIMIT else ""
    return {"stage": "before", "gpu_percent": used, "why": why, **watch.end()}


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
        """Everything that happened since, as the fields of a record."""
        wall, own, ticks, switches, throttled = self._begun
        wall_now, own_now, ticks_now, switches_now, throttled_now = self._now()
        others: float | None = None
        stolen = 0.0
        if ticks is not None and ticks_now is not None and ticks_now[0] > ticks[0]:
            others = round(max(ticks_now[0] - ticks[0] - (own_now - own), 0.0), 6)
            stolen = round(max(ticks_now[1] - ticks[1], 0.0), 6)
        return {
            "wall_s": wall_now - wall, "cores": len(self.cores), "own_s": own_now - own, "others_s": others, "stolen_s": stolen,
            "switches": switches_now - switches, "throttled": max(throttled_now - throttled, 0), "clock_hz": _clock_hz(self.cores),
        }  # fmt: skip


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


def others_took(share: float) -> str:
    """Return what others took, in words."""
    return f"other load took {share:.0%} of CPU time"


class Judge:
    """Tells disturbed rounds from others, by what was seen of them and of the rounds before."""

    def __init__(self, recorder: Any = None) -> None:
        self._recorder, self._watch = recorder, Watch()
        self._usual: dict[Any, float] = {}
        self._means: list[float] = []
        self._clocks: list[float] = []
        self._calm: list[dict[str, Any]] = []

    def begin(self) -> None:
        """A round begins."""
        self._watch.begin()

    def end(self, turn: int, means: dict[Any, float]) -> str:
        """The round has ended, with these mean times by what was timed: record what was seen, and why it does not count."""
        seen = self._watch.end()
        for case, mean in means.items():
            self._usual.setdefault(case, mean)
        why = self.round(seen, statistics.mean(mean / self._usual[case] for case, mean in means.items()))
        self._recorder.write("load", stage="round", round=turn, why=why, **seen)
        return why

    def round(self, seen: dict[str, Any], mean: float) -> str:
        """Say why a round does not count; "" if it does. ``mean``: of its steps, comparable between rounds."""
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
            return others_took(share)
        if clock is not None and clock < CLOCK * statistics.median(self._clocks):
            return f"the clock fell to {clock / 1e9:.2f} GHz"
        slow = mean / statistics.median(self._means)
        if slow > SLOW:
            share = taken(seen, NOTICED, sigmas=1.0)
            if share is not None:
                return f"{others_took(share)}, and steps took {slow:.2f} times as long as in other rounds"
            if seen["throttled"]:
                return f"the processor was throttled, and steps took {slow:.2f} times as long as in other rounds"
        return ""

    def all_rounds(self) -> dict[str, Any] | None:
        """All rounds that count, as one stretch: a load too small to be sure of in any one of them shows here."""
        if not self._calm:
            return None
        total = {key: sum(seen[key] for seen in self._calm) for key in ("wall_s", "own_s", "stolen_s", "switches", "throttled")}
        known = all(seen["others_s"] is not None for seen in self._calm)
        total["others_s"] = sum(seen["others_s"] for seen in self._calm) if known else None
        total["cores"] = self._calm[0]["cores"]
        total["clock_hz"] = statistics.median(self._clocks) if self._clocks else None
        share = taken(total, LIMIT)
        total["why"] = "" if share is None else f"{others_took(share)} in all rounds together"
        return total
