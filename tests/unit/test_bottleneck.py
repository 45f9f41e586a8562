"""What limits a scenario is named: each limit made the tightest in turn."""

from __future__ import annotations

import pytest
from support.scenarios import scenario_table

from simulator import scenario_from_table, simulate

TENSORS = [{"name": f"v{i}", "size_bytes": 5e6 * (i + 1), "creation_index": 3 - i, "ready": (i + 1) / 4} for i in range(4)]
WORKERS = {"kind": "parameter-server", "workers": 4, "mode": "async"}


@pytest.mark.parametrize(
    ("strategy", "cluster", "name", "said"),
    [
        ({"coordinator": {"dispatch": "300 ms"}}, {}, "coordinator", "coordinator"),
        ({"replication": "in-graph"}, {}, "client", "between-graph"),
        ({"servers": 4}, {"fabric": {"nodes_per_leaf": 4, "oversubscription": 8.0}}, "fabric", "oversubscription"),
        ({"servers": 2}, {"transport": {"cpu_per_byte_s": 3e-8}}, "host-cpu", "host"),
        ({}, {"transport": {"flow_cap": "50 MB/s"}}, "network", "400 Mbit/s"),
        ({}, {"host_link": {"bandwidth": "100 MB/s"}}, "host-link", "device and host"),
        ({}, {}, "server-network", "servers"),
    ],
)
def test_the_tightest_limit_is_named(strategy, cluster, name, said):
    load = {"variables": TENSORS, "input_bytes_per_sample": 1e7}
    result = simulate(scenario_from_table(scenario_table(strategy={**WORKERS, **strategy}, workload=load, cluster=cluster), "test"))
    assert result.bottleneck.name == name
    assert said in result.bottleneck.text
