"""Pipelines, split tensors, spread experts and sharded state against closed forms, and against every device by itself."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest
from support.scenarios import scenario_table

from simulator import Result, Scenario, scenario_from_table, simulate
from simulator.base.records import Span
from simulator.observing.recording import Recording
from simulator.strategies.hybrid.routine import bubble_of, passes, turn_of

LAYERS, BATCH = 8, 32
FORWARD_S, BACKWARD_S, APPLY_S = 0.32, 0.64, 0.016
FAST: dict[str, Any] = {"bandwidth": "1000 TB/s", "latency": "0 s"}


def built(
    strategy: dict[str, Any], training: dict[str, Any] | None = None, cluster: dict[str, Any] | None = None, **changes: Any
) -> Scenario:
    """Eight equal layers of a megabyte each; links that take no time unless others are given."""
    layer = {"forward": 1.0, "backward": 2.0, "output_bytes_per_sample": 0.0, **changes.pop("layer", {})}
    load: dict[str, Any] = {
        "name": "eight layers",
        "batch_per_replica": BATCH,
        "forward": {"base": "0 s", "per_sample_s": FORWARD_S / BATCH},
        "backward": {"base": "0 s", "per_sample_s": BACKWARD_S / BATCH},
        "apply_s": APPLY_S,
        "variables": [
            {"name": f"v{at}", "size_bytes": 1e6, "creation_index": at, "ready": 1 - at / LAYERS} for at in reversed(range(LAYERS))
        ],
        "layers": [{"name": f"layer {at}", "variables": [at], **layer} for at in range(LAYERS)],
        **changes.pop("workload", {}),
    }
    table = scenario_table(
        strategy={"kind": "hybrid", **strategy},
        training=training or {},
        cluster={"inter_node": FAST, "intra_node": FAST, **(cluster or {})},
        run={"steps": 12, "warmup_steps": 4, **changes},
    )
    return scenario_from_table({**table, "workload": load}, "test")


def step_s(scenario: Scenario) -> float:
    """Seconds between the ends of steps, which need not be those from a step's begin to its end."""
    result = simulate(scenario)
    return scenario.batch * scenario.replicas / result.throughput_samples_per_s.mean


# -- pipelines -----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 2), (4, 8), (8, 8), (4, 16), (4, 2)])
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_a_balanced_pipeline_is_idle_for_its_share(schedule: str, stages: int, micro_batches: int) -> None:
    """(p - 1) / (m + p - 1) of the time (Huang et al., GPipe, section 2.3)."""
    result = simulate(built({"workers": stages, "pipeline": stages, "schedule": schedule}, {"micro_batches": micro_batches}))
    pass_s = (FORWARD_S + BACKWARD_S) / stages / micro_batches
    flushed_s = (micro_batches + stages - 1) * pass_s
    assert result.step_time_s.mean == pytest.approx(flushed_s + APPLY_S / stages, rel=1e-9)
    assert result.breakdown_s.waiting / flushed_s == pytest.approx((stages - 1) / (micro_batches + stages - 1), rel=1e-9)
    assert result.utilisation.devices == pytest.approx(1 - result.breakdown_s.waiting / result.step_time_s.mean, rel=1e-9)


@pytest.mark.parametrize(("stages", "chunks", "micro_batches"), [(2, 2, 8), (2, 4, 8), (2, 2, 5), (4, 2, 7), (2, 4, 1), (4, 2, 3)])
def test_interleaving_parts_the_idle_time(stages: int, chunks: int, micro_batches: int) -> None:
    """(p - 1) / v passes of a stage (Narayanan et al., SC 2021, section 2.2.2); more where micro-batches are fewer than stages."""
    strategy = {"workers": stages, "pipeline": stages, "schedule": "interleaved", "chunks": chunks}
    result = simulate(built(strategy, {"micro_batches": micro_batches}, workload={"batch_per_replica": 4 * micro_batches}))
    pass_s = 4 * (FORWARD_S + BACKWARD_S) / BATCH / stages
    idle = (stages - 1 + (chunks - 1) * max(stages - micro_batches, 0)) / chunks
    flushed_s = (micro_batches + idle) * pass_s
    assert result.step_time_s.mean == pytest.approx(flushed_s + APPLY_S / stages, rel=1e-9)
    assert result.breakdown_s.waiting / flushed_s == pytest.approx(idle / (micro_batches + idle), rel=1e-9)


def ends_s(stages: int, chunks: int, micro_batches: int) -> float | None:
    """When the last pass ends, of 1 s forward and 2 s backward, by what each one needs; none where all stages wait for each other."""
    orders = [[(its.does, its.chunk * stages + at, its.micro_batch) for its in order]
              for at, order in enumerate(passes("interleaved", stages, micro_batches, chunks))]  # fmt: skip
    done: dict[tuple[str, int, int], float] = {}
    free, last = [0.0] * stages, stages * chunks - 1
    while any(orders):
        before = len(done)
        for at, order in enumerate(orders):
            while order:
                does, part, batch = order[0]
                needs = [("forward", part - 1, batch)] if does == "forward" and part else []
                if does == "backward":
                    needs = [("forward", part, batch)] + [("backward", part + 1, batch)] * (part < last)
                if not done.keys() >= set(needs):
                    break
                free[at] = max([free[at], *(done[its] for its in needs)]) + (1.0 if does == "forward" else 2.0)
                done[does, part, batch] = free[at]
                order.pop(0)
        if len(done) == before:
            return None
    assert len(done) == 2 * stages * chunks * micro_batches
    return max(free)


@pytest.mark.parametrize("stages", [2, 3, 4, 7])
def test_interleaved_stages_never_wait_for_each_other_and_are_idle_for_the_bubble(stages: int) -> None:
    for chunks in (2, 3, 4):
        for micro_batches in range(1, 4 * stages + 2):
            bubble = bubble_of("interleaved", stages, chunks, micro_batches, 0.5, cut_evenly=True)
            end_s = ends_s(stages, chunks, micro_batches)
            assert end_s is not None, (chunks, micro_batches)
            assert 1 - 3 * chunks * micro_batches / end_s == pytest.approx(bubble.share)


def test_turns_are_those_that_megatron_takes() -> None:
    """Its example of two stages of two chunks, five micro-batches and turns of three (``get_schedule_table``)."""
    assert [turn_of(2, 5), turn_of(4, 8), turn_of(4, 6), turn_of(4, 10), turn_of(4, 11), turn_of(4, 3)] == [3, 4, 6, 5, 6, 3]
    forward = [its for its in passes("interleaved", 2, 5, 2)[0] if its.does == "forward"]
    assert [its.micro_batch for its in forward] == [0, 1, 2, 0, 1, 2, 3, 4, 3, 4]
    assert [its.chunk for its in forward] == [0, 0, 0, 1, 1, 1, 0, 0, 1, 1]


@pytest.mark.parametrize("weights", [0.0, 0.25, 0.5, 0.6, 0.75, 1.0])
def test_gradients_of_weights_fill_what_would_be_idle(weights: float) -> None:
    """(p - 1) (F + B - W) (Qi et al., Zero Bubble Pipeline Parallelism, table 2: ZB-H1), where W is no longer than F; else (p - 1) B.

    Longer gradients of weights fill all that is left but the way of the first gradients of activations from the last stage to the first.
    """
    strategy = {"workers": 4, "pipeline": 4, "schedule": "zero-bubble", "weights_share": weights}
    forward_s, backward_s = FORWARD_S / 4 / 8, BACKWARD_S / 4 / 8
    idle_s = 3 * ((1 - weights) * backward_s + max(forward_s - weights * backward_s, 0.0))
    whole_s = 8 * (forward_s + backward_s) + idle_s
    scenario = built(strategy, {"micro_batches": 8})
    assert step_s(scenario) == pytest.approx(whole_s + APPLY_S / 4, rel=1e-9)
    bubble = scenario.strategy.model_parallel(scenario).bubble
    assert bubble is not None
    assert bubble.share == pytest.approx(idle_s / whole_s, rel=1e-9)


def test_unequal_stages_wait_for_the_slowest() -> None:
    """Cut after 5 of 8 layers: m passes of the first stage, and one of the second."""
    found_s = step_s(built({"workers": 2, "pipeline": 2, "stages": [5], "schedule": "gpipe"}, {"micro_batches": 4}))
    layer_s = FORWARD_S / LAYERS / 4, BACKWARD_S / LAYERS / 4
    assert found_s == pytest.approx(4 * 5 * sum(layer_s) + 3 * sum(layer_s) + APPLY_S * 5 / 8, rel=1e-9)


@pytest.mark.parametrize(
    ("layers", "tensor", "first_stage", "step_ms"),
    [([(4, 1), (1, 3), (1, 3.5)], 1, "0 to 1", 55.0), ([(6, 6), (2, 2), (2, 2), (2, 2)], 2, "0 to 1", 40.25)],
)
def test_balanced_stages_are_balanced_in_seconds(layers: list[tuple[float, float]], tensor: int, first_stage: str, step_ms: float) -> None:
    """Work forward and backward of which a unit does not take as long; and layers of which tensors divide the first alone.

    By hand, for four micro-batches by 1F1B: passes of (5, 8) and (1, 7) ms, where in units the first layer would be a stage of its own;
    and of (2.5, 6.25) and (2, 5) ms, where it would be if nothing divided it.
    """
    of_layers = [
        {"name": str(at), "forward": f, "backward": b, "variables": [at], "output_bytes_per_sample": 0.0}
        for at, (f, b) in enumerate(layers)
    ]
    of_layers[0] |= {"tensor": {}} if tensor > 1 else {}
    load = {
        "batch_per_replica": 4,
        "forward": {"base": "0 s", "per_sample_s": 6e-3},
        "backward": {"base": "0 s", "per_sample_s": 15e-3},
        "apply_s": 0.0,
        "variables": [{"name": f"v{at}", "size_bytes": 1.0, "creation_index": at, "ready": 1.0} for at in range(len(layers))],
        "layers": of_layers,
    }
    strategy = {"workers": 2 * tensor, "tensor": tensor, "pipeline": 2}
    scenario = built(strategy, {"micro_batches": 4}, {"devices_per_node": 4}, workload=load)
    assert simulate(scenario).stages[0].layers == first_stage
    assert step_s(scenario) == pytest.approx(step_ms / 1e3, rel=1e-9)


def test_activations_and_their_gradients_cross_the_link() -> None:
    """One micro-batch through two stages: activations there, gradients back; nobody computes meanwhile."""
    cluster = {"inter_node": {"bandwidth": "1 GB/s", "latency": "1 ms"}}
    result = simulate(built({"workers": 2, "pipeline": 2}, cluster=cluster, layer={"output_bytes_per_sample": 1e5}))
    sent_s = BATCH * 1e5 / 1e9 + 1e-3
    assert result.step_time_s.mean == pytest.approx(FORWARD_S + BACKWARD_S + 2 * sent_s + APPLY_S / 2, rel=1e-9)
    assert result.breakdown_s.exposed_communication == pytest.approx(sent_s * (2 + 1) / 2 - sent_s / 2, rel=0.5)


def test_what_is_computed_again_takes_time() -> None:
    strategy = {"workers": 4, "pipeline": 4}
    plain_s, full_s = (step_s(built(strategy, {"micro_batches": 4, "recompute": how})) for how in ("none", "full"))
    selective_s = step_s(built(strategy, {"micro_batches": 4, "recompute": "selective"}, layer={"selective_work": 0.25}))
    again_s = (4 + 3) * FORWARD_S / 4 / 4
    assert full_s - plain_s == pytest.approx(again_s, rel=1e-9)
    assert selective_s - plain_s == pytest.approx(again_s / 4, rel=1e-9)


def test_a_host_that_starts_kernels_sets_the_least_time() -> None:
    """Passes of small micro-batches take what the host needs, however few samples they have."""
    load = {"forward": {"base": "0 s", "per_sample_s": FORWARD_S / BATCH, "least_s": 0.08}}
    found_s = step_s(built({"workers": 4, "pipeline": 4}, {"micro_batches": 16}, workload=load))
    assert found_s == pytest.approx(19 * (0.08 + BACKWARD_S / 16) / 4 + APPLY_S / 4, rel=1e-9)


def test_an_asynchronous_pipeline_is_never_idle_and_as_late_as_stages_follow() -> None:
    """Stage s applies gradients of p - 1 - s steps ago (Narayanan et al., PipeDream, section 3.3), found by what let them begin."""
    scenario = built({"workers": 4, "pipeline": 4, "schedule": "pipedream"}, cluster={"inter_node": {"bandwidth": "1 TB/s"}})
    assert step_s(scenario) == pytest.approx((FORWARD_S + BACKWARD_S + APPLY_S) / 4, rel=1e-9)
    recording = Recording()
    simulate(scenario, observer=recording)
    work = recording.by_number()
    steps: dict[tuple[int, str], list[int]] = defaultdict(list)
    for span in recording.spans:
        steps[span.replica, span.kind].append(span.number)
    for stage in range(3):
        for step in range(6, 10):
            backward = steps[stage, "backward"][step]
            span = work[backward]
            assert isinstance(span, Span)
            brought = [its for its in recording.transfers if its.target.replica == stage and its.kind == "gradients"]
            began = [its for its in brought if its.arrived_s <= span.start_s + 1e-12][-1]
            maker = work[began.sender]
            assert isinstance(maker, Span)
            assert maker.replica == stage + 1
            assert steps[stage + 1, "backward"].index(maker.number) == step - 1
    assert scenario.strategy.delays == (3, 2, 1, 0)


def test_an_asynchronous_pipeline_does_not_wait_for_copies_of_tied_variables() -> None:
    """The last stage uses the first one's variable too. Nothing is summed between them, so that neither stands still."""
    plain = built({"workers": 4, "pipeline": 4, "schedule": "pipedream"}, workload={"apply_s": 0.0})
    *layers, last = plain.workload.layers
    load = plain.workload.model_copy(update={"layers": (*layers, last.model_copy(update={"tied": (0,)}))})
    assert step_s(plain.model_copy(update={"workload": load})) == pytest.approx((FORWARD_S + BACKWARD_S) / 4, rel=1e-9)


# -- split tensors, experts ----------------------------------------------------------------


def ring_s(operation: str, ranks: int, size_bytes: float, bytes_per_s: float, latency_s: float) -> float:
    turns = (ranks - 1) * (2 if operation == "all-reduce" else 1)
    return turns * (size_bytes / ranks / bytes_per_s + latency_s)


LINK: dict[str, Any] = {"bandwidth": "10 GB/s", "latency": "5 us"}


@pytest.mark.parametrize("sequence_parallel", [False, True])
@pytest.mark.parametrize("tensor", [2, 4])
def test_split_tensors_divide_work_and_exchange_in_each_layer(tensor: int, sequence_parallel: bool) -> None:
    strategy = {"workers": tensor, "tensor": tensor, "sequence_parallel": sequence_parallel}
    split = {"tensor": {"divided": 0.75, "forward_bytes_per_sample": [1e5, 1e5], "backward_bytes_per_sample": [1e5]}}
    found_s = step_s(built(strategy, cluster={"devices_per_node": 4, "intra_node": LINK}, layer=split))
    reduced_s = LAYERS * 3 * ring_s("all-reduce", tensor, BATCH * 1e5, 1e10, 5e-6)
    work = 1.0 / tensor if sequence_parallel else 0.75 / tensor + 0.25
    assert found_s == pytest.approx(work * (FORWARD_S + BACKWARD_S) + reduced_s + APPLY_S / tensor, rel=1e-9)


@pytest.mark.parametrize("used", [1, 2])
def test_tokens_go_to_experts_and_come_back(used: int) -> None:
    """Two all-to-alls in each pass of each layer: to each of the others an n-th of what a device has."""
    experts = {"experts": {"count": 8, "used": used, "bytes_per_sample": 1e5}}
    found_s = step_s(built({"workers": 4, "expert": 4}, cluster={"devices_per_node": 4, "intra_node": LINK}, layer=experts))
    sent_s = 3 * BATCH * used * 1e5 / 4 / 1e10 + 5e-6
    reduced_s = ring_s("all-reduce", 4, LAYERS * 1e6, 1e10, 5e-6)
    assert found_s == pytest.approx(FORWARD_S + BACKWARD_S + 4 * LAYERS * sent_s + reduced_s + APPLY_S, rel=1e-9)


def test_the_busiest_device_with_experts_sets_the_pace() -> None:
    """Of work that is half of experts', with 1.5 times the mean: a quarter more; capped at 1.2, a tenth."""
    experts = {"experts": {"count": 8, "used": 1, "work": 0.5, "bytes_per_sample": 0.0}}
    law = {"expert_imbalance": {"kind": "empirical", "values": [1.5]}}
    for capacity, slower in (({}, 1.25), ({"capacity": 1.2}, 1.1)):
        found_s = step_s(built({"workers": 2, "expert": 2, **law, **capacity}, layer=experts))
        assert found_s == pytest.approx(slower * (FORWARD_S + BACKWARD_S) + APPLY_S, rel=1e-7)


@pytest.mark.statistics
def test_experts_vary_from_step_to_step() -> None:
    """Two copies whose busiest device has 1 or 3 times the mean tokens, all of whose work experts do: both wait for it, and it is one."""
    experts = {"experts": {"count": 8, "used": 1, "work": 1.0, "bytes_per_sample": 0.0}}
    law = {"expert_imbalance": {"kind": "empirical", "values": [1.0, 3.0]}}
    scenario = built({"workers": 2, "expert": 2, **law}, layer=experts, steps=2004, replications=4)
    assert step_s(scenario) == pytest.approx(2 * (FORWARD_S + BACKWARD_S) + APPLY_S, rel=0.01)


@pytest.mark.statistics
@pytest.mark.parametrize("expert", [8, 16])
def test_the_busiest_device_is_drawn_once_for_all_that_wait_for_it(expert: int) -> None:
    """One layer with experts: among 16 copies that share its experts the mean step is that of the law; two groups of 8 wait for the worse.

    A step that is 1 or 1.5 times as long in half of all cases is 1.25 times as long in the mean; the worse of two, 0.25 + 0.75 x 1.5.
    """
    experts = {"experts": {"count": 16, "used": 1, "work": 1.0, "bytes_per_sample": 0.0}}
    law = {"expert_imbalance": {"kind": "empirical", "values": [1.0, 1.5]}}
    load = {"layers": [{"name": "all", "forward": 1.0, "variables": list(range(LAYERS)), "output_bytes_per_sample": 0.0, **experts}]}
    scenario = built({"workers": 16, "expert": expert, **law}, workload=load, steps=2004, replications=4)
    times = 1.25 if expert == 16 else 0.25 + 0.75 * 1.5
    assert step_s(scenario) == pytest.approx(times * (FORWARD_S + BACKWARD_S) + APPLY_S, rel=0.01)


@pytest.mark.statistics
def test_layers_with_experts_are_drawn_one_by_one() -> None:
    """Of eight layers that have 1 or 3 times the mean each, a step has as many as heads in eight throws: 4 in the median, 6 at the 95%."""
    experts = {"experts": {"count": 8, "used": 1, "work": 1.0, "bytes_per_sample": 0.0}}
    law = {"expert_imbalance": {"kind": "empirical", "values": [1.0, 3.0]}}
    found = simulate(built({"workers": 2, "expert": 2, **law}, layer=experts, steps=4004)).step_time_s
    assert found.p50 == pytest.approx((1 + 2 * 4 / 8) * (FORWARD_S + BACKWARD_S) + APPLY_S, rel=0.01)
    assert found.p95 == pytest.approx((1 + 2 * 6 / 8) * (FORWARD_S + BACKWARD_S) + APPLY_S, rel=0.01)


@pytest.mark.parametrize(
    ("keys", "times"),
    [({}, 1.5), ({"capacity": 1.2}, 1.2), ({"capacity": 1000}, 1.5), ({"capacity": 1.2, "pad_to_capacity": True}, 1.2),
     ({"capacity": 2.0, "pad_to_capacity": True}, 2.0)],
)  # fmt: skip
def test_the_busiest_device_computes_what_it_is_sent(keys: dict[str, Any], times: float) -> None:
    """Both grow with its tokens: what there is, at most the capacity; or where it is filled up, the capacity itself."""
    experts = {"experts": {"count": 8, "used": 1, "work": 0.5, "bytes_per_sample": 1e5}}
    law = {"expert_imbalance": {"kind": "empirical", "values": [1.5]}}
    found_s = step_s(built({"workers": 4, "expert": 4, **law, **keys}, cluster={"devices_per_node": 4, "intra_node": LINK}, layer=experts))
    sent_s = 3 * times * BATCH * 1e5 / 4 / 1e10 + 5e-6
    reduced_s = ring_s("all-reduce", 4, LAYERS * 1e6, 1e10, 5e-6)
    compute_s = (0.5 + 0.5 * times) * (FORWARD_S + BACKWARD_S)
    assert found_s == pytest.approx(compute_s + 4 * LAYERS * sent_s + reduced_s + APPLY_S, rel=1e-9)


def test_layers_on_the_host() -> None:
    """The first on the host, three times as slow: the device does without it, and what goes between them is copied there and back."""
    cluster = {"host_link": {"bandwidth": "10 GB/s", "latency": "10 us"}}
    strategy = {"workers": 1, "on_host": ["layer 0"], "host_factor": 3.0}
    found_s = step_s(built(strategy, cluster=cluster, layer={"output_bytes_per_sample": 1e6}))
    copied_s = BATCH * 1e6 / 1e10 + 1e-5
    assert found_s == pytest.approx((7 + 3) / 8 * (FORWARD_S + BACKWARD_S) + 2 * copied_s + APPLY_S, rel=1e-9)
    middle_s = step_s(built({**strategy, "on_host": ["layer 4"]}, cluster=cluster, layer={"output_bytes_per_sample": 1e6}))
    assert middle_s - found_s == pytest.approx(2 * copied_s, rel=1e-9)


# -- sharded state -------------------------------------------------------------------------


@pytest.mark.parametrize("prefetch", [0, 1])
def test_gathers_hide_behind_the_layer_before(prefetch: int) -> None:
    """Fully sharded, where compute takes longer than to gather a layer: with prefetch the first gather and the last scatter show."""
    strategy = {"workers": 4, "shard": "parameters", "prefetch": prefetch}
    found_s = step_s(built(strategy, cluster={"inter_node": {"bandwidth": "1 GB/s", "latency": "1 us"}}))
    one_s = ring_s("all-gather", 4, 1e6, 1e9, 1e-6)
    exposed = 2 if prefetch else 2 * LAYERS + 1
    assert one_s < FORWARD_S / LAYERS
    waits_for_scatters_s = (LAYERS - 1) * one_s if not prefetch else 0.0  # which go before the next gather
    assert found_s == pytest.approx(FORWARD_S + BACKWARD_S + APPLY_S / 4 + exposed * one_s + waits_for_scatters_s, rel=1e-9)


def test_gathers_that_nothing_hides_set_the_pace() -> None:
    """On a slow link each layer is gathered twice and scattered once, one after the other, whatever is computed meanwhile."""
    scenario = built({"workers": 4, "shard": "parameters"}, cluster={"inter_node": {"bandwidth": "10 MB/s", "latency": "0 s"}})
    one_s = ring_s("all-gather", 4, 1e6, 1e7, 0.0)
    busy_s = 3 * LAYERS * one_s
    assert busy_s < step_s(scenario) < busy_s + (FORWARD_S + BACKWARD_S) / LAYERS + APPLY_S


@pytest.mark.parametrize("shard", ["optimizer", "gradients"])
def test_shared_slots_are_scattered_and_gathered(shard: str) -> None:
    """Gradients are scattered, a part of the update is made, parameters are gathered (Rajbhandari et al., ZeRO, section 7.2.1)."""
    found_s = step_s(built({"workers": 4, "shard": shard}, cluster={"inter_node": {"bandwidth": "1 GB/s", "latency": "1 us"}}))
    half_s = ring_s("all-gather", 4, LAYERS * 1e6, 1e9, 1e-6)
    assert found_s == pytest.approx(FORWARD_S + BACKWARD_S + 2 * half_s + APPLY_S / 4, rel=1e-9)


def test_gradients_are_scattered_for_each_micro_batch_where_nobody_has_all_of_them() -> None:
    """ZeRO-2 cannot sum what it does not keep; ZeRO-1 sums and scatters once."""
    cluster = {"inter_node": {"bandwidth": "1 GB/s", "latency": "1 us"}}
    half_s = ring_s("all-gather", 4, LAYERS * 1e6, 1e9, 1e-6)
    first, second = (step_s(built({"workers": 4, "shard": its}, {"micro_batches": 4}, cluster)) for its in ("optimizer", "gradients"))
    compute_s = FORWARD_S + BACKWARD_S + APPLY_S / 4
    assert first == pytest.approx(compute_s + 2 * half_s, rel=1e-9)
    assert second == pytest.approx(compute_s + 2 * half_s, rel=1e-9)  # three of its four scatters hide behind later micro-batches
    busy = simulate(built({"workers": 4, "shard": "gradients"}, {"micro_batches": 4}, cluster))
    assert busy.hidden_communication_s == pytest.approx(3 * half_s, rel=1e-6)


def test_a_group_that_shares_state_reduces_its_part_with_the_others() -> None:
    """Hybrid sharding: scattered among 2 on a node, a half all-reduced between nodes, gathered on the node."""
    cluster = {"devices_per_node": 2, "intra_node": LINK, "inter_node": {"bandwidth": "1 GB/s", "latency": "20 us"}}
    found_s = step_s(built({"workers": 4, "shard": "optimizer", "shard_group": 2}, cluster=cluster))
    inside_s = ring_s("all-gather", 2, LAYERS * 1e6, 1e10, 5e-6)
    between_s = ring_s("all-reduce", 2, LAYERS * 1e6 / 2, 1e9 / 2, 20e-6)  # both groups share the nodes' links
    assert found_s == pytest.approx(FORWARD_S + BACKWARD_S + 2 * inside_s + between_s + APPLY_S / 2, rel=1e-9)


def test_buckets_are_reduced_while_the_pipeline_drains() -> None:
    """The last stage ends first, and reduces while the first still computes: of the step only the first stage's reduction shows."""
    cluster = {"devices_per_node": 1, "inter_node": {"bandwidth": "1 GB/s", "latency": "0 s"}}
    strategy = {"workers": 8, "pipeline": 4, "order": "pipeline"}
    found_s = step_s(built(strategy, {"micro_batches": 8}, cluster))
    pass_s = (FORWARD_S + BACKWARD_S) / 4 / 8
    reduced_s = ring_s("all-reduce", 2, 2e6, 1e9, 0.0)
    assert found_s == pytest.approx((8 + 3) * pass_s + reduced_s + APPLY_S / 4, rel=1e-9)


@pytest.mark.parametrize("reduced_s", [0.2, 0.5])
@pytest.mark.parametrize(("copies", "per_node", "order"), [(2, 2, "pipeline"), (4, 3, "data")])
def test_stages_share_a_link_while_both_reduce(copies: int, per_node: int, order: str, reduced_s: float) -> None:
    """The last stage reduces by itself until the first has made its backward pass: a link that both use is busy for both, and no longer.

    Of two copies each node has both stages; of four copies the second node has the end of the one stage and the begin of the other.
    """
    rate = 2 * (copies - 1) / copies * LAYERS / 2 * 1e6 / reduced_s
    cluster = {"devices_per_node": per_node, "inter_node": {"bandwidth_bytes_per_s": rate, "latency": "0 s"}}
    found_s = step_s(built({"workers": 2 * copies, "pipeline": 2, "order": order}, cluster=cluster))
    before_s, last_s = FORWARD_S + BACKWARD_S / 2, BACKWARD_S / 2
    reduce_s = last_s + reduced_s if reduced_s < last_s else 2 * reduced_s
    assert found_s == pytest.approx(before_s + reduce_s + APPLY_S / 2, rel=1e-9)


def test_interleaved_chunks_are_reduced_when_the_stage_has_ended() -> None:
    """Without buckets, one after the other, as by Megatron-LM without overlap (``finalize_model_grads``)."""
    cluster = {"devices_per_node": 1, "inter_node": {"bandwidth": "10 MB/s", "latency": "0 s"}}
    strategy = {"workers": 4, "pipeline": 2, "schedule": "interleaved", "chunks": 2, "order": "pipeline"}
    found_s = step_s(built(strategy, {"micro_batches": 8}, cluster))
    pass_s = (FORWARD_S + BACKWARD_S) / 2 / 8
    reduced_s = 2 * ring_s("all-reduce", 2, 2e6, 1e7, 0.0)
    assert found_s == pytest.approx((8 + 1 / 2) * pass_s + reduced_s + APPLY_S / 2, rel=1e-9)


def test_what_buckets_wait_for_is_computed_again_layer_by_layer() -> None:
    """A stage's layer takes longer, computed again, than its bucket: of the reductions only the last one shows."""
    cluster = {"devices_per_node": 1, "inter_node": {"bandwidth": "10 MB/s", "latency": "0 s"}}
    found_s = step_s(built({"workers": 4, "pipeline": 2, "bucket_size": "1 MB"}, {"recompute": "full"}, cluster))
    reduced_s = ring_s("all-reduce", 2, 1e6, 1e7, 0.0)
    assert BACKWARD_S / LAYERS < reduced_s < (FORWARD_S + BACKWARD_S) / LAYERS
    assert found_s == pytest.approx(2 * FORWARD_S + BACKWARD_S + reduced_s + APPLY_S / 2, rel=1e-9)


def test_what_buckets_wait_for_is_exchanged_layer_by_layer() -> None:
    """All that split tensors exchange is in the last layer, whose gradients come first: every bucket waits for it, and for those before."""
    layers = [{"name": f"layer {at}", "forward": 1.0, "variables": [at], "output_bytes_per_sample": 0.0} for at in range(LAYERS)]
    splits = [{"divided": 0.0}] * (LAYERS - 1) + [{"divided": 0.0, "backward_bytes_per_sample": [1e8]}]
    layers = [{**layer, "tensor": its} for layer, its in zip(layers, splits, strict=True)]
    cluster = {"devices_per_node": 2, "intra_node": LINK, "inter_node": {"bandwidth": "10 MB/s", "latency": "0 s"}}
    scenario = built({"workers": 4, "tensor": 2, "bucket_size": "500 kB"}, cluster=cluster, workload={"layers": layers})
    reduced_s = ring_s("all-reduce", 2, 1e6, 1e7, 0.0)
    assert reduced_s > BACKWARD_S / LAYERS
    first_s = BACKWARD_S / LAYERS + ring_s("all-reduce", 2, BATCH * 1e8, 1e10, 5e-6)
    assert step_s(scenario) == pytest.approx(FORWARD_S + first_s + LAYERS * reduced_s + APPLY_S / 2, rel=1e-9)


# -- the same as something simpler ---------------------------------------------------------


def figures(scenario: Scenario) -> dict[str, Any]:
    """All of a result but what it is the result of."""
    result: Result = simulate(scenario)
    return json.loads(result.model_dump_json(exclude={"scenario", "scenario_hash"}))


@pytest.mark.parametrize("keys", [{}, {"bucket_size": "2 MB"}, {"algorithm": "double-binary-tree"}])
def test_one_of_each_is_an_all_reduce(keys: dict[str, Any]) -> None:
    """Byte for byte."""
    jitter = {"jitter": {"kind": "lognormal", "sigma": 0.1}, "run_to_run_cv": 0.05}
    cluster = {"devices_per_node": 2, "intra_node": LINK, "inter_node": {"bandwidth": "1 GB/s", "latency": "20 us"}}
    scenario = built({"workers": 8, **keys}, cluster=cluster, workload=jitter)
    plain = scenario_from_table(
        {**json.loads(scenario.model_dump_json()), "strategy": {"kind": "multi-worker-mirrored", "workers": 8, **keys}}, "t"
    )
    assert figures(scenario) == figures(plain)


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "zero-bubble"])
def test_a_pipeline_of_one_stage_takes_as_long_as_data_parallelism(schedule: str) -> None:
    cluster = {"inter_node": {"bandwidth": "1 GB/s", "latency": "20 us"}}
    one, plain = (built({"workers": 4, "schedule": schedule, **keys}, cluster=cluster) for keys in ({"shard": "optimizer"}, {}))
    assert step_s(one) == pytest.approx(step_s(plain) - APPLY_S * 3 / 4, rel=1e-9)  # a reduction is a scatter and a gather


def test_no_jitter_makes_all_replications_equal() -> None:
    result = simulate(
        built({"workers": 8, "pipeline": 2, "tensor": 2}, {"micro_batches": 4}, {"devices_per_node": 4}, layer={"tensor": {}})
    )
    assert result.throughput_samples_per_s.low == result.throughput_samples_per_s.high


def test_jitter_of_split_tensors_is_that_of_the_slowest() -> None:
    """Of two devices with a mean of 1 and 1 or 3 thirds of it: both slow, or one of them, three of four times."""
    load = {"jitter": {"kind": "empirical", "values": [0.5, 1.5]}}
    scenario = built({"workers": 2, "tensor": 2}, cluster={"devices_per_node": 2}, layer={"tensor": {}}, workload=load, steps=2004)
    assert step_s(scenario) == pytest.approx((0.25 * 0.5 + 0.75 * 1.5) * (FORWARD_S + BACKWARD_S + APPLY_S) / 2, rel=0.03)
