"""What a plan says besides its answer: the best of each cluster, strategy and way of training; other numbers of servers and workers.

Counts of servers and workers are simulated here. Single changes such as a network twice as fast are in improvements.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paceline.comparing import pays_until
from paceline.planning.answer import Candidate, ClusterAnswer, JobCount, Refused, ServerCount, StrategyAnswer, WayAnswer, WorkerCount
from paceline.planning.goal import Goal, job_of
from paceline.planning.judging import Judge, Point
from paceline.planning.sentences import beside_the_answer, near_miss_in_words, purchase_in_words, why_not
from paceline.planning.space import Line
from paceline.planning.ways import WAYS, Way
from paceline.sweeping import Simulate
from simulator.base.errors import ScenarioError
from simulator.base.text import format_share, format_throughput, written
from simulator.memory import memory_of
from simulator.resolve.resolve import resolve
from simulator.results.cost import placement_of, usd_per_hour
from simulator.results.results import Result
from simulator.results.what_if import with_strategy
from simulator.scenario import Scenario

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


_NEAR = 0.5
"""What is preferable and reaches the goal with this part of the confidence asked for is a near miss."""


# -- each cluster, each strategy --------------------------------------------------------------


def answers_of_clusters(
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
        What is said of those that were simulated, by the id of the point.
    chosen
        The answer, or where there is none the nearest.
    refused
        What cannot be.
    """
    found = []
    for cluster in asked:
        own = [point for point in points if point.line.cluster == cluster]
        met, missed = _ranked(own, judge)
        best = next(iter([*met, *missed]), None)
        near = _near_miss(judge, met[0], missed) if met else None
        texts = [
            beside_the_answer(judge, met[0], chosen, candidates)
            if met
            else why_not(judge, own, best, [one for one in refused if one.cluster == cluster])
        ]
        if best is not None and (bought := purchase_in_words(candidates[id(best)], judge.goal)):
            texts.append(bought)
        if near is not None:
            texts.append(near_miss_in_words(judge, candidates[id(near)]))
        found.append(
            ClusterAnswer(
                cluster=cluster,
                price=(best or own[0]).scenario.cluster.price if own else None,
                best=candidates[id(best)] if best is not None else None,
                near_miss=candidates[id(near)] if near is not None else None,
                text="; ".join(texts),
            )
        )
    return tuple(found)


def answers_of_strategies(
    asked: Sequence[str],
    points: Sequence[Point],
    judge: Judge,
    candidates: Mapping[int, Candidate],
    chosen: Point,
    refused: Sequence[Refused],
) -> tuple[StrategyAnswer, ...]:
    """One answer for each strategy that was asked for, with why not; none where only one was."""
    found = []
    for strategy in asked if len(asked) > 1 else ():
        own = [point for point in points if point.line.asked == strategy]
        met, missed = _ranked(own, judge)
        best = next(iter([*met, *missed]), None)
        reasons = [one for one in refused if one.asked == strategy]
        text = beside_the_answer(judge, met[0], chosen, candidates) if met else why_not(judge, own, best, reasons)
        found.append(StrategyAnswer(strategy=strategy, best=candidates[id(best)] if best is not None else None, text=text))
    return tuple(found)


def _ranked(points: Sequence[Point], judge: Judge) -> tuple[list[Point], list[Point]]:
    """Those that reach the goal, the best first, and those that were simulated and do not, the nearest first."""
    met = sorted((point for point in points if judge.meets(point)), key=judge.rank)
    missed = sorted((point for point in points if point.result is not None and not judge.meets(point)), key=judge.nearness)
    return met, missed


def _near_miss(judge: Judge, best: Point, missed: Sequence[Point]) -> Point | None:
    """The likeliest of those that would be preferred to the best, if only they reached the goal."""
    least = _NEAR * judge.goal.confidence
    better = [point for point in missed if judge.value(point) < judge.value(best) and judge.confidence(point) >= least]
    return min(better, key=lambda point: (-judge.confidence(point), judge.value(point), judge.rank(point)), default=None)


# -- other sizes ------------------------------------------------------------------------------


def fewest_that_may_do(judge: Judge, points: Sequence[Point], chosen: Point) -> Point | None:
    """Of what was simulated on fewer devices than the answer the fewest that are no worse than a near miss; None where none are."""
    least = _NEAR * judge.goal.confidence
    fewer = [point for point in points if point.result is not None and point.scenario.ranks < chosen.scenario.ranks]
    enough = [point for point in fewer if judge.confidence(point) >= least]
    return min(enough, key=lambda point: (point.scenario.ranks, -judge.confidence(point), judge.value(point)), default=None)


def most_that_pay(judge: Judge, points: Sequence[Point], chosen: Point, until: int | None, run: Simulate) -> Point | None:
    """The answer with as many workers as :func:`paying_workers` names; None where these are its own, miss the goal or are none of the
    range.
    """
    point = next((each for each in points if each.line is chosen.line and each.workers == until), None)
    if point is None or point is chosen:
        return None
    if point.outcome is None:
        (point.outcome,) = run([point.scenario])
    return point if point.result is not None and judge.meets(point) else None


# -- each way of training ---------------------------------------------------------------------


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
        met, missed = _ranked(own, judge)
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
    return f"{format_share(abs(rate - 1))} {'more' if rate > 1 else 'less'} throughput"


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


# -- other numbers of workers and servers --------------------------------------------------


_MORE_IS_LITTLE = 1.02


def count_workers(line: Line, workers: int, simulate: Simulate, goal: Goal) -> tuple[WorkerCount, ...]:
    """Throughput with 1, 2, 4, ... workers and the answer's own number.

    Up to the largest number of the line and one doubling beyond the answer; beyond that
    doubling it stops where one does not pay.
    """
    answer = line.scenarios[workers]
    if not answer.strategy.count_key:
        return ()
    top = max(max(line.scenarios), 2 * workers)
    counts = sorted({workers, *(2**power for power in range(top.bit_length()) if 2**power <= top)})
    found: list[WorkerCount] = []
    below = [scenario for count in counts if count <= 2 * workers and (scenario := _or_none(answer, count)) is not None]
    found += [_worker_count(result, goal) for result in simulate(below) if isinstance(result, Result)]
    for count in (count for count in counts if count > 2 * workers):
        if len(found) > 1 and paying_workers(found[-2:]) != found[-1].workers:
            break
        scenario = _or_none(answer, count)
        results = simulate([scenario]) if scenario is not None else []
        found += [_worker_count(result, goal) for result in results if isinstance(result, Result)]
    return tuple(found)


def paying_workers(counts: Sequence[WorkerCount]) -> int | None:
    """The most workers up to which each step paid (:func:`paceline.comparing.pays_until`); None where none was simulated.

    Of a whole job its samples over its time count, with all that is no step.
    """
    return counts[pays_until([(its.workers, _rate(its)) for its in counts])].workers if counts else None


def _rate(count: WorkerCount) -> float:
    """Samples a second: of the whole job where there is one."""
    return (count.job.samples_per_s if count.job is not None else count.throughput_samples_per_s).mean


def _or_none(answer: Scenario, workers: int) -> Scenario | None:
    """The answer with another number of workers, where rules allow it; a fixed number of nodes does not stand in the way."""
    if workers == answer.workers:
        return answer
    try:
        return with_strategy(answer, answer.strategy.with_count(workers))
    except ScenarioError:
        return None


def _worker_count(result: Result, goal: Goal) -> WorkerCount:
    scenario, job = result.scenario, job_of(result, goal)
    placement = placement_of(scenario)
    counted = (
        JobCount(
            time_s=job.time_s,
            cost_usd=job.cost_usd,
            samples_per_s=job.samples_per_s,
            samples_per_s_of_each_replication=job.samples_per_s_of_each_replication,
            goodput=job.goodput.mean,
        )
        if job is not None
        else None
    )
    return WorkerCount(
        workers=scenario.workers,
        replicas=result.replicas,
        throughput_samples_per_s=result.throughput_samples_per_s,
        throughput_of_each_replication=result.throughput_of_each_replication,
        discrepancy=result.discrepancy,
        usd_per_hour=usd_per_hour(scenario),
        nodes=placement.nodes,
        placement=placement.text,
        job=counted,
    )


def count_servers(answer: Scenario, simulate: Simulate) -> tuple[ServerCount, ...]:
    """Throughput with 1, 2, 4, ... parameter servers, until a doubling brings less than 2%, then with those in between that matter."""
    if not answer.servers:
        return ()
    found: dict[int, ServerCount] = {}

    def try_(count: int) -> bool:
        """Simulate a number of servers; whether that can be."""
        try:
            scenario = answer if count == answer.servers else with_strategy(answer, answer.strategy.with_servers(count))
        except ScenarioError:
            return False
        placement = placement_of(scenario)
        for result in simulate([scenario]):
            if isinstance(result, Result):
                found[count] = ServerCount(
                    servers=count,
                    throughput_samples_per_s=result.throughput_samples_per_s,
                    throughput_of_each_replication=result.throughput_of_each_replication,
                    discrepancy=result.discrepancy,
                    usd_per_hour=usd_per_hour(scenario),
                    nodes=placement.nodes,
                    placement=placement.text,
                )
        return count in found

    try_(answer.servers)
    count = 1
    while try_(count):
        if count > 1 and count > answer.servers and not _gains(found[count // 2], found[count]):
            break
        count *= 2
    # between the last that gains much and the next that was tried, the fewest that are enough
    while (enough := enough_servers(tuple(found[key] for key in sorted(found)))) is not None:
        below = max((key for key in found if key < enough), default=0)
        if enough - below <= 1 or not try_((enough + below) // 2):
            break
    return tuple(found[key] for key in sorted(found))


def _gains(few: ServerCount, many: ServerCount) -> bool:
    return many.throughput_samples_per_s.mean >= _MORE_IS_LITTLE * few.throughput_samples_per_s.mean


def enough_servers(counts: Sequence[ServerCount]) -> int | None:
    """The fewest servers than which no larger number that was simulated is 2% faster; None where there are none."""
    for place, few in enumerate(counts):
        if not any(_gains(few, many) for many in counts[place + 1 :]):
            return few.servers
    return None
