"""From a cluster as TensorFlow knows it to the skeleton of a scenario."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import tomlkit

from calibrate.tf_config import TfCluster
from simulator.errors import InputError
from simulator.loading import scenario_from_table
from simulator.scenario import Scenario

__all__ = ["scenario_of", "scenario_text"]


def scenario_text(cluster: TfCluster, workload: str, batch: int, link: str = "ethernet-25g", devices_per_worker: int = 1) -> str:
    """A scenario in TOML with what the cluster tells, and remarks on what it does not.

    Parameters
    ----------
    cluster
        The tasks.
    workload
        Name of a workload, or path of its file.
    batch
        Samples that each replica takes a step.
    link
        Name of a cluster of the catalogue, or path of its file, for hardware and links, which
        addresses do not tell.
    devices_per_worker
        Devices, so replicas, that each worker drives.

    Raises
    ------
    InputError
        A number is below 1, or workers with several devices are asked for beside parameter servers.
    """
    if batch < 1:
        raise InputError(f"--batch {batch}: must be at least 1")
    if devices_per_worker < 1:
        raise InputError(f"--devices-per-worker {devices_per_worker}: must be at least 1")
    if cluster.servers and devices_per_worker > 1:
        raise InputError(
            f"--devices-per-worker {devices_per_worker}: a worker of parameter servers is simulated with one replica; leave it out, "
            "or name each device's task as a worker of its own"
        )
    document = tomlkit.document()
    for line in (_summary(cluster), *_remarks(cluster)):
        document.add(tomlkit.comment(line))
    document.add(tomlkit.nl())
    document.add("workload", _table({"use": workload, "batch_per_replica": batch}))
    document.add("cluster", _table({"use": link, **_layout(cluster, devices_per_worker)}))
    document["cluster"]["use"].comment("hardware and links: addresses tell nothing of them")
    document.add("strategy", _table(_strategy(cluster, devices_per_worker)))
    document.add("run", _table({"steps": 100, "seed": 1}))
    return tomlkit.dumps(document)


def scenario_of(text: str, source: str, beside: Path | None = None) -> Scenario:
    """The scenario that a text describes, validated; ``source`` names it in messages.

    Raises
    ------
    ScenarioError
        It breaks a rule, or names a workload or cluster that there is not.
    """
    return scenario_from_table(tomllib.loads(text), source, beside)


def _table(data: dict[str, Any]) -> Any:
    table = tomlkit.table()
    for key, value in data.items():
        table.add(key, value)
    return table


def _strategy(cluster: TfCluster, devices_per_worker: int) -> dict[str, Any]:
    if cluster.servers:
        return {
            "kind": "parameter-server",
            "mode": "async",
            "workers": len(cluster.workers),
            "servers": len(cluster.servers),
            "server_placement": "colocated" if cluster.colocated else "dedicated",
        }
    if len(cluster.workers) == 1:
        return {"kind": "single"} if devices_per_worker == 1 else {"kind": "mirrored", "replicas": devices_per_worker}
    return {"kind": "multi-worker-mirrored", "workers": len(cluster.workers), "replicas_per_worker": devices_per_worker}


def _layout(cluster: TfCluster, devices_per_worker: int) -> dict[str, Any]:
    """Nodes and devices of each: the fullest host decides. Nodes are left out where the simulator needs others than there are hosts."""
    each = max(cluster.workers_by_host.values())
    layout = {"devices_per_node": each * devices_per_worker}
    return {"nodes": len(cluster.hosts), **layout} if _nodes_needed(cluster) == len(cluster.hosts) else layout


def _nodes_needed(cluster: TfCluster) -> int:
    """Nodes as the simulator lays workers and servers out: workers fill nodes, and each server has a node of its own."""
    for_workers = -(-len(cluster.workers) // max(cluster.workers_by_host.values()))
    if cluster.colocated:
        return max(for_workers, len(cluster.servers))
    return for_workers + len(cluster.servers)


def _summary(cluster: TfCluster) -> str:
    servers = (
        f", {_some(len(cluster.servers), 'parameter server')} on {_some(len(cluster.servers_by_host), 'host')}" if cluster.servers else ""
    )
    return f"Taken from a TF_CONFIG: {_some(len(cluster.workers), 'worker')} on {_some(len(cluster.workers_by_host), 'host')}{servers}."


def _remarks(cluster: TfCluster) -> list[str]:
    """What the scenario leaves open or simplifies, a line each."""
    found = []
    if cluster.servers:
        found.append("mode is async, as ParameterServerStrategy trains; SyncReplicasOptimizer's is sync.")
    if cluster.coordinator is not None:
        found.append(
            f"The chief ({cluster.coordinator}) is the coordinator, and trains nothing. What it needs to hand out a step counts as"
        )
        found.append('nothing until you give it: [strategy] coordinator = { dispatch = "200 us" }')
    elif "chief" in cluster.jobs:
        found.append(f"The chief ({cluster.jobs['chief'][0]}) is worker 0.")
    if "evaluator" in cluster.jobs:
        found.append("Evaluators are left out: they stand beside the training.")
    counts = set(cluster.workers_by_host.values())
    if len(counts) > 1:
        found.append(f"Hosts have {min(counts)} to {max(counts)} workers; here workers fill one node after the other.")
    elif counts != {1}:
        found.append(
            f"{counts.pop()} workers share a host: here each has a device of its own; where they share one, see replicas_per_device."
        )
    shared = set(cluster.servers_by_host) & set(cluster.workers_by_host)
    if shared and not cluster.colocated:
        found.append(f"Both servers and workers are on {_some(len(shared), 'host')}; here every server has a node of its own.")
    if _nodes_needed(cluster) != len(cluster.hosts):
        found.append(f"It is laid out on {_some(_nodes_needed(cluster), 'node')}; the addresses name {_some(len(cluster.hosts), 'host')}.")
    return found


def _some(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
