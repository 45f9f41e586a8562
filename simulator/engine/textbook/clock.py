"""Simulated time: SimPy's environment with the rule for simultaneous events, and what counts for how long something is in use."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from heapq import heappop
from typing import Any

import simpy
from simpy.events import NORMAL, Event, EventPriority

from simulator.base.errors import dead_lock, no_delay
from simulator.engine.recorder import Name
from simulator.program.program import INSTANT_S

_LAST: EventPriority = 2  # type: ignore[assignment]  # SimPy's own priorities are 0 and 1; any number sorts

Going = Generator[Event, Any, Any]
"""A process, or a part of one: yields the events that it waits for. Most return the number of the work that ended last."""


class Clock(simpy.Environment):
    """SimPy's environment, with instants, and dead-locks that are errors.

    Attributes
    ----------
    events
        Events scheduled so far.
    instant
        Which one it is, from 0 on.
    """

    def __init__(self) -> None:
        super().__init__(initial_time=0.0)
        self.events = self.instant = 0

    def schedule(self, event: Event, priority: EventPriority = NORMAL, delay: float = 0) -> None:
        """Put an event on the calendar, and count it."""
        self.events += 1
        super().schedule(event, priority, delay)

    def timeout(self, delay: float = 0, value: Any = None) -> simpy.Timeout:
        """An event after some seconds.

        Raises
        ------
        SimulationError
            The delay is negative, infinite or not a number.
        """
        if not 0 <= delay < math.inf:
            raise no_delay(delay, self.now)
        return simpy.Timeout(self, delay, value)

    def step(self) -> None:
        """Take the next event. The clock does not advance within one instant."""
        time_s, _, _, event = heappop(self._queue)
        if time_s - self._now > INSTANT_S + 2 * math.ulp(time_s):  # an event at the end of this one, up to rounding, belongs to it
            self._now = time_s
            self.instant += 1
        callbacks, event.callbacks = event.callbacks, None  # type: ignore[assignment]  # which marks it as processed
        for callback in callbacks:
            callback(event)
        if not event._ok and not hasattr(event, "_defused"):
            raise event._value

    def end_of_instant(self) -> Event:
        """An event that happens when all else has happened that is due in this instant."""
        event = Event(self)
        event._ok, event._value = True, None
        self.schedule(event, _LAST, INSTANT_S)
        return event

    @property
    def idle(self) -> bool:
        """Return whether nothing is left that could happen."""
        return not self._queue

    def run_until(self, event: Event) -> None:
        """Run until an event has happened.

        Raises
        ------
        DeadlockError
            The calendar is empty before that.
        """
        while not event.processed:
            if self.idle:
                raise dead_lock(self.now)
            self.step()


class Busy:
    """For how long something has been in use: as long as anybody is in its ``with``."""

    def __init__(self, clock: Clock, name: Name) -> None:
        self.name = name
        self._clock = clock
        self._users = 0
        self._used_s = self._since_s = 0.0

    def __enter__(self) -> None:
        if not self._users:
            self._since_s = self._clock.now
        self._users += 1

    def __exit__(self, *_: object) -> None:
        self._users -= 1
        if not self._users:
            self._used_s += self._clock.now - self._since_s

    def in_use_s(self) -> float:
        """Seconds up to now."""
        return self._used_s + (self._clock.now - self._since_s if self._users else 0.0)


class Processor(Busy):
    """Does one thing after the other, in the order in which it is asked: a parameter server, a host with its messages, a coordinator.

    Parameters
    ----------
    work
        How it does some seconds of work: alone, on shared cores, or on a worker's device.
    """

    def __init__(self, clock: Clock, name: Name, work: Callable[[float], Going]) -> None:
        super().__init__(clock, name)
        self.line = simpy.Resource(clock)
        self.work = work

    def do(self, work_s: float) -> Going:
        """Wait for its turn, and do some seconds of work."""
        with self, self.line.request() as turn:
            yield turn
            yield from self.work(work_s)
