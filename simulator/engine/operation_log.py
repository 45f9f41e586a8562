"""Records of a program's operations: maps the numbers of ranks and operations to names, and calls the log.

Event by event only: the SimPy engine calls it directly, the compiled one by ``simulator.engine.production.observer``. Each call but
``joined`` must give exactly one numbered record, since machine code counts along (``simulator.engine.production.calendar``).
The at-once engine calls :class:`simulator.base.records.Log` directly.
"""

from __future__ import annotations

from simulator.base.records import NOTHING, Log
from simulator.program.program import Program, Synchronous

_CHIEF = -1
"""In place of a worker: the chief, who works on the mean of all."""


class OperationLog:
    """Tells what has ended by the numbers of ranks and of their operations.

    Parameters
    ----------
    log
        Takes what happens.
    program
        Gives the names.
    """

    def __init__(self, log: Log, program: Program) -> None:
        self._log = log
        self._operations = [routine.operations for routine in program.routines]
        self._routine = program.ranks.routine.tolist()
        self._path = program.ranks.path
        self._peer = program.ranks.peer
        self._computed: dict[int, int] = {}  # the last compute of each rank
        self._joined = 0.0, NOTHING
        rule = program.rules.updates
        self._served_by = rule.server if isinstance(rule, Synchronous) else ()
        self._served = "accumulate" if isinstance(rule, Synchronous) else "apply"

    def joined(self, at_s: float, cause: int) -> None:
        """The last of a group had entered the collective that ends now at this time, because of that work."""
        self._joined = at_s, cause

    def ended(self, rank: int, operation: int, begun_s: float, ended_s: float, cause: int) -> int:
        """An operation of a rank has ended that took from ``begun_s`` to ``ended_s``; the number of its record.

        ``begun_s`` is the time at which a message was sent, a rank reached a gate, or entered a collective. If several computes run in one
        piece, the last one counts.
        """
        op = self._operations[self._routine[rank]][operation]
        if op.kind == "compute":
            # one compute of a rank follows the other
            cause = max(cause, self._computed.get(rank, NOTHING))
            number = self._computed[rank] = self._log.span(rank, op.name, begun_s, ended_s, cause, op.number)
            return number
        if op.kind == "send":
            path, peer = int(self._path[rank, op.slot]), int(self._peer[rank, op.slot])
            ends = op.source.of(rank, peer), op.target.of(rank, peer)
            return self._log.transfer(path, *ends, op.title, op.size_bytes, begun_s, ended_s, cause, op.name, op.number)
        if op.kind == "collective":
            joined_s, joined_by = self._joined
            where = rank, op.number, op.size_bytes, begun_s, joined_s, ended_s, cause, joined_by
            return self._log.collective(*where, name=op.name, stream=op.partition)
        if op.kind == "serve":
            return self._log.service(op.server, self._served, rank, op.tensor, begun_s, ended_s, cause)
        if op.name == "input":
            return self._log.wait(rank, "input", begun_s, ended_s, cause)
        return self._log.turn(rank, "prepare" if op.name == "prepare" else "dispatch", begun_s, ended_s, cause)

    def applied(self, tensor: int, begun_s: float, ended_s: float, cause: int) -> int:
        """A server has applied the mean of all gradients of a tensor."""
        return self._log.service(self._served_by[tensor], "apply", _CHIEF, tensor, begun_s, ended_s, cause)

    def started(self, rank: int, start_s: float) -> int:
        """A rank begins its first step, later than at 0."""
        return self._log.wait(rank, "late start", 0.0, start_s, NOTHING)
