"""Observers that keep a run's records in memory, with the names of its ranks (``Recording``), or hand them to several (``FanOut``).

Traces, critical paths, audits and the timeline of a report read a ``Recording``; to follow a long run in bounded memory see
``tensorboard``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from simulator.base.records import NOTHING, Observer, Place, Record, Service, Span, Step, Transfer, Update, Wait, Work
from simulator.resolve.resolve import resolve
from simulator.resolve.teams import as_workers
from simulator.scenario import Scenario


class Recording:
    """Keeps every record, by kind: for looking closely at a short run.

    Parameters
    ----------
    scenario
        The scenario that is run, for the names of stages and copies; left out: replicas have numbers alone.
    """

    def __init__(self, scenario: Scenario | None = None) -> None:
        # devices that split tensors are one in a run's records
        self._resolved = as_workers(resolve(scenario)) if scenario is not None else None
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
    def cut(self) -> bool:
        """Whether the run's steps consist of micro-batches (``Strategy.cuts_batches``); False without a scenario."""
        return self._resolved is not None and self._resolved.strategy.cuts_batches

    def name_of(self, replica: int) -> str:
        """What a replica is called; empty: by its number alone."""
        return self._resolved.strategy.model_parallel(self._resolved).name_of_rank(replica) if self._resolved is not None else ""

    def beside(self, replica: int) -> Sequence[int]:
        """Who hold one model together with it, itself included, in the order of its stages; empty without stages."""
        return self._resolved.strategy.model_parallel(self._resolved).ranks_beside(replica) if self._resolved is not None else ()

    def named(self, place: Place) -> Place:
        """The place with its replica's name filled in; unchanged if it belongs to no replica."""
        return place if place.replica is None else place._replace(name=self.name_of(place.replica))

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
