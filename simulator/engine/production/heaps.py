"""Heaps of connections in tables: by a finish, then by a serial."""

from __future__ import annotations

from simulator.engine.production.compiling import compiled
from simulator.engine.production.records import heaped_at


@compiled
def put(base: int, at: int, finish: float, serial: int, number: int) -> None:
    """Write an entry."""
    entry = heaped_at(base, at)
    entry.finish = finish
    entry.serial = serial
    entry.connection = number


@compiled
def insert(base: int, n: int, finish: float, serial: int, number: int) -> None:
    """Add a number to a heap of n."""
    at = n
    while at > 0:
        above = (at - 1) >> 1
        entry = heaped_at(base, above)
        if entry.finish < finish or (entry.finish == finish and entry.serial < serial):
            break
        put(base, at, entry.finish, entry.serial, entry.connection)
        at = above
    put(base, at, finish, serial, number)


@compiled
def sink(base: int, n: int, at: int, finish: float, serial: int, number: int) -> None:
    """Put an entry where ``at`` is free in a heap of n, or below."""
    while True:
        below = 2 * at + 1
        if below >= n:
            break
        entry = heaped_at(base, below)
        if below + 1 < n:
            other = heaped_at(base, below + 1)
            if other.finish < entry.finish or (other.finish == entry.finish and other.serial < entry.serial):
                below += 1
                entry = other
        if finish < entry.finish or (finish == entry.finish and serial < entry.serial):
            break
        put(base, at, entry.finish, entry.serial, entry.connection)
        at = below
    put(base, at, finish, serial, number)


@compiled
def pop(base: int, n: int) -> int:
    """Take the first out of a heap of n; how many are left."""
    n -= 1
    if n > 0:
        last = heaped_at(base, n)
        sink(base, n, 0, last.finish, last.serial, last.connection)
    return n
