"""What is worked out once, and for how much: counted, since speed is no matter of seconds on a machine that others use as well."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import pytest
from support.layered import layered
from support.scenarios import scenario_table

import paceline
from paceline.planning.search import best_bucket, with_bucket, with_buckets
from paceline.sweeping.grid import grid
from simulator import load_scenario, scenario_from_table, simulate
from simulator.base import spec
from simulator.base.rng import Streams
from simulator.engine.replication import drawn_scenario
from simulator.program import wiring
from simulator.resolve.drawing import compile_program
from simulator.resolve.resolve import resolve
from simulator.results.results import Result
from simulator.scenario import HOW_SIMULATED, Scenario
from simulator.strategies.hybrid import parts

CUT = {"kind": "hybrid", "workers": 4, "pipeline": 2, "shard": "optimizer"}


def cut(**strategy: Any) -> Scenario:
    """A model of several layers, cut into stages, whose copies share slots."""
    made = scenario_table(run={"steps": 4, "warmup_steps": 1, "replications": 3}, strategy={**CUT, **strategy})
    return scenario_from_table({**made, "workload": layered(batch=8)}, "test")


def programs(scenario: Scenario, replications: int) -> None:
    """Make the program of each replication, as each has draws of its own."""
    resolved = resolve(scenario)
    for replication in range(replications):
        streams = Streams(resolved.run.seed, replication)
        compile_program(drawn_scenario(resolved, streams), streams)


def test_bytes_of_layers_are_worked_out_for_one_replication() -> None:
    scenario = cut()
    programs(scenario, 1)
    before = parts._sizes_of.cache_info().misses
    programs(scenario, 5)
    assert parts._sizes_of.cache_info().misses == before
    programs(cut(pipeline=4), 1)
    assert parts._sizes_of.cache_info().misses > before


def test_ports_are_laid_out_once_for_all_rates() -> None:
    def of(bandwidth: str) -> Scenario:
        return load_scenario("async-ps", {"strategy.workers": 7, "cluster.inter_node.bandwidth": bandwidth})

    programs(of("9 Gbit/s"), 1)
    before = wiring._kept.cache_info().misses
    programs(of("9 Gbit/s"), 4)
    programs(of("3 Gbit/s"), 2)
    assert wiring._kept.cache_info().misses == before
    programs(load_scenario("async-ps", {"strategy.workers": 8}), 1)
    assert wiring._kept.cache_info().misses > before


def test_programs_of_other_rates_cross_the_same_ports_at_those_rates() -> None:
    slow, fast = (
        load_scenario("async-ps", {"strategy.workers": 3, "cluster.inter_node.bandwidth": its}) for its in ("1 Gbit/s", "2 Gbit/s")
    )
    one, other = (compile_program(drawn_scenario(resolve(its), Streams(1, 0))) for its in (slow, fast))
    assert one.paths.port.tolist() == other.paths.port.tolist()
    assert [2 * its for its in one.ports.capacity.tolist()] == pytest.approx(other.ports.capacity.tolist())


def test_a_workload_is_written_once_for_the_hashes_of_a_sweep() -> None:
    scenarios = list(grid("ring", [("strategy.workers", [1, 2, 3, 4]), ("run.seed", [1, 2, 3])]))
    before = spec.canonical.cache_info().misses
    hashes = {its.hash for its in scenarios}
    assert len(hashes) == len(scenarios) == 12
    assert spec.canonical.cache_info().misses - before <= 2, "one workload and one cluster"


@pytest.mark.parametrize("name", ["ring", "async-ps", "fsdp", "whole-job", "input-bound"])
def test_a_hash_is_that_of_all_keys_in_their_order(name: str) -> None:
    scenario = load_scenario(name)
    content = scenario.model_dump(mode="json")
    content["run"] = {key: value for key, value in content["run"].items() if key not in HOW_SIMULATED}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    assert scenario.hash == hashlib.sha256(text.encode()).hexdigest()[:16]


def simulated(asked: list[Scenario]) -> Any:
    """Simulates, and notes what was asked for."""

    def run(scenarios: Sequence[Scenario]) -> list[Result]:
        asked.extend(scenarios)
        return [simulate(its) for its in scenarios]

    return run


def test_sizes_that_make_the_same_buckets_are_simulated_once() -> None:
    """Each stage has less than half of all gradients: sizes larger than that make one bucket, as no size at all does."""
    scenario = cut(workers=8, pipeline=4)
    others = with_buckets(scenario)
    sizes = [its.strategy.bucket_bytes for its in others]
    assert sizes == sorted(sizes, key=lambda size: -(size or 0.0))
    rates = {size: simulate(with_bucket(scenario, size)).throughput_of_each_replication for size in sizes}
    assert len(set(rates.values())) == len(rates), "of those that are left each trains at a pace of its own"
    asked: list[Scenario] = []
    own = simulate(scenario)
    best = best_bucket(scenario, own, simulated(asked))
    assert own.throughput_of_each_replication not in [rates[its.strategy.bucket_bytes] for its in asked]
    assert len(asked) < len(others) or own.throughput_of_each_replication not in rates.values()
    everything = [own, *(simulate(its) for its in others)]
    fastest = max(its.throughput_samples_per_s.mean for its in everything)
    assert best.throughput_samples_per_s.mean == pytest.approx(fastest, rel=0.005)


def test_a_plan_tells_what_it_does_from_its_beginning() -> None:
    told: list[tuple[int, int, str]] = []
    paceline.plan(
        "ring",
        target_throughput="100 samples/s",
        workers=[1, 2],
        settings={"run.steps": 5, "run.replications": 3},
        confidence=0.5,
        jobs=1,
        progress=lambda *its: told.append(its),
    )
    assert told[0] == (0, 2, "configurations"), "before anything is made"
    parts_told = list(dict.fromkeys(what for _, _, what in told))
    assert parts_told == ["configurations", "bounds", "scenarios"]
    done = [its for its in told if its[2] == "scenarios"]
    assert done[0][0] == 0
    assert done[-1][0] == done[-1][1]
