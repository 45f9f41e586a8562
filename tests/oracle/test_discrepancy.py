"""What a discrepancy does to a step, against simulations with compute and links really changed."""

from __future__ import annotations

import math
from typing import Any

import pytest
from support.sampling import a_few

from simulator import load_scenario, simulate
from simulator.results.inadequacy import factors
from simulator.results.what_if import changed, with_compute, with_inner_links, with_latency, with_network
from simulator.scenario import Scenario

ALONE = 0.2
"""Logarithm by which compute, or communication, is off alone."""
CASES: list[tuple[str, dict[str, Any]]] = [
    ("ring", {"strategy.workers": 2, "cluster.use": "ethernet-1g"}),
    ("ring", {"strategy.workers": 16, "cluster.use": "ethernet-1g"}),
    ("ring", {"strategy.workers": 8, "cluster.use": "ethernet-10g", "strategy.bucket_size": "1 MB"}),
    ("ring", {"strategy.workers": 8, "cluster.use": "ethernet-1g", "strategy.bucket_size": "100 kB"}),
    ("hierarchical-gpus", {}),
    ("local-sgd", {}),
    ("backup-workers", {}),
    ("sync-ps", {"strategy.workers": 4, "cluster.use": "ethernet-25g"}),
    ("sync-ps", {"strategy.workers": 16, "cluster.use": "ethernet-10g"}),
    ("async-ps", {"strategy.workers": 4, "cluster.use": "ethernet-25g"}),
    ("async-ps", {"strategy.workers": 16, "cluster.use": "ethernet-10g"}),
    ("ssp", {}),
]


def with_communication(scenario: Scenario, times: float) -> Scenario:
    """Every link, latency and server takes so many times as long."""
    scenario = with_inner_links(with_latency(with_network(scenario, 1 / times), times), 1 / times)
    server = scenario.workload.server
    slower = server.model_copy(update={"base_s": server.base_s * times, "per_byte_s": server.per_byte_s * times})
    inside = scenario.cluster.intra_node
    cluster = scenario.cluster.model_copy(update={"intra_node": inside.model_copy(update={"latency_s": inside.latency_s * times})})
    return changed(scenario, workload=scenario.workload.model_copy(update={"server": slower}), cluster=cluster)


@pytest.mark.statistics
@pytest.mark.parametrize(("name", "settings"), a_few(CASES, 5, seed=5))
def test_a_step_follows_compute_and_communication_as_when_they_are_really_changed(name: str, settings: dict[str, Any]) -> None:
    short = {"run.replications": 4, "run.steps": 40, "discrepancy": "none", "cluster.transport.software": "given"}
    scenario = load_scenario(name, [*settings.items(), *short.items()])
    result = simulate(scenario)

    def predicted(compute: float, communication: float) -> float:
        of_step = factors(scenario, result.breakdown_s, result.hidden_communication_s, result.utilisation)
        return math.log(of_step(compute, communication))

    def simulated(compute: float, communication: float) -> float:
        other = with_communication(with_compute(scenario, math.exp(compute)), math.exp(communication))
        return math.log(result.throughput_samples_per_s.mean / simulate(other).throughput_samples_per_s.mean)

    for compute, communication in ((ALONE, 0.0), (-ALONE, 0.0), (0.0, ALONE), (0.0, -ALONE)):
        assert predicted(compute, communication) == pytest.approx(simulated(compute, communication), abs=0.035)
    assert predicted(ALONE, ALONE) == pytest.approx(ALONE), "all parts of a step together"
