"""A run kept in memory, for audits, traces and critical paths; and several observers of one run at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from simulator.records import NOTHING, Observer, Record, Service, Span, Step, Transfer, Update, Wait, Work

__all__ = ["FanOut", "Recording"]


class Recording:
    """Keeps every record, by kind: for looking closely at a short run."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.spans: list[Span] = []
        self.transfers: list[Transfer] = []
        self.services: list[Service] = []
        self.waits: list[Wait] = []
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
        elif isinstance(record, Wait):
            self.waits.append(record)
        else:
            self.updates.append(record)

    @property
    def work(self) -> Iterator[Work]:
        """Everything that has a number, by kind."""
        return chain(self.spans, self.transfers, self.services, self.waits)

    def by_number(self) -> dict[int, Work]:
        """Every piece of work that has a number, by it."""
        return {one.number: one for one in self.work if one.number != NOTHING}


class FanOut:
    """Hands each record to every observer, in the order given."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = tuple(observers)

    def record(self, record: Record) -> None:
        """Take one record."""
        for observer in self._observers:
            observer.record(record)
