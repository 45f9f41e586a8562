"""When a replica stood still for others, and for whom, read off the causes of a run's work.

What lets a replica go on brings what somebody made: a gradient in the mean of all, a part
of an all-reduce, a peer's variables. Followed back over messages and services, its causes
lead to the work that made it. Until that had ended the replica waited for its maker, and
from then on for messages and services.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from simulator.observing.recording import Recording
from simulator.records import EVERYBODY, Service, Span, Step, Transfer, Wait, Work, end_of

__all__ = ["Stood", "waits_for_others"]


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
    spans: dict[int, list[Span]] = defaultdict(list)
    pushes: dict[int, list[Transfer]] = defaultdict(list)
    for span in recording.spans:
        spans[span.replica].append(span)
    for transfer in recording.transfers:
        if transfer.target.kind == "server" and transfer.source.replica is not None:
            pushes[transfer.source.replica].append(transfer)
    at: dict[int, int] = defaultdict(int)  # of each replica, how many of its spans lie before the step
    pushed: dict[int, int] = defaultdict(int)
    found = []
    for step in recording.steps:
        its, sent, replica = spans[step.replica], pushes[step.replica], step.replica
        first = at[replica]
        while at[replica] < len(its) and its[at[replica]].end_s <= step.end_s:
            at[replica] += 1
        pushed_s = step.start_s  # when the step's last gradient was at its server
        while pushed[replica] < len(sent) and sent[pushed[replica]].arrived_s <= step.end_s:
            pushed_s = max(pushed_s, sent[pushed[replica]].arrived_s)
            pushed[replica] += 1
        found.append(list(_in_step(step, its[first : at[replica]], pushed_s, work)))
    return found


def _in_step(step: Step, spans: list[Span], pushed_s: float, work: Mapping[int, Work]) -> Iterator[Stood]:
    """What held a step up, whose own computes these are."""
    free_s = step.start_s
    for number, own in enumerate([*spans, None]):
        begin_s, cause = (step.end_s, step.cause) if own is None else (own.start_s, own.cause)
        since_s = max(free_s, pushed_s) if isinstance(work.get(cause), Service) else free_s
        if since_s < begin_s:
            made = _handed_out(cause, work) if not number else None
            if made is None or made.end_s <= step.start_s:
                made = _made(cause, work)
            if made is not None and made.whom != step.replica and since_s < made.end_s:
                yield Stood(since_s, min(made.end_s, begin_s), made.whom)
        free_s = step.end_s if own is None else own.end_s


class _Made(NamedTuple):
    whom: int | None
    end_s: float


def _handed_out(cause: int, work: Mapping[int, Work]) -> _Made | None:
    """What let a step begin to read the variables with which its compute began."""
    pull = work.get(cause)
    while isinstance(pull, Transfer) and pull.source.kind != "server":
        pull = work.get(pull.sender)
    released = work.get(pull.sender) if isinstance(pull, Transfer) else None
    return None if released is None else _Made(_whose(released), end_of(released))


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
