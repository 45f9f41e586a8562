"""Calls back now and then, while a replication runs, with the share of its steps that has ended; every engine uses it."""

from __future__ import annotations

from collections.abc import Callable

_TELLINGS, _LEAST_STEPS = 200, 1000


class Progress:
    """Tells which share of the steps has ended: about 200 times at most, and not before a thousand more have.

    Parameters
    ----------
    on_progress
        Called with the share; none if nobody wants to know.
    steps
        Of all ranks, until the window closes.

    Attributes
    ----------
    due
        Steps that have ended when something is to be told next; beyond all of them where nothing is.
    """

    def __init__(self, on_progress: Callable[[float], None] | None, steps: int) -> None:
        self._on_progress, self._steps = on_progress, steps
        self._each = max(steps // _TELLINGS, _LEAST_STEPS)
        self.due = self._each if on_progress is not None else steps + 1

    def at(self, ended: int) -> None:
        """So many steps have ended."""
        if ended >= self.due and self._on_progress is not None:
            self.due = ended + self._each
            self._on_progress(min(ended / self._steps, 1.0))
