"""A Python in which TensorFlow is imported already: probes are forked from it, as a testbed forks its tasks.

Importing takes four seconds, which is most of the time of a probe in a test. Run as a file this
is the process that has imported; :func:`warm_python` gives a command that stands for its Python. A probe
runs in the network namespace of whoever started it.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, NoReturn

PROBES = "calibrate/probes"
ITERATORS = "PACELINE_TESTS_ITERATORS"
_SOCKET = "warm.socket"
# started by a shell, since a path with spaces cannot stand behind #!
_CLIENT = """#!/bin/sh
'''exec' '{python}' -IS "$0" "$@"
' '''
import json, os, select, signal, socket, sys
arguments = sys.argv[1:]
probe = arguments[1:] if arguments[:1] == ["-B"] else arguments
network = os.open("/proc/self/ns/net", os.O_RDONLY)
strange = os.geteuid() and os.fstat(network).st_ino != {network}
if not probe or not probe[0].endswith("{probes}") or strange:
    os.execv({python!r}, [{python!r}, *arguments])
connection = socket.socket(socket.AF_UNIX)
connection.connect({address!r})
asked = json.dumps([os.getcwd(), dict(os.environ), probe]).encode()
socket.send_fds(connection, [len(asked).to_bytes(4, "big")], [network, 0, 1, 2])
connection.sendall(asked)
connection.recv(4)
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, lambda number, _: connection.send(bytes([number])))
status = int.from_bytes(connection.recv(4), "big", signed=True)
if status < 0:
    signal.signal(-status, signal.SIG_DFL) if status != -signal.SIGKILL else None
    os.kill(os.getpid(), -status)
os._exit(status)
"""


@contextlib.contextmanager
def warm_python() -> Iterator[str]:
    """The path of a command that does what this Python does, and begins probes of the calibrator with TensorFlow imported.

    Where processes cannot be waited for as on Linux, it is this Python itself.
    """
    if not hasattr(os, "pidfd_open"):
        yield sys.executable
        return
    with tempfile.TemporaryDirectory(prefix="warm-") as folder:  # the path of a socket must be short
        address, command = Path(folder, _SOCKET), Path(folder, "python")
        network = os.stat("/proc/self/ns/net").st_ino
        command.write_text(_CLIENT.format(python=sys.executable, probes=PROBES, address=str(address), network=network))
        command.chmod(command.stat().st_mode | stat.S_IXUSR)
        server = subprocess.Popen(
            [sys.executable, "-P", __file__, str(address)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == b"ready\n", "TensorFlow was not imported"
            yield str(command)
        finally:
            server.kill()
            server.wait()


class WarmProcess:
    """A probe in a session of its own, begun with TensorFlow imported; as much of a ``Popen`` as its tests need.

    Attributes
    ----------
    pid
        Of the probe, and of its session.
    """

    def __init__(self, command: str, arguments: Sequence[str], output: IO[str]) -> None:
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(str(Path(command).parent / _SOCKET))
        asked = json.dumps([os.getcwd(), dict(os.environ), arguments]).encode()
        with open(os.devnull) as nothing, open("/proc/self/ns/net") as network:
            files = [network.fileno(), nothing.fileno(), output.fileno(), output.fileno()]
            socket.send_fds(self._connection, [len(asked).to_bytes(4, "big")], files)
            self._connection.sendall(asked)
            self.pid = int.from_bytes(self._connection.recv(4), "big")
        self._status: int | None = None

    def wait(self, timeout: float) -> int:
        """How it ended, within so many seconds; a signal is negative."""
        if self._status is None:
            self._connection.settimeout(timeout)
            self._status = int.from_bytes(self._connection.recv(4), "big", signed=True)
            self._connection.close()
        return self._status


def _serve(address: str) -> None:
    """Fork a probe for each connection; returns in the probe, ready to run."""
    import keras  # noqa: F401
    import tensorflow  # noqa: F401

    gc.freeze()  # what is imported is never looked at again: a look would copy its pages
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while True:
            ready, _, _ = select.select([listener, sys.stdin], [], [])
            if sys.stdin in ready:  # whoever started this has ended
                os._exit(0)
            connection, _ = listener.accept()
            if os.fork() == 0:
                break
            connection.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    header, (network, *files), _, _ = socket.recv_fds(connection, 4, 4)
    asked = bytearray()
    while len(asked) < int.from_bytes(header, "big"):
        asked += connection.recv(1 << 16)
    os.setsid()
    _enter(network)
    probe = os.fork()
    if probe:
        _attend(connection, probe)
    os.setsid()
    folder, environment, sys.argv = json.loads(asked)
    if "--parent" in sys.argv:  # a testbed does not outlive the process that started it, which is the attendant here
        sys.argv[sys.argv.index("--parent") + 1] = str(os.getppid())
    sys.executable = str(Path(address).with_name("python"))  # what a probe starts is warm too
    connection.close()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    _shorten(sys.argv[0])
    tempfile.tempdir = None  # which was looked up when TensorFlow was imported
    sys.stdin = open(0)  # noqa: SIM115 - the old one has read ahead
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(write_through=True)  # type: ignore[union-attr]
    sys.dont_write_bytecode = True


def _enter(network: int) -> None:
    """Move this process, which has one thread, into a network namespace, where it is not there already; only root is asked to."""
    if os.fstat(network).st_ino != os.stat("/proc/self/ns/net").st_ino and ctypes.CDLL(None, use_errno=True).setns(network, 0):
        raise OSError(ctypes.get_errno(), "the probe cannot enter the network of whoever started it")
    os.close(network)


def _shorten(probes: str) -> None:
    """End as many iterators as the environment says, where it does, instead of the 24 that take half of the time of a small run."""
    if ITERATORS in os.environ and os.path.isdir(probes):
        sys.modules["_paceline_probes"] = package = types.ModuleType("_paceline_probes")
        package.__path__ = [probes]
        importlib.import_module("_paceline_probes.overheads").ITERATORS = int(os.environ[ITERATORS])


def _attend(connection: socket.socket, probe: int) -> NoReturn:
    """Pass signals on to the probe, and how it ended back; end it with all that it started when nobody listens any more."""
    connection.sendall(probe.to_bytes(4, "big"))
    for number in (0, 1, 2):
        os.dup2(os.open(os.devnull, os.O_RDWR), number)
    for number in range(3, 64):
        if number != connection.fileno():
            with contextlib.suppress(OSError):
                os.close(number)
    ended = os.pidfd_open(probe)
    while True:
        ready, _, _ = select.select([connection, ended], [], [])
        if ended in ready:
            status = os.waitstatus_to_exitcode(os.waitpid(probe, 0)[1])
            with contextlib.suppress(OSError):
                connection.sendall(status.to_bytes(4, "big", signed=True))
            break
        number = connection.recv(1)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(probe, number[0] if number else signal.SIGKILL)
        if not number:
            break
    os._exit(0)


def _end(status: int) -> NoReturn:
    """End without taking TensorFlow's modules apart one by one, which takes as long as many a probe."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    _serve(sys.argv[1])
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            _end(ended.code or 0)
        raise
    _end(0)
