"""The fingerprint of what is measured on (machine, device, TensorFlow), and the choice of the device.

:func:`fingerprint` is the record of that name in calibrate/records.py; calibrate/fit/writing.py takes its fields by name.
"""

from __future__ import annotations

import glob
import os
import platform
import shutil
import subprocess
import sys
from typing import Any

from .ending import UsageError


def cpu_model() -> str:
    """Name of the processor, as the system tells it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            for line in lines:
                if line.lower().startswith(("model name", "hardware", "cpu model")):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def usable_cores() -> int:
    """Processor cores that this process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS and Windows
        return os.cpu_count() or 1


def _nvidia_smi() -> list[str]:
    if shutil.which("nvidia-smi") is None:
        return []
    try:
        query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        answer = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in answer.stdout.splitlines() if line.strip()] if answer.returncode == 0 else []


def gpus_of_machine() -> list[str]:
    """NVIDIA GPUs that the machine has, whether or not TensorFlow sees them."""
    named = _nvidia_smi()
    if named:
        return named
    found = sorted(glob.glob("/proc/driver/nvidia/gpus/*")) or sorted(glob.glob("/dev/nvidia[0-9]*"))
    return [os.path.basename(path) for path in found]


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
    gpus = tf.config.list_physical_devices("GPU")
    if wanted is None:
        wanted = "GPU:0" if gpus else "CPU:0"
    kind, _, index = wanted.upper().lstrip("/").partition(":")
    index = index or "0"
    if kind not in ("CPU", "GPU") or not index.isdigit():
        raise UsageError(f"`device`: {wanted!r} must be CPU, GPU or GPU:INDEX")
    if int(index) >= len(tf.config.list_physical_devices(kind)):
        raise UsageError(f"`device`: {wanted!r}: TensorFlow sees {len(gpus)} GPU(s) here; choose another device, or repair the driver")
    return f"/{kind}:{index}", kind


def compute_alike(tf: Any) -> None:
    """Let the same program compute the same numbers whatever else runs: on one core, since sums depend on how many share them.

    Several processes at once use the others; they may share a GPU too. To be called before anything is computed.
    """
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.experimental.enable_op_determinism()
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)


def fingerprint(tf: Any, device: str, kind: str) -> dict[str, Any]:
    """Everything that a measured time may depend on, as plain data."""
    seen = tf.config.list_physical_devices("GPU")
    present = gpus_of_machine()
    build = tf.sysconfig.get_build_info()
    record: dict[str, Any] = {
        "tensorflow": tf.__version__,
        "keras": _keras_version(),
        "python": platform.python_version(),
        "executable": sys.executable,
        "os": platform.platform(),
        "device": device,
        "device_kind": kind,
        "device_name": cpu_model(),
        "cpu": cpu_model(),
        "cores": usable_cores(),
        "intra_op_threads": tf.config.threading.get_intra_op_parallelism_threads() or _asked("TF_NUM_INTRAOP_THREADS"),
        "inter_op_threads": tf.config.threading.get_inter_op_parallelism_threads() or _asked("TF_NUM_INTEROP_THREADS"),
        "cuda": str(build.get("cuda_version", "")),
        "cudnn": str(build.get("cudnn_version", "")),
        "driver": "",
        "gpus_present": present,
        "gpus_seen": len(seen),
        "gpu_unseen": bool(present) and not seen,
    }
    if seen and kind == "GPU":
        details = tf.config.experimental.get_device_details(seen[int(device.rpartition(":")[2])])
        record["device_name"] = details.get("device_name", "GPU")
        record["driver"] = present[0].rpartition(",")[2].strip() if present and "," in present[0] else ""
    return record


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
