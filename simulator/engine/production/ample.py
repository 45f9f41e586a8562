"""Which ports can never be full: they are left out of the sharing, and only count bytes.

A port is ample if all connections that will ever cross it, each as fast as its other shared ports allow, fit into its capacity.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.engine.production import layout
from simulator.engine.production.machine import act, address_of
from simulator.program.program import Integers, Paths, Ports

_NONE: Integers = np.zeros(0, dtype=np.int64)


def shared_crossings(ports: Ports, paths: Paths, weight: NDArray[np.float64], changing: Integers = _NONE) -> NDArray[np.bool_]:
    """Of each entry of ``paths.port``, whether the port has to be shared there; the others are ample.

    A port is ample if all paths that cross it, each as fast as its other shared ports
    allow, fit into its capacity; ports that incast affects are never ample.

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
    most = room = np.require(ports.capacity, np.float64, "C")
    if ports.beside is not None:
        most, room = most.copy(), most.copy()
        most[changing] = ports.whole[changing]
        room[changing] = -1.0
        room[ports.beside > 0] = -1.0
    room = np.where(ports.incast_loss > 0, -1.0, room)  # whose use is the time for which they have anything to do
    columns = {
        **{name: np.require(values, np.int64, "C") for name, values in (
            ("order", order), ("begins", begins), ("by_port", by_port), ("path", path), ("first", paths.first), ("crossed", paths.port),
        )},
        **{name: np.require(values, np.float64, "C") for name, values in (
            ("weight", weight), ("capacity", most), ("room", room), ("ceiling", ports.ceiling),
        )},
        "shared": shared,
    }  # fmt: skip
    crossings_of = np.zeros(1, layout.CROSSINGS)
    crossings_of["ports_n"] = len(order)
    for name, column in columns.items():
        crossings_of[name] = address_of(column)
    act(address_of(crossings_of), 9, 0, 0.0, 0, 0, 0)
    return shared
