"""A configuration with one thing worse: half the network, half the speed of its devices, one server fewer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from paceline.planning.what_if import changed, with_compute, with_host_link, with_inner_links, with_latency, with_network
from simulator.errors import ScenarioError
from simulator.scenario import Scenario
from simulator.text import format_rate, format_seconds

__all__ = ["Halving", "halvings"]


@dataclass(frozen=True)
class Halving:
    """A change for the worse.

    Attributes
    ----------
    row
        What is changed, such as ``network``.
    name, text
        In few words, and in more.
    scenario
        The configuration with it.
    """

    row: str
    name: str
    text: str
    scenario: Scenario


def halvings(scenario: Scenario) -> tuple[Halving, ...]:
    """Every halving that makes sense for a scenario: none of a link that it does not use, or of servers that it does not have.

    They undo what :func:`paceline.planning.improvements.improvements` does; one that breaks a rule of scenarios is left out.
    """
    found = []
    for row, name, text, change in _changes(scenario):
        try:
            found.append(Halving(row, name, text, change()))
        except ScenarioError:
            continue
    return tuple(found)


def _changes(scenario: Scenario) -> Iterator[tuple[str, str, str, Callable[[], Scenario]]]:
    """What is changed, and how, by halving."""
    cluster, strategy, load = scenario.cluster, scenario.strategy, scenario.workload
    if scenario.nodes_needed > 1:
        link = cluster.inter_node
        yield (
            "network",
            "half network",
            f"links between nodes from {_halved(link.bandwidth_bytes_per_s)}",
            lambda: with_network(scenario, 0.5),
        )
        if link.latency_s > 0:
            times = f"{format_seconds(link.latency_s)} to {format_seconds(2 * link.latency_s)}"
            yield "latency", "2x latency", f"latency between nodes from {times}", lambda: with_latency(scenario, 2.0)
    if not scenario.servers and strategy.uses_inner_links(scenario.layout):
        text = f"links inside a node from {_halved(cluster.intra_node.bandwidth_bytes_per_s)}"
        yield "links in a node", "half links in a node", text, lambda: with_inner_links(scenario, 0.5)
    if cluster.host_link is not None and strategy.copies_to_host:
        text = f"links between device and host from {_halved(cluster.host_link.bandwidth_bytes_per_s)}"
        yield "host link", "half host link", text, lambda: with_host_link(scenario, 0.5)
    yield (
        "device",
        "half device",
        "devices take twice as long; hosts, servers and links stay as they are",
        lambda: with_compute(scenario, 2.0),
    )
    if scenario.servers > 1:
        fewer = strategy.with_servers(scenario.servers - 1)
        text = f"{scenario.servers} to {scenario.servers - 1} parameter servers"
        yield "server", "one PS fewer", text, lambda: changed(scenario, strategy=fewer)
    key = "batch_per_replica" if load.batch_per_replica is not None else "global_batch"
    batch: int = getattr(load, key)
    if scenario.batch % 2 == 0:
        whose = "of each replica" if key == "batch_per_replica" else "of all together"
        half = load.model_copy(update={key: batch // 2})
        yield "batch", "half batch", f"batch {whose} from {batch:,} to {batch // 2:,} samples", lambda: changed(scenario, workload=half)


def _halved(rate_bytes_per_s: float) -> str:
    return f"{format_rate(rate_bytes_per_s)} to {format_rate(rate_bytes_per_s / 2)}"
