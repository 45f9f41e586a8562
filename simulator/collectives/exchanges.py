"""Makes the messages of collectives part of a program: one :class:`~simulator.program.program.Exchange` for each bucket, with its paths.

How they are sent is in ``simulator.engine.production.collectives``, and plainly in ``simulator.engine.textbook.collectives``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from simulator.collectives.wire import Cabling, Wire
from simulator.program.program import Exchange, Integers
from simulator.program.schedule import Schedule, flattened


class Plan(NamedTuple):
    """The messages of one collective, and what they cross."""

    schedule: Schedule
    wire: Wire


def exchanges_of(cabling: Cabling, plans: Sequence[Plan], buckets_bytes: Sequence[float], group: int = 0) -> tuple[Exchange, ...]:
    """The messages of one collective per bucket, all of the same group, and their paths on a network.

    Lanes between the same two ranks, of the same number and by the same protocol, are one
    connection: what one bucket has still to send delays the next.

    Parameters
    ----------
    cabling
        Where the paths are laid.
    plans
        The messages of each bucket, and the protocol that they go by.
    buckets_bytes
        Size of each bucket.
    group
        The group's number in the program.
    """
    paths: dict[tuple[int, object], Integers] = {}  # by schedule and protocol
    known: dict[tuple[object, ...], int] = {}
    exchanges = []
    for plan, size_bytes in zip(plans, buckets_bytes, strict=True):
        tables, wire = flattened(plan.schedule), plan.wire
        kind = id(plan.schedule), wire.protocol
        if kind not in paths:
            # protocols differ in latency, so that they do not share a connection
            called = [wire.members[its].tolist() for its in (tables.source, tables.target)]
            ends = zip(tables.source.tolist(), tables.target.tolist(), tables.number.tolist(), *called, strict=True)
            keys = [(*lane, wire.protocol) for lane in ends]
            new = np.array([lane for lane, key in enumerate(keys) if key not in known], dtype=np.int64)
            numbers = wire.lay(cabling, tables.source[new], tables.target[new])
            known.update((keys[lane], number) for lane, number in zip(new.tolist(), numbers.tolist(), strict=True))
            paths[kind] = np.array([known[key] for key in keys], dtype=np.int64)
        each_bytes = size_bytes * (tables.each / tables.parts) * wire.bytes_of(tables.source, tables.target)
        exchanges.append(Exchange(tables, paths[kind], each_bytes, group))
    return tuple(exchanges)


def exchanges_of_groups(cabling: Cabling, plans: Sequence[Plan], buckets_bytes: Sequence[float], first: int = 0) -> tuple[Exchange, ...]:
    """The messages of groups of the same shape that do the same: of the plans' own group, and of those beside it.

    Parameters
    ----------
    cabling, plans, buckets_bytes
        As in :func:`exchanges_of`; all plans are of the same groups.
    first
        The number of the plans' own group in the program; those beside it follow.
    """
    groups = zip(*(plan.wire.of_all() for plan in plans), strict=True)
    of_each = [[Plan(plan.schedule, wire) for plan, wire in zip(plans, wires, strict=True)] for wires in groups]
    return tuple(its for number, group in enumerate(of_each) for its in exchanges_of(cabling, group, buckets_bytes, first + number))
