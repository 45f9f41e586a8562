"""Makes what one replication simulates: a resolved scenario with one draw of all that fits and constants leave open.

Each draw has a stream of random numbers of its own name: another name gives other results. An exchange with servers that was
measured as part of a step is taken out of its times here as well. The jitter of steps, and when workers start, is drawn in
``simulator.engine.draws``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache, reduce

import numpy as np
from numpy.typing import NDArray

from simulator.base.rng import Streams
from simulator.base.spec import Itself
from simulator.resolve.encoding import as_encoded
from simulator.resolve.practice import drawn_in_practice, felt_by
from simulator.resolve.resolve import resolve
from simulator.resolve.teams import as_workers
from simulator.scenario import Drawn, Resolved, Scenario
from simulator.spec.cluster import Cluster
from simulator.spec.constants import drawn_values
from simulator.spec.distributions import Constant
from simulator.spec.uncertainty import with_draw, with_even_draw
from simulator.spec.workload import Affine, Workload

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
