"""How much longer a model's step takes on a core while other cores are busy, from processes that compute at the same time."""

from __future__ import annotations

import bisect
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from calibrate.records import Updated
from calibrate.testbed.readings import OneRun, Readings
from calibrate.testbed.setting import TestbedSetting

__all__ = ["BusyCores", "busy_cores", "slowdowns"]

_UNREPEATED = 0.05
"""Standard deviation of a run's slowdown that is taken for granted where there is one alone."""

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
    runs
        How many there were.
    """

    slowdown: float
    error: float
    runs: int


def busy_cores(setting: TestbedSetting, readings: Sequence[Readings]) -> BusyCores | None:
    """The slowdown of a setting's real compute, by runs of the same model with ``mode = "apart"``.

    Whatever makes a step slower beside others is in it: memory bandwidth, caches, clocks,
    and the step's own operations, which find no idle core any more to run side by side on.

    Parameters
    ----------
    setting
        Whose model, batch and threads count.
    readings
        Of all kinds; ``apart`` with two processes and more are used.

    Returns
    -------
    BusyCores or None
        None where there are no such runs.
    """
    same = [one for one in readings if _computes_like(one.setting, setting)]
    found = [value for one in same for value in slowdowns(one)]
    if not found:
        return None
    deviation = statistics.stdev(found) if len(found) > 1 else _UNREPEATED
    return BusyCores(max(statistics.fmean(found), 0.0), deviation / math.sqrt(len(found)), len(found))


def slowdowns(readings: Readings) -> list[float]:
    """Of each repeat of a run of k processes apart: (T_k / T_1 - 1) / (k - 1), in the mean over the processes.

    T_1 is a process's mean step while all others rest, T_k that while all of them compute;
    steps that see a turn begin or end do not count. Empty for more processes than cores,
    and for runs of other kinds.
    """
    workers = readings.setting.workers
    if readings.setting.mode != "apart" or workers > float(readings.files[0].fingerprint.model_dump().get("cores", 1)):
        return []
    return [(_ratio(run, workers) - 1.0) / (workers - 1) for run in readings.runs]


def _computes_like(one: TestbedSetting, other: TestbedSetting) -> bool:
    return (one.model, one.batch, one.threads, one.overlap) == (other.model, other.batch, other.threads, other.overlap)


def _ratio(run: OneRun, workers: int) -> float:
    by_worker = [sorted((step for step in run.steps if step.worker == worker), key=lambda step: step.pulled_s) for worker in range(workers)]
    ratios = []
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
        ratios.append(statistics.fmean(together_s) / statistics.fmean(alone_s[1:] or alone_s))
    return statistics.fmean(ratios)


def _beside(step: Updated, others: Sequence[Updated]) -> int:
    """Whether another process, whose steps these are, computed meanwhile: not at all (0), for a part (1), or all along (2)."""
    first = bisect.bisect_right(others, step.pulled_s, key=lambda one: one.computed_s)
    last = bisect.bisect_left(others, step.computed_s, key=lambda one: one.pulled_s)
    if first >= last:
        return 0
    # between two of its steps it is busy as well, with calling the next one
    slack_s = _GAP * (step.computed_s - step.pulled_s)
    return 2 if others[first].pulled_s <= step.pulled_s + slack_s and others[last - 1].computed_s >= step.computed_s - slack_s else 1
