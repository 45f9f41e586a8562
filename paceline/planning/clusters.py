"""Each cluster that was asked for: its best configuration, how it compares with the answer, or why it does not reach the goal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from paceline.planning.answer import Candidate, ClusterAnswer, Refused
from paceline.planning.judging import Judge, Point
from paceline.planning.wording import figure, paired_in_words, purchase_in_words
from simulator.results import Failure

__all__ = ["clusters_of"]

_NEAR = 0.5
"""What is preferable and reaches the goal with this part of the confidence asked for is a near miss."""


def clusters_of(
    asked: Sequence[str],
    points: Sequence[Point],
    judge: Judge,
    candidates: Mapping[int, Candidate],
    chosen: Point,
    refused: Sequence[Refused],
) -> tuple[ClusterAnswer, ...]:
    """One answer for each cluster.

    Parameters
    ----------
    asked
        As they were asked for.
    points
        Every configuration that is not refused.
    candidates
        What is told of those that were simulated, by the id of the point.
    chosen
        The answer, or where there is none the nearest.
    refused
        What cannot be.
    """
    found = []
    for cluster in asked:
        own = [point for point in points if point.line.cluster == cluster]
        met = sorted((point for point in own if judge.meets(point)), key=judge.rank)
        missed = sorted((point for point in own if point.result is not None and not judge.meets(point)), key=judge.nearness)
        best = next(iter([*met, *missed]), None)
        near = _near_miss(judge, met[0], missed) if met else None
        texts = [_beside(judge, best, chosen, candidates) if met and best is not None else _why_not(judge, cluster, own, best, refused)]
        if best is not None and (bought := purchase_in_words(candidates[id(best)])):
            texts.append(bought)
        if near is not None:
            texts.append(_near_in_words(judge, candidates[id(near)]))
        found.append(
            ClusterAnswer(
                cluster=cluster,
                price=own[0].scenario.cluster.price if own else None,
                best=candidates[id(best)] if best is not None else None,
                near_miss=candidates[id(near)] if near is not None else None,
                text="; ".join(texts),
            )
        )
    return tuple(found)


def _near_miss(judge: Judge, best: Point, missed: Sequence[Point]) -> Point | None:
    """The likeliest of those that would be preferred to the best, if only they reached the goal."""
    least = _NEAR * judge.goal.confidence
    better = [point for point in missed if judge.value(point) < judge.value(best) and judge.confidence(point) >= least]
    return min(better, key=lambda point: (-judge.confidence(point), judge.value(point), judge.rank(point)), default=None)


def _near_in_words(judge: Judge, near: Candidate) -> str:
    cost = f" for {near.cost_usd.mean:,.4g} USD" if near.cost_usd is not None and judge.goal.prefer == "cheapest" else ""
    return f"a near miss with {near.placement}{cost}: confidence {near.confidence:.2g}"


def _beside(judge: Judge, best: Point, chosen: Point, candidates: Mapping[int, Candidate]) -> str:
    """How what meets the goal stands to the answer."""
    if best is chosen:
        return "the answer"
    if not math.isfinite(judge.value(best)):
        return "reaches the goal; without a price it comes after those that have one"
    paired = paired_in_words(candidates[id(best)])
    return f"{judge.behind(best, chosen)}{f'; {paired}' if paired else ''}"


def _why_not(judge: Judge, cluster: str, points: Sequence[Point], nearest: Point | None, refused: Sequence[Refused]) -> str:
    """Why nothing on a cluster reaches the goal."""
    if not points:
        return f"not possible: {next((one.text for one in refused if one.cluster == cluster), 'every configuration is refused')}"
    if not any(math.isfinite(point.needed) for point in points):
        return "no price is known, so that nothing can be said of a budget"
    if nearest is None:
        failed = next((point.outcome.failed.text for point in points if isinstance(point.outcome, Failure)), "")
        if failed:
            return f"could not be simulated: {failed}"
        most = max(points, key=lambda point: point.ceiling / point.needed)
        return f"too slow at every size allowed: by closed forms at most {figure(most.ceiling)} samples/s of {figure(most.needed)} needed"
    confidence = judge.confidence(nearest)
    asked = judge.goal.confidence
    if confidence > 0:
        return f"reaches the goal with a confidence of {confidence:.2g}, of {asked:.4g} asked for; {_needs(judge, nearest)}"
    least = "at every size allowed" if not any(judge.reachable(point) for point in points) else "at every size tried"
    return f"too slow {least}: {_needs(judge, nearest)}"


def _needs(judge: Judge, point: Point) -> str:
    reached = judge.margin(point) * point.needed
    return f"{figure(reached)} samples/s with the confidence asked for, {figure(point.needed)} needed"
