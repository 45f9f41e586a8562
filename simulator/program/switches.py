"""How paths name switches that add what ranks send (SHARP, NVLS): by numbers below 0, as replicas have those from 0 on.

``simulator.program.wiring`` lays paths to them, ``simulator.collectives`` sends over these.
"""

from __future__ import annotations

from enum import IntEnum

from simulator.program.program import Flags, Integers


class SwitchKind(IntEnum):
    """Where a switch is."""

    INSIDE = 0
    """What joins the devices of a node, or of an island."""
    LEAF = 1
    SPINE = 2


def number_of(kind: SwitchKind, place: int | Integers) -> int | Integers:
    """What paths call the switch ``place`` of its kind, such as leaf 3."""
    return -1 - (place * len(SwitchKind) + int(kind))


def is_switch(number: Integers) -> Flags:
    """Whether ends of paths are switches."""
    return number < 0


def kind_of(number: Integers) -> Integers:
    """Of switches: where each is, as :class:`SwitchKind`."""
    return (-1 - number) % len(SwitchKind)


def place_of(number: Integers) -> Integers:
    """Of switches: which each is, of its kind."""
    return (-1 - number) // len(SwitchKind)
