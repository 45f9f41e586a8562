"""Machines that are taken away and come back: their lives against the law, replayed traces against the trace, jobs against Daly."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from support.daly import expected_time_s
from support.examples import examples
from support.runs import assert_mean
from support.scenarios import scenario_table

from simulator import scenario_from_table, simulate
from simulator.base.errors import ScenarioError, SimulationError
from simulator.base.rng import Streams
from simulator.job.costs import mtbf_s
from simulator.job.faults import arrivals
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
    mean_life_s = mtbf_s(its) * 50
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
        assert mtbf_s(its) == pytest.approx(5 * HOUR_S)
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
    rates = [1 / mtbf_s(with_servers("dedicated", {**life, "of": of})) for of in ("nodes", "worker-nodes")]
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
    with pytest.raises(ScenarioError, match="needs servers on their own nodes; here they share nodes with workers"):
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
        ({"replacement": "0 s", "available": [{"at": "0 s", "nodes": 4}]}, "available needs at least two points"),
        ({"replacement": "0 s", "available": [{"at": "2 s", "nodes": 4}, {"at": "1 h", "nodes": 4}]}, "the first at 0 s"),
        ({"replacement": "0 s", "available": [{"at": "0 s", "nodes": 0}, {"at": "1 h", "nodes": 4}]}, "never has a node"),
        ({"replacement": "0 s", "wait": "1 h", "available": [{"at": "0 s", "nodes": 4}, {"at": "1 h", "nodes": 4}]},
         "trace replaces the dist"),
        ({"replacement": "0 s", "available": [{"at": "0 s", "nodes": 3}, {"at": "1 h", "nodes": 4}]}, "3 nodes, but the strategy needs 4"),
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
    with pytest.raises(ScenarioError, match="at most 1 node, but the strategy needs 2"):
        scenario(4, preemption=trace(1), elastic=True, min_workers=2)
    with_servers("dedicated", trace(1, of="worker-nodes"))
    with_servers("dedicated", trace(3))
    with_servers("colocated", trace(1))
    with pytest.raises(ScenarioError, match="at most 2 nodes, but the strategy needs 3"):
        with_servers("dedicated", trace(2))


# -- nodes that are taken again, and elastic workers -------------------------------------------


@pytest.mark.parametrize(("mode", "hours_s"), [("async", 14_100.0), ("sync", 16_200.0)])
def test_a_node_that_is_taken_while_its_worker_starts_up(mode, hours_s):
    """Of two workers one goes at 1,000 s, is there at 1,100 s, would train at 1,300 s, goes again at 1,150 s and trains at 5,200 s.

    So 4,200 s pass with one worker. Asynchronously it makes half the steps, so that 12,000 s of them take 2,100 s longer; synchronous
    workers wait for all 4,200 s. The node is away, and not paid for, from 1,000 to 1,100 s and from 1,150 to 5,000 s.
    """
    levels = [(0, 2), (1000, 1), (1100, 2), (1150, 1), (5000, 2), (1_000_000, 0)]
    trace = [{"at": f"{at_s} s", "nodes": nodes} for at_s, nodes in levels]
    taken = {"of": "worker-nodes", "available": trace, "replacement": "0 s", "begins": "at-start"}
    table = scenario_table(
        workload={
            "jitter": {"kind": "constant"}, "apply": "0 s",
            "variables": [{"name": "kernel", "size": "1 B", "creation_index": 0, "ready": 1.0}],
        },
        strategy={"kind": "parameter-server", "mode": mode, "workers": 2, "servers": 1, "server_placement": "dedicated"},
        cluster={"price": {"usd_per_node_hour": 1.0}},
    )  # fmt: skip

    def trained(samples: int):
        table["job"] = {
            "samples": samples, "startup": "0 s", "tracing": "0 s", "faults": {"preemption": taken, "startup": "200 s"},
        }  # fmt: skip
        return simulate(scenario_from_table(table, "test")).job

    job = trained(round(12_000 / trained(1_000).time_s.mean * 1_000))
    assert job.parts_s.steps == pytest.approx(12_000, rel=1e-4)
    assert job.time_s.mean == pytest.approx(hours_s, rel=1e-4)
    assert job.faults == 2
    assert job.away_node_s == pytest.approx(100.0 + 3_850.0)
    assert job.cost_usd.mean == pytest.approx((3 * job.time_s.mean - 3_950.0) / HOUR_S)


@pytest.mark.parametrize(
    ("kind", "workers", "away"), [("multi-worker-mirrored", 2, 1), ("multi-worker-mirrored", 4, 3), ("torch-ddp", 2, 1)]
)
def test_an_elastic_job_that_shrinks_to_one_worker(kind, workers, away):
    """Work of 12,000 s at full strength, one worker alone for 3,000 s, detection of 10 s.

    A worker computes 6 ms a batch, and n of them exchange for x_n, so that one alone makes (6 ms + x_n) / (n 6 ms) of the job's steps
    in a second: it trains without communication. With transfers that take nothing and two workers that is half: 12,000 s and 1,500 s
    and 10 s of detection, 13,510 s.
    """
    table = scenario_table(
        workload={
            "jitter": {"kind": "constant"}, "apply": "0 s",
            "variables": [{"name": "kernel", "size": "1 B", "creation_index": 0, "ready": 1.0}],
        },
        strategy={"kind": kind, "workers": workers},
    )  # fmt: skip
    crashes = [{"at": "2000 s", "of": "worker", "number": number} for number in range(away)]

    def trained(samples: int, **faults):
        table["job"] = {"samples": samples, "startup": "0 s", "tracing": "0 s"}
        if faults:
            table["job"] |= {"checkpoint": {"every_steps": 1, "size": "1 B", "write": "1000000 TB/s"}, "faults": faults}
        return simulate(scenario_from_table(table, "test")).job

    samples = round(12_000 / trained(100_000).time_s.mean * 100_000)
    job = trained(samples, trace=crashes, elastic=True, detection="10 s", restart="3000 s", startup="0 s")
    assert job.time_s.mean == pytest.approx(12_010 + 3_000 * (1 - 1 / workers), rel=1e-4)


# -- what is stated is not rescaled -------------------------------------------------------------


@pytest.mark.parametrize("name", ["rsc-1", "llama-3", "gce-k80-preemptible"])
@examples(15)
@given(life_h=st.floats(1.0, 100.0), worker_h=st.floats(1.0, 100.0), seed=st.integers(0, 1000))
def test_what_a_user_states_is_never_rescaled_by_what_was_published(name, life_h, worker_h, seed):
    """With published faults beside them, the user's own preemptions and crashes come in every run when they come without."""
    own = {"preemption": {"mtbf": f"{life_h} h", "shape": 1.0, "replacement": "1 min"}, "worker_mtbf": f"{worker_h} h"}
    published_life = {"most": None, "notice": "0 s", "wait": "0 s"} if name.startswith("gce") else {}
    beside = {**own, "use": name, "preemption": {**own["preemption"], **published_life}}
    alone, with_published = ({}, {})
    for found, faults in ((alone, own), (with_published, beside)):
        its = scenario(4, run={"seed": seed}, **faults)
        for replication in range(2):
            for fault in itertools.takewhile(lambda fault: fault.at_s < 1000 * HOUR_S, faults_of(its, replication)):
                if fault.what in ("preemption", "worker"):
                    found.setdefault((replication, fault.what), []).append((fault.at_s, fault.number))
    assert alone == with_published


def test_an_uncertainty_stays_with_what_was_published():
    """Nodes of rsc-1 come 0.36 to 3.65 times as often, beside a job_mtbf of the user's own, which comes as it says."""
    faults = scenario(4, use="rsc-1", job_mtbf="5 h").job.faults
    assert (faults.rates_90, faults.rates_90_of) == ((0.36, 3.65), ("node",))
    assert scenario(4, use="gce-k80-preemptible").job.faults.preemption.rates_90 == (0.104, 4.49)
    assert scenario(4, use="gce-k80-preemptible", preemption={"mtbf": "5 h"}).job.faults.preemption.rates_90 is None


@examples(30)
@given(
    life_h=st.floats(0.2, 50.0), wait_s=st.integers(0, 7200), replacement_s=st.integers(0, 3600), notice_s=st.integers(0, 600),
    startup_s=st.integers(0, 600), kind=st.sampled_from(["waits", "elastic", "async", "traced"]), seed=st.integers(0, 1000),
    levels=st.lists(st.tuples(st.integers(60, 7200), st.integers(0, 3)), min_size=2, max_size=8),
)  # fmt: skip
def test_no_more_is_billed_than_the_nodes_for_the_time(life_h, wait_s, replacement_s, notice_s, startup_s, kind, seed, levels):
    """And no less than nothing; the parts of a job's time are its time, whatever is taken and how often."""
    life = {"mtbf": f"{life_h} h", "wait": f"{wait_s} s"}
    if kind == "traced":
        begins = itertools.accumulate((seconds for seconds, _ in levels), initial=0)
        counts = [3, *(count for _, count in levels[1:]), 0]
        life = {"available": [{"at": f"{at_s} s", "nodes": count} for at_s, count in zip(begins, counts, strict=True)]}
    taken = {**life, "replacement": f"{replacement_s} s", "notice": f"{notice_s} s"}
    price = {"price": {"usd_per_node_hour": 1.0}}
    if kind == "async":
        table = with_servers("dedicated", {**taken, "of": "worker-nodes"}).model_dump(mode="json", exclude_none=True)
    else:
        table = scenario(3, preemption=taken, elastic=kind == "elastic").model_dump(mode="json", exclude_none=True)
    table["job"] |= {"samples": 3_000_000, "checkpoint": FREE_CHECKPOINTS["checkpoint"] | {"every": "1 min"}}
    table["job"]["faults"]["startup_s"] = startup_s
    table["run"]["seed"] = seed
    try:
        its = scenario_from_table({**table, "cluster": {**table["cluster"], **price}}, "test")
        job = simulate(its).job
    except SimulationError:
        return  # it never gets anywhere
    node_s = its.layout.nodes * job.time_s.mean
    assert -1e-6 <= job.away_node_s <= node_s * (1 + 1e-9)
    assert job.cost_usd.mean * HOUR_S == pytest.approx(node_s - job.away_node_s, rel=1e-9)
    assert sum(dict(job.parts_s).values()) == pytest.approx(job.time_s.mean)
