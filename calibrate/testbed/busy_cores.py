"""Estimates how much longer a model's step takes for each other busy core, from testbed runs with ``mode = "apart"``.

In such a run processes compute alone and all together by turns (``calibrate/probes/testbed/apart.py``). The same figure for
calibrated workloads is estimated in :mod:`calibrate.fit.runs`.
"""

from __future__ import annotations

import bisect
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrate.measurements import Updated
from calibrate.testbed.readings import OneRun, Readings
from calibrate.testbed.setting import TestbedSetting

Array = NDArray[np.float64]

_UNREPEATED = 0.05
"""Standard deviation of a run's slowdown that is taken for granted where there is one alone."""

_OTHERS = 0.05
_GAP = 0.2
"""Share of a step that may lie between two steps of a process that computes all along."""


@dataclass(frozen=True)
class BusyCores:
    """What processes at the same time have shown.

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

    Whatever makes a step slower beside others is in it: memory bandwidth, caches, clocks,
    and the step's own operations, which find no idle core any more to run side by side on.

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
    same = [one for one in readings if computes_like(one.setting, setting)]
    found = [value for one in same for value in slowdowns(one)]
    if not found:
        return None
    deviation = statistics.stdev(found) if len(found) > 1 else _UNREPEATED
    alone = tuple(alone_s for one in same for run in _counted(one) for alone_s, _ in _turns(run))
    return BusyCores(max(statistics.fmean(found), 0.0), deviation / math.sqrt(len(found)), alone)


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


def computes_like(one: TestbedSetting, other: TestbedSetting) -> bool:
    """Whether two settings compute the same step."""
    return (one.model, one.batch, one.threads, one.overlap) == (other.model, other.batch, other.threads, other.overlap)


def _turns(run: OneRun) -> list[tuple[Array, Array]]:
    """Of each process, its steps while all others rest, and while all of them compute, in seconds."""
    workers = range(run.setting.workers)
    by_worker = [sorted((step for step in run.steps if step.worker == worker), key=lambda step: step.pulled_s) for worker in workers]
    found = []
    for worker, own in enumerate(by_worker):
        others = [steps for other, steps in enumerate(by_worker) if other != worker]
        alone_s, together_s = [], []
        for step in own:
            beside = [_beside(step, steps) for steps in others]
            if not any(beside):
                alone_s.append(step.computed_s - step.pulled_s)
            elif all(one == 2 for one in beside):
                together_s.append(step.computed_s - step.pulled_s)
        # the first of a turn finds cold caches and threads asleep
        if alone_s and together_s:
            found.append((np.array(alone_s[1:] or alone_s), np.array(together_s)))
    return found


def _beside(step: Updated, others: Sequence[Updated]) -> int:
    """Whether another process, whose steps these are, computed meanwhile: not at all (0), for a part (1), or all along (2)."""
    first = bisect.bisect_right(others, step.pulled_s, key=lambda one: one.computed_s)
    last = bisect.bisect_left(others, step.computed_s, key=lambda one: one.pulled_s)
    if first >= last:
        return 0
    # between two of its steps it is busy as well, with calling the next one
    slack_s = _GAP * (step.computed_s - step.pulled_s)
    return 2 if others[first].pulled_s <= step.pulled_s + slack_s and others[last - 1].computed_s >= step.computed_s - slack_s else 1
