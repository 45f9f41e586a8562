"""Messages over links that are shared max-min fairly.

A connection carries its messages in order, one after the other. Connections that have something to send share the ports that they
cross max-min fairly, the fluid limit of per-connection fair queueing. A message has arrived when its last byte has crossed, plus the
latency of the path. Between nodes a transport may add to that: the hosts' work on each message, before it is handed to its connection
and after it has arrived; turns (``admission``); a random weight for each message, or for all that a host asks for or sends at the same
time; one queue for all that cross a link (``queues``).

A message is a record of a pool. Those of a connection are linked, the one in front first.
"""

from __future__ import annotations

from simulator.engine.production import codes
from simulator.engine.production.admission import arrival_of_next, ask, give_back
from simulator.engine.production.calendar import (
    at_end_of_instant,
    call_later,
    drop_alarm,
    make_entry,
    next_serial,
    pack,
    restore_context,
    save_context,
    set_alarm,
    soon,
)
from simulator.engine.production.compiling import compiled
from simulator.engine.production.cores import work
from simulator.engine.production.fairness import settle, settle_plain
from simulator.engine.production.layout import Record
from simulator.engine.production.ports import (
    activate,
    available,
    catch_up,
    deactivate,
    first_of,
    first_to_end,
    level_of,
    push,
    resting,
    take_first,
    undisown,
)
from simulator.engine.production.queues import begin_in_queues, end_in_queues, wait_s_of
from simulator.engine.production.records import (
    connection_at,
    departure_at,
    ends_at,
    host_at,
    incidence_at,
    message_at,
    node_at,
    number_at,
    port_at,
    real_at,
    sides_at,
    sort_at,
    waiting_at,
)

SAME_INSTANT = 1 + 1e-12
"""Messages of a port whose ends are this close, relative to its clock, end together."""


@compiled
def send(s: Record, connection: int, size: float, arrived: int, about: int, left: int) -> None:
    """Queue a message of ``size`` bytes, one tensor, as :func:`send_tensors` does it."""
    send_tensors(s, connection, size, 1.0, arrived, about, left)


@compiled
def send_tensors(s: Record, connection: int, size: float, tensors: float, arrived: int, about: int, left: int) -> None:
    """Queue a message of ``size`` bytes and ``tensors`` tensors.

    ``arrived``, with ``about``, follows when its last byte is there; ``left``, with the
    same ``about``, when it has left the sender; 0 if nothing does.
    """
    c = connection_at(s.connections, connection)
    message = s.messages_free
    if message >= 0:
        s.messages_free = message_at(s.messages, message).after
    else:
        message = s.messages_made
        s.messages_made = message + 1
    s.messages_n += 1
    m = message_at(s.messages, message)
    m.size_bytes = size
    m.arrived = arrived
    m.about = about
    if s.departs:
        departure_at(s.departures, message).left = left
    if s.observed:
        s.since_s = s.now
        save_context(s, s.message_contexts, message)
    m.connection = connection
    m.after = -1
    sort = sort_at(s.sorts, c.sort)
    if sort.hosted or sort.linked:
        work_s = s.message_s * tensors + s.copy_per_byte_s * size if sort.hosted else 0.0
        waiting_at(s.waiting_messages, message).work_s = work_s
        if work_s != 0.0:
            host = ends_at(s.ends, connection).source
            if s.cores:
                work(s, s.host_tasks + host, work_s, pack(codes.STAND_FOR_LINK, message), 0)
            else:
                _work(s, host, message, 0)
        else:
            stand_for_link(s, message)
        return
    if c.front >= 0:
        message_at(s.messages, c.last).after = message
        c.last = message
        return
    c.front = c.last = message
    _begin(s, connection)


@compiled
def _free(s: Record, message: int) -> None:
    message_at(s.messages, message).after = s.messages_free
    s.messages_free = message
    s.messages_n -= 1


@compiled
def _begin(s: Record, connection: int) -> None:
    """The message in front begins to cross its ports."""
    c = connection_at(s.connections, connection)
    sort = sort_at(s.sorts, c.sort)
    if sort.shared == 1:
        port = incidence_at(s.incidences, first_of(sort, connection)).port
        p = port_at(s.ports, port)
        if p.foreign_n == 0 and p.coupled < 0:
            # nobody's share but this port's changes, and that at once
            _join(s, p, port, c, connection)
            if port != s.ending:  # its wake-up is set once all that ends has ended
                set_timer(s, port)
            return
    _share_with(s, c, connection)


@compiled
def _join(s: Record, p: Record, port: int, c: Record, connection: int) -> None:
    """A connection has something to send, this port owns all its others, and no other port is concerned."""
    now = s.now
    if p.active_n == 0:
        p.busy_since = now
    sort = sort_at(s.sorts, c.sort)
    first = first_of(sort, connection)
    activate(s, p, first)
    weight = sort.weight
    p.load += weight
    catch_up(p, now)
    p.owned += weight
    p.rate = level_of(p, available(p), p.owned)
    c.owner = first
    push(s, port, connection, p.clock + message_at(s.messages, c.front).size_bytes / weight)


@compiled
def _share_with(s: Record, c: Record, connection: int) -> None:
    """The connection has something to send, and the shares of several ports may change."""
    sort = sort_at(s.sorts, c.sort)
    first = first_of(sort, connection)
    for incidence in range(first, first + sort.shared):
        port = incidence_at(s.incidences, incidence).port
        p = port_at(s.ports, port)
        if p.active_n == 0:
            p.busy_since = s.now
        activate(s, p, incidence)
        p.load += sort.weight
        soil(s, p, port)
    number_at(s.fresh, s.fresh_n).n = connection
    s.fresh_n += 1
    settle_soon(s)


@compiled
def soil(s: Record, p: Record, port: int) -> None:
    """Connections came or went on the port, and the shares of several may change."""
    if not p.dirty:
        p.dirty = 1
        number_at(s.dirty, s.dirty_n).n = port
        s.dirty_n += 1


# -- between hosts -----------------------------------------------------------------------


@compiled
def _work(s: Record, host: int, message: int, receives: int) -> None:
    """A host works on a message, after those that came to it before: only the first of them is on the calendar."""
    h = host_at(s.hosts, host)
    w = waiting_at(s.waiting_messages, message)
    work_s = w.work_s
    h.free_s = max(h.free_s, s.now) + work_s
    h.worked_s += work_s
    w.receives = receives
    w.done_s = s.now + (h.free_s - s.now)
    if not w.done_s < float("inf"):
        call_later(s, w.done_s, 0, 0)  # which refuses it
        return
    w.serial = next_serial(s, w.done_s)
    message_at(s.messages, message).after = -1
    if h.front < 0:
        h.front = message
        make_entry(s, w.done_s, w.serial, pack(codes.HOST_DONE, host), 0)
    else:
        w.done_s = max(w.done_s, waiting_at(s.waiting_messages, h.last).done_s)
        message_at(s.messages, h.last).after = message
    h.last = message


@compiled
def host_done(s: Record, host: int) -> bool:
    """A host has done what is in front, and goes on with the next; whether that was to receive a message, and something follows."""
    h = host_at(s.hosts, host)
    message = h.front
    m = message_at(s.messages, message)
    h.front = m.after
    if h.front >= 0:
        following = waiting_at(s.waiting_messages, h.front)
        make_entry(s, following.done_s, following.serial, pack(codes.HOST_DONE, host), 0)
    if s.observed:
        restore_context(s, s.message_contexts, message)
    m.after = -1
    receives: bool = waiting_at(s.waiting_messages, message).receives != 0
    if receives:
        s.what = m.arrived
        s.about = m.about
        _free(s, message)
    else:
        stand_for_link(s, message)
    return receives


@compiled
def received(s: Record, message: int) -> None:
    """A message has come in whole, and the host works on it."""
    m = message_at(s.messages, message)
    if s.observed:
        restore_context(s, s.message_contexts, message)
    host = ends_at(s.ends, m.connection).target
    if s.cores:
        work(s, s.host_tasks + host, waiting_at(s.waiting_messages, message).work_s, m.arrived, m.about)
        _free(s, message)
    else:
        _work(s, host, message, 1)


@compiled
def stand_for_link(s: Record, message: int) -> None:
    """The sending host's work on a message is done."""
    m = message_at(s.messages, message)
    connection = m.connection
    c = connection_at(s.connections, connection)
    linked = sort_at(s.sorts, c.sort).linked
    if s.turned and linked:
        departure_at(s.departures, message).arrival = arrival_of_next(s, connection)
    if c.front >= 0:
        message_at(s.messages, c.last).after = message
        c.last = message
        return
    c.front = c.last = message
    if linked:
        _prepare(s, c, connection, False)
    else:
        _begin(s, connection)


@compiled
def _prepare(s: Record, c: Record, connection: int, follows: bool) -> None:
    """A message between nodes is in front: it draws its weight, and begins once it has its turns."""
    if s.weighted:
        sort_at(s.sorts, c.sort).weight = _weight_in_transfer(s, c, connection) if s.by_transfer else _next_weight(s)
    if s.queued:
        wait_s = 0.0 if follows else wait_s_of(s, connection, s.now)
        if wait_s != 0.0:
            call_later(s, wait_s, pack(codes.BEGIN, connection), 0)
        else:
            begin_after_wait(s, connection)
    elif not s.turned:
        _begin(s, connection)
    else:
        ask(s, connection, departure_at(s.departures, c.front).arrival)
        _admit_soon(s)


@compiled
def _next_weight(s: Record) -> float:
    weight: float = real_at(s.weights, s.weights_next).x
    s.weights_next += 1
    return weight


@compiled
def _weight_in_transfer(s: Record, c: Record, connection: int) -> float:
    """The weight of the transfer that the message in front belongs to; the first message of a transfer draws it."""
    sides = sides_at(s.sides, connection)
    if sort_at(s.sorts, c.sort).asked_for:
        asker = node_at(s.nodes, sides.receiver)
        if asker.asked == 0:
            asker.asked_weight = _next_weight(s)
        asker.asked += 1
        asked: float = asker.asked_weight
        return asked
    sender = node_at(s.nodes, sides.sender)
    if sender.sent == 0:
        sender.sent_weight = _next_weight(s)
    sender.sent += 1
    sent: float = sender.sent_weight
    return sent


@compiled
def _leave_transfer(s: Record, c: Record, connection: int) -> None:
    """A message of a transfer is across."""
    sides = sides_at(s.sides, connection)
    if sort_at(s.sorts, c.sort).asked_for:
        node_at(s.nodes, sides.receiver).asked -= 1
    else:
        node_at(s.nodes, sides.sender).sent -= 1


@compiled
def begin_after_wait(s: Record, connection: int) -> None:
    """A message has waited behind what others have queued, and begins."""
    begin_in_queues(s, connection, s.now)
    _begin(s, connection)


@compiled
def _has_crossed(s: Record, connection: int) -> None:
    """The last byte of a message between nodes has crossed the ports."""
    if s.queued:
        end_in_queues(s, connection, s.now)
    if s.turned:
        give_back(s, connection)
        _admit_soon(s)
    c = connection_at(s.connections, connection)
    if c.front >= 0:
        _prepare(s, c, connection, True)
    if s.by_transfer:  # after the next message of the connection has joined it
        _leave_transfer(s, c, connection)


@compiled
def _admit_soon(s: Record) -> None:
    if not s.admitting:
        s.admitting = 1
        at_end_of_instant(s, pack(codes.ADMIT, 0), 0)


@compiled
def begin_admitted(s: Record, connection: int) -> None:
    """A message has its turns, and begins."""
    _begin(s, connection)


# -- shares and ends ---------------------------------------------------------------------


@compiled
def settle_soon(s: Record) -> None:
    """Request new shares at the end of this instant."""
    if not s.settling:
        s.settling = 1
        at_end_of_instant(s, pack(codes.SETTLE, 0), 0)


@compiled
def settle_all(s: Record) -> None:
    """Compute shares again after all changes of this instant."""
    s.settling = 0
    now = s.now
    if not settle_plain(s, now):
        settle(s, now)
    s.changed = 0
    for at in range(s.dirty_n):
        port_at(s.ports, number_at(s.dirty, at).n).dirty = 0
    s.dirty_n = 0
    s.fresh_n = 0
    for at in range(s.touched_n):
        set_timer(s, number_at(s.touched, at).n)


@compiled
def set_timer(s: Record, port: int) -> None:
    """Wake up when the port's next message ends at its present rate."""
    p = port_at(s.ports, port)
    now = s.now
    first = first_to_end(s, port)
    if first < 0:
        drop_alarm(s, port)
        p.clock = 0.0
        p.updated = now
        p.rate = 0.0
        return
    front = connection_at(s.connections, first).finish
    p.clock += p.rate * (now - p.updated)
    p.updated = now
    wait_s = (front - p.clock) / p.rate
    set_alarm(s, port, 0.0 if wait_s <= 0.0 else wait_s)


@compiled
def end_messages(s: Record, port: int) -> None:
    """End the messages whose time has come; begin the next ones of their connections."""
    p = port_at(s.ports, port)
    now = s.now
    connection = first_to_end(s, port)
    front = connection_at(s.connections, connection).finish
    # the clock stands where the first message ends, without the rounding of rate x time
    p.clock = front
    p.updated = now
    limit = front * SAME_INSTANT
    ended = ended_last = -1  # messages
    crossed = crossed_last = -1  # connections whose next message begins anew
    while connection >= 0:
        c = connection_at(s.connections, connection)
        finish = c.finish
        if finish > limit:
            break
        take_first(s, port, connection)
        message = c.front
        m = message_at(s.messages, message)
        size = m.size_bytes
        sort = sort_at(s.sorts, c.sort)
        crosses = sort.crosses + connection * sort.crossed
        for each in range(crosses, crosses + sort.crossed):
            real_at(s.carried, number_at(s.crossed, each).n).x += size
        following = m.after
        m.after = -1
        if ended < 0:
            ended = message
        else:
            message_at(s.messages, ended_last).after = message
        ended_last = message
        c.front = following
        if sort.linked:
            _deactivate(s, c, connection, port, now)
            c.after = -1
            if crossed < 0:
                crossed = connection
            else:
                connection_at(s.connections, crossed_last).after = connection
            crossed_last = connection
        elif following >= 0:
            push(s, port, connection, finish + message_at(s.messages, following).size_bytes / sort.weight)
        else:
            _deactivate(s, c, connection, port, now)
        connection = first_to_end(s, port)
    if crossed >= 0:
        s.ending = port
        while crossed >= 0:
            connection = crossed
            crossed = connection_at(s.connections, crossed).after
            _has_crossed(s, connection)
        s.ending = -1
    if p.dirty:
        settle_soon(s)
    else:
        set_timer(s, port)
    while ended >= 0:
        message = ended
        m = message_at(s.messages, message)
        ended = m.after
        c = connection_at(s.connections, m.connection)
        if s.observed:
            restore_context(s, s.message_contexts, message)
        if s.departs:
            left = departure_at(s.departures, message).left
            if left != 0:
                soon(s, left, m.about)
        sort = sort_at(s.sorts, c.sort)
        latency_s = sort.latency_s
        if sort.hosted and waiting_at(s.waiting_messages, message).work_s != 0.0:
            if latency_s != 0.0:
                call_later(s, latency_s, pack(codes.RECEIVED, message), 0)
            else:
                soon(s, pack(codes.RECEIVED, message), 0)
            continue
        if latency_s != 0.0:
            call_later(s, latency_s, m.arrived, m.about)
        else:
            soon(s, m.arrived, m.about)
        _free(s, message)


@compiled
def _deactivate(s: Record, c: Record, connection: int, port: int, now: float) -> None:
    """The connection has nothing left to send."""
    owner = port_at(s.ports, port)
    c.owner = -1
    sort = sort_at(s.sorts, c.sort)
    weight = sort.weight
    first = first_of(sort, connection)
    owner.owned -= weight
    if sort.shared == 1 and owner.foreign_n == 0 and owner.coupled < 0:
        deactivate(s, owner, first)
        owner.load -= weight
        if owner.active_n == 0:
            owner.busy_s += now - owner.busy_since
            owner.owned = owner.load = resting(s, port)
        elif owner.owned != 0.0:
            rate = level_of(owner, available(owner), owner.owned)
            if rate <= owner.floor:
                owner.rate = rate
            else:
                soil(s, owner, port)
        return  # or others are about to begin on it, which is settled at the end of this instant
    for incidence in range(first, first + sort.shared):
        crossed = incidence_at(s.incidences, incidence).port
        p = port_at(s.ports, crossed)
        deactivate(s, p, incidence)
        undisown(s, p, incidence)
        p.load -= weight
        if p.active_n == 0:
            p.busy_s += now - p.busy_since
            p.owned = p.load = resting(s, crossed)
        soil(s, p, crossed)
