"""What the readers of traces fill, whatever wrote the trace: steps, the operations in each, and the collectives among them.

:mod:`calibrate.traces.xplane` reads TensorFlow and JAX, :mod:`calibrate.traces.kineto` PyTorch; :mod:`calibrate.traces.steps` splits the
steps of either into parts.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any, Literal, NamedTuple

from simulator.base.errors import CalibrationError

Span = tuple[float, float]
"""Start and end, in seconds since the trace began."""

Role = Literal["forward", "gradient", "optimizer", "input", "communication", "copy"]

_PAUSE = 10.0
"""Multiple of the median period from which it is a pause, for an evaluation or a checkpoint, and no step."""


@dataclass(frozen=True, slots=True)
class Collective:
    """What a trace records of a collective.

    Attributes
    ----------
    name
        ``all_reduce``, ``all_gather``, ``reduce_scatter``, ``all_to_all``, ``send`` or another.
    size_bytes
        The larger of its input and its output on one rank; 0 where not recorded.
    dtype
        Of its elements, as recorded.
    group
        Name of its group.
    size
        Ranks of the group; 0 where not recorded.
    ranks
        Their numbers, where recorded in full.
    """

    name: str
    size_bytes: float = 0.0
    dtype: str = ""
    group: str = ""
    size: int = 0
    ranks: tuple[int, ...] = ()

    @property
    def turns_and_parts(self) -> tuple[int, int] | None:
        """How often in turn each rank of a ring sends which part of the buffer; None where sizes are not recorded, or it is no ring.

        A receive mostly waits for what its sender computes.
        """
        if self.size_bytes <= 0 or self.size < 2:
            return None
        each = self.size - 1, self.size
        turns = {"all_reduce": (2 * each[0], each[1]), "broadcast": (1, 1)}
        return turns.get(self.name, each if self.name in ("all_gather", "reduce_scatter", "all_to_all") else None)

    @property
    def bus_bytes(self) -> float:
        """Bytes that cross each link, as nccl-tests counts them for the bus bandwidth; 0 where not known."""
        turns, parts = self.turns_and_parts or (0, 1)
        return self.size_bytes * turns / parts


@dataclass(frozen=True, slots=True)
class Op:
    """One operation, or one kernel of it on a GPU.

    Attributes
    ----------
    path
        Its name: of the node in TensorFlow's graph, such as ``gradient_tape/dense/MatMul/MatMul_1``, or of PyTorch's operator.
    kind
        Its type, such as ``MatMul``; the kernel's name where none was recorded.
    role
        The part of a step that it belongs to.
    start_s, end_s
        Seconds since the trace began.
    size_bytes
        Bytes that it moves, where that was recorded; else 0.
    correlation
        Number that a kernel shares with the call on the host that launched it; else None.
    launched_s
        When the host launched it, where known.
    phase
        The part of the step that launched it: of communication, the pass that it belongs to.
    collective
        What is known of a collective.
    """

    path: str
    kind: str
    role: Role
    start_s: float
    end_s: float
    size_bytes: float = 0.0
    correlation: int | None = None
    launched_s: float | None = None
    phase: Role = "forward"
    collective: Collective | None = None

    @property
    def span(self) -> Span:
        """When it ran."""
        return self.start_s, self.end_s

    @property
    def computes(self) -> bool:
        """It neither communicates nor copies."""
        return self.role not in ("communication", "copy")


class Window(NamedTuple):
    """One step: from its beginning to the beginning of the next.

    Attributes
    ----------
    number
        As the profile counts.
    start_s, end_s
        Seconds since the trace began. The last step, and one before a pause, ends with its own mark.
    """

    number: int
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Marks:
    """The steps that the host has marked.

    Attributes
    ----------
    name
        What they are called.
    windows
        In the order of time; steps that traced a graph are left out.
    traced, pauses
        How many steps were left out for tracing, how many were ended at their own mark for a pause behind them.
    """

    name: str
    windows: tuple[Window, ...]
    traced: int = 0
    pauses: int = 0


@dataclass(frozen=True)
class InputPipeline:
    """Work of the input pipeline.

    Attributes
    ----------
    prepare_s
        Mean seconds to prepare a batch during computation; 0 where nothing is prefetched, or it is not recorded.
    prefetched
        Batches are prepared while a step computes.
    batch_bytes
        Mean bytes of a batch, where recorded; else 0.
    shapes
        Of its tensors, such as ``[32,32] [32]``; "" where not recorded.
    batches_a_step
        Batches fetched in a marked step: above 1 where a step of the profile is several of the model's.
    """

    prepare_s: float = 0.0
    prefetched: bool = False
    batch_bytes: float = 0.0
    shapes: str = ""
    batches_a_step: int = 1


class Gradient(NamedTuple):
    """The gradient of a variable whose shape the trace has.

    Attributes
    ----------
    shape
        Of the variable.
    size_bytes
        Of the gradient.
    created
        Place of the variable in the order of creation, which backward passes follow from its end.
    ready
        Share of the backward pass after which the gradient is complete.
    """

    shape: tuple[int, ...]
    size_bytes: float
    created: int
    ready: float


@dataclass(frozen=True)
class Trace:
    """The steps of one process, and what ran in each.

    Attributes
    ----------
    path, sha256
        The file, and the hash of its content as hexadecimal digits.
    host, started
        Name of the host; when the profiler was started, as ISO 8601. "" where not recorded.
    device, device_name
        ``/host:CPU``, or the device that the times are those of; its name for a reader.
    devices
        All devices that did something.
    marks
        The marked steps.
    steps
        What ran in each, in the order in which it began.
    waits
        When the host waited for input.
    input
        The input pipeline.
    backend
        Framework, as Keras names its backends.
    by_launch
        Roles are known from where the host launched an operation, not from names: all that computes is seen.
    gradients
        In the order in which they become ready, where their shapes were recorded.
    rank, world_size, node_devices
        Of the process among all of the training; devices of its machine. None where not recorded.
    lacks
        What the trace does not have, by subject, each in one sentence.
    """

    path: Path
    sha256: str
    host: str
    started: str
    device: str
    device_name: str
    devices: tuple[str, ...]
    marks: Marks
    steps: Mapping[Window, Sequence[Op]] = field(repr=False)
    waits: Sequence[Span] = field(repr=False)
    input: InputPipeline
    backend: Literal["tensorflow", "jax", "torch"] = "tensorflow"
    by_launch: bool = False
    gradients: tuple[Gradient, ...] = ()
    rank: int | None = None
    world_size: int | None = None
    node_devices: int | None = None
    lacks: Mapping[str, str] = field(default_factory=dict)

    @property
    def on_device(self) -> bool:
        """Times are those of a device, not of the host."""
        return self.device.startswith("/device:")


def whole_number(value: Any) -> int | None:
    """A statistic as a whole number of at least 0; None where it is not one."""
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if number >= 0 else None


def windows_of(marks: Iterable[Window]) -> tuple[list[Window], int]:
    """Steps, each from its mark until the next begins, and how many pauses there were."""
    ordered = sorted(marks, key=lambda mark: mark.start_s)
    if len(ordered) < 2:
        return ordered, 0
    periods = [after.start_s - before.start_s for before, after in itertools.pairwise(ordered)]
    longest = _PAUSE * median(periods)
    windows = [
        mark._replace(end_s=mark.start_s + period) if period <= longest else mark
        for mark, period in zip(ordered, [*periods, math.inf], strict=True)
    ]
    return windows, sum(period > longest for period in periods)


def launched_windows(path: Path, device: str, marks: Marks, ops: Iterable[Op], how_to_mark: str) -> dict[Window, Sequence[Op]]:
    """The steps of a device, and what it did in each.

    A kernel belongs to the step in which the host launched it, and a step lasts from its first kernel to the first of the next.

    Raises
    ------
    CalibrationError
        Nothing on the device can be assigned to a step.
    """
    starts = [window.start_s for window in marks.windows]
    owned: dict[Window, list[Op]] = defaultdict(list)
    for op in ops:
        begun = op.start_s if op.launched_s is None else op.launched_s
        place = bisect_right(starts, begun) - 1
        if place >= 0 and begun < marks.windows[place].end_s:
            owned[marks.windows[place]].append(op)
    if not owned:
        raise CalibrationError(f"{path}: no operation on {device} was launched within a step ({marks.name}); {how_to_mark}")
    launches = sorted(owned.items(), key=lambda item: item[1][0].start_s)
    windows, _ = windows_of(Window(window.number, ran[0].start_s, max(op.end_s for op in ran)) for window, ran in launches)
    return dict(zip(windows, (ran for _, ran in launches), strict=True))


def launched_at(op: Op, launched: Mapping[int, float]) -> Op:
    """The operation with the time of its launch, by the correlation number that it shares with a call."""
    return op if op.correlation is None else replace(op, launched_s=launched.get(op.correlation))


def within(start_s: float, end_s: float, spans: Iterable[Span]) -> list[Span]:
    """The parts of spans that lie between two times."""
    return [(max(start, start_s), min(end, end_s)) for start, end in spans if start < end_s and end > start_s]


def union_s(spans: Iterable[Span]) -> float:
    """Seconds that at least one of the spans covers."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(end - max(start, reached), 0.0)
        reached = max(reached, end)
    return total


def uncovered_s(spans: Iterable[Span], others: Iterable[Span]) -> float:
    """Seconds that some span covers and none of the others does."""
    ours, theirs = list(spans), list(others)
    return union_s([*ours, *theirs]) - union_s(theirs)
