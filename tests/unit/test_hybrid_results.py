"""What a result says of a training that cuts its model: stages, exchanges, staleness, limits, warnings."""

from __future__ import annotations

import json
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from support.hybrids import FAST, hybrid
from support.scenarios import scenario_table

from paceline.cli.showing_results import show_result
from paceline.reporting.columns import columns_of
from paceline.reporting.content import content_of
from paceline.reporting.coordinates import coordinates_of
from paceline.reporting.measured import overlay_of
from paceline.reporting.report import tables_of
from paceline.tables import exchanges_table, stages_table
from simulator import Result, Scenario, scenario_from_table, simulate
from simulator.base.errors import ScenarioError
from simulator.base.records import EVERYBODY
from simulator.engine.replication import replicate
from simulator.observing.chrome_trace import chrome_trace
from simulator.observing.recording import Recording, bound_of_step, critical_path, median_step
from simulator.resolve.resolve import resolve
from simulator.results.bottleneck import limit_of_exchanges
from simulator.spec.figures import Exchange

FOUR = {"workers": 4, "pipeline": 4}
NODES = {"devices_per_node": 2, "intra_node": {"bandwidth": "10 GB/s", "latency": "1 us"}}
SPLIT = {"tensor": {"forward_bytes_per_sample": [1e5], "backward_bytes_per_sample": [1e5]}}
EXPERTS = {"experts": {"count": 8, "used": 2, "work": 0.5, "bytes_per_sample": 1e4}}


def only(result: Result, among: str, does: str) -> Exchange:
    """The one exchange of that kind."""
    (found,) = (its for its in result.exchanges if (its.among, its.does) == (among, does))
    return found


# -- stages --------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["simpy", "compiled"])
@pytest.mark.parametrize("micro_batches", [1, 4, 16])
def test_stages_are_idle_for_the_share_that_a_bubble_has(micro_batches: int, engine: str) -> None:
    result = simulate(hybrid(FOUR, micro_batches, workload={"apply_s": 0.0}, engine=engine))
    for its in result.stages:
        assert its.bubble == pytest.approx(3 / (micro_batches + 3), rel=1e-6)
        assert its.busy + its.bubble + its.communication + its.input == pytest.approx(1)
    assert [its.layers for its in result.stages] == [f"layer {at} to layer {at + 1}" for at in (0, 2, 4, 6)]
    assert [(its.layer_count, its.devices, its.parameter_bytes) for its in result.stages] == [(2, 1, 2e6)] * 4


def test_a_stage_with_more_layers_is_busier() -> None:
    result = simulate(hybrid({"workers": 4, "pipeline": 2, "stages": [6]}, 4))
    assert result.stages[0].busy == pytest.approx(3 * result.stages[1].busy, rel=1e-6)
    assert [its.devices for its in result.stages] == [2, 2]


def test_chunks_are_named_each() -> None:
    result = simulate(hybrid({"workers": 2, "pipeline": 2, "schedule": "interleaved", "chunks": 2}, 4))
    assert [its.layers for its in result.stages] == ["layer 0 to layer 1, layer 4 to layer 5", "layer 2 to layer 3, layer 6 to layer 7"]


@pytest.mark.parametrize("strategy", [{"kind": "single"}, {"kind": "multi-worker-mirrored", "workers": 2}])
def test_others_say_nothing_of_stages(strategy: dict[str, Any]) -> None:
    result = simulate(scenario_from_table(scenario_table(strategy=strategy), "test"))
    assert not {"stages", "exchanges"} & result.model_dump().keys()
    assert Result.model_validate_json(result.model_dump_json()) == result


def test_what_is_said_is_read_back() -> None:
    result = simulate(hybrid({"workers": 4, "pipeline": 2}, 4))
    again = Result.model_validate_json(result.model_dump_json())
    assert (again.stages, again.exchanges) == (result.stages, result.exchanges)


# -- staleness -----------------------------------------------------------------------------


def test_late_gradients_are_counted_stage_by_stage() -> None:
    """Stage s of p: p - 1 - s updates (Narayanan et al., PipeDream, section 3.3)."""
    result = simulate(hybrid({**FOUR, "schedule": "pipedream"}))
    assert [its.staleness for its in result.stages] == [3, 2, 1, 0]
    assert result.staleness.histogram.values == (0, 1, 2, 3)
    assert len(set(result.staleness.histogram.counts)) == 1
    assert result.mean_staleness is not None
    assert result.staleness.mean == result.mean_staleness.mean == 1.5
    flushed = simulate(hybrid(FOUR, 4))
    assert (flushed.staleness.max, flushed.mean_staleness) == (0, None)


# -- exchanges -----------------------------------------------------------------------------


def test_copies_reduce_their_stages_gradients() -> None:
    """A ring of two sends all of its buffer: 2 (n - 1) / n S."""
    link = {"bandwidth": "1 GB/s", "latency": "1 us"}
    found = only(simulate(hybrid({"workers": 8, "pipeline": 4}, 4, cluster={"inter_node": link})), "copies", "all-reduce")
    assert (found.devices, found.times, found.size_bytes, found.links, found.amid) == (2, 1, 2e6, "between nodes", False)
    assert found.seconds == pytest.approx(2e6 / 1e9 + 2e-6, rel=1e-6)


def test_stages_hand_on_activations_and_gradients() -> None:
    cluster = {"inter_node": {"bandwidth": "1 GB/s", "latency": "1 ms"}}
    result = simulate(hybrid(FOUR, 4, cluster=cluster, layer={"output_bytes_per_sample": 1e4}))
    for does in ("activations", "gradients"):
        found = only(result, "stages", does)
        assert (found.devices, found.times, found.size_bytes, found.links) == (2, 4, 32e4, "between nodes")
        assert found.seconds == pytest.approx(4e-3 + 32e4 / 1e9)
    near = simulate(hybrid({"workers": 2, "pipeline": 2}, 4, cluster=NODES, layer={"output_bytes_per_sample": 1e4}))
    assert only(near, "stages", "activations").links == "in a node"


@pytest.mark.parametrize(("tensor", "links"), [(2, "in a node"), (4, "between nodes")])
def test_split_tensors_are_summed_in_every_pass(tensor: int, links: str) -> None:
    result = simulate(hybrid({"workers": 8, "tensor": tensor}, 2, cluster=NODES, layer=SPLIT))
    found = only(result, "tensor", "all-reduce")
    assert (found.devices, found.links, found.amid) == (tensor, links, True)
    assert found.size_bytes == pytest.approx(2 * 8 * 1e5 * 32)  # there and back, each layer, all samples
    assert only(result, "copies", "all-reduce").size_bytes == pytest.approx(8e6 / tensor)
    assert not result.stages


def test_sequences_are_scattered_and_gathered() -> None:
    result = simulate(hybrid({"workers": 2, "tensor": 2, "sequence_parallel": True}, cluster=NODES, layer=SPLIT))
    assert only(result, "tensor", "reduce-scatter and all-gather").devices == 2


def test_tokens_go_to_experts() -> None:
    result = simulate(hybrid({"workers": 4, "expert": 2}, cluster=NODES, layer={"experts": {**EXPERTS["experts"], "variables": []}}))
    found = only(result, "experts", "all-to-all")
    assert (found.devices, found.links) == (2, "in a node")
    assert found.size_bytes == pytest.approx(2 * 2 * 8 * 2 * 1e4 * 32)  # passes, ways, layers, experts of a token


@pytest.mark.parametrize(("shard", "gathers"), [("optimizer", 1), ("gradients", 1), ("parameters", 2)])
def test_shared_state_is_gathered_and_scattered(shard: str, gathers: int) -> None:
    result = simulate(hybrid({"workers": 4, "shard": shard}, cluster=NODES))
    assert only(result, "shards", "all-gather").size_bytes == pytest.approx(gathers * 8e6)
    assert only(result, "shards", "reduce-scatter").size_bytes == pytest.approx(8e6)


def test_groups_that_share_state_reduce_their_parts() -> None:
    result = simulate(hybrid({"workers": 4, "shard": "optimizer", "shard_group": 2}, cluster=NODES))
    assert only(result, "shards", "reduce-scatter").links == "in a node"
    across = only(result, "alike shards", "all-reduce")
    assert (across.devices, across.size_bytes, across.links) == (2, 4e6, "between nodes")


# -- limits --------------------------------------------------------------------------------

SLOW = {"bandwidth": "50 MB/s", "latency": "10 us"}
SLOWER = {"bandwidth": "5 MB/s", "latency": "10 us"}


@pytest.mark.parametrize(
    ("scenario", "name", "said"),
    [
        (hybrid(FOUR, 1), "pipeline-bubble", "1 micro-batch "),
        (hybrid({"workers": 8, "pipeline": 8}, 4), "pipeline-bubble", "zero-bubble"),
        (hybrid({**FOUR, "schedule": "zero-bubble", "weights_share": 0.3}, 1), "pipeline-bubble", ": more micro-batches would help"),
        (hybrid({"workers": 4, "pipeline": 4, "stages": [1, 2, 3]}, 8), "slow-stage", "stage 3, which computes 2.50 times"),
        (hybrid(FOUR, 32, work=(8.0, *(0.1,) * 7)), "slow-stage", "No other cut of these layers"),
        (hybrid(FOUR, 32), "compute", "Compute"),
        (hybrid({"workers": 4, "tensor": 4}, cluster={**NODES, "inter_node": SLOW}, layer=SPLIT), "exchange", "only inside nodes"),
        (hybrid({"workers": 2, "tensor": 2}, cluster={**NODES, "intra_node": SLOW}, layer=SPLIT), "exchange", "fewer devices"),
        (hybrid({"workers": 4, "expert": 4}, 4, cluster={"inter_node": SLOWER}, layer=EXPERTS), "exchange", "all-to-all"),
        (hybrid({"workers": 4, "shard": "parameters"}, cluster={"inter_node": SLOWER}), "exchange", "shard_group"),
        (hybrid({"workers": 4, "shard": "optimizer"}, cluster={"inter_node": SLOWER}), "network", "bucket_size"),
    ],
    ids=lambda its: its if isinstance(its, str) else "",
)
def test_the_limit_of_a_cut_model_is_named(scenario: Any, name: str, said: str) -> None:
    result = simulate(scenario)
    assert result.bottleneck.name == name
    assert said in f"{result.bottleneck.text} {result.bottleneck.remedy}"


def test_of_communication_that_passes_may_hide_the_longest_is_named() -> None:
    common: dict[str, Any] = {"devices": 2, "links": "between nodes", "stage": 0, "times": 1, "size_bytes": 1.0}
    handed = Exchange(among="stages", does="activations", seconds=0.5, **common)
    summed = Exchange(among="tensor", does="all-reduce", seconds=0.3, amid=True, **common)
    limit = limit_of_exchanges(1.0, [handed, summed])
    assert limit is not None
    assert limit.name == "network"
    assert "activations" in limit.detail
    waited_for = limit_of_exchanges(0.5, [handed, summed])
    assert waited_for is not None
    assert waited_for.name == "exchange"


def test_copies_of_uneven_speed_are_stragglers_not_a_bubble() -> None:
    jitter = {"jitter": {"kind": "exponential"}}
    result = simulate(hybrid({"workers": 16, "pipeline": 2}, 16, workload=jitter))
    assert "stragglers" in (result.bottleneck.name, result.bottleneck.balance)


def test_a_large_bubble_is_told_where_compute_is_the_limit() -> None:
    limit = simulate(hybrid(FOUR, 8)).bottleneck
    assert limit.text.startswith("Compute")
    assert "waiting between stages takes 27%" in limit.remedy


def test_two_that_are_in_balance_are_named() -> None:
    limit = simulate(hybrid({"workers": 8, "pipeline": 8}, 8)).bottleneck
    assert {limit.name, limit.balance} == {"compute", "pipeline-bubble"}
    assert limit.label in ("compute and pipeline", "pipeline and compute")


# -- warnings ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scenario", "code", "path"),
    [
        (hybrid(FOUR, 2), "pipeline-not-filled", "training.micro_batches"),
        (hybrid({"workers": 4, "tensor": 4}, cluster=NODES, layer=SPLIT), "tensors-between-nodes", "strategy.tensor"),
        (
            hybrid({"workers": 4, "shard": "parameters"}, cluster={"inter_node": SLOWER}),
            "gathers-not-hidden",
            "strategy.shard",
        ),
    ],
    ids=["few micro-batches", "tensors between nodes", "late gathers"],
)
def test_what_those_who_cut_models_avoid_is_warned_about(scenario: Any, code: str, path: str) -> None:
    assert (code, path) in {(its.code, its.path) for its in simulate(scenario).warnings}


@pytest.mark.parametrize(
    "scenario",
    [
        hybrid(FOUR, 4),
        hybrid({**FOUR, "schedule": "pipedream"}),
        hybrid({"workers": 4, "tensor": 2}, cluster=NODES, layer=SPLIT),
        hybrid({"workers": 4, "shard": "parameters"}, cluster={"inter_node": FAST}),
    ],
    ids=["filled", "asynchronous", "inside nodes", "hidden gathers"],
)
def test_what_is_as_it_should_be_is_not(scenario: Any) -> None:
    codes = {its.code for its in simulate(scenario).warnings}
    assert not {"pipeline-not-filled", "tensors-between-nodes", "gathers-not-hidden"} & codes


# -- tables --------------------------------------------------------------------------------


def test_tables_hold_stages_and_exchanges() -> None:
    result = simulate(hybrid({"workers": 4, "pipeline": 2}, 4))
    staged, exchanged = stages_table(result), exchanges_table(result)
    assert [row[0] for row in staged.rows] == [0, 1]
    assert {column.name for column in staged.columns}.isdisjoint({"input", "staleness"})
    assert len(exchanged.rows) == len(result.exchanges) == 3
    named = {table.name: table for table in tables_of(content_of([result]))}
    assert len(named["stages"].rows) == 2
    assert len(named["exchanges"].rows) == 3
    late = stages_table(simulate(hybrid({**FOUR, "schedule": "pipedream"})))
    assert [row[-1] for row in late.rows] == [3, 2, 1, 0]
    flat = simulate(hybrid({"workers": 4, "shard": "optimizer"}))
    assert not stages_table(flat).rows
    assert "stage" not in {column.name for column in exchanges_table(flat).columns}


def test_replicas_are_copies_and_ranks_their_parts_in_every_table(tmp_path: Path) -> None:
    results = [simulate(hybrid({"workers": workers, "pipeline": 2}, 4)) for workers in (4, 8)]
    points = tmp_path / "points.csv"
    points.write_text("workers,throughput\n4,1000\n8,1500\n", encoding="utf-8")
    tables = tables_of(content_of(results, measured=overlay_of(points, results)))
    counts = {"replicas": [2, 4], "ranks": [4, 8]}  # 4 devices hold 2 copies of a model in 2 stages
    for name, expected in counts.items():
        held = {table.name: [column.name for column in table.columns].index(name) for table in tables if table.name != "calibration"}
        assert {"results", "breakdown", "utilisation", "stages", "measured"} <= set(held)
        for table in tables:
            if table.rows and table.name in held:
                assert sorted({row[held[table.name]] for row in table.rows}) == expected, table.name
    at = coordinates_of(results)
    (key,) = at.keys
    assert (key.path, key.name, key.values) == ("ranks", "Workers", (4, 8))
    page = columns_of(results, at)
    assert page["keys"][0]["told"] == ["4 workers", "8 workers"]
    shown = {name: (page["columns"][name]["heading"], page["columns"][name]["values"]) for name in ("replicas", "key.ranks")}
    assert shown == {"replicas": ("Replicas", [2, 4]), "key.ranks": ("Workers", [4, 8])}


def test_the_terminal_shows_both(capsys: pytest.CaptureFixture[str]) -> None:
    show_result(simulate(hybrid({**FOUR, "workers": 8, "schedule": "pipedream"})), "mine.toml", details=True)
    shown = capsys.readouterr().out
    assert "mean 1.5 over the stages" in shown
    assert "layer 0 to" in shown
    assert "What devices exchange in a step" in shown


# -- inside a run --------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["data", "pipeline"])
def test_devices_are_called_by_stage_and_copy(order: str) -> None:
    scenario = hybrid({"workers": 4, "pipeline": 2, "order": order}, 2)
    recording = Recording(resolve(scenario))
    replicate(resolve(scenario), 0, recording)
    names = [recording.name_of(rank) for rank in range(4)]
    by_stage = ["stage 0 of copy 0", "stage 0 of copy 1", "stage 1 of copy 0", "stage 1 of copy 1"]
    assert names == (by_stage if order == "data" else [by_stage[at] for at in (0, 2, 1, 3)])
    assert list(recording.beside(2)) == ([0, 2] if order == "data" else [2, 3])
    for transfer in recording.transfers:  # no message leaves its copy
        if transfer.target != EVERYBODY:
            assert transfer.target.number in recording.beside(transfer.source.number)
    path = critical_path(recording, median_step(recording.steps))
    assert path.name in names
    assert "compute on stage" in bound_of_step(path)
    tracks = {event["args"]["name"] for event in json.loads(chrome_trace(recording, path))["traceEvents"] if event["name"] == "thread_name"}
    assert set(names) <= tracks
    assert "stage 0 of copy 0 to stage 1 of copy 0" in tracks
    assert f"{names[0]}, with others of its group" in tracks


def test_devices_that_split_tensors_are_one_copy() -> None:
    recording = Recording(resolve(hybrid({"workers": 4, "tensor": 2}, cluster=NODES, layer=SPLIT)))
    assert [recording.name_of(rank) for rank in range(2)] == ["copy 0", "copy 1"]
    assert not recording.beside(0)


def test_passes_are_told_by_micro_batch() -> None:
    scenario = hybrid({"workers": 2, "pipeline": 2, "schedule": "zero-bubble"}, 2)
    recording = Recording(resolve(scenario))
    replicate(resolve(scenario), 0, recording)
    assert {(span.kind, span.name) for span in recording.spans} == {
        *((kind, f"{kind} {number}") for kind in ("forward", "backward", "weights") for number in range(2)),
        ("", "apply"),
    }


def test_both_engines_draw_the_same_busiest_device() -> None:
    """Two pipelines of two stages by two groups of copies, with jitter besides."""
    law = {"expert_imbalance": {"kind": "lognormal", "sigma": 0.5}, "capacity": 1.5}
    strategy = {"workers": 8, "pipeline": 2, "expert": 2, **law}
    load = {"jitter": {"kind": "lognormal", "sigma": 0.1}}
    textbook, compiled = (simulate(hybrid(strategy, 2, layer=EXPERTS, workload=load, engine=engine)) for engine in ("simpy", "compiled"))
    assert textbook.throughput_of_each_replication == pytest.approx(compiled.throughput_of_each_replication, rel=1e-9)
    assert textbook.breakdown_s.model_dump() == pytest.approx(compiled.breakdown_s.model_dump(), rel=1e-9)


@pytest.mark.parametrize(
    ("workers", "refused"), [(8, None), (4, "the job cannot continue with 3 of 4 workers: strategy.expert (4) must divide the 3")]
)
def test_elastic_experts_go_on_with_whole_groups_or_say_why_not(workers: int, refused: str | None):
    layer = {"experts": {"count": 8, "used": 1, "work": 0.5, "variables": [], "bytes_per_sample": 1.0}}
    whole = hybrid({"workers": workers, "expert": 4}, layer=layer, replications=2)
    faults = {"worker_mtbf_s": 7200.0, "elastic": True, "replacement_s": 18000.0}
    scenario = Scenario(**{**whole.sections, "job": {"samples": 3e6, "faults": faults}})
    with nullcontext() if refused is None else pytest.raises(ScenarioError, match=re.escape(refused)):
        assert simulate(scenario).job.time_s.mean > 0
