"""Chooses the SimPy engine or the compiled one for a scenario, by ``run.engine`` and the number of events that is expected.

Which one ran does not change a result. The compiled engine takes a small part of SimPy's time for an event; but half a second
to load its machine code, once in a process, and some 8 seconds to make it, once for each version. Both are taken when SimPy has
been given, in this process, as many events as it would run in that time: a sweep of thousands of short simulations then takes
little more than if its length had been known. Those times are the ``_..._EVENTS`` below, in events.

``simulator.engine.compiled.warming`` is imported by its name as text, so that numba is loaded only where it is wanted. That all
ranks are computed at once instead is decided in ``replication``, by the program; ``expected_events`` foresees it from the scenario.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

from simulator.base.errors import EngineWarning, InputError
from simulator.strategies.pipelines import feeds_in_turn

if TYPE_CHECKING:
    from simulator.scenario import Resolved

__all__ = [
    "MOST_OPERATIONS",
    "Engine",
    "EngineName",
    "background_events",
    "check",
    "choose",
    "engine_for",
    "expected_events",
    "is_made",
    "likely_engine",
    "unavailable",
]  # fmt: skip

EngineName = Literal["auto", "simpy", "compiled"]
"""What ``run.engine`` says."""
MOST_OPERATIONS = 32_767
"""Operations of a step that the compiled engine takes: it counts them in two bytes."""
Engine = Literal["simpy", "compiled"]

_WARMING = "simulator.engine.compiled.warming"
"""What knows about the compiled engine, and loads it."""
_TABLES_EVENTS, _LOADING_EVENTS, _MAKING_EVENTS = 500.0, 80_000.0, 1_200_000.0
"""Events that SimPy runs in the time that the compiled engine takes for a replication's tables, beyond what SimPy takes for its
objects; for loading machine code; for making it."""
_STEP_EVENTS, _MESSAGE_EVENTS, _BUCKET_EVENTS = 2.0, 2.0, 1.0
"""Entries on the calendar of a step of one rank: by itself, for each message that it takes part in, for each bucket."""
_CHANGE_EVENTS, _LINK_EVENTS, _BUSY_LINK_EVENTS = 0.4, 0.1, 0.2
"""Entries that a change of what others send takes as long as: by itself, and for each node whose links that concerns, which are mostly
idle, or with parameter servers mostly in use."""


class _Past:
    """What this process has done so far."""

    events = 0.0
    """That SimPy was given where the compiled engine might have run them."""
    loaded = False
    """Whether the compiled engine has been loaded."""
    failed: str | None = None
    """Why its machine code could not be made, or loaded, as the middle of a sentence."""


@cache
def unavailable() -> str | None:
    """Why the compiled engine cannot run here, as the middle of a sentence; None if it can. Loads numba the first time."""
    try:
        reason: str | None = import_module(_WARMING).available()
    except ImportError as error:
        return f"numba, which it needs, cannot be imported ({_first_line(error)})"
    except Exception as error:  # a broken installation fails in its own way
        return f"numba, which it needs, does not work ({_first_line(error)})"
    return reason


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def engine_for(scenario: Resolved, replications: int | None = None) -> Engine:
    """The engine that runs a number of replications of a scenario, all of them if left out; as :func:`choose`."""
    count = scenario.run.replications if replications is None else replications
    return choose(scenario.run.engine, count * expected_events(scenario), count)


def likely_engine(scenario: Resolved) -> Engine:
    """What :func:`engine_for` will probably say, loading nothing."""
    asked, count = scenario.run.engine, scenario.run.replications
    if asked != "auto":
        return asked
    events = count * expected_events(scenario)
    least = _TABLES_EVENTS * count if _Past.loaded else max(_LOADING_EVENTS, _TABLES_EVENTS * count)
    return "compiled" if events > least and _seems_available() else "simpy"


def _seems_available() -> bool:
    if unavailable.cache_info().currsize:
        return (unavailable() or _Past.failed) is None
    return _is_installed()


@cache
def _is_installed() -> bool:
    return find_spec("numba") is not None


def choose(asked: EngineName, events: float, replications: int = 1) -> Engine:
    """The engine that runs what a scenario asks for; the compiled one is ready to run.

    Parameters
    ----------
    asked
        ``run.engine``.
    events
        How many are expected in all that is about to be simulated, replications and all; 0: there is nothing to choose.
    replications
        Of these.

    Raises
    ------
    InputError
        The compiled engine is asked for, and cannot run here, or its machine code cannot be made.

    Warns
    -----
    EngineWarning
        It would be worth while, and cannot run here, so that SimPy does.
    """
    if asked == "simpy" or (asked == "auto" and events <= _TABLES_EVENTS * replications):
        return "simpy"
    if asked == "auto" and not _Past.loaded:
        _Past.events += events
        if _Past.events < _LOADING_EVENTS:
            return "simpy"
    reason = unavailable() or _Past.failed
    if reason is None and not _Past.loaded:
        if asked == "auto" and _Past.events < _MAKING_EVENTS and not is_made():
            return "simpy"
        reason = _load(wait=asked == "compiled")
    if reason is None:
        return "compiled" if _Past.loaded else "simpy"
    if asked == "compiled":
        raise _refusal(reason)
    warnings.warn(
        f"the compiled engine cannot run here: {reason}; SimPy runs in its place, which takes longer", EngineWarning, stacklevel=2
    )
    return "simpy"


def check(asked: EngineName) -> None:
    """Refuse, before anything is begun, an engine that cannot run here; make its machine code, where there is none.

    Raises
    ------
    InputError
        The compiled engine is asked for, and cannot run here.
    """
    if asked == "compiled" and (reason := unavailable() or _Past.failed or _made(wait=True)[1]) is not None:
        raise _refusal(reason)


def is_made() -> bool:
    """Whether the compiled engine can run here, and its machine code is there: nothing need be made. Loads numba the first time."""
    made: bool = unavailable() is None and import_module(_WARMING).is_made()
    return made


def _refusal(reason: str) -> InputError:
    return InputError(f'run.engine: "compiled" cannot run here: {reason}; take "simpy", or "auto", which does where it must')


def _made(*, wait: bool) -> tuple[bool, str | None]:
    """Whether machine code is there now, made where there was none; and why that failed, if it did. Neither, if others are at it."""
    made, reason = _tried(lambda: import_module(_WARMING).make(wait=wait))
    return bool(made), reason


def _load(*, wait: bool) -> str | None:
    """Load machine code, made first where there is none; why that failed, if it did."""
    made, reason = _made(wait=wait)
    if made:
        _, reason = _tried(import_module(_WARMING).load)
        _Past.loaded = reason is None
    return reason


def _tried(step: Callable[[], object]) -> tuple[object, str | None]:
    """What a step towards machine code gives, and why it failed, if it did: no other is tried then."""
    try:
        return step(), None
    except Exception as error:  # a compiler fails in its own ways
        _Past.failed = f"its machine code cannot be made ({_first_line(error)})"
        return None, _Past.failed


def expected_events(scenario: Resolved) -> float:
    """Entries that a replication makes on the calendar, within a factor of about two; 0 where all ranks are computed at once."""
    strategy, replicas, run = scenario.strategy, scenario.ranks, scenario.run
    together = strategy.together(scenario)
    steps = run.total_steps(replicas) / (together.devices if together is not None and together.in_step else 1)
    messages = float(strategy.messages_a_step(scenario))
    reduced = 0.0
    if strategy.reduction is not None and replicas > 1:
        reduced = len(strategy.reduction.buckets(scenario.workload, scenario.batch, replicas)) / strategy.pace.every
    if scenario.rank_messages:
        messages += reduced * 2 * (replicas - 1)
    elif (
        not messages and scenario.cluster.replicas_per_device == 1 and scenario.cluster.shared_cores is None and not feeds_in_turn(scenario)
    ):
        return 0.0
    return steps * (_STEP_EVENTS + _MESSAGE_EVENTS * messages + _BUCKET_EVENTS * reduced) + background_events(scenario)


def background_events(scenario: Resolved) -> float:
    """Entries that take as long as following what others send over the links of a replication; 0 where that does not change.

    Each time that it changes, what is under way on all of these links is shared anew.
    """
    background = scenario.cluster.background
    if background is None or not background.changes:
        return 0.0
    links = len(background.nodes) or scenario.nodes_needed
    run_s = scenario.full_step_s * scenario.run.total_steps(scenario.ranks) / scenario.ranks
    return background.changes_in(run_s) * (_CHANGE_EVENTS + (_BUSY_LINK_EVENTS if scenario.servers else _LINK_EVENTS) * links)
