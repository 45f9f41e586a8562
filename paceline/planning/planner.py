"""``paceline.plan``: finds the configuration of a space that reaches a goal best.

Here are the checks of what was asked, the order of the work, and the choice among configurations that are about as good. How
configurations are searched and ranked is in search.py and judging.py, what is said around the answer in around.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from paceline.comparing import never_held
from paceline.planning.answer import Candidate, Plan, Refused
from paceline.planning.around import (
    answers_of_clusters,
    answers_of_strategies,
    answers_of_ways,
    best_way,
    count_servers,
    count_workers,
    enough_servers,
    fewest_that_may_do,
    most_that_pay,
    paying_workers,
)
from paceline.planning.goal import Goal, reachable_confidence, replications_for
from paceline.planning.improvements import check_upgrades, improvements
from paceline.planning.judging import Judge, Point
from paceline.planning.paying import break_even_of, payments_of, use_of
from paceline.planning.search import Search
from paceline.planning.sentences import notes_of, sentences_of, why_this
from paceline.planning.space import Line, Space, check_devices
from paceline.planning.tuning import best_bucket, bucket_in_words, can_fuse, with_bucket_of
from paceline.planning.ways import WAYS, Way
from paceline.sweeping import Backend, Journal, Runner, Simulations
from simulator.base.errors import InputError, ScenarioError, SimulationError
from simulator.base.text import format_number
from simulator.memory import does_not_fit, not_checked
from simulator.resolve.resolve import resolve
from simulator.results.cost import why_no_cost
from simulator.results.left_out import left_out
from simulator.results.results import Failure
from simulator.scenario import Scenario
from simulator.strategies.strategy import Strategy

_RUNNERS_UP = 5
_WORTH_A_LARGER_BATCH = 1.02
"""By how much an answer must be better for a larger batch to be worth it."""


def plan(
    space: Space,
    goal: Goal,
    *,
    out: Path | None = None,
    jobs: int = 0,
    backend: Backend = "local",
    scheduler: str | None = None,
    force: bool = False,
    progress: Callable[[int, int, str], None] | None = None,
) -> Plan:
    """Find the configuration that reaches a goal best.

    Parameters
    ----------
    space
        What to choose from.
    goal
        What to reach, how surely, and what is preferred.
    out
        Results file of what is simulated. An interrupted plan goes on in it.
    jobs, backend, scheduler
        Where and on how many processes, as for :func:`paceline.sweeping.sweep`. The answer does not depend on them.
    force
        Begin anew if ``out`` holds something else.
    progress
        Called with what is done, what there is in all, and what is counted: "bounds" of lines, then "scenarios" that were asked for so
        far.

    Returns
    -------
    Plan
        Feasible, or with the nearest configuration in place of the answer.

    Raises
    ------
    InputError
        A confidence that the replications do not support, a budget where nothing has a
        price, a workload without a device on clusters of several, no configuration that
        fits into memory, or an ``out`` that cannot be used.
    SimulationError
        No configuration could be simulated.
    """
    for scenario in {line.first.cluster.name: line.first for line in space.lines}.values():
        check_upgrades(scenario, space.base_name)
    space, refused = _fitting(space)
    goal, price_note = _priced(space, goal)
    _check_confidence(space, goal)
    device_notes = check_devices((line.first for line in space.lines), space.base_name)
    judge = Judge(goal)
    tell = progress if progress is not None else _silent
    with ExitStack() as stack:
        file = stack.enter_context(Journal(out, force=force)) if out is not None else None
        runner = stack.enter_context(Runner(jobs=jobs, backend=backend, scheduler=scheduler))
        simulations = Simulations(runner, file, force=force, progress=lambda done, total: tell(done, total, "scenarios"))
        search = Search(list(_with_bounds(space, judge, lambda done, total: tell(done, total, "bounds"))), judge, simulations)
        search.run()
        counted = [_simulated(search.points)]

        def run_on_each(belongs: Sequence[Callable[[Line], bool]]) -> int:
            """Find the best of each of some kinds of lines; how many more were simulated for that."""
            for of_kind in belongs if len(belongs) > 1 else ():
                search.run_on([line for line in space.lines if of_kind(line)])
            counted.append(_simulated(search.points))
            return counted[-1] - counted[-2]

        for_each_cluster = run_on_each([partial(_on, cluster) for cluster in space.clusters])
        for_each_strategy = run_on_each([partial(_asked_as, name) for name in space.strategies])
        several_ways = any(line.family is not None for line in space.lines)
        for_each_way = run_on_each([partial(_by, way) for way in WAYS] if several_ways else [])
        _tune(space, search, judge, simulations)
        for_tuning = _simulated(search.points) - counted[-1]
        meeting, missing = _held_first(judge, _smaller_batch_first(judge, _least_regret_first(judge, search.meeting))), search.missing
        failures = _failures(search.points)
        if not meeting and not missing:
            texts = " / ".join(dict.fromkeys(one.text for one in failures))
            raise SimulationError(f"none of the configurations could be simulated: {texts}")
        ranked = [*meeting, *missing]
        chosen = ranked[0]
        result = chosen.result
        assert result is not None
        workers = count_workers(chosen.line, chosen.workers, simulations, goal)
        most = most_that_pay(judge, search.points, chosen, paying_workers(workers), simulations)
        for point in search.points:
            if point.result is not None and point not in ranked:  # it was simulated for that
                (meeting if judge.meets(point) else missing).append(point)
        ranked = [*meeting, *missing]
        servers = count_servers(chosen.scenario, simulations)
        beside = [point.scenario for point in _best_of_ways(ranked, chosen)]
        use = use_of(chosen.scenario, goal)
        better = improvements(chosen.scenario, result, simulations, goal, beside=beside, use=use)
        payments = payments_of(chosen, judge, simulations, feasible=bool(meeting))
        simulations.finish()
    others = _others(meeting or missing)
    decisions = judge.decisions([chosen, *others]) if meeting else {}
    fewest = fewest_that_may_do(judge, ranked, chosen)
    candidates = {id(point): judge.candidate(point, chosen if meeting else None, decisions.get(id(point))) for point in ranked}
    all_refused = (*space.refused, *refused, *failures)
    of_ways = answers_of_ways(search.points, judge, candidates, chosen, all_refused)
    runners_up = [candidates[id(point)] for point in others]
    discarded = sum(search.discarded(point) for point in search.points)
    unsimulated = sum(point.outcome is None for point in search.points)
    answer = Plan(
        goal=goal,
        feasible=bool(meeting),
        chosen=candidates[id(chosen)],
        why=why_this(judge, meeting, missing),
        fewest=None if fewest is None else candidates[id(fewest)],
        most=None if most is None else candidates[id(most)],
        runners_up=tuple(runners_up),
        pareto=_front(list(candidates.values())),
        candidates=tuple(candidates.values()),
        servers=servers,
        servers_enough=enough_servers(servers),
        workers=workers,
        workers_pay_until=paying_workers(workers),
        improvements=better,
        payments=payments,
        break_even=break_even_of(payments, use),
        considered=space.considered + sum(one.configurations for one in refused),
        discarded=discarded,
        passed_over=unsimulated - discarded,
        refused=all_refused,
        clusters=answers_of_clusters(space.clusters, search.points, judge, candidates, chosen, all_refused),
        ways=of_ways,
        best_way=best_way(of_ways, feasible=bool(meeting)),
        strategies=answers_of_strategies(space.strategies, search.points, judge, candidates, chosen, all_refused),
        for_each_cluster=for_each_cluster,
        for_each_strategy=for_each_strategy,
        for_tuning=for_tuning,
        for_each_way=for_each_way,
        left_out=left_out(chosen.scenario),
        simulated=len(simulations.outcomes),
    )
    notes = [
        *device_notes,
        *space.price_notes,
        *([price_note] if price_note else []),
        *_memory_notes(space),
        *notes_of(answer, chosen, space),
    ]
    worded = {"sentences": sentences_of(answer, chosen), "notes": tuple(dict.fromkeys(notes))}
    return answer.model_copy(update=worded)


def _silent(done: int, total: int, what: str) -> None:
    """Tell nobody."""


def _with_bounds(space: Space, judge: Judge, progress: Callable[[int, int], None]) -> Iterator[list[Point]]:
    """The points of each line, which of thousands of ways to cut a model take some seconds."""
    for number, line in enumerate(space.lines):
        progress(number, len(space.lines))
        yield judge.points(line)


def _on(cluster: str, line: Line) -> bool:
    return line.cluster == cluster


def _asked_as(strategy: str, line: Line) -> bool:
    return line.asked == strategy


def _by(way: Way, line: Line) -> bool:
    return line.way == way


def _tune(space: Space, search: Search, judge: Judge, simulations: Simulations) -> None:
    """Search lines again with the buckets that are best for them, where those are faster than their own.

    Of lines that differ in how they cut a model only the best of each way, cluster and strategy are tuned, which are compared.
    """
    tuned: list[Line] = []
    told: set[tuple[str, str]] = set()
    for point in _best_of_lines([*search.meeting, *search.missing]):
        line, result = point.line, point.result
        assert result is not None
        if not line.tunable:
            continue
        if line.family is not None:
            belongs = {("way", line.way), ("cluster", line.cluster), *([("strategy", line.asked)] if space.strategies else [])}
            if belongs <= told:
                continue
            told |= belongs
        best = best_bucket(point.scenario, result, simulations)
        if best is result:
            continue
        size = best.scenario.strategy
        scenarios = {count: _fused_alike(scenario, size) for count, scenario in line.scenarios.items()}
        others = (*line.others, bucket_in_words(best.scenario))
        tuned.append(replace(line, others=others, scenarios={count: its for count, its in scenarios.items() if its is not None}))
    for line in tuned:
        space.lines.append(line)
        search.lines.append(judge.points(line))
    if tuned:
        search.run_on(tuned)


def _least_regret_first(judge: Judge, meeting: Sequence[Point]) -> list[Point]:
    """What meets the goal, best first; of the best of each line that one first whose expected regret is least.

    The mean over replications ranks by chance and draws alone. Where the model errs otherwise for one than for another, that can be another
    order than that of the draws of :meth:`Judge.decisions`, which are what is said of the answer.
    """
    compared = [meeting[0], *_others(meeting)] if meeting else []
    decisions = judge.decisions(compared)
    if not decisions or id(meeting[0]) not in decisions:  # none, or the first costs nothing
        return list(meeting)
    least = min(decision.regret_share for decision in decisions.values())
    first = next(point for point in compared if id(point) in decisions and decisions[id(point)].regret_share <= least + _EQUAL_REGRET)
    return [first, *(point for point in meeting if point is not first)]


_EQUAL_REGRET = 1e-6
"""Shares of the best that differ by no more are the same, and the ranking decides."""


def _smaller_batch_first(judge: Judge, meeting: Sequence[Point]) -> list[Point]:
    """What meets the goal, best first; a larger batch that is hardly better comes after the smallest on as many devices that is as good.

    What a larger batch of all replicas costs in samples is not predicted, and it is not nothing. One of more devices is what
    scaling makes of it, and was asked for.
    """
    if not meeting or not math.isfinite(judge.value(meeting[0])):
        return list(meeting)
    most = judge.value(meeting[0]) * _WORTH_A_LARGER_BATCH
    devices = meeting[0].scenario.ranks
    as_good = [point for point in meeting if judge.value(point) <= most and point.scenario.ranks == devices]
    first = min(as_good, key=lambda point: point.global_batch)
    return [first, *(point for point in meeting if point is not first)]


def _held_first(judge: Judge, meeting: Sequence[Point]) -> list[Point]:
    """What meets the goal, best first; a kind that was never held against real runs comes after the best of others, unless it is better
    for certain.

    How far it is off is not known: it has to be better in its worst case than the other in its best.
    """
    best = meeting[0].result if meeting else None
    first = next((point for point in meeting if point.result is not None and not never_held(point.result)), None)
    if best is None or not never_held(best) or first is None or first.result is None or judge.goal.prefer == "fewest-devices":
        return list(meeting)
    one, other = best.throughput_samples_per_s, first.result.throughput_samples_per_s
    if judge.value(meeting[0]) * one.mean * other.high < judge.value(first) * other.mean * one.low:
        return list(meeting)
    return [first, *(point for point in meeting if point is not first)]


def _best_of_lines(ranked: Sequence[Point]) -> list[Point]:
    """Of each line the first with several replicas, in this order."""
    found: dict[int, Point] = {}
    for point in ranked:
        if can_fuse(point.scenario):
            found.setdefault(id(point.line), point)
    return list(found.values())


def _best_of_ways(ranked: Sequence[Point], chosen: Point) -> list[Point]:
    """The best of each other way of cutting a model on as many of the same machines, which another batch may make the best of all."""
    found: dict[str, Point] = {}
    for point in ranked if chosen.line.family is not None else ():
        if point.line.way != chosen.line.way and point.workers == chosen.workers and point.line.cluster == chosen.line.cluster:
            found.setdefault(point.line.way, point)
    return list(found.values())


def _fused_alike(scenario: Scenario, strategy: Strategy) -> Scenario | None:
    """A configuration with the buckets of another one; None where it has none, or a rule forbids them."""
    try:
        return with_bucket_of(scenario, strategy) if can_fuse(scenario) else None
    except ScenarioError:
        return None


def _simulated(points: Sequence[Point]) -> int:
    """How many have an outcome."""
    return sum(point.outcome is not None for point in points)


def _fitting(space: Space) -> tuple[Space, list[Refused]]:
    """The space without what does not fit into its device's memory, where that is known; and what that is."""
    refused: list[Refused] = []
    lines: list[Line] = []
    compared = any(line.family is not None for line in space.lines)
    for line in space.lines:
        if line.family is not None:  # which was made of what fits
            lines.append(line)
            continue
        texts = {workers: text for workers, scenario in line.scenarios.items() if (text := does_not_fit(resolve(scenario))) is not None}
        if texts:
            its = _refused_by_memory(line, texts)
            refused.append(its.model_copy(update={"by_memory": True, "way": line.way}) if compared else its)
        fitting = {workers: scenario for workers, scenario in line.scenarios.items() if workers not in texts}
        if fitting:
            lines.append(replace(line, scenarios=fitting))
    if not lines:
        raise InputError(f"{space.base_name}: no configuration fits into the memory of its device: {refused[0].text}")
    return replace(space, lines=lines), refused


def _refused_by_memory(line: Line, texts: Mapping[int, str]) -> Refused:
    return Refused(name=line.title(), cluster=line.cluster, text=next(iter(texts.values())), configurations=len(texts))


def _memory_notes(space: Space) -> list[str]:
    """Whose memory could not be checked, and why."""
    # of a family one tells for all: they have the same layers on the same devices
    scenarios = {id(line.family or line): line.first for line in space.lines}.values()
    reasons = dict.fromkeys(reason for scenario in scenarios if (reason := not_checked(resolve(scenario))) is not None)
    return [f"whether a batch fits into the devices' memory was not checked: {'; '.join(reasons)}"] if reasons else []


def _priced(space: Space, goal: Goal) -> tuple[Goal, str]:
    """The goal, and a note where prices are missing; without any price the cheapest are those of the fewest devices."""
    scenarios = [line.first for line in space.lines]
    without = [scenario for scenario in scenarios if scenario.cluster.price is None]
    if not without:
        return goal, ""
    sentences = "; ".join(dict.fromkeys(why_no_cost(scenario) for scenario in without))
    if len(without) < len(scenarios):
        return goal, f"{sentences}. It comes after those that have one wherever cost decides"
    if goal.budget_usd is not None:
        raise InputError(
            f"`budget` {goal.budget_usd:g} USD cannot be compared with anything: {sentences}; give `prices`, such as "
            f"`prices={ {without[0].cluster.name: '0.40/h'}!r}`, or 'BUY:4000USD,years:4,power:0.5kW' for machines that you own"
        )
    if goal.prefer == "cheapest":
        return goal.model_copy(update={"prefer": "fewest-devices"}), f"{sentences}. The fewest devices are preferred instead"
    return goal, sentences


def _check_confidence(space: Space, goal: Goal) -> None:
    """Refuse a confidence that this number of replications cannot support."""
    replications = min(scenario.run.replications for line in space.lines for scenario in line.scenarios.values())
    if goal.confidence > reachable_confidence(replications) + 1e-12:
        raise InputError(
            f"`confidence` {goal.confidence:g} is more than {replications} replications support, which is "
            f"{format_number(reachable_confidence(replications))}: "
            f"give `settings={{'run.replications': {replications_for(goal.confidence)}}}`, or a lower confidence"
        )


def _failures(points: Sequence[Point]) -> list[Refused]:
    """What could not be simulated, with what the simulation said."""
    return [
        Refused(
            name=point.line.title(point.workers),
            cluster=point.line.cluster,
            text=f"{point.outcome.failed.kind}: {point.outcome.failed.text}",
            configurations=1,
        )
        for point in points
        if isinstance(point.outcome, Failure)
    ]


def _others(pool: Sequence[Point]) -> list[Point]:
    """The best of each line but that of the first point; where there is no other line, the next ones of the same."""
    chosen, *rest = pool
    best_of_line: dict[int, Point] = {}
    for point in rest:
        if point.line is not chosen.line:
            best_of_line.setdefault(id(point.line), point)
    return (list(best_of_line.values()) or rest)[:_RUNNERS_UP]


def _front(candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Those than which no other is both cheaper and faster, fastest first; none where nothing has a price.

    Where the goal has samples, cost and time of the training are compared; else the price
    of an hour and the throughput.
    """
    costs = [(_cost(candidate), candidate) for candidate in candidates]
    priced = [(cost, candidate) for cost, candidate in costs if cost is not None]
    front: list[Candidate] = []
    cheapest = float("inf")
    for cost, candidate in sorted(priced, key=lambda pair: (_slowness(pair[1]), pair[0], pair[1].name)):
        if cost < cheapest:
            front.append(candidate)
            cheapest = cost
    return tuple(front)


def _slowness(candidate: Candidate) -> float:
    """Time of the training; where the goal has no samples, what orders throughput likewise."""
    return candidate.time_s.mean if candidate.time_s is not None else -candidate.result.throughput_samples_per_s.mean


def _cost(candidate: Candidate) -> float | None:
    return candidate.cost_usd.mean if candidate.cost_usd is not None else candidate.usd_per_hour
