"""Counts steps, cuts the warm-up, and keeps the statistics of what is measured.

The window opens when ``warmup x replicas`` replica-steps have ended and closes at
``steps x replicas``; the simulation ends there. In synchronous strategies no replica can
end a step before all have ended the one before, so the window holds whole steps.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from simulator.kernel import Kernel
from simulator.records import Observer, Step, Update
from simulator.scenario import Scenario
from simulator.statistics import CountHistogram, TimeSketch

__all__ = ["Kind", "Measured", "Recorder", "Resource"]


_BLOCK = 1024

Kind = Literal["devices", "links", "servers"]


class Resource(Protocol):
    """A device, link or server whose use is measured."""

    @property
    def name(self) -> str:
        """Its name, unique among its kind."""

    def in_use_s(self, now: float) -> float:
        """Seconds of use up to now: of work, or for a link of its whole bandwidth."""


@dataclass
class Measured:
    """What one replication measured in its window."""

    window_s: float = 0.0
    steps: int = 0
    updates: int = 0
    step_time: TimeSketch = field(default_factory=TimeSketch)
    staleness: CountHistogram = field(default_factory=CountHistogram)
    server_staleness: list[int] = field(default_factory=list)
    parts_s: NDArray[np.float64] = field(default_factory=lambda: np.zeros(5))
    """Sums over steps: input, compute, communication, waiting, apply."""
    in_use_s: dict[Kind, dict[str, float]] = field(default_factory=lambda: {"devices": {}, "links": {}, "servers": {}})
    events: int = 0


class Recorder:
    """The recorder of one replication."""

    def __init__(self, kernel: Kernel, scenario: Scenario, observer: Observer | None) -> None:
        replicas = scenario.replicas
        self.done = kernel.event()
        self.measured = Measured()
        self.observer = observer
        self._kernel = kernel
        self._ended = 0
        self._opens_at = scenario.run.warmup * replicas
        self._closes_at = scenario.run.steps * replicas
        self._opened_s = 0.0
        self._block: list[tuple[float, ...]] = []  # steps that are still to be folded into the statistics
        self._watched: dict[Resource, Kind] = {}
        self._before: dict[Resource, float] = {}

    def watch(self, kind: Kind, resources: Iterable[Resource]) -> None:
        """Measure how much of the window these resources are in use."""
        self._watched.update(dict.fromkeys(resources, kind))

    def step(
        self, replica: int, start_s: float, input_s: float, compute_s: float, waiting_s: float, apply_s: float, update: Update | None
    ) -> None:
        """A replica ends a step now; what the named parts leave over was communication.

        ``update`` is the update that the step made to the model; of a synchronous step,
        which the replicas make together, only one replica gives it.
        """
        if self._ended >= self._closes_at:
            return
        end_s = self._kernel.now
        duration_s = end_s - start_s
        communication_s = duration_s - input_s - compute_s - waiting_s - apply_s
        if self.observer is not None:
            if update is not None:
                self.observer.record(update)
            self.observer.record(Step(replica, start_s, end_s, input_s, compute_s, communication_s, waiting_s, apply_s))
        if self._ended >= self._opens_at:
            self._block.append((duration_s, input_s, compute_s, communication_s, waiting_s, apply_s))
            if len(self._block) == _BLOCK:
                self._fold()
            if update is not None:
                self._count(update)
        self._ended += 1
        if self._ended == self._opens_at:
            self._open()
        elif self._ended == self._closes_at:
            self._close()

    def _count(self, update: Update) -> None:
        measured = self.measured
        measured.updates += 1
        measured.staleness.add(update.staleness)
        if not measured.server_staleness:
            measured.server_staleness = [0] * len(update.server_staleness)
        for server, stale in enumerate(update.server_staleness):
            measured.server_staleness[server] += stale

    def _fold(self) -> None:
        """Take the block's steps into the statistics, so that memory does not grow with their number."""
        if not self._block:
            return
        parts = np.array(self._block).T
        self._block.clear()
        measured = self.measured
        measured.steps += parts.shape[1]
        measured.step_time.add(parts[0])
        measured.parts_s += parts[1:].sum(axis=1)

    def _open(self) -> None:
        now = self._kernel.now
        self._opened_s = now
        self._before = {resource: resource.in_use_s(now) for resource in self._watched}

    def _close(self) -> None:
        self._fold()
        now = self._kernel.now
        measured = self.measured
        measured.window_s = now - self._opened_s
        for resource, kind in self._watched.items():
            measured.in_use_s[kind][resource.name] = resource.in_use_s(now) - self._before[resource]
        measured.events = self._kernel.events
        self.done.succeed()
