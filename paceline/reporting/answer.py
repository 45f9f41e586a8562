"""What was asked, what the answer is, and how far it can be trusted: facts for the summary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from paceline.reporting.points import Point, Series
from simulator.results import Result

__all__ = ["Answer", "Asked", "Trust", "answer_of", "asked_of", "trust_of"]


@dataclass(frozen=True)
class Asked:
    """The question.

    Attributes
    ----------
    scaling
        ``weak``: the batch of each worker is fixed; ``strong``: that of all together is.
    batches
        The batch sizes, of one worker (weak) or of all (strong).
    """

    fewest: int
    most: int
    strategies: int
    clusters: tuple[str, ...]
    scaling: Literal["weak", "strong", "both"]
    batches: tuple[int, ...]
    replications: int


@dataclass(frozen=True)
class Answer:
    """The best curve at the largest number of workers, and what else must be said of it.

    Attributes
    ----------
    rivals
        Curves whose interval there overlaps that of the best.
    peak, peak_name
        The highest throughput anywhere, where that is clearly elsewhere.
    alone
        Whether there is nothing to compare the best with.
    """

    name: str
    point: Point
    rivals: tuple[str, ...]
    peak: Point | None
    peak_name: str
    alone: bool


@dataclass(frozen=True)
class Trust:
    """What the numbers rest on."""

    results: int
    hollow: int
    warnings: int
    assumed: tuple[str, ...]
    uncalibrated: tuple[str, ...]
    unfitted: bool
    workers: tuple[int, int] | None
    batch: tuple[int, int] | None
    device: str


def asked_of(results: Sequence[Result], series: Sequence[Series]) -> Asked:
    """What the results together ask."""
    loads = [result.scenario.workload for result in results]
    weak = {load.batch_per_replica for load in loads} - {None}
    strong = {load.global_batch for load in loads} - {None}
    chosen = weak or strong
    return Asked(
        fewest=min(result.replicas for result in results),
        most=max(result.replicas for result in results),
        strategies=len(series),
        clusters=tuple(dict.fromkeys(result.scenario.cluster.name for result in results)),
        scaling="both" if weak and strong else "weak" if weak else "strong",
        batches=tuple(sorted(batch for batch in chosen if batch is not None)),
        replications=max(result.scenario.run.replications for result in results),
    )


def answer_of(series: Sequence[Series]) -> Answer:
    """Find the best curve where there are most workers."""
    most = max(each.largest.workers for each in series)
    there = [each for each in series if each.largest.workers == most]
    best = max(there, key=lambda each: each.largest.throughput)
    point = best.largest
    rivals = tuple(each.name for each in there if each is not best and each.largest.high >= point.low)
    top, peak = max(((each, candidate) for each in series for candidate in each.points), key=lambda pair: pair[1].throughput)
    elsewhere = peak is not point and peak.low > point.high
    return Answer(best.name, point, rivals, peak if elsewhere else None, top.name if elsewhere else "", alone=len(there) == 1)


def trust_of(results: Sequence[Result]) -> Trust:
    """Collect what the numbers rest on."""
    loads = {result.scenario.workload.name: result.scenario.workload for result in results}
    ranges = [load.calibrated for load in loads.values() if load.calibrated is not None]
    first = ranges[0] if len(ranges) == 1 and len(loads) == 1 else None
    return Trust(
        results=len(results),
        hollow=sum(result.extrapolated for result in results),
        warnings=sum(len(result.warnings) for result in results),
        assumed=tuple(dict.fromkeys(result.scenario.cluster.name for result in results if result.scenario.cluster.basis == "assumed")),
        uncalibrated=tuple(name for name, load in loads.items() if load.calibrated is None),
        unfitted=any(load.uncertainty is None for load in loads.values()),
        workers=(int(first.workers[0]), int(first.workers[1])) if first else None,
        batch=(int(first.batch[0]), int(first.batch[1])) if first else None,
        device=first.device if first else "",
    )
