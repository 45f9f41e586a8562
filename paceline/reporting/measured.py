"""Matches a user's own measured points with the predictions of a report, by workers, servers and batch.

The file format of points is in :mod:`calibrate.validation.points`; scores and refits are in ``calibrate/validation``.
"""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from calibrate.validation.points import Setting, check_figures, read_points
from paceline.reporting.coordinates import coordinates_of
from simulator.base.errors import ReadingWarning
from simulator.base.text import listed_numbers
from simulator.results.results import Result
from simulator.spec.figures import Estimate


@dataclass(frozen=True)
class Beside:
    """One measured setting beside one prediction of it; rates in samples/s.

    Attributes
    ----------
    setting
        In words: ``8 workers, 2 servers, batch 64``.
    name
        Of the prediction: its curve, and its settings where more than the number of replicas is swept.
    result
        Index of the prediction among the results.
    scenario_hash, replicas, ranks
        Of the prediction.
    predicted
        Mean and 90% interval.
    measured
        Mean of the repeats.
    repeats
        Each repeat.
    error
        predicted / measured - 1, signed.
    inside
        Whether the measured mean lies in the interval.
    staleness_predicted, staleness_measured
        In updates; none where it was not measured.
    line
        Of the file of points.
    """

    setting: str
    name: str
    result: int
    scenario_hash: str
    replicas: int
    ranks: int
    predicted: Estimate
    measured: float
    repeats: tuple[float, ...]
    error: float
    inside: bool
    staleness_predicted: float | None
    staleness_measured: float | None
    line: int


@dataclass(frozen=True)
class Unmatched:
    """A measured setting of which there is no prediction.

    Attributes
    ----------
    setting
        In words.
    measured
        Mean of the repeats, in samples/s.
    line
        Of the file of points.
    why
        Why nothing matches, in words.
    """

    setting: str
    measured: float
    line: int
    why: str


@dataclass(frozen=True)
class Overlay:
    """All measured settings of a file.

    Attributes
    ----------
    source
        Name of the file.
    rows
        Those with a prediction, in the order of the file; one for each prediction that fits.
    unmatched
        Those without.
    """

    source: str
    rows: tuple[Beside, ...]
    unmatched: tuple[Unmatched, ...]


def overlay_of(points: Path, results: Sequence[Result], labels: Sequence[str] | None = None) -> Overlay:
    """Read measured points and find their predictions, by workers, servers and batch.

    A setting that leaves servers or batch out stands beside every prediction with its
    workers; so does one that several strategies or files predict.

    Parameters
    ----------
    points
        A table as :func:`calibrate.validation.points.read_points` takes it; throughput in samples/s.
    results
        The predictions.
    labels
        Where each of them is from, where they are of several files.

    Raises
    ------
    InputError
        The file is missing, or no such table; names line, column, value and rule.
    """
    settings = read_points(points)
    at = coordinates_of(results, labels)
    rows: list[Beside] = []
    unmatched: list[Unmatched] = []
    for setting in settings:
        fitting, why = _fitting(setting, results)
        own = [setting.as_throughput(results[index].scenario) for index in fitting]
        for question in check_figures(points, own, [results[index] for index in fitting]):
            warnings.warn(question, ReadingWarning, stacklevel=2)
        rows += [_beside(each, index, results[index], at.title_of(index)) for each, index in zip(own, fitting, strict=True)]
        if not fitting:
            rates = statistics.fmean(setting.as_throughput(results[0].scenario).throughput)
            unmatched.append(Unmatched(setting.name, rates, setting.line, why))
    return Overlay(points.name, tuple(rows), tuple(unmatched))


def _fitting(setting: Setting, results: Sequence[Result]) -> tuple[list[int], str]:
    """Which results are of a setting, or why none is."""
    left = list(range(len(results)))
    wanted: tuple[tuple[str, int | None, Callable[[Result], int]], ...] = (
        ("workers", setting.workers, lambda result: result.scenario.workers),
        ("servers", setting.servers, lambda result: result.scenario.servers),
        ("batch", setting.batch, _batch),
    )
    matched: list[str] = []
    for name, value, of in wanted:
        if value is None:
            continue
        there = sorted({of(results[index]) for index in left})
        left = [index for index in left if of(results[index]) == value]
        if not left:
            such = f" of these {' and '.join(matched)}" if matched else ""
            return [], f"no result{such} has {name} {value:,}; there {'are' if len(there) > 1 else 'is'} {listed_numbers(there)}"
        matched.append(name)
    return left, ""


def _batch(result: Result) -> int:
    """Samples of a step: of a replica where that is fixed, else of all together."""
    load = result.scenario.workload
    return load.batch_per_replica if load.batch_per_replica is not None else result.scenario.batch * result.scenario.replicas


def _beside(setting: Setting, index: int, result: Result, name: str) -> Beside:
    predicted, measured = result.throughput_samples_per_s, statistics.fmean(setting.throughput)
    stale = setting.staleness
    return Beside(
        setting=setting.name,
        name=name,
        result=index,
        scenario_hash=result.scenario_hash,
        replicas=result.replicas,
        ranks=result.ranks,
        predicted=predicted,
        measured=measured,
        repeats=setting.throughput,
        error=predicted.mean / measured - 1.0,
        inside=predicted.low <= measured <= predicted.high,
        staleness_predicted=result.staleness.mean if stale else None,
        staleness_measured=statistics.fmean(stale) if stale else None,
        line=setting.line,
    )
