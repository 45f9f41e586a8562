"""The compute with which the scenario of a measured row gives what was measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from calibrate.published.tables import Row

__all__ = ["Solved", "compute_that_gives"]

_LEAST_SHARE = 0.01
"""Of the measured step: with less compute than this the model's communication alone takes longer."""
_CLOSE = 1e-3
_ROUNDS = 12


class Solved(NamedTuple):
    """Seconds of compute, and by how much the row is still off: predicted over measured throughput, less one."""

    compute_s: float
    error: float


def compute_that_gives(row: Row, throughput: Callable[[float], float]) -> Solved:
    """Solve for the compute of a row, within a tenth of a percent of its throughput where that is possible.

    Parameters
    ----------
    throughput
        What the simulation gives for seconds of compute; falling.
    """
    low_s, high_s = _LEAST_SHARE * row.step_s, row.step_s
    compute_s = high_s
    for turn in range(_ROUNDS):
        error = throughput(compute_s) / row.mean - 1.0
        if abs(error) <= _CLOSE:
            break
        if error > 0:
            low_s = compute_s
            high_s = max(high_s, 2.0 * compute_s) if compute_s >= high_s else high_s
        else:
            high_s = compute_s
        # as if all but compute took the same time whatever the compute, which is exact where nothing overlaps
        guess_s = compute_s + row.step_s * (1.0 - 1.0 / (1.0 + error))
        if guess_s <= low_s <= _LEAST_SHARE * row.step_s:
            guess_s = low_s if turn < 2 else (low_s + high_s) / 2
        elif not low_s < guess_s < high_s or turn > _ROUNDS // 2:
            guess_s = (low_s + high_s) / 2
        if guess_s == compute_s:
            break
        compute_s = guess_s
    return Solved(compute_s, error)
