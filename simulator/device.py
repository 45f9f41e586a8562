"""A device: computes for one replica, or shares itself equally among several."""

from __future__ import annotations

from collections.abc import Callable

from simpy.events import Event

from simulator.cores import Task
from simulator.kernel import Kernel
from simulator.network.flows import Network
from simulator.network.ports import Connection, Port

__all__ = ["Device"]


class Device:
    """One device.

    A shared device is a port whose capacity is one second of work a second: whoever
    computes on it at the same time shares it as connections share a link. One that is a
    CPU of a machine on which all nodes run is one task on its cores.

    Parameters
    ----------
    shared
        Whether several replicas, or a replica and a parameter server, use it.
    on_cores
        Whether its work takes place on the cores that all nodes share; of a device that is not shared.
    slowdown
        Share by which work takes longer while the device communicates; of a device that is not shared.
    busy_core_slowdown
        On the cores: share by which work takes longer for each other core that is busy.

    Attributes
    ----------
    name
        For results and traces.
    """

    __slots__ = ("_busy_s", "_done", "_flights", "_free_s", "_kernel", "_left_s", "_network", "_port", "_since_s", "_task", "_turn",
                 "name", "slowdown")  # fmt: skip

    def __init__(
        self,
        kernel: Kernel,
        network: Network,
        index: int,
        *,
        shared: bool,
        on_cores: bool = False,
        slowdown: float = 0.0,
        busy_core_slowdown: float = 0.0,
    ) -> None:
        self.name = f"device {index}"
        self.slowdown = slowdown
        self._kernel = kernel
        self._network = network
        self._port = Port(self.name, 1.0) if shared else None
        self._task = Task(network.cores, busy_core_slowdown) if on_cores and network.cores is not None else None
        self._busy_s = 0.0  # including what is left of the work in progress
        self._free_s = 0.0
        self._flights = 0
        # of the work in progress, where its speed may change
        self._since_s = 0.0
        self._left_s = 0.0
        self._turn = 0
        self._done: Event | None = None

    def seat(self) -> Callable[[float], Event]:
        """How one replica computes here: a call with seconds of work gives the event of its end."""
        if self._task is not None:
            return self._task.event
        if self._port is not None:
            connection = Connection((self._port,), 0.0)
            return lambda work_s: self._shared(connection, work_s)
        return self._stretched if self.slowdown else self._alone

    def cancel(self) -> None:
        """Stop the work in progress, which a replica that has the device to itself no longer waits for."""
        now = self._kernel.now
        if self._free_s > now:
            self._busy_s -= self._free_s - now
            self._free_s = now
        self._turn += 1
        self._done = None

    def _alone(self, work_s: float) -> Event:
        self._busy_s += work_s
        self._free_s = self._kernel.now + work_s
        return self._kernel.timeout(work_s)

    def _shared(self, connection: Connection, work_s: float) -> Event:
        done = self._kernel.event()
        if work_s > 0:
            self._network.send(connection, work_s, lambda _: _end(done))
        else:
            done.succeed()
        return done

    # -- compute that communication slows down ----------------------------------------

    def _stretched(self, work_s: float) -> Event:
        self._done = self._kernel.event()
        self._left_s = work_s
        self._since_s = self._kernel.now
        self._schedule()
        return self._done

    def _schedule(self) -> None:
        """Wake up when the work in progress ends at the present speed."""
        self._turn = turn = self._turn + 1
        wait_s = self._left_s * (1.0 + self.slowdown if self._flights else 1.0)
        now = self._kernel.now
        self._busy_s += wait_s - max(self._free_s - now, 0.0)
        self._free_s = now + wait_s
        self._kernel.call_later(wait_s, self._ended, turn)

    def _ended(self, event: Event) -> None:
        done = self._done
        if event._value == self._turn and done is not None:
            self._done = None
            done.succeed()

    def communicate(self, change: int) -> None:
        """Messages of the replica that came on their way (1) or ended (-1)."""
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


def _end(done: Event) -> None:
    done.succeed()
