"""Estimator of what a message costs the two hosts that it goes between, for each of its tensors and bytes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import least_squares

from simulator.base.errors import CalibrationError

__all__ = ["HostWork", "no_wire"]

Array = NDArray[np.float64]

_TOLERANCE = 0.05
"""Of a time around the fit: beyond it residuals count linearly."""
_NOTHING = 1e-6
"""Of the shortest or the largest time: a bound is approached, never reached."""


def no_wire(_: float) -> float:
    """Between two processes of one machine there is none."""
    return 0.0


class HostWork:
    """Seconds of ``k`` tensors of ``s`` bytes each that go from one host to another one.

    Each host works on one tensor after the other, ``per_tensor_ + per_byte_ * s`` = w on each. The
    receiver is at a tensor while the sender is at the next, and what is between them carries the one
    in between (b seconds a byte), as the simulator runs it:

        base_ + 2 w + (k - 1) max(w, b s) + b s

    Without a wire, this is base_ + (k + 1) w. Residuals are log(fit / measured), so that few small tensors count as much
    as many large ones, with a soft-L1 loss, as those of :class:`~calibrate.fit.estimators.AffineCost`.

    Parameters
    ----------
    wire
        Seconds that a byte takes between the hosts, given those that each of them works on it.

    Attributes
    ----------
    base_
        Seconds of a call besides.
    per_tensor_
        Seconds of each host on a tensor.
    per_byte_
        Seconds of each host on a byte.
    relative_residual_
        Largest relative distance of what was measured from the fit.
    """

    def __init__(self, wire: Callable[[float], float] = no_wire) -> None:
        self._wire = wire
        self.base_ = 0.0
        self.per_tensor_ = 0.0
        self.per_byte_ = 0.0
        self.relative_residual_ = 0.0

    def fit(self, tensors: ArrayLike, sizes: ArrayLike, seconds: ArrayLike, near: HostWork | None = None) -> HostWork:
        """Learn from numbers of tensors, bytes of each, and seconds; each of shape (n,).

        ``near`` was fitted to nearly the same, and is where the search begins.

        Raises
        ------
        CalibrationError
            There are fewer than two numbers of tensors or sizes, or the time does not grow with the number of tensors.
        """
        k, s, t = np.asarray(tensors, float), np.asarray(sizes, float), np.asarray(seconds, float)
        if not (np.all(np.isfinite(t)) and np.all(t > 0)):
            raise CalibrationError("a fit needs finite times above zero")
        if len(np.unique(k)) < 2 or len(np.unique(s)) < 2:
            raise CalibrationError("at least two numbers of tensors and two sizes must have a usable time: measure more of them, or rounds")
        # all unknowns of order one: in shares of the shortest time, and of the longest a tensor and a byte
        units = np.array([np.min(t), np.max(t[k == np.max(k)]) / np.max(k), np.max(t / (k * s + s))])

        def residuals(parameters: Array) -> Array:
            base, per_tensor, per_byte = (parameters * units).tolist()
            return np.asarray(np.log(self._seconds(base, per_tensor, per_byte, k, s) / t), np.float64)

        def jacobian(parameters: Array) -> Array:
            base, per_tensor, per_byte = (parameters * units).tolist()
            slopes = self._slopes(per_tensor, per_byte, k, s) * units
            return np.asarray(slopes / self._seconds(base, per_tensor, per_byte, k, s)[:, None], np.float64)

        starts = [np.array([0.5, 0.1, 0.5]), np.array([0.1, 0.5, 0.1])]
        if near is not None:
            starts = [np.maximum(np.array([near.base_, near.per_tensor_, near.per_byte_]) / units, 1e-3)]
        found = min(
            (least_squares(residuals, start, jacobian, bounds=(0.0, np.inf), loss="soft_l1", f_scale=_TOLERANCE) for start in starts),
            key=lambda solution: float(solution.cost),
        )
        base, per_tensor, per_byte = (float(value) if value > _NOTHING else 0.0 for value in found.x)
        if not per_tensor:
            raise CalibrationError("the time does not grow with the number of tensors; measure more rounds, on a quiet machine")
        self.base_, self.per_tensor_, self.per_byte_ = (float(value) for value in np.array([base, per_tensor, per_byte]) * units)
        self.relative_residual_ = float(np.max(np.abs(self(k, s) / t - 1.0)))
        return self

    def __call__(self, tensors: ArrayLike, sizes: ArrayLike) -> Array:
        """Seconds for numbers of tensors of some sizes."""
        return self._seconds(self.base_, self.per_tensor_, self.per_byte_, np.asarray(tensors, float), np.asarray(sizes, float))

    def _seconds(self, base: float, per_tensor: float, per_byte: float, k: Array, s: Array) -> Array:
        work, wire = per_tensor + per_byte * s, self._wire(per_byte) * s
        return np.asarray(base + 2 * work + (k - 1) * np.maximum(work, wire) + wire, float)

    def _slopes(self, per_tensor: float, per_byte: float, k: Array, s: Array) -> Array:
        """Derivatives of the seconds by each of the three, shape (n, 3)."""
        step = max(per_byte, 1e-12) * 1e-6
        wire, slope = self._wire(per_byte), (self._wire(per_byte + step) - self._wire(per_byte)) / step
        by_hosts = per_tensor + per_byte * s >= wire * s
        turns = np.where(by_hosts, 2 + (k - 1), 2)
        return np.column_stack([np.ones_like(k), turns, s * (turns + np.where(by_hosts, 0, (k - 1) * slope) + slope)])
