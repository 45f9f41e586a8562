"""The all-reduces of a step for all ranks at once, without messages."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from simpy.events import Event

from simulator.collectives.collective import Collective
from simulator.kernel import Kernel

__all__ = ["AtOnce"]


class AtOnce:
    """One all-reduce a bucket a step, the buckets in order, by the times that the collective computes.

    When all ranks have all buckets of a step, the rest of the step is determined.

    Parameters
    ----------
    kernel
        The environment.
    collective
        Gives the times.
    buckets_bytes
        Size of each bucket.
    ranks
        How many take part.
    """

    def __init__(self, kernel: Kernel, collective: Collective, buckets_bytes: Sequence[float], ranks: int) -> None:
        self._kernel = kernel
        self._collective = collective
        self._buckets = buckets_bytes
        for size_bytes in buckets_bytes:
            collective.ports(size_bytes)  # so that they are there to be watched from the beginning
        self._ready_s = np.zeros((len(buckets_bytes), ranks))
        self._free_s = np.zeros(ranks)
        self._missing = len(buckets_bytes) * ranks
        self._done = [kernel.event() for _ in range(ranks)]
        self._ended_s = np.zeros_like(self._ready_s)

    def finished(self, rank: int) -> Event:
        """The event that the rank's buckets of the current step are all reduced."""
        return self._done[rank]

    def ended_s(self, rank: int) -> Sequence[float]:
        """When the rank ended each bucket of the last step that it has finished, in seconds."""
        ended_s: list[float] = self._ended_s[:, rank].tolist()
        return ended_s

    def ready(self, rank: int, bucket: int) -> None:
        """The rank has the bucket's gradients now."""
        self._ready_s[bucket, rank] = self._kernel.now
        self._missing -= 1
        if not self._missing:
            self._reduce()

    def _reduce(self) -> None:
        now = self._kernel.now
        finish_s = np.zeros(len(self._done))
        for number, (ready_s, size_bytes) in enumerate(zip(self._ready_s, self._buckets, strict=True)):
            finish_s = self._collective.finish_s(np.maximum(ready_s, finish_s), size_bytes, self._free_s)
            self._ended_s[number] = finish_s
            self._collective.account(size_bytes)
        done, self._done = self._done, [self._kernel.event() for _ in self._done]
        self._missing = self._ready_s.size
        for event, at_s in zip(done, finish_s.tolist(), strict=True):
            self._kernel.call_later(max(at_s - now, 0.0), partial(_succeed, event))


def _succeed(event: Event, _: Event | None) -> None:
    event.succeed()
