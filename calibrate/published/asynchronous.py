"""Asynchronous workers that call every server: what a step costs as their number grows, from the two smallest rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from calibrate.published.networks import variables
from calibrate.published.situations import Situation, element_bytes
from calibrate.published.tables import Row
from simulator.closed_form import harmonic
from simulator.cluster import Cluster, Link, NodeClass
from simulator.laws import Gamma
from simulator.scenario import Run, Scenario
from simulator.strategy import ParameterServer
from simulator.uncertainty import Uncertainty
from simulator.workload import Affine, Workload

__all__ = ["StepCost", "asynchronous_scenario", "calls_of", "fitted_cost"]

_LEAST_SHARE = 0.02
_AMPLE_BYTES_PER_S = 1e13


class StepCost:
    """Seconds of a worker's step: ``base_s`` whatever the servers, and ``call_s`` for the work of one call.

    Parameters
    ----------
    base_s, call_s
        As said.
    tail
        Spread of a reply in units of the work of a call.
    """

    def __init__(self, base_s: float, call_s: float, tail: float) -> None:
        self.base_s = base_s
        self.call_s = call_s
        self.tail = tail

    def __call__(self, servers: int) -> float:
        """Seconds of a step that calls so many servers."""
        return self.base_s + self.call_s * calls_of(servers, self.tail)


def calls_of(servers: int, tail: float) -> float:
    """What calling servers costs, in units of the work of one call.

    Each call is work of the caller, n in all. The step goes on when the slowest has
    answered: the largest of n exponential replies is H_n times their mean (Renyi 1953).
    """
    return servers + tail * harmonic(servers)


def fitted_cost(first: Row, second: Row | None, tail: float, noise: tuple[float, float] = (1.0, 1.0)) -> StepCost:
    """The cost with which the two smallest rows come out; of one row alone calls cost nothing.

    Parameters
    ----------
    first, second
        Rows of different size.
    noise
        Factors by which their step times are taken to be off.
    """
    first_s = first.step_s * noise[0]
    if second is None:
        return StepCost(first_s, 0.0, tail)
    second_s = second.step_s * noise[1]
    fewer, more = calls_of(first.servers or first.nodes, tail), calls_of(second.servers or second.nodes, tail)
    most_s = first_s * (1.0 - _LEAST_SHARE) / fewer
    call_s = min(max((second_s - first_s) / (more - fewer), 0.0), most_s)
    return StepCost(first_s - call_s * fewer, call_s, tail)


def asynchronous_scenario(
    situation: Situation,
    row: Row,
    rows: Sequence[Row | None],
    constants: Mapping[str, float],
    draws: Sequence[Mapping[str, float]] = (),
    seed: int = 0,
) -> Scenario:
    """The scenario of a row of asynchronous workers.

    Parameters
    ----------
    rows
        The two smallest rows, or the smallest and none.
    draws
        Joint draws of the constants; with them the measured rows are drawn as well.
    """
    facts = situation.cluster
    servers = row.servers or row.nodes
    link = Link(
        bandwidth_bytes_per_s=min(facts.inter_node.bandwidth_bytes_per_s * constants["tcp_share"], constants["grpc_bytes_per_s"]),
        latency_s=facts.inter_node.latency_s,
    )
    tensors = variables([situation.tensors], element_bytes(situation))
    transfer_s = 2.0 * (sum(variable.size_bytes for variable in tensors) / link.bandwidth_bytes_per_s + link.latency_s)

    def compute_s(tail: float, noise: tuple[float, float]) -> float:
        first, second = rows
        assert first is not None
        whole_s = fitted_cost(first, second, tail, noise)(servers)
        return float(max(whole_s - transfer_s, _LEAST_SHARE * whole_s))

    cv = constants["async_row_noise"]
    uncertainty = None
    if draws:
        rng = np.random.default_rng([seed, 1])
        # of the two measured rows, and of the predicted one, which is off as a whole
        factors = np.exp(cv * rng.standard_normal((len(draws), 3)))
        uncertainty = Uncertainty(
            parameters=("forward.base_s",),
            draws=tuple(
                (compute_s(draw["reply_tail"], (float(a), float(b))) * float(c),) for draw, (a, b, c) in zip(draws, factors, strict=True)
            ),
        )
    workload = Workload(
        name=situation.series.network,
        batch_per_replica=row.batch_per_replica,
        forward=Affine(base_s=compute_s(constants["reply_tail"], (1.0, 1.0)), per_sample_s=0.0),
        backward=Affine(base_s=0.0, per_sample_s=0.0),
        jitter=Gamma(shape=100.0),
        variables=tensors,
        uncertainty=uncertainty,
    )
    workers = row.nodes if situation.stack.worker == "node" else row.replicas
    cluster = Cluster(
        name=facts.name,
        basis=facts.basis,
        inter_node=link,
        node_classes=(
            NodeClass(name="workers", nodes=workers),
            NodeClass(name="all servers", nodes=1, inter_node=Link(bandwidth_bytes_per_s=_AMPLE_BYTES_PER_S, latency_s=link.latency_s)),
        ),
    )
    strategy = ParameterServer(mode="async", workers=workers, servers=1, tensor_grouping="per-server")
    run = Run(steps=10, warmup_steps=1, replications=19 if draws else 4, seed=seed, start="random-phase")
    return Scenario(workload=workload, cluster=cluster, strategy=strategy, run=run)
