"""Makes what one replication simulates: a resolved scenario with one draw of all that fits and constants leave open.

Each draw has a stream of random numbers of its own name: another name gives other results. An exchange with servers that was
measured as part of a step is taken out of its times here, compressing gradients is put into them, and devices that go through
each step together (those of a worker of parameter servers, those that split tensors) become one. The jitter of steps, and when
workers start, is drawn in ``simulator.engine.draws``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.base.rng import Streams
from simulator.base.spec import Itself
from simulator.program.program import Program
from simulator.resolve.measured_defaults import COMPUTE, JITTER, LINK, OF_CONSTANTS, TRAFFIC, draw_measured_defaults, felt_by
from simulator.resolve.resolve import resolve
from simulator.scenario import Drawn, Resolved, Scenario
from simulator.spec.cluster import Islands, Link
from simulator.spec.constants import drawn_values
from simulator.spec.distributions import Constant, Distribution, Empirical
from simulator.spec.input_pipeline import InputPipeline, InputWork
from simulator.spec.training import Passes
from simulator.spec.uncertainty import with_draw, with_even_draw
from simulator.spec.workload import Affine


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
    for variable, dense_bytes in zip(load.variables, dense, strict=True):
        done += dense_bytes
        ready_s, pass_s = variable.ready * backward_s + done / whole * before_s, backward_s + before_s
        variables.append(variable.replaced({"ready": min(ready_s / pass_s, 1.0) if pass_s else variable.ready}))
    return scenario.replaced(
        {
            "workload.passes": passes.replaced({"encoding_s": passes.encoding_s + before_s}),
            "workload.apply_s": load.apply_s + after_s,
            "workload.variables": tuple(variables),
            "strategy": scenario.strategy.encoded(),
        }
    )


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
    together = scenario.strategy.together(scenario)
    if together is None:
        return scenario
    count, cluster, load, batch = together.devices, scenario.cluster, scenario.workload, scenario.batch
    per_node = cluster.devices_per_node
    inside = min(count, per_node)
    devices = per_node // inside
    jitter, later = slowest_of(load.jitter, count)
    changes: dict[str, Any] = {
        "strategy": together.strategy,
        "cluster.devices_per_node": devices,
        "cluster.devices_per_host_link": 1,
        # each goes by the rails of all that it stands for
        "cluster.rails": None if cluster.rails is None else math.gcd(cluster.rails, devices),
        "cluster.islands": _islands(cluster.islands, count, devices),
        "cluster.node_classes": tuple(
            kind if kind.jitter is None else kind.replaced({"jitter": slowest_of(kind.jitter, count)[0]}) for kind in cluster.node_classes
        ),
        "workload.jitter": jitter,
        "workload.jitter_draws": (),
        "workload.jitter_least": None,
        "workload.uncertainty": None,
    }
    if together.in_step:
        nodes = max(count // per_node, 1)  # that its devices fill
        changes |= {
            "cluster.nodes": None if cluster.nodes is None else cluster.nodes // nodes,
            "cluster.available": None if cluster.available is None else cluster.available // nodes,
            "cluster.intra_node": _wider(cluster.intra_node, inside),
            "cluster.inter_node": _wider(cluster.inter_node, nodes),
            "workload.forward": load.forward.times(later),
            "workload.backward": load.backward.times(later),
        }
        return scenario.replaced(changes)
    part = batch / (load.passes.micro_batches if load.passes is not None else 1)
    if (host := cluster.host_link) is not None:
        rate = min(cluster.intra_node.bandwidth_bytes_per_s, host.bandwidth_bytes_per_s)
        host = Link(bandwidth_bytes_per_s=rate, latency_s=host.latency_s)
    changes |= {
        "cluster.host_link": host or cluster.intra_node,
        "workload.batch_per_replica": batch * count,
        "workload.global_batch": None,
        "workload.forward": Affine(base_s=load.forward(part) * later, per_sample_s=0.0),
        "workload.backward": Affine(base_s=load.backward(part) * later, per_sample_s=0.0),
        "workload.input": Affine(base_s=load.input(batch), per_sample_s=0.0),
    }
    if scenario.input is not None and scenario.input.per != "process":
        changes["input"] = _side_by_side(scenario.input, batch, count)
    return scenario.replaced(changes)


def _islands(islands: Islands | None, together: int, devices: int) -> Islands | None:
    """Islands with ``together`` devices as one, in nodes that then have ``devices``; none where one fills an island, or it a node."""
    if islands is None or islands.devices // together in (0, 1, devices):
        return None
    return islands.replaced({"devices": islands.devices // together})


def _wider(link: Link, times: int) -> Link:
    return link.replaced({"bandwidth_bytes_per_s": link.bandwidth_bytes_per_s * times}) if times > 1 else link


def _side_by_side(pipeline: InputPipeline, batch: int, count: int) -> InputPipeline:
    """The pipelines of a worker's devices as one: their iterators go side by side, and all calls work for all batches."""

    def together(work: InputWork) -> InputWork:
        serial, parallel = (Affine(base_s=each_s, per_sample_s=0.0) for each_s in (work.serial(batch), work.parallel(batch) * count))
        return work.replaced({"serial": serial, "parallel": parallel})

    cached = None if pipeline.cached is None else together(pipeline.cached)
    return pipeline.replaced({"work": together(pipeline.work), "cached": cached, "parallel_calls": pipeline.parallel_calls * count})


@lru_cache(maxsize=256)
def slowest_of(distribution: Distribution, count: int) -> tuple[Distribution, float]:
    """The distribution of the largest of ``count`` independent draws, and its mean over that of one draw.

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
    """Return what happens in a step of a scenario.

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
    """Return what one replication simulates: one draw of all that fits leave open, achieved rates, devices that go together as one.

    The cost of compression is in the times of its passes; parts of a measured step other than compute are not.
    A scenario without uncertainty is returned unchanged.

    Parameters
    ----------
    scenario, streams
        The scenario, and the streams of the replication.
    step_s
        Simulates a scenario in which nothing is left to chance, and says how long its steps are, in seconds.
    """
    before = _draw_fits(scenario, streams)
    drawn = draw_measured_defaults(before, streams)
    if drawn.workload.measured_with == "servers" and (drawn.servers or drawn.measured_in is not None):
        drawn = _without_own_exchange(drawn, before, streams, step_s)
    return Drawn(as_encoded(as_workers(drawn)))


# -- what is drawn, in a user's words ------------------------------------------------------


def drawn_quantities(scenario: Resolved) -> dict[str, NDArray[np.float64]]:
    """Return what each replication of a scenario draws of all that fits and constants leave open, by the name of the quantity.

    Quantities are independent of one another; the numbers of one may depend on each other. They are logarithms; of a
    workload those of the passes of a micro-batch and of one sample, and of the update.

    Returns
    -------
    dict of numpy.ndarray
        Shape (replications, numbers) each; quantities that do not vary are left out.
    """
    felt = felt_by([scenario])
    rows = [_quantities(scenario, Streams(scenario.run.seed, number), felt) for number in range(scenario.run.replications)]
    drawn = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return {name: numbers for name, numbers in drawn.items() if np.ptp(numbers, axis=0).max() > 0.0}


def _quantities(scenario: Resolved, streams: Streams, felt: tuple[str, ...]) -> dict[str, list[float]]:
    """Those of one replication."""
    before = _draw_fits(scenario, streams)
    load, cluster = before.workload, before.cluster
    numbers: dict[str, list[float]] = {}
    if load.uncertainty is not None:
        part = before.batch / before.training.micro_batches
        passes = (load.forward(part) + load.backward(part), load.forward(1) + load.backward(1))
        numbers[COMPUTE] = [*map(_logarithm, passes), _logarithm(load.apply_s)]
    if load.draws_its_distribution:
        numbers[JITTER] = [_logarithm(load.jitter.spread())]
    if cluster.uncertainty is not None:
        numbers[LINK] = [_logarithm(cluster.value_at(name)) for name in cluster.uncertainty.parameters]
    if cluster.background is not None and cluster.background.drawn and not cluster.background.each_link:
        numbers[TRAFFIC] = [_logarithm(1.0 - cluster.background.at_beginning()[0])]
    values = drawn_values(scenario.practice, streams, felt)
    for name in felt:
        numbers.setdefault(OF_CONSTANTS[name], []).append(_logarithm(values[name]))
    return numbers


def _logarithm(value: float) -> float:
    return math.log(max(value, _LEAST))


_LEAST = 1e-12
"""Smaller values, such as a fitted latency of 0, are raised to this."""


# -- draws ---------------------------------------------------------------------------------


def _draw_fits(scenario: Resolved, streams: Streams) -> Resolved:
    """With one draw of all that fits leave open; made once for the replication, and for telling what it drew."""
    return _before(Itself(scenario), streams.seed, streams.replication)


@lru_cache(maxsize=256)
def _before(this: Itself[Resolved], seed: int, replication: int) -> Resolved:
    scenario, streams = this.spec, Streams(seed, replication)
    load = scenario.workload
    if load.draws_its_distribution:
        load = load.with_drawn_distribution(streams.generator("law"))
    if load.is_computed and load.uncertainty is not None:  # by the constants that its times are computed with
        shift = float(streams.of_the_seed("even draw").random())
        drawn = with_even_draw(load, load.uncertainty, shift, replication)
    else:
        drawn = with_draw(load, load.uncertainty, streams.generator("workload")) if load.uncertainty is not None else load
    if load.jitter_least is not None and not load.moved_by_factor and load.recast is None:
        # the fastest step seen stays where it is, whatever mean is drawn; where none was seen it is as uncertain as the mean
        seen_s, drawn_s = (each.compute_s(scenario.batch) + each.apply_s for each in (load, drawn))
        drawn = drawn.replaced({"jitter_least": load.jitter_least * seen_s / drawn_s})
    cluster = scenario.cluster
    if cluster.uncertainty is not None:
        cluster = with_draw(cluster, cluster.uncertainty, streams.generator("cluster"))
    if cluster.background is not None and cluster.background.drawn and not cluster.background.each_link:
        cluster = cluster.replaced({"background": cluster.background.with_draw(streams.generator("background"))})
    if drawn is not scenario.workload or cluster is not scenario.cluster:
        scenario = scenario.replaced({"workload": drawn, "cluster": cluster})
    return scenario


_LEAST_COMPUTE = 0.02
"""Share of a measured step that computing takes at least, whatever pull and push seem to."""
_CLOSE = 1e-3
_TURNS = 12
_LONE: Mapping[str, Any] = {
    "run.steps": 3, "run.warmup_steps": 1, "run.job_steps": None, "run.start": "together", "run.start_spread_s": None, "run.drain": False,
    "workload.jitter": Constant(), "workload.run_to_run_cv": 0.0, "workload.global_batch": None,
    **dict.fromkeys(("cluster.background", "cluster.slow_nodes", "cluster.slowdown", "cluster.nodes", "cluster.available", "job", "input")),
    "cluster.node_speed": (), "cluster.node_classes": (),
}  # fmt: skip
"""Of a step of one worker with all servers to itself."""


def _without_own_exchange(drawn: Resolved, before: Resolved, streams: Streams, step_s: StepTime) -> Resolved:
    """Leave only compute in the workload's times, if a step of one worker with its servers was measured.

    Solved with one worker in the simulator, so that it takes as long as was measured: what is
    off in its pull and push is then off the other way in its compute, and one worker is right.

    Parameters
    ----------
    drawn, before
        The scenario with its draw of measured defaults, and without it: the worker that was measured was alone on its host.
    """
    measured, alone = drawn, before
    if drawn.measured_in is not None:
        alone = _draw_fits(resolve(Scenario.model_validate(drawn.measured_in)), streams)
        measured = draw_measured_defaults(alone, streams)
    share = _share_of_compute(measured.replaced({"workload": alone.workload}), streams, step_s)
    return _computing(drawn, share).replaced({"measured_in": None})


def _computing(scenario: Resolved, share: float) -> Resolved:
    """With passes that take a share of what a step with servers took."""
    load = scenario.workload
    passes = {"workload.forward": load.forward.times(share), "workload.backward": load.backward.times(share)}
    return scenario.replaced({**passes, "workload.measured_with": "device"})


def _share_of_compute(scenario: Resolved, streams: Streams, simulated_s: StepTime) -> float:
    """Part of a step of one worker with its servers in which it does not wait for them."""
    step_s, share = scenario.workload.compute_s(scenario.batch), 1.0
    for _ in range(_TURNS):
        lone_s = _lone_step_s(_computing(scenario, share), streams, simulated_s)
        wanted = max(share - (lone_s / step_s - 1.0), _LEAST_COMPUTE)
        if abs(wanted - share) < _CLOSE:
            return share
        share = wanted
    return share


def _lone_step_s(scenario: Resolved, streams: Streams, step_s: StepTime) -> float:
    """Seconds of a step of one worker with all servers to itself, without jitter."""
    changes = {**_LONE, "strategy": scenario.strategy.alone_with_servers(), "workload.batch_per_replica": scenario.batch}
    if scenario.layout.client_node is None:  # whose input is part of each step
        changes["workload.input"] = Affine(base_s=0.0, per_sample_s=0.0)
    return step_s(Drawn(as_encoded(as_workers(scenario.replaced(changes)))), streams)
