"""Draws a recorded run in the trace event format that Perfetto and chrome://tracing read.

Format: "Trace Event Format", Google, 2016: complete events ("X") for work, flow events ("s", "f") for the arrows of messages, metadata
("M") for names and order. ``otherData`` comes before the events and begins with ``written_by``, from which :data:`TRACE` recognises a trace
that may be replaced.

A connection carries its messages in order, so each is drawn from when it is first in it. Messages between two devices, which may
have several connections, overlap nevertheless, and slices of one track may only nest: Perfetto drops or misplaces others. They are
drawn in lanes, further tracks below the first one. Asynchronous events ("b", "e") overlap freely, but Perfetto groups them by name
rather than by connection, and binds no arrows to them, since flow events name a thread.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import Any, NamedTuple

from simulator.base.files import marked_kind
from simulator.base.records import EVERYBODY, Place, Service, Span, Update, Wait, Work, begin_of
from simulator.observing.recording import CriticalPath, Recording, bound_of_step, replica_place

_WRITTEN_BY = {"written_by": "Paceline"}
TRACE = marked_kind("trace", json.dumps({"otherData": _WRITTEN_BY}, separators=(",", ":"))[1:-2], ".json")
"""Traces that a new one may replace."""
_PROCESSES = ("critical path", "devices", "network", "servers")
_PATH, _DEVICES, _NETWORK, _SERVERS = range(1, 5)  # 0 is the idle process to Perfetto
_FIRST_THREAD = 100  # unlike any process's number: Perfetto takes a thread of its process's number for the main one
_COLOUR = "terrible"
"""Of the colours that chrome://tracing knows by name, the red one."""

_Details = dict[str, Any]


class _Track(NamedTuple):
    """A row of the trace; tracks are in this order."""

    process: int
    places: tuple[Place, ...]
    name: str


@dataclass
class _Slice:
    name: str
    kind: str
    begin_ns: int
    end_ns: int
    details: _Details = field(default_factory=dict)
    process: int = 0
    thread: int = 0
    """In which it is drawn, once it has been given one."""


def chrome_trace(
    recording: Recording, path: CriticalPath | None = None, *, replicas_per_device: int = 1, about: Mapping[str, Any] | None = None
) -> str:
    """The whole trace, as JSON.

    Parameters
    ----------
    recording
        What happened.
    path
        A critical path to mark: shown as a separate process, with its work coloured in place.
    replicas_per_device
        How many replicas in a row share a device.
    about
        What else to tell about the run, for the trace's metadata.
    """
    other = _WRITTEN_BY | dict(about or {}) | ({"critical_path": bound_of_step(path)} if path else {})
    trace = _Trace(recording, path, replicas_per_device)
    whole = {"displayTimeUnit": "ms", "otherData": other, "traceEvents": trace.names + trace.events}
    return json.dumps(whole, separators=(",", ":"))


class _Trace:
    """A trace in the making."""

    def __init__(self, recording: Recording, path: CriticalPath | None, replicas_per_device: int) -> None:
        self._tracks: dict[_Track, list[_Slice]] = defaultdict(list)
        self._slices: dict[int, _Slice] = {}
        self._recording = recording
        self._sharing = replicas_per_device
        self.events: list[dict[str, Any]] = []
        self.names: list[dict[str, Any]] = []
        self._add_work()
        if path is not None:
            self._mark(path)
        self._draw()
        for update in recording.updates:
            self._instant(update)
        self._arrows()

    def _device(self, replica: int) -> _Track:
        device, place = Place("device", replica // self._sharing), replica_place(self._recording, replica)
        return _Track(_DEVICES, (device, place), place.name or f"{device} ({place})")

    def _add_work(self) -> None:
        recording, steps = self._recording, Counter[int]()
        for step in recording.steps:
            steps[step.replica] += 1
            number = steps[step.replica]
            parts = {name: getattr(step, name) for name in ("input_s", "compute_s", "communication_s", "waiting_s", "apply_s")}
            self._add(self._device(step.replica), f"step {number}", "step", step.start_s, step.end_s, {"step": number, **parts})
        for span in recording.spans:
            self._add(self._device(span.replica), span.name, "compute", span.start_s, span.end_s, {}, span)
        for transfer in recording.transfers:
            # what stands behind other messages of its connection is drawn from when it is first, so that they do not overlap
            begun_s = begin_of(transfer)
            details: _Details = {"bytes": transfer.size_bytes, "queued_s": begun_s - transfer.sent_s}
            ends = recording.named(transfer.source), recording.named(transfer.target)
            track = _between(_NETWORK, *ends)
            if transfer.target == EVERYBODY and ends[0].name:
                track = track._replace(name=f"{ends[0]}, with others of its group")
            self._add(track, transfer.name, "transfer", begun_s, transfer.arrived_s, details, transfer)
        for service in recording.services:
            details = {"variable": service.variable} | ({"worker": service.worker} if service.worker >= 0 else {})
            track = _between(_SERVERS, Place("server", service.server))
            self._add(track, service.name, "service", service.start_s, service.end_s, details, service)

    def _add(self, track: _Track, name: str, kind: str, start_s: float, end_s: float, details: _Details, work: Work | None = None) -> None:
        piece = _Slice(name, kind, _ns(start_s), _ns(end_s), details)
        self._tracks[track].append(piece)
        if work is not None:
            self._slices[id(work)] = piece

    def _mark(self, path: CriticalPath) -> None:
        track = _Track(_PATH, (path.place,), f"step {path.number} of {path.name}")
        for segment in path.segments:
            details = {"what": segment.what, "where": segment.where, "critical": True}
            self._add(track, f"{segment.what}, {segment.where}", segment.kind, segment.start_s, segment.end_s, details)
            marked = self._slices.get(id(segment.record))
            if marked is not None:
                marked.details["critical"] = True

    # -- tracks --------------------------------------------------------------------------

    def _draw(self) -> None:
        for number, name in enumerate(_PROCESSES, 1):
            self._name("process", number, 0, name, number)
        threads = 0
        for track in sorted(self._tracks):
            process, _, name = track
            slices = self._tracks[track]
            slices.sort(key=lambda piece: (piece.begin_ns, -piece.end_ns))
            drawn_in = lanes([(piece.begin_ns, piece.end_ns) for piece in slices], nested=process == _DEVICES)
            for lane in range(max(drawn_in) + 1):
                self._name("thread", process, _FIRST_THREAD + threads + lane, f"{name} ({lane + 1})" if lane else name, threads + lane)
            for piece, lane in zip(slices, drawn_in, strict=True):
                piece.process, piece.thread = process, _FIRST_THREAD + threads + lane
                event = {
                    "ph": "X", "pid": process, "tid": piece.thread, "name": piece.name, "cat": piece.kind, "ts": _micro(piece.begin_ns),
                    "dur": _micro(piece.end_ns - piece.begin_ns), "args": piece.details,
                }  # fmt: skip
                self.events.append(event | ({"cname": _COLOUR} if "critical" in piece.details else {}))
            threads += max(drawn_in) + 1

    def _name(self, what: str, process: int, thread: int, name: str, order: int) -> None:
        for event, key, value in ((f"{what}_name", "name", name), (f"{what}_sort_index", "sort_index", order)):
            self.names.append({"ph": "M", "pid": process, "tid": thread, "name": event, "args": {key: value}})

    def _instant(self, update: Update) -> None:
        track = self._tracks.get(self._device(update.worker))
        if track:
            details = {"staleness": update.staleness, "version": update.applied_version}
            self.events.append({
                "ph": "i", "s": "t", "pid": _DEVICES, "tid": track[0].thread, "name": "update applied", "cat": "update",
                "ts": _micro(_ns(update.applied_s)), "args": details,
            })  # fmt: skip

    # -- arrows --------------------------------------------------------------------------

    def _arrows(self) -> None:
        """From the work that sends a message to the message, and from there to the service or the compute that it lets begin."""
        recording, work = self._recording, self._recording.by_number()
        received: dict[int, list[Span | Service]] = defaultdict(list)
        for service in recording.services:
            received[service.sender].append(service)
        for span in recording.spans:
            received[span.cause].append(span)
        numbers = count(1)
        for transfer in recording.transfers:
            sender = work.get(transfer.sender)
            while isinstance(sender, Wait):  # which is not drawn
                sender = work.get(sender.cause)
            pairs = [(sender, transfer)] if sender is not None else []
            for before, after in [*pairs, *((transfer, after) for after in received[transfer.number])]:
                self._arrow(next(numbers), transfer.name, self._slices[id(before)], self._slices[id(after)])

    def _arrow(self, number: int, name: str, start: _Slice, end: _Slice) -> None:
        # at its very end a slice is closed already; an arrow binds to the one that is open
        leaves_ns = max(start.begin_ns, min(start.end_ns, end.begin_ns) - 1)
        common = {"name": name, "cat": "message", "id": number}
        self.events.append({"ph": "s", **common, "pid": start.process, "tid": start.thread, "ts": _micro(leaves_ns)})
        arrives = {"pid": end.process, "tid": end.thread, "ts": _micro(max(end.begin_ns, leaves_ns))}
        self.events.append({"ph": "f", "bp": "e", **common, **arrives})


def _between(process: int, *places: Place) -> _Track:
    return _Track(process, places, " to ".join(map(str, places)))


def _ns(time_s: float) -> int:
    """Whole nanoseconds, in which Perfetto counts: so that slices that touch still do after rounding."""
    return round(time_s * 1e9)


def _micro(time_ns: int) -> float:
    """Microseconds, the unit of the format, such that a reader that cuts them off to nanoseconds gets these."""
    time_us = time_ns / 1000
    return time_us if int(time_us * 1000) == time_ns else math.nextafter(time_us, math.inf)


def lanes(slices: Sequence[tuple[int, int]], *, nested: bool = False) -> list[int]:
    """A lane for each slice so that no two in a lane overlap, and as few lanes as possible.

    Parameters
    ----------
    slices
        Begin and end, sorted by begin; nested ones with the longer one of two first.
    nested
        Whether a slice may lie within another one of its lane, as a part of it.
    """
    lane_of = []
    free: list[int] = []  # lanes in which nothing is open
    until: list[tuple[int, int]] = []  # when each other lane is free again, by its longest slice, and which it is
    ends: dict[int, list[int]] = {}  # of what is open in it, each within the one before
    for begin, end in slices:
        while until and until[0][0] <= begin:
            heappush(free, heappop(until)[1])
        lane = free[0] if free else len(until)
        for _, other in until if nested else ():
            while ends[other][-1] <= begin:
                ends[other].pop()
            if end <= ends[other][-1]:
                lane = min(lane, other)
        if lane in ends and lane not in free[:1]:
            ends[lane].append(end)
        else:
            if free:
                heappop(free)
            heappush(until, (end, lane))
            ends[lane] = [end]
        lane_of.append(lane)
    return lane_of
