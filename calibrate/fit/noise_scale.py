"""Fits the gradient noise scale of a training to square norms of gradients at two batch sizes (``calibrate/probes/noise_scale.py``).

The square norm of a batch's gradient is |G|^2 + S / B in the mean: signal, and the trace S of the covariance of one sample's gradient
over the batch. Two batch sizes give both without bias, and their ratio S / |G|^2 is the noise scale at that moment (McCandlish et al.
2018, arXiv:1812.06162, appendix A.1).

It grows by orders of magnitude in a training, so moments must be combined as that cost model combines them (appendix D there). A step at
batch B0 brings as much as a share B0 / (B0 + N) of a step without noise. So the steps of all moments, at B0, are worth the mean share of as
many steps without noise, and the whole training, along the same path, has the noise scale whose share is that mean: N = B0 (1 / mean share
- 1). A share is |G|^2 / (|G|^2 + S / B0), whose denominator is the square norm of a gradient of a step: never near 0, even if |G|^2 itself
is lost in noise. A mean of the ratios S / |G|^2 would be whatever the noisiest moment says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibrate.measurements import CUT_SHORT, GradientNorms, MeasurementsError, read_measurements
from simulator.base.errors import CalibrationError
from simulator.base.text import digits, format_number
from simulator.spec.training import NoiseScale

Array = NDArray[np.float64]

_DRAWS = 2000
"""Bootstrap samples; each takes microseconds here."""


@dataclass(frozen=True)
class Norms:
    """Square norms of gradients at one moment, of independent draws.

    Attributes
    ----------
    step
        Steps of the training before it.
    small, big
        Samples of a gradient.
    of_small, of_big
        Square norms, one for each draw.
    """

    step: int
    small: int
    big: int
    of_small: Array
    of_big: Array

    @property
    def noise_scale(self) -> float:
        """At this moment; infinite where no signal is seen."""
        norms = self.small, self.big, self.of_small.mean(), self.of_big.mean()
        signal, noise = float(signal_of(*norms)), float(noise_of(*norms))
        return max(noise, 0.0) / signal if signal > 0 else np.inf


@dataclass(frozen=True)
class NoiseFit:
    """The fit.

    Attributes
    ----------
    noise_scale
        Over the whole training.
    steps
        After how many steps each moment was.
    samples
        The noise scale at each; infinite where no signal was seen.
    text
        What it rests on, in words.
    """

    noise_scale: NoiseScale
    steps: tuple[int, ...]
    samples: tuple[float, ...]
    text: str


def signal_of(small: float, big: float, of_small: ArrayLike, of_big: ArrayLike) -> Array:
    """|G|^2 without bias, of mean square norms of gradients of as many samples; below 0 by chance where it is near 0."""
    return np.asarray((big * np.asarray(of_big, float) - small * np.asarray(of_small, float)) / (big - small))


def noise_of(small: float, big: float, of_small: ArrayLike, of_big: ArrayLike) -> Array:
    """S, the trace of the covariance of one sample's gradient, without bias."""
    return np.asarray((np.asarray(of_small, float) - np.asarray(of_big, float)) / (1.0 / small - 1.0 / big))


def noise_scale_of(moments: Sequence[Norms], batch: float) -> NoiseScale:
    """The noise scale of a training whose points of time represent equal numbers of steps of ``batch`` samples.

    The 90% interval is that of the draws, of which each moment's are drawn again with replacement (percentile bootstrap). It knows
    nothing of another run's path, or of what happens between moments.

    Raises
    ------
    CalibrationError
        No signal is seen in the noise.
    """
    rng = np.random.default_rng(0)
    shares = np.array([_share(moment, batch, moment.of_small.mean(), moment.of_big.mean()) for moment in moments])
    share = float(shares.mean())
    if share <= 0:
        raise CalibrationError("gradients show only noise and no signal: train for fewer epochs, or with a larger batch")
    resampled = [_share(moment, batch, _resampled(moment.of_small, rng), _resampled(moment.of_big, rng)) for moment in moments]
    least, most = (float(value) for value in np.quantile(np.mean(resampled, axis=0), [0.05, 0.95]))
    samples = _samples(share, batch)
    high = None if least <= 0 else digits(max(_samples(least, batch), samples), 6)
    return NoiseScale(samples=digits(samples, 6), low=digits(min(_samples(most, batch), samples), 6), high=high, source="measured")


def _share(moment: Norms, batch: float, of_small: ArrayLike, of_big: ArrayLike) -> Array:
    """Share of signal in a step's square gradient norm."""
    signal, noise = (estimate(moment.small, moment.big, of_small, of_big) for estimate in (signal_of, noise_of))
    return np.asarray(signal / np.maximum(signal + noise / batch, np.finfo(float).tiny))


def _resampled(squares: Array, rng: np.random.Generator) -> Array:
    """Means of bootstrap samples."""
    return np.asarray(squares[rng.integers(0, len(squares), (_DRAWS, len(squares)))].mean(axis=1))


def _samples(share: float, batch: float) -> float:
    return max(batch * (1.0 / share - 1.0), 0.0)


def fit_noise_scale(measurements: Path) -> NoiseFit:
    """Fit the noise scale to a file that :func:`calibrate.profiling.profile_noise_scale` has written.

    Raises
    ------
    MeasurementsError
        The file is damaged, holds something else, or was cut short (exit code 2).
    CalibrationError
        No signal is seen in the noise.
    """
    measured = read_measurements(measurements, "noise_scale")
    records = measured.of(GradientNorms)
    if not records or not measured.complete:
        raise MeasurementsError(f"{measurements}: {CUT_SHORT}")
    moments = []
    for step in dict.fromkeys(record.step for record in records):
        small, *_, big = sorted((record for record in records if record.step == step), key=lambda record: record.batch)
        if small.batch == big.batch:
            raise MeasurementsError(f"{measurements}: has gradients of only one batch size after {step} steps; {CUT_SHORT}")
        moments.append(Norms(step, small.batch, big.batch, np.array(small.squares), np.array(big.squares)))
    batch = records[0].trained_batch
    try:
        noise_scale = noise_scale_of(moments, batch)
    except CalibrationError as error:
        raise CalibrationError(f"{measurements}: {error}") from None
    each = tuple(moment.noise_scale for moment in moments)
    began, ended = (f"{format_number(value)} samples" if np.isfinite(value) else "no end" for value in (each[0], each[-1]))
    text = (
        f"from {len(moments)} points of time in {measured.header.arguments.get('epochs', 0):g} epochs at batch {batch}, from {began} at "
        f"the first to {ended} at the last; {measurements.name}"
    )
    return NoiseFit(noise_scale, tuple(moment.step for moment in moments), each, text)
