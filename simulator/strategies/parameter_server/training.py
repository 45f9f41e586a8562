"""Workers, servers and the network wired together.

Every worker repeats: pull all variables, compute on its batch, push each gradient as it
becomes ready in the backward pass, wait. Asynchronously (Dean et al., "Large Scale
Distributed Deep Networks", 2012) it goes on once its last gradient is applied; how it is
done synchronously stands in ``updates.py``.
"""

from __future__ import annotations

from simulator.cores import on_cores
from simulator.kernel import Kernel
from simulator.network.flows import Network
from simulator.network.ports import Connection, leave_out_ample
from simulator.network.topology import Topology
from simulator.overlap import Overlap
from simulator.recorder import Recorder
from simulator.replica import Replica
from simulator.rng import Streams
from simulator.scenario import Scenario
from simulator.server import Server
from simulator.strategies.parameter_server.lines import Lines, Wires
from simulator.strategies.parameter_server.pacing import Client, Clocks, Dispatcher, Job
from simulator.strategies.parameter_server.tensors import Tensors, tensors_of
from simulator.strategies.parameter_server.updates import Asynchronous, Synchronous, Updates
from simulator.strategies.parameter_server.worker import Setting, Worker
from simulator.strategies.servers import ParameterServer

__all__ = ["ParameterServerTraining"]


class ParameterServerTraining:
    """Builds all parts of a scenario and starts its workers."""

    def __init__(
        self, kernel: Kernel, network: Network, scenario: Scenario, replicas: list[Replica], recorder: Recorder, streams: Streams
    ) -> None:
        strategy = scenario.strategy
        assert isinstance(strategy, ParameterServer)
        topology = Topology(scenario, streams)
        tensors = tensors_of(scenario)
        servers = _servers(kernel, network, scenario, replicas, recorder)
        updates = _updates(kernel, strategy, servers, recorder, tensors, len(replicas))
        in_graph = strategy.replication == "in-graph"
        setting = Setting(
            kernel,
            recorder,
            tensors,
            updates,
            job=_job(scenario),
            clocks=Clocks(kernel, len(replicas), strategy.bound) if strategy.bound is not None else None,
            dispatcher=Dispatcher(kernel, strategy.coordinator, on_cores(network.cores)) if strategy.coordinator is not None else None,
            client=_client(kernel, network, scenario) if in_graph else None,
            # from then on not all workers are busy
            out_of_steps=(lambda: None) if scenario.run.drain else lambda: kernel.at_end_of_instant(recorder.close),
        )
        wires = Wires(kernel, network, recorder.observer)
        may_overlap = _may_overlap(scenario, tensors)
        connections: list[Connection] = []
        for replica in replicas:
            index = replica.index
            down = [topology.from_server(server, index) for server in range(strategy.servers)]
            up = [topology.to_server(index, server) for server in range(strategy.servers)]
            into, out = topology.to_device(index), topology.from_device(index)
            feed = topology.from_client(index) if in_graph else None
            connections += [line for line in (*down, *up, into, out, feed) if line is not None]
            overlap = Overlap(kernel, replica.device) if may_overlap else None
            order = streams.generator("pull-order", index) if strategy.pulls == "random" else None
            lines = Lines(wires, index, down, up, into, out, overlap)
            kernel.start(f"worker {index}", Worker(setting, replica, lines, overlap, feed, order).train())
        leave_out_ample(connections)
        devices = list(dict.fromkeys(replica.device for replica in replicas))
        recorder.watch("devices", lambda: devices)
        recorder.watch("links", lambda: [*topology.ports, *topology.hosts])
        recorder.watch("servers", lambda: servers)


def _client(kernel: Kernel, network: Network, scenario: Scenario) -> Client:
    load, batch = scenario.workload, scenario.batch
    return Client(kernel, load.input(batch), (load.input_bytes_per_sample or 0.0) * batch, on_cores(network.cores))


def _job(scenario: Scenario) -> Job:
    run = scenario.run
    if getattr(scenario.strategy, "mode", "") == "sync":
        # an update needs as many workers to its end; with backups some make more steps than others
        return Job(scenario.replicas, None, None)
    each = run.sharing == "each-its-own"
    shared = run.total_steps(scenario.replicas) if run.drain and not each else None
    return Job(scenario.replicas, shared, run.steps if each else None)


def _servers(kernel: Kernel, network: Network, scenario: Scenario, replicas: list[Replica], recorder: Recorder) -> list[Server]:
    """The servers, on the cores that all nodes share, or on workers' devices where host and device are one."""
    strategy, cluster = scenario.strategy, scenario.cluster
    assert isinstance(strategy, ParameterServer)
    on_devices = cluster.servers_on_devices and strategy.server_placement == "colocated"
    servers = []
    for index in range(strategy.servers):
        neighbour = index * cluster.replicas_per_node  # the first replica on the server's node
        work = replicas[neighbour].device.seat() if on_devices and neighbour < len(replicas) else on_cores(network.cores)
        servers.append(Server(kernel, index, recorder.observer, work))
    return servers


def _updates(
    kernel: Kernel, strategy: ParameterServer, servers: list[Server], recorder: Recorder, tensors: Tensors, workers: int
) -> Updates:
    if strategy.mode != "sync":
        return Asynchronous(kernel, servers, recorder, tensors.gradients)
    required = workers - strategy.backup_workers
    cancel = strategy.late_workers == "cancel"
    return Synchronous(kernel, servers, recorder, tensors.gradients, workers, required, cancel=cancel)


def _may_overlap(scenario: Scenario, tensors: Tensors) -> bool:
    """Whether a worker can compute while one of its messages is on its way."""
    late = getattr(scenario.strategy, "late_workers", "finish") == "cancel"
    return late or len(tensors.forward) > 1 or len(tensors.backward) > 1
