"""Times of collectives from trial runs, message by message, on a copy of the network that only the group and those beside it use.

For algorithms without times of their own, and networks on which theirs do not hold. A trial is a run of a program of its own
(``simulator.engine.trial``, named as text: engines are made of collectives). Of very many pieces only some are simulated, and the rest
is extrapolated: :func:`at_a_steady_pace_s`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from simulator.collectives.around import Times
from simulator.collectives.collective import Scheduled
from simulator.collectives.exchanges import Plan
from simulator.collectives.wire import Wire
from simulator.program.schedule import Schedule

_STEADY = 5e-3
"""Relative change of the pace, from one doubling of the pieces to the next, below which it is taken to be steady."""


class ByTrial(Scheduled):
    """A collective whose times come from a trial run: all ranks of its group, and of the groups beside it, enter together.

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
    finish_s: Callable[[Plan, float], Times] = import_module("simulator.engine.trial").finish_s
    return finish_s(plan, size_bytes)


def at_a_steady_pace_s(trial_s: Callable[[int], Times], pieces: int, filling: int) -> Times:
    """When each rank has ended all pieces; of many only some are simulated, until their pace is steady, and the rest extrapolated.

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
        first_s, half_s, count_s = (trial_s(number) for number in (1, count // 2, count))
        while 2 * count < pieces:
            double_s = trial_s(2 * count)
            earlier_pace_s, pace_s = 2 * (count_s - half_s).max() / count, (double_s - count_s).max() / count
            # steady at the earliest when the first pieces have come through: in a tree they share the links with those that set out
            if count_s.max() > 2 * first_s.max() and abs(pace_s - earlier_pace_s) <= _STEADY * pace_s:
                finish_s: Times = double_s + (pieces - 2 * count) * pace_s
                return finish_s
            half_s, count_s, count = count_s, double_s, 2 * count
    return trial_s(pieces)
