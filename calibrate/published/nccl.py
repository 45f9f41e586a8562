"""Published NCCL all-reduces, predicted: larger sizes from smaller ones, and twice the ranks.

*Larger sizes*: the smaller two thirds of the sizes of a series are fitted, the others are
predicted; sizes double, so that a series of 32 is predicted up to 1,000 times the largest
size fitted. *More ranks*: of a system with several rank counts all sizes of the smallest
are fitted, all sizes of the others are predicted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from calibrate.probing import Progress
from calibrate.published.nccl_fit import Fit, fit, plain_prior, prior_from_others
from calibrate.published.nccl_model import Point, Series, read_series
from calibrate.validation.comparison import Compared
from simulator.results import Estimate

__all__ = ["GROUP", "nccl_rows"]

GROUP = "NCCL"
_FITTED_SHARE = 2 / 3
_NORMAL_95 = 1.6449
"""Standard deviations on either side of a normal's median that hold 90%."""


class _Question(NamedTuple):
    """Points to fit, and those of a series of the same system to predict."""

    name: str
    fitted: Series
    fitted_points: Sequence[Point]
    held: Series
    held_points: Sequence[Point]


def nccl_rows(progress: Progress | None = None) -> list[Compared]:
    """Every size of every published series, fitted or predicted.

    Bytes reduced a second (``algbw`` of nccl-tests). Intervals hold what the fit leaves
    uncertain of its numbers and the scatter of the times that were fitted, but not what
    the model leaves out. Rules beside: ``linear``, the bandwidth of the largest size
    fitted; ``alpha-beta``, 2 (n - 1) alpha + 2 (n - 1) / n S / B through the smallest and
    the largest size fitted.

    Parameters
    ----------
    progress
        Told how many of all fits are made.
    """
    series = read_series()
    questions = list(_questions(series))
    total = len(series) + len(questions)

    def tell(done: int, what: str) -> None:
        if progress is not None:
            progress(done, total, what)

    fits: dict[str, Fit] = {}
    for done, (one, points) in enumerate(series.items()):
        tell(done, f"all sizes of {one.name}")
        fits[one.name] = fit(one, points, plain_prior(one))
    rows: list[Compared] = []
    for done, question in enumerate(questions, len(series)):
        tell(done, f"{question.name} of {question.held.name}")
        rows += _answers(question, fit(question.fitted, question.fitted_points, prior_from_others(question.fitted, fits)))
    tell(total, "all-reduces predicted")
    return rows


def _questions(series: dict[Series, tuple[Point, ...]]) -> Iterator[_Question]:
    for one, points in series.items():
        seen = math.ceil(len(points) * _FITTED_SHARE)
        yield _Question("larger sizes", one, points[:seen], one, points[seen:])
    for one, points in series.items():
        smallest = min((other for other in series if other.system == one.system), key=lambda other: other.ranks)
        if smallest is not one:
            yield _Question("more ranks", smallest, series[smallest], one, points)


def _answers(question: _Question, found: Fit) -> Iterator[Compared]:
    # the sizes that were fitted are listed once, with the larger ones of their series
    parts = [(question.held, question.held_points, False)]
    if question.fitted is question.held:
        parts.insert(0, (question.fitted, question.fitted_points, True))
    for series, points, fitted in parts:
        times_s, spreads = found.predict_s(series, [point.size_bytes for point in points])
        for point, time_s, spread in zip(points, times_s.tolist(), spreads.tolist(), strict=True):
            rate = point.size_bytes / time_s
            margin = math.exp(_NORMAL_95 * spread)
            yield Compared(
                name=f"{series.name}, {point.size_bytes:,.0f} B, {question.name}",
                group=GROUP,
                fitted=fitted,
                unit="bytes/s",
                measured=tuple(point.size_bytes / one_s for one_s in point.times_s),
                predicted=Estimate(mean=rate, low=rate / margin, high=rate * margin),
                baselines=_baselines(question, series, point.size_bytes),
                settings={
                    "series": series.name,
                    "question": question.name,
                    "workers": series.ranks,
                    "nodes": series.nodes,
                    "size_bytes": point.size_bytes,
                },
                note=_note(question),
            )


def _baselines(question: _Question, series: Series, size_bytes: float) -> dict[str, float]:
    small, large = question.fitted_points[0], question.fitted_points[-1]
    slope_s = (large.mean_s - small.mean_s) / (large.size_bytes - small.size_bytes)
    few, many = question.fitted.ranks, series.ranks
    latency_s = max(small.mean_s - slope_s * small.size_bytes, 0.0) * (many - 1) / (few - 1)
    slope_s *= (many - 1) / many / ((few - 1) / few)
    return {"linear": large.size_bytes / large.mean_s, "alpha-beta": size_bytes / (latency_s + slope_s * size_bytes)}


def _note(question: _Question) -> str:
    largest = question.fitted_points[-1].size_bytes
    return f"fitted to {len(question.fitted_points)} sizes up to {largest:,.0f} B on {question.fitted.ranks} ranks"
