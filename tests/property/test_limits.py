"""The limit that is named is what the next change really brings most by, whatever the shares of a step say."""

from __future__ import annotations

from statistics import fmean

import pytest
from support.random_scenarios import seeded_scenarios
from support.sampling import SHARE
from support.scenarios import scenario_table

from simulator import load_scenario, scenario_from_table, simulate
from simulator.base.errors import PacelineError
from simulator.results.bottleneck import FAMILY
from simulator.results.what_if import CHANGES, Part
from simulator.scenario import Scenario

_NEARLY = 0.05
"""A limit may be named whose change brings this much less than the best one."""


def gains(scenario: Scenario) -> dict[Part, float]:
    """What each part brings over all replications, as what-ifs of a report and improvements of a plan have it.

    Workers that are even save no more than what they waited; the rest is that a run which was drawn slow is no longer.
    """
    base = simulate(scenario)
    rates, waited = base.throughput_of_each_replication, base.breakdown_s.waiting / base.step_time_s.mean
    found: dict[Part, float] = {}
    for part, change in CHANGES.items():
        try:
            faster = simulate(change.made(scenario)).throughput_of_each_replication
            found[part] = fmean(ours / theirs for ours, theirs in zip(faster, rates, strict=True)) - 1
        except PacelineError:
            continue
    if "waiting" in found:
        found["waiting"] = min(found["waiting"], waited / (1.0 - waited))
    return found


@pytest.mark.slow
def test_no_other_part_brings_more_than_the_one_that_is_named() -> None:
    checked = 0
    for scenario in seeded_scenarios(70 // SHARE):
        if scenario.ranks > 16 or getattr(scenario.strategy, "on_host", ()):  # a host's compute is none of the parts
            continue
        try:
            limit = simulate(scenario).bottleneck
        except PacelineError:
            continue
        named = {part for part, names in FAMILY.items() if limit.name in names or limit.balance in names}
        if not named:  # such as waiting for the slowest
            continue
        found = gains(scenario)
        if not found:
            continue
        checked += 1
        best = max(found.values())
        own = max(found.get(part, 0.0) for part in named)
        assert own >= best - max(_NEARLY, 0.2 * best), f"seed {scenario.run.seed}: {limit.label}, but {found}"
    assert checked >= 20 // SHARE


VARIABLES = [{"name": f"v{place}", "size_bytes": 1e7, "creation_index": place, "ready": (place + 1) / 20} for place in range(20)]


def hidden(bandwidth: str) -> Scenario:
    """A ring whose all-reduces go on while 100 ms of backward pass compute: 4 workers, 200 MB in buckets of 10 MB."""
    return scenario_from_table(
        scenario_table(
            workload={
                "variables": VARIABLES,
                "forward": {"base": "10 ms", "per_sample": "0 s"},
                "backward": {"base": "100 ms", "per_sample": "0 s"},
            },
            cluster={"inter_node": {"bandwidth": bandwidth, "latency": "0 s"}},
            strategy={"kind": "multi-worker-mirrored", "workers": 4, "bucket_size": "10 MB"},
            run={"replications": 3, "steps": 20},
        ),
        "test",
    )


def test_where_communication_is_only_just_hidden_both_are_the_limit() -> None:
    """1.5 x 200 MB at 3 GB/s take 100 ms, as long as the backward pass hides: twice the device brings next to nothing more."""
    result = simulate(hidden("3 GB/s"))
    parts = result.breakdown_s
    assert parts.compute / result.mean_step_s.mean > 0.9, "by shares the devices would be the limit"
    assert result.bottleneck.balance is not None
    assert {result.bottleneck.name, result.bottleneck.balance} == {"compute", "network"}
    faster = gains(hidden("3 GB/s"))
    # a device twice as fast has 55 ms, and all-reduces of 100 ms begin when the first bucket is ready
    assert faster["compute"] < 0.15
    assert "a faster device" not in result.bottleneck.text


def test_where_it_is_hidden_with_room_to_spare_the_device_is() -> None:
    result = simulate(hidden("30 GB/s"))
    assert (result.bottleneck.name, result.bottleneck.balance) == ("compute", None)
    assert gains(hidden("30 GB/s"))["compute"] > 0.9


def test_where_it_lasts_longer_than_what_hides_it_the_network_is() -> None:
    result = simulate(hidden("1.2 GB/s"))
    assert (result.bottleneck.name, result.bottleneck.balance) == ("network", None)
    faster = gains(hidden("1.2 GB/s"))
    assert faster["communication"] > 4 * faster["compute"]


@pytest.mark.slow
def test_of_three_parts_the_two_are_named_that_bring_much_together() -> None:
    """One server's link and its updates are both in use all the time, and devices are not: neither alone helps, both do."""
    settings = [("strategy.workers", 64), ("strategy.servers", 1), ("cluster.inter_node.bandwidth", "50 Gbit/s"),
                ("cluster.transport.software", "given")]  # fmt: skip
    result = simulate(load_scenario("async-ps", [*settings, ("run.replications", 2), ("run.steps", 20)]))
    assert {result.bottleneck.name, result.bottleneck.balance} == {"server", "server-network"}
    assert result.utilisation.busiest_server > 0.95
    assert result.utilisation.busiest_link > 0.95
    both = simulate(CHANGES["server"].made(CHANGES["communication"].made(result.scenario)))
    assert both.throughput_samples_per_s.mean > 1.5 * result.throughput_samples_per_s.mean


@pytest.mark.parametrize("part", list(CHANGES))
def test_a_change_makes_its_part_faster_and_no_other(part: Part) -> None:
    base = hidden("3 GB/s")
    try:
        its = CHANGES[part].made(base)
    except PacelineError:
        return
    loads = {"compute": its.workload.forward != base.workload.forward, "server": its.workload.server != base.workload.server}
    for name, differs in loads.items():
        assert differs == (name == part and (name != "server" or base.workload.server.base_s > 0))
    assert (its.cluster != base.cluster) == (part == "communication")
