"""From results to the plain data that figures and text are made of; no file, no drawing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.reporting.answer import Answer, Asked, Trust, answer_of, asked_of, trust_of
from paceline.reporting.caveats import Caveat, caveats_of
from paceline.reporting.naming import clean, series_names
from paceline.reporting.points import Point, Series
from paceline.reporting.reproduce import Recipe, recipe_of
from simulator.errors import ResultsError
from simulator.results import Histogram, Result
from simulator.workload import Workload

__all__ = ["Facet", "Report", "build_report"]

_FACETS = 4
_BINS = 48
_SAME_IDEAL = 0.02


@dataclass(frozen=True)
class Facet:
    """Staleness at one number of workers: for each asynchronous curve, bins and their probability.

    Attributes
    ----------
    width
        Consecutive values of staleness that a bin holds.
    curves
        (index of the curve, first value of each bin, probability of each bin).
    """

    workers: int
    width: int
    curves: tuple[tuple[int, tuple[int, ...], tuple[float, ...]], ...]


@dataclass(frozen=True)
class Report:
    """Everything that the page says."""

    title: str
    asked: Asked
    answer: Answer
    trust: Trust
    series: tuple[Series, ...]
    ideals: tuple[float, ...]
    facets: tuple[Facet, ...]
    workloads: tuple[Workload, ...]
    caveats: tuple[Caveat, ...]
    recipe: Recipe
    notes: tuple[str, ...]


def build_report(results: Sequence[Result], notes: Sequence[str] = ()) -> Report:
    """Arrange results for reading.

    Parameters
    ----------
    results
        At least one; in any order. Of results of the same scenario the last counts.
    notes
        Sentences that the report repeats, such as that a file was cut off.

    Raises
    ------
    ResultsError
        There is no result.
    """
    if not results:
        raise ResultsError("a report needs at least one result")
    unique = list({result.scenario_hash: result for result in results}.values())
    all_notes = list(notes)
    if doubled := len(results) - len(unique):
        all_notes.append(
            f"{doubled} result{'s' if doubled > 1 else ''} of a scenario that is there twice {'are' if doubled > 1 else 'is'} left out."
        )
    names = series_names(unique)
    grouped: dict[str, list[Result]] = {}
    for name, result in zip(names, unique, strict=True):
        grouped.setdefault(name, []).append(result)
    series = tuple(_series(index, name, group) for index, (name, group) in enumerate(grouped.items()))
    workloads = tuple({result.scenario.workload.name: result.scenario.workload for result in reversed(unique)}.values())[::-1]
    title = " and ".join(clean(load.name) for load in workloads[:2]) + (f" and {len(workloads) - 2} more" if len(workloads) > 2 else "")
    return Report(
        title=title,
        asked=asked_of(unique, series),
        answer=answer_of(series),
        trust=trust_of(unique),
        series=series,
        ideals=_ideals(series),
        facets=_facets(grouped, series),
        workloads=workloads,
        caveats=caveats_of(unique, names),
        recipe=recipe_of(unique, names),
        notes=tuple(all_notes),
    )


def _series(index: int, name: str, group: list[Result]) -> Series:
    ordered = sorted(group, key=lambda result: result.replicas)
    return Series(index=index, name=name, points=tuple(Point.of(result) for result in ordered))


def _ideals(series: Sequence[Series]) -> tuple[float, ...]:
    """Throughput of one worker, in samples/s: once where the curves agree within 2%."""
    found: list[float] = []
    for single in (point.single for each in series for point in each.points[:1]):
        if single > 0 and not any(math.isclose(single, other, rel_tol=_SAME_IDEAL) for other in found):
            found.append(single)
    return tuple(found)


def _facets(grouped: dict[str, list[Result]], series: Sequence[Series]) -> tuple[Facet, ...]:
    """Staleness at no more than four numbers of workers, evenly among those simulated."""
    asynchronous = [each for each in series if each.asynchronous]
    counts = sorted({point.workers for each in asynchronous for point in each.points if point.staleness_max > 0})
    if len(counts) > _FACETS:
        last = len(counts) - 1
        counts = [counts[round(place * last / (_FACETS - 1))] for place in range(_FACETS)]
    facets = []
    for workers in counts:
        held = [
            (each.index, result.staleness.histogram) for each in asynchronous for result in grouped[each.name] if result.replicas == workers
        ]
        held = [(index, histogram) for index, histogram in held if sum(histogram.counts) > 0]
        if held:
            facets.append(_facet(workers, held))
    return tuple(facets)


def _facet(workers: int, held: list[tuple[int, Histogram]]) -> Facet:
    low = min(min(histogram.values) for _, histogram in held)
    high = max(max(histogram.values) for _, histogram in held)
    width = max(1, math.ceil((high - low + 1) / _BINS))
    curves = []
    for index, histogram in held:
        bins: dict[int, int] = {}
        for value, count in zip(histogram.values, histogram.counts, strict=False):
            start = low + (value - low) // width * width
            bins[start] = bins.get(start, 0) + count
        total = sum(bins.values())
        curves.append((index, tuple(sorted(bins)), tuple(bins[start] / total for start in sorted(bins))))
    return Facet(workers=workers, width=width, curves=tuple(curves))
