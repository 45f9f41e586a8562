"""Plans against closed forms and against simulating everything."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path
from typing import Any

import pytest
from support.scenarios import scenario_table

from paceline.planning import Plan, goal_of, plan, space_of
from paceline.planning.goal import Goal, required_rate
from paceline.planning.sentences import IN_WORDS, answer_of_plan
from paceline.planning.space import Space
from paceline.planning.tables import alternatives_of, plan_tables
from paceline.sentences import servers_note, workers_note
from simulator import simulate
from simulator.base.errors import InputError, ResultsError, ScenarioError
from simulator.base.text import written
from simulator.results.cost import cost_of_samples, usd_per_hour
from simulator.results.results import Result
from tests.support.closed_forms import ring_all_reduce_s

RING = {"kind": "multi-worker-mirrored", "workers": 2}
ASYNC = {"kind": "parameter-server", "mode": "async", "workers": 2, "servers": 1}
NO_NETWORK = {"bandwidth": "1000 Tbit/s", "latency": "0 s"}
COMPUTE_S = 3e-3 + 10 * 0.3e-3 + 0.5e-3
JITTER = {"jitter": {"kind": "lognormal", "sigma": 0.1}, "run_to_run_cv": 0.03}


def table(strategy: dict[str, Any], *, price: float | None = 2.0, **parts: Any) -> dict[str, Any]:
    """A small scenario with 19 short replications and a price."""
    priced = {} if price is None else {"price": {"usd_per_node_hour": price}}
    cluster = {**priced, **parts.pop("cluster", {})}
    run = {"replications": 19, "steps": 6, **parts.pop("run", {})}
    return scenario_table(strategy=strategy, cluster=cluster, run=run, **parts)


def planned(space: Space, goal: Goal, **options: Any) -> Plan:
    return plan(space, goal, jobs=1, **options)


# -- closed forms ---------------------------------------------------------------------


@pytest.mark.slow
def test_fewer_devices_that_may_do_and_as_many_as_pay_are_told_beside_the_answer() -> None:
    """Without a network each worker brings as much as the first, so that the most of the range pay; luck makes fewer likely to do."""
    given = table(RING, cluster={"inter_node": NO_NETWORK}, workload={"run_to_run_cv": 0.3, "run_to_run_shared": 1.0})
    goal = goal_of(target_throughput=5.5 * 10 / COMPUTE_S)
    answer = planned(space_of(given, workers="1..16"), goal)
    fewest, most = answer.fewest, answer.most
    assert fewest is not None
    assert most is not None
    assert 0.475 <= fewest.confidence < 0.95 <= answer.chosen.confidence
    assert fewest.result.ranks < answer.chosen.result.ranks < most.result.ranks
    assert most.result.ranks == answer.workers_pay_until
    assert most.meets
    fewer = [point for point in answer.candidates if point.result.ranks < fewest.result.ranks]
    assert all(point.confidence < 0.475 for point in fewer)
    assert {fewest.key, most.key} <= {candidate.key for candidate in alternatives_of(answer)}


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 3, 13, 64])
def test_without_a_network_as_many_workers_are_needed_as_their_rates_add_up_to(workers: int) -> None:
    each = 10 / COMPUTE_S
    target = (workers - 0.4) * each
    answer = planned(space_of(table(RING, cluster={"inter_node": NO_NETWORK})), goal_of(target_throughput=target))
    assert answer.feasible
    assert answer.chosen.result.replicas == workers == math.ceil(target / each)
    assert answer.chosen.usd_per_hour == 2.0 * workers
    assert answer.chosen.confidence == 0.95


@pytest.mark.slow
def test_a_cluster_that_is_taken_whole_says_how_many_of_its_nodes_are_enough() -> None:
    each = 10 / COMPUTE_S
    fixed = space_of(table(RING, cluster={"inter_node": NO_NETWORK, "nodes": 8}), workers="1..8")
    answer = planned(fixed, goal_of(target_throughput=2.6 * each))
    assert re.search(r"cluster\.nodes .* 8 nodes, .* 3 would suffice.*cluster\.available = 8", " ".join(answer.sentences))
    needed = planned(fixed, goal_of(target_throughput=7.6 * each))
    assert "cluster.available" not in " ".join(needed.sentences), "all are needed"
    hours = 1e6 / each / 3600
    dear = planned(fixed, goal_of(samples=1e6, budget=2.0 * hours * 0.5))
    assert not dear.feasible
    assert "cluster.available = 8" in " ".join(dear.sentences)
    assert "of them" not in " ".join(dear.sentences)


def test_a_range_below_the_scenario_s_own_workers_is_planned() -> None:
    given = table({**RING, "workers": 8}, cluster={"inter_node": NO_NETWORK, "available": 4})
    space = space_of(given, workers="1..4", scaling="both")
    assert [list(line.candidates) for line in space.lines] == [[1, 2, 3, 4], [1, 2, 4]]
    assert space.lines[1].first.workload.global_batch == 80, "that of the scenario's own 8 workers, though there are 4 machines"


def test_cost_and_time_of_a_training_are_those_of_the_closed_form() -> None:
    each = 10 / COMPUTE_S
    space = space_of(table(RING, cluster={"inter_node": NO_NETWORK}), workers="1..16")
    answer = planned(space, goal_of(samples=7.2e6, epochs=2, deadline=7.2e6 / (4.6 * each), prefer="fewest-devices"))
    chosen = answer.chosen
    assert chosen.time_s is not None
    assert chosen.cost_usd is not None
    assert chosen.result.replicas == 5
    assert chosen.time_s.mean == pytest.approx(7.2e6 / (5 * each), rel=1e-4)
    assert chosen.cost_usd.mean == pytest.approx(7.2e6 / (5 * each) / 3600 * 2.0 * 5, rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("target", [1700.0, 4000.0, 11000.0])
def test_a_ring_takes_as_many_workers_as_its_closed_form_says(target: float) -> None:
    link = {"bandwidth": "1 GB/s", "latency": "100 us"}
    answer = planned(space_of(table(RING, cluster={"inter_node": link}), workers="1..24"), goal_of(target_throughput=target))

    def rate(workers: int) -> float:
        return workers * 10 / (COMPUTE_S + ring_all_reduce_s(workers, 1e6, 1e9, 1e-4))

    assert answer.chosen.result.replicas == min(n for n in range(1, 25) if rate(n) >= target)
    assert answer.chosen.result.throughput_samples_per_s.mean == pytest.approx(rate(answer.chosen.result.replicas), rel=1e-9)


@pytest.mark.slow
def test_strong_scaling_divides_the_batch_that_the_scenario_has() -> None:
    space = space_of(table(RING, cluster={"inter_node": NO_NETWORK}), workers="1..8", scaling="both")
    assert {line.scaling for line in space.lines} == {"weak", "strong"}
    strong = next(line for line in space.lines if line.scaling == "strong")
    # 2 workers of 10 samples: 20 together, which 1, 2, 4 and 5 divide
    assert {workers: asked.given.batch for workers, asked in strong.candidates.items()} == {1: 20, 2: 10, 4: 5, 5: 4}
    refused = [one for one in space.refused if "strong" in one.name]
    assert [one.configurations for one in refused] == [4]
    assert space.considered == 16
    answer = planned(space, goal_of(target_throughput=9000.0))
    assert "weak scaling" in answer.chosen.name
    assert {candidate.scaling for candidate in answer.candidates} == {"weak", "strong"} or answer.discarded


# -- everything simulated ---------------------------------------------------------------


def simulated_all(space: Space) -> list[tuple[str, Result]]:
    return [(line.title(workers), simulate(asked.given)) for line in space.lines for workers, asked in line.candidates.items()]


def best_of(everything: list[tuple[str, Result]], goal: Goal) -> str | None:
    """The best by definition, worked out anew: the fewest that miss, then what is preferred."""
    meeting = []
    for name, result in everything:
        hourly = usd_per_hour(result.scenario)
        rates = result.throughput_of_each_replication
        reached = sum(rate >= required_rate(goal, hourly) for rate in rates) / (len(rates) + 1)
        if reached < goal.confidence - 1e-9:
            continue
        rate = result.throughput_samples_per_s.mean
        total = goal.samples
        cost = hourly if total is None else cost_of_samples(result, total).mean  # type: ignore[union-attr]
        key = {
            "cheapest": (cost, -rate),
            "fastest": (sum(1 / its for its in rates), hourly),
            "fewest-devices": (result.replicas, hourly, result.scenario.nodes_needed, -rate),
        }[goal.prefer]
        meeting.append((*key, result.scenario.nodes_needed, name))
    return min(meeting)[-1] if meeting else None


NOISY = {**JITTER, "server": {"base": "300 us", "per_byte_s": 1e-10}}
MANY = {
    "variables": [{"name": f"v{index}", "size": "1 MB", "creation_index": index, "ready": (index + 1) / 8} for index in range(8)],
    "server": {"base": "2 ms", "per_byte_s": 0.0},
}
"""Eight variables that take a server 2 ms each."""
GOALS = [
    goal_of(target_throughput=3000.0, confidence=0.8),
    goal_of(target_throughput=6500.0, confidence=0.8),
    goal_of(target_throughput=4000.0, confidence=0.5),
    goal_of(target_throughput=3000.0, prefer="fastest", confidence=0.8),
    goal_of(target_throughput=3000.0, prefer="fewest-devices", confidence=0.8),
    goal_of(samples=1e6, deadline="5 min", confidence=0.8),
    goal_of(samples=1e6, budget="0.45 USD", confidence=0.8),
    goal_of(samples=1e6, budget="0.6 USD", deadline="4 min", prefer="fewest-devices", confidence=0.8),
    goal_of(target_throughput=1e6, confidence=0.8),
]


@pytest.fixture(scope="module")
def noisy() -> tuple[dict[str, Any], list[tuple[str, Result]]]:
    scenario = table(ASYNC, workload=NOISY, run={"replications": 4})
    space = space_of(scenario, strategies=["ring", "async-ps", "sync-ps"], servers=[1], workers=range(1, 9), scaling="weak")
    return scenario, simulated_all(space)


@pytest.mark.slow
@pytest.mark.parametrize("goal", GOALS, ids=range(len(GOALS)))
def test_the_chosen_one_is_the_best_of_all(goal: Goal, noisy: tuple[dict[str, Any], list[tuple[str, Result]]]) -> None:
    scenario, everything = noisy
    space = space_of(scenario, strategies=["ring", "async-ps", "sync-ps"], workers=range(1, 9))
    answer = planned(space, goal)
    best = best_of(everything, goal)
    assert answer.feasible == (best is not None)
    if best is not None:
        assert answer.chosen.name == best
    names = {candidate.name for candidate in answer.candidates}
    assert answer.considered == 24 == len(names) + answer.discarded + answer.passed_over


@pytest.mark.slow
@pytest.mark.parametrize("goal", [GOALS[0], *GOALS[3:5], *(pytest.param(goal, marks=pytest.mark.long) for goal in GOALS[1:3])])
def test_a_search_finds_what_a_list_finds(goal: Goal, noisy: tuple[dict[str, Any], list[tuple[str, Result]]]) -> None:
    scenario, everything = noisy
    space = space_of(scenario, strategies=["ring", "async-ps", "sync-ps"], workers="1..8")
    assert planned(space, goal).chosen.name == best_of(everything, goal)


@pytest.mark.slow
def test_nothing_that_is_discarded_would_have_been_better() -> None:
    scenario = table(ASYNC, workload={"server": {"base": "300 us", "per_byte_s": 1e-10}}, run={"replications": 3})
    space = space_of(scenario, strategies=["ring", "async-ps"], workers=range(1, 9))
    everything = simulated_all(space)
    discarded = {"misses": 0, "too slow": 0}
    for target in (1000.0, 7000.0):
        goal = goal_of(target_throughput=target, prefer="fastest", confidence=0.75)
        answer = planned(space, goal)
        simulated = {candidate.name for candidate in answer.candidates}
        best = answer.chosen.result.throughput_samples_per_s.mean
        for name, result in everything:
            if name not in simulated:
                meets = best_of([(name, result)], goal) is not None
                discarded["too slow" if meets else "misses"] += 1
                assert not meets or result.throughput_samples_per_s.mean * 1.5 < best
    assert all(discarded.values())


# -- what cannot be ---------------------------------------------------------------------


def test_an_infeasible_goal_gets_the_nearest_and_what_it_lacks() -> None:
    space = space_of(table(RING, cluster={"inter_node": NO_NETWORK}), workers="1..16")
    answer = planned(space, goal_of(target_throughput=32 * 10 / COMPUTE_S))
    assert not answer.feasible
    assert answer.chosen.result.replicas == 16
    assert answer.chosen.confidence == 0.0
    assert not answer.chosen.meets
    assert "2 times too slow" in answer.sentences[0]
    said = answer_of_plan(answer)
    assert said.met is False
    assert said.headline.startswith("Nothing reaches ")
    assert any("most workers that the range allows" in note for note in answer.notes)


@pytest.mark.parametrize(
    ("times", "said"), [(1.9, "2x device would reach the goal."), (2.5, "No single improvement tried reaches the goal.")]
)
def test_what_would_reach_a_goal_alone_is_named(times: float, said: str) -> None:
    space = space_of(table(RING, cluster={"inter_node": NO_NETWORK}), workers="4")
    answer = planned(space, goal_of(target_throughput=times * 4 * 10 / COMPUTE_S))
    assert sum(said in text for text in answer.sentences) == 1


@pytest.mark.parametrize("bandwidth", ["1 Gbit/s", "2 Gbit/s", "4 Gbit/s"])
def test_what_a_change_brings_is_told_by_one_number(bandwidth: str) -> None:
    draws = [[per_sample_s] for per_sample_s in (1e-4, 3e-4, 9e-4) * 7]
    load = {"uncertainty": {"parameters": ["backward.per_sample_s"], "draws": draws}}
    space = space_of(table(RING, workload=load, cluster={"inter_node": {"bandwidth": bandwidth, "latency": "20 us"}}), workers="4")
    answer = planned(space, goal_of(target_throughput=100.0))
    limit, text = answer.chosen.result.bottleneck, answer_of_plan(answer).limit
    assert limit.tried, "a short trial told the limit"
    assert text.startswith(limit.in_words)
    gained = [one for one in answer.improvements if f"{IN_WORDS.get(one.name, one.name)}: " in text]
    assert gained or bandwidth != "4 Gbit/s"
    changes = re.findall(r"([+−]\d[\d.]*%)", text)
    assert changes == [written(one.gain, "change") for one in gained] or not gained


@pytest.mark.slow
@pytest.mark.parametrize(
    ("replications", "asked", "target", "said"),
    [
        (19, 0.95, 1000, "at least 95% to reach the goal"),
        (19, 0.8, 1000, "at least 95% to reach the goal"),
        (9, 0.9, 1000, "at least 90% to reach the goal"),
        (19, 0.95, 1e9, "0% to reach the goal"),
    ],
)
def test_the_most_confidence_that_so_many_runs_can_show_is_called_that(replications: int, asked: float, target: float, said: str) -> None:
    scenario = table(RING, cluster={"inter_node": NO_NETWORK}, run={"replications": replications})
    answer = planned(space_of(scenario, workers="2"), goal_of(target_throughput=target, confidence=asked))
    assert answer_of_plan(answer).confidence.startswith(said)


@pytest.mark.slow
def test_what_needs_more_nodes_than_there_are_says_so_wherever_it_is_named() -> None:
    variables = [{"name": f"v{index}", "size": "1 kB", "creation_index": index, "ready": (index + 1) / 4} for index in range(4)]
    load = {"variables": variables, "server": {"base": "5 ms", "per_byte_s": 0.0}}
    space = space_of(table(ASYNC, workload=load, cluster={"nodes": 4, "inter_node": NO_NETWORK}, run={"steps": 20}), workers="1..16")
    # one server makes a step every 20 ms, two every 10 ms, and three workers ask for one every 6.5 / 3 ms
    answer = planned(space, goal_of(target_throughput=10 / 11e-3))
    assert (answer.feasible, answer.chosen.result.scenario.workers, answer.chosen.nodes) == (False, 3, 4)
    assert "one more PS (1 node more than cluster.nodes gives)" in answer_of_plan(answer).limit
    better = {one.name: one for one in answer.improvements}
    assert better["one more PS"].text.startswith("1 to 2 parameter servers ")
    assert "1 node more than cluster.nodes gives" in better["one more PS"].text
    assert {name for name, one in better.items() if "cluster.nodes" in one.text} == {"one more PS"}
    assert {its.workers: its.nodes for its in answer.workers} == {1: 4, 2: 4, 3: 4, 4: 5}
    assert {its.servers: its.nodes for its in answer.servers} == {1: 4, 2: 5, 3: 6, 4: 7}
    assert servers_note(answer).startswith("4 parameter servers (3 nodes more than cluster.nodes gives) ")
    tables = {its.name: its for its in plan_tables(answer)}
    for name, beyond in (("plan-workers", [False, False, False, True]), ("plan-servers", [False, True, True, True])):
        places = [str(row[-1]) for row in tables[name].rows]
        assert ["more than cluster.nodes gives" in place for place in places] == beyond
    assert any("most workers that cluster.nodes (4) allows: 3;" in note for note in answer.notes)


@pytest.mark.slow
def test_workers_pay_up_to_more_nodes_than_there_are_and_that_is_said() -> None:
    answer = planned(
        space_of(table(ASYNC, cluster={"nodes": 4, "inter_node": NO_NETWORK}), workers="1..16"), goal_of(target_throughput=4000)
    )
    assert (answer.chosen.result.scenario.workers, answer.workers_pay_until) == (3, 4)
    assert "up to 4 (1 node more than cluster.nodes gives)" in workers_note(answer)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cluster", "batch", "workers", "note"),
    [
        ({}, {}, "1..3", "the range allows: 3;"),
        ({"nodes": 8}, {}, "1..3", "the range allows: 3;"),
        ({"nodes": 3}, {}, "1..8", "cluster.nodes (3) allows: 3;"),
        ({}, {"batch_per_replica": None, "global_batch": 4}, "1..8", "are possible: 4;"),
    ],
)
def test_an_answer_with_the_most_workers_says_what_keeps_it_from_more(
    cluster: dict[str, Any], batch: dict[str, Any], workers: str, note: str
) -> None:
    space = space_of(table(RING, workload=batch, cluster={"inter_node": NO_NETWORK, **cluster}), workers=workers)
    answer = planned(space, goal_of(target_throughput=1e9))
    assert any(f"the most workers that {note}" in told for told in answer.notes)


def test_a_server_that_limits_has_the_nearest_below_the_most_workers() -> None:
    # all-reduce slower with every worker, so that the nearest lies in between
    slow = {"inter_node": {"bandwidth": "1 GB/s", "latency": "1 ms"}, "price": {"usd_per_node_hour": 1.0}}
    space = space_of(table(RING, workload={"batch_per_replica": None, "global_batch": 64}, cluster=slow), workers="1..64")
    answer = planned(space, goal_of(target_throughput=1e5))

    def rate(workers: int) -> float:
        return 64 / (3.5e-3 + 64 / workers * 0.3e-3 + ring_all_reduce_s(workers, 1e6, 1e9, 1e-3))

    assert not answer.feasible
    assert answer.chosen.result.replicas == max((1, 2, 4, 8, 16, 32, 64), key=rate)


@pytest.mark.slow
@pytest.mark.parametrize(("budget", "deadline"), [(0.1, 60.0), (0.2, 150.0)])
def test_the_nearest_of_several_strategies_is_the_nearest_of_all(
    budget: float, deadline: float, noisy: tuple[dict[str, Any], list[tuple[str, Result]]]
) -> None:
    # the strategy with the nearest of all doublings is not the one with the nearest of all: those of others are looked between too
    scenario, everything = noisy
    goal = goal_of(samples=1e6, budget=budget, deadline=deadline, confidence=0.8)
    margins = {
        name: min(result.throughput_of_each_replication) / required_rate(goal, usd_per_hour(result.scenario)) for name, result in everything
    }
    answer = planned(space_of(scenario, strategies=["ring", "async-ps", "sync-ps"], workers="1..8"), goal)
    assert not answer.feasible
    assert answer.chosen.name == max(margins, key=lambda name: margins[name])


def test_a_confidence_beyond_the_replications_is_refused_with_what_to_do() -> None:
    with pytest.raises(InputError, match=r"`confidence` 0.99 .* 19 replications .* 0.95: .*'run.replications': 99"):
        planned(space_of(table(RING)), goal_of(target_throughput=1.0, confidence=0.99))


def test_a_budget_without_a_price_is_refused_and_the_cheapest_becomes_the_smallest() -> None:
    with pytest.raises(InputError, match="has no price"):
        planned(space_of(table(RING, price=None)), goal_of(samples=1e6, budget="5 USD"))
    answer = planned(space_of(table(RING, price=None), workers=[1, 2, 3]), goal_of(samples=1e6, deadline="1h"))
    assert answer.goal.prefer == "fewest-devices"
    assert answer.chosen.cost_usd is None
    assert answer.chosen.time_s is not None
    assert answer.pareto == ()
    assert any("has no price" in note for note in answer.notes)


def test_clusters_without_a_price_come_after_those_with_one(tmp_path: Path) -> None:
    text = 'name = "{0}"\nschema_version = 1\n{1}\n[inter_node]\nbandwidth = "100 GB/s"\n'
    (tmp_path / "free.toml").write_text(text.format("free", ""))
    (tmp_path / "dear.toml").write_text(text.format("dear", "price = { usd_per_node_hour = 9.0 }"))
    names = [str(tmp_path / "free.toml"), str(tmp_path / "dear.toml")]
    answer = planned(space_of(table(RING), clusters=names, workers=[2, 3]), goal_of(samples=1e6, deadline="1h"))
    assert answer.chosen.result.scenario.cluster.name == "dear"
    assert {candidate.result.scenario.cluster.name for candidate in answer.candidates} == {"free", "dear"}
    assert any("'free' has no price" in note for note in answer.notes)


def test_devices_are_not_compared_by_a_workload_that_names_none() -> None:
    goal = goal_of(target_throughput=1.0)
    with pytest.raises(InputError, match=r"\('Tesla K80 \(one die\)', 'Tesla V100-SXM2'\)"):
        planned(space_of(table(RING), clusters=["p2.xlarge", "p3.2xlarge"], workers=[1]), goal)
    same = planned(space_of(table(RING), clusters=["p3.2xlarge", "p3.8xlarge"], workers=[1]), goal)
    assert any("names no device" in note and "'Tesla V100-SXM2'" in note for note in same.notes)


@pytest.mark.slow
def test_one_factor_given_by_hand_is_not_used_for_several_devices() -> None:
    goal = goal_of(target_throughput=1.0)
    moved = {"calibrated": {"batch": [1, 64], "device": "Own chip"}, "moved": {"factor": [0.2, 0.4], "source": "guess"}}
    told = r"\(0.2 to 0.4\) for 'plain', .* \('Tesla T4', 'Tesla V100-SXM2'\)"
    with pytest.raises(InputError, match=told):
        planned(space_of(table(RING, workload=moved), clusters=["g4dn.xlarge", "p3.2xlarge"], workers=[1]), goal)
    same = planned(space_of(table(RING, workload=moved), clusters=["p3.2xlarge", "p3.8xlarge"], workers=[1]), goal)
    assert {its.result.moved.to_device for its in same.candidates} == {"Tesla V100-SXM2"}


@pytest.mark.slow
def test_devices_that_differ_in_memory_alone_are_one_and_what_was_taken_for_granted_is_told(tmp_path: Path) -> None:
    text = 'name = "{0}"\nschema_version = 1\n{1}\n[inter_node]\nbandwidth = "100 GB/s"\n'
    for name, device in (("small", "V100-SXM2-16GB (GPU)"), ("large", "V100-SXM2-32GB"), ("bare", "")):
        (tmp_path / f"{name}.toml").write_text(text.format(name, f'device = "{device}"' if device else ""))
    files = {name: str(tmp_path / f"{name}.toml") for name in ("small", "large", "bare")}
    goal = goal_of(target_throughput=1.0)
    both = planned(space_of(table(RING, price=None), clusters=[files["small"], files["large"]], workers=[1]), goal)
    assert any("'V100-SXM2-16GB (GPU)'" in note for note in both.notes)
    there = {"calibrated": {"batch": [1, 64], "device": "Tesla V100-SXM2"}}
    mixed = planned(space_of(table(RING, price=None, workload=there), clusters=[files["large"], files["bare"]], workers=[1]), goal)
    assert any("'bare' names no device" in note and "'Tesla V100-SXM2'" in note for note in mixed.notes)
    alone = planned(space_of(table(RING, price=None, workload=there), clusters=[files["bare"]], workers=[1]), goal)
    assert not any("is taken to have" in note for note in alone.notes)


def test_servers_for_a_strategy_without_any_are_refused() -> None:
    with pytest.raises(InputError, match=r"`servers` '1,2'"):
        space_of(table(RING), strategies=["ring"], servers=[1, 2])
    assert len(space_of(table(RING), strategies=["ring", "async-ps"], servers=[1], workers=[1]).lines) == 2


@pytest.mark.slow
def test_of_as_many_devices_without_a_price_fewer_nodes_come_first() -> None:
    space = space_of(table(ASYNC, price=None, workload=MANY, run={"replications": 2}), servers=[1, 2], workers=[4])
    answer = planned(space, goal_of(target_throughput=1.0, confidence=0.6))
    assert answer.goal.prefer == "fewest-devices"
    # the second server makes it faster, and takes a node of its own
    assert answer.runners_up[0].result.throughput_samples_per_s.mean > answer.chosen.result.throughput_samples_per_s.mean
    assert (answer.chosen.result.scenario.servers, answer.runners_up[0].result.scenario.servers) == (1, 2)
    assert answer_of_plan(answer).headline.startswith("Fewest devices: async PS, 1 server")


def test_an_unknown_cluster_and_a_range_too_wide_are_refused() -> None:
    with pytest.raises(ScenarioError, match=r"`clusters` 'ethernet-26g'"):
        space_of(table(RING), clusters=["ethernet-26g"])
    with pytest.raises(InputError, match="400,000 configurations"):
        space_of(table(RING), workers="1..100000", scaling="both", over=[("run.seed", [1, 2])])
    with pytest.raises(InputError, match=r"`over` strategy.workers and `workers`"):
        space_of(table(RING), workers="1..4", over=[("strategy.workers", [1, 2])])


def test_what_breaks_a_rule_is_refused_by_name_and_counted() -> None:
    space = space_of(table(ASYNC), strategies=["async-ps", "mirrored"], servers=[1, 2], workers=[1, 2])
    # one variable cannot be spread over two servers; one device a node has no second replica
    assert {one.configurations for one in space.refused} == {1, 2}
    assert space.considered == 4 + 2
    texts = " ".join(one.text for one in space.refused)
    assert "must be at most 1, the number of the workload's variables" in texts
    assert "strategy.replicas (2) must be at most 1, " in texts
    with pytest.raises(ScenarioError, match="at most 1, the number of the workload's variables"):
        space_of(table(ASYNC), servers=[2], workers=[1])


def test_a_batch_that_does_not_fit_is_refused_where_memory_is_known() -> None:
    fit = {"relative_residual": 0.0, "peak_memory_bytes": {"8": 20e9, "16": 30e9}}
    space = space_of(
        table(RING, workload={"batch_per_replica": 16, "fit": fit}, cluster={"device": "Tesla V100-SXM2-32GB"}),
        over=[("workload.batch_per_replica", [8, 16, 20])],
        workers=[2],
    )
    answer = planned(space, goal_of(target_throughput=1.0))
    assert [one.configurations for one in answer.refused] == [1]
    # 32.6 GiB by what was measured, and what the framework keeps to itself
    assert "a batch of 20 samples needs about 33.6 GiB" in answer.refused[0].text
    assert not any("was not checked" in note for note in answer.notes)


# -- around the answer --------------------------------------------------------------------


@pytest.mark.slow
def test_servers_are_enough_where_more_gain_little() -> None:
    scenario = table(ASYNC, workload=MANY, cluster={"inter_node": NO_NETWORK}, run={"replications": 2, "steps": 20})
    answer = planned(space_of(scenario, workers=[4], servers=[1, 2]), goal_of(target_throughput=1.0, confidence=0.6))
    counts = {count.servers: count.throughput_samples_per_s.mean for count in answer.servers}
    # 8 variables of 2 ms each: 16 ms of one server's time a step, whoever asks
    assert counts[1] == pytest.approx(10 / 16e-3, rel=0.05)
    assert counts[2] == pytest.approx(10 / 8e-3, rel=0.05)
    assert answer.servers_enough is not None
    enough = answer.servers_enough
    assert all(rate < 1.02 * counts[enough] for servers, rate in counts.items() if servers > enough)
    below = [servers for servers in counts if servers < enough]
    assert all(any(counts[other] >= 1.02 * counts[servers] for other in counts if other > servers) for servers in below)


def test_adding_workers_stops_paying_where_a_doubling_brings_less_than_half_again_as_much() -> None:
    load = {"server": {"base": "1 ms", "per_byte_s": 0.0}}
    # one server of 1 ms a step: from about 8 workers of 8 ms a step on it is the limit
    scenario = table(ASYNC, workload=load, cluster={"inter_node": NO_NETWORK}, run={"replications": 2, "steps": 20})
    answer = planned(space_of(scenario, workers=[4, 32]), goal_of(target_throughput=1000.0, confidence=0.6))
    rates = {count.workers: count.throughput_samples_per_s.mean for count in answer.workers}
    until = answer.workers_pay_until
    assert until is not None
    assert rates[2 * until] < 1.5 * rates[until]
    chain = [count for count in rates if count <= until]
    assert all(rates[after] >= (1 + (after / before - 1) / 2) * rates[before] for before, after in itertools.pairwise(chain))
    assert until == 8  # a step of 7 ms, one of which the server's: 7 workers keep it busy


@pytest.mark.slow
def test_the_front_holds_what_no_other_beats_on_both_sides(noisy: tuple[dict[str, Any], list[tuple[str, Result]]]) -> None:
    scenario, _ = noisy
    answer = planned(
        space_of(scenario, strategies=["ring", "async-ps"], workers=range(1, 9)), goal_of(samples=1e6, deadline="10 min", confidence=0.8)
    )
    pairs = [(c.time_s.mean, c.cost_usd.mean) for c in answer.candidates if c.time_s and c.cost_usd]
    front = [(c.time_s.mean, c.cost_usd.mean) for c in answer.pareto if c.time_s and c.cost_usd]
    assert front == sorted(front)
    assert front == sorted(one for one in pairs if not any(other[0] <= one[0] and other[1] <= one[1] and other != one for other in pairs))


@pytest.mark.slow
def test_an_asynchronous_answer_says_how_stale_it_is_and_what_the_best_without_is() -> None:
    load = {**JITTER, "server": {"base": "50 us", "per_byte_s": 0.0}}
    few = table(ASYNC, workload=load, run={"replications": 2})
    space = space_of(few, strategies=["async-ps", "sync-ps"], workers=[8])
    answer = planned(space, goal_of(target_throughput=1000.0, prefer="fastest", confidence=0.6))
    stale = answer.chosen.result.staleness
    assert answer.chosen.name.startswith("async PS")
    assert stale.max > 0
    (row,) = (figure for figure in answer_of_plan(answer).figures if figure.what == "staleness")
    assert (row.mean, row.note) == (written(stale.mean, "updates"), f"updates, p95 {stale.p95:g}")
    assert "stale" in answer.why
    ssp = planned(
        space_of(few, strategies=["async-ps", "ssp", "sync-ps"], workers=[8]),
        goal_of(target_throughput=1000.0, prefer="fastest", confidence=0.6),
    )
    assert ssp.runners_up[0].result.staleness.max > 0
    assert re.search(r" sync PS, 1 server on lab, 8 workers, weak scaling: \d+(\.\d)?% lower throughput\.$", ssp.why)
    grid = plan_tables(answer)[-1]
    place = [column.title for column in grid.columns].index("Staleness (updates)")
    assert [row[place] for row in grid.rows] == [f"{written(stale.mean, 'updates')}, p95 {stale.p95:,}", None]
    alone = planned(space_of(few, workers=[8]), goal_of(target_throughput=5000.0, confidence=0.6))
    assert "no other simulated configuration" in alone.why
    synchronous = planned(space_of(few, strategies=["sync-ps"], workers=[8]), goal_of(target_throughput=5000.0, confidence=0.6))
    assert not any(word in " ".join((*synchronous.sentences, synchronous.why)) for word in ("stale", "updates old"))


# -- the answer as data -------------------------------------------------------------------


@pytest.mark.slow
def test_a_plan_survives_its_json_and_does_not_depend_on_the_number_of_jobs(tmp_path: Path) -> None:
    def space() -> Space:
        return space_of(table(RING, workload=JITTER), strategies=["ring", "sync-ps"], workers="1..8")

    goal = goal_of(target_throughput=5000.0)
    alone = planned(space(), goal, out=tmp_path / "one.ndjson")
    both = plan(space(), goal, jobs=2, out=tmp_path / "two.ndjson")
    assert alone.to_json() == both.to_json()
    assert (tmp_path / "one.ndjson").read_bytes() == (tmp_path / "two.ndjson").read_bytes()
    assert Plan.model_validate_json(alone.to_json()) == alone
    assert len((tmp_path / "one.ndjson").read_bytes().splitlines()) == alone.simulated
    assert alone.chosen == alone.candidates[0]


@pytest.mark.slow
def test_an_interrupted_plan_goes_on_and_another_one_is_noticed(tmp_path: Path) -> None:
    out = tmp_path / "plan.ndjson"
    goal = goal_of(target_throughput=5000.0)
    whole = planned(space_of(table(RING), workers="1..8"), goal, out=out)
    content = out.read_bytes()
    lines = content.splitlines(keepends=True)
    out.write_bytes(b"".join(lines[:2]) + lines[2][:100])
    assert planned(space_of(table(RING), workers="1..8"), goal, out=out) == whole
    assert out.read_bytes() == content
    other = table(RING, workload={"batch_per_replica": 11})
    with pytest.raises(ResultsError, match=r"plan.ndjson:1: .*another plan or sweep"):
        planned(space_of(other, workers="1..8"), goal, out=out)
    assert out.read_bytes() == content
    planned(space_of(other, workers="1..8"), goal, out=out, force=True)
    assert out.read_bytes() != content
