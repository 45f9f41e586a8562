"""Gradients on their way by the host: from the device's memory to it and back."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.program.program import HostCopies as Link

__all__ = ["HostCopies", "HostLink"]

Times = NDArray[np.float64]


_WAYS = "from device", "to device"


class HostLink(NamedTuple):
    """One direction of one rank's part of a link to its host."""

    name: str
    used_s: Times
    rank: int

    def in_use_s(self, now: float) -> float:
        """Seconds of use in all steps ended so far."""
        del now
        return float(self.used_s[self.rank])


class HostCopies:
    """The two directions of every rank's link to its host, for all ranks at once."""

    def __init__(self, link: Link, ranks: int) -> None:
        self._latency_s = link.latency_s
        self._s_per_byte = link.s_per_byte
        self._used_s = np.zeros((2, ranks))
        self._out_free_s = np.zeros(ranks)
        self._in_free_s = np.zeros(ranks)

    @property
    def links(self) -> list[HostLink]:
        """Each rank's part of its link, both directions, as what is measured."""
        ranks = range(self._used_s.shape[1])
        return [HostLink(f"host link {rank} {way}", self._used_s[row], rank) for row, way in enumerate(_WAYS) for rank in ranks]

    def out(self, ready_s: Times, size_bytes: float) -> Times:
        """When a buffer that is ready at ``ready_s``, shape (ranks,), is in the hosts' memory."""
        self._out_free_s = np.maximum(self._out_free_s, ready_s) + size_bytes * self._s_per_byte
        self._used_s[0] += size_bytes * self._s_per_byte
        at_host_s: Times = self._out_free_s + self._latency_s
        return at_host_s

    def back(self, ready_s: Times, size_bytes: float) -> Times:
        """When a buffer that is in the hosts' memory at ``ready_s``, shape (ranks,), is in the devices'."""
        self._in_free_s = np.maximum(self._in_free_s, ready_s) + size_bytes * self._s_per_byte
        self._used_s[1] += size_bytes * self._s_per_byte
        at_device_s: Times = self._in_free_s + self._latency_s
        return at_device_s
