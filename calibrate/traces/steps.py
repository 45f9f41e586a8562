"""Splits the steps of a trace into input, forward, backward, apply and communication; finds the buckets in which gradients are reduced."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from calibrate.traces.trace import Op, Span, Trace, Window, uncovered_s, union_s, within


@dataclass(frozen=True)
class MeasuredStep:
    """One step, in seconds; the parts up to ``collective_s`` add up to the whole.

    Attributes
    ----------
    number
        As the profile counts.
    whole_s
        From its beginning to the next one's.
    input_s
        Waiting for the next batch.
    forward_s, backward_s, apply_s
        Until the first gradient's operation begins, until the last one ends, and the rest; of several micro-batches each forward and
        backward pass. Backward and apply are None where no operation is known to be a gradient's.
    collective_s, hidden_s
        Collectives while nothing was computed, which are taken out of the passes; and while something was.
    idle_s
        Nothing ran that the trace knows; a part of the passes.
    ops
        What ran in it.
    """

    number: int
    whole_s: float
    input_s: float
    forward_s: float
    backward_s: float | None
    apply_s: float | None
    collective_s: float
    hidden_s: float
    idle_s: float
    ops: Sequence[Op] = field(repr=False)

    @property
    def compute_s(self) -> float:
        """The step without waiting for input and without exposed collectives."""
        return self.whole_s - self.input_s - self.collective_s


@dataclass(frozen=True)
class StepsOfProfile:
    """The steps of one trace."""

    trace: Trace
    steps: tuple[MeasuredStep, ...]


def steps_of(trace: Trace) -> StepsOfProfile:
    """Split the steps of a trace."""
    return StepsOfProfile(trace, tuple(_split(trace, window, ops) for window, ops in trace.steps.items()))


def _split(trace: Trace, window: Window, ops: Sequence[Op]) -> MeasuredStep:
    """A step. Idle time behind a device's last kernel is waiting for input, as far as the host waited, else for the host."""
    start_s, end_s = window.start_s, window.end_s
    whole_s = end_s - start_s
    last_s = max((op.end_s for op in ops), default=end_s) if trace.on_device else end_s
    waits = within(min(last_s, end_s) if trace.on_device else start_s, end_s, trace.waits)
    computing = [op.span for op in ops if op.computes]
    # threads of TensorFlow's host wait for tensors while others compute
    collectives = [op.span for op in ops if op.role == "communication"] if trace.on_device or trace.by_launch else []
    input_s, collective_s = union_s(waits), uncovered_s(collectives, computing)
    hidden_s = union_s(collectives) - collective_s
    idle_s = whole_s - union_s(within(start_s, end_s, [op.span for op in ops])) if ops else 0.0

    def worked_s(begin_s: float, finish_s: float) -> float:
        """Seconds without waiting for input and without exposed collectives."""
        lost_s = union_s(within(begin_s, finish_s, waits)) + uncovered_s(within(begin_s, finish_s, collectives), computing)
        return finish_s - begin_s - lost_s

    passes = backward_passes(ops, several=trace.by_launch)
    rest = collective_s, hidden_s, idle_s, ops
    if not passes:
        return MeasuredStep(window.number, whole_s, input_s, whole_s - input_s - collective_s, None, None, *rest)
    before = [(start_s, passes[0][0]), *((ended, begun) for (_, ended), (begun, _) in itertools.pairwise(passes))]
    behind_s = max(end_s - last_s, 0.0)
    forward_s = math.fsum(itertools.starmap(worked_s, before)) + behind_s - (input_s if trace.on_device else 0.0)
    apply_s = max(worked_s(min(passes[-1][1], last_s), last_s), 0.0)
    backward_s = max(whole_s - input_s - collective_s - forward_s - apply_s, 0.0)
    return MeasuredStep(window.number, whole_s, input_s, forward_s, backward_s, apply_s, *rest)


def backward_passes(ops: Iterable[Op], *, several: bool) -> list[Span]:
    """Each backward pass, from its first operation to the end of its last: ``several`` where forward passes lie between them."""
    runs: list[list[Op]] = []
    interrupted = True
    for op in ops:
        if op.role == "gradient":
            if interrupted and (several or not runs):
                runs.append([])
            runs[-1].append(op)
            interrupted = False
        elif op.role == "forward":
            interrupted = True
    return [(run[0].start_s, max(op.end_s for op in run)) for run in runs]


class Readiness:
    """When what the host asked for in the last backward pass of a step was ready on the device.

    Parameters
    ----------
    ops
        Of a step.
    """

    def __init__(self, ops: Sequence[Op]) -> None:
        passes = backward_passes(ops, several=True)
        self.passes = len(passes)
        self.begun_s, ended_s = passes[-1] if passes else (0.0, 0.0)
        self._whole_s = ended_s - self.begun_s
        gradients = sorted((_launch_s(op), op.end_s) for op in ops if op.role == "gradient" and op.start_s >= self.begun_s)
        self._launched = [launched_s for launched_s, _ in gradients]
        self._ended = list(itertools.accumulate((end_s for _, end_s in gradients), max))

    def at(self, launched_s: float) -> float:
        """When all gradients' operations that were launched until then have ended."""
        place = bisect_right(self._launched, launched_s)
        return self._ended[place - 1] if place else self.begun_s

    def share(self, time_s: float) -> float:
        """Share of the backward pass that is over at a time."""
        return min(max((time_s - self.begun_s) / self._whole_s, 0.0), 1.0) if self._whole_s > 0 else 1.0


def _launch_s(op: Op) -> float:
    return op.start_s if op.launched_s is None else op.launched_s


class Bucket(NamedTuple):
    """A collective by which gradients are reduced.

    Attributes
    ----------
    number
        In the order of launching.
    collective, size_bytes, ranks
        Its name, bytes (0 where not recorded), and how many ranks take part.
    ready, ready_s
        Share of the backward pass, and seconds since its beginning, after which its gradients are complete.
    start_s, seconds
        When it begins, since the beginning of the backward pass, and how long it takes.
    """

    number: int
    collective: str
    size_bytes: float
    ranks: int
    ready: float
    ready_s: float
    start_s: float
    seconds: float


_REDUCES = ("all_reduce", "reduce_scatter")


def buckets_of(steps: Sequence[MeasuredStep]) -> list[Bucket]:
    """The buckets of gradients, as medians over the steps; of steps that have another number of them than most, nothing.

    Groups that reduce in the forward pass too are those of a model cut over devices, and carry no gradients.
    """
    each: list[list[Bucket]] = []
    for step in steps:
        reduces = [op for op in step.ops if op.collective is not None and op.collective.name in _REDUCES]
        gradients = [_launch_s(op) for op in step.ops if op.role == "gradient"]
        if not gradients:
            continue
        cut = {_group(op) for op in reduces if _launch_s(op) < min(gradients)}
        ready = Readiness(step.ops)
        own = sorted((op for op in reduces if _group(op) not in cut and op.phase != "optimizer"), key=_launch_s)
        each.append([_bucket(number, op, ready) for number, op in enumerate(own, 1)])
    usual = Counter(len(own) for own in each).most_common(1)[0][0] if each else 0
    kept = [own for own in each if len(own) == usual]
    return [
        same[0]._replace(**{name: median(getattr(own, name) for own in same) for name in ("ready", "ready_s", "start_s", "seconds")})
        for same in zip(*kept, strict=True)
    ]


def _group(op: Op) -> tuple[str, int]:
    return (op.collective.group, op.collective.size) if op.collective else ("", 0)


def _bucket(number: int, op: Op, ready: Readiness) -> Bucket:
    assert op.collective is not None
    ready_s = min(ready.at(_launch_s(op)), max(op.start_s, ready.begun_s))
    return Bucket(
        number, op.collective.name, op.collective.size_bytes, op.collective.size, ready.share(ready_s), ready_s - ready.begun_s,
        op.start_s - ready.begun_s, op.end_s - op.start_s,
    )  # fmt: skip
