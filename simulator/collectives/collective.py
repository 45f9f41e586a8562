"""A collective: an operation of a group of ranks by an algorithm, on a network, by a protocol.

It gives its messages, to be simulated one by one, and the times of all ranks at once, evaluated without them: by a recurrence of its
algorithm, or from a trial run of its messages in which all ranks enter together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from typing import NamedTuple

import numpy as np

from simulator.collectives.wire import Load, Plan, Use, Wire, load_of
from simulator.program.program import Floats
from simulator.program.schedule import Schedule, columns

_REMEMBERED = 256
"""Sizes whose times for ranks that enter together are kept."""
_STEADY = 5e-3
"""Relative change of the pace, from one doubling of the pieces to the next, below which it is taken to be steady."""

Memory = dict[float, tuple[Floats, Floats]]
"""By size in bytes: ends and last sends of ranks that enter together at 0, each of shape (ranks,)."""


class Choice(NamedTuple):
    """How a buffer is handled; names as in the strategy.

    ``aligned``: its times are known only for ranks that begin together, so that all begin when
    the last one is ready. That delays the others; a result says so where ranks differ.
    """

    algorithm: str
    protocol: str
    aligned: bool


class Collective:
    """One operation (:data:`~simulator.program.schedule.Does`) of any size in one group; ranks are counted within it.

    Times come from trial runs, in which all ranks of this and parallel groups begin together. An algorithm whose
    times follow from a recurrence overrides ``_received_s`` and ``_aligned``; one that depends on the size, ``_for``.

    Parameters
    ----------
    name, protocol
        As in the strategy.
    schedule
        The messages for a size in bytes.
    wire
        What they cross.

    Attributes
    ----------
    together
        Known times of ranks that begin together; collectives of one kind on one network may share them.
    """

    _aligned = True

    def __init__(self, name: str, protocol: str, schedule: Callable[[float], Schedule], wire: Wire) -> None:
        self._name, self._protocol, self._schedule, self._wire = name, protocol, schedule, wire
        self._ranks = len(wire.group)
        self.together: Memory = {}

    def _for(self, size_bytes: float) -> Collective:  # noqa: ARG002 - the same for all
        """The collective that handles a buffer of this size."""
        return self

    @property
    def aligned(self) -> bool:
        """Tell whether ranks had to begin any buffer together so far, when the last of them was ready (:class:`Choice`)."""
        return self._aligned and self._ranks > 1

    def choice(self, size_bytes: float) -> Choice:
        """How a buffer of this size is handled."""
        chosen = self._for(size_bytes)
        return Choice(chosen._name, chosen._protocol, chosen.aligned)

    def plan(self, size_bytes: float) -> Plan:
        """The messages for a buffer of this size."""
        chosen = self._for(size_bytes)
        return Plan(chosen._schedule(size_bytes), chosen._wire)

    def finish_s(self, ready_s: Floats, size_bytes: float, free_s: Floats | None = None) -> Floats:
        """When each rank has ended: it has the result, and its own last byte has left it.

        TensorFlow's ring counts a part of the buffer as done once it has been received and
        its own send has completed (``ring_reducer.cc``), so no rank goes on while its link
        still carries the bytes of this collective.

        Parameters
        ----------
        ready_s
            When each rank had its data, shape (ranks,), in seconds since a moment that all have in common.
        size_bytes
            Size of the buffer.
        free_s
            When what each rank sent before has left it, shape (ranks,); brought up to
            date. Left out: nothing was sent before.

        Returns
        -------
        ndarray
            Shape (ranks,), in seconds.
        """
        if self._ranks == 1:
            return ready_s.copy()
        if self._aligned:
            return self._from_zero(size_bytes)[0] + max(float(ready_s.max()), -np.inf if free_s is None else float(free_s.max()))
        start_s = float(ready_s[0])
        if ready_s[-1] == start_s and (ready_s == start_s).all() and (free_s is None or (free_s <= start_s).all()):
            finish_s, sent_s = self._from_zero(size_bytes)
            if free_s is not None:
                free_s[:] = sent_s + start_s
            return finish_s + start_s
        sent_s = np.full(self._ranks, -np.inf) if free_s is None else free_s
        return np.maximum(self._received_s(ready_s, size_bytes, sent_s), sent_s)

    def finish_run_s(self, enter_s: Floats, sizes_bytes: Sequence[float]) -> Floats | None:  # noqa: ARG002 - where it can be told
        """When each rank has ended the last of several, if every rank enters each as soon as it has ended the one before.

        Parameters
        ----------
        enter_s
            When each rank enters the first one, shape (ranks,), in seconds.
        sizes_bytes
            Size of each buffer.

        Returns
        -------
        ndarray or None
            Shape (ranks,), in seconds; none if they must be looked at one by one.
        """
        return None

    def duration_s(self, size_bytes: float) -> float:
        """Seconds from when all ranks begin together to the last one's end."""
        return float(self._for(size_bytes)._from_zero(size_bytes)[0].max()) if self._ranks > 1 else 0.0

    def least_s(self, size_bytes: float) -> float:
        """A lower bound of the duration: what the busiest port needs for its bytes."""
        return self._for(size_bytes)._least_s_per_byte * size_bytes

    @cached_property
    def use(self) -> Use:
        """Counts what crosses the links."""
        return Use(self._wire.fresh())

    def watch(self, size_bytes: float) -> None:
        """Have the links that a buffer of this size crosses counted from now on, and not only once one has been."""
        _ = self._for(size_bytes)._load  # lays the links

    def account(self, size_bytes: float, times: int = 1) -> None:
        """Count buffers of this size on the links that they cross: bytes carried and seconds in use."""
        self.use.add(self._for(size_bytes)._load, size_bytes, times)

    def begin_again(self) -> bool:
        """Forget what has been counted, for another run on the same network; false where something else is left of this one."""
        self.use.forget()
        return True

    @cached_property
    def _load(self) -> Load:
        return self.use.lay(self._schedule(0.0), self._wire)

    @cached_property
    def _least_s_per_byte(self) -> float:
        schedule = self._schedule(0.0)
        alone, lanes = replace(self._wire, beside=()), columns(schedule)
        laid = alone.laid(lanes.source, lanes.target)
        load = load_of(schedule, alone.bytes_of(lanes.source, lanes.target), laid.ports, laid.paths)
        return float(load.seconds.max(initial=0.0))

    def _from_zero(self, size_bytes: float) -> tuple[Floats, Floats]:
        """Ends and last sends of ranks that enter together at 0."""
        known = self.together.get(size_bytes)
        if known is None:
            sent_s = np.zeros(self._ranks)
            known = np.maximum(self._received_s(np.zeros(self._ranks), size_bytes, sent_s), sent_s), sent_s
            if len(self.together) >= _REMEMBERED:
                self.together.pop(next(iter(self.together)), None)  # another thread may have been quicker
            self.together[size_bytes] = known
        return known

    def _received_s(self, ready_s: Floats, size_bytes: float, free_s: Floats) -> Floats:  # noqa: ARG002 - all enter at 0
        """When each of at least two ranks has the result; ``free_s``, when its own last byte has left it, is brought up to date."""
        return _trial_s(self.plan(size_bytes), size_bytes)


def _trial_s(plan: Plan, size_bytes: float) -> Floats:
    """Time at which each rank has ended if all ranks of this and parallel groups have their data at 0; shape (ranks,).

    The trial run is a program of its own, on a copy of the network that only these groups use. Its module is named as text, since
    engines are made of collectives.
    """
    finish_s: Callable[[Plan, float], Floats] = import_module("simulator.engine.trial").finish_s
    return finish_s(plan, size_bytes)


def pieces_of(size_bytes: float, parts: int, chunk_bytes: float) -> int:
    """The fewest equal pieces of each of the parts of a buffer that are no larger than ``chunk_bytes``."""
    return max(math.ceil(size_bytes / parts / chunk_bytes), 1)


class InPieces(Collective):
    """A collective that passes pieces on one after the other, from a trial run in which all ranks enter together.

    Only some of many pieces are simulated, doubling their number until they follow each other at a steady pace; the others
    follow at that pace.

    Parameters
    ----------
    name, protocol, wire
        As in :class:`Collective`.
    schedule
        The messages for a number of pieces of each part.
    parts
        Of the buffer, which go side by side.
    chunk_bytes
        Each part is cut into the fewest equal pieces that are no larger.
    filling
        About how many pieces are on their way at the same time.
    """

    def __init__(
        self, name: str, protocol: str, wire: Wire, schedule: Callable[[int], Schedule], parts: int, chunk_bytes: float, filling: int
    ) -> None:
        super().__init__(name, protocol, lambda size_bytes: schedule(pieces_of(size_bytes, parts, chunk_bytes)), wire)
        self._in_pieces, self._parts, self._chunk_bytes, self._filling = schedule, parts, chunk_bytes, filling

    def _received_s(self, ready_s: Floats, size_bytes: float, free_s: Floats) -> Floats:  # noqa: ARG002 - all enter at 0
        pieces = pieces_of(size_bytes, self._parts, self._chunk_bytes)
        piece_bytes = size_bytes / pieces

        def trial_s(some: int) -> Floats:
            return _trial_s(Plan(self._in_pieces(some), self._wire), some * piece_bytes)

        count = max(self._filling, 8)
        if 2 * count < pieces:
            first_s, half_s, count_s = (trial_s(some) for some in (1, count // 2, count))
            while 2 * count < pieces:
                double_s = trial_s(2 * count)
                earlier_pace_s, pace_s = 2 * (count_s - half_s).max() / count, (double_s - count_s).max() / count
                # steady at the earliest when the first pieces have come through: in a tree they share the links with those that set out
                if count_s.max() > 2 * first_s.max() and abs(pace_s - earlier_pace_s) <= _STEADY * pace_s:
                    finish_s: Floats = double_s + (pieces - 2 * count) * pace_s
                    return finish_s
                half_s, count_s, count = count_s, double_s, 2 * count
        return trial_s(pieces)


class Auto(Collective):
    """For each size, whichever collective is fastest for ranks that enter together.

    They are compared once for each class of sizes from one power of two up to the next,
    at the middle of the class.

    Parameters
    ----------
    candidates
        In order of preference among equals; all count on the same links. An algorithm whose busiest port takes longer than another's whole
        duration is not evaluated.
    """

    def __init__(self, candidates: Sequence[Collective]) -> None:
        first = candidates[0]
        super().__init__("auto", "auto", first._schedule, first._wire)
        self._candidates, self.use = candidates, first.use
        self._fastest: dict[int, Collective] = {}

    @property
    def aligned(self) -> bool:
        """Tell whether ranks had to begin any buffer together so far."""
        return any(collective.aligned for collective in self._fastest.values())

    def finish_s(self, ready_s: Floats, size_bytes: float, free_s: Floats | None = None) -> Floats:
        """When each rank has ended; see :class:`Collective`."""
        return self._for(size_bytes).finish_s(ready_s, size_bytes, free_s)

    def finish_run_s(self, enter_s: Floats, sizes_bytes: Sequence[float]) -> Floats | None:
        """When each rank has ended the last of several, if one collective is the fastest for all of them."""
        fastest = {self._for(size) for size in sizes_bytes}
        return fastest.pop().finish_run_s(enter_s, sizes_bytes) if len(fastest) == 1 else None

    def begin_again(self) -> bool:
        """False: which sizes were seen, and so which links are counted, is left of a run."""
        return False

    def _for(self, size_bytes: float) -> Collective:
        size_class = math.floor(math.log2(max(size_bytes, 1.0)))
        fastest = self._fastest.get(size_class)
        if fastest is None:
            middle_bytes = 1.5 * 2.0**size_class
            fastest, best_s = self._candidates[0], math.inf
            for candidate in self._candidates:
                if candidate.least_s(middle_bytes) < best_s and (duration_s := candidate.duration_s(middle_bytes)) < best_s:
                    fastest, best_s = candidate, duration_s
            self._fastest[size_class] = fastest
        return fastest
