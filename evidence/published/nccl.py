"""Published NCCL all-reduces, predicted: larger sizes from smaller ones, and twice the ranks.

*Larger sizes*: the smaller two thirds of the sizes of a series are fitted, the others are
predicted; sizes double, so that a series of 32 is predicted up to 1,000 times the largest
size fitted. *More ranks*: of a system with several rank counts all sizes of the smallest
are fitted, all sizes of the others are predicted.

The models of :data:`~evidence.published.nccl_model.MODELS` answer each question together: the logarithms of their times are averaged, and a
model weighs the less the larger its errors were (after Bates and Granger, "The combination of forecasts", 1969) in the same question about
*other* systems, and, for larger sizes, about the system at hand: the larger of the sizes given, predicted from the smaller. So a model that
is no better than a straight line has the line's weight, and predicted rows do not affect the weight.

An interval is as many spreads wide as held 90% of the errors of other systems (as in
conformal prediction: Vovk, Gammerman and Shafer, "Algorithmic learning in a random world",
2005). The spread of a prediction grows with its reach: by what the fits leave uncertain and
how far the models are apart, both larger the more the sizes double beyond those fitted, and
by a discrepancy for each doubling of the ranks.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibrate.validation.comparison import Compared
from evidence.published.nccl_model import LAWS, MODELS, Point, Series, bytes_on_bus, fit, read_series
from simulator.base.text import format_share
from simulator.spec.figures import Estimate

Values = NDArray[np.float64]

GROUP = "NCCL"
LARGER, MORE = "larger sizes", "more ranks"
_FITTED_SHARE = 2 / 3
_SHARES = (1 / 3, 1 / 2, _FITTED_SHARE)
"""Of the sizes of other systems, from which their larger ones are predicted to weigh the models."""
_OWN = 0.5
"""Share of the system at hand in the logarithms of errors, where it can be asked about its larger sizes."""
_FEWEST = 4
"""Sizes without which a system is not asked."""
_MOST = 1.0
"""Error in logarithms beyond which a wild prediction counts no more."""
_LEAST = 0.05
"""The same below which it counts no less: the scatter of published times."""
_SHARPNESS = 4.0
"""A model with twice the errors weighs 2 to this power times less; 2 would be Bates and Granger's, for independent errors."""
_DISCREPANCY = 0.1
"""Spread of any prediction beside what the models tell, and the same again for each doubling of the ranks."""
_COUNTED = 0.3
"""Share of the models' variance that counts: they err alike, and priors are wide."""
_INSIDE = 0.9
_NORMAL_95 = 1.6449
"""Spreads on either side of a normal's median that hold 90%."""


class _Question(NamedTuple):
    """Points to fit, and those of a series of the same system to predict."""

    name: str
    fitted: Series
    fitted_points: Sequence[Point]
    held: Series
    held_points: Sequence[Point]


@dataclass(frozen=True)
class Trial:
    """Answer of each model to one question.

    Attributes
    ----------
    system, question
        Of whom, and what: larger sizes, or more ranks.
    members
        Names of the models, for more ranks with the law of their latency.
    logs, variances
        Logarithms of the times predicted and their variances by the fit, shape (members, sizes).
    measured
        Logarithms of the times measured, shape (sizes,).
    rank_doublings
        Of the ranks beyond those fitted.
    own
        Mean error of each model about the larger of the sizes given, shape (members,); none of few sizes.
    """

    system: str
    question: str
    members: tuple[str, ...]
    logs: Values
    variances: Values
    measured: Values
    rank_doublings: float = 0.0
    own: Values | None = None

    @property
    def errors(self) -> Values:
        """Mean size of each member's errors, at most :data:`_MOST`; shape (members,)."""
        mean: Values = np.abs(self.logs - self.measured).mean(axis=1)
        return np.minimum(mean, _MOST)


class Answer(NamedTuple):
    """The models' answers together: log times and their spread, shape (sizes,), and each member's weight."""

    logs: Values
    spread: Values
    weights: Values


def nccl_rows() -> list[Compared]:
    """Every size of every published series, fitted or predicted.

    Bytes reduced a second (``algbw`` of nccl-tests). Rules beside: ``linear``, the bandwidth
    of the largest size fitted; ``alpha-beta``, 2 (n - 1) alpha + 2 (n - 1) / n S / B through
    the smallest and the largest size fitted.
    """
    series = read_series()
    trials: dict[tuple[str, str, float], Trial] = {}
    for one, points in series.items():
        for share in _SHARES:
            given = _given(points, share)
            if 1 < given < len(points):
                trials[LARGER, one.name, share] = larger_sizes(one, points[:given], points[given:])
        smallest = _smallest(one, series)
        if smallest is not one and len(series[smallest]) > 1:
            trials[MORE, one.name, _FITTED_SHARE] = more_ranks(smallest, series[smallest], one, points)
    rows: list[Compared] = []
    for question in _questions(series):
        trial = trials[question.name, question.held.name, _FITTED_SHARE]
        rows += _rows(question, trial, [one for one in trials.values() if one.system != trial.system])
    return rows


def larger_sizes(series: Series, given: Sequence[Point], asked: Sequence[Point]) -> Trial:
    """Each model about larger sizes than those given (two or more)."""
    trial = _larger(series, given, asked)
    if len(given) < _FEWEST:
        return trial
    seen = _given(given, _FITTED_SHARE)
    return dataclasses.replace(trial, own=_larger(series, given[:seen], given[seen:]).errors)


def more_ranks(few: Series, points: Sequence[Point], many: Series, asked: Sequence[Point]) -> Trial:
    """Each model, by each law of the latency, about a series of the same system with more ranks."""
    fits = [fit(model, few, points) for model in MODELS]
    sizes = [point.size_bytes for point in asked]
    answers = [one.predict(sizes, many, law) for one, law in product(fits, LAWS)]
    return Trial(
        system=few.system,
        question=MORE,
        members=tuple(f"{model.name} as a {law}" for model, law in product(MODELS, LAWS)),
        logs=np.array([logs for logs, _ in answers]),
        variances=np.array([variance for _, variance in answers]),
        measured=np.log([point.mean_s for point in asked]),
        rank_doublings=math.log2(many.ranks / few.ranks),
    )


def answer(trial: Trial, others: Iterable[Trial]) -> Answer:
    """The members' answers together, weighed by what others were asked.

    Parameters
    ----------
    others
        Trials of other systems; those of the same question count.
    """
    alike = [other.errors for other in others if other.question == trial.question]
    errors = np.maximum(np.mean(alike, axis=0), _LEAST) if alike else np.ones(len(trial.members))
    if trial.own is not None:
        errors = errors ** (1.0 - _OWN) * np.maximum(trial.own, _LEAST) ** _OWN
    weights = errors**-_SHARPNESS
    weights = weights / weights.sum()
    logs = weights @ trial.logs
    variance = weights @ (trial.variances + (trial.logs - logs) ** 2)
    return Answer(logs, np.sqrt(_COUNTED * variance + _DISCREPANCY**2 * (1.0 + trial.rank_doublings**2)), weights)


def spreads_inside(others: Sequence[Trial]) -> float:
    """How many spreads held 90% of the errors of others, each answered without its own system."""
    off = []
    for trial in others:
        found = answer(trial, [other for other in others if other.system != trial.system])
        off.append(np.abs(trial.measured - found.logs) / found.spread)
    return float(np.quantile(np.concatenate(off), _INSIDE, method="higher")) if off else _NORMAL_95


def _larger(series: Series, given: Sequence[Point], asked: Sequence[Point]) -> Trial:
    sizes = [point.size_bytes for point in asked]
    answers = [fit(model, series, given, larger=True).predict(sizes) for model in MODELS]
    return Trial(
        system=series.system,
        question=LARGER,
        members=tuple(model.name for model in MODELS),
        logs=np.array([logs for logs, _ in answers]),
        variances=np.array([variance for _, variance in answers]),
        measured=np.log([point.mean_s for point in asked]),
    )


def _given(points: Sequence[Point], share: float) -> int:
    return max(2, math.ceil(len(points) * share))


def _questions(series: Mapping[Series, Sequence[Point]]) -> Iterator[_Question]:
    for one, points in series.items():
        given = _given(points, _FITTED_SHARE)
        if given < len(points):
            yield _Question(LARGER, one, points[:given], one, points[given:])
    for one, points in series.items():
        smallest = _smallest(one, series)
        if smallest is not one and len(series[smallest]) > 1:
            yield _Question(MORE, smallest, series[smallest], one, points)


def _smallest(one: Series, series: Iterable[Series]) -> Series:
    """Of the same system, with the fewest ranks."""
    return min((other for other in series if other.system == one.system), key=lambda other: other.ranks)


def _rows(question: _Question, trial: Trial, others: Sequence[Trial]) -> Iterator[Compared]:
    answered, wide = answer(trial, others), spreads_inside(others)
    if question.name == LARGER:
        # the sizes that were fitted are listed once, with the larger ones of their series
        seen = answer(_again(question, trial), others)
        yield from _compared(question, question.fitted_points, seen, wide, trial, fitted=True)
    yield from _compared(question, question.held_points, answered, wide, trial, fitted=False)


def _again(question: _Question, trial: Trial) -> Trial:
    """The same models about the sizes that they were fitted to."""
    seen = _larger(question.fitted, question.fitted_points, question.fitted_points)
    return dataclasses.replace(seen, own=trial.own)


def _compared(
    question: _Question, points: Sequence[Point], answered: Answer, wide: float, trial: Trial, *, fitted: bool
) -> Iterator[Compared]:
    for point, log_s, spread in zip(points, answered.logs.tolist(), answered.spread.tolist(), strict=True):
        rate = point.size_bytes / math.exp(log_s)
        margin = math.exp(wide * spread)
        yield Compared(
            name=f"{question.held.name}, {point.size_bytes:,.0f} B, {question.name}",
            group=GROUP,
            fitted=fitted,
            unit="bytes/s",
            measured=tuple(point.size_bytes / one_s for one_s in point.times_s),
            predicted=Estimate(mean=rate, low=rate / margin, high=rate * margin),
            baselines=_baselines(question, point.size_bytes),
            settings={
                "series": question.held.name,
                "question": question.name,
                "workers": question.held.ranks,
                "nodes": question.held.nodes,
                "size_bytes": point.size_bytes,
            },
            note=_note(question, trial, answered),
        )


def _baselines(question: _Question, size_bytes: float) -> dict[str, float]:
    small, large = question.fitted_points[0], question.fitted_points[-1]
    slope_s = (large.mean_s - small.mean_s) / (large.size_bytes - small.size_bytes)
    few, many = question.fitted.ranks, question.held.ranks
    latency_s = max(small.mean_s - slope_s * small.size_bytes, 0.0) * (many - 1) / (few - 1)
    slope_s *= bytes_on_bus(many) / bytes_on_bus(few)
    return {"linear": large.size_bytes / large.mean_s, "alpha-beta": size_bytes / (latency_s + slope_s * size_bytes)}


def _note(question: _Question, trial: Trial, answered: Answer) -> str:
    largest = question.fitted_points[-1].size_bytes
    shares = sorted(zip(answered.weights.tolist(), trial.members, strict=True), reverse=True)
    models = ", ".join(f"{format_share(weight)} {member}" for weight, member in shares if weight >= 0.005)
    why = "other systems" if trial.own is None else "other systems and of the larger sizes given"
    return (
        f"fitted to {len(question.fitted_points)} sizes up to {largest:,.0f} B on {question.fitted.ranks} ranks; "
        f"models {models}, by their errors of {why}"
    )
