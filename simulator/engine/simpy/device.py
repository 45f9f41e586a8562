"""A device: computes for one rank, or shares itself equally among several.

``simulator.engine.compiled.device`` does the same, compiled: change both together (tests/property/test_engines_agree.py holds
them equal). How long a compute takes is decided in ``engine``.
"""

from __future__ import annotations

from collections.abc import Callable

from simpy.events import Event

from simulator.network.cores import Task
from simulator.network.flows import Network
from simulator.network.kernel import Kernel
from simulator.network.ports import Connection, Port

__all__ = ["Device", "Done", "Overlap", "Seat"]

Done = Callable[[Event | None], None]
"""Called when work has ended."""

Seat = Callable[[float, Done], None]
"""How one rank, or a server, works on a device: seconds of work, and what to call at their end."""


class Device:
    """One device.

    A shared device is a port whose capacity is one second of work a second: whoever
    computes on it at the same time shares it as connections share a link. One that is a
    CPU of a machine on which all nodes run is one task on its cores.

    Parameters
    ----------
    port
        Of a device that several ranks, or a rank and a server, use.
    task
        Of a device whose work takes place on the cores that all nodes share.
    slowdown
        Share by which work takes longer while the device communicates; of a device that is not shared.

    Attributes
    ----------
    name
        For results and traces.
    """

    __slots__ = ("_busy_s", "_done", "_flights", "_free_s", "_kernel", "_left_s", "_network", "_port", "_since_s", "_task", "_turn",
                 "name", "slowdown")  # fmt: skip

    def __init__(
        self, kernel: Kernel, network: Network, index: int, *, port: Port | None = None, task: Task | None = None, slowdown: float = 0.0
    ) -> None:
        self.name = f"device {index}"
        self.slowdown = slowdown
        self._kernel = kernel
        self._network = network
        self._port = port
        self._task = task
        self._busy_s = 0.0  # including what is left of the work in progress
        self._free_s = 0.0
        self._flights = 0
        # of the work in progress, where it may be cancelled or its speed may change
        self._since_s = 0.0
        self._left_s = 0.0
        self._turn = 0
        self._done: Done | None = None

    def seat(self, connection: Connection | None) -> Seat:
        """How one rank computes here; ``connection`` is its own over the port of a shared device."""
        if self._task is not None:
            return self._on_cores
        if connection is not None:
            return lambda work_s, done: self._shared(connection, work_s, done)
        return self._stretched if self.slowdown else self._alone

    def cancel(self) -> None:
        """Stop the work in progress of a rank that has the device to itself."""
        now = self._kernel.now
        if self._free_s > now:
            self._busy_s -= self._free_s - now
            self._free_s = now
        self._turn += 1
        self._done = None

    def _alone(self, work_s: float, done: Done) -> None:
        self._busy_s += work_s
        self._free_s = self._kernel.now + work_s
        self._done = done
        self._turn = turn = self._turn + 1
        if work_s > 0:
            self._kernel.call_later(work_s, self._wake, turn)
        else:
            self._kernel.soon(self._end, turn)

    def _shared(self, connection: Connection, work_s: float, done: Done) -> None:
        if work_s > 0:
            self._network.send(connection, work_s, done)
        else:
            self._kernel.soon(done, None)

    def _on_cores(self, work_s: float, done: Done) -> None:
        assert self._task is not None
        if work_s > 0:
            self._task.work(work_s, done)
        else:
            self._kernel.soon(done, None)

    def _wake(self, event: Event) -> None:
        self._end(event._value)

    def _end(self, turn: int) -> None:
        done = self._done
        if turn == self._turn and done is not None:  # else cancelled, or its speed has changed since
            self._done = None
            done(None)

    # -- compute that communication slows down ----------------------------------------

    def _stretched(self, work_s: float, done: Done) -> None:
        self._done = done
        self._left_s = work_s
        self._since_s = self._kernel.now
        self._schedule()

    def _schedule(self) -> None:
        """Wake up when the work in progress ends at the present speed."""
        self._turn = turn = self._turn + 1
        wait_s = self._left_s * (1.0 + self.slowdown if self._flights else 1.0)
        now = self._kernel.now
        self._busy_s += wait_s - max(self._free_s - now, 0.0)
        self._free_s = now + wait_s
        if wait_s > 0:
            self._kernel.call_later(wait_s, self._wake, turn)
        else:
            self._kernel.soon(self._end, turn)

    def communicate(self, change: int) -> None:
        """Messages of the rank that came on their way (1) or ended (-1)."""
        before, self._flights = self._flights, self._flights + change
        if self.slowdown and self._done is not None and (before == 0) != (self._flights == 0):
            now = self._kernel.now
            speed = 1.0 / (1.0 + self.slowdown) if before else 1.0
            self._left_s = max(self._left_s - (now - self._since_s) * speed, 0.0)
            self._since_s = now
            self._schedule()

    def in_use_s(self, now: float) -> float:
        """Seconds in which the device has computed, up to now; on shared cores, in which it had something to."""
        if self._task is not None:
            return self._task.in_use_s(now)
        if self._port is not None:
            return self._port.busy_until(now)
        return self._busy_s - max(self._free_s - now, 0.0)


class Overlap:
    """Follows one replica's messages and its compute.

    Attributes
    ----------
    hidden_s
        Seconds so far in which it computed while at least one of its messages was on its way.
    """

    __slots__ = ("_computing", "_device", "_flights", "_hidden_s", "_kernel", "_since_s")

    def __init__(self, kernel: Kernel, device: Device) -> None:
        self._kernel = kernel
        self._device = device
        self._computing = False
        self._flights = 0
        self._since_s = 0.0
        self._hidden_s = 0.0

    def _catch_up(self) -> None:
        now = self._kernel.now
        if self._computing and self._flights:
            self._hidden_s += now - self._since_s
        self._since_s = now

    def compute(self, computing: bool) -> None:
        """The replica begins or stops to compute."""
        self._catch_up()
        self._computing = computing

    def message(self, change: int) -> None:
        """A message is on its way (1), or has come (-1)."""
        self._catch_up()
        self._flights += change
        self._device.communicate(change)

    def take(self) -> float:
        """Seconds hidden since this was last asked."""
        self._catch_up()
        hidden_s, self._hidden_s = self._hidden_s, 0.0
        return hidden_s
