"""Fits the cost of a step, and the distribution of step times around it, to step times of one or more runs.

:class:`StepTable` holds them whether they were measured (:mod:`calibrate.fit.step`) or read from profiles
(:mod:`calibrate.fit.profile`). Parameters are named as the keys of a workload, ``forward.base_s`` for one, since a file's draws are
put in place by these names.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import lsq_linear

from calibrate.fit.estimators import (
    DRAWS,
    FEWEST_FACTORS,
    Fitted,
    Line,
    distribution_of,
    drawn_distributions,
    line_of_means,
    persistence_of,
    quantiles,
    variance_of_mean,
    with_persistence,
)
from calibrate.measurements import CUT_SHORT, Measurements, Split, StepTime
from simulator.base.errors import CalibrationError
from simulator.base.text import digits
from simulator.spec.distributions import Constant
from simulator.spec.workload import CalibrationPoint

Array = NDArray[np.float64]

STEP_PARAMETERS = "forward.base_s", "forward.per_sample_s", "backward.base_s", "backward.per_sample_s", "apply_s"
"""Fit to steps, in seconds."""

_FEWEST_BATCHES = 2
_FEWEST_STEPS = 5
_INTERRUPTED = 1.5
_DISTRIBUTIONS_DRAWN = 50
_RUNS = 3
"""Of a calibration whose draws are left as they are."""


@dataclass(frozen=True)
class StepTable:
    """Step times in seconds by batch size and round, and how the phases share them.

    Attributes
    ----------
    rounds
        Batch size -> one array of step times a round.
    splits
        Batch size -> seconds of forward, backward and apply in the steps with clocks inside, shape (steps, 3). Only how they share a step's
        time is used. Measured steps that took more than 1.5 times as long as the fastest are left out.
    runs
        The run that each round belongs to, one number a round. A run is one process.
    """

    rounds: dict[int, list[Array]]
    splits: dict[int, Array]
    runs: tuple[int, ...]

    @classmethod
    def of(cls, *measured: Measurements, left_out: Collection[tuple[int, int]] = ()) -> StepTable:
        """Arrange the records of runs, one for each, without rounds that do not count (number of the run, number of the round).

        Raises
        ------
        CalibrationError
            There are too few batch sizes, steps, or splits.
        """
        times: dict[int, dict[tuple[int, int], list[float]]] = defaultdict(lambda: defaultdict(list))
        shares: dict[int, list[tuple[float, float, float]]] = defaultdict(list)
        for number, run in enumerate(measured):
            for step in run.of(StepTime):
                if (number, step.round) not in left_out:
                    times[step.batch][number, step.round].append(step.seconds)
            for split in run.of(Split):
                shares[split.batch].append((split.forward_s, split.backward_s, split.apply_s))
        batches = sorted(times)
        if not batches:
            raise CalibrationError(f"has no timed steps: {CUT_SHORT}")
        if len(batches) < _FEWEST_BATCHES:
            raise CalibrationError(
                f"has steps of {len(batches)} batch size(s), but a fit needs at least {_FEWEST_BATCHES}, better 3, in one run: measure "
                "again with several, such as `batches=[16, 32, 64]`"
            )
        for batch in batches:
            count = sum(map(len, times[batch].values()))
            if count < _FEWEST_STEPS:
                raise CalibrationError(
                    f"batch {batch} has {count} timed step(s), but a fit needs at least {_FEWEST_STEPS}: measure again with more `steps`"
                )
            if not any(math.fsum(row) > 0 for row in shares[batch]):
                raise CalibrationError(f"batch {batch} has no step split into forward, backward and apply: {CUT_SHORT}")
        # a round that was cut short has not seen all batch sizes, and cannot be compared with the others
        turns = sorted(set.intersection(*(set(times[batch]) for batch in batches)))
        if not turns:
            raise CalibrationError(f"no round over all batch sizes finished: {CUT_SHORT}")
        rounds = {batch: [np.array(times[batch][turn]) for turn in turns] for batch in batches}
        splits = {batch: smooth(np.array([row for row in shares[batch] if math.fsum(row) > 0])) for batch in batches}
        return cls(rounds, splits, tuple(run for run, _ in turns))

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

    def shares(self, batch: int) -> Array:
        """Shares of forward, backward and apply in the step's mean time: their seconds over those of all, summed over the split steps.

        Quotients of sums, since they divide a mean: mean or median of each step's own shares
        would count a long step, which the mean feels most, as much as a short one.
        """
        sums = np.sum(self.splits[batch], axis=0)
        return np.asarray(sums / np.sum(sums))

    def fastest(self) -> float:
        """The fastest step that was seen, as a share of the mean of its batch size."""
        return min(float(np.min(self.times(batch))) / self.mean(batch) for batch in self.batches)

    def levels(self) -> dict[int, Array]:
        """Run -> the speed of each of its rounds: step times divided by the mean of their batch size, averaged."""
        levels: dict[int, list[float]] = defaultdict(list)
        for run, group in zip(self.runs, self._by_round(), strict=True):
            levels[run].append(float(group.mean()))
        return {run: np.array(each) for run, each in levels.items()}

    def resampled(self, rng: np.random.Generator) -> StepTable:
        """A bootstrap copy: runs drawn with replacement, whole rounds within them likewise, and split steps.

        The same rounds are drawn for all batch sizes. Rounds, not steps, are drawn, since the
        steps of a round share the machine's state, as do the rounds of a run.
        """
        of_run = [np.flatnonzero(np.array(self.runs) == run) for run in sorted(set(self.runs))]
        drawn: list[int] = []
        runs: list[int] = []
        for number, run in enumerate(rng.integers(len(of_run), size=len(of_run)).tolist()):
            turns = rng.choice(of_run[run], size=len(of_run[run]))
            drawn += turns.tolist()
            runs += [number] * len(turns)
        rounds = {batch: [ours[turn] for turn in drawn] for batch, ours in self.rounds.items()}
        splits = {batch: rows[rng.integers(len(rows), size=len(rows))] for batch, rows in self.splits.items()}
        return StepTable(rounds, splits, tuple(runs))

    def stretches(self) -> list[Array]:
        """Step times that followed each other, divided by the mean of their batch size: one array for each round and batch size."""
        return [group / self.mean(batch) for batch in self.batches for group in self.rounds[batch]]

    def factors(self, persistence: float = 0.0) -> Array:
        """Step times divided by the mean of their batch size and by the speed of their round.

        Differences between rounds are left to ``run_to_run_cv``. The speed of a round is the mean of its n factors, which takes
        its own variance from theirs, v times as much: deviations are widened by 1 / sqrt(1 - v), which is sqrt(n / (n - 1)) for
        steps without persistence. None is below :meth:`fastest`: in a round that something has slowed down in part, its normal
        steps would seem faster than any step ever was.
        """
        factors = []
        for turn, group in enumerate(self._by_round()):
            if len(group) > 1:
                group = 1.0 + (group / group.mean() - 1.0) / math.sqrt(1.0 - self._of_mean(turn, persistence))
            factors.append(np.maximum(group, self.fastest()))
        return np.concatenate(factors)

    def _of_mean(self, turn: int, persistence: float) -> float:
        """Variance of the mean of a round's factors over that of one, if those of a batch size persist."""
        lengths = np.array([len(self.rounds[batch][turn]) for batch in self.batches])
        return float((lengths**2 * variance_of_mean(lengths, persistence)).sum() / lengths.sum() ** 2)

    def _by_round(self) -> list[Array]:
        """Step times divided by the mean of their batch size, one array a round over all batch sizes."""
        means = {batch: self.mean(batch) for batch in self.batches}
        return [np.concatenate([self.rounds[batch][turn] / means[batch] for batch in self.batches]) for turn in range(len(self.runs))]

    def run_to_run_cv(self, persistence: float = 0.0) -> float:
        """Spread of whole runs as a share, by analysis of variance; what steps that persist give rounds in common is not of it.

        A run of its own differs from another by what differs between processes and by what
        drifts between the rounds of one: the two components are added. From one run only
        the second can be seen, which is less than the truth.
        """
        groups = self._by_round()
        of_run: dict[int, list[Array]] = defaultdict(list)
        for run, group in zip(self.runs, groups, strict=True):
            of_run[run].append(group)
        whole = {run: np.concatenate(parts) for run, parts in of_run.items()}
        # within a run rounds are compared after its own speed is taken out
        of_mean = [self._of_mean(turn, persistence) * len(group) for turn, group in enumerate(groups)]
        within = _between([group / whole[run].mean() for run, group in zip(self.runs, groups, strict=True)], of_mean)
        # the mean of a run moves with its rounds' drift already, so rounds are the units that runs are compared by
        means = [np.array([part.mean() for part in parts]) for parts in of_run.values()]
        across = _between(means) if len(means) > 1 else 0.0
        return float(np.sqrt(within + across))


def widened(draws: Sequence[Sequence[float]], levels: Sequence[float], runs: int) -> list[list[float]]:
    """Draws of fewer runs than three, as far apart as so few runs leave their mean open.

    Two runs drawn with replacement are apart by what two happen to differ. For the mean of R normal values a 90% interval has the
    half-width t s / sqrt(R), with Student's t of R - 1 degrees of freedom, and draws of R runs scatter by s sqrt((R - 1) / R) / sqrt(R):
    the level of each draw, a common factor of its costs, is raised to the power t(2) sqrt(2 / 1) over t(3) sqrt(3 / 2), which is 2.5.
    A single run gives no variation between runs, and its draws stay.
    """
    if not 1 < runs < _RUNS:
        return [list(draw) for draw in draws]
    power = _openness(runs) / _openness(_RUNS)
    return [[value * level ** (power - 1.0) for value in draw] for draw, level in zip(draws, levels, strict=True)]


def _openness(runs: int) -> float:
    return float(stats.t.ppf(0.95, runs - 1)) * math.sqrt(runs / (runs - 1))


class StepCost(NamedTuple):
    """Forward and backward as affine functions of the batch, and apply, which does not depend on it.

    Attributes
    ----------
    forward, backward
        Seconds as a function of the batch.
    apply_s
        Seconds.
    relative_residual
        Largest relative distance of a measured mean from the line.
    """

    forward: Line
    backward: Line
    apply_s: float
    relative_residual: float = 0.0

    def level(self, usual: StepCost, batches: Sequence[int]) -> float:
        """Times as long as another that steps take, mean over batch sizes."""
        return float(np.mean([self.seconds(batch) / usual.seconds(batch) for batch in batches]))

    def seconds(self, batch: int) -> float:
        """A whole step's."""
        return self.forward(batch) + self.backward(batch) + self.apply_s


def step_cost(table: StepTable) -> StepCost:
    """The cost of the steps of one batch size or more.

    The level comes only from plain steps: :func:`~calibrate.fit.estimators.line_of_means` through their means. Steps with clocks inside run
    slower, or at another time; from them comes only how the phases share that line. Apply is the mean of its share over the batch sizes
    (what the optimizer does depends on the variables, not on the batch), and at most the line's fixed part; of the rest, forward gets that
    part of the fixed and of the per-sample cost, each between nothing and all, that meets its shares best (least squares); backward has
    what is left. So the three sum to the line exactly.

    One batch size cannot tell what a step costs whatever the batch: all of forward and
    backward is then counted as the samples'.
    """
    batches = table.batches
    if len(batches) == 1:
        (batch,) = batches
        forward, backward, apply_s = (table.shares(batch) * table.mean(batch)).tolist()
        return StepCost(Line(0.0, forward / batch), Line(0.0, backward / batch), apply_s)
    means = np.array([table.mean(batch) for batch in batches])
    line, shares = line_of_means(batches, means), np.array([table.shares(batch) for batch in batches])
    apply_s = min(float(np.mean([share * line(batch) for batch, share in zip(batches, shares[:, 2], strict=True)])), line.base)
    base, slope = line.base - apply_s, line.slope
    sizes, passes = np.array(batches, float), shares[:, 0] + shares[:, 1]
    rest = base + slope * sizes
    forward_share = np.where(passes > 0, shares[:, 0] / np.where(passes > 0, passes, 1.0), 0.5)  # half of nothing
    solution = lsq_linear(np.column_stack([base / rest, slope * sizes / rest]), forward_share, bounds=(0.0, 1.0), method="bvls").x
    # least squares may end a rounding error outside
    of_base, of_slope = np.clip(solution, 0.0, 1.0).tolist()
    return StepCost(
        Line(of_base * base, of_slope * slope),
        Line((1.0 - of_base) * base, (1.0 - of_slope) * slope),
        apply_s,
        line.residual(batches, means),
    )


def _parameters(cost: StepCost, batches: int) -> dict[str, float]:
    """Return what was fitted to steps of that number of batch sizes: of one, the fixed parts of forward and backward are no parameters."""
    seconds = zip(STEP_PARAMETERS, (*cost.forward, *cost.backward, cost.apply_s), strict=True)
    return {name: value for name, value in seconds if batches > 1 or not name.endswith(".base_s")}


class StepFit(NamedTuple):
    """Parts of a workload from step times.

    Attributes
    ----------
    parameters
        Seconds by name: :data:`STEP_PARAMETERS`, of one batch size without the fixed parts.
    draws
        Joint bootstrap draws of these, shape (200, parameters); None where there are none.
    fields
        Of the workload, to seven digits.
    quality
        Fields of its ``fit``: how well the curves describe what was measured.
    """

    parameters: dict[str, float]
    draws: Array | None
    fields: dict[str, Any]
    quality: dict[str, Any]


def fit_steps(table: StepTable, rng: np.random.Generator, *, few_steps: bool = False, few_runs: bool = False) -> StepFit:
    """Fit the steps of one batch size or more.

    With ``few_runs`` draws of two runs are :func:`widened`. With ``few_steps`` few steps are accepted, as in a profile: with fewer than 10
    the distribution is constant, and with a single round nothing is drawn.

    Raises
    ------
    CalibrationError
        There are fewer than 10 steps, and ``few_steps`` is not set.
    """
    cost, count = step_cost(table), len(table.batches)
    copies = [table.resampled(rng) for _ in range(DRAWS)] if len(table.runs) > 1 or not few_steps else []
    costs = [step_cost(copy) for copy in copies]
    draws = [list(_parameters(drawn_cost, count).values()) for drawn_cost in costs]
    if few_runs:
        draws = widened(draws, [drawn_cost.level(cost, table.batches) for drawn_cost in costs], len(set(table.runs)))
    persistence = persistence_of(table.stretches())
    factors = table.factors(persistence)
    fitted = Fitted(Constant(), None) if few_steps and len(factors) < FEWEST_FACTORS else distribution_of(factors)
    jitter = with_persistence(fitted.distribution, persistence)
    copies = copies[:_DISTRIBUTIONS_DRAWN]
    stays = [persistence_of(copy.stretches(), tested=False) if persistence else 0.0 for copy in copies]
    samples = (copy.factors(each) for copy, each in zip(copies, stays, strict=True))
    fields = {
        "forward": cost.forward.affine(),
        "backward": cost.backward.affine(),
        "apply_s": digits(cost.apply_s),
        "jitter": jitter,
        "jitter_draws": drawn_distributions(jitter, samples, stays),
        "jitter_least": digits(table.fastest()),
        "run_to_run_cv": round(min(table.run_to_run_cv(persistence), 1.0), 6),
    }
    points = tuple(_point(table, batch) for batch in table.batches)
    quality = {"points": points, "relative_residual": digits(cost.relative_residual), "laws": fitted.scores}
    return StepFit(_parameters(cost, count), np.array(draws) if draws else None, fields, quality)


def _point(table: StepTable, batch: int) -> CalibrationPoint:
    times, mean = table.times(batch), table.mean(batch)
    p5, median, p95 = quantiles(times)
    phases = dict(zip(("forward_s", "backward_s", "apply_s"), map(digits, mean * table.shares(batch)), strict=True))
    return CalibrationPoint(batch=batch, steps=len(times), mean_s=digits(mean), p5_s=p5, median_s=median, p95_s=p95, **phases)


def smooth(splits: Array) -> Array:
    """Split steps without those that something has interrupted: of few steps, one pause in a short phase would make it a long one."""
    totals = splits.sum(axis=1)
    return np.asarray(splits[totals <= _INTERRUPTED * totals.min()], float)


def _between(groups: list[Array], of_mean: Sequence[float] = ()) -> float:
    """Between-group component of a one-way analysis of variance, not below zero: (MS_between - MS_within) / n_0.

    With ``of_mean``, for each group the variance of its mean times its size over the variance of one of its members, which is 1
    where members are independent, MS_within times what both squares then have as their means.
    """
    count = len(groups)
    sizes = np.array([len(group) for group in groups], float)
    total = float(sizes.sum())
    if count < 2 or total <= count:
        return 0.0
    grand = float(np.concatenate(groups).mean())
    between = math.fsum(len(group) * (float(group.mean()) - grand) ** 2 for group in groups) / (count - 1)
    within = math.fsum(float(((group - group.mean()) ** 2).sum()) for group in groups) / (total - count)
    n_0 = (total - float((sizes**2).sum()) / total) / (count - 1)
    each = np.array(of_mean) if of_mean else np.ones(count)
    # of members of variance 1: of sums of squares within, and between but for the groups' own component
    times = float((each * (1 - sizes / total)).sum()) / (count - 1) * (total - count) / float((sizes - each).sum())
    return max((between - times * within) / n_0, 0.0)
