"""What neither hardware nor software facts say: the few numbers that all published series share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
from pydantic import Field, model_validator

from simulator.loading import read_toml
from simulator.spec import Spec

__all__ = ["Constant", "Constants", "load_constants"]

_NORMAL_95 = 1.6448536269514722


class Constant(Spec):
    """One number with a physical meaning, the tables that determine it, and a 90% interval."""

    name: str
    value: float = Field(gt=0)
    low: float = Field(gt=0)
    high: float = Field(gt=0)
    fit_on: tuple[str, ...] = Field(min_length=1, description="tables that determine it; no other had a part in it")
    not_on: tuple[str, ...] = Field(default=(), description="software among them that has no part in it; its meaning says why")
    meaning: str = Field(min_length=20)

    @model_validator(mode="after")
    def _ordered(self) -> Constant:
        if not self.low <= self.value <= self.high:
            raise ValueError(f"{self.name}: value ({self.value:g}) must lie between low ({self.low:g}) and high ({self.high:g})")
        return self

    def draws(self, rng: np.random.Generator, count: int) -> list[float]:
        """Draws of a lognormal whose 5% and 95% points are as far apart as the interval's ends; median ``value``."""
        sigma = math.log(self.high / self.low) / (2 * _NORMAL_95)
        return [float(value) for value in self.value * np.exp(sigma * rng.standard_normal(count))]


class Constants(Mapping[str, float]):
    """Values by name.

    Parameters
    ----------
    constants
        In the order of the file.
    """

    def __init__(self, constants: Iterable[Constant]) -> None:
        self.all = tuple(constants)
        self._values = {constant.name: constant.value for constant in self.all}

    def __getitem__(self, name: str) -> float:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def fitted_on(self, table: str) -> bool:
        """Whether any constant was fitted on a table: its rows are then no test of them."""
        return any(table in constant.fit_on for constant in self.all)

    def with_values(self, values: Mapping[str, float]) -> Constants:
        """The same with other values; intervals move along, as shares of the value."""
        return Constants(
            constant.model_copy(update={
                "value": (value := values.get(constant.name, constant.value)),
                "low": constant.low * value / constant.value,
                "high": constant.high * value / constant.value,
            })
            for constant in self.all
        )  # fmt: skip

    def draws(self, seed: int, count: int) -> list[dict[str, float]]:
        """Joint draws, independent of one another; the same for the same seed."""
        columns = {constant.name: constant.draws(np.random.default_rng([seed, number]), count) for number, constant in enumerate(self.all)}
        return [{name: column[index] for name, column in columns.items()} for index in range(count)]


def load_constants(home: Path) -> Constants:
    """Read ``constants.toml``."""
    return Constants(Constant.model_validate(entry) for entry in read_toml(home / "constants.toml")["constant"])
