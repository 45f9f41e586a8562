"""One replication: one draw of the parameters, one start, one run of the event engine."""

from __future__ import annotations

import gc

from simulator.cores import cores_of
from simulator.engine.log import Log
from simulator.engine.simpy.engine import Engine
from simulator.kernel import Kernel
from simulator.network.flows import Network
from simulator.practice import drawn_in_practice
from simulator.recorder import Measured, Recorder
from simulator.records import Observer
from simulator.replica import paces_of
from simulator.rng import Streams
from simulator.scenario import Scenario
from simulator.strategies.all_reduce.training import AllReduceTraining
from simulator.strategies.parameter_server.routine import compile_servers
from simulator.strategy import ParameterServer
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
    recorder = Recorder(kernel, drawn, observer)
    recorder.measured.drawn_s = drawn.workload.compute_s(drawn.batch), drawn.full_step_s
    if cores is not None:
        recorder.watch("cores", lambda: [cores])
    paces = paces_of(drawn, streams)
    # the engine makes millions of short-lived cycles-free objects; the collector only costs time meanwhile
    collecting = gc.isenabled()
    gc.disable()
    try:
        training: AllReduceTraining | None = None
        if isinstance(drawn.strategy, ParameterServer):
            log = Log(observer) if observer is not None else None
            Engine(kernel, network, compile_servers(drawn, streams), paces, streams, recorder, log=log).start()
        else:
            training = AllReduceTraining(kernel, network, drawn, paces, recorder, streams)
        recorder.begin()
        kernel.run(recorder.done)
    finally:
        if collecting:
            gc.enable()
    if training is not None:
        training.describe(recorder.measured)
    return recorder.measured


def drawn_scenario(scenario: Scenario, streams: Streams) -> Scenario:
    """What one replication simulates: one draw of all that fits leave open, achieved rates in place of nominal ones, teams as workers."""
    load = scenario.workload.with_drawn_law(streams.generator("law"))
    drawn = with_draw(load, load.uncertainty, streams.generator("workload"))
    if load.jitter_least is not None and not load.moved_by_factor:
        # the fastest step seen stays where it is, whatever mean is drawn; on another device it is as uncertain as the mean
        seen_s, drawn_s = (each.compute_s(scenario.batch) + each.apply_s for each in (load, drawn))
        drawn = drawn.model_copy(update={"jitter_least": load.jitter_least * seen_s / drawn_s})
    drawn_cluster = with_draw(scenario.cluster, scenario.cluster.uncertainty, streams.generator("cluster"))
    return as_workers(drawn_in_practice(scenario.model_copy(update={"workload": drawn, "cluster": drawn_cluster}), streams))
