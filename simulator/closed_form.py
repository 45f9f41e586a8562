"""Closed forms: the oracle of the tests, and an instant estimate. The engine never imports them.

Notation: n workers, S bytes, B bytes/s, alpha seconds a message.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = [
    "asynchronous_server_bound",
    "harmonic",
    "ring_all_reduce_s",
    "single_connection_step_s",
    "sync_in_phase_step_s",
    "sync_step_exponential_s",
]


def ring_all_reduce_s(ranks: int, size_bytes: float, bandwidth_bytes_per_s: float, latency_s: float) -> float:
    """Seconds of a ring all-reduce of equal ranks: 2 (n - 1) alpha + 2 (n - 1) / n S / B.

    Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
    workstations", 2009.
    """
    steps = 2 * (ranks - 1)
    return steps * latency_s + steps / ranks * size_bytes / bandwidth_bytes_per_s


def single_connection_step_s(
    pull_bytes: float,
    push_sizes_bytes: Sequence[float],
    compute_s: float,
    services_s: Sequence[float],
    bandwidth_bytes_per_s: float,
    latency_s: float,
) -> float:
    """Seconds of a parameter-server step of one worker with one server, gradients pushed after the backward pass.

    The pull, the compute, then a two-stage flow shop: each tensor crosses the wire and is
    served, in order (Johnson 1954: the end is the largest sum over k of the transfers up
    to tensor k and the services from k on).
    """
    wire = [size / bandwidth_bytes_per_s for size in push_sizes_bytes]
    tail = max(sum(wire[: k + 1]) + sum(services_s[k:]) for k in range(len(wire)))
    return pull_bytes / bandwidth_bytes_per_s + latency_s + compute_s + latency_s + tail


def sync_in_phase_step_s(
    workers: int, size_bytes: float, compute_s: float, service_s: float, bandwidth_bytes_per_s: float, latency_s: float
) -> float:
    """Seconds of a synchronous parameter-server step of equal workers in phase: one server, one tensor.

    All pull together, n S / B; all push together, n S / B; the n gradients, which arrive
    together, are accumulated one by one, and the sum is applied.
    """
    transfer_s = workers * size_bytes / bandwidth_bytes_per_s + latency_s
    return transfer_s + compute_s + transfer_s + (workers + 1) * service_s


def harmonic(count: int) -> float:
    """The harmonic number 1 + 1/2 + ... + 1/count."""
    return math.fsum(1.0 / k for k in range(1, count + 1))


def sync_step_exponential_s(workers: int, mean_compute_s: float, communication_s: float) -> float:
    """Mean seconds of a synchronous step with exponential compute: H_n mean + communication.

    The mean of the largest of n exponentials (Dutta et al., "Slow and stale gradients can
    win the race", 2018, section 3).
    """
    return harmonic(workers) * mean_compute_s + communication_s


def asynchronous_server_bound(workers: int, demand_s: float, elsewhere_s: float) -> float:
    """Upper bound of updates per second of n workers that each need ``demand_s`` of one shared resource.

    min(1 / D, n / (D + Z)): Denning and Buzen, "The operational analysis of queueing
    network models", 1978.
    """
    return min(1.0 / demand_s, workers / (demand_s + elsewhere_s))


def mean_value_analysis(customers: int, demands_s: Sequence[float], think_s: float) -> tuple[float, float]:
    """Exact mean value analysis of a closed network of shared stations and a delay.

    Exact for processor-sharing stations with any law of demand, and any law of the delay
    (Baskett, Chandy, Muntz and Palacios 1975; Reiser and Lavenberg, "Mean-value analysis
    of closed multichain queuing networks", 1980).

    Parameters
    ----------
    customers
        Workers in the loop.
    demands_s
        Seconds of the whole station that each visit needs, one a station.
    think_s
        Mean seconds spent elsewhere, such as computing.

    Returns
    -------
    tuple of float
        Throughput, in loops per second, and mean seconds of a loop.
    """
    queue = [0.0] * len(demands_s)
    throughput = 0.0
    for count in range(1, customers + 1):
        residence = [demand * (1 + waiting) for demand, waiting in zip(demands_s, queue, strict=True)]
        throughput = count / (think_s + sum(residence))
        queue = [throughput * time_s for time_s in residence]
    return throughput, customers / throughput
