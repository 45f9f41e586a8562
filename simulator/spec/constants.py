"""Measured defaults: shares of nominal rates that software achieves on all machines, read from ``models/practice.toml``.

This module has the format of the file and the draws. Constants are applied by name, in ``simulator.resolve.measured_defaults`` and, for
computed workloads, in ``simulator.spec.computed``. ``evidence.published.fitting`` and ``evidence.published.shares`` write the file.
Order and names matter: the place in the file decides the draws of a constant, so a new one comes last; the ending ``_share`` and the
beginning ``grpc_`` decide whether draws keep the mean, the mean of the inverse, or the median.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from statistics import NormalDist
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from simulator.base.catalog import own_file
from simulator.base.files import read_toml
from simulator.base.rng import Streams
from simulator.base.spec import Moderate, Spec
from simulator.base.validation_errors import validated

_NORMAL_95 = NormalDist().inv_cdf(0.95)

Kept = Literal["mean", "inverse", "median"]
"""Which mean of a lognormal distribution a constant's value is."""

Number = Annotated[Moderate, Field(gt=0, le=1e15)]


class Known(Spec):
    """A positive number and its 90% interval; a file may give only the number, which is then exact."""

    value: Number = Field(description="the number")
    low: Number = Field(description="low end of its 90% interval")
    high: Number = Field(description="high end of its 90% interval")

    @model_validator(mode="before")
    @classmethod
    def _exact(cls, data: Any) -> Any:
        if isinstance(data, (int, float)) and not isinstance(data, bool):
            return {"value": data, "low": data, "high": data}
        return data

    def _broken_rules(self) -> Iterator[str]:
        if not self.low <= self.value <= self.high:
            yield f"value ({self.value:g}) must lie between low ({self.low:g}) and high ({self.high:g})"

    @property
    def plain(self) -> Known:
        """Only the three numbers of a constant that has more."""
        return Known(value=self.value, low=self.low, high=self.high)

    def times(self, factor: float) -> Known:
        """The number and both ends times a factor."""
        return Known(value=self.value * factor, low=self.low * factor, high=self.high * factor)

    def quantile(self, probability: float, *, keeps: Kept = "mean") -> float:
        """Return the quantile of a lognormal whose 5% and 95% points are as far apart as ``low`` and ``high``.

        Parameters
        ----------
        keeps
            What ``value`` is of it: the mean; the inverse of the mean inverse, of a share or a rate, so that times are in
            the mean what they are with ``value``; or the median, of what one time in the mean and one rate in the mean
            would pull to different sides.
        """
        spread = math.log(self.high / self.low) / (2 * _NORMAL_95)
        middle = {"mean": -(spread**2) / 2, "inverse": spread**2 / 2, "median": 0.0}[keeps]
        return self.value * math.exp(spread * NormalDist().inv_cdf(probability) + middle) if spread else self.value


class Prior(Known):
    """The value used if no table determines it."""

    source: str = Field(min_length=10)


class Constant(Known):
    """A physical constant, and the published tables that determine it."""

    name: str
    fitted: bool = Field(description="whether it is fitted; false if a fitted value does not improve predictions of left-out tables")
    determined: bool = Field(description="whether tables determine it; otherwise value and interval are the prior's")
    tables: tuple[str, ...] = Field(default=(), description="sources whose rows depend on it")
    prior: Prior
    meaning: str = Field(min_length=20)

    def _broken_rules(self) -> Iterator[str]:
        yield from super()._broken_rules()
        if self.determined and not (self.fitted and self.tables):
            yield f"{self.name}: a determined constant must be fitted, and tables must list at least one"


class _Practice(Spec):
    constant: tuple[Constant, ...]


@lru_cache(maxsize=1)
def constants() -> Mapping[str, Constant]:
    """Read all constants by name, in the order of the file.

    Raises
    ------
    ScenarioError
        The file is missing or breaks a rule.
    """
    path = own_file("practice.toml")
    return {each.name: each for each in validated(_Practice, read_toml(path), str(path)).constant}


def _kept(name: str) -> Kept:
    """Return what draws preserve: for a share, the mean of times divided by it; for host work, which is both a time of a step and a rate of
    a server, the median."""
    return "inverse" if name.endswith("_share") else "median" if name.startswith("grpc_") else "mean"


def nominal_values(own: Mapping[str, Known]) -> dict[str, float]:
    """Return each constant's value; a scenario's own values replace those of the file."""
    return {name: known.value for name, known in {**constants(), **own}.items()}


def drawn_values(own: Mapping[str, Known], streams: Streams, names: Collection[str] | None = None) -> Mapping[str, float]:
    """A joint draw of all or some constants, independent of each other.

    Draws of successive replications are spread evenly rather than at random: number k of constant c lies at the fraction of s_c + k
    sqrt(p_c), p_c the c-th prime and s_c from the seed (Richtmyer, "The evaluation of definite integrals", 1951). So scenarios with the
    same seed share their draws, and ends of intervals change smoothly between scenarios.
    """
    values = _drawn(tuple(own.items()), streams.seed, streams.replication)
    return values if names is None else {name: value for name, value in values.items() if name in names}


@lru_cache(maxsize=256)
def _drawn(own: tuple[tuple[str, Known], ...], seed: int, replication: int) -> Mapping[str, float]:
    """Draw all constants for a seed, which all scenarios of a sweep share."""
    values, known_by_name = {}, {**constants(), **dict(own)}
    shifts = Streams(seed, replication).of_the_seed("practice").random(len(known_by_name)).tolist()
    for number, ((name, known), shift) in enumerate(zip(known_by_name.items(), shifts, strict=True)):
        place = (shift + (replication + 1) * math.sqrt(_prime(number))) % 1.0
        values[name] = known.quantile(min(max(place, 1e-9), 1.0 - 1e-9), keeps=_kept(name))
    return values


@lru_cache(maxsize=64)
def _prime(number: int) -> int:
    """The primes 2, 3, 5, ... by index from 0."""
    seen, candidate = -1, 1
    while seen < number:
        candidate += 1
        seen += all(candidate % divisor for divisor in range(2, math.isqrt(candidate) + 1))
    return candidate
