"""When a replica computes and communicates at the same time: how much communication is hidden, and what that costs."""

from __future__ import annotations

from simulator.engine.simpy.device import Device
from simulator.kernel import Kernel

__all__ = ["Overlap"]


class Overlap:
    """Follows one replica's messages and its compute.

    Attributes
    ----------
    hidden_s
        Seconds so far in which it computed while at least one of its messages was on its way.
    """

    __slots__ = ("_computing", "_device", "_flights", "_hidden_s", "_kernel", "_since_s")

    def __init__(self, kernel: Kernel, device: Device) -> None:
        self._kernel = kernel
        self._device = device
        self._computing = False
        self._flights = 0
        self._since_s = 0.0
        self._hidden_s = 0.0

    def _catch_up(self) -> None:
        now = self._kernel.now
        if self._computing and self._flights:
            self._hidden_s += now - self._since_s
        self._since_s = now

    def compute(self, computing: bool) -> None:
        """The replica begins or stops to compute."""
        self._catch_up()
        self._computing = computing

    def message(self, change: int) -> None:
        """A message is on its way (1), or has come (-1)."""
        self._catch_up()
        self._flights += change
        self._device.communicate(change)

    def take(self) -> float:
        """Seconds hidden since this was last asked."""
        self._catch_up()
        hidden_s, self._hidden_s = self._hidden_s, 0.0
        return hidden_s
