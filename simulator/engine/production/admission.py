"""Turns: a node begins only a given number of messages at a time in each direction, in the order in which they came.

A message begins once both the sender's and the receiver's side have a turn to give. One that waits for one side does not hold up later ones
that do not need that side (a NIC with a queue for each peer, no head-of-line blocking). Only the first message of a connection asks for a
turn, so that none overtakes another. Who may begin is settled at the end of an instant; of those that came in one instant, connections go
in the order of their table. A message that cannot begin is parked with a side that has no turn left, and looked at again only when that
side has one.
"""

from __future__ import annotations

from simulator.engine.production.compiling import compiled
from simulator.engine.production.layout import Record
from simulator.engine.production.records import number_at, parked_at, sides_at, turns_at


@compiled
def arrival_of_next(s: Record, connection: int) -> int:
    """The place of a message that comes now in the order of arrival; of those of one instant, connections in the order of their table."""
    arrival: int = (s.instant << 28) + connection
    return arrival


@compiled
def ask(s: Record, connection: int, arrival: int) -> None:
    """The message in front stands for a turn."""
    _put(s.came, s.came_n, arrival, connection, -1)
    s.came_n += 1


@compiled
def give_back(s: Record, connection: int) -> None:
    """The message in front has crossed the link."""
    e = sides_at(s.sides, connection)
    _return(s, 2 * e.sender)
    _return(s, 2 * e.receiver + 1)


@compiled
def _return(s: Record, turns: int) -> None:
    t = turns_at(s.turns, turns)
    t.free += 1
    if not t.gave_back:
        t.gave_back = 1
        number_at(s.gave_back, s.gave_back_n).n = turns
        s.gave_back_n += 1


@compiled
def gather(s: Record) -> None:
    """Those that may begin now: who came, and the first of those parked where turns were given back."""
    s.due_n = 0
    for at in range(s.came_n):
        entry = parked_at(s.came, at)
        s.due_n = _push(s.due, s.due_n, entry.arrival, entry.connection, -1)
    s.came_n = 0
    for at in range(s.gave_back_n):
        turns = number_at(s.gave_back, at).n
        turns_at(s.turns, turns).gave_back = 0
        _unpark(s, turns)
    s.gave_back_n = 0


@compiled
def _unpark(s: Record, turns: int) -> None:
    t = turns_at(s.turns, turns)
    if t.parked_n > 0:
        entry = parked_at(t.parked, 0)
        arrival = entry.arrival
        connection = entry.connection
        t.parked_n = _pop(t.parked, t.parked_n)
        s.due_n = _push(s.due, s.due_n, arrival, connection, turns)


@compiled
def _park(t: Record, arrival: int, connection: int) -> None:
    t.parked_n = _push(t.parked, t.parked_n, arrival, connection, -1)


@compiled
def decide_next(s: Record) -> int:
    """The next connection whose message begins, in order of arrival; it has taken its turns; -1 if no other begins."""
    while s.due_n > 0:
        entry = parked_at(s.due, 0)
        arrival = entry.arrival
        connection = entry.connection
        parked_with = entry.turns
        s.due_n = _pop(s.due, s.due_n)
        e = sides_at(s.sides, connection)
        sending = turns_at(s.turns, 2 * e.sender)
        receiving = turns_at(s.turns, 2 * e.receiver + 1)
        begins = False
        if sending.free == 0:
            _park(sending, arrival, connection)
        elif receiving.free == 0:
            _park(receiving, arrival, connection)
        else:
            sending.free -= 1
            receiving.free -= 1
            begins = True
        if parked_with >= 0 and turns_at(s.turns, parked_with).free > 0:
            _unpark(s, parked_with)
        if begins:
            return connection
    return -1


# -- heaps by arrival --------------------------------------------------------------------


@compiled
def _put(base: int, at: int, arrival: int, connection: int, turns: int) -> None:
    entry = parked_at(base, at)
    entry.arrival = arrival
    entry.connection = connection
    entry.turns = turns


@compiled
def _push(base: int, n: int, arrival: int, connection: int, turns: int) -> int:
    at = n
    while at > 0:
        above = (at - 1) >> 1
        entry = parked_at(base, above)
        if entry.arrival < arrival:
            break
        _put(base, at, entry.arrival, entry.connection, entry.turns)
        at = above
    _put(base, at, arrival, connection, turns)
    return n + 1


@compiled
def _pop(base: int, n: int) -> int:
    n -= 1
    last = parked_at(base, n)
    arrival = last.arrival
    connection = last.connection
    turns = last.turns
    at = 0
    while True:
        below = 2 * at + 1
        if below >= n:
            break
        entry = parked_at(base, below)
        if below + 1 < n:
            other = parked_at(base, below + 1)
            if other.arrival < entry.arrival:
                below += 1
                entry = other
        if arrival < entry.arrival:
            break
        _put(base, at, entry.arrival, entry.connection, entry.turns)
        at = below
    _put(base, at, arrival, connection, turns)
    return n
