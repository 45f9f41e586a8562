"""Buckets, batches and software that a plan chooses by: against simulating everything, and as a person asks for them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.layered import layered
from support.scenarios import scenario_table

from paceline.planning import Goal, Plan, goal_of, plan, space_of
from paceline.planning.configurations import Configuration
from paceline.planning.planner import _compared_with_real_runs, _smallest_batch
from paceline.planning.search import best_bucket, can_fuse, may_be_fastest, with_bucket, with_buckets
from paceline.planning.space import Line
from simulator import scenario_from_table, simulate
from simulator.base.errors import InputError
from simulator.resolve.resolve import Asked
from simulator.results.results import Result
from simulator.scenario import Scenario
from simulator.spec.figures import Estimate
from simulator.spec.uncertainty import AppliedDiscrepancy

VARIABLES = [{"name": f"v{place}", "size_bytes": 1e6, "creation_index": place, "ready": (place + 1) / 12} for place in range(12)]
"""12 MB of gradients, ready one after the other: in one bucket nothing is reduced before the backward pass has ended."""
RING = {"kind": "multi-worker-mirrored", "workers": 4, "bucket_size": "25 MB"}
GOAL = goal_of(target_throughput=100.0, prefer="fastest", confidence=0.7)


def table(**strategy: Any) -> dict[str, Any]:
    return scenario_table(
        workload={
            "variables": VARIABLES,
            "forward": {"base": "5 ms", "per_sample": "0 s"},
            "backward": {"base": "40 ms", "per_sample": "0 s"},
        },
        cluster={"inter_node": {"bandwidth": "400 MB/s", "latency": "50 us"}},
        strategy={**RING, **strategy},
        run={"replications": 3, "steps": 20},
    )


def scenario(**strategy: Any) -> Scenario:
    return scenario_from_table(table(**strategy), "test")


def each(scenarios: Any) -> list[Result]:
    return [simulate(its) for its in scenarios]


def planned(given: dict[str, Any], goal: Goal = GOAL, **options: Any) -> Plan:
    return plan(space_of(given, **{"workers": [4], **options}), goal, jobs=1)


@pytest.mark.slow
def test_one_bucket_hides_nothing_and_the_plan_says_which_size_does() -> None:
    """As a hand calculation has it: 45 ms and 2 x 3/4 x 12 MB / 400 MB/s = 45 ms besides; in pieces most of that is hidden."""
    whole = simulate(scenario())
    assert whole.breakdown_s.exposed_communication == pytest.approx(1.5 * 12e6 / 400e6 + 6 * 50e-6, rel=0.01)
    rates = {size: simulate(with_bucket(scenario(), size)).throughput_samples_per_s.mean for size in (2.0**20, 2.0**21, 2.0**22)}
    best = best_bucket(scenario(), whole, each)
    assert best.throughput_samples_per_s.mean >= max(rates.values())
    assert best.throughput_samples_per_s.mean > 1.5 * whole.throughput_samples_per_s.mean
    answer = planned(table())
    assert answer.chosen.result.throughput_samples_per_s.mean == best.throughput_samples_per_s.mean
    assert ", buckets of " in answer.chosen.name
    assert answer.for_tuning > 0
    assert any(", buckets of " not in its.name for its in answer.candidates), "the scenario's own size is compared with it"


@pytest.mark.slow
def test_a_bucket_that_is_set_is_kept() -> None:
    answer = planned(table(), settings=[("strategy.bucket_size", "25 MB")])
    assert answer.for_tuning == 0
    assert {its.result.scenario.strategy.bucket_size_bytes for its in answer.candidates} == {25e6}


@pytest.mark.slow
def test_a_what_if_tries_other_buckets() -> None:
    answer = planned(table(), settings=[("strategy.bucket_size", "25 MB")])
    other = next(its for its in answer.improvements if its.name == "other buckets")
    assert other.gain is not None
    assert other.gain > 0.5
    assert "instead of buckets of 23.8419 MiB" in other.text


def test_only_what_is_near_the_fastest_of_some_short_runs_goes_on() -> None:
    asked: list[Scenario] = []

    def noted(scenarios: Any) -> list[Any]:
        asked.extend(scenarios)
        return [SimpleNamespace() if its.strategy.bucket_size_bytes == 2.0**19 else simulate(its) for its in scenarios]

    sizes = [2.0**18, 2.0**19, 2.0**20, 2.0**21, 2.0**24]
    others = [
        scenario_from_table({**table(bucket_size=f"{size:.0f} B"), "run": {"replications": 19, "steps": 60}}, "test") for size in sizes
    ]
    left = {its.strategy.bucket_size_bytes: its for its in may_be_fastest(others, noted)}
    assert {(its.run.replications, its.run.steps - its.run.warmup) for its in asked} == {(3, 10)}
    rates = {size: simulate(its).throughput_samples_per_s.mean for size, its in zip(sizes, others, strict=True)}
    assert left.keys() == {2.0**19, max(rates, key=lambda size: rates[size])}, "one that failed goes on, and fails again"
    assert left[2.0**19] is others[1]
    assert len(may_be_fastest(others, noted, within=10.0)) == len(others)
    asked.clear()
    assert may_be_fastest([scenario(), scenario(bucket_size="1 MB")], noted)
    assert not asked, "three replications are no more than a heat of them"


@pytest.mark.slow
def test_short_runs_are_no_part_of_the_plan(tmp_path: Path) -> None:
    out = tmp_path / "plan.ndjson"
    given = {**table(), "run": {"replications": 7, "steps": 40}}
    answer = plan(space_of(given, workers=[4]), GOAL, jobs=1, out=out)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert answer.for_tuning > 0
    assert answer.simulated == len(rows)
    assert {row["scenario"]["run"]["replications"] for row in rows} == {7}


def test_what_has_no_buckets_is_not_tuned() -> None:
    for its in (
        scenario_from_table({**table(), "strategy": {"kind": "multi-worker-mirrored", "workers": 4, "sync_every": 2}}, "test"),
        scenario(workers=1),
        scenario_from_table({**table(), "strategy": {"kind": "gossip", "workers": 4}}, "test"),
    ):
        assert not can_fuse(its)
        assert with_buckets(its) == []


@pytest.mark.slow
def test_an_untried_kind_does_not_win_by_a_missing_error() -> None:
    """Gossip has no error of its own, and takes that of the nearest kind: its confidence is no better founded than a ring's."""
    given = table()
    del given["discrepancy"]  # which leaves that of each regime
    answer = planned(given, goal_of(target_throughput=100.0, confidence=0.7), strategies=["gossip", "ring"], workers=[1])
    assert answer.chosen.name.startswith("ring")
    both = planned(given, goal_of(target_throughput=100.0, prefer="fastest", confidence=0.7), strategies=["gossip", "ring"])
    found = {its.strategy: its.best.result for its in both.strategies if its.best is not None}
    assert found["gossip"].discrepancy.borrowed
    assert not found["ring"].discrepancy.borrowed
    for result in found.values():
        rate = result.throughput_samples_per_s
        assert rate.high / rate.low > 1.1
    assert "no real run of this kind" in found["gossip"].discrepancy.coverage_in_words


@pytest.mark.slow
def test_an_untried_kind_is_not_the_answer_for_a_better_mean() -> None:
    """What gossip hides, a ring waits for: its mean is better, its interval reaches further down, and the ring comes first."""
    given = table()
    del given["discrepancy"]
    given["cluster"]["inter_node"] = {"bandwidth": "1 Gbit/s", "latency": "50 us"}
    given["workload"] |= {
        "variables": [{"name": f"v{at}", "size_bytes": 1e5, "creation_index": at, "ready": (at + 1) / 8} for at in range(8)]
    }
    answer = planned(given, goal_of(target_throughput=50.0, prefer="fastest", confidence=0.7), strategies=["ring", "gossip"], workers=[4])
    found = {its.strategy: its.best.result.throughput_samples_per_s for its in answer.strategies if its.best is not None}
    assert found["gossip"].mean > found["ring"].mean
    assert found["gossip"].low / found["gossip"].mean < found["ring"].low / found["ring"].mean
    assert answer.chosen.name.startswith("ring")
    assert re.fullmatch(r"gossip .* on 4 nodes .* higher throughput, but was never compared with real runs", answer.doubts[0])


@pytest.mark.parametrize(("low", "first"), [(0.0, "ring"), (150.0, "ring"), (390.0, "gossip")])
def test_an_untried_kind_is_first_where_its_worst_beats_the_best_of_others(low: float, first: str) -> None:
    """400 samples/s at least ``low``, at a cost of 1, beside a ring of 300 that may be 380 at a cost of 4/3: 380 of it cost as much."""

    def point(kind: str, mean: float, low: float, high: float) -> Any:
        its = (
            scenario(kind=kind)
            if kind == RING["kind"]
            else scenario_from_table({**table(), "strategy": {"kind": kind, "workers": 4}}, "test")
        )
        given = its.model_copy(update={"discrepancy": None})
        applied = AppliedDiscrepancy(borrowed=kind == "gossip")
        result = SimpleNamespace(
            scenario=given, discrepancy=applied, throughput_samples_per_s=Estimate(mean=mean, low=low, high=high), kind=kind
        )
        return SimpleNamespace(result=result, value=400.0 / mean, goal=goal)

    goal = goal_of(target_throughput=1.0, prefer="fastest", confidence=0.7)
    points = [point("gossip", 400.0, low, 420.0), point(RING["kind"], 300.0, 250.0, 380.0)]
    assert _compared_with_real_runs(points) is points[first == "ring"]


@pytest.mark.slow
def test_each_strategy_that_was_asked_for_has_its_line() -> None:
    goal = goal_of(target_throughput=340.0, confidence=0.7)
    answer = planned(table(), goal, strategies=["ring", "async-ps", "mirrored"], workers=[1, 2, 4])
    assert [its.strategy for its in answer.strategies] == ["ring", "async-ps", "mirrored"]
    found = {its.strategy: its for its in answer.strategies}
    assert found["ring"].text == "the answer"
    assert found["async-ps"].best is not None
    assert not found["async-ps"].best.meets
    assert "samples/s" in found["async-ps"].text
    assert "not possible" in found["mirrored"].text or found["mirrored"].best is not None


@pytest.mark.slow
def test_only_what_the_software_runs_is_taken() -> None:
    answer = planned(table(), strategies=["gossip", "ring"], runs_on=["tensorflow"])
    assert all(its.name.startswith("ring") for its in answer.candidates)
    assert any("TensorFlow does not run it" in its.text for its in answer.refused)


@pytest.mark.slow
def test_batches_are_searched_and_the_price_in_learning_is_named() -> None:
    each_s = {"forward": {"base": "20 ms", "per_sample": "0.1 ms"}}
    given = table()
    given["workload"] = {**given["workload"], **each_s}
    answer = planned(given, batches="8..64")
    assert {its.result.scenario.workload.batch_per_replica for its in answer.candidates} == {8, 16, 32, 64}
    assert answer.chosen.result.scenario.workload.batch_per_replica == 64
    assert any("pays only if it needs less than" in text for text in answer.doubts)


def test_a_larger_batch_that_is_hardly_better_is_not_taken() -> None:
    """Twice the samples in next to twice the time: what a larger batch costs in learning is more than that."""
    given = scenario_table(
        workload={"forward": {"base": "0.1 ms", "per_sample": "10 ms"}, "backward": {"base": "0 s", "per_sample": "0 s"}},
        strategy={"kind": "single"},
        run={"replications": 3, "steps": 20},
    )
    answer = planned(given, goal_of(target_throughput=10.0, prefer="fastest", confidence=0.7), batches=[16, 32, 64])
    assert answer.chosen.result.scenario.workload.batch_per_replica == 16
    assert "except some with a higher expected regret, a larger batch" in answer.why


def test_a_range_of_batches_doubles_and_keeps_its_end() -> None:
    space = space_of(table(), workers=[4], batches="16..100")
    assert sorted(line.first.workload.batch_per_replica or 0 for line in space.lines) == [16, 32, 64, 100]


@pytest.mark.parametrize(
    "options",
    [
        {"settings": [("strategy.bucket_size", "4 MB")]},
        {"settings": [("strategy.bucket_size_bytes", 4e6)]},
        {"settings": [("strategy", {"bucket_size": "4 MB"})]},
        {"over": [("strategy", [{"bucket_size": "4 MB"}])]},
    ],
)
def test_buckets_that_are_given_are_kept_however_they_are_given(options: dict[str, Any]) -> None:
    (line,) = space_of(table(), workers=[4], **options).lines
    assert not line.tunable
    assert line.first.strategy.bucket_bytes == 4e6


def test_what_is_set_of_a_cluster_holds_on_another_one_however_it_is_set() -> None:
    for settings in ([("cluster.available", 3)], [("cluster", {"available": 3})]):
        (line,) = space_of(table(), workers="1..4", clusters=["ethernet-10g"], settings=settings).lines
        assert list(line.candidates) == [1, 2, 3]


def test_the_smaller_of_two_batches_is_that_of_all_replicas() -> None:
    """A pipeline of 8 samples for its one copy takes fewer a step than a ring of 4 workers with 4 each."""
    load = {"workload": layered(batch=8)}
    piped = scenario_from_table({**table(), **load, "strategy": {"kind": "hybrid", "workers": 4, "pipeline": 4}}, "test")
    ring = scenario_from_table({**table(), "workload": layered(batch=4)}, "test")
    lines = [Line(its.strategy.in_words, "lab", (), "lab", "weak", False, 4, {4: Asked.of(its)}) for its in (piped, ring)]
    points: Any = [
        SimpleNamespace(scenario=line.first, value=value, global_batch=Configuration(GOAL, line, 4, None, 1, 1, 1, 1).global_batch)
        for line, value in zip(lines, (1.0, 1.01), strict=True)
    ]
    assert [point.global_batch for point in points] == [8, 16]
    assert _smallest_batch(points) is points[0]
    points[0].value, points[1].value = points[1].value, points[0].value
    assert _smallest_batch(points[::-1]) is points[0]


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"batches": "0..4"}, "whole numbers from 1 on"),
        ({"batches": "many"}, "'many'"),
        ({"batches": "8,16", "scaling": "both"}, "`scaling`"),
        ({"runs_on": ["tensorflo"]}, "did you mean tensorflow"),
        ({"batches": "8,16", "settings": [("workload.batch_per_replica", 4)]}, "set the same numbers"),
        ({"batches": "8,16", "settings": [("workload", {"batch_per_replica": 4})]}, "set the same numbers"),
        ({"settings": [("strategy", {"workers": 3})]}, r"`settings` strategy\.workers: "),
        ({"over": [("strategy", [{"workers": 3}])]}, r"`over` strategy\.workers: "),
    ],
)
def test_batches_that_cannot_be_are_refused(options: dict[str, Any], rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        planned(table(), **options)


@pytest.mark.slow
def test_a_budget_for_machines_that_are_bought_is_what_they_cost_to_buy() -> None:
    given = table()
    given["cluster"] = {**given["cluster"], "price": {"usd_per_node_hour": 0.1, "purchase_usd": 4000.0}}
    goal = goal_of(samples=1e6, budget="9000 USD", confidence=0.7)
    answer = planned(given, goal, workers="1..4")
    assert answer.feasible
    assert answer.chosen.nodes == 2, "two machines cost 8,000 USD to buy, three would cost 12,000"
    none = planned(given, goal_of(samples=1e6, budget="3000 USD", confidence=0.7), workers="1..4")
    assert not none.feasible
    assert "Its machines cost $4,000" in none.sentences[0]
    assert "the budget is $3,000" in none.sentences[0]
