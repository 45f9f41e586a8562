"""One scenario on one engine or the other, and what differs first between two runs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import numpy as np

from simulator import Scenario
from simulator.base.compact import CountHistogram
from simulator.base.errors import PacelineError
from simulator.base.records import Record
from simulator.engine.recorder import Measured
from simulator.engine.replication import replicate
from simulator.engine.textbook.engine import Training
from simulator.resolve.resolve import resolve


class Outcome(NamedTuple):
    """What came out of a run: its records in order, and what was measured; or how it failed."""

    records: list[Record]
    measured: Measured | None
    failed: str = ""


class _Records:
    def __init__(self) -> None:
        self.records: list[Record] = []

    def record(self, record: Record) -> None:
        self.records.append(record)


class SimPyRanError(AssertionError):
    """The compiled engine was asked for."""


@contextmanager
def _without_simpy() -> Iterator[None]:
    """Fails where a program is run on SimPy's calendar in spite of what was asked for."""
    start = Training.run

    def refuse(self: Training) -> None:
        raise SimPyRanError('run.engine = "compiled", and SimPy runs')

    Training.run = refuse  # type: ignore[method-assign]
    try:
        yield
    finally:
        Training.run = start  # type: ignore[method-assign]


def run(scenario: Scenario, engine: Literal["auto", "simpy", "compiled"], replication: int = 0, *, observer: bool = True) -> Outcome:
    """One replication on an engine; the compiled one never hands over to SimPy."""
    asked = scenario.model_copy(update={"run": scenario.run.model_copy(update={"engine": engine})})
    seen = _Records()
    try:
        if engine != "simpy":
            with _without_simpy():
                measured = replicate(resolve(asked), replication, seen if observer else None)
        else:
            measured = replicate(resolve(asked), replication, seen if observer else None)
    except PacelineError as error:
        return Outcome(seen.records, None, f"{type(error).__name__}: {error}")
    return Outcome(seen.records, measured)


def difference(one: Outcome, other: Outcome, within: float = 0.0) -> str | None:
    """What differs first, in one line; None where all is equal.

    Parameters
    ----------
    one, other
        Two runs.
    within
        By how much numbers may differ, as a share of them; 0: not at all, not even one may be -0 and the other 0.
    """
    if one.failed != other.failed:
        return f"failed: {one.failed or 'no'!s} | {other.failed or 'no'!s}"
    for number, (mine, its) in enumerate(zip(one.records, other.records, strict=False)):
        if type(mine) is not type(its):
            return f"record {number}: {mine} | {its}"
        for name, value, its_value in zip(mine._fields, mine, its, strict=True):
            found = _first(name, value, its_value, within)
            if found is not None:
                return f"record {number} of {len(one.records)}, {type(mine).__name__}.{found} in {mine}"
    if len(one.records) != len(other.records):
        rest = max(one.records, other.records, key=len)[min(len(one.records), len(other.records))]
        return f"records: {len(one.records)} | {len(other.records)}; the first one more is {rest}"
    return _first("measured", one.measured, other.measured, within)


def disagreement(one: Measured, other: Measured, within: float = 1e-9) -> str | None:
    """What two engines measure differently first, in one line; None where every figure agrees.

    Parameters
    ----------
    one, other
        What each measured in the same replication.
    within
        By how much figures may differ, as a share of them; parts of a step as a share of all of it, seconds of use as one of the window.
        The events of their calendars are their own.
    """
    scale = {"parts_s": one.parts_s.sum(), "hidden_s": one.parts_s.sum(), "parts_by_routine_s": one.parts_s.sum(), "in_use_s": one.window_s}
    for name, mine in vars(one).items():
        theirs = getattr(other, name)
        if name in scale:
            pairs = zip(mine.values(), theirs.values(), strict=True) if isinstance(mine, dict) else [(mine, theirs)]
            if not all(np.allclose(its, his, rtol=within, atol=within * scale[name]) for its, his in pairs if its is not None):
                return f"{name}: {mine} | {theirs}"
        elif name not in ("events", "step_time", "phases") and (found := _first(name, mine, theirs, within)) is not None:
            return found
    return None


def _first(path: str, one: Any, other: Any, within: float) -> str | None:
    """Where two values differ first, and how: ``path: one | other``; in whatever order mappings have their keys."""
    one, other = (value.tolist() if isinstance(value, np.ndarray | np.generic) else value for value in (one, other))
    if isinstance(one, CountHistogram) and isinstance(other, CountHistogram):  # whatever is still to be counted
        one, other = one.counts, other.counts
    pairs: Iterable[tuple[str, Any, Any]]
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        if one.keys() != other.keys():
            return f"{path}, keys: {sorted(one, key=str)} | {sorted(other, key=str)}"
        pairs = ((f"{path}[{key!r}]", one[key], other[key]) for key in one)
    elif isinstance(one, Sequence) and isinstance(other, Sequence) and not isinstance(one, str):
        if len(one) != len(other):
            return f"{path}, length: {len(one)} | {len(other)}"
        pairs = ((f"{path}[{index}]", mine, its) for index, (mine, its) in enumerate(zip(one, other, strict=True)))
    elif type(one) is not type(other):
        return f"{path}: {one!r} ({type(one).__name__}) | {other!r} ({type(other).__name__})"
    elif isinstance(one, float):
        same = one.hex() == other.hex() if not within else math.isclose(one, other, rel_tol=within, abs_tol=within * 1e-6)
        return None if same else f"{path}: {one!r} | {other!r}"
    elif isinstance(one, str | int | None):
        return None if one == other else f"{path}: {one!r} | {other!r}"
    else:
        names = [field.name for field in dataclasses.fields(one)] if dataclasses.is_dataclass(one) else _attributes(one)
        pairs = ((f"{path}.{name}", getattr(one, name), getattr(other, name)) for name in names)
    return next((found for place, mine, its in pairs if (found := _first(place, mine, its, within)) is not None), None)


def _attributes(thing: object) -> list[str]:
    """What an object keeps."""
    slots = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
    found = [*slots, *getattr(thing, "__dict__", {})]
    if not found:
        raise TypeError(f"{type(thing).__name__} keeps nothing that could be compared")
    return found
