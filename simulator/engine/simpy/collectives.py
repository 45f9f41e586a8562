"""What reduces buckets among ranks, for an engine that runs event by event."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol

import numpy as np
from simpy.events import Event

from simulator.collectives.by_messages import ByMessages
from simulator.collectives.collective import Collective
from simulator.kernel import Kernel
from simulator.network.flows import Network
from simulator.network.ports import Connection
from simulator.program.program import Program
from simulator.recorder import Resource
from simulator.records import Observer

__all__ = ["AtOnce", "Collectives", "MessageByMessage"]

Ended = Callable[[int, int], None]
"""Told that a rank has ended a bucket's collective."""


class Collectives(Protocol):
    """One collective per bucket and step, the buckets in order."""

    @property
    def links(self) -> Iterable[Resource]:
        """What they use besides the program's own ports."""

    def start(self, ended: Ended) -> None:
        """Whom to tell, with rank and bucket, that a rank has ended one."""

    def enter(self, rank: int, bucket: int) -> None:
        """The rank has the bucket's data now."""

    def ended_s(self, rank: int) -> Sequence[float]:
        """When the rank ended each bucket of the last step that it has finished, in seconds."""


class AtOnce:
    """By the times that the collective computes for all ranks at once, when all of them have all buckets of a step.

    Parameters
    ----------
    kernel
        The calendar.
    collective
        Gives the times.
    buckets_bytes
        Size of each bucket.
    ranks
        How many take part.
    """

    def __init__(
        self,
        kernel: Kernel,
        collective: Collective,
        buckets_bytes: Sequence[float],
        ranks: int,
    ) -> None:
        self._kernel = kernel
        self._collective = collective
        self._buckets = buckets_bytes
        for size_bytes in buckets_bytes:
            collective.watch(size_bytes)
        self._ready_s = np.zeros((len(buckets_bytes), ranks))
        self._free_s = np.zeros(ranks)
        self._missing = len(buckets_bytes) * ranks
        self._ended_s = np.zeros_like(self._ready_s)
        self._ended: Ended = _nobody

    @property
    def links(self) -> Iterable[Resource]:
        """The links that its collective counts."""
        return self._collective.links()

    def start(self, ended: Ended) -> None:
        """Whom to tell that a rank has ended a bucket."""
        self._ended = ended

    def ended_s(self, rank: int) -> Sequence[float]:
        """When the rank ended each bucket of the last step that it has finished, in seconds."""
        ended_s: list[float] = self._ended_s[:, rank].tolist()
        return ended_s

    def enter(self, rank: int, bucket: int) -> None:
        """The rank has the bucket's data now."""
        self._ready_s[bucket, rank] = self._kernel.now
        self._missing -= 1
        if not self._missing:
            self._reduce()

    def _reduce(self) -> None:
        now = self._kernel.now
        finish_s = np.zeros(self._ready_s.shape[1])
        for number, (ready_s, size_bytes) in enumerate(zip(self._ready_s, self._buckets, strict=True)):
            finish_s = self._collective.finish_s(np.maximum(ready_s, finish_s), size_bytes, self._free_s)
            self._ended_s[number] = finish_s
            self._collective.account(size_bytes)
        self._missing = self._ready_s.size
        for rank, at_s in enumerate(finish_s.tolist()):
            wait_s = at_s - now
            if wait_s > 0:
                self._kernel.call_later(wait_s, partial(self._all_ended, rank))
            else:
                self._kernel.soon(self._all_ended, rank, None)

    def _all_ended(self, rank: int, _: Event | None) -> None:
        """A rank goes on once it has all buckets of the step."""
        for bucket in range(len(self._buckets)):
            self._ended(rank, bucket)


class MessageByMessage:
    """Every message of a program's exchanges a transfer of its own on the network that all share.

    Parameters
    ----------
    kernel, network
        What carries the messages.
    program
        Has the exchanges.
    connections
        Of each of its paths.
    observer
        Told of every transfer.
    """

    def __init__(
        self, kernel: Kernel, network: Network, program: Program, connections: Sequence[Connection], observer: Observer | None = None
    ) -> None:
        group, exchanges = program.groups[0].tolist(), program.exchanges
        self._run = ByMessages(kernel, network, exchanges, connections, group, observer, ended=self._has_ended)
        self._buckets = len(exchanges)
        self._ended: Ended = _nobody

    @property
    def links(self) -> Iterable[Resource]:
        """None besides the program's own."""
        return ()

    def start(self, ended: Ended) -> None:
        """Whom to tell that a rank has ended a bucket."""
        self._ended = ended

    def enter(self, rank: int, bucket: int) -> None:
        """The rank has the bucket's data now."""
        self._run.ready(rank, bucket)

    def ended_s(self, rank: int) -> Sequence[float]:
        """When the rank ended each bucket of the last step that it has finished, in seconds."""
        return self._run.ended_s(rank)

    def _has_ended(self, rank: int, number: int) -> None:
        self._ended(rank, number % self._buckets)


def _nobody(rank: int, bucket: int) -> None:
    """Nobody asks yet."""
