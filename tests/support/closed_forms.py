"""Closed forms: the oracle of the tests, and an instant estimate. The engine never imports them.

Notation: n workers, S bytes, B bytes/s, alpha seconds a message.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from scipy import integrate, stats


def ring_all_reduce_s(ranks: int, size_bytes: float, bandwidth_bytes_per_s: float, latency_s: float) -> float:
    """Seconds of a ring all-reduce of equal ranks: 2 (n - 1) alpha + 2 (n - 1) / n S / B.

    Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
    workstations", 2009.
    """
    steps = 2 * (ranks - 1)
    return steps * latency_s + steps / ranks * size_bytes / bandwidth_bytes_per_s


def ring_half_s(ranks: int, size_bytes: float, bandwidth_bytes_per_s: float, latency_s: float) -> float:
    """Seconds of a reduce-scatter or an all-gather around a ring of equal ranks: (n - 1) alpha + (n - 1) / n S / B.

    S is the whole buffer, of which a rank gets or gives 1/n. Thakur, Rabenseifner and Gropp,
    "Optimization of collective communication operations in MPICH", IJHPCA 2005, section 4.1.
    """
    return ring_all_reduce_s(ranks, size_bytes, bandwidth_bytes_per_s, latency_s) / 2


def pipelined_chain_s(ranks: int, size_bytes: float, bandwidth_bytes_per_s: float, latency_s: float, pieces: int) -> float:
    """Seconds of a broadcast or a reduction along a chain in k pieces: (n - 1) alpha + (n - 2 + k) / k S / B.

    The first piece takes n - 1 hops, the others follow one after the other. Pjesivac-Grbovic
    et al., "Performance analysis of MPI collective operations", Cluster Computing 2007 (pipeline).
    """
    return (ranks - 1) * latency_s + (ranks - 2 + pieces) / pieces * size_bytes / bandwidth_bytes_per_s if ranks > 1 else 0.0


def all_to_all_s(ranks: int, size_bytes: float, bandwidth_bytes_per_s: float, latency_s: float) -> float:
    """Seconds of an all-to-all of equal ranks that send all at once: alpha + (n - 1) / n S / B.

    Each link carries what goes to the n - 1 others, S / n each. Thakur, Rabenseifner and
    Gropp 2005, section 4.5, whose n - 1 latencies here pass at the same time.
    """
    return latency_s + (ranks - 1) / ranks * size_bytes / bandwidth_bytes_per_s if ranks > 1 else 0.0


def ring_over_racks_s(
    ranks: int, size_bytes: float, bandwidth_bytes_per_s: float, latency_s: float, rack: int, oversubscription: float, crossing: int
) -> float:
    """Seconds of a ring of nodes in racks of ``rack`` each, of whose hops ``crossing`` leave every rack.

    These share the rack's links up, which carry rack x B / oversubscription, and the ring
    goes at the pace of its slowest hop. One hop leaves a rack where ranks follow one another
    in it, all of them where they are dealt out to racks in turn.
    """
    share = rack * bandwidth_bytes_per_s / oversubscription / crossing
    return ring_all_reduce_s(ranks, size_bytes, min(bandwidth_bytes_per_s, share), latency_s)


def all_to_all_over_racks_s(
    ranks: int, size_bytes: float, bandwidth_bytes_per_s: float, latency_s: float, rack: int, oversubscription: float
) -> float:
    """Seconds of an all-to-all of nodes in racks: the longer of what a node and what a rack needs to send.

    A node sends S / n to each of n - 1 others; the nodes of a rack send so much to n - rack
    others each over links that carry 1 / oversubscription of theirs. ``latency_s``: of the
    longest way.
    """
    shares = max(ranks - 1, oversubscription * (ranks - rack)) / ranks
    return latency_s + shares * size_bytes / bandwidth_bytes_per_s


def sharp_s(size_bytes: float, stages_bytes_per_s: Sequence[float], latency_s: float, pieces: int) -> float:
    """Seconds of a buffer that switches add, in k pieces: each stage takes a piece when the one before it has sent it on.

    Stages: a rank's link up, those between switches, the link down; the slowest is never
    idle, so that all of it takes S / B of that one, and one piece more for each other
    stage. ``latency_s``: of all of the way up and down. Graham et al., "SHARP
    streaming-aggregation hardware design and evaluation", 2020.
    """
    each_s = [size_bytes / pieces / rate for rate in stages_bytes_per_s]
    return latency_s + math.fsum(each_s) + (pieces - 1) * max(each_s)


def nvls_bounds_s(devices: int, size_bytes: float, bandwidth_bytes_per_s: float, latency_s: float, pieces: int) -> tuple[float, float]:
    """Least and most seconds of an all-reduce by an NVSwitch that adds, each device's part in k pieces.

    Each device puts out all of its buffer and the sum of its own part: (g + 1) / g S / B
    (S. Jeaugey, NVIDIA/nccl-tests issue 212), and two latencies from device to device; at
    most two rounds of pieces more, while the first come and the last go.
    """
    whole_s = (devices + 1) / devices * size_bytes / bandwidth_bytes_per_s
    return 2 * latency_s + whole_s, 2 * latency_s + whole_s * (1 + 2 / pieces)


def uneven_ring_step_s(ranks: int, size_bytes: float, slowest_bytes_per_s: float, compute_s: float) -> float:
    """Seconds of a step of a ring with hops of different speed: X + 2 (n - 1) / n S / B of the slowest hop.

    A rank ends the all-reduce when it has also sent its own last chunk (TensorFlow's
    ``ring_reducer.cc`` counts a part as done then), so the rank before the slowest hop begins
    its next step when that hop has carried its 2 (n - 1) chunks of S / n. The hop never
    waits: a chunk comes from the slow hop before it through faster ones, which take less
    time than it does itself. For equal compute, no latency, and an all-reduce after it.
    """
    return compute_s + ring_all_reduce_s(ranks, size_bytes, slowest_bytes_per_s, 0.0)


def halving_doubling_all_reduce_s(ranks: int, size_bytes: float, bandwidth_bytes_per_s: float, latency_s: float) -> float:
    """Seconds of recursive halving and doubling: 2 log2(n) alpha + 2 (n - 1) / n S / B.

    Beyond a power of two the buffer goes to a partner before and comes back after, which
    takes alpha + S / B each. Thakur, Rabenseifner and Gropp, "Optimization of collective
    communication operations in MPICH", IJHPCA 2005.
    """
    rounds = ranks.bit_length() - 1
    players = 1 << rounds
    fold_s = 2 * (latency_s + size_bytes / bandwidth_bytes_per_s) if ranks > players else 0.0
    return fold_s + 2 * rounds * latency_s + 2 * (players - 1) / players * size_bytes / bandwidth_bytes_per_s


def double_binary_tree_bounds_s(
    ranks: int, size_bytes: float, bandwidth_bytes_per_s: float, latency_s: float, pieces: int
) -> tuple[float, float]:
    """Least and most seconds of two pipelined binary trees with half of the buffer each, in pieces.

    At least 2 (n - 1) / n S / B, since the n ranks send 2 (n - 1) S together. At most
    2 h alpha + 2 S / B (1 + 2 h / pieces), with h = floor(log2 n) edges from root to leaf:
    no port carries more than four of the halves, and a piece passes 2 h edges. Sanders,
    Speck and Traff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
    Parallel Computing 2009.
    """
    height = ranks.bit_length() - 1
    whole_s = 2 * size_bytes / bandwidth_bytes_per_s
    return (ranks - 1) / ranks * whole_s, 2 * height * latency_s + whole_s * (1 + 2 * height / pieces)


def hierarchical_all_reduce_s(
    nodes: int,
    devices: int,
    size_bytes: float,
    inside_bytes_per_s: float,
    inside_latency_s: float,
    between_bytes_per_s: float,
    between_latency_s: float,
) -> float:
    """Seconds of a reduce-scatter inside each node, rings between nodes that share each node's link, and an all-gather.

    The two halves of a ring of the node's devices, and a ring of the nodes with the whole
    buffer: its shards go by as many rings at once. Jia et al., "Highly scalable deep
    learning training system with mixed-precision", 2018.
    """
    inside_s = ring_all_reduce_s(devices, size_bytes, inside_bytes_per_s, inside_latency_s)
    return inside_s + ring_all_reduce_s(nodes, size_bytes, between_bytes_per_s, between_latency_s)


def reduce_to_one_s(ranks: int, size_bytes: float, bandwidth_bytes_per_s: float, latency_s: float) -> float:
    """Seconds of copies to one device and back, through its one link: 2 (alpha + (n - 1) S / B)."""
    return 2 * (latency_s + (ranks - 1) * size_bytes / bandwidth_bytes_per_s) if ranks > 1 else 0.0


def hierarchical_copy_s(ranks: int, size_bytes: float, bandwidth_bytes_per_s: float, latency_s: float) -> float:
    """Seconds of copies in two equal groups (n even), one link a device.

    To the leaders, (n/2 - 1) S / B; to the first leader, S / B; from it to the other one
    and to its group, n/2 S / B; to the other group, (n/2 - 1) S / B.
    """
    group = ranks // 2
    hops = 4 if group > 1 else 2
    return hops * latency_s + (3 * group - 1) * size_bytes / bandwidth_bytes_per_s


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
    tail = max(math.fsum(wire[: k + 1]) + math.fsum(services_s[k:]) for k in range(len(wire)))
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
        throughput = count / (think_s + math.fsum(residence))
        queue = [throughput * time_s for time_s in residence]
    return throughput, customers / throughput


def backup_step_exponential_s(workers: int, backups: int, mean_compute_s: float) -> float:
    """Mean seconds of a synchronous step that takes the first n - b gradients, all beginning anew: (H_n - H_b) mean.

    The mean of the (n - b)-th smallest of n exponentials: K-sync SGD of Dutta et al. 2018;
    backup workers of Chen et al., "Revisiting distributed synchronous SGD", 2016.
    """
    return (harmonic(workers) - harmonic(backups)) * mean_compute_s


def kth_of_n(law: Any, k: int, n: int) -> float:
    """Mean of the k-th smallest of n draws of one of scipy's laws: the integral of the chance that fewer than k are below."""
    top = float(law.ppf(1 - 1e-9))
    return float(integrate.quad(lambda x: stats.binom.cdf(k - 1, n, law.cdf(x)), 0, top, limit=400)[0])


def pipeline_bubble(stages: int, micro_batches: int, interleaved: int = 1) -> float:
    """Share of a step in which a stage of a pipeline idles: (p - 1) / (v m + p - 1).

    Equal stages, no communication, p stages and m micro-batches; with ``interleaved``
    above 1 each device holds v smaller stages. Huang et al., "GPipe", 2019;
    Narayanan et al., "Efficient large-scale language model training on GPU clusters", 2021.
    """
    return (stages - 1) / (interleaved * micro_batches + stages - 1)
