"""A step of a replica that all-reduces its gradients, as a program.

Every replica computes forward and backward on its own batch; gradients are fused into
buckets in the order in which they become ready (Li et al., "PyTorch Distributed", VLDB
2020, section 3.2.2; TensorFlow's ``bytes_per_pack``), each bucket is all-reduced while
the backward pass goes on, and every replica applies the same mean. One replica alone has
nothing to reduce. With ``sync_every`` above 1 (local SGD: Stich, ICLR 2019) each replica
applies its own gradients, and the variables are averaged now and then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from simulator.fusion import Bucket, buckets
from simulator.program.program import Cores, Devices, HostCopies, Names, Operation, Program, Ranks, Reduction, Routine, Rules, Servers
from simulator.program.wiring import Wiring
from simulator.rng import Streams
from simulator.scenario import Scenario
from simulator.strategies.all_reducing import AllReduceStrategy

__all__ = ["buckets_of", "compile_together"]

_NOTHING = Bucket(1.0, 0.0)


def buckets_of(scenario: Scenario) -> list[Bucket]:
    """What a step reduces, in the order in which it becomes ready; one replica alone and local SGD have one bucket of nothing."""
    strategy = scenario.strategy
    if not isinstance(strategy, AllReduceStrategy) or scenario.replicas == 1:
        return [_NOTHING]
    # with a fusion cycle each gradient waits by itself, for what else is ready when the cycle comes
    size = strategy.bucket_size_bytes if strategy.fusion_cycle_s is None else 1.0
    return buckets(scenario.workload, scenario.batch, size, scenario.replicas)


def compile_together(scenario: Scenario, streams: Streams) -> Program:
    """The program of replicas that make each step together, or of one replica alone.

    Parameters
    ----------
    scenario
        As drawn for a replication.
    streams
        Choose the routes of connections.
    """
    strategy, cluster, ranks = scenario.strategy, scenario.cluster, scenario.replicas
    every = strategy.sync_every if isinstance(strategy, AllReduceStrategy) else 1
    wiring = Wiring(cluster, streams)
    device = np.arange(ranks) // cluster.replicas_per_device
    seat = wiring.on_device(device) if cluster.replicas_per_device > 1 else np.full(ranks, -1)
    ports, links, paths, hosts = wiring.tables()
    return Program(
        ports=ports,
        links=links,
        paths=paths,
        hosts=hosts,
        devices=Devices(
            -(-ranks // cluster.replicas_per_device),
            cluster.shared_cores is not None and cluster.device_is_host,
            cluster.overlap_slowdown if ranks > 1 else 0.0,
            scenario.workload.busy_core_slowdown,
        ),
        servers=Servers(0, np.empty(0, dtype=np.int64), on_cores=False),
        ranks=Ranks(
            device=device,
            copy=np.arange(ranks),
            routine=np.zeros(ranks, dtype=np.int64),
            seat=seat,
            path=np.empty((ranks, 0), dtype=np.int64),
            names=Names(ranks, lambda rank: f"replica {rank}"),
        ),
        routines=(_routine(buckets_of(scenario), scenario.workload.parameter_bytes, every, together=ranks > 1),),
        rules=Rules(steps_each=scenario.run.steps, sync_every=every, reduction=_reduction(scenario)),
        transport=cluster.transport,
        cores=Cores(cluster.shared_cores, cluster.time_slice_s) if cluster.shared_cores is not None else None,
        groups=(np.arange(ranks),),
    )


def _reduction(scenario: Scenario) -> Reduction | None:
    strategy, cluster, ranks = scenario.strategy, scenario.cluster, scenario.replicas
    if not isinstance(strategy, AllReduceStrategy) or ranks == 1:
        return None
    copies = None
    if strategy.through_host:
        assert cluster.host_link is not None
        # a link that several devices share gives each its equal part all the time, since the replicas of a node copy at about the same time
        sharing = min(cluster.devices_per_host_link, ranks)
        copies = HostCopies(cluster.host_link.latency_s, sharing / cluster.host_link.bandwidth_bytes_per_s)
    return Reduction(strategy.fusion_cycle_s, strategy.bucket_size_bytes or math.inf, strategy.priority == "forward", copies)


def _routine(fused: Sequence[Bucket], variables_bytes: float, every: int, *, together: bool) -> Routine:
    """Compute, reduce each bucket as it becomes ready, apply; of local SGD apply, and average now and then."""
    operations = [Operation(kind="gate", name="turn"), Operation(kind="gate", name="input", after=(0,))]
    reduced: list[int] = []
    done = 0.0
    for number, (ready, size_bytes) in enumerate(fused if every == 1 else [_NOTHING]):
        name = "backward" if number else "forward and backward"
        after = () if number else (1,)
        operations.append(Operation(kind="compute", name=name, after=after, forward=0.0 if number else 1.0, backward=ready - done))
        done = ready
        if together and every == 1:
            reduce = Operation(
                kind="collective",
                name=f"all-reduce {number}",
                after=(len(operations) - 1,),
                size_bytes=size_bytes,
                bucket=number,
                ready=ready,
            )
            reduced.append(len(operations))
            operations.append(reduce)
    operations.append(Operation(kind="compute", name="apply", after=tuple(reduced), apply=1.0))
    if together and every > 1:
        operations.append(
            Operation(kind="collective", name="average", after=(len(operations) - 1,), size_bytes=variables_bytes, bucket=0, every=every)
        )
    return Routine(tuple(operations))
