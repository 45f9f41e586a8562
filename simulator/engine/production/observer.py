"""Makes records of the rows that the compiled engine writes for an observer, by the logs that the SimPy engine calls.

Kinds of rows are those of ``codes``; ``calendar`` writes them, in machine code.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.base.records import Log
from simulator.engine.operation_log import OperationLog
from simulator.engine.production import codes
from simulator.engine.production.tables import Simulation
from simulator.engine.recorder import Recorder
from simulator.program.program import Floats, Integers, Program, exchanges_by_group, group_name, members_of_groups


class ObserverFeed:
    """Calls the logs in the order of the rows.

    Parameters
    ----------
    log
        Numbers the records.
    program
        Gives the names.
    recorder
        Shows steps and updates.
    simulation
        Knows the lanes of collectives.
    """

    def __init__(self, log: Log, program: Program, recorder: Recorder, simulation: Simulation) -> None:
        self._log = log
        self._operations = OperationLog(log, program)
        self._recorder = recorder
        self._sizes = [operation.size_bytes for operation in program.routines[0].operations if operation.kind == "collective"]
        self._simulation = simulation
        self._program = program
        self._joined: list[tuple[float, int]] = []
        # of each group, and behind the last
        self._first_member = list(accumulate(members_of_groups(program), initial=0))
        self._first_exchange = list(accumulate(map(len, exchanges_by_group(program)), initial=0))

    def join(self, ready_s: Floats, made_by: Integers) -> None:
        """Keep who had each bucket of a step last, of arrays (buckets, ranks); called before that step's all-reduces are reported."""
        last = ready_s.argmax(axis=1)
        self._joined = [(float(ready_s[bucket, rank]), int(made_by[bucket, rank])) for bucket, rank in enumerate(last)]

    def tell(self, logged: NDArray[Any], steps: Floats, updates: Floats) -> None:
        """Tell the rows, ``logged`` of ``layout.LOGGED``; a row of a step or an update represents the next of ``steps`` or ``updates``."""
        step = update = 0
        for row in logged.tolist():
            kind, rank, about, begun_s, ended_s, cause = row  # of a transfer the lane in place of the rank
            if kind == codes.ENDED:
                self._operations.ended(rank, about, begun_s, ended_s, cause)
            elif kind == codes.APPLIED:
                self._operations.applied(about, begun_s, ended_s, cause)
            elif kind == codes.STARTED:
                self._operations.started(rank, ended_s)
            elif kind == codes.ALL_REDUCE:
                joined_s, joined_by = self._joined[about]
                self._log.collective(rank, about, self._sizes[about], begun_s, joined_s, ended_s, cause, joined_by)
            elif kind == codes.TRANSFER:
                self._tell_of_chunk(rank, about, begun_s, ended_s, cause)
            elif kind == codes.JOINED:
                self._operations.joined(ended_s, cause)
            elif kind == codes.SENDING:
                self._log.wait(rank, "send", begun_s, ended_s, cause)
            elif kind == codes.STEP:
                self._recorder.steps(steps[step : step + 1], [cause])
                step += 1
            else:
                self._recorder.updates(updates[update : update + 1])
                update += 1

    def _tell_of_chunk(self, lane: int, about: int, sent_s: float, arrived_s: float, cause: int) -> None:
        tables, number = self._simulation.tables, about >> codes.INDEX_BITS
        sent_on, standings = tables["lanes"][lane], tables["standings"]["rank"]
        ends = int(standings[sent_on["source"]]), int(standings[sent_on["target"]])
        group = bisect_right(self._first_member, int(sent_on["source"])) - 1
        first, last = self._first_exchange[group : group + 2]
        exchange = tables["exchanges"][first + number % (last - first)]
        size_bytes = float(np.float64(tables["message_sizes"]["x"][int(exchange["sizes"]) + lane]))
        which = number, about & ((1 << codes.INDEX_BITS) - 1)
        self._log.chunk(("path", int(sent_on["path"])), ends, which, size_bytes, sent_s, arrived_s, cause, group_name(self._program, group))
