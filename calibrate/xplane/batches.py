"""Profiles arranged by batch size, and their steps as a table that can be fitted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calibrate.step_table import StepTable
from calibrate.xplane.files import profile_files
from calibrate.xplane.phases import MeasuredStep, StepsOfProfile, steps_of
from calibrate.xplane.reading import read_profiles
from calibrate.xplane.report import ProfileReport, report_of
from simulator.errors import CalibrationError, InputError

__all__ = ["BACKWARD_SHARE", "Profiled", "read_steps"]

Array = NDArray[np.float64]

BACKWARD_SHARE = 2 / 3
"""Of forward and backward together, where a profile does not name the gradients' operations: each layer's two
products of the backward pass against one of the forward pass (Kaplan et al., arXiv:2001.08361, section 2.1)."""

_ROUNDS = 5


@dataclass(frozen=True)
class Profiled:
    """The profiles of one or more batch sizes.

    Attributes
    ----------
    by_batch
        Batch size -> the profiles of that size, one a run and host.
    """

    by_batch: dict[int, tuple[StepsOfProfile, ...]]

    @property
    def batches(self) -> list[int]:
        """Batch sizes, ascending."""
        return sorted(self.by_batch)

    @property
    def profiles(self) -> list[StepsOfProfile]:
        """All of them, by batch size."""
        return [one for batch in self.batches for one in self.by_batch[batch]]

    @property
    def reports(self) -> list[ProfileReport]:
        """What they tell, by batch size."""
        return [report_of(batch, self.by_batch[batch]) for batch in self.batches]

    @property
    def count(self) -> int:
        """Steps in all."""
        return sum(len(one.steps) for one in self.profiles)

    def table(self) -> StepTable:
        """Steps by batch size, in as many rounds for each: consecutive parts of a profile.

        Profiles of one batch size count as runs if all batch sizes have as many, for then one
        of each makes a round. Steps are without their waiting for input and exposed collectives.

        Raises
        ------
        CalibrationError
            A step does nothing else.
        """
        return _table(self.by_batch)


def read_steps(
    places: Sequence[tuple[Path, int]], run: str | None = None, python: str | None = None, timeout_s: float | None = None
) -> Profiled:
    """Read profiles and find their steps.

    Parameters
    ----------
    places
        Pairs of a log directory, the folder of a run or a file, and the samples of a step in it.
    run
        Name of the profiling run in each log directory; None takes the newest.
    python
        A Python that has TensorFlow; this one, if None.
    timeout_s
        Seconds after which reading is given up.

    Raises
    ------
    InputError
        There is no profile, or it cannot be read.
    CalibrationError
        It has no steps.
    """
    if not places:
        raise InputError("--from-profile: give at least one log directory")
    bad = next((batch for _, batch in places if batch < 1), None)
    if bad is not None:
        raise InputError(f"--batch {bad}: must be at least 1")
    found = [(file, batch) for place, batch in places for file in profile_files(place, run)]
    double = next((file for number, (file, _) in enumerate(found) if file in [one for one, _ in found[:number]]), None)
    if double is not None:
        raise InputError(f"--from-profile: {double} is named twice; a profile counts once")
    by_batch: dict[int, list[StepsOfProfile]] = defaultdict(list)
    for profile, (_, batch) in zip(read_profiles([file for file, _ in found], python, timeout_s), found, strict=True):
        by_batch[batch].append(steps_of(profile))
    return Profiled({batch: tuple(ones) for batch, ones in by_batch.items()})


def _split(step: MeasuredStep) -> tuple[float, float, float]:
    """Seconds of forward, backward and apply in the computation; the documented shares of it where the profile does not tell."""
    if step.backward_s is None or step.apply_s is None or step.compute_s <= 0:
        return (1 - BACKWARD_SHARE) * step.compute_s, BACKWARD_SHARE * step.compute_s, 0.0
    return step.forward_s, step.backward_s, step.apply_s


def _table(by_batch: dict[int, tuple[StepsOfProfile, ...]]) -> StepTable:
    counts = {len(ones) for ones in by_batch.values()}
    runs = counts.pop() if len(counts) == 1 else 1
    series: dict[int, list[Array]] = {}
    for batch, ones in by_batch.items():
        each = [np.array([step.compute_s for step in one.steps]) for one in ones]
        series[batch] = each if runs == len(each) else [np.concatenate(each)]
        if any(np.any(times <= 0) for times in series[batch]):
            raise CalibrationError(f"{ones[0].profile.path}: a step waits for input all of its time; profile steps that compute")
    rounds = max(min(_ROUNDS, *(len(times) // 2 for all_times in series.values() for times in all_times)), 1)
    splits = {
        batch: np.array([_split(step) for one in ones for step in one.steps if step.backward_s is not None] or [_split(ones[0].steps[0])])
        for batch, ones in by_batch.items()
    }
    return StepTable(
        rounds={batch: [part for times in each for part in np.array_split(times, rounds)] for batch, each in series.items()},
        splits=splits,
        runs=tuple(run for run in range(runs) for _ in range(rounds)),
    )
