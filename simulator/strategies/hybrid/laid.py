"""How copies of a model lie on devices by a hybrid's degrees: who holds which part, what that costs, what ranks do and exchange.

Exchanges are read from the routines that are simulated. ``_AMONG`` maps kinds of groups (``Among`` of groups.py) to the names
that ``simulator.spec.figures.Exchange`` allows and ``simulator.results.bottleneck`` words: change these together.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from simulator.base.rng import Streams
from simulator.program.program import Integers, Operation, Program, Routine, Rules
from simulator.program.schedule import Does
from simulator.program.wiring import Wiring
from simulator.spec.cluster import Cluster
from simulator.spec.distributions import Constant, Empirical
from simulator.spec.figures import Exchange
from simulator.spec.gradients import buckets
from simulator.strategies.assembling import assembled
from simulator.strategies.holding import Held, Model, Values, fused, layers_of, values_of
from simulator.strategies.hybrid.groups import Among, Grid, Timing, shared_links, tensor_groups
from simulator.strategies.hybrid.parts import Cut, Part, Reduced, Work, cut, gradient_bytes, updated_bytes
from simulator.strategies.hybrid.routine import StageCosts, bubble_of, in_flight, passes, routine_of
from simulator.strategies.setup import Bubble, InCommon, ModelParallel, Setup, StageOf

if TYPE_CHECKING:
    from simulator.strategies.hybrid.hybrid import Hybrid

T = TypeVar("T")

Timed = tuple[int, ...]
"""Groups whose collectives are timed: the sizes of all that tell them from others."""

_AMONG = {
    "data": "copies",
    "shard": "shards",
    "across": "alike shards",
    "experts": "experts",
    "alike": "alike experts",
    "expert shard": "shards of experts",
    "tied": "tied stages",
}


class Laid(ModelParallel):
    """A hybrid on the devices of a setup, in which devices that split tensors are one rank (but for :meth:`copies`)."""

    def __init__(self, strategy: Hybrid, setup: Setup) -> None:
        super().__init__(setup)
        self._strategy = strategy

    # -- where the model is cut, and who holds what ---------------------------------------

    @cached_property
    def _work(self) -> Work:
        strategy, setup = self._strategy, self._setup
        samples = setup.batch / setup.training.micro_batches / strategy.context
        return Work(setup.workload, samples, setup.training.recompute, strategy.tokens.mean(), strategy.host_factor)

    @cached_property
    def _values(self) -> Values:
        return values_of(self._setup.workload, self._strategy.reduce_precision)

    def cut_at(self, how: Cut | Sequence[int]) -> tuple[int, ...]:
        """One past the last layer of each chunk of the model."""
        strategy, times = self._strategy, []
        if how == "balanced":
            whole = Held(tensor=strategy.tensor, sequence=strategy.sequence_parallel, on_host=frozenset(strategy.on_host))
            times = self._work.seconds(whole)
        return cut(self._setup.workload, strategy.pipeline * strategy.chunks, how, times)

    @cached_property
    def ends(self) -> tuple[int, ...]:
        """The same as in the strategy."""
        return self.cut_at(self._strategy.stages)

    @cached_property
    def _tied(self) -> tuple[frozenset[int], tuple[int, ...]]:
        """Variables of which several stages have a copy, since layers of each use them, and those stages."""
        layers, pipeline = self._setup.workload.layers, self._strategy.pipeline
        if pipeline == 1 or not any(layer.tied for layer in layers):
            return frozenset(), ()
        users: dict[int, set[int]] = {number: set() for layer in layers for number in layer.tied}
        for place, layer in enumerate(layers):
            for number in {*layer.variables, *layer.tied} & users.keys():
                users[number].add(bisect_right(self.ends, place) % pipeline)
        several = {number: stages for number, stages in users.items() if len(stages) > 1}
        return frozenset(several), tuple(sorted(set().union(*several.values())))

    def _copied(self) -> frozenset[tuple[int, int]]:
        """Layers that have their stage's copy of a variable that another stage has itself, each with that."""
        layers, tied = self._setup.workload.layers, self._tied[0]
        stage_of = [bisect_right(self.ends, place) % self._strategy.pipeline for place in range(len(layers))] if tied else []
        had = {(stage, number) for stage, layer in zip(stage_of, layers, strict=False) for number in layer.variables}
        copied = set()
        for place, stage in enumerate(stage_of):
            for number in tied & set(layers[place].tied):
                if (stage, number) not in had:
                    had.add((stage, number))
                    copied.add((place, number))
        return frozenset(copied)

    @cached_property
    def chunks(self) -> list[Held]:
        """Return what devices hold of each part of the model, in the model's order, but for activations."""
        strategy, load, copies, values = self._strategy, self._setup.workload, self._copies, self._values
        shards = (strategy.shard_group or copies) if strategy.shard != "none" else 1
        gradient_shards = shards if strategy.shard in ("gradients", "parameters") and not strategy.keeps else 1
        whole = Held(
            tensor=strategy.tensor,
            sequence=strategy.sequence_parallel,
            context=strategy.context,
            expert=strategy.expert,
            expert_tensor=strategy.expert_tensor,
            copies=copies,
            parameter_shards=shards if strategy.shard == "parameters" else 1,
            gradient_shards=gradient_shards,
            slot_shards=shards,
            gathers=strategy.shard == "parameters",
            gathered=None if strategy.keeps else 1 + strategy.prefetch,
            reduced=values.reduced,
            short_gradients=values.masters > 0 and strategy.shard != "parameters" and (values.reduced < 1 or gradient_shards > 1),
            fused=0.0 if strategy.shard == "parameters" else strategy.bucket_size_bytes,
            tied=self._tied[0],
            copied=self._copied(),
            on_host=frozenset(strategy.on_host),
        )
        if not load.layers:
            return [whole]
        return [whole._replace(first=first, last=last) for first, last in zip((0, *self.ends), self.ends, strict=False)]

    def held(self) -> tuple[tuple[Held, ...], ...]:
        """Chunks of each stage, with the maximum of kept activations."""
        strategy, chunks = self._strategy, self.chunks
        kept = in_flight(strategy.schedule, strategy.pipeline, self._setup.training.micro_batches, strategy.chunks)
        return tuple(
            tuple(
                chunk._replace(in_flight=tuple(count + delay for count in counts), versions=1 + delay)
                for chunk, counts in zip(self._of_stage(chunks, stage), zip(*moments, strict=True), strict=True)
            )
            for stage, (moments, delay) in enumerate(zip(kept, strategy.delays, strict=True))
        )

    def _of_stage(self, of_chunks: Sequence[T], stage: int) -> Sequence[T]:
        """Of what there is for each chunk, that of a stage's; all of a workload without layers."""
        return of_chunks[stage :: self._strategy.pipeline] if self._setup.workload.layers else of_chunks

    # -- what the parts cost ----------------------------------------------------------------

    @cached_property
    def parts(self) -> list[Part]:
        """Of the whole model, in order."""
        strategy, last = self._strategy, len(self.chunks) - 1
        turns = self._setup.training.micro_batches * strategy.chunks + strategy.pipeline - 1
        parts = [self._work.part(chunk, self._values, self._setup.batch) for chunk in self.chunks]
        return [
            self._work.launching(part, chunk, (place > 0) + (place < last), turns)
            for place, (part, chunk) in enumerate(zip(parts, self.chunks, strict=True))
        ]

    def _each_layer(self, work: Work) -> list[Part]:
        """Each layer of the model separately."""
        layers = [chunk._replace(first=at, last=at + 1) for chunk in self.chunks for at in range(chunk.first, chunk.last or 0)]
        return [work.part(layer, self._values, self._setup.batch) for layer in layers]

    @cached_property
    def _layers(self) -> list[Part]:
        return self._each_layer(self._work)

    def _layers_of(self, part: Part) -> list[Part]:
        return self._layers[part.first : part.last] if self._setup.workload.layers else [part]

    def _reduced(self, chunk: int, part: Part) -> list[Reduced]:
        """Return what of a part's gradients is reduced as one, in the order in which it becomes ready."""
        setup, size_bytes = self._setup, self._strategy.bucket_size_bytes
        whole = [Reduced(chunk, [part], part.dense.gradient_bytes, part.experts.gradient_bytes)]
        if size_bytes is None:
            return whole
        if not setup.workload.layers:
            filled = buckets(setup.workload, setup.batch, size_bytes / self._values.reduced, setup.layout.replicas)
            shares = np.diff([ready for ready, _ in filled], prepend=0.0).tolist()
            pieces = [part._replace(backward_s=part.backward_s * share, again_s=part.again_s * share) for share in shares]
            sizes = [each_bytes * self._values.reduced for _, each_bytes in filled]
            return [Reduced(chunk, [piece], each_bytes, 0.0) for piece, each_bytes in zip(pieces, sizes, strict=True)]
        layers = self._layers_of(part)
        of_device = [(layer.dense.gradient_bytes + layer.experts.gradient_bytes) / self._strategy.tensor for layer in layers]
        several = [[layers[number] for number in numbers] for numbers in fused(of_device, size_bytes)]
        reduced = [Reduced(chunk, some, *(math.fsum(sizes) for sizes in zip(*map(_gradients, some), strict=True))) for some in several]
        return reduced if len(reduced) > 1 else whole

    def _applied(self, parts: Sequence[Part]) -> float:
        """Share of the whole model's update that a device makes: of what it has, and does not leave to those that share it."""
        model, batch = Model(self._setup.workload), self._setup.batch
        first = {part.first for part in parts}
        mine = math.fsum(size for chunk in self.chunks if chunk.first in first for size in updated_bytes(model, chunk, batch))
        return mine / gradient_bytes(model, batch)

    def in_common(self) -> InCommon | None:
        """Tokens of the busiest device: one draw for each layer with experts and each step, of all copies that its experts lie on."""
        distribution, setup = self._strategy.tokens, self._setup
        if isinstance(distribution, Constant) or (isinstance(distribution, Empirical) and len(set(distribution.values)) == 1):
            return None
        # seconds of each layer's passes that grow with the tokens of the busiest device
        none = self._each_layer(self._work._replace(tokens=0.0))
        experts_s = [layer.passes_s - without.passes_s for layer, without in zip(self._layers, none, strict=True)]
        if not any(experts_s):
            return None
        grid, ranks = self._strategy.grid(setup.layout), setup.layout.ranks
        group, share = np.full(ranks, -1, dtype=np.int64), np.zeros(ranks)
        weights: list[tuple[float, ...]] = []
        for stage, groups in enumerate(grid.groups("experts")):
            parts = self._of_stage(self.parts, stage)
            layers_s = [layer_s for part in parts for layer_s in experts_s[part.first : part.last]]
            varying_s = math.fsum(layers_s)
            if not varying_s:
                continue
            count = setup.training.micro_batches
            step_s = count * math.fsum(part.passes_s for part in parts) + self._applied(parts) * setup.workload.apply_s
            for members in groups:
                group[members], share[members] = len(weights), count * varying_s / step_s
                weights.append(tuple(layer_s / varying_s for layer_s in layers_s if layer_s))
        return InCommon(distribution, tuple(weights), group, share)

    def costs(self, streams: Streams, timed: dict[Timed, Timing] | None = None) -> list[StageCosts]:
        """Return what each stage's step is made of; arguments are those of :meth:`simulator.strategies.hybrid.hybrid.Hybrid.costs`."""
        strategy, setup, load = self._strategy, self._setup, self._setup.workload
        timing, ours = self._timings(streams, {} if timed is None else timed)
        whole = self._whole_cluster
        # those that split tensors wait for what they exchange, and compute nothing meanwhile
        alone, split = whole.model_copy(update={"intra_node": whole.intra_node.alone}), self.chunks[0].experts_split
        inner = timing((), alone, "ring", partial(tensor_groups, whole))
        turns = strategy.tensor, strategy.pipeline, self._copies, strategy.context
        ring = timing(turns, setup.cluster, "ring", self._grid.partition)
        between = {part.first for part in self.parts[1:]}

        @cache  # of parts that every micro-batch goes through
        def exchange_s(part: Part, forward: bool) -> float:
            """Exchanges of a pass of a part; what another stage hands it comes in pieces, one to each of those that split tensors."""
            exchanged = part.forward if forward else part.backward
            kinds: tuple[Does, ...] = ("reduce-scatter", "all-gather") if strategy.sequence_parallel else ("all-reduce",)
            total = math.fsum(inner.seconds(strategy.tensor, does, size, beside=True) for size in exchanged.tensor for does in kinds)
            total += math.fsum(inner.seconds(split, does, size, beside=True) for size in exchanged.split for does in kinds)
            total += math.fsum(ours.seconds("experts", "all-to-all", size, beside=True) for size in exchanged.tokens)
            for each in exchanged.attended:
                once_s = ring.seconds("context", "all-gather", each.size_bytes * strategy.tensor, beside=True)
                total += max(each.times * once_s - each.hidden_s, 0.0)
            if (link := whole.host_link) is not None:
                total += exchanged.host_s + math.fsum(size / link.bandwidth_bytes_per_s + link.latency_s for size in exchanged.copied)
            if strategy.tensor > 1 and not strategy.sequence_parallel and (part.first if forward else part.last) in between:
                handed_bytes = part.input_bytes if forward else part.output_bytes
                total += inner.seconds(strategy.tensor, "all-gather", handed_bytes, beside=True)
            return total

        sharing = self.chunks[0].sharing
        stages = []
        for stage, order in enumerate(passes(strategy.schedule, strategy.pipeline, setup.training.micro_batches, strategy.chunks)):
            parts = self._of_stage(self.parts, stage)
            stages.append(
                StageCosts(
                    strategy=strategy,
                    order=order,
                    parts=parts,
                    layers=[self._layers_of(part) for part in parts],
                    first=[part is self.parts[0] for part in parts],
                    last=[part is self.parts[-1] for part in parts],
                    reduced=[reduced for chunk, part in enumerate(parts) for reduced in self._reduced(chunk, part)],
                    forward_s=load.forward(setup.batch),
                    backward_s=load.backward(setup.batch),
                    apply=self._applied(parts),
                    dense=sharing(self.chunks[0].slot_shards),
                    experts=sharing(self.chunks[0].slot_shards, experts=True),
                    timing=ours,
                    exchange_s=exchange_s,
                    overlap_cost=setup.cluster.overlap_cost,
                    delay=strategy.delays[stage],
                )
            )
        return stages

    def _timings(self, streams: Streams, timed: dict[Timed, Timing]) -> tuple[Callable[..., Timing], Timing]:
        """What makes timings, or finds those of the same groups, and that of collectives of ranks."""
        strategy, copies, whole = self._strategy, self._copies, self._whole_cluster
        shard, split = strategy.shard_group or copies, self.chunks[0].experts_split

        def timing(
            groups: Timed, where: Cluster, algorithm: str, partition: Callable[[Any], Sequence[Integers]], *of_experts: Timing
        ) -> Timing:
            devices = (of_experts[0], strategy.tensor) if of_experts else None
            made = Timing(where, streams, algorithm, strategy.protocol, strategy.pipeline_chunk_bytes, partition, devices)
            return timed.setdefault(groups, made)

        degrees = strategy.tensor, strategy.pipeline, copies, shard, strategy.expert, strategy.context, split
        of_experts = []
        if split != strategy.tensor:
            of_experts.append(timing((*degrees, -1), whole, strategy.algorithm, strategy.device_grid(self._setup.layout).partition))
        cluster, tied = self._setup.cluster, self._tied[1]
        return timing, timing((*degrees, *tied), cluster, strategy.algorithm, self._grid.partition, *of_experts)

    # -- what ranks do ----------------------------------------------------------------------

    @property
    def _copies(self) -> int:
        """Copies of a stage: of each copy of the model, all that split its sequences have one."""
        return self._setup.layout.replicas * self._strategy.context

    @property
    def _grid(self) -> Grid:
        """How ranks are laid out, and which stages have copies of the same variables."""
        return self._strategy.grid(self._setup.layout, self._tied[1])

    @property
    def _whole_cluster(self) -> Cluster:
        """That whose devices split tensors."""
        return self._strategy.apart_on or self._setup.cluster

    def _routines(self, streams: Streams) -> tuple[tuple[Routine, ...], dict[Among, int]]:
        """Of each stage, and the number of each partition that is used."""
        partitions: dict[Among, int] = {}
        return tuple(routine_of(stage, partitions) for stage in self.costs(streams)), partitions

    def program(self, streams: Streams) -> Program:
        """Each stage its routine."""
        setup, layout, grid = self._setup, self._setup.layout, self._grid
        wiring = Wiring(setup.cluster, streams)
        routines, partitions = self._routines(streams)
        stage_of = np.empty(layout.ranks, dtype=np.int64)
        stage_of[grid.rank] = np.arange(len(grid.rank))[:, None]
        path = peer = None
        if len(grid.rank) > 1:
            peer = np.empty((layout.ranks, 2), dtype=np.int64)
            peer[grid.rank] = np.stack([np.roll(grid.rank, -1, axis=0), np.roll(grid.rank, 1, axis=0)], axis=-1)
            path = np.stack([wiring.between_replicas(np.arange(layout.ranks), to) for to in peer.T], axis=1)
        groups = [(number, ranks, among) for among, number in partitions.items() for ranks in grid.partition(among)]
        kinds = [(int(stage_of[ranks[0]]), among) for _, ranks, among in groups]
        shared = shared_links(Wiring(setup.cluster, streams), [ranks for _, ranks, _ in groups], kinds)
        over = np.full(len(groups), -1)
        if numbers := [number for number, links in enumerate(shared) if links]:
            over[numbers] = wiring.on_shared_links([shared[number] for number in numbers])
        word = "device" if self._strategy.apart_on is None else "devices"
        alone, own_seat = layout.ranks == 1, np.broadcast_to(np.int64(-1), layout.ranks)  # alone: nothing to communicate beside its passes
        slowdown, copies, rules = 0.0 if alone else None, self.copies(), Rules(steps_each=setup.run.steps)
        return replace(
            assembled(setup, wiring, word, routines, rules, own_seat, path, peer, slowdown=slowdown, routine_of=stage_of, copy_of=copies),
            groups=tuple(ranks for _, ranks, _ in groups),
            partition=tuple(number for number, _, _ in groups),
            over=tuple(over.tolist()) if (over >= 0).any() else (),
        )

    # -- what results say of it ---------------------------------------------------------------

    @property
    def in_words(self) -> str:
        """Degrees, and who shares the state."""
        strategy, copies = self._strategy, self._setup.layout.replicas
        text = f"data {copies} x pipeline {strategy.pipeline} x tensor {strategy.tensor}"
        text += f" x context {strategy.context}" if strategy.context > 1 else ""
        over = strategy.expert * (strategy.expert_tensor or 1)
        text += f", with experts on {over} devices" if strategy.expert > 1 else ""
        shards = strategy.shard_group or self._copies
        return text + (f" and {strategy.shard} sharded over {shards} copies" if strategy.shard != "none" else "")

    @property
    def stages(self) -> tuple[StageOf, ...]:
        """Where there are several: their layers."""
        strategy, load = self._strategy, self._setup.workload
        devices = self._copies * strategy.tensor
        stages = []
        for stage, delay in enumerate(strategy.delays if strategy.pipeline > 1 else ()):
            chunks = self.chunks[stage :: strategy.pipeline]
            layers = [load.layers[chunk.first : chunk.last] for chunk in chunks]
            named = [some[0].name if len(some) == 1 else f"{some[0].name} to {some[-1].name}" for some in layers]
            owned = [each for chunk in chunks for layer in layers_of(load, chunk) for each in layer if not each.frozen]
            had = {each.variable.creation_index: each.variable for each in owned}
            parameter_bytes = math.fsum(float(had[number].size_bytes) for number in sorted(had))
            stages.append(StageOf(", ".join(named), sum(map(len, layers)), devices, parameter_bytes, delay))
        return tuple(stages)

    @property
    def bubble(self) -> Bubble | None:
        """By the schedule."""
        strategy, micro_batches = self._strategy, self._setup.training.micro_batches
        if strategy.pipeline == 1:
            return None
        cut_evenly = self.ends == self.cut_at("balanced")
        return bubble_of(
            strategy.schedule, strategy.pipeline, strategy.chunks, micro_batches, strategy.weights_share, cut_evenly=cut_evenly
        )

    def copies(self) -> NDArray[np.int64]:
        """Devices that split tensors sit next to each other, taken together or not."""
        layout = self._setup.layout
        rank = self._strategy.grid(layout).rank
        copy_of = np.empty(rank.size, dtype=np.int64)
        copy_of[rank] = np.arange(rank.shape[1]) // self._strategy.context
        return np.repeat(copy_of, layout.ranks // rank.size)

    def name_of_rank(self, rank: int) -> str:
        """Its stage and copy."""
        strategy, (stage, column) = self._strategy, self._place_of(rank)
        copy, part = divmod(column, strategy.context)
        of_copy = "" if self._setup.layout.replicas == 1 else f" of copy {copy}"
        name = f"copy {copy}" if strategy.pipeline == 1 else f"stage {stage}{of_copy}"
        return name if strategy.context == 1 else f"{name}, sequence part {part}"

    def ranks_beside(self, rank: int) -> Sequence[int]:
        """The stages of its copy."""
        if self._strategy.pipeline == 1:
            return ()
        ranks: list[int] = self._strategy.grid(self._setup.layout).rank[:, self._place_of(rank)[1]].tolist()
        return ranks

    def _place_of(self, rank: int) -> tuple[int, int]:
        """The stage of a rank, and its place among the copies of that."""
        if self._strategy.order == "data":
            return divmod(rank, self._copies)
        pipeline, context = self._strategy.pipeline, self._strategy.context
        copy, rest = divmod(rank, pipeline * context)
        return rest // context, copy * context + rest % context

    def exchanges(self, streams: Streams) -> tuple[Exchange, ...]:
        """Return what each kind of exchange comes to in a step, for the stage for which it takes longest; in the order of a step."""
        _, timing = self._timings(streams, {})
        routines, partitions = self._routines(streams)
        among_of = {number: among for among, number in partitions.items()}
        longest: dict[tuple[str, str], Exchange] = {}
        for stage, routine in enumerate(routines):
            alike: dict[tuple[Among | None, str], list[Operation]] = {}
            for operation in routine.operations:
                if operation.kind == "collective":
                    alike.setdefault((among_of[operation.partition], operation.does), []).append(operation)
                elif operation.kind == "send":
                    alike.setdefault((None, operation.name), []).append(operation)
            for (among, does), operations in alike.items():
                exchange = self._sent(operations, stage) if among is None else self._met(operations, among, stage, timing)
                key = exchange.among, does
                if key not in longest or exchange.seconds > longest[key].seconds:
                    longest[key] = exchange
        return tuple(longest.values())

    def _sent(self, operations: Sequence[Operation], stage: int) -> Exchange:
        """Return what a stage hands to the one before or after."""
        ranks, cluster = self._grid.rank, self._setup.cluster
        to = ranks[(stage + (1 if operations[0].slot == 0 else -1)) % len(ranks)]
        per_node = cluster.replicas_per_node
        crosses = bool((ranks[stage] // per_node != to // per_node).any())
        link = cluster.inter_node if crosses else cluster.intra_node
        size_bytes = math.fsum(operation.size_bytes for operation in operations)  # of all that split tensors together, as are the links
        return Exchange(
            among="stages",
            does=operations[0].name,
            devices=2,
            links="between nodes" if crosses else "in a node",
            stage=stage,
            times=len(operations),
            size_bytes=size_bytes / self._strategy.tensor,
            seconds=len(operations) * link.latency_s + size_bytes / link.bandwidth_bytes_per_s,
        )

    def _met(self, operations: Sequence[Operation], among: Among, stage: int, timing: Timing) -> Exchange:
        """Return what those do in a step who meet in collectives."""
        strategy, grid, amid = self._strategy, self._grid, among == "pass"
        groups, per_node = grid.groups(among)[stage], self._setup.cluster.replicas_per_node
        if among in ("alike", "expert shard") and self.chunks[0].experts_split != strategy.tensor:
            groups, per_node = strategy.device_grid(self._setup.layout).groups(among)[stage], self._whole_cluster.replicas_per_node
        members, crosses = len(groups[0]), any(len(np.unique(ranks // per_node)) > 1 for ranks in groups)
        does, who = str(operations[0].does), _AMONG.get(among, "")
        if amid:
            by_tensor, by_context, by_experts = strategy.tensor > 1, strategy.context > 1, strategy.expert > 1
            split = "reduce-scatter and all-gather" if strategy.sequence_parallel else "all-reduce"
            does = " and ".join([split] * by_tensor + ["ring"] * by_context + ["all-to-all"] * by_experts) or "copies"
            who = " and ".join(["tensor"] * by_tensor + ["context"] * by_context + ["experts"] * by_experts) or "host"
            crosses = crosses or strategy.tensor > self._whole_cluster.devices_per_node
            members = max(strategy.tensor, 1) * members
            lasts_s = [operation.lasts_s or 0.0 for operation in operations]
        else:
            lasts_s = [timing.seconds(among, operation.does, operation.size_bytes, beside=True) for operation in operations]
        return Exchange(
            among=who,
            does=does,
            devices=members,
            links="between nodes" if crosses else "in a node",
            stage=stage,
            times=len(operations),
            size_bytes=math.fsum(operation.size_bytes for operation in operations) / (1 if amid else strategy.tensor),
            seconds=math.fsum(lasts_s),
            amid=amid,
        )


def _gradients(part: Part) -> tuple[float, float]:
    return part.dense.gradient_bytes, part.experts.gradient_bytes
