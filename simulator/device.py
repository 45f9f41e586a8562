"""A device: computes for one replica, or shares itself equally among several."""

from __future__ import annotations

from collections.abc import Callable

from simpy.events import Event

from simulator.kernel import Kernel
from simulator.network import Network
from simulator.ports import Connection, Port

__all__ = ["Device"]


class Device:
    """One device.

    A shared device is a port whose capacity is one second of work a second: replicas
    that compute at the same time share it as connections share a link.

    Attributes
    ----------
    name
        For results and traces.
    """

    def __init__(self, kernel: Kernel, network: Network, index: int, *, shared: bool) -> None:
        self.name = f"device {index}"
        self._kernel = kernel
        self._network = network
        self._port = Port(self.name, 1.0) if shared else None
        self._busy_s = 0.0  # including what is left of the work in progress
        self._free_s = 0.0

    def seat(self) -> Callable[[float], Event]:
        """How one replica computes here: a call with seconds of work gives the event of its end."""
        if self._port is None:
            return self._alone
        connection = Connection((self._port,), 0.0)
        return lambda work_s: self._shared(connection, work_s)

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

    def in_use_s(self, now: float) -> float:
        """Seconds in which the device has computed, up to now."""
        if self._port is not None:
            return self._port.busy_until(now)
        return self._busy_s - max(self._free_s - now, 0.0)


def _end(done: Event) -> None:
    done.succeed()
