"""Parameter servers, each with a queue of gradients in order of arrival, and the making of servers and devices from a program.

In ``simulator.engine.compiled`` the counterparts are ``updates`` (``submit``, ``served``) of servers and ``tables`` of the making:
change them together (tests/property/test_engines_agree.py holds them equal). What becomes of gradients is in ``updates`` here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from simpy.events import Event

from simulator.engine.simpy.device import Device, Seat
from simulator.network.cores import Task
from simulator.network.flows import Network
from simulator.network.kernel import Kernel
from simulator.network.ports import Connection
from simulator.program.program import Program

__all__ = ["Job", "Server", "devices_of", "on_cores", "servers_of"]


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


def devices_of(kernel: Kernel, network: Network, program: Program, connections: Sequence[Connection]) -> list[Device]:
    """The devices, those that several use with their port."""
    its = program.devices
    seats = {
        device: connections[seat]
        for device, seat in zip(program.ranks.device.tolist(), program.ranks.seat.tolist(), strict=True)
        if seat >= 0
    }
    found = []
    for index in range(its.count):
        task = Task(network.cores, its.busy_core_slowdown) if its.on_cores and network.cores is not None else None
        port = seats[index].ports[0] if index in seats else None
        found.append(Device(kernel, network, index, port=port, task=task, slowdown=its.slowdown if port is None else 0.0))
    return found


def servers_of(kernel: Kernel, network: Network, program: Program, connections: Sequence[Connection]) -> list[Server]:
    """The servers, on the cores that all nodes share, or on workers' devices where host and device are one."""

    def seat_of(path: int) -> Seat | None:
        if path < 0:
            return on_cores(network) if program.servers.on_cores else None
        return lambda work_s, done: network.send(connections[path], work_s, done)

    return [Server(kernel, index, seat_of(path)) for index, path in enumerate(program.servers.seat.tolist())]


def on_cores(network: Network) -> Seat | None:
    """How a process works on the cores that all share; none if it has one of its own."""
    return Task(network.cores).work if network.cores is not None else None
