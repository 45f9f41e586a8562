"""A replica: a device (or its part of one) that computes steps on batches."""

from __future__ import annotations

from collections.abc import Generator, Iterator

from simpy.events import Event

from simulator.kernel import Kernel
from simulator.network import Network
from simulator.ports import Connection, Port
from simulator.records import Observer, Span
from simulator.rng import Streams, factors
from simulator.scenario import Scenario

__all__ = ["Replica", "replicas_of"]


class Replica:
    """What one replica needs for its steps: its device, its jitter, its input.

    Attributes
    ----------
    index
        Rank of the replica.
    start_s
        When its first step begins.
    device
        Port of the device that it computes on, in seconds of work a second.
    """

    def __init__(
        self,
        kernel: Kernel,
        network: Network,
        scenario: Scenario,
        streams: Streams,
        index: int,
        device: Port,
        shared: bool,
        run_factor: float,
        observer: Observer | None,
    ) -> None:
        load, batch = scenario.workload, scenario.batch
        speed = scenario.cluster.speed_of(index // scenario.cluster.replicas_per_node)
        self.index = index
        self.device = device
        self.forward_s = load.forward(batch) / speed * run_factor
        self.backward_s = load.backward(batch) / speed * run_factor
        self.apply_s = load.apply_s / speed * run_factor
        self.factors: Iterator[float] = factors(load.jitter, streams.generator("compute", index))
        self._kernel = kernel
        self._network = network
        self._connection = Connection((device,), 0.0) if shared else None
        self._observer = observer
        self._input_s = load.input(batch)
        spread = scenario.run.start_spread_s or (load.compute_s(batch) + load.apply_s if scenario.run.start == "random-phase" else 0.0)
        self.start_s = float(streams.generator("start", index).uniform(0.0, spread)) if spread else 0.0
        self._input_ready_s = self.start_s + self._input_s

    def compute(self, work_s: float, name: str) -> Generator[Event, None, None]:
        """Occupy the device for ``work_s`` seconds of work; longer where it is shared."""
        kernel, device = self._kernel, self.device
        begin = kernel.now
        if self._connection is None:
            device.busy_since = begin
            device.active[_BUSY] = None
            yield kernel.timeout(work_s)
            del device.active[_BUSY]
            device.busy_s += kernel.now - begin
        elif work_s > 0:
            done = kernel.event()
            self._network.send(self._connection, work_s, lambda _: _end(done))
            yield done
        if self._observer is not None:
            self._observer.record(Span(self.index, name, begin, kernel.now))

    def next_batch(self) -> Generator[Event, None, None]:
        """Wait until the prefetched batch is there; the next one is prepared from then on."""
        if self._input_s:
            wait_s = self._input_ready_s - self._kernel.now
            if wait_s > 0:
                yield self._kernel.timeout(wait_s)
            self._input_ready_s = self._kernel.now + self._input_s


_BUSY = Connection((), 0.0)


def _end(done: Event) -> None:
    done.succeed()


def replicas_of(
    kernel: Kernel, network: Network, scenario: Scenario, streams: Streams, run_factor: float, observer: Observer | None
) -> list[Replica]:
    """All replicas of a scenario; ``replicas_per_device`` neighbours share a device equally."""
    sharing = scenario.cluster.replicas_per_device
    devices = [Port(f"device {index}", 1.0) for index in range(-(-scenario.replicas // sharing))]
    return [
        Replica(kernel, network, scenario, streams, index, devices[index // sharing], sharing > 1, run_factor, observer)
        for index in range(scenario.replicas)
    ]
