"""Counts the bytes and seconds of use of each link for collectives that are evaluated at once, without single messages.

Message by message the links' ports count this themselves (tests/unit/test_collectives.py compares both).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from simulator.collectives.wire import Cabling, Wire
from simulator.program.port_names import PortName
from simulator.program.program import Floats, Paths, Ports
from simulator.program.schedule import Schedule, columns


class Load(NamedTuple):
    """What a buffer brings each port, for each of its bytes; shape (ports,).

    Attributes
    ----------
    shares
        Bytes.
    seconds
        Seconds of use: at least what the port needs for its bytes, and what the longest of
        the lanes that cross it needs at the pace of the slowest port on its way.
    """

    shares: Floats
    seconds: Floats


def load_of(schedule: Schedule, bytes_per_byte: Floats, ports: Ports, paths: Paths, first: int = 0) -> Load:
    """What a collective's lanes bring the ports; ``bytes_per_byte``: what crosses for each byte of a lane; its paths begin at ``first``."""
    *_, messages, parts = columns(schedule)
    share = messages.astype(np.int64) * parts / schedule.parts * bytes_per_byte
    port = paths.port[paths.first[first] :]
    path = np.repeat(np.arange(len(share)), np.diff(paths.first[first:]))
    slowest = np.full(len(share), np.inf)
    np.minimum.at(slowest, path, ports.capacity[port])
    count = len(ports.capacity)
    shares: Floats = np.bincount(port, share[path], count).astype(np.float64)
    seconds = np.zeros(count)
    np.maximum.at(seconds, port, (share / slowest)[path])
    return Load(shares, np.maximum(seconds, shares / ports.capacity))


class Use:
    """Counts what crosses the links of a network.

    Parameters
    ----------
    cabling
        The network, without connections yet.

    Attributes
    ----------
    carried, busy_s
        Of each link bytes carried, and seconds in use.
    """

    def __init__(self, cabling: Cabling) -> None:
        self._cabling = cabling
        self._ports, _, _, self._hosts = cabling.tables()
        self.carried = np.zeros(0)
        self.busy_s = np.zeros(0)

    def lay(self, schedule: Schedule, wire: Wire) -> Load:
        """Have the links that a collective crosses counted from now on; what a buffer brings each link."""
        lanes = columns(schedule)
        numbers = wire.lay(self._cabling, lanes.source, lanes.target)
        self._ports, links, paths, self._hosts = self._cabling.tables()
        new = links - len(self.carried)
        self.carried, self.busy_s = (np.concatenate((before, np.zeros(new))) for before in (self.carried, self.busy_s))
        load = load_of(
            schedule, wire.bytes_of(lanes.source, lanes.target), self._ports, paths, int(numbers[0]) if len(numbers) else len(paths)
        )
        return Load(load.shares[:links], load.seconds[:links])  # those behind are caps of single connections

    def add(self, load: Load, size_bytes: float, times: int) -> None:
        """Count buffers of a size."""
        links = len(load.shares)
        self.carried[:links] += load.shares * size_bytes * times
        self.busy_s[:links] += load.seconds * size_bytes * times

    def forget(self) -> None:
        """Count from the beginning, on the same links."""
        self.carried, self.busy_s = np.zeros_like(self.carried), np.zeros_like(self.busy_s)

    @property
    def names(self) -> Sequence[PortName]:
        """Of every link that is counted, and of the hosts at their ends."""
        links = self._ports.names[: len(self.carried)]
        return [*links, *self._hosts.names] if self._hosts.count else links

    @property
    def seconds(self) -> Floats:
        """For how long each of them has been in use; work of hosts is not counted. Shape (names,)."""
        links, ports = len(self.carried), self._ports
        # bytes stand for seconds of the whole capacity; where incast eats into it, seconds in use do
        used_s = np.where(ports.incast_loss[:links] > 0, self.busy_s, self.carried / ports.whole[:links])
        return np.concatenate((used_s, np.zeros(self._hosts.count)))
