"""Input pipelines, which prepare batches (not those of a model's stages): whom each feeds, what a batch costs, and what several share.

A pipeline prepares batches in sequence, and begins the next when fewer than ``prefetch`` are ready
(tensorflow/core/kernels/data/prefetch_dataset_op.cc). The iterator's thread does the serial part of a batch and ``parallel_calls`` threads
the parallel part, all at the same time, on the cores of the node; meanwhile its bytes are read. The batch is there when all of that is
done. Engines simulate what :func:`feed_of` says.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from simulator.program.program import Feed, Floats, Integers
from simulator.program.wiring import Wiring
from simulator.spec.input_pipeline import InputWork
from simulator.strategies.setup import Setup

Part = Literal["serial part", "parallel part", "host cores", "storage", "storage of a node", "network"]
"""The slowest part of a pipeline."""


@dataclass(frozen=True)
class Pipelines:
    """All pipelines of a training. Columns of shape (pipelines,) but for ``of_rank``.

    Attributes
    ----------
    of_rank
        The pipeline that feeds each rank, shape (ranks,).
    node
        Where each works: that of the first rank that it feeds.
    samples
        Of a batch, for all copies of the model that it feeds.
    prefetch
        Batches that are prepared ahead.
    calls
        Threads that share the parallel part.
    serial_s, parallel_s
        CPU seconds of a batch's parts.
    read_bytes
        Of a batch, from storage.
    cores
        Of a node, for its pipelines; infinite where there are enough.
    shares_cores, shares_reading
        Whether pipelines wait for each other on a node's cores; and, or for gradients, at storage or on a link.
    rate_bytes_per_s
        Rate at which each reads without contention.
    latency_s
        Of storage, for each batch that is read.
    cores_s, alone_s
        Mean seconds of a batch without contention: of its CPU work, and in total.
    fair_s
        The same while all prepare batches and each has its fair share of what they share.
    limit
        Which part of its work that is, in the slowest of them.
    """

    of_rank: Integers
    node: Integers
    samples: Floats
    prefetch: int
    calls: int
    serial_s: Floats
    parallel_s: Floats
    read_bytes: Floats
    cores: float
    shares_cores: bool
    shares_reading: bool
    rate_bytes_per_s: Floats
    latency_s: float
    cores_s: Floats
    alone_s: Floats
    fair_s: Floats
    limit: Part

    def __len__(self) -> int:
        return len(self.node)

    @property
    def work_s(self) -> Floats:
        """CPU seconds of a batch, shape (pipelines,)."""
        return self.serial_s + self.parallel_s


def cpu_s(serial_s: float, parallel_s: float, calls: int, cores: float) -> float:
    """Seconds in which cores do the serial part, by one thread, and the parallel part, by ``calls`` threads: each thread gets as much.

    >>> cpu_s(1.0, 4.0, 4, math.inf), cpu_s(1.0, 4.0, 4, 1.0), cpu_s(1.0, 1.0, 1, 1.0)
    (1.0, 5.0, 2.0)
    """
    threads = (calls if parallel_s else 0) + (1 if serial_s else 0)
    if threads <= cores:
        return max(serial_s, parallel_s / calls)
    each = cores / threads
    if not (serial_s and parallel_s):
        return (serial_s + parallel_s) / cores  # one thread has a core, or fewer
    first_s = min(serial_s, parallel_s / calls) / each
    left_serial_s, left_parallel_s = serial_s - first_s * each, parallel_s - first_s * each * calls
    if left_serial_s * calls > left_parallel_s:
        return first_s + left_serial_s / min(cores, 1.0)
    return first_s + max(left_parallel_s, 0.0) / min(cores, calls)


def feeds_in_turn(setup: Setup) -> bool:
    """Tell whether pipelines share something, so that what each batch takes is found event by event."""
    shared = pipelines(setup) if setup.input is not None else None
    return shared is not None and (shared.shares_cores or shared.shares_reading)


def pipelines(setup: Setup) -> Pipelines | None:
    """The pipelines of a training: those of ``[input]``, else of ``workload.input``; none where they cost nothing or a client has them."""
    layout, spec, work = setup.layout, setup.input, setup.input_work
    if layout.client:
        return None
    if spec is None or work is None:
        input_s = float(setup.workload.input(setup.batch))
        if not input_s:
            return None
        ranks = np.arange(layout.ranks)
        each_s, nothing = np.full(layout.ranks, input_s), np.zeros(layout.ranks)
        return Pipelines(
            ranks, ranks // layout.replicas_per_node, np.full(layout.ranks, float(setup.batch)), 1, 1, each_s, nothing, nothing,
            math.inf, shares_cores=False, shares_reading=False, rate_bytes_per_s=np.full(layout.ranks, math.inf), latency_s=0.0,
            cores_s=each_s, alone_s=each_s, fair_s=each_s, limit="serial part",
        )  # fmt: skip
    if work == InputWork():
        return None
    copy = setup.strategy.model_parallel(setup).copies()
    # a process that has parts of copies reads for each of these by itself
    each = layout.replicas_per_process if spec.per == "process" and layout.ranks_per_replica == 1 else 1
    of_rank = copy // each
    _, first = np.unique(of_rank, return_index=True)
    count = len(first)
    samples: Floats = np.bincount(np.arange(layout.replicas) // each, minlength=count).astype(np.float64) * setup.batch
    return _shared_out(setup, work, of_rank, first // layout.replicas_per_node, samples)


def _shared_out(setup: Setup, work: InputWork, of_rank: Integers, node: Integers, samples: Floats) -> Pipelines:
    spec, cluster = setup.input, setup.cluster
    assert spec is not None
    serial_s, parallel_s = (np.array([cost(each) for each in samples.tolist()]) for cost in (work.serial, work.parallel))
    read_bytes = work.read_bytes_per_sample * samples
    count = len(node)
    on_node = np.bincount(node)[node]
    cores = math.inf if cluster.host_cores is None else float(cluster.host_cores)
    threads = spec.parallel_calls * (parallel_s > 0) + (serial_s > 0)
    needed = np.bincount(node, weights=threads)[node]
    shares_cores = bool(((on_node > 1) & (needed > cores)).any())
    alone, fair, storage = np.full(count, math.inf), np.full(count, math.inf), cluster.storage
    at: dict[Part, Floats] = {}
    shares_reading = False
    if storage is not None and read_bytes.any():
        rates: list[tuple[Part, Floats, Integers | int]] = []
        if storage.node_bandwidth_bytes_per_s is not None:
            rates.append(("storage of a node", np.full(count, storage.node_bandwidth_bytes_per_s), on_node))
            shares_reading |= bool((on_node > 1).any())
        if storage.over_network:
            cap = cluster.transport.flow_cap_bytes_per_s or math.inf
            links = {number: cluster.link_of(number).bandwidth_bytes_per_s for number in np.unique(node).tolist()}
            wire = cluster.transport.wire_bytes_per_byte
            rates.append(("network", np.array([min(links[number] / wire, cap) for number in node.tolist()]), on_node))
            shares_reading |= setup.layout.nodes > 1 or bool((on_node > 1).any())
        for _, rate, _ in rates:
            alone = np.minimum(alone, rate)
        if storage.bandwidth_bytes_per_s is not None:
            shares_reading |= count > 1 and float(alone.sum()) > storage.bandwidth_bytes_per_s
            rates.append(("storage", np.full(count, storage.bandwidth_bytes_per_s), count))
            alone = np.minimum(alone, storage.bandwidth_bytes_per_s)
        for part, rate, users in rates:
            fair = np.minimum(fair, rate / users)
            at[part] = read_bytes / (rate / users)
    latency_s = storage.latency_s if storage is not None and read_bytes.any() else 0.0
    columns = list(zip(serial_s.tolist(), parallel_s.tolist(), on_node.tolist(), strict=True))
    calls = spec.parallel_calls
    working_s = np.array([cpu_s(serial, parallel, calls, cores) for serial, parallel, _ in columns])
    sharing_s = np.array([cpu_s(serial, parallel, calls, cores / users) for serial, parallel, users in columns])
    fair_s = np.maximum(sharing_s, latency_s + read_bytes / fair)
    slowest = int(fair_s.argmax())
    parts: dict[Part, float] = {part: latency_s + float(part_s[slowest]) for part, part_s in at.items()}
    serial, parallel, _ = columns[slowest]
    parts["serial part"], parts["parallel part"] = serial, parallel / calls
    limit = max(parts, key=lambda part: parts[part])
    if sharing_s[slowest] > max(parts.values()):
        limit = "host cores"
    return Pipelines(
        of_rank, node, samples, spec.prefetch, calls, serial_s, parallel_s, read_bytes, cores, shares_cores, shares_reading,
        alone, latency_s, working_s, np.maximum(working_s, latency_s + read_bytes / alone), fair_s, limit,
    )  # fmt: skip


def batch_s(setup: Setup) -> float:
    """Mean seconds between batches that pipelines can give each rank: of the slowest, while all prepare some; 0: no time."""
    if setup.input is None or setup.layout.client:
        return float(setup.workload.input(setup.batch))
    shared = pipelines(setup)
    return float(shared.fair_s.max()) if shared is not None else 0.0


def input_cores_s(setup: Setup) -> float:
    """CPU seconds of a batch for each rank."""
    if setup.input is None or setup.layout.client:
        return float(setup.workload.input(setup.batch))
    shared = pipelines(setup)
    return float(shared.work_s.sum()) / setup.layout.ranks if shared is not None else 0.0


def feed_of(setup: Setup, wiring: Wiring) -> Feed | None:
    """Input pipelines of a program: shared parts are paths and threads on shared cores, the rest has known times."""
    shared = pipelines(setup)
    if shared is None:
        return None
    count, on_cores = len(shared), setup.cluster.shared_cores
    own_s = np.zeros(count)
    path: list[Integers] = []
    amount: list[Floats] = []
    work_s = np.zeros((count, 0))
    serial, parallel = (shared.serial_s > 0, shared.parallel_s > 0)
    if on_cores is not None:
        calls = int(min(shared.calls, on_cores)) if parallel.any() else 0
        threads = [shared.serial_s] * int(serial.any()) + [shared.parallel_s / max(calls, 1)] * calls
        work_s = np.stack(threads, axis=1) if threads else work_s
    elif shared.shares_cores:
        for seconds, weight in ((shared.serial_s, 1.0), (shared.parallel_s, float(shared.calls))):
            if seconds.any():
                path.append(wiring.on_host_cores(shared.node, np.full(count, weight)))
                amount.append(seconds)
    else:
        own_s = shared.cores_s
    if shared.shares_reading:
        path.append(wiring.from_storage(shared.node))
        amount.append(shared.read_bytes)
    elif shared.read_bytes.any():
        own_s = np.maximum(own_s, shared.latency_s + shared.read_bytes / shared.rate_bytes_per_s)
    return Feed(
        shared.of_rank,
        shared.prefetch,
        own_s,
        np.stack(path, axis=1) if path else np.zeros((count, 0), dtype=np.int64),
        np.stack(amount, axis=1) if amount else np.zeros((count, 0)),
        work_s,
        shared.alone_s,
    )
