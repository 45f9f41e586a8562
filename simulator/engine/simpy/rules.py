"""Rules that let ranks go on or hold them back: the job's length, stale-synchronous clocks, the coordinator, the client.

``simulator.engine.compiled.rules`` does the same, compiled: change both together (tests/property/test_engines_agree.py holds them
equal). Rules of updates, such as tokens, are in ``updates``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from simpy.events import Event

from simulator.engine.simpy.device import Done, Seat
from simulator.network.kernel import Kernel
from simulator.program.program import Client, Dispatcher

__all__ = ["Clocks", "OneByOne", "Steps", "coordinator", "preparing_client"]


class Steps:
    """Steps that are still to be handed out.

    Parameters
    ----------
    shared
        Steps of all ranks together; none if there is no end before the measurement's.
    each
        Steps of every rank; none likewise.
    """

    def __init__(self, ranks: int, shared: int | None, each: int | None) -> None:
        self._shared = shared
        self._left = None if each is None else [each] * ranks

    def take(self, rank: int) -> bool:
        """Whether there is one more step for this rank; it is taken then."""
        if self._left is not None:
            self._left[rank] -= 1
            return self._left[rank] >= 0
        if self._shared is None:
            return True
        self._shared -= 1
        return self._shared >= 0


class Clocks:
    """Stale-synchronous parallel: nobody begins a step while more than ``bound`` steps ahead of the slowest.

    Ho et al., "More effective distributed ML via a stale synchronous parallel parameter
    server", NIPS 2013. A rank's clock counts the steps that it has ended.
    """

    def __init__(self, ranks: int, bound: int) -> None:
        self._bound = bound
        self._clock = [0] * ranks
        self._at = {0: ranks}  # ranks at each clock
        self._slowest = 0
        self._waiting: list[int] = []

    def may_begin(self, rank: int) -> bool:
        """Whether the rank may begin its next step now; else it goes on with those that :meth:`tick` gives."""
        if self._clock[rank] - self._slowest <= self._bound:
            return True
        self._waiting.append(rank)
        return False

    def tick(self, rank: int) -> list[int]:
        """The rank has ended a step; who may go on now, each exactly one step too far until then."""
        clock = self._clock[rank]
        self._clock[rank] = clock + 1
        self._at[clock] -= 1
        self._at[clock + 1] = self._at.get(clock + 1, 0) + 1
        if self._at[self._slowest]:
            return []
        del self._at[self._slowest]
        self._slowest += 1
        waiting, self._waiting = self._waiting, []
        return waiting


class OneByOne:
    """A process that does one thing at a time, in the order in which it is asked.

    Parameters
    ----------
    work_s
        Seconds of its own work on each.
    latency_s
        From the end of that until whoever asked knows.
    seat
        How it works on cores that it shares with others; none if it has one of its own.
    """

    def __init__(self, kernel: Kernel, work_s: float, latency_s: float, seat: Seat | None) -> None:
        self._kernel = kernel
        self._work_s = work_s
        self._latency_s = latency_s
        self._seat = seat
        self._free_s = 0.0

    def ask(self, done: Callable[[], None]) -> None:
        """Have it done; ``done`` is called when whoever asks knows."""
        if self._seat is not None and self._work_s > 0:
            self._seat(self._work_s, partial(self._worked, done))
            return
        now = self._kernel.now
        self._free_s = max(self._free_s, now) + self._work_s
        self._after(self._free_s + self._latency_s - now, lambda _: done())

    def _worked(self, done: Callable[[], None], _: Event | None) -> None:
        self._after(self._latency_s, lambda _: done())

    def _after(self, wait_s: float, done: Done) -> None:
        if wait_s > 0:
            self._kernel.call_later(wait_s, done)
        else:
            self._kernel.soon(done, None)


def coordinator(kernel: Kernel, dispatcher: Dispatcher, seat: Seat | None) -> OneByOne:
    """``ClusterCoordinator``: hands out steps in the order in which workers ask."""
    return OneByOne(kernel, dispatcher.dispatch_s, dispatcher.latency_s, seat)


def preparing_client(kernel: Kernel, client: Client, seat: Seat | None) -> OneByOne:
    """In-graph replication: one process prepares every worker's batch, one at a time."""
    return OneByOne(kernel, client.input_s, 0.0, seat)
