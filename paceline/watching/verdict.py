"""Comparison of a recorded run with its prediction, and of each level of its steps with earlier ones.

A single step may be anywhere in the distribution of steps. The prediction has an interval for the mean over a stretch of steps, which
:mod:`calibrate.observations` compares; its error accounts for the persistence of steps. That interval is the variation between runs, which
is constant within a run. So a level longer than an earlier one is *slower*, even inside the interval:
:mod:`calibrate.recorded.steadiness` splits only what the run's own variation does not explain. A separate kind of long steps is judged by
its cost, and the others are compared without it.

The reasons come from comparing steps since the change with steps before. Causes have the names of ``paceline why``. Processor time
distinguishes computing from waiting, because a waiting process uses none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from calibrate.observations import Predicted, State, differences, half_width_s
from calibrate.recorded.run import RecordedRun
from calibrate.recorded.steadiness import FEWEST_STEADY, LEAST_CHANGE, Level, Steadiness, steadiness_of
from simulator.base.text import format_bytes, format_rate, format_seconds, format_share
from simulator.results.results import Result
from simulator.scenario import Scenario

By = Literal["interval", "change", "rare"]
"""Basis of a stretch's state: its mean, an earlier stretch, or the cost of rare long steps."""

_FEWEST_MEANS = 3
"""Least rows of a stretch if each is the mean of several steps."""


@dataclass(frozen=True)
class Stretch:
    """Steps of one level.

    Attributes
    ----------
    first_step, last_step
        Their numbers in the source.
    rows
        Indices of the rows of the run that count, shape (n,).
    mean_s, half_s
        Mean seconds of a step, and half its interval.
    rare_s
        Mean addition of a separate kind of long steps.
    state
        Its state.
    by
        Basis of the state.
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
        """Return whether it is outside the interval."""
        return self.state in ("slower", "faster")


@dataclass(frozen=True)
class Verdict:
    """One worker's run, compared with its prediction.

    Attributes
    ----------
    steadiness
        Steady parts of the run.
    stretches
        Stretches in order of time; empty if there are too few steps.
    doubts
        Sentences on why the figures may mean something else.
    """

    steadiness: Steadiness
    stretches: tuple[Stretch, ...]
    doubts: tuple[str, ...]

    @property
    def run(self) -> RecordedRun:
        """The run."""
        return self.steadiness.run

    @property
    def now(self) -> Stretch | None:
        """The last stretch."""
        return self.stretches[-1] if self.stretches else None

    @property
    def state(self) -> State:
        """State of the last stretch."""
        return self.now.state if self.now is not None else "unclear"

    @property
    def was_outside(self) -> bool:
        """Return whether it is outside, or has been."""
        return any(stretch.outside for stretch in self.stretches)

    @property
    def since(self) -> Stretch | None:
        """First of the stretches since which it is outside; None if it is not."""
        if self.now is None or not self.now.outside:
            return None
        return list(takewhile(lambda stretch: stretch.state == self.state, reversed(self.stretches)))[-1]

    @property
    def before(self) -> Stretch | None:
        """Stretch before it left; None if it was never inside."""
        since = self.since
        place = self.stretches.index(since) if since is not None else 0
        return self.stretches[place - 1] if place else None

    @property
    def turn(self) -> tuple[int, Stretch] | None:
        """Step since which the state holds, and the stretch before; None if it holds from the first steps."""
        now, since, before = self.now, self.since, self.before
        if now is None or since is None:
            return None
        if before is not None:
            return since.first_step, before
        return (now.first_step, since) if now.state == "slower" and now.mean_s > (1 + LEAST_CHANGE) * since.mean_s else None

    def quantile_s(self, share: float) -> float | None:
        """Return a quantile of the last stretch's steps, in seconds; None if rows are means of several."""
        if self.now is None or self.run.each != "step" or (self.run.counts[self.now.rows] > 1).any():
            return None
        return float(np.quantile(self.run.duration_s[self.now.rows], share))

    @property
    def whole_s(self) -> float | None:
        """Mean time of a step including time between steps, without the first ones; None if no step counts."""
        run, counts = self.run, self.steadiness.counts.copy()
        for apart in self.steadiness.apart:
            if apart.why in ("periodic", "rare"):
                counts[apart.rows] = True
        steps = int(run.counts[counts].sum())
        if not steps:
            return None
        between = math.fsum(mark.duration_s for mark in run.marks if mark.duration_s > 0 and 0 < mark.row < len(run))
        return (float((run.duration_s[counts] * run.counts[counts]).sum()) + between) / steps

    def mean(self, name: str, stretch: Stretch) -> float | None:
        """Return the mean of another figure of :class:`~calibrate.recorded.run.RecordedRun` over a stretch; None if unknown."""
        values = getattr(self.run, name)[stretch.rows]
        known = values[np.isfinite(values)]
        return float(known.mean()) if len(known) else None

    def to_dict(self) -> dict[str, Any]:
        """Return the data for a line of JSON."""
        now, since = self.now, self.since
        return {
            "worker": self.run.worker,
            "source": self.run.source,
            "step": int(self.run.steps[-1]) if len(self.run) else 0,
            "state": self.state,
            "mean_s": None if now is None else now.mean_s,
            "half_width_s": None if now is None else now.half_s,
            "p50_s": self.quantile_s(0.5),
            "p95_s": self.quantile_s(0.95),
            "with_all_between_s": self.whole_s,
            "told_by": None if now is None else now.by,
            "rare_s": None if now is None else now.rare_s,
            "level_since_step": None if now is None else now.first_step,
            "outside_since_step": None if since is None else since.first_step,
            "persistence": self.steadiness.persistence,
            "periodic": [vars(periodic) for periodic in self.steadiness.periodic],
            "doubts": list(self.doubts),
        }


def verdict_of(run: RecordedRun, result: Result, predicted: Predicted) -> Verdict:
    """Compare a run, with at least one row, with a prediction; figures in doubt are never called outside."""
    steadiness = steadiness_of(run, predicted.mean_s)
    doubts = (*steadiness.doubts, *differences(run, result.scenario))
    stretches = tuple(_stretches(steadiness, predicted))
    if doubts:
        stretches = tuple(replace(stretch, state="unclear", by="interval") for stretch in stretches)
    return Verdict(steadiness, stretches, doubts)


def _stretches(record: Steadiness, predicted: Predicted) -> Iterator[Stretch]:
    run, fewest = record.run, FEWEST_STEADY if record.run.each == "step" else _FEWEST_MEANS
    usual: Stretch | None = None
    last: Stretch | None = None
    for level in record.levels:
        rows = record.rows_of(level)
        if not len(rows):
            continue
        mean_s, half_s, rare_s = record.mean_s(level), half_width_s(record.error_s(level), len(rows)), record.rare_per_step_s(level)
        state = predicted.state(mean_s, half_s) if len(rows) >= fewest else "unclear"
        by: By = "interval"
        if state not in ("slower", "faster"):
            if usual is not None and mean_s > (1 + LEAST_CHANGE) * usual.mean_s and (
                # levels next to each other are apart, others where their errors say so
                usual is last or mean_s - math.hypot(half_s, usual.half_s) > usual.mean_s
            ):  # fmt: skip
                state, by = "slower", "change"
            elif rare_s and predicted.state(*_with_rare(record, level)) == "slower":
                state, by = "slower", "rare"
        last = Stretch(int(run.steps[rows[0]]), int(run.steps[rows[-1]]), rows, mean_s, half_s, rare_s, state, by)
        if not last.outside:
            usual = last
        yield last


def _with_rare(record: Steadiness, level: Level) -> tuple[float, float]:
    """Return the mean of all steps of a level, including rare ones, and half its interval."""
    assert record.rare is not None
    inside = record.rare.rows[(record.rare.rows >= level.first) & (record.rare.rows < level.end)]
    times = record.run.duration_s[np.concatenate([record.rows_of(level), inside])]
    return float(times.mean()), half_width_s(float(np.std(times, ddof=1)) / math.sqrt(len(times)), len(times))


TELLING = frozenset({"input", "compute", "shared-cores", "slow-worker", "network"})
"""Causes that a record shows directly, so that no other explanation is sought."""
_PART = 0.25
"""Least share of the slowdown that a cause must explain."""
_ALIKE = 0.2
_TAKEN, _FULL = 0.25, 0.9
"""Least additional cores used by others, and least share of busy cores; below these the process had a free core."""
_WORTH = 0.02
_INPUT = "prepare input in parallel and ahead, or read it from nearer storage"
_CORES = "find them with top, and give the training its own cores"


@dataclass(frozen=True)
class Reason:
    """A cause.

    Attributes
    ----------
    key
        Its key, for sorting.
    text
        The observation.
    cost_s
        Seconds that it adds to a step; None if unknown.
    remedy
        What to do or to measure.
    """

    key: str
    text: str
    cost_s: float | None
    remedy: str


def reasons_of(scenario: Scenario, predicted: Predicted, verdict: Verdict, all_of_them: Sequence[Verdict]) -> tuple[Reason, ...]:
    """Return the causes for which a run is outside its interval, the most expensive first.

    Parameters
    ----------
    scenario, predicted
        The scenario and its prediction.
    verdict
        Verdict on the run, which has left its interval.
    all_of_them
        Verdicts on all workers.
    """
    since, now, before = verdict.since, verdict.now, verdict.before
    if since is None or now is None:
        return ()
    if since.state == "faster":
        faster = f"steps take {format_seconds(now.mean_s)}, {format_share(1 - now.mean_s / predicted.mean_s)} less than predicted"
        return (Reason("faster", faster, None, "fit the scenario to this run with --out-scenario, or calibrate again"),)
    reasons = []
    if verdict.steadiness.rare is not None and now.rare_s > _WORTH * now.mean_s:
        todo = "check what the script does at these steps (saving, evaluating, tracing a new shape), and do it less often or separately"
        reasons.append(Reason("between-steps", verdict.steadiness.rare.text, now.rare_s, todo))
    if now.by == "rare":  # the others are explained without them
        return tuple(reasons)
    others = [other for other in all_of_them if other is not verdict and other.now is not None]
    if others and not any(other.was_outside for other in others) and scenario.strategy.pace.asynchronous:
        text = f"worker {verdict.run.worker or verdict.run.source} is slower; the {len(others)} others are as predicted"
        reasons.append(Reason("slow-worker", text, None, "look for what else runs on that machine, its clock and its temperature"))
    if verdict.run.each != "step":
        text = f"each figure of {verdict.run.source} is a mean over several steps, and may include checkpoints, evaluations and tracing"
        reasons.append(Reason("between-steps", text, None, "record each step with paceline.keras_callback, which separates them"))
    reasons += _since(scenario, verdict, before, now) if before is not None else _all_along(scenario, predicted, verdict, now)
    # what was measured itself before what is concluded
    return tuple(sorted(reasons, key=lambda reason: -(reason.cost_s or 0.0)))


def _since(scenario: Scenario, verdict: Verdict, before: Stretch, now: Stretch) -> Iterator[Reason]:
    """Yield reasons that changed together with the level."""
    longer_s = now.mean_s - before.mean_s
    if longer_s <= 0:
        return

    def means(name: str) -> tuple[float, float] | None:
        was, is_now = verdict.mean(name, before), verdict.mean(name, now)
        return None if was is None or is_now is None else (was, is_now)

    explained = False
    for key, name, takes, remedy in (
        ("input", "input_s", "waiting for input takes", _INPUT),
        ("compute", "compute_s", "the device computes for", "look for a lower clock, heat, or another program on the device"),
    ):
        pair = means(name)
        if pair is not None and pair[1] - pair[0] >= _PART * longer_s:
            explained = True
            text = f"{takes} {format_seconds(pair[1])} of a step instead of {format_seconds(pair[0])}"
            yield Reason(key, text, pair[1] - pair[0], remedy)
    others, cpu, cores = means("others_s"), means("cpu_s"), verdict.run.facts.cores
    if others is not None:
        taken_s, before_s = others[1] / now.mean_s, others[0] / before.mean_s
        # in cores: processor seconds per second
        used_s = taken_s + (cpu[1] / now.mean_s if cpu is not None else 0.0)
        if taken_s - before_s > _TAKEN and taken_s > 1.5 * before_s and used_s > _FULL * (cores or 1):
            explained = True
            text = f"other processes take {taken_s:.2g} of {cores or 'the'} cores in place of {before_s:.2g}"
            yield Reason("shared-cores", text, longer_s, _CORES)
    if scenario.nodes_needed > 1:
        pairs = [pair for pair in (means("received_bytes"), means("sent_bytes")) if pair is not None]
        was_bytes, is_bytes = (math.fsum(pair[place] for pair in pairs) for place in (0, 1))
        if was_bytes > 0 and abs(is_bytes / was_bytes - 1) < _ALIKE:
            rates = f"{format_rate(is_bytes / now.mean_s)} in place of {format_rate(was_bytes / before.mean_s)}"
            text, todo = f"the same {format_bytes(is_bytes)} per step are transferred at {rates}", "iperf3 between two of the machines"
            yield Reason("network", text, None, f"measure the link now: paceline calibrate-link, or {todo}")
        elif was_bytes > 0 and is_bytes > (1 + _ALIKE) * was_bytes:
            text = f"{format_bytes(is_bytes)} are transferred per step instead of {format_bytes(was_bytes)}"
            yield Reason("network", text, None, "find out what else uses the network of this machine")
    if cpu is None or explained:
        return
    added_s, several = cpu[1] - cpu[0], scenario.nodes_needed > 1
    computes = f"{format_seconds(cpu[1])} of processor time instead of {format_seconds(cpu[0])}"
    text = f"a step takes {format_seconds(longer_s)} longer, and {computes}"
    if added_s < _PART * longer_s:
        text += f": the process waits for {'input or other workers' if several else 'input'}"
        todo = "the same run on a single batch in memory (dataset.take(1).cache().repeat()) shows whether it is the input"
        yield Reason("waiting" if several else "input", text, longer_s - max(added_s, 0.0), todo)
    else:
        todo = "look for a lower clock, other programs on the same cores, or samples that are larger than before"
        yield Reason("compute", f"{text}: it computes for longer", min(added_s, longer_s), todo)


def _all_along(scenario: Scenario, predicted: Predicted, verdict: Verdict, now: Stretch) -> Iterator[Reason]:
    """Yield reasons for a run that was never as predicted, from its record."""
    longer_s = now.mean_s - predicted.mean_s
    waited_s, others_s, cpu_s = (verdict.mean(name, now) for name in ("input_s", "others_s", "cpu_s"))
    if waited_s is not None and waited_s >= _PART * longer_s:
        yield Reason("input", f"waiting for input takes {format_seconds(waited_s)} of a step", min(waited_s, longer_s), _INPUT)
    if others_s is not None and others_s / now.mean_s > _TAKEN:
        text = f"other processes take {others_s / now.mean_s:.2g} of {verdict.run.facts.cores or 'the'} cores"
        yield Reason("shared-cores", text, None, _CORES)
    if cpu_s is not None:
        text = f"a step of {format_seconds(now.mean_s)} uses {format_seconds(cpu_s)} of processor time"
        yield Reason("unknown", text, None, f"`paceline why` explains it from runs of one and of {max(scenario.workers, 2)} workers")
