"""Processes that hear signals, whatever the process of the tests ignores: under ``nohup``, or started in the background by a shell."""

from __future__ import annotations

import signal
import sys

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""By which a command is stopped in order."""

_BEGINS = """
import os, signal, sys
for number in {heard}:
    signal.signal(number, signal.SIG_DFL)
for number in {ignored}:
    signal.signal(number, signal.SIG_IGN)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def hearing(*arguments: str, ignored: signal.Signals | None = None) -> list[str]:
    """The command line of a Python with these arguments, which hears each of :data:`SIGNALS` but the one that it shall ignore."""
    begins = _BEGINS.format(heard=[*map(int, SIGNALS)], ignored=[] if ignored is None else [int(ignored)])
    return [sys.executable, "-IS", "-c", begins, *arguments]
