"""A published setting as a scenario: one replica's step time, facts about hardware and software, and the constants."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
from scipy.special import ndtr

from calibrate.published.networks import Tensor, fused, on_servers, variables
from calibrate.published.tables import Row, Series, Stack
from simulator.cluster import Cluster, Link, NodeClass
from simulator.laws import Law, Normal
from simulator.scenario import Run, Scenario
from simulator.spec import Spec
from simulator.strategy import MultiWorkerMirrored, ParameterServer
from simulator.uncertainty import Uncertainty
from simulator.workload import Affine, Workload

__all__ = ["Situation", "element_bytes", "reduces_only", "scenario_of", "slowest_of"]

_FORWARD_SHARE = 1.0 / 3.0
"""The backward pass computes two products for each one of the forward pass."""
_PIECES = 8
"""Messages that a server's tensors are put together into, so that they overlap with the backward pass."""
_MANY = 40
"""Above so many workers a server's tensors travel as one message."""
_AMPLE_BYTES_PER_S = 1e13
_RING_PIECES = 24
_FEWEST = 19
"""Replications that give a 90% interval."""
_DRAWS = 40


class Situation(Spec):
    """What stays the same over the rows of a series."""

    series: Series
    stack: Stack
    cluster: Cluster
    tensors: tuple[Tensor, ...]
    traffic: float = 1.0
    """Bytes sent for each byte of a gradient: fitted where a series has no row of one device."""


def scenario_of(
    situation: Situation, row: Row, step_s: float, constants: Mapping[str, float], draws: Sequence[Mapping[str, float]] = (), seed: int = 0
) -> Scenario:
    """The scenario of a row.

    Parameters
    ----------
    step_s
        Seconds of a step of one device alone.
    constants
        Values by name.
    draws
        Joint draws of the same; with them the scenario is uncertain, and carries ``row_noise``.
    """
    build = _all_reduce if reduces_only(situation.stack, row) else _parameter_server
    workload, cluster, strategy = build(situation, row, step_s, constants)
    if draws:
        # a row is off as a whole, not one of its workers: so its noise is drawn with the step's time
        noise = np.exp(constants["row_noise"] * np.random.default_rng([seed, 2]).standard_normal(len(draws)))
        drawn = [build(situation, row, step_s * float(off), draw)[:2] for draw, off in zip(draws, noise, strict=True)]
        workload = workload.model_copy(update={"uncertainty": _uncertainty(_WORKLOAD, [each for each, _ in drawn])})
        cluster = cluster.model_copy(update={"uncertainty": _uncertainty(_cluster_parameters(cluster), [each for _, each in drawn])})
    run = Run(steps=4, warmup_steps=1, replications=_FEWEST if draws else 4, seed=seed)
    return Scenario(workload=workload, cluster=cluster, strategy=strategy, run=run)


def reduces_only(stack: Stack, row: Row) -> bool:
    """Whether a row has no server: all-reduce, or devices of one node that push as one."""
    return stack.kind == "all-reduce" or (stack.worker == "node" and row.nodes == 1)


@lru_cache(maxsize=64)
def slowest_of(count: int) -> tuple[float, float]:
    """Mean and standard deviation of the largest of so many standard normals."""
    grid = np.linspace(-8.0, 8.0, 4001)
    density = np.exp(-(grid**2) / 2) / np.sqrt(2 * np.pi)
    weights = count * ndtr(grid) ** (count - 1) * density
    weights /= weights.sum()
    mean = float((weights * grid).sum())
    return mean, float(np.sqrt((weights * (grid - mean) ** 2).sum()))


# -- all-reduce -----------------------------------------------------------------------


def _all_reduce(
    situation: Situation, row: Row, step_s: float, constants: Mapping[str, float]
) -> tuple[Workload, Cluster, MultiWorkerMirrored]:
    stack, facts = situation.stack, situation.cluster
    inside_s, hop_s = _inside_bytes_per_s(situation, constants), facts.inter_node.latency_s
    between = facts.inter_node.bandwidth_bytes_per_s * facts.nics_per_node
    if stack.between == "tcp":
        flow = facts.transport.flow_cap_bytes_per_s or math.inf
        between = min(between * constants["tcp_share"], constants["socket_bytes_per_s"], flow * constants["tcp_share"])
        hop_s = constants["socket_hop_s"]
    else:
        between *= min(constants["rdma_share"], 1.0)
    cluster = Cluster(
        name=facts.name,
        basis=facts.basis,
        devices_per_node=row.replicas_per_node,
        intra_node=Link(bandwidth_bytes_per_s=inside_s, latency_s=facts.intra_node.latency_s),
        inter_node=Link(bandwidth_bytes_per_s=between, latency_s=hop_s),
        overlap_slowdown=constants["overlap_slowdown"] if stack.overlap and stack.cycle_s is None else 0.0,
    )
    each = stack.bucket_bytes is not None and stack.bucket_bytes < 2
    pieces = len(situation.tensors) if each and stack.between == "tcp" else min(_RING_PIECES, len(situation.tensors))
    strategy = MultiWorkerMirrored(
        workers=row.nodes,
        replicas_per_worker=row.replicas_per_node,
        bucket_size_bytes=stack.bucket_bytes if stack.overlap else None,
        fusion_cycle_s=stack.cycle_s,
        protocol="simple" if stack.between != "tcp" else "none",
    )
    gradients = variables([fused(situation.tensors, pieces)], element_bytes(situation))
    crowded_s = step_s * _crowd(situation, row, constants)
    workload = _workload(situation, row.batch_per_replica, crowded_s, gradients, Normal(cv=constants["straggler_cv"]))
    return workload, cluster, strategy


# -- parameter servers ----------------------------------------------------------------


def _parameter_server(
    situation: Situation, row: Row, step_s: float, constants: Mapping[str, float]
) -> tuple[Workload, Cluster, ParameterServer]:
    """Workers, the server with most bytes, and all others as one that is never in the way.

    Synchronous workers push and pull together, so the server with most bytes is the last;
    the others need not be told apart. Servers on the workers' hosts use the other
    direction of their links at that time (workers send while servers receive), so they
    are given nodes of their own; what stays on a host does not cross its link.
    """
    stack, facts = situation.stack, situation.cluster
    workers = row.nodes if stack.worker == "node" else row.replicas
    team = row.replicas // workers
    servers = row.servers or 1
    parts = [part for part in on_servers(situation.tensors, servers, stack.even) if part]
    remote = 1.0 - 1.0 / servers if stack.even and stack.placement == "colocated" else 1.0
    pieces = min([_PIECES if workers <= _MANY else 1, *(len(part) for part in parts)])
    parts = [fused(part, pieces) for part in parts]
    pieces = min(len(part) for part in parts)
    parts = [fused(part, pieces) for part in parts]
    local = stack.between == "none"
    link = _inside_bytes_per_s(situation, constants) if local else _server_link(situation, row, constants)
    latency_s = facts.intra_node.latency_s if local else facts.inter_node.latency_s
    ample = Link(bandwidth_bytes_per_s=_AMPLE_BYTES_PER_S, latency_s=latency_s)
    cluster = Cluster(
        name=facts.name,
        basis=facts.basis,
        inter_node=Link(bandwidth_bytes_per_s=link, latency_s=latency_s),
        node_classes=(
            NodeClass(name="workers", nodes=workers),
            NodeClass(name="busiest server", nodes=1, inter_node=ample if local else None),
            *([NodeClass(name="other servers", nodes=1, inter_node=ample)] if len(parts) > 1 else []),
        ),
        host_link=Link(bandwidth_bytes_per_s=_inside_bytes_per_s(situation, constants), latency_s=facts.intra_node.latency_s)
        if not local else None,
        overlap_slowdown=constants["overlap_slowdown"] if stack.overlap and team > 1 else 0.0,
    )  # fmt: skip
    strategy = ParameterServer(
        mode="sync",
        workers=workers,
        servers=len(parts),
        tensor_grouping="none" if stack.overlap and pieces > 1 else "per-server",
        pull_order="forward",  # of a few pieces, each of many tensors
    )
    mean, spread = slowest_of(team)
    cv = constants["straggler_cv"]
    workload = _workload(
        situation, row.batch_per_replica * team, step_s * _crowd(situation, row, constants) * (1.0 + cv * mean),
        variables(parts, element_bytes(situation) * remote), Normal(cv=cv * spread / (1.0 + cv * mean)),
    )  # fmt: skip
    if stack.per_key:
        workload = _pulls_overlap(workload, constants["pull_overlap"])
    return workload, cluster, strategy


def _server_link(situation: Situation, row: Row, constants: Mapping[str, float]) -> float:
    """Bytes a second that a server process moves in each direction."""
    stack, facts = situation.stack, situation.cluster
    process = constants["grpc_bytes_per_s" if stack.between == "grpc" else "ps_lite_bytes_per_s"]
    if row.nodes == 1:
        return process  # by the host's own stack
    return float(min(facts.inter_node.bandwidth_bytes_per_s * facts.nics_per_node * constants["tcp_share"], process))


def _pulls_overlap(workload: Workload, share: float) -> Workload:
    """Pulls of which a share goes on in the other direction while gradients are pushed, so that only the rest takes time."""
    batch = workload.batch_per_replica
    assert batch is not None
    left = max(1.0 - share, 0.0)
    pushed = [variable.size_bytes for variable in workload.variables]
    changed = tuple(
        variable.model_copy(update={"sparse_bytes_per_sample": size / batch, "size_bytes": max(size * left, 1.0)})
        for variable, size in zip(workload.variables, pushed, strict=True)
    )
    return workload.model_copy(update={"variables": changed})


# -- both -----------------------------------------------------------------------------


def _crowd(situation: Situation, row: Row, constants: Mapping[str, float]) -> float:
    """How much longer a step takes on a host whose other devices compute too."""
    if row.replicas_per_node == 1:
        return 1.0
    shared = constants["one_process"] if situation.stack.one_process else 0.0
    return 1.0 + shared + (constants["mixed_crowding"] if situation.series.mixed else 0.0)


def _inside_bytes_per_s(situation: Situation, constants: Mapping[str, float]) -> float:
    share = constants[{"nvlink": "nvlink_share", "pcie": "pcie_share", "host-memory": "host_memory_share"}[situation.series.inside]]
    return float(situation.cluster.intra_node.bandwidth_bytes_per_s * min(share, 1.0))


def element_bytes(situation: Situation) -> float:
    """Bytes that a step sends for each element of a gradient."""
    return (2.0 if situation.stack.halves else 4.0) * situation.traffic / situation.stack.every


def _workload(situation: Situation, batch: int, step_s: float, tensors: Sequence[object], jitter: Law) -> Workload:
    return Workload(
        name=situation.series.network,
        batch_per_replica=batch,
        forward=Affine(base_s=step_s * _FORWARD_SHARE, per_sample_s=0.0),
        backward=Affine(base_s=step_s * (1.0 - _FORWARD_SHARE), per_sample_s=0.0),
        jitter=jitter,
        variables=tuple(tensors),
    )


_WORKLOAD = ("forward.base_s", "backward.base_s")


def _cluster_parameters(cluster: Cluster) -> tuple[str, ...]:
    links = ("intra_node.bandwidth_bytes_per_s", "inter_node.bandwidth_bytes_per_s", "inter_node.latency_s", "overlap_slowdown")
    return (*links, "host_link.bandwidth_bytes_per_s") if cluster.host_link is not None else links


def _uncertainty(names: Sequence[str], drawn: Sequence[Spec]) -> Uncertainty:
    return Uncertainty(parameters=tuple(names), draws=tuple(tuple(_leaf(each, name) for name in names) for each in drawn))


def _leaf(spec: object, name: str) -> float:
    for part in name.split("."):
        spec = getattr(spec, part)
    assert isinstance(spec, float)
    return spec
