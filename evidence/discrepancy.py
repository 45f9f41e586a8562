"""What predictions are off by, estimated from runs that took no part in any fit.

    python -m evidence.discrepancy

reads every ``models/validated/*.csv`` and writes ``models/discrepancy.toml`` anew. The
standard deviations of each regime are those with which 90% intervals have the lowest mean
interval score (Gneiting and Raftery, "Strictly proper scoring rules, prediction, and
estimation", JASA 2007, equation 43), of logarithms, so that half as fast counts as much as
twice as fast. A series counts as one however many rows it has, a source as the root of the
number of its series, and all other regimes with the same kind of links together as one
more source, so that a regime of few rows is drawn towards them.

A regime has two numbers: of compute for each doubling of replicas, none for one replica as
it was calibrated, and of communication. More of them (both with and without a part for
each doubling) and fewer (of one kind alone, or the same for both) did worse on sources
left out, and so are not estimated; a scenario's own discrepancy may have them:
:func:`~calibrate.validation.own_discrepancy.own_discrepancy` scales that of the regime to points of one's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tomlkit
import tomlkit.items
from numpy.typing import NDArray
from scipy import optimize

from calibrate.fit.intervals import digits
from calibrate.validation.comparison import Compared, rows_from_csv
from simulator.base import catalog
from simulator.base.outputs import EDITED, Output
from simulator.base.text import format_change, format_share
from simulator.results.inadequacy import (
    ALL_REDUCE,
    ASYNCHRONOUS,
    BETWEEN,
    CATALOGUE,
    CONTENDED,
    CUT,
    KINDS_OF_LINKS,
    MEASURED,
)
from simulator.spec.discrepancy import Z_90, Deviation, LeftOutRows

__all__ = ["Held", "Sample", "deviations", "held_out", "main"]

Array = NDArray[np.float64]

_OUTSIDE = 2.0 / 0.1
"""What a value outside costs for each unit of its distance: 2 / alpha."""
_NEXT = 1.4
"""How many times as far a source that nobody has seen is off, where links are known by their sort alone: with as much, intervals of
sources that were left out hold nine of ten of their rows."""
_OTHERS = 1.0
"""Sources that all other regimes together count as."""


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
        return cls(*(np.array(column) for column in columns))

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
        return np.asarray(weights / weights.sum(), dtype=np.float64)

    def ends(self, compute: float, communication: float) -> tuple[Array, Array]:
        """Of 90% intervals with a discrepancy: of compute for each doubling, of communication as it is; logarithms (n,)."""
        sd = np.hypot(self.compute * compute * self.reach, self.communication * communication)
        return -np.hypot(self.low, Z_90 * sd), np.hypot(self.high, Z_90 * sd)

    def scores(self, low: Array, high: Array) -> Array:
        """Interval scores (n,)."""
        return high - low + _OUTSIDE * (np.maximum(low - self.measured, 0.0) + np.maximum(self.measured - high, 0.0))


_TINY = 1e-6


def deviations(sample: Sample, regime: str, without: str = "") -> tuple[Deviation, Deviation]:
    """What predictions of a regime are off by: of compute, and of communication.

    Parameters
    ----------
    without
        A source that is left out.
    """
    kept = sample.where((sample.source != without) & _alike(sample, regime))
    if not len(kept.share):
        kept = sample.where((sample.source != without) & ((sample.regime == regime) | _of_whole_models(sample)))
    weights = kept.weights(regime)

    def loss(logs: Array) -> float:
        return float(weights @ kept.scores(*kept.ends(*np.exp(logs))))

    limits = [(np.log(_LEAST), np.log(_MOST))] * len(_STARTS[0])
    found = min(
        (optimize.minimize(loss, np.log(start), method="Nelder-Mead", bounds=limits, options=_SEARCH) for start in _STARTS),
        key=lambda its: float(its.fun),
    )
    kind, _, links = regime.partition(", ")
    further = 1.0 if kind == CUT or links in (MEASURED, CONTENDED) else _NEXT
    compute, communication = (0.0 if value < _NOTHING else digits(value * further, 2) for value in np.exp(found.x))
    if kind == CUT:  # of few sources: no less than of all-reduces, which a cut model has as well
        least = deviations(sample, f"{ALL_REDUCE}, {BETWEEN if links == CATALOGUE else links}", without)
        further = _NEXT if links == CATALOGUE else 1.0  # has rows of its own
        compute, communication = (
            max(own, digits(other / further, 2)) for own, other in ((compute, least[0].per_doubling), (communication, least[1].at))
        )
    return Deviation(per_doubling=compute), Deviation(at=communication)


_LEAST, _NOTHING, _MOST = 1e-4, 1e-3, 2.0
_STARTS = (0.02, 0.1), (0.005, 0.3), (0.05, 0.03)
_SEARCH = {"xatol": 0.02, "fatol": 1e-6}


def _alike(sample: Sample, regime: str) -> NDArray[np.bool_]:
    """Rows with the same kind of links, all that nobody measured being alike.

    Models that are cut stand by themselves, whatever their links where there are no others.
    """
    kind, _, links = regime.partition(", ")
    names = [name.partition(", ") for name in sample.regime]
    if kind == CUT:
        alike = [name[0] == CUT and name[2] == links for name in names]
        return np.array(alike if any(alike) else [name[0] == CUT for name in names], dtype=bool)
    measured = (MEASURED, CONTENDED)
    same = [name[2] == links if links in measured else name[2] not in measured for name in names]
    return np.array([name[0] != CUT and alike for name, alike in zip(names, same, strict=True)], dtype=bool)


def _of_whole_models(sample: Sample) -> NDArray[np.bool_]:
    return np.array([", " in name and not name.startswith(CUT) for name in sample.regime], dtype=bool)


@dataclass(frozen=True)
class Held:
    """How intervals do on sources left out; scores are mean interval scores of logarithms, each setting counted once.

    Attributes
    ----------
    inside, score
        With the discrepancy that the other sources give.
    inside_before, score_before
        Without any.
    """

    settings: int
    sources: int
    inside: float
    inside_before: float
    score: float
    score_before: float

    def __str__(self) -> str:
        change = self.score / self.score_before - 1.0
        return (
            f"{self.settings} settings of {self.sources} sources: {format_share(self.inside_before)} inside without, "
            f"{format_share(self.inside)} with; "
            f"interval score {self.score_before:.3f} without, {self.score:.3f} with ({format_change(change)})"
        )


def held_out(sample: Sample, regimes: Sequence[str]) -> Held:
    """Each source of some regimes held against the discrepancy that the others give."""
    with_term, without = [], []
    for regime in regimes:
        own = sample.where(sample.regime == regime)
        for source in np.unique(own.source):
            part = own.where(own.source == source)
            compute, communication = deviations(sample, regime, without=str(source))
            with_term.append(_held(part, *part.ends(compute.per_doubling, communication.at)))
            without.append(_held(part, part.low, part.high))
    own = sample.where(np.isin(sample.regime, regimes))
    (inside, score), (inside_before, score_before) = (np.sum(its, axis=0) / own.share.sum() for its in (with_term, without))
    return Held(len(np.unique(own.row)), len(np.unique(own.source)), inside, inside_before, score, score_before)


def _held(part: Sample, low: Array, high: Array) -> tuple[float, float]:
    """Of some ends: settings inside, and the sum of their scores."""
    inside = (low <= part.measured) & (part.measured <= high)
    return float(part.share @ inside), float(part.share @ part.scores(low, high))


def _staleness(rows: Sequence[Compared], regime: str) -> Deviation:
    """So that 90% of mean staleness lie within 1.645 deviations; of rows with links alike, or else of all."""
    found = [
        (row.reached.regime, abs(float(np.log(row.staleness_predicted / value))))
        for row in rows
        if row.reached is not None and row.staleness_predicted
        for value in row.staleness_measured
        if value > 0
    ]
    alike = [miss for name, miss in found if name.partition(", ")[2] == regime.partition(", ")[2]] or [miss for _, miss in found]
    return Deviation(at=digits(np.quantile(alike, 0.9) / Z_90, 2)) if alike else Deviation()


_FEWEST = 8
"""Settings below which a regime's own coverage says too little; then that of all with links alike is given."""
_HEAD = """\
What predictions of each regime are off by, beyond chance and what fits leave open: standard
deviations of the logarithm of a time, hypot(at, per_doubling x doublings of replicas beyond
what was calibrated). Written by `python -m evidence.discrepancy` from
models/validated/*.csv; docs/metrics.md says how it is used, docs/calibration.md how it is
estimated. "checked": 90% intervals of sources that were left out of the estimate.
"""


def _regime_table(rows: Sequence[Compared], sample: Sample, name: str) -> dict[str, Any]:
    """What the file says of a regime."""
    own = sample.where(sample.regime == name)
    alike = sorted(set(sample.regime[_alike(sample, name)])) or sorted(set(sample.regime))
    settings, sources = len(np.unique(own.row)), len(np.unique(own.source))
    compute, communication = deviations(sample, name)
    held = held_out(sample, [name] if settings >= _FEWEST else alike)
    about = f"{settings} settings of {sources} source{'' if sources == 1 else 's'}"
    if settings < _FEWEST:
        about += "; drawn towards all regimes with such links, whose coverage is given"
    elif sources == 1:
        about += "; its coverage is that of figures from other regimes alone"
    print(f"{name}: {held if settings >= _FEWEST else about}")  # noqa: T201
    table: dict[str, Any] = {"name": name, "about": about, "compute": _inline(compute), "communication": _inline(communication)}
    if name.startswith(ASYNCHRONOUS):
        table["staleness"] = _inline(_staleness(rows, name))
    return {**table, "checked": _inline(LeftOutRows(inside=float(f"{held.inside:.3f}"), rows=held.settings, sources=held.sources))}


def _inline(spec: Deviation | LeftOutRows) -> tomlkit.items.InlineTable:
    table = tomlkit.inline_table()
    table.update(spec.model_dump())
    return table


def main() -> None:
    """Write models/discrepancy.toml anew from all rows that are carried along."""
    target = catalog.own_file("discrepancy.toml")
    rows = [row for file in sorted((target.parent / "validated").glob("*.csv")) for row in rows_from_csv(file)]
    sample = Sample.of(rows)
    document = tomlkit.document()
    for line in _HEAD.splitlines():
        document.add(tomlkit.comment(line))
    document.add("schema_version", tomlkit.item(1))
    tables = tomlkit.aot()
    for kind, its in KINDS_OF_LINKS.items():
        for links in its:
            table = tomlkit.table()
            table.update(_regime_table(rows, sample, f"{kind}, {links}"))
            tables.append(table)
    document.add("regimes", tables)
    print(f"all: {held_out(sample, sorted(set(sample.regime)))}")  # noqa: T201
    Output(target, EDITED, force=True).write(tomlkit.dumps(document))
    print(f"wrote {target}")  # noqa: T201


if __name__ == "__main__":
    main()
