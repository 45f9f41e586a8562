"""Collectives message by message."""

from __future__ import annotations

from simulator.engine.compiled.machine import Record, compiled

__all__ = ["enter"]


@compiled
def enter(s: Record, rank: int, bucket: int) -> None:
    """A rank has a bucket's data now."""
    s.over = -1 - rank - bucket
