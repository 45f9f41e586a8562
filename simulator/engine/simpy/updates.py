"""How gradients become updates on the servers: asynchronously, or averaged with a barrier.

``updates`` and ``record`` of ``simulator.engine.compiled`` do the same, compiled: change them together
(tests/property/test_engines_agree.py holds them equal).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from simulator.base.records import NOTHING, Update
from simulator.engine.operation_log import OperationLog
from simulator.engine.simpy.objects import Job, Server
from simulator.engine.simpy.rank import Rank
from simulator.engine.simpy.recorder import KernelRecorder
from simulator.network.kernel import Kernel
from simulator.program.program import Asynchronous, Operation, Synchronous

__all__ = ["AsynchronousUpdates", "SynchronousUpdates", "Updates"]

Ends = Callable[[Rank, int, int, int], None]
"""Ends an operation of a rank's step: the operation's number, the step's, and that of the work with which it ends."""


class Updates(Protocol):
    """What happens to gradients once they are at their servers."""

    def read(self, rank: Rank) -> None:
        """A rank begins to read the variables."""

    def serve(self, rank: Rank, number: int, operation: Operation, step: int, cause: int) -> None:
        """A gradient's last byte is at its server, brought by the message ``cause``."""

    def finish(self, rank: Rank, number: int, cause: int) -> None:
        """All gradients of the rank's step have been handed over; it ends its step when the operation ``number`` ends."""

    def waited_s(self, rank: Rank) -> float:
        """Seconds that the rank, whose step ends now, has waited for others' gradients."""

    def outdated(self, rank: Rank) -> bool:
        """Whether the gradients of the rank's step would come too late, and it cares."""


class _AtServers:
    """What both ways have in common: a queue before each server."""

    def __init__(self, kernel: Kernel, servers: Sequence[Server], recorder: KernelRecorder, end: Ends, log: OperationLog | None) -> None:
        self._kernel = kernel
        self._servers = servers
        self._recorder = recorder
        self._end = end
        self._log = log

    def _serve(self, rank: Rank, number: int, operation: Operation, cause: int, done: Callable[[int], None]) -> None:
        """Queue a rank's gradient; ``done`` is called with the number of the work on it."""
        log = self._log
        if log is None:
            self._servers[operation.server].submit(Job(operation.cost_s, lambda _: done(NOTHING)))
            return

        def served(began_s: float) -> None:
            done(log.ended(rank.index, number, began_s, self._kernel.now, cause))

        self._servers[operation.server].submit(Job(operation.cost_s, served))


class AsynchronousUpdates(_AtServers):
    """Each gradient is applied when its turn comes at its server (Dean et al. 2012)."""

    def __init__(
        self, rule: Asynchronous, kernel: Kernel, servers: Sequence[Server], recorder: KernelRecorder, end: Ends, log: OperationLog | None
    ) -> None:
        super().__init__(kernel, servers, recorder, end, log)
        self._parts_on_server = rule.parts
        self._parts = sum(rule.parts)
        self._one = len(servers) == 1
        self._version = 0
        self._reads: dict[int, list[int]] = {}  # by rank: the version of each server when it read
        self._left: dict[int, list[int]] = {}  # gradients of each server that are still to be applied
        self._applied_at: dict[int, list[int]] = {}  # the version of each server that the rank's update found

    def read(self, rank: Rank) -> None:
        """A rank begins to read the variables."""
        rank.read_s, rank.read_version = self._kernel.now, self._version
        if self._one:
            return
        read = self._reads[rank.index] = [server.version for server in self._servers]
        self._left[rank.index] = list(self._parts_on_server)
        self._applied_at[rank.index] = [0] * len(read)
        self._recorder.read(max(read) - min(read))

    def serve(self, rank: Rank, number: int, operation: Operation, step: int, cause: int) -> None:
        """A gradient's last byte is at its server."""
        rank.arrived += 1
        if rank.arrived == self._parts:
            rank.pushed_s = self._kernel.now
        self._serve(rank, number, operation, cause, partial(self._applied, rank, number, operation.server, step))

    def finish(self, rank: Rank, number: int, cause: int) -> None:
        """The last gradient of a step completes an update."""
        read: tuple[int, ...] = (rank.read_version,)
        applied: tuple[int, ...] = (self._version,)
        if not self._one:
            read, applied = tuple(self._reads[rank.index]), tuple(self._applied_at[rank.index])
        self._recorder.update(Update(rank.index, rank.read_s, self._kernel.now, rank.read_version, self._version, read, applied))
        self._version += 1
        self._end(rank, number, rank.step, cause)

    def waited_s(self, rank: Rank) -> float:
        """Nobody waits for others."""
        del rank
        return 0.0

    def outdated(self, rank: Rank) -> bool:
        """No gradient comes too late."""
        del rank
        return False

    def _applied(self, rank: Rank, number: int, server: int, step: int, logged: int) -> None:
        """One gradient is in its variable."""
        rank.accepted += 1
        if not self._one:
            left = self._left[rank.index]
            left[server] -= 1
            if not left[server]:
                at = self._servers[server]
                self._applied_at[rank.index][server] = at.version
                at.version += 1
        self._end(rank, number, step, logged)


class SynchronousUpdates(_AtServers):
    """``SyncReplicasOptimizer``: accumulators, a chief, and a queue of tokens.

    Each variable has an accumulator with a step of its own. A gradient whose worker began
    at an older step is dropped; once ``required`` have been accumulated the chief takes
    their mean, which moves the accumulator's step on, and applies it. When it has done so
    for every variable it puts one token a worker, which carries the new step, into a
    queue; a worker that has handed over all of its gradients takes the first token there
    is, and begins its next step at the token's. A worker that was late finds the tokens of
    steps that went on without it, so its next gradient may be too old as well
    (``tensorflow/python/training/sync_replicas_optimizer.py``, with no initial tokens).

    With ``cancel``, a worker whose gradients have become too late stops computing, and
    begins its next step at the newest version (Chen et al., "Revisiting distributed
    synchronous SGD", 2016; K-sync SGD of Dutta et al. 2018).

    Parameters
    ----------
    released
        Called when a new version is there, with the work that made it, after those who waited for it have ended their steps.
    """

    def __init__(
        self,
        rule: Synchronous,
        kernel: Kernel,
        servers: Sequence[Server],
        recorder: KernelRecorder,
        end: Ends,
        log: OperationLog | None,
        ranks: int,
        released: Callable[[int], None],
    ) -> None:
        super().__init__(kernel, servers, recorder, end, log)
        self._rule = rule
        self._ranks = ranks
        self._released = released
        parts = len(rule.server)
        self._parts = parts
        self._version = 0
        self._released_s = 0.0
        self._accumulator_step = [0] * parts
        self._accumulated = [0] * parts
        self._come = [0] * parts  # gradients at their server, of those that its next mean averages
        self._taking = [True] * parts  # the chief waits for this accumulator
        self._unapplied = parts
        self._last_push_s = 0.0
        self._token_step = [0] * ranks  # the step that each rank's last token carried
        self._tokens: deque[int] = deque()
        self._waiting: deque[tuple[Rank, int]] = deque()

    def read(self, rank: Rank) -> None:
        """A rank begins to read the variables."""
        rank.local_step = self._version if self._rule.cancel else self._token_step[rank.index]

    def outdated(self, rank: Rank) -> bool:
        """Whether the step's gradients have become too late, and the rank stops then."""
        return self._rule.cancel and rank.local_step < self._version

    def waited_s(self, rank: Rank) -> float:
        """Seconds from the rank's last gradient at its server to the last one that its update waited for.

        0 where a token of an earlier update is there: the rank goes on when its own gradients have been served.
        """
        if self._released_s != self._kernel.now:
            return 0.0
        return min(max(self._last_push_s - rank.pushed_s, 0.0), self._kernel.now - rank.pushed_s)

    def serve(self, rank: Rank, number: int, operation: Operation, step: int, cause: int) -> None:
        """A gradient's last byte is at its server."""
        tensor = operation.tensor
        if step != rank.step:
            return  # of a step that was given up: too late, so it is dropped
        rank.arrived += 1
        if rank.arrived == self._parts:
            rank.pushed_s = self._kernel.now
        if rank.local_step < self._accumulator_step[tensor]:
            self._end(rank, number, step, cause)  # dropped, at no cost
            return
        if self._come[tensor] < self._rule.required:  # each is accumulated in its turn: these are the first
            self._come[tensor] += 1
            self._last_push_s = self._kernel.now
        self._serve(rank, number, operation, cause, partial(self._accumulate, rank, number, tensor, step))

    def _accumulate(self, rank: Rank, number: int, tensor: int, step: int, logged: int) -> None:
        # the chief may have taken the mean meanwhile
        if step == rank.step and rank.local_step >= self._accumulator_step[tensor]:
            self._accumulated[tensor] += 1
            rank.accepted += 1
            self._take(tensor, logged)
        self._end(rank, number, step, logged)

    def _take(self, tensor: int, cause: int) -> None:
        """The chief takes the mean if enough gradients are there, and applies it."""
        if not self._taking[tensor] or self._accumulated[tensor] < self._rule.required:
            return
        self._taking[tensor] = False
        self._accumulated[tensor] = self._come[tensor] = 0
        self._accumulator_step[tensor] += 1
        self._servers[self._rule.server[tensor]].submit(Job(self._rule.cost_s[tensor], partial(self._applied, tensor, cause)))

    def _applied(self, tensor: int, cause: int, began_s: float) -> None:
        logged = NOTHING
        if self._log is not None:
            logged = self._log.applied(tensor, began_s, self._kernel.now, cause)
        self._unapplied -= 1
        if self._unapplied:
            return
        now = self._kernel.now
        self._recorder.update(Update(-1, self._released_s, now, self._version, self._version, (), ()))
        self._version += 1
        self._released_s = now
        self._unapplied = self._parts
        self._taking = [True] * self._parts
        if self._rule.cancel:
            waiting, self._waiting = self._waiting, deque()
            for rank, number in waiting:
                self._end(rank, number, rank.step, logged)
            self._released(logged)
        else:
            self._tokens.extend([self._version] * self._ranks)
            while self._waiting and self._tokens:
                self._give_token(*self._waiting.popleft(), logged)
        for following in range(self._parts):
            self._take(following, logged)

    def finish(self, rank: Rank, number: int, cause: int) -> None:
        """All of its gradients have been handed over: the rank goes on as soon as it may."""
        if self._rule.cancel:
            if rank.local_step < self._version or rank.accepted < self._parts:
                self._end(rank, number, rank.step, cause)
            else:
                self._waiting.append((rank, number))
        elif self._tokens:
            self._give_token(rank, number, cause)
        else:
            self._waiting.append((rank, number))

    def _give_token(self, rank: Rank, number: int, cause: int) -> None:
        self._token_step[rank.index] = self._tokens.popleft()
        self._end(rank, number, rank.step, cause)
