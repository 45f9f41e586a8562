"""Sets keys of a file's table by dotted name (``--set``): makes sub-tables, unsets keys, and drops what a new value leaves no room for.

Keys that exclude each other are listed here as text (``_EITHER_OR``, ``_INSTEAD_OF``), and in ``goes_with`` of specifications.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from simulator.base.errors import ScenarioError
from simulator.base.spec import Spec, keys_of, short_name
from simulator.base.text import listed
from simulator.base.validation_errors import is_valid, no_key, quoted, tables_at
from simulator.scenario import Scenario

Table: TypeAlias = dict[str, Any]
Pairs: TypeAlias = Sequence[tuple[str, Any]]
"""Dotted keys with their values; None unsets a key."""

_EVERY = ("job.checkpoint.every", "job.checkpoint.every_steps", "job.checkpoint.every_epochs")
_EITHER_OR: tuple[tuple[str, ...], ...] = (
    ("workload.batch_per_replica", "workload.global_batch"),
    ("job.samples", "job.tokens", "job.epochs"),
    (*_EVERY, "job.checkpoint.interval"),
)
"""Keys of which one is given: whoever sets one means it instead of the others."""
_INSTEAD_OF = {"run.steps": "run.job_steps"}
"""Whoever sets the first means it instead of the second; not the other way round."""
_HARMLESS = {"job.checkpoint.interval": "given"}
"""Values with which a key leaves room for the others of its kind."""


def set_in(table: Mapping[str, Any], settings: Pairs, where: str = "") -> Table:
    """A copy of a table with dotted keys set, sub-tables made where they are missing; unset keys are None.

    Raises
    ------
    ScenarioError
        A key leads into a value, or a part of it is empty; ``where`` begins the message.
    """
    result = dict(table)
    for key, value in settings:
        head, _, rest = key.partition(".")
        if not all(key.split(".")):
            raise ScenarioError(f"{where}{quoted(key)} must be a dotted key without empty parts, such as strategy.workers")
        if rest:
            inner = result.get(head)
            if inner is None:
                inner = {}
            if not isinstance(inner, Mapping):
                shown = "a list" if isinstance(inner, (list, tuple)) else quoted(inner)
                raise ScenarioError(f"{where}{key}: {head} is {shown}, not a table, so nothing can be set inside it")
            result[head] = set_in(inner, [(rest, value)], f"{where}{head}.")
        else:
            result = merged(result, {head: value})
    return result


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> Table:
    """``base`` overlaid by ``over``; a quantity is replaced under whichever of its names."""
    result = dict(base)
    for key, value in over.items():
        for old in [name for name in result if name != key and short_name(name) == short_name(key)]:
            if {old, key} & {short_name(key)}:
                del result[old]
        inner = result.get(key)
        tagged = isinstance(value, Mapping) and "kind" in value
        result[key] = merged(inner, value) if isinstance(inner, Mapping) and isinstance(value, Mapping) and not tagged else value
    return result


def at(table: Mapping[str, Any], path: str) -> Any:
    """Return what a dotted path leads to, the table itself for an empty one; None where there is nothing."""
    value: Any = table
    for key in filter(None, path.split(".")):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def put(table: Mapping[str, Any], path: str, value: Any) -> Table:
    """A copy of a table with another value at a dotted path that leads somewhere."""
    key, _, rest = path.partition(".")
    return {**table, key: put(table[key], rest, value) if rest else value}


def unset(table: Mapping[str, Any]) -> Table:
    """A table without the keys that are None, in its sub-tables too but for those that ``use`` a file, whose keys they may unset."""
    known = {key: value for key, value in table.items() if value is not None}
    return {key: unset(value) if isinstance(value, Mapping) and "use" not in value else value for key, value in known.items()}


def without_displaced(table: Mapping[str, Any], settings: Pairs, where: str = "") -> tuple[Table, list[str]]:
    """A scenario's table without the keys that ``settings``, yet to be set, leave no room for; and a sentence on each of them.

    These are the keys that another kind (or mode) does not have, and those that one which is set excludes. Keys that are
    themselves set stay: whoever asks for both is refused.

    >>> table = {"strategy": {"kind": "multi-worker-mirrored", "workers": 8}}
    >>> without_displaced(table, [("strategy.kind", "single")])
    ({'strategy': {'kind': 'multi-worker-mirrored'}}, ['strategy.workers = 8 is left out: strategy.kind = "single" has no such key'])
    """
    own = {_plain(key) for key, _ in settings}
    final = set_in(table, settings, where)
    result = dict(table)
    notes = []
    for key, value in settings:
        if value is None:
            continue
        for displaced, why in (*_of_others(result, final, key, value), *_excluded(key, value)):
            gone = {name: old for name, old in _under_either_name(result, displaced) if _plain(name) not in own}
            for name in gone:
                result = _without(result, name)
            if told := [f"{name} = {_shown(old)}" for name, old in gone.items() if not _is_default(table, name)]:
                notes.append(f"{listed(told)} {'is' if len(told) == 1 else 'are'} left out: {why}")
    return result, notes


def check_unset(settings: Pairs, table: Mapping[str, Any], where: str) -> None:
    """Do nothing where each key that is unset is one that a scenario may have.

    Raises
    ------
    ScenarioError
        One is not.
    """
    for key, value in settings:
        path = key.split(".")
        if value is None and at(table, key) is None:
            known = [name for kind in tables_at(Scenario, path[:-1])[0] for name in keys_of(kind)]
            if known and path[-1] not in known:
                raise ScenarioError(f"{where}{key}: {no_key(Scenario, path)}")


Displaced: TypeAlias = tuple[Iterable[str], str]
"""Dotted keys, and why there is no place for them."""


def _of_others(table: Mapping[str, Any], final: Mapping[str, Any], key: str, value: object) -> Iterator[Displaced]:
    """Other keys that apply only to other values of ``key``."""
    path, _, choice = key.rpartition(".")
    beside, spec = at(table, path), _spec_at(path, final)
    if not isinstance(beside, Mapping) or spec is None or choice not in spec.model_fields or beside.get(choice) == value:
        return
    if spec.model_fields[choice].default == value and choice == "kind":
        strange = [f"{path}.{name}" for name in beside if name not in keys_of(spec)]
        yield strange, f"{key} = {_shown(value)} has no such key"
    for name, (other, values) in spec.goes_with.items():
        if other == choice and value not in values:
            yield [f"{path}.{short_name(name)}"], f"it applies only to {key} = {listed([_shown(each) for each in values], 'or')}"


def _spec_at(path: str, table: Mapping[str, Any]) -> type[Spec] | None:
    """Return the specification at a place of a scenario; where there are several kinds, that which is there."""
    specs = [kind for kind in tables_at(Scenario, [*filter(None, path.split("."))])[0] if issubclass(kind, Spec)]
    if len(specs) > 1:
        kind = at(table, f"{path}.kind")
        specs = [spec for spec in specs if "kind" in spec.model_fields and spec.model_fields["kind"].default == kind]
    return specs[0] if len(specs) == 1 else None


def _excluded(key: str, value: object) -> Iterator[Displaced]:
    """Keys that ``key`` takes the place of."""
    if value == _HARMLESS.get(key):
        return
    plain = _plain(key)
    others = [other for group in _EITHER_OR if plain in group for other in group if other != plain]
    for other in (*others, *filter(None, [_INSTEAD_OF.get(plain)])):
        yield [other], f"{key} replaces it"


def _under_either_name(table: Mapping[str, Any], keys: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Yield the keys of a table, under the names used in it, with their values."""
    for key in keys:
        path, _, last = key.rpartition(".")
        inner = at(table, path)
        for name, value in inner.items() if isinstance(inner, Mapping) else ():
            if last in (name, short_name(name)) and value is not None:
                yield f"{path}.{name}", value


def _is_default(table: Mapping[str, Any], key: str) -> bool:
    """Return whether a key has the value of its default."""
    path, _, last = key.rpartition(".")
    spec, beside = _spec_at(path, table), at(table, path)
    field = spec.model_fields.get(last) if spec is not None else None
    if spec is None or field is None or field.is_required() or not is_valid(spec, beside):
        return False
    return bool(getattr(spec.model_validate(beside), last) == field.get_default(call_default_factory=True))


def _without(table: Mapping[str, Any], path: str) -> Table:
    """A copy of a table without the key at a dotted path."""
    head, _, rest = path.partition(".")
    return {key: _without(value, rest) if key == head else value for key, value in table.items() if rest or key != head}


def _plain(key: str) -> str:
    """A dotted key under the name that a person writes."""
    head, dot, last = key.rpartition(".")
    return f"{head}{dot}{short_name(last)}"


def _shown(value: object) -> str:
    """A value as in a file, shortened if long."""
    return f'"{value[:60]}"' if isinstance(value, str) else quoted(value)
