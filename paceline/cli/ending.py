"""How a command ends that is stopped: by Ctrl-C, a scheduler's SIGTERM, or the terminal's SIGHUP.

Until the command line is imported, signals are answered in starting.py; errors and exit codes are handled in app.py.
"""

from __future__ import annotations

import _thread
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
"""Exit code of a command that did its work, where a goal, a threshold or a limit was missed."""
_AGAIN_S = 0.02
_IMPORTER = "<frozen importlib"
"""How the files begin that the functions come from which import modules."""


class Interrupted(KeyboardInterrupt):
    """A signal asks this process to end.

    The signal of one that is gone before it has come to :meth:`Ending.during` is sent again: libraries written in C, NumPy's among
    them, take any exception of what they call for "there is no such attribute", and go on. Who catches one, and goes on to an end
    of its own, says so by :meth:`heed`, or keeps it until then.
    """

    lost: Callable[[], None] | None = None

    def heed(self) -> None:
        """It has been heard: nothing is sent again when it is gone."""
        self.lost = None

    def __del__(self) -> None:
        if self.lost is not None:
            self.lost()


class Terminated(Interrupted):
    """It is another signal than that of Ctrl-C: handled wherever Ctrl-C is."""


class StoppedError(Exception):
    """A command was stopped; the text says what is kept of its work, where, and how to go on; or nothing."""


class Ending:
    """Which signal has asked this process to end, if one has."""

    number: int = signal.SIGINT
    asked: bool = False
    told: bool = False
    """Whether the command has been told, by an exception that is not lost."""
    inside: bool = False
    """Whether a command is at work."""

    def __init__(self) -> None:
        self._sending: list[_thread.LockType] = []

    @property
    def exit_code(self) -> int:
        """128 and the number of the signal, as shells have it; that of Ctrl-C where none came."""
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
            It was stopped, and has told what is kept.
        KeyboardInterrupt
            It was stopped. Whatever else surfaces then has come of that: libraries wrap such an exception, or trip over what it has
            left half made.
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
        """Return what tells the command that a signal has come."""
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
        """Return when all signals that were to be sent again have come: a thread that goes on while Python ends may crash it."""
        for sending in self._sending:
            sending.acquire()
        if self._sending:
            time.sleep(_AGAIN_S / 10)  # it has still to end


@contextmanager
def ending_by_signals() -> Iterator[Ending]:
    """Inside, signals are answered as :meth:`Ending.during` says.

    SIGINT raises :class:`Interrupted`, and SIGTERM and SIGHUP, once, :class:`Terminated`. In the midst of an import, of a module or of
    what that imports, a signal waits: libraries that are being imported make something else of an exception, or keep what is half made.
    One that was lost, as :class:`Interrupted` says, is raised again. One that the parent has let be ignored, as ``nohup`` does, still
    is. What cannot be tidied up because it was stopped half made says nothing any more, nor does a thread that trips over it, as
    joblib's may over what was handed to it last.
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
    """Number of importing calls that a frame is within."""
    count = 0
    while frame is not None:
        count += frame.f_code.co_filename.startswith(_IMPORTER)
        frame = frame.f_back
    return count


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


@contextmanager
def keeping_results(bar: AbstractContextManager[Callable[..., None]], out: Path | None, of: str = "") -> Iterator[Callable[..., None]]:
    """Around work whose results a file keeps, each as soon as it is done: progress, which also counts what is kept.

    Parameters
    ----------
    bar
        Shows results done and in all, and of work of several parts also what is counted.
    out
        The file.
    of
        Of work of several parts the one whose results these are.

    Raises
    ------
    StoppedError
        It was stopped; says how many results are kept, unless nothing would have been, or how many there are is not known yet.
    """
    counted = (0, 0)

    def kept() -> str:
        done, total = counted
        if out is None or not total:
            return ""
        if not done:
            return "nothing was finished yet"
        return f"{done:,} of {total:,} results are kept in {out}; the same command goes on there"

    with bar as advance, keeping(kept):

        def count(done: int, total: int, *what: str) -> None:
            nonlocal counted
            if of in ("", *what):
                counted = done, total
            advance(done, total, *what)

        yield count


@contextmanager
def serving(begun: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """Around what serves until Ctrl-C, which is no error once it has ``begun``."""
    try:
        yield
    except Interrupted as interrupted:
        if isinstance(interrupted, Terminated) or not begun():
            raise
        from paceline.cli.terminal import note

        interrupted.heed()
        note("stopped serving")
