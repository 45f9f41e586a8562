"""Signals while the command line is still being imported, which takes longer than some commands.

Nothing is open yet, so the process prints one line and ends. This module imports almost nothing, because Python's own handlers apply
until :func:`hear` is called.
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
"""Signals of Ctrl-C, of a scheduler or ``kill``, and of a closed terminal."""


def words_for(number: int) -> str:
    """Return how a signal ended a command."""
    if number == signal.SIGTERM:
        return "ended by SIGTERM"
    return "ended by SIGHUP" if number == signal.SIGHUP else "interrupted"


def hear() -> None:
    """Make signals end the process with one line, except those that the parent ignores, as ``nohup`` does."""
    for number in SIGNALS:
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, leave)


def leave(number: int, frame: FrameType | None) -> None:
    """End the process at once with one line."""
    try:
        os.write(2, f"paceline: {words_for(number)}\n".encode())  # what Python has still to write may be in the midst of a line
    finally:
        leave_silently(number, frame)


def leave_silently(number: int, _: FrameType | None) -> None:
    """End the process, which has printed the reason."""
    os._exit(128 + number)
