"""Causes of slow runs: the effect of each on a scenario, and how to tell it from others.

A cause is a change of the scenario with one number, its strength; 0 is no effect. An unknown cause is found by fitting the strength; a
specified one is measured by the gain of its removal. Both use the same simulations as any prediction. A new cause is only an entry of
:data:`FOUND` or :data:`STANDING`; the tests cover all entries.
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
"""Strengths at which a cause is simulated, besides its greatest possible one."""
_LATENCY_S = 10e-6
_NONE_AT_ALL = 1e-6
"""Factor of a time that removes it."""
_MOST_SERVERS = 4


@dataclass(frozen=True)
class Found:
    """A cause that is not in the scenario, found from the runs.

    Attributes
    ----------
    key
        Its name in ``--json``.
    title
        Its name for readers.
    part
        The part of a step that it makes longer; empty: none, in the mean of all workers.
    made
        Returns the scenario with it at some strength, for one worker if it affects only one.
    possible
        Whether a scenario can have it.
    said
        Its strength in words.
    share
        Its prior probability: its share among forum threads that ask why a training does not scale.
    remedy
        The remedy.
    measure
        The measurement that tells it from others, with its method.
    strongest
        The greatest strength that is tried.
    shows
        Observed figures that are not simulated, each with what a strength of 1 adds to its logarithm.
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
        """Strengths at which it is simulated, ascending."""
        return [*(at for at in _SIMULATED if at < self.strongest), self.strongest]


def _between_nodes(scenario: Scenario) -> bool:
    return scenario.nodes_needed > 1


def _network(scenario: Scenario, strength: float, _: int) -> Scenario:
    slower = with_network(scenario, math.exp(-strength))
    return changed(slower, cluster=with_times(slower.cluster, {"transport.flow_cap_bytes_per_s": math.exp(-strength)}))


def _network_said(scenario: Scenario, strength: float, _: int) -> str:
    told = scenario.cluster.inter_node.bandwidth_bytes_per_s
    return f"links between nodes behave like {format_rate(told * math.exp(-strength))} instead of {format_rate(told)}"


def _latency(scenario: Scenario, strength: float, _: int) -> Scenario:
    added_s = _LATENCY_S * math.expm1(2.0 * strength)
    cluster, latency_s = scenario.cluster, scenario.cluster.inter_node.latency_s
    if latency_s:
        return changed(scenario, cluster=with_times(cluster, {"inter_node.latency_s": 1.0 + added_s / latency_s}))
    return changed(scenario, cluster=cluster.replaced({"inter_node.latency_s": added_s}))


def _latency_said(scenario: Scenario, strength: float, _: int) -> str:
    told_s = scenario.cluster.inter_node.latency_s
    now_s = told_s + _LATENCY_S * math.expm1(2.0 * strength)
    return f"messages between nodes have a latency of {format_seconds(now_s)} instead of {format_seconds(told_s)}"


def _slow_worker(scenario: Scenario, strength: float, worker: int) -> Scenario:
    cluster = scenario.cluster
    node = worker // max(cluster.replicas_per_node, 1)
    speeds = [cluster.speed_of(place) for place in range(max(node + 1, len(cluster.node_speed)))]
    speeds[node] *= math.exp(-strength)
    return changed(scenario, cluster=cluster.replaced({"node_speed": tuple(speeds)}))


def _input(scenario: Scenario, strength: float, _: int) -> Scenario:
    """Return a scenario whose input takes at least as long as its step; replicas of one process share a pipeline."""
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
        return f"the pipeline that all replicas of a process share takes {format_seconds(slow.input.work.serial.per_sample_s)} per sample"
    return f"a batch of input takes {math.exp(strength):.3g} times as long as the device computes on it"


def _global_batch(scenario: Scenario, strength: float, _: int) -> Scenario:
    """Return a scenario whose batch is global, so that each worker takes its part; strengths below 1 interpolate logarithms."""
    batch = max(round(scenario.batch * scenario.replicas ** -min(strength, 1.0)), 1)
    return changed(scenario, workload=scenario.workload.replaced({"batch_per_replica": batch}))


def _global_batch_said(scenario: Scenario, strength: float, worker: int) -> str:
    batch = _global_batch(scenario, strength, worker).batch
    text = f"each worker behaves as with {batch:,} samples per step instead of {scenario.batch:,}"
    return f"{text}, its part of a global batch" if strength > 0.8 else text


FOUND: Mapping[str, Found] = {
    cause.key: cause
    for cause in (
        Found(
            "network", "the network is slower than specified", "exposed_communication", _network, _between_nodes, _network_said, 0.25,
            "look for shared or oversubscribed links, the wrong interface, or TCP instead of RDMA",
            "the rate of the link: paceline calibrate-link, or iperf3 between two of the machines",
        ),
        Found(
            "latency", "message latency is higher than specified", "exposed_communication", _latency, _between_nodes, _latency_said, 0.1,
            "place the machines closer together, or send fewer and larger messages (larger buckets, fewer variables)",
            "the latency of the link: paceline calibrate-link, or ping between two of the machines",
        ),
        Found(
            "links-in-a-node", "links inside a node are slower than in the scenario", "exposed_communication",
            lambda scenario, strength, _: with_inner_links(scenario, math.exp(-strength)),
            lambda scenario: not scenario.servers and scenario.strategy.sending(scenario).inside_nodes,
            lambda scenario, strength, _: f"links inside a node behave like "
            f"{format_rate(scenario.cluster.intra_node.bandwidth_bytes_per_s * math.exp(-strength))} instead of "
            f"{format_rate(scenario.cluster.intra_node.bandwidth_bytes_per_s)}",
            0.25,
            "look for copies through the host because devices lack direct links (nvidia-smi topo -m)",
            "the rate between two devices: the all_reduce_perf of nccl-tests",
        ),
        Found(
            "host-costs", "hosts spend more time on each tensor than usual", "exposed_communication",
            lambda scenario, strength, _: with_hosts(scenario, math.exp(-strength)),
            lambda scenario: with_hosts(scenario, 0.5) != scenario,
            lambda _, strength, __: f"each message costs the hosts {math.exp(strength):.3g} times the usual",
            0.1,
            "send fewer and larger tensors, or give processes more cores",
            "processor time of each process and its step time (the Keras callback records both)",
        ),
        Found(
            "slow-worker", "one worker computes slower than the others", "", _slow_worker,
            lambda scenario: scenario.workers > 1 and not scenario.cluster.node_classes,
            lambda _, strength, worker: f"worker {worker} takes {math.exp(strength):.3g} times as long to compute as the others",
            0.1,
            "replace that machine, or find out what else runs on it",
            "the compute time of each worker: a profile, or its step time when it runs alone",
            strongest=3.0,
            shows={"uneven": 1.0},
        ),
        Found(
            "compute", "devices compute slower than a single one", "compute",
            lambda scenario, strength, _: with_compute(scenario, math.exp(strength)),
            lambda _: True,
            lambda _, strength, __: f"each worker takes {math.exp(strength):.3g} times as long to compute as a single one",
            0.15,
            "give each process its own cores and device; look for processes that share cores, devices or a power limit",
            "compute time and processor time of each worker: a profile, or its step time when it runs alone",
            strongest=3.0,
            shows={"busy": -1.0},
        ),
        Found(
            "input", "workers wait for their input", "input", _input, lambda _: True, _input_said, 0.2,
            "prepare input in parallel and ahead (num_parallel_calls, prefetch, cache), or use closer storage",
            "the same run on a single batch in memory (dataset.take(1).cache().repeat())",
            strongest=3.0,
        ),
        Found(
            "smaller-batch", "workers take smaller batches than specified: strong scaling, not weak", "", _global_batch,
            lambda scenario: scenario.workload.batch_per_replica is not None and scenario.batch > 1 and scenario.replicas > 1,
            _global_batch_said, 0.05,
            "check what the batch counts: `global_batch` is for all workers together, and so is Keras' `batch_size` under a strategy",
            "the samples of a step, or the steps of an epoch",
            strongest=1.0,
        ),
    )
}  # fmt: skip
"""Causes by key that can be fitted to a run."""

OUTSIDE = Found(
    "outside-steps", "the time includes start-up, tracing, checkpoints or evaluations", "",
    lambda scenario, _, __: scenario,
    lambda _: True,
    lambda _, strength, __: f"{format_share(-math.expm1(-strength))} of the counted time is outside steps",
    0.1,
    "count only steps: leave out the first of each epoch, and time between epochs",
    "the time of each step (the Keras callback records it)",
    strongest=3.0,
    shows={"step": 1.0},
)  # fmt: skip
"""A cause for runs of which only an average is known: it adds to the time, not to the scenario's step."""
CAUSES: Mapping[str, Found] = {**FOUND, OUTSIDE.key: OUTSIDE}
"""Every cause that a run may have and its scenario may lack."""


@dataclass(frozen=True)
class Standing:
    """A cause that the scenario specifies.

    Attributes
    ----------
    key, title, remedy
        As for a found cause.
    gone
        Scenarios without it, of which the fastest counts; none if the scenario lacks it.
    sends
        Whether it is part of communication.
    computes
        Whether it is part of compute, not of waiting.
    general
        Whether more servers may remove it too, which is the more specific cause.
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


def _as_a_graph(scenario: Scenario) -> list[Scenario]:
    eager = scenario.eager and scenario.workload.is_computed
    return [changed(scenario, training=scenario.training.replaced({"launch": "graph"}))] if eager else []


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
        "servers", "too few parameter servers", _more_servers, "add parameter servers, each on its own machine",
        sends=True,
    ),
    Standing(
        "tensors", "host time for each of many tensors", _fused,
        "use fewer, larger variables, or all-reduce in buckets; give servers more cores",
        sends=True,
    ),
    Standing(
        "buckets", "bucket size: too little overlap", with_buckets,
        "change the size of the buckets (bytes_per_pack, bucket_cap_mb, Horovod's fusion threshold)",
        sends=True,
    ),
    Standing(
        "logical-devices", "replicas share devices", _devices_of_their_own,
        "give each replica its own device: logical devices of one GPU do not make it faster",
    ),
    Standing(
        "batch", "the batch is small for the device", _without_fixed_time,
        "larger batches, since part of the compute time of a step does not depend on the batch",
        computes=True,
    ),
    Standing(
        "launching", "the host launches kernels more slowly than the device computes them", _as_a_graph,
        "CUDA graphs or compiled steps (torch.compile, XLA), larger micro-batches, or splitting tensors over fewer devices",
        computes=True,
    ),
    Standing(
        "stragglers", "uneven workers: others wait for the slowest", _even,
        "find the slow machines; backup workers or asynchronous updates do not wait for them",
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
        "direct links between devices, or larger batches",
        sends=True,
    ),
)  # fmt: skip
"""Specified causes, the more specific first: if two gain the same, the first is named."""
