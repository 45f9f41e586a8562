"""A replica: a device (or its part of one) that computes steps on batches."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from simpy.events import Event

from simulator.cores import on_cores
from simulator.defaults import start_of
from simulator.device import Device
from simulator.kernel import Kernel
from simulator.network.flows import Network
from simulator.records import Observer, Span
from simulator.rng import Factors, Streams
from simulator.scenario import Scenario
from simulator.strategies.servers import ParameterServer
from simulator.workload import Workload

__all__ = ["Paces", "Replica", "paces_of", "process_factor", "replicas_of"]


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


class Replica:
    """One replica on the event calendar.

    Attributes
    ----------
    index
        Rank of the replica.
    paces
        How fast it computes.
    device
        The device that it computes on.
    """

    __slots__ = ("_batch", "_input_ready_s", "_kernel", "_observer", "_prepare", "_work", "device", "index", "paces")

    def __init__(self, kernel: Kernel, network: Network, index: int, paces: Paces, device: Device, observer: Observer | None) -> None:
        self.index = index
        self.paces = paces
        self.device = device
        self._kernel = kernel
        self._work: Callable[[float], Event] = device.seat()
        self._observer = observer
        self._input_ready_s = paces.start_s + paces.input_s
        # input prepared on cores that others use as well
        self._prepare = on_cores(network.cores) if paces.input_s else None
        self._batch: Event | None = None
        if self._prepare is not None and paces.start_s:
            kernel.call_later(paces.start_s, self._prefetch)
        elif self._prepare is not None:
            self._prefetch(None)

    def compute(self, work_s: float, name: str) -> Event:
        """Occupy the device for ``work_s`` seconds of work, longer where it is shared; the event of its end."""
        done = self._work(work_s)
        if self._observer is not None:
            assert done.callbacks is not None
            done.callbacks.append(partial(self._observe, self._observer, name, self._kernel.now))
        return done

    def _observe(self, observer: Observer, name: str, start_s: float, _: Event) -> None:
        observer.record(Span(self.index, name, start_s, self._kernel.now))

    def abandon(self, done: Event, name: str, start_s: float) -> None:
        """Stop the work whose end ``done`` is, on a device that nobody shares."""
        self.device.cancel()
        if done.callbacks is not None:
            done.callbacks.clear()
        if self._observer is not None:
            self._observe(self._observer, name, start_s, done)

    def next_batch(self) -> Event | None:
        """The event that the prefetched batch is there, or None if it is; the next one is prepared from then on."""
        input_s = self.paces.input_s
        if not input_s:
            return None
        if self._prepare is not None:
            return self._next_from_cores()
        wait_s = max(self._input_ready_s - self._kernel.now, 0.0)
        self._input_ready_s = self._kernel.now + wait_s + input_s
        return self._kernel.timeout(wait_s) if wait_s else None

    def _next_from_cores(self) -> Event | None:
        batch = self._batch
        assert batch is not None, "no batch is asked for before the replica starts"
        if batch.callbacks is None:
            self._prefetch(batch)
            return None
        batch.callbacks.append(self._prefetch)
        return batch

    def _prefetch(self, _: Event | None) -> None:
        assert self._prepare is not None
        self._batch = self._prepare(self.paces.input_s)


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


def replicas_of(kernel: Kernel, network: Network, scenario: Scenario, paces: list[Paces], observer: Observer | None) -> list[Replica]:
    """All replicas of a scenario; ``replicas_per_device`` neighbours share a device equally."""
    cluster = scenario.cluster
    sharing = cluster.replicas_per_device
    with_servers = 0  # devices that a parameter server works on as well
    if cluster.servers_on_devices and isinstance(scenario.strategy, ParameterServer) and scenario.strategy.server_placement == "colocated":
        with_servers = scenario.servers
    devices = [
        Device(
            kernel,
            network,
            index,
            shared=sharing > 1 or index < with_servers,
            on_cores=cluster.device_is_host,
            slowdown=cluster.overlap_slowdown,
            busy_core_slowdown=scenario.workload.busy_core_slowdown,
        )
        for index in range(-(-len(paces) // sharing))
    ]
    return [Replica(kernel, network, index, pace, devices[index // sharing], observer) for index, pace in enumerate(paces)]
