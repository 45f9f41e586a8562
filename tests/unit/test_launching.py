"""Kernels that are shorter than a launch: limit, warning and interval; nothing of that where they are not."""

from __future__ import annotations

from typing import Any

import pytest

from simulator import Scenario, scenario_from_table, simulate
from simulator.resolve.resolve import resolve
from simulator.results.inadequacy import launching
from simulator.results.results import Result
from simulator.spec.constants import constants

DIMENSIONS = {"layers": 4, "hidden": 512, "heads": 8, "sequence": 512, "vocabulary": 8192}


def scenario(batch: int = 1, *, strategy: dict[str, Any] | None = None, cluster: dict[str, Any] | None = None, **more: Any) -> Scenario:
    load = {"name": "small", "precision": "mixed_bfloat16", "batch_per_replica": batch, "transformer": DIMENSIONS}
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
    slowest_s = its.kernels * constants()["launch_s"].high
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
