"""Training with parameter servers, asynchronous and synchronous.

Every worker repeats: pull all variables, compute on its batch, push each gradient as it
becomes ready in the backward pass, wait. Asynchronously (Dean et al., "Large Scale
Distributed Deep Networks", 2012) a gradient is applied when its turn comes at its
server, and the worker goes on once its last one is applied. Synchronously
(``SyncReplicasOptimizer``) gradients are summed in accumulators; once a variable's have
come from every worker they are applied, and once all variables are, all workers go on.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from itertools import chain

from simpy.events import Event

from simulator.kernel import Kernel
from simulator.network import Network
from simulator.placement import place
from simulator.ports import Arrived, Connection, leave_out_ample
from simulator.recorder import Recorder
from simulator.records import Transfer, Update
from simulator.replica import Replica
from simulator.scenario import Scenario
from simulator.server import Server
from simulator.strategy import ParameterServer
from simulator.topology import Topology

__all__ = ["ParameterServerTraining"]


class _Pending:
    """A worker's gradients on their way: what it read, and what is still to be applied."""

    __slots__ = (
        "applied",
        "arrived",
        "left",
        "left_on_server",
        "pushed_s",
        "read_s",
        "read_version",
        "server_read",
        "server_staleness",
        "update",
        "worker",
    )

    def __init__(
        self, worker: int, applied: Event, read_s: float, read_version: int, servers: list[Server], parts: int, parts_on_server: list[int]
    ) -> None:
        self.worker = worker
        self.applied = applied
        self.read_s = read_s
        self.read_version = read_version
        self.server_read = [server.version for server in servers]
        self.server_staleness = [0] * len(servers)
        self.left = parts
        self.left_on_server = parts_on_server.copy()
        self.arrived = 0
        self.pushed_s = 0.0
        self.update: Update | None = None


class _Gradient:
    """What travels to a server as one message: a gradient tensor, or all for that server."""

    __slots__ = ("cost_s", "index", "server", "size")

    def __init__(self, index: int, server: int, size: float, cost_s: float) -> None:
        self.index = index
        self.server = server
        self.size = size
        self.cost_s = cost_s


def _happen(event: Event, _: Event | None) -> None:
    event.succeed()


class ParameterServerTraining:
    """Wires workers and servers together and starts them."""

    def __init__(self, kernel: Kernel, network: Network, scenario: Scenario, replicas: list[Replica], recorder: Recorder) -> None:
        strategy, load, batch = scenario.strategy, scenario.workload, scenario.batch
        assert isinstance(strategy, ParameterServer)
        self._kernel, self._network, self._recorder = kernel, network, recorder
        topology = Topology(scenario)
        self._servers = [Server(kernel, index, recorder.observer) for index in range(strategy.servers)]
        placed = place(load.variables, strategy.servers, strategy.variable_placement)
        self._pull_bytes = [
            sum(v.pull_bytes(batch) for v, server in zip(load.variables, placed, strict=True) if server == index)
            for index in range(strategy.servers)
        ]
        self._segments = self._group(scenario, placed)
        gradients = [gradient for _, ready in self._segments for gradient in ready]
        self._parts = len(gradients)
        self._parts_on_server = [sum(gradient.server == index for gradient in gradients) for index in range(strategy.servers)]
        self._version = 0
        self._is_sync = strategy.mode == "sync"
        self._workers = len(replicas)
        # of the synchronous step in progress
        self._received = [0] * len(gradients)
        self._unapplied = len(gradients)
        self._released = kernel.event()
        self._last_push_s = 0.0
        servers = range(strategy.servers)
        pulls = [[topology.from_server(server, replica.index) for server in servers] for replica in replicas]
        pushes = [[topology.to_server(replica.index, server) for server in servers] for replica in replicas]
        leave_out_ample(chain.from_iterable(pulls + pushes))
        for replica, down, up in zip(replicas, pulls, pushes, strict=True):
            kernel.start(f"worker {replica.index}", self._train(replica, down, up))
        recorder.watch("devices", [replica.device for replica in replicas])
        recorder.watch("links", topology.ports)
        recorder.watch("servers", self._servers)

    def _group(self, scenario: Scenario, placed: list[int]) -> list[tuple[float, list[_Gradient]]]:
        """Parts of the backward pass, each with the gradients that are ready at its end."""
        load, batch = scenario.workload, scenario.batch
        assert isinstance(scenario.strategy, ParameterServer)
        sizes = [variable.gradient_bytes(batch) for variable in load.variables]
        if scenario.strategy.tensor_grouping == "per-server":
            grouped: list[_Gradient] = []
            for server in dict.fromkeys(placed):
                mine = [size for size, where in zip(sizes, placed, strict=True) if where == server]
                grouped.append(_Gradient(len(grouped), server, sum(mine), sum(load.server(size) for size in mine)))
            return [(1.0, grouped)]
        segments: dict[float, list[_Gradient]] = {}
        last = load.variables[-1].ready
        for index, (variable, server, size) in enumerate(zip(load.variables, placed, sizes, strict=True)):
            # the last gradient ends the backward pass, whatever the clock of the measurement said
            ready = 1.0 if variable.ready == last else variable.ready
            segments.setdefault(ready, []).append(_Gradient(index, server, size, load.server(size)))
        return list(segments.items())

    # -- the worker's side -----------------------------------------------------------

    def _train(self, replica: Replica, pulls: list[Connection], pushes: list[Connection]) -> Generator[Event, None, None]:
        kernel, worker = self._kernel, replica.index
        if replica.start_s:
            yield kernel.timeout(replica.start_s)
        work = self._work_of(replica)
        while True:
            start_s = kernel.now
            released = self._released
            pending = _Pending(worker, kernel.event(), start_s, self._version, self._servers, self._parts, self._parts_on_server)
            yield self._pull(worker, pulls)
            pulled_s = kernel.now
            batch = replica.next_batch()
            if batch is not None:
                yield batch
            input_s = kernel.now - pulled_s
            factor = next(replica.factors)
            for work_s, name, gradients in work:
                yield replica.compute(work_s * factor, name)
                for gradient in gradients:
                    self._push(pushes[gradient.server], gradient, pending)
            compute_s = kernel.now - pulled_s - input_s
            if self._is_sync:
                yield released
                waiting_s = max(self._last_push_s - pending.pushed_s, 0.0)
            else:
                yield pending.applied
                waiting_s = 0.0
            if self._is_sync and worker == 0:
                # the workers make this update together; it is counted once
                pending.update = Update(worker, start_s, kernel.now, pending.read_version, self._version - 1, ())
            self._recorder.step(worker, start_s, input_s, compute_s, waiting_s, kernel.now - pending.pushed_s - waiting_s, pending.update)

    def _work_of(self, replica: Replica) -> list[tuple[float, str, list[_Gradient]]]:
        """The replica's compute, cut where gradients become ready: seconds, name, and the gradients ready then."""
        work = []
        done = 0.0
        for number, (ready, gradients) in enumerate(self._segments):
            work_s = (ready - done) * replica.backward_s + (0.0 if number else replica.forward_s)
            work.append((work_s, "backward" if number else "forward and backward", gradients))
            done = ready
        return work

    def _pull(self, worker: int, connections: list[Connection]) -> Event:
        """Ask every server for its variables; the event that all are there."""
        pulled = self._kernel.event()
        if len(connections) == 1:
            self._send(connections[0], self._pull_bytes[0], partial(_happen, pulled), 0, worker, -1)
            return pulled
        left = len(connections)

        def arrived(_: Event | None) -> None:
            nonlocal left
            left -= 1
            if not left:
                pulled.succeed()

        for server, connection in enumerate(connections):
            self._send(connection, self._pull_bytes[server], arrived, server, worker, -1)
        return pulled

    def _push(self, connection: Connection, gradient: _Gradient, pending: _Pending) -> None:
        self._send(connection, gradient.size, partial(self._serve, gradient, pending), gradient.server, pending.worker, gradient.index)

    def _send(self, connection: Connection, size: float, arrived: Arrived, server: int, worker: int, gradient: int) -> None:
        """Send a gradient to its server, or where ``gradient`` is -1 a server's variables to the worker."""
        observer = self._recorder.observer
        if observer is not None:
            inner, sent_s = arrived, self._kernel.now
            source, target, name = f"worker {worker}", f"server {server}", f"push {gradient}"
            if gradient < 0:
                source, target, name = target, source, "pull"

            def arrived(event: Event | None) -> None:
                observer.record(Transfer(source, target, name, size, sent_s, self._kernel.now))
                inner(event)

        self._network.send(connection, size, arrived)

    # -- the servers' side -----------------------------------------------------------

    def _serve(self, gradient: _Gradient, pending: _Pending, _: Event | None) -> None:
        """A gradient's last byte is at its server: queue it there."""
        pending.arrived += 1
        if pending.arrived == self._parts:
            pending.pushed_s = self._kernel.now
            self._last_push_s = self._kernel.now
        server = self._servers[gradient.server]
        if self._is_sync:
            server.submit(gradient.cost_s, partial(self._accumulated, gradient), "accumulate", pending.worker, gradient.index)
        else:
            server.submit(gradient.cost_s, partial(self._applied, server, pending), "apply", pending.worker, gradient.index)

    def _applied(self, server: Server, pending: _Pending) -> None:
        """Asynchronous: one gradient of an update is in its variable."""
        pending.left -= 1
        index = server.index
        pending.left_on_server[index] -= 1
        if not pending.left_on_server[index]:
            pending.server_staleness[index] = server.version - pending.server_read[index]
            server.version += 1
        if not pending.left:
            pending.update = Update(
                pending.worker, pending.read_s, self._kernel.now, pending.read_version, self._version, tuple(pending.server_staleness)
            )
            self._version += 1
            pending.applied.succeed()

    def _accumulated(self, gradient: _Gradient) -> None:
        """Synchronous: one worker's gradient is in the accumulator; the last one's triggers the apply."""
        self._received[gradient.index] += 1
        if self._received[gradient.index] == self._workers:
            self._received[gradient.index] = 0
            self._servers[gradient.server].submit(gradient.cost_s, self._applied_in_step, "apply", -1, gradient.index)

    def _applied_in_step(self) -> None:
        self._unapplied -= 1
        if self._unapplied:
            return
        self._unapplied = self._parts
        self._version += 1
        released, self._released = self._released, self._kernel.event()
        released.succeed()
