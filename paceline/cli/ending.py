"""How a command ends after Ctrl-C, a scheduler's SIGTERM, or the terminal's SIGHUP.

Until the command line is imported, starting.py handles signals. app.py handles errors and exit codes.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import FrameType
from typing import TypeVar

from paceline.cli.starting import SIGNALS, leave, leave_silently, words_for

HookedT = TypeVar("HookedT")

MISSED = 3
"""Exit code of a command that did its work but missed a goal, a threshold or a limit."""
STOPPED = tuple(128 + number for number in SIGNALS)
"""Exit codes of a command that a signal has ended."""
_AGAIN_S = 0.02
_IMPORTER = "<frozen importlib"
"""Prefix of the file names of functions that import modules."""


class Interrupted(KeyboardInterrupt):
    """A signal asks this process to end.

    If the exception is lost before it reaches :meth:`Ending.during`, the signal is sent again: libraries in C, NumPy among them, may
    mistake any exception for a missing attribute, and continue. Code that catches the exception and ends in its own way calls
    :meth:`heed`, or keeps the exception until it ends.
    """

    lost: Callable[[], None] | None = None

    def heed(self) -> None:
        """Mark the exception as handled, so that its signal is not sent again."""
        self.lost = None

    def __del__(self) -> None:
        if self.lost is not None:
            self.lost()


class Terminated(Interrupted):
    """A signal other than Ctrl-C, handled wherever Ctrl-C is."""


class StoppedError(Exception):
    """A command was stopped; the text, if any, says what is kept, where, and how to resume."""


class Ending:
    """The signal that has asked this process to end, if any."""

    number: int = signal.SIGINT
    asked: bool = False
    told: bool = False
    """Whether the command has received the signal as an exception."""
    inside: bool = False
    """Whether a command is at work."""

    def __init__(self) -> None:
        self._sending: list[_thread.LockType] = []

    @property
    def exit_code(self) -> int:
        """128 plus the number of the signal, as in shells; that of Ctrl-C without one."""
        return 128 + self.number

    @property
    def words(self) -> str:
        """How the command ended."""
        return words_for(self.number)

    def during(self, command: Callable[[], object]) -> object:
        """Return what a command returns. Inside, a signal raises KeyboardInterrupt; outside, it ends the process.

        Raises
        ------
        StoppedError
            The command was stopped, and has reported what is kept.
        KeyboardInterrupt
            The command was stopped. Other exceptions that surface then are consequences: libraries wrap the exception, or fail on
            incomplete state.
        """
        try:
            self.inside = True
            answer = command()
            self.inside = False
            if self.asked and not self.told:
                raise KeyboardInterrupt
            return answer
        except (StoppedError, KeyboardInterrupt):
            raise
        except BaseException as error:
            if self.asked:
                raise KeyboardInterrupt from error
            raise
        finally:
            self.inside = False

    def tell(self) -> Interrupted:
        """Return the exception that reports a signal to the command."""
        interrupted = Interrupted() if self.number == signal.SIGINT else Terminated()
        interrupted.lost = self._lost
        self.told = True
        return interrupted

    def _lost(self) -> None:
        if self.inside:
            self.told = False
            self.send_again(self.number)

    def send_again(self, number: int) -> None:
        """Send a signal to the main thread in a moment."""
        main = threading.main_thread().ident
        assert main is not None
        sending = _thread.allocate_lock()
        sending.acquire()

        def send() -> None:
            time.sleep(_AGAIN_S)
            signal.pthread_kill(main, number)
            sending.release()

        self._sending.append(sending)
        # the class Thread takes locks that the main thread, which is just being interrupted, may hold
        _thread.start_new_thread(send, ())

    def wait_for_sent(self) -> None:
        """Wait until all repeated signals have arrived, since a thread that runs while Python exits may crash it."""
        for sending in self._sending:
            sending.acquire()
        if self._sending:
            time.sleep(_AGAIN_S / 10)  # it has still to end


_PATIENCE_S = 10.0


def leave_soon(code: int) -> None:
    """End a stopped process with this exit code after some seconds, if a library's thread hangs while Python exits."""

    def leave() -> None:
        time.sleep(_PATIENCE_S)
        os._exit(code)

    threading.Thread(target=leave, daemon=True).start()


@contextmanager
def ending_by_signals() -> Iterator[Ending]:
    """Handle signals inside the block as :meth:`Ending.during` describes.

    SIGINT raises :class:`Interrupted`; SIGTERM and SIGHUP raise :class:`Terminated` once. During an import a signal waits, because
    libraries may convert the exception or keep incomplete modules. A lost exception is raised again (:class:`Interrupted`). Signals that
    the parent ignores, as ``nohup`` does, stay ignored. Errors from incomplete cleanup, or from threads that fail on it (as joblib's
    may), are silenced.
    """
    ending = Ending()
    if threading.current_thread() is not threading.main_thread():  # others may not set signals
        yield ending
        return
    importing = _imports(sys._getframe())

    def end(number: int, frame: FrameType | None) -> None:
        if not ending.inside:
            if not ending.asked:
                leave(number, frame)
            return
        if number != signal.SIGINT:
            if ending.told and ending.number != signal.SIGINT:
                return
            ending.number = number
        ending.asked = True
        warnings.simplefilter("ignore")
        if _imports(frame) > importing:
            ending.send_again(number)
            return
        raise ending.tell()

    def unless_asked(say: Callable[[HookedT], object]) -> Callable[[HookedT], object]:
        return lambda error: None if ending.asked else say(error)

    before = {number: signal.getsignal(number) for number in SIGNALS}
    ours = [number for number, handler in before.items() if handler in (signal.SIG_DFL, signal.default_int_handler, leave)]
    said, said_of_threads = sys.unraisablehook, threading.excepthook
    for number in ours:
        signal.signal(number, end)
    sys.unraisablehook, threading.excepthook = unless_asked(said), unless_asked(said_of_threads)
    try:
        yield ending
    finally:
        ending.wait_for_sent()
        sys.unraisablehook, threading.excepthook = said, said_of_threads
        for number in ours:
            signal.signal(number, leave_silently if ending.asked and before[number] is leave else before[number])


def _imports(frame: FrameType | None) -> int:
    """Return the number of import calls that a frame is within."""
    count = 0
    while frame is not None:
        count += frame.f_code.co_filename.startswith(_IMPORTER)
        frame = frame.f_back
    return count


@contextmanager
def keeping(kept: Callable[[], str] | None = None) -> Iterator[None]:
    """Wrap work that keeps something when it is stopped.

    Raises
    ------
    StoppedError
        The work was stopped. The text is that of ``kept``, or of the library's exception.
    """
    try:
        yield
    except KeyboardInterrupt as stopped:
        raise StoppedError(str(stopped) if kept is None else kept()) from None


@contextmanager
def keeping_results(bar: AbstractContextManager[Callable[..., None]], out: Path | None, of: str = "") -> Iterator[Callable[..., None]]:
    """Wrap work that saves each result in a file at once: show progress and count what is kept.

    Parameters
    ----------
    bar
        Shows finished and total results and, for work in several stages, what is counted.
    out
        The file.
    of
        For work in several stages, the stage that makes these results.

    Raises
    ------
    StoppedError
        The work was stopped. The text says how many results are kept, if results were to be kept and their total is known.
    """
    counted = (0, 0)

    def kept() -> str:
        done, total = counted
        if out is None or not total:
            return ""
        if not done:
            return "nothing was finished yet"
        return f"{done:,} of {total:,} results are saved in {out}; run the command again to resume"

    with bar as advance, keeping(kept):

        def count(done: int, total: int, *what: str) -> None:
            nonlocal counted
            if of in ("", *what):
                counted = done, total
            advance(done, total, *what)

        yield count


@contextmanager
def serving(begun: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """Wrap a server that runs until Ctrl-C, which is not an error once it has ``begun``."""
    try:
        yield
    except Interrupted as interrupted:
        if isinstance(interrupted, Terminated) or not begun():
            raise
        from paceline.cli.terminal import note

        interrupted.heed()
        note("stopped serving")
