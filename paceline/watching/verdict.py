"""Holds what was recorded of a run against its prediction, and each level of its steps against those before.

A single step may lie anywhere in the distribution of steps, so it proves nothing. The mean over a stretch of steps is what the
prediction has an interval for, and :mod:`calibrate.observations` says where it lies; its error counts the persistence of steps. That
interval is what runs differ by. Within a run nothing of it changes, so a level that is longer than one before is *slower* wherever the
interval ends: :mod:`calibrate.recorded.steadiness` splits only what the run's own variation does not explain. Long steps of a kind of their
own are judged by what they cost: the others are compared without them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from calibrate.observations import Predicted, State, differences, half_width_s
from calibrate.recorded.run import RecordedRun
from calibrate.recorded.steadiness import FEWEST_STEADY, LEAST_CHANGE, Level, Steadiness, steadiness_of
from simulator.results.results import Result

By = Literal["interval", "change", "rare"]
"""What tells how a stretch goes: where its mean lies, a stretch before it, or what its rare long steps cost."""

_OUTSIDE = ("slower", "faster")
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
    rare_s
        What long steps of a kind of their own add to a step in the mean.
    state
        How it goes.
    by
        What tells that.
    """

    first_step: int
    last_step: int
    rows: NDArray[np.int64] = field(repr=False, compare=False)
    mean_s: float
    half_s: float
    rare_s: float
    state: State
    by: By

    @property
    def outside(self) -> bool:
        """Whether it is outside the interval."""
        return self.state in _OUTSIDE


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
            if apart.why in ("periodic", "rare"):
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
            "told_by": None if now is None else now.by,
            "rare_s": None if now is None else now.rare_s,
            "level_since_step": None if now is None else now.first_step,
            "outside_since_step": None if since is None else since.first_step,
            "persistence": self.found.persistence,
            "periodic": [vars(periodic) for periodic in self.found.periodic],
            "doubts": list(self.doubts),
        }


def verdict_of(run: RecordedRun, result: Result, predicted: Predicted) -> Verdict:
    """Hold a run, with at least one row, against a prediction."""
    found = steadiness_of(run, predicted.mean_s)
    return Verdict(found, tuple(_stretches(found, predicted)), (*found.doubts, *differences(run, result.scenario)))


def _stretches(found: Steadiness, predicted: Predicted) -> Iterator[Stretch]:
    run, fewest = found.run, FEWEST_STEADY if found.run.each == "step" else _FEWEST_MEANS
    usual: Stretch | None = None
    last: Stretch | None = None
    for level in found.levels:
        rows = found.rows_of(level)
        if not len(rows):
            continue
        mean_s, half_s, rare_s = found.mean_s(level), half_width_s(found.error_s(level), len(rows)), found.rare_per_step_s(level)
        state = predicted.state(mean_s, half_s) if len(rows) >= fewest else "unclear"
        by: By = "interval"
        if state not in _OUTSIDE:
            if usual is not None and _is_longer(mean_s, half_s, usual, is_next=usual is last):
                state, by = "slower", "change"
            elif rare_s and predicted.state(*_with_rare(found, level)) == "slower":
                state, by = "slower", "rare"
        last = Stretch(int(run.steps[rows[0]]), int(run.steps[rows[-1]]), rows, mean_s, half_s, rare_s, state, by)
        if not last.outside:
            usual = last
        yield last


def _is_longer(mean_s: float, half_s: float, usual: Stretch, *, is_next: bool) -> bool:
    """Whether a level is surely longer than one before: levels next to each other are apart, others where their errors say so."""
    least_s = mean_s if is_next else mean_s - math.hypot(half_s, usual.half_s)
    return least_s > usual.mean_s and mean_s > (1 + LEAST_CHANGE) * usual.mean_s


def _with_rare(found: Steadiness, level: Level) -> tuple[float, float]:
    """Mean of all steps of a level, those of a rare kind too, and how far it is known on each side."""
    assert found.rare is not None
    inside = found.rare.rows[(found.rare.rows >= level.first) & (found.rare.rows < level.end)]
    times = found.run.duration_s[np.concatenate([found.rows_of(level), inside])]
    return float(times.mean()), half_width_s(float(np.std(times, ddof=1)) / math.sqrt(len(times)), len(times))
