"""Replicas that share a device: what is refused, and what a reader is told."""

from __future__ import annotations

import re

import pytest

from simulator import load_scenario, simulate
from simulator.base.errors import ScenarioError


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("cluster.device_sharing", "often", "cluster.device_sharing: 'often' must be 'saturated' or 'concurrent'"),
        ("cluster.device_memory_limit", "-1 GB", "cluster.device_memory_limit: '-1 GB' must be above 0"),
        ("cluster.intra_device.sort", "pcie", 'intra_device.sort ("pcie") must be left out'),
        ("workload.device_work", {"base": "-1 ms", "per_sample": "0 s"}, "workload.device_work.base: '-1 ms' must be at least 0"),
        ("strategy.replicas", 8, "strategy.replicas (8) must be at most 4, the replicas of one node"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(path, value, said):
    with pytest.raises(ScenarioError, match=re.escape(said)) as caught:
        load_scenario("virtual-devices", [(path, value)])
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("sharing", "work", "said"),
    [
        ("saturated", "1 ms", "contention between the 4 replicas of each device"),
        ("concurrent", "0.1 ms", "more of them would help most"),
        ("concurrent", "8 ms", "a faster device would help most"),
    ],
)
def test_the_limit_says_what_sharing_costs(sharing, work, said):
    settings = [("cluster.device_sharing", sharing), ("workload.device_work", {"base": work, "per_sample": "0 s"})]
    limit = simulate(load_scenario("virtual-devices", [*settings, ("run.steps", 5), ("run.replications", 3)])).bottleneck
    assert limit.name == "compute"
    assert said in f"{limit.text} {limit.remedy}"
