"""What can happen: codes of the network and of the cores; the interpreter's own begin at ``FIRST``."""

from __future__ import annotations

__all__ = ["ADMIT", "BEGIN", "FIRST", "RECEIVED", "SETTLE", "STAND_FOR_LINK"]

STAND_FOR_LINK = 1
"""The sending host's work on a message is done."""
RECEIVED = 2
"""A message has come in whole."""
BEGIN = 3
"""A connection's message has waited behind what others have queued."""
SETTLE = 4
"""Shares are found anew."""
ADMIT = 5
"""Messages are given their turns."""
FIRST = 16
