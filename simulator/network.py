"""Messages over links that are shared max-min fairly.

A connection carries its messages in order, one after the other. Connections that have
something to send share the ports that they cross max-min fairly, the fluid limit of
per-connection fair queueing. A message has arrived when its last byte has crossed, plus
the latency of the path.
"""

from __future__ import annotations

from heapq import heappop

from simpy.events import Event

from simulator.fairness import settle, settle_plain
from simulator.kernel import Kernel
from simulator.ports import Arrived, Connection, Port

__all__ = ["Network"]

_SAME_INSTANT = 1 + 1e-12
"""Messages of a port whose ends are this close, relative to its clock, end together."""


class Network:
    """Carries messages; keeps the wake-ups of all ports."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._dirty: dict[Port, None] = {}  # connections came or went, and the shares of several ports may change
        self._fresh: list[Connection] = []
        self._settling = False

    def send(self, connection: Connection, size: float, arrived: Arrived) -> None:
        """Queue a message of ``size`` bytes; ``arrived`` is called when its last byte is there."""
        queue = connection.queue
        queue.append((size, arrived))
        if len(queue) > 1:
            return
        now = self._kernel.now
        port = connection.only
        if port is not None and not port.foreign and not port.coupled:
            # nobody's share but this port's changes, and that at once
            if not port.active:
                port.busy_since = now
            port.active[connection] = None
            port.clock += port.rate * (now - port.updated)
            port.updated = now
            port.owned += 1
            port.rate = port.capacity / port.owned
            connection.bottleneck = port
            port.push(connection, port.clock + size)
            self._set_timer(port)
            return
        for port in connection.shared:
            if not port.active:
                port.busy_since = now
            port.active[connection] = None
            self._dirty[port] = None
        self._fresh.append(connection)
        self._settle_soon()

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
        touched = settle_plain(dirty, fresh, now)
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
        limit = front * _SAME_INSTANT
        ended: list[tuple[float, Arrived]] = []
        while heap and heap[0][0] <= limit:
            finish, serial, connection = heappop(heap)
            if connection.entry != serial or connection.bottleneck is not port:
                continue
            size, arrived = connection.queue.popleft()
            for crossed in connection.ports:
                crossed.carried += size
            ended.append((connection.latency_s, arrived))
            if connection.queue:
                port.push(connection, finish + connection.queue[0][0])
            else:
                self._deactivate(connection, port, now)
        if port in self._dirty:
            self._settle_soon()
        else:
            self._set_timer(port)
        for latency_s, arrived in ended:
            if latency_s:
                self._kernel.call_later(latency_s, arrived)
            else:
                arrived(None)

    def _deactivate(self, connection: Connection, owner: Port, now: float) -> None:
        """The connection has nothing left to send."""
        connection.bottleneck = None
        owner.owned -= 1
        if connection.only is owner and not owner.foreign and not owner.coupled:
            del owner.active[connection]
            if not owner.owned:
                owner.busy_s += now - owner.busy_since
                return
            rate = owner.capacity / owner.owned
            if rate <= owner.floor:
                owner.rate = rate
                return
            self._dirty[owner] = None
            return
        for port in connection.shared:
            del port.active[connection]
            port.foreign.pop(connection, None)
            if not port.active:
                port.busy_s += now - port.busy_since
            self._dirty[port] = None
