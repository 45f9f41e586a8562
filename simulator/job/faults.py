"""Faults of a job: when workers, servers and nodes fail, and what each failure does to the training.

How long a run lasts with them is worked out in renewal.py.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np

from simulator.base.rng import Rows, Streams
from simulator.job.costs import counted, preemptible_of
from simulator.scenario import Scenario
from simulator.spec.job import Faults, Nodes, Preemption
from simulator.spec.uncertainty import Z_90

What = Literal["worker", "server", "node", "job", "preemption"]


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
    gone_s
        Until another is to be had, where that is known; none: as the scenario says.
    """

    at_s: float
    what: What
    number: int
    gone_s: float | None = None


class Effect(NamedTuple):
    """Effect of a fault.

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
    """Faults in order of time, without end unless there is only a trace.

    Each kind is a renewal process: times between faults of any of its kind follow a Weibull distribution with the mean that follows from
    how many there are, as those of whole systems do (Schroeder and Gibson, "A large-scale study of failures in high-performance computing
    systems", DSN 2006, section 5.3: shapes of 0.7 to 0.8). Which one fails is as likely for each. Each preemptible node has a lifetime, and
    its replacement starts a new one; or they follow a trace.
    """
    more = _times_more(faults.rates_90, streams, "rates of faults")
    traced = sorted(Arrival(fault.at_s, fault.of, fault.number) for fault in faults.trace)
    kinds: list[Iterable[Arrival]] = [traced]
    for what, count, mean_s in counted(scenario, faults):
        if what == "preemption":
            assert faults.preemption is not None
            if faults.preemption.mtbf_s is not None:
                life_s = faults.preemption.mtbf_s / _times_more(faults.preemption.rates_90, streams, "rate of preemptions")
                kinds.append(_lives(faults.preemption, life_s, count, faults.shape, streams))
        else:
            uncertain = not faults.rates_90_of or what in faults.rates_90_of
            kinds.append(_renewals(what, count, mean_s / more if uncertain else mean_s, faults.shape, streams))
    if faults.preemption is not None and faults.preemption.available:
        kinds.append(_replayed(faults.preemption, preemptible_of(scenario, faults.preemption), streams))
    return heapq.merge(*kinds)


_BLOCK = 256


def _times_more(rates_90: tuple[float, float] | None, streams: Streams, name: str) -> float:
    """How many times as often faults come in this run as their mean times say: lognormal."""
    if rates_90 is None:
        return 1.0
    low, high = map(math.log, rates_90)
    return math.exp((low + high) / 2 + (high - low) / (2 * Z_90) * float(streams.generator(name).standard_normal()))


def _lives(preemption: Preemption, mean_s: float, count: int, shape: float, streams: Streams) -> Iterator[Arrival]:
    """Lives of each node, one after the other; the first begins with the job."""
    shape = preemption.shape if preemption.shape is not None else shape
    scale_s, most_s = mean_s / math.gamma(1.0 + 1.0 / shape), math.inf if preemption.most_s is None else preemption.most_s
    lives = streams.rows("lives of nodes", np.arange(count), lambda rng, size: rng.weibull(shape, size))
    waits = streams.rows("waits for nodes", np.arange(count), np.random.Generator.standard_exponential)

    def next_of(rows: Rows, *nodes: int) -> list[float]:
        drawn = np.empty((len(nodes), 1))
        rows.fill(np.array(nodes), drawn)
        return drawn[:, 0].tolist()  # type: ignore[no-any-return]

    def life_s(drawn: float) -> float:
        return float(max(min(scale_s * drawn, most_s) - preemption.notice_s, 0.0))

    ends = [(life_s(drawn), node) for node, drawn in enumerate(next_of(lives, *range(count)))]
    heapq.heapify(ends)
    while True:
        at_s, node = ends[0]
        gone_s = (preemption.wait_s * next_of(waits, node)[0] if preemption.wait_s else 0.0) + preemption.replacement_s
        yield Arrival(at_s, "preemption", node, gone_s)
        heapq.heapreplace(ends, (at_s + preemption.notice_s + gone_s + life_s(next_of(lives, node)[0]), node))


def _replayed(preemption: Preemption, count: int, streams: Streams) -> Iterator[Arrival]:
    """Node i is there while more than i nodes are to be had; after the end of the trace comes its beginning."""
    lasts_s = preemption.available[-1].at_s
    begins_s = lasts_s * float(streams.generator("place in the trace").random()) if preemption.begins == "anywhere" else 0.0
    away = _absences(preemption.available, count)
    never = [node for at_s, long_s, node in away if long_s == math.inf]
    yield from (Arrival(0.0, "preemption", node, math.inf) for node in never)
    away = [each for each in away if each[1] < math.inf]
    # what had gone before the job begins, and is not yet back; the trace has been so for ever
    now = [(at_s + turn * lasts_s - begins_s, long_s, node) for turn in (-1, 0) for at_s, long_s, node in away]
    yield from sorted(
        Arrival(0.0, "preemption", node, at_s + long_s + preemption.replacement_s)
        for at_s, long_s, node in now
        if at_s <= 0.0 < at_s + long_s
    )
    for turn in itertools.count() if away else ():
        for at_s, long_s, node in away:
            since_s = at_s + turn * lasts_s - begins_s
            if since_s > 0.0:
                told_s = max(since_s - preemption.notice_s, 0.0)
                yield Arrival(told_s, "preemption", node, long_s + preemption.replacement_s)


def _absences(trace: Sequence[Nodes], count: int) -> list[tuple[float, float, int]]:
    """Each time that a node is away: since when in the trace, for how long, and which; those that never come for ever."""
    lasts_s, points = trace[-1].at_s, [(point.at_s, min(point.nodes, count)) for point in trace[:-1]]
    most = max(nodes for _, nodes in points)
    first = next(place for place, (_, nodes) in enumerate(points) if nodes == most)
    turned = [*points[first:], *((at_s + lasts_s, nodes) for at_s, nodes in points[: first + 1])]  # begins and ends with most
    absences = [(0.0, math.inf, node) for node in range(most, count)]
    since_s: list[float] = []  # of the nodes that are away, from the last one on
    for at_s, nodes in turned:
        since_s += [at_s] * (most - nodes - len(since_s))
        while len(since_s) > most - nodes:
            left_s = since_s.pop()
            absences.append((left_s % lasts_s, at_s - left_s, most - 1 - len(since_s)))
    return sorted(absences)


def _renewals(what: str, count: int, mean_s: float, shape: float, streams: Streams) -> Iterator[Arrival]:
    draw = streams.generator(f"faults of {what}")
    scale_s = mean_s / count / math.gamma(1.0 + 1.0 / shape)
    now_s = 0.0
    while True:
        for gap, number in zip(draw.weibull(shape, _BLOCK).tolist(), draw.integers(0, count, _BLOCK).tolist(), strict=True):
            now_s += scale_s * gap
            yield Arrival(now_s, what, number)  # type: ignore[arg-type]


def effect_of(scenario: Scenario, fault: Arrival) -> Effect:
    """Effect of a fault on a way of training.

    Parameters hold the state of a training without servers in every replica, but TensorFlow's collectives end with an error on all
    of them when one is missing, so that all begin again with the last checkpoint, unless the job is elastic. With parameter
    servers a worker holds nothing: asynchronous ones go on without it, and synchronous ones as far as backup workers make up for
    it; else they wait. Without a server all stop.
    """
    layout, pace, job = scenario.layout, scenario.strategy.pace, scenario.job
    missing: tuple[int, ...] = ()
    server = fault.what == "server"
    if fault.what == "worker":
        missing = (fault.number,)
    elif fault.what in ("node", "preemption"):
        first = fault.number * layout.replicas_per_node // layout.replicas_per_process
        after = -(-(fault.number + 1) * layout.replicas_per_node // layout.replicas_per_process)
        missing = tuple(range(first, min(after, layout.processes)))
        server = bool(layout.servers) and (fault.number < layout.servers if layout.servers_beside else fault.number >= layout.worker_nodes)
    if server or not missing:
        return Effect(stops=True, waits=False, workers=missing)
    if layout.servers:
        goes_on = pace.asynchronous and pace.bound is None
        return Effect(stops=False, waits=not goes_on and not pace.backups, workers=missing)
    if job is not None and job.faults is not None and job.faults.elastic and layout.processes > 1:
        return Effect(stops=False, waits=False, workers=missing, rolls_back=True)
    return Effect(stops=True, waits=False, workers=missing)
