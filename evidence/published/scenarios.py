"""A published row as the scenario that a user would write: a machine of the catalogue, a strategy, the workload of the smallest row."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from typing import Any

from evidence.published.tables import Row, Series, Stack, Tables, Tensor, fused, held_by, load_networks, variables
from simulator.base.spec import Spec
from simulator.catalogue.loading import scenario_from_table
from simulator.scenario import Scenario
from simulator.spec.cluster import Cluster
from simulator.spec.constants import Known

_FORWARD_SHARE = 1.0 / 3.0
"""The backward pass computes two products for each one of the forward pass."""
_PIECES = 8
"""Messages that a server's tensors are put together into at most, so that they overlap with the backward pass."""
_MESSAGES = 512
"""Pairs of workers and servers times pieces that a step may have."""
_RING_PIECES = 24
_STEPS, _WARMUP = 4, 1
_ASYNCHRONOUS_STEPS, _ASYNCHRONOUS_WARMUP = 6, 2
_FEW_STEPS, _FEW_REPLICATIONS = 2, 5
"""Of rows with more messages than that even in one piece a server."""


class PublishedCase(Spec):
    """Constant properties of a series."""

    series: Series
    stack: Stack
    cluster: Cluster
    tensors: tuple[Tensor, ...]


def with_servers(case: PublishedCase, row: Row) -> bool:
    """Whether a row is of one worker that pulls from and pushes to servers, so that its step holds both."""
    return row.replicas == 1 and _served(case.stack, row)


def _served(stack: Stack, row: Row) -> bool:
    """Whether a row has its own servers, whatever the number of its workers."""
    return stack.alone_with_servers and row.servers is not None


def scenario_of(
    case: PublishedCase, row: Row, compute_s: float, practice: Mapping[str, Known] | None = None, *, whole_step: bool = False
) -> Scenario:
    """The scenario of a row.

    Parameters
    ----------
    compute_s
        Seconds that a device computes in a step.
    practice
        Constants in place of the catalogue's.
    whole_step
        Whether these are seconds of a whole step of one worker with its servers.
    """
    return scenario_from_table(table_of(case, row, compute_s, practice, whole_step=whole_step), case.series.id)


def table_of(
    case: PublishedCase, row: Row, compute_s: float, practice: Mapping[str, Known] | None = None, *, whole_step: bool = False
) -> dict[str, Any]:
    """The same as nested tables, as a file of the scenario has them."""
    build = _servers if pushes(case.stack, row) else _all_reduce
    strategy, gradients = build(case, row)
    if row.replicas == 1 and not with_servers(case, row):
        strategy = {"kind": "single"}  # a row of one device is a run without servers in most tables
    every = case.stack.every  # where workers exchange only every few steps, these are one step of the scenario
    table: dict[str, Any] = {
        "workload": {
            "name": case.series.network,
            "precision": "mixed_float16" if case.series.mixed else "float32",
            "measured_with": "servers" if whole_step else "device",
            "batch_per_replica": row.batch_per_replica * every,
            "forward": {"base_s": compute_s * every * _FORWARD_SHARE, "per_sample_s": 0.0},
            "backward": {"base_s": compute_s * every * (1.0 - _FORWARD_SHARE), "per_sample_s": 0.0},
            "variables": gradients,
        },
        "cluster": _cluster(case, row),
        "strategy": strategy,
        "run": _run(case, strategy),
    }
    if practice:
        table["practice"] = {name: known.model_dump(include={"value", "low", "high"}) for name, known in practice.items()}
    return table


def pushes(stack: Stack, row: Row) -> bool:
    """Whether a row has parameter servers: not if the devices of its only node reduce between themselves."""
    return stack.kind != "all-reduce" and (stack.worker == "device" or row.nodes > 1 or _served(stack, row))


def element_bytes(stack: Stack) -> float:
    """Bytes that a step sends for each element of a gradient."""
    return 2.0 if stack.halves else 4.0


def _cluster(case: PublishedCase, row: Row) -> dict[str, Any]:
    """The machine, with as many devices as the row uses, and what the software moves bytes by where it could be either."""
    facts, stack, series = case.cluster, case.stack, case.series
    table: dict[str, Any] = {"use": series.cluster}
    if facts.devices_per_node != row.replicas_per_node:
        table["devices_per_node"] = row.replicas_per_node
        table["devices_per_host_link"] = math.gcd(facts.devices_per_host_link, row.replicas_per_node)
    if facts.intra_node.sort not in ("given", series.inside):
        table["intra_node"] = {"sort": series.inside}
    sort = {"none": facts.inter_node.sort, "rdma": "rdma"}.get(stack.between, "ethernet")
    if facts.inter_node.sort != sort:
        table["inter_node"] = {"sort": sort}
    if stack.kind != "all-reduce" and stack.between != "grpc":
        table["transport"] = {"software": "given"}
    return table


def _run(case: PublishedCase, strategy: Mapping[str, Any]) -> dict[str, Any]:
    """Few steps, which are equal; one seed for a series, so that its rows have the draws of the constants in common."""
    seed = zlib.crc32(case.series.id.encode())
    detail = {"grouping": "per-server"} if strategy["kind"] == "parameter-server" and not case.stack.overlap else {}
    if strategy.get("workers", 1) * strategy.get("servers", 1) > _MESSAGES:
        return {"steps": _FEW_STEPS, "warmup_steps": _WARMUP, "replications": _FEW_REPLICATIONS, "seed": seed, **detail}
    if case.stack.kind == "asynchronous":
        return {"steps": _ASYNCHRONOUS_STEPS, "warmup_steps": _ASYNCHRONOUS_WARMUP, "seed": seed, **detail}
    return {"steps": _STEPS, "warmup_steps": _WARMUP, "seed": seed, **detail}


def _all_reduce(case: PublishedCase, row: Row) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    stack, tensors = case.stack, case.tensors
    each = stack.bucket_bytes is not None and stack.bucket_bytes < 2
    pieces = len(tensors) if each and stack.between == "tcp" else min(_RING_PIECES, len(tensors))
    strategy: dict[str, Any] = {"kind": "multi-worker-mirrored", "workers": row.nodes, "replicas_per_worker": row.replicas_per_node}
    if stack.between != "tcp":
        strategy["protocol"] = "simple"
    if stack.overlap and stack.bucket_bytes is not None:
        strategy["bucket_size_bytes"] = stack.bucket_bytes
    if stack.cycle_s is not None:
        strategy["fusion_cycle_s"] = stack.cycle_s
    return strategy, variables([fused(tensors, pieces)], element_bytes(stack))


def _servers(case: PublishedCase, row: Row) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Workers and all servers; where tensors are not cut, each server's are put together into as many pieces."""
    stack = case.stack
    workers = row.nodes if stack.worker == "node" else row.replicas
    servers = row.servers or row.nodes
    strategy: dict[str, Any] = {
        "kind": "parameter-server",
        "mode": "async" if stack.kind == "asynchronous" else "sync",
        "workers": workers,
        "server_placement": stack.placement,
    }
    if row.replicas > workers:
        strategy["replicas_per_worker"] = row.replicas // workers
    pieces = min(max(_MESSAGES // (workers * servers), 1), _PIECES)
    if stack.even:
        parts = [fused(case.tensors, min(pieces, len(case.tensors)))]
        if servers > 1:
            strategy["partitioner"] = {"kind": "fixed-shards", "shards": servers}
    elif stack.between == "grpc":  # whose hosts work on each
        servers = min(servers, len(case.tensors))
        parts = [list(case.tensors)]
    else:
        servers = min(servers, len(case.tensors))
        parts = held_by(case.tensors, servers, pieces)
    strategy["servers"] = servers
    if stack.even or stack.between != "grpc":
        strategy["pull_order"] = "forward"  # of pieces that hold many tensors
    return strategy, variables(parts, element_bytes(stack))


def cases_of(tables: Tables) -> list[tuple[PublishedCase, list[Row]]]:
    """Every series with its facts and its rows, the smallest first."""
    networks = load_networks(tables.home)
    return [
        (
            PublishedCase(
                series=series, stack=tables.stacks[series.stack], cluster=tables.clusters[series.cluster], tensors=networks[series.network]
            ),
            tables.rows(series),
        )
        for series in tables.series
    ]
