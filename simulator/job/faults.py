"""Faults of a job: when workers, servers and nodes fail, and what each failure does to the training.

How long a run lasts with them is worked out in renewal.py.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from typing import Literal, NamedTuple

from simulator.base.rng import Streams
from simulator.job.costs import counted
from simulator.scenario import Scenario
from simulator.spec.job import Faults

__all__ = ["Arrival", "Effect", "arrivals", "effect_of"]

What = Literal["worker", "server", "node", "preemption"]


class Arrival(NamedTuple):
    """A fault: when, and of what.

    Attributes
    ----------
    at_s
        Since the start of the job.
    what
        What fails; a preemption is announced then.
    number
        Which one.
    """

    at_s: float
    what: What
    number: int


class Effect(NamedTuple):
    """What a fault does.

    Attributes
    ----------
    stops
        Whether all processes stop, and begin again with the last checkpoint.
    waits
        Whether the others wait for what is missing, and lose nothing.
    workers
        Worker processes that are missing until they are back.
    rolls_back
        Whether those that go on with fewer begin again with the last checkpoint.
    """

    stops: bool
    waits: bool
    workers: tuple[int, ...]
    rolls_back: bool = False


def arrivals(scenario: Scenario, faults: Faults, streams: Streams) -> Iterator[Arrival]:
    """Faults in the order in which they come, without end unless there is a trace alone.

    Of each kind a renewal process: times between faults of any of its kind follow a Weibull law with the mean that follows from
    how many there are, as those of whole systems do (Schroeder and Gibson, "A large-scale study of failures in high-performance
    computing systems", DSN 2006, section 5.3: shapes of 0.7 to 0.8). Which one fails is as likely for each.
    """
    traced = sorted(Arrival(its.at_s, its.of, its.number) for its in faults.trace)
    kinds = [_renewals(what, count, mean_s, faults.shape, streams) for what, count, mean_s in counted(scenario, faults)]
    return heapq.merge(traced, *kinds)


_BLOCK = 256


def _renewals(what: str, count: int, mean_s: float, shape: float, streams: Streams) -> Iterator[Arrival]:
    draw = streams.generator(f"faults of {what}")
    scale_s = mean_s / count / math.gamma(1.0 + 1.0 / shape)
    now_s = 0.0
    while True:
        for gap, number in zip(draw.weibull(shape, _BLOCK).tolist(), draw.integers(0, count, _BLOCK).tolist(), strict=True):
            now_s += scale_s * gap
            yield Arrival(now_s, what, number)  # type: ignore[arg-type]


def effect_of(scenario: Scenario, fault: Arrival) -> Effect:
    """What a fault does to a way of training.

    Parameters hold the state of a training without servers in every replica, but TensorFlow's collectives end with an error on all
    of them when one is missing, so that all begin again with the last checkpoint, unless the job is elastic. With parameter
    servers a worker holds nothing: asynchronous ones go on without it, and synchronous ones as far as backup workers make up for
    it; else they wait. Without a server all stop.
    """
    layout, pace = scenario.layout, scenario.strategy.pace
    assert scenario.job is not None
    assert scenario.job.faults is not None
    if fault.what == "worker":
        missing: tuple[int, ...] = (fault.number,)
        server = False
    elif fault.what == "server":
        missing, server = (), True
    else:
        first = fault.number * layout.replicas_per_node // layout.replicas_per_process
        after = -(-(fault.number + 1) * layout.replicas_per_node // layout.replicas_per_process)
        missing = tuple(range(first, min(after, layout.processes)))
        server = bool(layout.servers) and (fault.number < layout.servers if layout.servers_beside else fault.number >= layout.worker_nodes)
    if server or not missing:
        return Effect(stops=True, waits=False, workers=missing)
    if layout.servers:
        goes_on = pace.asynchronous and pace.bound is None
        return Effect(stops=False, waits=not goes_on and not pace.backups, workers=missing)
    if scenario.job.faults.elastic and layout.processes > 1:
        return Effect(stops=False, waits=False, workers=missing, rolls_back=True)
    return Effect(stops=True, waits=False, workers=missing)
