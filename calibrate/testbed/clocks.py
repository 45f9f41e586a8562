"""Estimates the testbed parameters that clocks inside a step and CPU times of processes show directly, without the simulator.

A sleeping device takes no core, so over loopback the CPU time of workers and servers is the
work of calls, scheduling and messages, and of copying. Runs of several sizes tell what each step
takes whatever its bytes from what each byte takes. All other parameters are fitted in fitting.py.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import lsq_linear

from calibrate.fit.estimators import Z90
from calibrate.testbed.platform import Parameter
from calibrate.testbed.readings import Readings
from calibrate.testbed.setting import TestbedSetting
from simulator.base.text import digits

Array = NDArray[np.float64]

_NAMES = ("loopback_step_s", "loopback_async_step_s", "loopback_per_byte_s")
_RELATIVE_ERROR = 0.08
"""Relative, by which the CPU time of repeats differs from hour to hour."""
_LARGEST_RING = 5
"""Workers of a ring that takes part in the fit."""


def is_fitted(setting: TestbedSetting) -> bool:
    """Whether a run of a setting takes part in the least squares: few workers, no randomness of its own, no link that TCP shares."""
    small = setting.workers == 1 or (setting.mode == "ring" and setting.workers <= _LARGEST_RING)
    plain = setting.compute.kind == "emulated" and setting.compute.law.kind == "constant" and not setting.overlap
    return small and plain and setting.mode != "mirrored" and (setting.link is None or setting.link.sharing == "fair")


class LoopbackWork:
    """Least squares of CPU time per step over bytes moved, with the priors as one more, weak observation of each parameter.

    Parameters
    ----------
    priors
        By name: value, and the ends of its 90% interval.

    Attributes
    ----------
    found_
        The parameters, none where no run was given.
    """

    def __init__(self, priors: dict[str, tuple[float, float, float]]) -> None:
        self.found_: dict[str, Parameter] = {}
        self._centers = np.array([priors[name][0] for name in _NAMES])
        self._widths = np.array([(priors[name][2] - priors[name][1]) / (2 * Z90) for name in _NAMES])
        self._covariance = np.diag(self._widths**2)

    def fit(self, readings: Sequence[Readings]) -> LoopbackWork:
        """Learn from emulated runs of one worker with servers over loopback."""
        rows, cpu_s = [], []
        for one in readings:
            for run in one.runs:
                is_async = one.setting.mode == "async"
                rows.append([float(not is_async), float(is_async), 2.0 * one.setting.moved_bytes])
                cpu_s.append((run.cpu_s("worker") + run.cpu_s("ps")) / len(run.steps))
        if not rows:
            return self
        measured = np.array(cpu_s)
        weights = 1.0 / np.maximum(_RELATIVE_ERROR * measured, 1e-6)
        # in units of the priors' widths, so that all columns are of a size
        scaled = np.vstack([np.array(rows) * self._widths * weights[:, None], np.eye(len(_NAMES))])
        wanted = np.concatenate([measured * weights, self._centers / self._widths])
        solved = lsq_linear(scaled, wanted, bounds=(0.0, np.inf)).x
        covariance = np.linalg.inv(scaled.T @ scaled)
        self._centers, self._covariance = solved * self._widths, covariance * np.outer(self._widths, self._widths)
        for name, value, deviation, prior in zip(_NAMES, self._centers, np.sqrt(np.diag(self._covariance)), self._widths, strict=True):
            self.found_[name] = Parameter(
                value=float(value),
                low=max(float(value - Z90 * deviation), 0.0),
                high=float(value + Z90 * deviation),
                determined=bool(deviation < 0.5 * prior),
                why=f"CPU time of workers and servers per step over loopback, by bytes moved ({len(rows)} runs)",
            )
        return self

    def draws(self, count: int, rng: np.random.Generator) -> list[dict[str, float]]:
        """Joint draws: what a step costs whatever its bytes, and a byte, are known better together than apart."""
        if not self.found_:
            return [{} for _ in range(count)]
        drawn = np.maximum(rng.multivariate_normal(self._centers, self._covariance, size=count), 0.0)
        return [{name: digits(value) for name, value in zip(_NAMES, row, strict=True)} for row in drawn]


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
    shaped = [one for one in readings if one.setting.link is None or one.setting.link.sharing == "fair"]
    emulated = [one for one in shaped if one.setting.compute.kind == "emulated" and not one.setting.overlap]
    slept = [
        float(np.mean(run.parts()["compute"])) - one.setting.compute.mean_s
        for one in emulated
        if one.setting.compute.law.kind == "constant"
        for run in one.runs
    ]
    coordinated = [run for one in shaped if one.setting.mode == "async" and one.setting.workers == 1 for run in one.runs]
    ranks = [
        # the call of the step's function is work as well
        (run.cpu_s("worker") / len(run.steps) - float(np.mean(run.parts()["gap"]))) / one.setting.moved_bytes
        for one in emulated
        if one.setting.link is None and one.setting.mode == "ring" and is_fitted(one.setting)
        for run in one.runs
    ]
    reduced = [
        float(np.mean(run.parts()["push"])) / (2.0 * (one.setting.workers - 1) / one.setting.workers * one.setting.moved_bytes)
        for one in emulated
        # with a core each; more replicas wait for one another's
        if one.setting.mode == "mirrored" and 1 < one.setting.workers <= cores and one.files[0].fingerprint.device_kind == "CPU"
        for run in one.runs
    ]
    between = "from a step's end to the next one's begin"
    found = {
        "sleep_s": (slept, "compute as timed less what was asked for, in runs with a constant law"),
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
            _gaps([one for one in shaped if one.setting.compute.kind == "emulated"], ("mirrored",), 2),
            f"{between}, up to 2 workers",
        ),
        "loopback_ring_per_byte_s": (ranks, "CPU time of a rank's step over loopback, the call of its function apart"),
        "mirrored_per_byte_s": (reduced, "all-reduce of MirroredStrategy's replicas, no more than there are cores"),
        "ring_cpu_per_byte_s": (_ring_cpu_per_byte(emulated), "how a worker's CPU time grows with the bytes it sends, rings"),
    }
    return {name: _mean_of(values, why) for name, (values, why) in found.items() if values}


def _gaps(readings: Sequence[Readings], modes: Sequence[str], workers: int) -> list[float]:
    """Seconds from a worker's step to its next, on average over each run of these modes with at most this many workers."""
    its = [one for one in readings if one.setting.mode in modes and one.setting.workers <= workers]
    return [float(np.mean(run.parts()["gap"])) for one in its for run in one.runs]


def _ring_cpu_per_byte(emulated: Sequence[Readings]) -> list[float]:
    """CPU seconds for each byte that a ring sends over shaped links: of each run, beyond what a step takes whatever its bytes."""
    points = [
        (2.0 * (workers - 1) / workers * one.setting.parameter_bytes, run.cpu_s("worker") / len(run.steps))
        for one in emulated
        if one.setting.mode == "ring" and one.setting.link is not None and is_fitted(one.setting)
        for workers in (one.setting.workers,)
        for run in one.runs
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
    return Parameter(
        value=max(mean, 0.0),
        low=max(mean - Z90 * deviation, 0.0),
        high=max(mean + Z90 * deviation, 0.0),
        why=f"{why} ({len(values)} runs)",
    )
