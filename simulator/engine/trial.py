"""Trial runs: a collective and those of parallel groups, simulated message by message on a separate network.

``simulator.collectives.collective`` imports this module by its name as text: to compute the times of a collective a program may have to be
run, so that a direct import would be circular.
"""

from __future__ import annotations

from importlib import import_module

import numpy as np

from simulator.base.compact import Names
from simulator.collectives.wire import Plan, exchanges_of_groups
from simulator.engine.choosing import prepare
from simulator.engine.draws import NothingDrawn
from simulator.engine.recorder import Recorder
from simulator.program.program import (
    Cores,
    Devices,
    Floats,
    Operation,
    Program,
    Ranks,
    Reduction,
    Routine,
    Rules,
    Servers,
)
from simulator.spec.transport import Transport

_STEP = Routine(
    (
        Operation(kind="gate", name="turn"),
        Operation(kind="collective", name="trial", after=(0,), bucket=0),
    )
)


def finish_s(plan: Plan, size_bytes: float) -> Floats:
    """When each rank of a group has ended a collective that all enter at 0, and its own messages have left it.

    Parameters
    ----------
    plan
        Its messages; those of parallel groups run at the same time.
    size_bytes
        Size of the buffer.

    Returns
    -------
    ndarray
        Shape (ranks of the group,), in seconds.
    """
    program = trial_program(plan, size_bytes)
    ranks = len(program.ranks)
    ends = _Ends(ranks)
    recorder = Recorder(ranks, 0, ranks, apart=False, follower=ends)
    draws = NothingDrawn(np.broadcast_to(0.0, ranks))
    prepare()
    import_module("simulator.engine.production.compiled").run(program, draws, recorder, None, 1)
    return ends.end_s[: plan.schedule.ranks]


def trial_program(plan: Plan, size_bytes: float) -> Program:
    """Each rank enters the collective, once."""
    wire, each, cluster = plan.wire, plan.schedule.ranks, plan.wire.cluster
    cabling = wire.fresh()
    exchanges = exchanges_of_groups(cabling, [plan], [size_bytes])
    ports, links, paths, hosts = cabling.tables()
    groups = np.arange(each * len(exchanges)).reshape(-1, each)
    rank = groups.ravel()
    none, nothing = np.broadcast_to(np.int64(-1), len(rank)), np.empty((len(rank), 0), dtype=np.int32)
    return Program(
        ports=ports,
        links=links,
        paths=paths,
        hosts=hosts,
        devices=Devices(len(rank), on_cores=False, slowdown=0.0, busy_core_slowdown=0.0),
        servers=Servers(0, np.empty(0, dtype=np.int64), on_cores=False),
        ranks=Ranks(
            device=rank, copy=rank, routine=np.broadcast_to(np.int64(0), len(rank)), seat=none, path=nothing, peer=nothing,
            names=Names(len(rank), lambda number: f"rank {number}"),
        ),
        routines=(_STEP,),
        rules=Rules(steps_each=1, reduction=Reduction()),
        transport=Transport(cpu_per_message_s=cluster.transport.cpu_per_message_s, copy_per_byte_s=cluster.transport.copy_per_byte_s),
        cores=None if (cores := cluster.shared_cores) is None else Cores(cores, cluster.time_slice_s),
        groups=tuple(groups),
        exchanges=exchanges,
    )  # fmt: skip


class _Ends:
    """Keeps when each rank ends its step."""

    def __init__(self, ranks: int) -> None:
        self.end_s: Floats = np.zeros(ranks)

    def steps(self, rows: Floats) -> None:
        """Keep the end of each."""
        self.end_s[rows[:, 0].astype(np.int64)] = rows[:, 2]

    def updates(self, rows: Floats) -> None:
        """There are none."""
