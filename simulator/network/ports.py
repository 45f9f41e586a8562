"""Ports (one direction of a link) and the connections that cross them.

A connection gets the rate of its *bottleneck*, the port that owns it, times its own weight. A port keeps a virtual clock, the
bytes per unit of weight that each connection it owns has been given so far, and a heap of the clock readings at which their
messages end: a change of rate touches the port, not its connections. Which port owns whom is decided in ``fairness``.

Sums of weights are exact, so that a port that lost its last connection has a sum of 0 and an order of arrivals leaves no trace:
weights are multiples of 2**-24.

``simulator.engine.compiled.ports``, and ``ample`` for :func:`leave_out_ample`, do the same, compiled: change both together
(tests/oracle/test_compiled_network.py holds them equal).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

from simpy.events import Event

from simulator.network.hosts import Host
from simulator.program.port_names import PortName

__all__ = ["Arrived", "Connection", "Limits", "Port", "exact_weight", "leave_out_ample"]

Arrived = Callable[[Event | None], None]
"""Called when a message's last byte has arrived."""

_UNIT = 2.0**-24


def exact_weight(weight: float) -> float:
    """The nearest weight whose sums have no rounding (up to sums of 2**29): a multiple of 2**-24, at least one."""
    return max(round(weight / _UNIT), 1) * _UNIT


class Port:
    """One direction of a link: a capacity that connections share.

    Attributes
    ----------
    name
        For results and traces.
    capacity
        Bytes per second that are left for us; of a device, seconds of work per second.
    nominal
        What it has where nobody else uses it.
    beside
        Flows of others that always share it: their weight is in ``load`` and ``owned`` from the beginning.
    changing
        Whether what others take from it changes.
    limits
        What keeps it from giving all of that; none for most.
    active
        Connections that have something to send over it.
    load
        Sum of their weights.
    owned
        Sum of the weights of those that it is the bottleneck of.
    foreign
        Those that it is not the bottleneck of.
    rate
        What each owned connection gets per unit of its weight.
    carried
        Bytes carried so far, counted when a message ends.
    """

    __slots__ = (
        "active", "beside", "busy_s", "busy_since", "capacity", "carried", "changing", "clock", "coupled", "floor",
        "foreign", "heap", "limits", "load", "name", "nominal", "owned", "rate", "serial", "timer", "updated",
    )  # fmt: skip

    def __init__(
        self, name: str | PortName, capacity: float, limits: Limits | None = None, *, nominal: float | None = None, beside: float = 0.0
    ) -> None:
        self.name = name
        self.capacity = capacity
        self.nominal = capacity if nominal is None else nominal
        self.beside = beside
        self.changing = False
        self.limits = limits
        # containers are made when first filled: most ports of a large cluster never are
        self.active: dict[Connection, None] = _NOBODY
        self.foreign: dict[Connection, None] = _NOBODY
        self.load = beside
        self.owned = beside
        self.rate = 0.0
        self.clock = 0.0  # bytes given to each owned connection so far, per unit of its weight
        self.updated = 0.0  # when the clock was last brought up to date
        self.heap: list[tuple[float, int, Connection]] = _NOTHING
        self.serial = 0
        self.timer = 0  # number of the wake-up that counts; earlier ones are stale
        self.floor = math.inf  # while rate is at most this, ports not in coupled need no second look
        self.coupled: dict[Port, None] = _NO_PORTS  # ports to look at again whenever rate changes
        self.carried = 0.0
        self.busy_s = 0.0
        self.busy_since = 0.0

    # -- how much it can give --------------------------------------------------------

    def available(self) -> float:
        """Bytes per second that it gives its active connections together."""
        return self.capacity if self.limits is None else self.limits.capacity(self.capacity, len(self.active))

    def level_of(self, left: float, weight: float) -> float:
        """Rate per unit of weight where connections of so much weight share what is left of the capacity."""
        level = left / weight
        return level if self.limits is None or level <= self.limits.ceiling else self.limits.ceiling

    def equal_share(self) -> float:
        """Rate per unit of weight if it is the bottleneck of all its active connections."""
        return self.capacity / self.load if self.limits is None else self.level_of(self.available(), self.load)

    def most(self, weight: float) -> float:
        """Bytes per second of a connection of this weight that has the port to itself, at any time."""
        capacity = self.nominal if self.changing else self.capacity
        return capacity if self.limits is None else min(capacity, self.limits.ceiling * weight)

    # -- its use ---------------------------------------------------------------------

    def busy_until(self, now: float) -> float:
        """Seconds in which the port was in use, up to now."""
        return self.busy_s + (now - self.busy_since if self.active else 0.0)

    def in_use_s(self, now: float) -> float:
        """Seconds of the whole capacity that the bytes carried up to now stand for; where incast eats into it, seconds in use."""
        if self.limits is not None and self.limits.incast_loss:
            return self.busy_until(now)
        # bytes are counted when a message ends
        return self.carried / self.nominal

    # -- others ----------------------------------------------------------------------

    def leave(self, left: float, beside: float) -> None:
        """Others take another part of it from now on: so much of the whole capacity is left, which that many of their flows share."""
        self.capacity = self.nominal * left
        more = beside - self.beside
        self.beside = beside
        self.load += more
        self.owned += more

    # -- who is active ---------------------------------------------------------------

    def join(self, connection: Connection, now: float) -> None:
        """A connection has something to send, this port owns all its others, and no other port is concerned."""
        if not self.active:
            self.wake(now)
        weight = connection.weight
        self.active[connection] = None
        self.load += weight
        self.clock = clock = self.clock + self.rate * (now - self.updated)
        self.updated = now
        self.owned = owned = self.owned + weight
        self.rate = self.capacity / owned if self.limits is None else self.level_of(self.available(), owned)
        connection.bottleneck = self
        # what push() does, without the call: most messages come this way
        connection.entry = serial = self.serial = self.serial + 1
        connection.finish = finish = clock + connection.size / weight
        heappush(self.heap, (finish, serial, connection))

    def wake(self, now: float) -> None:
        """It is about to get its first active connection."""
        self.busy_since = now
        if self.active is _NOBODY:
            self.active = {}
            self.heap = []

    # -- whom it owns ----------------------------------------------------------------

    def catch_up(self, now: float) -> None:
        """Bring the clock up to date."""
        self.clock += self.rate * (now - self.updated)
        self.updated = now

    def adopt(self, connection: Connection, remaining: float, now: float) -> None:
        """Become the bottleneck of an active connection that owns nowhere; ``remaining`` bytes per unit of weight are left to send."""
        self.catch_up(now)
        self.owned += connection.weight
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
        """Stop being the bottleneck of a connection that stays active; bytes per unit of weight left to send."""
        self.catch_up(now)
        self.owned -= connection.weight
        self.disown(connection)
        return max(connection.finish - self.clock, 0.0)

    def disown(self, connection: Connection) -> None:
        """Note that another port is the bottleneck of an active connection."""
        if self.foreign is _NOBODY:
            self.foreign = {}
        self.foreign[connection] = None

    def couple(self, port: Port) -> None:
        """Have another port looked at whenever this one's rate changes."""
        if self.coupled is _NO_PORTS:
            self.coupled = {}
        self.coupled[port] = None

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
    weight
        Its share of a port relative to other connections, with the message in front.
    source, target
        The hosts at its ends, where they delay messages or draw weights for them; else none.
    size, arrived
        Bytes and callback of the message in front; the callback is none if there is no message.
    asked_for
        Whether its messages are answers to requests that go the other way.
    later
        The messages after it; none if there are none.
    number
        Its place in the table of paths.
    """

    __slots__ = (
        "arrived",
        "asked_for",
        "bottleneck",
        "entry",
        "finish",
        "latency_s",
        "later",
        "number",
        "only",
        "ports",
        "shared",
        "size",
        "source",
        "target",
        "weight",
    )  # fmt: skip

    def __init__(
        self, ports: tuple[Port, ...], latency_s: float, *, source: Host | None = None, target: Host | None = None, weight: float = 1.0
    ) -> None:
        self.ports = ports
        self.shared = ports
        self.only = ports[0] if len(ports) == 1 else None
        self.latency_s = latency_s
        self.weight = 1.0 if weight == 1.0 else exact_weight(weight)
        self.source = source
        self.target = target
        self.bottleneck: Port | None = None
        self.finish = 0.0
        self.entry = 0  # number of the bottleneck's heap entry that counts
        self.size = 0.0
        self.arrived: Arrived | None = None
        self.asked_for = False
        self.number = 0
        # a queue of its own only where messages wait: an empty deque is four times the size of a connection
        self.later: deque[tuple[float, Arrived, Any]] | None = None


_NOBODY: dict[Connection, None] = {}
_NO_PORTS: dict[Port, None] = {}
_NOTHING: list[tuple[float, int, Connection]] = []


def leave_out_ample(connections: Iterable[Connection]) -> None:
    """Take out of the sharing every port that can never be full.

    A port is ample if all connections that will ever cross it, each as fast as its other
    shared ports allow, fit into its capacity. ``connections`` must be all there are.
    """
    crossing: dict[Port, list[Connection]] = {}
    for connection in connections:
        for port in connection.ports:
            crossing.setdefault(port, []).append(connection)
    paths: dict[tuple[Port, ...], tuple[Port, ...]] = {}
    for port, users in sorted(crossing.items(), key=lambda item: len(item[1])):
        if not _is_ample(port, users):
            continue
        for user in users:
            shared = tuple(other for other in user.shared if other is not port)
            user.shared = paths.setdefault(shared, shared)  # thousands of connections have the same
            user.only = shared[0] if len(shared) == 1 else None


def _is_ample(port: Port, users: list[Connection]) -> bool:
    if port.beside or port.changing:
        return False  # others leave no more of it than we take from them
    most = math.fsum(min((other.most(user.weight) for other in user.shared if other is not port), default=math.inf) for user in users)
    limits = port.limits
    if limits is None:
        return most <= port.capacity
    others = (min(_ceiling(other) for other in user.shared if other is not port) for user in users if len(user.shared) > 1)
    # its ceiling must not be lost with it, and all may be active at once
    return most <= limits.capacity(port.capacity, len(users)) and all(ceiling <= limits.ceiling for ceiling in others)


def _ceiling(port: Port) -> float:
    return math.inf if port.limits is None else port.limits.ceiling


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a port beyond its capacity; ports with the same limits share one object.

    Attributes
    ----------
    ceiling
        Most that a connection gets per unit of its weight, in bytes per second.
    incast_loss
        What each active connection beyond ``incast_flows`` costs: the capacity is divided
        by 1 + incast_loss x (connections - incast_flows).
    """

    ceiling: float = math.inf
    incast_loss: float = 0.0
    incast_flows: int = 1

    def capacity(self, nominal: float, connections: int) -> float:
        """What is left of a capacity while ``connections`` are active."""
        beyond = connections - self.incast_flows
        return nominal / (1.0 + self.incast_loss * beyond) if beyond > 0 else nominal
