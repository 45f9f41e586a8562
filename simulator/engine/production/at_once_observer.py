"""Records of what ranks did that are computed at once, with their causes: one step of all ranks after the other."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.base.records import NOTHING, Log
from simulator.engine.production.fusing import Reduction

Times = NDArray[np.float64]
_Numbers = list[int]
"""Of work, one a rank."""


class Piece(NamedTuple):
    """One piece of every rank's compute; arrays of shape (ranks,)."""

    name: str
    from_s: Times
    to_s: Times
    waits_for: Reduction | None = None
    """Of the step before; a rank begins the piece when it has ended this."""


class Pass(NamedTuple):
    """Compute and communication of one step; arrays of shape (ranks,)."""

    begun_s: Times
    """When compute began: the batch is there."""
    computed_s: Times
    """When the backward pass ended."""
    waited_s: Times
    """Time within compute that it waited for parameters."""
    late_s: Times
    """How much of that it waited for the slowest rank."""
    exposed_s: Times
    """How much of it communication was going on."""
    reductions: list[Reduction]
    pieces: list[Piece]
    """Activity of the devices over time."""


class ObserverFeed:
    """Tells what the ranks did, one step after the other, and in a step what let something begin before that.

    Parameters
    ----------
    log
        Takes it.
    start_s
        When each rank begins its first step, shape (ranks,).
    ready
        Shares of the backward pass after which buckets are ready, one for each piece of it.
    """

    def __init__(self, log: Log, start_s: Times, ready: Sequence[float]) -> None:
        self._log = log
        self._ready = ready
        # what each rank did last
        self._last = [
            log.wait(rank, "late start", 0.0, late_s, NOTHING) if late_s else NOTHING for rank, late_s in enumerate(start_s.tolist())
        ]
        self._reduced: dict[int, _Numbers] = {}  # the last step's reductions, by id

    def step(self, start_s: Times, done: Pass, applied: tuple[Times, Times], average: Reduction | None) -> _Numbers:
        """Tell of a step of all ranks; the work that ended each rank's.

        Parameters
        ----------
        start_s
            When each rank began it, shape (ranks,).
        done
            Its passes and reductions.
        applied
            From when to when each rank applied the update, shape (ranks,).
        average
            Of the variables, if it took place at the end of the step.
        """
        self._wait_for_input(start_s, done.begun_s)
        computed = self._compute(done)
        self._reduced = {}
        for number, reduction in enumerate(done.reductions):
            made_by = computed[len(computed) - len(self._ready) + bisect_left(self._ready, reduction.ready)]
            self._reduced[id(reduction)] = self._reduce(number, reduction, made_by)
        from_s, to_s = applied
        if done.reductions:  # which may go on into the next step
            last = done.reductions[-1]
            reduced = zip(self._last, self._reduced[id(last)], last.finish_s == from_s, strict=True)
            self._last = [averaged if awaited else own for own, averaged, awaited in reduced]
        if (to_s > from_s).any():
            self._last = [
                self._log.span(rank, "apply", begun_s, ended_s, cause) if ended_s > begun_s else cause
                for rank, (begun_s, ended_s, cause) in enumerate(zip(from_s.tolist(), to_s.tolist(), self._last, strict=True))
            ]
        if average is not None:
            self._last = self._reduce(0, average, self._last)
        return self._last

    def _wait_for_input(self, start_s: Times, begun_s: Times) -> None:
        for rank in np.flatnonzero(begun_s > start_s).tolist():
            self._last[rank] = self._log.wait(rank, "input", float(start_s[rank]), float(begun_s[rank]), self._last[rank])

    def _compute(self, done: Pass) -> list[_Numbers]:
        """The work on each piece."""
        logged = []
        free_s = done.begun_s
        for piece in done.pieces:
            causes = self._last
            if piece.waits_for is not None:
                reduced = self._reduced[id(piece.waits_for)]
                causes = [sender if late else own for own, sender, late in zip(causes, reduced, piece.from_s > free_s, strict=True)]
            columns = piece.from_s.tolist(), piece.to_s.tolist(), causes
            self._last = [self._log.span(rank, piece.name, *span) for rank, span in enumerate(zip(*columns, strict=True))]
            logged.append(self._last)
            free_s = piece.to_s
        return logged

    def _reduce(self, number: int, reduction: Reduction, made_by: _Numbers) -> _Numbers:
        """Tell of a reduction whose data were made by these."""
        last = int(reduction.ready_s.argmax())
        joined_s, cause = float(reduction.ready_s[last]), made_by[last]
        columns = zip(reduction.ready_s.tolist(), reduction.finish_s.tolist(), made_by, strict=True)
        return [
            self._log.collective(rank, number, reduction.size_bytes, ready_s, joined_s, finish_s, sender, cause)
            for rank, (ready_s, finish_s, sender) in enumerate(columns)
        ]
