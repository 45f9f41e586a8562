"""What a signal does while the command line is still being imported, which takes longer than some commands.

Nothing is open then, so that one line is said and the process ends at once. This module
imports next to nothing: until :func:`hear` has been called, Python answers for itself.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # typing is not imported
if TYPE_CHECKING:
    import signal
    from types import FrameType
else:
    import _signal as signal  # a part of Python itself; the module around it takes longer to import than all else until `hear`

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, what a scheduler or ``kill`` sends, and what a terminal that is closed does."""


def words_for(number: int) -> str:
    """How a command ended that a signal has ended."""
    if number == signal.SIGTERM:
        return "ended by SIGTERM"
    return "ended by SIGHUP" if number == signal.SIGHUP else "interrupted"


def hear() -> None:
    """Have signals end the process with one line, but those that the parent lets be ignored, as ``nohup`` does."""
    for number in SIGNALS:
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, leave)


def leave(number: int, frame: FrameType | None) -> None:
    """End the process with one line, whatever it is at."""
    try:
        os.write(2, f"paceline: {words_for(number)}\n".encode())  # what Python has still to write may be in the midst of a line
    finally:
        leave_silently(number, frame)


def leave_silently(number: int, _: FrameType | None) -> None:
    """End the process, which has said why."""
    os._exit(128 + number)
