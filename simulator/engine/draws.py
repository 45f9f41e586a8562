"""The random draws that engines need in one replication, as arrays: speeds, starts, jitter, orders of pulls, weights of messages.

Each worker has a row of its own of what is drawn of a name (``simulator/base/rng.py``), so that no draw depends on how many
workers there are, on the order in which engines ask, or on how many draws they ask for at a time. All engines use these; results
change with the name of a stream or the order of the arithmetic. Slow-downs and draws in common are in ``slowdowns``. Uncertain
parameters are drawn in ``simulator.resolve.drawing``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from simulator.base.compact import compact
from simulator.base.errors import SimulationError
from simulator.base.rng import Rows, Streams
from simulator.engine.slowdowns import SharedDraws, drawn, slowed
from simulator.resolve.resolve import start_of
from simulator.scenario import Drawn
from simulator.spec.distributions import Distribution, Slowdown, SlowNodes
from simulator.spec.workload import Workload

_LEAST_BLOCK, _MOST_BLOCK = 16, 128
_DRAWN_BYTES = 1 << 25
"""About as much room have factors, and orders, in tables of all ranks, but for what they need at least."""
_LEAST_AHEAD, _MOST_AHEAD = 5, 256
_WEIGHTS, _WEIGHT_UNIT = 256, 2.0**-24
_LARGEST_DEVIATION = 5.0
"""Standard deviations at which a weight is cut (one in two million), so that sums of weights stay exact."""


def block_of(steps: int, ranks: int) -> int:
    """A good number of factors to ask for at a time, for a number of ranks that each make a number of steps."""
    return min(max(steps, _LEAST_BLOCK), _MOST_BLOCK, max(1_000_000 // ranks, _LEAST_BLOCK))


def ahead_of(steps: int, bytes_a_step: int) -> int:
    """Number of steps drawn ahead in a table with a given number of bytes per step of all ranks."""
    wanted = max(steps + steps // 4, _LEAST_AHEAD)  # some make more than others
    return min(max(_DRAWN_BYTES // bytes_a_step, _LEAST_AHEAD), _MOST_AHEAD, wanted)


class Draws:
    """The random draws of one replication of a scenario.

    Parameters
    ----------
    scenario
        With the replication's parameters drawn, one replica a worker.
    streams
        Of the replication.
    full_step_s
        The scenario's, where it is known already.

    Attributes
    ----------
    ranks
        How many replicas.
    forward_s, backward_s, apply_s
        Mean seconds of each phase of a step on each replica's device, shape (ranks,).
    start_s
        When its first step begins, shape (ranks,).
    constant
        Whether every factor of a rank is 1, shape (ranks,).
    block
        A good number of factors to ask for at a time.
    """

    def __init__(self, scenario: Drawn, streams: Streams, full_step_s: float | None = None) -> None:
        load, cluster, batch = scenario.workload, scenario.cluster, scenario.batch
        self.ranks = ranks = scenario.ranks
        self._streams = streams
        self._scenario = scenario
        each = scenario.replicas_per_process
        processes = np.arange(scenario.processes)
        of_process = process_factors(load, streams, processes, scenario.machines_of(processes * each))
        process_factor: NDArray[np.float64] = np.repeat(of_process, each)[:ranks]
        index = np.arange(ranks)
        node = index // cluster.replicas_per_node
        slowness = process_factor / cluster.speeds_of(node)
        if cluster.slow_nodes is not None and not cluster.slow_nodes.constant:
            slowness = slowness * node_factors(cluster.slow_nodes, streams, np.arange(int(node[-1]) + 1))[node]
        self.forward_s, self.backward_s, self.apply_s = (
            compact(mean_s * slowness) for mean_s in (load.forward_s(batch), load.backward_s(batch), load.apply_s)
        )
        spread = scenario.run.start_spread_s or 0.0
        if not spread and start_of(scenario) == "random-phase":
            spread = scenario.full_step_s if full_step_s is None else full_step_s
        self.start_s = spread * streams.once("start", index, np.random.Generator.random) if spread else np.broadcast_to(0.0, ranks)
        self.block = block_of(scenario.run.steps, ranks)
        self._orders: dict[int, Rows] = {}  # of pulls, by their number
        # nor is a fast process faster than the fastest step seen
        least = load.jitter_least / process_factor if load.jitter_least else None
        self._jitter: list[Jitter] = []
        begins = 0
        for kind in cluster.node_classes:
            ends = min(begins + kind.nodes * cluster.replicas_per_node, ranks)
            distribution, floor = (load.jitter, least) if kind.jitter is None else (kind.jitter, None)
            self._add(distribution, kind.slowdown or cluster.slowdown, begins, ends, floor)
            begins = ends
        self._add(load.jitter, cluster.slowdown, begins, ranks, least)
        in_common = scenario.strategy.in_common(scenario)
        self._shared = None if in_common is None else SharedDraws(in_common, streams)
        constant = np.repeat([factors.constant for factors in self._jitter], [len(factors) for factors in self._jitter])
        self.constant = compact(constant if in_common is None else constant & (in_common.group < 0))

    def _add(
        self, distribution: Distribution, slowdown: Slowdown | None, begins: int, ends: int, least: NDArray[np.float64] | None
    ) -> None:
        if begins < ends:
            workers = np.arange(begins, ends)
            groups = None if slowdown is None else self._groups(slowdown, workers)
            self._jitter.append(
                Jitter(distribution, slowdown, self._streams, workers, None if least is None else least[begins:ends], groups)
            )

    def _groups(self, slowdown: Slowdown, workers: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """The node, rack or cluster of each worker; None if devices are slow independently."""
        cluster = self._scenario.cluster
        if slowdown.of == "device":
            return None
        if slowdown.of == "cluster":
            return np.zeros_like(workers)
        node = workers // cluster.replicas_per_node
        if slowdown.of == "node":
            return node
        assert cluster.fabric is not None, "a rack needs a fabric"
        return node // cluster.fabric.nodes_per_leaf

    def fill(self, ranks: NDArray[np.int64], out: NDArray[np.float64]) -> None:
        """The next factors by which the steps of some ranks are multiplied.

        Parameters
        ----------
        ranks
            Each once, shape (n,).
        out
            Takes the next factors of each, in the order of its steps: shape (n, any).
        """
        begins = 0
        if len(self._jitter) == 1:
            self._jitter[0].fill(ranks, out)
        for jitter in self._jitter if len(self._jitter) > 1 else ():
            ends = begins + len(jitter)
            places = np.flatnonzero((ranks >= begins) & (ranks < ends))
            if len(places):
                part = np.empty((len(places), out.shape[1]))
                jitter.fill(ranks[places] - begins, part)
                out[places] = part
            begins = ends
        if self._shared is not None:
            self._shared.multiply(ranks, out)

    def factors(self, ranks: NDArray[np.int64], block: int) -> NDArray[np.float64]:
        """The same in a new array, shape (n, block)."""
        drawn_factors = np.empty((len(ranks), block))
        self.fill(ranks, drawn_factors)
        return drawn_factors

    def of_batches(self, pipelines: int) -> Jitter | None:
        """The factors by which the batches of each of some pipelines are multiplied; none where all are 1."""
        pipeline = self._scenario.input
        if pipeline is None or pipeline.jitter.kind == "constant":
            return None
        return Jitter(pipeline.jitter, None, self._streams, np.arange(pipelines), name="input")

    def pull_orders(self, ranks: NDArray[np.int64], count: int, block: int = 1) -> NDArray[np.int32]:
        """The orders in which the next steps of some workers pull their messages at random.

        Parameters
        ----------
        ranks
            Each once, shape (n,).
        count
            Messages of a step.
        block
            How many steps.

        Returns
        -------
        numpy.ndarray
            Shape (n, block, count).
        """
        orders = np.empty((len(ranks), block, count), dtype=np.int32)
        if count not in self._orders:
            straight = np.arange(count, dtype=np.int32)
            self._orders[count] = self._streams.rows(
                f"pull-order of {count}",
                np.arange(self.ranks),
                lambda rng, shape: rng.permuted(np.tile(straight, (*shape, 1)), axis=-1),
                count,
            )
        self._orders[count].fill(ranks, orders)
        return orders

    def weights(self) -> Iterator[NDArray[np.float64]]:
        """Weights of messages in order of their beginning, endless, in blocks; of transports that have random ones."""
        sigma = self._scenario.cluster.transport.weight_sigma
        assert sigma is not None, "the transport has no random weights"
        return _weights(sigma, self._streams.generator("weights"))


def _weights(sigma: float, rng: np.random.Generator) -> Iterator[NDArray[np.float64]]:
    """Endless lognormal weights of median 1, multiples of a unit so that their sums have no rounding."""
    while True:
        deviations = rng.standard_normal(_WEIGHTS).clip(-_LARGEST_DEVIATION, _LARGEST_DEVIATION)
        yield np.maximum(np.rint(np.exp(sigma * deviations) / _WEIGHT_UNIT), 1.0) * _WEIGHT_UNIT


class NothingDrawn(Draws):
    """Draws of ranks that compute nothing: each is ready at once.

    Parameters
    ----------
    start_s
        When each begins, shape (ranks,).
    """

    def __init__(self, start_s: NDArray[np.float64]) -> None:
        self.ranks = ranks = len(start_s)
        self.forward_s = self.backward_s = self.apply_s = np.broadcast_to(0.0, ranks)
        self.start_s = start_s
        self.constant = np.broadcast_to(np.True_, ranks)
        self.block = 1


class BatchFactors:
    """The factors of one pipeline's batches, one after the other, where they are not all 1."""

    __slots__ = ("_block", "_jitter", "_left", "_pipeline")

    def __init__(self, jitter: Jitter, pipeline: int, block: int) -> None:
        self._jitter, self._block = jitter, block
        self._pipeline = np.array([pipeline])
        self._left: Iterator[float] = iter(())

    def next(self) -> float:
        """The next factor."""
        for factor in self._left:
            return factor
        drawn_factors = np.empty((1, self._block))
        self._jitter.fill(self._pipeline, drawn_factors)
        self._left = iter(drawn_factors[0].tolist())
        return next(self._left)


class JitterFactors:
    """The factors of one rank, step by step.

    Attributes
    ----------
    constant
        Whether every factor is 1.
    """

    __slots__ = ("_draws", "_left", "_rank", "constant")

    def __init__(self, draws: Draws, rank: int) -> None:
        self._draws = draws
        self._rank = np.array([rank])
        self._left: Iterator[float] = iter(())
        self.constant = bool(draws.constant[rank])

    def next(self) -> float:
        """The next factor."""
        if self.constant:
            return 1.0
        for factor in self._left:
            return factor
        self._left = iter(self._draws.factors(self._rank, self._draws.block)[0].tolist())
        return next(self._left)


class Jitter:
    """Factors on the step times of workers: jitter of mean 1, times a slowdown if they have one.

    The draws do not depend on the size of the blocks that they are asked for in.

    Parameters
    ----------
    distribution
        Of jitter.
    slowdown
        None: their devices are never slow.
    streams
        Of the replication.
    workers
        The numbers of those whose factors are of this kind, ascending, shape (workers,).
    least
        The fastest step that was seen of each, below which no factor is before it is slowed down; none: any.
    groups
        The node, rack or cluster of each, which says who is slow at the same time (``slowdown.of``); None: each independently.
    name
        Of the streams that the jitter is drawn from.
    """

    def __init__(
        self,
        distribution: Distribution,
        slowdown: Slowdown | None,
        streams: Streams,
        workers: NDArray[np.int64],
        least: NDArray[np.float64] | None = None,
        groups: NDArray[np.int64] | None = None,
        *,
        name: str = "compute",
    ) -> None:
        self._workers = len(workers)
        self._what = "batch" if name == "input" else "step"
        self._distribution = distribution
        self._mean = distribution.mean()
        self._least = least
        varies = distribution.kind != "constant"
        self.constant = not varies and slowdown is None
        self._rows = drawn(distribution, streams, name, workers) if varies else None
        self._slowed = None if slowdown is None else slowed(slowdown, streams, workers, groups)

    def __len__(self) -> int:
        return self._workers

    def fill(self, which: NDArray[np.int64], out: NDArray[np.float64]) -> None:
        """The next factors of some of the workers, by their place in the list of them; arrays as of :meth:`Draws.fill`."""
        if self.constant:
            out[...] = 1.0
            return
        if self._rows is None:
            out[...] = 1.0
        else:
            self._rows.fill(which, out)
            out /= self._mean
        if self._least is not None:
            np.maximum(out, self._least[which, None], out=out)
        if self._slowed is not None:
            self._slowed.slow_down(which, out)
        # of a number that is none both comparisons fail; engines would tell of it at different moments
        if out.size and not (out.min() >= 0.0 and out.max() < math.inf):
            raise SimulationError(
                f'the time of a {self._what} is infinite, negative or not a number: check the jitter (kind = "{self._distribution.kind}")'
            )


def process_factors(load: Workload, streams: Streams, processes: NDArray[np.int64], machines: NDArray[np.int64]) -> NDArray[np.float64]:
    """How much longer worker processes take for everything in this run: lognormal with mean 1 and the workload's spread.

    Each process draws its own part of the variance, and has the other, ``run_to_run_shared``,
    in common with all processes of its machine.

    Parameters
    ----------
    processes
        Their numbers, ascending, shape (n,).
    machines
        The machine of each, shape (n,).
    """
    if not load.run_to_run_cv:
        return np.ones(len(processes))
    variance = math.log1p(load.run_to_run_cv**2)
    shared = load.run_to_run_shared or 0.0
    logarithms = math.sqrt((1.0 - shared) * variance) * streams.once("run", processes, np.random.Generator.standard_normal)
    if shared:
        known, place = np.unique(machines, return_inverse=True)
        logarithms += math.sqrt(shared * variance) * streams.once("machine", known, np.random.Generator.standard_normal)[place]
    # not numpy's exponential, whose last bit depends on the processor
    return np.array([math.exp(logarithm - variance / 2) for logarithm in logarithms.tolist()])


def node_factors(distribution: SlowNodes, streams: Streams, nodes: NDArray[np.int64]) -> NDArray[np.float64]:
    """How much longer the devices of nodes take for everything in this run.

    Parameters
    ----------
    nodes
        Their numbers, shape (n,).
    """
    least, most = distribution.between
    variance = math.log1p(distribution.spread_cv**2)
    # each by a name of its own, so that none depends on the figures of the distribution
    slow = streams.once("slow node", nodes, np.random.Generator.random) < distribution.share
    factors = np.where(slow, least + (most - least) * streams.once("how slow a node", nodes, np.random.Generator.random), 1.0)
    deviations = streams.once("node-speed", nodes, np.random.Generator.standard_normal)
    # not numpy's exponential, whose last bit depends on the processor
    return factors * [math.exp(math.sqrt(variance) * deviation - variance / 2) for deviation in deviations.tolist()]
