"""Kernels that are shorter than a launch: limit, warning and interval; nothing of that where they are not."""

from __future__ import annotations

from typing import Any

import pytest

from simulator import Scenario, scenario_from_table, simulate
from simulator.base.rng import Streams
from simulator.resolve.drawing import as_workers
from simulator.resolve.resolve import resolve
from simulator.results.inadequacy import launching
from simulator.results.results import Result
from simulator.spec.constants import constants

DIMENSIONS = {"layers": 4, "hidden": 512, "heads": 8, "sequence": 512, "vocabulary": 8192}


def scenario(
    batch: int = 1,
    *,
    strategy: dict[str, Any] | None = None,
    cluster: dict[str, Any] | None = None,
    experts: dict[str, int] | None = None,
    **more: Any,
) -> Scenario:
    dimensions = DIMENSIONS | ({} if experts is None else {"experts": experts})
    load = {"name": "small", "precision": "mixed_bfloat16", "batch_per_replica": batch, "transformer": dimensions}
    table = {"workload": load, "cluster": {"use": "nd96isr_h100_v5", **(cluster or {})}, "strategy": strategy or {"kind": "single"}}
    run = {"steps": 4, "warmup_steps": 1, "replications": 19}
    return scenario_from_table({**table, "run": run, **more}, "small")


def codes(result: Result) -> list[str]:
    return [warned.code for warned in result.warnings]


def test_one_device_alone_waits_for_its_host_and_the_interval_reaches_to_the_slowest_launch() -> None:
    small = scenario()
    result, its = simulate(small), launching(resolve(small))
    assert its is not None
    assert result.bottleneck.name == "host"
    assert "host-bound" in codes(result)
    rate = result.throughput_samples_per_s
    slowest_s = its.kernels * its.launch_s.high
    assert 1.0 / rate.low >= 0.9 * slowest_s  # and what is drawn besides
    assert 1.0 / rate.mean < 0.2 * slowest_s
    assert rate.high > rate.mean > 10 * rate.low


def test_a_large_batch_and_a_scenario_that_says_that_nothing_is_off_are_as_they_were() -> None:
    large = simulate(scenario(256))
    assert large.bottleneck.name == "compute"
    assert "host-bound" not in codes(large)
    assert large.discrepancy is None
    exact = simulate(scenario(discrepancy={}))
    assert exact.discrepancy is None


def test_kernels_are_as_long_as_micro_batches_splits_and_sharing_leave_them() -> None:
    def kernel_s(some: Scenario) -> float:
        its = launching(resolve(some))
        assert its is not None
        return its.kernel_s

    whole = kernel_s(scenario(4))
    assert kernel_s(scenario(8, training={"micro_batches": 2})) == pytest.approx(whole)
    assert kernel_s(scenario(4, strategy={"kind": "hybrid", "workers": 8, "tensor": 2})) == pytest.approx(whole / 2)
    assert kernel_s(scenario(4, strategy={"kind": "hybrid", "workers": 8, "pipeline": 2})) == pytest.approx(whole)


def test_times_that_were_measured_hold_their_host() -> None:
    given = {"forward": {"base": "1 us", "per_sample": "1 us"}, "backward": {"base": "1 us", "per_sample": "2 us"}}
    load = {"name": "small", "precision": "mixed_bfloat16", "batch_per_replica": 1, "transformer": DIMENSIONS, **given}
    table = {"workload": load, "cluster": {"use": "nd96isr_h100_v5"}, "strategy": {"kind": "single"}}
    assert launching(resolve(scenario_from_table(table, "measured"))) is None


# -- cut models, whose kernels a framework launches ------------------------------------------


def cut(
    launch: str | None = None, cluster: dict[str, Any] | None = None, experts: dict[str, int] | None = None, **strategy: Any
) -> Scenario:
    training = {"micro_batches": 8, "launch": launch}
    whole = {"kind": "hybrid", "workers": 8, "stages": "even", **strategy}
    return scenario(8, strategy=whole, training=training, cluster=cluster, experts=experts)


def test_a_cut_model_takes_what_its_host_needs_and_its_interval_is_that_of_the_host() -> None:
    small = cut(tensor=2)
    result, its = simulate(small), launching(resolve(small))
    assert its is not None
    assert its.simulated
    assert result.bottleneck.name == "host"
    assert "host-bound" in codes(result)
    kernels = 8 * (its.kernels + 2.5 * (1 + 4 * 4 + 2)) + 300
    assert result.step_time_s.mean == pytest.approx(kernels * its.launch_s.value, rel=0.15)
    low, high = (end / its.launch_s.value for end in (its.launch_s.low, its.launch_s.high))
    rate = result.throughput_samples_per_s
    assert 0.7 * low < rate.mean / rate.high < 1.3 * low, "with a fast host the device decides"
    assert 0.9 * high < rate.mean / rate.low < 1.4 * high
    assert result.discrepancy is not None
    assert all(part.name != "launching of kernels" for part in result.discrepancy.parts)


def test_a_graph_takes_what_the_device_needs_and_a_single_device_may_be_eager() -> None:
    graph = simulate(cut(tensor=2, launch="graph"))
    assert graph.step_time_s.mean < 0.3 * simulate(cut(tensor=2)).step_time_s.mean
    assert "host-bound" not in codes(graph)
    eager = scenario(training={"launch": "eager"})
    its = launching(resolve(eager))
    assert its is not None
    assert simulate(eager).step_time_s.mean == pytest.approx(its.kernels * its.launch_s.value, rel=0.15)


def test_stages_launch_their_own_kernels_messages_and_collectives_and_a_share_of_the_step() -> None:
    """Kernels that are counted, not work, decide a stage's launching: the head is most of the work here, and has few of them."""
    for tensor, collectives in ((1, (0, 0)), (2, (1 + 2 * 4, 2 * 4 + 2))):
        load = resolve(cut(pipeline=2, tensor=tensor)).workload
        whole = sum(layer.kernels for layer in load.layers)
        assert load.counted is not None
        assert whole == load.counted.kernels
        launch_s = (load.forward.least_s + load.backward.least_s) / whole
        parts = [stage.parts[0] for stage in _costs(cut(pipeline=2, tensor=tensor))]
        for part, layers, times in zip(parts, (load.layers[:3], load.layers[3:]), collectives, strict=True):
            kernels = sum(layer.kernels for layer in layers) + 2 * 7 + 2.5 * times + 300 / (8 + 1)
            assert part.forward_s + part.backward_s == pytest.approx(kernels * launch_s, rel=1e-9)


def test_a_device_launches_the_kernels_of_its_own_experts() -> None:
    seconds = []
    for expert in (2, 4, 8):
        moe = cut(expert=expert, shard="optimizer", experts={"count": 8, "used": 2})
        seconds.append(sum(part.passes_s for stage in _costs(moe) for part in stage.parts))
    each = seconds[0] - seconds[1], seconds[1] - seconds[2]
    assert each[0] > 0
    assert each[1] == pytest.approx(each[0] / 2, rel=1e-6)


def test_a_host_next_to_a_newer_device_is_faster_and_grace_is_not() -> None:
    seconds = {}
    for machine in ("dgx-a100-80gb", "dgx-h100", "gb200-nvl72"):
        seconds[machine] = simulate(cut(tensor=2, cluster={"use": machine})).step_time_s.mean
    for machine, name in (("dgx-h100", "newer_launch_share"), ("gb200-nvl72", "grace_launch_share")):
        assert seconds[machine] / seconds["dgx-a100-80gb"] == pytest.approx(constants()[name].value, rel=0.05)


def _costs(some: Scenario) -> list[Any]:
    resolved = as_workers(resolve(some))
    return resolved.strategy.costs(resolved, Streams(0, 0))
