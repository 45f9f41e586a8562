"""Says whether the compiled engine can run, and loads or makes its machine code; numba is imported only to make it.

A process of its own makes the machine code. So whoever waits for it can be stopped at any time, which no one can be within LLVM,
and outlives a compiler that crashes. That process runs the text ``_MAKER``, which names :func:`make_here`;
``simulator.engine.choosing`` imports this module by its name as text. Where machine code is kept: ``machine``.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading

import numpy as np

from simulator.program.program import Paths, Ports
from simulator.spec.transport import Transport

_MAKING = "paceline: compiling the engine once for this version; this takes about 10 s\n"
_MAKER = "import sys; sys.path[:] = sys.argv[1:]; from simulator.engine.production.warming import make_here; make_here()"


class NotMadeError(Exception):
    """Machine code cannot be made; the text says why, on one line."""


def available() -> str | None:
    """Why this engine cannot run here, as the middle of a sentence; None if it can.

    Raises
    ------
    Exception
        Whatever a numba that is missing or broken fails with.
    """
    from simulator.engine.production.machine import is_kept, obstacle

    if (reason := obstacle()) is None and not is_kept():
        import simulator.engine.production.by_numba  # noqa: F401 - whether it can be

    return reason


def is_made() -> bool:
    """Return whether the machine code is there already, from another time."""
    from simulator.engine.production.machine import is_kept

    return is_kept()


def make() -> None:
    """Make the machine code, where there is none, and say so; wait for another process that makes it.

    Raises
    ------
    NotMadeError
        The compiler failed, or what it made cannot be kept.
    """
    from simulator.engine.production.machine import is_kept, making

    if is_kept():
        return
    try:
        with making():
            if not is_kept():
                sys.stderr.write(_MAKING)
                _make_elsewhere()
    except OSError as error:
        raise NotMadeError(f"{error.filename}: {error.strerror}" if error.filename else str(error)) from error


def load() -> None:
    """Load machine code that has been made.

    Raises
    ------
    Exception
        Whatever LLVM fails with.
    """
    _run_nothing()


def _make_elsewhere() -> None:
    """Have :func:`make_here` run in a process of its own, which ends with this one."""
    command = [sys.executable, "-c", _MAKER, *sys.path]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT) as maker:  # noqa: S603 - this Python
        assert maker.stdout is not None
        try:
            said = maker.stdout.read()
            status = maker.wait()
        except BaseException:
            maker.kill()
            raise
    if status:
        last = (said.decode(errors="replace").strip().splitlines() or ["no output"])[-1]
        how = f"the compiler ended with {signal.Signals(-status).name}: " if status < 0 else ""
        raise NotMadeError(how + last)


def make_here() -> None:
    """Make the machine code in this process, and end it: with status 0, or with 1 and one line that says why.

    Ends at once when its standard input does: whoever waits for it has ended, or has killed it.
    """
    gc.disable()  # nearly all that the compiler makes stays to the end
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # typed at the terminal, it is for whoever waits
    threading.Thread(target=_end_with_input, daemon=True).start()
    status = 0
    try:
        from simulator.engine.production import by_numba, compiling

        compiling.compiled, compiling.table = by_numba.compiled, by_numba.table
        from simulator.engine.production.interpreter import act
        from simulator.engine.production.machine import keep

        keep(*by_numba.made(act, "int64(int64, int64, int64, float64, int64, int64, int64)"))
        _run_nothing()
    except BaseException as error:
        told = (str(error).strip().splitlines() or [""])[0]
        sys.stdout.write(f"{type(error).__name__}: {told}\n" if told else f"{type(error).__name__}\n")
        sys.stdout.flush()
        status = 1
    os._exit(status)


def _end_with_input() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


def _run_nothing() -> None:
    """Run a network without links to its end: where there is nothing to do, machine code is loaded all the same."""
    from simulator.engine.production.codes import DRAINED
    from simulator.engine.production.machine import act
    from simulator.engine.production.state import State

    reals, numbers, flags = np.empty(0), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.bool_)
    ports = Ports(reals, reals, reals, numbers, ())
    paths = Paths(np.zeros(1, dtype=np.int64), numbers, reals, numbers, numbers, flags)
    state = State(ports, paths, 0, Transport())
    drained = act(state.address, 8, 1, 0.0, 0, 0, 0)
    assert drained == DRAINED, drained
