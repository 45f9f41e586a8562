"""The program of a scenario with what is printed beside it: mean times, speeds of devices, and how collectives are carried out.

``simulator.preview`` makes a :class:`Printed`; listings.py, sentences.py and rows.py print it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from simulator.base.text import Short, counted, format_seconds
from simulator.program.program import Floats, Operation, Program

NONE = -1
"""In a column of numbers: there is none."""


class Reduced(NamedTuple):
    """How a collective is carried out: algorithm, protocol ("none": that of the links), and seconds where all ranks enter at once."""

    algorithm: str
    protocol: str
    alone_s: float

    @property
    def name(self) -> str:
        """Such as "ring (simple)"."""
        return self.algorithm if self.protocol == "none" else f"{self.algorithm} ({self.protocol})"


@dataclass(frozen=True, repr=False)
class Printed(Short):
    """A program with what it is read beside.

    Attributes
    ----------
    scenario
        Content hash of what it is the program of.
    program
        What happens.
    forward_s, backward_s, apply_s
        Mean seconds of the passes and of the update on a device of speed 1, nothing drawn.
    speed
        Of each rank's device, shape (ranks,).
    reduced
        By size in bytes, how a collective is carried out.
    """

    see: ClassVar[str] = "paceline simulate SCENARIO.toml --program prints it; .program has ranks, links and operations"

    scenario: str
    program: Program
    forward_s: float
    backward_s: float
    apply_s: float
    speed: Floats
    reduced: Mapping[float, Reduced]

    def _in_short(self) -> Iterator[str]:
        yield counted(len(self.program.ranks), "rank")
        yield f"forward {format_seconds(self.forward_s)}, backward {format_seconds(self.backward_s)}"

    @property
    def input_s(self) -> float:
        """Mean seconds in which the slowest pipeline prepares a batch that shares nothing; 0: there is none, or a client does it."""
        feed = self.program.feed
        return float(feed.mean_s.max()) if feed is not None else 0.0

    def compute_s(self, operation: Operation) -> float:
        """Mean seconds of a compute on a device of speed 1."""
        return operation.forward * self.forward_s + operation.backward * self.backward_s + operation.apply * self.apply_s


def device_ports(program: Program) -> frozenset[int]:
    """Ports that stand for a device: those that seats are paths over."""
    seats = np.concatenate([program.ranks.seat, program.servers.seat])
    return frozenset(program.paths.port[program.paths.first[seats[seats != NONE]]].tolist())


def time_of(value_s: float) -> str:
    """Seconds for reading."""
    return format_seconds(value_s) if value_s else "no time"
