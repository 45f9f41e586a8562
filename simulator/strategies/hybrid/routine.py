"""The step of a rank of a pipeline stage as operations: the passes of its schedule, what it hands on, reduces and gathers.

A schedule is a list of passes for each stage; a stage begins them in this order, each as soon as what it needs has come. Dependencies: a
forward pass needs the activations of the stage before, a backward pass the gradients of the stage after and its own forward pass. A new
schedule also needs its bubble (:func:`bubble_of`) and the software that runs it (``_RUN_BY`` in hybrid.py).

Costs of passes are in parts.py. ``simulator.estimate`` bounds the same step from the same
:class:`StageCosts`, without these operations: change both together (tests/property/test_planning_hybrid_bounds.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple

from simulator.base.records import OWN, PEER, Place
from simulator.program.program import Operation, Routine
from simulator.program.schedule import Does as Collective
from simulator.strategies.holding import Sharing
from simulator.strategies.hybrid.groups import Among, Timing
from simulator.strategies.hybrid.parts import Part, Reduced
from simulator.strategies.setup import Bubble

if TYPE_CHECKING:
    from simulator.strategies.hybrid.hybrid import Hybrid

Schedule = Literal["1f1b", "gpipe", "interleaved", "zero-bubble", "pipedream"]
Does = Literal["forward", "backward", "weights"]


class Pass(NamedTuple):
    """One pass of a stage.

    Attributes
    ----------
    does
        forward; backward: the gradients of what it was given, and those of weights unless these are computed apart; weights: those.
    micro_batch
        Which, from 0 on.
    chunk
        Which of the stage's parts of the model.
    """

    does: Does
    micro_batch: int
    chunk: int = 0


@lru_cache(maxsize=256)
def passes(schedule: Schedule, stages: int, micro_batches: int, chunks: int = 1) -> tuple[tuple[Pass, ...], ...]:
    """The passes of a step of each stage, in their order; shape (stages, passes).

    Parameters
    ----------
    schedule
        gpipe: all forward passes, then all backward passes (Huang et al., NeurIPS 2019, section 2.3). 1f1b: as few forward passes as fill
        the pipeline, then one backward pass for each (PipeDream-Flush: Narayanan et al., ICML 2021, section 2.2). interleaved: so with
        several chunks a stage, in turns of :func:`turn_of` micro-batches (Narayanan et al., SC 2021, section 2.2.2).
        zero-bubble: backward passes are split, and gradients of weights fill idle time, with at most the activations that the first stage
        keeps with 1f1b (ZB-H1: Qi et al., ICLR 2024, section 2.1). pipedream: one forward and one backward pass a step, of an earlier step
        by as many as stages follow (Narayanan et al., SOSP 2019, section 3.2).
    stages, micro_batches, chunks
        How many.
    """
    return tuple(tuple(_ORDERS[schedule](stage, stages, micro_batches, chunks)) for stage in range(stages))


@lru_cache(maxsize=256)
def in_flight(schedule: Schedule, stages: int, micro_batches: int, chunks: int = 1) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Micro-batches whose activations a stage keeps of each of its chunks, at the moments of a step at which that may be most.

    Whatever the activations of each chunk take, together they take most at one of these. Arguments are those of :func:`passes`.

    Returns
    -------
    tuple of tuple of tuple
        Of each stage its moments, each with a number for each chunk; none of them has as many or fewer of every chunk than another.
    """
    return tuple(_kept_of(order, chunks) for order in passes(schedule, stages, micro_batches, chunks))


def _kept_of(order: Sequence[Pass], chunks: int) -> tuple[tuple[int, ...], ...]:
    last: Does = "weights" if any(each.does == "weights" for each in order) else "backward"
    now, seen = [0] * chunks, {(0,) * chunks}
    for each in order:
        now[each.chunk] += (each.does == "forward") - (each.does == last)
        seen.add(tuple(now))
    ranked = sorted(seen, key=lambda counts: (-sum(counts), counts))
    kept: list[tuple[int, ...]] = []
    for counts in ranked:  # one that has more in all comes before all that it covers
        if not any(all(mine <= other for mine, other in zip(counts, more, strict=True)) for more in kept):
            kept.append(counts)
    return tuple(kept)


def _gpipe(stage: int, stages: int, micro_batches: int, chunks: int) -> list[Pass]:  # noqa: ARG001
    backward = [Pass("backward", number) for number in reversed(range(micro_batches))]
    return [Pass("forward", number) for number in range(micro_batches)] + backward


def _one_by_one(stage: int, stages: int, micro_batches: int, chunks: int) -> list[Pass]:
    turn, count = turn_of(stages, micro_batches), micro_batches * chunks
    forward = [
        Pass("forward", number, chunk)
        for first in range(0, micro_batches, turn)
        for chunk in range(chunks)
        for number in range(first, min(first + turn, micro_batches))
    ]
    backward = [Pass("backward", number, chunks - 1 - chunk) for _, number, chunk in forward]
    ahead = min(stages - 1 - stage if chunks == 1 else 2 * (stages - 1 - stage) + (chunks - 1) * turn, count)
    turns = [each for pair in zip(forward[ahead:], backward, strict=False) for each in pair]
    return forward[:ahead] + turns + backward[count - ahead :]


def turn_of(stages: int, micro_batches: int) -> int:
    """Micro-batches that go through a chunk of each stage before the next chunk: as many as stages, or if a rest is less, the fewest more.

    Megatron-LM's ``microbatch_group_size_per_vp_stage``: it accepts no last turn of fewer than the stages, which would wait for them.
    Fewer micro-batches than stages, which PyTorch takes, are one turn.
    """
    fits = (turn for turn in range(stages, micro_batches) if not 0 < micro_batches % turn < stages)
    return next(fits, micro_batches)


def _pipedream(stage: int, stages: int, micro_batches: int, chunks: int) -> list[Pass]:  # noqa: ARG001
    return [Pass("forward", 0), Pass("backward", 0)]


def _zero_bubble(stage: int, stages: int, micro_batches: int, chunks: int) -> list[Pass]:  # noqa: ARG001
    """As 1f1b, but gradients of weights are put off: the further from the first stage, the longer, so that all keep as much."""
    ahead = min(stages - 1 - stage, micro_batches)
    order, weights = [Pass("forward", number) for number in range(ahead)], 0
    for number in range(micro_batches):
        drains = number >= micro_batches - ahead
        order += [] if drains else [Pass("forward", ahead + number)]
        order.append(Pass("backward", number))
        if drains or number >= stage:
            order.append(Pass("weights", weights))
            weights += 1
    return order + [Pass("weights", number) for number in range(weights, micro_batches)]


_ORDERS: dict[Schedule, Callable[[int, int, int, int], list[Pass]]] = {
    "1f1b": _one_by_one,
    "gpipe": _gpipe,
    "interleaved": _one_by_one,
    "zero-bubble": _zero_bubble,
    "pipedream": _pipedream,
}
"""The passes of one stage: of which stage, of how many, micro-batches, chunks."""


def idle_passes(stages: int, chunks: int, micro_batches: int) -> int:
    """Passes of a chunk, forward and backward, for which a stage waits in a step; in each turn but one for stages without a micro-batch."""
    return stages - 1 + (chunks - 1) * max(stages - micro_batches, 0)


def bubble_of(schedule: Schedule, stages: int, chunks: int, micro_batches: int, weights: float, *, cut_evenly: bool) -> Bubble:
    """Return what keeps the stages of a pipeline from computing.

    For (p - 1) / (v m + p - 1) of a step of p stages, m micro-batches and v chunks a stage (Narayanan et al., SC 2021, section
    2.2; :func:`idle_passes`); with gradients of weights computed apart F + B - W of each F + B + W is left (ZB-H1: Qi et al., ICLR 2024,
    table 2), and B where W is longer than F, in which case gradients of weights fill all that the forward passes leave; taken here with a
    backward pass B + W of two forward passes. Steps follow each other without a barrier: a stage begins the next one as soon as it has made
    its update. A pipeline that is not flushed has none.

    Parameters
    ----------
    schedule, stages, chunks, micro_batches
        Of the pipeline.
    weights
        Share of a backward pass that is the gradients of weights, where these are computed apart.
    cut_evenly
        Whether no cut of the layers is more even.
    """
    evener = 'strategy.stages = "balanced" moves layers from it to other stages'
    if cut_evenly:
        evener = "no other cut of these layers is more even: fewer stages or smaller layers would help"
    if schedule == "pipedream":
        return Bubble(0.0, "though it is never flushed", "stages of equal speed", evener)
    idle = idle_passes(stages, chunks, micro_batches) * 1.0
    if schedule == "zero-bubble":
        idle *= (2.0 * (1.0 - weights) + max(1.0 - 2.0 * weights, 0.0)) / 3.0
    go = f"{micro_batches} micro-batches go" if micro_batches > 1 else "1 micro-batch goes"
    more = ", interleaved chunks or a zero-bubble schedule" if schedule in ("1f1b", "gpipe") else ""
    because = f"as {go} through its {stages} stages ({schedule})"
    return Bubble(idle / (chunks * micro_batches + idle), because, f"more micro-batches{more}", evener)


# -- a stage --------------------------------------------------------------------------------

Shard = Literal["none", "optimizer", "gradients", "parameters"]

NEXT, PREVIOUS = 0, 1
"""Slots: the ranks of the stages after and before; also the channels of activations, which come from before, and of their gradients."""


class StageCosts(NamedTuple):
    """Parts of a stage's routine.

    Attributes
    ----------
    strategy
        Its degrees, schedule, and what copies share.
    order
        Its passes.
    parts, layers
        Of each chunk what it costs, as a whole and layer by layer.
    first, last
        Of each chunk, whether it is the first, or the last, of the whole model.
    reduced
        What is reduced as one, in the order in which it becomes ready.
    forward_s, backward_s
        Of the whole model's passes, of which operations are shares.
    apply
        Share of the model's update.
    dense, experts
        Who has, and who shares, the same of variables that all copies have, and of those of experts.
    timing
        How long collectives take that have the links to themselves.
    exchange_s
        Seconds of what a part exchanges amid a pass: part, and whether forward.
    overlap_cost
        Seconds that passes lose per second of simultaneous collectives of sharded parameters: transfers take multiprocessors, memory
        bandwidth and power from kernels.
    delay
        Steps by which its backward passes are behind its forward passes.
    """

    strategy: Hybrid
    order: Sequence[Pass]
    parts: Sequence[Part]
    layers: Sequence[Sequence[Part]]
    first: Sequence[bool]
    last: Sequence[bool]
    reduced: Sequence[Reduced]
    forward_s: float
    backward_s: float
    apply: float
    dense: Sharing
    experts: Sharing
    timing: Timing
    exchange_s: Callable[[Part, bool], float]
    overlap_cost: float
    delay: int

    @property
    def makes(self) -> Does:
        """The passes that make gradients of weights."""
        return "weights" if self.strategy.schedule == "zero-bubble" else "backward"

    def share_of(self, does: Does) -> float:
        """Of the backward pass, what passes of a kind do: gradients of weights, or the others, where these are computed apart."""
        if self.makes == "backward":
            return 1.0
        return self.strategy.weights_share if does == "weights" else 1.0 - self.strategy.weights_share

    @property
    def shares(self) -> bool:
        """Tell whether copies share anything."""
        return self.strategy.shard != "none" and self.dense.shards > 1

    @property
    def gathers(self) -> bool:
        """Tell whether copies share parameters, which they gather layer by layer."""
        return self.shares and self.strategy.shard == "parameters"

    @property
    def each_micro_batch(self) -> bool:
        """Tell whether gradients are reduced for each micro-batch, since nobody has room for the sum of all of them."""
        return self.shares and self.strategy.shard in ("gradients", "parameters") and not self.strategy.keeps

    @property
    def at_end(self) -> bool:
        """Tell whether gradients of several chunks are reduced when all passes of a step have ended (Megatron-LM without overlap)."""
        as_made = self.strategy.bucket_size_bytes is not None or self.each_micro_batch or self.gathers
        return len(self.parts) > 1 and not as_made

    @property
    def tied_bytes(self) -> float:
        """Gradients that are summed with those of another stage's copies of the same variables: of what a rank has of them.

        Stages of a pipeline that is never flushed have gradients of different batches, and sum nothing: to wait for each other in every
        step would flush it.
        """
        if self.strategy.schedule == "pipedream":
            return 0.0
        summed = 0.0
        for part in self.parts:
            for state, sharing in ((part.dense, self.dense), (part.experts, self.experts)):
                summed += state.tied_bytes / (sharing.shards if self.each_micro_batch else 1)
        return summed


def routine_of(stage: StageCosts, partitions: dict[Among, int]) -> Routine:
    """The operations of a step.

    Parameters
    ----------
    stage
        What they are made of.
    partitions
        Numbers of the partitions that are used, which it adds to.
    """
    return _Maker(stage, partitions).made()


class _Maker:
    def __init__(self, stage: StageCosts, partitions: dict[Among, int]) -> None:
        self._stage = stage
        self._partitions = partitions
        self._operations = [Operation(kind="gate", name="turn"), Operation(kind="gate", name="input", after=(0,))]
        self._tail: tuple[int, ...] = (1,)
        """Dependencies of the next pass."""
        self._used: dict[int, int] = {}
        self._named: dict[str, int] = {}
        self._computes: list[int] = []
        self._reduced: list[int] = []
        last: dict[int, int] = {}
        for number, each in enumerate(stage.order):
            if each.does != "forward":
                last[each.chunk] = number
        self._last_of_chunk = {number: chunk for chunk, number in last.items()}
        self._needed = list(self._needs()) if stage.gathers else []
        self._gathered: dict[int, list[int]] = {}
        self._moved: dict[bool, tuple[int, ...]] = {False: (), True: ()}
        """The last collective of variables that all copies have, and of those of experts."""

    def made(self) -> Routine:
        stage = self._stage
        for number, each in enumerate(stage.order):
            self._pass(each, ends=number in self._last_of_chunk)
        for bucket in stage.reduced if stage.at_end else ():
            self._reduce(bucket.dense_bytes, bucket.expert_bytes, ends=True)
        self._reduced += self._collective("tied", "all-reduce", stage.tied_bytes, (*self._tail, *self._reduced))
        updated = self._add(kind="compute", name="apply", after=(*self._tail, *self._reduced), apply=stage.apply)
        if stage.shares and not stage.gathers:
            self._gather(stage.parts, (updated,))
        return Routine(tuple(self._operations))

    # -- passes ----------------------------------------------------------------------

    def _pass(self, each: Pass, *, ends: bool) -> None:
        stage, part = self._stage, self._stage.parts[each.chunk]
        if each.does == "forward":
            if not stage.first[each.chunk]:
                self._receive("activations", each.micro_batch, NEXT, 0)
            self._forward(each)
            if not stage.last[each.chunk]:
                self._send("activations", each.micro_batch, NEXT, part.output_bytes, 0)
            return
        if each.does == "backward" and not stage.last[each.chunk]:
            self._receive("gradients", each.micro_batch, PREVIOUS, stage.delay)
        self._backward(each, ends=ends)
        if each.does == "backward" and not stage.first[each.chunk]:
            self._send("gradients", each.micro_batch, PREVIOUS, stage.layers[each.chunk][0].input_bytes, stage.delay)

    def _forward(self, each: Pass) -> None:
        stage, part = self._stage, self._stage.parts[each.chunk]
        if stage.gathers and self._needed[len(self._computes)] is not None:
            layers = [(layer, stage.overlap_cost * self._gather_s(layer)) for layer in stage.layers[each.chunk]]
        else:
            layers = [(part, 0.0)]
        for layer, lost_s in layers:
            self._compute("forward", each.micro_batch, forward=self._share(layer.forward_s + lost_s, stage.forward_s))
            self._exchange([layer], forward=True)

    def _backward(self, each: Pass, *, ends: bool) -> None:
        """A backward pass, or the part of it that is gradients of weights; of the last one of a chunk what is ready is reduced."""
        stage, part = self._stage, self._stage.parts[each.chunk]
        makes = each.does == stage.makes  # the gradients of weights
        share = stage.share_of(each.does)
        if stage.gathers:
            for layer in reversed(stage.layers[each.chunk]):
                beside_s = 0.0
                if self._needed[len(self._computes)] is not None:
                    beside_s += self._gather_s(layer)
                reduces = ends or (makes and stage.each_micro_batch)
                if reduces:
                    beside_s += self._shared_s("reduce-scatter", layer.dense.gradient_bytes, layer.experts.gradient_bytes)
                self._compute_back(each, [layer], share, stage.overlap_cost * beside_s)
                if reduces:
                    self._reduce(layer.dense.gradient_bytes, layer.experts.gradient_bytes, ends=ends)
        elif (ends and not stage.at_end) or (makes and stage.each_micro_batch):
            for bucket in stage.reduced:
                if bucket.chunk == each.chunk:
                    self._compute_back(each, bucket.layers, share)
                    self._reduce(bucket.dense_bytes, bucket.expert_bytes, ends=ends)
        else:
            self._compute_back(each, [part], share)

    def _gather_s(self, layer: Part) -> float:
        """Seconds of the collectives that gather the parameters of a layer."""
        return self._shared_s("all-gather", layer.dense.parameter_bytes, layer.experts.parameter_bytes)

    def _shared_s(self, does: Collective, dense_bytes: float, expert_bytes: float) -> float:
        stage = self._stage
        kinds: tuple[tuple[Among, Sharing, float], ...] = ("shard", stage.dense, dense_bytes), ("expert shard", stage.experts, expert_bytes)
        return math.fsum(stage.timing.seconds(among, does, size) for among, sharing, size in kinds if size and sharing.shards > 1)

    def _compute_back(self, each: Pass, layers: Sequence[Part], share: float, lost_s: float = 0.0) -> None:
        """A share of the backward pass of some layers; what these compute and exchange again is with the gradients of what they got."""
        stage, first = self._stage, each.does == "backward"
        forward = self._share(math.fsum(layer.again_s for layer in layers) if first else 0.0, stage.forward_s)
        backward = self._share(math.fsum(layer.backward_s for layer in layers) * share + lost_s, stage.backward_s)
        self._compute(each.does, each.micro_batch, forward=forward, backward=backward)
        if first:
            self._exchange(layers, forward=False)

    @staticmethod
    def _share(part_s: float, whole_s: float) -> float:
        return part_s / whole_s if whole_s else 0.0

    # -- operations ------------------------------------------------------------------

    def _add(self, **keys: object) -> int:
        self._operations.append(Operation(**keys))  # type: ignore[arg-type]
        return len(self._operations) - 1

    def _compute(self, name: str, number: int, *, forward: float = 0.0, backward: float = 0.0) -> None:
        self._gather_ahead()
        self._tail = (self._add(kind="compute", name=name, number=number, after=self._tail, forward=forward, backward=backward),)
        self._computes.append(self._tail[0])

    def _receive(self, name: str, number: int, channel: int, from_step: int) -> None:
        # asked for when the rank comes to it, so that what it stands still for is kept apart from what comes later
        self._tail = (self._add(kind="receive", name=name, number=number, after=self._tail, channel=channel, from_step=from_step),)

    def _send(self, name: str, number: int, slot: int, size_bytes: float, from_step: int) -> None:
        self._add(kind="send", name=name, number=number, after=self._tail, slot=slot, size_bytes=size_bytes, channel=slot,
                  source=Place("device", OWN), target=Place("device", PEER), departs=True, lands=True, from_step=from_step)  # fmt: skip

    def _exchange(self, parts: Sequence[Part], *, forward: bool) -> None:
        """The combined exchange of ranks that go through a pass of some layers together; the following work waits for it."""
        lasts_s = math.fsum(self._stage.exchange_s(part, forward) for part in parts)
        if lasts_s or self._stage.strategy.context > 1:  # a ring keeps its devices in step even where attention hides it
            size_bytes = math.fsum((part.forward if forward else part.backward).total_bytes for part in parts)
            self._tail = (self._timed("pass", "exchange", size_bytes, lasts_s, self._tail),)

    def _needs(self) -> Iterator[Part | None]:
        """Of each compute of the passes the layer whose parameters are gathered for it, if any."""
        stage, whole = self._stage, set()
        for each in stage.order:
            layers = stage.layers[each.chunk]
            if each.does != "forward":  # gradients of weights need none of them
                yield from reversed(layers) if each.does == "backward" and not stage.strategy.keeps else [None] * len(layers)
            elif stage.strategy.keeps and each.chunk in whole:
                yield None
            else:
                whole.add(each.chunk)
                yield from layers

    def _gather_ahead(self) -> None:
        """Before a compute, the parameters of the one that comes ``prefetch`` later, which go before what this one makes ready."""
        place, prefetch = len(self._computes), self._stage.strategy.prefetch
        after = self._computes[-1:] or [1]
        for at in range(place + prefetch if place else 0, place + prefetch + 1):
            layer = self._needed[at] if at < len(self._needed) else None
            if layer is not None:
                self._gathered[at] = self._gather([layer], tuple(after))
        self._tail = (*self._tail, *self._gathered.pop(place, ()))

    def _gather(self, parts: Sequence[Part], after: tuple[int, ...]) -> list[int]:
        """Parameters of which copies have a share each: those that all have, then those of experts."""
        stage = self._stage
        gathered: list[int] = []
        dense_bytes = math.fsum(part.dense.parameter_bytes for part in parts)
        expert_bytes = math.fsum(part.experts.parameter_bytes for part in parts)
        if stage.dense.shards > 1:
            gathered += self._in_turn("shard", "all-gather", dense_bytes, after, experts=False)
        if stage.experts.shards > 1:
            gathered += self._in_turn("expert shard", "all-gather", expert_bytes, tuple(gathered) or after, experts=True)
        return gathered

    def _reduce(self, dense_bytes: float, expert_bytes: float, *, ends: bool) -> None:
        """Gradients that the pass has made ready, among copies that have the same: those that all have, then those of experts.

        Whoever has room for all of them reduces what the last pass, which ``ends`` the step's, has added to.
        """
        stage, after = self._stage, self._tail
        kinds: tuple[tuple[Among, Among, Sharing, float], ...] = (
            ("data", "shard", stage.dense, dense_bytes),
            ("alike", "expert shard", stage.experts, expert_bytes),
        )
        for whole, part, sharing, size_bytes in kinds:
            experts = whole == "alike"
            if sharing.copies == 1:
                continue
            if not stage.shares or sharing.shards == 1:
                done = self._in_turn(whole, "all-reduce", size_bytes, after, experts=experts) if ends else []
            else:
                done = self._in_turn(part, "reduce-scatter", size_bytes, after, experts=experts)
                if sharing.shards < sharing.copies:
                    done += self._collective("across", "all-reduce", size_bytes / sharing.shards, tuple(done))
            self._reduced += done
            after = tuple(done) or after

    def _in_turn(self, among: Among, does: Collective, size_bytes: float, after: tuple[int, ...], *, experts: bool) -> list[int]:
        """A collective after the last one of the other kind, as experts' and all others use the same links; it lasts as if alone."""
        done = self._collective(among, does, size_bytes, tuple(dict.fromkeys((*after, *self._moved[not experts]))))
        self._moved[experts] = tuple(done) or self._moved[experts]
        return done

    def _collective(self, among: Among, does: Collective, size_bytes: float, after: tuple[int, ...]) -> list[int]:
        """A collective, unless there is nothing to do."""
        if not size_bytes:
            return []
        lasts_s, moves_s = (of(among, does, size_bytes) for of in (self._stage.timing.seconds, self._stage.timing.moves_s))
        return [self._timed(among, does, size_bytes, lasts_s, after, does, moves_s)]

    def _timed(
        self,
        among: Among,
        name: str,
        size_bytes: float,
        lasts_s: float,
        after: tuple[int, ...],
        does: Collective = "all-reduce",
        moves_s: float = 0.0,
    ) -> int:
        partition = self._partitions.setdefault(among, len(self._partitions))
        bucket = self._used.get(partition, 0)
        self._used[partition] = bucket + 1
        number = self._named.get(name, 0)
        self._named[name] = number + 1
        return self._add(kind="collective", name=name, number=number, after=after, size_bytes=size_bytes, does=does, partition=partition,
                         bucket=bucket, lasts_s=lasts_s, moves_s=moves_s, departs=True, lands=True)  # fmt: skip
