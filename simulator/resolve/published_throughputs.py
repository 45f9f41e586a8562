"""How fast others have trained published models on single devices: ``models/published/speeds.csv`` and ``speed_models.toml``.

Columns are the fields of :class:`PublishedThroughput`, keys those of :class:`Model`. Here rows are read and paired; rules that
move a workload by them are in device_transfer.py.
"""

from __future__ import annotations

import csv
import itertools
import math
import re
import statistics
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple, TypeVar

from pydantic import Field

from simulator.base.catalog import own_file
from simulator.base.errors import ScenarioError
from simulator.base.files import read_toml
from simulator.base.probability import student_quantile
from simulator.base.spec import Spec
from simulator.base.validation_errors import validated
from simulator.spec.accelerator import accelerator_named, spelled
from simulator.spec.workload import Counted


class PublishedThroughput(Spec):
    """One published throughput."""

    source: str = Field(min_length=1, description="the table; pairs are formed within one table")
    software: str = Field(min_length=1)
    model: str = Field(min_length=1)
    precision: str = Field(description="precision in TensorFlow's words; float32 is the framework's default")
    device: str = Field(min_length=1)
    devices: int = Field(ge=1, description="number of devices; throughput is per device")
    batch: int | None = Field(default=None, ge=1, description="batch per device; None: not stated")
    throughput: float = Field(gt=0)
    unit: str
    setting: str = Field(default="", description="anything else that distinguishes rows of one model")
    note: str = ""
    url: str = Field(min_length=1)


class Model(Spec):
    """A model of those rows: what it asks of a device for each sample."""

    id: str = Field(min_length=1)
    aliases: tuple[str, ...] = ()
    parameters: int = Field(ge=1)
    unit: str
    flops_per_sample: float = Field(gt=0)
    base_bytes: float = Field(ge=0)
    per_sample_bytes: float = Field(ge=0)
    source: str

    def counted(self, precision: str) -> Counted:
        """Operations and bytes of a step; half of the bytes in mixed precision, as the step probe counts them there."""
        share = 1.0 if precision == "float32" else 0.5
        return Counted(
            flops_per_sample=self.flops_per_sample, base_bytes=self.base_bytes * share, per_sample_bytes=self.per_sample_bytes * share
        )


class Pair(NamedTuple):
    """One source that has trained a model with one software on two devices."""

    model: str
    precision: str
    here: str
    there: str
    source: str
    software: str
    factor: float
    """Time there over time here."""
    rate: float
    """Samples, or whatever ``unit`` says, per second here."""
    unit: str
    batch: int | None
    url: str


class Range(NamedTuple):
    """Low, middle and high; low and high are the ends of a 90% interval."""

    low: float
    mid: float
    high: float

    @classmethod
    def of_logs(cls, mean: float, half: float) -> Range:
        """That of a mean of logarithms, and half the width of its interval."""
        return cls(math.exp(mean - half), math.exp(mean), math.exp(mean + half))


class Scatter(NamedTuple):
    """Spread of logarithms around their mean, and from how many degrees of freedom it is known."""

    sigma: float
    freedom: int

    @classmethod
    def pooled(cls, groups: Iterable[Sequence[float]]) -> Scatter | None:
        """That around each group's own mean, over all groups of several; None where there is none."""
        several = [values for values in groups if len(values) > 1]
        freedom = sum(len(values) - 1 for values in several)
        if not freedom:
            return None
        return cls(math.sqrt(math.fsum((len(values) - 1) * statistics.variance(values) for values in several) / freedom), freedom)

    def half_width(self, count: float = math.inf) -> float:
        """Half of the 90% prediction interval of one more value (Student's t).

        Parameters
        ----------
        count
            Of how many values the mean was taken around which it lies; endless: it is known.
        """
        return student_quantile(0.95, self.freedom) * self.sigma * math.sqrt(1.0 + 1.0 / count)


KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


def grouped(items: Iterable[tuple[KeyT, ValueT]]) -> dict[KeyT, list[ValueT]]:
    """Values by their keys, in order."""
    groups: dict[KeyT, list[ValueT]] = {}
    for key, value in items:
        groups.setdefault(key, []).append(value)
    return groups


class PublishedThroughputs:
    """All rows, and what follows from them.

    Parameters
    ----------
    rows
        Published throughputs.
    models
        What their models ask of a device.
    """

    def __init__(self, rows: Iterable[PublishedThroughput], models: Iterable[Model]) -> None:
        self.rows = tuple(rows)
        self.models = tuple(models)
        self._named = {plain(name): model for model in self.models for name in (model.id, *model.aliases)}

    def without(self, *, source: str | None = None, model: str | None = None) -> PublishedThroughputs:
        """The same without the rows of a source, or of a model."""
        key = self.key_of(model) if model else ""
        return PublishedThroughputs((row for row in self.rows if row.source != source and self.key_of(row.model) != key), self.models)

    def model_of(self, name: str) -> Model | None:
        """The model of this name or alias; None if its operations were not counted."""
        return self._named.get(plain(name))

    def key_of(self, name: str) -> str:
        """Under which name rows have a model."""
        model = self.model_of(name)
        return plain(model.id if model else name)

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """Every two devices that one source has trained one model on, in both directions."""
        # rows that differ in device and batch alone
        alike = grouped(
            ((row.source, row.software, self.key_of(row.model), row.precision, row.unit, row.setting, row.devices), row)
            for row in self.rows
        )
        return tuple(pair for rows in alike.values() for pair in self._pairs_of(rows))

    def _pairs_of(self, rows: Sequence[PublishedThroughput]) -> Iterator[Pair]:
        for here, there in itertools.permutations(grouped((self.kinds[row.device], row) for row in rows).values(), 2):
            nearest = _nearest(here, there)
            near, far = nearest[0]
            factor = statistics.geometric_mean(here.throughput / there.throughput for here, there in nearest)
            rate = statistics.geometric_mean(here.throughput for here, _ in nearest)
            yield Pair(
                near.model, near.precision, near.device, far.device, near.source, near.software, factor,
                rate, near.unit, near.batch, far.url,
            )  # fmt: skip

    def pairs_of(self, model: str, precision: str, here: str, there: str) -> list[Pair]:
        """The pairs of a model on two devices, one a source and software."""
        return self._by_way.get((self.key_of(model), precision, kind_of(here), kind_of(there)), [])

    @cached_property
    def kinds(self) -> dict[str, object]:
        """Return what each device of the rows is compared by, looked up once."""
        return {name: kind_of(name) for name in dict.fromkeys(row.device for row in self.rows)}

    @cached_property
    def _by_way(self) -> dict[tuple[object, ...], list[Pair]]:
        """Pairs of one model on the same two devices."""
        return grouped(
            ((self.key_of(pair.model), pair.precision, self.kinds[pair.here], self.kinds[pair.there]), pair) for pair in self.pairs
        )

    @cached_property
    def scatter(self) -> Scatter:
        """How much the factors of one model on the same two devices differ between sources, pooled over all that several have."""
        scatter = Scatter.pooled([math.log(pair.factor) for pair in pairs] for pairs in self._by_way.values())
        if scatter is None:
            raise ScenarioError("models/published/speeds.csv: no two sources have the same pair, so the scatter is unknown")
        return scatter._replace(freedom=scatter.freedom // 2)  # each pair stands in both directions, which is one observation


def _nearest(
    here: Sequence[PublishedThroughput], there: Sequence[PublishedThroughput]
) -> list[tuple[PublishedThroughput, PublishedThroughput]]:
    """The rows of two devices whose batches are nearest to one another, all that are equally near."""

    def apart(row: PublishedThroughput, other: PublishedThroughput) -> float:
        return abs(math.log(row.batch / other.batch)) if row.batch and other.batch else 0.0

    couples = [(apart(row, other), row, other) for row in here for other in there]
    least = min(distance for distance, *_ in couples)
    return [(row, other) for distance, row, other in couples if distance <= least + 1e-9]


def plain(name: str) -> str:
    """A name without case and punctuation: ``ResNet-50`` -> ``resnet50``."""
    return re.sub(r"[^a-z0-9.]", "", name.casefold())


def same_device(name: str, other: str) -> bool:
    """Return whether two names mean one device, or two that differ only in memory size."""
    return kind_of(name) == kind_of(other)


def kind_of(name: str) -> object:
    """Return what devices are compared by: the figures of a datasheet, or the name where there is none."""
    device = accelerator_named(name)
    if device is None:
        return plain(spelled(name))
    return device.peak_flops_per_s, device.cores, device.memory_bandwidth_bytes_per_s


def load_published_throughputs() -> PublishedThroughputs:
    """The rows of the catalogue.

    Raises
    ------
    ScenarioError
        A file is missing or breaks a rule.
    """
    return _loaded(own_file("published/speeds.csv").parent.resolve())


@cache
def _loaded(home: Path) -> PublishedThroughputs:
    models = read_toml(home / "speed_models.toml").get("model", [])
    with open(home / "speeds.csv", newline="", encoding="utf-8") as file:
        rows = [_row(fields, f"{home / 'speeds.csv'}: line {number}") for number, fields in enumerate(csv.DictReader(file), start=2)]
    return PublishedThroughputs(
        rows, (validated(Model, entry, f"{home / 'speed_models.toml'}: model {n}") for n, entry in enumerate(models, start=1))
    )


def _row(fields: dict[str, str], where: str) -> PublishedThroughput:
    row: dict[str, object] = {key: value for key, value in fields.items() if value}
    try:
        row |= {key: int(fields[key]) for key in ("devices", "batch") if fields[key]} | {"throughput": float(fields["throughput"])}
    except ValueError:
        raise ScenarioError(f"{where}: devices, batch and throughput must be numbers") from None
    return validated(PublishedThroughput, row, where)
