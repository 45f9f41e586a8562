"""One replication: one draw of the parameters, one start, one run of the event engine."""

from __future__ import annotations

import gc

from simulator.cores import cores_of
from simulator.engine.draws import Draws
from simulator.engine.recorder import Measured
from simulator.engine.simpy.collectives import AtOnce
from simulator.engine.simpy.engine import Engine
from simulator.engine.vectorised.lockstep import Lockstep
from simulator.kernel import Kernel
from simulator.network.flows import Network
from simulator.practice import drawn_in_practice
from simulator.program.compile import compile_program
from simulator.recorder import KernelRecorder
from simulator.records import Observer
from simulator.resolve import resolve
from simulator.rng import Streams
from simulator.scenario import Scenario
from simulator.strategies.reducing import collective_of
from simulator.teams import as_workers
from simulator.uncertainty import with_draw

__all__ = ["drawn_scenario", "replicate"]


def replicate(scenario: Scenario, replication: int, observer: Observer | None = None) -> Measured:
    """Simulate one real run of the scenario.

    Parameters
    ----------
    scenario
        What to simulate.
    replication
        Its number; chooses the random streams.
    observer
        Receives every record, where given.

    Raises
    ------
    DeadlockError, SimulationError
        The engine found an impossible state.
    """
    streams = Streams(scenario.run.seed, replication)
    drawn = drawn_scenario(scenario, streams)
    kernel = Kernel()
    cores = cores_of(kernel, drawn.cluster.shared_cores, drawn.cluster.time_slice_s)
    network = Network(kernel, drawn.cluster.transport, streams.generator("weights"), cores)
    recorder = KernelRecorder(kernel, drawn, observer)
    recorder.measured.drawn_s = drawn.workload.compute_s(drawn.batch), drawn.full_step_s
    if cores is not None:
        recorder.watch("cores", lambda: [cores])
    draws = Draws(drawn, streams)
    # the engine makes millions of short-lived cycles-free objects; the collector only costs time meanwhile
    collecting = gc.isenabled()
    gc.disable()
    try:
        _run(drawn, streams, kernel, network, draws, recorder)
    finally:
        if collecting:
            gc.enable()
    return recorder.measured


def _run(drawn: Scenario, streams: Streams, kernel: Kernel, network: Network, draws: Draws, recorder: KernelRecorder) -> None:
    """Compile, and run the program to its end."""
    program = compile_program(drawn, streams)
    collective = collective_of(drawn, drawn.strategy.reduction, streams)
    sizes = tuple(its.size_bytes for its in program.routines[0].operations if its.kind == "collective")
    lockstep = None
    if program.together and not program.exchanges:
        lockstep = Lockstep(kernel, program, draws, recorder, collective)
    else:
        at_once = AtOnce(kernel, collective, sizes, draws.ranks) if collective is not None and not program.exchanges else None
        Engine(kernel, network, program, draws, recorder, at_once).start()
    recorder.begin()
    kernel.run(recorder.done)
    if collective is not None:
        recorder.measured.aligned = collective.aligned and not program.exchanges
        reduced = lockstep.sizes if lockstep is not None else sizes
        choices = {size: collective.choice(size) for size in dict.fromkeys(reduced)}
        recorder.measured.algorithms = tuple((size, choice.algorithm, choice.protocol) for size, choice in choices.items())


def drawn_scenario(scenario: Scenario, streams: Streams) -> Scenario:
    """What one replication simulates: the scenario resolved, one draw of all that fits leave open, achieved rates, teams as workers."""
    scenario = resolve(scenario).scenario
    load = scenario.workload.with_drawn_law(streams.generator("law"))
    drawn = with_draw(load, load.uncertainty, streams.generator("workload"))
    if load.jitter_least is not None and not load.moved_by_factor:
        # the fastest step seen stays where it is, whatever mean is drawn; on another device it is as uncertain as the mean
        seen_s, drawn_s = (each.compute_s(scenario.batch) + each.apply_s for each in (load, drawn))
        drawn = drawn.model_copy(update={"jitter_least": load.jitter_least * seen_s / drawn_s})
    drawn_cluster = with_draw(scenario.cluster, scenario.cluster.uncertainty, streams.generator("cluster"))
    return as_workers(drawn_in_practice(scenario.model_copy(update={"workload": drawn, "cluster": drawn_cluster}), streams))
