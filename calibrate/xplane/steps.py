"""Finds the training steps of a profile, and splits each into input, forward, backward, apply and communication.

Which part an operation belongs to is decided by :func:`calibrate.xplane.reading.role_of`.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter
from statistics import median
from typing import NamedTuple

from calibrate.xplane.reading import Event, Op, Profile, Timeline, device_ops, host_ops, uncovered_s, union_s, whole_number
from simulator.base.errors import CalibrationError

_STEP_LINE = "Steps"
_PAUSE = 10.0
"""So many times the median period is a pause, for an evaluation or a checkpoint, and no step."""
_HOW_TO_MARK = (
    "mark each step with `with tf.profiler.experimental.Trace('train', step_num=n, _r=1):`, or train by Model.fit with the callback "
    "TensorBoard(profile_batch=(10, 30)), or make the step a tf.function"
)


class Window(NamedTuple):
    """One step: from its beginning to the beginning of the next.

    Attributes
    ----------
    number
        As the profile counts.
    start_s, end_s
        Seconds since the profile began. The last step, and one before a pause, ends with its own mark.
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
    traced: int
    pauses: int


@dataclass(frozen=True)
class MeasuredStep:
    """One step, in seconds; the parts add up to the whole.

    Attributes
    ----------
    number
        As the profile counts.
    whole_s
        From its beginning to the next one's.
    input_s
        Waiting for the next batch.
    forward_s, backward_s, apply_s
        Until the first gradient's operation begins, until the last one ends, and the rest.
        Backward and apply are None where no operation is named as a gradient's.
    collective_s
        Collectives on a device while it computed nothing; taken out of the backward pass.
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
    ops: tuple[Op, ...] = field(repr=False)

    @property
    def compute_s(self) -> float:
        """The step without waiting for input and without exposed collectives."""
        return self.whole_s - self.input_s - self.collective_s


@dataclass(frozen=True)
class InputPipeline:
    """Work of ``tf.data``.

    Attributes
    ----------
    prepare_s
        Mean seconds to prepare a batch during computation; 0 where nothing is prefetched.
    prefetched
        Batches are prepared while a step computes.
    batch_bytes
        Mean bytes of a batch, where recorded; else 0.
    shapes
        Of its tensors, such as ``[32,32] [32]``; "" where not recorded.
    batches_a_step
        Batches fetched in a marked step: above 1 where a step of the profile is several of the model's.
    """

    prepare_s: float
    prefetched: bool
    batch_bytes: float
    shapes: str
    batches_a_step: int


@dataclass(frozen=True)
class StepsOfProfile:
    """The steps of one host's profile and what is common to them."""

    profile: Profile
    marks: Marks
    device: str
    steps: tuple[MeasuredStep, ...]
    input: InputPipeline

    @property
    def started(self) -> str:
        """When the profiler was started, as ISO 8601; "" where that was not recorded."""
        begun_ns = whole_number(self.profile.planes.get("Task Environment", {}).get("profile_start_time"))
        return datetime.fromtimestamp(begun_ns * 1e-9).astimezone().isoformat(timespec="seconds") if begun_ns else ""

    @property
    def device_name(self) -> str:
        """The device that the times are those of, as a reader knows it."""
        if self.device.startswith("/device:"):
            kind = self.profile.planes.get(self.device, {}).get("device_type_string", "")
            return f"{kind or self.device.removeprefix('/device:')} of {self.profile.host}"
        return f"CPU of {self.profile.host}"


def steps_of(profile: Profile) -> StepsOfProfile:
    """Find the steps of a profile and split them.

    Times are those of the first GPU or TPU that did something; where there is none, of the
    host's threads. A device's own line of steps needs no marks of the host.

    Raises
    ------
    CalibrationError
        There are no steps.
    """
    device = profile.devices[0] if profile.devices else ""
    own_line = next((line for line in profile.timelines if line.plane == device and line.name == _STEP_LINE), None)
    own = () if own_line is None else tuple(_windows(_marks_of(own_line.events))[0])
    try:
        marks = _host_marks(profile)
    except CalibrationError:
        if not own:
            raise
        marks = Marks(_STEP_LINE, own, 0, 0)
    # when a step asked tf.data for a batch, and had it
    fetched = [event for line in profile.host_lines for event in line.events if _is_fetch(event.name)]
    fetches = [(event.start_s, event.end_s) for event in fetched]
    pipeline = _pipeline(profile.host_lines, marks, fetched)
    # where nothing is prefetched, preparing the input is a part of the step
    waits = fetches if pipeline.prefetched else []
    if not device:
        ops = host_ops(profile.host_lines)
        steps = tuple(_on_host(window, _within_window(window, ops), waits) for window in marks.windows)
        return StepsOfProfile(profile, marks, "/host:CPU", steps, pipeline)
    ops = device_ops(line for line in profile.timelines if line.plane == device)
    owned = {window: _within_window(window, ops) for window in own} if own else _launched_windows(profile, device, marks, ops)
    return StepsOfProfile(profile, marks, device, tuple(_on_device(window, ran, waits) for window, ran in owned.items()), pipeline)


def _within_window(window: Window, ops: Sequence[Op]) -> Sequence[Op]:
    """The operations, sorted by their beginning, that begin in a step."""
    begin = attrgetter("start_s")
    return ops[bisect_left(ops, window.start_s, key=begin) : bisect_left(ops, window.end_s, key=begin)]


def _host_marks(profile: Profile) -> Marks:
    """The steps of a profile.

    Events with a step number (``tf.profiler.experimental.Trace``, Keras' TensorBoard callback,
    ``TraceContext``) are taken; where there is none, calls of the ``tf.function`` that took the
    most time in all, or of ``Session.run``. A step lasts until the next one begins, so that
    what happens between two steps counts, as it does in training.

    Raises
    ------
    CalibrationError
        There is no step; the message says what there is and how steps are marked.
    """
    name, line, events = _marked(profile)
    traced = [event.start_s for event in line.events if str(event.statistics.get("tf_function_call", "")).startswith("traced")]
    windows, pauses = _windows(_marks_of(events))
    kept = tuple(window for window in windows if not any(window.start_s <= start < window.end_s for start in traced))
    if not kept:
        raise CalibrationError(
            f"{profile.path}: each of its {len(windows)} steps traced a graph, so none is a training step: profile later steps"
        )
    return Marks(name, kept, len(windows) - len(kept), pauses)


def _launched_windows(profile: Profile, device: str, marks: Marks, ops: Sequence[Op]) -> dict[Window, Sequence[Op]]:
    """The steps of a device, and what it did in each.

    A kernel belongs to the step in which the host launched it (they share a correlation number),
    and a step lasts from its first kernel to the first of the next.

    Raises
    ------
    CalibrationError
        Nothing on the device can be assigned to a step.
    """
    launched = {
        number: event.start_s
        for line in profile.host_lines
        for event in line.events
        if (number := event.number("correlation_id")) is not None
    }
    starts = [window.start_s for window in marks.windows]
    owned: dict[Window, list[Op]] = defaultdict(list)
    for op in ops:
        begun = launched.get(op.correlation, op.start_s) if op.correlation is not None else op.start_s
        place = bisect_right(starts, begun) - 1
        if place >= 0 and begun < marks.windows[place].end_s:
            owned[marks.windows[place]].append(op)
    if not owned:
        raise CalibrationError(f"{profile.path}: no operation on {device} was launched within a step ({marks.name}); {_HOW_TO_MARK}")
    launches = sorted(owned.items(), key=lambda item: item[1][0].start_s)
    windows, _ = _windows([Window(window.number, ran[0].start_s, max(op.end_s for op in ran)) for window, ran in launches])
    return dict(zip(windows, (ran for _, ran in launches), strict=True))


def _marked(profile: Profile) -> tuple[str, Timeline, list[Event]]:
    """The marks of steps: their name, the line that they lie on, and themselves."""
    numbered: dict[tuple[int, str], list[Event]] = defaultdict(list)
    functions: dict[tuple[int, str], list[Event]] = defaultdict(list)
    lines = profile.host_lines
    for index, line in enumerate(lines):
        for event in line.events:
            if "step_num" in event.statistics and event.end_s > event.start_s:
                numbered[index, event.name].append(event)
            elif event.name == "SessionRun":
                functions[index, event.name].append(event)
            elif event.name == "EagerExecute" and event.statistics.get("is_func"):
                functions[index, str(event.statistics.get("eager_op", ""))].append(event)
    if numbered:
        (index, name), events = max(numbered.items(), key=lambda item: (len(item[1]), _total_s(item[1])))
    elif functions:
        (index, name), events = max(functions.items(), key=lambda item: _total_s(item[1]))
    else:
        count = sum(len(line.events) for line in profile.timelines)
        planes = ", ".join(sorted({line.plane for line in profile.timelines})) or "nothing"
        raise CalibrationError(f"{profile.path}: has no training steps among its {count} events ({planes}); {_HOW_TO_MARK}")
    return name, lines[index], events


def _total_s(events: Iterable[Event]) -> float:
    return math.fsum(event.duration_s for event in events)


def _marks_of(events: Sequence[Event]) -> list[Window]:
    """Marks of steps, numbered as they say, or else in turn."""
    numbers = [whole_number(event.statistics.get("step_num", event.name)) for event in events]
    return [
        Window(turn if number is None else number, event.start_s, event.end_s)
        for turn, (number, event) in enumerate(zip(numbers, events, strict=True))
    ]


def _windows(marks: list[Window]) -> tuple[list[Window], int]:
    """Steps, each from its mark until the next begins, and how many pauses there were."""
    marks = sorted(marks, key=lambda mark: mark.start_s)
    if len(marks) < 2:
        return marks, 0
    periods = [after.start_s - before.start_s for before, after in itertools.pairwise(marks)]
    longest = _PAUSE * median(periods)
    windows = [
        mark._replace(end_s=mark.start_s + period) if period <= longest else mark
        for mark, period in zip(marks, [*periods, math.inf], strict=True)
    ]
    return windows, sum(period > longest for period in periods)


def _within(window: Window, spans: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    return [(max(start, window.start_s), min(end, window.end_s)) for start, end in spans if start < window.end_s and end > window.start_s]


def _on_host(window: Window, ops: Sequence[Op], waits: Sequence[tuple[float, float]]) -> MeasuredStep:
    input_s = union_s(_within(window, waits))
    whole_s = window.end_s - window.start_s
    gradients = [op for op in ops if op.role == "gradient"]
    if not gradients:
        return MeasuredStep(window.number, whole_s, input_s, whole_s - input_s, None, None, 0.0, tuple(ops))
    begun, ended = min(op.start_s for op in gradients), min(max(op.end_s for op in gradients), window.end_s)
    forward_s = begun - window.start_s - union_s(_within(window._replace(end_s=begun), waits))
    apply_s = window.end_s - ended - union_s(_within(window._replace(start_s=ended), waits))
    return MeasuredStep(window.number, whole_s, input_s, forward_s, whole_s - input_s - forward_s - apply_s, apply_s, 0.0, tuple(ops))


def _on_device(window: Window, ops: Sequence[Op], waits: Sequence[tuple[float, float]]) -> MeasuredStep:
    """A step of a device: idle time behind its last kernel is waiting for input, as far as the host waited, else for the host."""
    whole_s = window.end_s - window.start_s
    last_s = max((op.end_s for op in ops), default=window.end_s)
    idle_s = max(window.end_s - last_s, 0.0)
    input_s = union_s(_within(window._replace(start_s=min(last_s, window.end_s)), waits))
    computing = [(op.start_s, op.end_s) for op in ops if op.role not in ("communication", "copy")]
    collectives = [(op.start_s, op.end_s) for op in ops if op.role == "communication"]
    collective_s = uncovered_s(collectives, computing)
    gradients = [op for op in ops if op.role == "gradient"]
    if not gradients:
        return MeasuredStep(window.number, whole_s, input_s, whole_s - input_s - collective_s, None, None, collective_s, tuple(ops))
    begun, ended = min(op.start_s for op in gradients), max(op.end_s for op in gradients)
    # collectives run among the gradients, and between the last of them and the optimizer
    behind_s = uncovered_s([(max(start, ended), end) for start, end in collectives if end > ended], computing)
    forward_s = begun - window.start_s + idle_s - input_s
    apply_s = max(last_s - ended - behind_s, 0.0)
    backward_s = max(whole_s - input_s - collective_s - forward_s - apply_s, 0.0)
    return MeasuredStep(window.number, whole_s, input_s, forward_s, backward_s, apply_s, collective_s, tuple(ops))


def _is_fetch(name: str) -> bool:
    return name.endswith("::DoCompute") and "Iterator" in name and "GetNext" in name


def _pipeline(lines: Sequence[Timeline], marks: Marks, fetched: Sequence[Event]) -> InputPipeline:
    events = [event for line in lines for event in line.events if event.name.startswith("Iterator::")]
    sizes = [size for event in fetched if (size := event.number("element_size")) is not None]
    stages: dict[str, list[float]] = defaultdict(list)
    shapes = ""
    for event in events:
        if event.name == "Iterator::Root":
            shapes = str(event.statistics.get("shapes", shapes))
        stages[event.name].append(event.duration_s)
    # the stage that the outermost prefetch calls, in a thread of its own
    behind = [name for name in stages if "Prefetch" in name.rpartition("::")[0]]
    prefetched = any("Prefetch" in name for name in stages)
    outermost = min(behind, key=lambda name: (name.count("::"), name), default=None)
    prepare_s = math.fsum(stages[outermost]) / len(stages[outermost]) if outermost is not None else 0.0
    counts = [sum(window.start_s <= event.start_s < window.end_s for event in fetched) for window in marks.windows]
    return InputPipeline(
        prepare_s=prepare_s if prefetched else 0.0,
        prefetched=prefetched,
        batch_bytes=math.fsum(sizes) / len(sizes) if sizes else 0.0,
        shapes=shapes,
        batches_a_step=max(int(median(counts)), 1) if counts else 1,
    )
