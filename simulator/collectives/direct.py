"""All-to-all: every rank sends each other one its part directly, all at the same time.

NCCL's way of writing it is one group of ``ncclSend`` and ``ncclRecv`` to and from all others, which make progress independently
(its user guide, Point-to-point communication); MPICH's for messages of medium size is the same (Thakur, Rabenseifner and Gropp
2005). The messages (``direct_schedule``) and the times at once (:class:`Direct`) describe the same: change both together
(tests/oracle/test_groups.py compares them).
"""

from __future__ import annotations

from functools import cached_property, lru_cache

import numpy as np

from simulator.collectives.around import Times
from simulator.collectives.collective import Scheduled
from simulator.collectives.trial import together_s
from simulator.collectives.wire import ConnectionTimes, Wire, equal_share_s, seconds_per_byte
from simulator.program.schedule import Lane, Schedule, columns

_ALIKE = 1 + 1e-12


@lru_cache(maxsize=8)
def direct_schedule(ranks: int) -> Schedule:
    """From each rank to the next, to the one after that, and so on."""

    def lanes(rank: int) -> tuple[Lane, ...]:
        targets = ((rank + distance) % ranks for distance in range(1, ranks))
        return tuple(Lane(rank, target, 0, 1, 1, (rank * ranks + target).__add__, 0) for target in targets)

    return Schedule(ranks, ranks, lanes)


class Direct(Scheduled):
    """For ranks that enter together: by equal shares of every port where those are fair, else from a trial run.

    Shares are max-min fair if every message has a port that is full, on which none is
    faster (Bertsekas and Gallager, Data Networks, 6.5.2). As all messages are equal, those
    of such a port end together, and no share changes before.
    """

    _aligned = True

    def __init__(self, name: str, protocol: str, wire: Wire) -> None:
        schedule = direct_schedule(len(wire.group))
        super().__init__(name, protocol, lambda _: schedule, wire)

    def _received_s(self, ready_s: Times, size_bytes: float, free_s: Times) -> Times:
        paces = self._fair_paces
        if paces is None:
            return together_s(self.plan(size_bytes), size_bytes)
        ranks = self._ranks
        shape = ranks, ranks - 1  # from each rank to those at distance 1, 2, ...
        left_s = (size_bytes / ranks * paces.s_per_byte[0]).reshape(shape)
        arrives_s = left_s + paces.latency_s[0].reshape(shape)
        free_s[:] = np.maximum(free_s, ready_s + left_s.max(axis=1))
        sources = (np.arange(ranks)[:, None] - np.arange(1, ranks)) % ranks
        finish_s: Times = ready_s + arrives_s[sources, np.arange(ranks - 1)].max(axis=1)
        return finish_s

    @cached_property
    def _fair_paces(self) -> ConnectionTimes | None:
        """What each message takes, lane by lane; none if equal shares are not fair."""
        source, target, *_ = columns(self._schedule(0.0))
        laid = self._wire.laid(source, target)
        s_per_byte, port = seconds_per_byte(laid), laid.paths.port
        users = np.bincount(port, minlength=len(laid.ports.capacity))
        slowest = np.zeros(len(users))
        np.maximum.at(slowest, port, s_per_byte[laid.path])
        full = slowest <= equal_share_s(laid.ports, np.arange(len(users)), users) * _ALIKE
        fair = np.bincount(laid.path, weights=full[port], minlength=len(laid.paths)).all()
        return self._wire.paces(laid) if fair else None
