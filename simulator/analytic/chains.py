"""What a step of a model that is cut takes at least: a chain of work that each step must go through, one thing after the other.

In each step of a pipeline the first micro-batch must have come down to a stage before that
begins, the stage must have made its passes in the order of its schedule, and the gradients
of the last of them must have come back to the first stage, which then reduces, updates, and
only then begins its next step. So a step lasts at least as long as this chain, by whichever
stage it goes: with stages that are alike (m + p - 1) (f + b) of 1F1B, m (f + b) +
(p - 1) (f + b) / chunks where stages are interleaved (Narayanan et al., SC 2021, section
2.2), and less where gradients of weights fill what is idle (Qi et al., ICLR 2024). Nor does
a step take less than all that a stage does by itself, nor than all collectives of a group,
which come one after the other, nor than the messages that stages send over the link of a
node. What is left out, such as waiting for others and links that
several share, only makes a step longer.

Chains are made of what routines are made of (:class:`~simulator.strategies.hybrid.routine.StageCosts`),
not read from the routines: a plan asks for them of thousands of ways to cut a model, and to build
the operations of each would take more than twice as long as this does, with the draws of 19 replications.
So a change of :mod:`simulator.strategies.hybrid.routine` may need one here; no simulation may be faster
than the bounds that ``paceline.planning.bounds`` makes of this (tests/property/test_planning_hybrid_bounds.py).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.program.program import Integers
from simulator.spec.cluster import Cluster
from simulator.strategies.hybrid.parts import Part
from simulator.strategies.hybrid.routine import StageCosts
from simulator.strategies.hybrid.schedules import Pass


class Chain(NamedTuple):
    """Work that is done one thing after the other in each step.

    Attributes
    ----------
    forward_s, backward_s, update_s
        Of it, seconds of compute on each stage's device, by the law that they follow; shape (stages,).
    exchange_s
        Seconds of collectives and messages.
    """

    forward_s: NDArray[np.float64]
    backward_s: NDArray[np.float64]
    update_s: NDArray[np.float64]
    exchange_s: float

    @property
    def total_s(self) -> float:
        """Its seconds on devices that are alike."""
        return float(self.forward_s.sum() + self.backward_s.sum() + self.update_s.sum()) + self.exchange_s

    @property
    def compute_s(self) -> float:
        """Of it, seconds of compute."""
        return self.total_s - self.exchange_s


class _Work(NamedTuple):
    """Seconds of what one stage does."""

    forward_s: float = 0.0
    backward_s: float = 0.0
    exchange_s: float = 0.0

    def plus(self, other: _Work) -> _Work:
        return _Work(*(mine + its for mine, its in zip(self, other, strict=True)))


class _Stage:
    """One stage: its passes in their order, and what comes before and after them."""

    def __init__(self, costs: StageCosts) -> None:
        self.costs = costs
        self.forward = [_Work(part.forward_s, 0.0, costs.exchange_s(part, True)) for part in costs.parts]
        parted = any(each.does == "weights" for each in costs.order)
        self.backward = [self._backward(part, 1.0 - costs.weights if parted else 1.0) for part in costs.parts]
        self.weights = [_Work(0.0, part.backward_s * costs.weights) for part in costs.parts]
        backwards = [place for place, each in enumerate(costs.order) if each.does == "backward"]
        self.last_backward = backwards[-1]

    def _backward(self, part: Part, share: float) -> _Work:
        return _Work(part.again_s, part.backward_s * share, self.costs.exchange_s(part, False))

    @cached_property
    def once(self) -> _Work:
        """The way of one micro-batch through its first chunk, forward and backward."""
        return self.forward[0].plus(self.backward[0])

    @cached_property
    def whole(self) -> _Work:
        """All of its passes."""
        return self.sum_of(self.costs.order)

    @cached_property
    def through_the_last(self) -> _Work:
        """Its passes up to the last backward pass, with which the way back begins."""
        return self.sum_of(self.costs.order[: self.last_backward + 1])

    def sum_of(self, order: Sequence[Pass]) -> _Work:
        """What some of its passes take."""
        work = {"forward": self.forward, "backward": self.backward, "weights": self.weights}
        total = _Work()
        for (does, chunk), count in Counter((each.does, each.chunk) for each in order).items():
            its = work[does][chunk]
            total = total.plus(_Work(*(count * value for value in its)))
        return total

    def after(self, micro_batch: int) -> Sequence[Pass]:
        """Its passes after the backward pass of a micro-batch in its first chunk."""
        order = self.costs.order
        place = next(at for at, each in enumerate(order) if each.does == "backward" and each.micro_batch == micro_batch and not each.chunk)
        return order[place + 1 :]

    # -- collectives -------------------------------------------------------------------

    @cached_property
    def first_gather_s(self) -> float:
        """Before its first pass, where parameters are shared: the first layer's."""
        if not (self.costs.shares and self.costs.shard == "parameters"):
            return 0.0
        return self._gather_s(self.costs.layers[0][0].dense.parameter_bytes)

    @cached_property
    def last_reduce_s(self) -> float:
        """After its last pass and what that exchanges, meanwhile: the gradients that only that makes ready."""
        return max(self._last_reduced_s - self.backward[self.costs.order[-1].chunk].exchange_s, 0.0)

    @property
    def _last_reduced_s(self) -> float:
        costs = self.costs
        chunk = costs.order[-1].chunk
        if costs.shares and costs.shard == "parameters":
            layer = costs.layers[chunk][0]
            return self._reduced_s(layer.dense.gradient_bytes, layer.experts.gradient_bytes)
        last = costs.reduced if costs.at_end else [one for one in costs.reduced if one.chunk == chunk][-1:]
        return math.fsum(self._reduced_s(one.dense_bytes, one.expert_bytes) for one in last)

    @cached_property
    def last_gather_s(self) -> float:
        """After its update: what was updated, where copies share the optimizer's slots but not parameters."""
        if not self.costs.shares or self.costs.shard == "parameters":
            return 0.0
        return self._gather_s(math.fsum(part.dense.parameter_bytes for part in self.costs.parts))

    @property
    def collectives_s(self) -> float:
        """All collectives of the group with which it shares or sums gradients, which come one after the other."""
        costs = self.costs
        forwards = sum(each.does == "forward" and not each.chunk for each in costs.order)
        scatters_s = (forwards if costs.each_micro_batch else 1) * math.fsum(self._scattered_s(one.dense_bytes) for one in costs.reduced)
        if not (costs.shares and costs.shard == "parameters"):
            return scatters_s + self.last_gather_s
        times = 1 if costs.keeps else forwards
        gathers_s = math.fsum(self._gather_s(layer.dense.parameter_bytes) for its in costs.layers for layer in its)
        scatters_s = math.fsum(self._scattered_s(layer.dense.gradient_bytes) for its in costs.layers for layer in its)
        return times * ((1 if costs.keeps else 2) * gathers_s + scatters_s)

    def _gather_s(self, size_bytes: float) -> float:
        return self.costs.seconds("shard", "all-gather", size_bytes) if size_bytes else 0.0

    def _scattered_s(self, dense_bytes: float) -> float:
        """Of gradients, the part of the reduction that all of a group's others wait for."""
        if self.costs.dense.copies == 1 or not dense_bytes:
            return 0.0
        if not self.costs.shares:
            return self.costs.seconds("data", "all-reduce", dense_bytes)
        return self.costs.seconds("shard", "reduce-scatter", dense_bytes)

    def _reduced_s(self, dense_bytes: float, expert_bytes: float) -> float:
        """Those that all copies have, or those of experts, whichever take longer."""
        costs = self.costs
        if costs.dense.copies == 1:
            return 0.0
        dense_s = self._scattered_s(dense_bytes)
        if costs.shares and costs.dense.shards < costs.dense.copies and dense_bytes:
            dense_s += costs.seconds("across", "all-reduce", dense_bytes / costs.dense.shards)
        experts_s = 0.0
        if expert_bytes and costs.experts.copies > 1:
            shared = costs.shares and costs.experts.shards > 1
            experts_s = costs.seconds(*(("expert shard", "reduce-scatter") if shared else ("alike", "all-reduce")), expert_bytes)
        return max(dense_s, experts_s)


class Cut:
    """What is known of a step of a model that is cut.

    Parameters
    ----------
    costs
        Of each stage, of a strategy whose stages wait for each other at the end of a step.
    cluster
        With devices that split tensors as one.
    ranks
        Of each stage and copy, shape (stages, copies).

    Attributes
    ----------
    coupled
        Whether all copies wait for each other in each stage, each step.
    """

    def __init__(self, costs: Sequence[StageCosts], cluster: Cluster, ranks: Integers) -> None:
        self._stages = [_Stage(its) for its in costs]
        self._cluster = cluster
        self._node = ranks // cluster.replicas_per_node
        self.coupled = all(its.dense.copies == 1 or any(one.dense_bytes for one in its.reduced) for its in costs)

    def chains(self, apply_s: float) -> list[Chain]:
        """Every chain that is known; a step lasts at least as long as each. ``apply_s``: of the whole model's update."""
        numbers = range(len(self._stages))
        down_s = [self._sent_s(its.costs.parts[0].output_bytes, number) for number, its in enumerate(self._stages[:-1])]
        up_s = [self._sent_s(its.costs.layers[0][0].input_bytes, number) for number, its in enumerate(self._stages[1:])]
        exchange_s = np.concatenate(([0.0], np.cumsum(np.add(down_s, up_s)))).tolist()
        by_stages = [_by_stage(self._stages, number, exchange_s[number], apply_s) for number in numbers]
        return [*by_stages, *(_alone(self._stages, number, apply_s) for number in numbers)]

    def _sent_s(self, size_bytes: float, stage: int) -> float:
        """Seconds of a message between a stage and the next, of the copy whose way is shortest."""
        nodes, others = self._node[stage].tolist(), self._node[stage + 1].tolist()
        return min(self._crosses_s(size_bytes, *ends) for ends in set(zip(nodes, others, strict=True)))

    def _crosses_s(self, size_bytes: float, node: int, other: int) -> float:
        if node == other:
            link = self._cluster.intra_node
            return float(link.latency_s + size_bytes / link.bandwidth_bytes_per_s)
        links = self._cluster.link_of(node), self._cluster.link_of(other)
        return float(min(its.latency_s for its in links) + size_bytes / min(its.bandwidth_bytes_per_s for its in links))

    def hidden_s(self) -> float:
        """Seconds of what compute may hide: the collectives of a group, or what stages hand on over the link of a node, the longest."""
        return max(*(its.collectives_s for its in self._stages), self._busiest_link_s())

    def _busiest_link_s(self) -> float:
        """Of activations that leave a node, and of gradients."""
        count = len(self._stages)
        out: dict[int, float] = {}
        for number, stage in enumerate(self._stages):
            costs, following, before = stage.costs, (number + 1) % count, (number - 1) % count
            times = sum(each.does == "forward" and not each.chunk for each in costs.order)
            down = times * math.fsum(part.output_bytes for part, last in zip(costs.parts, costs.last, strict=True) if not last)
            up = times * math.fsum(its[0].input_bytes for its, first in zip(costs.layers, costs.first, strict=True) if not first)
            for other, size_bytes in ((following, down), (before, up)):
                for node, its_node in zip(self._node[number].tolist(), self._node[other].tolist(), strict=True):
                    if node != its_node:
                        out[node] = out.get(node, 0.0) + size_bytes
        return max((size_bytes / self._cluster.link_of(node).bandwidth_bytes_per_s for node, size_bytes in out.items()), default=0.0)


def _by_stage(stages: Sequence[_Stage], number: int, exchange_s: float, apply_s: float) -> Chain:
    """Down to a stage, through its passes, and back up to the first, which updates; ``exchange_s``: of the messages on that way."""
    first, stage = stages[0], stages[number]
    works = [before.once for before in stages[:number]] + [_Work()] * (len(stages) - number)
    exchange_s += first.first_gather_s + first.last_reduce_s + first.last_gather_s
    if number:
        works[number] = stage.through_the_last
        works[0] = works[0].plus(first.sum_of(first.after(stage.costs.order[stage.last_backward].micro_batch)))
    else:
        works[0] = first.whole
    return _chain(works, exchange_s, 0, first.costs.apply * apply_s)


def _alone(stages: Sequence[_Stage], number: int, apply_s: float) -> Chain:
    """All that one stage does itself."""
    stage = stages[number]
    works = [_Work() for _ in stages]
    works[number] = stage.whole
    return _chain(works, stage.last_reduce_s + stage.last_gather_s, number, stage.costs.apply * apply_s)


def _chain(works: Sequence[_Work], exchange_s: float, updates: int, update_s: float) -> Chain:
    forward_s, backward_s, exchanges_s = np.array(works).T
    updated_s = np.zeros(len(works))
    updated_s[updates] = update_s
    return Chain(forward_s, backward_s, updated_s, float(exchanges_s.sum()) + exchange_s)
