"""Reads a cluster from ``TF_CONFIG`` or the JSON of a ``ClusterSpec``, and writes the text of a scenario for it.

In ``ParameterServerStrategy`` the chief is the coordinator, which trains nothing; in ``MultiWorkerMirroredStrategy`` it is worker 0, which
trains like the others. Evaluators do not take part in training (TensorFlow's guides "Parameter server training" and "Multi-worker training
with Keras").
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import tomlkit

from calibrate.profiling import check_address
from simulator.base.errors import InputError
from simulator.base.files import bytes_of, text_of
from simulator.base.text import Short, counted, listed

_JOBS = ("chief", "worker", "ps", "evaluator")
_EXAMPLE = '{"cluster": {"worker": ["h1:2222", "h2:2222"], "ps": ["h3:2222"], "chief": ["h4:2222"]}}'


@dataclass(frozen=True, repr=False)
class TfCluster(Short):
    """The tasks of a cluster.

    Attributes
    ----------
    jobs
        Job -> addresses ``HOST:PORT`` of its tasks, in order.
    """

    see: ClassVar[str] = ".jobs has every address; paceline.scenario_of_tf_config makes a scenario from it"

    jobs: dict[str, tuple[str, ...]]

    def _in_short(self) -> Iterator[str]:
        yield self.strategy
        yield listed([counted(len(addresses), f"{job} task") for job, addresses in self.jobs.items()])

    @property
    def strategy(self) -> Literal["parameter-server", "multi-worker-mirrored"]:
        """The strategy that such a cluster is for: with parameter servers or without."""
        return "parameter-server" if self.servers else "multi-worker-mirrored"

    @property
    def coordinator(self) -> str | None:
        """Address of the task that hands out steps and trains nothing; None where each worker drives itself."""
        return self.jobs["chief"][0] if self.servers and "chief" in self.jobs else None

    @property
    def workers(self) -> tuple[str, ...]:
        """Addresses of the tasks that train; without parameter servers the chief is the first."""
        return self.jobs.get("worker", ()) if self.servers else (*self.jobs.get("chief", ()), *self.jobs.get("worker", ()))

    @property
    def servers(self) -> tuple[str, ...]:
        """Addresses of the parameter servers."""
        return self.jobs.get("ps", ())

    @property
    def workers_by_host(self) -> Counter[str]:
        """Hosts with how many workers each has, in the order in which they are named."""
        return Counter(address.rpartition(":")[0] for address in self.workers)

    @property
    def servers_by_host(self) -> Counter[str]:
        """Hosts with how many parameter servers each has, in the order in which they are named."""
        return Counter(address.rpartition(":")[0] for address in self.servers)

    @property
    def colocated(self) -> bool:
        """Each parameter server shares its host with a worker."""
        return bool(self.servers) and set(self.servers_by_host) <= set(self.workers_by_host)

    @property
    def hosts(self) -> list[str]:
        """Distinct hosts that train or hold variables."""
        return list(self.workers_by_host | self.servers_by_host)


def read_tf_config(text: str) -> TfCluster:
    """Read a cluster.

    Parameters
    ----------
    text
        ``env`` for the environment variable ``TF_CONFIG``, or JSON that begins with a brace,
        or the path of a file with such JSON: a TF_CONFIG, or only a ClusterSpec.

    Raises
    ------
    InputError
        It is no JSON or no cluster, an address is wrong or used twice, or nobody trains.
    """
    data, source = _load(text)
    cluster = data.get("cluster", data)
    if "cluster" not in data and ("task" in data or not set(data) & set(_JOBS)):
        raise InputError(f"{source}: has no key 'cluster' and is not a ClusterSpec: give one, such as {_EXAMPLE}")
    if not isinstance(cluster, Mapping):
        raise InputError(f"{source}: cluster must be a table of jobs, not {_shown(cluster)}: give one, such as {_EXAMPLE}")
    unknown = next((job for job in cluster if job not in _JOBS), None)
    if unknown is not None:
        hint = " ('master' of TensorFlow 1 is called chief now)" if unknown == "master" else ""
        raise InputError(f"{source}: cluster.{unknown}: is not a known job{hint}; jobs are {', '.join(_JOBS)}")
    jobs = {str(job): _addresses(f"{source}: cluster.{job}", tasks) for job, tasks in cluster.items()}
    _check(jobs, source)
    return TfCluster(jobs)


def scenario_text(cluster: TfCluster, workload: str, batch: int, link: str = "ethernet-25g", devices_per_worker: int = 1) -> str:
    """A scenario in TOML with what the cluster tells, and remarks on what it does not.

    ``workload`` and ``link`` are names in the catalogue, or paths of files: of the latter come hardware and links, which addresses
    do not tell. ``batch`` are the samples that each replica takes a step.

    Raises
    ------
    InputError
        A number is below 1, or workers with several devices are combined with parameter servers.
    """
    if batch < 1:
        raise InputError(f"`batch={batch}`: must be at least 1")
    if devices_per_worker < 1:
        raise InputError(f"`devices_per_worker={devices_per_worker}`: must be at least 1")
    if cluster.servers and devices_per_worker > 1:
        raise InputError(
            f"`devices_per_worker={devices_per_worker}`: a worker with parameter servers has one replica: leave it out, or list each "
            "device's task as a separate worker"
        )
    document = tomlkit.document()
    for line in (_summary(cluster), *_remarks(cluster)):
        document.add(tomlkit.comment(line))
    document.add(tomlkit.nl())
    document.add("workload", {"use": workload, "batch_per_replica": batch})
    document.add("cluster", {"use": link, **_layout(cluster, devices_per_worker)})
    document["cluster"]["use"].comment("hardware and links are unknown: addresses do not describe them")
    document.add("strategy", _strategy(cluster, devices_per_worker))
    document.add("run", {"steps": 100, "seed": 1})
    return tomlkit.dumps(document)


def _load(text: str) -> tuple[dict[str, Any], str]:
    """The JSON object, and what to call it in messages."""
    if text == "env":
        source, content = "`tf_config='env'` (TF_CONFIG)", os.environ.get("TF_CONFIG", "")
        if not content.strip():
            raise InputError(f"{source}: the variable is not set; export it, or give a file or the JSON itself")
    elif text.lstrip().startswith("{"):
        source, content = "`tf_config`", text
    else:
        source = f"`tf_config={text[:120]!r}`"
        hint = "give a file, the JSON itself, or env"
        content = text_of(bytes_of(text, named=source, hint=hint, missing=hint), source, hint=hint)
    try:
        data = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source}: is not JSON ({error}): give it, such as {_EXAMPLE}") from None
    if not isinstance(data, dict):
        raise InputError(f"{source}: must be a JSON object, not {_shown(data)}: give it, such as {_EXAMPLE}")
    return data, source


def _addresses(where: str, tasks: Any) -> tuple[str, ...]:
    """Addresses of a job: a list, or as ClusterSpec also takes it, a table from the task's number to its address."""
    if isinstance(tasks, Mapping):
        bad = next((key for key in tasks if not str(key).isdigit()), None)
        if bad is not None:
            raise InputError(f"{where}: {str(bad)[:40]!r} must be the number of a task")
        tasks = [tasks[key] for key in sorted(tasks, key=int)]
    if not isinstance(tasks, list):
        raise InputError(f"{where}: must be a list of addresses, not {_shown(tasks)}")
    if not tasks:
        raise InputError(f"{where}: is empty: give its addresses, or leave the job out")
    for index, address in enumerate(tasks):
        if not isinstance(address, str):
            raise InputError(f"{where}[{index}]: must be an address such as h1:2222, not {_shown(address)}")
        check_address(address, f"{where}[{index}]")
    return tuple(tasks)


def _check(jobs: dict[str, tuple[str, ...]], source: str) -> None:
    seen: dict[str, str] = {}
    for job, addresses in jobs.items():
        for index, address in enumerate(addresses):
            task = f"cluster.{job}[{index}]"
            if address in seen:
                raise InputError(f"{source}: {task}: {address} is already the address of {seen[address]}: give each task its own")
            seen[address] = task
    if len(jobs.get("chief", ())) > 1:
        raise InputError(f"{source}: cluster.chief: has {len(jobs['chief'])} addresses; a cluster has at most one chief")
    if "worker" not in jobs and ("ps" in jobs or "chief" not in jobs):
        raise InputError(f"{source}: cluster.worker: is missing, so nothing trains: give the workers' addresses")


def _shown(value: Any) -> str:
    return f"{json.dumps(value)[:40]}"


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
    parts = [("worker", cluster.workers, cluster.workers_by_host), ("parameter server", cluster.servers, cluster.servers_by_host)]
    tasks = (f"{counted(len(tasks), name)} on {counted(len(hosts), 'host')}" for name, tasks, hosts in parts if tasks)
    return f"Taken from a TF_CONFIG: {', '.join(tasks)}."


def _remarks(cluster: TfCluster) -> Iterator[str]:
    """Yield what the scenario leaves open or simplifies, a line each."""
    if cluster.servers:
        yield "mode is async, as with ParameterServerStrategy; with SyncReplicasOptimizer it is sync."
    if cluster.coordinator is not None:
        yield f"The chief ({cluster.coordinator}) is the coordinator and does not train. Its time to hand out a step counts as"
        yield 'nothing until you give it: [strategy] coordinator = { dispatch = "200 us" }'
    elif "chief" in cluster.jobs:
        yield f"The chief ({cluster.jobs['chief'][0]}) is worker 0."
    if "evaluator" in cluster.jobs:
        yield "Evaluators are left out, because they do not take part in training."
    counts = set(cluster.workers_by_host.values())
    if len(counts) > 1:
        yield f"Hosts have {min(counts)} to {max(counts)} workers; here workers fill one node after the other."
    elif counts != {1}:
        yield f"{counts.pop()} workers share a host: here each has its own device; if they share one, see replicas_per_device."
    shared = set(cluster.servers_by_host) & set(cluster.workers_by_host)
    if shared and not cluster.colocated:
        yield f"Both servers and workers are on {counted(len(shared), 'host')}; here every server has a separate node."
    if _nodes_needed(cluster) != len(cluster.hosts):
        yield f"The scenario has {counted(_nodes_needed(cluster), 'node')}; the addresses name {counted(len(cluster.hosts), 'host')}."
