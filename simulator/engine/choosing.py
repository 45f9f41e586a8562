"""Chooses the engine of a scenario, only by ``run.engine`` and the scenario.

``auto`` computes all ranks at once where that can be, and else takes the compiled engine; where that cannot run, the textbook engine in
SimPy runs, and a sentence says why. ``simpy`` asks for the textbook engine, which measures the same to 1e-9 where no two events tie.

``simulator.engine.production.warming`` is imported by its name as text, so that machine code is loaded only where it is wanted.
``replication`` decides from the program whether all ranks are computed at once instead; ``simulator.estimate`` foresees it from the
scenario.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

from simulator.base.errors import EngineWarning, InputError
from simulator.estimate import expected_events

if TYPE_CHECKING:
    from simulator.scenario import Resolved

EngineName = Literal["auto", "simpy", "compiled"]
"""Value of ``run.engine``."""
MOST_OPERATIONS = 32_767
"""Operations of a step that the compiled engine takes: it counts them in two bytes."""
Engine = Literal["at-once", "compiled", "simpy"]

_WARMING = "simulator.engine.production.warming"
"""Loader of the compiled engine."""


@cache
def unavailable() -> str | None:
    """Why the compiled engine cannot run here, as the middle of a sentence; None if it can."""
    try:
        reason: str | None = import_module(_WARMING).available()
    except ImportError as error:
        return f"numba, which it needs, cannot be imported ({_first_line(error)})"
    except Exception as error:  # a broken installation fails in its own way
        return f"numba, which it needs, does not work ({_first_line(error)})"
    return reason


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def engine_for(scenario: Resolved) -> Engine:
    """The engine that runs a scenario, as :func:`choose`."""
    return choose(scenario.run.engine, expected_events(scenario))


def textbook_knows(scenario: Resolved) -> bool:
    """Return whether the textbook engine can run a scenario."""
    reduction = scenario.strategy.reduction
    return reduction is None or not reduction.forward_first


def likely_engine(scenario: Resolved) -> Engine:
    """Return what :func:`engine_for` will probably say, loading nothing."""
    asked = scenario.run.engine
    if asked != "simpy" and not expected_events(scenario):
        return "at-once"
    return "simpy" if asked == "simpy" or (asked == "auto" and not _seems_available()) else "compiled"


def _seems_available() -> bool:
    for tried in (_not_loaded, unavailable):
        if tried.cache_info().currsize:
            return tried() is None
    return _is_installed()


@cache
def _is_installed() -> bool:
    return find_spec("numba") is not None


def choose(asked: EngineName, events: float) -> Engine:
    """The engine that runs what a scenario asks for; the compiled one is ready to run.

    Parameters
    ----------
    asked
        ``run.engine``.
    events
        How many are expected of a replication; 0: all ranks are computed at once, and there is nothing to choose.

    Raises
    ------
    InputError
        The compiled engine is asked for, and cannot run here, or its machine code cannot be made.

    Warns
    -----
    EngineWarning
        It cannot run here, so that SimPy does.
    """
    if asked == "simpy":
        return "simpy"
    if asked == "auto" and not events:
        return "at-once"
    if (reason := _not_loaded()) is None:
        return "compiled" if events else "at-once"
    if asked == "compiled":
        raise _refusal(reason)
    warnings.warn(f"the compiled engine cannot run here: {reason}; SimPy runs instead, which takes longer", EngineWarning, stacklevel=2)
    return "simpy"


def runs_trials() -> bool:
    """Return whether the compiled engine runs trials of collectives, whatever runs the scenario; its machine code is loaded then."""
    return _not_loaded() is None


def check(asked: EngineName) -> None:
    """Refuse, before anything is begun, an engine that cannot run here; make its machine code, where there is none.

    Raises
    ------
    InputError
        The compiled engine is asked for, and cannot run here.
    """
    tried = _not_loaded if _not_loaded.cache_info().currsize else _not_made
    if asked == "compiled" and (reason := tried()) is not None:
        raise _refusal(reason)


def is_made() -> bool:
    """Return whether the compiled engine can run here, and its machine code is there: nothing need be made."""
    made: bool = import_module(_WARMING).is_made() and unavailable() is None
    return made


def _refusal(reason: str) -> InputError:
    return InputError(f'run.engine: "compiled" cannot run here: {reason}; use "simpy", or "auto", which falls back to it')


@cache
def _not_made() -> str | None:
    """Why there is no machine code, made now where there was none; None if there is. Waits for another process that makes it."""
    return unavailable() or _failed(lambda: import_module(_WARMING).make())


@cache
def _not_loaded() -> str | None:
    """Why machine code is not loaded, made first where there is none; None if it is."""
    return _not_made() or _failed(lambda: import_module(_WARMING).load())


def _failed(step: Callable[[], object]) -> str | None:
    """Why a step towards machine code failed, if it did: no other is tried then."""
    try:
        step()
    except Exception as error:  # a compiler fails in its own ways
        return f"its machine code cannot be made or loaded ({_first_line(error)})"
    return None
