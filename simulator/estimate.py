"""Lower bounds of a step without simulating it, and the number of events of a simulation.

Seconds of a step on links of its own follow from :class:`~simulator.strategies.strategy.StepExchange`, which scenarios are checked
with before there is a program, and over which random starts of asynchronous workers are spread.

From a program: bytes over the links of its paths, work on messages and service follow from the operations of a step; how they wait
for each other is left out, which only makes a run longer. A new strategy gets these bounds from its program.

For a split model: chains of work in sequence that each step must go through. In each step of a pipeline the first micro-batch must have
come down to a stage before that begins, the stage must have made its passes in the order of its schedule, and the gradients of the last of
them must have come back to the first stage, which then reduces, updates, and only then begins its next step. So a step lasts at least as
long as this chain, for any stage: with equal stages (m + p - 1) (f + b) of 1F1B, m (f + b) + (p - 1) (f + b) / chunks
where stages are interleaved (Narayanan et al., SC 2021, section 2.2), and less where gradients of weights fill what is idle (Qi et al.,
ICLR 2024). A step also takes at least the work of one stage, all collectives of a group in sequence, and the messages of stages over the
link of a node.

Chains are made of what routines are made of (:class:`~simulator.strategies.hybrid.routine.StageCosts`), not read from the routines:
a plan asks for them of thousands of ways to cut a model, and to build the operations of each would take more than twice as long.
So a change of :mod:`simulator.strategies.hybrid.routine` may need one here; no simulation may be faster than the bounds that
``paceline.planning.bounds`` makes of this (tests/property/test_planning_hybrid_bounds.py).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from simulator.program.port_names import PortKind
from simulator.program.program import Floats, Integers, Operation, Program, Routine, Synchronous
from simulator.scenario import Resolved, Scenario
from simulator.spec.cluster import Cluster
from simulator.strategies.hybrid.parts import Part
from simulator.strategies.hybrid.routine import Pass, StageCosts
from simulator.strategies.pipelines import feeds_in_turn


class Links(NamedTuple):
    """The busiest links, and their seconds."""

    kinds: frozenset[PortKind]
    seconds: float


class Needs(NamedTuple):
    """Minimum resources for one step of every rank.

    Attributes
    ----------
    shared
        The busiest link that every rank's messages cross.
    own
        Of all others that the ranks have, those together that as much goes over in every step; or the busiest of all.
    server_s
        Seconds of the busiest server.
    host_tensors, host_bytes
        Tensors and bytes that hosts work on which every rank's messages come to or go from, shape (hosts,).
    apart_s
        Seconds per step of its own messages that do not overlap with a rank's compute.
    """

    shared: Links
    own: Links
    server_s: float
    host_tensors: Floats
    host_bytes: Floats
    apart_s: float

    def of_more(self, times: float, filled: float) -> Needs:
        """The same for ``times`` the number of ranks on equal nodes, of which the share ``filled`` is in use."""
        return Needs(
            self.shared._replace(seconds=self.shared.seconds * times),
            self.own._replace(seconds=self.own.seconds * filled),
            self.server_s * times,
            self.host_tensors * times,
            self.host_bytes * times,
            self.apart_s,
        )


def needs_of(program: Program, *, evenly: bool) -> Needs:
    """Return what one step of every rank needs.

    Where ranks may make different numbers of steps, a link counts if every step of any rank
    sends as much over it, or over one of several that are taken together.

    Parameters
    ----------
    program
        Of the scenario. Data sent by collectives is not counted.
    evenly
        Whether all ranks make as many steps.
    """
    ranks, paths, slots = len(program.ranks), program.paths, program.ranks.path.shape[1]
    rule = program.rules.updates
    late = isinstance(rule, Synchronous) and rule.required < ranks  # what comes too late may never be waited for
    sent = np.zeros((2, len(program.routines), slots))  # bytes, tensors
    served = np.zeros((len(program.routines), max(program.servers.count, 1)))
    for number, routine in enumerate(program.routines):
        for operation in routine.operations:
            if operation.kind == "send" and not (late and operation.target.kind == "server"):
                sent[:, number, operation.slot] += operation.size_bytes, operation.tensors
            elif operation.kind == "serve" and not late:
                served[number, operation.server] += operation.cost_s
    least = sent.min(axis=1)
    hosts = np.zeros((2, program.hosts.count))
    over: dict[bytes, tuple[Integers, float]] = {}
    for slot in range(slots):
        path = program.ranks.path[:, slot].astype(np.int64)
        if not sent[0, :, slot].any() or (path < 0).any():
            continue
        first, after = paths.first[path].astype(np.int64), paths.first[path + 1].astype(np.int64)
        out, into = paths.port[first], paths.port[after - 1]
        for port in (out,) if (out == into).all() else (out, into):  # the same links of other slots are added
            port = port[:1] if (port == port[0]).all() else np.unique(port)
            before = over.get(port.tobytes(), (port, 0.0))[1]
            over[port.tobytes()] = port, before + float(least[0, slot])
        for host in (paths.source[path], paths.target[path]):
            if host[0] >= 0 and (host == host[0]).all():
                hosts[:, host[0]] += ranks * least[:, slot]
    loads = [(port, ranks * size_bytes / float(program.ports.whole[port].sum())) for port, size_bytes in over.values()]
    if evenly and slots:
        loads += _busiest(program, program.ranks.path.ravel().astype(np.int64), sent[0][program.ranks.routine].ravel())
    shared, own = (_most(program, (load for load in loads if (len(load[0]) == 1) == single)) for single in (True, False))
    return Needs(shared, own, ranks * float(served.min(axis=0).max()), hosts[1], hosts[0], apart_s(program) or 0.0)


def _most(program: Program, loads: Iterable[tuple[Integers, float]]) -> Links:
    port, seconds = max(loads, key=lambda load: load[1], default=(np.empty(0, dtype=np.int64), 0.0))
    return Links(frozenset(program.ports.names[number].kind for number in port.tolist()), seconds)


def _busiest(program: Program, path: Integers, size_bytes: Floats) -> list[tuple[Integers, float]]:
    """The busiest of all ports, with these bytes on each path, and its seconds."""
    used = (path >= 0) & (size_bytes > 0)
    path, size_bytes, paths = path[used], size_bytes[used], program.paths
    if not len(path):
        return []
    first = paths.first[path].astype(np.int64)
    crossed = paths.first[path + 1].astype(np.int64) - first
    place = np.arange(crossed.sum()) + np.repeat(first - np.cumsum(crossed) + crossed, crossed)
    carried = np.bincount(paths.port[place], np.repeat(size_bytes, crossed), len(program.ports.capacity))
    busy_s = carried / program.ports.whole
    return [(np.array([busy_s.argmax()]), float(busy_s.max()))]


def apart_s(program: Program, collective_s: Callable[[Operation], float] = lambda _: 0.0) -> float | None:
    """Minimum seconds of a rank's own messages that cannot overlap with its compute: before it begins, and after it has ended.

    Of every step; the optimizer's update is not taken for compute here. None where a step may be given up, or ends before all has come.

    Parameters
    ----------
    program
        Of the scenario.
    collective_s
        Seconds of a collective, at least, from when a rank enters it; of those that last as long as the program says that is known.
    """
    rules, paths = program.rules, program.paths
    if (isinstance(rules.updates, Synchronous) and rules.updates.cancel) or (rules.reduction is not None and rules.reduction.by_need):
        return None
    fastest: list[tuple[float, float]] = []  # latency and bytes per second of the fastest path of any rank's, by slot
    for path in program.ranks.path.T.astype(np.int64):
        path = path[path >= 0]
        rate = float(program.ports.whole[paths.port[paths.first[path]]].max(initial=0.0)) or math.inf
        fastest.append((float(paths.latency_s[path].min()) if len(path) else 0.0, rate))
    one_by_one = rules.reduction is None or rules.reduction.cycle_s is None  # in cycles, what is ready is fused

    def lasts_s(operation: Operation) -> float:
        if operation.kind == "send" and not operation.from_step:
            latency_s, bytes_per_s = fastest[operation.slot]
            return latency_s + operation.size_bytes / bytes_per_s
        if operation.kind != "collective" or operation.every > 1:
            return 0.0
        return collective_s(operation) if operation.lasts_s is None else operation.lasts_s

    return min(_apart_s(routine, lasts_s, one_by_one=one_by_one) for routine in program.routines)


def _apart_s(routine: Routine, lasts_s: Callable[[Operation], float], *, one_by_one: bool) -> float:
    """The longest chain of messages before the first pass, and that after the last."""
    operations = routine.operations
    passes = [number for number, each in enumerate(operations) if each.kind == "compute" and (each.forward or each.backward)]
    if not passes:
        return 0.0
    before: dict[int, float] = {}
    after = {passes[-1]: 0.0}
    last: tuple[int, ...] = ()  # of collectives that are made in their order; others, in that in which they are entered
    for number, operation in enumerate(operations):
        seconds, waits = lasts_s(operation), operation.after
        if operation.kind == "collective" and operation.lasts_s is None and one_by_one:
            waits, last = (*waits, *last), (number,)
        if number <= passes[0]:
            before[number] = max((before[each] for each in waits), default=0.0) + seconds
        if reached := [after[each] for each in waits if each in after]:
            after[number] = max(reached) + seconds
    return before[passes[0]] + max(after.values())


# -- of a model that is cut ----------------------------------------------------------------


class Chain(NamedTuple):
    """Work that is done one thing after the other in each step.

    Attributes
    ----------
    forward_s, backward_s, update_s
        Of it, seconds of compute on each stage's device, by the distribution that they follow; shape (stages,).
    exchange_s
        Seconds of collectives and messages.
    """

    forward_s: Floats
    backward_s: Floats
    update_s: Floats
    exchange_s: float

    @property
    def total_s(self) -> float:
        """Seconds on equal devices."""
        return float(self.forward_s.sum() + self.backward_s.sum() + self.update_s.sum()) + self.exchange_s


class CutNeeds(NamedTuple):
    """Minimum time of a step of a split model.

    Attributes
    ----------
    chain
        The longest that is known.
    hidden_s
        Seconds of what compute may hide: the collectives of a group, or what stages hand on over the link of a node, the longest.
    coupled
        Whether all copies wait for each other in each stage, each step.
    """

    chain: Chain
    hidden_s: float
    coupled: bool


def needs_of_cut(costs: Sequence[StageCosts], cluster: Cluster, ranks: Integers, apply_s: float) -> CutNeeds:
    """Return what a step needs of a strategy whose stages wait for each other at the end of each.

    Parameters
    ----------
    costs
        Of each stage.
    cluster
        With devices that split tensors as one.
    ranks
        Of each stage and copy, shape (stages, copies).
    apply_s
        Seconds of the whole model's update.
    """
    stages, node = [_Stage(each) for each in costs], ranks // cluster.replicas_per_node
    coupled = all(each.dense.copies == 1 or any(reduced.dense_bytes for reduced in each.reduced) for each in costs)
    hidden_s = max(*(stage.collectives_s for stage in stages), _busiest_link_s(costs, cluster, node))
    return CutNeeds(max(_chains(stages, cluster, node, apply_s), key=lambda chain: chain.total_s), hidden_s, coupled)


class _Stage:
    """One stage: its passes in their order, and what comes before and after them.

    Work is an array of seconds: forward, backward, and of what is exchanged.
    """

    def __init__(self, costs: StageCosts) -> None:
        self.costs = costs
        back, weights = costs.share_of("backward"), costs.share_of("weights")
        self.work: dict[str, list[Floats]] = {
            "forward": [np.array((part.forward_s, 0.0, self._exchange_s(part, forward=True))) for part in costs.parts],
            "backward": [np.array((part.again_s, part.backward_s * back, self._exchange_s(part, forward=False))) for part in costs.parts],
            "weights": [np.array((0.0, part.backward_s * weights, 0.0)) for part in costs.parts],
        }
        self.last_backward = max(place for place, each in enumerate(costs.order) if each.does == "backward")

    def _exchange_s(self, part: Part, *, forward: bool) -> float:
        """All but rings of keys and values, as it depends on the draw of compute how much of them attention hides."""
        known = [exchanged._replace(attended=()) for exchanged in (part.forward, part.backward)]
        return self.costs.exchange_s(part._replace(forward=known[0], backward=known[1]), forward)

    @cached_property
    def once(self) -> Floats:
        """The way of one micro-batch through its first chunk, forward and backward."""
        return self.work["forward"][0] + self.work["backward"][0]

    @cached_property
    def whole(self) -> Floats:
        """All of its passes."""
        return self.sum_of(self.costs.order)

    def sum_of(self, order: Sequence[Pass]) -> Floats:
        """Return what some of its passes take."""
        total = np.zeros(3)
        for (does, chunk), count in Counter((each.does, each.chunk) for each in order).items():
            total += count * self.work[does][chunk]
        return total

    def after(self, micro_batch: int) -> Sequence[Pass]:
        """Its passes after the backward pass of a micro-batch in its first chunk."""
        order = self.costs.order
        place = next(at for at, each in enumerate(order) if each.does == "backward" and each.micro_batch == micro_batch and not each.chunk)
        return order[place + 1 :]

    @cached_property
    def first_gather_s(self) -> float:
        """Before its first pass, where parameters are shared: the first layer's."""
        return self._gather_s(self.costs.layers[0][0].dense.parameter_bytes) if self.costs.gathers else 0.0

    @cached_property
    def last_reduce_s(self) -> float:
        """After its last pass and what that exchanges, meanwhile: the gradients that only that makes ready."""
        costs, chunk = self.costs, self.costs.order[-1].chunk
        if self.costs.gathers:
            layer = costs.layers[chunk][0]
            reduced_s = self._reduced_s(layer.dense.gradient_bytes, layer.experts.gradient_bytes)
        else:
            last = costs.reduced if costs.at_end else [each for each in costs.reduced if each.chunk == chunk][-1:]
            reduced_s = math.fsum(self._reduced_s(each.dense_bytes, each.expert_bytes) for each in last)
        return max(reduced_s - float(self.work["backward"][chunk][2]), 0.0)

    @cached_property
    def last_gather_s(self) -> float:
        """After its update: what was updated, where copies share the optimizer's slots but not parameters."""
        if not self.costs.shares or self.costs.gathers:
            return 0.0
        return self._gather_s(math.fsum(part.dense.parameter_bytes for part in self.costs.parts))

    @property
    def collectives_s(self) -> float:
        """All collectives of the group with which it shares or sums gradients, which come one after the other."""
        costs = self.costs
        forwards = _forwards(costs)
        if not self.costs.gathers:
            times = forwards if costs.each_micro_batch else 1
            return times * math.fsum(self._scattered_s(each.dense_bytes) for each in costs.reduced) + self.last_gather_s
        gathers_s = math.fsum(self._gather_s(layer.dense.parameter_bytes) for layers in costs.layers for layer in layers)
        scatters_s = math.fsum(self._scattered_s(layer.dense.gradient_bytes) for layers in costs.layers for layer in layers)
        return (1 if costs.strategy.keeps else forwards) * ((1 if costs.strategy.keeps else 2) * gathers_s + scatters_s)

    def _gather_s(self, size_bytes: float) -> float:
        return self.costs.timing.seconds("shard", "all-gather", size_bytes) if size_bytes else 0.0

    def _scattered_s(self, dense_bytes: float) -> float:
        """Of gradients, the part of the reduction that all of a group's others wait for."""
        if self.costs.dense.copies == 1 or not dense_bytes:
            return 0.0
        if not self.costs.shares:
            return self.costs.timing.seconds("data", "all-reduce", dense_bytes)
        return self.costs.timing.seconds("shard", "reduce-scatter", dense_bytes)

    def _reduced_s(self, dense_bytes: float, expert_bytes: float) -> float:
        """Those that all copies have, or those of experts, whichever take longer."""
        costs = self.costs
        if costs.dense.copies == 1:
            return 0.0
        dense_s = self._scattered_s(dense_bytes)
        if costs.shares and costs.dense.shards < costs.dense.copies and dense_bytes:
            dense_s += costs.timing.seconds("across", "all-reduce", dense_bytes / costs.dense.shards)
        experts_s = 0.0
        if expert_bytes and costs.experts.copies > 1:
            shared = costs.shares and costs.experts.shards > 1
            experts_s = costs.timing.seconds(*(("expert shard", "reduce-scatter") if shared else ("alike", "all-reduce")), expert_bytes)
        return max(dense_s, experts_s)


def _forwards(costs: StageCosts) -> int:
    """Micro-batches of a step."""
    return sum(each.does == "forward" and not each.chunk for each in costs.order)


def _chains(stages: Sequence[_Stage], cluster: Cluster, node: Integers, apply_s: float) -> Iterator[Chain]:
    """Every chain that is known; a step lasts at least as long as each."""
    first = stages[0]
    ends_s = first.first_gather_s + first.last_reduce_s + first.last_gather_s
    sent_s = 0.0  # of messages on the way to a stage and back
    for number, stage in enumerate(stages):  # down to it, through its passes, and back up to the first, which updates
        works = [before.once for before in stages[:number]] + [np.zeros(3)] * (len(stages) - number)
        if number:
            ends = node[number - 1], node[number]
            down_bytes, up_bytes = stages[number - 1].costs.parts[0].output_bytes, stage.costs.layers[0][0].input_bytes
            sent_s += _sent_s(cluster, down_bytes, *ends) + _sent_s(cluster, up_bytes, *ends)
            works[number] = stage.sum_of(stage.costs.order[: stage.last_backward + 1])  # with the last of these the way back begins
            works[0] = works[0] + first.sum_of(first.after(stage.costs.order[stage.last_backward].micro_batch))
        else:
            works[0] = first.whole
        yield _chain(works, sent_s + ends_s, 0, first.costs.apply * apply_s)
    for number, stage in enumerate(stages):  # all that it does itself
        works = [np.zeros(3)] * len(stages)
        works[number] = stage.whole
        yield _chain(works, stage.last_reduce_s + stage.last_gather_s, number, stage.costs.apply * apply_s)


def _chain(works: Sequence[Floats], exchange_s: float, updates: int, update_s: float) -> Chain:
    forward_s, backward_s, exchanges_s = np.array(works).T
    updated_s = np.zeros(len(works))
    updated_s[updates] = update_s
    return Chain(forward_s, backward_s, updated_s, float(exchanges_s.sum()) + exchange_s)


def _sent_s(cluster: Cluster, size_bytes: float, nodes: Integers, others: Integers) -> float:
    """Seconds of a message between a stage and the next, of the copy whose way is shortest."""

    def crosses_s(node: int, other: int) -> float:
        links = [cluster.intra_node] if node == other else [cluster.link_of(node), cluster.link_of(other)]
        return float(min(link.latency_s for link in links) + size_bytes / min(link.bandwidth_bytes_per_s for link in links))

    return min(crosses_s(*ends) for ends in set(zip(nodes.tolist(), others.tolist(), strict=True)))


def _busiest_link_s(stages: Sequence[StageCosts], cluster: Cluster, node: Integers) -> float:
    """Of activations that leave a node, and of gradients."""
    count = len(stages)
    out: defaultdict[int, float] = defaultdict(float)
    for number, costs in enumerate(stages):
        times = _forwards(costs)
        down = times * math.fsum(part.output_bytes for part, last in zip(costs.parts, costs.last, strict=True) if not last)
        up = times * math.fsum(layers[0].input_bytes for layers, first in zip(costs.layers, costs.first, strict=True) if not first)
        for other, size_bytes in (((number + 1) % count, down), ((number - 1) % count, up)):
            for here, there in zip(node[number].tolist(), node[other].tolist(), strict=True):
                if here != there:
                    out[here] += size_bytes
    return max((size_bytes / cluster.link_of(number).bandwidth_bytes_per_s for number, size_bytes in out.items()), default=0.0)


# -- events of a simulation ----------------------------------------------------------------

_STEP_EVENTS, _MESSAGE_EVENTS, _BUCKET_EVENTS = 2.0, 2.0, 1.0
"""Calendar entries of a step of one rank: fixed, per message of the rank, per bucket."""
_CHANGE_EVENTS, _LINK_EVENTS, _BUSY_LINK_EVENTS = 0.4, 0.1, 0.2
"""Entries that a change of what others send takes as long as: by itself, and for each node whose links that concerns, which are mostly
idle, or with parameter servers mostly in use."""


def buckets_a_step(scenario: Scenario) -> int:
    """Return in how many buckets replicas reduce the gradients of a step at most; 0 where they do not."""
    reduction = scenario.strategy.reduction
    return len(reduction.buckets(scenario.workload, scenario.batch, scenario.replicas)) if reduction is not None else 0


def expected_events(scenario: Resolved) -> float:
    """Entries that a replication makes on the calendar, within a factor of about two; 0 where all ranks are computed at once."""
    strategy, replicas, run = scenario.strategy, scenario.ranks, scenario.run
    together = strategy.together(scenario)
    steps = run.total_steps(replicas) / (together.devices if together is not None and together.in_step else 1)
    messages = float(strategy.messages_a_step(scenario))
    reduced = buckets_a_step(scenario) / strategy.pace.every if replicas > 1 else 0.0
    if scenario.rank_messages:
        messages += reduced * 2 * (replicas - 1)
    elif (
        not messages and scenario.cluster.replicas_per_device == 1 and scenario.cluster.shared_cores is None and not feeds_in_turn(scenario)
    ):
        return 0.0
    return steps * (_STEP_EVENTS + _MESSAGE_EVENTS * messages + _BUCKET_EVENTS * reduced) + background_events(scenario)


def background_events(scenario: Resolved) -> float:
    """Entries that take as long as following what others send over the links of a replication; 0 where that does not change.

    At each change, all transfers on these links are shared again.
    """
    background = scenario.cluster.background
    if background is None or not background.changes:
        return 0.0
    links = len(background.nodes) or scenario.nodes_needed
    run_s = scenario.full_step_s * scenario.run.total_steps(scenario.ranks) / scenario.ranks
    return background.changes_in(run_s) * (_CHANGE_EVENTS + (_BUSY_LINK_EVENTS if scenario.servers else _LINK_EVENTS) * links)
