"""Reads from testbed runs of whole jobs what faults and checkpoints did: detection, restarts, lost steps, stops.

Times are seconds since the job's first common start. The names of events are those of ``JobEvent`` in :mod:`calibrate.measurements`;
``calibrate/probes/testbed/enduring.py`` and ``lasting.py`` write them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from calibrate.measurements import JobEvent
from calibrate.testbed.readings import OneRun


@dataclass(frozen=True)
class Occurred:
    """A fault, and what became of it.

    Attributes
    ----------
    of, number
        What was killed.
    killed_s
        When.
    noticed_s
        When the first task heard of it; None if none did before it was back.
    started_s
        When it, or where all had to, everything was started again; None if the job ended before.
    back_s
        When it was there again: taken back by the coordinator, or all tasks at their common start; None as before.
    stopped
        Whether all tasks had to start again.
    lost_s
        Training since the last checkpoint that was destroyed; 0 where the others went on.
    """

    of: str
    number: int
    killed_s: float
    noticed_s: float | None
    started_s: float | None
    back_s: float | None
    stopped: bool
    lost_s: float

    @property
    def detection_s(self) -> float | None:
        """From the kill until the first task heard of it."""
        return None if self.noticed_s is None else self.noticed_s - self.killed_s

    @property
    def start_up_s(self) -> float | None:
        """From the start of what was started again until it trained again."""
        return None if self.back_s is None or self.started_s is None else self.back_s - self.started_s


def finished_s(run: OneRun) -> float:
    """When the job's last step had ended, and its last checkpoint was written."""
    return max(run.seconds, *(one.at_s + (one.seconds or 0.0) for one in run.events if one.what == "checkpoint"), 0.0)


def faults_of(run: OneRun) -> tuple[Occurred, ...]:
    """Every fault of a run, in order."""
    return tuple(_occurred(run, one) for one in run.events if one.what == "killed")


def _occurred(run: OneRun, kill: JobEvent) -> Occurred:
    of, number = kill.task.split()
    later = [one for one in run.events if one.at_s >= kill.at_s]
    stopped = run.setting.mode == "ring" or of == "ps"
    if stopped:
        started = next((one.at_s for one in later if one.what == "launched"), None)
        back = next((one.at_s for one in later if one.what == "started"), None)
        noticed = next((one.at_s for one in later if one.what in ("noticed", "ended") and one.attempt == kill.attempt), None)
        began = max(one.at_s for one in run.events if one.what == "started" and one.at_s <= kill.at_s)
        # one that had begun came to its end, as there is a record of it: its writer outlived the killed task
        written = (one.at_s + (one.seconds or 0.0) for one in run.events if one.what == "checkpoint" and one.at_s <= kill.at_s)
        lost_s = max(kill.at_s - max((began, *written)), 0.0)
    else:
        started = next((one.at_s for one in later if one.what == "restarted" and one.task == kill.task), None)
        back = next((one.at_s for one in later if one.what == "recovered" and one.of == kill.task), None)
        noticed = next((one.at_s for one in later if one.what == "noticed" and one.of == kill.task), None)
        lost_s = 0.0
    return Occurred("server" if of == "ps" else of, int(number), kill.at_s, noticed, started, back, stopped, lost_s)


def startups_s(run: OneRun) -> tuple[float, ...]:
    """From the launch of all tasks until their common start, of each attempt: graphs traced, warm-up steps made, a checkpoint read."""
    launched = [one.at_s for one in run.events if one.what == "launched"]
    return tuple(start - launch for launch, start in zip(launched, (one.at_s for one in run.events if one.what == "started"), strict=True))


def restores_s(run: OneRun) -> tuple[float, ...]:
    """Of each time that a checkpoint was read; it is part of a start-up."""
    return tuple(one.seconds for one in run.events if one.what == "restored" and one.seconds is not None)


def lost_steps(run: OneRun) -> int:
    """Steps that were made again: common ones of all workers (``ring``), or single ones that had ended (``async``)."""
    if run.setting.mode == "ring":
        made = [[step.version for step in run.steps if step.worker == worker] for worker in range(run.setting.workers)]
        return max(len(own) - len(set(own)) for own in made)
    return len(run.steps) - run.setting.steps * run.setting.workers


def checkpoint_stops_s(run: OneRun) -> tuple[float, ...]:
    """For how long training stood still for each checkpoint, the mean over workers.

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
