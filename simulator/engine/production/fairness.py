"""Weighted max-min fair shares of ports, computed again only where connections or capacities changed.

A connection's rate is its weight times a level. An allocation is max-min fair if and only if every connection has a bottleneck: a port that
is full, or gives each the most that it may, and on which no connection has a higher level (Bertsekas and Gallager, Data Networks, 6.5.2).
That condition is repaired port by port: a port that owns connections shares the capacity left by the others, and takes over connections
that get more than that; a port that owns none but is overfull takes over its fastest. Whoever is touched is looked at again. Background
flows over a port are owned only by it. Should that take long, the part of the network that hangs together with the change is computed by
progressive filling, which always ends.
"""

from __future__ import annotations

from simulator.engine.production.compiling import compiled
from simulator.engine.production.heaps import insert, pop
from simulator.engine.production.layout import Record
from simulator.engine.production.ports import (
    adopt,
    available,
    catch_up,
    clear_coupled,
    clear_foreign,
    clear_owned,
    couple,
    disown,
    equal_share,
    first_of,
    level_of,
    owner_of,
    release,
    resting,
    weight_of,
)
from simulator.engine.production.records import (
    connection_at,
    heaped_at,
    incidence_at,
    level_at,
    link_at,
    message_at,
    number_at,
    pair_at,
    port_at,
    sort_at,
)

TOLERANCE = 1 + 1e-12
"""Levels this close, as a ratio, are the same."""
FEW = 16
"""Connections of a port up to which it is worth while to look at all of them."""
_ENDLESS = float("inf")


@compiled
def _fairest(s: Record, connection: int) -> int:
    """The incidence of the connection whose port gives the least, shared equally."""
    c = connection_at(s.connections, connection)
    sort = sort_at(s.sorts, c.sort)
    least = first = first_of(sort, connection)
    share = equal_share(port_at(s.ports, incidence_at(s.incidences, least).port))
    for incidence in range(first + 1, first + sort.shared):
        other = equal_share(port_at(s.ports, incidence_at(s.incidences, incidence).port))
        if other < share:
            least = incidence
            share = other
    return least


@compiled
def _meant(incidence: int) -> int:
    """Map from the incidence intended as a connection's bottleneck to its current replacement, and back."""
    return -3 - incidence


@compiled
def _enter(s: Record, connection: int, owner: int, now: float) -> None:
    """A connection that has come gets its first bottleneck."""
    c = connection_at(s.connections, connection)
    sort = sort_at(s.sorts, c.sort)
    first = first_of(sort, connection)
    for incidence in range(first, first + sort.shared):
        if incidence != owner:
            disown(s, port_at(s.ports, incidence_at(s.incidences, incidence).port), incidence)
    size = message_at(s.messages, c.front).size_bytes
    adopt(s, incidence_at(s.incidences, owner).port, owner, size / sort.weight, now)


@compiled
def _touch(s: Record, port: int) -> None:
    p = port_at(s.ports, port)
    if p.touched != s.stamp:
        p.touched = s.stamp
        number_at(s.touched, s.touched_n).n = port
        s.touched_n += 1


@compiled
def _work(s: Record, port: int) -> None:
    p = port_at(s.ports, port)
    if not p.working:
        p.working = 1
        number_at(s.work, s.work_n).n = port
        s.work_n += 1


@compiled
def settle(s: Record, now: float) -> None:
    """Make the allocation max-min fair again; ``touched`` lists the ports whose rate, or whose owned connections, changed."""
    s.stamp += 1
    s.touched_n = 0
    s.work_n = 0
    for at in range(s.dirty_n):
        _touch(s, number_at(s.dirty, at).n)
    for at in range(s.fresh_n):
        connection = number_at(s.fresh, at).n
        _enter(s, connection, _meant(connection_at(s.connections, connection).owner), now)
    for at in range(s.touched_n):
        _work(s, number_at(s.touched, at).n)
    budget = s.patience * (s.work_n + 8)
    while s.work_n > 0:
        s.work_n -= 1
        port = number_at(s.work, s.work_n).n
        p = port_at(s.ports, port)
        p.working = 0
        budget -= 1
        if budget < 0:
            _fill_component(s, port, now)
            return
        if p.owned != 0.0:
            _share_out(s, port, now)
        else:
            p.rate = 0.0
            if p.active_n > 0:
                _stay_slack(s, port, now)


@compiled
def settle_plain(s: Record, now: float) -> bool:
    """The commonest change, settled at once; whether the change was so plain."""
    s.stamp += 1
    stamp = s.stamp
    owners_n = 0
    for at in range(s.fresh_n):
        connection = number_at(s.fresh, at).n
        fairest = _fairest(s, connection)
        c = connection_at(s.connections, connection)
        c.owner = _meant(fairest)
        port = incidence_at(s.incidences, fairest).port
        p = port_at(s.ports, port)
        if p.planned != stamp:
            p.planned = stamp
            p.arriving = 1
            p.new = 0.0
            number_at(s.owners, owners_n).n = port
            owners_n += 1
        p.new += sort_at(s.sorts, c.sort).weight
    for at in range(s.dirty_n):
        port = number_at(s.dirty, at).n
        p = port_at(s.ports, port)
        if p.planned != stamp and p.owned > resting(s, port):
            p.planned = stamp
            p.arriving = 0
            p.new = 0.0
            number_at(s.owners, owners_n).n = port
            owners_n += 1
    if s.changed:
        return False  # whoever had room may have none
    for at in range(owners_n):
        p = port_at(s.ports, number_at(s.owners, at).n)
        if p.foreign_n > 0 or p.coupled >= 0 or p.owned + p.new != p.load:
            return False
        p.planned_rate = equal_share(p)
    if not _floors_hold(s, stamp, owners_n):
        return False
    for at in range(s.fresh_n):
        connection = number_at(s.fresh, at).n
        c = connection_at(s.connections, connection)
        owner = first_of(sort_at(s.sorts, c.sort), connection)
        while True:
            p = port_at(s.ports, incidence_at(s.incidences, owner).port)
            if p.planned == stamp and p.arriving:
                break
            owner += 1
        _enter(s, connection, owner, now)
    s.touched_n = 0
    for at in range(owners_n):
        port = number_at(s.owners, at).n
        p = port_at(s.ports, port)
        catch_up(p, now)
        p.rate = p.planned_rate
        _touch(s, port)
    for at in range(s.dirty_n):
        port = number_at(s.dirty, at).n
        if port_at(s.ports, port).active_n == 0:
            _touch(s, port)
    return True


@compiled
def _floors_hold(s: Record, stamp: int, owners_n: int) -> bool:
    """Return whether every other port that the connections which came cross has room for all, and no owner's rate rises above its floor."""
    lowered_n = 0
    for at in range(s.fresh_n):
        connection = number_at(s.fresh, at).n
        sort = sort_at(s.sorts, connection_at(s.connections, connection).sort)
        first = first_of(sort, connection)
        for incidence in range(first, first + sort.shared):
            p = port_at(s.ports, incidence_at(s.incidences, incidence).port)
            if p.planned == stamp or p.checked == stamp:
                continue
            p.checked = stamp
            if p.active_n > FEW:
                return False
            equal = equal_share(p)
            other = p.active
            while other >= 0:
                i = incidence_at(s.incidences, other)
                bottleneck = connection_at(s.connections, i.connection).owner
                owner = incidence_at(s.incidences, bottleneck if bottleneck >= 0 else _meant(bottleneck)).port
                o = port_at(s.ports, owner)
                if (o.planned_rate if o.planned == stamp else o.rate) > equal:
                    return False
                if o.reached != stamp:
                    o.reached = stamp
                    o.planned_floor = equal
                    number_at(s.component, lowered_n).n = owner
                    lowered_n += 1
                elif equal < o.planned_floor:
                    o.planned_floor = equal
                other = link_at(s.links, other).active_after
    for at in range(lowered_n):
        o = port_at(s.ports, number_at(s.component, at).n)
        if o.planned_floor < o.floor:
            o.floor = o.planned_floor
    for at in range(owners_n):
        p = port_at(s.ports, number_at(s.owners, at).n)
        if p.planned_rate > p.floor:
            return False
    return True


@compiled
def _level(s: Record, connection: int) -> float:
    o = port_at(s.ports, owner_of(s, connection))
    # an owner that has not been looked at yet has an old rate; what it would give if all were its own bounds what it is about to
    return o.rate if o.rate != 0.0 else level_of(o, available(o), o.owned)


@compiled
def _work_across(s: Record, incidence: int) -> None:
    """Look at the other ports of a connection."""
    connection = incidence_at(s.incidences, incidence).connection
    sort = sort_at(s.sorts, connection_at(s.connections, connection).sort)
    first = first_of(sort, connection)
    for other in range(first, first + sort.shared):
        if other != incidence:
            _work(s, incidence_at(s.incidences, other).port)


@compiled
def _take(s: Record, port: int, incidence: int, now: float) -> None:
    """Become the bottleneck of a connection of another port."""
    connection = incidence_at(s.incidences, incidence).connection
    owner = owner_of(s, connection)
    remaining = release(s, owner, connection, now)
    adopt(s, port, incidence, remaining, now)
    _touch(s, owner)
    _touch(s, port)
    _work_across(s, incidence)


@compiled
def _share_out(s: Record, port: int, now: float) -> None:
    """A port with owned connections: give them by weight what the others leave."""
    p = port_at(s.ports, port)
    left = available(p)
    weight = p.owned
    ceiling = p.ceiling
    if p.foreign_n > 0:
        at = p.foreign
        while at >= 0:
            i = incidence_at(s.incidences, at)
            left -= _level(s, i.connection) * weight_of(s, i.connection)
            at = link_at(s.links, at).foreign_after
        full = left / weight
        bound = (full if full < ceiling else ceiling) * TOLERANCE
        # only who has a higher level than an owned connection may be brought down to the same
        candidates_n = 0
        order = 0
        at = p.foreign
        while at >= 0:
            i = incidence_at(s.incidences, at)
            level = _level(s, i.connection)
            if level > bound:
                insert(s.candidates, candidates_n, -level, order, at)
                candidates_n += 1
            order += 1
            at = link_at(s.links, at).foreign_after
        while candidates_n > 0:
            fastest = heaped_at(s.candidates, 0)
            level = -fastest.finish
            incidence = fastest.connection
            full = left / weight
            if level <= (full if full < ceiling else ceiling) * TOLERANCE:
                break
            candidates_n = pop(s.candidates, candidates_n)
            _take(s, port, incidence, now)
            taken_weight = weight_of(s, incidence_at(s.incidences, incidence).connection)
            left += level * taken_weight
            weight += taken_weight
        at = p.foreign
        while at >= 0:
            couple(s, at)
            at = link_at(s.links, at).foreign_after
    full = left / weight
    rate = full if full < ceiling else ceiling
    if rate == p.rate and rate <= p.floor:
        return
    catch_up(p, now)
    p.rate = rate
    _touch(s, port)
    pair = p.coupled
    while pair >= 0:
        q = pair_at(s.pairs, pair)
        _work(s, q.port)
        pair = q.after
    clear_coupled(p)
    if rate > p.floor:
        p.floor = _ENDLESS
        at = p.active
        while at >= 0:
            i = incidence_at(s.incidences, at)
            if connection_at(s.connections, i.connection).owner == at:
                _work_across(s, at)
            at = link_at(s.links, at).active_after


@compiled
def _stay_slack(s: Record, port: int, now: float) -> None:
    """A port that is nobody's bottleneck: see whether it has room for all."""
    p = port_at(s.ports, port)
    equal = equal_share(p)
    total = 0.0
    highest = 0.0
    fastest = -1
    at = p.foreign
    while at >= 0:
        i = incidence_at(s.incidences, at)
        level = _level(s, i.connection)
        total += level * weight_of(s, i.connection)
        if level > highest:
            highest = level
            fastest = at
        at = link_at(s.links, at).foreign_after
    if highest <= equal:
        _watch_floors(s, p, equal)
        return
    if total <= available(p) * TOLERANCE and highest <= p.ceiling * TOLERANCE:
        at = p.foreign
        while at >= 0:
            couple(s, at)
            at = link_at(s.links, at).foreign_after
        return
    _take(s, port, fastest, now)
    _share_out(s, port, now)


@compiled
def _watch_floors(s: Record, p: Record, equal: float) -> None:
    """As long as nobody who crosses a slack port has a higher level than its equal share, it need not be looked at."""
    at = p.foreign
    while at >= 0:
        i = incidence_at(s.incidences, at)
        o = port_at(s.ports, owner_of(s, i.connection))
        if equal < o.floor:
            o.floor = equal
        at = link_at(s.links, at).foreign_after


# -- progressive filling -----------------------------------------------------------------


@compiled
def _fill_component(s: Record, start: int, now: float) -> None:
    """Progressive filling of everything that hangs together with a port and with those worked on or touched."""
    ports_n, reached_n = _component(s, start)
    for at in range(reached_n):
        c = connection_at(s.connections, number_at(s.reached, at).n)
        o = port_at(s.ports, incidence_at(s.incidences, c.owner).port)
        catch_up(o, now)
        c.finish = max(c.finish - o.clock, 0.0)  # what remains, until it is adopted
    for at in range(ports_n):
        port = number_at(s.component, at).n
        p = port_at(s.ports, port)
        catch_up(p, now)
        clear_owned(s, port)
        p.rate = 0.0
        p.floor = _ENDLESS
        clear_foreign(s, p)
        incidence = p.active
        while incidence >= 0:
            disown(s, p, incidence)
            incidence = link_at(s.links, incidence).active_after
        clear_coupled(p)
        _touch(s, port)
    _levels(s, ports_n)
    for at in range(reached_n):
        c = connection_at(s.connections, number_at(s.reached, at).n)
        adopt(s, incidence_at(s.incidences, c.owner).port, c.owner, c.finish, now)
    for at in range(reached_n):
        connection = number_at(s.reached, at).n
        port_at(s.ports, owner_of(s, connection)).rate = level_at(s.levels, connection).level
    for at in range(ports_n):
        p = port_at(s.ports, number_at(s.component, at).n)
        if p.active_n > 0 and p.owned == resting(s, number_at(s.component, at).n):
            equal = equal_share(p)
            roomy = True
            incidence = p.foreign
            while incidence >= 0 and roomy:
                i = incidence_at(s.incidences, incidence)
                roomy = level_at(s.levels, i.connection).level <= equal
                incidence = link_at(s.links, incidence).foreign_after
            if roomy:
                _watch_floors(s, p, equal)
                continue
        # whichever way a neighbour changes later, this port will be looked at
        incidence = p.foreign
        while incidence >= 0:
            couple(s, incidence)
            incidence = link_at(s.links, incidence).foreign_after


@compiled
def _reach(s: Record, port: int, ports_n: int) -> int:
    p = port_at(s.ports, port)
    if p.reached != s.stamp:
        p.reached = s.stamp
        number_at(s.component, ports_n).n = port
        number_at(s.frontier, ports_n).n = port
        ports_n += 1
    return ports_n


@compiled
def _component(s: Record, start: int) -> tuple[int, int]:
    """Ports and active connections reachable from a port and those worked on or touched, in a fixed order: how many of each."""
    ports_n = _reach(s, start, 0)
    for at in range(s.work_n):
        port = number_at(s.work, at).n
        port_at(s.ports, port).working = 0
        ports_n = _reach(s, port, ports_n)
    s.work_n = 0
    for at in range(s.touched_n):
        ports_n = _reach(s, number_at(s.touched, at).n, ports_n)
    reached_n = 0
    frontier_n = ports_n
    while frontier_n > 0:
        frontier_n -= 1
        at = port_at(s.ports, number_at(s.frontier, frontier_n).n).active
        while at >= 0:
            i = incidence_at(s.incidences, at)
            mark = level_at(s.levels, i.connection)
            if mark.stamp != s.stamp:
                mark.stamp = s.stamp
                number_at(s.reached, reached_n).n = i.connection
                reached_n += 1
                c = connection_at(s.connections, i.connection)
                sort = sort_at(s.sorts, c.sort)
                begin = first_of(sort, i.connection)
                for crossed in range(begin, begin + sort.shared):
                    port = incidence_at(s.incidences, crossed).port
                    p = port_at(s.ports, port)
                    if p.reached != s.stamp:
                        p.reached = s.stamp
                        number_at(s.component, ports_n).n = port
                        ports_n += 1
                        number_at(s.frontier, frontier_n).n = port
                        frontier_n += 1
            at = link_at(s.links, at).active_after
    return ports_n, reached_n


@compiled
def _levels(s: Record, ports_n: int) -> None:
    """Bottleneck and level of every connection that crosses the ports of the component."""
    n = 0
    for order in range(ports_n):
        port = number_at(s.component, order).n
        p = port_at(s.ports, port)
        p.free = available(p)
        p.unfixed = p.load
        if p.active_n > 0:
            insert(s.candidates, n, equal_share(p), order, port)
            n += 1
    while n > 0:
        first = heaped_at(s.candidates, 0)
        lowest = first.finish
        order = first.serial
        port = first.connection
        n = pop(s.candidates, n)
        p = port_at(s.ports, port)
        if p.unfixed == 0.0:
            continue
        current = level_of(p, max(p.free, 0.0), p.unfixed)
        if current > lowest * TOLERANCE:
            insert(s.candidates, n, current, order, port)  # others took less than their part; look again later
            n += 1
            continue
        at = p.active
        while at >= 0:
            i = incidence_at(s.incidences, at)
            mark = level_at(s.levels, i.connection)
            if mark.stamp == s.stamp:  # not fixed yet
                mark.stamp = -s.stamp
                mark.level = current
                c = connection_at(s.connections, i.connection)
                c.owner = at
                sort = sort_at(s.sorts, c.sort)
                begin = first_of(sort, i.connection)
                for crossed in range(begin, begin + sort.shared):
                    q = port_at(s.ports, incidence_at(s.incidences, crossed).port)
                    q.free -= current * sort.weight
                    q.unfixed -= sort.weight
            at = link_at(s.links, at).active_after
