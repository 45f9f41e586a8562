"""What devices hold in their memory while they train, and whether it fits.

:mod:`~simulator.memory.parts` computes the parts of a device's need from what a strategy says
that it holds; :mod:`~simulator.memory.fitting` compares them with the device, and finds the
largest batch.
"""

from __future__ import annotations

from simulator.memory.fitting import Memory, does_not_fit, largest_batch, memory, not_checked
from simulator.memory.parts import PARTS, DeviceMemory, Part, PartName, memory_of, samples_in_words, slot_bytes, state_bytes
from simulator.spec.training import SLOTS

__all__ = [
    "PARTS",
    "SLOTS",
    "DeviceMemory",
    "Memory",
    "Part",
    "PartName",
    "does_not_fit",
    "largest_batch",
    "memory",
    "memory_of",
    "not_checked",
    "samples_in_words",
    "slot_bytes",
    "state_bytes",
]
