"""TCP's congestion control: a namespace may only choose among those that the whole machine allows.

Allowing one more is a change to the machine. It is made for the moment in which the
namespaces choose, under a lock, and put back; what it was before stands in the lock file,
so that a run that was killed in that moment is mended by the next one.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from ..ending import UsageError

ALLOWED = "/proc/sys/net/ipv4/tcp_allowed_congestion_control"
AVAILABLE = "/proc/sys/net/ipv4/tcp_available_congestion_control"
LOCK = "/run/paceline-testbed.lock"


class Congestion:
    """Makes one congestion control choosable; to be made in the machine's own network namespace.

    Parameters
    ----------
    name
        Such as ``cubic``.

    Raises
    ------
    UsageError
        This machine has no such congestion control.
    RuntimeError
        It does not let us allow it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        with open(AVAILABLE, encoding="ascii") as file:
            available = file.read().split()
        if name not in available:
            raise UsageError(f"link.congestion: {name!r} is no congestion control of this machine; it has {', '.join(sorted(available))}")
        # the file is not to be seen from within other namespaces, but stays open there
        try:
            self._allowed = os.open(ALLOWED, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            why = f"{ALLOWED} cannot be written ({error.strerror})"
            raise RuntimeError(f'{why}; shaped links need root, or use link = "loopback"') from None

    @contextmanager
    def choosable(self) -> Iterator[None]:
        """Namespaces may choose it for the length of the block."""
        lock = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            left = os.pread(lock, 4096, 0)
            if left:  # a run before was killed between its change and putting it back
                os.pwrite(self._allowed, left, 0)
                os.ftruncate(lock, 0)
            before = os.pread(self._allowed, 4096, 0).strip()
            if self.name.encode() in before.split():
                yield
                return
            os.pwrite(lock, before, 0)
            os.fsync(lock)
            try:
                os.pwrite(self._allowed, before + b" " + self.name.encode(), 0)
                yield
            finally:
                os.pwrite(self._allowed, before, 0)
                os.ftruncate(lock, 0)
        finally:
            os.close(lock)
