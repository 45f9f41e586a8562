"""The cores of one machine that all nodes are processes of: round robin in slices of time."""

from __future__ import annotations

import math

import simpy

from simulator.engine.textbook.clock import Clock, Going
from simulator.program.program import INSTANT_S


class SharedCores:
    """Tasks wait in one queue; a free core takes the one in front, and keeps it for a slice while others wait (docs/network.md).

    Parameters
    ----------
    number
        How many cores.
    slice_s
        Length of a slice.
    """

    name = "cores"

    def __init__(self, clock: Clock, number: float, slice_s: float) -> None:
        self._clock, self._number, self._slice_s = clock, number, slice_s
        self._cores = simpy.Resource(clock, capacity=math.ceil(number) if number < math.inf else number)  # type: ignore[arg-type]
        self._changed = clock.event()
        self._busy_s = self._since_s = 0.0

    def run(self, work_s: float, slowdown: float = 0.0) -> Going:
        """Do some seconds of work; ``slowdown``: share by which it takes longer for each other core that is busy."""
        clock, left_s = self._clock, work_s
        while left_s > 0.0:
            with self._cores.request() as core:
                yield core
                self._count()
                slice_ends_s = clock.now + self._slice_s
                while left_s > 0.0:
                    stretch, began_s = 1.0 + slowdown * (self._cores.count - 1), clock.now
                    wait_s = min(left_s * stretch, max(slice_ends_s - began_s, 0.0))
                    due = clock.timeout(wait_s)
                    yield due | self._changed if slowdown else due
                    left_s -= (clock.now - began_s) / stretch
                    if left_s <= INSTANT_S + 4 * math.ulp(clock.now):
                        left_s = 0.0
                    elif clock.now >= slice_ends_s - INSTANT_S:
                        if self._cores.queue:
                            break
                        slice_ends_s += self._slice_s
            self._count()

    def _count(self) -> None:
        """The number of busy cores may have changed."""
        self.in_use_s()
        self._busy = self._cores.count
        self._changed.succeed()
        self._changed = self._clock.event()

    _busy = 0

    def in_use_s(self) -> float:
        """Seconds up to now for which a core was busy, in the mean over all of them."""
        self._busy_s += self._busy * (self._clock.now - self._since_s)
        self._since_s = self._clock.now
        return self._busy_s / self._number
