"""Turns: a node begins only a given number of messages at a time in each direction, in the order in which they came.

A message begins once both the sender's and the receiver's side have a turn to give. One that waits for one side does not hold
up later ones that do not need that side (a NIC with a queue for each peer, no head-of-line blocking). Of a connection only the
message in front stands for a turn, so that none overtakes another. Who may begin is settled at the end of an instant. A message
that cannot begin is parked with a side that has no turn left, and looked at again only when that side has one.

``simulator.engine.compiled.admission`` does the same, compiled: change both together
(tests/oracle/test_compiled_network.py holds them equal).
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from simulator.network.hosts import Turns
from simulator.network.ports import Connection

__all__ = ["Admission", "Arrival"]

Arrival = tuple[int, int, int]
"""The instant, the connection's number, and how many have come before."""


class Admission:
    """Who waits for a turn, of all hosts."""

    def __init__(self) -> None:
        self._came: list[tuple[Arrival, Connection]] = []
        self._gave_back: dict[Turns, None] = {}
        self._serial = 0

    def arrival(self, instant: int, connection: Connection) -> Arrival:
        """The place of a message in the order of arrival; of those of one instant, connections in the order of their table."""
        self._serial += 1
        return instant, connection.number, self._serial

    def ask(self, connection: Connection, arrival: Arrival) -> None:
        """The message in front stands for a turn."""
        self._came.append((arrival, connection))

    def give_back(self, connection: Connection) -> None:
        """The message in front has crossed the link."""
        for turns in _turns_of(connection):
            turns.free += 1
            self._gave_back[turns] = None

    def decide(self) -> list[Connection]:
        """Connections whose messages begin now, in order of arrival; they have taken their turns."""
        due: list[tuple[Arrival, Connection, Turns | None]] = [(arrival, connection, None) for arrival, connection in self._came]
        due += [(*heappop(turns.parked), turns) for turns in self._gave_back if turns.parked]
        self._came, self._gave_back = [], {}
        heapify(due)
        begun = []
        while due:
            arrival, connection, parked_with = heappop(due)
            sending, receiving = _turns_of(connection)
            if not sending.free:
                heappush(sending.parked, (arrival, connection))
            elif not receiving.free:
                heappush(receiving.parked, (arrival, connection))
            else:
                sending.free -= 1
                receiving.free -= 1
                begun.append(connection)
            if parked_with is not None and parked_with.free and parked_with.parked:
                heappush(due, (*heappop(parked_with.parked), parked_with))
        return begun


def _turns_of(connection: Connection) -> tuple[Turns, Turns]:
    assert connection.source is not None
    assert connection.target is not None
    sending, receiving = connection.source.sending, connection.target.receiving
    assert sending is not None
    assert receiving is not None
    return sending, receiving
