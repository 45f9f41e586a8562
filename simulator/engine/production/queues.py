"""How long a message waits behind what others have queued, where each link has one queue for all connections.

TCP keeps data of each connection waiting before the bottleneck. A sender's own link gets from each of its connections as much as
that may have on its way at once, as soon as it starts. Before a receiver's link nothing waits as long as a single sender has its
full rate; what several send beyond the link's rate waits, up to the buffer, and stays until the link has caught up. Losses cut
the windows when the most connections shared the buffer, and they are kept between transfers (RFC 5681, sections 3.1 and 4.1;
RFC 9438): when some connections have ended, no more than the others' parts waits. Shares of messages under way are not changed.
"""

from __future__ import annotations

from simulator.engine.production.compiling import compiled
from simulator.engine.production.layout import Record
from simulator.engine.production.records import connection_at, edge_at, node_at, number_at, sides_at, sort_at


@compiled
def _catch_up(s: Record, node: int, now: float) -> float:
    """Bring what waits before the way in up to date, and return it."""
    h = node_at(s.nodes, node)
    most_s = s.most_s * h.coming / h.peak if h.coming > 0 else 0.0
    h.waiting_s = min(max(h.waiting_s + h.growth * (now - h.since_s), 0.0), most_s)
    h.since_s = now
    return h.waiting_s


@compiled
def _grow(s: Record, node: int) -> None:
    """Arrivals per second, with each sender's link shared equally by its messages, minus departures."""
    h = node_at(s.nodes, node)
    coming = 0.0
    at = h.sources
    while at >= 0:
        e = edge_at(s.edges, at)
        coming += e.messages / node_at(s.nodes, e.sender).leaving
        at = e.source_after
    h.growth = coming - 1.0


@compiled
def wait_s_of(s: Record, connection: int, now: float) -> float:
    """Seconds that a message waits before its first byte crosses: the requests for it on their way, then the message itself."""
    sides = sides_at(s.sides, connection)
    leaving = node_at(s.nodes, sides.sender).leaving
    wait_s = min(leaving * s.own_s, s.most_s) + _catch_up(s, sides.receiver, now)
    if sort_at(s.sorts, connection_at(s.connections, connection).sort).asked_for:
        return wait_s + s.requests * _catch_up(s, sides.sender, now)
    return wait_s


@compiled
def begin_in_queues(s: Record, connection: int, now: float) -> None:
    """A message begins to cross."""
    _change(s, connection, now, 1)


@compiled
def end_in_queues(s: Record, connection: int, now: float) -> None:
    """Its last byte has crossed."""
    _change(s, connection, now, -1)


@compiled
def _change(s: Record, connection: int, now: float, by: int) -> None:
    edge = number_at(s.edge_of, connection).n
    e = edge_at(s.edges, edge)
    source = node_at(s.nodes, e.sender)
    target = e.receiver
    _catch_up(s, target, now)
    at = source.targets
    while at >= 0:
        other = edge_at(s.edges, at)
        _catch_up(s, other.receiver, now)
        at = other.target_after
    source.leaving += by
    t = node_at(s.nodes, target)
    t.coming += by
    t.peak = max(t.peak, t.coming)
    before = e.messages
    e.messages = before + by
    if before == 0:
        _list(s, edge)
    elif before + by == 0:
        _unlist(s, edge)
    _grow(s, target)
    at = source.targets
    while at >= 0:
        other = edge_at(s.edges, at)
        _grow(s, other.receiver)
        at = other.target_after


@compiled
def _list(s: Record, edge: int) -> None:
    e = edge_at(s.edges, edge)
    source = node_at(s.nodes, e.sender)
    target = node_at(s.nodes, e.receiver)
    e.target_before = source.targets_last
    e.target_after = -1
    if source.targets_last < 0:
        source.targets = edge
    else:
        edge_at(s.edges, source.targets_last).target_after = edge
    source.targets_last = edge
    e.source_before = target.sources_last
    e.source_after = -1
    if target.sources_last < 0:
        target.sources = edge
    else:
        edge_at(s.edges, target.sources_last).source_after = edge
    target.sources_last = edge


@compiled
def _unlist(s: Record, edge: int) -> None:
    e = edge_at(s.edges, edge)
    source = node_at(s.nodes, e.sender)
    target = node_at(s.nodes, e.receiver)
    if e.target_before < 0:
        source.targets = e.target_after
    else:
        edge_at(s.edges, e.target_before).target_after = e.target_after
    if e.target_after < 0:
        source.targets_last = e.target_before
    else:
        edge_at(s.edges, e.target_after).target_before = e.target_before
    if e.source_before < 0:
        target.sources = e.source_after
    else:
        edge_at(s.edges, e.source_before).source_after = e.source_after
    if e.source_after < 0:
        target.sources_last = e.source_before
    else:
        edge_at(s.edges, e.source_after).source_before = e.source_before
