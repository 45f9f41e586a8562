"""What a training costs: nodes, their price, and how long it takes.

A cost is shown only where the price has a source or was given by the user; else None, and
:func:`why_no_cost` says why in a sentence.
"""

from __future__ import annotations

import statistics
from typing import Protocol

from simulator.scenario import Scenario
from simulator.spec.cluster import Price
from simulator.spec.figures import Estimate, Placement

__all__ = [
    "LEAST_PER_S",
    "bought",
    "cost_of_samples",
    "mean_sample_s",
    "placement_of",
    "purchase_usd",
    "server_nodes",
    "time_of_samples_s",
    "usd_per_hour",
    "usd_per_million_samples",
    "usd_per_node_hour",
    "why_no_cost",
]

_HOUR_S = 3600.0


class Trained(Protocol):
    """What time and cost are worked out from: a :class:`~simulator.results.results.Result` is one."""

    @property
    def scenario(self) -> Scenario:
        """What was simulated."""

    @property
    def throughput_samples_per_s(self) -> Estimate:
        """Mean and prediction interval."""

    @property
    def throughput_of_each_replication(self) -> tuple[float, ...]:
        """Samples/s."""


def server_nodes(scenario: Scenario) -> int:
    """Nodes that hold parameter servers and nothing else."""
    return scenario.layout.server_nodes


def placement_of(scenario: Scenario) -> Placement:
    """How many machines the scenario takes, and what sits on them."""
    cluster, servers = scenario.cluster, server_nodes(scenario)
    needed = scenario.nodes_needed
    nodes = max(needed, cluster.nodes or 0)
    each = min(scenario.ranks, cluster.replicas_per_node)
    noun = "replica" if scenario.ranks == scenario.replicas else "device"
    parts = [_on_nodes(scenario.ranks, noun, scenario.worker_nodes, each, cluster.devices_per_node)]
    if servers:
        parts.append(f"{_counted(servers, 'parameter server')} on {_counted(servers, 'node')} of {'its' if servers == 1 else 'their'} own")
    elif scenario.servers:
        parts.append(f"{_counted(scenario.servers, 'parameter server')} on the workers' nodes")
    if needed > scenario.worker_nodes + servers and not scenario.servers > scenario.worker_nodes:
        parts.append("the client on another node")
    if nodes > needed:
        parts.append(f"{_counted(nodes - needed, 'node')} of the cluster idle")
    left, price = (cluster.available or nodes) - nodes, cluster.price
    if left and price is not None and price.purchase_usd is not None:
        parts.append(f"{left:,} more {'node' if left == 1 else 'nodes'} idle and in no cost")
    return Placement(
        nodes=nodes,
        worker_nodes=scenario.worker_nodes,
        server_nodes=servers,
        replicas_per_node=each,
        devices_per_node=cluster.devices_per_node,
        text=", ".join(parts),
    )


def _on_nodes(ranks: int, noun: str, nodes: int, each: int, devices: int) -> str:
    holding = "1 device" if devices == 1 else f"{devices} devices"
    full = "" if ranks == nodes * each else "up to "
    split = f", {full}{each} on each" if nodes > 1 and each > 1 else ""
    shared = f", up to {min(each // devices, ranks)} on a device" if each > devices and devices > 1 else ""
    return f"{_counted(ranks, noun)} on {_counted(nodes, 'node')} with {holding}{'' if nodes == 1 else ' each'}{split}{shared}"


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def usd_per_hour(scenario: Scenario) -> float | None:
    """US dollars an hour for all nodes that the scenario takes, whole nodes; None where the price is not known.

    A cluster with ``nodes`` is rented as a whole; of what is ``available`` only what the scenario takes is paid for.
    """
    total = 0.0
    for nodes, price in bought(scenario):
        if price is None:
            return None
        total += nodes * price.usd_per_node_hour
    return total


def usd_per_node_hour(scenario: Scenario, node: int) -> float | None:
    """US dollars an hour for one of the nodes that the scenario takes, by its number; None where the price is not known."""
    cluster = scenario.cluster
    holds_servers_alone = scenario.worker_nodes <= node < scenario.worker_nodes + server_nodes(scenario)
    price = (holds_servers_alone and cluster.server_price) or cluster.price
    return None if price is None else price.usd_per_node_hour


def purchase_usd(scenario: Scenario) -> float | None:
    """US dollars to buy all nodes that the scenario takes; None where one of them is rented, or its price is not known."""
    total = 0.0
    for nodes, price in bought(scenario):
        if price is None or price.purchase_usd is None:
            return None
        total += nodes * price.purchase_usd
    return total


def bought(scenario: Scenario) -> list[tuple[int, Price | None]]:
    """How many nodes the scenario takes of each price: its workers' nodes, and those that hold parameter servers only."""
    cluster, placement = scenario.cluster, placement_of(scenario)
    servers = placement.server_nodes
    held = [(placement.nodes - servers, cluster.price), (servers, cluster.server_price or cluster.price)]
    if cluster.server_price is None:
        held = [(placement.nodes, cluster.price)]
    return [(nodes, price) for nodes, price in held if nodes]


def why_no_cost(scenario: Scenario) -> str:
    """Why the scenario has no cost."""
    return f"the cluster {scenario.cluster.name!r} has no price with a source, so no cost is shown"


def time_of_samples_s(result: Trained, samples: float) -> Estimate:
    """Seconds in which ``samples`` are trained, start-up and checkpoints left out: samples / throughput.

    The mean is that over replications: where runs differ much, as those of a workload that
    was moved to another device, the time at the mean throughput is shorter, and would make
    a device look the cheaper the less is known of it. The ends of the interval are those
    of the throughput, exchanged.
    """
    rate = result.throughput_samples_per_s
    return Estimate(mean=samples * mean_sample_s(result), low=samples / rate.high, high=samples / max(rate.low, LEAST_PER_S))


def mean_sample_s(result: Trained) -> float:
    """Seconds a sample, mean over replications of 1 / throughput."""
    rates = result.throughput_of_each_replication or (result.throughput_samples_per_s.mean,)
    return statistics.fmean(1.0 / max(rate, LEAST_PER_S) for rate in rates)


LEAST_PER_S = 1e-15
"""Samples a second that stand for none at all, so that a time remains a number."""


def cost_of_samples(result: Trained, samples: float) -> Estimate | None:
    """US dollars for ``samples``: price of all nodes x :func:`time_of_samples_s`; None where the price is not known."""
    hourly = usd_per_hour(result.scenario)
    if hourly is None:
        return None
    time_s = time_of_samples_s(result, samples)
    return Estimate(mean=time_s.mean / _HOUR_S * hourly, low=time_s.low / _HOUR_S * hourly, high=time_s.high / _HOUR_S * hourly)


def usd_per_million_samples(result: Trained) -> Estimate | None:
    """US dollars for a million samples; None where the price is not known."""
    return cost_of_samples(result, 1e6)
