"""A cluster as TensorFlow is told of it: the ``TF_CONFIG`` variable, or the JSON of a ``ClusterSpec``.

In ``ParameterServerStrategy`` the chief is the coordinator, which trains nothing; in
``MultiWorkerMirroredStrategy`` it is worker 0, which trains like the others. Evaluators stand
beside the training (TensorFlow's guides "Parameter server training" and "Multi-worker
training with Keras").
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from calibrate.profiling import check_address
from simulator.errors import InputError

__all__ = ["TfCluster", "read_tf_config"]

_JOBS = ("chief", "worker", "ps", "evaluator")
_EXAMPLE = '{"cluster": {"worker": ["h1:2222", "h2:2222"], "ps": ["h3:2222"], "chief": ["h4:2222"]}}'
_OPTION = "--from-tf-config"


@dataclass(frozen=True)
class TfCluster:
    """The tasks of a cluster.

    Attributes
    ----------
    jobs
        Job -> addresses ``HOST:PORT`` of its tasks, in order.
    """

    jobs: dict[str, tuple[str, ...]]

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
        return Counter(_host(one) for one in self.workers)

    @property
    def servers_by_host(self) -> Counter[str]:
        """Hosts with how many parameter servers each has, in the order in which they are named."""
        return Counter(_host(one) for one in self.servers)

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
        or the path of a file with such JSON: a TF_CONFIG, or a ClusterSpec alone.

    Raises
    ------
    InputError
        It is no JSON or no cluster, an address is wrong or used twice, or nobody trains.
    """
    data, source = _load(text)
    cluster = data.get("cluster", data)
    if "cluster" not in data and ("task" in data or not set(data) & set(_JOBS)):
        raise InputError(f"{source}: has no key 'cluster', and is no ClusterSpec; give such as {_EXAMPLE}")
    if not isinstance(cluster, Mapping):
        raise InputError(f"{source}: cluster must be a table of jobs, not {_shown(cluster)}; give such as {_EXAMPLE}")
    unknown = next((job for job in cluster if job not in _JOBS), None)
    if unknown is not None:
        hint = " ('master' of TensorFlow 1 is called chief now)" if unknown == "master" else ""
        raise InputError(f"{source}: cluster.{unknown}: is no job that is known{hint}; jobs are {', '.join(_JOBS)}")
    jobs = {str(job): _addresses(f"{source}: cluster.{job}", tasks) for job, tasks in cluster.items()}
    _check(jobs, source)
    return TfCluster(jobs)


def _load(text: str) -> tuple[dict[str, Any], str]:
    """The JSON object, and what to call it in messages."""
    if text == "env":
        source, content = f"{_OPTION} env (TF_CONFIG)", os.environ.get("TF_CONFIG", "")
        if not content.strip():
            raise InputError(f"{source}: the variable is not set; export it, or give a file or the JSON itself")
    elif text.lstrip().startswith("{"):
        source, content = _OPTION, text
    else:
        source = f"{_OPTION} {text[:120]}"
        try:
            content = Path(text).read_text(encoding="utf-8-sig")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "is no text in UTF-8"
            raise InputError(f"{source}: cannot be read: {reason}; give a file, the JSON itself, or env") from None
    try:
        data = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source}: is no JSON ({error}); give such as {_EXAMPLE}") from None
    if not isinstance(data, dict):
        raise InputError(f"{source}: must be a JSON object, not {_shown(data)}; give such as {_EXAMPLE}")
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
        raise InputError(f"{where}: is empty; name its addresses, or leave the job out")
    for index, address in enumerate(tasks):
        if not isinstance(address, str):
            raise InputError(f"{where}[{index}]: must be an address such as h1:2222, not {_shown(address)}")
        check_address(address, f"{where}[{index}]:")
    return tuple(tasks)


def _check(jobs: dict[str, tuple[str, ...]], source: str) -> None:
    seen: dict[str, str] = {}
    for job, addresses in jobs.items():
        for index, address in enumerate(addresses):
            task = f"cluster.{job}[{index}]"
            if address in seen:
                raise InputError(f"{source}: {task}: {address} is the address of {seen[address]} already; each task has its own")
            seen[address] = task
    if len(jobs.get("chief", ())) > 1:
        raise InputError(f"{source}: cluster.chief: has {len(jobs['chief'])} addresses; a cluster has one chief at most")
    if "worker" not in jobs and ("ps" in jobs or "chief" not in jobs):
        raise InputError(f"{source}: cluster.worker: is missing, so nobody trains; name the workers' addresses")


def _host(address: str) -> str:
    return address.rpartition(":")[0]


def _shown(value: Any) -> str:
    return f"{json.dumps(value)[:40]}"
