"""A worker: pulls, computes, pushes, step after step, as its routine says.

Each operation of a step is a process: it waits for those that it comes after, does what it is, and is done. Computes follow one
another on the worker's device, as one process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import simpy

from simulator.base.records import NOTHING, Log
from simulator.engine.draws import Draws, JitterFactors
from simulator.engine.operation_log import OperationLog
from simulator.engine.textbook.clock import Busy, Clock, Going, Processor
from simulator.engine.textbook.messages import Network
from simulator.engine.textbook.rules import Steps, Window
from simulator.program.program import Operation, Program, Routine, amid_passes


class Pipeline:
    """Prepares one batch after the other, as the thread of tf.data's ``PrefetchDataset`` does.

    Parameters
    ----------
    prefetch
        Maximum number of ready batches before another is begun; 0: each is begun when it is asked for.
    parts
        What a batch takes, all at the same time: each does its part, multiplied by a factor.
    factors
        Of the batches.
    first_s
        When the first of the ranks that it feeds begins.
    """

    def __init__(
        self, clock: Clock, prefetch: int, parts: Sequence[Callable[[float], Going]], factors: Iterator[float], first_s: float
    ) -> None:
        self._clock, self._prefetch, self._parts, self._factors = clock, prefetch, parts, factors
        self._made = self._asked = 0
        self._news = clock.event()
        clock.process(self._prepare(first_s))

    def _prepare(self, first_s: float) -> Going:
        if self._prefetch:
            yield self._clock.timeout(first_s)
        while True:
            while self._made >= max(min(self._asked, self._made) + self._prefetch, self._asked):
                yield self._news
            factor = next(self._factors)
            yield self._clock.all_of([self._clock.process(part(factor)) for part in self._parts])
            self._made += 1
            self._announce()

    def batch(self, number: int) -> Going:
        """Wait for a batch by its number, from 1 on; a rank that asks takes its part of it."""
        self._asked = max(self._asked, number)
        self._announce()
        while self._made < number:
            yield self._news

    def _announce(self) -> None:
        self._news.succeed()
        self._news = self._clock.event()


class Training(Protocol):
    """The training as seen by workers, servers and collectives: see ``engine.Training``."""

    clock: Clock
    program: Program
    draws: Draws
    network: Network
    workers: list[Worker]
    updates: Updates | None
    steps: Steps
    client: Processor
    window: Window
    log: OperationLog | None
    plain_log: Log | None

    def alone(self, work_s: float) -> Going:
        """Work that nobody shares."""

    def hand_out(self, worker: Worker, step: Step, cause: int) -> Going:
        """Let a rank begin its step."""

    def order_of(self, worker: Worker) -> Sequence[int]:
        """The order in which the operations of a rank's next step are begun where they may."""

    def batch(self, worker: Worker, step: Step) -> Going:
        """Wait for a rank's next batch; what brought it, if a message did."""

    def passed(self, worker: Worker, number: int, came_s: float, cause: int) -> int:
        """A rank passes a gate that it came to earlier; what let it pass."""

    def reduce(self, worker: Worker, step: Step, number: int, operation: Operation, cause: int) -> Going:
        """A rank enters a collective, and waits until it has ended it."""

    def step_ended(self, worker: Worker, step: Step, cause: int) -> None:
        """A rank's step has ended."""


class Updates(Protocol):
    """Path of gradients."""

    def read(self, worker: Worker, step: Step) -> None:
        """A worker begins to read the variables."""

    def serve(self, worker: Worker, step: Step, number: int, operation: Operation, cause: int) -> Going:
        """A gradient is at its server: it waits for its turn, and is worked on."""

    def wait_for_update(self, worker: Worker, step: Step, cause: int) -> Going:
        """The worker has handed over all gradients of its step: it waits until it may go on."""


class Device(Busy):
    """Device of a worker.

    Parameters
    ----------
    work
        How it does some seconds of work: alone, as a share of a port, or on cores of the machine.
    slowdown
        Share by which work takes longer while the worker communicates.
    port
        Of one that several share: all that they do counts as its use.
    """

    def __init__(self, clock: Clock, number: int, work: Callable[[float], Going], slowdown: float = 0.0, port: Busy | None = None) -> None:
        super().__init__(clock, f"device {number}")
        self.work, self.slowdown, self._port = work, slowdown, port

    def in_use_s(self) -> float:
        """Seconds up to now; on shared cores, in which it had something to do."""
        return super().in_use_s() if self._port is None else Busy.in_use_s(self._port)


class Step:
    """One step of a worker, and what it has come to so far; times in seconds.

    Attributes
    ----------
    done
        Of each operation, when it has ended; its value is the number of the work that ended it.
    ended
        When all have, or the step is given up.
    given_up
        Whether it was.
    began_s, held_s, input_s, compute_s, apply_s
        When it began; seconds until it could read; of waiting for its batch; of passes; of the update.
    batch
        When the message has come that brings its batch, where one does.
    read_s, read_version, read, found, left
        When it read the variables, and the version of the model then; of each server the version that it read, the one that its
        gradients found there, and how many of them are still to be applied.
    accepted, pushed_s
        Gradients in an update; when the last one came to its server.
    ready_s, last_group
        When it entered its last collective, and in which group.
    idle_since_s, heard_s, waited_s
        Since when it does not compute; when the last of those that it has heard from since had begun to send, or had come to where they
        meet; seconds in which it has waited for others.
    """

    def __init__(self, clock: Clock, number: int, routine: Routine, factor: float) -> None:
        self.number, self.factor = number, factor
        self.done = [clock.event() for _ in routine.operations]
        self.ended = clock.event()
        self.given_up = False
        self.began_s = self.idle_since_s = clock.now
        self.held_s = self.input_s = self.compute_s = self.apply_s = 0.0
        self.batch = clock.event()
        self.read_s, self.read_version = clock.now, 0
        self.read: list[int] = []
        self.found: list[int] = []
        self.left: list[int] = []
        self.accepted, self.pushed_s = 0, 0.0
        self.last_group: int | None = None
        self.ready_s = self.heard_s = self.waited_s = 0.0


class Worker:
    """A rank: one device's part in the training.

    Parameters
    ----------
    training
        What it takes part in.
    index
        Its number.
    """

    def __init__(self, training: Training, index: int, routine: Routine, device: Device, factors: JitterFactors) -> None:
        draws = training.draws
        self.training, self.index, self.routine, self._device, self._factors = training, index, routine, device, factors
        self._amid = amid_passes(routine)
        self.forward_s, self.backward_s = float(draws.forward_s[index]), float(draws.backward_s[index])
        self.update_s, self.first_s = float(draws.apply_s[index]), float(draws.start_s[index])
        self.mailbox: dict[int, simpy.Store] = {
            operation.channel: simpy.Store(training.clock) for operation in routine.operations if operation.channel >= 0
        }
        self.batches = 0
        self.overlap = _Overlap(training.clock)
        self._does: dict[str, Callable[[Step, int, Operation, int], Going]] = {
            "gate": self._pass_gate, "send": self._send, "receive": self._receive, "serve": self._serve, "collective": self._reduce,
        }  # fmt: skip
        self._step: Step | None = None
        self._computing: simpy.Process | None = None

    def train(self) -> Going:
        """Make one step after the other, until none is left."""
        training, clock = self.training, self.training.clock
        yield clock.timeout(self.first_s)
        cause = NOTHING
        if training.log is not None and self.first_s:
            cause = training.log.started(self.index, self.first_s)
        number = 0
        while training.steps.take(self.index):
            step = self._step = Step(clock, number, self.routine, self._factors.next())
            yield from training.hand_out(self, step, cause)
            self._begin(step)
            cause = yield step.ended
            training.step_ended(self, step, cause)
            number += 1

    def _begin(self, step: Step) -> None:
        """Start the processes of all operations; messages that begin in random order are started in that."""
        clock, operations = self.training.clock, self.routine.operations
        self._computing = clock.process(self._compute(step))
        for number in self.training.order_of(self):
            if operations[number].kind != "compute" and number:
                clock.process(self._do(step, number))
        clock.process(self._end(step))

    def _end(self, step: Step) -> Going:
        """A step has ended when all of its operations have."""
        cause = NOTHING
        for done in step.done:
            cause = max(cause, (yield done))
        if not step.given_up:
            step.ended.succeed(cause)

    def give_up(self, version: int, came_s: float, cause: int) -> None:
        """End a step that has read an older version where it is: what is under way goes on to its end, nothing else begins.

        ``came_s``: when the last gradient had come that the update, which tells it, has waited for.
        """
        step = self._step
        if step is None or not step.done[0].triggered or step.read_version >= version or step.ended.triggered:
            return
        step.given_up = True
        if not self.overlap.computes:
            step.waited_s = max(came_s - max(step.idle_since_s, step.pushed_s), 0.0)
        if self._computing is not None and self._computing.is_alive:
            self._computing.interrupt()
        step.ended.succeed(cause)

    # -- operations --------------------------------------------------------------------------

    def _do(self, step: Step, number: int) -> Going:
        """Wait for what an operation comes after, and do it."""
        operation = self.routine.operations[number]
        cause = yield from self._after(step, operation)
        if step.given_up and operation.kind not in ("send", "serve"):
            return
        if operation.departs:
            self.overlap.communicate(1)
        skipped = step.number < operation.from_step or (step.number + 1) % operation.every
        if not skipped:
            cause = yield from self._does[operation.kind](step, number, operation, cause)
        if operation.lands:
            self.overlap.communicate(-1)
        step.done[number].succeed(cause)

    def _after(self, step: Step, operation: Operation) -> Going:
        """Wait until those have ended that an operation comes after; the work that ended last."""
        cause = NOTHING
        for before in operation.after:
            cause = max(cause, (yield step.done[before]))
        return cause

    def _compute(self, step: Step) -> Going:
        """Make the passes and the update, one after the other."""
        operations = self.routine.operations
        waiting = [number for number, operation in enumerate(operations) if operation.kind == "compute"]
        try:
            while waiting:
                piece = [waiting.pop(0)]
                cause = yield from self._after(step, operations[piece[0]])
                while (
                    operations[piece[-1]].joins and waiting and all(step.done[before].triggered for before in operations[waiting[0]].after)
                ):
                    piece.append(waiting.pop(0))
                    cause = max(cause, *(step.done[before].value for before in operations[piece[-1]].after), NOTHING)
                yield from self._compute_piece(step, piece, cause)
                yield self.training.clock.end_of_instant()  # what it lets begin is first where both need the same cores
        except simpy.Interrupt:
            return

    def _compute_piece(self, step: Step, piece: list[int], cause: int) -> Going:
        clock = self.training.clock
        parts = [self.routine.operations[number] for number in piece]
        mean_s = sum(part.forward * self.forward_s + part.backward * self.backward_s + part.apply * self.update_s for part in parts)
        began_s = clock.now
        self.stand_still(step)
        try:
            with self._device, self.overlap.computing():
                yield from self._work(mean_s * step.factor)
        except simpy.Interrupt:
            self._computed(step, piece[-1], began_s, cause)
            raise
        logged = self._computed(step, piece[-1], began_s, cause)
        for number in piece:
            step.done[number].succeed(logged)

    def _computed(self, step: Step, number: int, began_s: float, cause: int) -> int:
        """Note what has been computed; the number of that work."""
        training, now_s = self.training, self.training.clock.now
        step.idle_since_s = now_s
        if self.routine.operations[number].apply:
            step.apply_s = now_s - began_s
        else:
            step.compute_s += now_s - began_s
        return NOTHING if training.log is None else training.log.ended(self.index, number, began_s, now_s, cause)

    def _work(self, work_s: float) -> Going:
        """Have the device work, more slowly while the worker communicates."""
        clock, overlap, slowdown = self.training.clock, self.overlap, self._device.slowdown
        if not slowdown:
            yield from self._device.work(work_s)
            return
        while work_s > 0.0:
            stretch, began_s = 1.0 + slowdown if overlap.messages else 1.0, clock.now
            done = clock.timeout(work_s * stretch)
            yield done | overlap.changed
            work_s = 0.0 if done.processed else work_s - (clock.now - began_s) / stretch

    def hear(self, step: Step, begun_s: float) -> None:
        """It has what others have begun to send at that time, or has met them then."""
        step.heard_s = max(step.heard_s, begun_s)
        if self._amid and not self.overlap.computes:
            self.stand_still(step)
            step.idle_since_s = self.training.clock.now

    def stand_still(self, step: Step) -> None:
        """Count the time since it last computed, or heard from others: waiting until they had begun, then communication."""
        now_s = self.training.clock.now
        step.waited_s += min(max(step.heard_s - step.idle_since_s, 0.0), now_s - step.idle_since_s)

    def _pass_gate(self, step: Step, number: int, operation: Operation, cause: int) -> Going:
        training, came_s = self.training, self.training.clock.now
        if operation.name == "update":
            assert training.updates is not None
            return (yield from training.updates.wait_for_update(self, step, cause))
        brought = NOTHING
        if operation.name == "prepare":
            client = training.program.rules.client
            assert client is not None
            yield from training.client.do(client.input_s)
        else:
            brought = yield from training.batch(self, step)
            step.idle_since_s = training.clock.now
            step.input_s = step.idle_since_s - came_s
        return brought if brought != NOTHING else training.passed(self, number, came_s, cause)

    def _send(self, step: Step, number: int, operation: Operation, cause: int) -> Going:
        training, sent_s, logged = self.training, self.training.clock.now, NOTHING
        path = int(training.program.ranks.path[self.index, operation.slot])
        _, arrived = training.network.send(path, operation.size_bytes, operation.tensors)
        yield arrived
        if training.log is not None:
            logged = training.log.ended(self.index, number, sent_s, training.clock.now, cause)
        if operation.channel >= 0:
            peer = int(training.program.ranks.peer[self.index, operation.slot])
            training.workers[peer].mailbox[operation.channel].put((sent_s, logged))
        if operation.feeds:
            step.batch.succeed(logged)
        return logged

    def _receive(self, step: Step, number: int, operation: Operation, cause: int) -> Going:
        del number
        sent_s, logged = yield self.mailbox[operation.channel].get()
        self.hear(step, sent_s)
        return max(logged, cause)

    def _serve(self, step: Step, number: int, operation: Operation, cause: int) -> Going:
        assert self.training.updates is not None
        return (yield from self.training.updates.serve(self, step, number, operation, cause))

    def _reduce(self, step: Step, number: int, operation: Operation, cause: int) -> Going:
        return (yield from self.training.reduce(self, step, number, operation, cause))


class _Overlap:
    """Follows when a worker computes while it communicates.

    Attributes
    ----------
    messages, computes
        Messages, and collectives, that are under way; whether it computes.
    changed
        Happens when the first message sets out, or the last has come.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.messages, self.computes = 0, False
        self.changed = clock.event()
        self._hidden_s = self._since_s = 0.0

    def communicate(self, change: int) -> None:
        """A message is on its way (1), or has come (-1)."""
        self._catch_up()
        self.messages += change
        if change and self.messages == max(change, 0):
            self.changed.succeed()
            self.changed = self._clock.event()

    @contextmanager
    def communicating(self, *, besides: bool = False) -> Iterator[None]:
        """The worker is in a collective; ``besides``: which is counted already."""
        self.communicate(0 if besides else 1)
        yield
        self.communicate(0 if besides else -1)

    @contextmanager
    def computing(self) -> Iterator[None]:
        """The worker computes."""
        self._catch_up()
        self.computes = True
        try:
            yield
        finally:  # it may be told to give up
            self._catch_up()
            self.computes = False

    def _catch_up(self) -> None:
        if self.computes and self.messages:
            self._hidden_s += self._clock.now - self._since_s
        self._since_s = self._clock.now

    def take(self) -> float:
        """Seconds hidden since this was last asked."""
        self._catch_up()
        hidden_s, self._hidden_s = self._hidden_s, 0.0
        return hidden_s
