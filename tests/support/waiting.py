"""Waiting until something has happened, however slow the machine is: pytest's own timeout ends what never comes."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 300.0
"""For what a process is waited for; half of a test's timeout."""


def until(happened: Callable[[], object], going: Callable[[], bool] = lambda: True) -> None:
    """Return as soon as something has happened.

    Parameters
    ----------
    happened
        Asked again and again.
    going
        Whether it can still happen, such as whether a process still runs.
    """
    end_s = time.monotonic() + PATIENCE_S
    while not happened():
        assert going(), "it can no longer happen"
        assert time.monotonic() < end_s, "it did not happen"
        time.sleep(0.01)
