"""Where the training steps of a profile begin and end."""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from calibrate.xplane.ops import Op, begin
from calibrate.xplane.reading import Event, Profile, Timeline
from simulator.errors import CalibrationError

__all__ = ["Marks", "Window", "device_windows", "host_marks"]

_STEP_LINE = "Steps"
_PAUSE = 10.0
"""So many times the median period is a pause, for an evaluation or a checkpoint, and no step."""
_HOW_TO_MARK = (
    "mark each step with `with tf.profiler.experimental.Trace('train', step_num=n, _r=1):`, or train by Model.fit with the callback "
    "TensorBoard(profile_batch=(10, 30)), or make the step a tf.function"
)


@dataclass(frozen=True)
class Window:
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


def host_marks(profile: Profile) -> Marks:
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
    windows, pauses = _windows([(_number(event, turn), event.start_s, event.end_s) for turn, event in enumerate(events)])
    kept = tuple(one for one in windows if not any(one.start_s <= start < one.end_s for start in traced))
    if not kept:
        raise CalibrationError(
            f"{profile.path}: each of its {len(windows)} steps traced a graph anew, which is no training; profile later steps"
        )
    return Marks(name, kept, len(windows) - len(kept), pauses)


def device_windows(profile: Profile, device: str, marks: Marks, ops: Sequence[Op]) -> dict[Window, list[Op]]:
    """The steps of a device, and what it did in each.

    Taken from the device's own line of steps where it has one. Else a kernel belongs to the
    step in which the host launched it (they share a correlation number), and a step lasts
    from its first kernel to the first of the next.

    Raises
    ------
    CalibrationError
        Nothing on the device can be assigned to a step.
    """
    lines = [line for line in profile.timelines if line.plane == device and line.name == _STEP_LINE]
    if lines:
        windows, _ = _windows([(_number(event, turn), event.start_s, event.end_s) for turn, event in enumerate(lines[0].events)])
        return _by_time(windows, ops)
    launched = {
        int(event.statistics["correlation_id"]): event.start_s
        for line in profile.host_lines
        for event in line.events
        if "correlation_id" in event.statistics
    }
    starts = [window.start_s for window in marks.windows]
    owned: dict[Window, list[Op]] = defaultdict(list)
    for op in ops:
        begun = launched.get(op.correlation, op.start_s) if op.correlation is not None else op.start_s
        place = bisect_right(starts, begun) - 1
        if place >= 0 and begun < marks.windows[place].end_s:
            owned[marks.windows[place]].append(op)
    if not owned:
        raise CalibrationError(f"{profile.path}: nothing on {device} was launched within a step ({marks.name}); {_HOW_TO_MARK}")
    launches = sorted(owned.items(), key=lambda item: item[1][0].start_s)
    windows, _ = _windows([(window.number, its[0].start_s, max(op.end_s for op in its)) for window, its in launches])
    return dict(zip(windows, (its for _, its in launches), strict=True))


def _by_time(windows: Iterable[Window], ops: Sequence[Op]) -> dict[Window, list[Op]]:
    return {
        window: list(ops[bisect_left(ops, window.start_s, key=begin) : bisect_left(ops, window.end_s, key=begin)]) for window in windows
    }


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
        (index, name), events = max(numbered.items(), key=lambda item: (len(item[1]), sum(one.duration_s for one in item[1])))
    elif functions:
        (index, name), events = max(functions.items(), key=lambda item: sum(one.duration_s for one in item[1]))
    else:
        count = sum(len(line.events) for line in profile.timelines)
        planes = ", ".join(sorted({line.plane for line in profile.timelines})) or "nothing"
        raise CalibrationError(f"{profile.path}: has no training steps among its {count} events ({planes}); {_HOW_TO_MARK}")
    return name, lines[index], events


def _number(event: Event, turn: int) -> int:
    given = event.statistics.get("step_num", event.name)
    try:
        return int(given)
    except (TypeError, ValueError):
        return turn


def _windows(spans: list[tuple[int, float, float]]) -> tuple[list[Window], int]:
    """Steps from (number, start, end of the mark), each lasting until the next begins, and how many pauses there were."""
    spans = sorted(spans, key=lambda span: span[1])
    if len(spans) < 2:
        return [Window(*span) for span in spans], 0
    periods = [after[1] - before[1] for before, after in itertools.pairwise(spans)]
    longest = _PAUSE * median(periods)
    found, pauses = [], 0
    for (number, start, end), period in zip(spans, [*periods, float("inf")], strict=True):
        pauses += longest < period < float("inf")
        found.append(Window(number, start, start + period if period <= longest else end))
    return found, pauses
