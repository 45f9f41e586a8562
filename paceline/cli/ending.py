"""How a command ends that is stopped: by Ctrl-C, a scheduler's SIGTERM, or the terminal's SIGHUP."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

__all__ = ["Counted", "Ending", "StoppedError", "Terminated", "ending_by_signals", "keeping"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Terminated(KeyboardInterrupt):
    """A signal asks this process to end: handled wherever Ctrl-C is."""


class StoppedError(Exception):
    """A command was stopped; the text says what is kept of its work, where, and how to go on; or nothing."""


class Ending:
    """Which signal has asked this process to end, if one has."""

    number: int = signal.SIGINT
    asked: bool = False

    @property
    def exit_code(self) -> int:
        """128 and the number of the signal, as shells have it; that of Ctrl-C where none came."""
        return 128 + self.number

    @property
    def words(self) -> str:
        """How the command ended."""
        return "interrupted" if self.number == signal.SIGINT else f"ended by {signal.Signals(self.number).name}"


@contextmanager
def ending_by_signals() -> Iterator[Ending]:
    """Inside, SIGTERM and SIGHUP raise :class:`Terminated` in the main thread, once; more of them change nothing.

    One that the parent has let be ignored, as ``nohup`` does, still is. What cannot be tidied up because it was stopped half made
    says nothing any more.
    """
    ending = Ending()
    if threading.current_thread() is not threading.main_thread():  # others may not set signals
        yield ending
        return

    def end(number: int, _: FrameType | None) -> None:
        ending.asked = True
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        if ending.number == signal.SIGINT:
            ending.number = number
            raise Terminated

    before = {number: signal.getsignal(number) for number in _SIGNALS}
    ours = [number for number, handler in before.items() if handler in (signal.SIG_DFL, signal.default_int_handler)]
    said = sys.unraisablehook
    for number in ours:
        signal.signal(number, end)
    sys.unraisablehook = lambda unraisable: None if ending.asked else said(unraisable)
    try:
        yield ending
    finally:
        sys.unraisablehook = said
        for number in ours:
            signal.signal(number, before[number])


@contextmanager
def keeping(kept: Callable[[], str] | None = None) -> Iterator[None]:
    """Around work that leaves something behind when it is stopped.

    Raises
    ------
    StoppedError
        It was stopped; with what ``kept`` then says, or where that is left out, what the library has said.
    """
    try:
        yield
    except KeyboardInterrupt as stopped:
        raise StoppedError(str(stopped) if kept is None else kept()) from None


class Counted:
    """Passes progress on, and can say how many results of it a file keeps.

    Parameters
    ----------
    advance
        Called with results done and in all.
    out
        The file that each result is in as soon as it is done.
    """

    def __init__(self, advance: Callable[[int, int], None], out: Path | None) -> None:
        self._advance, self._out, self._done, self._total = advance, out, 0, 0

    def __call__(self, done: int, total: int) -> None:
        """Note results done and in all, and pass them on."""
        self._done, self._total = done, total
        self._advance(done, total)

    def kept(self) -> str:
        """What is kept if the command is stopped now; "" where nothing would have been, or is known yet."""
        if self._out is None or not self._total:
            return ""
        if not self._done:
            return "nothing was finished yet"
        from paceline.sweeping import ResultsFile

        ahead = ResultsFile.ahead_of(self._out)
        beside = f" and, finished before their turn, in {ahead}" if ahead.exists() else ""
        return f"{self._done:,} of {self._total:,} results are kept in {self._out}{beside}; the same command goes on there"
