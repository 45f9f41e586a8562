"""How a probe ends: exit statuses and records, from which the parent process tells who is at fault and what was wrong.

The statuses also stand in calibrate/probing.py, which acts on them; ``end`` and ``error`` are records of calibrate/measurements.py.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import traceback
from typing import Any, Callable

EXIT_FAILED = 3
"""Of the user's code, or of what the probe does."""
EXIT_NOT_INSTALLED = 4
EXIT_USAGE = 5
EXIT_TERMINATED = 128 + signal.SIGTERM


class UsageError(ValueError):
    """What was asked for cannot be had: the asker's fault, not the model's."""


class Terminated(SystemExit):
    """SIGTERM came; the user's code ends a process with a plain SystemExit."""


class NotInstalledError(ImportError):
    """This Python lacks a framework: ``tensorflow``, ``jax``, ``torch`` or ``keras`` (of version 3)."""

    def __init__(self, framework: str, why: str) -> None:
        super().__init__(why)
        self.framework = framework


def heed_sigterm() -> None:
    """Let SIGTERM raise :class:`Terminated`."""

    def terminate(*_: object) -> None:
        raise Terminated(EXIT_TERMINATED)

    signal.signal(signal.SIGTERM, terminate)


def tensorflow() -> Any:
    """The TensorFlow module."""
    return framework("tensorflow")


def framework(name: str) -> Any:
    """The module of a framework: ``tensorflow``, ``jax`` or ``torch``.

    Raises
    ------
    NotInstalledError
        This Python does not have it.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise NotInstalledError(name, str(error)) from error


def let_import(target: str) -> None:
    """Let what FILE:NAME names import the modules beside it, and those of the working directory."""
    sys.path[:0] = [os.path.dirname(os.path.abspath(target.rpartition(":")[0])), os.getcwd()]


def recorded(measure: Callable[[], None], recorder: Any, target: str = "", said: Callable[[Exception, str], str] | None = None) -> int:
    """Measure, and record that this came to its end, or why it did not; returns the exit status.

    Parameters
    ----------
    measure
        Measures.
    recorder
        Takes the records.
    target
        FILE:NAME of the user's code; where it failed in there is recorded.
    said
        What the user's code did wrong, of an exception and the place in that code: whoever asked is at fault then. Else the exception's
        own message.
    """
    try:
        measure()
        recorder.write("end")
        return 0
    except NotInstalledError as error:
        recorder.write("error", type=type(error.__cause__ or error).__name__, message=str(error), where="", lacks=error.framework)
        return EXIT_NOT_INSTALLED
    except Terminated:
        recorder.write("error", type="SIGTERM", message="was ended by SIGTERM", where="")
        return EXIT_TERMINATED
    except SystemExit as error:
        recorder.write(
            "error", type="SystemExit", message=f"your code ended the process, with {error.code!r}", where=place_in(error, target)
        )
        return EXIT_FAILED
    except Exception as error:  # the user's code may raise anything
        where = place_in(error, target)
        asked = isinstance(error, UsageError)
        message = shortened(str(error)) if asked or said is None else said(error, where)
        recorder.write("error", type=type(error).__name__, message=message, where=where)
        traceback.print_exc()
        return EXIT_USAGE if asked or said is not None else EXIT_FAILED


def shortened(message: str) -> str:
    """A message, of a long one its ends: that of a graph has a stack first, and what was wrong last."""
    return message if len(message) <= 2000 else f"{message[:1000]}\n...\n{message[-1000:]}"


def place_in(error: BaseException, target: str) -> str:
    """File and line of the user's code that an exception came from; "" where it came from elsewhere."""
    folder = os.path.dirname(os.path.abspath(target.rpartition(":")[0])) if target else None
    frames = [one for one in traceback.extract_tb(error.__traceback__) if os.path.dirname(os.path.abspath(one.filename)) == folder]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
