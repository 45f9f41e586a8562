"""What the laws in this folder share: comparing numbers within ``SLACK``, the order of a routine, ports, and the error to raise.

A :class:`Walk` is a routine with its order worked out: what ends before each operation, what waits for it, and how much of the passes
is done by then. It restates a rule that engines follow (computes of a rank run one after the other; ``Operation`` of
``simulator.program.program``): if that changes, change it here too. What must hold is in the neighbours, not here.
A larger ``SLACK`` weakens every law of this folder; tests/property/test_program_laws.py has faults that laws must find. The text of
:func:`broken` is matched in tests/oracle/test_partitions.py. Laws of runs have a ``_SLACK`` of their own (../invariants.py).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

from simulator.base.errors import InvariantError
from simulator.program.program import Operation, Program, Routine

SLACK = 1e-9
"""Tolerance of all laws of programs: relative for bytes, absolute for shares."""


def broken(law: Callable[..., None], place: str) -> InvariantError:
    """The error that names a law and where it is broken."""
    return InvariantError(f"law of programs broken: {law.__name__}: {place}")


def same(mine: float, other: float) -> bool:
    """Whether two numbers are equal but for rounding."""
    return math.isclose(mine, other, rel_tol=SLACK, abs_tol=1e-12)


class Walk:
    """A routine with what follows from its order.

    Attributes
    ----------
    before
        Of each operation those that must have ended: what it is after, and of a compute the one before it.
    then
        Of each operation those that wait for it.
    computes
        The computes, in their order.
    forward_before, backward_by
        Of each compute, the share of the forward pass made before it begins, and that of the backward pass made when it has ended.
    """

    def __init__(self, number: int, routine: Routine) -> None:
        self.number = number
        self.operations = routine.operations
        self.computes = [index for index, operation in enumerate(routine.operations) if operation.kind == "compute"]
        self.before = [set(operation.after) for operation in routine.operations]
        for earlier, later in itertools.pairwise(self.computes):
            self.before[later].add(earlier)
        self.then: list[list[int]] = [[] for _ in routine.operations]
        for index, before in enumerate(self.before):
            for earlier in before:
                if 0 <= earlier < len(self.then):
                    self.then[earlier].append(index)
        self.forward_before: dict[int, float] = {}
        self.backward_by: dict[int, float] = {}
        forward = backward = 0.0
        for index in self.computes:
            self.forward_before[index] = forward
            forward += routine.operations[index].forward
            backward += routine.operations[index].backward
            self.backward_by[index] = backward

    def of_kind(self, kind: str) -> Iterator[tuple[int, Operation]]:
        """Operations of a kind, by number."""
        return ((index, operation) for index, operation in enumerate(self.operations) if operation.kind == kind)

    def place(self, index: int) -> str:
        """An operation, in words."""
        return f"routine {self.number}, operation {index} ({self.operations[index].kind} {self.operations[index].title!r})"

    def sends_before(self, index: int) -> list[int]:
        """The messages that bring what an operation needs, the last one first; empty where it waits for none or for several."""
        sends: list[int] = []
        while len(self.operations[index].after) == 1:
            (index,) = self.operations[index].after
            if self.operations[index].kind != "send":
                break
            sends.append(index)
        return sends

    def compute_before(self, index: int) -> int | None:
        """The compute, if it is the only thing that an operation waits for; else None."""
        computes = [earlier for earlier in self.operations[index].after if self.operations[earlier].kind == "compute"]
        return computes[0] if len(computes) == len(self.operations[index].after) == 1 else None

    def first_compute_after(self, index: int) -> int | None:
        """The first compute that cannot begin before an operation has ended."""
        seen, ahead = {index}, [index]
        while ahead:
            for following in self.then[ahead.pop()]:
                if following not in seen:
                    seen.add(following)
                    ahead.append(following)
        return min((number for number in self.computes if number in seen), default=None)


def walks_of(program: Program) -> list[Walk]:
    """A Walk for every routine of a program."""
    return [Walk(number, routine) for number, routine in enumerate(program.routines)]


def ports_of(program: Program, path: int) -> list[int]:
    """The ports that a path crosses."""
    first = program.paths.first
    ports: list[int] = program.paths.port[first[path] : first[path + 1]].tolist()
    return ports
