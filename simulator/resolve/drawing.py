"""Makes what one replication simulates: a resolved scenario with one draw of all that fits and constants leave open.

Each draw has a stream of random numbers of its own name: another name gives other results. An exchange with servers that was
measured as part of a step is taken out of its times here, compressing gradients is put into them, and devices that go through
each step together (those of a worker of parameter servers, those that split tensors) become one. The jitter of steps, and when
workers start, is drawn in ``simulator.engine.draws``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache, reduce

import numpy as np
from numpy.typing import NDArray

from simulator.base.rng import Streams
from simulator.base.spec import Itself
from simulator.program.program import Program
from simulator.resolve.practice import drawn_in_practice, felt_by
from simulator.resolve.resolve import resolve
from simulator.scenario import Drawn, Resolved, Scenario
from simulator.spec.cluster import Cluster, Islands, Link
from simulator.spec.constants import drawn_values
from simulator.spec.distributions import Constant, Distribution, Empirical
from simulator.spec.input_pipeline import InputPipeline, InputWork
from simulator.spec.training import Passes
from simulator.spec.uncertainty import with_draw, with_even_draw
from simulator.spec.workload import Affine, Workload


def as_encoded(scenario: Resolved) -> Resolved:
    """The same training with what compression costs a device in the times of its passes.

    Each gradient is compressed on the device as soon as it is ready, so that the backward
    pass takes that much longer, and later ones are ready later; making gradients again
    comes before the update. A scenario in which compression costs nothing is returned as it is.
    """
    before_s, after_s = scenario.strategy.encoding_s(scenario)
    if not before_s and not after_s:
        return scenario
    load = scenario.workload
    passes = load.passes or Passes()
    backward_s = load.backward_s(scenario.batch)
    dense = [0.0 if variable.sparse_bytes_per_sample is not None else float(variable.size_bytes) for variable in load.variables]
    whole, done, variables = math.fsum(dense) or 1.0, 0.0, []
    for variable, its in zip(load.variables, dense, strict=True):
        done += its
        ready_s, pass_s = variable.ready * backward_s + done / whole * before_s, backward_s + before_s
        variables.append(variable.model_copy(update={"ready": min(ready_s / pass_s, 1.0) if pass_s else variable.ready}))
    changes = {
        "passes": passes.model_copy(update={"encoding_s": passes.encoding_s + before_s}),
        "apply_s": load.apply_s + after_s,
        "variables": tuple(variables),
    }
    return scenario.model_copy(update={"workload": load.model_copy(update=changes), "strategy": scenario.strategy.encoded()})


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


def compile_program(scenario: Drawn, streams: Streams | None = None) -> Program:
    """What happens in a step of a scenario.

    Parameters
    ----------
    scenario
        What one replication simulates.
    streams
        Choose the routes of connections; left out: those of the first replication.
    """
    return scenario.strategy.program(scenario, streams or Streams(scenario.run.seed, 0))


StepTime = Callable[[Drawn, Streams], float]


def drawn_of(scenario: Resolved, streams: Streams, step_s: StepTime) -> Drawn:
    """What one replication simulates: one draw of all that fits leave open, achieved rates, teams as workers.

    What compression costs is in the times of its passes, and what a measured step held beside compute is not.
    What leaves nothing open is returned itself.

    Parameters
    ----------
    scenario, streams
        The scenario, and the streams of the replication.
    step_s
        Simulates a scenario in which nothing is left to chance, and says how long its steps are, in seconds.
    """
    before = _before_practice(scenario, streams)
    drawn = drawn_in_practice(before, streams)
    if drawn.workload.measured_with == "servers" and (drawn.servers or drawn.measured_in is not None):
        drawn = _without_own_exchange(drawn, before, streams, step_s)
    return Drawn(as_encoded(as_workers(drawn)))


# -- what is drawn, in a user's words ------------------------------------------------------

COMPUTE, JITTER, LINK, TRAFFIC = "compute times", "jitter of steps", "measured links", "traffic of others"
HOSTS = "host cost of a tensor", "host cost of a byte"
OF_CONSTANTS: Mapping[str, str] = {
    "nvlink_share": "bandwidth of NVLink",
    "nvlink_alone_share": "bandwidth of NVLink",
    "pcie_share": "bandwidth of PCIe",
    "host_memory_share": "bandwidth through host memory",
    "rdma_share": "bandwidth of RDMA links",
    "ethernet_share": "bandwidth of Ethernet",
    "overlap_cost": "compute beside collectives",
    "straggler_cv": JITTER,
    "crowding": "compute beside other devices",
    "fixed_part": COMPUTE,
    "grpc_tensor_s": HOSTS[0],
    "grpc_byte_s": HOSTS[1],
    "coordinator_dispatch_s": "coordinator",
    "coordinator_latency_s": "coordinator",
    "server_update_byte_s": "update on servers",
}
"""The quantity that each constant of practice is a part of."""


def drawn_quantities(scenario: Resolved) -> dict[str, NDArray[np.float64]]:
    """What each replication of a scenario draws of all that fits and constants leave open, by the name of the quantity.

    Quantities are independent of one another; the numbers of one may depend on each other. They are logarithms; of a
    workload those of the passes of a micro-batch and of one sample, and of the update.

    Returns
    -------
    dict of numpy.ndarray
        Shape (replications, numbers) each; quantities that do not vary are left out.
    """
    felt = felt_by([scenario])
    rows = [_quantities(scenario, Streams(scenario.run.seed, number), felt) for number in range(scenario.run.replications)]
    found = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return {name: numbers for name, numbers in found.items() if np.ptp(numbers, axis=0).max() > 0.0}


def _quantities(scenario: Resolved, streams: Streams, felt: tuple[str, ...]) -> dict[str, list[float]]:
    """Those of one replication."""
    before = _before_practice(scenario, streams)
    load, cluster = before.workload, before.cluster
    found: dict[str, list[float]] = {}
    if load.uncertainty is not None:
        part = before.batch / before.training.micro_batches
        passes = (load.forward(part) + load.backward(part), load.forward(1) + load.backward(1))
        found[COMPUTE] = [*map(_logarithm, passes), _logarithm(load.apply_s)]
    if load.draws_its_distribution:
        found[JITTER] = [_logarithm(load.jitter.spread())]
    if cluster.uncertainty is not None:
        found[LINK] = [_logarithm(_value(cluster, name)) for name in cluster.uncertainty.parameters]
    if cluster.background is not None and cluster.background.drawn and not cluster.background.each_link:
        found[TRAFFIC] = [_logarithm(1.0 - cluster.background.at_beginning()[0])]
    values = drawn_values(scenario.practice, streams, felt)
    for name in felt:
        found.setdefault(OF_CONSTANTS[name], []).append(_logarithm(values[name]))
    return found


def _value(spec: Cluster, name: str) -> float:
    """A number of a cluster by its dotted name."""
    return float(reduce(getattr, name.split("."), spec))  # type: ignore[arg-type]


def _logarithm(value: float) -> float:
    return math.log(max(value, _LEAST))


_LEAST = 1e-12
"""What is less, such as a latency that a fit took to be none, is taken for this."""


# -- draws ---------------------------------------------------------------------------------


def _drawn(load: Workload, streams: Streams) -> Workload:
    """The workload with a draw of what its fit, or the constants that its times are computed with, leave open."""
    if load.uncertainty is None:
        return load
    if load.is_computed:
        return with_even_draw(load, load.uncertainty, float(streams.of_the_seed("even draw").random()), streams.replication)
    return with_draw(load, load.uncertainty, streams.generator("workload"))


def _before_practice(scenario: Resolved, streams: Streams) -> Resolved:
    """With one draw of all that fits leave open; made once for the replication, and for telling what it drew."""
    return _before(Itself(scenario), streams.seed, streams.replication)


@lru_cache(maxsize=256)
def _before(this: Itself[Resolved], seed: int, replication: int) -> Resolved:
    scenario, streams = this.spec, Streams(seed, replication)
    load = scenario.workload
    if load.draws_its_distribution:
        load = load.with_drawn_distribution(streams.generator("law"))
    drawn = _drawn(load, streams)
    if load.jitter_least is not None and not load.not_seen:
        # the fastest step seen stays where it is, whatever mean is drawn; where none was seen it is as uncertain as the mean
        seen_s, drawn_s = (each.compute_s(scenario.batch) + each.apply_s for each in (load, drawn))
        drawn = drawn.model_copy(update={"jitter_least": load.jitter_least * seen_s / drawn_s})
    cluster = scenario.cluster
    if cluster.uncertainty is not None:
        cluster = with_draw(cluster, cluster.uncertainty, streams.generator("cluster"))
    if cluster.background is not None and cluster.background.drawn and not cluster.background.each_link:
        background = cluster.background.with_draw(streams.generator("background"))
        cluster = cluster.model_copy(update={"background": background})
    if drawn is not scenario.workload or cluster is not scenario.cluster:
        scenario = scenario.model_copy(update={"workload": drawn, "cluster": cluster})
    return scenario


_LEAST_COMPUTE = 0.02
"""Share of a measured step that computing takes at least, whatever pull and push seem to."""
_CLOSE = 1e-3
_TURNS = 12
_LONE = {"steps": 3, "warmup_steps": 1, "job_steps": None, "start": "together", "start_spread_s": None, "drain": False}


def _without_own_exchange(drawn: Resolved, before: Resolved, streams: Streams, step_s: StepTime) -> Resolved:
    """With compute alone in the workload's times, where what was measured is a step of one worker with its servers.

    Solved with one worker in the simulator, so that it takes as long as was measured: what is
    off in its pull and push is then off the other way in its compute, and one worker is right.

    Parameters
    ----------
    drawn, before
        The scenario with its draw of practice, and without it: the worker that was measured was alone on its host.
    """
    measured, alone = drawn, before
    if drawn.measured_in is not None:
        alone = _before_practice(resolve(Scenario.model_validate(drawn.measured_in)), streams)
        measured = drawn_in_practice(alone, streams)
    share = _share_of_compute(measured.model_copy(update={"workload": alone.workload}), streams, step_s)
    load = drawn.workload
    passes = {"forward": load.forward.times(share), "backward": load.backward.times(share)}
    return drawn.model_copy(update={"workload": load.model_copy(update={**passes, "measured_with": "device"}), "measured_in": None})


def _share_of_compute(scenario: Resolved, streams: Streams, simulated_s: StepTime) -> float:
    """Of a step of one worker with its servers, what it does not wait for them."""
    load = scenario.workload
    step_s, share = load.compute_s(scenario.batch), 1.0
    for _ in range(_TURNS):
        passes = {"forward": load.forward.times(share), "backward": load.backward.times(share)}
        alone = scenario.model_copy(update={"workload": load.model_copy(update={**passes, "measured_with": "device"})})
        wanted = max(share - (_lone_step_s(alone, streams, simulated_s) / step_s - 1.0), _LEAST_COMPUTE)
        if abs(wanted - share) < _CLOSE:
            return share
        share = wanted
    return share


def _lone_step_s(scenario: Resolved, streams: Streams, step_s: StepTime) -> float:
    """Seconds of a step of one worker with all servers to itself, without jitter."""
    strategy = scenario.strategy.alone_with_servers()
    run = scenario.run.model_copy(update=_LONE)
    changes: dict[str, object] = {
        "jitter": Constant(), "run_to_run_cv": 0.0, "batch_per_replica": scenario.batch, "global_batch": None
    }  # fmt: skip
    if scenario.layout.client_node is None:  # whose input is part of each step
        changes["input"] = Affine(base_s=0.0, per_sample_s=0.0)
    load = scenario.workload.model_copy(update=changes)
    even = dict.fromkeys(("background", "slow_nodes", "slowdown", "nodes", "available"))
    cluster = scenario.cluster.model_copy(update={**even, "node_speed": (), "node_classes": ()})
    parts = {"strategy": strategy, "run": run, "workload": load, "cluster": cluster, "job": None, "input": None}
    return step_s(Drawn(as_encoded(as_workers(scenario.model_copy(update=parts)))), streams)
