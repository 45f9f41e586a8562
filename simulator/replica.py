"""A replica: a device (or its part of one) that computes steps on batches."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from simpy.events import Event

from simulator.cores import on_cores
from simulator.device import Device
from simulator.engine.draws import Draws, Factors
from simulator.kernel import Kernel
from simulator.network.flows import Network
from simulator.records import Observer, Span
from simulator.scenario import Scenario
from simulator.strategy import ParameterServer

__all__ = ["Paces", "Replica", "paces_of", "replicas_of"]


class Paces(NamedTuple):
    """How fast one replica computes: mean times on its device, and what to multiply them by."""

    forward_s: float
    backward_s: float
    apply_s: float
    start_s: float
    """When its first step begins."""
    input_s: float
    """Seconds in which a batch is prepared, while the one before is computed."""
    factors: Factors
    """What to multiply the means by, step by step."""


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


def paces_of(draws: Draws) -> list[Paces]:
    """How fast each replica computes."""
    columns = (draws.forward_s, draws.backward_s, draws.apply_s, draws.start_s, draws.input_s)
    return list(map(Paces, *(column.tolist() for column in columns), (Factors(draws, rank) for rank in range(draws.ranks))))


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
