"""Kinds of operations, gates and seats, as numbers."""

from __future__ import annotations

__all__ = [
    "ALONE", "COLLECTIVE", "COMPUTE", "GATE", "INPUT_GATE", "ON_CORES", "PREPARE_GATE", "RECEIVE", "SEND", "SERVE", "SHARED", "STRETCHED",
    "TURN_GATE", "UPDATE_GATE",
]  # fmt: skip

GATE, COMPUTE, SEND, RECEIVE, SERVE, COLLECTIVE = range(6)
"""Kinds of operations."""
TURN_GATE, PREPARE_GATE, INPUT_GATE, UPDATE_GATE = range(4)
"""Gates."""
ALONE, STRETCHED, SHARED, ON_CORES = range(4)
"""How a rank computes: on a device of its own, which communication may slow down; on one that it shares; on cores that all share."""
