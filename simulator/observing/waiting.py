"""Finds when a replica waited for other replicas, and for which, from the causes in a run's records.

What lets a replica go on brings what somebody made: a gradient in the mean of all, a part of an all-reduce, a peer's variables.
Followed back over messages and services, its causes lead to the work that made it. Until that had ended the replica waited for its
maker, and from then on for messages and services.

Engines measure waiting by themselves, without causes: tests/property/test_waiting.py compares both. Of models that are cut, messages
and passes are known by the names that ``simulator.strategies.hybrid.routine`` gives them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple, TypeVar

from simulator.base.records import EVERYBODY, Service, Span, Step, Transfer, Wait, Work, end_of
from simulator.observing.recording import Recording

AnyT = TypeVar("AnyT")


class Stood(NamedTuple):
    """A time in which a replica stood still for another one, in seconds; ``whom``: its number, or none of the coordinator."""

    start_s: float
    end_s: float
    whom: int | None


def waits_for_others(recording: Recording, work: Mapping[int, Work] | None = None) -> list[list[Stood]]:
    """When replicas stood still for others in each of a run's steps, in the order of its steps.

    Parameters
    ----------
    recording
        The run's records.
    work
        All of it by number, where that is at hand already (:meth:`~simulator.observing.recording.Recording.by_number`).
    """
    work = recording.by_number() if work is None else work
    if recording.cut:
        return _piece_by_piece(recording, work)
    spans: dict[int, list[Span]] = defaultdict(list)
    pulls: dict[int, list[Transfer]] = defaultdict(list)
    pushes: dict[int, list[Transfer]] = defaultdict(list)
    fed_s: dict[int, list[float]] = defaultdict(list)  # when a replica had its batch
    for span in recording.spans:
        spans[span.replica].append(span)
    for wait in recording.waits:
        if wait.name == "input":
            fed_s[wait.replica].append(wait.end_s)
    for transfer in recording.transfers:
        for end, its in ((transfer.source, pushes), (transfer.target, pulls)):
            other = transfer.target if end is transfer.source else transfer.source
            if other.kind == "server" and end.replica is not None:
                its[end.replica].append(transfer)
    for of_one in pulls.values():
        of_one.sort(key=lambda pull: (pull.sent_s, pull.number))
    return [
        list(_in_step(step, spans[its], pulls[its], pushes[its], fed_s[its], work)) for step in recording.steps for its in (step.replica,)
    ]


_BROUGHT = {"forward": "activations", "backward": "gradients"}
"""What a pass is brought by a message, of the same micro-batch."""


def _piece_by_piece(recording: Recording, work: Mapping[int, Work]) -> list[list[Stood]]:
    """Of models that are cut: from when a rank computes no longer, or had the last that it heard of, until what it hears next had begun."""
    last: dict[tuple[str, float, int], Transfer] = {}  # of each collective, how the last one came to it; all of it have the same cause
    for its in recording.transfers:
        key = its.name, its.arrived_s, its.cause
        if its.target == EVERYBODY and (key not in last or its.sent_s > last[key].sent_s):
            last[key] = its
    heard: dict[int, list[tuple[float, float, Transfer]]] = defaultdict(list)  # when, since when, and of whom
    for its in recording.transfers:
        joined = last[its.name, its.arrived_s, its.cause] if its.target == EVERYBODY else its
        rank = its.source.replica if its.target == EVERYBODY else its.target.replica
        if rank is not None:
            heard[rank].append((its.arrived_s, joined.sent_s, joined))
    for of_rank in heard.values():
        of_rank.sort(key=itemgetter(0))
    spans: dict[int, list[Span]] = defaultdict(list)
    for span in recording.spans:
        spans[span.replica].append(span)
    had_s: dict[int, list[float]] = defaultdict(list)  # its batches
    for wait in recording.waits:
        if wait.name == "input":
            had_s[wait.replica].append(wait.end_s)
    found = []
    for step in recording.steps:
        own = _between(spans[step.replica], step.start_s, step.end_s, lambda span: span.end_s)
        fed_s = max(_between(had_s[step.replica], step.start_s, step.end_s), default=step.start_s)
        begins = [*((span.start_s, (_BROUGHT.get(span.kind, ""), span.which)) for span in own), (step.end_s, None)]
        stood = []
        for free_s, (begin_s, brought) in zip([fed_s, *(span.end_s for span in own)], begins, strict=True):
            meanwhile = _between(heard[step.replica], free_s, begin_s, itemgetter(0))
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
        found.append(stood)
    return found


def _in_step(
    step: Step,
    spans: Sequence[Span],
    pulls: Sequence[Transfer],
    pushes: Sequence[Transfer],
    fed_s: Sequence[float],
    work: Mapping[int, Work],
) -> Iterator[Stood]:
    """What held a step up; computes and pushes of the replica in the order in which they ended, pulls in that in which they were sent."""
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
    """What was made for those who go on because of a piece of work: the first thing before it that is no message and no service."""
    served = False
    while (its := work.get(cause)) is not None:
        if isinstance(its, Transfer):
            if served:  # a server waits for the gradient itself
                return _Made(its.source.replica, its.arrived_s)
            cause = its.cause if its.target == EVERYBODY else its.sender
        elif isinstance(its, Service):
            served, cause = True, its.sender
        elif isinstance(its, Wait) and its.name == "send":
            cause = its.cause
        else:
            return _Made(_whose(its), end_of(its))
    return None
