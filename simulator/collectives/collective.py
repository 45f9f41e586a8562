"""Base classes of collectives: an operation of a group of ranks by an algorithm, on a network, by a protocol.

A collective gives its messages, to be simulated one by one, and the times of all ranks at once, evaluated without them. Each algorithm
is a module beside this one; ``factory`` makes them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from simulator.collectives.around import Times
from simulator.collectives.exchanges import Plan
from simulator.collectives.use import Load, Use, load_of
from simulator.collectives.wire import Wire
from simulator.program.schedule import Schedule, columns

_REMEMBERED = 256
"""Sizes whose times for ranks that enter together are kept."""

Memory = dict[float, tuple[Times, Times]]
"""By size in bytes: ends and last sends of ranks that enter together at 0, each of shape (ranks,)."""


class Choice(NamedTuple):
    """How a buffer is handled; names as in the strategy.

    ``aligned``: all ranks enter together when the slowest is ready, which delays those
    that could have begun; a result should say so if ranks differ.
    """

    algorithm: str
    protocol: str
    aligned: bool


class Collective(ABC):
    """One operation (:data:`~simulator.program.operations.Operation`) of any size in one group; ranks are counted within it."""

    @abstractmethod
    def choice(self, size_bytes: float) -> Choice:
        """How a buffer of this size is handled."""

    @abstractmethod
    def plan(self, size_bytes: float) -> Plan:
        """The messages for a buffer of this size."""

    @abstractmethod
    def finish_s(self, ready_s: Times, size_bytes: float, free_s: Times | None = None) -> Times:
        """When each rank has ended: it has the result, and its own last byte has left it.

        TensorFlow's ring counts a part of the buffer as done once it has been received and
        its own send has completed (``ring_reducer.cc``), so no rank goes on while its link
        still carries the bytes of this collective.

        Parameters
        ----------
        ready_s
            When each rank had its data, shape (ranks,), in seconds; the zero is any.
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

    @property
    @abstractmethod
    def use(self) -> Use:
        """Counts what crosses the links."""

    @abstractmethod
    def watch(self, size_bytes: float) -> None:
        """Have the links that a buffer of this size crosses counted from now on, and not only once one has been."""

    def finish_run_s(self, enter_s: Times, sizes_bytes: Sequence[float]) -> Times | None:  # noqa: ARG002 - where it can be told
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

    @abstractmethod
    def account(self, size_bytes: float, times: int = 1) -> None:
        """Count buffers of this size on the links that they cross: bytes carried and seconds in use."""

    def begin_again(self) -> bool:
        """Forget what has been counted, for another run on the same network; false where something else is left of this one."""
        return False

    @abstractmethod
    def least_s(self, size_bytes: float) -> float:
        """A lower bound of the duration: what the busiest port needs for its bytes."""

    @abstractmethod
    def duration_s(self, size_bytes: float) -> float:
        """Seconds from ranks that enter together to the last one's end."""

    @property
    @abstractmethod
    def aligned(self) -> bool:
        """Whether any buffer so far was handled by ranks that had to enter together."""


class Scheduled(Collective):
    """One algorithm by one protocol.

    Parameters
    ----------
    name, protocol
        As in the strategy.
    schedule
        The messages for a size in bytes.
    wire
        What they cross.
    """

    _aligned = False

    def __init__(self, name: str, protocol: str, schedule: Callable[[float], Schedule], wire: Wire) -> None:
        self._use: Use | None = None
        self._name = name
        self._protocol = protocol
        self._schedule = schedule
        self._wire = wire
        self._ranks = len(wire.group)
        self._together: Memory = {}

    def remember_in(self, memory: Memory) -> None:
        """Keep the times of ranks that enter together where other collectives of the same kind on the same network find them."""
        self._together = memory

    @property
    def aligned(self) -> bool:
        """Whether ranks enter together."""
        return self._aligned and self._ranks > 1

    def choice(self, size_bytes: float) -> Choice:  # noqa: ARG002 - the same for all
        """How every buffer is handled."""
        return Choice(self._name, self._protocol, self.aligned)

    def plan(self, size_bytes: float) -> Plan:
        """The messages for a buffer of this size."""
        return Plan(self._schedule(size_bytes), self._wire)

    def finish_s(self, ready_s: Times, size_bytes: float, free_s: Times | None = None) -> Times:
        """When each rank has ended; see :class:`Collective`."""
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

    def duration_s(self, size_bytes: float) -> float:
        """Seconds from ranks that enter together to the last one's end."""
        return float(self._from_zero(size_bytes)[0].max()) if self._ranks > 1 else 0.0

    @property
    def use(self) -> Use:
        """Counts what crosses the links."""
        if self._use is None:
            self._use = Use(self._wire.fresh())
        return self._use

    def begin_again(self) -> bool:
        """Forget what has been counted."""
        if self._use is not None:
            self._use.forget()
        return True

    def count_in(self, use: Use) -> None:
        """Count what it carries together with what others carry over the same links."""
        self._use = use

    def account(self, size_bytes: float, times: int = 1) -> None:
        """Count buffers of this size on the links that they cross."""
        self.use.add(self._load, size_bytes, times)

    def watch(self, size_bytes: float) -> None:  # noqa: ARG002 - the same for all
        """Have the links that every buffer crosses counted from now on."""
        assert self._load is not None

    def least_s(self, size_bytes: float) -> float:
        """A lower bound of the duration: what the busiest port needs for its bytes."""
        return self._least_s_per_byte * size_bytes

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

    def _from_zero(self, size_bytes: float) -> tuple[Times, Times]:
        """Ends and last sends of ranks that enter together at 0."""
        known = self._together.get(size_bytes)
        if known is None:
            sent_s = np.zeros(self._ranks)
            known = np.maximum(self._received_s(np.zeros(self._ranks), size_bytes, sent_s), sent_s), sent_s
            if len(self._together) >= _REMEMBERED:
                self._together.pop(next(iter(self._together)), None)  # another thread may have been quicker
            self._together[size_bytes] = known
        return known

    @abstractmethod
    def _received_s(self, ready_s: Times, size_bytes: float, free_s: Times) -> Times:
        """When each of at least two ranks has the result; ``free_s``, when its own last byte has left it, is brought up to date."""
