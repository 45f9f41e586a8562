"""What devices of a model that is cut hold, what they send, and how long that takes: the same bytes, by hand, on both engines."""

from __future__ import annotations

from typing import Any

import pytest
from support.scenarios import scenario_table

from simulator import Scenario, scenario_from_table, simulate
from simulator.base.errors import ScenarioError
from simulator.job.costs import Writing, writing_of
from simulator.memory import memory_of
from simulator.resolve.resolve import resolve

LAYERS, BATCH, DENSE, EXPERTS = 8, 32, 1e6, 16e6
FORWARD_S, BACKWARD_S, APPLY_S = 0.32, 0.64, 0.016
RATE, LATENCY_S = 1e10, 5e-6
LINK: dict[str, Any] = {"bandwidth_bytes_per_s": RATE, "latency_s": LATENCY_S}
MIXED = {"precision": "mixed_bfloat16", "precision_factor": [1.0, 1.0], "precision_source": "as fast, so that bytes alone change"}


def built(
    strategy: dict[str, Any],
    training: dict[str, Any] | None = None,
    *,
    spread: int = 0,
    link: dict[str, Any] = LINK,
    compute: float = 1.0,
    cluster: dict[str, Any] | None = None,
    **layer: Any,
) -> Scenario:
    """Eight layers that are alike, on nodes of eight devices; with experts each has a second variable of theirs."""
    names = [f"v{at}" for at in range(LAYERS)] + [f"e{at}" for at in range(LAYERS)] * bool(spread)
    variables = [
        {"name": name, "size_bytes": EXPERTS if name[0] == "e" else DENSE, "creation_index": at, "ready": 1 - at / len(names)}
        for at, name in enumerate(names)
    ]
    its: list[dict[str, Any]] = [
        {"name": f"layer {at}", "variables": [at], "forward": 1.0, "output_bytes_per_sample": 0.0, **layer} for at in range(LAYERS)
    ]
    for at in range(LAYERS) if spread else ():
        its[at]["variables"] = [at, LAYERS + at]
        its[at]["experts"] = {"count": spread, "used": 1, "bytes_per_sample": 0.0, "variables": [LAYERS + at], "work": 0.5}
    load = {
        "name": "eight layers",
        "batch_per_replica": BATCH,
        "forward": {"base": "0 s", "per_sample_s": compute * FORWARD_S / BATCH},
        "backward": {"base": "0 s", "per_sample_s": compute * BACKWARD_S / BATCH},
        "apply_s": APPLY_S,
        "variables": variables[::-1],
        "layers": its,
    }
    table = scenario_table(
        strategy={"kind": "hybrid", **strategy},
        training=training or {},
        cluster={"devices_per_node": 8, "inter_node": link, "intra_node": link, **(cluster or {})},
        run={"steps": 6, "warmup_steps": 2},
    )
    return scenario_from_table({**table, "workload": load}, "test")


def step_s(scenario: Scenario) -> float:
    return scenario.batch * scenario.replicas / simulate(scenario).throughput_samples_per_s.mean


def half_s(ranks: int, size_bytes: float) -> float:
    """A reduce-scatter or an all-gather on a ring: n - 1 turns of an n-th."""
    return (ranks - 1) * (size_bytes / ranks / RATE + LATENCY_S)


def bytes_of(scenario: Scenario) -> dict[tuple[str, str], float]:
    """What a device's exchanges come to in a step, by who and what."""
    return {(its.among, its.does): its.size_bytes for its in simulate(scenario).exchanges}


def held(scenario: Scenario, stage: int = 0) -> dict[str, float]:
    return {part.name: part.size_bytes or 0.0 for part in memory_of(resolve(scenario))[stage].parts}


# -- experts whose state is shared -----------------------------------------------------------


@pytest.mark.parametrize("shard", ["optimizer", "none"])
def test_experts_that_nobody_else_has_are_neither_gathered_nor_reduced(shard: str) -> None:
    """Eight copies, eight parts of the experts: only dense variables travel, 2 (n - 1) / n of them, and each device updates its own."""
    found_s = step_s(built({"workers": 8, "expert": 8, "shard": shard}, spread=8))
    own = LAYERS * (DENSE / (8 if shard == "optimizer" else 1) + EXPERTS / 8) / (LAYERS * (DENSE + EXPERTS))
    assert found_s == pytest.approx(FORWARD_S + BACKWARD_S + 2 * half_s(8, LAYERS * DENSE) + own * APPLY_S, rel=1e-9)


@pytest.mark.parametrize("expert", [2, 4])
def test_experts_are_shared_by_the_copies_that_have_the_same(expert: int) -> None:
    """8 / e copies have the same e-th of the experts, which these scatter and gather after the dense ones; all state is shared once."""
    scenario = built({"workers": 8, "expert": expert, "shard": "optimizer"}, spread=8)
    moved_s = half_s(8, LAYERS * DENSE) + half_s(8 // expert, LAYERS * EXPERTS / expert)
    assert step_s(scenario) == pytest.approx(FORWARD_S + BACKWARD_S + 2 * moved_s + APPLY_S / 8, rel=1e-9)


def test_experts_in_groups_that_share_state() -> None:
    """Sixteen copies on two nodes share state by eights, experts lie on four: both nodes have each part of either, and sum it after."""
    scenario = built({"workers": 16, "expert": 4, "shard": "optimizer", "shard_group": 8}, spread=8)
    dense, experts = LAYERS * DENSE, LAYERS * EXPERTS / 4
    # eight groups of two use the link between the nodes at the same time
    across_s = 2 * ((dense / 8 + experts / 2) / 2 * 8 / RATE + 2 * LATENCY_S)
    moved_s = 2 * half_s(8, dense) + 2 * half_s(2, experts) + across_s
    assert step_s(scenario) == pytest.approx(FORWARD_S + BACKWARD_S + moved_s + APPLY_S / 8, rel=1e-9)


def test_fully_sharded_experts_gather_what_a_device_computes_with() -> None:
    """On a slow link every layer's own variables are gathered twice and scattered once, those of experts and all others in turn."""
    slow = {"bandwidth_bytes_per_s": 1e7, "latency_s": 0.0}
    scenario = built({"workers": 8, "expert": 4, "shard": "parameters"}, spread=8, link=slow, compute=1e-3)
    dense_s, experts_s = 7 / 8 * DENSE / 1e7, 1 / 2 * EXPERTS / 4 / 1e7
    busy_s = LAYERS * 3 * (experts_s + dense_s)
    assert busy_s < step_s(scenario) < busy_s + 1e-3 * (FORWARD_S + BACKWARD_S) + APPLY_S
    assert bytes_of(scenario)["shards of experts", "all-gather"] == pytest.approx(2 * LAYERS * EXPERTS / 4)


@pytest.mark.parametrize("expert", [1, 2, 4])
def test_gathers_hide_behind_the_layer_before_where_experts_are_spread(expert: int) -> None:
    """A gather goes before the reduce-scatter of the layer that computes meanwhile: the first gather and the last scatter show."""
    copies, one_s = 8 // expert, 0.03
    link = {"bandwidth_bytes_per_s": (7 / 8 * DENSE + (copies - 1) / copies * EXPERTS / expert) / one_s, "latency_s": 0.0}
    found_s = step_s(built({"workers": 8, "expert": expert, "shard": "parameters"}, spread=8, link=link))
    assert one_s < FORWARD_S / LAYERS < 2 * one_s < BACKWARD_S / LAYERS
    assert found_s == pytest.approx(FORWARD_S + BACKWARD_S + 2 * one_s + APPLY_S / 8, rel=1e-9)


@pytest.mark.parametrize("strategy", [{"shard": "parameters"}, {"shard": "gradients", "bucket_size_bytes": 4e6}, {"pipeline": 2}])
def test_experts_that_every_copy_has_are_as_any_other_variable(strategy: dict[str, Any]) -> None:
    """Not spread, they have the link no sooner: naming what is experts' changes nothing."""
    slow = {"bandwidth_bytes_per_s": 1e7, "latency_s": 0.0}
    named = built({"workers": 8, **strategy}, spread=8, link=slow, compute=1e-3)
    layers = [
        layer.model_copy(update={"experts": None if layer.experts is None else layer.experts.model_copy(update={"variables": ()})})
        for layer in named.workload.layers
    ]
    unnamed = named.model_copy(update={"workload": named.workload.model_copy(update={"layers": tuple(layers)})})
    assert step_s(named) == step_s(unnamed)


@pytest.mark.parametrize("expert", [2, 4])
@pytest.mark.parametrize("shard", ["parameters", "gradients", "optimizer", "none"])
def test_a_link_carries_no_more_than_it_can(expert: int, shard: str) -> None:
    """Experts' collectives and all others share the links between copies: a step lasts at least what all of them last alone."""
    strategy = {"workers": 8, "expert": expert, "shard": shard} | ({"bucket_size_bytes": 4e6} if shard != "parameters" else {})
    link = {"bandwidth_bytes_per_s": 1e7, "latency_s": 0.0}
    scenario = built(strategy, spread=8, link=link, compute=1e-3)
    assert step_s(scenario) >= sum(its.seconds for its in simulate(scenario).exchanges)


def test_experts_that_nobody_shares_are_reduced_once_a_step() -> None:
    """Two copies share a state and experts lie on two: gradients of these are kept whole through four micro-batches, and summed once."""
    strategy = {"workers": 8, "expert": 2, "shard": "gradients", "shard_group": 2}
    moved = bytes_of(built(strategy, {"micro_batches": 4}, spread=8))
    assert moved["alike experts", "all-reduce"] == LAYERS * EXPERTS / 2
    assert moved["shards", "reduce-scatter"] == 4 * LAYERS * DENSE


@pytest.mark.parametrize("law", [{"kind": "empirical", "values": [1.5]}, {"kind": "empirical", "values": [1.0, 1.5]}])
def test_a_device_with_all_experts_has_no_more_tokens_than_others(law: dict[str, Any]) -> None:
    even, uneven = (built({"workers": 8, "shard": "optimizer", **its}, spread=8) for its in ({}, {"expert_imbalance": law}))
    assert step_s(uneven) == step_s(even)


@pytest.mark.parametrize("expert", [1, 2, 4, 8])
@pytest.mark.parametrize("tensor", [1, 2])
def test_what_is_gathered_is_what_is_held(expert: int, tensor: int) -> None:
    """After an update a device gathers the parameters that it has; only experts that nobody else has it made itself."""
    split = {"tensor": {"divided": 1.0}}
    scenario = built({"workers": 8 * tensor, "tensor": tensor, "expert": expert, "shard": "optimizer"}, MIXED, spread=8, **split)
    moved = bytes_of(scenario)
    gathered = sum(size for (_, does), size in moved.items() if does == "all-gather")
    alone = LAYERS * EXPERTS / 8 / tensor / 2 if expert == 8 else 0.0
    assert gathered + alone == pytest.approx(held(scenario)["parameters"])
    assert held(scenario)["parameters"] == pytest.approx(LAYERS * (DENSE + EXPERTS / expert) / tensor / 2)  # of 2 bytes each


# -- what a number takes -----------------------------------------------------------------------


def test_activations_that_stages_hand_on_have_the_bytes_that_they_are_kept_in() -> None:
    for training, size in (({}, 1e5), (MIXED, 0.5e5)):
        scenario = built({"workers": 2, "pipeline": 2}, training, output_bytes_per_sample=1e5, kept_bytes_per_sample=1e5)
        sent_s = BATCH * size / RATE + LATENCY_S
        assert step_s(scenario) == pytest.approx(FORWARD_S + BACKWARD_S + 2 * sent_s + APPLY_S / 2, rel=1e-9)
        assert held(scenario)["activations"] == LAYERS / 2 * BATCH * size


@pytest.mark.parametrize("way", ["tensor", "expert"])
def test_exchanges_amid_passes_have_the_bytes_of_activations(way: str) -> None:
    layer: dict[str, Any] = {"tensor": {"forward_bytes_per_sample": [1e6], "backward_bytes_per_sample": [1e6]}}
    times = 2 * LAYERS * 2  # an all-reduce is two halves, in two passes of each layer
    if way == "expert":
        layer = {"experts": {"count": 8, "used": 1, "bytes_per_sample": 1e6}}
        times = 4 * LAYERS
    plain, mixed = (bytes_of(built({"workers": 4, way: 4}, its, **layer)) for its in ({}, MIXED))
    key = next(key for key in plain if key[0] in ("tensor", "experts"))
    assert mixed[key] == plain[key] / 2
    plain_s, mixed_s = (step_s(built({"workers": 4, way: 4}, its, **layer)) for its in ({}, MIXED))
    assert plain_s - mixed_s == pytest.approx(times * 3 / 4 * BATCH * 0.5e6 / RATE, rel=1e-6)


@pytest.mark.parametrize("reduced", ["float32", "compute"])
def test_gradients_are_reduced_in_what_the_key_says_and_parameters_gathered_in_16_bits(reduced: str) -> None:
    """ZeRO-1 in mixed precision: 4 or 2 bytes of each gradient are scattered, 2 of each parameter gathered."""
    strategy = {"workers": 8, "shard": "optimizer", "reduce_precision": reduced}
    found_s = step_s(built(strategy, MIXED))
    scattered = LAYERS * DENSE / (2 if reduced == "compute" else 1)
    moved_s = half_s(8, scattered) + half_s(8, LAYERS * DENSE / 2)
    assert found_s == pytest.approx(FORWARD_S + BACKWARD_S + moved_s + APPLY_S / 8, rel=1e-9)
    plain_s = step_s(built(strategy, {}))  # what is computed in is float32
    assert plain_s == pytest.approx(FORWARD_S + BACKWARD_S + 2 * half_s(8, LAYERS * DENSE) + APPLY_S / 8, rel=1e-9)


@pytest.mark.slow
def test_whole_copies_reduce_in_16_bits_too() -> None:
    found_s = step_s(built({"workers": 8, "reduce_precision": "compute"}, MIXED))
    assert found_s == pytest.approx(FORWARD_S + BACKWARD_S + 2 * half_s(8, LAYERS * DENSE / 2) + APPLY_S, rel=1e-9)


def test_fully_sharded_parameters_are_gathered_as_they_are_held() -> None:
    """3 Psi of traffic in mixed precision: 2 + 2 bytes gathered, and 4 scattered, of each parameter."""
    scenario = built({"workers": 8, "shard": "parameters"}, MIXED)
    moved = bytes_of(scenario)
    assert moved["shards", "all-gather"] == 2 * LAYERS * DENSE / 2
    assert moved["shards", "reduce-scatter"] == LAYERS * DENSE
    assert held(scenario)["gathered"] == (1 + 2 * 2) * DENSE / 2  # the first layer stays; two more, each as it comes and as it is used
    assert held(scenario)["buckets"] == DENSE
    halved = built({"workers": 8, "shard": "parameters", "reduce_precision": "compute", "prefetch": 2}, MIXED)
    assert bytes_of(halved)["shards", "reduce-scatter"] == held(halved)["buckets"] * LAYERS == LAYERS * DENSE / 2
    assert held(halved)["gathered"] == (1 + 2 * 3) * DENSE / 2


# -- kept, or gathered for each micro-batch ----------------------------------------------------


@pytest.mark.parametrize("keeps", [False, True])
def test_what_is_not_kept_is_gathered_and_reduced_for_each_micro_batch(keeps: bool) -> None:
    """Where links alone decide: 2 Psi a step if a device keeps it, 3 Psi for each micro-batch if not (ZeRO, section 7.2.2)."""
    slow = {"bandwidth_bytes_per_s": 1e7, "latency_s": 0.0}
    strategy = {"workers": 8, "shard": "parameters", "keep_gathered": keeps}
    scenario = built(strategy, {"micro_batches": 4}, link=slow, compute=1e-3)
    one_s = 7 / 8 * DENSE / 1e7
    halves = 2 if keeps else 3 * 4
    assert halves * LAYERS * one_s <= step_s(scenario) < (halves * LAYERS + 0.1) * one_s + APPLY_S
    parts = held(scenario)
    assert parts["gathered"] == (LAYERS if keeps else 2) * DENSE
    assert parts["gradients"] == LAYERS * DENSE / (1 if keeps else 8)
    assert parts["parameters"] == LAYERS * DENSE / 8


@pytest.mark.parametrize("shard", ["gradients", "parameters"])
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "zero-bubble", "interleaved"])
def test_a_pipeline_holds_what_it_does_not_send_again(shard: str, schedule: str) -> None:
    """Of four layers a stage: as PyTorch, gathered and reduced once and kept; told not to, for each of four micro-batches, and freed."""
    strategy = {"workers": 4, "pipeline": 2, "shard": shard, "schedule": schedule, "chunks": 2 if schedule == "interleaved" else 1}
    for keys, times in (({}, 1), ({"keep_gathered": True}, 1), ({"keep_gathered": False}, 4)):
        scenario = built(strategy | keys, {"micro_batches": 4})
        moved, parts = bytes_of(scenario), held(scenario)
        assert moved["shards", "reduce-scatter"] == times * 4 * DENSE
        assert parts["gradients"] == 4 * DENSE / (1 if times == 1 else 2)
        if shard == "gradients":
            assert moved["shards", "all-gather"] == 4 * DENSE
            continue
        assert moved["shards", "all-gather"] == (1 if times == 1 else 2 * times) * 4 * DENSE
        assert parts["gathered"] == (4 if times == 1 else 2) * DENSE


# -- activations in flight ---------------------------------------------------------------------


@pytest.mark.parametrize(("stages", "chunks", "micro_batches"), [(2, 2, 8), (4, 2, 8), (2, 4, 8), (2, 2, 2)])
def test_interleaved_stages_keep_what_korthikanti_counts(stages: int, chunks: int, micro_batches: int) -> None:
    """Of the first stage L (1 + (p - 1) / (p v)) layers of a micro-batch (MLSys 2023, section 4.2.3)."""
    strategy = {"workers": stages, "pipeline": stages, "schedule": "interleaved", "chunks": chunks}
    scenario = built(strategy, {"micro_batches": micro_batches}, kept_bytes_per_sample=1e3)
    layers = min(LAYERS * (1 + (stages - 1) / (stages * chunks)), LAYERS / stages * micro_batches)
    assert held(scenario)["activations"] == pytest.approx(layers * BATCH / micro_batches * 1e3)


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_chunks_that_differ_hold_most_at_one_moment(stage: int) -> None:
    """Each layer keeps another amount: the largest sum over chunks while the schedule is gone through pass by pass."""
    strategy = {"workers": 4, "pipeline": 4, "schedule": "interleaved", "chunks": 2}
    scenario = built(strategy, {"micro_batches": 8})
    kept = [10.0 ** (at % 3) * (at + 1) for at in range(LAYERS)]
    layers = [layer.model_copy(update={"kept_bytes_per_sample": its}) for layer, its in zip(scenario.workload.layers, kept, strict=True)]
    scenario = scenario.model_copy(update={"workload": scenario.workload.model_copy(update={"layers": tuple(layers)})})
    # forward passes by turns of four micro-batches through chunk 0, then chunk 1; backward passes the other way round
    forward = [turn for _ in range(2) for turn in [0] * 4 + [1] * 4]
    backward = [1 - chunk for chunk in forward]
    ahead = min(2 * (3 - stage) + 4, 16)
    passes = [(chunk, 1) for chunk in forward[:ahead]]
    for there, back in zip(forward[ahead:], backward, strict=False):
        passes += [(there, 1), (back, -1)]
    passes += [(chunk, -1) for chunk in backward[16 - ahead :]]
    now = most = 0.0
    for chunk, sign in passes:
        now += sign * kept[chunk * 4 + stage]
        most = max(most, now)
    assert now == pytest.approx(0.0, abs=1e-9)
    assert held(scenario, stage)["activations"] == pytest.approx(most * BATCH / 8)


# -- variables that two stages use -------------------------------------------------------------


def tied(scenario: Scenario) -> Scenario:
    """The same where the last layer uses the first one's variable too."""
    *layers, last = scenario.workload.layers
    return scenario.model_copy(
        update={"workload": scenario.workload.model_copy(update={"layers": (*layers, last.model_copy(update={"tied": (0,)}))})}
    )


@pytest.mark.parametrize("schedule", ["gpipe", "interleaved"])
@pytest.mark.parametrize("copies", [1, 2])
def test_a_tied_variable_has_a_copy_on_the_last_stage_and_its_gradients_are_summed(copies: int, schedule: str) -> None:
    """As Megatron-LM: the last stage keeps whole state of its copy and updates it; copies of the model reduce it as all else, and then the
    first and the last stage of each sum theirs."""
    strategy = {"workers": 4 * copies, "pipeline": 4, "schedule": schedule, "chunks": 2 if schedule == "interleaved" else 1}
    plain = built(strategy, {"micro_batches": 4, "optimizer": "adam"})
    both = tied(plain)
    for stage in range(4):
        before, after = held(plain, stage), held(both, stage)
        for part, times in (("parameters", 1), ("gradients", 1), ("optimizer", 2)):
            assert after[part] - before[part] == (times * DENSE if stage == 3 else 0.0)
    moved = bytes_of(both)
    assert moved["tied stages", "all-reduce"] == DENSE
    assert ("tied stages", "all-reduce") not in bytes_of(plain)
    if copies == 2 and schedule == "gpipe":
        # the first stage ends last; the last one, which has three layers to reduce in place of two, long before
        summed_s = 2 * half_s(2, DENSE)
        assert step_s(both) - step_s(plain) == pytest.approx(summed_s, rel=1e-6)


def test_who_has_both_layers_has_no_copy() -> None:
    assert held(tied(built({"workers": 8, "shard": "optimizer"}))) == held(built({"workers": 8, "shard": "optimizer"}))
    assert bytes_of(tied(built({"workers": 8}))) == bytes_of(built({"workers": 8}))


def test_a_published_model_in_four_stages_has_its_embedding_twice() -> None:
    """GPT-3 XL in mixed precision by Adam: 50,257 x 2,048 numbers of 2 + 4 + 12 bytes."""
    table = scenario_table(
        cluster={"use": "p4de.24xlarge"},
        strategy={"kind": "hybrid", "workers": 4, "pipeline": 4},
        training={"micro_batches": 4, "optimizer": "adam"},
    )
    load = {"use": "gpt-1.3b", "batch_per_replica": 4}
    on_one, on_four = (
        scenario_from_table({**table, "workload": load, "strategy": {"kind": "hybrid", "workers": 4, "pipeline": count}}, "test")
        for count in (1, 4)
    )
    parts = ("parameters", "gradients", "optimizer")
    whole = sum(held(on_one)[part] for part in parts)
    cut = sum(held(on_four, stage)[part] for stage in range(4) for part in parts)
    assert cut - whole == pytest.approx(18 * on_four.workload.transformer.vocabulary * 2048)


def test_a_stage_has_one_copy_however_many_of_its_layers_use_it() -> None:
    """An embedding that the last two layers use: the last stage has, updates and sums one copy of it."""
    plain = built({"workers": 4, "pipeline": 4}, {"micro_batches": 4, "optimizer": "adam"})
    *layers, before, last = plain.workload.layers
    users = tuple(layer.model_copy(update={"tied": (0,)}) for layer in (before, last))
    twice = plain.model_copy(update={"workload": plain.workload.model_copy(update={"layers": (*layers, *users)})})
    assert held(twice, 3) == held(tied(plain), 3)
    assert bytes_of(twice) == bytes_of(tied(plain))
    assert step_s(twice) == step_s(tied(plain))


# -- what is reduced as one --------------------------------------------------------------------


@pytest.mark.parametrize(("bucket_size_bytes", "together"), [(None, 4), (2 * DENSE, 2), (3 * DENSE, 3), (0.5 * DENSE, 1)])
def test_gradients_that_are_freed_are_held_until_they_are_reduced(bucket_size_bytes: float | None, together: int) -> None:
    """Of four layers of a stage: all at once, or as many as fill a bucket."""
    strategy = {"workers": 8, "pipeline": 2, "shard": "gradients", "keep_gathered": False}
    scenario = built(strategy | ({"bucket_size_bytes": bucket_size_bytes} if bucket_size_bytes else {}), {"micro_batches": 4})
    assert held(scenario)["buckets"] == together * DENSE
    assert bytes_of(scenario)["shards", "reduce-scatter"] == 4 * 4 * DENSE


def test_buckets_are_of_what_a_device_has() -> None:
    """Tensors split over two: a device has half of each layer's gradients, and a bucket of a layer's size takes two layers."""
    strategy = {"workers": 16, "tensor": 2, "shard": "gradients", "keep_gathered": False, "bucket_size_bytes": DENSE}
    scenario = built(strategy, {"micro_batches": 4}, tensor={"divided": 1.0})
    assert held(scenario)["buckets"] == DENSE
    times = [its.times for its in simulate(scenario).exchanges if its.does == "reduce-scatter"]
    assert times == [4 * LAYERS / 2]


def test_layers_on_hosts_are_not_gathered_on_devices() -> None:
    with pytest.raises(ScenarioError, match=r"strategy\.on_host keeps layers whole on hosts"):
        built({"workers": 8, "shard": "parameters", "on_host": ["layer 0"]}, cluster={"host_link": LINK})


# -- checkpoints -------------------------------------------------------------------------------


def checkpoint_of(scenario: Scenario) -> Writing:
    """Of a blocking checkpoint, at 1 GB/s a node of eight devices."""
    storage = {"latency_s": 0.0, "node_bandwidth_bytes_per_s": 1e9}
    table = scenario.model_dump(mode="json")
    job = {"epochs": 1, "dataset_size": 1e5, "checkpoint": {"every_epochs": 1, "mode": "blocking"}}
    whole = scenario_from_table({**table, "cluster": {**table["cluster"], "storage": storage}, "job": job}, "test")
    writing = writing_of(resolve(whole))
    assert writing is not None
    return writing


@pytest.mark.parametrize(
    ("strategy", "nodes"), [({"shard": "none"}, 1), ({"shard": "optimizer"}, 4), ({"shard": "optimizer", "shard_group": 16}, 2)]
)
def test_every_node_that_has_a_part_of_the_state_writes_it(strategy: dict[str, Any], nodes: int) -> None:
    """A parameter and Adam's two slots, four bytes each.

    What is whole on every device is written by the first; what is in shards by all that share one copy of it at once.
    """
    writing = checkpoint_of(built({"workers": 32, **strategy}, {"optimizer": "adam"}))
    assert writing.size_bytes == 3 * LAYERS * DENSE
    assert writing.stop_s == pytest.approx((1 + 2 / nodes) * LAYERS * DENSE / 1e9)


def test_variables_in_32_bits_are_written_by_those_that_share_slots() -> None:
    """In mixed precision they belong to the optimizer's state: nobody has them whole."""
    writing = checkpoint_of(built({"workers": 32, "shard": "optimizer"}, {"optimizer": "adam", **MIXED}))
    assert writing.stop_s == writing.restore_s == pytest.approx(3 * LAYERS * DENSE / 4 / 1e9)


def test_stages_write_and_read_what_they_hold() -> None:
    """Six and two of eight layers, a node each: the larger part decides."""
    writing = checkpoint_of(built({"workers": 16, "pipeline": 2, "stages": [6]}, {"optimizer": "adam"}))
    assert writing.stop_s == writing.restore_s == pytest.approx(3 * 6 * DENSE / 1e9)


def test_a_copy_of_a_tied_variable_is_read_and_not_written() -> None:
    """Two layers on each of four nodes, the last of which has the first one's variable too."""
    writing = checkpoint_of(tied(built({"workers": 32, "pipeline": 4}, {"optimizer": "adam"})))
    assert writing.size_bytes == 3 * LAYERS * DENSE
    assert writing.stop_s == pytest.approx(3 * 2 * DENSE / 1e9)
    assert writing.restore_s == pytest.approx(3 * 3 * DENSE / 1e9)


@pytest.mark.parametrize(("expert", "nodes"), [(8, 1), (16, 2)])
def test_experts_are_written_by_those_that_they_lie_on(expert: int, nodes: int) -> None:
    """Thirty-two copies, nothing shared: the first node has all else."""
    writing = checkpoint_of(built({"workers": 32, "expert": expert}, {"optimizer": "adam"}, spread=16))
    assert writing.stop_s == pytest.approx(3 * LAYERS * (DENSE + EXPERTS / nodes) / 1e9)


def test_experts_that_no_group_can_share_are_written_as_they_are_held() -> None:
    """Groups of six copies share a state, experts lie on four: six is no multiple, so that memory, traffic and checkpoint leave them."""
    scenario = built({"workers": 24, "expert": 4, "shard": "optimizer", "shard_group": 6}, {"optimizer": "adam"}, spread=4)
    writing = checkpoint_of(scenario)  # all six, and all four, are on the first node
    assert writing.stop_s == pytest.approx(3 * LAYERS * (DENSE + EXPERTS) / 1e9)
    assert held(scenario)["optimizer"] == pytest.approx(2 * LAYERS * (DENSE / 6 + EXPERTS / 4))
