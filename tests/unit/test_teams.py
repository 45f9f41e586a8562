"""Workers of parameter servers with several devices."""

from __future__ import annotations

import numpy as np
import pytest
from oracles.audit import audit

from simulator import scenario_from_table, simulate
from simulator.base.errors import ScenarioError
from simulator.resolve.drawing import as_workers, slowest_of
from simulator.resolve.resolve import resolve
from simulator.spec.distributions import Constant, Gamma, Normal

LOAD = {
    "name": "one-layer", "batch_per_replica": 10,
    "forward": {"base": "10 ms", "per_sample": "1 ms"}, "backward": {"base": "20 ms", "per_sample": "2 ms"},
    "variables": [{"name": "kernel", "size": "10 MB", "creation_index": 0, "ready": 1.0}],
}  # fmt: skip
CLUSTER = {
    "name": "lab", "devices_per_node": 4, "inter_node": {"bandwidth": "1 GB/s", "latency": "0 s"},
    "intra_node": {"bandwidth": "2 GB/s", "latency": "0 s"}, "host_link": {"bandwidth": "10 GB/s", "latency": "0 s"},
    "transport": {"software": "given"},
}  # fmt: skip
TEAMS = {"kind": "parameter-server", "mode": "sync", "workers": 3, "replicas_per_worker": 4, "servers": 1}


def scenario(strategy=TEAMS, load=LOAD, cluster=CLUSTER):
    run = {"steps": 5, "warmup_steps": 1, "replications": 3}
    return scenario_from_table({"workload": load, "cluster": cluster, "strategy": strategy, "run": run}, "test")


def test_a_team_pushes_once():
    """Pull of 3 workers, copy in, compute of a batch of 10, copy out, push of 3: 30 + 5 + 60 + 5 + 30 ms, for 120 samples."""
    result = simulate(scenario())
    assert result.replicas == 12
    assert result.throughput_samples_per_s.mean == pytest.approx(120 / 0.130, rel=1e-6)
    assert result.scaling_efficiency.mean == pytest.approx(0.060 / 0.130, rel=1e-6)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_every_invariant_holds(mode):
    assert audit(scenario({**TEAMS, "mode": mode}))


def test_workers_of_one_device_are_left_as_they_are():
    plain = scenario({**TEAMS, "replicas_per_worker": 1})
    resolved = resolve(plain)
    assert as_workers(resolved) is resolved
    assert plain.replicas == 3


def test_a_team_waits_for_its_slowest():
    """Of four steps of a normal law the slowest is 1.029 deviations later in the mean (Harter 1961)."""
    law, later = slowest_of(Normal(cv=0.1), 4)
    assert later == pytest.approx(1.1029, abs=0.006)
    assert law.mean() == pytest.approx(later, rel=1e-9)
    assert slowest_of(Constant(), 4) == (Constant(), 1.0)
    assert slowest_of(Gamma(shape=4.0), 1)[1] == 1.0


def test_teams_fill_the_cluster_where_workers_are_left_out():
    strategy = {key: value for key, value in TEAMS.items() if key != "workers"}
    assert scenario(strategy, cluster={**CLUSTER, "nodes": 4}).replicas == 12


def test_asynchronous_teams_count_their_staleness_by_workers():
    result = simulate(scenario({**TEAMS, "mode": "async"}))
    assert len(result.staleness.per_worker_mean) == 3
    assert result.updates_per_s.mean * 40 == pytest.approx(result.throughput_samples_per_s.mean, rel=1e-9)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"replicas_per_worker": 3}, "must divide the 4 replicas"),
        ({"backup_workers": 3}, "must be below the 3 workers"),
    ],
)
def test_rules(change, said):
    with pytest.raises(ScenarioError, match=said):
        scenario({**TEAMS, **change})


def test_a_device_is_not_shared_by_a_team():
    with pytest.raises(ScenarioError, match="needs one replica per device"):
        scenario({**TEAMS, "replicas_per_worker": 2}, cluster={**CLUSTER, "replicas_per_device": 2})
    assert np.isfinite(simulate(scenario({**TEAMS, "replicas_per_worker": 2, "workers": 6})).throughput_samples_per_s.mean)
