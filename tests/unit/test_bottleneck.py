"""What limits a scenario is named: each limit made the tightest in turn."""

from __future__ import annotations

import pytest
from support.scenarios import scenario_table

from paceline.answers import watch_out
from simulator import load_scenario, scenario_from_table, simulate
from simulator.base.text import format_number, format_share
from simulator.spec.figures import Bottleneck

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
    assert said in f"{result.bottleneck.text} {result.bottleneck.remedy}"


RING = {"kind": "multi-worker-mirrored", "workers": 4}
SLOW_NETWORK = {"inter_node": {"bandwidth": "50 MB/s", "latency": "0 s"}}


def test_each_lever_gains_what_its_change_brings_and_the_largest_comes_first():
    """Of a ring of many workers with jitter: devices, then even workers, then communication."""
    uneven, even = ({"batch_per_replica": 8, "jitter": law} for law in ({"kind": "lognormal", "sigma": 0.4}, {"kind": "constant"}))
    network = {"bandwidth": "1 GB/s", "latency": "50 us"}
    run = {"steps": 40, "replications": 3}

    def of(load, inter_node=network):
        table = scenario_table(workload=load, cluster={"inter_node": inter_node}, strategy={**RING, "workers": 32}, run=run)
        return simulate(scenario_from_table(table, "test"))

    whole = of(uneven)
    halves = {"forward": {"base": "0.5 ms", "per_sample": "50 us"}, "backward": {"base": "1 ms", "per_sample": "100 us"}, "apply": "250 us"}
    changed = {
        "a device twice as fast": of({**uneven, **halves}),
        "workers of even speed": of(even),
        "communication twice as fast": of(uneven, {"bandwidth": "2 GB/s", "latency": "25 us"}),
    }
    tried = {trial.change: trial.gain for trial in whole.bottleneck.tried}
    assert [*tried] == [*changed]
    for part, result in changed.items():
        gain = result.throughput_samples_per_s.mean / whole.throughput_samples_per_s.mean - 1
        assert tried[part] == pytest.approx(gain, rel=0.15)
    assert (whole.bottleneck.name, whole.bottleneck.balance) == ("compute", "stragglers")


def test_communication_is_one_group_and_trials_say_what_of_it() -> None:
    """Links carry little of 510 messages, one after the other; half the latency is what helps."""
    settings = [("cluster.available", None), ("strategy.workers", 256), ("strategy.bucket_size", None), ("run.steps", 20)]
    limit = simulate(load_scenario("ring", [*settings, ("run.replications", 2)])).bottleneck
    assert (limit.group, limit.name, limit.label) == ("communication", "latency", "communication")
    assert limit.detail == "latency of 510 messages"
    assert limit.share is not None
    first, *others = limit.tried
    assert first.change == "half the latency"
    assert "links twice as fast" in [trial.change for trial in others]
    text = f"Communication takes {format_share(limit.share)} of a step, mostly latency of 510 messages. Half the latency: +"
    assert limit.text.startswith(text)


def test_a_group_that_takes_more_of_a_step_and_limits_less_is_told() -> None:
    limit = simulate(load_scenario("async-ps", [])).bottleneck
    assert (limit.group, limit.larger) == ("communication", "compute")
    assert limit.share is not None
    assert limit.larger_share is not None
    assert limit.share < limit.larger_share
    assert "limits more than compute" in limit.text
    assert f"compute takes {format_share(limit.larger_share)}" in limit.in_words


def test_a_limit_of_an_earlier_version_gets_its_group() -> None:
    limit = Bottleneck.model_validate({"name": "host-cpu", "balance": "compute", "text": "Both.", "tried": "Each by itself: +1%."})
    assert (limit.group, limit.label, limit.tried) == ("communication", "communication and compute", ())


@pytest.mark.parametrize(("sigma", "workers"), [(0.4, 16), (0.3, 32)])
def test_a_single_limit_is_not_told_as_a_balance(sigma, workers):
    """Compute and waiting take about as much of a step, but devices twice as fast bring most by far."""
    load = {"batch_per_replica": 8, "jitter": {"kind": "lognormal", "sigma": sigma}}
    network = {"inter_node": {"bandwidth": "1 GB/s", "latency": "50 us"}}
    table = scenario_table(workload=load, cluster=network, strategy={**RING, "workers": workers}, run={"steps": 40, "replications": 3})
    limit = simulate(scenario_from_table(table, "test")).bottleneck
    assert (limit.name, limit.balance) == ("compute", None)
    assert "together" not in limit.text


def test_machines_that_are_slower_than_one_are_not_to_be_used():
    result = simulate(scenario_from_table(scenario_table(cluster=SLOW_NETWORK, strategy=RING), "test"))
    # without chance: a step of 6.5 ms alone, and with 3/4 of 1 MB sent twice at 50 MB/s before the update
    assert result.speedup.mean == pytest.approx(4 * 6.5 / (6.5 + 30.0))
    said = f"{format_number(result.speedup.mean, 2)} times the throughput of one replica: distributing does not pay here"
    assert watch_out(result).startswith(said)
    assert result.bottleneck.text.startswith(f"{said}. ")
    fast = simulate(scenario_from_table(scenario_table(strategy=RING), "test"))
    assert "distributing does not pay" not in fast.bottleneck.text


@pytest.mark.parametrize(
    ("speeds", "said"),
    [
        ([1.0, 1.0, 1.0, 0.7], "Node 3 works at 0.7 of the speed and holds up 3 others"),
        ([1.0, 0.7, 1.0, 1.0, 0.5], "Nodes 1 and 4 work at 0.5 to 0.7 of the speed and hold up 3 others"),
        ([2.0, 1.4], ""),  # neither is the rule
        ([1.0, 1.0, 0.97], ""),
    ],
)
def test_a_slow_node_is_named_with_those_that_wait_for_it(speeds, said):
    for strategy in (RING, {"kind": "parameter-server", "mode": "async"}):
        table = scenario_table(cluster={"node_speed": speeds}, strategy={**strategy, "workers": len(speeds)})
        result = simulate(scenario_from_table(table, "test"))
        told = strategy is RING and said
        assert result.bottleneck.text.startswith(f"{said}. ") if told else "of the speed and hold" not in result.bottleneck.text
        assert watch_out(result).startswith(said[:1].lower() + said[1:]) if told else "of the speed and hold" not in watch_out(result)
