"""Upper bounds of throughput without simulation, which no run of a configuration can exceed.

Every step needs each resource for some time: its devices, a link, a server, the coordinator. In a window in which K steps end, all but
one of each replica have also begun, so the resource was needed for K - n of them, and the window is at least as long. The simulated
throughput, K x batch / window, is at most that with the longest such time. The bounds leave out everything that only makes a run longer,
such as latency on long paths, contention and waiting. ``simulator/estimate.py`` reads the needs of a step from its program;
tests/property/test_planning_bounds.py checks simulated runs against the bounds.

Let K' = K - n (K - n ``sync_every`` with local SGD) be the steps that begin and end in the window, 1 - e the allowance for chance, and c
the compute of a step on the fastest node (on the slowest, if all work on each step). The needs are:

- devices: K' c (1 - e) / devices, with the update where devices apply it; cores that all nodes share the same
- messages of a worker, besides compute: their longest chain before the first pass and after the last; dispatch and its latency
- all-reduce of S bytes between N nodes: 2 (N - 1) S / (bandwidth of all N nodes), for a ring of one replica per node also 2 (n - 1)
  latencies; added to compute if gradients are reduced after the backward pass, else separate; in one node the same over its links
- a parameter server: its service of K' steps; its host, if dedicated: work on each message and time to copy each byte
- a link that all messages of a kind cross: their bytes in one direction / bandwidth; links of workers or neighbours combined
- coordinator: K' x dispatch; input: (K' - n) x input time / n
- a cut model: the chains of ``simulator/estimate.py``, compute times (1 - e) and the factors of devices: the mean over all copies or the
  slowest copy, whichever is longer

e is chosen so that the mean of n draws of jitter, whose mean is 1, falls below 1 - e with a probability of less than e^-40 (Bernstein's
inequality, Freedman 1975). Workers that do not wait for each other may have begun steps as long as jitter allows. Runs with an unknown
number of steps (``sharing = "each-its-own"`` without ``drain``, workers that cancel late steps) have no bound. From a confidence of one
half on, model error only reduces throughput; below, bounds are raised by its possible gain.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple, assert_never, cast

import numpy as np
from numpy.typing import NDArray

from simulator.base.probability import gamma_tail_quantile
from simulator.base.rng import Streams
from simulator.collectives.factory import IN_SWITCHES
from simulator.engine.draws import node_factors, process_factors
from simulator.engine.replication import drawn_scenario
from simulator.estimate import Chain, Needs, needs_of, needs_of_cut
from simulator.program.port_names import PortKind
from simulator.program.program import Integers
from simulator.resolve.drawing import as_workers, compile_program
from simulator.resolve.measured_defaults import is_carried, with_measured_defaults, with_nominal_defaults
from simulator.resolve.resolve import Asked
from simulator.scenario import Drawn, Resolved, Scenario
from simulator.spec.cluster import Cluster
from simulator.spec.constants import drawn_values
from simulator.spec.distributions import (
    Constant,
    Distribution,
    Empirical,
    Exponential,
    Gamma,
    LogNormal,
    Normal,
    ShiftedExponential,
    Slowdown,
)
from simulator.spec.transport import Transport
from simulator.spec.workload import Affine, ServerCost
from simulator.strategies.catalogue import ALONE
from simulator.strategies.hybrid import Hybrid
from simulator.strategies.hybrid.groups import Timing
from simulator.strategies.pipelines import pipelines

_LOG_CHANCE = 40.0
"""Negative logarithm of the probability that a bound fails, for each sum: e^-40, or 4e-18. A run has fewer than 1e9 sums."""
_DEVIATIONS = 8.7
"""Standard deviations that a normal variable exceeds with less than that probability."""
_READ = 256
"""Least number of ranks whose program is read."""
_AHEAD = 32
"""Number of processes whose speeds are drawn at once; doubled if more are needed."""


class _Draw:
    """One replication's parameters, as the simulation draws them."""

    def __init__(self, asked: Asked, replication: int) -> None:
        self._streams = Streams(asked.given.run.seed, replication)
        # of one replica alone: what several devices of a host cost each other in practice only makes a step longer
        changes: dict[str, Any] = {"strategy": ALONE}
        if asked.given.strategy.cuts_batches:  # by itself, each in its own way
            changes["workload.passes"] = None
        self._drawn = drawn_scenario(asked.resolved.replaced(changes), self._streams)
        self.workload, self.cluster = self._drawn.workload, self._drawn.cluster
        self._extremes: dict[int, NDArray[np.float64]] = {}
        self._transports: dict[bool, Transport] = {}
        self._together: dict[int, Scenario] = {}
        self._factors: dict[tuple[int, int], NDArray[np.float64]] = {}

    def transport(self, scenario: Scenario) -> Transport:
        """Host costs of messages in this run."""
        carried = is_carried(scenario)
        if carried not in self._transports:
            values = drawn_values(scenario.practice, self._streams)
            self._transports[carried] = with_measured_defaults(
                Resolved(scenario.replaced({"cluster": self.cluster})), values
            ).cluster.transport
        return self._transports[carried]

    def slowness(self, scenario: Scenario) -> tuple[float, float]:
        """Return factors of the mean times of the fastest and the slowest worker process in this run, nodes included."""
        slow = self.cluster.slow_nodes
        if not self.workload.run_to_run_cv and slow is None:
            return 1.0, 1.0
        each = scenario.replicas_per_process
        extremes = self._extremes.get(each)  # of the first process, of the first two, ...
        if extremes is None or len(extremes) < scenario.processes:
            ahead = np.arange(max(scenario.processes, _AHEAD if extremes is None else 2 * len(extremes)))
            factors = process_factors(self.workload, self._streams, ahead, scenario.machines_of(ahead * each))
            if slow is not None:
                factors = factors * node_factors(slow, self._streams, ahead * each // scenario.cluster.replicas_per_node)
            extremes = self._extremes[each] = np.stack([np.minimum.accumulate(factors), np.maximum.accumulate(factors)], axis=1)
        least, most = extremes[scenario.processes - 1].tolist()
        return least, most

    # -- of a model that is cut ---------------------------------------------------------

    def together(self, strategy: Hybrid) -> Scenario:
        """Return the draws with devices that split tensors combined into one."""
        if strategy.tensor not in self._together:
            self._together[strategy.tensor] = as_workers(self._drawn.replaced({"strategy": strategy}))
        return self._together[strategy.tensor]

    def factors(self, strategy: Hybrid, ranks: int) -> NDArray[np.float64]:
        """Return factors of the mean times of each rank in this run, shape (ranks,)."""
        key = strategy.tensor, ranks
        if key not in self._factors:
            drawn, index = self.together(strategy), np.arange(ranks)
            node, slow = index // drawn.cluster.replicas_per_node, drawn.cluster.slow_nodes
            factors = process_factors(drawn.workload, self._streams, index, node) / drawn.cluster.speeds_of(node)
            if slow is not None:
                factors = factors * node_factors(slow, self._streams, np.arange(int(node[-1]) + 1))[node]
            self._factors[key] = factors
        return self._factors[key]

    def limits(self, strategy: Hybrid) -> JitterBounds:
        """Return limits of every rank's factor of a step."""
        load, cluster = self.together(strategy).workload, self.together(strategy).cluster
        kinds = [(kind.jitter or load.jitter, kind.slowdown or cluster.slowdown) for kind in cluster.node_classes]
        return worst_of(jitter_bounds(*kind) for kind in [(load.jitter, cluster.slowdown), *kinds])


class _Group(NamedTuple):
    """Replicas on nodes of one kind."""

    replicas: int
    speed: float
    limits: JitterBounds


class Ceilings:
    """Upper bounds for configurations that differ only in strategy, micro-batches and batch.

    Workload, cluster, seed and replications are those of the first call.
    """

    def __init__(self) -> None:
        self._draws: tuple[_Draw, ...] = ()
        self._expected: float | None = None
        self._timed: dict[tuple[int, ...], Timing] = {}

    def of(self, asked: Asked) -> NDArray[np.float64]:
        """Return samples a second that each replication cannot exceed, shape (replications,); infinite if unknown."""
        self._draws = self._draws or tuple(_Draw(asked, replication) for replication in range(asked.given.run.replications))
        self._expected = None
        apart = asked.resolved.replaced({"cluster.background": None})  # which only makes a run longer
        if apart.strategy.cuts_batches:
            return self._of_parts(apart, cast(Hybrid, apart.strategy))
        scenario = as_workers(apart)
        run, pace, replicas = scenario.run, scenario.strategy.pace, scenario.replicas
        steps = run.total_steps(replicas) - scenario.warmup * replicas  # of all replicas that end in what is measured
        whole = steps - replicas * (pace.every if replicas > 1 else 0)  # and those of them that also begin in it
        some_end_early = pace.asynchronous and run.sharing == "each-its-own" and not run.drain
        if some_end_early or pace.cancels or whole <= 0:  # it is not known how many, or too few say anything
            return np.full(len(self._draws), math.inf)
        needs = _needs(apart, evenly=pace.together) if scenario.strategy.reduction is None else None
        kept = 1.0 - scenario.training.skipped
        groups: dict[Distribution, tuple[_Group, ...]] = {}
        rates = []
        for draw in self._draws:
            distribution = draw.workload.jitter
            if distribution not in groups:
                groups[distribution] = _groups(scenario, distribution)
            at_least_s = max(_times_s(scenario, draw, whole, groups[distribution], needs))
            rates.append(kept * steps * scenario.batch / at_least_s if at_least_s > 0 else math.inf)
        return np.array(rates)

    def guess(self, scenario: Resolved) -> float:
        """Return samples a second by closed forms with expected times, for the last call of :meth:`of`; this is not a bound."""
        return self._expected or scenario.replicas * scenario.batch / scenario.full_step_s

    def _of_parts(self, scenario: Resolved, strategy: Hybrid) -> NDArray[np.float64]:
        """Bound a cut model: whole steps of the first stage in the window, each as long as the longest chain."""
        whole = scenario.run.steps - scenario.warmup - 1
        if whole <= 0 or strategy.schedule == "pipedream" or strategy.on_host:
            return np.full(len(self._draws), math.inf)
        expected = as_workers(scenario)
        together = cast(Hybrid, expected.strategy)
        ranks = together.grid(expected.layout).rank
        costs = together.costs(expected, Streams(scenario.run.seed, 0), self._timed)
        needs = needs_of_cut(costs, expected.cluster, ranks, expected.workload.apply_s)
        self._expected = scenario.replicas * scenario.batch / max(needs.chain.total_s, needs.hidden_s, 1e-12)
        samples = (1.0 - scenario.training.skipped) * (whole + 1) * scenario.replicas * scenario.batch
        rates = []
        ahead = _ahead(scenario)
        for draw in self._draws:
            at_least_s = whole * max(
                _chain_s(needs.chain, expected, draw, strategy, ranks if needs.coupled else None, whole),
                needs.hidden_s * _faster(expected.cluster, draw),
                max(whole - ahead, 0) / whole * _input_s(scenario, draw, max(whole - ahead, 0)),
            )
            rates.append(samples / at_least_s if at_least_s > 0 else math.inf)
        return np.array(rates)


def _needs(scenario: Resolved, *, evenly: bool) -> Needs:
    """Read the needs of a step from its program, with expected times and links at full speed; hosts work on messages.

    Building and reading a program takes some milliseconds for hundreds of ranks, and 50 for ten thousand. Of more than a few hundred on
    equal nodes, only some are read, since each adds the same.
    """
    transport = with_nominal_defaults(scenario).cluster.transport  # with costs of messages, so that the program has hosts
    whole = Drawn(as_workers(scenario.replaced({"cluster.transport": transport})))
    layout, cluster, per_node = whole.layout, whole.cluster, whole.cluster.replicas_per_node
    some = max(_READ // per_node, 1) * per_node
    if layout.ranks <= some or layout.servers_beside or cluster.node_classes or cluster.fabric is not None:
        return needs_of(compile_program(whole), evenly=evenly)
    batch = {"workload.batch_per_replica": whole.batch, "workload.global_batch": None}
    few = whole.replaced({**batch, "strategy": whole.strategy.with_count(some)})
    return needs_of(compile_program(few), evenly=False).of_more(layout.ranks / some, layout.ranks / (layout.worker_nodes * per_node))


def _groups(scenario: Scenario, jitter: Distribution) -> tuple[_Group, ...]:
    """Return replicas by the kind of their node."""
    cluster = scenario.cluster
    if not cluster.node_classes and not cluster.node_speed:
        return (_Group(scenario.replicas, 1.0, jitter_bounds(jitter, cluster.slowdown)),)
    counts: dict[tuple[float, JitterBounds], int] = {}
    for node in range(scenario.worker_nodes):
        kind = cluster.class_of(node)
        distribution = kind.jitter if kind is not None and kind.jitter is not None else jitter
        key = cluster.speed_of(node), jitter_bounds(distribution, cluster.slowdown_of(node))
        here = min(cluster.replicas_per_node, scenario.replicas - node * cluster.replicas_per_node)
        counts[key] = counts.get(key, 0) + here
    return tuple(_Group(count, speed, limits) for (speed, limits), count in counts.items())


def _times_s(scenario: Scenario, draw: _Draw, whole: int, groups: tuple[_Group, ...], needs: Needs | None) -> Iterator[float]:
    """Yield the least seconds of the window, for each resource."""
    replicas = scenario.replicas
    if not scenario.layout.client:
        batches = max(whole / replicas - _ahead(scenario), 0.0)
        yield batches * _input_s(scenario, draw, math.floor(batches))
    if needs is not None:
        pace = scenario.strategy.pace
        apart_s = needs.apart_s * _faster(scenario.cluster, draw) + (pace.dispatch_s + pace.latency_s)
        if draw.workload.measured_with == "servers":  # a pull and a push are in the time that was measured
            apart_s = 0.0
        yield _compute_s(scenario, draw, whole, groups, apart_s)
        yield from _needed_s(scenario, draw, whole, needs)
    else:
        reduce_s, hidden = _reduce_s(scenario, draw)
        yield _compute_s(scenario, draw, whole, groups, 0.0 if hidden else reduce_s)
        yield whole // replicas // scenario.strategy.pace.every * reduce_s


def _ahead(scenario: Scenario) -> int:
    """Return batches that are ready, or in preparation, when a window opens."""
    return max(scenario.input.prefetch, 1) if scenario.input is not None else 1


def _input_s(scenario: Scenario, draw: _Draw, batches: int) -> float:
    """Return the least mean seconds of a batch, for a number of batches of a pipeline without contention."""
    if scenario.input is None:
        return draw.workload.input(scenario.batch)
    prepared = pipelines(scenario)
    if prepared is None or not batches:
        return 0.0
    return float(prepared.alone_s.min()) * least_mean(jitter_bounds(scenario.input.jitter), batches)


def _compute_s(scenario: Scenario, draw: _Draw, whole: int, groups: tuple[_Group, ...], alone_s: float) -> float:
    """Yield seconds of the devices; ``alone_s`` is time of each step in which its device waits."""
    load, cluster, replicas = draw.workload, draw.cluster, scenario.replicas
    own_device = cluster.replicas_per_device == 1
    fastest, slowest = draw.slowness(scenario)
    step_s = load.compute_s(scenario.batch)
    if not scenario.servers and own_device:
        step_s += load.apply_s
    besides_s = alone_s if own_device else 0.0
    devices = -(-replicas // cluster.replicas_per_device)
    if scenario.strategy.pace.together:
        steps = whole / replicas
        each = [step_s * fastest / group.speed * least_mean(group.limits, steps * group.replicas) for group in groups]
        if own_device:
            # whichever group the slowest process is in, all wait for it
            each.append(
                step_s * slowest / max(group.speed for group in groups) * least_mean(worst_of(group.limits for group in groups), steps)
            )
        compute_s = steps * (max(each) if own_device else min(each)) * replicas / devices
    else:
        # the fastest node's time, and of what has begun but not ended no more than each replica can have
        limits = worst_of(group.limits for group in groups)
        fastest_s = step_s * fastest / max(group.speed for group in groups)
        begun = replicas * (limits.most if limits.variance or limits.most > 1 else 0.0)
        compute_s = fastest_s * max(whole * least_mean(limits, whole) - begun, 0.0) / devices
    if cluster.device_sharing == "concurrent":
        # together they compute at most as fast as the device allows, and no faster than each alone
        compute_s *= max(1.0 / cluster.pace_together(load.busy_share(scenario.batch)), devices / replicas)
    on_cores_s = compute_s * devices / cluster.shared_cores if cluster.shared_cores is not None and cluster.device_is_host else 0.0
    return float(max(compute_s + whole / replicas * besides_s, on_cores_s))


def _needed_s(scenario: Scenario, draw: _Draw, whole: int, needs: Needs) -> Iterator[float]:
    """Yield seconds of links, servers, their hosts, and the coordinator."""
    pace, cluster, steps = scenario.strategy.pace, scenario.cluster, whole / scenario.replicas
    if pace.coordinated:
        yield whole * pace.dispatch_s
    for links in (needs.shared, needs.own):
        yield steps * links.seconds * min((_slower_link(kind, cluster, draw) for kind in links.kinds), default=1.0)
    yield steps * needs.server_s * _shorter_service(scenario.workload.server, draw.workload.server)
    if cluster.shared_cores is None and len(needs.host_bytes):
        each = draw.transport(scenario)
        yield steps * float((needs.host_tensors * each.cpu_per_message_s + needs.host_bytes * each.copy_per_byte_s).max())


def _slower_link(kind: PortKind, expected: Cluster, draw: _Draw) -> float:
    """Return the least ratio of a link's time for bytes at the drawn rate to the expected one."""
    now, before = (_bytes_per_s(kind, cluster) for cluster in (draw.cluster, expected))
    own = any(kind.inter_node is not None for kind in expected.node_classes)  # which nothing is drawn for
    return min(before / now, 1.0 if own else math.inf) if now else _faster(expected, draw)


def _bytes_per_s(kind: PortKind, cluster: Cluster) -> float:
    """Return the rate of a node's or device's link for tensors; 0 for other links."""
    if kind in (PortKind.NODE_OUT, PortKind.NODE_IN):
        return float(cluster.inter_node.bandwidth_bytes_per_s / cluster.transport.wire_bytes_per_byte)
    return float(cluster.intra_node.bandwidth_bytes_per_s) if PortKind.INSIDE_OUT <= kind <= PortKind.MESH else 0.0


def _shorter_service(expected: ServerCost, drawn: ServerCost) -> float:
    """Return the least ratio of a service's drawn time to the expected one."""
    pairs = (expected.base_s, drawn.base_s), (expected.per_byte_s, drawn.per_byte_s)
    return min((now / before for before, now in pairs if before), default=1.0)


def _nodes_bytes_per_s(scenario: Scenario, cluster: Cluster) -> float:
    """Return the total bandwidth of all workers' nodes, in one direction."""
    nodes = scenario.worker_nodes
    if not cluster.node_classes:
        return float(nodes * cluster.link_of(0).bandwidth_bytes_per_s)
    return math.fsum(cluster.link_of(node).bandwidth_bytes_per_s for node in range(nodes))


def _reduce_s(scenario: Scenario, draw: _Draw) -> tuple[float, bool]:
    """Return the least seconds of an all-reduce of everything, and whether compute can hide them.

    n ranks with S bytes each must send 2 (n - 1) S in total (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for
    clusters of workstations", 2009), over the links of all nodes at once, or inside a node over those of its devices. A ring of one
    replica per node also sends 2 (n - 1) messages in sequence.
    """
    reduction, cluster, replicas = scenario.strategy.reduction, draw.cluster, scenario.replicas
    if reduction is None or replicas == 1:
        return 0.0, False
    apart = scenario.strategy.pace.every > 1
    size = draw.workload.parameter_bytes if apart else math.fsum(reduction.as_one(draw.workload, scenario.batch, replicas))
    halves = 1 if reduction.does == "all-gather" else 2  # what is gathered is not added first
    nodes = scenario.worker_nodes
    may_add = cluster.nvls is not None or (cluster.fabric is not None and cluster.fabric.sharp)  # where the fastest way is taken
    if reduction.algorithm in IN_SWITCHES or (reduction.algorithm == "auto" and may_add):
        halves = 1  # switches add, and each rank sends its data once at least
    links = replicas * (replicas - 1) if cluster.intra_node_topology == "mesh" else replicas
    if cluster.islands is not None and cluster.islands.devices > cluster.devices_per_node:
        rates = links * cluster.intra_node.bandwidth_bytes_per_s + _nodes_bytes_per_s(scenario, cluster)
        return halves * (replicas - 1) * size / rates, apart or not reduction.after_backward
    if nodes == 1:
        beside = cluster.islands.between if cluster.islands is not None else None
        between = beside.bandwidth_bytes_per_s if beside is not None else 0.0
        reduce_s = halves * (replicas - 1) * size / (links * cluster.intra_node.bandwidth_bytes_per_s + replicas * between)
    else:
        reduce_s = halves * (nodes - 1) * size * cluster.transport.wire_bytes_per_byte / _nodes_bytes_per_s(scenario, cluster)
        if reduction.algorithm == "ring" and nodes == replicas:
            kinds = min(nodes, sum(kind.nodes for kind in cluster.node_classes) + 1)  # so many nodes to have met each kind that is used
            reduce_s += halves * (replicas - 1) * min(cluster.link_of(node).latency_s for node in range(kinds))
    return reduce_s, apart or not reduction.after_backward


# -- of a model that is cut ----------------------------------------------------------------


def _chain_s(chain: Chain, expected: Scenario, draw: _Draw, strategy: Hybrid, ranks: Integers | None, steps: int) -> float:
    """Return the least mean seconds of a chain over some steps.

    Parameters
    ----------
    chain
        The chain with expected times.
    expected
        The scenario of these times, with devices that split tensors combined into one.
    draw
        The draws of one replication.
    ranks
        Ranks of each stage and copy, shape (stages, copies), if all copies wait for each other: then the slowest sets the pace, and the
        mean over all is a bound too, which averages out chance. None: some copy may be much faster.
    """
    load, drawn = expected.workload, draw.together(strategy).workload
    samples = expected.batch / expected.training.micro_batches
    update = drawn.apply_s / load.apply_s if load.apply_s else 0.0
    each_s = (
        chain.forward_s * _shorter(load.forward, drawn.forward, samples)
        + chain.backward_s * _shorter(load.backward, drawn.backward, samples)
        + chain.update_s * update
    )
    factors, limits = draw.factors(strategy, expected.ranks), draw.limits(strategy)
    copies_s = each_s[:, None] * (factors.min() if ranks is None else factors[ranks])
    of_copies = copies_s.sum(axis=0)
    slowest_s = copies_s[:, of_copies.argmax()]
    shared = _limits_in_common(expected)
    both = JitterBounds(
        (1 + limits.variance) * (1 + shared.variance) - 1, limits.least * shared.least, limits.most * shared.most,
        max(limits.persistence, shared.persistence),
    )  # fmt: skip
    # what groups have in common does not even out over them
    compute_s = max(
        max(_least_of(parts_s, steps, limits) * shared.least, float(parts_s.sum()) * least_mean(both, steps))
        for parts_s in (slowest_s, copies_s.ravel() / copies_s.shape[1])
    )
    return compute_s + chain.exchange_s * _faster(expected.cluster, draw)


def _limits_in_common(scenario: Scenario) -> JitterBounds:
    """Return limits of factors shared by groups of ranks, as if they multiplied the whole step."""
    common = scenario.strategy.in_common(scenario)
    if common is None:
        return JitterBounds(0.0, 1.0, 1.0)
    each = jitter_bounds(common.distribution)
    return each._replace(variance=each.variance * max(math.fsum(weight * weight for weight in weights) for weights in common.weights))


def _least_of(parts_s: NDArray[np.float64], steps: int, limits: JitterBounds) -> float:
    """Return the least mean over some steps of a sum whose parts have independent factors.

    The sum of squares of weights w that add up to 1 is at most the largest weight, so the sum varies no more than the mean of 1 / max w
    independent factors.
    """
    total_s = float(parts_s.sum())
    return total_s * least_mean(limits, steps * total_s / float(parts_s.max())) if total_s else 0.0


def _shorter(expected: Affine, drawn: Affine, samples: float) -> float:
    """Return the least ratio of a layer's pass with drawn times to the expected one, for device or host."""
    work_s = expected.base_s + expected.per_sample_s * samples
    ratios = [(drawn.base_s + drawn.per_sample_s * samples) / work_s] if work_s else []
    ratios += [drawn.least_s / expected.least_s] if expected.least_s else []
    return min(ratios, default=0.0)


def _faster(expected: Cluster, draw: _Draw) -> float:
    """Return the least ratio of a message's time on the drawn links to the expected one.

    The time grows with latencies and costs and falls with bandwidths, so it changes at most by the most favourable change among them.
    """
    uncertain = expected.uncertainty
    if uncertain is None or (draw.cluster.uncertainty is None and draw.cluster is expected):
        return 1.0
    least = 1.0
    for name in uncertain.parameters:
        before, now = expected.value_at(name), draw.cluster.value_at(name)
        before, now = (now, before) if "bytes_per_s" in name else (before, now)
        least = min(least, now / before) if before > 0 else least
    return least


# -- chance --------------------------------------------------------------------------------


class JitterBounds(NamedTuple):
    """Limits of the factor of a step's mean time, whose mean is at least 1.

    Attributes
    ----------
    variance
        Upper limit of its variance.
    least
        Lower limit.
    most
        Value that it exceeds with a probability of less than e^-40 per step.
    persistence
        Upper limit of the autocorrelation of successive steps.
    """

    variance: float
    least: float
    most: float
    persistence: float = 0.0


@lru_cache(maxsize=1024)
def jitter_bounds(jitter: Distribution, slowdown: Slowdown | None = None) -> JitterBounds:
    """Return limits of jitter of mean 1; a slow-down only makes steps longer."""
    slow = slowdown.factor if slowdown is not None else 1.0
    variance, least, most = 0.0, 1.0, 1.0
    if isinstance(jitter, Normal):
        variance, least, most = jitter.cv**2, 0.01, 1 + _DEVIATIONS * jitter.cv
    elif isinstance(jitter, LogNormal):
        variance, least = math.expm1(jitter.sigma**2), 0.0
        most = math.exp(_DEVIATIONS * jitter.sigma - jitter.sigma**2 / 2)
    elif isinstance(jitter, Gamma):
        variance, least = 1 / jitter.shape, 0.0
        most = gamma_tail_quantile(jitter.shape, _LOG_CHANCE) / jitter.shape
    elif isinstance(jitter, Exponential):
        variance, least, most = 1.0, 0.0, _LOG_CHANCE
    elif isinstance(jitter, ShiftedExponential):
        tail, mean = jitter.tail, jitter.mean()
        variance, least, most = (tail / mean) ** 2, 1 / mean, (1 + _LOG_CHANCE * tail) / mean
    elif isinstance(jitter, Empirical):
        values = np.asarray(jitter.values) / jitter.mean()
        variance, least, most = float(values.var()), float(values.min()), float(values.max())
    elif not isinstance(jitter, Constant):
        assert_never(jitter)
    return JitterBounds(variance, least, most * slow, 0.0 if isinstance(jitter, Constant) else jitter.persistence)


def worst_of(several: Iterable[JitterBounds]) -> JitterBounds:
    """Return limits that hold for all of several kinds of nodes."""
    variances, leasts, mosts, persistences = zip(*several, strict=True)
    return JitterBounds(max(variances), min(leasts), max(mosts), max(persistences))


def least_mean(limits: JitterBounds, count: float) -> float:
    """Return a lower bound of the mean of ``count`` factors, which fails with probability e^-40.

    The positive root e of count e^2 = 2 L (v + e b / 3), from 1, with L = 40, variance v and
    b = 1 - least: Bernstein's inequality, in the form that holds at any time of a running
    sum (Freedman, "On tail probabilities for martingales", 1975). If a factor repeats with probability r,
    the positive root of count e^2 = 2 L (v (1 + r) / (1 - r) + e c 5 / (1 - r)), with c the farthest from 1 on
    either side (Jiang, Sun and Fan, "Bernstein's inequality for general Markov chains", 2018, theorem 1).
    """
    if count <= 0:
        return 0.0
    room, variance, stays = 1.0 - limits.least, limits.variance, limits.persistence
    if stays == 1.0:
        return limits.least
    drift = 2 * _LOG_CHANCE * (5 * max(room, limits.most - 1.0) / (1 - stays) if stays else room / 3)
    below = (drift + math.sqrt(drift**2 + 8 * _LOG_CHANCE * count * variance * (1 + stays) / (1 - stays))) / (2 * count)
    return 1.0 - min(below, room)
