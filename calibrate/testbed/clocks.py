"""Estimates the testbed parameters that clocks inside a step and CPU times of processes show directly, without the simulator.

A sleeping device takes no core, so the CPU time of workers and servers is the work of calls, scheduling, messages and copying, with the
kernel's work on packets: all tasks together account for the machine's busy cores to 2% in undisturbed runs. Runs of several sizes tell
what a step takes whatever its bytes from what each byte, tensor and server takes. All other parameters are fitted in fitting.py.
"""

from __future__ import annotations

import bisect
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrate.measurements import Z90, Updated
from calibrate.testbed.platform import PRIORS, Parameter
from calibrate.testbed.readings import OneRun, Readings
from calibrate.testbed.setting import TestbedSetting
from simulator.base.text import digits

_UNREPEATED = 0.05
"""Assumed standard deviation of a run's slowdown if there is only one run."""

_OTHERS = 0.05
_GAP = 0.2
"""Share of a step that may lie between two steps of a process that computes all along."""


@dataclass(frozen=True)
class BusyCores:
    """Findings from simultaneous processes.

    Attributes
    ----------
    slowdown
        Share by which a step takes longer for each other core that is busy with the same step; 0 at least.
    error
        Its standard error, from the scatter of runs.
    alone_s
        Steps of processes that had the machine to themselves, one array for each process of a run.
    """

    slowdown: float
    error: float
    alone_s: tuple[Array, ...]


def busy_cores(setting: TestbedSetting, readings: Sequence[Readings]) -> BusyCores | None:
    """The slowdown of a setting's real compute, by runs of the same model with ``mode = "apart"``.

    It includes every slowdown next to others: memory bandwidth, caches, clocks, and the step's own operations without idle cores for
    running in parallel.

    Parameters
    ----------
    setting
        Whose model, batch and threads count.
    readings
        Runs of all kinds; ``apart`` with two processes and more are used.

    Returns
    -------
    BusyCores or None
        None where there are no such runs.
    """
    same = [reading for reading in readings if computes_like(reading.setting, setting)]
    values = [value for reading in same for value in slowdowns(reading)]
    if not values:
        return None
    deviation = statistics.stdev(values) if len(values) > 1 else _UNREPEATED
    alone = tuple(alone_s for reading in same for run in _counted(reading) for alone_s, _ in _turns(run))
    return BusyCores(max(statistics.fmean(values), 0.0), deviation / math.sqrt(len(values)), alone)


def slowdowns(readings: Readings) -> list[float]:
    """For each repeat of a run of k processes apart: (T_k / T_1 - 1) / (k - 1), averaged over the processes.

    T_1 is a process's mean step while all others rest, T_k that while all of them compute;
    steps that see a turn begin or end do not count, nor repeats in which others took more
    than 5% of the cores' time. Empty for more processes than cores, and for runs of other
    kinds.
    """
    others = readings.setting.workers - 1
    return [
        (statistics.fmean(float(together_s.mean() / alone_s.mean()) for alone_s, together_s in _turns(run)) - 1.0) / others
        for run in _counted(readings)
    ]


def _counted(readings: Readings) -> list[OneRun]:
    """Runs of processes apart, each of which had a core, and which nothing else disturbed."""
    if readings.setting.mode != "apart" or readings.setting.workers > readings.cores:
        return []
    return [run for run in readings.runs if (run.others_share or 0.0) <= _OTHERS and _turns(run)]


def computes_like(setting: TestbedSetting, other: TestbedSetting) -> bool:
    """Tell whether two settings compute the same step."""
    return (setting.model, setting.batch, setting.threads, setting.overlap) == (other.model, other.batch, other.threads, other.overlap)


def _turns(run: OneRun) -> list[tuple[Array, Array]]:
    """For each process, its steps while all others rest, and while all of them compute, in seconds."""
    workers = range(run.setting.workers)
    by_worker = [sorted((step for step in run.steps if step.worker == worker), key=lambda step: step.pulled_s) for worker in workers]
    turns = []
    for worker, own in enumerate(by_worker):
        others = [steps for other, steps in enumerate(by_worker) if other != worker]
        alone_s, together_s = [], []
        for step in own:
            beside = [_beside(step, steps) for steps in others]
            if not any(beside):
                alone_s.append(step.computed_s - step.pulled_s)
            elif all(extent == 2 for extent in beside):
                together_s.append(step.computed_s - step.pulled_s)
        # the first of a turn finds cold caches and threads asleep
        if alone_s and together_s:
            turns.append((np.array(alone_s[1:] or alone_s), np.array(together_s)))
    return turns


def _beside(step: Updated, others: Sequence[Updated]) -> int:
    """Tell whether another process, whose steps these are, computed meanwhile: not at all (0), for a part (1), or all along (2)."""
    first = bisect.bisect_right(others, step.pulled_s, key=lambda step: step.computed_s)
    last = bisect.bisect_left(others, step.computed_s, key=lambda step: step.pulled_s)
    if first >= last:
        return 0
    # between two of its steps it is busy as well, with calling the next one
    slack_s = _GAP * (step.computed_s - step.pulled_s)
    return 2 if others[first].pulled_s <= step.pulled_s + slack_s and others[last - 1].computed_s >= step.computed_s - slack_s else 1


Array = NDArray[np.float64]

_RELATIVE_ERROR = 0.08
"""Relative, by which the CPU time of repeats differs from hour to hour."""
_AWAKE = 0.25
"""Busy cores of a run, on average, below which its work takes longer than in a busy machine: a core that wakes up for each message has cold
caches. The error grows with the square of what is missing."""
_LARGEST_RING = 5
"""Workers of a ring that takes part in the fit."""


def is_fitted(setting: TestbedSetting) -> bool:
    """Tell whether a run of a setting takes part in the least squares: few workers, no randomness of its own, no link that TCP shares."""
    small = setting.workers == 1 or (setting.mode == "ring" and setting.workers <= _LARGEST_RING and not setting.overlap)
    plain = setting.compute.kind == "emulated" and setting.compute.law.kind == "constant"
    return small and plain and setting.mode != "mirrored" and (setting.link is None or setting.link.sharing == "fair")


def work_of_step(setting: TestbedSetting) -> dict[str, float]:
    """How often a step of a worker with servers takes each of the parameters of the cores' work, the coordinator's own apart."""
    is_async, both_ways, tensors = setting.mode == "async", 2.0 * setting.moved_bytes, len(setting.variables)
    if setting.link is None:
        return {"loopback_async_step_s" if is_async else "loopback_step_s": 1.0, "loopback_per_byte_s": both_ways}
    return {
        "step_cpu_s": 1.0,
        "managed_cpu_s": float(setting.mode != "between-graph"),
        "server_cpu_s": min(setting.servers, tensors) - 1.0,
        "tensor_cpu_s": float(tensors),
        "elsewhere_cpu_s": float(tensors - math.ceil(tensors / setting.servers)),
        "cpu_per_byte_s": both_ways,
        # in a function of TensorFlow 2 a sleep costs more than in a session: 0.25 and 0.10 ms
        "layer_cpu_s": (setting.sleeps - 1.0) * (2.5 if is_async else 1.0),
    }


def work_of_cores(
    readings: Sequence[Readings], count: int, rng: np.random.Generator
) -> tuple[dict[str, Parameter], list[dict[str, float]]]:
    """Least squares of CPU time per step over what a step does, with the priors as one more, weak observation of each parameter.

    Parameters
    ----------
    readings
        Emulated runs of one worker with servers.
    count
        How many joint draws are wanted: the parameters are known better together than apart.

    Returns
    -------
    parameters, draws
        What steps cost the cores; without runs of a kind nothing of what only they show.
    """
    runs = [(work_of_step(reading.setting), run) for reading in readings for run in reading.runs]
    names = sorted({name for work, _ in runs for name, amount in work.items() if amount})
    if not names:
        return {}, [{} for _ in range(count)]
    rows = np.array([[work.get(name, 0.0) for name in names] for work, _ in runs])
    used_s = np.array([run.cpu_s("worker") + run.cpu_s("ps") for _, run in runs])
    measured = used_s / [len(run.steps) for _, run in runs]
    errors = _RELATIVE_ERROR * np.maximum(_AWAKE * np.array([run.seconds for _, run in runs]) / np.maximum(used_s, 1e-6), 1.0) ** 2
    centers, low, high = np.transpose([PRIORS[name] for name in names])
    widths = (high - low) / (2 * Z90)
    weights = 1.0 / np.maximum(errors * measured, 1e-6)
    from scipy.optimize import lsq_linear

    # in units of the priors' widths, so that all columns are of a size
    scaled = np.vstack([rows * widths * weights[:, None], np.eye(len(names))])
    wanted = np.concatenate([measured * weights, centers / widths])
    solved = lsq_linear(scaled, wanted, bounds=(0.0, np.inf)).x * widths
    covariance = np.linalg.inv(scaled.T @ scaled) * np.outer(widths, widths)
    why = f"CPU time of workers and servers per step, by what a step does ({len(rows)} runs)"
    parameters = {
        name: Parameter.around(value, deviation, why, determined=deviation < 0.5 * width)
        for name, value, deviation, width in zip(
            names, solved.tolist(), np.sqrt(np.diag(covariance)).tolist(), widths.tolist(), strict=True
        )
    }
    drawn = np.maximum(rng.multivariate_normal(solved, covariance, size=count), 0.0)
    return parameters, [{name: digits(value) for name, value in zip(names, row, strict=True)} for row in drawn]


def timed_directly(readings: Sequence[Readings], cores: float) -> dict[str, Parameter]:
    """Parameters that clocks and CPU counters show as they are, each the mean over all runs that show it.

    Parameters
    ----------
    readings
        Runs of all kinds; what TCP shares is left out.
    cores
        Cores of the machine.

    Returns
    -------
    dict
        By name; none that no run shows.
    """
    shaped = [reading for reading in readings if reading.setting.link is None or reading.setting.link.sharing == "fair"]
    emulated = [reading for reading in shaped if reading.setting.compute.kind == "emulated" and not reading.setting.overlap]
    slept = [
        float(np.mean(run.parts()["compute"])) - reading.setting.compute.mean_s
        for reading in emulated
        if reading.setting.compute.law.kind == "constant"
        for run in reading.runs
    ]
    coordinated = [run for reading in shaped if reading.setting.mode == "async" and reading.setting.workers == 1 for run in reading.runs]
    ranks = [
        # the call of the step's function is work as well
        (run.cpu_s("worker") / len(run.steps) - float(np.mean(run.parts()["gap"]))) / reading.setting.moved_bytes
        for reading in emulated
        if reading.setting.link is None and reading.setting.mode == "ring" and is_fitted(reading.setting)
        for run in reading.runs
    ]
    reduced = [
        float(np.mean(run.parts()["push"])) / (2.0 * (reading.setting.workers - 1) / reading.setting.workers * reading.setting.moved_bytes)
        for reading in emulated
        # with a core each; more replicas wait for one another's
        if reading.setting.mode == "mirrored" and 1 < reading.setting.workers <= cores and reading.file.fingerprint.device_kind == "CPU"
        for run in reading.runs
    ]
    between = "from the end of a step to the start of the next"
    shown = {
        "sleep_s": (slept, "timed compute minus requested compute, in runs with a constant distribution"),
        "dispatch_s": (
            [run.cpu_s("chief") / len(run.steps) for run in coordinated],
            "CPU time of the coordinator per step, 1 worker",
        ),
        "coordinator_s": (
            [float(np.mean(run.parts()["gap"])) - run.cpu_s("chief") / len(run.steps) for run in coordinated],
            f"{between} with 1 worker, less the coordinator's CPU time",
        ),
        "session_s": (_gaps(shaped, ("between-graph", "sync"), 1), f"{between}, 1 worker"),
        "ring_step_s": (_gaps(shaped, ("ring",), _LARGEST_RING), f"{between}, up to {_LARGEST_RING} workers"),
        # real replicas of one process are timed as a whole, with this in it
        "mirrored_step_s": (
            _gaps([reading for reading in shaped if reading.setting.compute.kind == "emulated"], ("mirrored",), 2),
            f"{between}, up to 2 workers",
        ),
        "loopback_ring_per_byte_s": (ranks, "CPU time of a rank's step over loopback, without the call of its function"),
        "mirrored_per_byte_s": (reduced, "all-reduce of MirroredStrategy's replicas, at most as many as cores"),
        "ring_cpu_per_byte_s": (_ring_cpu_per_byte(emulated), "how a worker's CPU time grows with the bytes it sends, rings"),
    }
    return {name: _mean_of(values, why) for name, (values, why) in shown.items() if values}


def _gaps(readings: Sequence[Readings], modes: Sequence[str], workers: int) -> list[float]:
    """Seconds from a worker's step to its next, on average over each run of these modes with at most this many workers."""
    some = [reading for reading in readings if reading.setting.mode in modes and reading.setting.workers <= workers]
    return [float(np.mean(run.parts()["gap"])) for reading in some for run in reading.runs]


def _ring_cpu_per_byte(emulated: Sequence[Readings]) -> list[float]:
    """CPU seconds for each byte that a ring sends over shaped links: of each run, beyond what a step takes whatever its bytes."""
    points = [
        (2.0 * (workers - 1) / workers * reading.setting.parameter_bytes, run.cpu_s("worker") / len(run.steps))
        for reading in emulated
        if reading.setting.mode == "ring" and reading.setting.link is not None and is_fitted(reading.setting)
        for workers in (reading.setting.workers,)
        for run in reading.runs
    ]
    if len({sent for sent, _ in points}) < 2:  # one size does not tell what a step takes besides
        return [cpu_s / sent for sent, cpu_s in points]
    sent, cpu_s = np.transpose(points)
    line = np.polynomial.Polynomial.fit(sent, cpu_s, 1, w=1.0 / sent).convert()  # errors in proportion
    return [float(each) for each in (cpu_s - line.coef[0]) / sent]


def _mean_of(values: Sequence[float], why: str) -> Parameter:
    """The mean of what several runs show, and where the mean of a further run is to be expected."""
    mean = statistics.fmean(values)
    deviation = statistics.stdev(values) if len(values) > 1 else 0.3 * abs(mean)
    return Parameter.around(mean, deviation, f"{why} ({len(values)} runs)")
