"""A plan for a model with layers: which ways of cutting it are tried, which is best under which condition, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.layered import layered
from support.scenarios import scenario_table

import paceline
from paceline.planning import Goal, Plan, goal_of, plan, space_of
from paceline.planning.search import best_bucket, can_fuse
from paceline.planning.space import Space
from paceline.planning.tables import brief, plan_tables
from paceline.planning.ways import Degrees, Fixed, Variant, choices_of, degrees_of, way_of
from paceline.sweeping import Simulate
from simulator import scenario_from_table, simulate
from simulator.base.errors import InputError, ScenarioError
from simulator.memory import does_not_fit
from simulator.resolve.resolve import resolve
from simulator.results.results import Result
from simulator.scenario import Scenario

RING = {"kind": "multi-worker-mirrored", "workers": 2}
FREE: Fixed = {}
FAST = {"bandwidth": "200 GB/s", "latency": "1 us"}
GOAL = goal_of(target_throughput=1.0, confidence=0.6, prefer="fastest")


def table(cluster: dict[str, Any] | None = None, strategy: dict[str, Any] | None = None, **workload: Any) -> dict[str, Any]:
    """A layered workload on a small cluster, without chance."""
    run = {"steps": 8, "warmup_steps": 2, "replications": 2}
    made = scenario_table(cluster=cluster or {}, strategy=strategy or RING, run=run)
    return {**made, "workload": layered(**workload)}


def planned(given: dict[str, Any], goal: Goal = GOAL, **options: Any) -> Plan:
    return plan(space_of(given, **{"workers": [4], **options}), goal, jobs=1)


def load_of(**workload: Any) -> Scenario:
    return scenario_from_table(table(**workload), "test")


# Few bytes go from stage to stage, while gradients are many for a slow network.
SLOW_NETWORK = {"inter_node": {"bandwidth": "100 MB/s", "latency": "10 us"}}
PIPELINE = table(SLOW_NETWORK, size_bytes=4e7, output_bytes=1e3, batch=8)
# One node of fast links and one sample a device: gradients are many, and micro-batches too few to fill a pipeline.
TENSOR = table({"devices_per_node": 4, "intra_node": FAST}, size_bytes=1e9, output_bytes=1e4, batch=1)
# Parameters, gradients and slots of the whole model are 19 GB, and a device has 16 GB; a sample each is too few for a pipeline.
TIGHT = table(
    {"devices_per_node": 4, "intra_node": FAST, "device": "V100-SXM2-16GB"},
    forward=0.2, size_bytes=6e8, output_bytes=1e8, exchanged_bytes=5e10, batch=1, calibrated={"batch": [1, 64], "device": "V100-SXM2-16GB"},
)  # fmt: skip


@pytest.fixture(scope="module")
def piped() -> Plan:
    return planned(PIPELINE)


@pytest.mark.slow
def test_over_a_slow_network_a_pipeline_is_best(piped: Plan) -> None:
    answer = piped
    assert answer.ways[0].way == "pipeline"
    assert answer.ways[0].best == answer.chosen
    found = {its.way: its for its in answer.ways}
    assert "reducing gradients between nodes takes" in found["data parallel"].text
    assert found["pipeline"].waiting is not None


def test_replicas_around_the_answer_are_copies_of_the_model(piped: Plan) -> None:
    answer = piped
    around = {its.workers: its.replicas for its in answer.workers}
    assert around[4] == answer.chosen.result.replicas == 1  # four devices hold one copy in four stages
    assert around == {workers: workers // 4 for workers in around}


@pytest.mark.slow
def test_within_a_fast_node_splitting_tensors_is_best() -> None:
    answer = planned(TENSOR)
    assert answer.ways[0].way == "tensor"
    found = {its.way: its for its in answer.ways}
    assert "stages wait for each other (bubbles) for" in found["pipeline"].text
    assert "reducing gradients takes" in found["data parallel"].text


@pytest.mark.slow
def test_what_does_not_fit_is_sharded() -> None:
    answer = planned(TIGHT)
    found = {its.way: its for its in answer.ways}
    assert answer.ways[0].way == "sharded"
    assert answer.chosen.result.scenario.strategy.shard == "parameters"
    alone = found["data parallel"]
    assert alone.best is None
    assert alone.text.startswith("not possible: ")
    assert "a batch of 1 sample needs about" in alone.text
    assert all(does_not_fit(resolve(its.result.scenario)) is None for its in answer.candidates)
    best = found["sharded"]
    assert best.memory_bytes is not None
    assert 4.8e9 < best.memory_bytes < 17.2e9
    refused = sum(one.configurations for one in answer.refused)
    assert answer.considered == len(answer.candidates) + answer.discarded + answer.passed_over + refused
    assert any(one.by_memory and one.way == "data parallel" for one in answer.refused)


@pytest.mark.slow
@pytest.mark.parametrize("given", [PIPELINE, TENSOR, TIGHT], ids=["pipeline", "tensor", "tight"])
def test_the_plan_finds_what_simulating_everything_finds(given: dict[str, Any]) -> None:
    one_bucket = [("strategy.bucket_size", "1 TB")]  # else the plan chooses it, which this loop does not
    space = space_of(given, workers=[4], settings=one_bucket)
    rates: dict[str, float] = {}
    for line in space.lines:
        for asked in line.candidates.values():
            if does_not_fit(asked.resolved) is None:
                rate = simulate(asked.given).throughput_samples_per_s.mean
                rates[line.way] = max(rates.get(line.way, 0.0), rate)
    answer = planned(given, settings=one_bucket)
    assert answer.chosen.result.throughput_samples_per_s.mean == pytest.approx(max(rates.values()), rel=1e-9)
    found = {its.way: its.best.result.throughput_samples_per_s.mean for its in answer.ways if its.best is not None}
    assert found == pytest.approx(rates, rel=1e-9)
    assert len(answer.candidates) < sum(len(line.candidates) for line in space.lines)


def test_a_batch_of_fewer_samples_than_devices_is_for_what_is_cut() -> None:
    """Of 16 devices two samples keep no more than two copies busy, each of 8 devices."""
    given = {**table(SLOW_NETWORK), "workload": {**layered(batch=8), "batch_per_replica": None, "global_batch": 64}}
    given["strategy"] = {**RING, "workers": 16}
    space = space_of(given, workers=[16], batches=[2])
    assert {line.first.replicas for line in space.lines} == {2}
    assert "pipeline" in {line.way for line in space.lines}
    (refused,) = [its.text for its in space.refused if its.asked == ""]
    assert refused == "workload.global_batch (2) must be a multiple of the 16 replicas"
    fixed = space_of(given, workers=[16], settings=[("workload.global_batch", 2)], strategies=["pipeline"])
    assert {line.first.replicas for line in fixed.lines} == {2}, "though 2 samples are too few for the scenario itself"


def test_a_copy_of_more_devices_than_were_asked_for_is_refused() -> None:
    given = table(strategy={"kind": "hybrid", "workers": 3, "pipeline": 5000})
    with pytest.raises(ScenarioError, match=r"strategy.workers \(3\) must be a multiple of the 5000 devices of a copy"):
        space_of(given, workers=[4])


@pytest.mark.slow
def test_buckets_are_chosen_for_the_best_of_each_way(monkeypatch: pytest.MonkeyPatch) -> None:
    tuned: list[str] = []

    def recorded(scenario: Scenario, result: Result, simulate: Simulate) -> Result:
        tuned.append(way_of(scenario.strategy))
        return best_bucket(scenario, result, simulate)

    monkeypatch.setattr("paceline.planning.planner.best_bucket", recorded)
    answer = planned(TENSOR, workers=[8])
    reduced = {way_of(its.result.scenario.strategy) for its in answer.candidates if can_fuse(its.result.scenario)}
    assert reduced == set(tuned) == {"data parallel", "pipeline", "tensor", "sharded"}
    assert len(tuned) == len(reduced), "and of no other"


def test_a_workload_without_layers_is_planned_as_before_and_not_cut() -> None:
    plain = scenario_table(strategy=RING, run={"steps": 8, "replications": 2})
    answer = planned(plain)
    assert not answer.ways
    written = answer.model_dump(mode="json")
    assert not {"ways", "for_each_way"} & set(written)
    for name in ("pipeline", "tensor", "fsdp", "hybrid"):
        with pytest.raises(ScenarioError, match=r"workload 'plain' has no layers.*`paceline calibrate --layers`"):
            space_of(plain, workers=[4], strategies=[name])
    both = space_of(plain, workers=[4], strategies=["ring", "pipeline"])
    assert [one.configurations for one in both.refused] == [1]
    # optimizer slots are shared whatever the layers
    assert [line.way for line in space_of(plain, workers=[4], strategies=["zero1"]).lines] == ["sharded"]


def test_names_span_their_degrees() -> None:
    load = load_of(layers=12, experts=4).workload
    assert {its.pipeline for its in degrees_of("pipeline", load, 8, FREE)} == {2, 3, 4, 6, 8, 12}
    assert [its.tensor for its in degrees_of("tensor", load, 8, FREE)] == [2, 4, 8]
    assert degrees_of("tensor", load, 1, FREE) == []
    assert degrees_of("fsdp", load, 8, FREE) == [Degrees()]
    spanned = degrees_of("hybrid", load, 2, FREE)
    assert {its.expert for its in spanned} == {1, 2, 4}
    assert Degrees() in spanned
    assert Degrees(4, 2, 2, "interleaved", 2) in spanned
    assert all(its.schedule == "1f1b" for its in spanned if its.pipeline == 1)
    given = {"strategy.pipeline": 4, "strategy.schedule": "gpipe"}
    assert set(degrees_of("pipeline", load, 2, given)) == {Degrees(4, 1, 1, "gpipe", 1)}


def test_stages_are_alike_or_powers_of_two() -> None:
    load = load_of(work=[3.0, *[1.0] * 6, 2.0]).workload
    assert sorted({its.pipeline for its in degrees_of("pipeline", load, 1, FREE)}) == [2, 3, 4, 6, 8]


def test_what_only_costs_time_is_taken_last() -> None:
    load = load_of().workload
    (choice,) = choices_of("tensor", Degrees(tensor=2), load, 4, FREE)
    assert choice == [
        [Variant("none", again, count) for count in (1, 2, 4)] for again in ("none", "selective", "full")
    ]  # fmt: skip
    # of a pipeline micro-batches are compared, from as many as it has stages on
    counts = [choice[0][0].micro_batches for choice in choices_of("hybrid", Degrees(4), load, 128, FREE)]
    assert counts == [4, 8, 16, 32, 64]
    assert [row[0].shard for row in next(choices_of("hybrid", Degrees(4), load, 128, FREE))] == ["none", "optimizer"]
    assert [row[0].shard for row in next(choices_of("fsdp", Degrees(), load, 1, FREE))] == ["parameters"] * 3
    odd = next(choices_of("fsdp", Degrees(), load, 15, FREE))
    assert [variant.micro_batches for variant in odd[0]] == [1, 3, 5, 15]
    (given,) = choices_of("pipeline", Degrees(4), load, 128, {"training.micro_batches": 16, "training.recompute": "full"})
    assert given == [[Variant("none", "full", 16)]]


def test_a_copy_takes_the_batch_of_its_devices() -> None:
    for scaling, together in (("weak", 32), ("strong", 16)):
        space = space_of(table(), workers=[4], scaling=scaling)
        scenarios = [asked.given for line in space.lines for asked in line.candidates.values()]
        assert {scenario.batch * scenario.replicas for scenario in scenarios} == {together}


def ways_in(space: Space) -> set[str]:
    return {line.way for line in space.lines}


def test_settings_and_further_keys_are_not_searched() -> None:
    own = table(strategy={"kind": "hybrid", "workers": 4, "pipeline": 2, "algorithm": "halving-doubling"})
    free = space_of(own, workers=[4], strategies=["pipeline"])
    assert {line.first.strategy.pipeline for line in free.lines} == {2, 4}
    assert {line.first.strategy.algorithm for line in free.lines} == {"halving-doubling"}
    kept = space_of(own, workers=[4], strategies=["pipeline"], settings=[("strategy.pipeline", 4), ("training.recompute", "full")])
    assert {line.first.strategy.pipeline for line in kept.lines} == {4}
    assert {line.first.training.recompute for line in kept.lines} == {"full"}
    axes = space_of(own, workers=[4], strategies=["hybrid"], over=[("training.micro_batches", [4])])
    assert {line.first.training.micro_batches for line in axes.lines} == {4}
    assert ways_in(axes) >= {"pipeline", "data parallel"}


def test_each_configuration_is_there_once() -> None:
    space = space_of(TENSOR, workers=[4])
    hashes = [asked.given.hash for line in space.lines for asked in line.candidates.values()]
    assert len(hashes) == len(set(hashes))
    assert ways_in(space) == {"data parallel", "pipeline", "tensor", "sharded", "hybrid"}
    assert {way_of(line.first.strategy) for line in space.lines if "ring all-reduce" in line.name} == {"data parallel"}


def test_of_a_range_whole_nodes_are_cut() -> None:
    space = space_of(table({"devices_per_node": 4}), workers="1..12", strategies=["hybrid"])
    assert {count for line in space.lines for count in line.candidates} == {1, 2, 4, 8, 12}


def test_a_name_that_is_none_and_degrees_that_cannot_be_are_told() -> None:
    with pytest.raises(InputError, match="did you mean pipeline"):
        space_of(TENSOR, workers=[4], strategies=["pipelin"])
    with pytest.raises(ScenarioError, match=r"9 stages need as many layers|strategy.pipeline"):
        space_of(TENSOR, workers=[9], strategies=["pipeline"], over=[("strategy.pipeline", [9])])


@pytest.mark.slow
def test_the_ways_are_a_table_and_read_again() -> None:
    answer = planned(TENSOR)
    grids = {each.name: brief(each) for each in plan_tables(answer)}
    titles = [column.title for column in grids["plan-ways"].columns]
    assert {"Way of training", "Waiting (bubbles)", "Comparison and limit"} <= set(titles)
    assert len(grids["plan-ways"].rows) == len(answer.ways)
    assert Plan.model_validate_json(answer.to_json()) == answer


@pytest.mark.slow
def test_a_report_shows_the_ways(tmp_path: Path) -> None:
    page = tmp_path / "plan.html"
    answer = planned(PIPELINE)
    paceline.report(answer, page, what_ifs=False)
    text = page.read_text()
    assert "The best of each way of training" in text
    assert all(f"<bdi>{each.way}</bdi>" in text for each in answer.ways)


@pytest.mark.slow
def test_the_api_takes_the_names() -> None:
    answer = paceline.plan(TENSOR, target_throughput=1.0, confidence=0.6, workers=[4], strategies=["ring", "tensor"], jobs=1)
    assert {its.way for its in answer.ways} == {"data parallel", "tensor"}
