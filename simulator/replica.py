"""How fast replicas compute in a replication, as it was drawn."""

from __future__ import annotations

import math

from simulator.defaults import start_of
from simulator.rng import Factors, Streams
from simulator.scenario import Scenario
from simulator.workload import Workload

__all__ = ["Paces", "paces_of", "process_factor"]


class Paces:
    """How fast one replica computes: mean times on its device, and what to multiply them by.

    Attributes
    ----------
    forward_s, backward_s, apply_s
        Mean seconds of each phase on its device.
    start_s
        When its first step begins.
    input_s
        Seconds in which a batch is prepared, while the one before is computed.
    factors
        What to multiply the means by, step by step.
    """

    __slots__ = ("apply_s", "backward_s", "factors", "forward_s", "input_s", "start_s")

    def __init__(self, scenario: Scenario, streams: Streams, index: int, process_factor: float) -> None:
        load, cluster, batch = scenario.workload, scenario.cluster, scenario.batch
        node = index // cluster.replicas_per_node
        kind = cluster.class_of(node)
        slowness = process_factor / cluster.speed_of(node)
        self.forward_s = load.forward(batch) * slowness
        self.backward_s = load.backward(batch) * slowness
        self.apply_s = load.apply_s * slowness
        fed = getattr(scenario.strategy, "replication", "") == "in-graph"
        self.input_s = 0.0 if fed else load.input(batch)  # else the client prepares it
        # nor is a fast process faster than the fastest step seen
        law, least = load.jitter, (load.jitter_least or 0.0) / process_factor
        if kind is not None and kind.jitter is not None:
            law, least = kind.jitter, 0.0
        self.factors = Factors(law, kind.slowdown if kind is not None else None, streams, index, least)
        spread = scenario.run.start_spread_s or (scenario.full_step_s if start_of(scenario) == "random-phase" else 0.0)
        self.start_s = float(streams.generator("start", index).uniform(0.0, spread)) if spread else 0.0


def process_factor(load: Workload, streams: Streams, process: int, machine: int) -> float:
    """How much longer a worker process takes for everything in this run: lognormal with mean 1 and the workload's spread.

    Each process draws its own part of the variance, and has the other, ``run_to_run_shared``,
    in common with all processes of its machine.
    """
    if not load.run_to_run_cv:
        return 1.0
    variance = math.log1p(load.run_to_run_cv**2)
    shared = load.run_to_run_shared or 0.0
    logarithm = math.sqrt((1.0 - shared) * variance) * streams.generator("run", process).standard_normal()
    if shared:
        logarithm += math.sqrt(shared * variance) * streams.generator("machine", machine).standard_normal()
    return math.exp(logarithm - variance / 2)


def paces_of(scenario: Scenario, streams: Streams) -> list[Paces]:
    """How fast each replica of a scenario computes."""
    each = scenario.replicas_per_process
    factors = [
        process_factor(scenario.workload, streams, process, scenario.machine_of(process * each)) for process in range(scenario.processes)
    ]
    return [Paces(scenario, streams, index, factors[index // each]) for index in range(scenario.replicas)]
