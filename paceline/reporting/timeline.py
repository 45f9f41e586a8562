"""Lays out some steps of a run as a Gantt chart, with the critical path of one of them: from the run's records to bars in lanes.

The run is simulated in simulated.py, the chart drawn in figures.py. Critical paths are found in
:mod:`simulator.observing.recording`.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, NamedTuple, TypeVar

from simulator.base.records import EVERYBODY, Place, Service, Span, Step, Transfer, Wait, Work, begin_of
from simulator.base.text import digits, format_bytes, format_seconds
from simulator.observing.recording import (
    CriticalPath,
    Recording,
    Stood,
    bound_of_step,
    critical_path,
    median_step,
    replica_place,
    waits_for_others,
)

Kind = Literal["input", "compute", "forward", "backward", "weights", "communication", "waiting", "bubble", "apply"]
"""What a piece of time goes into: of micro-batches each pass is a kind of its own, and so is what stages wait for each other."""


@dataclass
class Piece:
    """A piece of time in one lane; ``what`` is made of the same words for pieces that may become one."""

    start_s: float
    end_s: float
    kind: Kind
    what: str
    critical: bool = False
    works: list[Work] = field(default_factory=list)
    """The records that it is made of, each once."""

    @property
    def length_s(self) -> float:
        """From start to end."""
        return self.end_s - self.start_s


def merged(intervals: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Intervals of time in their order, those that overlap or touch as one; empty ones are left out."""
    joint: list[tuple[float, float]] = []
    for start_s, end_s in sorted(interval for interval in intervals if interval[1] > interval[0]):
        if joint and start_s <= joint[-1][1]:
            joint[-1] = joint[-1][0], max(joint[-1][1], end_s)
        else:
            joint.append((start_s, end_s))
    return joint


def _covered(intervals: Iterable[tuple[float, float]], time_s: float) -> bool:
    return any(start_s <= time_s < end_s for start_s, end_s in intervals)


def clipped(pieces: Iterable[Piece], start_s: float, end_s: float) -> list[Piece]:
    """Return what of the pieces lies between two times, in order of time."""
    kept = []
    for piece in sorted(pieces, key=lambda piece: (piece.start_s, piece.end_s)):
        low, high = max(piece.start_s, start_s), min(piece.end_s, end_s)
        if low < high:
            kept.append(Piece(low, high, piece.kind, piece.what, piece.critical, piece.works))
    return kept


def joined(pieces: Sequence[Piece], gap_s: float) -> list[Piece]:
    """Pieces that overlap, or are closer than ``gap_s``, as one, where they are alike; what is critical is cut out of the rest.

    No two of those returned overlap.
    """
    ends = sorted({at for piece in pieces for at in (piece.start_s, piece.end_s)})
    order = sorted(pieces, key=lambda piece: piece.start_s)
    joint: list[Piece] = []
    under_way: list[Piece] = []
    begun = 0
    for low, high in pairwise(ends):
        while begun < len(order) and order[begun].start_s <= low:
            under_way.append(order[begun])
            begun += 1
        under_way = [piece for piece in under_way if piece.end_s > low]
        if not under_way:
            continue
        critical = [piece for piece in under_way if piece.critical]
        shown = (critical or under_way)[0]
        works = [work for piece in critical or under_way for work in piece.works]
        _append(joint, Piece(low, high, shown.kind, shown.what, bool(critical), works), gap_s)
    for piece in joint:
        piece.works = list({id(work): work for work in piece.works}.values())
    return joint


def _append(joint: list[Piece], piece: Piece, gap_s: float) -> None:
    """Add a piece, to the last one if that is alike and near."""
    last = joint[-1] if joint else None
    alike = last is not None and (last.kind, last.what, last.critical) == (piece.kind, piece.what, piece.critical)
    if last is None or not alike or piece.start_s - last.end_s > gap_s:
        joint.append(piece)
        return
    last.end_s = piece.end_s
    last.works.extend(piece.works)


def coarse(pieces: Sequence[Piece], smallest_s: float) -> list[Piece]:
    """The same time in fewer pieces: one that is shorter than ``smallest_s`` and touches the one before becomes part of it."""
    coarser: list[Piece] = []
    for piece in pieces:
        last = coarser[-1] if coarser else None
        touches = last is not None and last.end_s == piece.start_s and last.critical == piece.critical
        if last is not None and touches and (piece.length_s < smallest_s or last.length_s < smallest_s):
            larger = max(last, piece, key=lambda piece: piece.length_s)
            coarser[-1] = Piece(last.start_s, piece.end_s, larger.kind, larger.what, last.critical, larger.works)
        else:
            coarser.append(piece)
    return coarser


_STEPS = 3
_MOST_REPLICAS = 8
_MOST_STAGES = 16
_MOST_CONNECTIONS = 10
_MOST_SERVERS = 6
_MOST_BARS = 150
_MOST_PASSES = 600
"""Bars of a lane: of a stage, whose passes are distinguished by number."""

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
    "bubble": "waits for other stages",
}
_PASSES: dict[str, Kind] = {"forward": "forward", "backward": "backward", "weights": "weights"}
"""What passes of micro-batches are drawn as."""
_EVERYBODYS = -1
"""The worker of a service on the gradients of all."""


@dataclass(frozen=True)
class Bar:
    """One piece of work or waiting, in one lane.

    Attributes
    ----------
    lane
        One of :attr:`Timeline.lanes`.
    start_s, end_s
        In seconds from the left edge of the chart.
    kind
        What the time went into, which is its colour.
    critical
        Whether it lies on the critical path of the middle step.
    text
        What it is, in words.
    label
        What stands in it: of a pass its micro-batch.
    """

    lane: str
    start_s: float
    end_s: float
    kind: Kind
    critical: bool
    text: str
    label: str = ""


@dataclass(frozen=True)
class Arrow:
    """A message between two lanes: when it was sent from the one, and came to the other, in seconds from the left edge of the chart."""

    source: str
    target: str
    sent_s: float
    arrived_s: float


@dataclass(frozen=True)
class Timeline:
    """Some steps of replication 0 of a scenario.

    Attributes
    ----------
    name
        Of the curve or configuration that it is of.
    lanes
        From top to bottom: the critical path, replicas, connections, servers.
    bars
        In the order of the lanes, and in each of time; no two of a lane overlap.
    sentence
        What bounds the step whose critical path is marked.
    note
        What is drawn and what is not, and whether the run was made shorter or smaller for it.
    arrows
        What stages hand on to each other.
    """

    name: str
    lanes: tuple[str, ...]
    bars: tuple[Bar, ...]
    sentence: str
    note: str
    arrows: tuple[Arrow, ...] = ()


class _Lane(NamedTuple):
    """One row of the chart: what it shows, whose it is, and what it is called."""

    kind: Literal["critical path", "replica", "connection", "server"]
    places: tuple[Place, ...]
    name: str


def laid_out(recording: Recording, name: str, *, warmup: int = 0, note: str = "") -> Timeline | None:
    """Lay out three steps of a replica, one of median length and those around it; or such a step of all stages of a pipeline.

    Parameters
    ----------
    recording
        One replication's records.
    name
        What the chart is to be called.
    warmup
        How many steps, of all replicas together, come before those that are measured.
    note
        What else is to be known of the run, in sentences.

    Returns
    -------
    Timeline or None
        None where no step ended.
    """
    measured = recording.steps[warmup:] or recording.steps
    if not measured:
        return None
    path = critical_path(recording, median_step(measured))
    steps: dict[int, list[Step]] = defaultdict(list)
    for step in recording.steps:
        steps[step.replica].append(step)
    if stages := recording.beside(path.step.replica):
        # from when the first stage begins the step to when the last one has ended it
        drawn = [own[min(path.number, len(own)) - 1] for stage in stages if (own := steps[stage])]
        count = len(stages)
        told = f"Step {path.number} of one copy of the model in the first replication, with what goes on beside it."
        if count > _MOST_STAGES:
            stages = _spread(stages, _MOST_STAGES)
            told += f" {len(stages)} of {count} stages are drawn."
    else:
        own = steps[path.step.replica]
        first = max(0, min(path.number - 1 - _STEPS // 2, len(own) - _STEPS))
        drawn = own[first : first + _STEPS]
        last = first + len(drawn)
        told = f"{f'Step {last}' if len(drawn) == 1 else f'Steps {first + 1} to {last}'} of {path.name} in the first replication."
    chart = _Chart(recording, path, steps, (min(step.start_s for step in drawn), max(step.end_s for step in drawn)), stages)
    lanes = tuple(lane.name for lane in chart.lanes)
    whole = " ".join(filter(None, (told, *chart.left_out, note)))
    return Timeline(name, lanes, chart.bars(), bound_of_step(path), whole, chart.arrows() if stages else ())


ItemT = TypeVar("ItemT")


def _spread(items: Sequence[ItemT], most: int) -> list[ItemT]:
    """At most so many of them, evenly, the first and the last included."""
    last = len(items) - 1
    return [items[at] for at in sorted({round(place * last / (most - 1)) for place in range(most)})]


class _Chart:
    """The lanes that are drawn of a run between two times, and sentences on what is left out.

    Parameters
    ----------
    recording
        The run.
    path
        Of one of its steps.
    steps
        By replica.
    window_s
        The two times, in the run's seconds.
    stages
        Those that are drawn of a pipeline; empty without one.
    """

    def __init__(
        self,
        recording: Recording,
        path: CriticalPath,
        steps: Mapping[int, list[Step]],
        window_s: tuple[float, float],
        stages: Sequence[int],
    ) -> None:
        self._recording, self._path, self._steps, self._stages = recording, path, steps, stages
        self._start_s, self._end_s = window_s
        self._critical = {id(segment.record) for segment in path.segments}
        self._spans: dict[int, list[Span]] = defaultdict(list)
        for span in sorted(recording.spans, key=lambda span: (span.start_s, span.end_s)):
            self._spans[span.replica].append(span)
        self._work = recording.by_number()
        self._stood: dict[Step, list[Stood]] = dict(zip(recording.steps, waits_for_others(recording, self._work), strict=True))
        self._services = [service for service in recording.services if self._shows(service.start_s, service.end_s)]
        self._transfers = [transfer for transfer in recording.transfers if self._shows(begin_of(transfer), transfer.arrived_s)]
        self.left_out: list[str] = []
        self.lanes: dict[_Lane, list[Piece]] = {
            _Lane("critical path", (path.place,), f"critical path of step {path.number}"): self._marked_path()
        }
        through = {place for segment in path.segments for place in segment.places}
        replicas = list(stages) or self._replicas({place.replica for place in through})
        self.lanes |= {_lane_of("replica", replica_place(recording, replica)): self._of_replica(replica) for replica in replicas}
        if stages:
            self.lanes |= self._grouped(self._collectives())
        else:
            carried = self._grouped(self._connections())
            near = {lane: pieces for lane, pieces in carried.items() if any(_touches(piece, set(replicas)) for piece in pieces)}
            mine = {lane for lane, pieces in near.items() if any(_touches(piece, {path.step.replica}) for piece in pieces)}
            self._add(near, mine, _MOST_CONNECTIONS, len(carried), "connections")
        served = self._grouped(
            (
                _lane_of("server", Place("server", service.server)),
                self._piece(service, service.start_s, service.end_s, "apply", service.name),
            )
            for service in self._services
        )
        self._add(served, {lane for lane in served if through.issuperset(lane.places)}, _MOST_SERVERS, len(served), "servers")
        most = _MOST_PASSES if stages else _MOST_BARS
        smallest_s = (self._end_s - self._start_s) / most
        crowded = [lane for lane, pieces in self.lanes.items() if len(pieces) > most and lane.kind != "critical path"]
        self.lanes |= {lane: coarse(self.lanes[lane], smallest_s) for lane in crowded}
        if crowded:
            self.left_out.append(f"Pieces shorter than {format_seconds(smallest_s)} are joined to those beside them.")

    def bars(self) -> tuple[Bar, ...]:
        """Every piece in its lane."""
        labels = [[_label(piece) for piece in pieces] for pieces in self.lanes.values()]
        cut = {label for own in labels for label in own} - {"", "0"}  # else a batch that is not cut
        return tuple(
            Bar(
                lane.name, piece.start_s - self._start_s, piece.end_s - self._start_s, piece.kind, piece.critical, _text(lane, piece),
                label if cut else "",
            )
            for (lane, pieces), own in zip(self.lanes.items(), labels, strict=True)
            for piece, label in zip(pieces, own, strict=True)
        )  # fmt: skip

    def arrows(self) -> tuple[Arrow, ...]:
        """Return what stages that are drawn hand on to each other."""
        lanes: dict[int | None, str] = {stage: str(replica_place(self._recording, stage)) for stage in self._stages}
        ways = ((transfer, lanes.get(transfer.source.replica), lanes.get(transfer.target.replica)) for transfer in self._transfers)
        return tuple(
            Arrow(source, target, transfer.sent_s - self._start_s, transfer.arrived_s - self._start_s)
            for transfer, source, target in ways
            if transfer.target != EVERYBODY and source is not None and target is not None
        )

    def _replicas(self, through: set[int | None]) -> list[int]:
        """All replicas where they are few; else that of the path, those that it leads through, the slowest, the fastest, and some."""
        replicas = sorted(self._steps)
        if len(replicas) <= _MOST_REPLICAS:
            return replicas
        length = {
            replica: (
                digits(statistics.fmean(step.end_s - step.start_s for step in own), 9),
                statistics.fmean(step.compute_s for step in own),
            )
            for replica, own in self._steps.items()
        }
        fastest = min(replicas, key=lambda replica: (length[replica], replica))
        slowest = max(replicas, key=lambda replica: (length[replica], -replica))
        others = [replica for replica in replicas if replica in through]
        spread = _spread(replicas, _MOST_REPLICAS)
        shown = sorted(list(dict.fromkeys([self._path.step.replica, slowest, fastest, *others[:3], *spread]))[:_MOST_REPLICAS])
        first = replica_place(self._recording, 0)
        who, several = ("copy", "copies") if first.name else (first.kind, f"{first.kind}s")
        self.left_out.append(
            f"{len(shown)} of {len(replicas):,} {several} are drawn: {who} {slowest} is the slowest of all, {who} {fastest} the fastest."
        )
        return shown

    def _add(self, lanes: dict[_Lane, list[Piece]], mine: set[_Lane], most: int, of: int, what: str) -> None:
        """Add lanes, those of the path first where there are too many."""
        order = sorted(lanes, key=lambda lane: (not any(piece.critical for piece in lanes[lane]), lane not in mine, lane.places))
        shown = sorted(order[:most], key=lambda lane: lane.places)
        self.lanes |= {lane: lanes[lane] for lane in shown}
        if len(shown) < of:
            self.left_out.append(f"{len(shown)} of {of:,} {what} are drawn.")

    # -- pieces --------------------------------------------------------------------------

    def _shows(self, start_s: float, end_s: float) -> bool:
        return end_s > self._start_s and start_s < self._end_s

    def _piece(self, record: Work, start_s: float, end_s: float, kind: Kind, what: str) -> Piece:
        return Piece(start_s, end_s, kind, what, id(record) in self._critical, [record])

    def _grouped(self, pieces: Iterable[tuple[_Lane, Piece]]) -> dict[_Lane, list[Piece]]:
        """Pieces by their lanes, those joined between which nobody sees a gap in print."""
        held: dict[_Lane, list[Piece]] = defaultdict(list)
        for lane, piece in pieces:
            held[lane].append(piece)
        gap_s = (self._end_s - self._start_s) / 1000
        return {lane: clipped(joined(own, gap_s), self._start_s, self._end_s) for lane, own in held.items()}

    def _marked_path(self) -> list[Piece]:
        """The critical path from the step's start to its end; neighbours that differ in the tensor alone are one piece."""
        pieces = []
        for segment in self._path.segments:
            kind = "apply" if segment.name == "apply" and segment.kind == "compute" else PATH_KINDS[segment.kind]
            if isinstance(segment.record, Span):
                kind = _PASSES.get(segment.record.kind, kind)
            works = [segment.record] if segment.record is not None else []
            pieces.append(Piece(segment.start_s, segment.end_s, kind, f"{segment.name}, {segment.where}", True, works))
        return joined(pieces, 0.0)

    def _of_replica(self, replica: int) -> list[Piece]:
        """Return what a replica does: its compute, and what it waits for between; its steps are filled without a gap."""
        pieces: list[Piece] = []
        for step in self._steps[replica]:
            if self._shows(step.start_s, step.end_s):
                own = [span for span in self._spans[replica] if step.start_s < span.end_s and span.start_s < step.end_s]
                for span in own:
                    kind: Kind = "apply" if span.name == "apply" else _PASSES.get(span.kind, "compute")
                    pieces.append(self._piece(span, span.start_s, span.end_s, kind, span.name))
                pieces += self._between(step, own)
        if any(piece.kind in _PASSES.values() for piece in pieces):  # of a pass that is made layer by layer the whole
            pieces = joined(pieces, 0.0)
        return clipped(pieces, self._start_s, self._end_s)

    def _between(self, step: Step, spans: Sequence[Span]) -> list[Piece]:
        """The parts of a step in which the replica computes nothing, by what it waits for."""
        ends = [step.start_s, *(end for span in spans for end in (span.start_s, span.end_s)), step.end_s]
        causes = [*(span.cause for span in spans), step.cause]
        first_s = spans[0].start_s if spans else step.end_s
        held = self._stood[step]
        # with all workers' gradients together a server works for everybody
        served = [service for service in self._services if service.worker in (step.replica, _EVERYBODYS)]
        carried = [transfer for transfer in self._transfers if step.replica in (transfer.source.replica, transfer.target.replica)]
        here = (replica_place(self._recording, step.replica),)
        marked = [segment for segment in self._path.segments if segment.kind in ("input", "wait") and segment.places == here]
        waits: dict[Kind, list[tuple[float, float]]] = {
            "input": [(max(step.start_s, first_s - step.input_s), first_s)],
            "waiting": merged((wait.start_s, wait.end_s) for wait in held),
            "communication": merged(
                (begin_of(transfer), transfer.arrived_s)
                for transfer in carried
                if transfer.arrived_s > step.start_s and transfer.sent_s < step.end_s
            ),
            "apply": merged((service.start_s, service.end_s) for service in served),
        }
        critical = merged((segment.start_s, segment.end_s) for segment in marked)
        every = {at for intervals in (*waits.values(), critical) for interval in intervals for at in interval}
        pieces = []
        for start_s, end_s, cause in zip(ends[::2], ends[1::2], causes, strict=True):
            start_s, end_s = max(start_s, self._start_s), min(end_s, self._end_s)
            cuts = sorted({start_s, end_s, *(at for at in every if start_s < at < end_s)}) if start_s < end_s else []
            for low, high in pairwise(cuts):
                middle = (low + high) / 2
                kind = next((kind for kind, intervals in waits.items() if _covered(intervals, middle)), self._last(cause))
                what = _WAITS[kind]
                if kind == "waiting":
                    kind = "bubble" if self._recording.beside(step.replica) else kind
                    what = next((f"waits for {self._whom(wait)}" for wait in held if wait.start_s <= middle < wait.end_s), what)
                pieces.append(Piece(low, high, kind, what, _covered(critical, middle)))
        return joined(pieces, 0.0)

    def _last(self, cause: int) -> Kind:
        """Return what a replica waits for last that goes on because of a piece of work, though none of its own is under way."""
        match self._work.get(cause):
            case Service():
                return "apply"
            case Transfer() | Wait(name="send"):
                return "communication"
            case _:
                return "waiting"

    def _whom(self, stood: Stood) -> str:
        return "the coordinator" if stood.whom is None else str(replica_place(self._recording, stood.whom))

    def _collectives(self) -> Iterator[tuple[_Lane, Piece]]:
        """Yield what stages that are drawn do with others of their groups, a lane for each kind."""
        for transfer in self._transfers:
            if transfer.target == EVERYBODY and transfer.source.replica in self._stages:
                lane = _Lane("connection", (transfer.target,), transfer.kind)
                yield lane, self._piece(transfer, begin_of(transfer), transfer.arrived_s, "communication", transfer.kind)

    def _connections(self) -> Iterator[tuple[_Lane, Piece]]:
        """Yield what each connection carries; an all-reduce of which no messages are recorded is one connection."""
        for transfer in self._transfers:
            together = transfer.target == EVERYBODY
            ends = (transfer.target,) if together else (transfer.source, transfer.target)
            every = transfer.kind if self._recording.name_of(transfer.source.number) else "all-reduce"
            name = every if together else " → ".join(str(self._recording.named(end)) for end in ends)
            piece = self._piece(transfer, begin_of(transfer), transfer.arrived_s, "communication", transfer.kind)
            # the path leads through an all-reduce if it does through any replica's part in it
            piece.critical |= together and any(
                segment.kind == "all-reduce" and segment.start_s < transfer.arrived_s <= segment.end_s for segment in self._path.segments
            )
            yield _Lane("connection", ends, name), piece


def _touches(piece: Piece, replicas: set[int]) -> bool:
    """Return whether a message from or to one of these is in it."""
    return any(end.replica in replicas for work in piece.works if isinstance(work, Transfer) for end in (work.source, work.target))


def _text(lane: _Lane, piece: Piece) -> str:
    """Return what a bar is: ``push, 14 messages, 3.2 MiB``."""
    transfers = [work for work in piece.works if isinstance(work, Transfer)]
    parts = [piece.what if lane.kind == "critical path" else f"{lane.name}: {piece.what}"]
    if len(piece.works) > 1:
        parts.append(f"{len(piece.works):,} {'messages' if transfers else 'pieces'}")
    if transfers:
        parts.append(format_bytes(math.fsum(work.size_bytes for work in transfers)))
    return ", ".join([*parts, format_seconds(piece.length_s)])


def _label(piece: Piece) -> str:
    """The micro-batch of a pass."""
    numbers = {work.which for work in piece.works if isinstance(work, Span) and work.kind in _PASSES}
    return str(numbers.pop()) if len(numbers) == 1 else ""


def _lane_of(kind: Literal["replica", "server"], place: Place) -> _Lane:
    return _Lane(kind, (place,), str(place))
