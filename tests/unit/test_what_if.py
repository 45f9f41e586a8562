"""A scenario's own value is what is simulated, also where a fit had drawn others; and other traps of what-if questions."""

from __future__ import annotations

import pytest
from support.scenarios import scenario_table

from simulator import load_scenario, scenario_from_table, simulate
from simulator.base.errors import ScenarioError
from simulator.catalogue.loading import apply_settings
from simulator.spec.gradients import buckets

WORKLOAD = """
name = "fitted"
apply_s = 1e-3
forward = { base_s = 1e-3, per_sample_s = 1e-4 }
backward = { base_s = 2e-3, per_sample_s = 2e-4 }
variables = [{ name = "v", size_bytes = 1e6, creation_index = 0, ready = 1.0 }]
uncertainty = { parameters = ["forward.per_sample_s", "apply_s"], draws = [[1e-4, 1e-3], [1.1e-4, 1.2e-3]] }
"""
CLUSTER = """
name = "measured"
basis = "measured"
inter_node = { bandwidth_bytes_per_s = 1.25e8, latency_s = 1e-5 }
uncertainty = { parameters = ["inter_node.latency_s", "inter_node.bandwidth_bytes_per_s"], draws = [[1e-5, 1.2e8], [1.1e-5, 1.3e8]] }
"""
SCENARIO = """
workload = { use = "w.toml", batch_per_replica = 10 }
cluster = { use = "c.toml" }
strategy = { kind = "multi-worker-mirrored", workers = 4 }
run = { steps = 6, replications = 3 }
"""


@pytest.fixture
def file(tmp_path):
    for name, text in (("w.toml", WORKLOAD), ("c.toml", CLUSTER), ("s.toml", SCENARIO)):
        (tmp_path / name).write_text(text)
    return tmp_path / "s.toml"


def rate(file, **settings) -> float:
    return simulate(load_scenario(file, [(key.replace("__", "."), value) for key, value in settings.items()])).throughput_samples_per_s.mean


def test_a_bandwidth_that_is_set_is_simulated(file):
    rates = [rate(file, cluster__inter_node__bandwidth=text) for text in ("1 Gbit/s", "10 Gbit/s", "100 Gbit/s")]
    assert rates[0] * 1.2 < rates[1]
    assert rates[1] < rates[2]


def test_a_compute_time_that_is_set_is_simulated(file):
    assert rate(file, workload__forward__per_sample="10 ms") < 0.2 * rate(file)
    assert rate(file, workload__apply="1 s") < 0.05 * rate(file)


def test_only_what_is_set_loses_its_draws_and_the_result_says_so(file):
    scenario = load_scenario(file, [("workload.apply_s", 0.002), ("cluster.inter_node.latency", "1 ms")])
    assert scenario.workload.uncertainty.parameters == ("forward.per_sample_s",)
    assert scenario.cluster.uncertainty.parameters == ("inter_node.bandwidth_bytes_per_s",)
    assert scenario.cluster.basis == "assumed"
    told = {(warning.path, warning.value) for warning in simulate(scenario).warnings if warning.code == "overridden"}
    assert told == {("workload", "apply_s"), ("cluster", "inter_node.latency_s")}
    untouched = simulate(load_scenario(file, [("cluster.nodes", 8)]))
    assert "overridden" not in {warning.code for warning in untouched.warnings}


def test_values_set_in_place_of_inline_draws_are_simulated_too():
    """The workload stands in the scenario itself, with draws; and a cluster that is assumed has draws as well."""
    inline = scenario_table(
        workload={"uncertainty": {"parameters": ["forward.per_sample_s", "apply_s"], "draws": [[1e-4, 1e-3], [1.1e-4, 1e-3]]}},
        cluster={"uncertainty": {"parameters": ["inter_node.bandwidth_bytes_per_s"], "draws": [[1e9]]}},
        strategy={"kind": "multi-worker-mirrored", "workers": 4},
    )

    def steps(*settings) -> float:
        return simulate(scenario_from_table(apply_settings(inline, settings), "test")).step_time_s.mean

    assert steps(("workload.forward.per_sample", "100 ms")) == pytest.approx(steps() + 10 * (0.1 - 1.05e-4), rel=0.01)
    assert steps(("cluster.inter_node.bandwidth", "10 MB/s")) > steps() + 0.1
    slowed = scenario_from_table(apply_settings(inline, [("workload.forward.per_sample", "100 ms")]), "test")
    assert slowed.workload.uncertainty.parameters == ("apply_s",)
    assert slowed.workload.overridden == ("forward.per_sample_s",)


def test_one_kind_of_batch_replaces_the_other(file):
    assert load_scenario(file, [("workload.global_batch", 80)]).batch == 20
    with pytest.raises(ScenarioError, match="both"):
        load_scenario(file, [("workload.global_batch", 80), ("workload.batch_per_replica", 4)])
    assert apply_settings({"workload": {"global_batch": 8}}, [("workload.batch_per_replica", 2)]) == {"workload": {"batch_per_replica": 2}}


@pytest.mark.parametrize(
    ("parameters", "draws", "rule"),
    [
        (["inter_node.bandwidth_bytes_per_s"], [[0.0]], "the value 0, which must be greater than 0"),
        (["inter_node.latency_s"], [[-1.0]], "must be greater than or equal to 0"),
        (["inter_node.latency_s"], [[float("inf")]], "finite"),
        (["devices_per_node"], [[2.5]], "not a fitted number"),
        (["schema_version"], [[7.0]], "not a fitted number"),
        (["inter_node.latency_s", "inter_node.latency_s"], [[1.0, 1.0]], "twice"),
        (["nothing.at_all"], [[1.0]], "not a fitted number"),
    ],
)
def test_draws_obey_the_rules_of_what_they_replace(parameters, draws, rule):
    with pytest.raises(ScenarioError, match=rule):
        scenario_from_table(scenario_table(cluster={"uncertainty": {"parameters": parameters, "draws": draws}}), "test")


def test_sparse_gradients_are_gathered_not_summed():
    """(n - 1) S a rank, where a dense gradient of as many bytes takes 2 (n - 1) / n S."""
    table = {"name": "embedding", "size": "100 MB", "creation_index": 0, "ready": 1.0, "sparse_bytes_per_sample": 1e5}
    scenario = scenario_from_table(
        scenario_table(workload={"variables": [table]}, strategy={"kind": "multi-worker-mirrored", "workers": 8}), "test"
    )
    result = simulate(scenario)
    assert result.breakdown_s.exposed_communication == pytest.approx(7 * 1e6 / 1e9, rel=1e-9)
    assert buckets(scenario.workload, 10, None, 1) == [(1.0, 1e6)]


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("workers", [1, 2, 8])
def test_a_server_that_is_short_of_bandwidth_is_not_called_short_of_latency(mode, workers):
    load = {"variables": [{"name": "v", "size": "100 MB", "creation_index": 0, "ready": 1.0}]}
    cluster = {"inter_node": {"bandwidth": "1 GB/s", "latency": "50 us"}}
    parts = {"workload": load, "cluster": cluster, "strategy": {"kind": "parameter-server", "mode": mode, "workers": workers}}
    result = simulate(scenario_from_table(scenario_table(**parts), "test"))
    assert result.bottleneck.name == "server-network" if workers > 1 else result.bottleneck.name in ("server-network", "network")
    slow = {**parts, "workload": {}, "cluster": {"inter_node": {"bandwidth": "100 GB/s", "latency": "50 ms"}}}
    assert simulate(scenario_from_table(scenario_table(**slow), "test")).bottleneck.name == "latency"


def test_a_worker_sits_on_one_node():
    with pytest.raises(ScenarioError, match="a worker is a process on one node"):
        scenario_from_table(scenario_table(strategy={"kind": "multi-worker-mirrored", "workers": 2, "replicas_per_worker": 4}), "test")


def test_a_random_phase_spreads_over_a_step_with_its_transfers():
    from oracles.audit import audit

    load = {"variables": [{"name": "v", "size": "100 MB", "creation_index": 0, "ready": 1.0}]}
    parts = {"workload": load, "strategy": {"kind": "parameter-server", "mode": "async", "workers": 20}, "run": {"start": "random-phase"}}
    steps = audit(scenario_from_table(scenario_table(**parts), "test")).steps
    first = {step.replica: step.start_s for step in reversed(steps)}
    assert max(first.values()) > 0.15  # a step alone takes 0.2065 s, of which compute is 6.5 ms
