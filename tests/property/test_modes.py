"""Laws that hold in every mode: the audit, units of time, consistency of the parts, and random combinations of modes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from oracles.audit import audit
from support.examples import examples
from support.modes import LOAD, MODES
from support.sampling import seeds
from support.scenarios import scenario_table

from simulator import Scenario, scenario_from_table, simulate
from simulator.base.errors import ScenarioError

RUN = {"steps": 24, "warmup_steps": 4, "replications": 2}


def built(mode: str) -> Scenario:
    strategy, cluster, run = MODES[mode]
    return scenario_from_table(scenario_table(workload=LOAD, cluster=cluster, strategy=strategy, run={**RUN, **run}), mode)


@pytest.mark.parametrize("mode", MODES)
def test_every_law_holds_in_every_mode(mode):
    for replication in seeds(3):
        assert audit(built(mode), replication).steps


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_watching_changes_nothing(mode):
    """A run with records of everything has the numbers of one without."""
    from simulator.observing.recording import Recording

    seen, unseen = simulate(built(mode), observer=Recording()), simulate(built(mode))
    for key in ("throughput_of_each_replication", "breakdown_s", "staleness", "hidden_communication_s", "dropped_share", "phase"):
        assert getattr(seen, key) == getattr(unseen, key)


@pytest.mark.parametrize("mode", MODES)
def test_parts_and_shares_are_consistent(mode):
    result = simulate(built(mode))
    parts = result.breakdown_s
    total = parts.input + parts.compute + parts.exposed_communication + parts.waiting + parts.apply
    assert total == pytest.approx(result.step_time_s.mean, rel=1e-9)
    assert 0 <= result.hidden_communication_s <= parts.compute * (1 + 1e-9)
    assert 0 <= result.dropped_share < 1
    assert bool(result.dropped_share) == ("backups" in mode)
    use = result.utilisation
    assert 0 <= use.devices <= 1 + 1e-9
    assert 0 <= use.servers <= use.busiest_server <= 1 + 1e-9
    assert 0 <= use.links <= use.busiest_link * (1 + 1e-12)


def in_other_seconds(table: Any, factor: float, key: str = "") -> Any:
    """The same with every time multiplied, and every rate divided, by a factor."""
    if isinstance(table, dict):
        return {name: in_other_seconds(value, factor, name) for name, value in table.items()}
    if isinstance(table, (list, tuple)):
        return [in_other_seconds(value, factor, key) for value in table]
    if isinstance(table, float) and key.endswith("_s"):
        return table / factor if key.endswith("_bytes_per_s") else table * factor
    return table


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("factor", [pytest.param(0.5, marks=pytest.mark.long), 8.0])
def test_twice_as_fast_in_everything_is_twice_as_fast(mode, factor):
    """All bandwidths doubled; all latencies, compute, service, update, dispatch and start times halved."""
    plain = built(mode)
    result = simulate(plain)
    scaled = simulate(scenario_from_table(in_other_seconds(plain.model_dump(mode="python"), factor), "scaled"))
    assert scaled.step_time_s.mean == pytest.approx(factor * result.step_time_s.mean, rel=1e-9)
    want = [value / factor for value in result.throughput_of_each_replication]
    assert scaled.throughput_of_each_replication == pytest.approx(want, rel=1e-9)
    parts = {name: factor * value for name, value in result.breakdown_s.model_dump().items()}
    assert scaled.breakdown_s.model_dump() == pytest.approx(parts, rel=1e-9, abs=1e-15)
    assert scaled.hidden_communication_s == pytest.approx(factor * result.hidden_communication_s, rel=1e-9)
    assert scaled.staleness == result.staleness
    assert scaled.dropped_share == result.dropped_share


# -- any of these with any other ------------------------------------------------------

SERVERS = {
    "mode": [{"mode": "async"}, {"mode": "ssp", "bound": 0}, {"mode": "ssp", "bound": 2}, {"mode": "sync"},
             {"mode": "sync", "backup_workers": 1}, {"mode": "sync", "backup_workers": 2, "late_workers": "cancel"}],
    "servers": [{}, {"servers": 2}, {"servers": 4}],
    "cut": [{}, {"partitioner": {"kind": "fixed-shards", "shards": 3}}, {"partitioner": {"kind": "max-size", "shard_size_bytes": 4e5}}],
    "order": [{}, {"pull_order": "random"}, {"pull_order": "together"}, {"grouping": "per-server"}],
    "where": [{}, {"server_placement": "colocated"}, {"variable_placement": "greedy"}],
    "driver": [{}, {"coordinator": {"dispatch": "500 us", "latency": "1 ms"}}, {"replication": "in-graph"}],
}  # fmt: skip
REDUCE = {
    "algorithm": [{}, {"algorithm": "halving-doubling"}, {"algorithm": "double-binary-tree"}, {"algorithm": "auto", "protocol": "auto"},
                  {"algorithm": "bidirectional-ring"}, {"algorithm": "hierarchical"}, {"protocol": "ll"}],
    "buckets": [{}, {"bucket_size": "1 MB"}, {"bucket_size": "3 MB", "fusion_cycle": "700 us"}, {"sync_every": 3}],
    "how": [{}, {"detail": "messages"}, {"priority": "forward"}, {"through_host": True}],
}  # fmt: skip
CLUSTERS = {
    "devices": [{}, {"devices_per_node": 2}, {"replicas_per_device": 2}, {"device_is_host": True}],
    "host": [{}, {"host_link": {"bandwidth": "3 GB/s", "latency": "3 us"}}],
    "nodes": [{}, MODES["async, classes of nodes"][1], {"nics_per_node": 2}],
    "slowed": [{}, {"overlap_slowdown": 0.5}],
    "inside": [{}, {"intra_node_topology": "mesh"}],
    "transport": [{}, *({"transport": MODES[name][1]["transport"]} for name in MODES if "transport" in MODES[name][1])],
    "fabric": [{}, {"fabric": {"nodes_per_leaf": 2, "oversubscription": 3.0, "spines": 2}}],
}
RUNS = {
    "length": [{}, {"job_steps": 70}, {"sharing": "each-its-own"}],
    "drain": [{}, {"drain": True}],
    "start": [{}, {"start": "random-phase"}, {"start": "staggered", "start_spread": "9 ms"}],
}


def any_of(options: dict[str, list[dict[str, Any]]]) -> st.SearchStrategy[dict[str, Any]]:
    """One choice of each kind, merged."""
    return st.tuples(*(st.sampled_from(choices) for choices in options.values())).map(
        lambda parts: {k: v for part in parts for k, v in part.items()}
    )


COMBINED = st.tuples(
    st.one_of(
        any_of(SERVERS).map(lambda parts: {"kind": "parameter-server", **parts}),
        any_of(REDUCE).map(lambda parts: {"kind": "multi-worker-mirrored", **parts}),
    ),
    any_of(CLUSTERS),
    any_of(RUNS),
    st.integers(2, 6),
)


@pytest.mark.slow
@examples(120)
@given(COMBINED)
def test_every_law_holds_in_combinations(parts):
    strategy, cluster, run, workers = parts
    try:
        scenario = scenario_from_table(
            scenario_table(workload=LOAD, cluster=cluster, strategy={**strategy, "workers": workers}, run={**RUN, "steps": 12, **run}),
            "any",
        )
    except ScenarioError:
        assume(False)
        raise
    recording = audit(scenario)
    assert recording.steps


@pytest.mark.parametrize("algorithm", ["reduce-to-one-device", "hierarchical-copy", "auto"])
@pytest.mark.parametrize("latency", ["0 s", "5 ms"])
@pytest.mark.parametrize("messages", [False, True])
def test_copies_to_one_device_obey_the_laws_however_uneven_the_replicas(messages, latency, algorithm):
    """The device that all copy to ends when it has sent the sum, also where the others were there long before."""
    table = scenario_table(
        workload={"jitter": {"kind": "empirical", "values": [1.0, 6.0]}},
        cluster={"devices_per_node": 4, "intra_node": {"bandwidth": "1 GB/s", "latency": latency}},
        strategy={"kind": "mirrored", "replicas": 4, "algorithm": algorithm, "detail": "messages" if messages else "auto"},
        run={"steps": 30},
    )
    for seed in seeds(5):
        table["run"]["seed"] = seed
        audit(scenario_from_table(table, "uneven"))
