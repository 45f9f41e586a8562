"""Published trainings at several global batches: samples to the target, predicted from the gradient noise scale.

Two ways, neither of which sees a row that it predicts (``models/published/samples_by_batch.csv``):

- **from gradients**: the noise scale of the run at the smallest batch, from its own statistics (``gradient_statistics.csv``, petuum/adaptdl
  ``simulator/traces``), gives all larger batches. AdaptDL counts the variance of a gradient of the *initial* batch
  (``adaptdl/torch/gradient_noise_scale.py``: a step of ``scale`` initial batches gains (var + sqr) / (var / scale + sqr)), and the smallest
  batch of each trace is the initial one, so that the noise scale is that batch times var / sqr. Its epochs end at equal progress by
  AdaScale, of which each run's own statistics decide, and a target is reached at an epoch's end: what is predicted is the statistics of
  larger batches by those of the smallest, more than learning itself.
- **from two batches**: MLPerf's reference convergence points, epochs or samples to the target of 6 to 60 seeds at each batch. The two
  smallest batches of a benchmark give E_min and the noise scale, all others are predicted. Seeds are averaged as MLPerf does, without
  the best and the worst. Every batch was tuned separately. Of benchmarks whose points a later round repeats, the later one is kept.

Simpler rules: samples stay constant; steps stay as they are, so that samples grow with the batch; and from two batches, a power
of the batch through both. Part of the models was kept back by a seed, before anything had been predicted.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibrate.validation.comparison import Compared
from calibrate.validation.validation import Score, scores_of
from evidence.published.tables import data_file
from evidence.rows import rows_in
from paceline.learning.planning import samples_ratio
from simulator.base.table import Cell, Column, Table
from simulator.spec.figures import Estimate

FROM_GRADIENTS, FROM_TWO_BATCHES = "from gradients", "from two batches"
OPEN, KEPT_BACK = "open", "kept back"
CONSTANT, PROPORTIONAL, POWER = "constant samples", "constant steps", "power"
SEED, KEPT = 20_261_127, 5
"""Which models are kept back, and how many: drawn before anything was predicted."""
_DRAWS = 4000

Array = NDArray[np.float64]


class _Point(NamedTuple):
    """A global batch of a series, with what each run took to the target."""

    batch: int
    to_target: tuple[float, ...]
    unit: str
    source: str

    @property
    def mean(self) -> float:
        """Of all runs but the best and the worst, where there are as many as three."""
        return float(_trimmed(np.sort(np.array(self.to_target)))[()])


class _Series(NamedTuple):
    name: str
    model: str
    points: tuple[_Point, ...]


class _Moments(NamedTuple):
    """Statistics of the run at the smallest batch: one for each epoch, with its steps."""

    steps: Array
    shares: Array


def series_of_batches() -> tuple[_Series, ...]:
    """Every published series, its batches in their order."""
    rows = rows_in(data_file("samples_by_batch.csv"))
    return tuple(
        _Series(name, model, tuple(sorted(_Point(
            int(row["global_batch"]), tuple(map(float, row["to_target"].split())), row["unit"], row["source"]) for row in its
        )))
        for (name, model), its in groupby(rows, key=lambda row: (row["series"], row["model"]))
    )  # fmt: skip


def kept_back(series: Sequence[_Series]) -> frozenset[str]:
    """Models that are kept back, with all of their series."""
    return frozenset(random.Random(SEED).sample(sorted({each.model for each in series}), KEPT))  # noqa: S311 - no secret


def batch_rows() -> tuple[Compared, ...]:
    """Samples (or epochs) to the target at every batch, predicted and published.

    ``group`` has the way; ``settings`` has ``part`` (open or kept back), ``batch``, ``reference``, the batch from which it is predicted,
    and ``noise_scale``, in samples. A positive error is too many samples.
    """
    series = series_of_batches()
    kept, moments = kept_back(series), _moments()
    found: list[Compared] = []
    for each in series:
        part = KEPT_BACK if each.model in kept else OPEN
        found += _from_gradients(each, moments[each.name], part) if each.name in moments else _from_two_batches(each, part)
    return tuple(found)


def _moments() -> dict[str, _Moments]:
    rows = rows_in(data_file("gradient_statistics.csv"))
    found = {}
    for name, its in groupby(rows, key=lambda row: row["series"]):
        epochs = list(its)
        square, variance = (np.array([float(row[key]) for row in epochs]) for key in ("grad_sqr", "grad_var"))
        steps = np.diff([float(row["iteration"]) for row in epochs], prepend=0.0)
        found[name] = _Moments(steps, square / (square + variance))
    return found


def _from_gradients(series: _Series, moments: _Moments, part: str) -> Iterator[Compared]:
    """From the smallest batch's run: as :mod:`calibrate.fit.noise_scale` combines moments, up to the target."""
    first, *others = series.points
    until = int(np.searchsorted(np.cumsum(moments.steps), first.mean / first.batch, side="left")) + 1
    steps, shares = moments.steps[:until], moments.shares[:until]
    noise = _noise(first.batch, float(np.average(shares, weights=steps)))
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, until, (_DRAWS, until))  # epochs, as if others of as many had been seen
    noises = np.array([_noise(first.batch, float(share)) for share in (steps[drawn] * shares[drawn]).sum(1) / steps[drawn].sum(1)])
    # both runs reached it at some time in the epoch at whose end that was seen
    within = 1 + (rng.random(_DRAWS) - rng.random(_DRAWS)) / until
    for point in others:
        draws = first.mean * within * np.array([samples_ratio(point.batch, first.batch, float(one)) for one in noises])
        predicted = first.mean * samples_ratio(point.batch, first.batch, noise)
        yield _compared(series, point, predicted, draws, part, FROM_GRADIENTS, noise, first)


def _from_two_batches(series: _Series, part: str) -> Iterator[Compared]:
    """From the line through the two smallest batches; rising, and not faster than the batch."""
    first, second, *others = series.points
    noise = _noise_through(first.batch, first.mean, second.batch, second.mean)
    rng = np.random.default_rng(0)
    seen = np.array(sorted({*first.to_target, *second.to_target}))
    apart = float(np.diff(seen).min()) if len(seen) > 1 else 0.0  # how far evaluations are apart, between which the target was reached
    lows, highs = (_resampled(point, rng) + apart * (rng.random(_DRAWS) - 0.5) for point in (first, second))
    noises = [_noise_through(first.batch, float(low), second.batch, float(high)) for low, high in zip(lows, highs, strict=True)]
    scatter = float(np.mean([np.std(point.to_target, ddof=1) / point.mean for point in (first, second)]))
    for point in others:
        ratios = np.array([samples_ratio(point.batch, second.batch, one) for one in noises])
        own = np.exp(scatter / math.sqrt(len(point.to_target)) * rng.standard_normal(_DRAWS))
        predicted = second.mean * samples_ratio(point.batch, second.batch, noise)
        power = math.log(second.mean / first.mean) / math.log(second.batch / first.batch)
        rules = {POWER: second.mean * (point.batch / second.batch) ** power}
        yield _compared(series, point, predicted, highs * ratios * own, part, FROM_TWO_BATCHES, noise, second, rules)


def _compared(
    series: _Series, point: _Point, predicted: float, draws: Array, part: str, way: str, noise: float, reference: _Point,
    rules: dict[str, float] | None = None,
) -> Compared:  # fmt: skip
    low, high = (float(value) for value in np.quantile(draws, [0.05, 0.95]))
    return Compared(
        name=f"{series.name}: {point.batch:,}",
        group=way,
        unit=point.unit,
        measured=(point.mean,),
        predicted=Estimate(mean=predicted, low=min(low, predicted), high=max(high, predicted)),
        baselines={CONSTANT: reference.mean, PROPORTIONAL: reference.mean * point.batch / reference.batch, **(rules or {})},
        settings={
            "part": part,
            "batch": point.batch,
            "reference": reference.batch,
            "noise_scale": noise if math.isfinite(noise) else "no end",
            "source": point.source,
        },
    )


def _noise(batch: float, share: float) -> float:
    return batch * (1 / share - 1)


def _noise_through(batch: float, low: float, larger: float, high: float) -> float:
    """The noise scale of the line through what two batches take: infinite where the larger takes no more, 0 where it saves no steps."""
    slope = (high - low) / (larger - batch)
    return math.inf if slope <= 0 else max(low / slope - batch, 0.0)


def _trimmed(values: Array) -> Array:
    """Means of sorted values without the least and the greatest, along the last axis."""
    return np.asarray((values[..., 1:-1] if values.shape[-1] > 2 else values).mean(axis=-1))


def _resampled(point: _Point, rng: np.random.Generator) -> Array:
    values = np.array(point.to_target)
    return _trimmed(np.sort(values[rng.integers(0, len(values), (_DRAWS, len(values)))], axis=1))


# -- tables ----------------------------------------------------------------------------------------


def scores_table(rows: Sequence[Compared]) -> Table:
    """Of each way, the parts, and both together."""
    columns = (
        Column("way", "text"), Column("part", "text"), Column("rows"), Column("median_size", "share", "median size"),
        Column("median", "share"), Column("worst", "share"), Column("inside", "share", "inside 90%"),
        *(Column(rule, "share") for rule in (CONSTANT, PROPORTIONAL, POWER)),
    )  # fmt: skip
    cells: list[tuple[Cell, ...]] = []
    for way in (FROM_GRADIENTS, FROM_TWO_BATCHES):
        for part in (OPEN, KEPT_BACK, "both"):
            its = [row for row in rows if row.group == way and row.settings["part"] in ((part,) if part != "both" else (OPEN, KEPT_BACK))]
            if its:
                cells.append(_cells_of(way, part, scores_of(its)[-1]))
    return Table("Samples to a target against the global batch", columns, tuple(cells))


def _cells_of(way: str, part: str, score: Score) -> tuple[Cell, ...]:
    rules = (score.baselines.get(rule) for rule in (CONSTANT, PROPORTIONAL, POWER))
    return way, part, score.settings, score.median_absolute_error, score.median_error, score.worst_error, score.inside, *rules


def rows_table(rows: Sequence[Compared]) -> Table:
    """Every batch, with the errors of the rules."""
    columns = (
        Column("name", "text"), Column("way", "text"), Column("part", "text"), Column("unit", "text"), Column("reference"),
        Column("noise_scale", "number", "noise scale"), Column("published"), Column("predicted"), Column("low"), Column("high"),
        Column("error", "share"), *(Column(rule, "share") for rule in (CONSTANT, PROPORTIONAL, POWER)), Column("source", "text"),
    )  # fmt: skip
    cells = tuple(
        (
            row.name, row.group, row.settings["part"], row.unit, row.settings["reference"], _short(row.settings["noise_scale"]),
            _short(row.mean), _short(row.predicted.mean), _short(row.predicted.low), _short(row.predicted.high), round(row.error, 4),
            *(round(row.baseline_error(rule), 4) if rule in row.baselines else None for rule in (CONSTANT, PROPORTIONAL, POWER)),
            row.settings["source"],
        )
        for row in rows
    )  # fmt: skip
    return Table("Published batches", columns, cells)


def _short(value: float | str) -> float | str:
    return float(f"{value:.5g}") if isinstance(value, float) else value
