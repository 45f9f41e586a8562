"""The ways of training that a plan tries of a model with layers, and by which rules it keeps them few.

Which degrees are tried follows Narayanan et al. (SC 2021, section 3): tensors are split
among devices of one node, whose links are fast (takeaway 1), stages are laid over nodes, and
what is left are copies. What only costs time is taken as little as memory asks for: first
nothing is computed again, nor shared; what does not fit then is tried with the next.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal, NamedTuple, cast

from simulator.base.errors import ScenarioError
from simulator.base.validation_errors import validated
from simulator.memory import devices_of, does_not_fit
from simulator.resolve.resolve import device_of, resolve
from simulator.scenario import Scenario
from simulator.spec.training import Training
from simulator.spec.workload import Workload
from simulator.strategies.catalogue import SHORT_NAMES, kind_of
from simulator.strategies.hybrid import Hybrid
from simulator.strategies.strategy import Strategy

Way = Literal["data parallel", "pipeline", "tensor", "expert", "sharded", "hybrid"]
WAYS: tuple[Way, ...] = ("data parallel", "pipeline", "tensor", "expert", "sharded", "hybrid")
"""Ways of training; what is made of two or more of them is a hybrid."""

NAMES: tuple[str, ...] = tuple(name for name, keys in SHORT_NAMES.items() if kind_of(keys).cuts_batches)
"""Short names that span degrees."""

_MOST_MICRO_BATCHES = 16
"""For each stage: then a pipeline is full for 94% of its time."""
_CHUNKS = (2, 4)
_SHARDS: Mapping[str, tuple[str, ...]] = {"zero1": ("optimizer",), "zero2": ("gradients",), "fsdp": ("parameters",)}
_CHOSEN: Mapping[str, tuple[str, ...]] = {
    "strategy": ("pipeline", "tensor", "expert", "schedule", "chunks", "shard"),
    "training": ("micro_batches", "recompute"),
}
"""What is searched unless it is given, by section."""

NOT_CUT = frozenset({"zero1", "zero2"})
"""Of these, those that need no layers."""


def way_of(strategy: Strategy) -> Way:
    """Which way of training a strategy is."""
    if not strategy.cuts:
        return "data parallel"
    return next(way for way in WAYS if way == strategy.cuts[0]) if len(strategy.cuts) == 1 else "hybrid"


class Degrees(NamedTuple):
    """How a model is cut and in which order its parts are computed; copies are what is left of the devices."""

    pipeline: int = 1
    tensor: int = 1
    expert: int = 1
    schedule: str = "1f1b"
    chunks: int = 1

    @property
    def devices(self) -> int:
        """Of one copy."""
        return self.pipeline * self.tensor


class Variant(NamedTuple):
    """What of its memory a configuration gives up time for, and its micro-batches."""

    shard: str = "none"
    recompute: str = "none"
    micro_batches: int = 1


class Fixed(NamedTuple):
    """What is given and so not searched, by key of ``[strategy]`` or ``[training]``."""

    strategy: Mapping[str, Any]
    training: Mapping[str, Any]

    @classmethod
    def of(cls, table: Mapping[str, Any], keys: Iterable[str]) -> Fixed:
        """Those of a scenario's tables that ``--set`` or ``--over`` name."""
        fixed: dict[str, dict[str, Any]] = {"strategy": {}, "training": {}}
        for key in keys:
            section, _, name = key.partition(".")
            own = table.get(section)
            if name in _CHOSEN.get(section, ()) and isinstance(own, Mapping) and name in own:
                fixed[section][name] = own[name]
        return cls(**fixed)

    @staticmethod
    def without(table: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
        """A scenario's tables without what is searched, but for these keys, so that they begin with nothing cut."""
        given = set(keys)

        def left(section: str, names: Iterable[str]) -> dict[str, Any]:
            out = {name for name in names if f"{section}.{name}" not in given}
            return {key: value for key, value in table.get(section, {}).items() if key not in out}

        return {**table, "strategy": left("strategy", (*_CHOSEN["strategy"], "stages")), "training": left("training", _CHOSEN["training"])}


def degrees_of(name: str, load: Workload, devices_per_node: int, fixed: Fixed) -> list[Degrees]:
    """The degrees and schedules that a short name spans.

    Parameters
    ----------
    name
        pipeline: two stages or more, nothing else. tensor: likewise. zero1, zero2, fsdp: nothing is cut. hybrid: all of them together,
        and experts spread.
    load
        With layers, or nothing can be cut.
    """
    model = _Model(load)
    cuts = name in ("pipeline", "hybrid")
    pipelines = [1, *model.pipelines] if name == "hybrid" else model.pipelines if cuts else [1]
    tensors = [1, *model.tensors(devices_per_node)] if name == "hybrid" else model.tensors(devices_per_node) if name == "tensor" else [1]
    experts = [1, *model.experts] if name == "hybrid" else [1]
    pipelines = _given(fixed.strategy, "pipeline", pipelines)
    tensors = _given(fixed.strategy, "tensor", tensors)
    experts = _given(fixed.strategy, "expert", experts)
    return [
        Degrees(pipeline, tensor, expert, schedule, chunks)
        for pipeline in pipelines
        for schedule, chunks in model.schedules(pipeline, fixed)
        for tensor in tensors
        for expert in experts
    ]


def _given(fixed: Mapping[str, Any], key: str, values: Sequence[int]) -> list[int]:
    return [fixed[key]] if key in fixed else list(values)


class _Model:
    """What of a model can be cut."""

    def __init__(self, load: Workload) -> None:
        self._layers = load.layers

    @cached_property
    def pipelines(self) -> list[int]:
        """Powers of two, and numbers that divide the layers that there are most of, so that all stages are alike."""
        count = len(self._layers)
        alike = max(Counter((layer.forward, layer.backward_work) for layer in self._layers).values(), default=1)
        return [stages for stages in range(2, count + 1) if not stages & (stages - 1) or alike % stages == 0]

    def tensors(self, devices_per_node: int) -> list[int]:
        """Devices of one node, as many as divide it."""
        if all(layer.tensor is None for layer in self._layers):
            return []
        return _divisors(devices_per_node)[1:]

    @property
    def experts(self) -> list[int]:
        """Powers of two that divide the experts of each layer."""
        counts = [layer.experts.count for layer in self._layers if layer.experts is not None]
        return _powers(math.gcd(*counts))[1:] if counts else []

    def schedules(self, pipeline: int, fixed: Fixed) -> list[tuple[str, int]]:
        """Orders of a pipeline's passes that flush, each with its chunks; gpipe only where it is given, since it keeps more than 1f1b."""
        if "schedule" in fixed.strategy or "chunks" in fixed.strategy:
            chunks = int(fixed.strategy.get("chunks", 1))
            schedule = fixed.strategy.get("schedule", "interleaved" if chunks > 1 else "1f1b")
            return [(schedule, each) for each in ((chunks,) if schedule != "interleaved" or chunks > 1 else _CHUNKS)]
        if pipeline == 1:
            return [("1f1b", 1)]
        interleaved = [("interleaved", chunks) for chunks in _CHUNKS if pipeline * chunks <= len(self._layers)]
        return [("1f1b", 1), *interleaved, ("zero-bubble", 1)]


class Tried(NamedTuple):
    """One configuration, or why it cannot be.

    Attributes
    ----------
    scenario
        None where it cannot be.
    refused
        Why.
    by_memory
        Whether that is what a device holds.
    """

    strategy: Hybrid
    training: Training
    workers: int
    scenario: Scenario | None
    refused: str = ""
    by_memory: bool = False


class Maker:
    """Makes the configurations of a short name.

    Parameters
    ----------
    name
        Short name.
    template
        All else of the scenarios, under this name.
    workload
        With the batch of a device's share of a copy (weak scaling: a copy on k devices takes k times as much), or with that of all
        copies together (strong scaling).
    device_batch
        Samples of each device; None where the batch of all copies together is fixed.
    fixed
        What is given.
    where
        For messages.
    """

    def __init__(self, name: str, template: Scenario, workload: Workload, device_batch: Fraction | None, fixed: Fixed, where: str) -> None:
        self._name, self._template, self._load, self._where = name, template, workload, where
        self._own, self._device_batch, self._fixed = cast(Hybrid, template.strategy), device_batch, fixed
        self._resolved = resolve(template)
        self._device = device_of(template)
        self._strategies: dict[tuple[Degrees, str], Hybrid] = {}
        self.degrees = degrees_of(name, workload, template.cluster.devices_per_node, fixed)

    def tried(self, workers: int) -> Iterator[Tried]:
        """Every configuration with this many devices."""
        for degrees in self.degrees:
            copies, left = divmod(workers, degrees.devices)
            if left or copies % degrees.expert:
                continue
            batch = self._batch(degrees, copies)
            if batch is None:
                continue
            for choice in choices_of(self._name, degrees, self._load, batch, self._fixed):
                yield from self._chosen(choice, degrees, workers, batch)

    def _batch(self, degrees: Degrees, copies: int) -> int | None:
        """Samples of a copy; None where they are no whole number."""
        if self._device_batch is None:
            together = self._load.global_batch
            assert together is not None
            return together // copies if together % copies == 0 else None
        batch = self._device_batch * degrees.devices
        return int(batch) if batch.denominator == 1 else None

    def _chosen(self, choice: Sequence[Sequence[Variant]], degrees: Degrees, workers: int, batch: int) -> Iterator[Tried]:
        """Of each row the first that fits, as long as less is given up by it than by those before."""
        taken: list[Variant] = []
        refused: list[Tried] = []
        for row in choice:
            for variant in row:
                tried = self._made(degrees, variant, workers, batch)
                if tried.scenario is None:
                    refused.append(tried)
                    continue
                if not any(each.shard == variant.shard and each.micro_batches <= variant.micro_batches for each in taken):
                    taken.append(variant)
                    yield tried
                break
            if taken and taken[-1] == row[0] and row[0].recompute == choice[0][0].recompute:
                return
        if not taken:
            yield from (self._told(tried, batch) for tried in refused[-1:])

    def _made(self, degrees: Degrees, variant: Variant, workers: int, batch: int) -> Tried:
        strategy = self._strategy(degrees, variant.shard).with_count(workers)
        training = self._template.training.model_copy(update={"micro_batches": variant.micro_batches, "recompute": variant.recompute})
        if strategy.simpler is None and not self._fits(strategy, training, batch):
            return Tried(strategy, training, workers, None, by_memory=True)
        try:
            scenario = self._scenario(strategy, training, batch)
        except ScenarioError as error:
            return Tried(strategy, training, workers, None, error.problems[0])
        text = does_not_fit(resolve(scenario)) if strategy.simpler is not None else None
        return Tried(strategy, training, workers, None if text else scenario, text or "", by_memory=text is not None)

    def _told(self, tried: Tried, batch: int) -> Tried:
        """With the reason why it does not fit, which takes as long to word as many to check."""
        if tried.refused:
            return tried
        try:
            return tried._replace(refused=does_not_fit(resolve(self._scenario(tried.strategy, tried.training, batch))) or "")
        except ScenarioError as error:
            return tried._replace(refused=error.reasons[0], by_memory=False)

    def _scenario(self, strategy: Hybrid, training: Training, batch: int) -> Scenario:
        load = self._load.model_copy(update=self._batches(batch))
        parts = {**self._template.sections, "workload": load, "strategy": strategy, "training": training}
        return validated(Scenario, parts, self._where)

    def _fits(self, strategy: Hybrid, training: Training, batch: int) -> bool:
        """Whether a configuration of a model that is cut fits; the workload is the same for all, and so resolved once."""
        as_resolved = self._resolved.model_copy(
            update={"workload": self._resolved.workload.model_copy(update=self._batches(batch)), "strategy": strategy, "training": training}
        )
        return all(device.fits for device in devices_of(as_resolved, self._device))

    def _batches(self, batch: int) -> dict[str, int | None]:
        """Samples of a replica, or of all together."""
        if self._device_batch is None:
            return {"batch_per_replica": None, "global_batch": self._load.global_batch}
        return {"batch_per_replica": batch, "global_batch": None}

    def _strategy(self, degrees: Degrees, shard: str) -> Hybrid:
        key = degrees, shard
        if key not in self._strategies:
            own = self._own
            stages = own.stages if isinstance(own.stages, str) or len(own.stages) + 1 == degrees.pipeline * degrees.chunks else "balanced"
            group = own.shard_group if shard != "none" else None
            self._strategies[key] = own.changed(**degrees._asdict(), shard=shard, stages=stages, shard_group=group)
        return self._strategies[key]


def choices_of(name: str, degrees: Degrees, load: Workload, batch: int, fixed: Fixed) -> Iterator[list[list[Variant]]]:
    """What is tried of degrees; each choice is compared with the others by its time.

    Parameters
    ----------
    batch
        Samples of a copy.

    Yields
    ------
    list of list of Variant
        Rows, of each of which the first that fits is taken, in this order, until it is one that gives up nothing. Of a pipeline a
        choice is a number of micro-batches, a row what copies share, and what is computed again grows within it. Elsewhere
        micro-batches save memory and only cost time: they grow within a row.
    """
    given = fixed.strategy.get("shard")
    shards = (given,) if given is not None else _SHARDS.get(name, _shards_of(name, degrees))
    again = [fixed.training["recompute"]] if "recompute" in fixed.training else _recomputations(load)
    pieces = [int(fixed.training["micro_batches"])] if "micro_batches" in fixed.training else _micro_batches(degrees, batch)
    if degrees.pipeline > 1:
        for count in pieces:
            yield [[Variant(shard, recompute, count) for recompute in again] for shard in shards]
    else:
        yield [[Variant(shard, recompute, count) for count in pieces] for shard in shards for recompute in again]


def _shards_of(name: str, degrees: Degrees) -> tuple[str, ...]:
    """Of a hybrid, as far as memory asks for it; with stages only slots, for gradients and parameters are then needed all the time."""
    if name != "hybrid":
        return ("none",)
    return ("none", "optimizer") if degrees.pipeline > 1 else ("none", "optimizer", "gradients", "parameters")


def _recomputations(load: Workload) -> list[str]:
    if not any(layer.kept_bytes_per_sample for layer in load.layers):
        return ["none"]
    some = any(layer.kept_selectively_bytes_per_sample is not None for layer in load.layers)
    return ["none", *(["selective"] if some else []), "full"]


def _micro_batches(degrees: Degrees, batch: int) -> list[int]:
    """All that divide the batch of a copy; of a pipeline powers of two, as many as it has stages at least, and not many times as many."""
    if degrees.pipeline == 1:
        return _divisors(batch)
    powers = _powers(batch)
    stages = degrees.pipeline
    counts = [count for count in powers if stages <= count <= _MOST_MICRO_BATCHES * stages] or powers[-1:]
    return [count for count in counts if count % stages == 0] if degrees.schedule == "interleaved" else counts


def _divisors(number: int) -> list[int]:
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]


def _powers(number: int) -> list[int]:
    """Powers of two that divide a number."""
    return [1 << power for power in range(number.bit_length()) if number % (1 << power) == 0]


def trained_in_words(training: Training) -> str:
    """Micro-batches, and what is computed again; empty where there is neither."""
    texts = [f"{training.micro_batches:,} micro-batches"] if training.micro_batches > 1 else []
    texts += [f"{training.recompute} recomputation"] if training.recompute != "none" else []
    return ", ".join(texts)


def without_layers(load: Workload) -> str:
    """Why a workload cannot be cut."""
    return (
        f"workload {load.name!r} has no layers, which this strategy cuts it by: measure them with `paceline calibrate --layers`, or take a "
        "workload that has them"
    )
