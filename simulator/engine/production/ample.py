"""Which ports can never be full: they are left out of the sharing, and only count bytes.

A port is ample if all connections that will ever cross it, each as fast as its other shared ports allow, fit into its capacity.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.engine.production.machine import entry
from simulator.program.program import Integers, Paths, Ports

__all__ = ["shared_crossings"]

_NONE: Integers = np.zeros(0, dtype=np.int64)


def shared_crossings(ports: Ports, paths: Paths, weight: NDArray[np.float64], changing: Integers = _NONE) -> NDArray[np.bool_]:
    """Of each entry of ``paths.port``, whether the port has to be shared there; the others are ample.

    A port is ample if all paths that cross it, each as fast as its other shared ports
    allow, fit into its capacity; none is to which incast does something.

    Parameters
    ----------
    ports, paths
        All there are.
    weight
        Of each path, shape (paths,).
    changing
        Ports of which others take more at one time than at another: never ample, no more than one that flows of others share.
    """
    crossings = len(paths.port)
    path = np.repeat(np.arange(len(paths)), np.diff(paths.first))
    by_port = np.argsort(paths.port, kind="stable")
    users = np.bincount(paths.port, minlength=len(ports.capacity))
    begins = np.concatenate(([0], np.cumsum(users)))
    appears = np.full(len(users), crossings)
    np.minimum.at(appears, paths.port, np.arange(crossings))
    order = np.lexsort((appears, users))
    shared = np.ones(crossings, dtype=np.bool_)
    most = room = _real(ports.capacity)
    if ports.beside is not None:
        most, room = most.copy(), most.copy()
        most[changing] = ports.whole[changing]
        room[changing] = -1.0
        room[ports.beside > 0] = -1.0
    room = np.where(ports.incast_loss > 0, -1.0, room)  # whose use is the time for which they have anything to do
    _leave_out(
        _whole(order),
        _whole(begins),
        _whole(by_port),
        _whole(path),
        _whole(paths.first),
        _whole(paths.port),
        _real(weight),
        most,
        room,
        _real(ports.ceiling),
        shared,
    )
    return shared


# for tables of one kind alone is machine code made


def _whole(values: NDArray[Any]) -> NDArray[np.int64]:
    return np.require(values, np.int64, ("C", "W"))


def _real(values: NDArray[Any]) -> NDArray[np.float64]:
    return np.require(values, np.float64, ("C", "W"))


@entry
def _leave_out(
    order: Any, begins: Any, by_port: Any, path: Any, first: Any, crossed: Any, weight: Any,
    capacity: Any, room_of: Any, ceiling: Any, shared: Any,
) -> None:  # fmt: skip
    """Go through the ports by their number of users, and mark where they are left out."""
    for port in order:
        users = begins[port + 1] - begins[port]
        if users == 0:
            continue
        total = 0.0
        capped = True
        for at in range(begins[port], begins[port + 1]):
            user = path[by_port[at]]
            most = np.inf
            lowest = -np.inf
            for other in range(first[user], first[user + 1]):
                if shared[other] and crossed[other] != port:
                    one = crossed[other]
                    lowest = min(lowest, ceiling[one]) if most < np.inf else ceiling[one]
                    most = min(most, min(capacity[one], ceiling[one] * weight[user]))
            total += most
            capped = capped and lowest <= ceiling[port]  # its ceiling must not be lost with it
        if total <= room_of[port] and capped:
            for at in range(begins[port], begins[port + 1]):
                shared[by_port[at]] = False
