"""Reads the measurement file of a testbed run, repeat by repeat: rates, staleness, parts of a step, bytes, CPU time.

The header holds the setting as ``TestbedSetting.for_probe`` gave it to the probe. Of jobs with faults: detection, restarts, lost steps.
Times are seconds since the job's first common start; the names of events are those of ``JobEvent`` in :mod:`calibrate.measurements`. Tables
and JSON are made in summary.py.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from calibrate.measurements import JobEvent, LinkCheck, Measurements, MeasurementsError, Repeat, Updated, Used, read_measurements
from calibrate.testbed.setting import ShapedLink, TestbedSetting
from simulator.base.errors import CalibrationError, ScenarioError
from simulator.base.validation_errors import validated

_OTHER_VERSION = "was it written by another version?"

Array = NDArray[np.float64]


def mean_of(counts: Counter[int]) -> float | None:
    """The mean of values that are counted, such as updates by their staleness; None where there are none."""
    total = sum(counts.values())
    return sum(value * count for value, count in counts.items()) / total if total else None


@dataclass(frozen=True)
class OneRun:
    """One repeat: a cluster started, warmed up, run and ended.

    Attributes
    ----------
    steps
        Every step, in the order in which they were reported.
    used
        What each task sent, received and computed.
    others_share
        Share of the cores' time that other processes, the kernel or the hypervisor took; None if not known.
    events
        Events outside steps, for a job with checkpoints or faults.
    """

    setting: TestbedSetting
    steps: tuple[Updated, ...]
    used: tuple[Used, ...]
    others_share: float | None = None
    events: tuple[JobEvent, ...] = ()

    @cached_property
    def seconds(self) -> float:
        """From the common start to the end of the last step."""
        return max(step.applied_s for step in self.steps)

    @property
    def updates(self) -> int:
        """Updates of the model: steps of all workers (``apart``: each of its own model); common steps where workers step together."""
        if self.setting.mode == "sync":
            return max(step.version for step in self.steps) - min(step.read_version for step in self.steps)
        if self.setting.mode in ("ring", "mirrored"):
            return max(step.version for step in self.steps)
        return len(self.steps)

    @property
    def updates_per_s(self) -> float:
        """Over the whole run, its drain included."""
        return self.updates / self.seconds

    @cached_property
    def staleness(self) -> Counter[int]:
        """Updates by their staleness: those applied between the read and the own update. Empty where all step together."""
        if self.setting.mode not in ("async", "between-graph"):
            return Counter()
        return Counter(max(step.version - step.read_version - 1, 0) for step in self.steps)

    @property
    def mean_staleness(self) -> float | None:
        """Mean over all updates; None where all step together."""
        return mean_of(self.staleness)

    def parts(self) -> dict[str, Array]:
        """Seconds of each step's pull, compute and push, and from a worker's step to its next (``gap``)."""
        steps = self.steps
        parts = {
            "pull": np.array([step.pulled_s - step.start_s for step in steps]),
            "compute": np.array([step.computed_s - step.pulled_s for step in steps]),
            "push": np.array([step.applied_s - step.computed_s for step in steps]),
        }
        gaps: list[float] = []
        for worker in {step.worker for step in steps} - {-1}:  # whose it was is not known
            own = sorted((step for step in steps if step.worker == worker), key=lambda step: step.start_s)
            gaps += [later.start_s - earlier.applied_s for earlier, later in itertools.pairwise(own)]
        parts["gap"] = np.array(gaps)
        return parts

    def cpu_s(self, job: str = "") -> float:
        """CPU seconds of all tasks of a job (``worker``, ``ps``, ``chief``), or of all."""
        return math.fsum(task.user_s + task.system_s for task in self.used if task.task.startswith(job))

    def sent_bytes(self, job: str = "") -> float:
        """Bytes that left the interfaces of a job's tasks, or of all."""
        return math.fsum(task.sent_bytes for task in self.used if task.task.startswith(job))


@dataclass(frozen=True)
class Readings:
    """All whole repeats of one setting, from one file.

    Attributes
    ----------
    link_bytes_per_s
        What plain sockets moved between two hosts, one value per repeat; empty on loopback.
    """

    setting: TestbedSetting
    runs: tuple[OneRun, ...]
    link_bytes_per_s: tuple[float, ...]
    file: Measurements

    @property
    def cores(self) -> float:
        """Cores of the machine that it was measured on; 1 where the file does not say."""
        return float(self.file.fingerprint.cores or 1)

    @property
    def updates_per_s(self) -> tuple[float, ...]:
        """Throughput of each repeat."""
        return tuple(run.updates_per_s for run in self.runs)

    @property
    def mean_staleness(self) -> tuple[float, ...]:
        """Mean staleness of each repeat; empty where all step together."""
        return tuple(mean for run in self.runs if (mean := run.mean_staleness) is not None)

    @cached_property
    def staleness(self) -> Counter[int]:
        """Updates by their staleness, of all repeats together."""
        return sum((run.staleness for run in self.runs), Counter())


def read_run(path: Path) -> Readings:
    """Read what a testbed run has written; a repeat that was not ended is left out.

    Raises
    ------
    CalibrationError
        The file is damaged, is no testbed run, or holds no whole repeat.
    """
    measured = read_measurements(path)
    if measured.header.probe != "testbed":
        raise MeasurementsError(
            f"{path}: has measurements of a {measured.header.probe}, not of a testbed run; see `paceline testbed --help`"
        )
    setting = _setting_of(measured, path)
    whole = {record.repeat: record for record in measured.of(Repeat)}
    if not whole:
        failure = measured.failure
        why = f": {failure.message}" if failure else ""
        raise CalibrationError(f"{path}: has no complete repeat{why}: measure again")
    steps, used, events = measured.of(Updated), measured.of(Used), measured.of(JobEvent)
    ends = Counter(record.repeat for record in measured.of(Repeat))
    runs = []
    for number, record in whole.items():
        own = OneRun(setting, _of(steps, number), _of(used, number), record.others_share, _of(events, number))
        runs.append(own)
        _check(own, f"{path}: repeat {number}", times=ends[number])
    checks = tuple(check.bytes_per_s for check in measured.of(LinkCheck) if check.repeat in whole)
    return Readings(setting, tuple(runs), checks, measured)


_Record = TypeVar("_Record", Updated, Used, JobEvent)


def _of(records: Sequence[_Record], repeat: int) -> tuple[_Record, ...]:
    return tuple(record for record in records if record.repeat == repeat)


def _check(run: OneRun, where: str, *, times: int) -> None:
    """Do nothing where a repeat is one: it ended once, after it began, and updated the model.

    Raises
    ------
    MeasurementsError
        It is not.
    """
    if times > 1:
        raise MeasurementsError(f"{where}: ends {times} times: keep one of its records")
    if not run.steps:
        raise MeasurementsError(f"{where}: has no step: delete its lines, or measure again")
    if not 0 < run.seconds < math.inf:
        raise MeasurementsError(f"{where}: its last step ends {run.seconds:g} s after it began, which must be above 0; measure again")
    if run.updates < 1:
        raise MeasurementsError(f"{where}: its steps did not update the model, according to their versions: measure again")


def _setting_of(measured: Measurements, path: Path) -> TestbedSetting:
    arguments = {
        key: value
        for key, value in measured.header.arguments.items()
        if key not in ("repeats", "seed", "timeout_s", "builder", "checkpoints")
    }
    link = arguments.get("link")
    if isinstance(link, dict):
        try:
            arguments["link"] = ShapedLink.as_probed(link)
        except (KeyError, TypeError, OverflowError):
            raise MeasurementsError(
                f"{path}:1: arguments.link: must have bits_per_s and buffer_ms, which are numbers, sharing and congestion; {_OTHER_VERSION}"
            ) from None
    try:
        return validated(TestbedSetting, arguments, f"{path}:1: arguments")
    except ScenarioError as error:
        raise MeasurementsError(f"{error.problems[0]}; {_OTHER_VERSION}") from None


# -- what faults did to a job --------------------------------------------------------------------


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


def faults_of(run: OneRun) -> tuple[Occurred, ...]:
    """Every fault of a run, in order."""
    return tuple(_occurred(run, event) for event in run.events if event.what == "killed")


def _occurred(run: OneRun, kill: JobEvent) -> Occurred:
    of, number = kill.task.split()
    later = [event for event in run.events if event.at_s >= kill.at_s]
    stopped = run.setting.mode == "ring" or of == "ps"

    def first(*kinds: str, **alike: Any) -> float | None:
        return next(
            (event.at_s for event in later if event.what in kinds and all(getattr(event, name) == value for name, value in alike.items())),
            None,
        )

    if stopped:
        started, back, noticed = first("launched"), first("started"), first("noticed", "ended", attempt=kill.attempt)
        began = max(event.at_s for event in run.events if event.what == "started" and event.at_s <= kill.at_s)
        # one that had begun came to its end, as there is a record of it: its writer outlived the killed task
        written = (event.at_s + (event.seconds or 0.0) for event in run.events if event.what == "checkpoint" and event.at_s <= kill.at_s)
        lost_s = max(kill.at_s - max((began, *written)), 0.0)
    else:
        started, back, noticed = first("restarted", task=kill.task), first("recovered", of=kill.task), first("noticed", of=kill.task)
        lost_s = 0.0
    return Occurred("server" if of == "ps" else of, int(number), kill.at_s, noticed, started, back, stopped, lost_s)


def lost_steps(run: OneRun) -> int:
    """Steps that were made again: common ones of all workers (``ring``), or single ones that had ended (``async``)."""
    if run.setting.mode == "ring":
        made = [[step.version for step in run.steps if step.worker == worker] for worker in range(run.setting.workers)]
        return max(len(own) - len(set(own)) for own in made)
    return len(run.steps) - run.setting.steps * run.setting.workers
