"""Gradients on their way by the host: from the device's memory to it and back."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.engine.recorder import InUse
from simulator.program.port_names import Owner, PortKind, PortName
from simulator.program.program import HostCopies as Link

__all__ = ["HostCopies"]

Times = NDArray[np.float64]


_WAYS = PortKind.HOST_LINK_OUT, PortKind.HOST_LINK_IN


class HostCopies:
    """The two directions of every rank's link to its host, for all ranks at once."""

    def __init__(self, link: Link, ranks: int) -> None:
        self._latency_s = link.latency_s
        self._s_per_byte = link.s_per_byte
        self._used_s = np.zeros((2, ranks))
        self._out_free_s = np.zeros(ranks)
        self._in_free_s = np.zeros(ranks)

    @property
    def in_use(self) -> InUse:
        """How long each rank's part of its link has been in use, both directions."""
        names = [PortName(way, Owner("host link", rank)) for way in _WAYS for rank in range(self._used_s.shape[1])]
        return InUse(names, self._used_s.flatten())

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
