"""What processes of one machine have in common: launches of several at once, by analysis of variance."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from calibrate.disturbance import choose_rounds
from calibrate.measurements import Measurements
from calibrate.records import StepTime
from simulator.errors import CalibrationError

__all__ = ["AtOnce", "SharedSpread", "is_at_once", "processes_at_once"]

Array = NDArray[np.float64]

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
                "what processes share needs at least two launches of at least two processes each: --launches 5 --at-once 2"
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
class AtOnce:
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
    """

    share: float | None
    interval_90: tuple[float, float]
    text: str


def is_at_once(measured: Measurements) -> bool:
    """Whether a file is that of one process of several at once."""
    return measured.header.arguments.get("launch") is not None


def processes_at_once(files: Sequence[Measurements], accept: bool = False) -> AtOnce:
    """Estimate what processes share, from the files of all launches.

    A launch of which a process is missing, or was disturbed, is left out.

    Parameters
    ----------
    files
        Written by :func:`calibrate.profile_at_once`.
    accept
        Take disturbed rounds as well.
    """
    launches: dict[int, list[dict[int, list[Array]]]] = defaultdict(list)
    started: set[int] = set()
    for one in files:
        number = int(one.header.arguments["launch"])
        started.add(number)
        try:
            left_out = choose_rounds([one], accept).left_out
        except CalibrationError:
            continue
        rounds: dict[tuple[int, int], list[float]] = defaultdict(list)
        for step in one.of(StepTime):
            if (0, step.round) not in left_out:
                rounds[step.batch, step.round].append(step.seconds)
        by_batch: dict[int, list[Array]] = defaultdict(list)
        for (batch, _), times in rounds.items():
            by_batch[batch].append(np.array(times))
        if by_batch and one.complete:
            launches[number].append(dict(by_batch))
    processes = max((int(str(one.header.arguments["together"]).rpartition(":")[2]) for one in files), default=0)
    whole = [ones for ones in launches.values() if len(ones) == processes]
    seen = f"{len(started)} launches of {processes} processes at once"
    if len(whole) < len(started):
        seen += f", {len(started) - len(whole)} of them disturbed or stopped and left out"
    if len(whole) < 2 or processes < 2:
        return AtOnce(None, (0.0, 1.0), f"{seen}: too few to tell what processes of one machine share")
    levels, noise = _levels(whole)
    found = SharedSpread().fit(levels, noise)
    low, high = found.interval_90_
    if found.share_ is None:
        return AtOnce(None, found.interval_90_, f"{seen}: what they share is not determined; more launches (--launches) or processes would")
    return AtOnce(
        found.share_, found.interval_90_, f"{seen}: they share {found.share_:.0%} of their variance, 90%: {low:.0%} to {high:.0%}"
    )


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
