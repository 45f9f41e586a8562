"""Around the answer: how many servers are enough, and where adding workers stops paying."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from paceline.planning.answer import JobCount, ServerCount, WorkerCount
from paceline.planning.goal import Goal, job_of
from paceline.planning.space import Line
from paceline.sweeping import Simulate
from simulator.base.errors import ScenarioError
from simulator.results.cost import placement_of, usd_per_hour
from simulator.results.results import Result
from simulator.results.what_if import with_strategy
from simulator.scenario import Scenario

__all__ = ["count_servers", "count_workers", "enough_servers", "paying_workers"]

_PAYS = 1.5
"""A doubling of the workers pays that brings half again as much: what is added works half as well as what was there."""
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
        if len(found) > 1 and not _pays(found[-2], found[-1]):
            break
        scenario = _or_none(answer, count)
        results = simulate([scenario]) if scenario is not None else []
        found += [_worker_count(result, goal) for result in results if isinstance(result, Result)]
    return tuple(found)


def paying_workers(counts: Sequence[WorkerCount]) -> int | None:
    """The most workers up to which each doubling paid; None where none was simulated.

    A step from n to m workers pays if throughput grows by at least half of what it would
    if all went on as well: T(m) / T(n) >= 1 + (m / n - 1) / 2. For a doubling that is 1.5.
    Of a whole job T is its samples over its time, with all that is no step.
    """
    if not counts:
        return None
    last = counts[0]
    for before, after in itertools.pairwise(counts):
        if not _pays(before, after):
            break
        last = after
    return last.workers


def _pays(before: WorkerCount, after: WorkerCount) -> bool:
    needed = 1 + (after.workers / before.workers - 1) * (_PAYS - 1)
    return _rate(after) >= needed * _rate(before)


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
