"""The fingerprint of what is measured on (machine, device, framework), and the choice of the device.

:func:`fingerprint` is the record of that name in calibrate/measurements.py; calibrate/fit/writing.py takes its fields by name.
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
    """NVIDIA GPUs that the machine has, whether or not a framework sees them."""
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
    kind, index = chosen(wanted, len(tf.config.list_physical_devices("GPU")), "TensorFlow")
    return f"/{kind}:{index}", kind


def chosen(wanted: str | None, gpus: int, framework: str) -> tuple[str, int]:
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
        raise UsageError(f"`device`: {wanted!r}: {framework} sees {gpus} GPU(s) here; choose another device, or repair the driver")
    return kind, int(index)


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
    """What of it does not depend on the framework, which sees so many GPUs."""
    present = gpus_of_machine()
    return {
        "python": platform.python_version(),
        "executable": sys.executable,
        "os": platform.platform(),
        "device": f"/{kind}:{index}",
        "device_kind": kind,
        "device_name": cpu_model(),
        "cpu": cpu_model(),
        "cores": usable_cores(),
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
