"""Describes a training that cuts its model, for its result: stages, bubble, and what devices exchange in a step.

Exchanges are read from the routines that are simulated. ``_AMONG`` maps kinds of groups (``Among`` of groups.py) to the names
that ``simulator.spec.figures.Exchange`` allows and ``simulator.results.bottleneck`` words: change these together. A new
schedule needs its bubble here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from simulator.program.program import Operation, Routine
from simulator.spec.cluster import Cluster
from simulator.spec.figures import Exchange
from simulator.spec.workload import Workload
from simulator.strategies.holding import Held, layers_of
from simulator.strategies.hybrid.groups import Among, Grid, Timing
from simulator.strategies.hybrid.schedules import Schedule
from simulator.strategies.setup import Bubble, StageOf

_AMONG = {
    "data": "copies",
    "shard": "shards",
    "across": "alike shards",
    "experts": "experts",
    "alike": "alike experts",
    "expert shard": "shards of experts",
    "tied": "tied stages",
}


def stages_of(load: Workload, chunks: Sequence[Held], stages: int, devices: int, delays: Sequence[int]) -> tuple[StageOf, ...]:
    """The stages of a pipeline.

    Parameters
    ----------
    load
        With layers.
    chunks
        Of the model, in order; each stage has every ``stages``-th of them.
    stages
        How many.
    devices
        Of each.
    delays
        Of each, by how many updates its gradients are late.
    """
    found = []
    for stage, delay in enumerate(delays):
        own = chunks[stage::stages]
        layers = [load.layers[chunk.first : chunk.last] for chunk in own]
        named = [its[0].name if len(its) == 1 else f"{its[0].name} to {its[-1].name}" for its in layers]
        had = {one.variable.creation_index: one.variable for chunk in own for its in layers_of(load, chunk) for one in its}
        parameter_bytes = math.fsum(float(had[number].size_bytes) for number in sorted(had))
        found.append(StageOf(", ".join(named), sum(map(len, layers)), devices, parameter_bytes, delay))
    return tuple(found)


def bubble_of(schedule: Schedule, stages: int, chunks: int, micro_batches: int, weights: float, *, cut_evenly: bool) -> Bubble:
    """What keeps the stages of a pipeline from computing.

    For (p - 1) / (v m + p - 1) of a step of p stages, m micro-batches and v chunks a stage (Narayanan et al., SC 2021, section
    2.2); with gradients of weights computed apart F + B - W of each F + B + W is left (ZB-H1: Qi et al., ICLR 2024, table 2), and B where
    W is longer than F, in which case gradients of weights fill all that the forward passes leave; taken here with a backward pass B + W
    of two forward passes. Steps follow each other without a barrier: a stage begins the next one as soon as it has made its update.
    A pipeline that is not flushed has none.

    Parameters
    ----------
    schedule, stages, chunks, micro_batches
        Of the pipeline.
    weights
        Share of a backward pass that is the gradients of weights, where these are computed apart.
    cut_evenly
        Whether no cut of the layers is more even.
    """
    evener = 'strategy.stages = "balanced" moves layers from it to others'
    if cut_evenly:
        evener = "no cut of these layers is more even: fewer stages, or layers that are cut finer, would help"
    if schedule == "pipedream":
        return Bubble(0.0, "though it is never flushed", "stages of even speed", evener)
    idle = (stages - 1) * ((2.0 * (1.0 - weights) + max(1.0 - 2.0 * weights, 0.0)) / 3.0 if schedule == "zero-bubble" else 1.0)
    go = f"{micro_batches} micro-batches go" if micro_batches > 1 else "1 micro-batch goes"
    more = ", interleaved chunks or a zero-bubble schedule" if schedule in ("1f1b", "gpipe") else ""
    because = f"as {go} through its {stages} stages ({schedule})"
    return Bubble(idle / (chunks * micro_batches + idle), because, f"more micro-batches{more}", evener)


@dataclass(frozen=True)
class Devices:
    """Who takes part in exchanges.

    Attributes
    ----------
    cluster
        Whose devices the ranks of the grid are.
    whole
        Whose devices split tensors.
    grid
        Stages by copies.
    tensor, expert
        Devices that split each tensor, and copies that experts are spread over.
    sequence_parallel
        Whether what those that split tensors exchange is scattered and gathered.
    timing
        Of collectives between passes, beside all that do the same.
    """

    cluster: Cluster
    whole: Cluster
    grid: Grid
    tensor: int
    expert: int
    sequence_parallel: bool
    timing: Timing


def exchanges_of(routines: Sequence[Routine], partitions: Mapping[Among, int], its: Devices) -> tuple[Exchange, ...]:
    """What each kind of exchange comes to in a step, for the stage for which it takes longest; in the order of a step.

    Parameters
    ----------
    routines
        Of each stage.
    partitions
        The number of each partition that is used.
    its
        Who takes part.
    """
    among_of = {number: among for among, number in partitions.items()}
    longest: dict[tuple[str, str], Exchange] = {}
    for stage, routine in enumerate(routines):
        held: dict[tuple[Among | None, str], list[Operation]] = {}
        for operation in routine.operations:
            if operation.kind == "collective":
                held.setdefault((among_of[operation.partition], operation.does), []).append(operation)
            elif operation.kind == "send":
                held.setdefault((None, operation.name), []).append(operation)
        for (among, does), operations in held.items():
            found = _sent(operations, stage, its) if among is None else _collective(operations, among, stage, its)
            key = found.among, does
            if key not in longest or found.seconds > longest[key].seconds:
                longest[key] = found
    return tuple(longest.values())


def _sent(operations: Sequence[Operation], stage: int, its: Devices) -> Exchange:
    """What a stage hands to the one before or after."""
    ranks = its.grid.rank
    to = ranks[(stage + (1 if operations[0].slot == 0 else -1)) % len(ranks)]
    per_node = its.cluster.replicas_per_node
    crosses = bool((ranks[stage] // per_node != to // per_node).any())
    link = its.cluster.inter_node if crosses else its.cluster.intra_node
    size_bytes = math.fsum(operation.size_bytes for operation in operations)  # of all that split tensors together, as are the links
    return Exchange(
        among="stages",
        does=operations[0].name,
        devices=2,
        links="between nodes" if crosses else "in a node",
        stage=stage,
        times=len(operations),
        size_bytes=size_bytes / its.tensor,
        seconds=len(operations) * link.latency_s + size_bytes / link.bandwidth_bytes_per_s,
    )


def _collective(operations: Sequence[Operation], among: Among, stage: int, its: Devices) -> Exchange:
    groups, every = its.grid.groups("experts" if among == "pass" else among)[stage], its.grid.partition(among)
    members, per_node = len(groups[0]), its.cluster.replicas_per_node
    crosses = any(len(np.unique(ranks // per_node)) > 1 for ranks in groups)
    does, who = operations[0].does.replace("_", "-"), _AMONG.get(among, "")
    if among == "pass":
        by_tensor, by_experts = its.tensor > 1, its.expert > 1
        split = "reduce-scatter and all-gather" if its.sequence_parallel else "all-reduce"
        does = " and ".join([split] * by_tensor + ["all-to-all"] * by_experts) or "copies"
        who = " and ".join(["tensor"] * by_tensor + ["experts"] * by_experts) or "host"
        crosses = (by_experts and crosses) or its.tensor > its.whole.devices_per_node
        members = max(its.tensor, 1) * members
    return Exchange(
        among=who,
        does=does,
        devices=members,
        links="between nodes" if crosses else "in a node",
        stage=stage,
        times=len(operations),
        size_bytes=math.fsum(operation.size_bytes for operation in operations) / (1 if among == "pass" else its.tensor),
        seconds=math.fsum(
            operation.lasts_s or 0.0
            if among == "pass"
            else its.timing.seconds(among, every, operation.does, operation.size_bytes, beside=True)
            for operation in operations
        ),
        amid=among == "pass",
    )
