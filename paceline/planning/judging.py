"""How good a configuration is for a goal: from its bounds before it is simulated, from its result after.

Bounds are computed in bounds.py, needed throughputs and confidences in goal.py; which configuration is simulated next is
decided in search.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from paceline.comparing import share_draws, throughput_apart
from paceline.deciding import drawn_rates, stakes, step_shares
from paceline.planning.answer import Candidate, Decision, Paired
from paceline.planning.bounds import Ceilings
from paceline.planning.goal import (
    Goal,
    confidence_of,
    cost_of,
    enough_of,
    job_of,
    off_by,
    rates_of,
    reached_by,
    reached_with,
    required_rate,
    sample_s_of,
    shares_of,
    time_of,
)
from paceline.planning.space import Line
from paceline.sweeping import Outcome
from simulator.base.text import format_number, format_share
from simulator.resolve.resolve import resolve
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
from simulator.results.results import Result
from simulator.scenario import Scenario

_HOUR_S = 3600.0
_HALF = 0.5
_NEXT_TO_NOTHING = 0.0005
_SEVERAL_TIMES = 3.0
"""From here on "times as much" is easier to read than a percentage."""


@dataclass(eq=False)
class Point:
    """One configuration of a line.

    Attributes
    ----------
    usd_per_hour
        Price of its nodes; none where it is not known.
    needed
        Samples a second that it needs to reach the goal.
    ceiling
        Bound of the throughput that as many replications reach as the confidence asks for.
    least_sample_s
        Bound of the mean time of a sample, in seconds.
    guess
        Throughput by closed forms that are no bounds; only orders the work.
    outcome
        What was simulated, once it has been.
    """

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
        """What it stands for."""
        return self.line.scenarios[self.workers]

    @property
    def global_batch(self) -> int:
        """Samples that all replicas together take a step."""
        return self.scenario.batch * self.scenario.replicas

    @property
    def result(self) -> Result | None:
        """Its result, where it was simulated and did not fail."""
        return self.outcome if isinstance(self.outcome, Result) else None


class Judge:
    """Judges configurations by a goal.

    Parameters
    ----------
    goal
        What is asked for, and preferred.
    """

    def __init__(self, goal: Goal) -> None:
        self.goal = goal
        self._ceilings: dict[object, Ceilings] = {}

    def points(self, line: Line) -> list[Point]:
        """The configurations of a line with their bounds, ascending in workers."""
        if line.family is None:
            ceilings = Ceilings(line.first)
        else:  # which hundreds of lines may have in common
            ceilings = self._ceilings.get(line.family) or Ceilings(line.first)
            self._ceilings[line.family] = ceilings
        points = []
        for workers, scenario in line.scenarios.items():
            hourly = usd_per_hour(scenario)
            rates = ceilings.of(scenario)
            enough = enough_of(len(rates), self.goal.confidence)
            ceiling = float(np.sort(rates)[-min(enough, len(rates))]) * self._lifted(scenario)
            guess = ceilings.expected or scenario.replicas * scenario.batch / resolve(scenario).full_step_s
            budget = None if bills_exactly(scenario) else self.goal.budget_usd
            longest_s = None if budget is None else affordable_s(scenario, budget)
            needed = required_rate(self.goal, hourly, committed_usd(scenario), longest_s)
            points.append(Point(line, workers, hourly, needed, ceiling, float((1 / rates).mean()), guess))
        return points

    def _lifted(self, scenario: Scenario) -> float:
        """What a discrepancy can bring at most beyond as many replications as the confidence asks for.

        Nothing from a confidence of one half on: then it takes away. Below, a run may come out
        faster than the model has it, by no more than its compute and communication may both be.
        """
        own = discrepancy_of(scenario) if self.goal.confidence < _HALF else None
        if own is None:
            return 1.0
        reach = reach_of(scenario)
        most = math.hypot(own.compute(reach), own.communication(reach))
        return math.exp(-NormalDist().inv_cdf(self.goal.confidence) * most)

    # -- before it is simulated --------------------------------------------------------

    def reachable(self, point: Point) -> bool:
        """Whether its bound leaves room for the goal."""
        return point.ceiling >= point.needed * (1 - 1e-9)

    def hope(self, point: Point) -> float:
        """What :meth:`value` is at least; of nodes that are taken away, while others go on, that is not known."""
        if self.goal.prefer == "cheapest" and _goes_on_without(point.scenario):
            return 0.0
        return self._value(point, point.least_sample_s)

    def expected(self, point: Point) -> float:
        """What :meth:`value` may be; infinite where the goal does not seem to be reached."""
        return self._value(point, 1 / point.guess) if point.guess >= point.needed else math.inf

    def _value(self, point: Point, sample_s: float) -> float:
        goal = self.goal
        if goal.prefer == "fastest":
            return sample_s
        if goal.prefer == "fewest-devices":
            return float(-(-point.scenario.ranks // point.scenario.cluster.replicas_per_device))
        if point.usd_per_hour is None:
            return math.inf
        total = goal.samples
        if total is None:
            return point.usd_per_hour
        return usd_of(point.scenario, total * sample_s, per_month=goal.trainings_per_month) or 0.0

    # -- after it has been simulated ---------------------------------------------------

    def confidence(self, point: Point) -> float:
        """Predicted share of real runs that reach the goal; none where it was not simulated."""
        result, goal = point.result, self.goal
        if result is None:
            return 0.0
        return confidence_of(rates_of(result, goal), point.needed, off_by(result, goal), shares_of(result, goal))

    def meets(self, point: Point) -> bool:
        """Whether it reaches the goal as surely as was asked for."""
        return point.result is not None and self.confidence(point) >= self.goal.confidence - 1e-12

    def value(self, point: Point) -> float:
        """What is to be as small as possible: cost (or price an hour), time of a sample, or devices."""
        result = point.result
        if result is None:
            return math.inf
        if self.goal.prefer == "cheapest" and (cost := cost_of(result, self.goal)) is not None:
            return cost.mean
        return self._value(point, sample_s_of(result, self.goal))

    def margin(self, point: Point) -> float:
        """Samples/s that are reached with the confidence asked for, over those needed; at least 1 where the goal is met."""
        result, goal = point.result, self.goal
        if result is None:
            return -1.0
        reached = reached_with(goal.confidence, rates_of(result, goal), off_by(result, goal), shares_of(result, goal))
        return reached / point.needed

    def rank(self, point: Point) -> tuple[float | str | int, ...]:
        """Sorts points that meet the goal, best first: what is preferred, then price, throughput, nodes, and the name.

        Of as many devices, where nothing has a price, fewer nodes come before throughput. Of equal ones those come
        first whose kind was held against real runs, and whose replicas stay alike.
        """
        result = point.result
        assert result is not None
        rate = result.throughput_samples_per_s.mean
        price = math.inf if point.usd_per_hour is None else point.usd_per_hour
        nodes = point.scenario.nodes_needed if self.goal.prefer == "fewest-devices" else 0
        doubtful = is_borrowed(point.scenario) or bool(point.scenario.strategy.inexact)
        prices = (price,) if self.goal.prefer != "cheapest" else ()
        return self.value(point), *prices, nodes, doubtful, -rate, *self._order(point)

    def nearness(self, point: Point) -> tuple[float | str | int, ...]:
        """Sorts points none of which meets the goal, nearest first; of machines that cost more than the budget, those that cost least."""
        beyond = 0.0 if math.isfinite(point.needed) else committed_usd(point.scenario) or 0.0
        return -self.margin(point), beyond, self.value(point), *self._order(point)

    @staticmethod
    def _order(point: Point) -> tuple[float | str | int, ...]:
        return point.scenario.nodes_needed, point.workers, point.line.name, point.line.scaling

    def behind(self, other: Point, best: Point) -> str:
        """How far a point is behind the best in what is preferred: ``14.3% more``; two that cost nothing are equal.

        Where the fastest is preferred, that is throughput: ``49% lower throughput``.
        """
        ours, theirs = self.value(best), self.value(other)
        if not ours:  # at a price of 0 all that costs nothing is equal, and nothing else is a multiple of it
            return "at the same cost" if not theirs else "more, where the answer costs nothing"
        times = theirs / ours
        if self.goal.prefer == "fastest":
            if abs(times - 1) < _NEXT_TO_NOTHING:
                return "just as fast"
            whole = other.result is not None and job_of(other.result, self.goal) is not None
            return throughput_apart(1 / times) + (" over the whole job" if whole else "")
        word = {"cheapest": "more", "fewest-devices": "more devices"}[self.goal.prefer]
        better = {"cheapest": "less", "fewest-devices": "fewer devices"}[self.goal.prefer]
        many = {"cheapest": "as much", "fewest-devices": "as many devices"}[self.goal.prefer]
        same = {"cheapest": "at the same cost", "fewest-devices": "with as many"}[self.goal.prefer]
        if times >= _SEVERAL_TIMES:
            return f"{format_number(times)} times {many}"
        if abs(times - 1) < _NEXT_TO_NOTHING:
            return same
        return f"{format_share(abs(times - 1))} {word if times > 1 else better}"

    def paired(self, best: Point, other: Point) -> Paired | None:
        """In how many runs the best is better than another, run by run with the same random streams.

        Nothing where both do not have the same runs, or where that is no matter of chance: the
        price of an hour, or the number of devices, decides between them.
        """
        ours, theirs = best.result, other.result
        if ours is None or theirs is None or best is other:
            return None
        if not share_draws(ours, theirs):
            return None
        rates = rates_of(ours, self.goal), rates_of(theirs, self.goal)
        by_cost = self.goal.prefer == "cheapest" and self.goal.samples is not None
        if by_cost:
            if not best.usd_per_hour or not other.usd_per_hour:
                return None
            samples_per_usd = [self._samples_per_usd(point, its) for point, its in zip((best, other), rates, strict=True)]
            return Paired(wins=wins(*samples_per_usd), runs=len(rates[0]), by="cheaper")
        if self.goal.prefer != "fastest" and self.value(best) != self.value(other):
            return None
        return Paired(wins=wins(*rates), runs=len(rates[0]), by="faster")

    def _samples_per_usd(self, point: Point, rates: Sequence[float]) -> list[float]:
        """Of each run, as it is billed."""
        total = self.goal.samples
        assert total is not None
        costs = self._usd_of_times(point, total / np.asarray(rates)).tolist()
        return [total / cost if cost else math.inf for cost in costs]

    def _usd_of_times(self, point: Point, times_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """What trainings of such times cost, as they are billed; in the mean :func:`~paceline.planning.goal.cost_of`."""
        scenario, result, often = point.scenario, point.result, self.goal.trainings_per_month
        time_s = None if result is None else time_of(result, self.goal)
        if often is not None and time_s is not None and is_paid_in_advance(scenario):
            running = running_usd_per_hour(scenario) or 0.0
            usual_usd = usd_of(scenario, time_s.mean, per_month=often) or 0.0
            return usual_usd + (times_s - time_s.mean) * (running / _HOUR_S)
        if bills_exactly(scenario):
            costs = times_s * ((point.usd_per_hour or 0.0) / _HOUR_S)
        else:
            costs = np.array([usd_of(scenario, each_s) or 0.0 for each_s in times_s.tolist()])
        job = None if result is None else job_of(result, self.goal)
        if job is None or time_s is None or not job.away_node_s:
            return costs
        return costs * (1.0 - job.away_node_s / (placement_of(scenario).nodes * time_s.mean))  # nobody pays for nodes that are away

    def _as_used(self, result: Result) -> Result:
        """The result at the prices of an hour in use that the goal's trainings a month make, so that hours x price are the cost."""
        time_s, often = time_of(result, self.goal), self.goal.trainings_per_month
        if time_s is None or often is None or not is_paid_in_advance(result.scenario):
            return result
        job, cost = result.job, cost_of(result, self.goal)
        priced = job.model_copy(update={"cost_usd": cost}) if job is not None else None
        scenario = with_trainings(result.scenario, time_s.mean, often)
        return result.model_copy(update={"scenario": scenario, "scenario_hash": scenario.hash, "job": priced})

    def decisions(self, points: Sequence[Point]) -> dict[int, Decision]:
        """What is at stake with each of several points, by its id; nothing where what is preferred is no matter of chance.

        Those that have no price are left out where cost is preferred.
        """
        goal, total = self.goal, self.goal.samples
        by_cost = goal.prefer == "cheapest" and total is not None
        held = [(point, point.result) for point in points if point.result is not None and (point.usd_per_hour or not by_cost)]
        if len(held) < 2 or not (by_cost or goal.prefer == "fastest"):
            return {}
        results = [result for _, result in held]
        each = [rates_of(result, goal) for result in results]
        rates = drawn_rates(results, each, [self._steps(result, len(own)) for result, own in zip(results, each, strict=True)])
        unit: Literal["usd", "s", "samples/s"] = "usd" if by_cost else "samples/s" if total is None else "s"
        if total is not None:
            times_s = total / rates
            rates = np.array([self._usd_of_times(point, own) if by_cost else own for (point, _), own in zip(held, times_s, strict=True)])
        runs = min(map(len, each))
        return {
            id(point): Decision(
                best=its.best,
                runs=runs,
                among=len(held),
                regret=its.regret,
                unit=unit,
                regret_share=its.share,
                regret_where_not_best=its.where_not_best,
            )
            for (point, _), its in zip(held, stakes(rates, runs, most=total is None), strict=True)
        }

    def _steps(self, result: Result, runs: int) -> Sequence[float]:
        """Of the time of each run, the share that steps have."""
        job = job_of(result, self.goal)
        return [1.0] * runs if job is None else step_shares(job, runs)

    def candidate(self, point: Point, answer: Point | None, decision: Decision | None = None) -> Candidate:
        """What is said of a point, beside the answer; where nothing reaches the goal there is none to be compared with."""
        result = point.result
        assert result is not None
        placement = placement_of(point.scenario)
        result = self._as_used(result)
        return Candidate(
            name=point.line.title(point.workers),
            what=point.line.what,
            others=point.line.others,
            scaling=point.line.scaling,
            result=result,
            usd_per_hour=usd_per_hour(result.scenario),
            usd_per_million_samples=usd_per_million_samples(result),
            time_s=time_of(result, self.goal),
            cost_usd=cost_of(result, self.goal),
            confidence=self.confidence(point),
            reached_by=reached_by(rates_of(result, self.goal), point.needed),
            meets=self.meets(point),
            nodes=placement.nodes,
            devices_per_node=placement.devices_per_node,
            placement=placement.text,
            paired=None if answer is None else self.paired(answer, point),
            decision=decision,
        )


def _goes_on_without(scenario: Scenario) -> bool:
    """Whether a training at a spot price goes on while nodes are away, which are then not paid for."""
    price, faults = scenario.cluster.price, scenario.faults
    if price is None or price.preemption is None or faults is None:
        return False
    return faults.elastic or bool(scenario.servers)
