"""What fills the lanes of a timeline: a run's records between two times, lane by lane."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

from paceline.reporting.pieces import Kind, Piece, Spans, clipped, joined
from simulator.observing.critical_path import CriticalPath, replica_place
from simulator.observing.recording import Recording
from simulator.observing.waiting import Stood, waits_for_others
from simulator.records import EVERYBODY, Place, Service, Step, Transfer, Wait, begin_of

__all__ = ["PATH_KINDS", "Window"]

PATH_KINDS: dict[str, Kind] = {
    "compute": "compute",
    "input": "input",
    "transfer": "communication",
    "all-reduce": "communication",
    "service": "apply",
    "wait": "waiting",
}
"""What the kinds of a critical path are drawn as; the update of the variables is a compute there."""

_WAITS: dict[Kind, str] = {
    "input": "waits for its input",
    "communication": "waits for its messages",
    "apply": "waits for the servers' work on its gradients",
    "waiting": "waits for others",
}
_EVERYBODYS = -1
"""The worker of a service on the gradients of all."""


class Window:
    """The records of a run between two times, and which of them lie on a critical path.

    Parameters
    ----------
    recording
        The run.
    path
        Of one of its steps.
    start_s, end_s
        The two times, in the run's seconds.
    """

    def __init__(self, recording: Recording, path: CriticalPath, start_s: float, end_s: float) -> None:
        self.start_s, self.end_s = start_s, end_s
        self._recording = recording
        self._path = path
        self._critical = {id(segment.record) for segment in path.segments}
        self.steps: dict[int, list[Step]] = defaultdict(list)
        for step in recording.steps:
            self.steps[step.replica].append(step)
        self._spans: dict[int, list[Piece]] = defaultdict(list)
        for span in recording.spans:
            kind: Kind = "apply" if span.name == "apply" else "compute"
            self._spans[span.replica].append(Piece(span.start_s, span.end_s, kind, span.name, id(span) in self._critical, [span]))
        self._work = recording.by_number()
        self._stood: dict[Step, list[Stood]] = dict(zip(recording.steps, waits_for_others(recording, self._work), strict=True))
        self._services: dict[int, list[tuple[float, float]]] = defaultdict(list)
        for service in recording.services:
            self._services[service.worker].append((service.start_s, service.end_s))
        self._messages: dict[int, list[Transfer]] = defaultdict(list)
        for transfer in recording.transfers:
            for replica in {transfer.source.replica, transfer.target.replica}:
                if replica is not None:
                    self._messages[replica].append(transfer)

    def place(self, replica: int) -> Place:
        """A replica as the records call it."""
        return replica_place(self._recording, replica)

    def path(self) -> list[Piece]:
        """The critical path from the step's start to its end; neighbours that differ in the tensor alone are one piece."""
        pieces = []
        for segment in self._path.segments:
            kind = "apply" if segment.what == "apply" and segment.kind == "compute" else PATH_KINDS[segment.kind]
            works = [segment.record] if segment.record is not None else []
            pieces.append(Piece(segment.start_s, segment.end_s, kind, f"{_kind_of(segment.what)}, {segment.where}", True, works))
        return joined(pieces, 0.0)

    # -- replicas ------------------------------------------------------------------------

    def of_replica(self, replica: int) -> list[Piece]:
        """What a replica does: its compute, and what it waits for between; its steps are filled without a gap."""
        spans = clipped(self._spans[replica], float("-inf"), float("inf"))
        pieces: list[Piece] = []
        index = 0
        for step in self.steps[replica]:
            if step.end_s <= self.start_s or step.start_s >= self.end_s:
                continue
            while index < len(spans) and spans[index].end_s <= step.start_s:
                index += 1
            own = []
            while index < len(spans) and spans[index].start_s < step.end_s:
                own.append(spans[index])
                index += 1
            pieces += [*own, *self._between(step, own)]
        return clipped(pieces, self.start_s, self.end_s)

    def _between(self, step: Step, spans: Sequence[Piece]) -> list[Piece]:
        """The parts of a step in which the replica computes nothing, by what it waits for."""
        ends = [step.start_s, *(end for span in spans for end in (span.start_s, span.end_s)), step.end_s]
        causes = [*(work.cause for span in spans for work in span.works[:1]), step.cause]
        gaps = [(low, high, cause) for low, high, cause in zip(ends[::2], ends[1::2], causes, strict=True) if high > low]
        if not gaps:
            return []
        first_s = spans[0].start_s if spans else step.end_s
        fed = Spans([(max(step.start_s, first_s - step.input_s), first_s)])
        carried = Spans(self._carried(step))
        # with all workers' gradients together a server works for everybody
        served = Spans(
            (start_s, end_s)
            for worker in (step.replica, _EVERYBODYS)
            for start_s, end_s in self._services[worker]
            if end_s > step.start_s and start_s < step.end_s
        )
        here = (self.place(step.replica),)
        critical = Spans(
            (segment.start_s, segment.end_s)
            for segment in self._path.segments
            if segment.kind in ("input", "wait") and segment.places == here
        )
        held = self._stood[step]
        stood = Spans((its.start_s, its.end_s) for its in held)
        waits: tuple[tuple[Kind, Spans], ...] = (("input", fed), ("waiting", stood), ("communication", carried), ("apply", served))
        pieces = []
        for start_s, end_s, cause in gaps:
            last = self._last(cause)
            cuts = sorted({start_s, end_s, *(at for some in (fed, stood, carried, served, critical) for at in some.cuts(start_s, end_s))})
            for low, high in pairwise(cuts):
                middle = (low + high) / 2
                kind: Kind = next((kind for kind, its in waits if its.covers(middle)), last)
                what = _WAITS[kind]
                if kind == "waiting":
                    what = next((f"waits for {self._whom(its)}" for its in held if its.start_s <= middle < its.end_s), what)
                pieces.append(Piece(low, high, kind, what, critical.covers(middle)))
        return joined(pieces, 0.0)

    def _last(self, cause: int) -> Kind:
        """What a replica waits for last that goes on because of a piece of work, though none of its own is under way."""
        match self._work.get(cause):
            case Service():
                return "apply"
            case Transfer() | Wait(name="send"):
                return "communication"
            case _:
                return "waiting"

    def _whom(self, stood: Stood) -> str:
        return "the coordinator" if stood.whom is None else str(self.place(stood.whom))

    def _carried(self, step: Step) -> Iterable[tuple[float, float]]:
        """When messages from or to a replica are under way during a step."""
        for transfer in self._messages[step.replica]:
            if transfer.arrived_s > step.start_s and transfer.sent_s < step.end_s:
                yield begin_of(transfer), transfer.arrived_s

    # -- connections and servers ---------------------------------------------------------

    def connections(self) -> dict[str, list[Piece]]:
        """What each connection carries, by its name; an all-reduce of which no messages are recorded is one connection."""
        held: dict[str, list[Piece]] = defaultdict(list)
        for transfer in self._recording.transfers:
            begun_s = begin_of(transfer)
            if transfer.arrived_s <= self.start_s or begun_s >= self.end_s:
                continue
            lane = "all-reduce" if transfer.target == EVERYBODY else f"{transfer.source} → {transfer.target}"
            held[lane].append(
                Piece(begun_s, transfer.arrived_s, "communication", _kind_of(transfer.name), self._on_path(transfer), [transfer])
            )
        return {lane: clipped(joined(pieces, self._unseen_s), self.start_s, self.end_s) for lane, pieces in held.items()}

    def servers(self) -> dict[str, list[Piece]]:
        """What each parameter server works on, by its name."""
        held: dict[str, list[Piece]] = defaultdict(list)
        for service in self._recording.services:
            if service.end_s > self.start_s and service.start_s < self.end_s:
                piece = Piece(service.start_s, service.end_s, "apply", service.name, id(service) in self._critical, [service])
                held[f"server {service.server}"].append(piece)
        return {lane: clipped(joined(pieces, self._unseen_s), self.start_s, self.end_s) for lane, pieces in held.items()}

    @property
    def _unseen_s(self) -> float:
        """A gap that nobody sees in print."""
        return (self.end_s - self.start_s) / 1000

    def _on_path(self, transfer: Transfer) -> bool:
        """Whether the path leads through a message; through an all-reduce if it does through any replica's part in it."""
        if id(transfer) in self._critical:
            return True
        return transfer.target == EVERYBODY and any(
            segment.kind == "all-reduce" and segment.start_s < transfer.arrived_s <= segment.end_s for segment in self._path.segments
        )


def _kind_of(name: str) -> str:
    """A message's name without the number of its tensor: ``push 7`` is a push."""
    return " ".join(word for word in name.split() if not word.isdigit())
