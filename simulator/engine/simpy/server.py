"""A parameter server: gradient tensors queue in order of arrival and are served one by one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from simpy.events import Event

from simulator.engine.simpy.device import Seat
from simulator.kernel import Kernel

__all__ = ["Job", "Server"]


class Job(NamedTuple):
    """Work on one tensor: seconds, and what to call at the end with the time at which it began."""

    cost_s: float
    done: Callable[[float], object]


class Server:
    """One server task.

    Parameters
    ----------
    seat
        Where it computes, if it shares a device with ranks, or cores with all. Else it has a processor of its own.

    Attributes
    ----------
    version
        Updates whose part on this server has been applied.
    name
        For results and traces.
    """

    def __init__(self, kernel: Kernel, index: int, seat: Seat | None) -> None:
        self.version = 0
        self.name = f"server {index}"
        self._kernel = kernel
        self._seat = seat
        self._queue: deque[Job] = deque()
        self._busy_s = 0.0
        self._busy_since = 0.0
        self._began_s = 0.0

    def submit(self, job: Job) -> None:
        """Queue a job."""
        self._queue.append(job)
        if len(self._queue) == 1:
            self._busy_since = self._kernel.now
            self._begin()

    def in_use_s(self, now: float) -> float:
        """Seconds in which the server has worked, up to now."""
        return self._busy_s + (now - self._busy_since if self._queue else 0.0)

    def _begin(self) -> None:
        cost_s = self._queue[0].cost_s
        self._began_s = self._kernel.now
        if cost_s <= 0:
            self._kernel.soon(self._end, None)
        elif self._seat is None:
            self._kernel.call_later(cost_s, self._end)
        else:
            self._seat(cost_s, self._end)

    def _end(self, _: Event | None) -> None:
        self._queue[0].done(self._began_s)  # which may queue more
        self._queue.popleft()
        if self._queue:
            self._begin()
        else:
            self._busy_s += self._kernel.now - self._busy_since
