"""What predictions are off by, estimated from runs that took no part in any fit.

    python -m calibrate.validation.discrepancy

reads every ``models/validated/*.csv`` and writes ``models/discrepancy.toml`` anew. The
standard deviations of each regime are those with which 90% intervals have the lowest mean
interval score (Gneiting and Raftery, "Strictly proper scoring rules, prediction, and
estimation", JASA 2007, equation 43), of logarithms, so that half as fast counts as much as
twice as fast. A series counts as one however many rows it has, a source as the root of the
number of its series, and all other regimes with the same kind of links together as one
more source, so that a regime of few rows is drawn towards them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from calibrate.validation.comparison import Compared
from simulator.discrepancy import Z_90, Deviation, Discrepancy

__all__ = ["Held", "Sample", "estimate", "held_out"]

Array = NDArray[np.float64]

_OUTSIDE = 2.0 / 0.1
"""What a value outside costs for each unit of its distance: 2 / alpha."""
_OTHERS = 1.0
"""Sources that all other regimes together count as."""
_LEAST, _MOST = 1e-4, 2.0


@dataclass(frozen=True)
class Sample:
    """Rows as arrays, a row each measured value; logarithms are those of throughput over its predicted mean.

    Attributes
    ----------
    regime, source, series
        Names, shape (n,).
    low, high
        Ends of the interval without discrepancy, logarithms (n,), at most and at least 0.
    measured
        Logarithms (n,).
    compute, communication, reach
        As :class:`~calibrate.validation.comparison.Reached` has them (n,).
    share
        Weight of a value within its setting: one over the number of repeats (n,).
    row
        Number of the setting (n,).
    """

    regime: NDArray[np.str_]
    source: NDArray[np.str_]
    series: NDArray[np.str_]
    low: Array
    high: Array
    measured: Array
    compute: Array
    communication: Array
    reach: Array
    share: Array
    row: NDArray[np.int64]

    @classmethod
    def of(cls, rows: Iterable[Compared]) -> Sample:
        """Of rows that were not fitted and say how far they reach."""
        table = [
            (its.regime, its.source, its.series, np.log(max(its.low, _TINY * mean) / mean), np.log(its.high / mean), np.log(value / mean),
             its.compute, its.communication, its.reach, 1.0 / len(row.measured), number)
            for number, row in enumerate(rows)
            if (its := row.reached) is not None and not row.fitted and (mean := row.predicted.mean) > 0
            for value in row.measured
        ]  # fmt: skip
        columns: list[tuple[object, ...]] = list(zip(*table, strict=True)) if table else [()] * 11
        return cls(*(np.array(column) for column in columns))  # type: ignore[arg-type]

    def where(self, mask: NDArray[np.bool_]) -> Sample:
        """Those rows alone."""
        return Sample(**{name: getattr(self, name)[mask] for name in self.__dataclass_fields__})

    def weights(self, regime: str) -> Array:
        """Of each value in an estimate for a regime; they sum to 1 (n,)."""
        own = self.regime == regime
        weights = np.zeros(len(self.share))
        for mask, total in ((own, None), (~own, _OTHERS)):
            part = np.where(mask, self.share, 0.0)
            for source in np.unique(self.source[mask]):
                here = mask & (self.source == source)
                names = np.unique(self.series[here])
                for name in names:
                    at = here & (self.series == name)
                    part[at] *= 1.0 / (part[at].sum() * np.sqrt(len(names)))
            weights += part if total is None or not part.any() else part / part.sum() * total
        return weights / weights.sum()

    def ends(self, parameters: Array) -> tuple[Array, Array]:
        """Of 90% intervals with a discrepancy, logarithms (n,)."""
        compute, communication = (np.hypot(at, each * self.reach) for at, each in parameters.reshape(2, 2))
        sd = np.hypot(self.compute * compute, self.communication * communication)
        return -np.hypot(self.low, Z_90 * sd), np.hypot(self.high, Z_90 * sd)

    def scores(self, low: Array, high: Array) -> Array:
        """Interval scores (n,)."""
        return high - low + _OUTSIDE * (np.maximum(low - self.measured, 0.0) + np.maximum(self.measured - high, 0.0))


_TINY = 1e-6


def estimate(sample: Sample, regime: str, without: str = "") -> Discrepancy:
    """The discrepancy of a regime.

    Parameters
    ----------
    without
        A source that is left out.
    """
    kept = sample.where((sample.source != without) & _alike(sample, regime))
    weights = kept.weights(regime)

    def loss(logs: Array) -> float:
        return float(weights @ kept.scores(*kept.ends(np.exp(logs))))

    limits = [(np.log(_LEAST), np.log(_MOST))] * 4
    starts = [np.log(start) for start in ((0.03, 0.01, 0.1, 0.03), (0.01, 0.03, 0.03, 0.1), (0.1, 0.01, 0.3, 0.01))]
    found = min(
        (optimize.minimize(loss, start, method="Nelder-Mead", bounds=limits, options={"xatol": 0.02, "fatol": 1e-6}) for start in starts),
        key=lambda its: float(its.fun),
    )
    compute, compute_more, communication, more = (0.0 if value < 2 * _LEAST else float(f"{value:.2g}") for value in np.exp(found.x))
    return Discrepancy(
        compute=Deviation(at=compute, per_doubling=compute_more), communication=Deviation(at=communication, per_doubling=more)
    )


def _alike(sample: Sample, regime: str) -> NDArray[np.bool_]:
    """Rows with the same kind of links."""
    links = regime.partition(", ")[2]
    return np.array([name.partition(", ")[2] == links for name in sample.regime], dtype=bool)


@dataclass(frozen=True)
class Held:
    """How intervals of a regime do on sources left out; mean interval scores, of logarithms, each source counted by its weight."""

    regime: str
    rows: int
    values: int
    sources: int
    inside: float
    inside_before: float
    score: float
    score_before: float


def held_out(sample: Sample, regime: str) -> Held:
    """Each source of a regime held against the discrepancy that the others give."""
    inside, score, before = (np.zeros(len(sample.share)) for _ in range(3))
    held = np.zeros(len(sample.share))
    own = sample.regime == regime
    for source in np.unique(sample.source[own]):
        mask = own & (sample.source == source)
        part, term = sample.where(mask), estimate(sample, regime, without=str(source))
        ends = part.ends(_parameters(term))
        inside[mask] = (ends[0] <= part.measured) & (part.measured <= ends[1])
        held[mask] = (part.low <= part.measured) & (part.measured <= part.high)
        score[mask], before[mask] = part.scores(*ends), part.scores(part.low, part.high)
    part = sample.where(own)
    share = part.share / part.share.sum()
    return Held(
        regime=regime,
        rows=len(np.unique(part.row)),
        values=len(part.share),
        sources=len(np.unique(part.source)),
        inside=float(share @ inside[own]),
        inside_before=float(share @ held[own]),
        score=float(share @ score[own]),
        score_before=float(share @ before[own]),
    )


def _parameters(term: Discrepancy) -> Array:
    return np.array([term.compute.at, term.compute.per_doubling, term.communication.at, term.communication.per_doubling])
