"""Ports (one direction of a link) and the connections that cross them.

A connection gets the rate of its *bottleneck*, the port that owns it. A port keeps a
virtual clock, the bytes that each connection it owns has been given so far, and a heap of
the clock readings at which their messages end: a change of rate touches the port, not
its connections.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from heapq import heappop, heappush

from simpy.events import Event

__all__ = ["Arrived", "Connection", "Port", "leave_out_ample"]

Arrived = Callable[[Event | None], None]
"""Called when a message's last byte has arrived."""


class Port:
    """One direction of a link: a capacity that connections share.

    Attributes
    ----------
    name
        For results and traces.
    capacity
        Bytes per second; of a device, seconds of work per second.
    active
        Connections that have something to send over it.
    owned
        How many of them it is the bottleneck of.
    foreign
        Those that it is not the bottleneck of.
    rate
        What each owned connection gets.
    carried
        Bytes carried so far, counted when a message ends.
    """

    __slots__ = (
        "active", "busy_s", "busy_since", "capacity", "carried", "clock", "coupled", "floor",
        "foreign", "heap", "name", "owned", "rate", "serial", "timer", "updated",
    )  # fmt: skip

    def __init__(self, name: str, capacity: float) -> None:
        self.name = name
        self.capacity = capacity
        self.active: dict[Connection, None] = {}
        self.foreign: dict[Connection, None] = {}
        self.owned = 0
        self.rate = 0.0
        self.clock = 0.0  # bytes given to each owned connection so far
        self.updated = 0.0  # when the clock was last brought up to date
        self.heap: list[tuple[float, int, Connection]] = []
        self.serial = 0
        self.timer = 0  # number of the wake-up that counts; earlier ones are stale
        self.floor = math.inf  # while rate is at most this, ports not in coupled need no second look
        self.coupled: dict[Port, None] = {}  # ports to look at again whenever rate changes
        self.carried = 0.0
        self.busy_s = 0.0
        self.busy_since = 0.0

    @property
    def equal_share(self) -> float:
        """Capacity over active connections."""
        return self.capacity / len(self.active)

    def busy_until(self, now: float) -> float:
        """Seconds in which the port was in use, up to now."""
        return self.busy_s + (now - self.busy_since if self.active else 0.0)

    def in_use_s(self, now: float) -> float:
        """Seconds of the whole capacity that the bytes carried up to now stand for."""
        del now  # bytes are counted when a message ends
        return self.carried / self.capacity

    def catch_up(self, now: float) -> None:
        """Bring the clock up to date."""
        self.clock += self.rate * (now - self.updated)
        self.updated = now

    def adopt(self, connection: Connection, remaining: float, now: float) -> None:
        """Become the bottleneck of an active connection that owns nowhere, with so many bytes left of its message."""
        self.catch_up(now)
        self.owned += 1
        self.foreign.pop(connection, None)
        connection.bottleneck = self
        self.push(connection, self.clock + remaining)

    def push(self, connection: Connection, finish: float) -> None:
        """Note when, by this port's clock, the connection's message in front ends."""
        self.serial += 1
        connection.entry = self.serial
        connection.finish = finish
        heappush(self.heap, (finish, self.serial, connection))

    def release(self, connection: Connection, now: float) -> float:
        """Stop being the bottleneck of a connection that stays active; bytes left of its message."""
        self.catch_up(now)
        self.owned -= 1
        self.foreign[connection] = None
        return max(connection.finish - self.clock, 0.0)

    def front(self) -> float | None:
        """The clock reading at which the next message ends; none if nothing is owned."""
        heap = self.heap
        while heap:
            finish, serial, connection = heap[0]
            if connection.entry == serial and connection.bottleneck is self:
                return finish
            heappop(heap)  # it has another bottleneck since
        return None


class Connection:
    """Messages in order over a fixed path: one TCP connection, or one stream of a device link.

    Attributes
    ----------
    ports
        What it crosses, each once.
    shared
        Those of them that may become full, and so are shared; the others only count bytes.
    only
        The shared port, if it is but one.
    latency_s
        Of the whole path; it delays a message without occupying the path.
    queue
        Size and callback of each message not yet sent to its end.
    """

    __slots__ = ("bottleneck", "entry", "finish", "latency_s", "only", "ports", "queue", "shared")

    def __init__(self, ports: tuple[Port, ...], latency_s: float) -> None:
        self.ports = ports
        self.shared = ports
        self.only = ports[0] if len(ports) == 1 else None
        self.latency_s = latency_s
        self.bottleneck: Port | None = None
        self.finish = 0.0
        self.entry = 0  # number of the bottleneck's heap entry that counts
        self.queue: deque[tuple[float, Arrived]] = deque()


def leave_out_ample(connections: Iterable[Connection]) -> None:
    """Take out of the sharing every port that can never be full.

    A port is ample if all connections that will ever cross it, each as fast as its other
    shared ports allow, fit into its capacity. ``connections`` must be all there are.
    """
    crossing: dict[Port, list[Connection]] = {}
    for connection in connections:
        for port in connection.ports:
            crossing.setdefault(port, []).append(connection)
    for port, users in sorted(crossing.items(), key=lambda item: len(item[1])):
        most = sum(min((other.capacity for other in user.shared if other is not port), default=math.inf) for user in users)
        if most <= port.capacity:
            for user in users:
                user.shared = tuple(other for other in user.shared if other is not port)
                user.only = user.shared[0] if len(user.shared) == 1 else None
