"""Advice without a goal: every strategy on 1 to N machines, and one machine where that is the answer."""

from __future__ import annotations

import re
from typing import Any

import pytest
from support.scenarios import scenario_table

import paceline
from paceline.planning.advice import answer_of_advice, machines_of, strategies_for
from simulator import load_scenario
from simulator.base.errors import InputError

VARIABLES = [{"name": f"v{place}", "size_bytes": 1e6, "creation_index": place, "ready": (place + 1) / 12} for place in range(12)]


def table(bandwidth: str, **cluster: Any) -> dict[str, Any]:
    return scenario_table(
        workload={
            "variables": VARIABLES,
            "forward": {"base": "5 ms", "per_sample": "0 s"},
            "backward": {"base": "40 ms", "per_sample": "0 s"},
        },
        cluster={"inter_node": {"bandwidth": bandwidth, "latency": "50 us"}, **cluster},
        strategy={"kind": "multi-worker-mirrored", "workers": 2, "bucket_size": "25 MB"},
        run={"replications": 3, "steps": 10},
    )


@pytest.mark.slow
def test_on_a_slow_network_one_machine_is_the_answer() -> None:
    """A ring of n sends 2 (n - 1) / n x 12 MB at 5 MB/s a step: more than two seconds, for n steps of 45 ms."""
    found = paceline.advise(table("5 MB/s"), machines=[1, 2, 4], jobs=1)
    assert found.sentences[0].startswith("Use one machine: single device ")
    assert found.best == found.one_machine
    assert {its.strategy for its in found.rows} == {"single", "ring", "sync-ps", "async-ps", "ssp", "gossip", "backup"}
    assert found.sentences == answer_of_advice(found).sentences


@pytest.mark.slow
def test_what_is_for_certain_faster_is_advised_beside_a_higher_mean_that_is_not() -> None:
    settings = {
        "run.steps": 10,
        "strategy.servers": 2,
        "strategy.server_placement": "colocated",
        "cluster.inter_node.bandwidth": "10 Gbit/s",
        "cluster.inter_node.latency": "1.3 ms",
        "practice.grpc_tensor_s": {"value": 1e-4, "low": 1e-5, "high": 1e-3},  # so that nobody knows what servers' hosts cost
    }
    found = paceline.advise("sync-ps", machines=[1, 4], strategies=["single", "ring", "sync-ps"], settings=settings, jobs=1)
    best, top = found.rows[found.best], max(found.rows, key=lambda its: its.result.throughput_samples_per_s.mean)
    assert (best.strategy, best.nodes) == ("ring", 4)
    assert top.strategy == "sync-ps"
    assert not paceline.compare(top.result, found.rows[found.one_machine or 0].result).clear
    assert any("but is not certainly faster than one machine" in text for text in found.sentences)


@pytest.mark.slow
def test_a_way_that_was_held_against_nothing_is_not_advised_for_that() -> None:
    """Gossip has a higher mean than a ring and borrows its error, which so cancels between the two."""
    settings = {"run.steps": 20, "cluster.available": 4}
    found = paceline.advise("ring", machines=[1, 4], strategies=["single", "ring", "gossip"], settings=settings, jobs=1)
    top = max(found.rows, key=lambda its: its.result.throughput_samples_per_s.mean)
    assert top.strategy == "gossip"
    assert found.rows[found.best].strategy == "ring"
    assert any("was never validated" in text for text in found.sentences)
    assert found.to_frame().set_index(["strategy", "nodes"])["differs"]["gossip", 4].startswith("each worker averages with only 2 others")
    speedup = answer_of_advice(found).figures[0]
    low, high = map(float, re.findall(r"[\d.]+", speedup.interval))
    assert low < high <= 4, "four machines do no more than four times as much as one"
    assert "adding machines pays up to 4" in answer_of_advice(found).limit


def test_machines_of_servers_are_among_the_machines() -> None:
    found = paceline.advise(table("2 GB/s", available=4), machines="1..4", strategies=["single", "async-ps"], jobs=1)
    sizes = [(its.strategy, its.nodes, its.result.scenario.workers) for its in found.rows]
    assert sizes == [("single", 1, 1), ("async-ps", 2, 1), ("async-ps", 4, 3)]
    assert [its.text for its in found.refused] == ["1 machine cannot hold 1 parameter server and a worker"]


def test_fewer_machines_than_the_scenario_s_own_workers_can_be_asked_for() -> None:
    short = {"run.steps": 10, "run.replications": 3}
    found = paceline.advise("ring", machines="1..8", strategies=["ring"], settings={**short, "cluster.available": 2}, jobs=1)
    assert [its.nodes for its in found.rows] == [1, 2]
    assert all(text.startswith("cluster.available (2) must be at least ") for text in (its.text for its in found.refused))


def test_on_a_fast_network_all_machines_are_and_buckets_are_chosen() -> None:
    found = paceline.advise(table("2 GB/s"), machines="1..4", strategies=["single", "ring"], jobs=1)
    best = found.rows[found.best]
    assert (best.strategy, best.nodes) == ("ring", 4)
    assert ", buckets of " in best.name
    assert best.result.scaling_efficiency.mean > 0.9
    assert [(its.strategy, its.nodes) for its in found.rows] == [("single", 1), ("ring", 1), ("ring", 2), ("ring", 4)]
    frame = found.to_frame()
    assert list(frame["nodes"]) == [1, 1, 2, 4]
    assert found.sentences[0].startswith("Use ring all-reduce on 4 machines of ")


def test_what_cannot_be_has_its_reason() -> None:
    found = paceline.advise(table("2 GB/s"), machines=[1, 2], strategies=["ring", "mirrored"], jobs=1)
    assert any(its.asked == "mirrored" and its.text for its in found.refused)


def test_the_machines_that_a_cluster_has_are_the_range_and_none_is_paid_for_idly() -> None:
    found = paceline.advise(table("2 GB/s", nodes=4, price={"usd_per_node_hour": 1.0}), strategies=["single", "ring"], jobs=1)
    assert [its.nodes for its in found.rows] == [1, 1, 2, 4]
    assert [its.usd_per_hour for its in found.rows] == [1.0, 1.0, 2.0, 4.0]
    assert all(its.usd_per_million_samples is not None for its in found.rows)


@pytest.mark.parametrize(
    ("given", "counts"), [("1..8", [1, 2, 4, 8]), ("1..6", [1, 2, 4, 6]), ([3, 1], [1, 3]), ("2..9", [2, 4, 8, 9]), (None, [1, 2, 4, 8])]
)
def test_a_range_of_machines_is_doubled(given: Any, counts: list[int]) -> None:
    assert machines_of(given, load_scenario("ring", [("cluster.nodes", None)])) == counts


def test_no_count_is_refused() -> None:
    with pytest.raises(InputError, match="`machines`"):
        machines_of("many", load_scenario("ring"))


def test_a_model_of_keras_3_is_told_what_trains_it() -> None:
    base = table("10 Gbit/s")
    base["workload"]["provenance"] = {"keras": "3.15.1", "tensorflow": "2.21.0"}
    found = paceline.advise(base, machines=[1, 4], strategies=["single", "ring", "ddp"], jobs=1)
    assert found.rows[found.best].strategy == "ring"
    ring = found.rows[found.best].result
    assert [warned.path for warned in ring.warnings if warned.code == "not-by-fit"] == ["strategy.kind"]
    assert "keras-data-parallel" in strategies_for(load_scenario(base))


@pytest.mark.parametrize(("runs_on", "kept"), [(["keras"], {"single"}), (["jax", "pytorch"], {"single", "ring", "ddp"})])
def test_only_what_the_software_runs_is_compared(runs_on: list[str], kept: set[str]) -> None:
    names = ["single", "ring", "ddp", "async-ps"]
    found = paceline.advise(table("10 Gbit/s"), machines=[1, 2], strategies=names, runs_on=runs_on, jobs=1)
    assert {row.strategy for row in found.rows} == kept
    assert {refused.asked for refused in found.refused if "does not run it unmodified" in refused.text} == {*names} - kept


def test_software_that_nobody_knows_is_refused() -> None:
    with pytest.raises(InputError, match="`runs_on` 'kera': unknown software; did you mean keras"):
        paceline.advise(table("10 Gbit/s"), runs_on=["kera"])
