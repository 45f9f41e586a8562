"""Who may begin a step, and when what is measured begins and ends."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from simulator.engine.recorder import InUse, Kind, Parts, Progress, Recorder
from simulator.engine.textbook.clock import Clock, Going


class Steps:
    """Steps that are still to be handed out: of all ranks together, of each, or any number."""

    def __init__(self, ranks: int, shared: int | None, each: int | None) -> None:
        self._shared, self._left = shared, None if each is None else [each] * ranks

    def take(self, rank: int) -> bool:
        """Return whether there is one more for this rank; it is taken then."""
        if self._left is not None:
            self._left[rank] -= 1
            return self._left[rank] >= 0
        if self._shared is not None:
            self._shared -= 1
        return self._shared is None or self._shared >= 0


class Clocks:
    """Stale-synchronous parallel: nobody begins a step while more than ``bound`` steps ahead of the slowest (Ho et al., NIPS 2013)."""

    def __init__(self, clock: Clock, ranks: int, bound: int) -> None:
        self._clock, self._bound, self._ended = clock, bound, [0] * ranks
        self._ticked = clock.event()

    def wait(self, rank: int, cause: int) -> Going:
        """Wait until a rank may begin; the step that let it."""
        if self._ended[rank] - min(self._ended) > self._bound:
            cause = yield self._ticked
        return cause

    def tick(self, rank: int, cause: int) -> None:
        """A rank has ended a step: if it was the last of the slowest, those who wait go on, in the order in which they came."""
        slowest = min(self._ended)
        self._ended[rank] += 1
        if min(self._ended) > slowest and self._ticked.callbacks:
            self._ticked.succeed(cause)
            self._ticked = self._clock.event()


class Window:
    """Opens and closes what is measured, at the steps at which the recorder says.

    Attributes
    ----------
    closed
        Happens when nothing more is measured.
    """

    def __init__(self, clock: Clock, recorder: Recorder, progress: Progress, in_use: Callable[[], dict[Kind, InUse]]) -> None:
        self._clock, self.recorder, self._progress, self._in_use = clock, recorder, progress, in_use
        self.closed = clock.event()
        if not recorder.opens_at:
            self._open()

    def step(self, rank: int, began_s: float, parts: Parts, cause: int) -> None:
        """A rank ends a step now."""
        recorder = self.recorder
        recorder.step(rank, began_s, self._clock.now, parts, cause)
        if recorder.ended == recorder.opens_at and not recorder.is_open and not self.closed.triggered:
            self._open()
        elif recorder.ended == recorder.closes_at:
            self.close()
        self._progress.at(recorder.ended)

    def reads(self, spread: int) -> None:
        """A worker begins to read; the versions on the servers differ by as many updates."""
        self.recorder.reads(np.array([spread]))

    def _open(self) -> None:
        self.recorder.open(self._clock.now, {kind: use.seconds for kind, use in self._in_use().items()})

    def close(self) -> None:
        """Nothing more is measured; the run ends."""
        if not self.closed.triggered:
            self.recorder.close(self._clock.now, self._in_use(), self._clock.events)
            self.closed.succeed()
