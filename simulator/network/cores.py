"""The scheduler of one machine's cores, for clusters whose nodes are all processes on that machine.

Tasks stand in one queue, in order of arrival. A free core takes the task in front and works on it for a time slice at most while
others wait; what is then left goes to the back of the queue: round robin (Kleinrock, Queueing Systems, volume 2, chapter 4),
with several servers. Cores that work at the same time may slow each other down (memory bandwidth, caches, a step's own threads
that find no core idle): a task with a slowdown of s takes 1 + s (b - 1) seconds for a second of its work while b cores are busy.

``simulator.engine.compiled.cores`` does the same, compiled, with the ``ROUNDING`` of this module: change both together
(tests/oracle/test_compiled_network.py holds them equal).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

from simpy.events import Event

from simulator.network.kernel import Kernel

__all__ = ["ROUNDING", "Cores", "Task", "cores_of"]

ROUNDING = 1e-9
"""What is left after a slice, as a share of one, that is the rounding of sums and not work."""

Ended = Callable[[Event | None], object]


class Cores:
    """A queue before a number of cores, each of which does a second of work a second, or less while others are busy.

    A task that has a core while nobody waits is left alone until somebody does: slices
    are then counted from when it began, so that it leaves when it would have, had they
    been counted all along. One that others slow down is looked at whenever the number of
    busy cores changes.

    Parameters
    ----------
    number
        How many cores.
    slice_s
        Seconds that a task keeps a core while others wait.

    Attributes
    ----------
    name
        For results.
    kernel
        The environment.
    """

    name = "cores"

    def __init__(self, kernel: Kernel, number: float, slice_s: float) -> None:
        self.kernel = kernel
        self._number = number
        self._slice_s = slice_s
        self._waiting: deque[Task] = deque()
        self._running: dict[Task, None] = {}
        self._busy_s = 0.0  # of tasks that have left their core since
        self._paced_for = 0  # busy cores for which the tasks that others slow down are planned

    def in_use_s(self, now: float) -> float:
        """Seconds for which a core was busy up to now, in the mean over all of them."""
        running_s = 0.0
        for task in self._running:
            running_s += now - task.began_s
        return (self._busy_s + running_s) / self._number

    def enter(self, task: Task) -> None:
        """A task comes that has something to do."""
        if len(self._running) < self._number:
            self._begin(task)
            self._pace()
            return
        self._waiting.append(task)
        if len(self._waiting) == 1:
            for other in self._running:
                if self._stop_s(other) != other.stop_s:
                    self._plan(other)

    def _begin(self, task: Task) -> None:
        self._running[task] = None
        task.began_s = task.since_s = self.kernel.now
        task.stretch = self._stretch(task)
        self._plan(task)

    def _stretch(self, task: Task) -> float:
        """Seconds that a second of the task's work takes."""
        return 1.0 + task.slowdown * (len(self._running) - 1)

    def _pace(self) -> None:
        """The number of busy cores may have changed: count what has been done so far, and plan anew."""
        busy = len(self._running)
        if busy == self._paced_for:
            return
        self._paced_for = busy
        now = self.kernel.now
        for task in self._running:
            stretch = self._stretch(task)
            if stretch != task.stretch:
                task.left_s = max(task.left_s - (now - task.since_s) / task.stretch, 0.0)
                task.since_s = now
                task.stretch = stretch
                self._plan(task)

    def _plan(self, task: Task) -> None:
        """Wake up when the task is to leave its core."""
        task.stop_s = self._stop_s(task)
        task.turn += 1
        ran_s = self.kernel.now - task.since_s
        self.kernel.call_later(max(task.stop_s - ran_s, 0.0), self._stop, (task, task.turn))

    def _stop_s(self, task: Task) -> float:
        """Seconds from ``since_s`` until the task leaves its core: to its end, or where others wait to that of its slice."""
        end_s = task.left_s * task.stretch
        if not self._waiting:
            return end_s
        slices = max(math.ceil((self.kernel.now - task.began_s) / self._slice_s - ROUNDING), 1)
        cut_s = slices * self._slice_s - (task.since_s - task.began_s)
        return cut_s if cut_s < end_s - ROUNDING * self._slice_s else end_s

    def _stop(self, event: Event) -> None:
        """The end of a task's work, or of its slice."""
        task, turn = event._value
        if turn != task.turn:
            return  # it leaves earlier, as others wait, or later, as they slow it down
        del self._running[task]
        self._busy_s += task.since_s - task.began_s + task.stop_s
        task.left_s = 0.0 if task.stop_s == task.left_s * task.stretch else max(task.left_s - task.stop_s / task.stretch, 0.0)
        done = None if task.left_s else task.end()
        if task.left_s:
            self._waiting.append(task)
        if self._waiting:
            self._begin(self._waiting.popleft())
        self._pace()
        if done is not None:
            done(None)


class Task:
    """A process, or a thread of one: does one thing at a time, in order, each of which stands for a core by itself.

    Attributes
    ----------
    slowdown
        Share by which its work takes longer for each other core that is busy.
    left_s
        Seconds of work left of what is in front, as of ``since_s``.
    began_s, since_s, stretch, stop_s, turn
        For the cores: when it got the one that it has; since when it goes on as it does, at how many seconds for one of
        work; how long after that it leaves it; the number of the wake-up that counts.
    """

    __slots__ = ("_begun_s", "_busy_s", "_cores", "_items", "began_s", "left_s", "since_s", "slowdown", "stop_s", "stretch", "turn")

    def __init__(self, cores: Cores, slowdown: float = 0.0) -> None:
        self._cores = cores
        self.slowdown = slowdown
        self._items: deque[tuple[float, Ended]] = deque()
        self._busy_s = 0.0
        self._begun_s = 0.0
        self.began_s = self.since_s = self.left_s = self.stop_s = 0.0
        self.stretch = 1.0
        self.turn = 0

    def work(self, work_s: float, done: Ended) -> None:
        """Do some seconds of work, more than 0, after what was asked for before; ``done`` is called at its end."""
        self._items.append((work_s, done))
        if len(self._items) == 1:
            self._begun_s = self._cores.kernel.now
            self.left_s = work_s
            self._cores.enter(self)

    def end(self) -> Ended:
        """What is in front has been done; whom to tell."""
        _, done = self._items.popleft()
        if self._items:
            self.left_s = self._items[0][0]
        else:
            self._busy_s += self._cores.kernel.now - self._begun_s
        return done

    def in_use_s(self, now: float) -> float:
        """Seconds up to now in which it had something to do: on a core, or waiting for one."""
        return self._busy_s + (now - self._begun_s if self._items else 0.0)


def cores_of(kernel: Kernel, number: float | None, slice_s: float) -> Cores | None:
    """The cores that all nodes share; none if each has its own."""
    return Cores(kernel, number, slice_s) if number is not None else None
