"""DDP's and Keras's data parallelism: the buckets that they reduce, when, and what they hold."""

from __future__ import annotations

import pytest

from simulator import scenario_from_table, simulate
from simulator.base.errors import ScenarioError
from simulator.memory import memory_of
from simulator.resolve.resolve import resolve

MIB = 2**20


def scenario(sizes_mib, **strategy):
    """Gradients of these sizes, ready one after the other at equal distances; 1 GB/s, no latency, no jitter."""
    count = len(sizes_mib)
    variables = [
        {"name": f"v{i}", "size_bytes": size * MIB, "creation_index": count - 1 - i, "ready": (i + 1) / count}
        for i, size in enumerate(sizes_mib)
    ]
    load = {
        "batch_per_replica": 10,
        "forward": {"base": "20 ms", "per_sample": "0 s"},
        "backward": {"base": "40 ms", "per_sample": "0 s"},
        "apply": "1 ms",
        "variables": variables,
    }
    table = {
        "workload": load,
        "cluster": {"name": "lab", "inter_node": {"bandwidth_bytes_per_s": 1e9, "latency_s": 0.0}},
        "strategy": {"kind": "torch-ddp", "workers": 2, **strategy} if "kind" not in strategy else strategy,
        "run": {"steps": 20, "replications": 2},
    }
    return scenario_from_table(table, "test")


def buckets(its):
    return [round(bucket.size_bytes / MIB, 6) for bucket in its.strategy.reduction.buckets(its.workload, its.batch, its.replicas)]


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ({}, [2, 25, 4]),  # the first of at least 1 MiB, then of at least 25
        ({"bucket_size": "25 MiB"}, [2, 25, 4]),
        ({"bucket_size": "10 MiB"}, [12, 10, 9]),  # bucket_cap_mb given: the first as all others
        ({"bucket_size": "10 MiB", "first_bucket_size": "1 MiB"}, [2, 10, 10, 9]),
    ],
)
def test_the_first_bucket_is_small_unless_a_size_is_given(strategy, expected):
    found = buckets(scenario([0.5, 1.5, 10, 10, 5, 4], **strategy))
    assert found == expected


def test_without_jitter_a_step_takes_what_its_buckets_say():
    """Two gradients of 1 and 30 MiB, ready halfway and at the end: the first is hidden; the second is not: a ring of two sends it once."""
    its = scenario([1, 30])
    assert buckets(its) == [1, 30]
    second_s = 30 * MIB / 1e9
    assert simulate(its).step_time_s.mean == pytest.approx(0.061 + second_s, rel=1e-9)


def test_one_all_reduce_after_the_backward_pass_where_keras_combines_all():
    its = scenario([1, 28], kind="keras-data-parallel", workers=2)
    assert buckets(its) == [29]
    assert simulate(its).step_time_s.mean == pytest.approx(0.061 + 29 * MIB / 1e9, rel=1e-9)
    assert its.strategy.software == ("jax",)


@pytest.mark.parametrize(("views", "expected"), [(False, 31), (True, 0)])
def test_buckets_are_a_second_copy_of_all_gradients_unless_these_are_views(views, expected):
    its = resolve(scenario([1, 30], gradient_as_bucket_view=views))
    held = [part.size_bytes for device in memory_of(its) for part in device.parts if part.name == "buckets"]
    assert sum(held) == pytest.approx(expected * MIB)


def test_what_does_not_go_together_is_refused():
    with pytest.raises(ScenarioError, match="first_bucket_size needs several buckets"):
        resolve(scenario([1, 30], bucket_size_bytes=None, first_bucket_size="1 MiB"))
    with pytest.raises(ScenarioError, match="replicas_per_worker \\(3\\) must divide the 8"):
        scenario_from_table(
            {
                "workload": {"use": "cnn-cpu", "batch_per_replica": 32},
                "cluster": {"use": "dgx-1-v100"},
                "strategy": {"kind": "keras-data-parallel", "workers": 4, "replicas_per_worker": 3},
            },
            "test",
        )
