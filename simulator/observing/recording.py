"""Keeps a run's records in memory, and reads off them what made a step as long as it was, and who waited for whom.

Traces, critical paths, audits and the timeline of a report read a ``Recording``; to follow a long run in bounded memory see
``tensorboard``.

A critical path is read off backward from the work that ended the step: each piece of work says which other one's end let it begin
(:mod:`simulator.base.records`), until the step's start. It may lead through the compute, the messages and the services of others.
Shortening anything else does not shorten the step.

A replica continues with data that another produced: a gradient in the mean of all, a part of an all-reduce, a peer's variables.
Followed back over messages and services, its causes lead to the work that made it. Until that had ended the replica waited for its
maker, and from then on for messages and services. Engines measure waiting by themselves, without causes:
tests/property/test_waiting.py compares both. For split models, messages and passes are known by the names that
``simulator.strategies.hybrid.routine`` gives them.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import Any, Literal, NamedTuple, TypeVar

from simulator.base.records import (
    EVERYBODY,
    NOTHING,
    Observer,
    Place,
    Record,
    Service,
    Span,
    Step,
    Transfer,
    Update,
    Wait,
    Work,
    begin_of,
    end_of,
)
from simulator.base.text import format_seconds, format_share
from simulator.resolve.drawing import as_workers
from simulator.scenario import Resolved


class Recording:
    """Keeps every record, by kind: for looking closely at a short run.

    Parameters
    ----------
    scenario
        The scenario that is run, resolved, for the names of stages and copies; left out: replicas have only numbers.
    """

    def __init__(self, scenario: Resolved | None = None) -> None:
        # devices that split tensors are one in a run's records
        self._scenario = as_workers(scenario) if scenario is not None else None
        self._model = self._scenario.strategy.model_parallel(self._scenario) if self._scenario is not None else None
        self.steps: list[Step] = []
        self.spans: list[Span] = []
        self.transfers: list[Transfer] = []
        self.services: list[Service] = []
        self.waits: list[Wait] = []
        self.updates: list[Update] = []
        self._of_kind: dict[type[Record], list[Any]] = {
            Step: self.steps, Span: self.spans, Transfer: self.transfers, Service: self.services, Wait: self.waits, Update: self.updates
        }  # fmt: skip

    def record(self, record: Record) -> None:
        """Take one record."""
        self._of_kind[type(record)].append(record)

    @property
    def cut(self) -> bool:
        """Return whether the run's steps consist of micro-batches (``Strategy.cuts_batches``); False without a scenario."""
        return self._scenario is not None and self._scenario.strategy.cuts_batches

    def name_of(self, replica: int) -> str:
        """Name of a replica; empty: only its number."""
        return self._model.name_of_rank(replica) if self._model is not None else ""

    def beside(self, replica: int) -> Sequence[int]:
        """Who hold one model together with it, itself included, in the order of its stages; empty without stages."""
        return self._model.ranks_beside(replica) if self._model is not None else ()

    def named(self, place: Place) -> Place:
        """The place with its replica's name filled in; unchanged if it belongs to no replica."""
        return place if place.replica is None else place._replace(name=self.name_of(place.replica))

    @property
    def work(self) -> Iterator[Work]:
        """Everything that has a number, by kind."""
        return chain(self.spans, self.transfers, self.services, self.waits)

    def by_number(self) -> dict[int, Work]:
        """Every piece of work that has a number, by it."""
        return {each.number: each for each in self.work if each.number != NOTHING}


class FanOut:
    """Hands each record to every observer, in the order given."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = tuple(observers)

    def record(self, record: Record) -> None:
        """Take one record."""
        for observer in self._observers:
            observer.record(record)


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
    """Path of work that made one step of one replica as long as it was.

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
    own = [each for each in recording.steps if each.replica == step.replica]
    place = replica_place(recording, step.replica)
    segments: list[Segment] = []
    cursor_s, here, cause = step.end_s, place, step.cause

    def add(kind: Kind, what: str, name: str, places: tuple[Place, ...], start_s: float, record: Work | None = None) -> None:
        """Go back to ``start_s``, or to the start of the step if that is later."""
        nonlocal cursor_s
        start_s = max(start_s, step.start_s)
        if start_s < cursor_s:
            segments.append(Segment(kind, what, places, start_s, cursor_s, name, record))
            cursor_s = start_s

    while cursor_s > step.start_s:
        ended = work.get(cause)
        # between the end of a cause and the begin of what it let begin, time is unaccounted for
        add("wait", "wait", "wait", (here,), step.start_s if ended is None else end_of(ended))
        if ended is None:
            break
        kind, what, name, places = _described(recording, ended)
        add(kind, what, name, places, begin_of(ended), ended)
        here, cause = places[0], ended.cause
    number = next(index for index, each in enumerate(own, 1) if each == step)
    return CriticalPath(step, number, place, tuple(reversed(segments)))


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


_SMALLEST_SHARE = 0.005
_MOST_NAMED = 6


def bound_of_step(path: CriticalPath) -> str:
    """Say what bounds a step.

    Such as ``Step 12 of worker 3 took 412 ms: 52% pull from server 0, 24% compute on
    worker 3, 20% push to server 1, 4% service at server 1; the pull from server 0 bounds it.``
    """
    duration_s = path.step.end_s - path.step.start_s
    took = f"Step {path.number} of {path.name} took {format_seconds(duration_s)}"
    spent: dict[str, float] = defaultdict(float)
    kinds: dict[str, str] = {}
    for segment in path.segments:
        phrase = _phrase(segment, path)
        spent[phrase] += segment.end_s - segment.start_s
        kinds[phrase] = segment.kind
    if not spent:
        return f"{took}: no operation in it takes time."
    order = sorted(spent, key=lambda phrase: -round(spent[phrase] / duration_s, 9))
    named = [phrase for phrase in order if spent[phrase] >= _SMALLEST_SHARE * duration_s][:_MOST_NAMED]
    shares = [f"{format_share(spent[phrase] / duration_s)} {phrase}" for phrase in named]
    rest = 1 - math.fsum(spent[phrase] for phrase in named) / duration_s
    if rest >= _SMALLEST_SHARE:
        shares.append(f"{format_share(rest)} other")
    bound = order[0] if kinds[order[0]] == "compute" else f"the {order[0]}"
    return f"{took}: {', '.join(shares)}; {bound} bounds it."


def _phrase(segment: Segment, path: CriticalPath) -> str:
    """Kind and place of a segment; those with the same words are added up."""
    if segment.kind == "compute":
        return f"compute on {segment.where}"
    if segment.kind == "service":
        work = segment.record
        queued = isinstance(work, Service) and work.name == "apply" and work.worker not in (-1, path.step.replica)
        return f"{'queue' if queued else 'service'} at {segment.where}"
    if segment.kind == "transfer":
        return _message(segment, path)
    if segment.kind == "all-reduce":
        return segment.name if path.place.name else segment.kind
    return f"{segment.what} of {segment.where}"


def _message(segment: Segment, path: CriticalPath) -> str:
    source, target = segment.places[0], segment.places[-1]
    if source.name:
        return f"{segment.name} between stages"
    if {source.kind, target.kind} <= {"device", "replica"}:  # of a replica itself, that it still sends
        return "messages between devices"
    whose = "" if path.place in (source, target) else f" of {source if target.kind == 'server' else target}"
    if target.kind == "server":
        return f"{segment.name}{whose} to {target}"
    if source.kind == "server":
        return f"{segment.name}{whose} from {source}"
    return f"transfer from {source} to {target}"


AnyT = TypeVar("AnyT")


class Stood(NamedTuple):
    """A wait of a replica for another one, in seconds; ``whom``: its number, or none of the coordinator."""

    start_s: float
    end_s: float
    whom: int | None


def waits_for_others(recording: Recording, work: Mapping[int, Work] | None = None) -> list[list[Stood]]:
    """Waiting of replicas for others in each of a run's steps, in the order of its steps.

    Parameters
    ----------
    recording
        The run's records.
    work
        All of it by number, where that is at hand already (:meth:`~simulator.observing.recording.Recording.by_number`).
    """
    work = recording.by_number() if work is None else work
    spans: dict[int, list[Span]] = defaultdict(list)
    for span in recording.spans:
        spans[span.replica].append(span)
    fed_s: dict[int, list[float]] = defaultdict(list)  # when a replica had its batch
    for wait in recording.waits:
        if wait.name == "input":
            fed_s[wait.replica].append(wait.end_s)
    if recording.cut:
        heard = _heard(recording)
        return [_piece_by_piece(step, spans[step.replica], heard[step.replica], fed_s[step.replica], work) for step in recording.steps]
    pulls: dict[int, list[Transfer]] = defaultdict(list)
    pushes: dict[int, list[Transfer]] = defaultdict(list)
    for transfer in recording.transfers:
        for end, other, messages in ((transfer.source, transfer.target, pushes), (transfer.target, transfer.source, pulls)):
            if other.kind == "server" and end.replica is not None:
                messages[end.replica].append(transfer)
    for own in pulls.values():
        own.sort(key=lambda pull: (pull.sent_s, pull.number))
    return [
        list(_in_step(step, spans[step.replica], pulls[step.replica], pushes[step.replica], fed_s[step.replica], work))
        for step in recording.steps
    ]


_BROUGHT = {"forward": "activations", "backward": "gradients"}
"""The message that brings the input of a pass, of the same micro-batch."""


_Heard = tuple[float, float, Transfer]
"""When a rank hears something, since when that was on its way, and what it is."""


def _heard(recording: Recording) -> dict[int, list[_Heard]]:
    last: dict[tuple[str, float, int], Transfer] = {}  # of each collective, how the last one came to it; all of it have the same cause
    for transfer in recording.transfers:
        key = transfer.name, transfer.arrived_s, transfer.cause
        if transfer.target == EVERYBODY and (key not in last or transfer.sent_s > last[key].sent_s):
            last[key] = transfer
    heard: dict[int, list[_Heard]] = defaultdict(list)
    for transfer in recording.transfers:
        joined = last[transfer.name, transfer.arrived_s, transfer.cause] if transfer.target == EVERYBODY else transfer
        rank = transfer.source.replica if transfer.target == EVERYBODY else transfer.target.replica
        if rank is not None:
            heard[rank].append((transfer.arrived_s, joined.sent_s, joined))
    for own in heard.values():
        own.sort(key=itemgetter(0))
    return heard


def _piece_by_piece(
    step: Step, spans: Sequence[Span], heard: Sequence[_Heard], had_s: Sequence[float], work: Mapping[int, Work]
) -> list[Stood]:
    """Stand-still of ranks of cut models: from the end of compute, or of the last message, until the next message had begun."""
    own = _between(spans, step.start_s, step.end_s, lambda span: span.end_s)
    fed_s = max(_between(had_s, step.start_s, step.end_s), default=step.start_s)
    begins = [*((span.start_s, (_BROUGHT.get(span.kind, ""), span.which)) for span in own), (step.end_s, None)]
    stood = []
    for free_s, (begin_s, brought) in zip([fed_s, *(span.end_s for span in own)], begins, strict=True):
        meanwhile = _between(heard, free_s, begin_s, itemgetter(0))
        passed_s = max((arrived_s for arrived_s, _, joined in meanwhile if joined.kind == "exchange"), default=free_s)
        # what is sent to it is received when the pass before has ended, with what it exchanges
        meanwhile = [
            (arrived_s if joined.target == EVERYBODY else max(arrived_s, passed_s), since_s, joined)
            for arrived_s, since_s, joined in meanwhile
            if joined.target == EVERYBODY or (joined.kind, joined.which) == brought
        ]
        for arrived_s, since_s, joined in sorted(meanwhile):
            made = _made(joined.sender, work)
            whom = made.whom if made is not None else joined.source.replica
            if since_s > free_s and whom != step.replica:
                stood.append(Stood(free_s, min(since_s, arrived_s), whom))
            free_s = arrived_s
    return stood


def _in_step(
    step: Step,
    spans: Sequence[Span],
    pulls: Sequence[Transfer],
    pushes: Sequence[Transfer],
    fed_s: Sequence[float],
    work: Mapping[int, Work],
) -> Iterator[Stood]:
    """Stand-still of a step; computes and pushes of the replica in the order in which they ended, pulls in that in which they were sent."""
    start_s = free_s = step.start_s
    first = bisect_left(pulls, start_s, key=lambda pull: pull.sent_s)
    released = work.get(pulls[first].sender) if first < len(pulls) and pulls[first].sent_s < step.end_s else None
    if released is not None and end_of(released) > start_s:  # the step was handed out, or its clock let it go on
        free_s = min(end_of(released), step.end_s)
        yield Stood(start_s, free_s, _whose(released))
    batch = bisect_right(fed_s, start_s)
    if batch < len(fed_s) and fed_s[batch] <= step.end_s:
        free_s = max(free_s, fed_s[batch])
    own = _between(spans, start_s, step.end_s, lambda span: span.end_s)
    for begin_s, cause, end_s in [*((span.start_s, span.cause, span.end_s) for span in own), (step.end_s, step.cause, step.end_s)]:
        if isinstance(work.get(cause), Service):  # what it waits for from when its last gradient is there
            free_s = max(
                free_s, max((push.arrived_s for push in _between(pushes, free_s, begin_s, lambda push: push.arrived_s)), default=free_s)
            )
        made = _made(cause, work) if free_s < begin_s else None
        if made is not None and made.whom != step.replica and free_s < made.end_s:
            yield Stood(free_s, min(made.end_s, begin_s), made.whom)
        free_s = max(free_s, end_s)


def _between(ascending: Sequence[AnyT], after_s: float, until_s: float, when: Callable[[AnyT], float] | None = None) -> Sequence[AnyT]:
    """Those of a sequence in order of time that came after one time and until another."""
    low, high = (bisect_right(ascending, at_s, key=when) for at_s in (after_s, until_s))  # type: ignore[type-var, arg-type]
    return ascending[low:high]


class _Made(NamedTuple):
    whom: int | None
    end_s: float


def _whose(work: Work) -> int | None:
    if isinstance(work, Wait):
        return None if work.name == "dispatch" else work.replica
    if isinstance(work, Service):
        return work.worker
    return work.replica if isinstance(work, Span) else work.source.replica


def _made(cause: int, work: Mapping[int, Work]) -> _Made | None:
    """Find what was made for those who go on because of a piece of work: the first before it that is no message and no service."""
    served = False
    while (ended := work.get(cause)) is not None:
        if isinstance(ended, Transfer):
            if served:  # a server waits for the gradient itself
                return _Made(ended.source.replica, ended.arrived_s)
            cause = ended.cause if ended.target == EVERYBODY else ended.sender
        elif isinstance(ended, Service):
            served, cause = True, ended.sender
        elif isinstance(ended, Wait) and ended.name == "send":
            cause = ended.cause
        else:
            return _Made(_whose(ended), end_of(ended))
    return None
