"""Decides which measured rounds and runs are fitted, and estimates how processes on one machine affect each other's step times.

Disturbed rounds are left out, runs whose step times lie apart are refused. The probe judges each round while it measures
(``calibrate/probes/machine.py``; ``why`` of its ``load`` records); here is decided whether enough rounds are left. Remarks go into the
provenance as ``load``, ``left_out`` and ``disturbed``; ``simulator.results.warnings``, ``paceline.api.calibrating`` and
``paceline.cli`` read them by these names.

From launches of several processes at once come two figures: the share of the variance between processes that those of one launch
have in common, and by how much a step takes longer for each other busy core (``run_to_run_shared`` and ``busy_core_slowdown`` of a
workload). The same slowdown from testbed runs is estimated in :mod:`calibrate.testbed.clocks`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from calibrate.fit.step_times import StepTable
from calibrate.measurements import Z90, Load, Measurements, Plan, StepTime
from simulator.base.errors import CalibrationError
from simulator.base.text import format_interval, format_share

Array = NDArray[np.float64]


class DisturbedError(CalibrationError):
    """Measurements are whole, but not to be trusted: no bad input, since what else ran is at fault.

    Attributes
    ----------
    files
        The measurements, which ``accept_disturbed`` fits as they are.
    """

    def __init__(self, message: str, files: Sequence[Path] = ()) -> None:
        super().__init__(message)
        self.files = tuple(files)


LEVELS_APART = 1.25
"""Ratio of two runs' mean step times from which on they are not fitted together."""

_STANDARD_ERRORS = 3.0
_FEWEST_ROUNDS, _FEWEST_STEPS = 2, 30
_FEWEST_SHARE = 1 / 3


def choose_rounds(runs: Sequence[Measurements], accept: bool, facts: dict[str, str]) -> frozenset[tuple[int, int]]:
    """Leave disturbed rounds out, as long as enough others are there: number of the run, number of the round.

    The probe has judged each round by what it saw of the machine meanwhile. At least two
    rounds with 30 steps, and a third of all rounds, must be undisturbed, in at least two runs
    if there are several. Where too few are, ``accept`` takes all. ``facts`` gets remarks for the provenance: ``load``, what the
    machine did besides; ``left_out``; ``disturbed``, a loud warning where disturbed rounds had to be accepted.

    Raises
    ------
    DisturbedError
        Too few are undisturbed, and ``accept`` is not set.
    """
    everything = {(number, record.round) for number, run in enumerate(runs) for record in run.of(StepTime)}
    reasons = {key: why for number, run in enumerate(runs) for key, why in _disturbed(number, run).items() if key in everything}
    calm = everything - set(reasons)
    if load := _load(runs):
        facts["load"] = load
    if not reasons:
        return frozenset()
    whole = {number for number, _ in everything}
    fault = f"{len(reasons)} of {len(everything)} rounds were disturbed ({load or next(iter(reasons.values()))})"
    steps = sum((number, record.round) in calm for number, run in enumerate(runs) for record in run.of(StepTime))
    # rounds are repeated as long as a budget lasts, and may be many; of few that it had time for, steps are few
    plans = [plan for run in runs for plan in run.of(Plan)]
    rounds = math.fsum(plan.rounds for plan in plans) if len(plans) == len(runs) else len(everything)
    sizes = len({record.batch for run in runs for record in run.of(StepTime)})
    fewest = min([_FEWEST_STEPS, *(plan.steps * sizes for plan in plans)])
    rounds_enough = len(calm) >= max(_FEWEST_ROUNDS, _FEWEST_SHARE * rounds) and steps >= fewest
    if rounds_enough and len({number for number, _ in calm}) >= min(len(whole), 2):
        facts["left_out"] = f"{fault} and are left out"
        return frozenset(reasons)
    if not accept:
        raise DisturbedError(f"{fault}; stop other programs here and measure again")
    facts["disturbed"] = f"{fault} but are fitted: times may be too long"
    return frozenset()


def check_levels(table: StepTable, names: Sequence[str], accept: bool = False) -> str:
    """Check that runs of the same step took about the same time; with ``accept``, return what is wrong in place of raising it.

    Two runs are at different levels if their mean step times differ by a ratio above
    ``LEVELS_APART``, and by more than three standard errors of what their rounds scatter.

    Raises
    ------
    DisturbedError
        Two runs are at different levels, and ``accept`` is not set.
    """
    levels = table.levels()
    apart = any(_apart(*pair) for pair in combinations(levels.values(), 2))
    if not apart:
        return ""
    means = {run: float(np.mean(rounds)) for run, rounds in levels.items()}
    ratios = {run: mean / float(np.median([level for other, level in means.items() if other != run])) for run, mean in means.items()}
    # of two neither is the odd one; what disturbs makes steps longer
    odd = max(ratios, key=lambda run: (round(abs(math.log(ratios[run])), 9), ratios[run]))
    fault = (
        f"the runs are at different levels: steps of {names[odd]} took {ratios[odd]:.2f} times as long as in "
        f"{'the other run' if len(means) == 2 else 'the other runs'}, which scatter within runs does not explain"
    )
    if accept:
        return f"{fault}; they are fitted together"
    raise DisturbedError(f"{fault}; find the difference and measure again")


def _apart(*levels: Array) -> bool:
    first, second = (float(np.mean(rounds)) for rounds in levels)
    error = float(np.sqrt(math.fsum(np.var(rounds, ddof=1) / len(rounds) for rounds in levels if len(rounds) > 1)))
    return max(first, second) / min(first, second) > LEVELS_APART and abs(first - second) > _STANDARD_ERRORS * error


def _disturbed(number: int, run: Measurements) -> dict[tuple[int, int], str]:
    """Run and round of what does not count, and why."""
    records = run.of(Load)
    whole = next((record.why for record in records if record.stage != "round" and record.why), "")
    if whole:
        return {(number, record.round): whole for record in run.of(StepTime)}
    return {(number, record.round): record.why for record in records if record.round is not None and record.why}


def _load(runs: Sequence[Measurements]) -> str:
    """Return what others took meanwhile, in words."""
    seen = [record for run in runs for record in run.of(Load) if record.stage == "round" and record.others_s is not None]
    capacity = math.fsum(record.wall_s * record.cores for record in seen)
    if not capacity:
        return ""
    share = math.fsum((record.others_s or 0.0) + record.stolen_s for record in seen) / capacity
    return f"other load took {format_share(share)} of CPU time while steps were timed"


_NOISE_LIMIT = 0.5
_UNKNOWN = (0.05, 0.95)


class SharedSpread(NamedTuple):
    """Share of the variance between processes that those of one launch have in common, between 0 and 1.

    None if the measurements do not determine it: the processes differ by little more than noise, or the interval holds both
    next to nothing and next to all.
    """

    share: float | None = None
    interval_90: tuple[float, float] = (0.0, 1.0)


def shared_spread(levels: ArrayLike, noise: float = 0.0) -> SharedSpread:
    """Share of the variance between processes that those of one launch have in common.

    The intraclass correlation of a one-way random-effects model, ICC(1,1) of Shrout and Fleiss 1979, "Intraclass correlations: uses in
    assessing rater reliability", with its exact interval from the F distribution: (MSB - MSW) / (MSB + (p - 1) MSW) for p processes in each
    launch. Launches differ by what their processes share, processes within a launch by what each has for itself; their common difference
    from a single process does not matter. The noise of each process's mean is taken out of the variance that is divided.

    Parameters
    ----------
    levels
        Mean step times, shape (launches, processes), at least 2 by 2.
    noise
        Variance of such a mean that the scatter of its own steps explains.

    Raises
    ------
    CalibrationError
        There are fewer than two launches, or processes in each.
    """
    y = np.asarray(levels, float)
    if y.ndim != 2 or min(y.shape) < 2:
        raise CalibrationError(
            "the share common to processes needs at least two launches of at least two processes each: `launches=5`, `at_once=2`"
        )
    launches, processes = y.shape
    between = processes * float(np.var(y.mean(axis=1), ddof=1))
    within = float(np.sum((y - y.mean(axis=1, keepdims=True)) ** 2)) / (launches * (processes - 1))
    variance = (between + (processes - 1) * within) / processes
    if variance <= 0 or noise > _NOISE_LIMIT * variance:
        return SharedSpread()
    wider = variance / (variance - noise)
    ratio = between / within if within > 0 else np.inf
    freedom = launches - 1, launches * (processes - 1)

    def share(f: float) -> float:
        correlation = (f - 1.0) / (f + processes - 1.0) if np.isfinite(f) else 1.0
        return float(np.clip(correlation * wider, 0.0, 1.0))

    low, high = (share(ratio / stats.f.ppf(quantile, *freedom)) for quantile in (0.95, 0.05))
    return SharedSpread(share(ratio) if low >= _UNKNOWN[0] or high <= _UNKNOWN[1] else None, (low, high))


class BusyCoreSlowdown(NamedTuple):
    """How much longer a step takes for each other core that is busy, as a share of the step, and its standard error.

    (T_k / T_1 - 1) / b, with the mean step T_k of k processes at once, that T_1 of a process alone, and b the cores of the k - 1 others. It
    includes every slowdown next to others: memory bandwidth, caches, clocks, and threads without an idle core. The error is from the
    scatter of runs and of launches.
    """

    value: float
    error: float

    @property
    def interval_90(self) -> tuple[float, float]:
        """Of the value."""
        return max(self.value - Z90 * self.error, 0.0), self.value + Z90 * self.error


class ConcurrentProcesses(NamedTuple):
    """Findings from launches of several processes, with a text for the provenance; no slowdown where too few launches are whole."""

    shared: SharedSpread
    text: str
    slowdown: BusyCoreSlowdown | None = None


def is_concurrent(measured: Measurements) -> bool:
    """Return whether a file is that of one process of several at once."""
    return measured.header.arguments.get("launch") is not None


def concurrent_processes(files: Sequence[Measurements], alone: Sequence[Measurements] = (), accept: bool = False) -> ConcurrentProcesses:
    """Estimate what processes share, and how they slow each other down, from the files of all launches.

    A launch of which a process is missing, or was disturbed, is left out. The slowdown is relative to runs of a single process ``alone``;
    ``accept`` takes disturbed rounds as well.
    """
    launches: dict[int, list[pd.DataFrame]] = defaultdict(list)
    for file in files:
        launch = launches[int(file.header.arguments["launch"])]
        if file.complete and len(steps := _undisturbed(file, accept)):
            launch.append(steps)
    processes = max((int(str(file.header.arguments["together"]).rpartition(":")[2]) for file in files), default=0)
    whole = [launch for launch in launches.values() if len(launch) == processes]
    seen = f"{len(launches)} launches of {processes} simultaneous processes"
    if len(whole) < len(launches):
        seen += f", {len(launches) - len(whole)} of them disturbed or stopped and left out"
    if len(whole) < 2 or processes < 2:
        return ConcurrentProcesses(SharedSpread(), f"{seen}: too few to determine the share common to processes of one machine")
    together = pd.concat([steps for launch in whole for steps in launch], keys=range(len(whole) * processes))
    shared = shared_spread(*_levels(together, processes))
    low, high = shared.interval_90
    if shared.share is None:
        text = f"{seen}: the common share is not determined; measure more launches or processes"
    else:
        text = f"{seen}: they share {format_share(shared.share)} of their variance, 90%: {format_interval(low, high, 'share')}"
    slowdown, runs = None, [steps for file in alone if len(steps := _undisturbed(file, accept))]
    if runs:
        # that a process of a launch was kept to
        cores = len(str(files[0].header.arguments.get("cores") or "0").split(","))
        slowdown = _slowdown(together, pd.concat(runs, keys=range(len(runs))), processes, (processes - 1) * cores)
    if slowdown is not None:
        low, high = slowdown.interval_90
        text += f"; a step slows down by {format_share(slowdown.value)} per other busy core, 90%: {format_interval(low, high, 'share')}"
    return ConcurrentProcesses(shared, text, slowdown)


def _undisturbed(measured: Measurements, accept: bool) -> pd.DataFrame:
    """The steps of a process without those of disturbed rounds; empty where all were disturbed."""
    try:
        left_out = choose_rounds([measured], accept, {})
    except CalibrationError:
        return pd.DataFrame()
    kept = [(step.batch, step.round, step.seconds) for step in measured.of(StepTime) if (0, step.round) not in left_out]
    return pd.DataFrame(kept, columns=["batch", "round", "seconds"])


def _means(steps: pd.DataFrame) -> pd.DataFrame:
    """Mean step of each process, a row each, at each batch size that all of them have."""
    return steps.groupby([_PROCESS, "batch"])["seconds"].mean().unstack().dropna(axis="columns")


def _slowdown(together: pd.DataFrame, alone: pd.DataFrame, processes: int, others: int) -> BusyCoreSlowdown | None:
    beside, by_itself = _means(together), _means(alone)
    batches = beside.columns.intersection(by_itself.columns)
    if batches.empty:
        return None
    base = by_itself[batches].mean()
    apart = (by_itself[batches] / base).mean(axis="columns").to_numpy()
    longer = (beside[batches] / base).mean(axis="columns").to_numpy().reshape(-1, processes).mean(axis=1)
    # runs alone are few, and scatter as launches do
    variance = float((((apart - 1.0) ** 2).sum() + ((longer / longer.mean() - 1.0) ** 2).sum()) / (len(apart) + len(longer) - 2))
    error = float(longer.mean()) * np.sqrt(variance * (1.0 / len(longer) + 1.0 / len(apart)))
    return BusyCoreSlowdown(max(float(longer.mean()) - 1.0, 0.0) / others, float(error) / others)


def _levels(steps: pd.DataFrame, processes: int) -> tuple[Array, float]:
    """Speed of each process, shape (launches, processes), as a share of the mean of all; and the variance of a speed that is noise."""
    means = _means(steps)
    steps = steps[steps["batch"].isin(means.columns)]
    whole = steps.groupby("batch")["seconds"].mean()
    levels = (means / whole).mean(axis="columns").to_numpy().reshape(-1, processes)
    rest = (steps["seconds"] - steps.groupby([_PROCESS, "batch", "round"])["seconds"].transform("mean")) / steps["batch"].map(whole)
    of_process = steps.assign(squares=rest**2).groupby([_PROCESS, "batch"]).agg({"squares": "sum", "seconds": "size", "round": "nunique"})
    freedom = np.maximum(of_process["seconds"] - of_process["round"], 1)
    return levels, float((of_process["squares"] / freedom / of_process["seconds"]).mean()) / len(whole)


_PROCESS = pd.Grouper(level=0)
