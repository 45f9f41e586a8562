"""The program that a scenario becomes, with every parameter at its mean, for printing: nothing is drawn or run.

It takes the steps of ``simulator.resolve.drawing``, with means in place of draws, but leaves in a step's times what was measured
with servers. ``simulator.program.printing`` prints it.
"""

from __future__ import annotations

import numpy as np

from simulator.base.rng import Streams
from simulator.program.printing import Printed, Reduced
from simulator.program.program import Program
from simulator.resolve.drawing import as_encoded, as_workers, compile_program
from simulator.resolve.practice import nominally_in_practice
from simulator.resolve.resolve import resolve
from simulator.scenario import Drawn, Scenario
from simulator.strategies.assembling import collective_of


def preview(scenario: Scenario) -> Printed:
    """The program of a scenario with every parameter at its mean, routes as in the first replication.

    Raises
    ------
    ScenarioError
        It cannot be resolved.
    """
    plain = Drawn(as_encoded(as_workers(nominally_in_practice(resolve(scenario)))))
    streams = Streams(plain.run.seed, 0)
    program = compile_program(plain, streams)
    load, cluster = plain.workload, plain.cluster
    speed = np.ones(len(program.ranks))
    if cluster.node_classes or cluster.node_speed:
        nodes = np.arange(len(program.ranks)) // cluster.replicas_per_node
        speed = np.array([cluster.speed_of(node) for node in range(int(nodes[-1]) + 1)])[nodes]
    return Printed(
        scenario=scenario.hash,
        program=program,
        forward_s=float(load.forward_s(plain.batch)),
        backward_s=float(load.backward_s(plain.batch)),
        apply_s=load.apply_s,
        speed=speed,
        reduced=_reduced(plain, program, streams),
    )


def _reduced(scenario: Drawn, program: Program, streams: Streams) -> dict[float, Reduced]:
    """By size, how it is reduced; nothing where several groups reduce, each in its own way."""
    if len(program.groups) > 1:
        return {}
    sizes = {operation.size_bytes for routine in program.routines for operation in routine.operations if operation.kind == "collective"}
    collective = collective_of(scenario, scenario.strategy.reduction, streams) if sizes else None
    if collective is None:
        return {}
    choices = {size: collective.choice(size) for size in sizes}
    return {size: Reduced(choice.algorithm, choice.protocol, collective.duration_s(size)) for size, choice in choices.items()}
