"""Decides which measured rounds and runs are fitted: disturbed rounds are left out, runs whose step times lie apart are refused.

The probe judges each round while it measures (``calibrate/probes/load.py``; ``why`` of its ``load`` records); here is decided whether
enough rounds are left. Remarks go into the provenance as ``load``, ``left_out`` and ``disturbed``; ``simulator.results.warnings``,
``paceline.api.calibrating`` and ``paceline.cli`` read them by these names.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from calibrate.fit.step_times import StepTable
from calibrate.measurements import Measurements
from calibrate.records import Load, StepTime
from simulator.base.errors import CalibrationError
from simulator.base.text import format_share

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
