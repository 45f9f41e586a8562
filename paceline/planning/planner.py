"""``paceline.plan``: find the configuration of a space that best reaches a goal, with its alternatives.

This module checks the arguments, orders the work, chooses among configurations that are about equally good, and finds the best of each
cluster, strategy and way of training. search.py searches configurations, configurations.py judges them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from paceline.comparing import never_validated
from paceline.planning.answer import Candidate, ClusterAnswer, Plan, Refused, StrategyAnswer, WayAnswer
from paceline.planning.around import break_even_of, count_servers, count_workers, enough_servers, paying_workers, payments_of, use_of
from paceline.planning.configurations import Configuration, behind, candidate_of, configurations_of, decisions, ranked
from paceline.planning.goal import Goal, reachable_confidence, replications_for
from paceline.planning.improvements import check_upgrades, improved
from paceline.planning.search import Search, best_bucket, bucket_in_words, can_fuse, with_bucket
from paceline.planning.sentences import (
    beside_the_answer,
    doubts_of,
    near_miss_in_words,
    notes_of,
    purchase_in_words,
    sentences_of,
    why_not,
    why_this,
)
from paceline.planning.space import Line, Space, check_devices, fitting
from paceline.planning.ways import WAYS, Way
from paceline.sweeping import Backend, Journal, Runner, Simulate, Simulations
from simulator.base.errors import InputError, ScenarioError, SimulationError
from simulator.base.text import format_number, format_share, format_throughput, written
from simulator.memory import memory_of, not_checked
from simulator.resolve.resolve import Asked
from simulator.results.cost import why_no_cost
from simulator.results.misread import left_out
from simulator.results.results import Result
from simulator.scenario import Resolved, Scenario

_RUNNERS_UP = 5
_WORTH_A_LARGER_BATCH = 1.02
"""Least advantage that justifies a larger batch."""
_EQUAL_REGRET = 1e-6
"""Regrets that differ by no more count as equal; then the ranking decides."""
_NEAR = 0.5
"""Share of the required confidence with which a preferable configuration is a near miss."""
_LITTLE = 0.02


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
    """Find the configuration that best reaches a goal.

    Parameters
    ----------
    space
        The configurations.
    goal
        The goal, its confidence, and the preference.
    out
        Results file of simulated scenarios. An interrupted plan resumes from it.
    jobs, backend, scheduler
        Where and on how many processes to simulate, as for :func:`paceline.sweeping.simulating`. The answer does not depend on them.
    force
        Replace ``out`` if it holds something else.
    progress
        Called with finished and total work, and what is counted: "bounds" of lines, then "scenarios" requested so far.

    Returns
    -------
    Plan
        The best configuration, or the nearest if the goal is not feasible.

    Raises
    ------
    InputError
        The replications do not support the confidence, no cluster has a price for the budget, a workload without a device is used on
        clusters with several, no configuration fits into memory, or ``out`` cannot be used.
    SimulationError
        No configuration could be simulated.
    """
    for scenario in {line.first.cluster.name: line.first for line in space.lines}.values():
        check_upgrades(scenario, space.base_name)
    lines, unfit = fitting(space)
    refused = [
        line.refused(next(iter(texts.values())), len(texts), by_memory=space.cuts, way=line.way if space.cuts else "")
        for line, texts in unfit.items()
    ]
    if not lines:
        raise InputError(f"{space.base_name}: no configuration fits into the memory of its device: {refused[0].text}")
    space = replace(space, lines=lines)
    goal, price_note = _priced(space, goal)
    _check_confidence(space, goal)
    device_notes = check_devices((line.fewest.resolved for line in space.lines), space.base_name)
    tell = progress if progress is not None else (lambda *_: None)
    rows = []
    for number, line in enumerate(space.lines):  # which of thousands of ways to cut a model takes some seconds
        tell(number, len(space.lines), "bounds")
        rows.append(configurations_of(line, goal))
    with (
        Journal(out, force=force) if out is not None else nullcontext() as file,
        Runner(jobs=jobs, backend=backend, scheduler=scheduler) as runner,
    ):
        simulations = Simulations(runner, file, force=force, progress=lambda done, total: tell(done, total, "scenarios"))
        search = Search(rows, simulations)
        search.run()
        counted = [search.simulated]
        for names, kind in ((space.clusters, "cluster"), (space.strategies, "asked"), (WAYS if space.cuts else (), "way")):
            for name in names if len(names) > 1 else ():
                search.run_on([line for line in space.lines if getattr(line, kind) == name])
            counted.append(search.simulated)
        tuned = _tuned(space, search, simulations)
        space.lines += tuned
        search.lines += [configurations_of(line, goal) for line in tuned]
        search.run_on(tuned)
        counted.append(search.simulated)
        meeting, missing = ranked(search.rows)
        for first_of in (_least_regret, _smallest_batch, _compared_with_real_runs) if meeting else ():
            first = first_of(meeting)
            meeting.sort(key=lambda row: row is not first)
        failures = [row.line.refused(f"{failed.kind}: {failed.text}", 1, row.workers) for row in search.rows if (failed := row.failed)]
        if not meeting and not missing:
            texts = " / ".join(dict.fromkeys(failure.text for failure in failures))
            raise SimulationError(f"none of the configurations could be simulated: {texts}")
        chosen = [*meeting, *missing][0]
        workers = count_workers(chosen.scenario, max(chosen.line.candidates), simulations, goal)
        pays_until = paying_workers(workers)
        most = next((row for row in search.rows if row.line is chosen.line and row.workers == pays_until), chosen)
        if most.outcome is None:
            (most.outcome,) = simulations([most.scenario])
            if most.simulated:
                (meeting if most.meets else missing).append(most)
        ordered = [*meeting, *missing]
        servers = count_servers(chosen.scenario, simulations)
        use = use_of(chosen.scenario, goal)
        better = improved(chosen.scenario, chosen.result, simulations, goal, beside=_other_ways(ordered, chosen), use=use)
        payments = payments_of(chosen, simulations, feasible=bool(meeting))
        simulations.finish()
    others = _others(meeting or missing)
    decided = decisions([chosen, *others]) if meeting else {}
    candidates = {row: candidate_of(row, chosen if meeting else None, decided.get(row)) for row in ordered}
    fewest = _fewest_that_may_do(ordered, chosen)
    groups = _Groups(search.rows, candidates, chosen, (*space.refused, *refused, *failures))
    discarded = sum(search.discarded(row) for row in search.rows)
    of_ways = groups.ways()
    for_each = [after - before for before, after in itertools.pairwise(counted)]
    answer = Plan(
        goal=goal,
        feasible=bool(meeting),
        chosen=candidates[chosen],
        why=why_this(meeting, missing),
        doubts=doubts_of(meeting),
        fewest=fewest and candidates[fewest],
        most=candidates[most] if most is not chosen and most.meets else None,
        runners_up=tuple(candidates[row] for row in others),
        pareto=_front(list(candidates.values())),
        candidates=tuple(candidates.values()),
        servers=servers,
        servers_enough=enough_servers(servers),
        workers=workers,
        workers_pay_until=pays_until,
        improvements=tuple(improvement for _, improvement in better),
        payments=payments,
        break_even=break_even_of(payments, use),
        considered=space.considered + sum(refusal.configurations for refusal in refused),
        discarded=discarded,
        passed_over=len(search.rows) - search.simulated - discarded,
        refused=groups.refused,
        clusters=tuple(groups.clusters(space.clusters)),
        ways=of_ways,
        strategies=tuple(groups.strategies(space.strategies)),
        for_each_cluster=for_each[0],
        for_each_strategy=for_each[1],
        for_each_way=for_each[2],
        for_tuning=for_each[3],
        left_out=left_out(chosen.scenario),
        simulated=len(simulations.outcomes),
    )
    # of a model that is cut one line tells for all: they have the same layers on the same devices
    fewest_of = {line.ceilings: line.fewest.resolved for line in space.lines}.values()
    unchecked = "; ".join(dict.fromkeys(filter(None, map(not_checked, fewest_of))))
    memory_note = unchecked and f"whether a batch fits into the devices' memory was not checked: {unchecked}"
    notes = [*device_notes, *space.price_notes, price_note, memory_note, *notes_of(answer, chosen, space)]
    return answer.replaced({"sentences": sentences_of(answer, chosen), "notes": tuple(dict.fromkeys(filter(None, notes)))})


# -- checks of what was asked --------------------------------------------------------------


def _priced(space: Space, goal: Goal) -> tuple[Goal, str]:
    """Return the goal, and a note on missing prices; without any price the fewest devices count as cheapest."""
    without = [line.first for line in space.lines if line.first.cluster.price is None]
    sentences = "; ".join(dict.fromkeys(why_no_cost(scenario) for scenario in without))
    if len(without) < len(space.lines):
        return goal, f"{sentences}. Where cost decides, it ranks after clusters with a price" if without else ""
    if goal.budget_usd is not None:
        raise InputError(
            f"`budget` {goal.budget_usd:g} USD: {sentences}; give `prices`, such as "
            f"`prices={ {without[0].cluster.name: '0.40/h'}!r}`, or 'BUY:4000USD,years:4,power:0.5kW' for machines that you own"
        )
    if goal.prefer == "cheapest":
        return goal.replaced({"prefer": "fewest-devices"}), f"{sentences}. The fewest devices are preferred instead"
    return goal, sentences


def _check_confidence(space: Space, goal: Goal) -> None:
    """Refuse a confidence that the number of replications does not support."""
    replications = min(line.first.run.replications for line in space.lines)
    if goal.confidence > reachable_confidence(replications) + 1e-12:
        raise InputError(
            f"`confidence` {goal.confidence:g} is more than {replications} replications support, which is "
            f"{format_number(reachable_confidence(replications))}: "
            f"give `settings={{'run.replications': {replications_for(goal.confidence)}}}`, or a lower confidence"
        )


# -- the choice ----------------------------------------------------------------------------


def _tuned(space: Space, search: Search, simulate: Simulate) -> list[Line]:
    """Return lines with their best bucket size, where it is faster than their own.

    Of lines that differ in how they cut a model, only the best of each way, cluster and strategy is tuned.
    """
    meeting, missing = ranked(search.rows)
    best_of_lines: dict[Line, Configuration] = {}
    for row in (*meeting, *missing):
        if can_fuse(row.scenario):
            best_of_lines.setdefault(row.line, row)
    tuned: list[Line] = []
    told: set[tuple[str, str]] = set()
    for line, row in best_of_lines.items():
        if not line.tunable:
            continue
        if line.cut:
            belongs = {("way", line.way), ("cluster", line.cluster), *([("strategy", line.asked)] if space.strategies else [])}
            if belongs <= told:
                continue
            told |= belongs
        best = best_bucket(row.scenario, row.result, simulate)
        if best is not row.result:
            size, fused = best.scenario.strategy.bucket_bytes, dict[int, Asked]()
            for count, asked in line.candidates.items():
                with suppress(ScenarioError):
                    fused |= {count: Asked.of(with_bucket(asked.given, size))} if can_fuse(asked.given) else {}
            tuned.append(replace(line, others=(*line.others, bucket_in_words(best.scenario)), candidates=fused))
    return tuned


def _least_regret(meeting: Sequence[Configuration]) -> Configuration:
    """Return the configuration with the least expected regret among the best of each line.

    The mean over replications ignores model error. Where model errors differ between configurations, it can rank them differently from
    :func:`~paceline.planning.configurations.decisions`, whose figures describe the answer.
    """
    compared = [meeting[0], *_others(meeting)]
    decided = decisions(compared)
    if meeting[0] not in decided:  # there are none, or the first costs nothing
        return meeting[0]
    least = min(decision.regret_share for decision in decided.values())
    return next(row for row in compared if row in decided and decided[row].regret_share <= least + _EQUAL_REGRET)


def _smallest_batch(meeting: Sequence[Configuration]) -> Configuration:
    """Return the first, or the one with the smallest batch among those on as many devices that are hardly worse.

    A larger global batch costs samples, which is not predicted. A larger global batch on more devices is part of the requested scaling.
    """
    best = meeting[0]
    if not math.isfinite(best.value):
        return best
    most = best.value * _WORTH_A_LARGER_BATCH
    as_good = [row for row in meeting if row.value <= most and row.scenario.ranks == best.scenario.ranks]
    return min(as_good, key=lambda row: row.global_batch)


def _compared_with_real_runs(meeting: Sequence[Configuration]) -> Configuration:
    """Return the first whose kind was validated, unless the first of all is certainly better.

    The error of an unvalidated kind is unknown, so its worst case must beat the other's best case.
    """
    best, first = meeting[0], next((row for row in meeting if not never_validated(row.result)), None)
    if first is None or best.goal.prefer == "fewest-devices":
        return best
    rate, other = best.result.throughput_samples_per_s, first.result.throughput_samples_per_s
    certain = best.value * rate.mean * other.high < first.value * other.mean * rate.low
    return best if first is best or certain else first


def _others(pool: Sequence[Configuration]) -> list[Configuration]:
    """Return the best of each line except the first; without other lines, the next ones of the same."""
    chosen, *rest = pool
    best_of_line: dict[Line, Configuration] = {}
    for row in rest:
        if row.line is not chosen.line:
            best_of_line.setdefault(row.line, row)
    return (list(best_of_line.values()) or rest)[:_RUNNERS_UP]


def _other_ways(ordered: Sequence[Configuration], chosen: Configuration) -> list[Scenario]:
    """Return the best of each other cut of a model on the same number of machines, which may be best with another batch."""
    best: dict[str, Scenario] = {}
    for row in ordered if chosen.line.cut else ():
        if row.line.way != chosen.line.way and row.workers == chosen.workers and row.line.cluster == chosen.line.cluster:
            best.setdefault(row.line.way, row.scenario)
    return list(best.values())


def _fewest_that_may_do(rows: Sequence[Configuration], chosen: Configuration) -> Configuration | None:
    """Return the simulated configuration with the fewest devices, below the answer's, that is at least a near miss; None without one."""
    least = _NEAR * chosen.goal.confidence
    enough = [row for row in rows if row.scenario.ranks < chosen.scenario.ranks and row.confidence >= least]
    return min(enough, key=lambda row: (row.scenario.ranks, -row.confidence, row.value), default=None)


def _front(candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Return the Pareto front, fastest first; empty if nothing has a price.

    It compares cost and time of the training if the goal has samples, else hourly price and throughput.
    """
    figures = []
    for candidate in candidates:
        cost = candidate.cost_usd.mean if candidate.cost_usd is not None else candidate.usd_per_hour
        slowness = candidate.time_s.mean if candidate.time_s is not None else -candidate.result.throughput_samples_per_s.mean
        if cost is not None:
            figures.append((slowness, cost, candidate.name, candidate))
    front: list[Candidate] = []
    cheapest = math.inf
    for _, cost, _, candidate in sorted(figures, key=lambda figure: figure[:3]):
        if cost < cheapest:
            front.append(candidate)
            cheapest = cost
    return tuple(front)


# -- the best of each cluster, strategy and way of training --------------------------------

_EXCHANGES: Mapping[str, str] = {
    "data parallel": "reducing gradients",
    "pipeline": "passing activations and reducing gradients",
    "tensor": "exchanging partial results in every layer and reducing gradients",
    "context": "passing keys and values around and reducing gradients",
    "expert": "sending tokens to experts and reducing gradients",
    "sharded": "gathering and reducing sharded parameters",
    "hybrid": "communication of its parts",
}
"""Communication of each way of training."""


@dataclass
class _Groups:
    """Groups of a plan's configurations by cluster, strategy or way of training, compared with the answer.

    Attributes
    ----------
    rows
        Every configuration that is not refused.
    candidates
        Candidates of simulated configurations.
    chosen
        The answer, or the nearest configuration.
    refused
        Impossible configurations.
    """

    rows: Sequence[Configuration]
    candidates: Mapping[Configuration, Candidate]
    chosen: Configuration
    refused: tuple[Refused, ...]

    def clusters(self, asked: Sequence[str]) -> Iterator[ClusterAnswer]:
        """Return an answer for each requested cluster."""
        for name in asked:
            own, met, missed, excluded = self._of("cluster", name)
            best, near = next(iter([*met, *missed]), None), _near_miss(met[0], missed) if met else None
            texts = [self._standing(own, met, missed, excluded)]
            texts += [purchase_in_words(self.candidates[best], best.goal)] if best is not None else []
            texts += [near_miss_in_words(self.candidates[near], prefer=near.goal.prefer)] if near is not None else []
            yield ClusterAnswer(
                cluster=name,
                price=(best or own[0]).scenario.cluster.price if own else None,
                best=best and self.candidates[best],
                near_miss=near and self.candidates[near],
                text="; ".join(filter(None, texts)),
            )

    def strategies(self, asked: Sequence[str]) -> Iterator[StrategyAnswer]:
        """Return an answer for each requested strategy, or the reason why there is none; empty if only one was requested."""
        for name in asked if len(asked) > 1 else ():
            own, met, missed, excluded = self._of("asked", name)
            best = next((self.candidates[row] for row in (*met, *missed)), None)
            yield StrategyAnswer(strategy=name, best=best, text=self._standing(own, met, missed, excluded))

    def ways(self) -> tuple[WayAnswer, ...]:
        """Return an answer for each way of training that was tried, best first; empty if only one was."""
        answers: list[tuple[tuple[float | str | int, ...], WayAnswer]] = []
        for place, way in enumerate(WAYS):
            own, met, missed, excluded = self._of("way", way)
            best = next(iter([*met, *missed]), None)
            if best is None:
                if own or excluded:
                    text = f"not possible: {excluded[0].text}" if excluded else _too_slow(own)
                    answers.append(((2, place), WayAnswer(way=way, best=None, text=text)))
                continue
            result = self.candidates[best].result
            texts = [self._way_standing(best), _limit(way, result)]
            if (refusal := next((refusal for refusal in excluded if refusal.by_memory), None)) is not None:
                many = "configurations do" if refusal.configurations > 1 else "configuration does"
                texts.append(f"{refusal.configurations:,} {many} not fit into memory")
            answer = WayAnswer(
                way=way,
                best=self.candidates[best],
                memory_bytes=_memory_bytes(best.resolved),
                waiting=_share(result, "waiting"),
                text="; ".join(filter(None, texts)),
            )
            answers.append(((0, *best.rank) if met else (1, *best.nearness), answer))
        return tuple(answer for _, answer in sorted(answers, key=lambda pair: pair[0])) if len(answers) > 1 else ()

    def _of(self, kind: str, name: str) -> tuple[list[Configuration], list[Configuration], list[Configuration], list[Refused]]:
        """Return all of a group, those that reach the goal (best first), those that do not, and refusals."""
        own = [row for row in self.rows if getattr(row.line, kind) == name]
        return own, *ranked(own), [refusal for refusal in self.refused if getattr(refusal, kind) == name]

    def _standing(
        self, own: Sequence[Configuration], met: Sequence[Configuration], missed: Sequence[Configuration], excluded: Sequence[Refused]
    ) -> str:
        """Compare the best of a group with the answer, or explain why it does not reach the goal."""
        if met:
            return beside_the_answer(met[0], self.chosen, self.candidates[met[0]])
        return why_not(own, next(iter(missed), None), excluded)

    def _way_standing(self, best: Configuration) -> str:
        """Compare the best of a way with the answer by throughput."""
        chosen = self.chosen
        if best is chosen:
            return "the answer" if best.meets else "the nearest"
        if not best.meets:
            unit = best.scenario.unit
            reached, needed = (format_throughput(rate * unit.per_sample) for rate in (best.margin * best.needed, best.needed))
            return f"misses the goal: {reached} of {needed} {unit.per_s} needed"
        rate = best.result.throughput_samples_per_s.mean / chosen.result.throughput_samples_per_s.mean
        change = f"{format_share(abs(rate - 1))} {'more' if rate > 1 else 'less'} throughput"
        texts = [behind(best, chosen)]
        texts += [change if abs(rate - 1) >= _LITTLE else "about as fast"] if best.value == chosen.value else []
        return ", ".join(texts)


def _near_miss(best: Configuration, missed: Sequence[Configuration]) -> Configuration | None:
    """Return the most probable configuration that would beat the best if it reached the goal."""
    better = [row for row in missed if row.value < best.value and row.confidence >= _NEAR * row.goal.confidence]
    return min(better, key=lambda row: (-row.confidence, row.value, row.rank), default=None)


def _too_slow(rows: Sequence[Configuration]) -> str:
    most = max(rows, key=lambda row: row.promised)
    unit = most.scenario.unit
    at_most, needed = (format_throughput(rate * unit.per_sample) for rate in (most.ceiling, most.needed))
    return f"too slow: at most {at_most} of {needed} {unit.per_s} needed (closed forms)"


def _limit(way: Way, result: Result) -> str:
    """Return its largest cost outside compute; empty if that is small."""
    strategy, training = result.scenario.strategy, result.scenario.training
    texts = []
    waiting, exchange = _share(result, "waiting"), _share(result, "exposed_communication")
    if waiting >= _LITTLE:
        waits = "stages wait for each other (bubbles)" if "pipeline" in strategy.cuts else "devices wait for the slowest"
        texts.append((waiting, f"{waits} for {written(waiting, 'share')} of a step"))
    if exchange >= _LITTLE:
        over = " between nodes" if result.scenario.nodes_needed > 1 else ""
        texts.append((exchange, f"{_EXCHANGES[way]}{over} takes {written(exchange, 'share')} of a step that nothing hides"))
    said = [text for _, text in sorted(texts, reverse=True)]
    if training.recompute != "none":
        said.append(f"it fits with {training.recompute} recomputation only")
    return "; ".join(said)


def _share(result: Result, part: str) -> float:
    """Return the share of a part in a step."""
    step = result.breakdown_s
    whole = step.total
    return float(getattr(step, part) / whole) if whole else 0.0


def _memory_bytes(scenario: Resolved) -> float | None:
    """Return the memory of the fullest device; None if its activations are unknown."""
    devices = memory_of(scenario)
    known = all(part.size_bytes is not None for device in devices for part in device.parts if part.name == "activations")
    return max(device.need_bytes for device in devices) if known else None
