"""Model error, estimated from runs outside any fit.

    python -m evidence.discrepancy

reads every ``models/validated/*.csv`` and rewrites ``models/discrepancy.toml``. The
standard deviations of each regime are those with which 90% intervals have the lowest mean
interval score (Gneiting and Raftery, "Strictly proper scoring rules, prediction, and
estimation", JASA 2007, equation 43), of logarithms, so that half as fast counts as much as
twice as fast. A series counts as one however many rows it has, a source as the root of the
number of its series, and all other regimes with the same kind of links together as one
more source, so that a regime of few rows is drawn towards them.

A regime has two numbers: of compute for each doubling of replicas, none for one replica as
it was calibrated, and of communication. Intervals end at 1.03 times linear scaling
(:data:`~simulator.results.inadequacy.SUPERLINEAR`). This form and ``_NEXT`` were chosen on eight of 16 published sources, drawn by seed 53,
and judged on the other eight: errors that grow with the root of the doublings, that do not grow, that differ between faster and slower, or
that have a further part for one replica had no better interval scores there. Cut models have one number, of compute whatever the number of
devices, and the communication of all-reduces between nodes; they have so few series that single rows would decide interval scores, so
that the number is the one with the lowest continuous ranked probability score (:func:`crps`). A scenario's own discrepancy may have all
parts: :func:`~calibrate.validation.against_points.own_discrepancy` scales that of the regime to points of one's own.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import tomlkit
import tomlkit.items
from numpy.typing import NDArray
from scipy import optimize
from scipy.stats import norm

from calibrate.validation.comparison import Compared, Reached
from evidence.published.hybrids import load_hybrids
from evidence.published.tables import load_tables
from simulator.base import catalog
from simulator.base.errors import InputError
from simulator.base.files import EDITED, Output
from simulator.base.text import digits, format_change, format_share
from simulator.results.inadequacy import ALL_REDUCE, ASYNCHRONOUS, BETWEEN, CONTENDED, CUT, KINDS_OF_LINKS, MEASURED, SUPERLINEAR
from simulator.spec.figures import Estimate
from simulator.spec.uncertainty import Z_90, Deviation, LeftOutRows, Regime

Array = NDArray[np.float64]

_OUTSIDE = 2.0 / 0.1
"""What a value outside costs for each unit of its distance: 2 / alpha."""
_NEXT = 1.2
"""How many times as far a source that nobody has seen is off, where links are not measured: of 1.0, 1.2 and 1.4 the one with the lowest
interval score on the eight sources on which the form was chosen."""
_OTHERS = 1.0
"""Sources that all other regimes together count as."""


def rows_from_csv(path: Path) -> list[Compared]:
    """The rows of a file as :func:`~calibrate.validation.comparison.rows_to_csv` writes it.

    Raises
    ------
    InputError
        It cannot be read, or a line has no such row.
    """
    try:
        lines = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}; give a file that was written as `rows` of a validation") from None
    rows = []
    for number, line in enumerate(lines, start=2):
        try:
            predicted = float(line["predicted"])
            texts = {key: line.get(key, "") for key in Reached.model_fields}
            reached = Reached.model_validate(
                {key: value if key in ("regime", "source", "series") else float(value) for key, value in texts.items() if value}
            )
            stale = _numbers(line["staleness_predicted"])
            rows.append(
                Compared(
                    name=line["name"],
                    group=line["group"],
                    unit=line["unit"],
                    predicted=Estimate(mean=predicted, low=reached.low, high=reached.high),
                    measured=_numbers(line["measured"]),
                    staleness_predicted=stale[0] if stale else None,
                    staleness_measured=_numbers(line["staleness_measured"]),
                    reached=reached,
                )
            )
        except (KeyError, TypeError, ValueError) as error:
            what = str(error).splitlines()[0]
            raise InputError(
                f"{path}:{number}: is no row of predictions: {what}; give a file that was written as `rows` of a validation"
            ) from None
    return rows


@lru_cache(maxsize=1)
def validated_rows() -> tuple[Compared, ...]:
    """All rows of ``models/validated``; errors as of :func:`rows_from_csv`."""
    files = sorted((catalog.own_file("discrepancy.toml").parent / "validated").glob("*.csv"))
    return tuple(row for file in files for row in rows_from_csv(file))


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(word) for word in text.split())


@dataclass(frozen=True)
class Sample:
    """Rows as arrays, a row each measured value; logarithms are those of throughput over its predicted mean.

    Attributes
    ----------
    kind, links
        Of the regime, shape (n,).
    source, series
        Names, shape (n,).
    low, high
        Ends of the interval without discrepancy, logarithms (n,), at most and at least 0.
    measured
        Logarithms (n,).
    compute, communication, reach
        As :class:`~calibrate.validation.comparison.Reached` has them (n,).
    most
        Where model error ends: :data:`~simulator.results.inadequacy.SUPERLINEAR` times linear scaling, logarithms (n,); infinite where
        that is not known.
    share
        Weight of a value within its setting: one over the number of repeats (n,).
    row
        Number of the setting (n,).
    """

    kind: NDArray[np.str_]
    links: NDArray[np.str_]
    source: NDArray[np.str_]
    series: NDArray[np.str_]
    low: Array
    high: Array
    measured: Array
    compute: Array
    communication: Array
    reach: Array
    most: Array
    share: Array
    row: NDArray[np.int64]

    @classmethod
    def of(cls, rows: Iterable[Compared]) -> Sample:
        """Of rows that were not fitted and say how far they reach."""
        table = [
            (its.regime.kind, its.regime.links, its.source, its.series, np.log(max(its.low, _TINY * mean) / mean),
             np.log(its.high / mean), np.log(value / mean), its.compute, its.communication, its.reach,
             np.inf if its.efficiency is None else max(np.log(SUPERLINEAR / its.efficiency), 0.0), 1.0 / len(row.measured), number)
            for number, row in enumerate(rows)
            if (its := row.reached) is not None and not row.fitted and (mean := row.predicted.mean) > 0
            for value in row.measured
        ]  # fmt: skip
        columns: list[tuple[object, ...]] = list(zip(*table, strict=True)) if table else [()] * 13
        return cls(*(np.array(column) for column in columns))

    def where(self, mask: NDArray[np.bool_]) -> Sample:
        """Those rows alone."""
        return Sample(**{name: getattr(self, name)[mask] for name in self.__dataclass_fields__})

    def of_regime(self, regime: Regime) -> NDArray[np.bool_]:
        """Which rows are of a regime (n,)."""
        return np.asarray((self.kind == regime.kind) & (self.links == regime.links), dtype=bool)

    @property
    def regimes(self) -> list[Regime]:
        """Those that there are rows of, in order."""
        return sorted({Regime(*map(str, pair)) for pair in zip(self.kind, self.links, strict=True)})

    def weights(self, regime: Regime) -> Array:
        """Of each value in an estimate for a regime; they sum to 1 (n,)."""
        own = self.of_regime(regime)
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

    def ends(self, compute: Deviation, communication: Deviation) -> tuple[Array, Array]:
        """Of 90% intervals with a discrepancy; logarithms (n,)."""
        of_compute = np.hypot(compute.at, compute.per_doubling * self.reach)
        far = Z_90 * np.hypot(self.compute * of_compute, self.communication * communication.at)
        return -np.hypot(self.low, far), np.hypot(self.high, np.minimum(far, np.hypot(self.most, Z_90 * compute.at)))

    def scores(self, low: Array, high: Array) -> Array:
        """Interval scores (n,)."""
        return high - low + _OUTSIDE * (np.maximum(low - self.measured, 0.0) + np.maximum(self.measured - high, 0.0))


_TINY = 1e-6


def crps(measured: Array, low: Array, high: Array) -> Array:
    """Continuous ranked probability scores of logarithms (n,): how far distributions lie from what was measured. Lower is better.

    Of distributions with median 0 and, on each side, the normal deviations of which the 90% interval's end is 1.645. Where z is the
    measured value's distance in those of its side, s, and t the other side's, the score is
    s (z (2 F(z) - 1) + 2 f(z) - 1 / sqrt(pi)) + (t - s) (sqrt(2) - 1) / (2 sqrt(pi)), F and f of the normal distribution (Gneiting and
    Raftery 2007, equation 21, on either side).
    """
    below, above = (np.maximum(far, _TINY) / Z_90 for far in (-low, high))
    own, other = np.where(measured < 0, (below, above), (above, below))
    z = np.abs(measured) / own
    normal = z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi)
    return np.asarray(own * normal + (other - own) * (np.sqrt(2) - 1) / (2 * np.sqrt(np.pi)))


def deviations(sample: Sample, regime: Regime, without: str = "") -> tuple[Deviation, Deviation]:
    """Model error of a regime: of compute, and of communication.

    Parameters
    ----------
    without
        A source that is left out.
    """
    kept = sample.where((sample.source != without) & _alike(sample, regime))
    if not len(kept.share):
        kept = sample.where((sample.source != without) & (sample.of_regime(regime) | _of_whole_models(sample)))
    weights = kept.weights(regime)
    further = 1.0 if regime.links in _MEASURED else _NEXT
    if regime.kind == CUT:
        exchanged = deviations(sample, Regime(ALL_REDUCE, regime.links if regime.links in _MEASURED else BETWEEN), without)[1]
        (at,) = _best(lambda at: float(weights @ crps(kept.measured, *kept.ends(Deviation(at=at), exchanged))), [(0.05,), (0.2,)])
        return Deviation(at=digits(at * further, 2)), exchanged

    def loss(compute: float, communication: float) -> float:
        return float(weights @ kept.scores(*kept.ends(Deviation(per_doubling=compute), Deviation(at=communication))))

    compute, communication = (digits(value * further, 2) for value in _best(loss, _STARTS))
    if regime.links not in _MEASURED and (sample.links == MEASURED).any():  # no link is better known than a measured one
        kinds = np.unique(sample.kind[(sample.links == MEASURED) & (sample.kind != CUT)])
        communication = max(communication, *(deviations(sample, Regime(str(kind), MEASURED), without)[1].at for kind in kinds))
    return Deviation(per_doubling=compute), Deviation(at=communication)


def _best(loss: Callable[..., float], starts: Sequence[tuple[float, ...]]) -> tuple[float, ...]:
    """Values of the lowest loss, from the best of several starts."""
    limits = [(np.log(_LEAST), np.log(_MOST))] * len(starts[0])
    searches = [
        optimize.minimize(lambda logs: loss(*np.exp(logs).tolist()), np.log(start), method="Nelder-Mead", bounds=limits, options=_SEARCH)
        for start in starts
    ]
    values = np.exp(min(searches, key=lambda search: float(search.fun)).x).tolist()
    return tuple(0.0 if value < _NOTHING else value for value in values)


_MEASURED = (MEASURED, CONTENDED)
_LEAST, _NOTHING, _MOST = 1e-4, 1e-3, 2.0
_STARTS = (0.02, 0.1), (0.005, 0.3), (0.05, 0.03)
_SEARCH = {"xatol": 0.02, "fatol": 1e-6}


def _alike(sample: Sample, regime: Regime) -> NDArray[np.bool_]:
    """Rows with the same kind of links; all unmeasured links count as one kind.

    Split models are separate, with any links if there are no others.
    """
    if regime.kind == CUT:
        same = sample.of_regime(regime)
        return same if same.any() else np.asarray(sample.kind == CUT, dtype=bool)
    alike = sample.links == regime.links if regime.links in _MEASURED else ~np.isin(sample.links, _MEASURED)
    return np.asarray((sample.kind != CUT) & alike, dtype=bool)


def _of_whole_models(sample: Sample) -> NDArray[np.bool_]:
    return np.asarray((sample.kind != CUT) & (sample.links != ""), dtype=bool)


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


def held_out(sample: Sample, regimes: Sequence[Regime]) -> Held:
    """Each source of some regimes compared with the discrepancy from the others."""
    with_term, without = [], []
    for regime in regimes:
        own = sample.where(sample.of_regime(regime))
        for source in np.unique(own.source):
            part = own.where(own.source == source)
            compute, communication = deviations(sample, regime, without=str(source))
            with_term.append(_held(part, *part.ends(compute, communication)))
            without.append(_held(part, part.low, part.high))
    own = sample.where(np.any([sample.of_regime(regime) for regime in regimes], axis=0))
    (inside, score), (inside_before, score_before) = (np.sum(its, axis=0) / own.share.sum() for its in (with_term, without))
    return Held(len(np.unique(own.row)), len(np.unique(own.source)), inside, inside_before, score, score_before)


def _held(part: Sample, low: Array, high: Array) -> tuple[float, float]:
    """Of some ends: settings inside, and the sum of their scores."""
    inside = (low <= part.measured) & (part.measured <= high)
    return float(part.share @ inside), float(part.share @ part.scores(low, high))


def _staleness(rows: Sequence[Compared], regime: Regime) -> Deviation:
    """So that 90% of mean staleness lie within 1.645 deviations; of rows with links alike, or else of all."""
    found = [
        (row.reached.regime.links, abs(float(np.log(row.staleness_predicted / value))))
        for row in rows
        if row.reached is not None and row.staleness_predicted
        for value in row.staleness_measured
        if value > 0
    ]
    alike = [miss for links, miss in found if links == regime.links] or [miss for _, miss in found]
    return Deviation(at=digits(np.quantile(alike, 0.9) / Z_90, 2)) if alike else Deviation()


_FEWEST = 8
"""Settings below which a regime's own coverage says too little; then that of all with links alike is given."""
_HEAD = """\
Model error of each regime, beyond chance and the uncertainty of fits: standard
deviations of the logarithm of a time, hypot(at, per_doubling x doublings of replicas beyond
what was calibrated). Written by `python -m evidence.discrepancy` from
models/validated/*.csv; docs/intervals.md says how it is used, evidence/discrepancy.py how it is
estimated. "checked": 90% intervals of sources that were left out of the estimate. "biases": where
predictions came out too fast, or too slow, against the runs on one device.
"""


def _regime_table(rows: Sequence[Compared], sample: Sample, regime: Regime) -> dict[str, Any]:
    """Entry of a regime in the file."""
    own = sample.where(sample.of_regime(regime))
    alike = sample.where(_alike(sample, regime)).regimes or sample.regimes
    settings, sources = len(np.unique(own.row)), len(np.unique(own.source))
    compute, communication = deviations(sample, regime)
    held = held_out(sample, [regime] if settings >= _FEWEST else alike) if settings else None
    about = f"{settings} settings of {sources} source{'' if sources == 1 else 's'}"
    if settings < _FEWEST:
        about += f"; drawn towards all regimes with such links{', whose coverage is given' if settings else ''}"
    elif sources == 1:
        about += "; its coverage is that of figures from other regimes alone"
    print(f"{regime}: {held if settings >= _FEWEST else about}")  # noqa: T201
    table: dict[str, Any] = {"name": str(regime), "about": about, "compute": _inline(compute), "communication": _inline(communication)}
    if regime.kind == ASYNCHRONOUS:
        table["staleness"] = _inline(_staleness(rows, regime))
    if held is None:
        return table
    return {**table, "checked": _inline(LeftOutRows(inside=float(f"{held.inside:.3f}"), rows=held.settings, sources=held.sources))}


_LEAST_BIAS = 0.1
"""A mean error that is smaller is not told."""
_ERRORS_AWAY = 2.0
"""Standard errors from nothing at which a mean error is no chance."""


_MANY = 16
"""Devices beyond which errors are told separately: those of replicated models grow with the number of devices."""


def _biases(rows: Sequence[Compared]) -> Iterator[dict[str, Any]]:
    """Of each regime the strategies whose own software was slower or faster than predicted, in the mean over series.

    Of the other runs the devices, unless there is only one, and, whatever the device, the same for many devices.
    """
    tables, hybrids = load_tables(), load_hybrids()
    strategies = {series.id: tables.stacks[series.stack].strategy for series in tables.series}
    machines = {series.id: tables.clusters[series.cluster] for series in tables.series} | hybrids.machines
    of_regimes: defaultdict[Regime, list[Compared]] = defaultdict(list)
    for row in rows:
        if row.reached is not None and not row.fitted and row.reached.series in machines:
            of_regimes[row.reached.regime].append(row)
    for regime, of_regime in sorted(of_regimes.items()):
        for strategy in sorted({strategies.get(row.reached.series, "") for row in of_regime if row.reached is not None} - {""}):
            of_strategy = [row for row in of_regime if row.reached is not None and strategies.get(row.reached.series) == strategy]
            yield from _bias(regime, of_strategy, {"strategy": strategy})
            of_regime = [row for row in of_regime if row not in of_strategy]
        of_devices: defaultdict[str, list[Compared]] = defaultdict(list)
        for row in of_regime:
            assert row.reached is not None
            of_devices[machines[row.reached.series].device].append(row)
        for device, of_device in sorted(of_devices.items()):
            yield from _bias(regime, of_device, {"device": device} if len(of_devices) > 1 else {})
        many = [row for row in of_regime if row.reached is not None and row.reached.reach > np.log2(_MANY)]
        if len(of_devices) > 1 and len({row.reached.source for row in many if row.reached is not None}) > 1:
            yield from _bias(regime, many, {"more_than": _MANY})


def _bias(regime: Regime, rows: Sequence[Compared], which: Mapping[str, str | int]) -> Iterator[dict[str, Any]]:
    """An entry, if the mean error of some rows is neither small nor chance."""
    of_series: defaultdict[str, list[float]] = defaultdict(list)
    for row in rows:
        assert row.reached is not None
        of_series[row.reached.series].append(float(np.log(row.predicted.mean / np.median(row.measured))))
    means = [fmean(each) for each in of_series.values()]
    if len(means) < 2 or abs(mean := fmean(means)) < max(_LEAST_BIAS, _ERRORS_AWAY * stdev(means) / len(means) ** 0.5):
        return
    errors = [error for each in of_series.values() for error in each]
    yield {
        "regime": str(regime),
        **which,
        "predicted_over_measured": digits(np.exp(mean), 3),
        "one_in_ten": digits(np.exp(np.quantile(errors, 0.9 if mean > 0 else 0.1)), 3),
        "settings": len(errors),
        "sources": sorted({row.reached.source for row in rows if row.reached is not None}),
    }


def _inline(spec: Deviation | LeftOutRows) -> tomlkit.items.InlineTable:
    table = tomlkit.inline_table()
    table.update(spec.model_dump())
    return table


def main() -> None:
    """Rewrite models/discrepancy.toml from all committed rows."""
    target, rows = catalog.own_file("discrepancy.toml"), validated_rows()
    sample = Sample.of(rows)
    document = tomlkit.document()
    for line in _HEAD.splitlines():
        document.add(tomlkit.comment(line))
    document.add("schema_version", tomlkit.item(1))
    tables = tomlkit.aot()
    for kind, its in KINDS_OF_LINKS.items():
        for links in its:
            table = tomlkit.table()
            table.update(_regime_table(rows, sample, Regime(kind, links)))
            tables.append(table)
    document.add("regimes", tables)
    document.add("biases", tomlkit.item(list(_biases(rows))))
    print(f"all: {held_out(sample, sample.regimes)}")  # noqa: T201
    Output(target, EDITED, force=True).write(tomlkit.dumps(document))
    print(f"wrote {target}")  # noqa: T201


if __name__ == "__main__":
    main()
