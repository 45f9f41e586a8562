"""Messages over links that are shared max-min fairly.

A connection carries its messages in order, one after the other. Connections that have
something to send share the ports that they cross max-min fairly, the fluid limit of
per-connection fair queueing. A message has arrived when its last byte has crossed, plus
the latency of the path.

Between nodes a transport may add to that: the hosts' work on each message, before it
is handed to its connection and after it has arrived; turns, so that a host begins only a given number of
messages at a time; a random weight for each message, or for all that a host asks for or
sends at the same time; one queue for all that cross a link, behind which later messages wait.

What others send (background traffic) changes what is left of ports: :meth:`Network.follow`.
``simulator.engine.compiled.flows`` does the same, compiled, with the same names: change both together
(tests/oracle/test_compiled_network.py holds them equal).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from heapq import heappop

import numpy as np
from numpy.typing import NDArray
from simpy.events import Event

from simulator.network.admission import Admission, Arrival
from simulator.network.cores import Cores, Task
from simulator.network.fairness import settle, settle_plain
from simulator.network.hosts import Host, Transfer
from simulator.network.kernel import Kernel
from simulator.network.ports import Arrived, Connection, Port, exact_weight
from simulator.network.queues import Queues
from simulator.program.program import Changes
from simulator.spec.transport import Transport

__all__ = ["SAME_INSTANT", "Network", "weights_of"]

SAME_INSTANT = 1 + 1e-12
"""Messages of a port whose ends are this close, relative to its clock, end together."""

_BLOCK = 256
_LARGEST_DEVIATION = 5.0
"""Standard deviations at which a weight is cut (one in two million), so that sums of weights stay exact."""


class _Noted:
    """Callbacks of one message: ``left`` when its last byte has left the sender, ``arrived`` after the latency of the path as well."""

    __slots__ = ("_arrived", "left")

    def __init__(self, left: Arrived, arrived: Arrived) -> None:
        self.left = left
        self._arrived = arrived

    def __call__(self, event: Event | None) -> None:
        """The message has arrived."""
        self._arrived(event)


class Network:
    """Carries messages; keeps the wake-ups of all ports.

    Parameters
    ----------
    kernel
        The environment.
    transport
        What messages between hosts cost beyond their bytes, and how they take turns; left out: nothing.
    rng
        Draws the weights of messages; needed for ``discipline = "weighted"`` only.
    cores
        The cores that all hosts share; none if each has its own.
    """

    def __init__(
        self,
        kernel: Kernel,
        transport: Transport | None = None,
        rng: np.random.Generator | None = None,
        cores: Cores | None = None,
    ) -> None:
        self.cores = cores
        self.kernel = self._kernel = kernel
        self._dirty: dict[Port, None] = {}  # connections came or went, and the shares of several ports may change
        self._fresh: list[Connection] = []
        self._settling = False
        self._changed = False  # background traffic has changed: a port that limited nobody may limit its connections now
        self._message_s = 0.0 if transport is None else transport.cpu_per_message_s
        self._copy_per_byte_s = 0.0 if transport is None else transport.copy_per_byte_s
        self._admission = None if transport is None or transport.at_a_time is None else Admission()
        self._admitting = False
        self._ending: Port | None = None
        self._weights: Iterator[float] | None = None
        if transport is not None and transport.weight_sigma is not None:
            assert rng is not None, "random weights need a random stream"
            self._weights = (weight for block in weights_of(transport.weight_sigma, rng) for weight in block.tolist())
        self._by_transfer = transport is not None and transport.weights_of == "transfer"
        self._queues: Queues | None = None
        if transport is not None and transport.queue_s is not None:
            assert transport.buffer_s is not None
            self._queues = Queues(transport.queue_s, transport.buffer_s, transport.requests_per_pull)
        self._begins_anew = self._admission is not None or self._weights is not None

    def send(self, connection: Connection, size: float, arrived: Arrived, left: Arrived | None = None, *, tensors: float = 1.0) -> None:
        """Queue a message of ``size`` bytes; ``arrived`` is called when its last byte is there, ``left`` when it has left the sender.

        Hosts work on each of its ``tensors``.
        """
        if connection.source is not None:
            self._send_by_hosts(connection, size, tensors, arrived, left)
            return
        if left is not None:
            arrived = _Noted(left, arrived)
        if connection.arrived is not None:
            if connection.later is None:
                connection.later = deque()
            connection.later.append((size, arrived, None))
            return
        connection.size = size
        connection.arrived = arrived
        port = connection.only
        if port is not None and not port.foreign and not port.coupled:
            # nobody's share but this port's changes, and that at once
            port.join(connection, self._kernel.now)
            self._set_timer(port)
        else:
            self._share_with(connection)

    def _begin(self, connection: Connection) -> None:
        """The message in front begins to cross its ports."""
        port = connection.only
        if port is not None and not port.foreign and not port.coupled:
            port.join(connection, self._kernel.now)
            if port is not self._ending:  # its wake-up is set once all that ends has ended
                self._set_timer(port)
        else:
            self._share_with(connection)

    def _share_with(self, connection: Connection) -> None:
        """The connection has something to send, and the shares of several ports may change."""
        for port in connection.shared:
            if not port.active:
                port.wake(self._kernel.now)
            port.active[connection] = None
            port.load += connection.weight
            self._dirty[port] = None
        self._fresh.append(connection)
        self._settle_soon()

    # -- between hosts ---------------------------------------------------------------

    def _send_by_hosts(self, connection: Connection, size: float, tensors: float, arrived: Arrived, left: Arrived | None) -> None:
        source, target = connection.source, connection.target
        assert source is not None
        assert target is not None
        work_s = self._message_s * tensors + self._copy_per_byte_s * size
        if not work_s:
            self._stand_for_link(connection, size, arrived if left is None else _Noted(left, arrived))
            return

        def received(_: Event | None) -> None:
            self._work(target, work_s, arrived)

        crossed: Arrived = received if left is None else _Noted(left, received)
        self._work(source, work_s, lambda _: self._stand_for_link(connection, size, crossed))

    def _work(self, host: Host, work_s: float, done: Arrived) -> None:
        """A host works on a message, after those that came to it before."""
        if self.cores is None:
            self._kernel.call_later(host.occupy(self._kernel.now, work_s), done)
            return
        if host.task is None:
            host.task = Task(self.cores)
        host.task.work(work_s, done)

    def _stand_for_link(self, connection: Connection, size: float, arrived: Arrived) -> None:
        arrival = None if self._admission is None else self._admission.arrival(self._kernel.instant, connection)
        if connection.arrived is not None:
            if connection.later is None:
                connection.later = deque()
            connection.later.append((size, arrived, arrival))
            return
        connection.size = size
        connection.arrived = arrived
        self._prepare(connection, arrival, follows=False)

    def _prepare(self, connection: Connection, arrival: Arrival | None, *, follows: bool) -> None:
        """A message between hosts is in front: it draws its weight, and begins once it has its turns.

        One that follows another on its connection has its data in the queues already, behind that one's.
        """
        if self._weights is not None:
            connection.weight = self._weight_in_transfer(connection, self._weights) if self._by_transfer else next(self._weights)
        if self._queues is not None:
            self._wait_in_queues(connection, self._queues, follows=follows)
        elif self._admission is None:
            self._begin(connection)
        else:
            assert arrival is not None
            self._admission.ask(connection, arrival)
            self._admit_soon()

    def _weight_in_transfer(self, connection: Connection, weights: Iterator[float]) -> float:
        """The weight of the transfer that the message in front belongs to; the first message of a transfer draws it."""
        transfer = _transfer_of(connection)
        if not transfer.messages:
            transfer.weight = next(weights)
        transfer.messages += 1
        return transfer.weight

    def _wait_in_queues(self, connection: Connection, queues: Queues, *, follows: bool) -> None:
        """The message in front waits behind what others have queued, then begins."""

        def begin(_: Event | None) -> None:
            queues.begin(connection, self._kernel.now)
            self._begin(connection)

        wait_s = 0.0 if follows else queues.wait_s(connection, self._kernel.now)
        if wait_s:
            self._kernel.call_later(wait_s, begin)
        else:
            begin(None)

    def _has_crossed(self, connection: Connection) -> None:
        """The last byte of a message between hosts has crossed the ports."""
        if self._queues is not None:
            self._queues.end(connection, self._kernel.now)
        if self._admission is not None:
            self._admission.give_back(connection)
            self._admit_soon()
        if connection.later is not None:
            connection.size, connection.arrived, arrival = connection.later.popleft()
            if not connection.later:
                connection.later = None
            self._prepare(connection, arrival, follows=True)
        if self._by_transfer:  # after the next message of the connection has joined it
            _transfer_of(connection).messages -= 1

    def _admit_soon(self) -> None:
        if not self._admitting:
            self._admitting = True
            self._kernel.at_end_of_instant(self._admit)

    def _admit(self) -> None:
        assert self._admission is not None
        self._admitting = False
        for connection in self._admission.decide():
            self._begin(connection)

    # -- what others take ------------------------------------------------------------

    def follow(self, ports: Sequence[Port], changes: Changes) -> None:
        """Have what others take from ports change, from now on."""
        changing = [ports[port] for port in changes.port.tolist()]
        columns = changes.at_s.tolist(), changes.left.tolist(), changes.beside.tolist()
        for port in changing:
            port.changing = True
        self._next_change(changing, columns, changes.repeat_s, 1, 0.0)

    def _next_change(
        self, ports: list[Port], columns: tuple[list[float], ...], repeat_s: float | None, number: int, since_s: float
    ) -> None:
        """Wait for a change, of a trace that began at ``since_s``."""
        at_s, left, beside = columns
        if number == len(at_s):
            if repeat_s is None:
                return
            number, since_s = 0, since_s + repeat_s

        def change(_: Event | None) -> None:
            for port in ports:
                port.leave(left[number], beside[number])
                if port.active:
                    self._dirty[port] = None
            if self._dirty:
                self._changed = True
                self._settle_soon()
            if not self._kernel.idle:  # else nothing is left that could ever happen
                self._next_change(ports, columns, repeat_s, number + 1, since_s)

        self._kernel.call_later(max(since_s + at_s[number] - self._kernel.now, 0.0), change)

    # -- shares and ends -------------------------------------------------------------

    def _settle_soon(self) -> None:
        if not self._settling:
            self._settling = True
            self._kernel.at_end_of_instant(self._settle)

    def _settle(self) -> None:
        """Share anew after all changes of this instant."""
        self._settling = False
        dirty, fresh = self._dirty, self._fresh
        self._dirty, self._fresh = {}, []
        now = self._kernel.now
        touched = None if self._changed else settle_plain(dirty, fresh, now)
        self._changed = False
        for port in settle(dirty, fresh, now) if touched is None else touched:
            self._set_timer(port)

    def _set_timer(self, port: Port) -> None:
        """Wake up when the port's next message ends at its present rate."""
        port.timer = timer = port.timer + 1
        now = self._kernel.now
        front = port.front()
        if front is None:
            port.clock, port.updated, port.rate = 0.0, now, 0.0
            return
        port.clock += port.rate * (now - port.updated)
        port.updated = now
        wait_s = (front - port.clock) / port.rate
        self._kernel.call_later(wait_s if wait_s > 0 else 0.0, self._end_messages, (port, timer))

    def _end_messages(self, event: Event) -> None:
        """End the messages whose time has come; begin the next ones of their connections."""
        port, timer = event._value
        if port.timer != timer:
            return  # the rate has changed since; another wake-up is set
        now = self._kernel.now
        heap = port.heap
        front = heap[0][0]
        # the clock stands where the first message ends, without the rounding of rate x time
        port.clock, port.updated = front, now
        limit = front * SAME_INSTANT
        ended: list[tuple[float, Arrived]] = []
        crossed: list[Connection] = []  # whose next message begins anew
        while heap and heap[0][0] <= limit:
            finish, serial, connection = heappop(heap)
            if connection.entry != serial or connection.bottleneck is not port:
                continue
            size = connection.size
            for each in connection.ports:
                each.carried += size
            ended.append((connection.latency_s, connection.arrived))
            if self._begins_anew and connection.source is not None:
                crossed.append(connection)
            elif connection.later is not None:
                connection.size, connection.arrived, _ = connection.later.popleft()
                if not connection.later:
                    connection.later = None
                port.push(connection, finish + connection.size / connection.weight)
                continue
            connection.arrived = None
            self._deactivate(connection, port, now)
        if crossed:
            self._ending = port
            for connection in crossed:
                self._has_crossed(connection)
            self._ending = None
        if port in self._dirty:
            self._settle_soon()
        else:
            self._set_timer(port)
        for latency_s, arrived in ended:
            if type(arrived) is _Noted:
                self._kernel.soon(arrived.left, None)
            if latency_s:
                self._kernel.call_later(latency_s, arrived)
            else:
                self._kernel.soon(arrived, None)

    def _deactivate(self, connection: Connection, owner: Port, now: float) -> None:
        """The connection has nothing left to send."""
        connection.bottleneck = None
        weight = connection.weight
        owner.owned -= weight
        if connection.only is owner and not owner.foreign and not owner.coupled:
            del owner.active[connection]
            owner.load -= weight
            if not owner.active:
                owner.busy_s += now - owner.busy_since
                owner.owned = owner.load = owner.beside
            elif owner.owned:
                rate = owner.capacity / owner.owned if owner.limits is None else owner.level_of(owner.available(), owner.owned)
                if rate <= owner.floor:
                    owner.rate = rate
                else:
                    self._dirty[owner] = None
            return  # or others are about to begin on it, which is settled at the end of this instant
        for port in connection.shared:
            del port.active[connection]
            port.foreign.pop(connection, None)
            port.load -= weight
            if not port.active:
                port.busy_s += now - port.busy_since
                port.owned = port.load = port.beside
            self._dirty[port] = None


def _transfer_of(connection: Connection) -> Transfer:
    """The transfer of its messages: of the host that asked for them, else of the one that sends them."""
    source, target = connection.source, connection.target
    assert source is not None
    assert target is not None
    return target.asked if connection.asked_for else source.sent


def weights_of(sigma: float, rng: np.random.Generator) -> Iterator[NDArray[np.float64]]:
    """Endless lognormal weights of median 1, exact as :func:`exact_weight` has it, in blocks."""
    while True:
        deviations = rng.standard_normal(_BLOCK).clip(-_LARGEST_DEVIATION, _LARGEST_DEVIATION)
        yield np.array([exact_weight(weight) for weight in np.exp(sigma * deviations).tolist()])
