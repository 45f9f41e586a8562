"""Chooses the engine of a scenario, only by ``run.engine`` and the scenario.

``auto`` computes all ranks at once where that can be, and else takes the compiled engine. Where there is no machine code of it, the same
functions run in Python, with the same results; a sentence says so where that takes long. ``simpy`` asks for the textbook engine, which
measures the same to 1e-9 where no two events tie.

``simulator.engine.production`` is imported by its modules' names as text, so that machine code is loaded only where it is wanted.
``replication`` decides from the program whether all ranks are computed at once instead; ``simulator.estimate`` foresees it from the
scenario.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Literal

from simulator.base.errors import EngineWarning, InputError
from simulator.estimate import expected_events

if TYPE_CHECKING:
    from simulator.scenario import Resolved

EngineName = Literal["auto", "simpy", "compiled"]
"""Value of ``run.engine``."""
MOST_OPERATIONS = 32_767
"""Operations of a step that the compiled engine takes: it counts them in two bytes."""
Engine = Literal["at-once", "compiled", "interpreted", "simpy"]

_WARMING = "simulator.engine.production.warming"
"""Loader of the compiled engine."""
_MANY_EVENTS = 5_000
"""Events of a replication from which on all of them take seconds without machine code."""


@cache
def unavailable() -> str | None:
    """Why there can be no machine code here, as the middle of a sentence; None if there can."""
    try:
        reason: str | None = import_module(_WARMING).available()
    except ModuleNotFoundError:
        return "numba is not installed (pip install 'paceline[fast]')"
    except ImportError as error:
        return f"numba cannot be imported ({_first_line(error)})"
    except Exception as error:  # a broken installation fails in its own way
        return f"numba does not work ({_first_line(error)})"
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
    """Return what :func:`engine_for` will probably say, making and loading nothing."""
    asked = scenario.run.engine
    if asked == "simpy":
        return "simpy"
    if not expected_events(scenario):
        return "at-once"
    tried = _not_loaded if _not_loaded.cache_info().currsize else unavailable
    return "compiled" if asked == "compiled" or tried() is None else "interpreted"


def choose(asked: EngineName, events: float) -> Engine:
    """The engine that runs what a scenario asks for; it is ready to run.

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
        There is none, and it would take long in Python.
    """
    if asked == "simpy":
        return "simpy"
    if asked == "auto" and not events:
        return "at-once"
    reason = prepare()
    if asked == "compiled" and reason is not None:
        raise _refusal(reason)
    if not events:
        return "at-once"
    if reason is not None and events > _MANY_EVENTS:
        warnings.warn(f"the simulation runs about 100 times slower than compiled, because {reason}", EngineWarning, stacklevel=2)
    return "compiled" if reason is None else "interpreted"


def prepare() -> str | None:
    """Load the machine code, made first where there is none; return why there is none, so that the same functions run in Python."""
    reason = _not_loaded()
    import_module("simulator.engine.production.machine").interpret(in_python=reason is not None)
    return reason


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
    return InputError(f'run.engine: "compiled" cannot run here: {reason}; "auto" computes the same without machine code')


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
