"""Fit of a system's numbers to published all-reduce times, with what other systems say about them.

A few small sizes do not determine nine numbers. Each logarithm of a number has therefore
a normal prior (Gelman et al., "Bayesian Data Analysis", chapter 5): a plain one, and for a
system that is to be predicted one from all *other* systems, each fitted with the plain
one: their median, and as its spread 1.48 times their median deviation from it, but no
less than half the plain one's. So constants of NCCL, such as what LL128 costs over LL, are
fitted on some systems and tested on others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from calibrate.published.nccl_model import Nominal, Numbers, Point, Series, durations_s, least_durations_s, nominal_of

__all__ = ["Fit", "Prior", "fit", "plain_prior", "prior_from_others"]

Values = NDArray[np.float64]

SCATTER = 0.05
"""Relative scatter of a published time around any smooth curve: what a residual counts against the priors."""


class _Assumed(NamedTuple):
    """Of one number a priori: median, spread of its logarithm, and what it must lie between."""

    median: float
    spread: float
    least: float
    most: float


_PLAIN = {
    "launch_s": _Assumed(12e-6, 0.7, 1e-6, 1e-3),  # NCCL's tuner has 7 to 14 us
    "node_latency": _Assumed(1.5, 1.2, 0.05, 200.0),  # other networks are far from NCCL's InfiniBand
    "device_latency": _Assumed(1.0, 0.3, 0.2, 10.0),
    "ll128_latency": _Assumed(1.0, 0.5, 0.2, 6.0),
    "simple_latency": _Assumed(1.0, 0.7, 0.1, 10.0),
    "ll_wire": _Assumed(4.0, 1.0, 1.0, 100.0),  # NCCL's tuner has a quarter of the bandwidth
    "ll128_wire": _Assumed(1.2, 0.5, 1.0, 10.0),
    "node_share": _Assumed(0.9, 0.07, 0.05, 1.0),
    "device_share": _Assumed(0.85, 0.4, 0.05, 20.0),
}
_PIPELINED_SHARE = (2.0, 1.0)
"""Of ``device_share`` where several switched nodes take part: stages that NCCL pipelines follow one another here."""
_UNKNOWN = 2.0
"""Spread of a share of a bandwidth that the source does not state."""
_LEAST_SPREAD = 0.5
_DETERMINED = 0.5
"""A number whose spread the times of a series reduced to this share of the prior's says something about other systems."""


@dataclass(frozen=True)
class Prior:
    """Normal in the logarithm of each number: mean and standard deviation, shape (numbers,)."""

    mean: Values
    spread: Values


@dataclass(frozen=True)
class Fit:
    """Numbers of a system and how well they are known.

    Attributes
    ----------
    series, nominal
        What was fitted.
    logs
        Logarithms of the numbers, shape (numbers,).
    covariance
        Of these, shape (numbers, numbers): Laplace's approximation, from the Jacobian at the optimum.
    scatter
        Relative scatter of the fitted times around the model: 1.48 times the median absolute residual.
    """

    series: Series
    nominal: Nominal
    logs: Values
    covariance: Values
    scatter: float

    @property
    def numbers(self) -> Numbers:
        """The numbers themselves."""
        return _numbers(self.logs)

    def predict_s(self, series: Series, sizes_bytes: Sequence[float]) -> tuple[Values, Values]:
        """Predicted times of a series of the same system.

        Returns
        -------
        times, spread : ndarray
            Seconds, and the standard deviation of the logarithm of one measured time: the
            numbers' uncertainty, to first order, and the scatter; each of shape (sizes,).
        """
        times_s = durations_s(series, self.nominal, self.numbers, sizes_bytes)
        slopes = np.empty((len(self.logs), len(times_s)))
        for number, deviation in enumerate(np.sqrt(np.diag(self.covariance))):
            step = max(0.1 * deviation, 1e-4) * (-1.0 if self.logs[number] > _BOUNDS[1][number] - deviation else 1.0)
            moved = self.logs.copy()
            moved[number] += step
            slopes[number] = np.log(durations_s(series, self.nominal, _numbers(moved), sizes_bytes) / times_s) / step
        variance = np.einsum("is,ij,js->s", slopes, self.covariance, slopes)
        return times_s, np.sqrt(variance + self.scatter**2)


def plain_prior(series: Series) -> Prior:
    """What is assumed of a system without looking at others."""
    mean = np.log([number.median for number in _PLAIN.values()])
    spread = np.array([number.spread for number in _PLAIN.values()])
    mean[_DEVICE_LATENCY] += math.log(_passed(series))
    if _pipelined(series):
        mean[_DEVICE_SHARE], spread[_DEVICE_SHARE] = math.log(_PIPELINED_SHARE[0]), _PIPELINED_SHARE[1]
    return Prior(mean, _widened(series, spread))


def prior_from_others(series: Series, fits: Mapping[str, Fit]) -> Prior:
    """What all other systems say about this one.

    Parameters
    ----------
    series
        Of the system to be fitted.
    fits
        By name of the series, each fitted with its plain prior.
    """
    plain = plain_prior(series)
    others = [one for one in fits.values() if one.series.system != series.system]
    mean, spread = plain.mean.copy(), plain.spread * _LEAST_SPREAD
    for number in range(len(Numbers._fields)):
        known = [one.logs[number] for one in others if _tells(one, number, series)]
        if len(known) > 1:
            mean[number] = np.median(known)
            spread[number] = max(1.4826 * float(np.median(np.abs(known - mean[number]))), spread[number])
        else:
            spread[number] = plain.spread[number]
    return Prior(mean, _widened(series, spread))


def fit(series: Series, points: Sequence[Point], prior: Prior) -> Fit:
    """The numbers that explain these times best, given the prior.

    Minimises the sum of soft L1 losses of log(predicted / measured) / :data:`SCATTER`, which
    outliers do not dominate, and of squares of the numbers' distances from the prior.
    """
    nominal = nominal_of(series, points[-1])
    sizes = [point.size_bytes for point in points]
    measured = np.log([point.mean_s for point in points])

    def residuals(logs: Values) -> Values:
        off = (np.log(least_durations_s(series, nominal, _numbers(logs), sizes)) - measured) / SCATTER
        robust = np.sign(off) * np.sqrt(2.0 * (np.sqrt(1.0 + off**2) - 1.0))
        return np.concatenate([robust, (logs - prior.mean) / prior.spread])

    low, high = _BOUNDS
    start = prior.mean.copy()
    # so that the smallest size starts right
    start[[_LAUNCH, _NODE_LATENCY]] += measured[0] - math.log(least_durations_s(series, nominal, _numbers(start), sizes[:1])[0])
    found = least_squares(
        residuals, np.clip(start, low + 0.01, high - 0.01), bounds=_BOUNDS, x_scale=prior.spread, diff_step=1e-3, xtol=1e-3, ftol=1e-3
    )
    logs: Values = found.x
    left = np.log(durations_s(series, nominal, _numbers(logs), sizes)) - measured
    return Fit(series, nominal, logs, np.linalg.inv(found.jac.T @ found.jac), 1.4826 * float(np.median(np.abs(left))))


_LAUNCH, _NODE_LATENCY, _DEVICE_LATENCY = (Numbers._fields.index(name) for name in ("launch_s", "node_latency", "device_latency"))
_NODE_SHARE, _DEVICE_SHARE = (Numbers._fields.index(name) for name in ("node_share", "device_share"))
_BOUNDS = np.log([number.least for number in _PLAIN.values()]), np.log([number.most for number in _PLAIN.values()])


def _numbers(logs: Values) -> Numbers:
    return Numbers(*np.exp(logs).tolist())


def _passed(series: Series) -> float:
    """Devices that NCCL's tree, a chain inside a node, passes for each exchange of halving-doubling there."""
    per_node = series.ranks // series.nodes
    return (per_node - 1) / math.log2(per_node) if per_node > 1 and "halving-doubling" in series.algorithms else 1.0


def _pipelined(series: Series) -> bool:
    return series.nodes > 1 and series.switched


def _widened(series: Series, spread: Values) -> Values:
    """Wider where a share is of a rate that nobody stated."""
    spread = spread.copy()
    if series.node_bandwidth_bytes_per_s is None:
        spread[_NODE_SHARE] = _UNKNOWN
    if series.device_bandwidth_bytes_per_s is None:
        spread[_DEVICE_SHARE] = _UNKNOWN
    return spread


def _tells(one: Fit, number: int, series: Series) -> bool:
    """Whether a number fitted to one series says something about another's: if its times determined it, and it means the same."""
    if math.sqrt(one.covariance[number, number]) > _DETERMINED * plain_prior(one.series).spread[number]:
        return False
    if number == _DEVICE_SHARE:
        return one.series.device_bandwidth_bytes_per_s is not None and _sort(one.series) == _sort(series)
    # shares of links of several makers, told apart from shares of devices in few series: the plain prior stands
    return number != _NODE_SHARE


def _sort(series: Series) -> tuple[bool, bool]:
    """Series of the same sort use bandwidth inside a node alike."""
    return series.nodes > 1, _pipelined(series)
