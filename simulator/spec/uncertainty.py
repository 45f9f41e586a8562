"""What a fit leaves open: joint draws of its parameters, and how to put one in place.

``calibrate.fit`` writes the draws into workloads and clusters; ``simulator.resolve.drawing`` takes one for each replication.
Parameters are named by dotted fields as text: files with draws of a field that is renamed are no longer read.
"""

from __future__ import annotations

import math
from typing import Any, TypeVar

import numpy as np
from pydantic import BaseModel, Field, ValidationError, model_validator

from simulator.base.spec import Spec

SpecT = TypeVar("SpecT", bound=BaseModel)


class Uncertainty(Spec):
    """Joint bootstrap draws of fitted parameters.

    ``draws[i][j]`` is the value of ``parameters[j]`` (a dotted name within the workload
    or cluster, such as ``forward.per_sample_s``) in draw ``i``.
    """

    parameters: tuple[str, ...] = Field(
        min_length=1, max_length=100, description="fitted numbers of this file, as dotted names such as forward.per_sample_s"
    )
    draws: tuple[tuple[float, ...], ...] = Field(
        min_length=1, max_length=10_000, description="joint bootstrap draws: a value for each of the parameters; each run takes one draw"
    )

    @model_validator(mode="after")
    def _rectangular(self) -> Uncertainty:
        if any(len(draw) != len(self.parameters) for draw in self.draws):
            raise ValueError("each of draws must have one value for each of parameters")
        return self

    def check(self, spec: BaseModel) -> None:
        """Raise ValueError unless every parameter names a number of ``spec`` that may take every draw."""
        if len(set(self.parameters)) != len(self.parameters):
            raise ValueError("uncertainty.parameters names a parameter twice")
        for name, column in zip(self.parameters, zip(*self.draws, strict=True), strict=True):
            owner: Any = spec
            *parents, leaf = name.split(".")
            for parent in parents:
                owner = getattr(owner, parent, None)
            if not isinstance(owner, BaseModel) or not isinstance(getattr(owner, leaf, None), float):
                raise ValueError(f"uncertainty.parameters names {name!r}, which is no fitted number of this file")
            if not np.all(np.isfinite(column)):
                raise ValueError(f"uncertainty.draws of {name} must be finite")
            data = {**{field: getattr(owner, field) for field in type(owner).model_fields}, "uncertainty": None}
            for value in (min(column), max(column)):
                try:
                    type(owner).model_validate({**{key: data[key] for key in data if key in type(owner).model_fields}, leaf: value})
                except ValidationError as error:
                    rule = error.errors(include_url=False)[0]["msg"].removeprefix("Input should ")
                    raise ValueError(f"uncertainty.draws gives {name} the value {value:g}, which must {rule}") from None


def with_draw(spec: SpecT, uncertainty: Uncertainty | None, rng: np.random.Generator) -> SpecT:
    """A copy of ``spec`` with one joint draw of its uncertain parameters in place."""
    if uncertainty is None:
        return spec
    return _with(spec, uncertainty, int(rng.integers(len(uncertainty.draws))))


def with_even_draw(spec: SpecT, uncertainty: Uncertainty, shift: float, replication: int) -> SpecT:
    """The same of draws that stand in order: those of successive replications are spread evenly over them rather than at random.

    The mean over a few replications so hardly depends on the seed. That of replication k is at the fraction of
    ``shift`` + (k + 1) (sqrt(5) - 1) / 2 of their count (Richtmyer, "The evaluation of definite integrals", 1951).
    """
    place = (shift + (replication + 1) * _GOLDEN) % 1.0
    return _with(spec, uncertainty, int(place * len(uncertainty.draws)))


_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


def _with(spec: SpecT, uncertainty: Uncertainty, number: int) -> SpecT:
    for name, value in zip(uncertainty.parameters, uncertainty.draws[number], strict=True):
        spec = _replaced(spec, name.split("."), value)
    return spec


def _replaced(spec: SpecT, path: list[str], value: float) -> SpecT:
    head, *rest = path
    new = _replaced(getattr(spec, head), rest, value) if rest else value
    return spec.model_copy(update={head: new})
