"""Uncertainty of a prediction: joint draws of fitted parameters, and the discrepancy, which is the error of the model itself.

``calibrate.fit`` writes the draws into workloads and clusters; ``simulator.resolve.drawing`` takes one for each replication.
Parameters are named by dotted fields as text: after a field is renamed, files with its draws are no longer read.

Replications show chance and the uncertainty of a fit. Model error shows only in comparisons with runs outside any fit. This *discrepancy*
(Kennedy and O'Hagan, "Bayesian calibration of computer models", JRSS B 2001, section 2: model inadequacy) is given as standard deviations
of the logarithm of a time, of compute and of communication apart, that grow with how far a prediction reaches beyond what was calibrated.
It is applied after the simulation: means and step times stay what they are. ``evidence.discrepancy`` estimates the figures
(``models/discrepancy.toml``), ``simulator.results.inadequacy`` applies them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, TypeVar

import numpy as np
from pydantic import BaseModel, BeforeValidator, Field, PlainSerializer, ValidationError, WithJsonSchema

from simulator.base.spec import Share, Spec
from simulator.base.text import counted, format_share

SpecT = TypeVar("SpecT", bound=Spec)


class Uncertainty(Spec):
    """Joint bootstrap draws of fitted parameters.

    ``draws[i][j]`` is the value of ``parameters[j]`` (a dotted name within the workload
    or cluster, such as ``forward.per_sample_s``) in draw ``i``.
    """

    parameters: tuple[str, ...] = Field(
        min_length=1, max_length=100, description="fitted numbers of this file, as dotted names such as forward.per_sample_s"
    )
    draws: tuple[tuple[float, ...], ...] = Field(
        min_length=1, max_length=10_000, description="joint bootstrap draws, one value per parameter; each run takes one draw"
    )

    def _broken_rules(self) -> Iterator[str]:
        if any(len(draw) != len(self.parameters) for draw in self.draws):
            yield "each draw must have one value per parameter"

    def broken_rules_of(self, spec: BaseModel) -> Iterator[str]:
        """Yield what is wrong unless every parameter names a number of ``spec`` that may take every draw."""
        if len(set(self.parameters)) != len(self.parameters):
            yield "uncertainty.parameters lists a parameter twice"
        for name, column in zip(self.parameters, zip(*self.draws, strict=True), strict=True):
            owner: Any = spec
            *parents, leaf = name.split(".")
            for parent in parents:
                owner = getattr(owner, parent, None)
            if not isinstance(owner, BaseModel) or not isinstance(getattr(owner, leaf, None), float):
                yield f"uncertainty.parameters lists {name!r}, which is not a fitted number of this file"
            if not np.all(np.isfinite(column)):
                yield f"uncertainty.draws of {name} must be finite"
            data = {**{field: getattr(owner, field) for field in type(owner).model_fields}, "uncertainty": None}
            for value in (min(column), max(column)):
                try:
                    type(owner).model_validate({**{key: data[key] for key in data if key in type(owner).model_fields}, leaf: value})
                except ValidationError as error:
                    rule = error.errors(include_url=False)[0]["msg"].removeprefix("Input should ")
                    yield f"uncertainty.draws gives {name} the value {value:g}, which must {rule}"


def with_draw(spec: SpecT, uncertainty: Uncertainty | None, rng: np.random.Generator) -> SpecT:
    """A copy of ``spec`` with one joint draw of its uncertain parameters in place."""
    if uncertainty is None:
        return spec
    return _with(spec, uncertainty, int(rng.integers(len(uncertainty.draws))))


def with_even_draw(spec: SpecT, uncertainty: Uncertainty, shift: float, replication: int) -> SpecT:
    """Put in place a joint draw of those in order: successive replications are spread evenly over them rather than at random.

    The mean over a few replications so hardly depends on the seed. That of replication k is at the fraction of
    ``shift`` + (k + 1) (sqrt(5) - 1) / 2 of their count (Richtmyer, "The evaluation of definite integrals", 1951).
    """
    place = (shift + (replication + 1) * _GOLDEN) % 1.0
    return _with(spec, uncertainty, int(place * len(uncertainty.draws)))


_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


def with_times(spec: SpecT, factors: Mapping[str, float]) -> SpecT:
    """The spec with some numbers, by dotted name, multiplied by a factor each, including their draws; None stays None."""
    values = {name: spec.value_at(name) for name in factors}
    return with_draws_times(spec.replaced({name: value * factors[name] for name, value in values.items() if value is not None}), factors)


def with_draws_times(spec: SpecT, factors: Mapping[str, float]) -> SpecT:
    """The same for draws only."""
    drawn: Uncertainty | None = spec.value_at("uncertainty")
    if drawn is None or not factors.keys() & set(drawn.parameters):
        return spec
    scales = [factors.get(name, 1.0) for name in drawn.parameters]
    draws = tuple(tuple(value * scale for value, scale in zip(draw, scales, strict=True)) for draw in drawn.draws)
    return spec.replaced({"uncertainty.draws": draws})


def _with(spec: SpecT, uncertainty: Uncertainty, number: int) -> SpecT:
    return spec.replaced(dict(zip(uncertainty.parameters, uncertainty.draws[number], strict=True)))


Z_90 = 1.6448536269514722
"""Standard deviations from the middle of a normal distribution to an end of its 90% interval."""

PRIOR_POINTS = 3.0
"""Weight of a regime's figures in a refit, as a number of own runs
(``calibrate.validation.against_points.own_discrepancy``)."""


@dataclass(frozen=True, order=True)
class Regime:
    """One kind of training on one kind of links, whose predictions have similar errors.

    >>> Regime.of("all-reduce, measured, contended")
    Regime(kind='all-reduce', links='measured, contended')
    """

    kind: str = ""
    links: str = ""

    @classmethod
    def of(cls, text: str) -> Regime:
        """The regime with this name in files."""
        kind, _, links = text.partition(", ")
        return cls(kind, links)

    def __str__(self) -> str:
        """Name in files."""
        return ", ".join(filter(None, (self.kind, self.links)))


RegimeText = Annotated[
    Regime,
    BeforeValidator(lambda value: Regime.of(value) if isinstance(value, str) else value),
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"type": "string"}),
]
"""A regime, stored in files as text."""


class RelativeError(NamedTuple):
    """Standard deviations of the logarithm of a figure, towards lower values and towards higher ones."""

    low: float = 0.0
    high: float = 0.0

    @property
    def inverse(self) -> RelativeError:
        """Relative error of one over the figure: of a step's time, where this is of a throughput."""
        return RelativeError(self.high, self.low)

    def times(self, factor: float) -> RelativeError:
        """Scale both sides by a factor."""
        return RelativeError(self.low * factor, self.high * factor)

    @property
    def sd(self) -> float:
        """One number for both sides: the root of their mean square."""
        return math.sqrt((self.low**2 + self.high**2) / 2)


CERTAIN = RelativeError()
"""No error."""


class Deviation(Spec):
    """Standard deviation of the logarithm of a time: ``hypot(at, per_doubling * reach)``."""

    at: float = Field(default=0.0, ge=0, le=3, description="standard deviation of the logarithm, at the calibrated number of replicas")
    per_doubling: float = Field(
        default=0.0,
        ge=0,
        le=3,
        description="increase per doubling of replicas beyond those, as hypot(at, per_doubling x doublings)",
    )

    def __call__(self, reach: float) -> float:
        """Value at a number of doublings beyond the calibrated range."""
        return math.hypot(self.at, self.per_doubling * reach)


class LeftOutRows(Spec):
    """Coverage of 90% intervals with this term on runs outside its estimate."""

    inside: Share = Field(description="share of values inside the interval")
    rows: int = Field(ge=1, description="settings")
    sources: int = Field(ge=1, description="tables or machines, each validated with an estimate that left it out")


class Discrepancy(Spec):
    """Errors of predictions of one regime: of compute, of communication, and of the mean staleness."""

    compute: Deviation = Field(default=Deviation(), description="error of the compute time")
    communication: Deviation = Field(default=Deviation(), description="error of the communication time")
    staleness: Deviation = Field(default=Deviation(), description="error of the mean staleness")
    checked: LeftOutRows | None = Field(
        default=None, description="coverage of such intervals on runs outside the estimate; left out: not measured"
    )
    about: str = Field(default="", max_length=10_000, description="basis of the figures")

    @property
    def is_zero(self) -> bool:
        """Return whether all errors are zero."""
        return self.compute == self.communication == self.staleness == Deviation()


class Part(Spec):
    """Effect of one cause on a throughput, as logarithms for one standard deviation of the cause."""

    name: str = Field(description="name of the cause; if two results share a cause, its equal part cancels in their ratio")
    slower: float = Field(description="decrease if the cause takes one standard deviation more time")
    faster: float = Field(description="increase if the cause takes one standard deviation less time")
    ends: tuple[float, float] = Field(description="both changes at the ends of the cause's 90% interval")

    def times(self, factor: float) -> Part:
        """Return the effect if the cause affects only a share of the time."""
        ends = (self.ends[0] * factor, self.ends[1] * factor)
        return Part(name=self.name, slower=self.slower * factor, faster=self.faster * factor, ends=ends)


class AppliedDiscrepancy(Spec):
    """Effect of the discrepancy on one result."""

    regime: RegimeText = Field(default=Regime(), description="regime of these figures")
    borrowed: bool = Field(
        default=False, description="whether no runs of this kind were compared, so the nearest regime's figures are used"
    )
    reach: float = Field(default=0.0, description="doublings of replicas beyond the calibrated number")
    compute: float = Field(default=0.0, description="derivative of the logarithm of a step's time by that of compute time")
    communication: float = Field(default=0.0, description="derivative of the logarithm of a step's time by that of communication time")
    parts: tuple[Part, ...] = Field(default=(), description="effect of each cause on the throughput")
    staleness: float = Field(default=0.0, ge=0, description="standard deviation of the logarithm of the mean staleness")
    checked: LeftOutRows | None = Field(default=None, description="coverage of such intervals on left-out runs")
    efficiency: float | None = Field(default=None, gt=0, description="throughput divided by that of linear scaling, which limits it")
    most: float | None = Field(default=None, ge=0, description="largest increase of the throughput by model error, as a logarithm")

    @property
    def coverage_in_words(self) -> str:
        """Describe the coverage of such intervals on left-out runs, without a full stop."""
        checked = self.checked
        if self.borrowed:
            return f"no real run of this kind was compared; the interval is taken from {self.regime}"
        if checked is None:
            return "no interval of this kind was compared with real runs"
        return f"90% intervals of this kind contained {format_share(checked.inside)} of {counted(checked.rows, 'measured setting')}"

    @property
    def relative_error(self) -> RelativeError:
        """Relative error of the throughput."""
        slower, faster = (math.hypot(*(getattr(part, side) for part in self.parts)) for side in ("slower", "faster"))
        return RelativeError(slower, faster if self.most is None else min(faster, self.most / Z_90))


def relative_error_of(applied: AppliedDiscrepancy | None) -> RelativeError:
    """Relative error of the throughput; zero without a discrepancy."""
    return CERTAIN if applied is None else applied.relative_error


def between(ours: AppliedDiscrepancy | None, theirs: AppliedDiscrepancy | None) -> RelativeError:
    """Relative error of the throughput of ours over theirs: causes that both have in common cancel as far as they are equal.

    The effects of a cause are compared at the ends of its 90% interval, where they are largest: a link that limits both scenarios as
    predicted may limit neither there.
    """
    mine, other = ({part.name: part.ends for part in applied.parts} if applied is not None else {} for applied in (ours, theirs))
    low: list[float] = []
    high: list[float] = []
    for name in {**mine, **other}:
        (slower, faster), (his_slower, his_faster) = mine.get(name, (0.0, 0.0)), other.get(name, (0.0, 0.0))
        changes = his_slower - slower, faster - his_faster  # of the ratio's logarithm: with more time, and with less
        low.append(max(0.0, *(-change for change in changes)))
        high.append(max(0.0, *changes))
    return RelativeError(math.hypot(*low) / Z_90, math.hypot(*high) / Z_90)
