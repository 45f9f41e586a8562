"""Logical devices of one card: against closed forms, of compute that overlaps and of messages through the memory that all share."""

from __future__ import annotations

import math

import pytest

from simulator import simulate
from simulator.base.errors import InputError
from simulator.memory import does_not_fit, memory
from simulator.resolve.resolve import resolve

INSTANT = {"bandwidth": "1000000 GB/s", "latency": "0 s"}
COMPUTE_S, APPLY_S = 6e-3, 1e-3  # forward 1 + 10 x 0.1 ms, backward 2 + 10 x 0.2 ms
LAW = {"forward": {"base": "1 ms", "per_sample": "100 us"}, "backward": {"base": "2 ms", "per_sample": "200 us"}, "apply": "1 ms"}
SHARED = {"devices_per_node": 1, "intra_node": INSTANT, "device_sharing": "concurrent"}


def shared(scenario, replicas: int, load: dict | None = None, strategy: dict | None = None, **cluster):
    return scenario(
        workload={**LAW, "batch_per_replica": 10, **(load or {})},
        cluster={**SHARED, "replicas_per_device": replicas, **cluster},
        strategy={"kind": "mirrored", "replicas": replicas, **(strategy or {})},
    )


def finite_source(replicas: int, share: float) -> float:
    """Times as long as alone, from the probability that nobody needs the device: (1 - P0) / u seconds of work a second (M/M/1//k)."""
    ratio = share / (1.0 - share)
    nobody = 1.0 / sum(math.perm(replicas, count) * ratio**count for count in range(replicas + 1))
    return replicas * share / (1.0 - nobody)


@pytest.mark.parametrize("replicas", [1, 2, 3, 4, 40])
def test_replicas_compute_while_others_do_not_need_the_device(scenario, replicas):
    """One alone needs all of it for 2.8 of its 7 ms, u = 40%: two take 1 + u^2 times as long as one, 40 take 40 u."""
    built = shared(scenario, replicas, {"device_work": {"base": "1.8 ms", "per_sample": "100 us"}})
    slower = finite_source(replicas, 0.4)
    assert slower == pytest.approx({1: 1.0, 2: 1.16, 40: 16.0}.get(replicas, slower))
    result = simulate(built)
    assert result.step_time_s.mean == pytest.approx((COMPUTE_S + APPLY_S) * slower, rel=1e-5)
    assert result.utilisation.devices == pytest.approx(1.0, rel=1e-3)  # while somebody computes


@pytest.mark.parametrize(
    ("load", "share"),
    [
        ({}, (3e-3 + APPLY_S) / 7e-3),  # what grows with the batch, and the update
        ({"apply": "0 s"}, 0.5),
        # all that the device does, where the time is what the host needs to start it
        ({"forward": {"base": "1 ms", "per_sample": "100 us", "least": "7 ms"}, "apply": "0 s"}, (2e-3 + 2e-3) / 11e-3),
        ({"device_work": {"base": "9 ms", "per_sample": "0 s"}}, 1.0),
    ],
    ids=["grows", "no-update", "least", "no more than all"],
)
def test_what_of_the_device_one_alone_keeps_busy(scenario, load, share):
    assert shared(scenario, 2, load).workload.busy_share(10) == pytest.approx(share)


def test_asynchronous_workers_share_a_device_too(scenario):
    """Two workers, each on it for 60% of its time, pushing nothing to speak of: 1 + 0.6^2 times as long as one."""
    load = {"device_work": {"base": "3.6 ms", "per_sample": "0 s"}, "apply": "0 s", "server": {"base": "0 s"}}
    built = scenario(
        workload={**LAW, **load, "batch_per_replica": 10},
        cluster={**SHARED, "replicas_per_device": 2, "inter_node": INSTANT},
        strategy={"kind": "parameter-server", "mode": "async", "workers": 2},
    )
    assert simulate(built).step_time_s.mean == pytest.approx(1.36 * COMPUTE_S, rel=1e-3)


@pytest.mark.parametrize("algorithm", ["ring", "reduce-to-one-device"])
@pytest.mark.parametrize("detail", ["at-once", "messages"])
@pytest.mark.parametrize("replicas", [2, 3, 4])
def test_messages_on_one_device_share_its_memory(scenario, replicas, detail, algorithm):
    """Whichever way: 2 (n - 1) copies of all gradients through one bandwidth, one latency a turn."""

    def step_s(link: dict) -> float:
        built = shared(scenario, replicas, {"apply": "0 s"}, {"algorithm": algorithm}, intra_device=link)
        return simulate(built.model_copy(update={"run": built.run.model_copy(update={"detail": detail})})).step_time_s.mean

    size = sum(variable.size_bytes for variable in scenario().workload.variables)
    latency_us = 50 if algorithm == "ring" else 0  # else the one device is ahead by the last, and computes while the others wait
    exchange_s = 2 * (replicas - 1) * (size / 1e9 + latency_us * 1e-6)
    assert step_s({"bandwidth": "1 GB/s", "latency": f"{latency_us} us"}) - step_s(INSTANT) == pytest.approx(exchange_s, rel=1e-3)


def test_replicas_on_different_devices_reach_each_other_by_the_nodes_links(scenario):
    """Four replicas on two devices: a ring crosses between them, and is as slow as the slower way."""
    link, slow = {"bandwidth": "1 GB/s", "latency": "0 s"}, {"bandwidth": "100 MB/s", "latency": "0 s"}
    cluster = {"devices_per_node": 2, "replicas_per_device": 2, "intra_node": slow, "intra_device": link, "device_sharing": "concurrent"}
    built = scenario(workload={**LAW, "batch_per_replica": 10}, cluster=cluster, strategy={"kind": "mirrored", "replicas": 4})
    size = sum(variable.size_bytes for variable in built.workload.variables)
    assert simulate(built).breakdown_s.exposed_communication == pytest.approx(2 * 3 / 4 * size / 1e8, rel=1e-3)


@pytest.mark.slow
def test_sharing_is_between_no_cost_and_turns(scenario):
    """However many: never faster than one alone, never slower than one after the other, and no step slower with fewer beside it."""
    before = 0.0
    for replicas in range(1, 9):
        step_s = simulate(shared(scenario, replicas)).step_time_s.mean
        turns_s = simulate(shared(scenario, replicas, device_sharing="saturated")).step_time_s.mean
        assert before * (1 - 1e-9) <= step_s <= turns_s * (1 + 1e-9)
        before = step_s


# -- memory -------------------------------------------------------------------------------


def test_each_logical_device_has_its_limit(scenario):
    state = 4 * sum(variable.size_bytes for variable in scenario().workload.variables)
    whole = memory(shared(scenario, 4, device="NVIDIA GeForce RTX 4090"))
    limited = memory(shared(scenario, 4, device="NVIDIA GeForce RTX 4090", device_memory_limit="2 GB"))
    assert whole.tightest.capacity_bytes > 10 * limited.tightest.capacity_bytes == 10 * 2e9
    assert limited.tightest.need_bytes < state  # of one replica, and nothing kept back
    assert limited.tightest.name == "logical device"
    assert "reserve" not in {part.name for part in limited.tightest.parts}


@pytest.mark.parametrize(
    ("cluster", "said"),
    [
        ({"device_memory_limit": "7 GB"}, "4 logical devices of 6.52 GiB (cluster.device_memory_limit) need 26.1 GiB, but"),
        ({"device_memory_limit": "1 MB"}, "on its logical device"),
        ({"device_memory_limit": "1 MB", "device": ""}, "but cluster.device_memory_limit is 977 KiB; take a larger one"),
    ],
)
def test_limits_that_do_not_fit_are_refused(scenario, cluster, said):
    built = shared(scenario, 4, **{"device": "NVIDIA GeForce RTX 4090", **cluster})
    assert said in (does_not_fit(resolve(built)) or "")
    with pytest.raises(InputError, match="logical device"):
        simulate(built)


def test_what_no_scenario_says_is_not_written(scenario):
    written = scenario().model_dump(mode="json")
    assert not {"device_sharing", "device_memory_limit_bytes", "intra_device"} & set(written["cluster"])
    assert "device_work" not in written["workload"]
