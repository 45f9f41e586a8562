"""The serving half of a link measurement between two hosts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

from calibrate.probing import PROBES, stop
from calibrate.profiling import check_address
from simulator.errors import CalibrationError, InputError

__all__ = ["serve_link"]


def serve_link(address: str, python: str | None = None, ready: Callable[[], None] | None = None) -> None:
    """Run a TensorFlow server for ``profile_link(peer=address)`` on another host; returns only if it fails.

    TensorFlow's gRPC server listens on all interfaces of the host, whatever address it is
    given: use it in a trusted network only.

    Parameters
    ----------
    address
        ``HOST:PORT`` of this host, as the other one reaches it.
    python
        A Python that has TensorFlow; this one, if None.
    ready
        Called when it can be measured with.

    Raises
    ------
    CalibrationError
        The server could not be started: the port is taken, say.
    KeyboardInterrupt
        Ctrl-C; the server is stopped first.
    """
    check_address(address, "--serve")
    executable = python or sys.executable
    command = [executable, str(PROBES / "links.py"), "--serve", address]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONUNBUFFERED": "1"}
    try:
        # the probe ends when its standard input is closed, so also when this process is killed
        child = subprocess.Popen(  # noqa: S603 - the Python that the user named
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
            text=True,
        )
    except OSError as error:
        raise InputError(
            f"--python {executable!r} cannot be run: {error.strerror or error}; give the path of a Python that has TensorFlow"
        ) from None
    try:
        assert child.stdout is not None
        assert child.stderr is not None
        for line in child.stdout:
            if line.startswith("@serving") and ready is not None:
                ready()
        said = [line.strip() for line in child.stderr.read().splitlines() if line.strip()]
    finally:
        stop(child)
    raise CalibrationError(f"--serve {address}: {said[-1] if said else 'the server ended without a word'}")
