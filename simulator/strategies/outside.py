"""Strategies of other packages: found by their ``kind``, checked when they are loaded, and refused in one line when they answer wrongly.

Paceline's own strategies are checked by its tests. Those of others are checked here: the class when it is loaded, and each answer
(``layout``, ``pace``, ``program``, ...) when it is given, before anything is computed from it. docs/extend.md shows how to
write one.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterator
from functools import cache, wraps
from typing import Any, Self, get_origin, get_type_hints

import numpy as np
from pydantic import ConfigDict, InstanceOf, TypeAdapter, ValidationError

from simulator.base.errors import InputError, PacelineError
from simulator.base.text import listed
from simulator.program.program import Operation, Program, memberships
from simulator.strategies.server_steps import Tensors
from simulator.strategies.strategy import Strategy

GROUP = "paceline.strategies"
"""Entry points of strategies that other packages have: each is named by a ``kind``, and loads its class."""

_REFUSES = {"check": ValueError, "check_layout": ValueError, "fewer": ValidationError}
"""Errors that these may raise according to the base class."""
_STRICTLY = ConfigDict(strict=True, allow_inf_nan=False)


@cache
def kinds() -> tuple[str, ...]:
    """The kinds that other installed packages name; nothing is imported for it."""
    from importlib.metadata import entry_points

    return tuple(sorted(entry_points(group=GROUP).names))


@cache
def strategy_of(kind: str) -> type[Strategy] | None:
    """The strategy of another package; none where no package that is installed has one of this kind.

    Its package is imported when a user's scenario names its kind. Its answers are checked from then on.

    Raises
    ------
    ValueError
        It cannot be loaded, or is no strategy of this kind.
    """
    from importlib.metadata import entry_points

    for entry in entry_points(group=GROUP, name=kind):
        try:
            loaded = entry.load()
        except (Exception, SystemExit) as error:  # whatever another package's module does when it is imported
            raise ValueError(f"{kind!r} of {entry.value} cannot be loaded: {_told(error)}") from error
        if fault := _fault_of(loaded, kind):
            raise ValueError(f"{kind!r} of {entry.value} {fault}")
        for name in _overridden(loaded):
            setattr(loaded, name, _checked(loaded, name))
        return loaded  # type: ignore[no-any-return]
    return None


def _overridden(loaded: type[Strategy]) -> Iterator[str]:
    """The questions that a class answers itself."""
    for name in dir(Strategy):
        base, own = inspect.getattr_static(Strategy, name), inspect.getattr_static(loaded, name)
        owner = next(parent for parent in loaded.__mro__ if name in vars(parent))
        if not name.startswith("_") and own is not base and not owner.__module__.startswith("simulator."):
            yield name


def _fault_of(loaded: Any, kind: str) -> str:
    """Return what keeps a class from being the strategy of this kind; empty where nothing does."""
    if not (isinstance(loaded, type) and issubclass(loaded, Strategy)):
        return "must be a subclass of simulator.strategies.strategy.Strategy"
    field = loaded.model_fields.get("kind")
    if field is None or field.default != kind:
        return f'must have the key kind: Literal["{kind}"] = "{kind}"'
    if missing := sorted(loaded.__abstractmethods__):
        return f"is incomplete: it lacks {listed(missing)}"
    if loaded.count_key and loaded.count_key not in loaded.model_fields:
        return f'must have a key {loaded.count_key!r}, the number of workers; or set count_key = ""'
    for name in _overridden(loaded):
        base, own = (inspect.getattr_static(cls, name) for cls in (Strategy, loaded))
        if getattr(_function(base), "__final__", False):
            return f"must not define {name}, which follows from its other methods"
        if type(base) is not type(own) and callable(_function(base)):
            return f"must define {name} as a {'property' if isinstance(base, property) else 'method'}, as Strategy does"
        if callable(_function(base)) and not _takes_the_same(_function(base), _function(own)):
            return f"must define {name}{inspect.signature(_function(base))}, as Strategy does".replace("'", "")
    return ""


def _function(attribute: Any) -> Any:
    return attribute.fget if isinstance(attribute, property) else getattr(attribute, "__func__", attribute)


def _takes_the_same(base: Callable[..., Any], own: Callable[..., Any]) -> bool:
    """Return whether what calls the one may call the other."""
    asked = inspect.signature(base).parameters.values()
    by_name = {each.name: None for each in asked if each.kind is each.KEYWORD_ONLY}
    try:
        inspect.signature(own).bind(*[None for each in asked if each.kind is not each.KEYWORD_ONLY], **by_name)
    except TypeError:
        return False
    return True


def _checked(loaded: type[Strategy], name: str) -> Any:
    """An attribute of a class, whose answers are checked; values of the class stay as they are."""
    own = inspect.getattr_static(loaded, name)
    function = _function(own)
    if not callable(function):
        return own
    kind, at = loaded.name_of_kind(), inspect.getsourcefile(function) or ""
    answers = _answers(name)

    @wraps(function)
    def asked(*args: Any, **options: Any) -> Any:
        try:
            answer = function(*args, **options)
            answer = list(answer) if isinstance(answer, Iterator) else answer
            fault = _fault_of_program(answer) if isinstance(answer, Program) else ""
            answers.validate_python(answer)
        except (PacelineError, _REFUSES.get(name, PacelineError)):
            raise
        except Exception as error:
            fault = _told(error, at)
        if fault:
            raise InputError(f"strategy.kind {kind!r}: {name} of {loaded.__name__} {fault}")
        return iter(answer) if isinstance(answer, list) and name in ("avoided", "left_open") else answer

    return type(own)(asked) if isinstance(own, (property, classmethod)) else asked


@cache
def _answers(name: str) -> TypeAdapter[Any]:
    """Return what answers to a question must be."""
    hint = get_type_hints(_function(inspect.getattr_static(Strategy, name)))["return"]
    if hint in (Program, Tensors):  # whose fields pydantic has no types for
        return TypeAdapter(InstanceOf[hint])  # type: ignore[valid-type, misc]
    if hint is Self:
        return TypeAdapter(Strategy)
    return TypeAdapter(list[hint.__args__[0]] if get_origin(hint) is Iterator else hint, config=_STRICTLY)  # type: ignore[name-defined]


def _told(error: BaseException, at: str = "") -> str:
    """Return what went wrong, on one line, with the last place in a file where it did."""
    if isinstance(error, ValidationError):
        problem = error.errors(include_url=False)[0]
        where = ".".join(map(str, problem["loc"]))
        text = f"{where + ': ' if where else ''}{problem['msg']}, not {type(problem['input']).__name__} {str(problem['input'])[:60]}"
    else:
        text = f"{type(error).__name__}: {error}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == at]
    return f"fails{f' ({at}, line {lines[-1]})' if lines else ''}: {' '.join(text.split())}"


def _fault_of_program(program: Program) -> str:
    """Return what engines would stumble over, which read tables without looking; empty where a program is whole.

    Its author's tests must show that it does what the strategy means.
    """
    paths, ranks = program.paths, program.ranks
    for title, column, least, end in (
        ("ports of a path", paths.port, 0, len(program.ports.capacity)),
        ("hosts that send", paths.source, -1, program.hosts.count),
        ("hosts that receive", paths.target, -1, program.hosts.count),
        ("devices of ranks", ranks.device, 0, program.devices.count),
        ("routines of ranks", ranks.routine, 0, len(program.routines)),
        ("seats of ranks", ranks.seat, -1, len(paths)),
        ("paths of ranks", ranks.path, -1, len(paths)),
        ("peers of ranks", ranks.peer, -1, len(ranks)),
        ("seats of servers", program.servers.seat, -1, len(paths)),
    ):
        if np.size(column) and not least <= np.min(column) <= np.max(column) < end:
            return f"makes a program whose {title} are numbered {np.min(column)} to {np.max(column)}, but there are {end}"
    for routine, each in enumerate(program.routines):
        slots = ranks.path[ranks.routine == routine]
        if fault := _fault_of_operations(each.operations, slots, program):
            return f"makes a program in which routine {routine} {fault}"
    try:
        memberships(program)
    except ValueError as error:
        return f"makes a program in which {error}"
    return ""


def _fault_of_operations(operations: tuple[Operation, ...], slots: Any, program: Program) -> str:
    if not operations or (operations[0].kind, operations[0].name, operations[0].after) != ("gate", "turn", ()):
        return 'does not begin with the gate "turn" without dependencies'
    gates = sorted(each.name for each in operations if each.kind == "gate")
    rules = program.rules
    wanted = ["input", *(["prepare"] if rules.client else []), "turn", *(["update"] if rules.updates else [])]
    if gates != wanted:
        return f"has the gates {listed(gates)}, not {listed(wanted)}"
    partitions = len(set(program.partition)) or 1
    for number, each in enumerate(operations):
        name = f"operation {number} ({each.title})"
        if number and not (each.after or each.kind == "compute"):
            return f"{name} waits for nothing: list in `after` the operations that must end before it"
        if any(not 0 <= earlier < number for earlier in each.after):
            return f"{name} comes after {listed([str(earlier) for earlier in each.after])}, but can only wait for earlier operations"
        if each.kind == "send" and not (0 <= each.slot < slots.shape[1] and np.all(slots[:, each.slot] >= 0)):
            return f"{name} is sent by slot {each.slot}, for which a rank has no path"
        if each.kind == "serve" and not 0 <= each.server < program.servers.count:
            return f"{name} runs on server {each.server}, but there are {program.servers.count}"
        if each.kind == "collective" and not 0 <= each.partition < partitions:
            return f"{name} uses partition {each.partition}, but there are {partitions}"
    for name in ("forward", "backward", "apply"):
        shares = [getattr(each, name) for each in operations]
        total = 0.0 if name == "apply" and program.servers.count else 1.0
        if len(program.routines) == 1 and not np.isclose(sum(shares), total):
            return f"has shares of {name} that add up to {sum(shares):g}, not {total:g}"
    return ""
