"""Lays out some steps of a run as a Gantt chart, with the critical path of one of them: from the run's records to bars in lanes.

The run is simulated in simulated.py, the chart drawn in figures.py. Critical paths are found in
:mod:`simulator.observing.recording`.
"""

from __future__ import annotations

import bisect
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, NamedTuple

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


class Spans:
    """Intervals of time, those that overlap joined."""

    def __init__(self, intervals: Iterable[tuple[float, float]]) -> None:
        self._starts: list[float] = []
        self._ends: list[float] = []
        for start_s, end_s in sorted(intervals):
            if end_s <= start_s:
                continue
            if self._ends and start_s <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end_s)
            else:
                self._starts.append(start_s)
                self._ends.append(end_s)

    def covers(self, time_s: float) -> bool:
        """Whether a moment lies inside one of them."""
        index = bisect.bisect_right(self._starts, time_s) - 1
        return index >= 0 and time_s < self._ends[index]

    def cuts(self, start_s: float, end_s: float) -> list[float]:
        """Their ends strictly between two times."""
        return [
            at for ends in (self._starts, self._ends) for at in ends[bisect.bisect_right(ends, start_s) : bisect.bisect_left(ends, end_s)]
        ]


def clipped(pieces: Iterable[Piece], start_s: float, end_s: float) -> list[Piece]:
    """What of the pieces lies between two times, in order of time."""
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
    if stages := recording.beside(path.step.replica):
        return _staged(recording, name, path, stages, note)
    own = [step for step in recording.steps if step.replica == path.step.replica]
    first = max(0, min(path.number - 1 - _STEPS // 2, len(own) - _STEPS))
    last = min(first + _STEPS, len(own)) - 1
    window = _Window(recording, path, own[first].start_s, own[last].end_s)
    drawn = _Drawn(window, path)
    steps = f"Step {first + 1}" if first == last else f"Steps {first + 1} to {last + 1}"
    parts = (f"{steps} of {path.name} in the first replication.", *drawn.left_out, note)
    return Timeline(name, tuple(lane.name for lane in drawn.lanes), drawn.bars, bound_of_step(path), " ".join(filter(None, parts)))


def _staged(recording: Recording, name: str, path: CriticalPath, stages: Sequence[int], note: str) -> Timeline:
    """One step of a pipeline, from when its first stage begins it to when its last one has ended it; some stages where there are many."""
    steps = {stage: [step for step in recording.steps if step.replica == stage] for stage in stages}
    these = [own[min(path.number, len(own)) - 1] for own in steps.values() if own]
    start_s, end_s = min(step.start_s for step in these), max(step.end_s for step in these)
    window = _Window(recording, path, start_s, end_s)
    count, last = len(stages), len(stages) - 1
    shown = [stages[at] for at in sorted({round(place * last / (_MOST_STAGES - 1)) for place in range(_MOST_STAGES)})]
    drawn = _Drawn(window, path, shown if count > _MOST_STAGES else stages)
    of = "" if count <= _MOST_STAGES else f" {len(shown)} of {count} stages are drawn."
    text = f"Step {path.number} of one copy of the model in the first replication, with what goes on beside it."
    parts = (text + of, *drawn.left_out, note)
    lanes = tuple(lane.name for lane in drawn.lanes)
    return Timeline(name, lanes, drawn.bars, bound_of_step(path), " ".join(filter(None, parts)), drawn.arrows)


class _Drawn:
    """The lanes that are drawn, and what is left out."""

    def __init__(self, window: _Window, path: CriticalPath, stages: Sequence[int] = ()) -> None:
        self._window = window
        self._path = path
        self._stages = stages
        self.left_out: list[str] = []
        marked = _Lane("critical path", (path.place,), f"critical path of step {path.number}")
        self.lanes: dict[_Lane, list[Piece]] = {marked: window.path()}
        through = {place for segment in path.segments for place in segment.places}
        shown = list(stages) or self._replicas({place.replica for place in through})
        self.lanes |= {_lane_of("replica", window.place(replica)): window.of_replica(replica) for replica in shown}
        if stages:
            self.lanes |= window.collectives(set(stages))
        carried = {} if stages else window.connections()
        near = {lane: pieces for lane, pieces in carried.items() if any(_touches(piece, set(shown)) for piece in pieces)}
        mine = {lane for lane, pieces in near.items() if any(_touches(piece, {path.step.replica}) for piece in pieces)}
        self._add(near, mine, _MOST_CONNECTIONS, len(carried), "connections")
        served = window.servers()
        self._add(served, {lane for lane in served if through.issuperset(lane.places)}, _MOST_SERVERS, len(served), "servers")
        window_s = window.end_s - window.start_s
        for lane, pieces in self.lanes.items():
            most = _MOST_PASSES if stages else _MOST_BARS
            if len(pieces) > most and lane.kind != "critical path":
                self.lanes[lane] = coarse(pieces, window_s / most)
                merged = f"Pieces shorter than {format_seconds(window_s / most)} are joined to those beside them."
                self.left_out = [*(note for note in self.left_out if note != merged), merged]

    @property
    def bars(self) -> tuple[Bar, ...]:
        start_s = self._window.start_s
        labels = {id(piece): _label(piece) for pieces in self.lanes.values() for piece in pieces}
        if not set(labels.values()) - {"", "0"}:  # a batch that is not cut
            labels = dict.fromkeys(labels, "")
        return tuple(
            Bar(
                lane.name, piece.start_s - start_s, piece.end_s - start_s, piece.kind, piece.critical, _text(lane, piece), labels[id(piece)]
            )
            for lane, pieces in self.lanes.items()
            for piece in pieces
        )

    @property
    def arrows(self) -> tuple[Arrow, ...]:
        """Between stages that are drawn."""
        start_s = self._window.start_s
        lanes = {stage: self._window.place(stage) for stage in self._stages}
        return tuple(
            Arrow(str(lanes[sent]), str(lanes[came]), message.sent_s - start_s, message.arrived_s - start_s)
            for message in self._window.messages()
            if (sent := message.source.replica) in lanes
            and (came := message.target.replica) in lanes
            and sent is not None
            and came is not None
        )

    def _replicas(self, through: set[int | None]) -> list[int]:
        """All replicas where they are few; else that of the path, those that it leads through, the slowest, the fastest, and some."""
        steps = self._window.steps
        replicas = sorted(steps)
        if len(replicas) <= _MOST_REPLICAS:
            return replicas
        length = {
            replica: (
                digits(statistics.fmean(step.end_s - step.start_s for step in own), 9),
                statistics.fmean(step.compute_s for step in own),
            )
            for replica, own in steps.items()
        }
        fastest = min(replicas, key=lambda replica: (length[replica], replica))
        slowest = max(replicas, key=lambda replica: (length[replica], -replica))
        others = [replica for replica in replicas if replica in through]
        spread = [replicas[round(place * (len(replicas) - 1) / (_MOST_REPLICAS - 1))] for place in range(_MOST_REPLICAS)]
        shown = sorted(list(dict.fromkeys([self._path.step.replica, slowest, fastest, *others[:3], *spread]))[:_MOST_REPLICAS])
        who, several = ("copy", "copies") if self._window.place(0).name else (self._window.place(0).kind, f"{self._window.place(0).kind}s")
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


def _touches(piece: Piece, replicas: set[int]) -> bool:
    """Whether a message from or to one of these is in it."""
    return any(end.replica in replicas for work in piece.works if isinstance(work, Transfer) for end in (work.source, work.target))


def _text(lane: _Lane, piece: Piece) -> str:
    """What a bar is: ``push, 14 messages, 3.2 MiB``."""
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


class _Window:
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
            kind: Kind = "apply" if span.name == "apply" else _PASSES.get(span.kind, "compute")
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
            kind = "apply" if segment.name == "apply" and segment.kind == "compute" else PATH_KINDS[segment.kind]
            if isinstance(segment.record, Span):
                kind = _PASSES.get(segment.record.kind, kind)
            works = [segment.record] if segment.record is not None else []
            pieces.append(Piece(segment.start_s, segment.end_s, kind, f"{segment.name}, {segment.where}", True, works))
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
        if any(piece.kind in _PASSES.values() for piece in pieces):  # of a pass that is made layer by layer the whole
            pieces = joined(pieces, 0.0)
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
        stood = Spans((wait.start_s, wait.end_s) for wait in held)
        waits: tuple[tuple[Kind, Spans], ...] = (("input", fed), ("waiting", stood), ("communication", carried), ("apply", served))
        pieces = []
        for start_s, end_s, cause in gaps:
            last = self._last(cause)
            cuts = sorted({start_s, end_s, *(at for some in (fed, stood, carried, served, critical) for at in some.cuts(start_s, end_s))})
            for low, high in pairwise(cuts):
                middle = (low + high) / 2
                kind: Kind = next((kind for kind, spans in waits if spans.covers(middle)), last)
                what = _WAITS[kind]
                if kind == "waiting":
                    kind = "bubble" if self._recording.beside(step.replica) else kind
                    what = next((f"waits for {self._whom(wait)}" for wait in held if wait.start_s <= middle < wait.end_s), what)
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

    def collectives(self, replicas: set[int]) -> dict[_Lane, list[Piece]]:
        """What some replicas do with others of their groups, a lane for each kind."""
        held: dict[_Lane, list[Piece]] = defaultdict(list)
        for transfer in self._within():
            if transfer.target == EVERYBODY and transfer.source.replica in replicas:
                lane = _Lane("connection", (transfer.target,), transfer.kind)
                critical = id(transfer) in self._critical
                held[lane].append(Piece(begin_of(transfer), transfer.arrived_s, "communication", transfer.kind, critical, [transfer]))
        return {lane: clipped(joined(pieces, self._unseen_s), self.start_s, self.end_s) for lane, pieces in held.items()}

    def messages(self) -> Iterator[Transfer]:
        """From one replica to another."""
        return (transfer for transfer in self._within() if transfer.target != EVERYBODY)

    def _within(self) -> Iterator[Transfer]:
        for transfer in self._recording.transfers:
            if transfer.arrived_s > self.start_s and begin_of(transfer) < self.end_s:
                yield transfer

    # -- connections and servers ---------------------------------------------------------

    def connections(self) -> dict[_Lane, list[Piece]]:
        """What each connection carries; an all-reduce of which no messages are recorded is one connection."""
        held: dict[_Lane, list[Piece]] = defaultdict(list)
        for transfer in self._recording.transfers:
            begun_s = begin_of(transfer)
            if transfer.arrived_s <= self.start_s or begun_s >= self.end_s:
                continue
            together = transfer.target == EVERYBODY
            ends = (transfer.target,) if together else (transfer.source, transfer.target)
            named = [self._recording.named(end) for end in ends]
            every = transfer.kind if self._recording.name_of(transfer.source.number) else "all-reduce"
            lane = _Lane("connection", ends, every if together else " → ".join(map(str, named)))
            held[lane].append(Piece(begun_s, transfer.arrived_s, "communication", transfer.kind, self._on_path(transfer), [transfer]))
        return {lane: clipped(joined(pieces, self._unseen_s), self.start_s, self.end_s) for lane, pieces in held.items()}

    def servers(self) -> dict[_Lane, list[Piece]]:
        """What each parameter server works on."""
        held: dict[_Lane, list[Piece]] = defaultdict(list)
        for service in self._recording.services:
            if service.end_s > self.start_s and service.start_s < self.end_s:
                piece = Piece(service.start_s, service.end_s, "apply", service.name, id(service) in self._critical, [service])
                held[_lane_of("server", Place("server", service.server))].append(piece)
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
