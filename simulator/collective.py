"""Ring all-reduce, step by step around the ring.

The buffer is cut into one chunk a rank. In each of 2 (n - 1) steps every rank sends one
chunk to the next rank and receives one from the previous; it can send the chunk of step
k + 1 once it has received that of step k (n - 1 steps reduce, n - 1 gather). A late rank
so delays first its neighbour, then the neighbour's neighbour. See Patarasuk and Yuan,
"Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.

Two ways to the same times: :class:`RingOfMessages` sends every message through the
network; :class:`RingOfTimes` evaluates the same recurrence for all ranks at once, which
is exact because no two hops of a ring share a port.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from simpy.events import Event

from simulator.kernel import Kernel
from simulator.network import Network
from simulator.ports import Connection
from simulator.records import Observer, Transfer

__all__ = ["AllReduce", "RingOfMessages", "RingOfTimes"]

Times = NDArray[np.float64]


class AllReduce(Protocol):
    """One all-reduce a bucket a step, the buckets in order."""

    def finished(self, rank: int) -> Event:
        """The event that the rank's buckets of the current step are all reduced."""

    def ready(self, rank: int, bucket: int) -> None:
        """The rank has the bucket's gradients now."""


class RingOfTimes:
    """The recurrence of the messages' times, for all ranks at once.

    Parameters
    ----------
    kernel
        The environment.
    hops
        ``hops[i]`` leads from rank i to rank i + 1.
    buckets_bytes
        Size of each bucket.
    """

    def __init__(self, kernel: Kernel, hops: Sequence[Connection], buckets_bytes: Sequence[float]) -> None:
        self._kernel = kernel
        self._hops = hops
        self._buckets = buckets_bytes
        ranks = len(hops)
        self._seconds_per_byte = np.array([1.0 / min(port.capacity for port in hop.ports) for hop in hops])
        self._latency_s = np.array([hop.latency_s for hop in hops])
        self._ready_s = np.zeros((len(buckets_bytes), ranks))
        self._free_s = np.zeros(ranks)
        self._missing = len(buckets_bytes) * ranks
        self._done = [kernel.event() for _ in range(ranks)]

    def finished(self, rank: int) -> Event:
        """The event that the rank's buckets of the current step are all reduced."""
        return self._done[rank]

    def ready(self, rank: int, bucket: int) -> None:
        """The rank has the bucket's gradients now."""
        self._ready_s[bucket, rank] = self._kernel.now
        self._missing -= 1
        if not self._missing:
            self._reduce()

    def _reduce(self) -> None:
        """All ranks have all buckets: the rest of the step is determined."""
        ranks, now = len(self._hops), self._kernel.now
        finish_s: Times = np.zeros(ranks)
        for bucket, size_bytes in enumerate(self._buckets):
            chunk_s = size_bytes / ranks * self._seconds_per_byte
            finish_s = around_the_ring(np.maximum(self._ready_s[bucket], finish_s), self._free_s, chunk_s, self._latency_s)
            for hop, busy_s in zip(self._hops, (2 * (ranks - 1) * chunk_s).tolist(), strict=True):
                for port in hop.ports:
                    port.carried += 2 * (ranks - 1) * size_bytes / ranks
                    port.busy_s += busy_s
        done, self._done = self._done, [self._kernel.event() for _ in range(ranks)]
        self._missing = len(self._buckets) * ranks
        for event, at_s in zip(done, finish_s.tolist(), strict=True):
            self._kernel.call_later(max(at_s - now, 0.0), partial(_succeed, event))


def around_the_ring(ready_s: Times, free_s: Times, chunk_s: Times, latency_s: Times) -> Times:
    """When each rank of a ring has the whole result.

    Parameters
    ----------
    ready_s
        When each rank has its own data, shape (ranks,).
    free_s
        When the hop out of each rank has sent what came before, shape (ranks,); brought up to date.
    chunk_s
        Time that a chunk occupies the hop out of each rank, shape (ranks,).
    latency_s
        Latency of the hop out of each rank, shape (ranks,).

    Returns
    -------
    ndarray
        Arrival of the last chunk at each rank, shape (ranks,), in seconds.
    """
    has_s = ready_s.copy()  # when the rank has what it sends next
    for _ in range(2 * (len(ready_s) - 1)):
        np.maximum(has_s, free_s, out=free_s)
        free_s += chunk_s
        arrives_s = free_s + latency_s
        has_s[1:] = arrives_s[:-1]
        has_s[0] = arrives_s[-1]
        np.maximum(has_s, ready_s, out=has_s)
    return has_s


def _succeed(event: Event, _: Event | None) -> None:
    event.succeed()


class _Turn:
    """One rank's state in one bucket's all-reduce."""

    __slots__ = ("ready", "received", "sent")

    def __init__(self) -> None:
        self.ready = False
        self.received = 0
        self.sent = 0


class RingOfMessages:
    """Every message a transfer of its own; parameters as :class:`RingOfTimes`."""

    def __init__(
        self, kernel: Kernel, network: Network, hops: Sequence[Connection], buckets_bytes: Sequence[float], observer: Observer | None = None
    ) -> None:
        self._kernel = kernel
        self._network = network
        self._hops = hops
        self._buckets = buckets_bytes
        self._observer = observer
        ranks = len(hops)
        self._turns: list[dict[int, _Turn]] = [{} for _ in range(ranks)]
        self._asked = [0] * ranks  # buckets announced as ready, over all steps
        self._current = [0] * ranks  # the bucket that the rank is at, over all steps
        self._done = [kernel.event() for _ in range(ranks)]

    def finished(self, rank: int) -> Event:
        """The event that the rank's buckets of the current step are all reduced."""
        return self._done[rank]

    def ready(self, rank: int, bucket: int) -> None:  # noqa: ARG002 - buckets come in order
        """The rank has the bucket's gradients now."""
        self._turn(rank, self._asked[rank]).ready = True
        self._asked[rank] += 1
        self._advance(rank)

    def _turn(self, rank: int, number: int) -> _Turn:
        return self._turns[rank].setdefault(number, _Turn())

    def _advance(self, rank: int) -> None:
        """Send whatever the rank may send by now."""
        ranks = len(self._hops)
        last = 2 * (ranks - 1)
        while True:
            number = self._current[rank]
            turn = self._turn(rank, number)
            if not turn.ready:
                return
            while turn.sent < last and turn.sent <= turn.received:
                self._send(rank, number, turn.sent)
                turn.sent += 1
            if turn.received < last:
                return
            del self._turns[rank][number]
            self._current[rank] += 1
            if self._current[rank] % len(self._buckets) == 0:
                done, self._done[rank] = self._done[rank], self._kernel.event()
                done.succeed()

    def _send(self, rank: int, number: int, chunk: int) -> None:
        ranks = len(self._hops)
        size_bytes = self._buckets[number % len(self._buckets)] / ranks
        target = (rank + 1) % ranks
        arrived: Callable[[Event | None], None] = partial(self._receive, target, number)
        if self._observer is not None:
            arrived = partial(self._observed, arrived, rank, target, f"bucket {number} chunk {chunk}", size_bytes, self._kernel.now)
        self._network.send(self._hops[rank], size_bytes, arrived)

    def _observed(
        self,
        arrived: Callable[[Event | None], None],
        rank: int,
        target: int,
        name: str,
        size_bytes: float,
        sent_s: float,
        event: Event | None,
    ) -> None:
        assert self._observer is not None
        self._observer.record(Transfer(f"device {rank}", f"device {target}", name, size_bytes, sent_s, self._kernel.now))
        arrived(event)

    def _receive(self, rank: int, number: int, _: Event | None) -> None:
        self._turn(rank, number).received += 1
        self._advance(rank)
