"""Cost of a training: nodes, their price, and the time.

A cost is shown only if the price has a source or was given by the user; otherwise it is None, and :func:`why_no_cost` says why.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from simulator.base.text import counted
from simulator.scenario import Scenario
from simulator.spec.figures import Estimate, Placement
from simulator.spec.paying import HOURS_PER_MONTH, Price, sets_of_nodes

if TYPE_CHECKING:
    from simulator.results.results import Result

_HOUR_S = 3600.0
_BISECTED = 1e-9
Away = tuple[int, float, float]
"""A preempted node: its number, and the start and end of its absence in seconds from the start of the job."""


def placement_of(scenario: Scenario) -> Placement:
    """Machines of the scenario, and the processes on them."""
    cluster, servers = scenario.cluster, scenario.layout.server_nodes
    needed = scenario.nodes_needed
    nodes = max(needed, cluster.nodes or 0)
    each = min(scenario.ranks, cluster.replicas_per_node)
    noun = "replica" if scenario.ranks == scenario.replicas else "device"
    parts = [_on_nodes(scenario.ranks, noun, scenario.worker_nodes, each, cluster.devices_per_node)]
    if servers:
        parts.append(f"{counted(servers, 'parameter server')} on {counted(servers, 'separate node')}")
    elif scenario.servers:
        parts.append(f"{counted(scenario.servers, 'parameter server')} on the workers' nodes")
    if needed > scenario.worker_nodes + servers and not scenario.servers > scenario.worker_nodes:
        parts.append("the client on another node")
    if nodes > needed:
        parts.append(f"{counted(nodes - needed, 'node')} of the cluster idle")
    left, price = (cluster.available or nodes) - nodes, cluster.price
    if left and price is not None and price.committed_usd is not None:
        parts.append(f"{left:,} more {'node' if left == 1 else 'nodes'} idle, not charged")
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
    return f"{counted(ranks, noun)} on {counted(nodes, 'node')} with {holding}{'' if nodes == 1 else ' each'}{split}{shared}"


def usd_per_hour(scenario: Scenario) -> float | None:
    """US dollars per hour for all nodes of the scenario; None if the price is unknown.

    A cluster with ``nodes`` is rented as a whole; with ``available``, only nodes in use are paid for.
    """
    return _of_all_nodes(scenario, lambda price: price.usd_per_node_hour)


def _of_all_nodes(scenario: Scenario, of_node: Callable[[Price], float | None]) -> float | None:
    total = 0.0
    for nodes, price in paid_for(scenario):
        each = None if price is None else of_node(price)
        if each is None:
            return None
        total += nodes * each
    return total


def usd_per_node_hour(scenario: Scenario, node: int) -> float | None:
    """US dollars per hour for one node of the scenario, by number; None if the price is unknown."""
    price = _price_of(scenario, node)
    return None if price is None else price.usd_per_node_hour


def _price_of(scenario: Scenario, node: int) -> Price | None:
    cluster = scenario.cluster
    holds_servers_alone = scenario.worker_nodes <= node < scenario.worker_nodes + scenario.layout.server_nodes
    return (cluster.server_price if holds_servers_alone else None) or cluster.price


def committed_usd(scenario: Scenario) -> float | None:
    """Committed US dollars of all nodes: purchases, or terms of reserved nodes.

    None if one of them can be given back at any time, or its price is unknown.
    """
    return _of_all_nodes(scenario, lambda price: price.committed_usd)


def capital_usd(scenario: Scenario) -> float:
    """US dollars paid for all nodes at the start: purchases, or the upfront part of a term; 0 if rented."""
    return math.fsum(nodes * price.costs.capital_usd for nodes, price in paid_for(scenario) if price is not None)


def running_usd_per_hour(scenario: Scenario) -> float | None:
    """US dollars per hour in use for all nodes, without the share of their capital; None if that part is unknown."""
    return _of_all_nodes(scenario, lambda price: price.running_usd_per_hour_in_use)


def paid_for(scenario: Scenario) -> list[tuple[int, Price | None]]:
    """Number of nodes at each price: workers' nodes, and nodes with parameter servers only."""
    cluster, nodes = scenario.cluster, max(scenario.nodes_needed, scenario.cluster.nodes or 0)
    servers = 0 if cluster.server_price is None else scenario.layout.server_nodes
    return [(count, price) for count, price in ((nodes - servers, cluster.price), (servers, cluster.server_price)) if count]


def why_no_cost(scenario: Scenario) -> str:
    """Say why the scenario has no cost."""
    return f"the cluster {scenario.cluster.name!r} has no price with a source, so no cost is shown"


def time_of_samples_s(result: Result, samples: float) -> Estimate:
    """Seconds to train on ``samples``, without start-up and checkpoints: samples / throughput.

    The mean is over replications. If runs differ much, as for a workload scaled to another device, the time at the mean throughput is
    shorter, and would make a device look cheaper the less is known about it. The ends of the interval are those of the throughput,
    exchanged.
    """
    rate = result.throughput_samples_per_s
    sample_s = statistics.fmean(1.0 / max(each, LEAST_PER_S) for each in _rates(result))
    return Estimate(mean=samples * sample_s, low=samples / rate.high, high=samples / max(rate.low, LEAST_PER_S))


def _rates(result: Result) -> tuple[float, ...]:
    return result.throughput_of_each_replication or (result.throughput_samples_per_s.mean,)


LEAST_PER_S = 1e-15
"""Lower limit of samples per second, so that a time remains finite."""


def usd_of(scenario: Scenario, time_s: float, away: Sequence[Away] = (), per_month: float | None = None) -> float | None:
    """US dollars for all nodes for a training of that time, as billed; None if the price is unknown.

    Parameters
    ----------
    time_s
        From start to end.
    away
        Preempted nodes, which cost nothing while they are away; each replacement is billed as a new node.
    per_month
        Trainings per month, over which nodes paid in advance are spread; None: over their ``share_in_use``.
    """
    hourly = usd_per_hour(scenario)
    if hourly is None:
        return None
    if per_month is not None and is_paid_in_advance(scenario):
        billed_s = _own_startup_s(scenario)
        return math.fsum(
            nodes * (price.usd_of_training(time_s, per_month) if price.is_worked_out else _billed_usd(price, time_s, billed_s))
            for nodes, price in paid_for(scenario)
            if price is not None
        )
    gone: dict[int, list[tuple[float, float]]] = {}
    for node, since_s, until_s in away:
        gone.setdefault(node, []).append((since_s, until_s))
    if bills_exactly(scenario):
        away_s = {node: math.fsum(until_s - since_s for since_s, until_s in spells) for node, spells in gone.items()}
        saved = math.fsum((usd_per_node_hour(scenario, node) or 0.0) * seconds for node, seconds in away_s.items())
        return (time_s * hourly - saved) / _HOUR_S
    own_startup_s = _own_startup_s(scenario)
    total = math.fsum(nodes * _billed_usd(price, time_s, own_startup_s) for nodes, price in paid_for(scenario) if price is not None)
    for node, absences in gone.items():
        price = _price_of(scenario, node)
        assert price is not None, "all nodes have one"
        total += math.fsum(_billed_usd(price, lease_s, own_startup_s) for lease_s in _leases(time_s, absences))
        total -= _billed_usd(price, time_s, own_startup_s)
    return total


def _billed_usd(price: Price, time_s: float, startup_s: float) -> float:
    """US dollars for one node, as billed."""
    return price.usd_per_node_hour * price.billed_s(time_s, startup_s) / _HOUR_S


def is_paid_in_advance(scenario: Scenario) -> bool:
    """Return whether some nodes are bought or reserved, at a price per hour that follows from that."""
    return any(price is not None and price.is_worked_out for _, price in paid_for(scenario))


def with_trainings(scenario: Scenario, time_s: float, per_month: float) -> Scenario:
    """Return the scenario with its nodes in use for the time of this number of trainings per month.

    Parameters
    ----------
    scenario
        Its prices may be computed from a purchase or a term; others stay.
    time_s
        Mean time of a training.
    per_month
        Trainings per month.
    """
    hours = per_month * time_s / _HOUR_S
    share = min(hours / HOURS_PER_MONTH / sets_of_nodes(hours), 1.0)

    def used(price: Price | None) -> Price | None:
        if price is None or not price.is_worked_out:
            return price
        return Price.model_validate({**price.model_dump(mode="json"), "share_in_use": share, "terms": ""})

    cluster = scenario.cluster
    return scenario.replaced({"cluster.price": used(cluster.price), "cluster.server_price": used(cluster.server_price)})


def _leases(time_s: float, away: Iterable[tuple[float, float]]) -> list[float]:
    """Durations of each presence of a node."""
    leases, since_s = [], 0.0
    for left_s, back_s in sorted(away):
        leases.append(left_s - since_s)
        since_s = max(since_s, back_s)
    return [lease_s for lease_s in (*leases, time_s - since_s) if lease_s > 0]


def _own_startup_s(scenario: Scenario) -> float:
    """Mean time to a job's first step, which includes the price's start-up."""
    job, known = scenario.job, scenario.workload.overheads
    startup = None if job is None else job.startup or (known.startup if known is not None else None)
    return startup.value_s if startup is not None else 0.0


def usd_estimate(scenario: Scenario, time_s: Estimate, of_each_s: Sequence[float] = (), per_month: float | None = None) -> Estimate | None:
    """US dollars for a training without preemption, from its time with its interval and from each run; None if the price is unknown.

    A month's trainings share the cost of nodes paid in advance, so its mean is the cost at the mean time.
    """
    hourly = usd_per_hour(scenario)
    if hourly is None:
        return None
    monthly = per_month is not None and is_paid_in_advance(scenario)
    if bills_exactly(scenario) and not monthly:
        return _priced(time_s, hourly)
    each_s = [time_s.mean] if monthly else of_each_s
    low, high, *each = (usd_of(scenario, run_s, per_month=per_month) or 0.0 for run_s in (time_s.low, time_s.high, *each_s))
    return Estimate(mean=statistics.fmean(each), low=low, high=high)


def bills_exactly(scenario: Scenario) -> bool:
    """Return whether exactly the time of a training is billed: without start-up, minimum and billing steps."""
    return all(price is None or price.bills_exactly for _, price in paid_for(scenario))


def affordable_s(scenario: Scenario, usd: float) -> float:
    """The longest training within a budget, in seconds; 0 if there is none, or the price is unknown."""
    hourly = usd_per_hour(scenario)
    if hourly is None:
        return 0.0
    longest_s = usd / hourly * _HOUR_S if hourly else math.inf
    if bills_exactly(scenario) or not math.isfinite(longest_s):
        return longest_s
    low_s, high_s = 0.0, longest_s  # what is billed is no less than the time
    while high_s - low_s > _BISECTED * longest_s:
        middle_s = (low_s + high_s) / 2
        low_s, high_s = (middle_s, high_s) if (usd_of(scenario, middle_s) or 0.0) <= usd else (low_s, middle_s)
    return low_s


def cost_of_samples(result: Result, samples: float, per_month: float | None = None) -> Estimate | None:
    """US dollars for a training of ``samples``: all nodes for :func:`time_of_samples_s`, as billed; None if the price is unknown."""
    of_each_s = [samples / max(rate, LEAST_PER_S) for rate in _rates(result)]
    return usd_estimate(result.scenario, time_of_samples_s(result, samples), of_each_s, per_month)


def usd_per_million_samples(result: Result) -> Estimate | None:
    """US dollars per million samples of a long training: price of all nodes x :func:`time_of_samples_s`; None if the price is unknown."""
    hourly = usd_per_hour(result.scenario)
    if hourly is None:
        return None
    return _priced(time_of_samples_s(result, 1e6), hourly)


def usd_per_billion_tokens(result: Result) -> Estimate | None:
    """The same for a billion tokens; None if the price is unknown or samples are no sequences."""
    million, unit = usd_per_million_samples(result), result.scenario.unit
    return None if million is None or unit.name != "tokens" else million.times(1e3 / unit.per_sample)


def _priced(time_s: Estimate, hourly: float) -> Estimate:
    return Estimate(mean=time_s.mean / _HOUR_S * hourly, low=time_s.low / _HOUR_S * hourly, high=time_s.high / _HOUR_S * hourly)
