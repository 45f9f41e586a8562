"""Holds what was recorded of a run against its prediction: stretches of one level against the interval of a run's mean step.

A single step may lie anywhere in the distribution of steps, so it proves nothing. The mean over a stretch of steps is what the
prediction has an interval for, and :mod:`calibrate.judging` says where it lies; its error counts the persistence of steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrate.judging import Predicted, State, half_width_s
from calibrate.recorded.run import RecordedRun
from calibrate.recorded.steadiness import FEWEST_STEADY, Steadiness, steadiness_of
from paceline.diagnosing import another_model
from simulator.results.results import Result

__all__ = ["Stretch", "Verdict", "verdict_of"]

_FEWEST_MEANS = 3
"""Rows of a stretch where each is the mean of several steps."""


@dataclass(frozen=True)
class Stretch:
    """Steps of one level.

    Attributes
    ----------
    first_step, last_step
        Their numbers, as the source counts.
    rows
        Indices of the rows of the run that count, shape (n,).
    mean_s, half_s
        Mean seconds of a step, and how far it is known on each side.
    state
        Where that lies.
    """

    first_step: int
    last_step: int
    rows: NDArray[np.int64] = field(repr=False, compare=False)
    mean_s: float
    half_s: float
    state: State

    @property
    def outside(self) -> bool:
        """Whether it is outside the interval."""
        return self.state in ("slower", "faster")


@dataclass(frozen=True)
class Verdict:
    """One worker's run beside its prediction.

    Attributes
    ----------
    found
        What of it is steady.
    stretches
        In the order of time; empty where there are too few steps.
    doubts
        Why the figures may mean something else, a sentence each.
    """

    found: Steadiness
    stretches: tuple[Stretch, ...]
    doubts: tuple[str, ...]

    @property
    def run(self) -> RecordedRun:
        """The run."""
        return self.found.run

    @property
    def now(self) -> Stretch | None:
        """The last stretch."""
        return self.stretches[-1] if self.stretches else None

    @property
    def state(self) -> State:
        """Of the last stretch."""
        return self.now.state if self.now is not None else "unclear"

    @property
    def left(self) -> tuple[Stretch, ...]:
        """The stretches in which it was outside."""
        return tuple(stretch for stretch in self.stretches if stretch.outside)

    @property
    def since(self) -> Stretch | None:
        """The first of the stretches since which it is outside; None where it is not."""
        first = None
        for stretch in reversed(self.stretches):
            if stretch.state != self.state:
                break
            first = stretch
        return first if first is not None and first.outside else None

    @property
    def before(self) -> Stretch | None:
        """The stretch before it left; None where it was never inside."""
        since = self.since
        place = self.stretches.index(since) if since is not None else 0
        return self.stretches[place - 1] if place else None

    @property
    def p50_s(self) -> float | None:
        """Median of the last stretch's steps; None where rows are means of several."""
        return self._quantile(0.5)

    @property
    def p95_s(self) -> float | None:
        """95th percentile of the same."""
        return self._quantile(0.95)

    def _quantile(self, share: float) -> float | None:
        if self.now is None or self.run.each != "step" or (self.run.counts[self.now.rows] > 1).any():
            return None
        return float(np.quantile(self.run.duration_s[self.now.rows], share))

    @property
    def whole_s(self) -> float:
        """Mean time of a step with all that lies between steps, and without the first ones; nan where nothing counts."""
        run, counts = self.run, self.found.counts.copy()
        for apart in self.found.apart:
            if apart.why == "periodic":
                counts[apart.rows] = True
        steps = int(run.counts[counts].sum())
        if not steps:
            return math.nan
        between = math.fsum(mark.duration_s for mark in run.marks if mark.duration_s > 0 and 0 < mark.row < len(run))
        return (float((run.duration_s[counts] * run.counts[counts]).sum()) + between) / steps

    def mean(self, name: str, stretch: Stretch) -> float | None:
        """Mean of another figure of :class:`~calibrate.recorded.run.RecordedRun` over a stretch; None where it is not known."""
        values = getattr(self.run, name)[stretch.rows]
        known = values[np.isfinite(values)]
        return float(known.mean()) if len(known) else None

    def to_dict(self) -> dict[str, Any]:
        """For a line of JSON."""
        now, since = self.now, self.since
        return {
            "worker": self.run.worker,
            "source": self.run.source,
            "step": int(self.run.steps[-1]) if len(self.run) else 0,
            "state": self.state,
            "mean_s": None if now is None else now.mean_s,
            "half_width_s": None if now is None else now.half_s,
            "p50_s": self.p50_s,
            "p95_s": self.p95_s,
            "with_all_between_s": None if math.isnan(self.whole_s) else self.whole_s,
            "level_since_step": None if now is None else now.first_step,
            "outside_since_step": None if since is None else since.first_step,
            "persistence": self.found.persistence,
            "periodic": [vars(periodic) for periodic in self.found.periodic],
            "doubts": list(self.doubts),
        }


def verdict_of(run: RecordedRun, result: Result, predicted: Predicted) -> Verdict:
    """Hold a run, with at least one row, against a prediction."""
    found = steadiness_of(run, predicted.mean_s)
    return Verdict(found, tuple(_stretches(found, predicted)), (*found.doubts, *_others(run, result)))


def _stretches(found: Steadiness, predicted: Predicted) -> Iterator[Stretch]:
    run = found.run
    for level in found.levels:
        rows = found.rows_of(level)
        if len(rows) < (FEWEST_STEADY if run.each == "step" else _FEWEST_MEANS):
            continue
        mean_s = found.mean_s(level)
        half_s = half_width_s(found.error_s(level), len(rows))
        state = predicted.state(mean_s, half_s)
        yield Stretch(int(run.steps[rows[0]]), int(run.steps[rows[-1]]), rows, mean_s, half_s, state)


def _others(run: RecordedRun, result: Result) -> Iterator[str]:
    """What the source says of its run that the scenario says otherwise."""
    facts, scenario = run.facts, result.scenario
    if facts.workers is not None and facts.workers != scenario.workers:
        yield (
            f"{run.name}: was recorded with {facts.workers:,} workers, and the scenario has {scenario.workers:,}; predict with "
            f"strategy.{scenario.strategy.count_key or 'workers'}={facts.workers}"
        )
    batch = scenario.batch if run.kind == "steps file" else None
    if facts.batch is not None and batch is not None and facts.batch != batch:
        yield f"{run.name}: was recorded with {facts.batch:,} samples per worker and step, and the scenario has {batch:,}"
    doubt = another_model(run, scenario.workload)
    if doubt is not None:
        yield doubt
