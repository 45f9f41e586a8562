"""Causes that a run may have for being slow: what each would make of a scenario, and what tells it from others.

A cause is a change of the scenario with one number, its strength: 0 is none at all. So a cause that nobody knew of is found by fitting
that number, and one that the scenario has is what its removal gains; both by the same simulations as any prediction. A new cause is an
entry of :data:`FOUND` or :data:`STANDING`, and nothing else: its test is that of all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from paceline.planning.search import with_buckets
from simulator.base.text import format_rate, format_seconds, format_share
from simulator.results.what_if import (
    changed,
    with_compute,
    with_even_workers,
    with_hosts,
    with_inner_links,
    with_input_times,
    with_latency,
    with_network,
    with_strategy,
)
from simulator.scenario import Scenario
from simulator.spec.input_pipeline import InputPipeline, InputWork
from simulator.spec.uncertainty import with_times
from simulator.spec.workload import Affine

_SIMULATED = (0.7, 2.0)
"""Strengths at which a cause is simulated, besides the greatest that it may have."""
_LATENCY_S = 10e-6
_NONE_AT_ALL = 1e-6
"""Of what takes time, as a factor: gone."""
_MOST_SERVERS = 4


@dataclass(frozen=True)
class Found:
    """A cause that the scenario does not know of, found in what was seen.

    Attributes
    ----------
    key
        Its name in ``--json``.
    title
        What it is called.
    part
        Of a step's breakdown, the part that it makes longer; empty: it makes none longer in the mean of all workers.
    made
        The scenario with it, of this strength, at the worker with this number where it is of one worker.
    possible
        Whether a scenario can have it.
    said
        How strong it is, in words.
    share
        How often it is the reason, before anything is seen: its part among threads in which people asked why their training does not scale.
    remedy
        What to do about it.
    measure
        What would tell it from others, and how it is measured.
    strongest
        The greatest strength that is tried.
    shows
        Figures that are seen and not simulated, each with what a strength of 1 adds to its logarithm.
    """

    key: str
    title: str
    part: str
    made: Callable[[Scenario, float, int], Scenario]
    possible: Callable[[Scenario], bool]
    said: Callable[[Scenario, float, int], str]
    share: float
    remedy: str
    measure: str
    strongest: float = 4.0
    shows: Mapping[str, float] = field(default_factory=dict)

    @property
    def strengths(self) -> list[float]:
        """Those at which it is simulated, ascending."""
        return [*(at for at in _SIMULATED if at < self.strongest), self.strongest]


def _between_nodes(scenario: Scenario) -> bool:
    return scenario.nodes_needed > 1


def _network(scenario: Scenario, strength: float, _: int) -> Scenario:
    slower = with_network(scenario, math.exp(-strength))
    return changed(slower, cluster=with_times(slower.cluster, {"transport.flow_cap_bytes_per_s": math.exp(-strength)}))


def _network_said(scenario: Scenario, strength: float, _: int) -> str:
    told = scenario.cluster.inter_node.bandwidth_bytes_per_s
    return f"links between nodes do as if they had {format_rate(told * math.exp(-strength))} in place of {format_rate(told)}"


def _latency(scenario: Scenario, strength: float, _: int) -> Scenario:
    added_s = _LATENCY_S * math.expm1(2.0 * strength)
    cluster, latency_s = scenario.cluster, scenario.cluster.inter_node.latency_s
    if latency_s:
        return changed(scenario, cluster=with_times(cluster, {"inter_node.latency_s": 1.0 + added_s / latency_s}))
    return changed(scenario, cluster=cluster.replaced({"inter_node.latency_s": added_s}))


def _latency_said(scenario: Scenario, strength: float, _: int) -> str:
    told_s = scenario.cluster.inter_node.latency_s
    now_s = told_s + _LATENCY_S * math.expm1(2.0 * strength)
    return f"messages between nodes take {format_seconds(now_s)} on the way in place of {format_seconds(told_s)}"


def _slow_worker(scenario: Scenario, strength: float, worker: int) -> Scenario:
    cluster = scenario.cluster
    node = worker // max(cluster.replicas_per_node, 1)
    speeds = [cluster.speed_of(place) for place in range(max(node + 1, len(cluster.node_speed)))]
    speeds[node] *= math.exp(-strength)
    return changed(scenario, cluster=cluster.replaced({"node_speed": tuple(speeds)}))


def _input(scenario: Scenario, strength: float, _: int) -> Scenario:
    """Input that takes as long as the step takes without it, and longer; replicas that one process drives share its pipeline."""
    if not strength:
        return scenario
    load, layout = scenario.workload, scenario.layout
    if scenario.input is not None or load.input.base_s + load.input.per_sample_s > 0:
        return with_input_times(scenario, math.exp(strength))
    needs_s = (load.forward(scenario.batch) + load.backward(scenario.batch)) / scenario.batch
    # whatever the number of replicas that share it: a strength is one time of a sample
    sharing = 1 if layout.client else scenario.cluster.replicas_per_node if layout.one_process else layout.replicas_per_process
    late = Affine(base_s=0.0, per_sample_s=needs_s / sharing * math.exp(strength))
    if sharing > 1:
        return changed(scenario, input=InputPipeline(work=InputWork(serial=late)))
    return changed(scenario, workload=load.replaced({"input": late}))


def _input_said(scenario: Scenario, strength: float, _: int) -> str:
    slow = _input(scenario, strength, _)
    if scenario.input is None and slow.input is not None:
        return f"one pipeline for all replicas of a process takes {format_seconds(slow.input.work.serial.per_sample_s)} for a sample"
    return f"a batch of input takes {math.exp(strength):.3g} times as long as the device computes on it"


def _global_batch(scenario: Scenario, strength: float, _: int) -> Scenario:
    """Batches that are that of all workers together, each taking its part; strengths below 1: a part of that, as logarithms."""
    batch = max(round(scenario.batch * scenario.replicas ** -min(strength, 1.0)), 1)
    return changed(scenario, workload=scenario.workload.replaced({"batch_per_replica": batch}))


def _global_batch_said(scenario: Scenario, strength: float, worker: int) -> str:
    batch = _global_batch(scenario, strength, worker).batch
    text = f"each worker does as if it took {batch:,} samples per step in place of {scenario.batch:,}"
    return f"{text}, its part of a batch of all workers together" if strength > 0.8 else text


FOUND: Mapping[str, Found] = {
    cause.key: cause
    for cause in (
        Found(
            "network", "the network is slower than specified", "exposed_communication", _network, _between_nodes, _network_said, 0.25,
            "give the job links of the rate that the scenario tells: look for shared or oversubscribed links, a wrong interface, TCP "
            "where RDMA was meant",
            "the rate of the link: paceline calibrate-link, or iperf3 between two of the machines",
        ),
        Found(
            "latency", "message latency is higher than specified", "exposed_communication", _latency, _between_nodes, _latency_said, 0.1,
            "put the machines closer together, or send fewer and larger messages (larger buckets, fewer variables)",
            "the latency of the link: paceline calibrate-link, or ping between two of the machines",
        ),
        Found(
            "links-in-a-node", "links inside a node are slower than specified", "exposed_communication",
            lambda scenario, strength, _: with_inner_links(scenario, math.exp(-strength)),
            lambda scenario: not scenario.servers and scenario.strategy.sending(scenario).inside_nodes,
            lambda scenario, strength, _: f"links inside a node do as if they had "
            f"{format_rate(scenario.cluster.intra_node.bandwidth_bytes_per_s * math.exp(-strength))}",
            0.25,
            "look for copies through the host, where devices cannot reach each other (nvidia-smi topo -m)",
            "the rate between two devices: the all_reduce_perf of nccl-tests",
        ),
        Found(
            "host-costs", "hosts take longer for each tensor than is usual", "exposed_communication",
            lambda scenario, strength, _: with_hosts(scenario, math.exp(-strength)),
            lambda scenario: with_hosts(scenario, 0.5) != scenario,
            lambda _, strength, __: f"each message costs the hosts {math.exp(strength):.3g} times what is usual",
            0.1,
            "send fewer and larger tensors, give processes more cores",
            "processor time of each process beside its step (the Keras callback records it)",
        ),
        Found(
            "slow-worker", "one worker computes more slowly than the others", "", _slow_worker,
            lambda scenario: scenario.workers > 1 and not scenario.cluster.node_classes,
            lambda _, strength, worker: f"worker {worker} takes {math.exp(strength):.3g} times as long to compute as the others",
            0.1,
            "replace that machine, or find what else runs on it",
            "what each worker computes: a profile of each, or the step times of each worker alone",
            strongest=3.0,
            shows={"uneven": 1.0},
        ),
        Found(
            "compute", "devices compute more slowly than a single one", "compute",
            lambda scenario, strength, _: with_compute(scenario, math.exp(strength)),
            lambda _: True,
            lambda _, strength, __: f"each worker takes {math.exp(strength):.3g} times as long to compute as one alone",
            0.15,
            "give each process cores and a device of its own; look for several processes on the same cores, devices or power limit",
            "what each worker computes, and its processor time: a profile of each, or the step times of each worker alone",
            strongest=3.0,
            shows={"busy": -1.0},
        ),
        Found(
            "input", "workers wait for their input", "input", _input, lambda _: True, _input_said, 0.2,
            "prepare input in parallel and ahead (num_parallel_calls, prefetch, cache), or read it from nearer storage",
            "the same run on one batch kept in memory (dataset.take(1).cache().repeat())",
            strongest=3.0,
        ),
        Found(
            "smaller-batch", "workers take smaller batches than specified: strong scaling, not weak", "", _global_batch,
            lambda scenario: scenario.workload.batch_per_replica is not None and scenario.batch > 1 and scenario.replicas > 1,
            _global_batch_said, 0.05,
            "say of what the batch is: `global_batch` is that of all workers together, and Keras' `batch_size` is so under a strategy",
            "the samples of a step, or the steps of an epoch",
            strongest=1.0,
        ),
    )
}  # fmt: skip
"""By key; what can be fitted to a run."""

OUTSIDE = Found(
    "outside-steps", "start-up, tracing, checkpoints or evaluations are counted in", "",
    lambda scenario, _, __: scenario,
    lambda _: True,
    lambda _, strength, __: f"{format_share(-math.expm1(-strength))} of the time that was counted are no steps",
    0.1,
    "count steps alone: leave out the first of each epoch, and what goes on between epochs",
    "the time of each step (the Keras callback records it)",
    strongest=3.0,
    shows={"step": 1.0},
)  # fmt: skip
"""Of a run of which an average is known alone: it makes the time longer, not the scenario's step."""
CAUSES: Mapping[str, Found] = {**FOUND, OUTSIDE.key: OUTSIDE}
"""Every cause that a run may have and its scenario does not know of."""


@dataclass(frozen=True)
class Standing:
    """A cause that the scenario has anyway.

    Attributes
    ----------
    key, title, remedy
        As of a cause that is found.
    gone
        Scenarios without it, of which the fastest counts; none where it has none.
    sends
        Whether it is a part of what workers send and receive.
    computes
        Whether it is a part of what devices compute, not of what they wait for.
    general
        Whether more servers may save it too, which is the more particular cause.
    """

    key: str
    title: str
    gone: Callable[[Scenario], list[Scenario]]
    remedy: str
    sends: bool = False
    computes: bool = False
    general: bool = False


def _more_servers(scenario: Scenario) -> list[Scenario]:
    count = min(scenario.workers, _MOST_SERVERS * scenario.servers)
    return [with_strategy(scenario, scenario.strategy.with_servers(count))] if 0 < scenario.servers < count else []


def _without_fixed_time(scenario: Scenario) -> list[Scenario]:
    load, names = scenario.workload, ("forward.base_s", "backward.base_s")
    fixed = all(work.base_s and work.per_sample_s for work in (load.forward, load.backward))
    return [changed(scenario, workload=with_times(load, dict.fromkeys(names, 0.0)))] if fixed else []


def _devices_of_their_own(scenario: Scenario) -> list[Scenario]:
    cluster, sharing = scenario.cluster, scenario.cluster.replicas_per_device
    own = {"replicas_per_device": 1, "devices_per_node": cluster.devices_per_node * sharing}
    return [changed(scenario, cluster=cluster.replaced(own))] if sharing > 1 else []


def _fused(scenario: Scenario) -> list[Scenario]:
    count = math.fsum(variable.tensors for variable in scenario.workload.variables)
    return [with_hosts(scenario, 1.0 / _NONE_AT_ALL)] if 0 < 2 * scenario.servers <= count else []


def _even(scenario: Scenario) -> list[Scenario]:
    even = with_even_workers(scenario)
    return [even] if (even.workload, even.cluster) != (scenario.workload, scenario.cluster) else []


def _without_input(scenario: Scenario) -> list[Scenario]:
    waits = scenario.input is not None or scenario.workload.input(scenario.batch)
    return [with_input_times(scenario, _NONE_AT_ALL)] if waits else []


def _without_latency(scenario: Scenario) -> list[Scenario]:
    late = _between_nodes(scenario) and scenario.cluster.inter_node.latency_s
    return [with_latency(scenario, _NONE_AT_ALL)] if late else []


STANDING: tuple[Standing, ...] = (
    Standing(
        "servers", "too few parameter servers", _more_servers, "add parameter servers, each on a machine of its own",
        sends=True,
    ),
    Standing(
        "tensors", "host work for each of many tensors", _fused,
        "train fewer, larger variables, or all-reduce in buckets; give the servers more cores",
        sends=True,
    ),
    Standing(
        "buckets", "bucket size: too little overlap", with_buckets,
        "change the size of the buckets (bytes_per_pack, bucket_cap_mb, Horovod's fusion threshold)",
        sends=True,
    ),
    Standing(
        "logical-devices", "replicas share devices", _devices_of_their_own,
        "give each replica a device of its own: logical devices of one GPU do not make it faster",
    ),
    Standing(
        "batch", "the batch is small for the device", _without_fixed_time,
        "larger batches: part of what a step computes takes as long whatever the batch",
        computes=True,
    ),
    Standing(
        "stragglers", "uneven workers: the others wait", _even,
        "find the slow machines; backup workers, or asynchronous updates, wait for none",
    ),
    Standing("input", "workers wait for their input", _without_input, FOUND["input"].remedy),
    Standing(
        "network", "communication over the network",
        lambda scenario: [with_network(scenario, 1.0 / _NONE_AT_ALL)] if _between_nodes(scenario) else [],
        "a faster network, larger batches (fewer exchanges per sample), or compressed gradients",
        sends=True, general=True,
    ),
    Standing("latency", "latency of messages", _without_latency, FOUND["latency"].remedy, sends=True, general=True),
    Standing(
        "links-in-a-node", "communication inside a node",
        lambda scenario: [with_inner_links(scenario, 1.0 / _NONE_AT_ALL)] if FOUND["links-in-a-node"].possible(scenario) else [],
        "devices that reach each other directly, larger batches",
        sends=True,
    ),
)  # fmt: skip
"""What a scenario may have, the more particular first: of two that gain as much, the first is named."""
