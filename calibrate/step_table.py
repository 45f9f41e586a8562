"""The timed steps of one run, arranged by batch size and round."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from calibrate.measurements import Measurements
from calibrate.records import Split, StepTime
from simulator.errors import CalibrationError

__all__ = ["Phase", "StepTable"]

Array = NDArray[np.float64]
Phase = Literal["forward", "backward", "apply"]

_PHASES: tuple[Phase, ...] = ("forward", "backward", "apply")
_FEWEST_BATCHES = 2
_FEWEST_STEPS = 5


@dataclass(frozen=True)
class StepTable:
    """Step times in seconds by batch size and round, and how the phases share them.

    Attributes
    ----------
    rounds
        Batch size -> one array of step times a round.
    splits
        Batch size -> shares of forward, backward and apply, shape (steps, 3), rows summing to 1.
    """

    rounds: dict[int, list[Array]]
    splits: dict[int, Array]

    @classmethod
    def of(cls, measured: Measurements) -> StepTable:
        """Arrange the records of a run.

        Raises
        ------
        CalibrationError
            There are too few batch sizes, steps, or splits.
        """
        times: dict[int, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
        for step in measured.of(StepTime):
            times[step.batch][step.round].append(step.seconds)
        shares: dict[int, list[tuple[float, float, float]]] = defaultdict(list)
        for split in measured.of(Split):
            shares[split.batch].append((split.forward_s, split.backward_s, split.apply_s))
        batches = sorted(times)
        if len(batches) < _FEWEST_BATCHES:
            raise CalibrationError(
                f"steps of {len(batches)} batch size(s) were measured; a fit needs at least {_FEWEST_BATCHES}, better 3: --batch 16,32,64"
            )
        for batch in batches:
            count = sum(len(one) for one in times[batch].values())
            if count < _FEWEST_STEPS:
                raise CalibrationError(f"batch {batch} has {count} timed step(s); a fit needs at least {_FEWEST_STEPS}: raise --steps")
            if not any(sum(row) > 0 for row in shares[batch]):
                raise CalibrationError(
                    f"batch {batch} has no step split into forward, backward and apply: the probe stopped too early; measure again"
                )
        rounds = {batch: [np.array(times[batch][turn]) for turn in sorted(times[batch])] for batch in batches}
        splits = {}
        for batch in batches:
            rows = np.array([row for row in shares[batch] if sum(row) > 0])
            splits[batch] = rows / rows.sum(axis=1, keepdims=True)
        return cls(rounds, splits)

    @property
    def batches(self) -> list[int]:
        """Batch sizes, ascending."""
        return sorted(self.rounds)

    def times(self, batch: int) -> Array:
        """All step times of a batch size, in seconds."""
        return np.concatenate(self.rounds[batch])

    def mean(self, batch: int) -> float:
        """Mean step time of a batch size, in seconds."""
        return float(np.mean(self.times(batch)))

    def share(self, batch: int, phase: Phase) -> float:
        """Share of a phase in the step: median over the steps with clocks inside; the three sum to 1."""
        medians = np.median(self.splits[batch], axis=0)
        return float(medians[_PHASES.index(phase)] / medians.sum())

    def phase(self, phase: Phase) -> tuple[Array, Array]:
        """Batch sizes and seconds of a phase, one pair a round: its share of the plain step's mean."""
        sizes, seconds = [], []
        for batch in self.batches:
            share = self.share(batch, phase)
            for times in self.rounds[batch]:
                sizes.append(float(batch))
                seconds.append(max(share * float(np.mean(times)), 1e-9))
        return np.array(sizes), np.array(seconds)

    def resampled(self, rng: np.random.Generator) -> StepTable:
        """A bootstrap copy: whole rounds drawn with replacement, the same for all batch sizes, and split steps.

        Rounds, not steps, are drawn, since the steps of a round share the machine's state.
        """
        count = max(len(rounds) for rounds in self.rounds.values())
        drawn = rng.integers(count, size=count)
        rounds = {}
        for batch, ours in self.rounds.items():
            chosen = [ours[turn] for turn in drawn if turn < len(ours)]
            rounds[batch] = chosen or ours
        splits = {batch: rows[rng.integers(len(rows), size=len(rows))] for batch, rows in self.splits.items()}
        return StepTable(rounds, splits)

    def factors(self) -> Array:
        """Step times divided by the mean of their batch size and by the speed of their round.

        What differs between rounds is left to ``run_to_run_cv``. The speed of a round is the
        mean of its n factors, which takes one degree of freedom from them: deviations are
        widened by sqrt(n / (n - 1)).
        """
        found = []
        for group in self._by_round():
            count = len(group)
            widened = 1.0 + (group / group.mean() - 1.0) * np.sqrt(count / (count - 1)) if count > 1 else group
            found.append(np.maximum(widened, 1e-3))
        return np.concatenate(found)

    def _by_round(self) -> list[Array]:
        """Step times divided by the mean of their batch size, one array a round over all batch sizes."""
        count = max(len(rounds) for rounds in self.rounds.values())
        groups = []
        for turn in range(count):
            parts = [rounds[turn] / self.mean(batch) for batch, rounds in self.rounds.items() if turn < len(rounds)]
            groups.append(np.concatenate(parts))
        return groups

    def run_to_run_cv(self) -> float:
        """Spread of whole rounds as a share: the between-round component of a one-way analysis of variance.

        Method of moments, (MS_between - MS_within) / n_0, not below zero; the steps of all
        batch sizes of a round, each divided by the mean of its batch size, are one group.
        """
        groups = self._by_round()
        count = len(groups)
        sizes = np.array([len(group) for group in groups], float)
        total = float(sizes.sum())
        if count < 2 or total <= count:
            return 0.0
        grand = float(np.concatenate(groups).mean())
        between = sum(len(group) * (float(group.mean()) - grand) ** 2 for group in groups) / (count - 1)
        within = sum(float(((group - group.mean()) ** 2).sum()) for group in groups) / (total - count)
        n_0 = (total - float((sizes**2).sum()) / total) / (count - 1)
        return float(np.sqrt(max((between - within) / n_0, 0.0)))
