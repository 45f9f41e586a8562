"""Which engine runs a program: the one that people read, or the compiled one, where there is enough to do.

Which one ran does not change a result. Loading machine code takes a good part of a second,
in which SimPy runs a hundred thousand events; a process that has loaded it once takes the
compiled engine for less.
"""

from __future__ import annotations

import math
import warnings
from functools import cache
from importlib import import_module
from typing import Literal

import numpy as np

from simulator.errors import EngineWarning, InputError
from simulator.program import Program

__all__ = ["Asked", "Engine", "check", "choose", "expected_events", "unavailable"]

Asked = Literal["auto", "simpy", "compiled"]
"""What ``run.engine`` says."""
Engine = Literal["simpy", "compiled"]

_LEAST, _LEAST_LOADED = 100_000.0, 1_000.0
"""Events for which the compiled engine is worth its loading; and where it is loaded, its tables."""
_EVENTS = {"gate": 0.5, "compute": 1.0, "send": 2.0, "receive": 0.0, "serve": 0.5, "collective": 1.0}
"""Entries on the calendar that an operation makes, roughly: a message that shares links moves the ends of others."""
_MESSAGE_EVENTS = 2.0


@cache
def unavailable() -> str | None:
    """Why the compiled engine cannot run here, as the middle of a sentence; None if it can. Loads numba the first time."""
    try:
        reason: str | None = import_module("simulator.engine.compiled").available()
    except ImportError as error:
        return f"numba, which it needs, cannot be imported ({_first_line(error)})"
    except Exception as error:  # a broken installation fails in its own way
        return f"numba, which it needs, does not work ({_first_line(error)})"
    return reason


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def choose(asked: Asked, events: float) -> Engine:
    """The engine that runs what a scenario asks for.

    Parameters
    ----------
    asked
        ``run.engine``.
    events
        How many are expected in all that is about to be simulated, replications and all.

    Raises
    ------
    InputError
        The compiled engine is asked for, and cannot run here.

    Warns
    -----
    EngineWarning
        It would be worth while, and cannot run here, so that SimPy does.
    """
    if asked == "simpy":
        return "simpy"
    if asked == "auto" and events < (_LEAST_LOADED if unavailable.cache_info().currsize else _LEAST):
        return "simpy"
    reason = unavailable()
    if reason is None:
        return "compiled"
    if asked == "compiled":
        raise InputError(f'run.engine: "compiled" cannot run here: {reason}; take "simpy", or "auto", which does where it must')
    warnings.warn(
        f"the compiled engine cannot run here: {reason}; SimPy runs in its place, which takes longer", EngineWarning, stacklevel=2
    )
    return "simpy"


def check(asked: Asked) -> None:
    """Refuse, before anything is begun, an engine that cannot run here.

    Raises
    ------
    InputError
        The compiled engine is asked for, and cannot run here.
    """
    if asked == "compiled":
        choose(asked, math.inf)


def expected_events(program: Program, steps: float, *, messages: float = 0.0) -> float:
    """Entries that a replication makes on the calendar, within a factor of about two.

    Parameters
    ----------
    program
        What is run.
    steps
        Of each rank.
    messages
        Of a step's collectives, all ranks together, where each is a transfer of its own.
    """
    each = np.array([sum(_EVENTS[operation.kind] for operation in routine.operations) for routine in program.routines])
    return float(steps * (each[program.ranks.routine].sum() + _MESSAGE_EVENTS * messages))
