"""Laws of a collective's schedule that need no run: how much must move, that nothing waits for ever, who gets what.

These functions compute; tests/unit/test_collectives.py and programs/collectives.py hold schedules and programs to them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.program.program import Floats
from simulator.program.schedule import Does, Schedule, Tables, flattened

Buffers = NDArray[np.int64]
"""How often each rank's contribution is in each part of each rank's buffer, shape (ranks, parts, ranks)."""


class Traffic(NamedTuple):
    """What each member of a schedule sends and receives, in buffers, each of shape (members,)."""

    sent: Floats
    received: Floats


class Least(NamedTuple):
    """What an operation has to move at least, in buffers: all together, and out of and into each rank, shape (ranks,)."""

    total: float
    sent: Floats
    received: Floats


def shares(schedule: Schedule) -> Traffic:
    """What a schedule moves through the links of each rank and switch."""
    tables = flattened(schedule)
    carried = tables.messages * tables.each / tables.parts
    sent, received = (np.bincount(of, carried, schedule.members).astype(np.float64) for of in (tables.source, tables.target))
    return Traffic(sent, received)


def least_shares(operation: Does, ranks: int) -> Least:
    """Lower bounds for any algorithm.

    Of each part of an all-reduce n - 1 messages must bring the contributions together and
    n - 1 the result to everybody, and each rank must send and receive each part at least
    once: together more than 2 (n - 1)/n of a buffer through each rank's links. The other
    operations are halves of it, or move (n - 1)/n of a buffer out of each rank and into it.
    Chan, Heimlich, Purkayastha and van de Geijn, "Collective communication: theory,
    practice, and experience", 2007, section 3.
    """
    nothing, all_but_own = np.zeros(ranks), np.full(ranks, (ranks - 1) / ranks)
    if ranks == 1:
        return Least(0.0, nothing, nothing)
    whole, part = np.ones(ranks), np.full(ranks, 1 / ranks)
    every: dict[Does, Least] = {
        "all-reduce": Least(2 * (ranks - 1), whole, whole),
        "reduce-scatter": Least(ranks - 1, all_but_own, part),
        "all-gather": Least(ranks - 1, part, all_but_own),
        "all-to-all": Least(ranks - 1, all_but_own, all_but_own),
    }
    return every[operation]


def dependencies(tables: Tables, lane: int, index: int) -> list[tuple[int, int]]:
    """The messages (lane, index) that must have arrived before a message may leave: the last one of each lane that it needs."""
    needed = []
    for needs in (tables.awaits, tables.meets):
        for row in range(needs.start[lane], needs.start[lane + 1]):
            count = int(needs.slope[row]) * index + int(needs.base[row]) if index >= needs.onward[row] else 0
            if count:
                needed.append((int(needs.lane[row]), count - 1))
    return needed


def stuck(schedule: Schedule) -> int:
    """How many messages can never leave, if all ranks enter and every message that may leave does and arrives: 0 if there is no cycle."""
    tables = flattened(schedule)
    lanes = len(tables.source)
    sent = [0] * lanes
    waiting: dict[int, list[int]] = {}  # lanes that look again when another has moved on
    ready = list(range(lanes))
    while ready:
        lane = ready.pop()
        before = sent[lane]
        while sent[lane] < tables.messages[lane]:
            missing = [need for need, index in dependencies(tables, lane, sent[lane]) if sent[need] <= index]
            if missing:
                waiting.setdefault(missing[0], []).append(lane)
                break
            sent[lane] += 1
        if sent[lane] > before:
            ready.extend(waiting.pop(lane, ()))
    return int(tables.messages.sum()) - sum(sent)


def start_of(operation: Does, schedule: Schedule) -> Buffers:
    """Everybody's data before an operation; switches have none."""
    ranks, parts = schedule.ranks, schedule.parts
    every = np.arange(ranks)
    if operation == "all-to-all":
        data = np.zeros((ranks, ranks * parts, ranks), dtype=np.int64)
        for rank in every:
            data[rank, rank * parts : (rank + 1) * parts, rank] = 1
        return data
    data = np.zeros((schedule.members, parts, ranks), dtype=np.int64)
    if operation == "all-gather":
        for part in range(parts):
            data[part % ranks, part, part % ranks] = 1
    else:
        data[every, :, every] = 1
    return data


def end_of(operation: Does, schedule: Schedule) -> tuple[NDArray[np.bool_], Buffers]:
    """What an operation leaves behind: which parts of each rank's buffer count, shape (ranks, parts), and what they then hold."""
    ranks, parts = schedule.ranks, schedule.parts
    counts = np.ones((schedule.members, parts), dtype=np.bool_)
    counts[ranks:] = False
    holds = np.ones((schedule.members, parts, ranks), dtype=np.int64)
    if operation == "all-to-all":
        part = np.arange(ranks * parts)
        return part % ranks == np.arange(ranks)[:, None], np.tile(np.eye(ranks, dtype=np.int64)[part // parts], (ranks, 1, 1))
    if operation == "reduce-scatter":
        counts = np.arange(parts) % ranks == np.arange(ranks)[:, None]
    elif operation == "all-gather":
        holds = np.tile(np.eye(ranks, dtype=np.int64)[np.arange(parts) % ranks], (ranks, 1, 1))
    return counts, holds
