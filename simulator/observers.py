"""Where records go: a list in memory, or a Chrome trace."""

from __future__ import annotations

import json
from typing import Any

from simulator.records import Record, Service, Span, Step, Transfer, Update

__all__ = ["ChromeTrace", "Recording"]


class Recording:
    """Keeps every record, by kind: for audits and for looking closely at a short run."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.spans: list[Span] = []
        self.transfers: list[Transfer] = []
        self.services: list[Service] = []
        self.updates: list[Update] = []

    def record(self, record: Record) -> None:
        """Take one record."""
        if isinstance(record, Step):
            self.steps.append(record)
        elif isinstance(record, Span):
            self.spans.append(record)
        elif isinstance(record, Transfer):
            self.transfers.append(record)
        elif isinstance(record, Service):
            self.services.append(record)
        else:
            self.updates.append(record)


class ChromeTrace:
    """The run in the trace event format that Perfetto and chrome://tracing read.

    One process of tracks each for devices, network and servers. Format: "Trace Event
    Format", Google, 2016; complete events ("X") with times in microseconds.
    """

    _PROCESSES = ("devices", "network", "servers")

    def __init__(self) -> None:
        self._events: list[dict[str, Any]] = []
        self._tracks: dict[tuple[int, str], int] = {}

    def __len__(self) -> int:
        return len(self._events)

    def record(self, record: Record) -> None:
        """Take one record."""
        if isinstance(record, Span):
            self._add(0, f"replica {record.replica}", record.name, record.start_s, record.end_s, {})
        elif isinstance(record, Transfer):
            self._add(1, f"{record.source} to {record.target}", record.name, record.sent_s, record.arrived_s, {"bytes": record.size_bytes})
        elif isinstance(record, Service):
            self._add(
                2,
                f"server {record.server}",
                record.name,
                record.start_s,
                record.end_s,
                {"worker": record.worker, "variable": record.variable},
            )
        elif isinstance(record, Update):
            self._instant(record)

    def _track(self, process: int, name: str) -> int:
        return self._tracks.setdefault((process, name), len(self._tracks) + 1)

    def _add(self, process: int, track: str, name: str, start_s: float, end_s: float, details: dict[str, Any]) -> None:
        self._events.append(
            {
                "ph": "X",
                "pid": process,
                "tid": self._track(process, track),
                "name": name,
                "ts": start_s * 1e6,
                "dur": (end_s - start_s) * 1e6,
                "args": details,
            }
        )

    def _instant(self, update: Update) -> None:
        self._events.append(
            {
                "ph": "i", "s": "t", "pid": 0, "tid": self._track(0, f"replica {update.worker}"), "name": "update applied",
                "ts": update.applied_s * 1e6, "args": {"staleness": update.staleness, "version": update.applied_version},
            }
        )  # fmt: skip

    def to_json(self) -> str:
        """The whole trace."""
        names: list[dict[str, Any]] = [
            {"ph": "M", "pid": number, "name": "process_name", "args": {"name": name}} for number, name in enumerate(self._PROCESSES)
        ]
        names += [
            {"ph": "M", "pid": process, "tid": track, "name": "thread_name", "args": {"name": name}}
            for (process, name), track in self._tracks.items()
        ]
        return json.dumps({"displayTimeUnit": "ms", "traceEvents": names + self._events}, separators=(",", ":"))
