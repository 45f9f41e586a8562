"""Whether this machine can run settings of the testbed, told before anything is started: links, TensorFlow, memory, disk."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from calibrate.testbed.setting import TestbedSetting
from simulator.errors import InputError

__all__ = ["check_congestion", "faults_of_machine", "obstacle_to_shaped_links"]

_TASK_BYTES = 120 * 2**20
"""Of a task's own memory, TensorFlow's that it shares with the process that forked it left out."""
_PROCESS_BYTES = 700 * 2**20
"""Of that process, with TensorFlow."""
_COPIES = 4
"""Of the variables in a worker: values, gradients, and what is on its way."""
_STEP_BYTES = 320
"""Of a step's line in a file of measurements."""
_HAS_TENSORFLOW = "import importlib.util, sys; sys.exit(importlib.util.find_spec('tensorflow') is None)"

_ALLOWED = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
_AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
_TRIAL = """
import ctypes, os, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
if libc.unshare(0x40000000):  # CLONE_NEWNET
    sys.exit(f"no network namespace can be made here ({os.strerror(ctypes.get_errno())}); it takes root")
for command in ("ip link add br0 type bridge", "ip link add v0 type veth peer name v1", f"tc qdisc add dev v0 root {sys.argv[1]}"):
    done = subprocess.run(command.split(), capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["it said nothing"])[0]
        sys.exit(f"`{command}` fails ({said}); it takes root, and a kernel with bridge, veth and htb")
"""
"""Tries in a network namespace of its own, which ends with the process, what the probe will do."""
_QDISC = {"fair": "htb", "tcp": "tbf rate 1mbit burst 64k latency 20ms"}


def obstacle_to_shaped_links(sharing: str) -> str | None:
    """Why links cannot be shaped on this machine, as a clause; None if they can.

    Parameters
    ----------
    sharing
        ``fair`` or ``tcp``: what is to share the flows of a link.
    """
    if sys.platform != "linux":
        return f"network namespaces are Linux's, and this is {sys.platform}"
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            return f"the program {tool} is missing; install iproute2"
    try:
        done = subprocess.run([sys.executable, "-c", _TRIAL, _QDISC[sharing]], capture_output=True, text=True, check=False, timeout=30)  # noqa: S603
    except subprocess.TimeoutExpired:
        return "making a network namespace took more than 30 s"
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["no network namespace can be made here; it takes root"])[-1]
    if not os.access(_ALLOWED, os.W_OK):
        return f"{_ALLOWED} may not be written here, so TCP's congestion control cannot be chosen; it takes root"
    return None


def check_congestion(name: str, where: str) -> None:
    """Raise InputError unless this machine has a congestion control; ``where`` begins the message."""
    available = _AVAILABLE.read_text(encoding="ascii").split()
    if name not in available:
        raise InputError(f"{where}: {name!r} is no congestion control of this machine; it has {', '.join(sorted(available))}")


def faults_of_machine(settings: Sequence[TestbedSetting], repeats: int, folder: Path, python: str | None = None) -> list[str]:
    """Why settings cannot be run on this machine, a line for each reason.

    Parameters
    ----------
    settings
        What is to be run, one after the other.
    repeats
        Of each.
    folder
        Of the raw measurements.
    python
        The user's Python; this one, if None.

    Returns
    -------
    list of str
        Empty where nothing speaks against them. Memory and disk are estimates, which refuse
        only what is far beyond what is free.
    """
    found = []
    for sharing in dict.fromkeys(one.link.sharing for one in settings if one.link is not None):
        obstacle = obstacle_to_shaped_links(sharing)
        if obstacle is not None:
            found.append(f"links with sharing = {sharing} cannot be shaped here: {obstacle}")
    if not found:
        for congestion in dict.fromkeys(one.link.congestion for one in settings if one.link is not None):
            try:
                check_congestion(congestion, "link.congestion")
            except InputError as error:
                found.append(str(error))
    return [*found, *_without_tensorflow(python), *_beyond_memory(settings), *_beyond_disk(settings, repeats, folder)]


def _without_tensorflow(python: str | None) -> list[str]:
    executable = python or sys.executable
    try:
        done = subprocess.run([executable, "-c", _HAS_TENSORFLOW], capture_output=True, check=False, timeout=60)  # noqa: S603
    except OSError as error:
        return [f"--python {executable!r} cannot be run: {error.strerror or error}; give the path of a Python that has TensorFlow"]
    except subprocess.TimeoutExpired:
        return [f"--python {executable!r}: did not start within 60 s"]
    return [f"{executable} has no TensorFlow; name a Python that has it (--python)"] if done.returncode else []


def _beyond_memory(settings: Sequence[TestbedSetting]) -> list[str]:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):  # not Linux
        return []
    needed, largest = max(((_memory_bytes(one), one) for one in settings), key=lambda pair: pair[0])
    if needed <= free:
        return []
    return [f"{largest.label}: needs about {needed / 2**30:.1f} GiB of memory, and {free / 2**30:.1f} GiB are free; take fewer workers"]


def _memory_bytes(setting: TestbedSetting) -> float:
    tasks = setting.workers + setting.servers + 1
    copies = _COPIES * setting.workers + (2 if setting.servers else 0)
    return _PROCESS_BYTES + tasks * _TASK_BYTES + copies * setting.parameter_bytes


def _beyond_disk(settings: Sequence[TestbedSetting], repeats: int, folder: Path) -> list[str]:
    there = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    free = shutil.disk_usage(there).free
    needed = sum(repeats * one.workers * one.steps * _STEP_BYTES for one in settings)
    if needed <= free:
        return []
    return [f"--measurements {str(folder)!r}: takes about {needed / 2**30:.2f} GiB, and {free / 2**30:.2f} GiB are free there"]
