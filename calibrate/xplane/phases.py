"""What one training step of a profile consists of: input, forward, backward, apply, communication."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from calibrate.xplane.ops import Op, begin, device_ops, host_ops, uncovered_s, union_s
from calibrate.xplane.reading import Profile, Timeline
from calibrate.xplane.steps import Marks, Window, device_windows, host_marks

__all__ = ["InputPipeline", "MeasuredStep", "StepsOfProfile", "steps_of"]


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
    """What ``tf.data`` did.

    Attributes
    ----------
    prepare_s
        Mean seconds to prepare a batch beside the computation; 0 where nothing is prefetched.
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


def steps_of(profile: Profile) -> StepsOfProfile:
    """Find the steps of a profile and split them.

    Times are those of the first GPU or TPU that did something; where there is none, of the
    host's threads.

    Raises
    ------
    CalibrationError
        There are no steps.
    """
    marks = host_marks(profile)
    fetches = _fetches(profile.host_lines)
    pipeline = _pipeline(profile.host_lines, marks, fetches)
    # where nothing is prefetched, preparing the input is a part of the step
    waits = fetches if pipeline.prefetched else []
    if profile.devices:
        device = profile.devices[0]
        owned = device_windows(profile, device, marks, device_ops(line for line in profile.timelines if line.plane == device))
        steps = tuple(_on_device(window, ops, waits) for window, ops in owned.items())
        return StepsOfProfile(profile, marks, device, steps, pipeline)
    everything = host_ops(profile.host_lines)
    steps = tuple(_on_host(window, everything, waits) for window in marks.windows)
    return StepsOfProfile(profile, marks, "/host:CPU", steps, pipeline)


def _within(window: Window, spans: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    return [(max(start, window.start_s), min(end, window.end_s)) for start, end in spans if start < window.end_s and end > window.start_s]


def _on_host(window: Window, everything: Sequence[Op], waits: Sequence[tuple[float, float]]) -> MeasuredStep:
    first, behind = (bisect_left(everything, bound, key=begin) for bound in (window.start_s, window.end_s))
    ops = tuple(everything[first:behind])
    input_s = union_s(_within(window, waits))
    whole_s = window.end_s - window.start_s
    gradients = [op for op in ops if op.role == "gradient"]
    if not gradients:
        return MeasuredStep(window.number, whole_s, input_s, whole_s - input_s, None, None, 0.0, ops)
    begun = min(op.start_s for op in gradients)
    ended = min(max(op.end_s for op in gradients), window.end_s)
    before = Window(window.number, window.start_s, begun)
    waited_before_s = union_s(_within(before, waits))
    forward_s = begun - window.start_s - waited_before_s
    apply_s = window.end_s - ended - union_s(_within(Window(window.number, ended, window.end_s), waits))
    return MeasuredStep(window.number, whole_s, input_s, forward_s, whole_s - input_s - forward_s - apply_s, apply_s, 0.0, ops)


def _on_device(window: Window, ops: Sequence[Op], waits: Sequence[tuple[float, float]]) -> MeasuredStep:
    """A step of a device: idle time behind its last kernel is waiting for input, as far as the host waited, else for the host."""
    whole_s = window.end_s - window.start_s
    last_s = max((op.end_s for op in ops), default=window.end_s)
    idle_s = max(window.end_s - last_s, 0.0)
    idle = Window(window.number, min(last_s, window.end_s), window.end_s)
    input_s = union_s(_within(idle, waits))
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


def _fetches(lines: Sequence[Timeline]) -> list[tuple[float, float]]:
    """When a step asked ``tf.data`` for a batch, and had it."""
    return [(event.start_s, event.end_s) for line in lines for event in line.events if _is_fetch(event.name)]


def _pipeline(lines: Sequence[Timeline], marks: Marks, fetches: Sequence[tuple[float, float]]) -> InputPipeline:
    sizes = [float(event.statistics["element_size"]) for line in lines for event in line.events if _is_fetch(event.name) and
             "element_size" in event.statistics]  # fmt: skip
    stages: dict[str, list[float]] = defaultdict(list)
    shapes = ""
    for line in lines:
        for event in line.events:
            if not event.name.startswith("Iterator::"):
                continue
            if event.name == "Iterator::Root":
                shapes = str(event.statistics.get("shapes", shapes))
            stages[event.name].append(event.duration_s)
    # the stage that the outermost prefetch calls, in a thread of its own
    behind = [name for name in stages if "Prefetch" in name.rpartition("::")[0]]
    prefetched = any("Prefetch" in name for name in stages)
    outermost = min(behind, key=lambda name: (name.count("::"), name), default=None)
    prepare_s = sum(stages[outermost]) / len(stages[outermost]) if outermost is not None else 0.0
    counts = [sum(window.start_s <= start < window.end_s for start, _ in fetches) for window in marks.windows]
    return InputPipeline(
        prepare_s=prepare_s if prefetched else 0.0,
        prefetched=prefetched,
        batch_bytes=sum(sizes) / len(sizes) if sizes else 0.0,
        shapes=shapes,
        batches_a_step=max(int(median(counts)), 1) if counts else 1,
    )
