"""Whether the compiled engine can run, and having its machine code loaded or made; numba is imported when that is asked."""

from __future__ import annotations

import numpy as np

from simulator.program.program import Paths, Ports
from simulator.transport import Transport

__all__ = ["available", "is_made", "load"]


def available() -> str | None:
    """Why this engine cannot run here, as the middle of a sentence; None if it can.

    Raises
    ------
    Exception
        Whatever a numba that is missing or broken fails with.
    """
    from simulator.engine.compiled.machine import obstacle  # which loads numba

    return obstacle()


def is_made() -> bool:
    """Whether the machine code is there already, from another time."""
    from simulator.engine.compiled.machine import is_kept

    return is_kept()


def load(*, wait: bool) -> bool:
    """Load the machine code; make it first, once, where there is none, and say so.

    Parameters
    ----------
    wait
        What to do while another process makes it: wait for it, or leave it.

    Returns
    -------
    bool
        Whether it is loaded.
    """
    from simulator.engine.compiled.machine import making

    with making(wait=wait) as mine:
        if not mine:
            return False
        _run_nothing()
    return True


def _run_nothing() -> None:
    """Run a network without links to its end: where there is nothing to do, machine code is loaded or made all the same."""
    from simulator.engine.compiled.interpreter import act
    from simulator.engine.compiled.loop import DRAINED
    from simulator.engine.compiled.state import State

    reals, numbers, flags = np.empty(0), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.bool_)
    ports = Ports(reals, reals, reals, numbers, ())
    paths = Paths(np.zeros(1, dtype=np.int64), numbers, reals, numbers, numbers, flags)
    state = State(ports, paths, 0, Transport())
    drained = act(state.address, 8, 1, 0.0, 0, 0, 0)
    assert drained == DRAINED, drained
