"""Experts that fewer devices split than tensors (Megatron-LM's expert tensor parallelism): who has which, what they exchange, and when."""

from __future__ import annotations

import math
from typing import Any

import pytest
from support.hybrids import BATCH, LAYERS, hybrid

from simulator import Scenario, simulate
from simulator.base.errors import ScenarioError
from simulator.job.costs import _held as parts_of_checkpoint
from simulator.memory import memory_of, state_bytes
from simulator.resolve.resolve import resolve
from simulator.spec.figures import Exchange

FORWARD_S, BACKWARD_S, APPLY_S = 0.03 * LAYERS, 0.06 * LAYERS, 0.008
DENSE, EXPERTS, SUMMED, TOKENS = 1e6, 16e6, 1e5, 2e5
RATE, LATENCY_S = 1e10, 5e-6
NODE: dict[str, Any] = {"devices_per_node": 8, "intra_node": {"bandwidth_bytes_per_s": RATE, "latency_s": LATENCY_S}}


def built(cluster: dict[str, Any] | None = None, **strategy: Any) -> Scenario:
    """Eight layers with eight experts each, two all-reduces in each pass of a split layer."""
    names = [f"v{at}" for at in range(LAYERS)] + [f"e{at}" for at in range(LAYERS)]
    variables = [
        {"name": name, "size_bytes": EXPERTS if name[0] == "e" else DENSE, "creation_index": at, "ready": 1 - at / len(names)}
        for at, name in enumerate(names)
    ]
    layers = [
        {
            "name": f"layer {at}", "forward": 1.0, "variables": [at, LAYERS + at], "output_bytes_per_sample": 0.0,
            "tensor": {"forward_bytes_per_sample": [SUMMED] * 2, "backward_bytes_per_sample": [SUMMED] * 2},
            "experts": {"count": 8, "used": 2, "bytes_per_sample": TOKENS, "variables": [LAYERS + at]},
            "attention": {"bytes_per_sample": 0.0},
        }
        for at in range(LAYERS)
    ]  # fmt: skip
    keys = {"sequence_parallel": True, **strategy}
    return hybrid(keys, cluster={**NODE, **(cluster or {})}, workload={"variables": variables[::-1], "layers": layers})


def half_s(ranks: int, size_bytes: float) -> float:
    """A reduce-scatter or an all-gather on a ring: n - 1 turns of an n-th."""
    return (ranks - 1) * (size_bytes / ranks / RATE + LATENCY_S)


def sent_s(devices: int, size_bytes: float) -> float:
    """To each of the others an n-th of what a device has."""
    return (devices - 1) * size_bytes / devices / RATE + LATENCY_S if devices > 1 else 0.0


def held(scenario: Scenario) -> dict[str, float]:
    return {part.name: part.size_bytes or 0.0 for part in memory_of(resolve(scenario))[0].parts}


def found(scenario: Scenario) -> dict[tuple[str, str], Exchange]:
    return {(its.among, its.does): its for its in simulate(scenario).exchanges}


CASES = [  # devices, tensor, experts over, each split over
    (8, 2, 4, 1),  # half a stage's devices have all experts
    (8, 2, 8, 1),
    (4, 4, 2, 1),  # twice in those that split tensors
    (8, 4, 2, 1),
    (4, 4, 1, 2),  # likewise, but each split over two
    (4, 4, 2, 2),
    (8, 4, 4, 2),
    (8, 2, 1, 1),  # all on each device
]


@pytest.mark.parametrize(("devices", "tensor", "expert", "split"), CASES)
def test_what_a_device_holds(devices: int, tensor: int, expert: int, split: int) -> None:
    """Of experts 1 / (e x): 8 e-ths of them, each an x-th; slots are shared by the devices / (e x) that have the same."""
    for shard in ("none", "optimizer"):
        scenario = built(workers=devices, tensor=tensor, expert=expert, expert_tensor=split, shard=shard)
        scenario = scenario.replaced({"training.optimizer": "adam"})
        copies, alike = (devices // tensor, devices // (expert * split)) if shard == "optimizer" and devices > tensor else (1, 1)
        parts = held(scenario)
        assert parts["parameters"] == parts["gradients"] == LAYERS * (DENSE / tensor + EXPERTS / (expert * split))
        assert parts["optimizer"] == 2 * LAYERS * (DENSE / tensor / copies + EXPERTS / (expert * split) / alike)


@pytest.mark.parametrize(("devices", "tensor", "expert", "split"), CASES)
def test_what_devices_exchange_and_how_long_it_takes(devices: int, tensor: int, expert: int, split: int) -> None:
    """In each pass one sum of tensors, and where experts are split theirs of a part; tokens go there and back; two sums of gradients."""
    scenario = built(workers=devices, tensor=tensor, expert=expert, expert_tensor=split)
    passes_s = 2 * half_s(tensor, SUMMED * BATCH)
    passes_s += 2 * half_s(split, SUMMED * BATCH * split / tensor) if split > 1 else 0.0
    passes_s += 2 * sent_s(expert, 2 * TOKENS * BATCH / tensor)
    alike, copies = devices // (expert * split), devices // tensor
    dense_s, experts_s = 2 * half_s(copies, LAYERS * DENSE / tensor), 2 * half_s(alike, LAYERS * EXPERTS / (expert * split))
    result = simulate(scenario)
    own = (DENSE / tensor + EXPERTS / (expert * split)) / (DENSE + EXPERTS)
    computed_s = (FORWARD_S + BACKWARD_S) / tensor + own * APPLY_S
    step_s = computed_s + 2 * LAYERS * passes_s + dense_s * (copies > 1) + experts_s * (alike > 1)
    assert scenario.batch * scenario.replicas / result.throughput_samples_per_s.mean == pytest.approx(step_s, rel=1e-9)
    exchanges = found(scenario)
    assert (("alike experts", "all-reduce") in exchanges) == (alike > 1)
    if alike > 1:
        among = exchanges["alike experts", "all-reduce"]
        assert (among.devices, among.size_bytes) == (alike, LAYERS * EXPERTS / (expert * split))
        assert among.seconds == pytest.approx(experts_s)


def test_experts_on_a_node_are_exchanged_inside_it() -> None:
    """Two nodes of four: experts over four devices stay on a node; the same experts of both nodes are summed between them."""
    scenario = built({"devices_per_node": 4}, workers=8, tensor=2, expert=4, expert_tensor=1)
    exchanges = found(scenario)
    assert exchanges["tensor and experts", "reduce-scatter and all-gather and all-to-all"].links == "in a node"
    assert (exchanges["alike experts", "all-reduce"].links, exchanges["alike experts", "all-reduce"].devices) == ("between nodes", 2)


def test_experts_lie_on_the_parts_of_sequences_too() -> None:
    """Tensor 2 x context 2 x 2 copies: experts over all eight devices, each of which has one."""
    scenario = built(workers=8, tensor=2, context=2, expert=8, expert_tensor=1)
    assert held(scenario)["parameters"] == LAYERS * (DENSE / 2 + EXPERTS / 8)
    assert ("alike experts", "all-reduce") not in found(scenario)


def test_state_of_experts_is_scattered_among_those_that_have_the_same() -> None:
    exchanges = found(built(workers=8, tensor=2, expert=2, expert_tensor=1, shard="optimizer"))
    among = exchanges["shards of experts", "reduce-scatter"]
    assert (among.devices, among.size_bytes) == (4, LAYERS * EXPERTS / 2)
    assert among.seconds == pytest.approx(half_s(4, LAYERS * EXPERTS / 2))
    assert exchanges["shards of experts", "all-gather"].size_bytes == LAYERS * EXPERTS / 2


@pytest.mark.parametrize("shard", ["none", "optimizer"])
@pytest.mark.parametrize(("devices", "tensor", "expert", "split"), [*CASES, (8, 2, 2, 2), (8, 1, 4, 1)])
def test_a_checkpoint_has_each_part_once(devices: int, tensor: int, expert: int, split: int, shard: str) -> None:
    scenario = resolve(built(workers=devices, tensor=tensor, expert=expert, expert_tensor=split, shard=shard))
    entries = list(parts_of_checkpoint(scenario, scenario.strategy))
    assert all(parts <= tensor and among <= devices // tensor for _, among, parts, *_ in entries)
    assert math.fsum(among * parts * own_bytes for _, among, parts, own_bytes, _ in entries) == pytest.approx(state_bytes(scenario))


def test_split_as_tensors_are_is_as_left_out() -> None:
    left_out, as_tensors = (simulate(built(workers=8, tensor=2, expert=4, **keys)) for keys in ({}, {"expert_tensor": 2}))
    assert left_out.model_dump(exclude={"scenario", "scenario_hash"}) == as_tensors.model_dump(exclude={"scenario", "scenario_hash"})


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"workers": 8, "tensor": 4, "expert": 2, "expert_tensor": 3}, "must divide strategy.tensor"),
        ({"workers": 8, "tensor": 2, "expert": 8, "expert_tensor": 2}, "must divide the 4 copies"),
        ({"workers": 4, "tensor": 2, "expert": 8, "expert_tensor": 1}, "must divide the 4 devices of a stage"),
        ({"workers": 8, "tensor": 2, "expert": 2, "expert_tensor": 1, "sequence_parallel": False}, "needs sequence_parallel"),
    ],
)
def test_what_does_not_go(keys: dict[str, Any], says: str) -> None:
    with pytest.raises(ScenarioError, match=says):
        built(**keys)


def test_experts_in_words() -> None:
    strategy = built(workers=8, tensor=2, expert=4, expert_tensor=1).strategy
    assert strategy.in_words == "2-way tensor parallel, 4-way expert parallel of whole experts"
    assert strategy.software == ("deepspeed", "megatron-lm")
    assert built(workers=4, tensor=4, expert=2, expert_tensor=2).strategy.software == ("megatron-lm",)
    assert strategy.fewer(7, 8).workers == 4
