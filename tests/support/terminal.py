"""The command line at a terminal, where it asks."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from codecs import getincrementaldecoder
from collections.abc import Iterator
from contextlib import contextmanager
from select import select

from support.waiting import PATIENCE_S, until


class Terminal:
    """A command with a terminal of its own.

    Attributes
    ----------
    said
        All that it has shown there.
    """

    def __init__(self, child: subprocess.Popen[bytes], end: int) -> None:
        self._child, self._end = child, end
        self._decoder = getincrementaldecoder("utf-8")()
        self._new = 0
        self.said = ""

    def wait_for(self, text: str, *, at_the_end: bool = False) -> None:
        """Until it shows a text after what was typed last."""
        until(lambda: self._shows(text, at_the_end), self._read)

    def type(self, text: str) -> None:
        """As a person does."""
        self._new = len(self.said)
        os.write(self._end, text.encode())

    def ended(self) -> int:
        """How it ended, once it has."""
        until(lambda: not self._read())
        return self._child.wait(timeout=PATIENCE_S)

    def _shows(self, text: str, at_the_end: bool) -> bool:
        new = self.said[self._new :]
        return new.endswith(text) if at_the_end else text in new

    def _read(self) -> bool:
        """Whether more can come, after taking what is there."""
        if not select([self._end], [], [], 0.1)[0]:
            return self._child.poll() is None
        try:
            self.said += self._decoder.decode(os.read(self._end, 4096))
        except OSError:  # nobody writes there any more
            return False
        return True


@contextmanager
def at_a_terminal(*arguments: str) -> Iterator[Terminal]:
    """``paceline`` with these arguments; its results go nowhere."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "paceline", *arguments]
    child = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    try:
        yield Terminal(child, ours)
    finally:
        child.kill()
        child.wait()
        os.close(ours)
