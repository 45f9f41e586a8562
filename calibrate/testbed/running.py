"""Runs a testbed setting on this machine: what speaks against it, a guess of how long it takes, and the run itself.

The guess uses only +, -, *, / and max, so that it is the same number on any machine: it chooses the steps of
the settings that a random matrix draws; no prediction rests on it. ``_TRIAL`` tries beforehand what
``calibrate/probes/testbed/links.py`` does. The setting's hash is in the name of its measurement file, by which
:mod:`calibrate.validation.running` finds what was measured before.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from calibrate.measurements import Repeat, new_file, read_measurements
from calibrate.probing import Progress, checkpoints_beside, run_probe
from calibrate.testbed.loading import builder_of
from calibrate.testbed.readings import Readings, read_run
from calibrate.testbed.setting import TestbedSetting
from simulator.base.errors import CalibrationError, InputError, PacelineWarning
from simulator.base.files import check_folder
from simulator.base.process import scratch
from simulator.spec.distributions import Distribution

_TASK_BYTES = 120 * 2**20
"""A task's own memory, without TensorFlow's, which it shares with the process that forked it."""
_PROCESS_BYTES = 700 * 2**20
"""Memory of that process, with TensorFlow."""
_COPIES = 4
"""How often a worker holds the variables: values, gradients, and what is on its way."""
_STEP_BYTES = 320
"""Length of a step's line in a file of measurements."""
_OUTSIDE = "import sys; sys.path[:] = filter(None, sys.path)\n"
"""Begins a program for ``python -c``, which would else take modules from the working directory, where strangers may have written."""
_HAS_TENSORFLOW = _OUTSIDE + "import importlib.util; sys.exit(importlib.util.find_spec('tensorflow') is None)"

_ALLOWED = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
_AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
_TRIAL = (
    _OUTSIDE
    + """
import ctypes, os, subprocess
libc = ctypes.CDLL(None, use_errno=True)
if libc.unshare(0x40000000):  # CLONE_NEWNET
    sys.exit(f"no network namespace can be made here ({os.strerror(ctypes.get_errno())}); it takes root")
for command in ("ip link add br0 type bridge", "ip link add v0 type veth peer name v1", f"tc qdisc add dev v0 root {sys.argv[1]}"):
    done = subprocess.run(command.split(), capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["it said nothing"])[0]
        sys.exit(f"`{command}` fails ({said}); it takes root, and a kernel with bridge, veth and htb")
"""
)
"""Tries in a network namespace of its own, which ends with the process, what the probe will do."""
_QDISC = {"fair": "htb", "tcp": "tbf rate 1mbit burst 64k latency 20ms"}

_LOOPBACK_BYTES_PER_S = 1.0e9
_GAP_S = 0.005
"""From a step's end to the next one's begin."""
_MESSAGE_S = 0.002
"""A host's work on a message of a ring."""
_FLOPS = 1.0e11
"""A core's dense matrix products a second, an order of magnitude."""
_FUNCTION_S = 0.02
"""A step of a model whose operations are not known."""
_CORES = 2
_START_S, _START_TASK_S = 3.0, 0.3
"""A repeat's cluster: once, and for each task."""
_IMPORT_S = 5.0
"""TensorFlow, once a setting."""


# -- whether it can run here ---------------------------------------------------------


def obstacle_to_shaped_links(sharing: str) -> str | None:
    """Say why links cannot be shaped on this machine, as a clause; None if they can.

    Parameters
    ----------
    sharing
        ``fair`` or ``tcp``: what is to share the flows of a link.
    """
    if sys.platform != "linux":
        return f"network namespaces need Linux, and this is {sys.platform}"
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            return f"the program {tool} is missing; install iproute2"
    try:
        done = subprocess.run([sys.executable, "-c", _TRIAL, _QDISC[sharing]], capture_output=True, text=True, check=False, timeout=30)  # noqa: S603
    except subprocess.TimeoutExpired:
        return "making a network namespace took more than 30 s"
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["no network namespace can be created here; it needs root"])[-1]
    if not os.access(_ALLOWED, os.W_OK):
        return f"{_ALLOWED} is not writable here, so TCP's congestion control cannot be chosen; it needs root"
    return None


def check_congestion(name: str, where: str) -> None:
    """Raise InputError unless this machine has a congestion control; ``where`` begins the message."""
    available = _AVAILABLE.read_text(encoding="ascii").split()
    if name not in available:
        raise InputError(f"{where}: {name!r} is not a congestion control of this machine; it has {', '.join(sorted(available))}")


def on_available_links(setting: TestbedSetting, source: str, *, chosen: bool) -> TestbedSetting:
    """The setting as this machine can run it: on loopback, with a warning, where links cannot be shaped and nobody has chosen them.

    Raises
    ------
    InputError
        Somebody has; or the machine lacks the congestion control.
    """
    if setting.link is None:
        return setting
    obstacle = obstacle_to_shaped_links(setting.link.sharing)
    if obstacle is None:
        check_congestion(setting.link.congestion, f"{source}: link.congestion")
        return setting
    if chosen:
        raise InputError(f'{source}: link: links cannot be shaped: {obstacle}; or use link = "loopback"')
    warnings.warn(PacelineWarning(f"links cannot be shaped: {obstacle}. Running on loopback instead."), stacklevel=2)
    return setting.model_copy(update={"link": None})


def faults_of_machine(settings: Sequence[TestbedSetting], repeats: int, folder: Path, python: str | None = None) -> list[str]:
    """Say why settings cannot be run on this machine, a line for each reason.

    Parameters
    ----------
    settings
        What is to be run, one after the other.
    repeats
        How often each is run.
    folder
        Where raw measurements go.
    python
        The user's Python; this one, if None.

    Returns
    -------
    list of str
        Empty where nothing speaks against them. Memory and disk are estimates, which refuse
        only what is far beyond what is free.
    """
    faults = []
    for sharing in dict.fromkeys(setting.link.sharing for setting in settings if setting.link is not None):
        obstacle = obstacle_to_shaped_links(sharing)
        if obstacle is not None:
            faults.append(f"links with sharing = {sharing} cannot be shaped here: {obstacle}")
    if not faults:
        for congestion in dict.fromkeys(setting.link.congestion for setting in settings if setting.link is not None):
            try:
                check_congestion(congestion, "link.congestion")
            except InputError as error:
                faults.append(str(error))
    return [*faults, *_without_tensorflow(python), *_beyond_memory(settings), *_beyond_disk(settings, repeats, folder)]


def _without_tensorflow(python: str | None) -> list[str]:
    executable = python or sys.executable
    try:
        done = subprocess.run([executable, "-c", _HAS_TENSORFLOW], capture_output=True, check=False, timeout=60)  # noqa: S603
    except OSError as error:
        return [f"`python`: {executable!r} cannot be run: {error.strerror or error}; give the path of a Python that has TensorFlow"]
    except subprocess.TimeoutExpired:
        return [f"`python`: {executable!r} did not start within 60 s"]
    return [f"{executable} has no TensorFlow: give a Python that has it (`python`)"] if done.returncode else []


def _beyond_memory(settings: Sequence[TestbedSetting]) -> list[str]:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):  # not Linux
        return []
    needed, largest = max(((_memory_bytes(setting), setting) for setting in settings), key=lambda pair: pair[0])
    if needed <= free:
        return []
    return [f"{largest.label}: needs about {needed / 2**30:.1f} GiB of memory, and {free / 2**30:.1f} GiB are free: use fewer workers"]


def _memory_bytes(setting: TestbedSetting) -> float:
    tasks = setting.workers + setting.servers + 1
    copies = _COPIES * setting.workers + (2 if setting.servers else 0)
    return _PROCESS_BYTES + tasks * _TASK_BYTES + copies * setting.parameter_bytes


def _beyond_disk(settings: Sequence[TestbedSetting], repeats: int, folder: Path) -> list[str]:
    there = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    free = shutil.disk_usage(there).free
    needed = math.fsum(repeats * setting.workers * setting.steps * _STEP_BYTES for setting in settings)
    if needed <= free:
        return []
    return [f"`measurements`: {str(folder)!r}: takes about {needed / 2**30:.2f} GiB, and {free / 2**30:.2f} GiB are free there"]


# -- about how long --------------------------------------------------------------------


def guessed_run_s(setting: TestbedSetting, repeats: int) -> float:
    """Seconds of all repeats of a setting, their start and warm-up included."""
    tasks = setting.workers + setting.servers
    return _IMPORT_S + repeats * (_START_S + _START_TASK_S * tasks + (setting.steps + setting.warm_up) * guessed_step_s(setting))


def guessed_step_s(setting: TestbedSetting) -> float:
    """Seconds of a worker's step while all workers run; of processes that take turns, of all turns together."""
    workers = setting.workers
    rate = setting.link.bandwidth_bytes_per_s if setting.link is not None else _LOOPBACK_BYTES_PER_S
    moved_s = setting.moved_bytes / rate
    compute_s = guessed_compute_s(setting)
    if setting.mode == "apart":  # in turns, all together and each alone
        return 2 * workers * compute_s
    if setting.compute.kind == "real":
        compute_s *= max(workers / _CORES, 1.0)
    together_s = compute_s * _of_slowest(setting.compute.law, workers)
    if not setting.servers:
        rounds = 2 * (workers - 1)
        return _GAP_S + together_s + rounds * (moved_s / workers + _MESSAGE_S)
    server_s = workers * moved_s * busiest_share((variable.size_bytes for variable in setting.variables), setting.servers)
    if setting.mode == "sync":
        return _GAP_S + together_s + 2 * max(moved_s, server_s)
    return max(_GAP_S + compute_s + 2 * moved_s, server_s)


def guessed_compute_s(setting: TestbedSetting) -> float:
    """Seconds of a worker's compute, alone on a core: as it is emulated, or two products forward and four backward a weight and sample."""
    if setting.compute.kind == "emulated":
        return float(setting.compute.mean_s)
    weights = setting.parameter_bytes / 4
    return 6 * weights * setting.batch / _FLOPS if ":" not in setting.model else _FUNCTION_S


def busiest_share(sizes: Iterable[float], servers: int) -> float:
    """Share of the bytes on the server that has most, where variables are dealt out one by one."""
    held = [0.0] * servers
    for index, size in enumerate(sizes):
        held[index % servers] += size
    return max(held) / math.fsum(held)


def _of_slowest(law: Distribution, workers: int) -> float:
    """Approximate ratio of the slowest of some workers to the mean: exact for an exponential distribution."""
    variation: float = {"constant": 0.0, "exponential": 1.0, "gamma": 0.4, "lognormal": 0.3}.get(law.kind, 0.3)
    return 1.0 + variation * math.fsum(1.0 / number for number in range(2, workers + 1))


# -- the run -----------------------------------------------------------------------------


def measure_setting(
    setting: TestbedSetting,
    folder: Path,
    *,
    repeats: int = 3,
    seed: int = 0,
    timeout_s: float = 600.0,
    python: str | None = None,
    progress: Progress | None = None,
) -> Readings:
    """Run a real TensorFlow cluster as the setting says, and measure it.

    Parameters
    ----------
    setting
        What is run.
    folder
        Where raw measurements go; each call adds a file.
    repeats
        How often; each repeat starts a new cluster.
    seed
        Seed of the emulated device and of staggered starts.
    timeout_s
        Seconds after which one repeat is given up.
    python
        The user's Python; this one, if None.
    progress
        Called while it runs.

    Raises
    ------
    InputError
        There is no such Python, or real compute is asked of a model without code, or its code is not there.
    CalibrationError
        A task died, or hung, or the machine does not reach the rate; names what was kept.
    KeyboardInterrupt
        The run was stopped. A note of it, as of CalibrationError, says how many repeats had come to
        their end, and where they are.
    """
    check_folder(folder).mkdir(parents=True, exist_ok=True)
    path = new_file(folder, f"{setting.mode}-{setting.workers}w{setting.servers}s-{setting.hash}", "testbed")
    with _noting_what_is_kept(path, repeats), scratch() as own:
        spec = own / "setting.json"
        wanted = setting.for_probe(repeats, seed, timeout_s)
        if setting.compute.kind == "real":
            wanted["builder"] = builder_of(setting.model)
        if setting.is_job:
            wanted["checkpoints"] = str(checkpoints_beside(path.absolute()))
        spec.write_text(json.dumps(wanted), encoding="utf-8")
        # the probe keeps time for each repeat itself; this is for a probe that hangs
        run_probe("testbed.run", ["--setting", str(spec), "--parent", str(os.getpid())], path, python, timeout_s * repeats + 60.0, progress)
    return read_run(path)


def retried(measure: Callable[[], Readings], label: str) -> Readings:
    """Measure, at a second try where the first fails: among many runs TensorFlow fails in one for no lasting reason.

    Warns
    -----
    PacelineWarning
        The first try failed; says why.

    Raises
    ------
    CalibrationError
        The second try failed too.
    """
    try:
        return measure()
    except CalibrationError as error:
        warnings.warn(PacelineWarning(f"{label}: failed and runs once more: {error}"), stacklevel=2)
    return measure()


@contextmanager
def _noting_what_is_kept(path: Path, repeats: int) -> Iterator[None]:
    """Where the run is stopped or fails, notes with the error how many repeats are kept; a stopped run without any leaves no file."""
    try:
        yield
    except (KeyboardInterrupt, CalibrationError) as error:
        try:
            whole = len(read_measurements(path).of(Repeat)) if path.exists() else 0
        except CalibrationError:  # cut off in its first line
            whole = 0
        if whole:
            error.add_note(f"{whole} of {repeats} repeats finished; read them with `paceline testbed show {path}`")
        elif isinstance(error, KeyboardInterrupt):
            path.unlink(missing_ok=True)
            error.add_note("no repeat finished, so nothing is kept")
        raise
