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
from functools import cache
from typing import Any, Literal, NamedTuple, cast, get_args

from simulator.base.errors import ScenarioError
from simulator.base.validation_errors import validated
from simulator.catalogue.settings import at
from simulator.memory import devices_of, does_not_fit
from simulator.resolve.resolve import Asked, device_of
from simulator.scenario import Scenario
from simulator.spec.training import Training
from simulator.spec.workload import Workload
from simulator.strategies.catalogue import SHORT_NAMES, kind_of
from simulator.strategies.hybrid import Hybrid
from simulator.strategies.strategy import Strategy

Way = Literal["data parallel", "pipeline", "tensor", "expert", "sharded", "hybrid"]
WAYS: tuple[Way, ...] = get_args(Way)
"""Ways of training; what is made of two or more of them is a hybrid."""

NAMES: tuple[str, ...] = tuple(name for name, keys in SHORT_NAMES.items() if kind_of(keys).cuts_batches)
"""Short names that span degrees."""

NOT_CUT = frozenset({"zero1", "zero2"})
"""Of these, those that need no layers."""

_MOST_MICRO_BATCHES = 16
"""For each stage: then a pipeline is full for 94% of its time."""
_CHUNKS = (2, 4)
_SHARDS: Mapping[str, tuple[str, ...]] = {"zero1": ("optimizer",), "zero2": ("gradients",), "fsdp": ("parameters",)}
_CHOSEN = (
    *(f"strategy.{key}" for key in ("pipeline", "tensor", "expert", "schedule", "chunks", "shard")),
    *(f"training.{key}" for key in ("micro_batches", "recompute")),
)
"""Keys that are searched unless they are given."""

Fixed = Mapping[str, Any]
"""What is given and so not searched, by dotted key."""


def way_of(strategy: Strategy) -> Way:
    """Way of training that a strategy is."""
    if len(strategy.cuts) > 1:
        return "hybrid"
    return next(way for way in WAYS if way in strategy.cuts) if strategy.cuts else "data parallel"


def fixed_of(table: Mapping[str, Any], keys: Iterable[str]) -> Fixed:
    """Take from a scenario's tables what would be searched if settings did not name it among their ``keys``."""
    return {key: value for key in keys if key in _CHOSEN and (value := at(table, key)) is not None}


def uncut(table: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """A scenario's tables without what is searched, but for these keys, so that they begin with nothing cut."""
    dropped = {*_CHOSEN, "strategy.stages"} - set(keys)
    sections = {name: table.get(name, {}) for name in ("strategy", "training")}
    return {
        **table,
        **{name: {key: own[key] for key in own if f"{name}.{key}" not in dropped} for name, own in sections.items()},
    }


class Degrees(NamedTuple):
    """Cuts of a model, and the order in which its parts are computed; copies are what is left of the devices."""

    pipeline: int = 1
    tensor: int = 1
    expert: int = 1
    schedule: str = "1f1b"
    chunks: int = 1

    @property
    def devices(self) -> int:
        """Devices of one copy."""
        return self.pipeline * self.tensor


class Variant(NamedTuple):
    """Memory that a configuration gives up time for, and its micro-batches."""

    shard: str = "none"
    recompute: str = "none"
    micro_batches: int = 1


def degrees_of(name: str, load: Workload, devices_per_node: int, fixed: Fixed) -> list[Degrees]:
    """The degrees and schedules that a short name spans.

    Stages are powers of two, and numbers that divide the layers that there are most of, so that all are alike. Tensors are split among
    devices of one node, as many as divide it; experts are spread over powers of two that divide those of each layer.

    Parameters
    ----------
    name
        pipeline: two stages or more, nothing else. tensor: likewise. zero1, zero2, fsdp: nothing is cut. hybrid: all of them together,
        and experts spread.
    load
        With layers, or nothing can be cut.
    """
    layers = load.layers
    alike = max(Counter((layer.forward, layer.backward_work) for layer in layers).values(), default=1)
    cuts = {
        "pipeline": [stages for stages in range(2, len(layers) + 1) if not stages & (stages - 1) or alike % stages == 0],
        "tensor": _divisors(devices_per_node)[1:] if any(layer.tensor is not None for layer in layers) else [],
        "expert": _powers(math.gcd(*(layer.experts.count for layer in layers if layer.experts is not None)))[1:],
    }
    for key, degrees in cuts.items():
        if f"strategy.{key}" in fixed:
            cuts[key] = [fixed[f"strategy.{key}"]]
        elif name != key:
            cuts[key] = [1, *degrees] if name == "hybrid" else [1]
    return [
        Degrees(pipeline, tensor, expert, schedule, chunks)
        for pipeline in cuts["pipeline"]
        for schedule, chunks in _schedules(pipeline, len(layers), fixed)
        for tensor in cuts["tensor"]
        for expert in cuts["expert"]
    ]


def _schedules(pipeline: int, layers: int, fixed: Fixed) -> list[tuple[str, int]]:
    """Orders of a pipeline's passes that flush, each with its chunks; gpipe only where it is given, since it keeps more than 1f1b."""
    if "strategy.schedule" in fixed or "strategy.chunks" in fixed:
        chunks = int(fixed.get("strategy.chunks", 1))
        schedule = fixed.get("strategy.schedule", "interleaved" if chunks > 1 else "1f1b")
        return [(schedule, each) for each in ((chunks,) if schedule != "interleaved" or chunks > 1 else _CHUNKS)]
    if pipeline == 1:
        return [("1f1b", 1)]
    interleaved = [("interleaved", chunks) for chunks in _CHUNKS if pipeline * chunks <= layers]
    return [("1f1b", 1), *interleaved, ("zero-bubble", 1)]


class Tried(NamedTuple):
    """One configuration: as it was asked for and resolved, or ``None`` and the reason why it cannot be."""

    strategy: Strategy
    training: Training
    asked: Asked | None
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
        self._device = device_of(template)
        self._strategy, self._with_batch = cache(self._cut), cache(self._taking)  # which what is known of them is kept beside
        self._degrees = degrees_of(name, workload, template.cluster.devices_per_node, fixed)

    def tried(self, workers: int) -> Iterator[Tried]:
        """Every configuration with this many devices."""
        for degrees in self._degrees:
            copies, left = divmod(workers, degrees.devices)
            if left or copies % degrees.expert:
                continue
            if self._device_batch is not None:
                batch = self._device_batch * degrees.devices
            else:
                assert self._load.global_batch is not None
                batch = Fraction(self._load.global_batch, copies)
            if batch.denominator == 1:
                for choice in choices_of(self._name, degrees, self._load, int(batch), self._fixed):
                    yield from self._chosen(choice, degrees, workers, int(batch))

    def _chosen(self, choice: Sequence[Sequence[Variant]], degrees: Degrees, workers: int, batch: int) -> Iterator[Tried]:
        """Take the first of each row that fits, as long as less is given up by it than by those before."""
        taken: list[Variant] = []
        refused: Tried | None = None
        for row in choice:
            for variant in row:
                tried = self._made(degrees, variant, workers, batch)
                if tried.asked is None or tried.by_memory:
                    refused = tried
                    continue
                if not any(each.shard == variant.shard and each.micro_batches <= variant.micro_batches for each in taken):
                    taken.append(variant)
                    yield tried
                break
            if taken and taken[-1] == row[0] and row[0].recompute == choice[0][0].recompute:
                return
        if not taken and refused is not None:
            reason = refused.refused
            if refused.asked is not None:  # to word it takes as long as many to check
                reason = does_not_fit(refused.asked.resolved) or ""
            yield refused._replace(asked=None, refused=reason)

    def _made(self, degrees: Degrees, variant: Variant, workers: int, batch: int) -> Tried:
        strategy = self._strategy(degrees, variant.shard).with_count(workers)
        training = self._template.training.replaced({"micro_batches": variant.micro_batches, "recompute": variant.recompute})
        parts = {**self._template.sections, "workload": self._with_batch(batch), "strategy": strategy, "training": training}
        try:
            asked = Asked.of(validated(Scenario, parts, self._where))
        except ScenarioError as error:
            return Tried(strategy, training, None, error.problems[0])
        fits = all(device.fits for device in devices_of(asked.resolved, self._device))
        return Tried(strategy, training, asked, by_memory=not fits)

    def _cut(self, degrees: Degrees, shard: str) -> Hybrid:
        own = self._own
        stages = own.stages if isinstance(own.stages, str) or len(own.stages) + 1 == degrees.pipeline * degrees.chunks else "balanced"
        group = own.shard_group if shard != "none" else None
        return own.changed(**degrees._asdict(), shard=shard, stages=stages, shard_group=group)

    def _taking(self, batch: int) -> Workload:
        together = self._load.global_batch if self._device_batch is None else None
        return self._load.replaced({"batch_per_replica": None if together else batch, "global_batch": together})


def choices_of(name: str, degrees: Degrees, load: Workload, batch: int, fixed: Fixed) -> Iterator[list[list[Variant]]]:
    """Choices that are tried of degrees, which are compared by their times.

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
    shards = _SHARDS.get(name, ("none",))
    if name == "hybrid":  # as far as memory asks for it; with stages slots alone, for the rest is then needed all the time
        shards = ("none", "optimizer") if degrees.pipeline > 1 else ("none", "optimizer", "gradients", "parameters")
    if "strategy.shard" in fixed:
        shards = (fixed["strategy.shard"],)
    again = ["none"]
    if any(layer.kept_bytes_per_sample for layer in load.layers):
        some = any(layer.kept_selectively_bytes_per_sample is not None for layer in load.layers)
        again += ["selective", "full"] if some else ["full"]
    if "training.recompute" in fixed:
        again = [fixed["training.recompute"]]
    pieces = _micro_batches(degrees, batch)
    if "training.micro_batches" in fixed:
        pieces = [int(fixed["training.micro_batches"])]
    if degrees.pipeline > 1:
        for count in pieces:
            yield [[Variant(shard, recompute, count) for recompute in again] for shard in shards]
    else:
        yield [[Variant(shard, recompute, count) for count in pieces] for shard in shards for recompute in again]


def _micro_batches(degrees: Degrees, batch: int) -> list[int]:
    """All that divide the batch of a copy; of a pipeline powers of two, as many as it has stages at least, and not many times as many."""
    if degrees.pipeline == 1:
        return _divisors(batch)
    powers, stages = _powers(batch), degrees.pipeline
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
    """Say why a workload cannot be cut."""
    return (
        f"workload {load.name!r} has no layers, which this strategy cuts it by: measure them with `paceline calibrate --layers`, or take a "
        "workload that has them"
    )
