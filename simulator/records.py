"""What happened, one immutable record a fact. Made only when an observer asks for them."""

from __future__ import annotations

from typing import NamedTuple, Protocol

__all__ = ["Observer", "Record", "Service", "Span", "Step", "Transfer", "Update"]


class Step(NamedTuple):
    """One step of one replica, in seconds; the five parts sum to ``end_s - start_s``."""

    replica: int
    start_s: float
    end_s: float
    input_s: float
    compute_s: float
    communication_s: float
    waiting_s: float
    apply_s: float


class Span(NamedTuple):
    """A device at work on one part of a step."""

    replica: int
    name: str
    start_s: float
    end_s: float


class Transfer(NamedTuple):
    """One message: handed to the network at ``sent_s``, its last byte there at ``arrived_s``."""

    source: str
    target: str
    name: str
    size_bytes: float
    sent_s: float
    arrived_s: float


class Service(NamedTuple):
    """A server at work on one gradient tensor: ``apply`` to the variable, or ``accumulate``."""

    server: int
    name: str
    worker: int
    variable: int
    start_s: float
    end_s: float


class Update(NamedTuple):
    """One update of the whole model.

    ``read_version`` and ``applied_version`` count the updates applied before the first
    pull was issued and before this one was applied: their difference is its staleness.
    """

    worker: int
    read_s: float
    applied_s: float
    read_version: int
    applied_version: int
    server_staleness: tuple[int, ...]

    @property
    def staleness(self) -> int:
        """Updates by others between read and application."""
        return self.applied_version - self.read_version


Record = Step | Span | Transfer | Service | Update


class Observer(Protocol):
    """Receives the records of one replication, in the order in which they become known."""

    def record(self, record: Record) -> None:
        """Take one record."""
