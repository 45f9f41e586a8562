"""Draws a recorded run in the trace event format that Perfetto and chrome://tracing read.

Format: "Trace Event Format", Google, 2016: complete events ("X") for work, flow events ("s", "f") for the arrows of messages,
metadata ("M") for names and order. ``otherData`` stands before the events and begins with ``written_by``: by that :data:`TRACE` tells
a trace that a new one may replace.

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
from typing import Any, NamedTuple

from simulator.base.files import marked_kind
from simulator.base.records import EVERYBODY, Place, Service, Span, Step, Transfer, Update, Wait, Work, begin_of
from simulator.observing.recording import CriticalPath, Recording, bound_of_step, replica_place

_WRITTEN_BY = {"written_by": "Paceline"}
TRACE = marked_kind("trace", json.dumps({"otherData": _WRITTEN_BY}, separators=(",", ":"))[1:-2])
"""Traces that a new one may replace."""
_PROCESSES = ("critical path", "devices", "network", "servers")
_PATH, _DEVICES, _NETWORK, _SERVERS = range(1, 5)  # 0 is the idle process to Perfetto
_FIRST_THREAD = 100  # unlike any process's number: Perfetto takes a thread of its process's number for the main one
_COLOUR = "terrible"
"""Of the colours that chrome://tracing knows by name, the red one."""

_Details = dict[str, Any]


class _Track(NamedTuple):
    """A row of the trace: tracks stand in this order."""

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
    track: int = 0
    """The thread it is drawn in, once it has been given one."""


def chrome_trace(
    recording: Recording, path: CriticalPath | None = None, *, replicas_per_device: int = 1, about: Mapping[str, Any] | None = None
) -> str:
    """The whole trace, as JSON.

    Parameters
    ----------
    recording
        What happened.
    path
        A critical path to mark: shown as a process of its own, its work coloured where it stands.
    replicas_per_device
        How many replicas in a row share a device.
    about
        What else to tell about the run, for the trace's metadata.
    """
    return _Trace(recording, path, replicas_per_device).to_json(about or {})


class _Trace:
    """A trace in the making."""

    def __init__(self, recording: Recording, path: CriticalPath | None, replicas_per_device: int) -> None:
        self._tracks: dict[_Track, list[_Slice]] = defaultdict(list)
        self._slices: dict[int, _Slice] = {}
        self._steps: Counter[int] = Counter()
        self._recording = recording
        self._sharing = replicas_per_device
        self._path = path
        self._events: list[dict[str, Any]] = []
        self._names: list[dict[str, Any]] = []
        for step in recording.steps:
            self._add_step(step)
        for span in recording.spans:
            self._add(self._device(span.replica), span.name, "compute", span, span.start_s, span.end_s, {})
        for transfer in recording.transfers:
            self._add_transfer(transfer)
        for service in recording.services:
            details = {"variable": service.variable} | ({"worker": service.worker} if service.worker >= 0 else {})
            self._add(_between(_SERVERS, Place("server", service.server)), service.name, "service", service, service.start_s, service.end_s,
                      details)  # fmt: skip
        if path is not None:
            self._mark(path)
        self._draw()
        for update in recording.updates:
            self._instant(update)
        self._arrows()

    def _device(self, replica: int) -> _Track:
        device, place = Place("device", replica // self._sharing), replica_place(self._recording, replica)
        if place.name:
            return _Track(_DEVICES, (device, place), place.name)
        return _Track(_DEVICES, (device, place), f"{device} ({place})")

    def _add_step(self, step: Step) -> None:
        parts = {name: getattr(step, name) for name in ("input_s", "compute_s", "communication_s", "waiting_s", "apply_s")}
        self._steps[step.replica] += 1
        number = self._steps[step.replica]
        track = self._tracks[self._device(step.replica)]
        track.append(_Slice(f"step {number}", "step", _ns(step.start_s), _ns(step.end_s), {"step": number, **parts}))

    def _add_transfer(self, transfer: Transfer) -> None:
        # what stands behind other messages of its connection is drawn from when it is first, so that they do not overlap
        begun_s = begin_of(transfer)
        details = {"bytes": transfer.size_bytes, "queued_s": begun_s - transfer.sent_s}
        ends = self._recording.named(transfer.source), self._recording.named(transfer.target)
        track = _between(_NETWORK, *ends)
        if transfer.target == EVERYBODY and ends[0].name:
            track = track._replace(name=f"{ends[0]}, with others of its group")
        self._add(track, transfer.name, "transfer", transfer, begun_s, transfer.arrived_s, details)

    def _add(self, track: _Track, name: str, kind: str, work: Work, start_s: float, end_s: float, details: _Details) -> None:
        piece = _Slice(name, kind, _ns(start_s), _ns(end_s), details)
        self._tracks[track].append(piece)
        self._slices[id(work)] = piece

    def _mark(self, path: CriticalPath) -> None:
        track = self._tracks[_Track(_PATH, (path.place,), f"step {path.number} of {path.name}")]
        for segment in path.segments:
            details = {"what": segment.what, "where": segment.where, "critical": True}
            track.append(_Slice(f"{segment.what}, {segment.where}", segment.kind, _ns(segment.start_s), _ns(segment.end_s), details))
            marked = self._slices.get(id(segment.record))
            if marked is not None:
                marked.details["critical"] = True

    # -- tracks --------------------------------------------------------------------------

    def _draw(self) -> None:
        for number, name in enumerate(_PROCESSES, 1):
            self._name("process", number, 0, name, number)
        threads = 0
        for which in sorted(self._tracks):
            process, _, name = which
            slices = self._tracks[which]
            slices.sort(key=lambda piece: (piece.begin_ns, -piece.end_ns))
            bounds = [(piece.begin_ns, piece.end_ns) for piece in slices]
            drawn_in = lanes(bounds, nested=process == _DEVICES)
            for lane in range(max(drawn_in) + 1):
                self._name("thread", process, _FIRST_THREAD + threads + lane, f"{name} ({lane + 1})" if lane else name, threads + lane)
            for piece, lane in zip(slices, drawn_in, strict=True):
                piece.track = _FIRST_THREAD + threads + lane
                self._complete(process, piece)
            threads += max(drawn_in) + 1

    def _name(self, what: str, process: int, thread: int, name: str, order: int) -> None:
        for event, key, value in ((f"{what}_name", "name", name), (f"{what}_sort_index", "sort_index", order)):
            self._names.append({"ph": "M", "pid": process, "tid": thread, "name": event, "args": {key: value}})

    def _complete(self, process: int, piece: _Slice) -> None:
        event = {
            "ph": "X", "pid": process, "tid": piece.track, "name": piece.name, "cat": piece.kind, "ts": _micro(piece.begin_ns),
            "dur": _micro(piece.end_ns - piece.begin_ns), "args": piece.details,
        }  # fmt: skip
        if "critical" in piece.details:
            event["cname"] = _COLOUR
        self._events.append(event)

    def _instant(self, update: Update) -> None:
        track = self._tracks.get(self._device(update.worker))
        details = {"staleness": update.staleness, "version": update.applied_version}
        if track:
            self._events.append(
                {
                    "ph": "i", "s": "t", "pid": _DEVICES, "tid": track[0].track, "name": "update applied", "cat": "update",
                    "ts": _micro(_ns(update.applied_s)), "args": details,
                }
            )  # fmt: skip

    # -- arrows --------------------------------------------------------------------------

    def _arrows(self) -> None:
        """From the work that sends a message to the message, and from there to the service or the compute that it lets begin."""
        recording, work = self._recording, self._recording.by_number()
        number = 0
        received: dict[int, list[Span | Service]] = defaultdict(list)
        for service in recording.services:
            received[service.sender].append(service)
        for span in recording.spans:
            received[span.cause].append(span)
        for transfer in recording.transfers:
            sender = work.get(transfer.sender)
            while isinstance(sender, Wait):  # which is not drawn
                sender = work.get(sender.cause)
            pairs = [(sender, transfer)] if sender is not None else []
            for before, after in [*pairs, *((transfer, after) for after in received[transfer.number])]:
                number += 1
                self._arrow(number, transfer.name, before, after)

    def _arrow(self, number: int, name: str, work: Work, after: Work) -> None:
        start, end = self._slices[id(work)], self._slices[id(after)]
        # at its very end a slice is closed already; an arrow binds to the one that is open
        leaves_ns = max(start.begin_ns, min(start.end_ns, end.begin_ns) - 1)
        common = {"name": name, "cat": "message", "id": number}
        self._events.append({"ph": "s", **common, "pid": _process(work), "tid": start.track, "ts": _micro(leaves_ns)})
        arrives = {"pid": _process(after), "tid": end.track, "ts": _micro(max(end.begin_ns, leaves_ns))}
        self._events.append({"ph": "f", "bp": "e", **common, **arrives})

    def to_json(self, about: Mapping[str, Any]) -> str:
        other = _WRITTEN_BY | dict(about) | ({"critical_path": bound_of_step(self._path)} if self._path else {})
        whole = {"displayTimeUnit": "ms", "otherData": other, "traceEvents": self._names + self._events}
        return json.dumps(whole, separators=(",", ":"))


def _between(process: int, *places: Place) -> _Track:
    return _Track(process, places, " to ".join(map(str, places)))


def _process(work: Work) -> int:
    if isinstance(work, Transfer):
        return _NETWORK
    return _DEVICES if isinstance(work, Span) else _SERVERS


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
    open_until: list[list[int]] = []  # ends of the slices that are open, of each lane
    for begin, end in slices:
        for ends in open_until:
            while ends and ends[-1] <= begin:
                ends.pop()
        lane = next((lane for lane, ends in enumerate(open_until) if not ends or (nested and end <= ends[-1])), len(open_until))
        if lane == len(open_until):
            open_until.append([])
        open_until[lane].append(end)
        lane_of.append(lane)
    return lane_of
