"""How gradients become updates on the servers: asynchronously, or averaged with a barrier."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from functools import partial
from typing import Protocol

from simpy.events import Event

from simulator.kernel import Kernel
from simulator.recorder import KernelRecorder
from simulator.records import Update
from simulator.server import Server
from simulator.strategies.parameter_server.tensors import Gradient

__all__ = ["Asynchronous", "Synchronous", "Turn", "Updates"]


class Turn:
    """One step of one worker: what it read, and what of its gradients is still to come.

    Attributes
    ----------
    go
        Happens when the worker may end the step.
    pushed_s
        When its last gradient was at its server.
    accepted
        Gradients that entered an update.
    left_on_server, server_read, server_staleness
        Of each server, where there are several and each counts its own updates.
    """

    __slots__ = ("accepted", "arrived", "go", "left", "left_on_server", "local_step", "pushed_s", "read_s", "read_version",
                 "server_read", "server_staleness", "worker")  # fmt: skip

    def __init__(self, worker: int, go: Event, read_s: float, read_version: int, parts: int, servers: int = 1) -> None:
        self.worker = worker
        self.go = go
        self.read_s = read_s
        self.read_version = read_version
        self.local_step = read_version
        self.left = parts
        self.arrived = 0
        self.accepted = 0
        self.pushed_s = 0.0
        if servers > 1:
            self.left_on_server = [0] * servers
            self.server_read = [0] * servers
            self.server_staleness = [0] * servers


class Updates(Protocol):
    """What happens to gradients once they are at their servers."""

    def begin(self, worker: int) -> Turn:
        """A worker begins to read the variables."""

    def arrived(self, gradient: Gradient, turn: Turn, event: Event | None) -> None:
        """A gradient's last byte is at its server."""

    def waited_s(self, turn: Turn) -> float:
        """Seconds that the worker, whose step ends now, has waited for others' gradients."""

    def outdated(self, turn: Turn) -> Event | None:
        """The event that the step's gradients have become too late to count; none where a worker does not care."""


class Asynchronous:
    """Each gradient is applied when its turn comes at its server (Dean et al. 2012)."""

    def __init__(self, kernel: Kernel, servers: Sequence[Server], recorder: KernelRecorder, gradients: Sequence[Gradient]) -> None:
        self._kernel = kernel
        self._servers = servers
        self._recorder = recorder
        self._parts = len(gradients)
        parts = Counter(gradient.server for gradient in gradients)
        self._parts_on_server = [parts[server.index] for server in servers]
        self._one = len(servers) == 1
        self._version = 0

    def begin(self, worker: int) -> Turn:
        """A worker begins to read the variables."""
        turn = Turn(worker, self._kernel.event(), self._kernel.now, self._version, self._parts, len(self._servers))
        if self._one:
            return turn
        turn.server_read = [server.version for server in self._servers]
        turn.left_on_server = self._parts_on_server.copy()
        self._recorder.read(max(turn.server_read) - min(turn.server_read))
        return turn

    def arrived(self, gradient: Gradient, turn: Turn, _: Event | None) -> None:
        """A gradient's last byte is at its server."""
        turn.arrived += 1
        if turn.arrived == self._parts:
            turn.pushed_s = self._kernel.now
        server = self._servers[gradient.server]
        server.submit(gradient.cost_s, partial(self._applied, server, turn), "apply", turn.worker, gradient.index)

    def waited_s(self, turn: Turn) -> float:
        """Nobody waits for others."""
        del turn
        return 0.0

    def outdated(self, turn: Turn) -> None:
        """No gradient comes too late."""
        del turn

    def _applied(self, server: Server, turn: Turn) -> None:
        """One gradient is in its variable; the last one of a step completes an update."""
        turn.left -= 1
        turn.accepted += 1
        if not self._one:
            index = server.index
            turn.left_on_server[index] -= 1
            if not turn.left_on_server[index]:
                turn.server_staleness[index] = server.version - turn.server_read[index]
                server.version += 1
        if turn.left:
            return
        per_server = (self._version - turn.read_version,) if self._one else tuple(turn.server_staleness)
        self._recorder.update(Update(turn.worker, turn.read_s, self._kernel.now, turn.read_version, self._version, per_server))
        self._version += 1
        turn.go.succeed()


class Synchronous:
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
    """

    def __init__(
        self,
        kernel: Kernel,
        servers: Sequence[Server],
        recorder: KernelRecorder,
        gradients: Sequence[Gradient],
        workers: int,
        required: int,
        *,
        cancel: bool,
    ) -> None:
        self._kernel = kernel
        self._servers = servers
        self._recorder = recorder
        self._gradients = gradients
        self._workers = workers
        self._required = required
        self._cancel = cancel
        parts = len(gradients)
        self._version = 0
        self._released_s = 0.0
        self._accumulator_step = [0] * parts
        self._accumulated = [0] * parts
        self._taking = [True] * parts  # the chief waits for this accumulator
        self._unapplied = parts
        self._last_push_s = 0.0
        self._local_step = [0] * workers
        self._tokens: deque[int] = deque()
        self._waiting: deque[Turn] = deque()
        self._release = kernel.event()

    def begin(self, worker: int) -> Turn:
        """A worker begins to read the variables."""
        turn = Turn(worker, self._kernel.event(), self._kernel.now, self._version, len(self._gradients))
        turn.local_step = self._version if self._cancel else self._local_step[worker]
        return turn

    def outdated(self, turn: Turn) -> Event | None:
        """The event that the step's gradients have become too late, if the worker stops then."""
        if not self._cancel:
            return None
        if turn.local_step == self._version:
            return self._release
        past = self._kernel.event()
        past.succeed()
        return past

    def waited_s(self, turn: Turn) -> float:
        """Seconds from the worker's last gradient at its server to the last one that its update waited for."""
        return min(max(self._last_push_s - turn.pushed_s, 0.0), self._kernel.now - turn.pushed_s)

    def arrived(self, gradient: Gradient, turn: Turn, _: Event | None) -> None:
        """A gradient's last byte is at its server."""
        turn.arrived += 1
        if turn.arrived == len(self._gradients):
            turn.pushed_s = self._kernel.now
        if turn.local_step < self._accumulator_step[gradient.index]:
            self._handed_over(turn)  # dropped, at no cost
            return
        if self._accumulated[gradient.index] < self._required:
            self._last_push_s = self._kernel.now
        self._servers[gradient.server].submit(
            gradient.cost_s, partial(self._accumulate, gradient, turn), "accumulate", turn.worker, gradient.index
        )

    def _accumulate(self, gradient: Gradient, turn: Turn) -> None:
        if turn.local_step >= self._accumulator_step[gradient.index]:  # else the chief has taken it meanwhile
            self._accumulated[gradient.index] += 1
            turn.accepted += 1
            self._take(gradient)
        self._handed_over(turn)

    def _take(self, gradient: Gradient) -> None:
        """The chief takes the mean if enough gradients are there, and applies it."""
        index = gradient.index
        if not self._taking[index] or self._accumulated[index] < self._required:
            return
        self._taking[index] = False
        self._accumulated[index] = 0
        self._accumulator_step[index] += 1
        self._servers[gradient.server].submit(gradient.cost_s, self._applied, "apply", -1, index)

    def _applied(self) -> None:
        self._unapplied -= 1
        if self._unapplied:
            return
        now = self._kernel.now
        self._recorder.update(Update(-1, self._released_s, now, self._version, self._version, ()))
        self._version += 1
        self._released_s = now
        self._unapplied = len(self._gradients)
        self._taking = [True] * len(self._gradients)
        if self._cancel:
            release, self._release = self._release, self._kernel.event()
            release.succeed()
            while self._waiting:
                self._waiting.popleft().go.succeed()
        else:
            self._tokens.extend([self._version] * self._workers)
            while self._waiting and self._tokens:
                self._give_token(self._waiting.popleft())
        for gradient in self._gradients:
            self._take(gradient)

    def _handed_over(self, turn: Turn) -> None:
        """One gradient less to hand over; after the last one the worker goes on as soon as it may."""
        turn.left -= 1
        if turn.left:
            return
        if self._cancel:
            if turn.local_step < self._version or turn.accepted < len(self._gradients):
                turn.go.succeed()
            else:
                self._waiting.append(turn)
        elif self._tokens:
            self._give_token(turn)
        else:
            self._waiting.append(turn)

    def _give_token(self, turn: Turn) -> None:
        self._local_step[turn.worker] = self._tokens.popleft()
        turn.go.succeed()
