"""The schedule of a run's learning: who read which version of the model, and when each update was applied to which.

It is all that the replay of a training needs of a run, simulated (:func:`schedule_of`) or real (:meth:`Schedule.of_steps`): gradients
are computed again with the versions that were read, and applied in the order in which they were applied. ``calibrate/probes/replay.py``
reads what :meth:`Schedule.written` writes, by its names.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from simulator.base.errors import InputError
from simulator.engine.recorder import UPDATE_COLUMNS, Seconds
from simulator.engine.replication import replicate
from simulator.scenario import Resolved
from simulator.strategies.strategy import Pace

ALL = -1
"""In place of a worker's number: an update that all have made together."""

Versions = NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class Schedule:
    """Order of learning: the version and worker of each update, in the order in which updates were complete.

    Attributes
    ----------
    workers
        Replicas that compute gradients.
    averaged
        Gradients that an update is the mean of: one asynchronously, all or all but the backups where they are averaged.
    every
        Steps of each worker between two averages of the variables (local SGD); 1: none.
    neighbours
        Others with whom a worker averages its variables in each step, half of them on either side; 0: none.
    time_s
        When each update was complete, from the first step's begin, shape (updates,).
    worker
        Who made it, shape (updates,); -1: all.
    read, applied
        Where workers update by themselves: of each server's share of the model, the updates of it before the worker read and
        before this one was applied, shape (updates, servers). Elsewhere without columns.
    """

    workers: int
    averaged: int
    every: int
    neighbours: int
    time_s: Seconds
    worker: Versions
    read: Versions
    applied: Versions

    def __len__(self) -> int:
        return len(self.time_s)

    @property
    def mean_staleness(self) -> float:
        """Mean number of updates between an update's read and its application; 0 where all update together."""
        return float((self.applied - self.read).mean()) if self.read.size else 0.0

    def first(self, updates: int) -> Schedule:
        """Its first updates."""
        kept = slice(updates)
        return Schedule(
            self.workers, self.averaged, self.every, self.neighbours,
            self.time_s[kept], self.worker[kept], self.read[kept], self.applied[kept],
        )  # fmt: skip

    def written(self) -> bytes:
        """As a file of numpy's (npz), which holds no objects."""
        file = io.BytesIO()
        rule = {name: getattr(self, name) for name in ("workers", "averaged", "every", "neighbours")}
        text = np.frombuffer(json.dumps(rule).encode(), np.uint8)
        np.savez_compressed(file, rule=text, time_s=self.time_s, worker=self.worker, read=self.read, applied=self.applied)
        return file.getvalue()

    @classmethod
    def of_steps(cls, steps: Iterable[tuple[int, float, int, int]], workers: int) -> Self:
        """The schedule of real asynchronous steps.

        Parameters
        ----------
        steps
            Of each the worker, when its update was applied (seconds), and how many updates there were before it read and
            before it was applied; in any order. Real counters are read a moment after they are written, when others may have
            been applied as well: updates of the same number are put in the order of their times, and one that read an update
            which seems to come after it is taken to have read all before it.
        workers
            How many there are.

        Raises
        ------
        InputError
            An update read far more than were applied before it.
        """
        rows = sorted(steps, key=lambda step: (step[3], step[1]))
        for number, (worker, _, seen, _) in enumerate(rows):
            if seen > number + workers:
                raise InputError(
                    f"worker {worker} read version {seen:,}, but only {number:,} updates were applied before its own; is the beginning of "
                    "the record missing?"
                )
        columns = np.array(rows, dtype=np.float64).reshape(-1, 4)
        applied = np.arange(len(rows))[:, None]
        read: Versions = np.minimum(columns[:, 2:3].astype(np.int64), applied)
        return cls(
            workers, 1, 1, 0,
            np.maximum.accumulate(columns[:, 1]), columns[:, 0].astype(np.int64), read, applied,
        )  # fmt: skip


class _Updates:
    """Follows a run, and keeps its updates."""

    def __init__(self) -> None:
        self._blocks: list[Seconds] = []

    def steps(self, rows: Seconds) -> None:
        """Steps do not matter."""

    def updates(self, rows: Seconds) -> None:
        """Keep them."""
        self._blocks.append(rows.copy())

    def rows(self) -> Seconds:
        """All so far, columns as in ``UPDATE_COLUMNS`` and what follows these."""
        return np.concatenate(self._blocks) if self._blocks else np.zeros((0, len(UPDATE_COLUMNS)))


def schedule_of(scenario: Resolved, gradients: int, replication: int = 0, on_progress: Callable[[float], None] | None = None) -> Schedule:
    """Simulate a run from its first step, and keep who read and applied what.

    Parameters
    ----------
    scenario
        What is simulated; its job, and what its ``run`` says of steps and warm-up, play no part.
    gradients
        How many are computed, by all workers together, at least.
    replication
        Which of its runs.
    on_progress
        Called now and then with the share of the steps that have ended.

    Raises
    ------
    InputError
        The strategy's replicas differ in a way that is not replayed: stages of a pipeline that is never flushed.
    """
    pace, replicas = scenario.strategy.pace, scenario.replicas
    _check_replayed(scenario)
    each = max(math.ceil(gradients / replicas / pace.every) * pace.every, 2)
    shared = pace.asynchronous and scenario.run.sharing == "shared"
    run = {"run.warmup_steps": 0, "run.job_steps": max(gradients, 2) if shared else None, "run.steps": each}
    plain = scenario.replaced({"job": None, **run})
    follower = _Updates()
    replicate(plain, replication, on_progress=on_progress, follower=follower)
    return _schedule(pace, replicas, follower.rows())


def _schedule(pace: Pace, replicas: int, rows: Seconds) -> Schedule:
    of_servers = rows[:, len(UPDATE_COLUMNS) :].astype(np.int64)
    servers = of_servers.shape[1] // 2
    neighbours = 0 if pace.waits_for is None else min(pace.waits_for, replicas) - 1
    return Schedule(
        workers=replicas,
        averaged=pace.awaited(replicas) if not neighbours else 1,
        every=pace.every,
        neighbours=neighbours,
        time_s=rows[:, 2],
        worker=rows[:, 0].astype(np.int64) if pace.asynchronous else np.full(len(rows), ALL),
        read=of_servers[:, :servers],
        applied=of_servers[:, servers:],
    )


def _check_replayed(scenario: Resolved) -> None:
    stages = scenario.strategy.held(scenario)
    if any(held.versions > 1 for stage in stages for held in stage) and "pipeline" in scenario.strategy.cuts:
        raise InputError(
            "stages of a pipeline without flushes compute with different versions of the variables, which cannot be replayed; choose a "
            "schedule with flushes: strategy.schedule = '1f1b'"
        )
