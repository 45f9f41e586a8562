"""What the cores do for a step over loopback: so much whatever its bytes, and so much for each byte.

A sleeping device takes no core, so the CPU time of workers and servers is the work of
calls, scheduling and messages, and of copying. Runs of several sizes tell the two apart.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import lsq_linear

from calibrate.testbed.platform import Parameter
from calibrate.testbed.readings import Readings

__all__ = ["LoopbackWork"]

Array = NDArray[np.float64]

_NAMES = ("loopback_step_s", "loopback_async_step_s", "loopback_per_byte_s")
_RELATIVE_ERROR = 0.08
"""Of a run's CPU time, by what repeats differ from hour to hour."""
_Z90 = 1.6449


class LoopbackWork:
    """Least squares of CPU time a step over bytes moved, with the priors as one more, weak observation of each parameter.

    Parameters
    ----------
    priors
        By name: value, and the ends of its 90% interval.

    Attributes
    ----------
    found_
        The parameters, none where no run was given.
    """

    def __init__(self, priors: dict[str, tuple[float, float, float]]) -> None:
        self.found_: dict[str, Parameter] = {}
        self._centers = np.array([priors[name][0] for name in _NAMES])
        self._widths = np.array([(priors[name][2] - priors[name][1]) / (2 * _Z90) for name in _NAMES])
        self._covariance = np.diag(self._widths**2)

    def fit(self, readings: Sequence[Readings]) -> LoopbackWork:
        """Learn from emulated runs of one worker with servers over loopback."""
        rows, cpu_s = [], []
        for one in readings:
            for run in one.runs:
                is_async = one.setting.mode == "async"
                rows.append([float(not is_async), float(is_async), 2.0 * one.setting.moved_bytes])
                cpu_s.append((run.cpu_s("worker") + run.cpu_s("ps")) / len(run.steps))
        if not rows:
            return self
        measured = np.array(cpu_s)
        weights = 1.0 / np.maximum(_RELATIVE_ERROR * measured, 1e-6)
        # in units of the priors' widths, so that all columns are of a size
        scaled = np.vstack([np.array(rows) * self._widths * weights[:, None], np.eye(len(_NAMES))])
        wanted = np.concatenate([measured * weights, self._centers / self._widths])
        solved = lsq_linear(scaled, wanted, bounds=(0.0, np.inf)).x
        covariance = np.linalg.inv(scaled.T @ scaled)
        self._centers, self._covariance = solved * self._widths, covariance * np.outer(self._widths, self._widths)
        for name, value, deviation, prior in zip(_NAMES, self._centers, np.sqrt(np.diag(self._covariance)), self._widths, strict=True):
            self.found_[name] = Parameter(
                value=float(value),
                low=max(float(value - _Z90 * deviation), 0.0),
                high=float(value + _Z90 * deviation),
                determined=bool(deviation < 0.5 * prior),
                why=f"CPU time of workers and servers a step over loopback, by bytes moved ({len(rows)} runs)",
            )
        return self

    def draws(self, count: int, rng: np.random.Generator) -> list[dict[str, float]]:
        """Joint draws: what a step costs whatever its bytes, and a byte, are known better together than apart."""
        if not self.found_:
            return [{} for _ in range(count)]
        drawn = np.maximum(rng.multivariate_normal(self._centers, self._covariance, size=count), 0.0)
        return [{name: float(f"{value:.7g}") for name, value in zip(_NAMES, row, strict=True)} for row in drawn]
