"""Which of the ways of training is best, and what limits each of the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paceline.planning.answer import Candidate, Refused, WayAnswer
from paceline.planning.judging import Judge, Point
from paceline.planning.ways import WAYS, Way
from simulator.base.text import format_throughput, written
from simulator.memory import memory_of
from simulator.resolve.resolve import resolve
from simulator.results.results import Result

__all__ = ["answers_of_ways", "best_way"]

_LITTLE = 0.02
_NAMES: Mapping[Way, str] = {
    "data parallel": "data parallelism",
    "pipeline": "a pipeline",
    "tensor": "splitting tensors",
    "expert": "spreading experts",
    "sharded": "sharded data parallelism",
    "hybrid": "a hybrid of several ways",
}
_EXCHANGED: Mapping[Way, str] = {
    "data parallel": "reducing gradients",
    "pipeline": "handing on activations and reducing gradients",
    "tensor": "exchanging partial results in every layer and reducing gradients",
    "expert": "sending tokens to experts and reducing gradients",
    "sharded": "gathering and reducing what copies share",
    "hybrid": "what its parts exchange",
}


def answers_of_ways(
    points: Sequence[Point], judge: Judge, candidates: Mapping[int, Candidate], chosen: Point, refused: Sequence[Refused]
) -> tuple[WayAnswer, ...]:
    """One answer for each way of training that was tried, best first; none where only one was.

    Parameters
    ----------
    points
        Every configuration that is not refused.
    candidates
        What is said of those that were simulated, by the id of the point.
    chosen
        The answer, or where there is none the nearest.
    refused
        What cannot be.
    """
    found: list[tuple[tuple[float | str | int, ...], WayAnswer]] = []
    for place, way in enumerate(WAYS):
        own = [point for point in points if point.line.way == way]
        excluded = [one for one in refused if one.way == way]
        if not own and not excluded:
            continue
        met = sorted((point for point in own if judge.meets(point)), key=judge.rank)
        missed = sorted((point for point in own if point.result is not None and not judge.meets(point)), key=judge.nearness)
        best = next(iter([*met, *missed]), None)
        if best is None:
            text = f"not possible: {excluded[0].text}" if excluded else _too_slow(own)
            found.append(((2, place), WayAnswer(way=way, best=None, text=text)))
            continue
        its = candidates[id(best)]
        text = _text(judge, way, best, chosen, its, excluded)
        order = (0, *judge.rank(best)) if met else (1, *judge.nearness(best))
        waiting = _share(its.result, "waiting")
        found.append((order, WayAnswer(way=way, best=its, memory_bytes=_memory_bytes(best), waiting=waiting, text=text)))
    return tuple(answer for _, answer in sorted(found, key=lambda its: its[0])) if len(found) > 1 else ()


def _text(judge: Judge, way: Way, best: Point, chosen: Point, its: Candidate, excluded: Sequence[Refused]) -> str:
    parts = [_standing(judge, best, chosen), _limit(way, its.result)]
    memory = next((one for one in excluded if one.by_memory), None)
    if memory is not None:
        parts.append(f"of it {memory.configurations:,} configuration{'s do' if memory.configurations > 1 else ' does'} not fit into memory")
    return "; ".join(filter(None, parts))


def _standing(judge: Judge, best: Point, chosen: Point) -> str:
    """How its best stands to the answer."""
    if best is chosen:
        return "the answer" if judge.meets(best) else "the nearest"
    assert best.result is not None
    assert chosen.result is not None
    rate = best.result.throughput_samples_per_s.mean / chosen.result.throughput_samples_per_s.mean
    if judge.meets(best):
        behind = judge.behind(best, chosen)
        return behind if judge.value(best) != judge.value(chosen) else f"{behind}, {_change(rate)}"
    reached = judge.margin(best) * best.needed
    return f"misses the goal: {format_throughput(reached)} of {format_throughput(best.needed)} samples/s needed"


def _change(rate: float) -> str:
    if abs(rate - 1) < _LITTLE:
        return "about as fast"
    return f"{written(abs(rate - 1), 'precise_share')} {'more' if rate > 1 else 'less'} throughput"


def _limit(way: Way, result: Result) -> str:
    """What costs it most beside its own compute; nothing where that is little."""
    strategy, training = result.scenario.strategy, result.scenario.training
    texts = []
    waiting, exchange = _share(result, "waiting"), _share(result, "exposed_communication")
    if waiting >= _LITTLE:
        staged = "pipeline" in strategy.cuts
        what = "stages wait for each other (bubbles)" if staged else "devices wait for the slowest"
        texts.append((waiting, f"{what} for {written(waiting, 'share')} of a step"))
    if exchange >= _LITTLE:
        over = " between nodes" if result.scenario.nodes_needed > 1 else ""
        texts.append((exchange, f"{_EXCHANGED[way]}{over} takes {written(exchange, 'share')} of a step that nothing hides"))
    said = [text for _, text in sorted(texts, reverse=True)]
    if training.recompute != "none":
        said.append(f"it fits with {training.recompute} recomputation only")
    return "; ".join(said)


def _share(result: Result, part: str) -> float:
    """Of a step, the share of one part."""
    step = result.breakdown_s
    whole = step.input + step.compute + step.exposed_communication + step.waiting + step.apply
    return float(getattr(step, part) / whole) if whole else 0.0


def _memory_bytes(point: Point) -> float | None:
    """What the device holds that needs most; None where its activations are not known."""
    devices = memory_of(resolve(point.scenario))
    known = all(part.size_bytes is not None for device in devices for part in device.parts if part.name == "activations")
    return max(device.need_bytes for device in devices) if known else None


def _too_slow(points: Sequence[Point]) -> str:
    most = max(points, key=lambda point: point.ceiling / point.needed)
    return f"too slow: by closed forms at most {format_throughput(most.ceiling)} of {format_throughput(most.needed)} samples/s needed"


def best_way(ways: Sequence[WayAnswer], *, feasible: bool) -> str:
    """Which way of training is best for this model on this cluster, and why: what limits the others."""
    if not ways or ways[0].best is None:
        return ""
    first, *others = ways
    assert first.best is not None
    scenario = first.best.result.scenario
    name = _NAMES[_known(first.way)]
    degrees = scenario.strategy.in_words if first.way != "data parallel" else ""
    what = "is the best way of training" if feasible else "comes nearest of the ways of training"
    begins = f"{name[0].upper()}{name[1:]}{f' ({degrees})' if degrees else ''} {what} {scenario.workload.name} on {scenario.cluster.name}"
    reasons = [f"{_NAMES[_known(its.way)]}: {its.text}" for its in others]
    return f"{begins}. {' / '.join(f'{text[0].upper()}{text[1:]}' for text in reasons)}." if reasons else f"{begins}."


def _known(way: str) -> Way:
    return next(its for its in WAYS if its == way)
