"""Decides which measured rounds and runs are fitted: disturbed rounds are left out, runs whose step times lie apart are refused.

The probe judges each round while it measures (``calibrate/probes/load.py``; ``why`` of its ``load`` records); here is decided whether
enough rounds are left. Remarks go into the provenance as ``load``, ``left_out`` and ``disturbed``; ``simulator.results.warnings``,
``paceline.api.calibrating`` and ``paceline.cli`` read them by these names.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from calibrate.fit.estimators import Z90
from calibrate.fit.step_times import StepTable
from calibrate.measurements import Load, Measurements, StepTime
from simulator.base.errors import CalibrationError
from simulator.base.text import format_interval, format_share

Array = NDArray[np.float64]


class DisturbedError(CalibrationError):
    """Measurements are whole, but not to be trusted: no bad input, since what they were taken beside is at fault."""


LEVELS_APART = 1.25
"""Ratio of two runs' mean step times from which on they are not fitted together."""

_STANDARD_ERRORS = 3.0
_FEWEST_ROUNDS, _FEWEST_STEPS = 2, 30
_FEWEST_SHARE = 1 / 3

_ACCEPT = "`accept_disturbed=True` fits them as they are, with a warning"


@dataclass(frozen=True)
class Chosen:
    """What is fitted of the rounds of all runs.

    Attributes
    ----------
    left_out
        Number of the run, number of the round.
    remarks
        For the provenance: ``load``, what the machine did besides; ``disturbed``, a loud
        warning where disturbed rounds had to be accepted.
    """

    left_out: frozenset[tuple[int, int]]
    remarks: dict[str, str]


def choose_rounds(runs: Sequence[Measurements], accept: bool = False) -> Chosen:
    """Leave disturbed rounds out, as long as enough others are there.

    The probe has judged each round by what it saw of the machine meanwhile. At least two
    rounds with 30 steps, and a third of all rounds, must be undisturbed, in at least two runs
    if there are several.

    Parameters
    ----------
    runs
        Measurements of one step.
    accept
        Where too few are undisturbed, take all.

    Raises
    ------
    DisturbedError
        Too few are undisturbed, and ``accept`` is not set.
    """
    everything = {(number, record.round) for number, run in enumerate(runs) for record in run.of(StepTime)}
    reasons = {key: why for number, run in enumerate(runs) for key, why in _disturbed(number, run).items() if key in everything}
    calm = everything - set(reasons)
    load = _load(runs)
    remarks = {"load": load} if load else {}
    if not reasons:
        return Chosen(frozenset(), remarks)
    whole = {number for number, _ in everything}
    fault = f"{len(reasons)} of {len(everything)} rounds were disturbed ({load or next(iter(reasons.values()))})"
    steps = sum((number, record.round) in calm for number, run in enumerate(runs) for record in run.of(StepTime))
    rounds_enough = len(calm) >= max(_FEWEST_ROUNDS, _FEWEST_SHARE * len(everything)) and steps >= _FEWEST_STEPS
    if rounds_enough and len({number for number, _ in calm}) >= min(len(whole), 2):
        return Chosen(frozenset(reasons), remarks | {"left_out": f"{fault} and are left out"})
    if accept:
        return Chosen(frozenset(), remarks | {"disturbed": f"{fault}; they are fitted as they are: times may be too long and too uneven"})
    raise DisturbedError(f"{fault}; stop what else runs here and measure again, or take them: {_ACCEPT}")


def check_levels(table: StepTable, names: Sequence[str], accept: bool = False) -> str:
    """That runs of the same step took about the same time.

    Two runs are at different levels if their mean step times differ by a ratio above
    ``LEVELS_APART``, and by more than three standard errors of what their rounds scatter.

    Parameters
    ----------
    table
        Rounds of all runs.
    names
        Of the runs, by their number.
    accept
        Return what is wrong instead of raising it.

    Returns
    -------
    str
        "" if nothing is wrong; else a sentence for the provenance.

    Raises
    ------
    DisturbedError
        Two runs are at different levels, and ``accept`` is not set.
    """
    levels = table.levels()
    apart = any(_apart(levels[one], levels[other]) for one, other in combinations(levels, 2))
    if not apart:
        return ""
    means = {run: float(np.mean(rounds)) for run, rounds in levels.items()}
    odd = max(means, key=lambda run: abs(np.log(means[run] / np.median([mean for other, mean in means.items() if other != run]))))
    others = float(np.median([mean for run, mean in means.items() if run != odd]))
    if len(means) == 2:  # neither is the odd one; what disturbs makes steps longer
        odd = max(means, key=lambda run: means[run])
        others = min(means.values())
    ratio = means[odd] / others
    fault = (
        f"the runs are at different levels: steps of {names[odd]} took {ratio:.2f} times as long as those of "
        f"{'the other run' if len(means) == 2 else 'the other runs'}, which their own scatter does not explain"
    )
    if accept:
        return f"{fault}; they are fitted together, so the level is not known better than that"
    raise DisturbedError(
        f"{fault}; find out what differed and measure again, fit one level alone with `from_measurements`, or take all: {_ACCEPT}"
    )


def _apart(one: Array, other: Array) -> bool:
    first, second = float(np.mean(one)), float(np.mean(other))
    error = float(np.sqrt(math.fsum(np.var(rounds, ddof=1) / len(rounds) for rounds in (one, other) if len(rounds) > 1)))
    return max(first, second) / min(first, second) > LEVELS_APART and abs(first - second) > _STANDARD_ERRORS * error


def _disturbed(number: int, run: Measurements) -> dict[tuple[int, int], str]:
    """Run and round of what does not count, and why."""
    records = run.of(Load)
    whole = next((record.why for record in records if record.stage != "round" and record.why), "")
    if whole:
        return {(number, record.round): whole for record in run.of(StepTime)}
    return {(number, record.round): record.why for record in records if record.round is not None and record.why}


def _load(runs: Sequence[Measurements]) -> str:
    """What others took meanwhile, in words."""
    seen = [record for run in runs for record in run.of(Load) if record.stage == "round" and record.others_s is not None]
    capacity = math.fsum(record.wall_s * record.cores for record in seen)
    if not capacity:
        return ""
    share = math.fsum((record.others_s or 0.0) + record.stolen_s for record in seen) / capacity
    return f"others took {format_share(share)} of the processor's time while steps were timed"


_NOISE_LIMIT = 0.5
_UNKNOWN = (0.05, 0.95)


class SharedSpread:
    """Share of the variance between processes that those of one launch have in common.

    The intraclass correlation of a one-way random-effects model, ICC(1,1) of Shrout and
    Fleiss 1979, "Intraclass correlations: uses in assessing rater reliability", with its
    exact interval from the F distribution: (MSB - MSW) / (MSB + (p - 1) MSW) for p processes
    in each launch. Launches differ by what their processes share, processes within a launch
    by what each has for itself; by how much all of them differ from a process that runs
    alone does not matter. The noise of each process's mean is taken out of the variance that
    is divided.

    Attributes
    ----------
    share_
        Between 0 and 1; None if the measurements do not determine it: the processes differ
        by little more than noise, or the interval holds both next to nothing and next to all.
    interval_90_
        Of the share.
    """

    def __init__(self) -> None:
        self.share_: float | None = None
        self.interval_90_: tuple[float, float] = (0.0, 1.0)

    def fit(self, levels: ArrayLike, noise: float = 0.0) -> SharedSpread:
        """Learn from mean step times, shape (launches, processes), at least 2 by 2.

        ``noise`` is the variance of such a mean that the scatter of its own steps explains.

        Raises
        ------
        CalibrationError
            There are fewer than two launches, or processes in each.
        """
        y = np.asarray(levels, float)
        if y.ndim != 2 or min(y.shape) < 2:
            raise CalibrationError(
                "what processes share needs at least two launches of at least two processes each: `launches=5`, `at_once=2`"
            )
        launches, processes = y.shape
        self.share_, self.interval_90_ = None, (0.0, 1.0)
        between = processes * float(np.var(y.mean(axis=1), ddof=1))
        within = float(np.sum((y - y.mean(axis=1, keepdims=True)) ** 2)) / (launches * (processes - 1))
        variance = (between + (processes - 1) * within) / processes
        if variance <= 0 or noise > _NOISE_LIMIT * variance:
            return self
        wider = variance / (variance - noise)
        ratio = between / within if within > 0 else np.inf
        freedom = launches - 1, launches * (processes - 1)

        def share(f: float) -> float:
            correlation = (f - 1.0) / (f + processes - 1.0) if np.isfinite(f) else 1.0
            return float(np.clip(correlation * wider, 0.0, 1.0))

        self.interval_90_ = share(ratio / stats.f.ppf(0.95, *freedom)), share(ratio / stats.f.ppf(0.05, *freedom))
        if self.interval_90_[0] >= _UNKNOWN[0] or self.interval_90_[1] <= _UNKNOWN[1]:
            self.share_ = share(ratio)
        return self


@dataclass(frozen=True)
class BusyCoreSlowdown:
    """How much longer a step takes for each other core that is busy.

    (T_k / T_1 - 1) / b, with the mean step T_k of k processes at once, that T_1 of a process
    alone, and b the cores of the k - 1 others. Whatever makes a step slower beside others is
    in it: memory bandwidth, caches, clocks, and threads that find no idle core any more.

    Attributes
    ----------
    value
        Share of the step; 0 at least.
    error
        Its standard error, from the scatter of runs and of launches.
    """

    value: float
    error: float

    @property
    def interval_90(self) -> tuple[float, float]:
        """Of the value."""
        return max(self.value - Z90 * self.error, 0.0), self.value + Z90 * self.error


@dataclass(frozen=True)
class ConcurrentProcesses:
    """What launches of several processes have shown.

    Attributes
    ----------
    share
        Of the variance between processes, what those of one launch have in common; None if
        undetermined.
    interval_90
        Of the share.
    text
        For the provenance.
    slowdown
        By other cores that are busy; None where too few launches are whole.
    """

    share: float | None
    interval_90: tuple[float, float]
    text: str
    slowdown: BusyCoreSlowdown | None = None


def is_concurrent(measured: Measurements) -> bool:
    """Whether a file is that of one process of several at once."""
    return measured.header.arguments.get("launch") is not None


def concurrent_processes(files: Sequence[Measurements], alone: Sequence[Measurements] = (), accept: bool = False) -> ConcurrentProcesses:
    """Estimate what processes share, and how they slow each other down, from the files of all launches.

    A launch of which a process is missing, or was disturbed, is left out.

    Parameters
    ----------
    files
        Written by :func:`calibrate.profiling.profile_at_once`.
    alone
        Runs of one process, which the slowdown is counted against.
    accept
        Take disturbed rounds as well.
    """
    launches: dict[int, list[dict[int, list[Array]]]] = defaultdict(list)
    started: set[int] = set()
    for one in files:
        number = int(one.header.arguments["launch"])
        started.add(number)
        by_batch = _rounds(one, accept)
        if by_batch and one.complete:
            launches[number].append(by_batch)
    processes = max((int(str(one.header.arguments["together"]).rpartition(":")[2]) for one in files), default=0)
    whole = [ones for ones in launches.values() if len(ones) == processes]
    seen = f"{len(started)} launches of {processes} processes at once"
    if len(whole) < len(started):
        seen += f", {len(started) - len(whole)} of them disturbed or stopped and left out"
    if len(whole) < 2 or processes < 2:
        return ConcurrentProcesses(None, (0.0, 1.0), f"{seen}: too few to tell what processes of one machine share")
    levels, noise = _levels(whole)
    slowdown = _slowdown(whole, [rounds for one in alone if (rounds := _rounds(one, accept))], (processes - 1) * _cores_of(files[0]))
    found = SharedSpread().fit(levels, noise)
    low, high = found.interval_90_
    if found.share_ is None:
        text = f"{seen}: what they share is not determined; more launches or processes would"
    else:
        text = f"{seen}: they share {format_share(found.share_)} of their variance, 90%: {format_interval(low, high, 'share')}"
    if slowdown is not None:
        low, high = slowdown.interval_90
        text += f"; a step takes {format_share(slowdown.value)} longer for each other busy core, 90%: {format_interval(low, high, 'share')}"
    return ConcurrentProcesses(found.share_, found.interval_90_, text, slowdown)


def _rounds(one: Measurements, accept: bool) -> dict[int, list[Array]]:
    """Step times of each undisturbed round, by batch; empty where all were disturbed."""
    try:
        left_out = choose_rounds([one], accept).left_out
    except CalibrationError:
        return {}
    rounds: dict[tuple[int, int], list[float]] = defaultdict(list)
    for step in one.of(StepTime):
        if (0, step.round) not in left_out:
            rounds[step.batch, step.round].append(step.seconds)
    by_batch: dict[int, list[Array]] = defaultdict(list)
    for (batch, _), times in rounds.items():
        by_batch[batch].append(np.array(times))
    return dict(by_batch)


def _cores_of(one: Measurements) -> int:
    """That a process of a launch was kept to."""
    return len(str(one.header.arguments.get("cores") or "0").split(","))


def _slowdown(
    whole: Sequence[Sequence[dict[int, list[Array]]]], alone: Sequence[dict[int, list[Array]]], others: int
) -> BusyCoreSlowdown | None:
    if not alone:
        return None
    batches = sorted(set.intersection(*(set(one) for one in (*alone, *(one for ones in whole for one in ones)))))
    if not batches:
        return None

    def times(one: dict[int, list[Array]]) -> Array:
        return np.array([np.mean(np.concatenate(one[batch])) for batch in batches])

    base = np.mean([times(one) for one in alone], axis=0)
    apart = np.array([np.mean(times(one) / base) for one in alone])
    together = np.array([np.mean([times(one) / base for one in ones]) for ones in whole])
    # runs alone are few, and scatter as launches do
    variance = float((((apart - 1.0) ** 2).sum() + ((together / together.mean() - 1.0) ** 2).sum()) / (len(apart) + len(together) - 2))
    error = float(together.mean()) * np.sqrt(variance * (1.0 / len(together) + 1.0 / len(apart)))
    return BusyCoreSlowdown(max(float(together.mean()) - 1.0, 0.0) / others, float(error) / others)


def _levels(whole: Sequence[Sequence[dict[int, list[Array]]]]) -> tuple[Array, float]:
    """Speed of each process, shape (launches, processes), as a share of the mean of all; and the variance of one that is noise."""
    every = [one for ones in whole for one in ones]
    batches = sorted(set.intersection(*(set(one) for one in every)))
    means = {batch: float(np.mean(np.concatenate([part for one in every for part in one[batch]]))) for batch in batches}
    levels = [[float(np.mean([np.mean(np.concatenate(one[batch])) / means[batch] for batch in batches])) for one in ones] for ones in whole]
    noises = []
    for one in every:
        scatter = [np.concatenate([part / means[batch] - np.mean(part) / means[batch] for part in one[batch]]) for batch in batches]
        rounds = [len(one[batch]) for batch in batches]
        each = [float(np.sum(rest**2)) / max(len(rest) - count, 1) / len(rest) for rest, count in zip(scatter, rounds, strict=True)]
        noises.append(float(np.mean(each)) / len(batches))
    return np.array(levels), float(np.mean(noises))
