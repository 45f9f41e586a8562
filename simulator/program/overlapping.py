"""Whether ranks of a program can compute and communicate at the same time."""

from __future__ import annotations

from simulator.program.program import Program, Routine, Synchronous

__all__ = ["may_overlap"]


def may_overlap(program: Program, routine: Routine) -> bool:
    """Whether a rank of a routine can compute while one of its messages, or a collective that tells when it goes on, is on its way."""
    rule = program.rules.updates
    if isinstance(rule, Synchronous) and rule.cancel:
        return True
    operations = routine.operations
    before: list[set[int]] = []  # of each operation, all that must have ended
    last: set[int] = set()  # the compute before, and what that waited for
    for number, operation in enumerate(operations):
        chain = last if operation.kind == "compute" else set()
        before.append(chain.union(operation.after, *(before[one] for one in operation.after)))
        if operation.kind == "compute":
            last = {number, *before[-1]}
    computes = [number for number, its in enumerate(operations) if its.kind == "compute"]
    sends = [number for number, its in enumerate(operations) if its.kind == "send" or (its.kind == "collective" and its.departs)]
    return any(send not in before[compute] and compute not in before[send] for send in sends for compute in computes)
