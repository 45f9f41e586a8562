"""Takes devices that go through each step together as one: those of a worker of parameter servers, and those that split tensors.

Which devices these are says the strategy (``together``). Programs and engines know such a team as one rank only; results and
records ask for it here too.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from simulator.scenario import Resolved
from simulator.spec.cluster import Cluster, Islands, Link
from simulator.spec.distributions import Constant, Distribution, Empirical
from simulator.spec.input_pipeline import InputPipeline, InputWork
from simulator.spec.workload import Affine, Workload

_DRAWS = 2048


def as_workers(scenario: Resolved) -> Resolved:
    """The same training with each worker's devices taken together as one.

    A worker's step takes as long as that of the slowest of its m devices, and makes m
    batches. Their gradients are summed on the way to the host, and variables are spread
    on the way back, as a stage of its own that goes as fast as the slower of the links
    between devices and to the host. Devices that split tensors exchange partial results in
    every layer, so that they go through a step together; what they exchange is part of
    their passes. A scenario whose workers have one device each is returned as it is.
    """
    strategy, cluster, load = scenario.strategy, scenario.cluster, scenario.workload
    together = strategy.together(scenario)
    if together is None:
        return scenario
    team = together.devices
    if together.in_step:
        one = {"strategy": together.strategy, "cluster": _of_several(cluster, team), "workload": _of_slowest(load, team)}
        return scenario.model_copy(update=one)
    own = {} if scenario.input is None or scenario.input.per == "process" else {"input": _together(scenario.input, scenario.batch, team)}
    return scenario.model_copy(
        update={
            **own,
            "strategy": together.strategy,
            "cluster": _cluster(cluster, team),
            "workload": _workload(load, scenario.batch, team),
        }
    )


def _of_several(cluster: Cluster, together: int) -> Cluster:
    """The cluster with ``together`` neighbouring devices as one; where these fill several nodes, those nodes as one."""
    per_node = cluster.devices_per_node
    inside, nodes = min(together, per_node), max(together // per_node, 1)
    classes = tuple(
        kind.model_copy(update={"jitter": slowest_of(kind.jitter, together)[0]}) if kind.jitter is not None else kind
        for kind in cluster.node_classes
    )
    return cluster.model_copy(
        update={
            "nodes": None if cluster.nodes is None else cluster.nodes // nodes,
            "available": None if cluster.available is None else cluster.available // nodes,
            "devices_per_node": per_node // inside,
            "devices_per_host_link": 1,
            "rails": _rails(cluster, per_node // inside),
            "islands": _islands(cluster.islands, together, per_node // inside),
            "intra_node": _wider(cluster.intra_node, inside),
            "inter_node": _wider(cluster.inter_node, nodes),
            "node_classes": classes,
        }
    )


def _rails(cluster: Cluster, devices: int) -> int | None:
    """The rails of a node with ``devices`` devices, of which each goes by those of all that it stands for."""
    return None if cluster.rails is None else math.gcd(cluster.rails, devices)


def _islands(islands: Islands | None, together: int, devices: int) -> Islands | None:
    """Islands with ``together`` devices as one, in nodes that then have ``devices``; none where one fills an island, or it a node."""
    if islands is None or islands.devices // together in (0, 1, devices):
        return None
    return islands.model_copy(update={"devices": islands.devices // together})


def _wider(link: Link, times: int) -> Link:
    return link.model_copy(update={"bandwidth_bytes_per_s": link.bandwidth_bytes_per_s * times}) if times > 1 else link


def _of_slowest(load: Workload, together: int) -> Workload:
    """With the steps of the slowest of ``together`` devices."""
    jitter, later = slowest_of(load.jitter, together)
    return load.model_copy(
        update={
            "forward": _slower(load.forward, later),
            "backward": _slower(load.backward, later),
            "jitter": jitter,
            "jitter_draws": (),
            "jitter_least": None,
            "uncertainty": None,
        }
    )


def _slower(work: Affine, times: float) -> Affine:
    return Affine(base_s=work.base_s * times, per_sample_s=work.per_sample_s * times, least_s=work.least_s * times)


def _cluster(cluster: Cluster, team: int) -> Cluster:
    inside, host = cluster.intra_node, cluster.host_link
    stage = inside if host is None else Link(
        bandwidth_bytes_per_s=min(inside.bandwidth_bytes_per_s, host.bandwidth_bytes_per_s), latency_s=host.latency_s
    )  # fmt: skip
    classes = tuple(
        kind.model_copy(update={"jitter": slowest_of(kind.jitter, team)[0]}) if kind.jitter is not None else kind
        for kind in cluster.node_classes
    )
    return cluster.model_copy(
        update={
            "devices_per_node": cluster.devices_per_node // team,
            "devices_per_host_link": 1,
            "rails": _rails(cluster, cluster.devices_per_node // team),
            "islands": _islands(cluster.islands, team, cluster.devices_per_node // team),
            "host_link": stage,
            "node_classes": classes,
        }
    )


def _together(its: InputPipeline, batch: int, team: int) -> InputPipeline:
    """The pipelines of a worker's devices as one: their iterators go side by side, and all calls work for all batches."""

    def of(work: InputWork) -> InputWork:
        serial, parallel = (Affine(base_s=seconds, per_sample_s=0.0) for seconds in (work.serial(batch), work.parallel(batch) * team))
        return work.model_copy(update={"serial": serial, "parallel": parallel})

    cached = of(its.cached) if its.cached is not None else None
    return its.model_copy(update={"work": of(its.work), "cached": cached, "parallel_calls": its.parallel_calls * team})


def _workload(load: Workload, batch: int, team: int) -> Workload:
    """Steps of the slowest of the team, for the batches of all."""
    jitter, later = slowest_of(load.jitter, team)
    part = batch / (load.passes.micro_batches if load.passes is not None else 1)
    forward, backward = (Affine(base_s=its(part) * later, per_sample_s=0.0) for its in (load.forward, load.backward))
    return load.model_copy(
        update={
            "batch_per_replica": batch * team,
            "global_batch": None,
            "forward": forward,
            "backward": backward,
            "input": Affine(base_s=load.input(batch), per_sample_s=0.0),
            "jitter": jitter,
            "jitter_draws": (),
            "jitter_least": None,
            "uncertainty": None,
        }
    )


@lru_cache(maxsize=256)
def slowest_of(distribution: Distribution, count: int) -> tuple[Distribution, float]:
    """The law of the largest of ``count`` independent draws, and its mean over that of one draw.

    By sampling, with the same draws whenever it is asked. Where each draw stays with the chance r what it was, so does the largest
    in the next step, or another has grown beyond it: its own persistence is the autocorrelation of that.
    """
    if isinstance(distribution, Constant) or count == 1:
        return distribution, 1.0
    rng, shape = np.random.default_rng(0), (_DRAWS, count)
    each = distribution.sample(rng, _DRAWS * count).reshape(shape)
    draws, mean = each.max(axis=1), distribution.mean()
    persistence = distribution.persistence
    if 0.0 < persistence < 1.0:
        then = np.where(rng.random(shape) < persistence, each, distribution.sample(rng, _DRAWS * count).reshape(shape)).max(axis=1)
        persistence = float(np.clip(np.corrcoef(draws, then)[0, 1], 0.0, 1.0)) if draws.std() and then.std() else persistence
    draws = draws / mean
    return Empirical(values=tuple(draws.tolist()), persistence=persistence), float(draws.mean())
