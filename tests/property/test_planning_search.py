"""A search over ranges finds what simulating everything finds, where throughput has one peak."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from support.examples import examples
from support.scenarios import scenario_table

from paceline.planning import Goal, goal_of, plan, space_of
from paceline.planning.goal import required_rate
from paceline.planning.space import Space
from simulator import simulate
from simulator.results.cost import usd_per_hour
from simulator.results.results import Result

SAMPLES = 1e6


@some.composite
def tables(draw: some.DrawFn) -> dict[str, Any]:
    """Rings without jitter: compute, an all-reduce that grows with the workers, and nodes of one or four devices."""

    def choose(*options: Any) -> Any:
        return draw(some.sampled_from(options))

    batch = choose({"batch_per_replica": choose(1, 8, 32)}, {"batch_per_replica": None, "global_batch": choose(48, 240)})
    link = {"bandwidth": choose("50 MB/s", "1 GB/s", "20 GB/s"), "latency": choose("0 s", "50 us", "1 ms")}
    return scenario_table(
        workload=batch,
        cluster={"inter_node": link, "devices_per_node": choose(1, 4), "price": {"usd_per_node_hour": 2.0}},
        strategy={"kind": "multi-worker-mirrored", "workers": 2, "sync_every": choose(1, 1, 4)},
        run={"steps": 12, "replications": 2},
    )


@some.composite
def goals(draw: some.DrawFn) -> Goal:
    """Goals around what such scenarios reach."""
    rate = draw(some.floats(300, 30_000))
    prefer = draw(some.sampled_from(["cheapest", "fastest", "fewest-devices"]))
    kind = draw(some.sampled_from(["throughput", "deadline", "budget", "both"]))
    if kind == "throughput":
        return goal_of(target_throughput=rate, confidence=0.6, prefer=prefer)
    deadline = SAMPLES / rate if kind != "budget" else None
    budget = draw(some.floats(0.05, 5.0)) if kind != "deadline" else None
    return goal_of(samples=SAMPLES, deadline=deadline, budget=budget, confidence=0.6, prefer=prefer)


def value_of(goal: Goal, result: Result) -> float:
    """What is to be small, worked out anew; infinite where the goal is missed."""
    hourly, rates = usd_per_hour(result.scenario), result.throughput_of_each_replication
    sample_s = sum(1 / rate for rate in rates) / len(rates)
    assert hourly is not None
    if min(rates) < required_rate(goal, hourly) * (1 - 1e-12):
        return math.inf
    cost = hourly if goal.samples is None else SAMPLES * sample_s * hourly
    return {"cheapest": cost, "fastest": sample_s, "fewest-devices": float(result.replicas)}[goal.prefer]


def margin_of(goal: Goal, result: Result) -> float:
    return min(result.throughput_of_each_replication) / required_rate(goal, usd_per_hour(result.scenario))


@pytest.mark.slow
@examples(25)
@given(table=tables(), goal=goals())
def test_the_search_finds_the_best_of_all(table: dict[str, Any], goal: Goal) -> None:
    def space() -> Space:
        return space_of(table, workers="1..20")

    everything = [simulate(asked.given) for line in space().lines for asked in line.candidates.values()]
    answer = plan(space(), goal, jobs=1)
    best = min(value_of(goal, result) for result in everything)
    assert answer.feasible == math.isfinite(best)
    if answer.feasible:
        assert value_of(goal, answer.chosen.result) <= best * (1 + 1e-9)
    else:
        # the nearest is looked for among doublings, and then more finely around the best of them
        assert margin_of(goal, answer.chosen.result) >= max(
            margin_of(goal, result) for result in everything if result.replicas in (1, 2, 4, 8, 16, 20)
        )
    assert answer.considered == len(answer.candidates) + answer.discarded + answer.passed_over + sum(
        one.configurations for one in answer.refused
    )


@pytest.mark.slow
def test_full_nodes_are_found_where_partly_used_ones_are_slower() -> None:
    # 16 workers on 4 nodes reach it, 17 to 19 on 5 do not
    link = {"bandwidth": "20 GB/s", "latency": "1 ms"}
    table = scenario_table(
        workload={"batch_per_replica": 32},
        cluster={"inter_node": link, "devices_per_node": 4, "price": {"usd_per_node_hour": 2.0}},
        strategy={"kind": "multi-worker-mirrored", "workers": 2},
        run={"steps": 12, "replications": 2},
    )
    goal = goal_of(target_throughput=24304.0, confidence=0.6)
    space = space_of(table, workers="1..20")
    meeting = [workers for workers, asked in space.lines[0].candidates.items() if math.isfinite(value_of(goal, simulate(asked.given)))]
    assert 16 in meeting
    assert 17 not in meeting
    assert plan(space, goal, jobs=1).chosen.result.replicas == 16
