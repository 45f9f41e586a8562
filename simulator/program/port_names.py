"""Kind and owner of ports, hosts and switches, from which their names are made.

Nothing reads a name back: whoever wants to know what a link is asks for its kind. But names are
shown in results and traces, and loads of single links are drawn by them (wiring.py).
The order of kinds counts: wiring.py and ``paceline.planning.bounds`` compare them by number. A
new kind also needs its capacity in tests/oracles/programs/structure.py.

Switches that add what ranks send (SHARP, NVLS) are named in paths by numbers below 0, as replicas have those from 0 on: wiring.py lays
paths to them, and collectives send over these.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray


class PortKind(IntEnum):
    """Kind of a port, with its direction as seen by its owner; HOST_CORES are not a link: their use is measured separately.

    Attributes
    ----------
    text
        Its name, where ``{0}`` is its owner and ``{1}`` where it leads or comes from.
    owner
        What kind its owner is; inside: an end in a node, a device or a server.
    """

    text: str
    owner: str

    def __new__(cls, number: int, text: str = "", owner: str = "") -> PortKind:
        """Make a kind of this number."""
        kind = int.__new__(cls, number)
        kind._value_, kind.text, kind.owner = number, text, owner
        return kind

    NODE_OUT = 0, "{0} out", "node"
    NODE_IN = 1, "{0} in", "node"
    CPU = 2, "{0} cpu", "node"
    """A node's work on the bytes that it sends and gets."""
    LEAF_UP = 3, "{0} up to {1}", "leaf"
    LEAF_DOWN = 4, "{0} down from {1}", "leaf"
    INSIDE_OUT = 5, "{0} out", "inside"
    INSIDE_IN = 6, "{0} in", "inside"
    MESH = 7, "{0} to {1}", "inside"
    """The link of its own that one end inside a node has to another."""
    ISLAND_OUT = 8, "{0} out to other islands", "inside"
    """From a device to those of other islands in its node."""
    ISLAND_IN = 9, "{0} in from other islands", "inside"
    HOST_LINK_OUT = 10, "{0} from device", "host link"
    HOST_LINK_IN = 11, "{0} to device", "host link"
    DEVICE_MEMORY = 12, "{0} memory", "device"
    """Port of a device through which the replicas that share it reach each other."""
    CONNECTION = 13, "{0}", "connection"
    """Maximum rate of one connection, if limited."""
    DEVICE = 14, "{0}", "device"
    MESSAGES = 15, "{0} messages", "node"
    """A node's work on messages, one by one."""
    HOST_CORES = 16, "{0} cores", "node"
    """A node's cores, on which pipelines prepare batches."""
    STORAGE = 17, "{0}", "storage"
    """Reads of all nodes together."""
    NODE_STORAGE = 18, "{0} storage", "node"
    """Reads of a node."""
    SHARED_LINK = 19, "{0}", "shared link"
    """Links that the same groups use for collectives of known durations: seconds of them."""


OwnerKind = Literal[
    "node", "server node", "client node", "leaf", "spine", "device", "server", "client", "host link", "connection", "storage", "rail",
    "shared link",
]  # fmt: skip


class Owner(NamedTuple):
    """Whose a port is, or where it leads; ``number`` counts those of its kind."""

    kind: OwnerKind
    number: int = 0

    def __str__(self) -> str:
        """Its name, such as ``server node 3``."""
        return self.kind if self.kind in _ONLY else f"{self.kind} {self.number}"

    @property
    def pattern(self) -> str:
        """The same of any of its kind: ``server node *``."""
        return self.kind if self.kind in _ONLY else f"{self.kind} *"


_ONLY = "client node", "client", "storage"
"""Of these there is one."""

_WAYS = {PortKind.NODE_OUT: "out", PortKind.NODE_IN: "in"}
"""Of a node's links those that are one rail's say so: ``node 3 rail 1 out``."""


class PortName(NamedTuple):
    """Kind of a port or a host.

    Attributes
    ----------
    kind
        What it is.
    owner
        Whose it is.
    other
        Where it leads to or comes from, if a port is for one direction only: a spine, another device;
        of a node's links that belong to one rail: the rail.
    """

    kind: PortKind
    owner: Owner
    other: Owner | None = None

    def __str__(self) -> str:
        """Its name, such as ``leaf 1 up to spine 0``; unique among the ports of a cluster."""
        return self._text.format(self.owner, self.other)

    @property
    def _text(self) -> str:
        return "{0} {1} " + _WAYS[self.kind] if self.kind in _WAYS and self.other is not None else self.kind.text

    @property
    def pattern(self) -> str:
        """Return what all of the same kind, with owners of the same kind, are called: ``leaf * up to spine *``."""
        return self._text.format(self.owner.pattern, self.other.pattern if self.other is not None else "")


class SwitchKind(IntEnum):
    """Where a switch is."""

    INSIDE = 0
    """Link between the devices of a node or an island."""
    LEAF = 1
    SPINE = 2


def number_of(kind: SwitchKind, place: int | NDArray[np.integer]) -> int | NDArray[np.integer]:
    """Return what paths call the switch ``place`` of its kind, such as leaf 3."""
    return -1 - (place * len(SwitchKind) + int(kind))


def is_switch(number: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Tell whether ends of paths are switches."""
    return number < 0


def kind_of(number: NDArray[np.integer]) -> NDArray[np.integer]:
    """Of switches: where each is, as :class:`SwitchKind`."""
    return (-1 - number) % len(SwitchKind)


def place_of(number: NDArray[np.integer]) -> NDArray[np.integer]:
    """Of switches: which each is, of its kind."""
    return (-1 - number) // len(SwitchKind)
