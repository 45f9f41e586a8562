"""Reads from testbed runs of whole jobs what checkpoints and missing workers cost, for predictions of other jobs to be compared with.

Faults themselves are read in :mod:`calibrate.testbed.readings`. Times are seconds since the job's first common start.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from calibrate.testbed.readings import OneRun, faults_of


def finished_s(run: OneRun) -> float:
    """When the job's last step had ended, and its last checkpoint was written."""
    return max(run.seconds, *(one.at_s + (one.seconds or 0.0) for one in run.events if one.what == "checkpoint"), 0.0)


def startups_s(run: OneRun) -> tuple[float, ...]:
    """From the launch of all tasks until their common start, of each attempt: graphs traced, warm-up steps made, a checkpoint read."""
    launched = [one.at_s for one in run.events if one.what == "launched"]
    return tuple(start - launch for launch, start in zip(launched, (one.at_s for one in run.events if one.what == "started"), strict=True))


def restores_s(run: OneRun) -> tuple[float, ...]:
    """Of each time that a checkpoint was read; it is part of a start-up."""
    return tuple(one.seconds for one in run.events if one.what == "restored" and one.seconds is not None)


def checkpoint_stops_s(run: OneRun) -> tuple[float, ...]:
    """Time that training waited for each checkpoint, mean over workers.

    From a worker's last step before it to its first one after it, less the usual gap between
    two steps: so a worker's wait until the others' steps have ended counts as well.
    """
    usual_s = float(np.median(run.parts()["gap"]))
    found = []
    for event in run.events:
        if event.what != "checkpoint":
            continue
        middle_s = event.at_s + (event.seconds or 0.0) / 2
        gaps = [gap - usual_s for gap in _gaps_over(run, middle_s, event.seconds or 0.0)]
        if gaps:
            found.append(float(np.mean(gaps)))
    return tuple(found)


def _gaps_over(run: OneRun, at_s: float, seconds: float) -> Iterator[float]:
    """Of each worker that trained just before and just after a moment: from its last step before to its first after it."""
    step_s = float(np.median([step.applied_s - step.start_s for step in run.steps]))
    for worker in range(run.setting.workers):
        own = [step for step in run.steps if step.worker == worker]
        before = max((step.applied_s for step in own if step.applied_s <= at_s), default=None)
        after = min((step.start_s for step in own if step.start_s >= at_s), default=None)
        if before is not None and after is not None and after - before < seconds + 3 * step_s:
            yield after - before


def rates(run: OneRun) -> tuple[float, float | None]:
    """Updates a second of an asynchronous job with all workers, and while some were missing (None: never), without checkpoints' stops."""
    missing = _missing(run)
    stops = [(one.at_s, one.seconds or 0.0) for one in run.events if one.what == "checkpoint" and one.at_s < run.seconds]
    length = math.fsum(end - begin for begin, end in missing)
    away = sum(1 for step in run.steps if any(begin <= step.applied_s < end for begin, end in missing))
    in_both = math.fsum(seconds for at_s, seconds in stops if any(begin <= at_s < end for begin, end in missing))
    down = math.fsum((one.back_s or run.seconds) - one.killed_s for one in faults_of(run) if one.stopped)
    whole_s = run.seconds - length - down - (math.fsum(seconds for _, seconds in stops) - in_both)
    return (len(run.steps) - away) / whole_s, away / (length - in_both) if length else None


def _missing(run: OneRun) -> list[tuple[float, float]]:
    """Stretches of time in which asynchronous workers were missing, joined where they overlap."""
    found: list[tuple[float, float]] = []
    for one in faults_of(run):
        if one.stopped:
            continue
        begin, end = one.killed_s, min(one.back_s if one.back_s is not None else run.seconds, run.seconds)
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


def fewer_workers_s(run: OneRun) -> float:
    """By how much an asynchronous job took longer because workers were missing, at the rates that it had with and without them."""
    whole, fewer = rates(run)
    length = math.fsum(end - begin for begin, end in _missing(run))
    return length * (1.0 - fewer / whole) if fewer is not None else 0.0
