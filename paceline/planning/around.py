"""A plan's answer with other numbers of workers and of parameter servers. Single changes, as of the network, are in improvements.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from paceline.comparing import pays_until
from paceline.planning.answer import JobCount, ServerCount, WorkerCount
from paceline.planning.goal import Goal, job_of
from paceline.sweeping import Simulate
from simulator.base.errors import ScenarioError
from simulator.results.cost import placement_of, usd_per_hour
from simulator.results.results import Result
from simulator.results.what_if import with_strategy
from simulator.scenario import Scenario
from simulator.strategies.strategy import Strategy

_MORE_IS_LITTLE = 1.02


def count_workers(answer: Scenario, most: int, simulate: Simulate, goal: Goal) -> tuple[WorkerCount, ...]:
    """Throughput with 1, 2, 4, ... workers and the answer's own number.

    Up to the ``most`` that its line has and one doubling beyond the answer; beyond that
    doubling it stops where one does not pay.
    """
    if not answer.strategy.count_key:
        return ()
    own = answer.workers
    top = max(most, 2 * own)
    numbers = sorted({own, *(2**power for power in range(top.bit_length()) if 2**power <= top)})
    scenarios = {number: _changed(answer, answer.strategy.with_count, number, own) for number in numbers}

    def counted(*some: int) -> list[WorkerCount]:
        """Of those that rules allow; a fixed number of nodes does not stand in the way."""
        outcomes = simulate([scenario for number in some if (scenario := scenarios[number]) is not None])
        return [_workers(result, goal) for result in outcomes if isinstance(result, Result)]

    counts = counted(*(number for number in numbers if number <= 2 * own))
    for number in (number for number in numbers if number > 2 * own):
        if len(counts) > 1 and paying_workers(counts[-2:]) != counts[-1].workers:
            break
        counts += counted(number)
    return tuple(counts)


def paying_workers(counts: Sequence[WorkerCount]) -> int | None:
    """The most workers up to which each step paid (:func:`paceline.comparing.pays_until`); None where none was simulated.

    Of a whole job its samples over its time count, with all that is no step.
    """
    rates = [(count.job.samples_per_s if count.job is not None else count.throughput_samples_per_s).mean for count in counts]
    return counts[pays_until([(count.workers, rate) for count, rate in zip(counts, rates, strict=True)])].workers if counts else None


def _changed(answer: Scenario, with_number: Callable[[int], Strategy], number: int, own: int) -> Scenario | None:
    """The answer with another number of something; None where rules forbid it."""
    try:
        return answer if number == own else with_strategy(answer, with_number(number))
    except ScenarioError:
        return None


def _figures(result: Result) -> dict[str, Any]:
    """What every number of something is shown with."""
    placement = placement_of(result.scenario)
    return {
        "throughput_samples_per_s": result.throughput_samples_per_s,
        "throughput_of_each_replication": result.throughput_of_each_replication,
        "discrepancy": result.discrepancy,
        "usd_per_hour": usd_per_hour(result.scenario),
        "nodes": placement.nodes,
        "placement": placement.text,
    }


def _workers(result: Result, goal: Goal) -> WorkerCount:
    job, counted = job_of(result, goal), None
    if job is not None:
        counted = JobCount(
            time_s=job.time_s,
            cost_usd=job.cost_usd,
            samples_per_s=job.samples_per_s,
            samples_per_s_of_each_replication=job.samples_per_s_of_each_replication,
            goodput=job.goodput.mean,
        )
    return WorkerCount(workers=result.scenario.workers, replicas=result.replicas, job=counted, **_figures(result))


def count_servers(answer: Scenario, simulate: Simulate) -> tuple[ServerCount, ...]:
    """Throughput with 1, 2, 4, ... parameter servers, until a doubling brings less than 2%, then with those in between that matter."""
    if not answer.servers:
        return ()
    counts: dict[int, ServerCount] = {}

    def try_(number: int) -> bool:
        """Simulate a number of servers; whether that can be."""
        scenario = _changed(answer, answer.strategy.with_servers, number, answer.servers)
        for result in simulate([scenario]) if scenario is not None else ():
            if isinstance(result, Result):
                counts[number] = ServerCount(servers=number, **_figures(result))
        return scenario is not None and number in counts

    try_(answer.servers)
    number = 1
    while try_(number) and not (number > max(answer.servers, 1) and not _gains(counts[number // 2], counts[number])):
        number *= 2
    # between the last that gains much and the next that was tried, the fewest that are enough
    while (enough := enough_servers([counts[key] for key in sorted(counts)])) is not None:
        below = max((key for key in counts if key < enough), default=0)
        if enough - below <= 1 or not try_((enough + below) // 2):
            break
    return tuple(counts[key] for key in sorted(counts))


def _gains(few: ServerCount, many: ServerCount) -> bool:
    return many.throughput_samples_per_s.mean >= _MORE_IS_LITTLE * few.throughput_samples_per_s.mean


def enough_servers(counts: Sequence[ServerCount]) -> int | None:
    """The fewest servers than which no larger number that was simulated is 2% faster; None where there are none."""
    enough = (few for place, few in enumerate(counts) if not any(_gains(few, many) for many in counts[place + 1 :]))
    return next((count.servers for count in enough), None)
