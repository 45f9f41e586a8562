"""Times from a trial run: every message on a copy of the network that nobody else uses."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from simulator.collectives.around import Times
from simulator.collectives.collective import Scheduled
from simulator.collectives.exchanges import Plan, exchanges_of
from simulator.collectives.message_level import MessageLevel
from simulator.collectives.wire import Wire
from simulator.network.cores import cores_of
from simulator.network.flows import Network
from simulator.network.kernel import Kernel
from simulator.network.objects import network_of
from simulator.network.ports import leave_out_ample
from simulator.program.schedule import Schedule
from simulator.spec.transport import Transport

__all__ = ["ByTrial", "at_a_steady_pace_s", "together_s"]

_STEADY = 5e-3
"""Relative change of the pace, from one doubling of the pieces to the next, below which it is taken to be steady."""


class ByTrial(Scheduled):
    """From a trial run in which all ranks enter together, those of the groups beside them as well.

    Parameters
    ----------
    name, protocol, wire
        As in :class:`~simulator.collectives.collective.Scheduled`.
    schedule
        The messages for a size in bytes.
    """

    _aligned = True

    def __init__(self, name: str, protocol: str, wire: Wire, schedule: Callable[[float], Schedule]) -> None:
        super().__init__(name, protocol, schedule, wire)

    def _received_s(self, ready_s: Times, size_bytes: float, free_s: Times) -> Times:  # noqa: ARG002 - all enter at 0
        return together_s(self.plan(size_bytes), size_bytes)


def together_s(plan: Plan, size_bytes: float) -> Times:
    """When each rank has ended if all of this group, and of those beside it, have their data at 0; shape (ranks,)."""
    kernel = Kernel()
    ranks = plan.schedule.ranks
    wire = plan.wire
    transport = Transport(cpu_per_message_s=wire.message_s, copy_per_byte_s=wire.copy_per_byte_s)
    network = Network(kernel, transport, cores=cores_of(kernel, wire.shared_cores, wire.time_slice_s))
    cabling, every = wire.fresh(), wire.of_all()
    exchanges = [exchanges_of(cabling, [Plan(plan.schedule, each)], [size_bytes]) for each in every]
    ports, _, paths, hosts = cabling.tables()
    _, connections, _ = network_of(ports, paths, hosts)
    leave_out_ample(connections)
    finish_s = np.zeros(ranks)

    def ended(rank: int, _: int) -> None:
        finish_s[rank] = kernel.now

    runs = [
        MessageLevel(kernel, network, its, connections, each.group.ranks, ended=None if number else ended)
        for number, (each, its) in enumerate(zip(every, exchanges, strict=True))
    ]
    for rank in range(ranks):
        for run in runs:
            run.ready(rank, 0)
    kernel.run()
    return finish_s


def at_a_steady_pace_s(trial_s: Callable[[int], Times], pieces: int, filling: int) -> Times:
    """When each rank has ended with a number of pieces, of which only some are simulated if there are many.

    Parameters
    ----------
    trial_s
        When each rank has ended with a number of pieces.
    pieces
        How many there are.
    filling
        About how many are on their way at the same time.
    """
    count = max(filling, 8)
    if 2 * count < pieces:
        passage_s, fewer_s, some_s = (trial_s(some) for some in (1, count // 2, count))
        while 2 * count < pieces:
            more_s = trial_s(2 * count)
            earlier_s, pace_s = 2 * (some_s - fewer_s).max() / count, (more_s - some_s).max() / count
            # steady at the earliest when the first pieces have come through: in a tree they share the links with those that set out
            if some_s.max() > 2 * passage_s.max() and abs(pace_s - earlier_s) <= _STEADY * pace_s:
                finish_s: Times = more_s + (pieces - 2 * count) * pace_s
                return finish_s
            fewer_s, some_s, count = some_s, more_s, 2 * count
    return trial_s(pieces)
