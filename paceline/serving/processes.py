"""Processes that stand ready: each works on one thing at a time, gives way when nobody waits for it, and is replaced if it ends."""

from __future__ import annotations

import asyncio
import bisect
import multiprocessing
import os
import signal
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from operator import itemgetter
from typing import Any, TypeVar

from paceline.sweeping.backends import KILLED, OUTSIDE, begin, deaf_to, environment, ready_tracker
from simulator.base.errors import SimulationError

AnswerT = TypeVar("AnswerT")

SLOW = 3
"""What takes long, and whatever is less urgent still."""
_NICE = 10
_TRIES = 3
"""How often something is begun again whose process was killed: perhaps it is what takes all memory."""
_TOLD_S = 0.3
"""How often it is asked how far something is."""
_PATIENCE_S = 2.0
"""How long a process that nobody waits for any more may take to notice."""


class _UnwantedError(Exception):
    """Nobody waits for it any more."""


_unwanted: Any = None
"""In a process: the event that is set when nobody waits for what it does."""
_far: Any = None
"""In a process: how far it is, and of how much."""


def _stand_ready(starter: int, unwanted: Any, far: Any, slow: bool) -> None:
    """What a process does first."""
    if slow:
        os.nice(_NICE)
    global _unwanted, _far
    _unwanted, _far = unwanted, far
    begin(starter)


def going_on(done: float, total: float) -> None:
    """In a process, between parts of long work: tell how far it is, and end it if nobody waits for it any more."""
    if _far is not None:
        _far[0], _far[1] = done, total
    if _unwanted is not None and _unwanted.is_set():
        raise _UnwantedError


def _heeded(doing: Future[AnswerT]) -> asyncio.Future[AnswerT]:
    """A future of asyncio's, of whose error nothing is said where nobody waits for it any more."""
    waiting = asyncio.wrap_future(doing)
    waiting.add_done_callback(lambda done: done.cancelled() or done.exception())
    return waiting


class _Slot:
    """One process, and what begins another in its place."""

    def __init__(self, *, slow: bool) -> None:
        self.slow = slow
        self._begin()

    def takes(self, urgency: int) -> bool:
        """Return whether it does what is so urgent."""
        return self.slow == (urgency >= SLOW)

    def _begin(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.unwanted, self.far = context.Event(), context.Array("d", 2, lock=False)
        given = (os.getpid(), self.unwanted, self.far, self.slow)
        self._executor = ProcessPoolExecutor(1, mp_context=context, initializer=_stand_ready, initargs=given)
        self.pid: int | None = None

    def submit(self, function: Callable[..., AnswerT], *given: Any) -> Future[AnswerT]:
        """Have something begun; the first time the process as well, which leaves to its starter what a terminal sends to all."""
        if self.pid is not None:
            return self._executor.submit(function, *given)
        before = set(multiprocessing.active_children())
        with environment(**OUTSIDE), deaf_to(signal.SIGINT, signal.SIGHUP):
            doing = self._executor.submit(function, *given)
            (started,) = set(multiprocessing.active_children()) - before
            self.pid = started.pid
        return doing

    def replace(self) -> None:
        """Another process in place of one that has ended, or must."""
        self.end()
        self._begin()

    def end(self) -> None:
        """End the process, whatever it is at."""
        if self.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        # waiting, since Python, at its own end, may wake the executor's thread when that has just closed what it is woken by
        self._executor.shutdown(wait=True, cancel_futures=True)


class Processes:
    """Processes, and who waits for one.

    Half of them do what somebody waits for, the most urgent first. The others do what takes long, and step back where there are too few
    cores for all, so that a first answer never waits for a last one.

    Parameters
    ----------
    count
        How many: at least two.
    """

    def __init__(self, count: int) -> None:
        ready_tracker()
        quick = max(1, count // 2)
        self._slots = [_Slot(slow=number >= quick) for number in range(max(count, 2))]
        self._free = list(self._slots)
        self._waiting: list[tuple[int, asyncio.Future[_Slot]]] = []
        self._left: set[asyncio.Task[None]] = set()
        self.begun = 0
        """Things that were begun, those begun again included."""

    @property
    def pids(self) -> list[int]:
        """Of the processes that are there."""
        return [slot.pid for slot in self._slots if slot.pid is not None]

    def warm(self, function: Callable[..., object], *given: Any, progress: Callable[[int, int], None] | None = None) -> None:
        """Have every process do something once, those first for which somebody waits; the others do it while these answer.

        ``progress`` is told how many have, and of how many.
        """
        first = [slot.submit(function, *given) for slot in self._slots if not slot.slow]
        for number, doing in enumerate(as_completed(first), start=1):
            doing.result()
            if progress is not None:
                progress(number, len(first))
        for slot in self._slots:
            if slot.slow:
                slot.submit(function, *given)

    async def run(
        self, function: Callable[..., AnswerT], *given: Any, urgency: int = 0, progress: Callable[[float, float], None] | None = None
    ) -> AnswerT:
        """Return what a function gives in one of the processes; cancelled, the process gives way.

        Parameters
        ----------
        function, given
            What is to be done.
        urgency
            The lower, the sooner; :data:`SLOW` is what takes long.
        progress
            Called now and then with how far it is, and of how much, as it tells by :func:`going_on`.

        Raises
        ------
        SimulationError
            Processes that did it were killed, again and again.
        """
        slot = await self._taken(urgency)
        doing: Future[AnswerT] | None = None
        try:
            for _ in range(_TRIES):
                try:
                    self.begun += 1
                    slot.unwanted.clear()
                    slot.far[:] = 0.0, 0.0
                    doing = slot.submit(function, *given)
                    waiting = _heeded(doing)
                    while progress is not None and not (await asyncio.wait({waiting}, timeout=_TOLD_S))[0]:
                        progress(*slot.far)
                    return await waiting
                except BrokenProcessPool:
                    doing = None
                    slot.replace()
            raise SimulationError("; ".join(KILLED))
        except asyncio.CancelledError:
            slot.unwanted.set()
            raise
        finally:
            if doing is None or doing.done():
                self._give_back(slot)
            else:
                leaving = asyncio.create_task(self._wait_for(slot, doing))
                self._left.add(leaving)
                leaving.add_done_callback(self._left.discard)

    async def _wait_for(self, slot: _Slot, doing: Future[Any]) -> None:
        """Take a process back that is at something nobody waits for: soon, or in place of it another one."""
        waiting = _heeded(doing)
        if not (await asyncio.wait({waiting}, timeout=_PATIENCE_S))[0]:
            slot.replace()
        self._give_back(slot)

    async def _taken(self, urgency: int) -> _Slot:
        for slot in self._free:
            if slot.takes(urgency):
                self._free.remove(slot)
                return slot
        waiting: asyncio.Future[_Slot] = asyncio.get_running_loop().create_future()
        entry = urgency, waiting
        bisect.insort(self._waiting, entry, key=itemgetter(0))  # behind those that are as urgent
        try:
            return await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled():
                self._give_back(waiting.result())
            else:
                self._waiting.remove(entry)
            raise

    def _give_back(self, slot: _Slot) -> None:
        """Whoever waits most urgently has it."""
        for entry in self._waiting:
            urgency, waiting = entry
            if slot.takes(urgency) and not waiting.done():
                self._waiting.remove(entry)
                waiting.set_result(slot)
                return
        self._free.append(slot)

    def end(self) -> None:
        """End them all."""
        for slot in self._slots:
            slot.end()
