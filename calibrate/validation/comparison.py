"""One prediction beside what was measured: the row that every kind of validation gives."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping

from pydantic import Field

from simulator.figures import Estimate
from simulator.spec import Spec

__all__ = ["Compared", "Reached", "histogram_distance"]


class Reached(Spec):
    """How far a prediction reaches, and its interval by chance and draws alone: what the discrepancy of a regime is estimated from."""

    regime: str = Field(description="as simulator.inadequacy has it")
    source: str = Field(default="", description="table or machine; left out of an estimate as a whole")
    series: str = Field(default="", description="settings that differ in their numbers alone")
    reach: float = Field(ge=0, description="doublings of replicas beyond what was calibrated")
    compute: float = Field(description="by how much the logarithm of a step's time rises with that of compute")
    communication: float = Field(description="the same with that of communication")
    low: float = Field(description="of the interval without any discrepancy")
    high: float


class Compared(Spec):
    """A setting that was measured, and what was predicted for it.

    Errors are signed and relative: predicted / measured - 1, so that positive is too fast.
    """

    name: str = Field(description="of the setting, for people")
    group: str = Field(description="mode or regime; scores are given for each and for all")
    fitted: bool = Field(default=False, description="took part in the fit; scores leave it out")
    unit: str = Field(default="updates/s", description="of throughput")
    measured: tuple[float, ...] = Field(min_length=1, description="throughput of each repeat")
    predicted: Estimate = Field(description="throughput of one real run, with its 90% interval")
    staleness_measured: tuple[float, ...] = Field(default=(), description="mean staleness of each repeat")
    staleness_predicted: float | None = None
    staleness_distance: float | None = Field(default=None, description="Kolmogorov distance between the distributions of staleness")
    baselines: Mapping[str, float] = Field(default_factory=dict, description="throughput by a simpler rule, by the rule's name")
    settings: Mapping[str, float | str] = Field(default_factory=dict, description="workers, servers, ... for tables and axes")
    note: str = Field(default="", description="how it was fitted, or why it is off")
    reached: Reached | None = Field(default=None, description="null where the prediction is not a simulated training of several replicas")

    @property
    def mean(self) -> float:
        """Mean throughput measured."""
        return statistics.fmean(self.measured)

    @property
    def error(self) -> float:
        """Signed relative error of throughput."""
        return self.predicted.mean / self.mean - 1.0

    @property
    def noise(self) -> float | None:
        """Noise floor: the relative standard deviation of repeats; none of fewer than two."""
        return statistics.stdev(self.measured) / self.mean if len(self.measured) > 1 else None

    @property
    def inside(self) -> int:
        """Repeats inside the interval."""
        return sum(self.predicted.low <= value <= self.predicted.high for value in self.measured)

    @property
    def relative_width(self) -> float:
        """Width of the interval as a share of what was measured."""
        return (self.predicted.high - self.predicted.low) / self.mean

    @property
    def interval_score(self) -> float:
        """Mean interval score of the repeats, as a share of their mean; lower is better.

        Width, plus 2 / alpha times the distance of a value outside, alpha = 0.1 (Gneiting
        and Raftery, "Strictly proper scoring rules, prediction, and estimation", JASA 2007,
        equation 43).
        """
        low, high = self.predicted.low, self.predicted.high
        outside = statistics.fmean(max(low - value, 0.0, value - high) for value in self.measured)
        return (high - low + 2.0 / 0.1 * outside) / self.mean

    @property
    def staleness_error(self) -> float | None:
        """Predicted less measured mean staleness; none if it was not measured or not predicted."""
        if not self.staleness_measured or self.staleness_predicted is None:
            return None
        return self.staleness_predicted - statistics.fmean(self.staleness_measured)

    def baseline_error(self, name: str) -> float:
        """Signed relative error of a simpler rule."""
        return self.baselines[name] / self.mean - 1.0


def histogram_distance(one: Mapping[int, float], other: Mapping[int, float]) -> float:
    """Kolmogorov distance between two distributions of counts: the largest gap between their cumulative shares.

    Returns
    -------
    float
        From 0 (equal) to 1; NaN if one is empty.
    """
    total, other_total = sum(one.values()), sum(other.values())
    if not total or not other_total:
        return math.nan
    gap = share = other_share = 0.0
    for value in sorted({*one, *other}):
        share += one.get(value, 0.0) / total
        other_share += other.get(value, 0.0) / other_total
        gap = max(gap, abs(share - other_share))
    return gap
