"""Whether what was measured is as predicted: one rule for all that hold a run against its prediction.

A prediction has an interval of a run's mean step, and a measured mean an error. It is *slower* or *faster* where the mean, with that
error, lies surely outside the interval of ``coverage`` of runs. One run in ten lies outside its 90% interval though all is as predicted,
so that is no alarm (*beyond*). Where the mean is known so badly that it could be either, nothing is said (*unclear*).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

from scipy.special import stdtrit

from simulator.base.text import format_share
from simulator.results.results import Result
from simulator.spec.uncertainty import Z_90

State = Literal["unclear", "inside", "beyond", "slower", "faster"]
"""``unclear``: cannot tell; ``beyond``: outside the 90% interval, as one run in ten is; ``slower``, ``faster``: outside."""

_SURE = 0.99865
"""Three standard deviations of a normal law, on one side."""
_KNOWN = 0.1
"""A mean that is known to such a share of the predicted one can be judged, however narrow the interval."""
_DIGITS = 1e-6
"""Nobody writes a time with more digits than that, as a share."""
_STANDS = {
    "unclear": "cannot tell yet whether that is as predicted",
    "inside": "inside its 90% interval",
    "beyond": "outside its 90% interval, as one run in ten is that goes as predicted",
    "slower": "slower than {wide} of runs that go as predicted",
    "faster": "faster than {wide} of runs that go as predicted",
}


def half_width_s(error_s: float, count: int) -> float:
    """How far a mean of ``count`` values with this standard error is known on each side: Student's quantile of 99.73%, in seconds.

    Infinite for fewer than two values.
    """
    return float(stdtrit(count - 1, _SURE)) * error_s if count > 1 else math.inf


@dataclass(frozen=True)
class Predicted:
    """A step as it is predicted, in seconds.

    Attributes
    ----------
    mean_s, low_s, high_s
        The mean step of a run, and its 90% interval.
    least_s, most_s
        Between which ``coverage`` of runs as predicted lie: the same interval with logarithms stretched as those of a normal law.
    p50_s, p95_s
        Quantiles of single steps.
    coverage
        Share of runs.
    samples
        Of a step of all workers together.
    """

    mean_s: float
    low_s: float
    high_s: float
    least_s: float
    most_s: float
    p50_s: float
    p95_s: float
    coverage: float
    samples: int

    @classmethod
    def of(cls, result: Result, coverage: float) -> Predicted:
        """What a result predicts."""
        step, wider = result.mean_step_s, NormalDist().inv_cdf(0.5 + coverage / 2) / Z_90
        return cls(
            step.mean,
            step.low,
            step.high,
            step.mean * (step.low / step.mean) ** wider if step.low > 0 else 0.0,
            step.mean * (step.high / step.mean) ** wider,
            result.step_time_s.p50,
            result.step_time_s.p95,
            coverage,
            result.scenario.batch * result.scenario.replicas,
        )

    def state(self, mean_s: float, half_s: float) -> State:
        """Where a measured mean lies that is known to ``half_s`` on each side; 0 where its error is not known."""
        half_s = max(half_s, _DIGITS * self.mean_s)
        if mean_s - half_s > self.most_s:
            return "slower"
        if mean_s + half_s < self.least_s:
            return "faster"
        if not half_s <= max(_KNOWN * self.mean_s, self.most_s - self.mean_s):
            return "unclear"
        rounded_s = _DIGITS * self.mean_s
        return "inside" if self.low_s - rounded_s <= mean_s <= self.high_s + rounded_s else "beyond"

    def stands(self, state: State) -> str:
        """A state in words, as a clause behind the measured figure."""
        return _STANDS[state].format(wide=format_share(self.coverage))
