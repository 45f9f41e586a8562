"""The paths between one worker and the servers, and what travels on them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

from simpy.events import Event

from simulator.kernel import Kernel
from simulator.network.flows import Network
from simulator.network.ports import Arrived, Connection
from simulator.overlap import Overlap
from simulator.records import Observer, Transfer
from simulator.strategies.parameter_server.pacing import Client
from simulator.strategies.parameter_server.tensors import Gradient, Variable

__all__ = ["Lines", "Pull", "Wires"]


class Pull:
    """One reading of all variables: which have come."""

    __slots__ = ("_come", "_event", "_kernel", "_missing", "_wanted")

    def __init__(self, kernel: Kernel, count: int) -> None:
        self._kernel = kernel
        self._come = bytearray(count)
        self._wanted: Collection[int] = ()
        self._missing = 0
        self._event: Event | None = None

    def come(self, index: int) -> None:
        """A variable's last byte is in the worker's device."""
        self._come[index] = 1
        if self._event is not None and index in self._wanted:
            self._missing -= 1
            if not self._missing:
                event, self._event = self._event, None
                event.succeed()

    def need(self, indices: Collection[int]) -> Event | None:
        """The event that all of these have come; none if they have."""
        self._missing = len(indices) - sum(self._come[index] for index in indices)
        if not self._missing:
            return None
        self._wanted = indices
        self._event = self._kernel.event()
        return self._event


@dataclass(frozen=True, slots=True)
class Wires:
    """What all workers' lines go through."""

    kernel: Kernel
    network: Network
    observer: Observer | None


class Lines:
    """One worker's connections.

    Parameters
    ----------
    down, up
        From and to each server.
    into_device, out_of_device
        Between its host's memory and its device's, where that is a stage of its own.
    overlap
        Is told of every message, where it is of interest.
    """

    __slots__ = ("_down", "_into", "_out", "_overlap", "_up", "_wires", "_worker")

    def __init__(
        self,
        wires: Wires,
        worker: int,
        down: Sequence[Connection],
        up: Sequence[Connection],
        into_device: Connection | None,
        out_of_device: Connection | None,
        overlap: Overlap | None,
    ) -> None:
        self._wires = wires
        self._worker = worker
        self._down = down
        self._up = up
        self._into = into_device
        self._out = out_of_device
        self._overlap = overlap

    def pull(self, variables: Sequence[Variable], order: Sequence[int]) -> Pull:
        """Ask for all variables, in an order; each connection carries its own one after the other."""
        pull = Pull(self._wires.kernel, len(variables))
        for index in order:
            variable = variables[index]
            arrived: Callable[[Event | None], None] = partial(self._pulled, pull, index)
            if self._into is not None:
                arrived = partial(self._copy_in, variable, arrived)
            if self._overlap is not None:
                self._overlap.message(1)
            if self._wires.observer is None:
                self._wires.network.send(self._down[variable.server], variable.size_bytes, arrived)
            else:
                self._observed(self._down[variable.server], variable.size_bytes, arrived, f"server {variable.server}",
                               f"worker {self._worker}", f"pull {index}")  # fmt: skip
        return pull

    def push(self, gradient: Gradient, arrived: Arrived) -> None:
        """Send a gradient to its server."""
        if self._overlap is not None:
            self._overlap.message(1)
            arrived = partial(self._pushed, arrived)
        if self._out is None:
            self._send_up(gradient, arrived, None)
            return
        self._observed(self._out, gradient.size_bytes, partial(self._send_up, gradient, arrived), f"device {self._worker}",
                   f"host of worker {self._worker}", f"from device {gradient.index}")  # fmt: skip

    def feed(self, connection: Connection, client: Client) -> Event:
        """Get the input of a step from the client that feeds all workers; the event that it is there."""
        fed = self._wires.kernel.event()

        def send(_: Event | None) -> None:
            self._observed(connection, client.input_bytes, lambda _: _happen(fed), "client", f"worker {self._worker}", "input")

        client.prepare(send)
        return fed

    def _pulled(self, pull: Pull, index: int, _: Event | None) -> None:
        if self._overlap is not None:
            self._overlap.message(-1)
        pull.come(index)

    def _pushed(self, arrived: Arrived, event: Event | None) -> None:
        assert self._overlap is not None
        self._overlap.message(-1)
        arrived(event)

    def _copy_in(self, variable: Variable, arrived: Arrived, _: Event | None) -> None:
        assert self._into is not None
        self._observed(self._into, variable.size_bytes, arrived, f"host of worker {self._worker}", f"device {self._worker}",
                   f"to device {variable.index}")  # fmt: skip

    def _send_up(self, gradient: Gradient, arrived: Arrived, _: Event | None) -> None:
        if self._wires.observer is None:
            self._wires.network.send(self._up[gradient.server], gradient.size_bytes, arrived)
        else:
            self._observed(self._up[gradient.server], gradient.size_bytes, arrived, f"worker {self._worker}", f"server {gradient.server}",
                           f"push {gradient.index}")  # fmt: skip

    def _observed(self, connection: Connection, size_bytes: float, inner: Arrived, source: str, target: str, name: str) -> None:
        """Send a message; the observer, if there is one, is told when it has come."""
        kernel, observer, sent_s = self._wires.kernel, self._wires.observer, self._wires.kernel.now

        def arrived(event: Event | None) -> None:
            if observer is not None:
                observer.record(Transfer(source, target, name, size_bytes, sent_s, kernel.now))
            inner(event)

        self._wires.network.send(connection, size_bytes, arrived)


def _happen(event: Event) -> None:
    event.succeed()
