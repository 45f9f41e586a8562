"""What no parameter explains of the testbed's runs: noise of repeats, and misfit between settings.

Two different things. *Noise* is how runs of the same setting differ; each run has its own.
*Misfit* is how far a setting as a whole is off, beyond what noise does to the mean of its
repeats; all runs of a setting have it in common, however often it is repeated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import chi2, norm, t

from calibrate.testbed.platform import Parameter, Platform
from calibrate.testbed.setting import TestbedSetting
from simulator.base.text import format_change

Array = NDArray[np.float64]

_FEWEST_FREEDOM = 3
"""Degrees of freedom below which repeats say too little of their noise."""
_FEWEST_SETTINGS = 2
_LEAST_LEFT = 0.1
"""Share of a setting's miss; where the fit leaves less in its residual, the residual tells nothing."""
_CAP = 1.5
"""Standard deviations that one setting counts at most with (Huber's usual choice)."""
_OUTLYING = 3.0
"""Standard deviations from which on a setting is named."""


def of_link(setting: TestbedSetting, name: str) -> str:
    """The parameter ``noise`` or ``misfit`` that a setting has: over loopback the cores are the limit, and both are others."""
    return name if setting.link is not None else f"loopback_{name}"


def fit_noise(rates: Sequence[Sequence[float]]) -> Parameter | None:
    """Standard deviation of the logarithm of a run's rate among repeats of the same setting, pooled over settings.

    Parameters
    ----------
    rates
        Updates/s of each repeat, setting by setting.

    Returns
    -------
    Parameter or None
        With its degrees of freedom, and the interval that a chi-squared sum of squares
        gives; None where there are fewer than three degrees of freedom.
    """
    logs = [np.log(each) for each in rates]
    freedom = sum(len(each) - 1 for each in logs)
    if freedom < _FEWEST_FREEDOM:
        return None
    squares = math.fsum(float(((each - each.mean()) ** 2).sum()) for each in logs)
    low, high = (math.sqrt(squares / chi2.ppf(share, freedom)) for share in (0.95, 0.05))
    return Parameter(
        value=math.sqrt(squares / freedom),
        low=low,
        high=high,
        freedom=freedom,
        why=f"scatter of repeats around the mean of their setting: {sum(map(len, logs))} repeats of {len(logs)} settings",
    )


def fit_misfit(misses: Array, left: Array, noise: Array, labels: Sequence[str]) -> Parameter | None:
    """Standard deviation of what settings as a whole are off, beyond the noise in their means.

    Solves ``sum of min(r_i^2 / v_i, c^2) = n b`` for ``tau``, where ``r_i`` is the miss of a
    setting's mean, ``v_i = sum over j of M_ij^2 (tau^2 + e_j^2)`` its variance, ``e_j`` the
    noise in the mean of setting j, and ``M`` what the fit leaves of each setting's deviation
    in each residual (1 less the leverages on its diagonal). ``b`` is the mean of
    ``min(z^2, c^2)`` of a normal ``z``. Without the cap ``c`` it is the estimator of Paule and
    Mandel ("Consensus values and weighting factors", J. Res. NBS 87, 1982); the cap is that
    of Huber's proposal 2 ("Robust estimation of a location parameter", Ann. Math. Stat. 35,
    1964): a single setting that is far off does not set it for all.

    Parameters
    ----------
    misses
        Logarithm of predicted over measured mean of each setting; shape (n,).
    left
        The matrix M, rows of these settings, columns of all that were fitted; shape (n, m).
    noise
        Standard deviation of the measured mean of all that were fitted, relative; shape (m,).
    labels
        Labels of the settings, to name those that are far off.

    Returns
    -------
    Parameter or None
        None where fewer than two settings have a residual that tells anything.
    """
    shares = (left**2).sum(axis=1)
    informative = np.flatnonzero(shares >= _LEAST_LEFT)
    if len(informative) < _FEWEST_SETTINGS:
        return None
    squares, shares, noise_squares = misses[informative] ** 2, shares[informative], (left[informative] ** 2) @ noise**2
    cap_square = _CAP**2
    expected = len(informative) * float(chi2.cdf(cap_square, 3) + cap_square * chi2.sf(cap_square, 1))

    def excess(tau: float) -> float:
        variances = shares * tau**2 + noise_squares
        ratios = np.divide(squares, variances, out=np.where(squares > 0, np.inf, 0.0), where=variances > 0)
        return float(np.minimum(ratios, cap_square).sum()) - expected

    highest = 10.0 * math.sqrt(float((squares / shares).max())) + 1e-12
    tau = float(brentq(excess, 0.0, highest)) if excess(0.0) > 0 else 0.0
    deviations = np.sqrt(np.divide(squares, shares * tau**2 + noise_squares, out=np.zeros_like(squares), where=squares > 0))
    low, high = (tau * math.sqrt(len(informative) / chi2.ppf(share, len(informative))) for share in (0.95, 0.05))
    why = f"how far {len(informative)} settings of the fit are off as a whole, beyond the noise of their repeats"
    outlying = [f"{labels[place]} ({format_change(math.expm1(misses[place]))})" for place in informative[deviations > _OUTLYING]]
    if outlying:
        why += f"; far off, and counted with {_CAP:g} standard deviations: {', '.join(outlying)}"
    return Parameter(value=tau, low=low, high=high, freedom=len(informative), why=why)


def factors_of(platform: Platform, setting: TestbedSetting, count: int, rng: np.random.Generator) -> Array:
    """Factors by which the rates of single runs differ from what was simulated: misfit and noise, each drawn once for each of them.

    An interval for one run of a setting holds both: which misfit the setting has is not
    known, and neither is the run's noise. Where a standard deviation was estimated with few
    degrees of freedom, deviations are Student's. They are drawn in equal shares of
    probability, in random order, so that their luck moves no end of the interval.

    Returns
    -------
    ndarray
        Shape ``(count,)``; all 1 where both are zero.
    """
    shares = (np.arange(count) + 0.5) / count
    logs = np.zeros(count)
    for name in ("misfit", "noise"):
        one = platform.parameters[of_link(setting, name)]
        quantiles = norm.ppf(shares) if one.freedom is None else t.ppf(shares, one.freedom)
        logs += one.value * rng.permutation(quantiles)
    return np.exp(logs)
