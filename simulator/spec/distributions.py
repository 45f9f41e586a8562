"""Distributions of random durations, and nodes that are slow for some steps or for a whole run.

A distribution is data (its ``kind`` and parameters); it has a mean and draws independent samples in blocks. ``simulator.engine.slowdowns``
applies ``persistence`` between steps and draws which devices are slow when. For jitter only the shape matters: draws are divided by the
mean. Kinds and parameters are keys of scenarios and of fitted workloads (``calibrate.fit.step_times``). A new kind also needs limits in
``jitter_bounds`` of ``paceline.planning.bounds``, which otherwise treats it as constant.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from typing import Annotated, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from simulator.base.spec import Positive, Share, Spec, Terse, one_or_two

Samples = NDArray[np.float64]
Size: TypeAlias = int | tuple[int, ...]
"""Number of draws, or the shape of an array that is filled in the order of its elements."""

_MOST_VALUES = 4096


class Constant(Spec):
    """A constant duration: no jitter."""

    kind: Literal["constant"] = Field(default="constant", description="this distribution: no jitter")

    def mean(self) -> float:
        """Mean, dimensionless: 1."""
        return 1.0

    def spread(self) -> float:
        """Standard deviation over mean."""
        return 0.0

    def sample(self, rng: np.random.Generator, size: Size) -> Samples:
        """Ones, without random numbers."""
        del rng
        return np.ones(size)


class _Varying(Terse, only=("persistence",)):
    """Base of all random distributions.

    A draw repeats the previous one with probability ``persistence``, otherwise it is new: the distribution stays the same, and draws k
    steps apart have the autocorrelation persistence^k. With 0 steps are independent; with 1 a device draws once per run.
    """

    persistence: Share = Field(
        default=0.0,
        description="probability that a step repeats the previous step's draw (the autocorrelation of successive steps); 0: every step "
        "is drawn independently, 1: one draw per run",
    )

    def mean(self) -> float:
        """Mean; 1, unless a distribution says otherwise."""
        return 1.0


class Normal(_Varying):
    """Normal around 1 with coefficient of variation ``cv``; draws below 0.01 are raised to it."""

    kind: Literal["normal"] = Field(default="normal", description="this distribution")
    cv: float = Field(gt=0, le=0.3, description="standard deviation divided by the mean")

    def spread(self) -> float:
        """Standard deviation over mean."""
        return self.cv

    def sample(self, rng: np.random.Generator, size: Size) -> Samples:
        """``size`` independent draws; those that are raised, beyond 3.3 deviations, change the mean by less than 1e-4."""
        return np.maximum(rng.normal(1.0, self.cv, size), 0.01)


class LogNormal(_Varying):
    """exp of a normal of standard deviation ``sigma``; median 1."""

    kind: Literal["lognormal"] = Field(default="lognormal", description="this distribution")
    sigma: float = Field(gt=0, le=5, description="standard deviation of the logarithm")

    def mean(self) -> float:
        """Mean, exp(sigma^2 / 2)."""
        return float(np.exp(self.sigma**2 / 2))

    def spread(self) -> float:
        """Standard deviation over mean."""
        return math.sqrt(math.expm1(self.sigma**2))

    def sample(self, rng: np.random.Generator, size: Size) -> Samples:
        """``size`` independent draws."""
        return rng.lognormal(0.0, self.sigma, size)


class Gamma(_Varying):
    """Gamma of the given ``shape``, mean 1: an Erlang for whole shapes."""

    kind: Literal["gamma"] = Field(default="gamma", description="this distribution")
    shape: float = Field(gt=0, le=1e7, description="shape parameter: (mean / standard deviation) squared")

    def spread(self) -> float:
        """Standard deviation over mean."""
        return 1.0 / math.sqrt(self.shape)

    def sample(self, rng: np.random.Generator, size: Size) -> Samples:
        """``size`` independent draws."""
        return rng.gamma(self.shape, 1.0 / self.shape, size)


class Exponential(_Varying):
    """Memoryless with mean 1."""

    kind: Literal["exponential"] = Field(default="exponential", description="this distribution")

    def spread(self) -> float:
        """Standard deviation over mean."""
        return 1.0

    def sample(self, rng: np.random.Generator, size: Size) -> Samples:
        """``size`` independent draws."""
        return rng.standard_exponential(size)


class ShiftedExponential(_Varying):
    """A fixed part and an exponential tail: 1 + tail * Exp(1).

    The distribution of Lee et al., "Speeding Up Distributed Machine Learning Using Codes" (2018).
    """

    kind: Literal["shifted-exponential"] = Field(default="shifted-exponential", description="this distribution")
    tail: float = Field(gt=0, le=1e3, description="mean of the exponential part divided by the fixed part")

    def mean(self) -> float:
        """Mean, 1 + tail."""
        return 1.0 + self.tail

    def spread(self) -> float:
        """Standard deviation over mean."""
        return self.tail / (1.0 + self.tail)

    def sample(self, rng: np.random.Generator, size: Size) -> Samples:
        """``size`` independent draws."""
        return 1.0 + self.tail * rng.standard_exponential(size)


class _Sample:
    """Values as an array, and their mean: a large run draws from them millions of times.

    No two are equal, so that distributions that keep one are compared by their fields.
    """

    __slots__ = ("mean", "values")

    def __init__(self, values: tuple[float, ...]) -> None:
        self.values = np.asarray(values)
        self.mean = float(np.mean(self.values))


class Empirical(_Varying):
    """Draws with replacement from measured ``values`` (positive, any scale)."""

    kind: Literal["empirical"] = Field(default="empirical", description="this distribution")
    values: tuple[Positive, ...] = Field(min_length=1, max_length=_MOST_VALUES, description="measured times, in any unit")

    @field_validator("values")
    @classmethod
    def _not_all_tiny(cls, values: tuple[float, ...]) -> tuple[float, ...]:
        if not np.isfinite(np.sum(values)):
            raise ValueError("must have a finite sum")
        return values

    @cached_property
    def _sample(self) -> _Sample:
        return _Sample(self.values)

    def mean(self) -> float:
        """Mean of the values."""
        return self._sample.mean

    def spread(self) -> float:
        """Standard deviation over mean."""
        return float(np.std(self._sample.values)) / self._sample.mean

    def sample(self, rng: np.random.Generator, size: Size) -> Samples:
        """``size`` independent draws."""
        values: Samples = self._sample.values
        return rng.choice(values, size)

    def resampled(self, seen: int, rng: np.random.Generator) -> Empirical:
        """A bootstrap copy of a distribution that represents ``seen`` values (Efron 1979), as another sample might have given.

        Values that persist tell as much as (1 - r) / (1 + r) as many that do not, and their autocorrelation r has itself a standard
        error of sqrt((1 - r^2) / seen) (Bartlett, "On the theoretical specification and sampling properties of autocorrelated
        time-series", 1946).
        """
        persistence = self.persistence
        size = min(max(round(seen * (1 - persistence) / (1 + persistence)), 1), _MOST_VALUES)
        # made of values that have been validated
        values = tuple(rng.choice(self._sample.values, size).tolist())
        if persistence:
            persistence = min(max(float(rng.normal(persistence, math.sqrt((1 - persistence**2) / seen))), 0.0), 1.0)
        return Empirical.model_construct(values=values, persistence=persistence)


Distribution = Annotated[
    Constant | Normal | LogNormal | Gamma | Exponential | ShiftedExponential | Empirical,
    Field(discriminator="kind"),
]


Times = Annotated[float, Field(ge=1, le=1e4, allow_inf_nan=False)]
"""Factor by which something takes longer."""
TimesOrTwo = Annotated[Times | tuple[Times, Times], one_or_two("must be a number from 1 to 10000, or a list of two")]


class Slowdown(Terse):
    """Temporary slowdown of devices: two states, normal and slow, each left with a fixed probability per step.

    The two-state Markov chain of Gilbert, "Capacity of a burst-noise channel" (1960); the first step is in either state with its long-run
    share of time. Devices with a common chain are slow in the same steps, by step number.
    """

    factor: float = Field(gt=1, le=1e4, description="factor by which a step takes longer while the device is slow")
    mean_slow_steps: float = Field(ge=1, le=1e9, description="mean number of steps for which it stays slow")
    mean_normal_steps: float = Field(ge=1, le=1e9, description="mean number of steps until it is slow again")
    of: Literal["device", "node", "rack", "cluster"] = Field(
        default="device",
        description="which devices are slow at the same time: each independently, all of a node, all of a rack (fabric.nodes_per_leaf), "
        "or all of the cluster",
    )

    @property
    def slow_share(self) -> float:
        """Long-run share of slow steps."""
        return self.mean_slow_steps / (self.mean_slow_steps + self.mean_normal_steps)

    def mean(self) -> float:
        """Mean factor over all steps."""
        return 1.0 + (self.factor - 1.0) * self.slow_share


class SlowNodes(Terse):
    """Random differences between nodes for a whole run: some are slow, and all may vary a little.

    Each run draws again, independently for each node, so a larger cluster contains the nodes of a smaller one.
    """

    share: Share = Field(default=0.0, description="probability that a node is slow in a run")
    factor: TimesOrTwo = Field(
        default=1.0, description="factor by which steps take longer on a slow node; two numbers: drawn uniformly between them for each node"
    )
    spread_cv: Share = Field(
        default=0.0, description="standard deviation divided by the mean of all nodes' step times, slow or not: lognormal around 1"
    )

    def _broken_rules(self) -> Iterator[str]:
        least, most = self.between
        if least > most:
            yield f"factor ({least:g}, {most:g}): the first number must be at most the second"
        if self.share > 0 and most <= 1:
            yield f"share ({self.share:g}) needs factor, which says how much longer slow nodes take, such as factor = 1.5"

    @property
    def between(self) -> tuple[float, float]:
        """Smallest and largest slowdown of a slow node."""
        return self.factor if isinstance(self.factor, tuple) else (self.factor, self.factor)

    @property
    def constant(self) -> bool:
        """Return whether all nodes are as measured."""
        return not self.share and not self.spread_cv

    def mean(self) -> float:
        """Mean factor of a node's step times."""
        return 1.0 + self.share * (math.fsum(self.between) / 2 - 1.0)
