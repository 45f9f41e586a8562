"""Machines that are taken away and come back: their lives against the law, replayed traces against the trace, jobs against Daly."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from support.examples import examples
from support.runs import assert_mean
from support.scenarios import scenario_table

from simulator import scenario_from_table, simulate
from simulator.base.errors import ScenarioError
from simulator.base.rng import Streams
from simulator.job.costs import whole_mtbf_s
from simulator.job.faults import arrivals
from simulator.job.intervals import expected_time_s
from simulator.resolve.resolve import resolve
from simulator.results.cost import usd_per_node_hour
from simulator.scenario import Scenario

HOUR_S = 3600.0
NO_CHANCE = 1e-3


def scenario(nodes: int = 4, samples=1_000_000, run=None, job=None, **faults) -> Scenario:
    """Synchronous workers on a node each, at a dollar an hour, of which all must be there."""
    table = scenario_table(
        workload={"jitter": {"kind": "constant"}, "apply": "0 s"}, strategy={"kind": "multi-worker-mirrored", "workers": nodes},
        cluster={"price": {"usd_per_node_hour": 1.0}}, run=run or {},
    )  # fmt: skip
    table["job"] = {"samples": samples, "startup": "0 s", "tracing": "0 s", **(job or {}), "faults": faults}
    return scenario_from_table(table, "test")


FREE_CHECKPOINTS = {"checkpoint": {"every": "30 min", "size": "1 B", "write": "1000000 TB/s"}}


def samples_of(hours: float, nodes: int = 4) -> int:
    """That so many nodes train in some hours where nothing fails."""
    alone = simulate(scenario(nodes, worker_mtbf="1000000000 h")).job
    return round(1_000_000 * hours * HOUR_S / alone.time_s.mean)


def faults_of(its: Scenario, replication: int = 0):
    """Without end."""
    return arrivals(resolve(its), its.job.faults, Streams(its.run.seed, replication))


# -- laws -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "most_h"), [(0.58, 24.0), (1.0, None), (2.5, 300.0)])
def test_each_node_lives_by_the_law_from_when_it_is_there(shape, most_h):
    """Second lives, which begin when the node is there that came for the first one; all of them, however long."""
    most = {"most": f"{most_h} h"} if most_h else {}
    its = scenario(400, preemption={"mtbf": "210 h", "shape": shape, "replacement": "10 min", **most})
    begun, second = {}, {}
    for one in faults_of(its):
        if one.number in begun:
            second.setdefault(one.number, (one.at_s - begun[one.number]) / HOUR_S)
        else:
            begun[one.number] = one.at_s + 600.0
            assert one.gone_s == pytest.approx(600.0)
        if len(second) == 400:
            break
    law, lives_h = stats.weibull_min(shape, scale=210 / math.gamma(1 + 1 / shape)), np.array(list(second.values()))
    capped = lives_h > (most_h or math.inf) * (1 - 1e-9)
    assert lives_h[capped] == pytest.approx(most_h)
    assert stats.binomtest(int(capped.sum()), 400, law.sf(most_h or math.inf)).pvalue > NO_CHANCE
    assert stats.kstest(lives_h[~capped], lambda hours: law.cdf(hours) / law.cdf(most_h or math.inf)).pvalue > NO_CHANCE


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "most"), [(0.58, "24 h"), (1.0, "100 h"), (3.0, "400 h")])
def test_as_many_are_taken_as_renewal_theory_says(shape, most):
    """One each time that a mean life, a mean wait and what it takes to be there have gone by."""
    life = {"mtbf": "210 h", "shape": shape, "most": most, "notice": "30 s", "wait": "5 h", "replacement": "1 h"}
    its = scenario(50, preemption=life)
    mean_life_s = whole_mtbf_s(its) * 50
    law = stats.weibull_min(shape, scale=210 / math.gamma(1 + 1 / shape))
    hours = float(most.split()[0])
    assert mean_life_s / HOUR_S == pytest.approx(law.expect(lambda life: min(life, hours)), rel=1e-3)
    until_s = 15_000 * HOUR_S
    count = sum(1 for _ in itertools.takewhile(lambda one: one.at_s < until_s, faults_of(its)))
    assert count == pytest.approx(50 * until_s / (mean_life_s + 6 * HOUR_S), rel=0.03)


def test_more_nodes_change_no_life_of_those_that_were_there():
    life = {"mtbf": "5 h", "replacement": "1 min"}
    few = list(itertools.islice(faults_of(scenario(4, preemption=life)), 40))
    many = [one for one in itertools.islice(faults_of(scenario(16, preemption=life)), 400) if one.number < 4]
    assert few == many[:40]


@pytest.mark.statistics
def test_faults_of_the_job_and_of_its_nodes_add_up():
    """Without memory 8 nodes of 80 h and a job of 10 h fail every 5 h: Daly's expected time, within the runs' standard error."""
    found, samples = [], samples_of(30.0, nodes=8)
    for seed in range(20):
        its = scenario(
            8, samples=samples, run={"replications": 20, "seed": seed}, job=FREE_CHECKPOINTS,
            node_mtbf="80 h", job_mtbf="10 h", replacement="10 min", restart="10 min", detection="1 min",
        )  # fmt: skip
        assert whole_mtbf_s(its) == pytest.approx(5 * HOUR_S)
        found.append(simulate(its).job.time_s.mean)
    expected = expected_time_s(30 * HOUR_S, HOUR_S / 2, 0.0, 660.0, 5 * HOUR_S)
    assert_mean(found, expected)


def with_servers(placement: str, preemption, **job) -> Scenario:
    """Two asynchronous workers and a server."""
    table = scenario_table(
        workload={"jitter": {"kind": "constant"}, "apply": "0 s"},
        strategy={"kind": "parameter-server", "mode": "async", "workers": 2, "servers": 1, "server_placement": placement},
    )  # fmt: skip
    table["job"] = {"samples": 10_000_000, "startup": "0 s", "tracing": "0 s", "faults": {"preemption": preemption}, **job}
    return scenario_from_table(table, "test")


def test_servers_stay_where_workers_alone_are_taken():
    """Nodes 0 and 1 hold workers and node 2 the server: the same lives of the workers, with or without that of the server."""
    life = {"mtbf": "5 h", "replacement": "1 min"}
    every, workers = (
        list(itertools.islice(faults_of(with_servers("dedicated", {**life, "of": of})), count))
        for of, count in (("nodes", 600), ("worker-nodes", 300))
    )
    assert {one.number for one in workers} == {0, 1}
    alike = [one for one in every if one.number < 2]
    assert workers[: len(alike)] == alike[:300]
    rates = [1 / whole_mtbf_s(with_servers("dedicated", {**life, "of": of})) for of in ("nodes", "worker-nodes")]
    assert np.multiply(rates, 5 * HOUR_S) == pytest.approx([3.0, 2.0])


def test_a_job_whose_server_stays_loses_no_work():
    """Every update is on the server: with it on a machine that is taken, all since the last checkpoint (there is none) is lost."""
    hours = simulate(with_servers("dedicated", {"mtbf": "1000000000 h", "replacement": "0 s"})).job.time_s.mean / HOUR_S
    life = {"mtbf": f"{hours} h", "replacement": "0 s"}
    stays = simulate(with_servers("dedicated", {**life, "of": "worker-nodes"})).job
    assert stays.faults > 0
    assert stays.parts_s.lost_work == 0.0
    assert stays.time_s.mean == pytest.approx(hours * HOUR_S)  # another is there at once
    assert simulate(with_servers("dedicated", life)).job.parts_s.lost_work > 0.0


def test_servers_beside_workers_go_with_them():
    with pytest.raises(ScenarioError, match="needs servers on nodes of their own; here they are beside workers"):
        with_servers("colocated", {"mtbf": "5 h", "replacement": "0 s", "of": "worker-nodes"})


# -- traces ---------------------------------------------------------------------------------


def there(its: Scenario, times_s: np.ndarray, replication: int = 0) -> np.ndarray:
    """How many nodes are there at each of some times, by what is told of those that go."""
    count = its.layout.nodes
    found = np.full(len(times_s), count)
    for one in itertools.takewhile(lambda one: one.at_s <= times_s[-1], faults_of(its, replication)):
        found -= (times_s >= one.at_s) & (times_s < one.at_s + one.gone_s)
    return found


@examples(40)
@given(levels=st.lists(st.integers(0, 6), min_size=1, max_size=12).filter(lambda levels: max(levels) >= 4), lengths=st.data())
def test_as_many_are_there_as_the_trace_has(levels, lengths):
    spells = [lengths.draw(st.integers(1, 5)) for _ in levels]
    begins = np.cumsum([0, *spells])
    trace = [{"at": f"{at} h", "nodes": level} for at, level in zip(begins, [*levels, 0], strict=True)]
    its = scenario(4, preemption={"available": trace, "replacement": "0 s", "begins": "at-start"})
    hours = np.arange(0.5, 3 * begins[-1])
    expected = [min(levels[int(np.searchsorted(begins, hour % begins[-1], side="right")) - 1], 4) for hour in hours]
    assert there(its, hours * HOUR_S).tolist() == expected


def test_each_run_begins_at_another_place_of_the_trace():
    trace = [{"at": "0 s", "nodes": 4}, {"at": "6 h", "nodes": 2}, {"at": "10 h", "nodes": 0}]
    its = scenario(4, preemption={"available": trace, "replacement": "0 s"})
    first = [there(its, np.array([1.0]), replication)[0] for replication in range(300)]
    assert set(first) == {2, 4}
    assert stats.binomtest(first.count(4), 300, 0.6).pvalue > NO_CHANCE


def test_a_job_that_needs_all_waits_for_them():
    """4 nodes for 3 h, then 2 for 1 h: a job of 8.5 h of steps, with checkpoints that cost nothing, takes 3 + 1 + 3 + 1 + 2.5."""
    trace = [{"at": "0 s", "nodes": 4}, {"at": "3 h", "nodes": 2}, {"at": "4 h", "nodes": 0}]
    its = scenario(
        4, samples=samples_of(8.5), job={"checkpoint": {**FREE_CHECKPOINTS["checkpoint"], "every": "7 s"}}, startup="0 s",
        preemption={"available": trace, "replacement": "0 s", "begins": "at-start"},
    )  # fmt: skip
    assert simulate(its).job.time_s.mean == pytest.approx(10.5 * HOUR_S, abs=2 * 7.0)


def test_nobody_pays_for_nodes_that_are_away():
    """4 nodes for 10.5 h, of which two were away for 1 h twice; a node that crashes and is mended is paid for."""
    trace = [{"at": "0 s", "nodes": 4}, {"at": "3 h", "nodes": 2}, {"at": "4 h", "nodes": 0}]
    often = {"checkpoint": {**FREE_CHECKPOINTS["checkpoint"], "every": "7 s"}}
    taken = {"available": trace, "replacement": "0 s", "begins": "at-start"}
    job = simulate(scenario(4, samples=samples_of(8.5), job=often, startup="0 s", preemption=taken)).job
    assert job.away_node_s == pytest.approx(4 * HOUR_S)
    assert job.cost_usd.mean == pytest.approx(4 * job.time_s.mean / HOUR_S - 4.0)
    crash = [{"at": "3 h", "of": "node", "number": 1}]
    mended = simulate(scenario(4, samples=samples_of(8.5), job=often, startup="0 s", trace=crash, replacement="1 h")).job
    assert mended.time_s.mean == pytest.approx(9.5 * HOUR_S, abs=2 * 7.0)
    assert mended.cost_usd.mean == pytest.approx(4 * mended.time_s.mean / HOUR_S)


def test_a_node_that_never_comes_costs_nothing():
    """One of two asynchronous workers, and the server, whose machine has another price."""
    trace = [{"at": "0 s", "nodes": 1}, {"at": "1 h", "nodes": 0}]
    prices = {"price": {"usd_per_node_hour": 1.0}, "server_price": {"usd_per_node_hour": 0.25}}
    table = with_servers("dedicated", {"available": trace, "replacement": "0 s", "of": "worker-nodes"}).model_dump(
        mode="json", exclude_none=True
    )
    its = scenario_from_table({**table, "cluster": {**table["cluster"], **prices}}, "test")
    job = simulate(its).job
    assert job.cost_usd.mean == pytest.approx(1.25 * job.time_s.mean / HOUR_S)
    # and where a machine of a server is away, its own price is saved
    assert [usd_per_node_hour(its, node) for node in range(3)] == [1.0, 1.0, 0.25]


def test_rates_that_are_not_known_widen_the_interval():
    """Between a quarter and four times, 90% sure: in as many runs as that, faults come so much more or less often."""
    its = scenario(8, node_mtbf="30 h", rates_90=[0.25, 4.0])
    until_s = 3000 * HOUR_S
    counts = [sum(1 for _ in itertools.takewhile(lambda one: one.at_s < until_s, faults_of(its, run))) for run in range(300)]
    times = np.array(counts) / (8 * 100)  # as often as the mean time says; chance alone gives 0.96 to 1.04
    assert stats.binomtest(int(np.count_nonzero((times > 0.25) & (times < 4.0))), 300, 0.9).pvalue > NO_CHANCE
    assert np.median(times) == pytest.approx(1.0, abs=4 * 1.25 * np.log(16) / 3.29 / np.sqrt(300))


@pytest.mark.parametrize(
    ("preemption", "says"),
    [
        ({"replacement": "0 s"}, "neither mtbf nor available"),
        ({"mtbf": "1 h", "replacement": "0 s", "available": [{"at": "0 s", "nodes": 4}, {"at": "1 h", "nodes": 4}]}, "both mtbf and"),
        ({"replacement": "0 s", "available": [{"at": "0 s", "nodes": 4}]}, "available needs two points or more"),
        ({"replacement": "0 s", "available": [{"at": "2 s", "nodes": 4}, {"at": "1 h", "nodes": 4}]}, "the first at 0 s"),
        ({"replacement": "0 s", "available": [{"at": "0 s", "nodes": 0}, {"at": "1 h", "nodes": 4}]}, "no node at any time"),
        ({"replacement": "0 s", "wait": "1 h", "available": [{"at": "0 s", "nodes": 4}, {"at": "1 h", "nodes": 4}]}, "follows no law"),
        ({"replacement": "0 s", "available": [{"at": "0 s", "nodes": 3}, {"at": "1 h", "nodes": 4}]}, "3 nodes at most, and 4 of the"),
    ],
)  # fmt: skip
def test_what_is_no_trace_is_refused(preemption, says):
    with pytest.raises(ScenarioError, match=says):
        scenario(4, preemption=preemption)


def test_a_trace_has_the_nodes_that_a_job_goes_on_with():
    """Elastic workers go on with `min_workers`, asynchronous ones too; servers are needed always, and stand on the last node."""

    def trace(nodes: int, **more):
        return {"available": [{"at": "0 s", "nodes": nodes}, {"at": "1 h", "nodes": 0}], "replacement": "0 s", **more}

    scenario(4, preemption=trace(2), elastic=True, min_workers=2)
    with pytest.raises(ScenarioError, match="1 node at most, and 2 of the"):
        scenario(4, preemption=trace(1), elastic=True, min_workers=2)
    with_servers("dedicated", trace(1, of="worker-nodes"))
    with_servers("dedicated", trace(3))
    with_servers("colocated", trace(1))
    with pytest.raises(ScenarioError, match="2 nodes at most, and 3 of the"):
        with_servers("dedicated", trace(2))
