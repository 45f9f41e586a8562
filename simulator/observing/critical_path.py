"""The critical path of a step: the chain of work and waits that made it as long as it was.

Read off backward from the work that ended the step: each piece of work says which other
one's end let it begin (:mod:`simulator.base.records`), until the step's start. The path may
lead through the compute, the messages and the services of others. Shortening anything
beside it does not shorten the step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from simulator.base.records import EVERYBODY, Place, Span, Step, Transfer, Wait, Work, begin_of, end_of
from simulator.observing.recording import Recording

Kind = Literal["compute", "input", "transfer", "service", "all-reduce", "wait"]

_WAITS: dict[str, Kind] = {"prepare": "input", "input": "input", "send": "transfer"}
"""What waits are whose work is of a kind of its own, though it is not simulated."""


@dataclass(frozen=True)
class Segment:
    """A part of a critical path.

    Attributes
    ----------
    kind
        What sort of work it is; ``wait`` where nobody works.
    what
        Such as ``push 7``.
    name
        What all like it are called, such as ``push``.
    places
        Where; of a message, from where to where.
    start_s, end_s
        From when to when it lies on the path; the work itself may have begun before the step.
    record
        The work, where it was recorded.
    """

    kind: Kind
    what: str
    places: tuple[Place, ...]
    start_s: float
    end_s: float
    name: str
    record: Work | None = None

    @property
    def where(self) -> str:
        """Where, such as ``worker 3 to server 0``."""
        return " to ".join(map(str, self.places))


@dataclass(frozen=True)
class CriticalPath:
    """What made one step of one replica as long as it was.

    Attributes
    ----------
    step
        The step.
    number
        Its number among the replica's steps, from 1.
    place
        The replica's, such as worker 3.
    segments
        In order of time; each ends where the next one starts, the first starts and the last ends with the step.
    """

    step: Step
    number: int
    place: Place
    segments: tuple[Segment, ...]

    @property
    def name(self) -> str:
        """The replica's, such as ``worker 3``."""
        return str(self.place)


def median_step(steps: Sequence[Step]) -> Step:
    """The step of median length, the earlier one of equals; of an even number, the shorter one of the middle two."""
    order = sorted(range(len(steps)), key=lambda index: (steps[index].end_s - steps[index].start_s, index))
    return steps[order[(len(order) - 1) // 2]]


def critical_path(recording: Recording, step: Step, work: Mapping[int, Work] | None = None) -> CriticalPath:
    """The critical path of a step.

    Parameters
    ----------
    recording
        The run's records.
    step
        One of its steps.
    work
        All of it by number, where that is at hand already (:meth:`~simulator.observing.recording.Recording.by_number`).
    """
    work = recording.by_number() if work is None else work
    own = [one for one in recording.steps if one.replica == step.replica]
    place = replica_place(recording, step.replica)
    found: list[Segment] = []
    cursor_s, here, cause = step.end_s, place, step.cause

    def add(kind: Kind, what: str, name: str, places: tuple[Place, ...], start_s: float, record: Work | None = None) -> None:
        """Go back to ``start_s``, or to the start of the step if that is later."""
        nonlocal cursor_s
        start_s = max(start_s, step.start_s)
        if start_s < cursor_s:
            found.append(Segment(kind, what, places, start_s, cursor_s, name, record))
            cursor_s = start_s

    while cursor_s > step.start_s:
        its = work.get(cause)
        # between the end of a cause and the begin of what it let begin, time is unaccounted for
        add("wait", "wait", "wait", (here,), step.start_s if its is None else end_of(its))
        if its is None:
            break
        kind, what, name, places = _described(recording, its)
        add(kind, what, name, places, begin_of(its), its)
        here, cause = places[0], its.cause
    number = next(index for index, one in enumerate(own, 1) if one == step)
    return CriticalPath(step, number, place, tuple(reversed(found)))


def _described(recording: Recording, work: Work) -> tuple[Kind, str, str, tuple[Place, ...]]:
    """Its kind, what it is, what all like it are called, and where it is."""
    if isinstance(work, Transfer):
        if work.target == EVERYBODY:
            return "all-reduce", work.name, work.kind, (EVERYBODY,)
        return "transfer", work.name, work.kind, (recording.named(work.source), recording.named(work.target))
    if isinstance(work, Span):
        return "compute", work.name, work.kind or work.name, (replica_place(recording, work.replica),)
    if isinstance(work, Wait):
        return _WAITS.get(work.name, "wait"), work.name, work.name, (replica_place(recording, work.replica),)
    return "service", f"{work.name} {work.variable}", work.name, (Place("server", work.server),)


def replica_place(recording: Recording, replica: int) -> Place:
    """A replica as the records call it: a worker where there are servers, a stage where there is a pipeline."""
    return recording.named(Place("worker" if recording.services else "replica", replica))
