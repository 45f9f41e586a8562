"""What reduces buckets among ranks, for an engine that runs event by event."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from simulator.recorder import Resource

__all__ = ["Collectives"]


class Collectives(Protocol):
    """One collective per bucket and step, the buckets in order."""

    @property
    def links(self) -> Sequence[Resource]:
        """What they use besides the program's own ports."""

    def start(self, ended: Callable[[int, int], None]) -> None:
        """Whom to tell, with rank and bucket, that a rank has ended one."""

    def enter(self, rank: int, bucket: int) -> None:
        """The rank has the bucket's data now."""

    def ended_s(self, rank: int) -> Sequence[float]:
        """When the rank ended each bucket of the last step that it has finished, in seconds."""
