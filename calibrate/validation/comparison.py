"""One prediction compared with its measurements: the row of every kind of validation, also as CSV.

The CSV files in ``models/validated`` have these columns; ``evidence/discrepancy.py`` reads them (``rows_from_csv``), so with other columns
they must be written again. Scores over rows are in validation.py.
"""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from pydantic import Field

from simulator.base.spec import Spec
from simulator.results.intervals import prediction_interval
from simulator.results.results import Result
from simulator.spec.figures import Estimate
from simulator.spec.uncertainty import AppliedDiscrepancy, RegimeText


class Reached(Spec):
    """Reach of a prediction, and its interval from chance and draws only, from which the discrepancy of a regime is estimated."""

    regime: RegimeText = Field(description="regime, as in simulator.results.inadequacy")
    source: str = Field(default="", description="table or machine, left out of an estimate as a whole")
    series: str = Field(default="", description="settings that differ only in numbers")
    reach: float = Field(ge=0, description="doublings of replicas beyond the calibrated number")
    compute: float = Field(description="derivative of the logarithm of a step's time by that of compute time")
    communication: float = Field(description="derivative by the logarithm of communication time")
    efficiency: float | None = Field(default=None, description="share of linear scaling, beyond which model error does not reach")
    low: float = Field(description="width of the interval without model error")
    high: float


class Compared(Spec):
    """A setting that was measured, and what was predicted for it.

    Errors are signed and relative: predicted / measured - 1, so that positive is too fast.
    """

    name: str = Field(description="name of the setting in tables and figures")
    group: str = Field(description="mode or regime; scores are given for each and for all")
    fitted: bool = Field(default=False, description="part of the fit; excluded from scores")
    unit: str = Field(default="updates/s", description="relative error of throughput")
    measured: tuple[float, ...] = Field(min_length=1, description="throughput of each repeat")
    predicted: Estimate = Field(description="throughput of one real run, with its 90% interval")
    staleness_measured: tuple[float, ...] = Field(default=(), description="mean staleness of each repeat")
    staleness_predicted: float | None = None
    staleness_distance: float | None = Field(default=None, description="Kolmogorov distance between the distributions of staleness")
    baselines: Mapping[str, float] = Field(default_factory=dict, description="throughput by a simpler rule, by the rule's name")
    settings: Mapping[str, float | str] = Field(default_factory=dict, description="workers, servers, ... for tables and axes")
    note: str = Field(default="", description="how it was fitted, or why it differs")
    reached: Reached | None = Field(default=None, description="null unless the prediction is a simulated training of several replicas")

    @property
    def mean(self) -> float:
        """Mean throughput measured."""
        return statistics.fmean(self.measured)

    @property
    def error(self) -> float:
        """Signed relative error relative error of throughput."""
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


def histogram_distance(counts: Mapping[int, float], other: Mapping[int, float]) -> float:
    """Kolmogorov distance between two distributions of counts: the largest gap between their cumulative shares.

    Returns
    -------
    float
        From 0 (equal) to 1; NaN if one is empty.
    """
    if not any(counts.values()) or not any(other.values()):
        return math.nan
    values = sorted({*counts, *other})
    shares = [np.cumsum([some.get(value, 0.0) / sum(some.values()) for value in values]) for some in (counts, other)]
    return float(np.abs(shares[0] - shares[1]).max())


def reached_of(applied: AppliedDiscrepancy | None, drawn: Estimate, *, source: str = "", series: str = "") -> Reached | None:
    """How far a prediction reaches; none where it has no discrepancy.

    Parameters
    ----------
    applied
        The discrepancy of the prediction.
    drawn
        Its interval without that.
    source, series
        As :class:`~calibrate.validation.comparison.Reached` has them.
    """
    if applied is None:
        return None
    shared = {name: getattr(applied, name) for name in ("regime", "reach", "compute", "communication", "efficiency")}
    return Reached(source=source, series=series, low=drawn.low, high=drawn.high, **shared)


def drawn_interval(result: Result, unit: str = "samples/s") -> Estimate:
    """The interval of a result's throughput from chance and draws only, widened to include its mean."""
    rate = result.throughput_samples_per_s
    per_sample = result.updates_per_s.mean / rate.mean if unit == "updates/s" else 1.0
    drawn = prediction_interval(result.throughput_of_each_replication)
    mean = rate.mean * per_sample
    return Estimate(mean=mean, low=min(drawn.low * per_sample, mean), high=max(drawn.high * per_sample, mean))


_OWN = ("name", "group", "unit", "predicted", "measured", "staleness_predicted", "staleness_measured")
_COLUMNS = (*_OWN, *Reached.model_fields)


def rows_to_csv(rows: Iterable[Compared]) -> str:
    """Rows that took no part in a fit and have what an estimate needs; repeats of one row are separated by spaces."""
    text = io.StringIO()
    writer = csv.DictWriter(text, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        if row.reached is None or row.fitted:
            continue
        own = {name: getattr(row, name) for name in _OWN} | {"predicted": row.predicted.mean} | row.reached.model_dump()
        writer.writerow({name: _written(value) for name, value in own.items()})
    return text.getvalue()


def _written(value: Any) -> Any:
    if isinstance(value, tuple):
        return " ".join(map(_written, value))
    return f"{value:.6g}" if isinstance(value, float) else value
