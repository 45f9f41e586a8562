"""The event calendar: a SimPy environment that refuses delays that are no finite number, reports dead-locks, and counts events.

Order of simultaneous events: by time, then SimPy's priority, then the order in which they were scheduled. What is no further apart
than ``INSTANT_S`` happens in one instant. What follows at once from an event (:meth:`Kernel.soon`) happens right after it, first
come first served, before any other event: consequences queue up, they do not nest. Work that must see *all* changes of an instant
(re-sharing a network) is handed to :meth:`Kernel.at_end_of_instant`, which runs it after them, before time moves on.

``simulator.engine.compiled.calendar`` and ``loop`` keep the same order and the same count, compiled: change them together
(tests/oracle/test_compiled_network.py holds them equal).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush

import simpy
from simpy.events import NORMAL, Event, EventPriority

from simulator.base.errors import dead_lock, no_delay
from simulator.program.program import INSTANT_S

__all__ = ["Kernel"]


class Kernel(simpy.Environment):
    """Environment whose delays are finite, whose dead-locks are errors, whose events are counted.

    Attributes
    ----------
    events
        Events scheduled so far.
    now
        Simulated time, in seconds; it stands still within one instant.
    instant
        Which one it is.
    """

    now: float = 0.0  # SimPy's is a property, which costs a call each time

    def __init__(self) -> None:
        super().__init__()
        self.events = 0
        self.now = 0.0
        self.instant = 0
        self._at_end: deque[Callable[[], None]] = deque()
        self._soon: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()

    def schedule(self, event: Event, priority: EventPriority = NORMAL, delay: float = 0) -> None:
        """Put an event on the calendar.

        Raises
        ------
        SimulationError
            The delay is negative, infinite or not a number.
        """
        if not 0 <= delay < math.inf:
            raise no_delay(delay, self.now)
        self.events += 1
        heappush(self._queue, (self._now + delay, priority, self.events, event))

    def call_later(self, delay: float, action: Callable[[Event], None], value: object = None) -> None:
        """Run ``action`` after ``delay`` seconds; the event that it is given carries ``value``."""
        event = Event(self)
        event._ok, event._value = True, value
        event.callbacks.append(action)
        if not 0 <= delay < math.inf:
            raise no_delay(delay, self.now)
        # what schedule() does, without the call: most events of a simulation come this way
        self.events = serial = self.events + 1
        heappush(self._queue, (self.now + delay, NORMAL, serial, event))

    def soon(self, action: Callable[..., object], *arguments: object) -> None:
        """Run ``action`` right after what happens now, and after what else was to follow from it."""
        self._soon.append((action, arguments))

    def after(self, delay: float, action: Callable[[], None]) -> None:
        """Run ``action`` after ``delay`` seconds; soon where that is no time."""
        if delay:
            self.call_later(delay, lambda _: action())
        else:
            self.soon(action)

    def at_end_of_instant(self, action: Callable[[], None]) -> None:
        """Run ``action`` when nothing else is left to happen now."""
        self._at_end.append(action)

    @property
    def idle(self) -> bool:
        """Whether nothing is left that could happen after what happens now."""
        return not (self._queue or self._soon or self._at_end)

    def run(self, until: Event | None = None) -> None:  # type: ignore[override]  # SimPy's takes a time as well
        """Run until an event has happened, or until nothing is scheduled any more.

        Raises
        ------
        DeadlockError
            The calendar is empty before ``until`` has happened.
        """
        queue, at_end, soon = self._queue, self._at_end, self._soon
        while until is None or until.callbacks is not None:
            if soon:
                action, arguments = soon.popleft()
                action(*arguments)
                continue
            if at_end and (not queue or queue[0][0] > self.now + INSTANT_S):
                # it may schedule events for this very instant; what else was put off then waits for them
                at_end.popleft()()
                continue
            if not queue:
                if until is None:
                    return
                raise dead_lock(self.now)
            now, _, _, event = heappop(queue)
            if now - self.now > 2.0 * INSTANT_S:
                self._now = self.now = now
                self.instant += 1
            callbacks = event.callbacks
            event.callbacks = None  # type: ignore[assignment]  # which marks it as processed
            for callback in callbacks:
                callback(event)
            if not event._ok and not hasattr(event, "_defused"):
                raise event._value
