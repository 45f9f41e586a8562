"""A replica: a device (or its part of one) that computes steps on batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from simpy.events import Event

from simulator.device import Device
from simulator.kernel import Kernel
from simulator.network import Network
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
    forward_s, backward_s, apply_s
        Mean seconds of each phase on its device.
    factors
        What to multiply them by, step by step.
    device
        The device that it computes on.
    """

    def __init__(
        self, kernel: Kernel, scenario: Scenario, streams: Streams, index: int, device: Device, run_factor: float, observer: Observer | None
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
        self._work: Callable[[float], Event] = device.seat()
        self._observer = observer
        self._input_s = load.input(batch)
        spread = scenario.run.start_spread_s or (scenario.lone_step_s if scenario.run.start == "random-phase" else 0.0)
        self.start_s = float(streams.generator("start", index).uniform(0.0, spread)) if spread else 0.0
        self._input_ready_s = self.start_s + self._input_s

    def compute(self, work_s: float, name: str) -> Event:
        """Occupy the device for ``work_s`` seconds of work, longer where it is shared; the event of its end."""
        done = self._work(work_s)
        if self._observer is not None:
            assert done.callbacks is not None
            done.callbacks.append(partial(self._observe, self._observer, name, self._kernel.now))
        return done

    def _observe(self, observer: Observer, name: str, start_s: float, _: Event) -> None:
        observer.record(Span(self.index, name, start_s, self._kernel.now))

    def next_batch(self) -> Event | None:
        """The event that the prefetched batch is there, or None if it is; the next one is prepared from then on."""
        if not self._input_s:
            return None
        wait_s = max(self._input_ready_s - self._kernel.now, 0.0)
        self._input_ready_s = self._kernel.now + wait_s + self._input_s
        return self._kernel.timeout(wait_s) if wait_s else None


def replicas_of(
    kernel: Kernel, network: Network, scenario: Scenario, streams: Streams, run_factor: float, observer: Observer | None
) -> list[Replica]:
    """All replicas of a scenario; ``replicas_per_device`` neighbours share a device equally."""
    sharing = scenario.cluster.replicas_per_device
    devices = [Device(kernel, network, index, shared=sharing > 1) for index in range(-(-scenario.replicas // sharing))]
    return [
        Replica(kernel, scenario, streams, index, devices[index // sharing], run_factor, observer) for index in range(scenario.replicas)
    ]
