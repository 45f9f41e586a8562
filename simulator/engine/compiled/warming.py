"""Has the machine code made or loaded: it runs where there is nothing to do."""

from __future__ import annotations

import numpy as np

from simulator.engine.compiled.interpreter import act
from simulator.engine.compiled.loop import DRAINED
from simulator.engine.compiled.state import State
from simulator.program.program import Paths, Ports
from simulator.transport import Transport

__all__ = ["run_nothing"]


def run_nothing() -> None:
    """Run a network without links to its end."""
    reals, numbers, flags = np.empty(0), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.bool_)
    ports = Ports(reals, reals, reals, numbers, ())
    paths = Paths(np.zeros(1, dtype=np.int64), numbers, reals, numbers, numbers, flags)
    state = State(ports, paths, 0, Transport())
    drained = act(state.address, 8, 1, 0.0, 0, 0, 0)
    assert drained == DRAINED, drained
