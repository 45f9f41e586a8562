"""Ports and connections in tables.

A port has a clock: the bytes given so far to each connection that it is the bottleneck of, per unit of weight. The connections that a
port owns are ordered by when, by that clock, their messages end. Those that begin in the order in which they will end, as messages of
the same size do, wait in a list; only the others need the heap.
"""

from __future__ import annotations

from simulator.engine.production.compiling import compiled
from simulator.engine.production.heaps import insert, pop, put, sink
from simulator.engine.production.layout import AWAY, Record
from simulator.engine.production.records import (
    connection_at,
    flag_at,
    heaped_at,
    incidence_at,
    link_at,
    long_at,
    number_at,
    pair_at,
    port_at,
    real_at,
    sort_at,
)


@compiled
def available(p: Record) -> float:
    """Bytes per second that it gives its active connections together."""
    beyond = p.active_n - p.incast_flows
    return p.capacity / (1.0 + p.incast_loss * beyond) if beyond > 0 and p.incast_loss != 0.0 else p.capacity


@compiled
def level_of(p: Record, left: float, weight: float) -> float:
    """Rate per unit of weight where connections of so much weight share what is left of the capacity."""
    level = left / weight
    return level if level <= p.ceiling else p.ceiling


@compiled
def resting(s: Record, port: int) -> float:
    """The weight that it owns where nothing of ours does: flows of others."""
    beside: float = real_at(s.beside, port).x if s.accompanied else 0.0
    return beside


@compiled
def equal_share(p: Record) -> float:
    """Rate per unit of weight if it is the bottleneck of all its active connections."""
    return level_of(p, available(p), p.load)


@compiled
def owner_of(s: Record, connection: int) -> int:
    """The bottleneck of a connection; -1 if it has none."""
    owner = connection_at(s.connections, connection).owner
    return incidence_at(s.incidences, owner).port if owner >= 0 else -1


@compiled
def first_of(sort: Record, connection: int) -> int:
    """The first incidence of a connection of that sort."""
    first: int = sort.first + connection * sort.shared
    return first


@compiled
def weight_of(s: Record, connection: int) -> float:
    """The weight of a connection."""
    weight: float = sort_at(s.sorts, connection_at(s.connections, connection).sort).weight
    return weight


# -- who is active -----------------------------------------------------------------------


@compiled
def activate(s: Record, p: Record, incidence: int) -> None:
    """A connection becomes the last of the port's active ones."""
    p.active_n += 1
    if p.alone:
        return  # nobody asks for their order
    last = p.active_last
    i = link_at(s.links, incidence)
    i.active_before = last
    i.active_after = -1
    if last < 0:
        p.active = incidence
    else:
        link_at(s.links, last).active_after = incidence
    p.active_last = incidence


@compiled
def deactivate(s: Record, p: Record, incidence: int) -> None:
    """A connection is no longer one of the port's active ones."""
    p.active_n -= 1
    if p.alone:
        return
    i = link_at(s.links, incidence)
    before = i.active_before
    after = i.active_after
    if before < 0:
        p.active = after
    else:
        link_at(s.links, before).active_after = after
    if after < 0:
        p.active_last = before
    else:
        link_at(s.links, after).active_before = before


@compiled
def disown(s: Record, p: Record, incidence: int) -> None:
    """Note that another port is the bottleneck of an active connection."""
    i = link_at(s.links, incidence)
    if i.foreign_before != AWAY:
        return
    last = p.foreign_last
    i.foreign_before = last
    i.foreign_after = -1
    if last < 0:
        p.foreign = incidence
    else:
        link_at(s.links, last).foreign_after = incidence
    p.foreign_last = incidence
    p.foreign_n += 1


@compiled
def undisown(s: Record, p: Record, incidence: int) -> None:
    """Note that no other port is its bottleneck any more, if one was."""
    if p.foreign_n == 0:
        return
    i = link_at(s.links, incidence)
    before = i.foreign_before
    if before == AWAY:
        return
    after = i.foreign_after
    if before < 0:
        p.foreign = after
    else:
        link_at(s.links, before).foreign_after = after
    if after < 0:
        p.foreign_last = before
    else:
        link_at(s.links, after).foreign_before = before
    i.foreign_before = AWAY
    p.foreign_n -= 1


@compiled
def clear_foreign(s: Record, p: Record) -> None:
    """Note that no active connection has another bottleneck."""
    at = p.foreign
    while at >= 0:
        i = link_at(s.links, at)
        i.foreign_before = AWAY
        at = i.foreign_after
    p.foreign = p.foreign_last = -1
    p.foreign_n = 0


# -- which ports to look at when its rate changes ----------------------------------------


@compiled
def couple(s: Record, incidence: int) -> None:
    """Have this port looked at whenever the rate of the connection's bottleneck changes."""
    i = incidence_at(s.incidences, incidence)
    c = connection_at(s.connections, i.connection)
    owner = port_at(s.ports, incidence_at(s.incidences, c.owner).port)
    sort = sort_at(s.sorts, c.sort)
    first = first_of(sort, i.connection)
    pair = number_at(s.first_pairs, i.connection).n + (c.owner - first) * sort.shared + (incidence - first)
    q = pair_at(s.pairs, pair)
    if q.epoch == owner.epoch:
        return
    q.epoch = owner.epoch
    q.port = i.port
    q.after = -1
    if owner.coupled < 0:
        owner.coupled = pair
    else:
        pair_at(s.pairs, owner.coupled_last).after = pair
    owner.coupled_last = pair


@compiled
def clear_coupled(p: Record) -> None:
    """Have no other port looked at when its rate changes."""
    p.epoch += 1
    p.coupled = -1


# -- whom it owns ------------------------------------------------------------------------


@compiled
def catch_up(p: Record, now: float) -> None:
    """Bring the clock up to date."""
    p.clock += p.rate * (now - p.updated)
    p.updated = now


@compiled
def adopt(s: Record, port: int, incidence: int, remaining: float, now: float) -> None:
    """Become the bottleneck of an active connection that owns nowhere; ``remaining`` bytes per unit of weight are left to send."""
    p = port_at(s.ports, port)
    catch_up(p, now)
    connection = incidence_at(s.incidences, incidence).connection
    c = connection_at(s.connections, connection)
    p.owned += sort_at(s.sorts, c.sort).weight
    undisown(s, p, incidence)
    c.owner = incidence
    push(s, port, connection, p.clock + remaining)


@compiled
def release(s: Record, port: int, connection: int, now: float) -> float:
    """Stop being the bottleneck of a connection that stays active; bytes per unit of weight left to send."""
    p = port_at(s.ports, port)
    c = connection_at(s.connections, connection)
    catch_up(p, now)
    p.owned -= sort_at(s.sorts, c.sort).weight
    disown(s, p, c.owner)
    if c.before != AWAY:
        _unlist(s, p, c)
    return max(c.finish - p.clock, 0.0)


@compiled
def clear_owned(s: Record, port: int) -> None:
    """Own nobody of ours."""
    p = port_at(s.ports, port)
    at = p.queue
    while at >= 0:
        c = connection_at(s.connections, at)
        c.before = AWAY
        at = c.after
    p.queue = p.queue_last = -1
    p.heap_n = 0
    p.owned = resting(s, port)


# -- when their messages end -------------------------------------------------------------


@compiled
def push(s: Record, port: int, connection: int, finish: float) -> None:
    """Note when, by this port's clock, the connection's message in front ends."""
    p = port_at(s.ports, port)
    c = connection_at(s.connections, connection)
    serial = p.serial + 1
    p.serial = serial
    c.entry = serial
    c.finish = finish
    last = p.queue_last
    if last < 0:
        p.queue = connection
    else:
        before = connection_at(s.connections, last)
        if before.finish > finish:
            _push_heap(s, p, port, connection, finish, serial)
            return
        before.after = connection
    c.before = last
    c.after = -1
    p.queue_last = connection


@compiled
def _unlist(s: Record, p: Record, c: Record) -> None:
    before = c.before
    after = c.after
    if before < 0:
        p.queue = after
    else:
        connection_at(s.connections, before).after = after
    if after < 0:
        p.queue_last = before
    else:
        connection_at(s.connections, after).before = before
    c.before = AWAY


@compiled
def _counts(s: Record, port: int, entry: Record) -> bool:
    """Return whether a heap's entry is still its connection's latest."""
    c = connection_at(s.connections, entry.connection)
    return c.entry == entry.serial and c.owner >= 0 and incidence_at(s.incidences, c.owner).port == port


@compiled
def _push_heap(s: Record, p: Record, port: int, connection: int, finish: float, serial: int) -> None:
    if p.heap_n == p.heap_room:
        _drop_stale(s, p, port)
    insert(p.heap, p.heap_n, finish, serial, connection)
    p.heap_n += 1


@compiled
def _drop_stale(s: Record, p: Record, port: int) -> None:
    """Rid a heap of the entries that no longer count."""
    base = p.heap
    kept = 0
    for at in range(p.heap_n):
        entry = heaped_at(base, at)
        if _counts(s, port, entry):
            put(base, kept, entry.finish, entry.serial, entry.connection)
            kept += 1
    p.heap_n = kept
    for back in range(kept // 2):
        at = kept // 2 - 1 - back
        entry = heaped_at(base, at)
        sink(base, kept, at, entry.finish, entry.serial, entry.connection)


@compiled
def first_to_end(s: Record, port: int) -> int:
    """The connection that it owns whose message in front ends next; -1 if it owns none."""
    p = port_at(s.ports, port)
    queued = p.queue
    while p.heap_n > 0:
        entry = heaped_at(p.heap, 0)
        if _counts(s, port, entry):
            if queued < 0:
                return entry.connection
            c = connection_at(s.connections, queued)
            return queued if c.finish < entry.finish or (c.finish == entry.finish and c.entry < entry.serial) else entry.connection
        p.heap_n = pop(p.heap, p.heap_n)  # it has another bottleneck since
    return queued


@compiled
def take_first(s: Record, port: int, connection: int) -> None:
    """Its first to end, as just given, ends."""
    p = port_at(s.ports, port)
    if connection == p.queue:
        _unlist(s, p, connection_at(s.connections, connection))
    else:
        p.heap_n = pop(p.heap, p.heap_n)


# -- which are shared ----------------------------------------------------------------------


@compiled
def leave_out(c: Record) -> None:
    """Go through the ports by their number of users, and clear ``shared`` where they can never be full."""
    for place in range(c.ports_n):
        port = long_at(c.order, place).n
        begins, ends = long_at(c.begins, port).n, long_at(c.begins, port + 1).n
        if begins == ends:
            continue
        total = 0.0
        capped = True
        for at in range(begins, ends):
            user = long_at(c.path, long_at(c.by_port, at).n).n
            most = float("inf")
            lowest = -float("inf")
            for other in range(long_at(c.first, user).n, long_at(c.first, user + 1).n):
                crossed = long_at(c.crossed, other).n
                if flag_at(c.shared, other).on and crossed != port:
                    ceiling = real_at(c.ceiling, crossed).x
                    lowest = min(lowest, ceiling) if most < float("inf") else ceiling
                    most = min(most, min(real_at(c.capacity, crossed).x, ceiling * real_at(c.weight, user).x))
            total += most
            capped = capped and lowest <= real_at(c.ceiling, port).x  # its ceiling must not be lost with it
        if total <= real_at(c.room, port).x and capped:
            for at in range(begins, ends):
                flag_at(c.shared, long_at(c.by_port, at).n).on = 0
