"""How many samples a target takes with another global batch: the law of the gradient noise scale.

McCandlish et al. 2018 (arXiv:1812.06162, equations 2.11 and 2.12): with the noise scale N, a target takes E(B) = E_min (1 + B / N)
samples and E(B) / B steps at a global batch B, if the rate is the best one for each batch. So from one batch to another samples
change by (B + N) / (B0 + N): not at all far below the noise scale, and in proportion to the batch far above it, where more of a
batch saves no steps. Nothing here knows where a noise scale is from (``simulator.spec.training``, ``calibrate.fit.noise_scale``).
"""

from __future__ import annotations

import math

from simulator.results.intervals import combined
from simulator.spec.figures import Estimate
from simulator.spec.training import NoiseScale


def samples_ratio(batch: float, reference: float, noise: float) -> float:
    """Samples to a target at one global batch over those at another, where the noise scale is known.

    Parameters
    ----------
    batch, reference
        Samples of the batch asked for, and of the one that it is compared with; above 0.
    noise
        Noise scale in samples, from 0 to infinity.

    Examples
    --------
    >>> samples_ratio(3000, 1000, 1000), samples_ratio(3000, 1000, 0), samples_ratio(3000, 1000, math.inf)
    (2.0, 3.0, 1.0)
    """
    return (batch + noise) / (reference + noise) if math.isfinite(noise) else 1.0


def samples_factor(noise: NoiseScale, batch: float, reference: float) -> Estimate:
    """The same with the interval of the noise scale, one end of which is one end of the factor's.

    ``mean`` is the factor at ``noise.samples``.

    Examples
    --------
    >>> samples_factor(NoiseScale(samples=1000, low=500), 4000, 1000)
    Estimate(mean=2.5, low=1.0, high=3.0)
    """
    ends = (samples_ratio(batch, reference, noise.low), samples_ratio(batch, reference, math.inf if noise.high is None else noise.high))
    return Estimate(mean=samples_ratio(batch, reference, noise.samples), low=min(ends), high=max(ends))


def samples_to_target(noise: NoiseScale, batch: float, reference: float, samples: Estimate | float) -> Estimate:
    """Samples to the target at a batch, from those at a reference batch.

    Parameters
    ----------
    noise
        The noise scale.
    batch, reference
        As for :func:`samples_ratio`.
    samples
        To the target at the reference batch; its interval and the factor's are of independent causes, whose distances in logarithms
        add in quadrature.
    """
    factor = samples_factor(noise, batch, reference)
    if not isinstance(samples, Estimate):
        return Estimate(mean=samples * factor.mean, low=samples * factor.low, high=samples * factor.high)
    mean = samples.mean * factor.mean
    low = combined(math.log(samples.low / samples.mean), math.log(factor.low / factor.mean)) if samples.low > 0 else -math.inf
    high = combined(math.log(samples.high / samples.mean), math.log(factor.high / factor.mean))
    return Estimate(mean=mean, low=mean * math.exp(low), high=mean * math.exp(high))
