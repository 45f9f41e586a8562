"""One row of a plan's table: a configuration with its bounds, its simulated outcome, and its rank for the goal.

bounds.py computes bounds, goal.py required throughputs and confidences; search.py decides which configuration is simulated next.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from paceline.comparing import drawn_rates, share_draws, stakes, step_shares, throughput_apart
from paceline.planning.answer import Candidate, Decision, Paired
from paceline.planning.goal import (
    Goal,
    confidence_of,
    cost_of,
    enough_of,
    job_of,
    model_error,
    rate_reached,
    rates_of,
    reached_by,
    required_rate,
    sample_s_of,
    shares_of,
    time_of,
)
from paceline.planning.space import Line
from paceline.sweeping import Outcome
from simulator.base.text import format_number, format_share
from simulator.results.cost import (
    affordable_s,
    bills_exactly,
    committed_usd,
    is_paid_in_advance,
    placement_of,
    running_usd_per_hour,
    usd_of,
    usd_per_hour,
    usd_per_million_samples,
    with_trainings,
)
from simulator.results.inadequacy import discrepancy_of, is_borrowed, reach_of
from simulator.results.intervals import wins
from simulator.results.results import Failed, Failure, Result
from simulator.scenario import Resolved, Scenario

_HOUR_S = 3600.0
_HALF = 0.5
_NEXT_TO_NOTHING = 0.0005
_SEVERAL_TIMES = 3.0
"""From this ratio on, "times as much" is easier to read than a percentage."""


@dataclass(eq=False)
class Configuration:
    """One configuration of a line, judged by a goal.

    Attributes
    ----------
    usd_per_hour
        Price of its nodes; None if unknown.
    needed
        Samples a second that it needs to reach the goal.
    ceiling
        Upper bound of the throughput that enough replications reach for the confidence.
    least_sample_s
        Lower bound of the mean time of a sample, in seconds.
    guess
        Throughput by closed forms that are not bounds; it only orders the work.
    outcome
        Simulated outcome, if any.
    """

    goal: Goal
    line: Line
    workers: int
    usd_per_hour: float | None
    needed: float
    ceiling: float
    least_sample_s: float
    guess: float
    outcome: Outcome | None = None

    @property
    def scenario(self) -> Scenario:
        """Its scenario, as requested."""
        return self.line.candidates[self.workers].given

    @property
    def resolved(self) -> Resolved:
        """Its resolved scenario."""
        return self.line.candidates[self.workers].resolved

    @property
    def title(self) -> str:
        """Its name in words."""
        return self.line.title(self.workers)

    @property
    def global_batch(self) -> int:
        """Samples of all replicas in a step."""
        return self.scenario.batch * self.scenario.replicas

    @property
    def simulated(self) -> bool:
        """Return whether it was simulated successfully."""
        return isinstance(self.outcome, Result)

    @property
    def result(self) -> Result:
        """Its result; it must have one."""
        assert isinstance(self.outcome, Result)
        return self.outcome

    @property
    def failed(self) -> Failed | None:
        """Reason of its failed simulation, if it failed."""
        return self.outcome.failed if isinstance(self.outcome, Failure) else None

    # -- before it is simulated --------------------------------------------------------

    @property
    def promised(self) -> float:
        """Largest share of the needed throughput that its bound allows."""
        return self.ceiling / self.needed

    @property
    def reachable(self) -> bool:
        """Return whether its bound allows the goal."""
        return self.ceiling >= self.needed * (1 - 1e-9)

    @property
    def hope(self) -> float:
        """Lower bound of :attr:`value`; unknown if nodes can be preempted while others continue."""
        if self.goal.prefer == "cheapest" and _goes_on_without(self.scenario):
            return 0.0
        return self._value(self.least_sample_s)

    @property
    def expected(self) -> float:
        """Expected :attr:`value`; infinite if the goal seems out of reach."""
        return self._value(1 / self.guess) if self.guess >= self.needed else math.inf

    def _value(self, sample_s: float) -> float:
        goal, scenario = self.goal, self.scenario
        if goal.prefer == "fastest":
            return sample_s
        if goal.prefer == "fewest-devices":
            return float(-(-scenario.ranks // scenario.cluster.replicas_per_device))
        if self.usd_per_hour is None:
            return math.inf
        if goal.samples is None:
            return self.usd_per_hour
        return usd_of(scenario, goal.samples * sample_s, per_month=goal.trainings_per_month) or 0.0

    # -- after it has been simulated ---------------------------------------------------

    @property
    def confidence(self) -> float:
        """Predicted share of real runs that reach the goal; None if it was not simulated."""
        if not self.simulated:
            return 0.0
        result, goal = self.result, self.goal
        return confidence_of(rates_of(result, goal), self.needed, model_error(result, goal), shares_of(result, goal))

    @property
    def meets(self) -> bool:
        """Return whether it reaches the goal with the required confidence."""
        return self.simulated and self.confidence >= self.goal.confidence - 1e-12

    @property
    def value(self) -> float:
        """Figure to minimise: cost (or hourly price), time of a sample, or devices."""
        if not self.simulated:
            return math.inf
        if self.goal.prefer == "cheapest" and (cost := cost_of(self.result, self.goal)) is not None:
            return cost.mean
        return self._value(self.sample_s)

    @property
    def sample_s(self) -> float:
        """Simulated seconds per sample."""
        return sample_s_of(self.result, self.goal)

    @property
    def reached(self) -> float:
        """Samples/s reached with the required confidence."""
        return rate_reached(self.result, self.goal)

    @property
    def margin(self) -> float:
        """Ratio of reached to needed throughput; at least 1 if the goal is met."""
        return self.reached / self.needed if self.simulated else -1.0

    @property
    def rank(self) -> tuple[float | str | int, ...]:
        """Sort key of those that meet the goal, best first: preference, then price, throughput, nodes, and name.

        Without prices, fewer nodes come before throughput for the same devices. Among equals, validated kinds and identical replicas come
        first.
        """
        result, prefer, scenario = self.result, self.goal.prefer, self.scenario
        price = math.inf if self.usd_per_hour is None else self.usd_per_hour
        prices = (price,) if prefer != "cheapest" else ()
        nodes = scenario.nodes_needed if prefer == "fewest-devices" else 0
        doubtful = is_borrowed(scenario) or bool(scenario.strategy.inexact)
        return self.value, *prices, nodes, doubtful, -result.throughput_samples_per_s.mean, *self._order

    @property
    def nearness(self) -> tuple[float | str | int, ...]:
        """Sort key of those that miss the goal, nearest first; the cheapest first of machines that exceed the budget."""
        beyond = 0.0 if math.isfinite(self.needed) else committed_usd(self.scenario) or 0.0
        return -self.margin, beyond, self.value, *self._order

    @property
    def _order(self) -> tuple[float | str | int, ...]:
        return self.scenario.nodes_needed, self.workers, self.line.name, self.line.scaling


def configurations_of(line: Line, goal: Goal) -> list[Configuration]:
    """Return the configurations of a line with their bounds, by ascending workers."""
    rows = []
    for workers, asked in line.candidates.items():
        scenario, rates = asked.given, line.ceilings.of(asked)
        enough = min(enough_of(len(rates), goal.confidence), len(rates))
        longest_s = None if goal.budget_usd is None or bills_exactly(scenario) else affordable_s(scenario, goal.budget_usd)
        hourly = usd_per_hour(scenario)
        needed = required_rate(goal, hourly, committed_usd(scenario), longest_s)
        ceiling, guess = float(np.sort(rates)[-enough]) * _lifted(scenario, goal), line.ceilings.guess(asked.resolved)
        rows.append(Configuration(goal, line, workers, hourly, needed, ceiling, float((1 / rates).mean()), guess))
    return rows


def _lifted(scenario: Scenario, goal: Goal) -> float:
    """Return the largest factor by which model error can exceed the replications that the confidence requires.

    It is 1 from a confidence of one half on, where model error only reduces throughput. Below, a run may be faster than predicted, by at
    most the errors of compute and communication together.
    """
    own = discrepancy_of(scenario) if goal.confidence < _HALF else None
    if own is None:
        return 1.0
    reach = reach_of(scenario)
    most = math.hypot(own.compute(reach), own.communication(reach))
    return math.exp(-NormalDist().inv_cdf(goal.confidence) * most)


def _goes_on_without(scenario: Scenario) -> bool:
    """Return whether a training at a spot price continues without preempted nodes, which then cost nothing."""
    price, faults = scenario.cluster.price, scenario.faults
    if price is None or price.preemption is None or faults is None:
        return False
    return faults.elastic or bool(scenario.servers)


def ranked(rows: Iterable[Configuration]) -> tuple[list[Configuration], list[Configuration]]:
    """Return those that meet the goal, best first, and simulated ones that do not, nearest first."""
    judged = [(row, row.meets) for row in rows if row.simulated]
    meeting = sorted((row for row, meets in judged if meets), key=lambda row: row.rank)
    missing = sorted((row for row, meets in judged if not meets), key=lambda row: row.nearness)
    return meeting, missing


# -- beside each other ----------------------------------------------------------------------


def behind(other: Configuration, best: Configuration) -> str:
    """Return how far a configuration is behind the best: ``14.3% more``; two that cost nothing are equal.

    If the fastest is preferred, it compares throughput: ``49% lower throughput``.
    """
    ours, theirs, prefer = best.value, other.value, best.goal.prefer
    if not ours:  # at a price of 0 all that costs nothing is equal, and nothing else is a multiple of it
        return "at the same cost" if not theirs else "more, where the answer costs nothing"
    times = theirs / ours
    if prefer == "fastest":
        if abs(times - 1) < _NEXT_TO_NOTHING:
            return "just as fast"
        whole = job_of(other.result, other.goal) is not None
        return throughput_apart(1 / times) + (" over the whole job" if whole else "")
    more, less, many, same = _WORDS[prefer]
    if times >= _SEVERAL_TIMES:
        return f"{format_number(times)} times {many}"
    if abs(times - 1) < _NEXT_TO_NOTHING:
        return same
    return f"{format_share(abs(times - 1))} {more if times > 1 else less}"


_WORDS = {
    "cheapest": ("more", "less", "as much", "at the same cost"),
    "fewest-devices": ("more devices", "fewer devices", "as many devices", "with as many"),
}


def paired(best: Configuration, other: Configuration) -> Paired | None:
    """Count the runs in which the best is better than another, paired by random streams.

    Return None if their runs cannot be paired, or if chance has no effect because hourly price or the number of devices decides.
    """
    ours, theirs, goal = best.result, other.result, best.goal
    if best is other or not share_draws(ours, theirs):
        return None
    rates = rates_of(ours, goal), rates_of(theirs, goal)
    if goal.prefer == "cheapest" and goal.samples is not None:
        if not best.usd_per_hour or not other.usd_per_hour:
            return None
        total = goal.samples
        costs = [_usd_of_times(row, total / np.asarray(each)).tolist() for row, each in zip((best, other), rates, strict=True)]
        samples_per_usd = [[total / cost if cost else math.inf for cost in each] for each in costs]
        return Paired(wins=wins(*samples_per_usd), runs=len(rates[0]), by="cheaper")
    if goal.prefer != "fastest" and best.value != other.value:
        return None
    return Paired(wins=wins(*rates), runs=len(rates[0]), by="faster")


def _usd_of_times(row: Configuration, times_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return billed costs of trainings of given times, with the mean of :func:`~paceline.planning.goal.cost_of`."""
    scenario, result, often = row.scenario, row.result, row.goal.trainings_per_month
    time_s, job = time_of(result, row.goal), job_of(result, row.goal)
    if often is not None and time_s is not None and is_paid_in_advance(scenario):
        running = running_usd_per_hour(scenario) or 0.0
        usual_usd = usd_of(scenario, time_s.mean, per_month=often) or 0.0
        return usual_usd + (times_s - time_s.mean) * (running / _HOUR_S)
    if bills_exactly(scenario):
        costs = times_s * ((row.usd_per_hour or 0.0) / _HOUR_S)
    else:
        costs = np.array([usd_of(scenario, each_s) or 0.0 for each_s in times_s.tolist()])
    if job is None or time_s is None or not job.away_node_s:
        return costs
    return costs * (1.0 - job.away_node_s / (placement_of(scenario).nodes * time_s.mean))  # nobody pays for nodes that are away


def decisions(rows: Sequence[Configuration]) -> dict[Configuration, Decision]:
    """Return probability and regret of several configurations; empty if the preference does not depend on chance.

    Configurations without a price are left out if cost is preferred.
    """
    goal = rows[0].goal
    by_cost = goal.prefer == "cheapest" and goal.samples is not None
    compared = [row for row in rows if row.usd_per_hour or not by_cost]
    if len(compared) < 2 or not (by_cost or goal.prefer == "fastest"):
        return {}
    each = [rates_of(row.result, goal) for row in compared]
    jobs = [job_of(row.result, goal) for row in compared]
    steps = [[1.0] * len(own) if job is None else step_shares(job, len(own)) for job, own in zip(jobs, each, strict=True)]
    values = drawn_rates([row.result for row in compared], each, steps)
    counts = rows[0].scenario.unit
    unit: Literal["usd", "s", "samples/s", "tokens/s"] = "usd" if by_cost else counts.per_s if goal.samples is None else "s"
    times = counts.per_sample if unit == counts.per_s else 1
    if goal.samples is not None:
        values = goal.samples / values
    if by_cost:
        values = np.array([_usd_of_times(row, times_s) for row, times_s in zip(compared, values, strict=True)])
    runs = min(map(len, each))
    return {
        row: Decision(
            best=stake.best, runs=runs, among=len(compared), regret=stake.regret * times, unit=unit,
            regret_share=stake.share, regret_where_not_best=stake.where_not_best,
        )
        for row, stake in zip(compared, stakes(values, runs, most=goal.samples is None), strict=True)
    }  # fmt: skip


def candidate_of(row: Configuration, answer: Configuration | None, decision: Decision | None = None) -> Candidate:
    """Describe a configuration and compare it with the answer, if the goal is feasible."""
    result, goal, placement = _as_used(row.result, row.goal), row.goal, placement_of(row.scenario)
    return Candidate(
        name=row.title,
        what=row.line.what,
        others=row.line.others,
        scaling=row.line.scaling,
        result=result,
        usd_per_hour=usd_per_hour(result.scenario),
        usd_per_million_samples=usd_per_million_samples(result),
        time_s=time_of(result, goal),
        cost_usd=cost_of(result, goal),
        confidence=row.confidence,
        reached_by=reached_by(rates_of(result, goal), row.needed),
        meets=row.meets,
        nodes=placement.nodes,
        devices_per_node=placement.devices_per_node,
        placement=placement.text,
        paired=None if answer is None else paired(answer, row),
        decision=decision,
    )


def _as_used(result: Result, goal: Goal) -> Result:
    """Return the result at prices of an hour in use that follow from the goal's trainings a month, so that hours x price are the cost."""
    time_s, often = time_of(result, goal), goal.trainings_per_month
    if time_s is None or often is None or not is_paid_in_advance(result.scenario):
        return result
    job, cost = result.job, cost_of(result, goal)
    priced = job.replaced({"cost_usd": cost}) if job is not None else None
    scenario = with_trainings(result.scenario, time_s.mean, often)
    return result.replaced({"scenario": scenario, "scenario_hash": scenario.hash, "job": priced})
