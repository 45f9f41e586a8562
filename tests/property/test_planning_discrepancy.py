"""Plans with a discrepancy: bounds stay bounds, and the search finds what simulating everything finds."""

from __future__ import annotations

import itertools
import math

import pytest
from support.sampling import a_few
from support.scenarios import scenario_table

from paceline.planning import Goal, goal_of, plan, space_of
from paceline.planning.configurations import configurations_of
from paceline.planning.goal import confidence_of, required_rate
from paceline.planning.space import Space
from simulator import simulate
from simulator.results.cost import usd_per_hour
from simulator.results.results import Result
from simulator.spec.uncertainty import relative_error_of

pytestmark = pytest.mark.slow

TERM = {"compute": {"per_doubling": 0.03}, "communication": {"at": 0.25}}
STRATEGIES = [
    {"kind": "multi-worker-mirrored", "workers": 2},
    {"kind": "parameter-server", "mode": "async", "workers": 2, "servers": 1},
    {"kind": "parameter-server", "mode": "sync", "workers": 2, "servers": 1},
]


def spaces(strategy: dict[str, object], bandwidth: str) -> Space:
    table = scenario_table(
        workload={"batch_per_replica": 8, "jitter": {"kind": "lognormal", "sigma": 0.2}, "run_to_run_cv": 0.05},
        cluster={"inter_node": {"bandwidth": bandwidth, "latency": "50 us"}, "price": {"usd_per_node_hour": 2.0}},
        strategy=strategy,
        run={"steps": 12, "replications": 5},
        discrepancy=TERM,
    )
    return space_of(table, workers="1..10")


def sure(goal: Goal, result: Result) -> float:
    needed = required_rate(goal, usd_per_hour(result.scenario))
    return confidence_of(result.throughput_of_each_replication, needed, relative_error_of(result.discrepancy))


@pytest.mark.parametrize(
    ("strategy", "confidence", "bandwidth"), a_few(itertools.product(STRATEGIES, [0.3, 0.8], ["100 MB/s", "2 GB/s"]), 3)
)
def test_the_search_finds_the_best_of_all(strategy: dict[str, object], confidence: float, bandwidth: str) -> None:
    everything = [simulate(its.given) for line in spaces(strategy, bandwidth).lines for its in line.candidates.values()]
    rates = [result.throughput_samples_per_s.mean for result in everything]
    for target in (0.3 * max(rates), 0.7 * max(rates), 0.95 * max(rates), 2 * max(rates)):
        goal = goal_of(target_throughput=target, confidence=confidence)
        meeting = [result for result in everything if sure(goal, result) >= confidence - 1e-12]
        answer = plan(spaces(strategy, bandwidth), goal, jobs=1)
        assert answer.feasible == bool(meeting)
        assert answer.chosen.confidence == sure(goal, answer.chosen.result)
        if meeting:
            least = min(usd_per_hour(result.scenario) or math.inf for result in meeting)
            assert answer.chosen.usd_per_hour == least


@pytest.mark.parametrize(("strategy", "confidence"), a_few(itertools.product(STRATEGIES, [0.2, 0.4, 0.5, 0.8]), 4))
def test_nothing_that_reaches_a_goal_is_discarded(strategy: dict[str, object], confidence: float) -> None:
    space = spaces(strategy, "100 MB/s")
    for line in space.lines:
        for workers, asked in line.candidates.items():
            result = simulate(asked.given)
            goal = goal_of(target_throughput=1.0, confidence=confidence)
            row = next(row for row in configurations_of(line, goal) if row.workers == workers)
            row.outcome = result
            assert row.margin <= row.ceiling * (1 + 1e-9)
