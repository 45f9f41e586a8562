"""Weighted max-min fair shares of ports, computed again only where connections or capacities changed.

A connection's rate is its weight times a level. An allocation is max-min fair if and only if every connection has a bottleneck:
a port that is full, or gives each the most that it may, and on which no connection has a higher level (Bertsekas and Gallager,
Data Networks, 6.5.2). :func:`settle` repairs that condition port by port: a port that owns connections shares out what the
others leave, and takes over whoever gets more than that; a port that owns none but is overfull takes over its fastest. Whoever
is touched is looked at again. Flows of others that always have something to send over a port are owned by it alone. Should that
take long, the part of the network that hangs together with the change is computed by progressive filling, which always ends.

``simulator.engine.compiled.fairness`` does the same, compiled, with the constants of this module: change both together
(tests/oracle/test_compiled_network.py holds them equal).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush

from simulator.network.ports import Connection, Port

__all__ = ["FEW", "PATIENCE", "TOLERANCE", "settle", "settle_plain"]

TOLERANCE = 1 + 1e-12
"""Levels this close, as a ratio, are the same."""
PATIENCE = 16
"""Ports that may be looked at for each that came or went before the whole component is shared out anew."""
FEW = 16
"""Connections of a port up to which it is worth while to look at all of them."""


def settle(dirty: Iterable[Port], fresh: Iterable[Connection], now: float) -> dict[Port, None]:
    """Make the allocation max-min fair again.

    Parameters
    ----------
    dirty
        Ports on which connections came or went.
    fresh
        Connections that came and have no bottleneck yet.
    now
        Simulated time, in seconds.

    Returns
    -------
    dict
        The ports whose rate, or whose owned connections, changed.
    """
    touched: dict[Port, None] = dict.fromkeys(dirty)
    for connection in fresh:
        owner = min(connection.shared, key=Port.equal_share)
        for port in connection.shared:
            if port is not owner:
                port.disown(connection)
        owner.adopt(connection, connection.size / connection.weight, now)
    work = dict(touched)
    budget = PATIENCE * (len(work) + 8)
    while work:
        port, _ = work.popitem()
        budget -= 1
        if budget < 0:
            return {**touched, **_fill_component([port, *work, *touched], now)}
        if port.owned:
            _share_out(port, work, touched, now)
        else:
            port.rate = 0.0
            if port.active:
                _stay_slack(port, work, touched, now)
    return touched


def settle_plain(dirty: Iterable[Port], fresh: Sequence[Connection], now: float) -> list[Port] | None:
    """The commonest change, settled at once: every bottleneck concerned owns all of its connections, and goes on to.

    Parameters as :func:`settle`. Returns the ports whose rate or owned connections
    changed; None, and nothing is changed, if the change is not so plain.
    """
    arrivals: dict[Port, float] = {}
    for connection in fresh:
        owner = min(connection.shared, key=Port.equal_share)
        arrivals[owner] = arrivals.get(owner, 0.0) + connection.weight
    # a port that is nobody's bottleneck and loses a connection stays slack: nothing to do for it
    owners = arrivals | {port: 0.0 for port in dirty if port.owned > port.beside and port not in arrivals}
    rates: dict[Port, float] = {}
    for port, new in owners.items():
        if port.foreign or port.coupled or port.owned + new != port.load:
            return None
        rates[port] = port.equal_share()
    floors: list[tuple[Port, float]] = []
    for connection in fresh:
        for port in connection.shared:
            if port in owners:
                continue
            if len(port.active) > FEW:
                return None
            equal = port.equal_share()
            for other in port.active:
                owner = other.bottleneck or min(other.shared, key=Port.equal_share)
                if rates.get(owner, owner.rate) > equal:
                    return None
                floors.append((owner, equal))
    for owner, equal in floors:
        if equal < owner.floor:
            owner.floor = equal
    if any(rate > port.floor for port, rate in rates.items()):
        return None
    for connection in fresh:
        owner = next(port for port in connection.shared if port in arrivals)
        for port in connection.shared:
            if port is not owner:
                port.disown(connection)
        owner.adopt(connection, connection.size / connection.weight, now)
    for port, rate in rates.items():
        port.catch_up(now)
        port.rate = rate
    return [*owners, *(port for port in dirty if not port.active)]


def _level(connection: Connection) -> float:
    owner = connection.bottleneck
    assert owner is not None
    # an owner that has not been looked at yet has an old rate; what it would give if all were its own bounds what it is about to
    return owner.rate or owner.level_of(owner.available(), owner.owned)


def _take(port: Port, connection: Connection, work: dict[Port, None], touched: dict[Port, None], now: float) -> None:
    """Become the bottleneck of a connection of another port."""
    owner = connection.bottleneck
    assert owner is not None
    remaining = owner.release(connection, now)
    port.adopt(connection, remaining, now)
    touched[owner] = touched[port] = None
    for crossed in connection.shared:
        if crossed is not port:
            work[crossed] = None


def _share_out(port: Port, work: dict[Port, None], touched: dict[Port, None], now: float) -> None:
    """A port with owned connections: give them by weight what the others leave."""
    left, weight = port.available(), port.owned
    ceiling = math.inf if port.limits is None else port.limits.ceiling
    if port.foreign:
        levels = [(_level(connection), connection) for connection in port.foreign]
        for level, connection in levels:
            left -= level * connection.weight
        full = left / weight
        bound = (full if full < ceiling else ceiling) * TOLERANCE
        faster = [(-level, order, connection) for order, (level, connection) in enumerate(levels) if level > bound]
        for negative, _, connection in sorted(faster):
            # whoever has a higher level than an owned connection is brought down to the same
            level, full = -negative, left / weight
            if level <= (full if full < ceiling else ceiling) * TOLERANCE:
                break
            _take(port, connection, work, touched, now)
            left += level * connection.weight
            weight += connection.weight
        for connection in port.foreign:
            _couple(connection, port)
    full = left / weight
    rate = full if full < ceiling else ceiling
    if rate == port.rate and rate <= port.floor:
        return
    port.catch_up(now)
    port.rate = rate
    touched[port] = None
    work.update(port.coupled)
    port.coupled.clear()
    if rate > port.floor:
        port.floor = math.inf
        for connection in port.active:
            if connection.bottleneck is port:
                for crossed in connection.shared:
                    if crossed is not port:
                        work[crossed] = None


def _stay_slack(port: Port, work: dict[Port, None], touched: dict[Port, None], now: float) -> None:
    """A port that is nobody's bottleneck: see whether it has room for all."""
    equal = port.equal_share()
    total, highest = 0.0, 0.0
    for connection in port.foreign:
        level = _level(connection)
        total += level * connection.weight
        if level > highest:
            highest = level
    if highest <= equal:
        _watch_floors(port, equal)
        return
    if total <= port.available() * TOLERANCE and (port.limits is None or highest <= port.limits.ceiling * TOLERANCE):
        for connection in port.foreign:
            _couple(connection, port)
        return
    fastest = max(port.foreign, key=_level)
    _take(port, fastest, work, touched, now)
    _share_out(port, work, touched, now)


def _watch_floors(port: Port, equal: float) -> None:
    """As long as nobody who crosses a slack port has a higher level than its equal share, it need not be looked at."""
    for connection in port.foreign:
        owner = connection.bottleneck
        assert owner is not None
        if equal < owner.floor:
            owner.floor = equal


def _couple(connection: Connection, port: Port) -> None:
    owner = connection.bottleneck
    assert owner is not None
    owner.couple(port)


# -- progressive filling -----------------------------------------------------------------


def _fill_component(start: Iterable[Port], now: float) -> dict[Port, None]:
    """Progressive filling of everything that hangs together with some ports."""
    ports, connections = _component(start)
    remaining: dict[Connection, float] = {}
    for connection in connections:
        owner = connection.bottleneck
        assert owner is not None
        owner.catch_up(now)
        remaining[connection] = max(connection.finish - owner.clock, 0.0)
    for port in ports:
        port.catch_up(now)
        port.owned, port.rate, port.floor = port.beside, 0.0, math.inf
        port.foreign = dict(port.active)
        port.coupled.clear()
    levels = _levels(ports)
    for connection in connections:
        owner, level = levels[connection]
        owner.adopt(connection, remaining[connection], now)
        owner.rate = 0.0
    for owner, level in levels.values():
        owner.rate = level
    for port in ports:
        if port.owned == port.beside and port.active:
            equal = port.equal_share()
            if all(levels[connection][1] <= equal for connection in port.foreign):
                _watch_floors(port, equal)
                continue
        # whichever way a neighbour changes later, this port will be looked at
        for connection in port.foreign:
            _couple(connection, port)
    return dict.fromkeys(ports)


def _component(start: Iterable[Port]) -> tuple[list[Port], list[Connection]]:
    """Ports and active connections reachable from some ports, in a fixed order."""
    ports: dict[Port, None] = dict.fromkeys(start)
    connections: dict[Connection, None] = {}
    frontier = list(ports)
    while frontier:
        for connection in frontier.pop().active:
            if connection not in connections:
                connections[connection] = None
                for port in connection.shared:
                    if port not in ports:
                        ports[port] = None
                        frontier.append(port)
    return list(ports), list(connections)


def _levels(ports: list[Port]) -> dict[Connection, tuple[Port, float]]:
    """Bottleneck and level of every connection that crosses the ports."""
    free = {port: port.available() for port in ports}
    unfixed = {port: port.load for port in ports}
    queue = [(port.equal_share(), order, port) for order, port in enumerate(ports) if port.active]
    heapify(queue)
    levels: dict[Connection, tuple[Port, float]] = {}
    while queue:
        lowest, order, port = heappop(queue)
        if not unfixed[port]:
            continue
        current = port.level_of(max(free[port], 0.0), unfixed[port])
        if current > lowest * TOLERANCE:
            heappush(queue, (current, order, port))  # others took less than their part; look again later
            continue
        for connection in port.active:
            if connection not in levels:
                levels[connection] = (port, current)
                for crossed in connection.shared:
                    free[crossed] -= current * connection.weight
                    unfixed[crossed] -= connection.weight
    return levels
