"""A guarded SimPy environment.

Plain SimPy accepts a NaN delay, returns ``None`` when every process waits for ever, and
does not count events. This one refuses, names who waits, and counts.

Order of simultaneous events: by time, then SimPy's priority, then the order in which
they were scheduled. Two instants are simultaneous if they are equal as floats. Work that
must see *all* changes of an instant (re-sharing a network) is scheduled with
:meth:`Kernel.at_end_of_instant`, which runs after them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from heapq import heappush
from typing import Any

import simpy
from simpy.events import NORMAL, Event, EventPriority

from simulator.errors import DeadlockError, SimulationError

__all__ = ["Kernel"]

_LAST = EventPriority(2)


class Kernel(simpy.Environment):
    """Environment whose delays are finite, whose dead-locks are named, whose events are counted."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: dict[str, Event] = {}
        """Name of each process of the model, with its process event."""

    @property
    def events(self) -> int:
        """Events scheduled so far."""
        return self._scheduled

    _scheduled = 0

    def schedule(self, event: Event, priority: EventPriority = NORMAL, delay: float = 0) -> None:
        """Put an event on the calendar.

        Raises
        ------
        SimulationError
            The delay is negative, infinite or not a number.
        """
        if not 0 <= delay < math.inf:
            raise SimulationError(f"a delay of {delay!r} s was asked for at {self._now:.9g} s; delays must be finite and not negative")
        self._scheduled += 1
        heappush(self._queue, (self._now + delay, priority, self._scheduled, event))

    def start(self, name: str, body: Generator[Event, Any, Any]) -> simpy.Process:
        """Begin a process of the model under a name, by which a dead-lock would call it."""
        process = self.process(body)
        self.waiting[name] = process
        return process

    def call_later(self, delay: float, action: Callable[[Event], None]) -> None:
        """Run ``action`` after ``delay`` seconds."""
        event = Event(self)
        event._ok, event._value = True, None
        event.callbacks.append(action)
        self.schedule(event, delay=delay)

    def at_end_of_instant(self, action: Callable[[Event], None]) -> None:
        """Run ``action`` now, but after everything else that happens now."""
        event = Event(self)
        event._ok, event._value = True, None
        event.callbacks.append(action)
        self.schedule(event, priority=_LAST)

    def run_to(self, done: Event) -> None:
        """Run until ``done`` has happened.

        Raises
        ------
        DeadlockError
            The calendar is empty before that; names up to five waiting processes.
        """
        step = self.step
        while done.callbacks is not None:
            if not self._queue:
                stuck = [name for name, process in self.waiting.items() if process.callbacks is not None]
                raise DeadlockError(f"dead-lock at {self._now:.9g} s: {len(stuck)} processes wait for ever ({', '.join(stuck[:5])})")
            step()
