"""Common base of probes: records measurements, reports progress to the parent process, and ends with a status that shows who is at fault.

Kinds, fields and version of records must be those of calibrate/measurements.py. ``PROGRESS_PREFIX`` and the exit statuses are also in
calibrate/probing.py, and checksums are those of simulator/base/files.py (tests/calibrate/test_measurements.py reads back what is written
here).
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import signal
import sys
import time
import traceback
from typing import Any, Callable

SCHEMA_VERSION = 1
PROGRESS_PREFIX = "@probe "
EXIT_FAILED = 3
"""Of the user's code, or of what the probe does."""
EXIT_NOT_INSTALLED = 4
EXIT_USAGE = 5
EXIT_TERMINATED, EXIT_INTERRUPTED = 128 + signal.SIGTERM, 128 + signal.SIGINT


class Recorder:
    """One JSON object a line, flushed at once, so that a crash keeps what was measured; the file must not exist yet."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "x", encoding="utf-8")  # noqa: SIM115 - stays open as long as the probe lives

    def write(self, kind: str, **fields: Any) -> None:
        """Append one record; a number that is not finite is the reader's to complain about."""
        before = json.dumps({"kind": kind, **fields})[:-1]
        checksum = hashlib.sha256(before.encode()).hexdigest()[:16]
        self._file.write(f'{before},"checksum":"{checksum}"}}\n')
        self._file.flush()

    def header(self, probe: str, arguments: dict[str, Any]) -> None:
        """The first record: what was asked for, but for where it goes, and when."""
        kept = {name: value for name, value in arguments.items() if name != "out"}
        self.write("header", schema_version=SCHEMA_VERSION, probe=probe, started=time.strftime("%Y-%m-%dT%H:%M:%S%z"), arguments=kept)


def progress(done: int, total: int, what: str) -> None:
    """Tell the parent process how far the probe is."""
    _to_parent(done=done, total=total, what=what)


def tell(event: str, **fields: Any) -> None:
    """Tell the parent process what happened, for the person who waits."""
    _to_parent(event=event, **fields)


def _to_parent(**fields: Any) -> None:
    try:
        sys.__stdout__.write(PROGRESS_PREFIX + json.dumps(fields) + "\n")
        sys.__stdout__.flush()
    except (OSError, ValueError, AttributeError):  # nobody listens any more: the measurement goes on
        pass


class UsageError(ValueError):
    """The request cannot be fulfilled: an error of the caller, not of the model."""


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
    """Let FILE:NAME import modules of its folder and of the working directory."""
    sys.path[:0] = [os.path.dirname(os.path.abspath(target.rpartition(":")[0])), os.getcwd()]


def asked(described: str | None, **flags: Any) -> argparse.Namespace:
    """Parse what was asked for: flags by their defaults, and ``--out``.

    None and a type stand for a text and a number that may be left out, False for a switch. Whoever starts a probe checks what it gives.
    """
    parser = argparse.ArgumentParser(description=described, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in flags.items():
        flag = "--" + name.replace("_", "-")
        if default is False:
            parser.add_argument(flag, action="store_true")
        elif default is None or isinstance(default, type):
            parser.add_argument(flag, type=default or str)
        else:
            parser.add_argument(flag, type=type(default), default=default)
    parser.add_argument("--out", required=True)
    return parser.parse_args()


def run(
    probe: str,
    arguments: Any,
    measure: Callable[[Recorder], None],
    target: str = "",
    header: dict[str, Any] | None = None,
    said: Callable[[Exception, str], str] | None = None,
) -> int:
    """Measure, and record what was asked for, and that this came to its end or why it did not; returns the exit status.

    Parameters
    ----------
    probe
        What the header calls it.
    arguments
        What was asked for; ``out`` is the file of measurements.
    measure
        Measures, and writes records.
    target
        FILE:NAME of the user's code, which may import modules of its folder; where it failed in there is recorded.
    header
        What is recorded of the arguments; all of them, if None.
    said
        What the user's code did wrong, of an exception and the place in that code: whoever asked is at fault then. Else the exception's
        own message.
    """
    recorder = Recorder(arguments.out)
    recorder.header(probe, vars(arguments) if header is None else header)
    if target:
        let_import(target)

    def failed(kind: str, message: str, where: str = "", **more: str) -> None:
        recorder.write("error", type=kind, message=message, where=where, **more)

    try:
        measure(recorder)
        recorder.write("end")
        return 0
    except NotInstalledError as error:
        failed(type(error.__cause__ or error).__name__, str(error), lacks=error.framework)
        return EXIT_NOT_INSTALLED
    except Terminated:
        failed("SIGTERM", "was ended by SIGTERM")
        return EXIT_TERMINATED
    except KeyboardInterrupt:
        failed("KeyboardInterrupt", "was interrupted (Ctrl-C)")
        return EXIT_INTERRUPTED
    except SystemExit as error:
        failed("SystemExit", f"your code ended the process, with {error.code!r}", place_in(error, target))
        return EXIT_FAILED
    except Exception as error:  # the user's code may raise anything
        where = place_in(error, target)
        asked = isinstance(error, UsageError)
        failed(type(error).__name__, shortened(str(error)) if asked or said is None else said(error, where), where)
        traceback.print_exc()
        return EXIT_USAGE if asked or said is not None else EXIT_FAILED


def shortened(message: str) -> str:
    """A message, of a long one its ends: that of a graph has a stack first, and what was wrong last."""
    return message if len(message) <= 2000 else f"{message[:1000]}\n...\n{message[-1000:]}"


def place_in(error: BaseException, target: str) -> str:
    """File and line of the user's code that an exception came from; "" where it came from elsewhere."""
    folder = os.path.dirname(os.path.abspath(target.rpartition(":")[0])) if target else None
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if os.path.dirname(os.path.abspath(frame.filename)) == folder]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
