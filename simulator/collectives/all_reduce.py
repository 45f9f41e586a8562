"""What a training loop needs of an all-reduce."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from simpy.events import Event

__all__ = ["AllReduce"]


class AllReduce(Protocol):
    """One all-reduce a bucket a step, the buckets in order."""

    def finished(self, rank: int) -> Event:
        """The event that the rank's buckets of the current step are all reduced."""

    def ready(self, rank: int, bucket: int) -> None:
        """The rank has the bucket's gradients now."""

    def ended_s(self, rank: int) -> Sequence[float]:
        """When the rank ended each bucket of the last step that it has finished, in seconds."""
