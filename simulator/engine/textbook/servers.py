"""Parameter servers, and how gradients become updates there: one by one, or averaged behind a barrier."""

from __future__ import annotations

import simpy

from simulator.base.records import NOTHING, Update
from simulator.engine.textbook.clock import Going, Processor
from simulator.engine.textbook.worker import Step, Training, Worker
from simulator.program.program import Asynchronous, Operation, Synchronous


class AsynchronousUpdates:
    """Each gradient is applied when its turn comes at its server (Dean et al., "Large scale distributed deep networks", 2012)."""

    def __init__(self, training: Training, rule: Asynchronous, servers: list[Processor]) -> None:
        self._training, self._servers, self._parts = training, servers, rule.parts
        self._version = 0
        self._server_version = [0] * len(servers)

    def read(self, worker: Worker, step: Step) -> None:
        """Note which versions the worker reads, of the model and of each server's part."""
        del worker
        step.read_s, step.read_version = self._training.clock.now, self._version
        step.read, step.found, step.left = list(self._server_version), [0] * len(self._servers), list(self._parts)
        if len(self._servers) > 1:
            self._training.window.reads(max(step.read) - min(step.read))

    def serve(self, worker: Worker, step: Step, number: int, operation: Operation, cause: int) -> Going:
        """Apply a gradient in its turn."""
        training, server = self._training, self._servers[operation.server]
        step.pushed_s = training.clock.now
        with server, server.line.request() as turn:
            yield turn
            began_s = training.clock.now
            yield from server.work(operation.cost_s)
        step.accepted += 1
        step.left[operation.server] -= 1
        if not step.left[operation.server]:
            step.found[operation.server] = self._server_version[operation.server]
            self._server_version[operation.server] += 1
        return NOTHING if training.log is None else training.log.ended(worker.index, number, began_s, training.clock.now, cause)

    def wait_for_update(self, worker: Worker, step: Step, cause: int) -> Going:
        """All gradients are applied, which is an update: nobody waits for others."""
        now_s = self._training.clock.now
        versions = step.read_version, self._version, tuple(step.read), tuple(step.found)
        self._training.window.recorder.update(Update(worker.index, step.read_s, now_s, *versions))
        self._version += 1
        return cause
        yield


class SynchronousUpdates:
    """``SyncReplicasOptimizer``: accumulators, a chief, and a queue of tokens.

    Each variable has an accumulator with a step of its own. When a gradient's turn comes, it is dropped at no cost if its worker had
    read an older version, else added (``typed_conditional_accumulator_base.h``). The chief takes the mean of the first ``required``,
    which moves the accumulator's step on, and applies it. Once all variables have theirs, it puts a token for each worker, with the
    new step, into a queue. A worker that has handed over all of its gradients takes a token, and begins its next step at that. One
    that was late finds the tokens of steps that went on without it (``sync_replicas_optimizer.py``, with no initial tokens).

    With ``cancel`` the new version itself lets workers go on: workers that still compute for an older one give up and start again (Chen
    et al., "Revisiting distributed synchronous SGD", 2016).
    """

    def __init__(self, training: Training, rule: Synchronous, servers: list[Processor]) -> None:
        self._training, self._rule, self._servers = training, rule, servers
        tensors = len(rule.server)
        self._version = 0
        self._updated_s = 0.0
        self._accumulator_step, self._accumulated, self._came = [0] * tensors, [0] * tensors, [0] * tensors
        self._unapplied = tensors
        self._last_came_s = 0.0  # the last gradient that the next update averages
        self._tokens = simpy.Store(training.clock)
        self._token = [0] * len(training.program.ranks)
        self._updated = training.clock.event()
        self._logged = [NOTHING] * len(servers)  # what each has done last

    def read(self, worker: Worker, step: Step) -> None:
        """Note which version the worker reads."""
        step.read_version = self._version if self._rule.cancel else self._token[worker.index]

    def serve(self, worker: Worker, step: Step, number: int, operation: Operation, cause: int) -> Going:
        """Accumulate a gradient in its turn, or drop it."""
        training, tensor, server = self._training, operation.tensor, self._servers[operation.server]
        step.pushed_s = training.clock.now
        if step.read_version >= self._accumulator_step[tensor] and self._came[tensor] < self._rule.required:
            self._came[tensor] += 1
            self._last_came_s = training.clock.now
        with server, server.line.request() as turn:
            yield turn
            if step.read_version < self._accumulator_step[tensor]:
                return max(cause, self._logged[operation.server])
            began_s, logged = training.clock.now, NOTHING
            yield from server.work(operation.cost_s)
            if training.log is not None:
                logged = self._logged[operation.server] = training.log.ended(worker.index, number, began_s, training.clock.now, cause)
            step.accepted += 1
            self._accumulated[tensor] += 1
            if self._accumulated[tensor] == self._rule.required:
                self._accumulated[tensor] = self._came[tensor] = 0
                self._accumulator_step[tensor] += 1
                training.clock.process(self._apply(tensor, logged))
        return logged

    def _apply(self, tensor: int, cause: int) -> Going:
        """The chief applies a variable's mean; with the last one the update is there."""
        training, server, logged = self._training, self._servers[self._rule.server[tensor]], NOTHING
        with server, server.line.request() as turn:
            yield turn
            began_s = training.clock.now
            yield from server.work(self._rule.cost_s[tensor])
        if training.log is not None:
            logged = self._logged[self._rule.server[tensor]] = training.log.applied(tensor, began_s, training.clock.now, cause)
        self._unapplied -= 1
        if self._unapplied:
            return logged
        now_s = training.clock.now
        training.window.recorder.update(Update(-1, self._updated_s, now_s, self._version, self._version, (), ()))
        self._version += 1
        self._updated_s, self._unapplied = now_s, len(self._rule.server)
        if not self._rule.cancel:
            for _ in self._token:
                self._tokens.put((self._version, logged))
            return logged
        self._updated.succeed(logged)
        self._updated = training.clock.event()
        yield training.clock.end_of_instant()  # those who have waited begin before those who give up
        for worker in training.workers:
            worker.give_up(self._version, self._last_came_s, logged)
        return logged

    def wait_for_update(self, worker: Worker, step: Step, cause: int) -> Going:
        """Take a token, or wait for the update."""
        if self._tokens.items:
            self._token[worker.index], _ = yield self._tokens.get()
            return cause
        if self._rule.cancel:
            logged = yield self._updated
        else:
            self._token[worker.index], logged = yield self._tokens.get()
        waited_s = self._training.clock.now - step.pushed_s
        step.waited_s = min(max(self._last_came_s - step.pushed_s, 0.0), waited_s)
        return max(cause, logged)
