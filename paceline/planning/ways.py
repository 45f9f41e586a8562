"""The ways of training that a plan tries for a model with layers, and the rules that keep them few.

The choice of degrees follows Narayanan et al. (SC 2021, section 3): tensors are split among devices of one node, whose links are fast
(takeaway 1), stages are placed over nodes, and the rest are copies. Memory savings that cost time are used only as needed: first without
recomputation and sharding, then, if that does not fit, with the next option.
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

Way = Literal["data parallel", "pipeline", "tensor", "context", "expert", "sharded", "hybrid"]
WAYS: tuple[Way, ...] = get_args(Way)
"""Ways of training; a combination of several is a hybrid."""

NAMES: tuple[str, ...] = tuple(name for name, keys in SHORT_NAMES.items() if kind_of(keys).cuts_batches)
"""Short names that cover several degrees."""

NOT_CUT = frozenset({"zero1", "zero2"})
"""Those of them that need no layers."""

_MOST_MICRO_BATCHES = 16
"""Most micro-batches per stage, with which a pipeline is full for 94% of its time."""
_CHUNKS = (2, 4)
_SHARDS: Mapping[str, tuple[str, ...]] = {"zero1": ("optimizer",), "zero2": ("gradients",), "fsdp": ("parameters",)}
_CHOSEN = (
    *(f"strategy.{key}" for key in ("pipeline", "tensor", "expert", "schedule", "chunks", "shard")),
    *(f"training.{key}" for key in ("micro_batches", "recompute")),
)
"""Keys that are searched unless they are set."""

Fixed = Mapping[str, Any]
"""Set values, which are not searched, by dotted key."""


def way_of(strategy: Strategy) -> Way:
    """Return the way of training of a strategy."""
    if len(strategy.cuts) > 1:
        return "hybrid"
    return next(way for way in WAYS if way in strategy.cuts) if strategy.cuts else "data parallel"


def fixed_of(table: Mapping[str, Any], keys: Iterable[str]) -> Fixed:
    """Return values of a scenario's tables for searched keys that settings fix in ``keys``."""
    return {key: value for key in keys if key in _CHOSEN and (value := at(table, key)) is not None}


def uncut(table: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """Return a scenario's tables without searched values, except for these keys, so that the model starts uncut."""
    dropped = {*_CHOSEN, "strategy.stages"} - set(keys)
    sections = {name: table.get(name, {}) for name in ("strategy", "training")}
    return {
        **table,
        **{name: {key: own[key] for key in own if f"{name}.{key}" not in dropped} for name, own in sections.items()},
    }


class Degrees(NamedTuple):
    """Degrees of a cut model and its schedule; the remaining devices hold copies."""

    pipeline: int = 1
    tensor: int = 1
    expert: int = 1
    schedule: str = "1f1b"
    chunks: int = 1
    context: int = 1

    @property
    def devices(self) -> int:
        """Devices of one copy."""
        return self.pipeline * self.tensor * self.context


class Variant(NamedTuple):
    """Memory savings of a configuration that cost time, and its micro-batches."""

    shard: str = "none"
    recompute: str = "none"
    micro_batches: int = 1


def degrees_of(name: str, load: Workload, devices_per_node: int, fixed: Fixed) -> list[Degrees]:
    """Return the degrees and schedules that a short name covers.

    Numbers of stages are powers of two, and divisors of the most frequent layer's count, which make equal stages. Tensors are split among
    numbers of devices that divide a node; experts are spread over powers of two that divide those of each layer.

    Parameters
    ----------
    name
        pipeline: two stages or more, nothing else. tensor: likewise. zero1, zero2, fsdp: no cut. hybrid: all combinations, with experts
        spread.
    load
        The workload; cuts need layers.
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
    """Return pipeline schedules that flush, each with its chunks; gpipe only if it is set, since it needs more memory than 1f1b."""
    if "strategy.schedule" in fixed or "strategy.chunks" in fixed:
        chunks = int(fixed.get("strategy.chunks", 1))
        schedule = fixed.get("strategy.schedule", "interleaved" if chunks > 1 else "1f1b")
        return [(schedule, each) for each in ((chunks,) if schedule != "interleaved" or chunks > 1 else _CHUNKS)]
    if pipeline == 1:
        return [("1f1b", 1)]
    interleaved = [("interleaved", chunks) for chunks in _CHUNKS if pipeline * chunks <= layers]
    return [("1f1b", 1), *interleaved, ("zero-bubble", 1)]


class Tried(NamedTuple):
    """A configuration as requested and resolved, or ``None`` and the reason why it is impossible."""

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
        The rest of the scenarios, under this name.
    workload
        Workload with the batch per device (weak scaling: a copy on k devices takes k times as much), or with the global batch (strong
        scaling).
    device_batch
        Samples per device; None if the global batch is fixed.
    fixed
        Set values.
    where
        Prefix of messages.
    """

    def __init__(self, name: str, template: Scenario, workload: Workload, device_batch: Fraction | None, fixed: Fixed, where: str) -> None:
        self._name, self._template, self._load, self._where = name, template, workload, where
        self._own, self._device_batch, self._fixed = cast(Hybrid, template.strategy), device_batch, fixed
        self._device = device_of(template)
        self._strategy, self._with_batch = cache(self._cut), cache(self._taking)  # which what is known of them is kept beside
        every = degrees_of(name, workload, template.cluster.devices_per_node, fixed)
        self._degrees = [degrees._replace(context=self._own.context) for degrees in every]

    def tried(self, workers: int) -> Iterator[Tried]:
        """Return every configuration with this many devices."""
        for degrees in self._degrees:
            copies, left = divmod(workers, degrees.devices)
            if left or (self._own.expert_tensor is None and copies * degrees.context % degrees.expert):
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
        """Return the first of each row that fits, while it gives up less than earlier ones."""
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
    """Yield the choices to try for some degrees, which are compared by their times.

    Parameters
    ----------
    batch
        Samples of a copy.

    Yields
    ------
    list of list of Variant
        Rows. The first variant that fits is used from each, in order, until one gives up nothing. For a pipeline a choice is a number of
        micro-batches, and a row a level of sharding, in which recomputation grows. Otherwise micro-batches save memory and only cost time,
        so they grow within a row.
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
    """Return numbers of micro-batches that divide the batch of a copy; for a pipeline powers of two, from its stages to a multiple."""
    if degrees.pipeline == 1:
        return _divisors(batch)
    powers, stages = _powers(batch), degrees.pipeline
    counts = [count for count in powers if stages <= count <= _MOST_MICRO_BATCHES * stages] or powers[-1:]
    return [count for count in counts if count >= stages] if degrees.schedule == "interleaved" else counts


def _divisors(number: int) -> list[int]:
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]


def _powers(number: int) -> list[int]:
    """Yield powers of two that divide a number."""
    return [1 << power for power in range(number.bit_length()) if number % (1 << power) == 0]


def trained_in_words(training: Training) -> str:
    """Return micro-batches and recomputation in words; empty if there is neither."""
    texts = [f"{training.micro_batches:,} micro-batches"] if training.micro_batches > 1 else []
    texts += [f"{training.recompute} recomputation"] if training.recompute != "none" else []
    return ", ".join(texts)


def without_layers(load: Workload) -> str:
    """Return the reason why a workload cannot be cut."""
    return (
        f"workload {load.name!r} has no layers, which this strategy needs: measure them with `paceline calibrate --layers`, or use a "
        "workload with layers"
    )
