"""Sequences split over devices: work, memory, the ring of keys and values, and gradients, against closed forms."""

from __future__ import annotations

from typing import Any

import pytest
from support.hybrids import BATCH, LAYERS, hybrid
from support.scenarios import scenario_table

from simulator import Scenario, scenario_from_table, simulate
from simulator.base.errors import ScenarioError
from simulator.memory import memory_of
from simulator.resolve.resolve import resolve

FORWARD_S, BACKWARD_S, APPLY_S, SIZE = 0.03 * LAYERS, 0.06 * LAYERS, 0.008, 1e6
RATE, LATENCY_S = 1e10, 5e-6
LINK: dict[str, Any] = {"bandwidth_bytes_per_s": RATE, "latency_s": LATENCY_S}
NODE: dict[str, Any] = {"devices_per_node": 8, "intra_node": LINK}
SPLIT: dict[str, Any] = {"tensor": {"forward_bytes_per_sample": [1e5], "backward_bytes_per_sample": [1e5]}}


def attention(kv_bytes: float, work: float = 0.0) -> dict[str, Any]:
    return {"attention": {"bytes_per_sample": kv_bytes, "work": work}}


def step_s(scenario: Scenario) -> float:
    return scenario.batch * scenario.replicas / simulate(scenario).throughput_samples_per_s.mean


def half_s(ranks: int, size_bytes: float) -> float:
    """A reduce-scatter or an all-gather on a ring: n - 1 turns of an n-th."""
    return (ranks - 1) * (size_bytes / ranks / RATE + LATENCY_S)


@pytest.mark.parametrize("context", [2, 4])
def test_each_device_computes_its_part_of_every_sequence(context: int) -> None:
    """All of a sample's work is divided, that of layers which tensors cannot split too, and a copy takes as many samples as before."""
    scenario = hybrid({"workers": context, "context": context}, layer=attention(0.0))
    assert scenario.replicas == 1
    assert step_s(scenario) == pytest.approx((FORWARD_S + BACKWARD_S) / context + APPLY_S, rel=1e-6)


@pytest.mark.parametrize("context", [2, 4])
def test_keys_and_values_go_around_a_ring(context: int) -> None:
    """In each layer c - 1 turns of a c-th forward; backward as many, and as many of their gradients; then gradients are reduced."""
    scenario = hybrid({"workers": context, "context": context}, 2, cluster=NODE, layer=attention(2e6))
    ring_s = half_s(context, 2e6 * BATCH / 2)
    reduced_s = 2 * half_s(context, LAYERS * SIZE)
    computed_s = (FORWARD_S + BACKWARD_S) / context + APPLY_S
    assert step_s(scenario) == pytest.approx(computed_s + 2 * LAYERS * 3 * ring_s + reduced_s, rel=1e-9)
    found = next(its for its in simulate(scenario).exchanges if its.among == "context")
    assert (found.does, found.devices, found.links, found.amid) == ("ring", context, "in a node", True)
    assert found.size_bytes == pytest.approx(3 * LAYERS * 2e6 * BATCH)


@pytest.mark.parametrize("kv_bytes", [1e6, 1e8])
def test_attention_hides_the_ring_for_as_long_as_it_goes_on(kv_bytes: float) -> None:
    """Half of a layer's work is attention; nothing is sent in the last of its four parts."""
    scenario = hybrid({"workers": 4, "context": 4}, cluster=NODE, layer=attention(kv_bytes, 0.5))
    ring_s = half_s(4, kv_bytes * BATCH)
    hidden_s = [0.5 * pass_s / LAYERS / 4 * 3 / 4 for pass_s in (FORWARD_S, BACKWARD_S)]
    exposed_s = max(ring_s - hidden_s[0], 0.0) + max(2 * ring_s - hidden_s[1], 0.0)
    assert (exposed_s > 0) == (kv_bytes > 1e7)
    reduced_s = 2 * half_s(4, LAYERS * SIZE)
    assert step_s(scenario) == pytest.approx((FORWARD_S + BACKWARD_S) / 4 + APPLY_S + LAYERS * exposed_s + reduced_s, rel=1e-9)


@pytest.mark.parametrize(("recompute", "times"), [("none", 3), ("selective", 4), ("full", 4)])
def test_what_attends_again_exchanges_again(recompute: str, times: int) -> None:
    plain = hybrid({"workers": 2, "context": 2}, cluster=NODE, layer={**attention(2e6), "selective_work": 0.25})
    scenario = plain.replaced({"training.recompute": recompute})
    found = next(its for its in simulate(scenario).exchanges if its.among == "context")
    assert found.size_bytes == pytest.approx(times * LAYERS * 2e6 * BATCH)


def test_split_tensors_divide_what_each_of_them_passes_around() -> None:
    """Two rings of two, each with half of the heads; tensors are summed for half of the sequence."""
    scenario = hybrid({"workers": 4, "tensor": 2, "context": 2}, cluster=NODE, layer={**attention(2e6), **SPLIT})
    ring_s, summed_s = half_s(2, 2e6 * BATCH / 2), 2 * half_s(2, 1e5 * BATCH / 2)
    reduced_s = 2 * half_s(2, LAYERS * SIZE / 2)
    computed_s = (FORWARD_S + BACKWARD_S) / 4 + APPLY_S / 2
    assert step_s(scenario) == pytest.approx(computed_s + LAYERS * (3 * ring_s + 2 * summed_s) + reduced_s, rel=1e-9)
    result = simulate(scenario)
    assert {its.among for its in result.exchanges} == {"tensor and context", "copies"}
    assert scenario.strategy.model_parallel(scenario).in_words == "data 1 x pipeline 1 x tensor 2 x context 2"


@pytest.mark.parametrize("order", ["data", "pipeline"])
def test_a_stage_hands_on_its_part_and_reduces_with_all_that_have_the_same(order: str) -> None:
    """Eight devices: two copies of two stages of two; each sends half of a micro-batch's activations."""
    strategy = {"workers": 8, "pipeline": 2, "context": 2, "order": order}
    scenario = hybrid(strategy, 4, cluster=NODE, layer={**attention(2e6), "output_bytes_per_sample": 1e5})
    result = simulate(scenario)
    found = {(its.among, its.does): its for its in result.exchanges}
    assert found["stages", "activations"].size_bytes == pytest.approx(1e5 * BATCH / 2)
    assert (found["copies", "all-reduce"].devices, found["copies", "all-reduce"].size_bytes) == (4, LAYERS / 2 * SIZE)
    assert [stage.devices for stage in result.stages] == [4, 4]
    model = scenario.strategy.model_parallel(scenario)
    assert model.copies().tolist() == ([0, 0, 1, 1] * 2 if order == "data" else [0] * 4 + [1] * 4)
    names = [model.name_of_rank(rank) for rank in range(8)]
    assert names[1] == "stage 0 of copy 0, sequence part 1"
    assert names[2] == ("stage 0 of copy 1, sequence part 0" if order == "data" else "stage 1 of copy 0, sequence part 0")
    assert model.ranks_beside(3) == ([3, 7] if order == "data" else [1, 3])


def test_rings_between_nodes_are_those_of_whole_nodes() -> None:
    """Four devices on nodes of two: the slow links are busy without a break, so that messages are late once."""
    slow = {"bandwidth_bytes_per_s": RATE / 10, "latency_s": LATENCY_S}
    scenario = hybrid({"workers": 4, "context": 4}, cluster={**NODE, "devices_per_node": 2, "inter_node": slow}, layer=attention(2e6))
    found = next(its for its in simulate(scenario).exchanges if its.among == "context")
    assert found.links == "between nodes"
    assert found.seconds == pytest.approx(3 * LAYERS * (3 * 2e6 * BATCH / 4 / (RATE / 10) + LATENCY_S), rel=1e-9)


@pytest.mark.parametrize("shard", ["none", "optimizer", "gradients", "parameters"])
def test_memory_of_a_part_of_a_sequence(shard: str) -> None:
    """Per sample a c-th; state as a whole copy's, of which all copies' devices share what is sharded."""
    layer = {**attention(2e6), "kept_bytes_per_sample": 1e4, "temporary_bytes_per_sample": 1e5}
    training = {"training.optimizer": "adam", "training.recompute": "full", "workload.input_bytes_per_sample": 1e3}
    mixed = {"training.precision": "mixed_bfloat16", "training.precision_factor": (1.0, 1.0), "training.precision_source": "made up"}

    def parts(context: int) -> dict[str, float]:
        strategy = {"workers": 8, "context": context, "shard": shard}
        scenario = resolve(hybrid(strategy, 2, layer={**layer, "output_bytes_per_sample": 1e3}).replaced({**training, **mixed}))
        (device,) = memory_of(scenario)
        return {part.name: part.size_bytes or 0.0 for part in device.parts}

    alone, split = parts(1), parts(4)
    per_sample = {"activations", "backward", "input"}
    assert alone.keys() >= per_sample
    for name, size_bytes in alone.items():
        assert split[name] == pytest.approx(size_bytes / 4 if name in per_sample else size_bytes)


@pytest.mark.parametrize("shard", ["optimizer", "parameters"])
def test_state_is_shared_by_copies_and_parts(shard: str) -> None:
    strategy = {"workers": 8, "context": 4, "shard": shard}
    found = {(its.among, its.does): its for its in simulate(hybrid(strategy, cluster=NODE, layer=attention(2e6))).exchanges}
    assert found["shards", "reduce-scatter"].devices == found["shards", "all-gather"].devices == 8
    assert found["shards", "reduce-scatter"].size_bytes == LAYERS * SIZE


def test_experts_lie_on_the_parts_of_a_copy_first() -> None:
    """Four parts of two copies' sequences, experts on all eight: each sends the tokens of its part."""
    experts = {"experts": {"count": 8, "used": 2, "work": 0.5, "bytes_per_sample": 1e4}}
    scenario = hybrid({"workers": 8, "context": 4, "expert": 8}, cluster=NODE, layer={**attention(0.0), **experts})
    found = next(its for its in simulate(scenario).exchanges if its.amid)
    assert (found.among, found.does, found.devices) == ("context and experts", "ring and all-to-all", 8)
    assert found.size_bytes == pytest.approx(LAYERS * 2 * 2 * 2 * 1e4 * BATCH / 4)


def test_keys_and_values_of_a_transformer() -> None:
    """2 x sequence x their heads x their width, in the bytes of activations; attention is a share of the layer's work."""
    load = {
        "name": "llama", "batch_per_replica": 1, "precision": "bfloat16",
        "transformer": {"layers": 2, "hidden": 1024, "heads": 16, "key_value_heads": 4, "sequence": 4096, "vocabulary": 1000,
                        "attention": "fused"},
    }  # fmt: skip
    table = scenario_table(strategy={"kind": "hybrid", "workers": 2, "context": 2}, cluster=NODE)
    scenario = scenario_from_table({**table, "workload": load}, "test")
    layers = [layer.attention for layer in scenario.workload.layers]
    assert layers[0] is None
    assert layers[-1] is None
    assert layers[1] is not None
    assert layers[1].bytes_per_sample == 2 * 4096 * 256 * 2
    assert 0.1 < layers[1].work < 0.9
    odd = {**load, "transformer": {**load["transformer"], "sequence": 4095}}  # type: ignore[dict-item]
    with pytest.raises(ScenarioError, match=r"must divide workload\.transformer\.sequence"):
        scenario_from_table({**table, "workload": odd}, "test")


def test_what_cannot_be_split_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"no layer of workload 'eight layers' has attention"):
        hybrid({"workers": 2, "context": 2})
    with pytest.raises(ScenarioError, match=r"multiple of the 8 devices of a copy \(pipeline 2 x tensor 2 x context 2\)"):
        hybrid({"workers": 4, "context": 2, "pipeline": 2, "tensor": 2}, layer={**attention(1.0), **SPLIT})


def test_a_split_sequence_in_words() -> None:
    scenario = hybrid({"workers": 4, "context": 2}, layer=attention(1.0))
    strategy = scenario.strategy
    assert (strategy.way, strategy.cuts, strategy.in_words) == ("context", ("context",), "2-way context parallel")
    assert strategy.software == ("pytorch", "megatron-lm")
    assert strategy.fewer(3, 4).workers == 2
