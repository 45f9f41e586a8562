"""Shared cores and copying hosts: what excludes what, what limits, what starts spread over, and what a fit may leave open."""

from __future__ import annotations

import re

import pytest
from support.networks import wiring_of

from simulator import simulate
from simulator.base.errors import ScenarioError
from simulator.collectives.factory import collective_for
from simulator.collectives.wire import Group
from simulator.spec.cluster import Cluster

ASYNC = {"kind": "parameter-server", "mode": "async", "workers": 4}
RING = {"kind": "multi-worker-mirrored", "workers": 4}
CORES = {"shared_cores": 2.0, "device_is_host": True}


@pytest.mark.parametrize(
    ("strategy", "cluster", "rule"),
    [
        (ASYNC, {"shared_cores": 0.0}, "0 must be at least 1"),
        (ASYNC, {"shared_cores": 2.5}, "2.5 must be a multiple of 1"),
        (ASYNC, {**CORES, "time_slice_s": 0.0}, "time_slice_s: 0.0 must be at least 1e-06"),
        (ASYNC, {**CORES, "time_slice": "10 ns"}, "must be at least 1e-06"),
        (ASYNC, {**CORES, "replicas_per_device": 2}, "cluster.replicas_per_device (2) must be 1 with compute on cluster.shared_cores"),
        (ASYNC, {"shared_cores": 2.0, "transport": {"cpu_per_byte_s": 1e-9}}, "give copy_per_byte"),
        (ASYNC, {"transport": {"copy_per_byte_s": -1e-9}}, "must be at least 0"),
        ({**RING, "priority": "forward"}, CORES, "which is impossible with cluster.shared_cores"),
        ({**RING, "fusion_cycle": "1 ms", "bucket_size": "1 MB"}, CORES, "strategy.fusion_cycle is simulated for all ranks at once"),
        ({**RING, "through_host": True}, {**CORES, "host_link": {"bandwidth": "1 GB/s"}}, "which is impossible with cluster.shared_cores"),
        (RING, {"shared_cores": 2.0, "overlap_slowdown": 0.1}, "overlap_slowdown is simulated for all ranks at once"),
        (ASYNC, {**CORES, "overlap_slowdown": 0.1}, "needs one replica per device"),
        ({**ASYNC, "mode": "sync", "backup_workers": 1, "late_workers": "cancel"}, CORES, "cannot be stopped for one"),
        ({**RING, "workers": 4000, "bucket_size": "1 B"}, {**CORES, "transport": {"copy_per_byte_s": 1e-9}}, "shared_cores would simulate"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(scenario, strategy, cluster, rule):
    variables = [{"name": f"v{i}", "size": "1 MB", "creation_index": i, "ready": 1.0} for i in range(8)]
    with pytest.raises(ScenarioError, match=re.escape(rule)) as error:
        scenario(strategy=strategy, cluster=cluster, workload={"variables": variables})
    assert "\n" not in str(error.value)


def test_several_devices_of_a_host_may_be_its_cores(scenario):
    """Without shared cores a host has one CPU to share."""
    assert scenario(strategy=ASYNC, cluster={**CORES, "devices_per_node": 2}).replicas == 4
    with pytest.raises(ScenarioError, match="a host has one CPU "):
        scenario(strategy=ASYNC, cluster={"device_is_host": True, "devices_per_node": 2})


@pytest.mark.parametrize(
    ("strategy", "cluster", "name"),
    [
        (ASYNC, CORES, "shared-cores"),
        (ASYNC, {**CORES, "shared_cores": 8.0}, "compute"),
        ({"kind": "single"}, {**CORES, "shared_cores": 1.0}, "compute"),
        ({"kind": "mirrored"}, {**CORES, "devices_per_node": 4}, "shared-cores"),
        ({**ASYNC, "coordinator": {"dispatch": "9 ms"}}, {**CORES, "shared_cores": 9.0}, "coordinator"),
        ({**ASYNC, "workers": 16}, {"shared_cores": 2.0, "transport": {"copy_per_byte_s": 2e-8}}, "host-cpu"),
    ],
)
def test_the_cores_are_named_where_more_of_them_would_help(scenario, strategy, cluster, name):
    cluster = {"inter_node": {"bandwidth": "10 GB/s"}, **cluster}
    result = simulate(scenario(strategy=strategy, cluster=cluster))
    assert result.bottleneck.name == name
    assert 0 < result.utilisation.cores <= 1
    assert ("2 cores that all nodes share" in result.bottleneck.text) == (name == "shared-cores")


def test_random_phases_are_spread_over_what_the_cores_need(scenario):
    """Eight workers on two cores: 4 x (6 ms + 2 MB copied twice at 1 ns a byte)."""
    cluster = {**CORES, "inter_node": {"bandwidth": "1 TB/s"}, "transport": {"copy_per_byte_s": 1e-9}}
    many = scenario(strategy={**ASYNC, "workers": 8}, cluster=cluster)
    assert many.full_step_s == pytest.approx(4 * (6e-3 + 4e-3), rel=1e-3)
    assert many.lone_step_s == pytest.approx(6e-3 + 0.5e-3 + 4e-3, rel=1e-3)
    # one server's host has it all to do
    own = scenario(strategy={**ASYNC, "workers": 8}, cluster={**cluster, "shared_cores": 100.0, "device_is_host": False})
    assert own.full_step_s == pytest.approx(8 * 2e-3, rel=1e-3)


@pytest.mark.parametrize("name", ["shared_cores", "transport.copy_per_byte_s", "transport.cpu_per_message_s"])
def test_a_fit_may_leave_them_open(scenario, name):
    """Each replication draws its own."""
    value, other = (1.0, 2.0) if name == "shared_cores" else (1e-9, 1e-8)
    transport = {"copy_per_byte_s": 1e-9, "cpu_per_message_s": 1e-9}
    cluster = {**CORES, "transport": transport, "uncertainty": {"parameters": [name], "draws": [[value], [other]]}}
    result = simulate(scenario(strategy=ASYNC, cluster=cluster, run={"replications": 8}))
    assert len({round(rate, 6) for rate in result.throughput_of_each_replication}) == 2
    with pytest.raises(ValueError, match="must be"):
        Cluster.model_validate({**scenario().cluster.model_dump(), **CORES, "uncertainty": {"parameters": [name], "draws": [[-1.0]]}})


def test_the_fastest_collective_is_chosen_with_the_cores_that_there_are(scenario):
    """A message costs 1 ms of one core: two cores take as long as there is work, sixteen as long as the way is."""
    durations = {}
    for cores in (2.0, 16.0):
        built = scenario(strategy={**RING, "workers": 8}, cluster={"shared_cores": cores, "transport": {"cpu_per_message": "1 ms"}})
        for name in ("ring", "halving-doubling"):
            some = collective_for(name, "none", built.cluster, Group.in_order(8, 1), lambda built=built: wiring_of(built), 1e6)
            durations[name, cores] = some.duration_s(8e-6)
    # 14 rounds of 8 messages, worked on twice, are 224 ms of work; 6 rounds 96 ms
    assert durations["ring", 2.0] == pytest.approx(112e-3, rel=1e-6)
    assert durations["halving-doubling", 2.0] == pytest.approx(48e-3, rel=1e-6)
    assert durations["ring", 16.0] == pytest.approx(28e-3, rel=1e-6)
    assert durations["halving-doubling", 16.0] == pytest.approx(12e-3, rel=1e-6)
