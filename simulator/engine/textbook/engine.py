"""Puts a program together as SimPy processes, runs it, and tells what happens."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np
import simpy

from simulator.base.errors import InputError
from simulator.base.records import NOTHING, Log, Update
from simulator.collectives.collective import Collective
from simulator.engine.draws import BatchFactors, Draws, JitterFactors
from simulator.engine.operation_log import OperationLog
from simulator.engine.recorder import InUse, Kind, Parts, Progress, Recorder
from simulator.engine.textbook.clock import Clock, Going, Processor
from simulator.engine.textbook.collectives import Collectives
from simulator.engine.textbook.links import Links
from simulator.engine.textbook.messages import Network
from simulator.engine.textbook.rules import Clocks, Steps, Window
from simulator.engine.textbook.servers import AsynchronousUpdates, SynchronousUpdates
from simulator.engine.textbook.worker import Device, Pipeline, Step, Updates, Worker
from simulator.program.program import INSTANT_S, Operation, Program, Synchronous


class SharedCores:
    """Tasks wait in one queue; a free core takes the one in front, and keeps it for a slice while others wait (docs/network.md).

    Parameters
    ----------
    number
        How many cores.
    slice_s
        Length of a slice.
    """

    name = "cores"

    def __init__(self, clock: Clock, number: float, slice_s: float) -> None:
        self._clock, self._number, self._slice_s = clock, number, slice_s
        self._cores = simpy.Resource(clock, capacity=math.ceil(number) if number < math.inf else number)  # type: ignore[arg-type]
        self._changed = clock.event()
        self._busy_s = self._since_s = 0.0

    def run(self, work_s: float, slowdown: float = 0.0) -> Going:
        """Do some seconds of work; ``slowdown``: share by which it takes longer for each other core that is busy."""
        clock, left_s = self._clock, work_s
        while left_s > 0.0:
            with self._cores.request() as core:
                yield core
                self._count()
                slice_ends_s = clock.now + self._slice_s
                while left_s > 0.0:
                    stretch, began_s = 1.0 + slowdown * (self._cores.count - 1), clock.now
                    wait_s = min(left_s * stretch, max(slice_ends_s - began_s, 0.0))
                    due = clock.timeout(wait_s)
                    yield due | self._changed if slowdown else due
                    left_s -= (clock.now - began_s) / stretch
                    if left_s <= INSTANT_S + 4 * math.ulp(clock.now):
                        left_s = 0.0
                    elif clock.now >= slice_ends_s - INSTANT_S:
                        if self._cores.queue:
                            break
                        slice_ends_s += self._slice_s
            self._count()

    def _count(self) -> None:
        """The number of busy cores may have changed."""
        self.in_use_s()
        self._busy = self._cores.count
        self._changed.succeed()
        self._changed = self._clock.event()

    _busy = 0

    def in_use_s(self) -> float:
        """Seconds up to now for which a core was busy, in the mean over all of them."""
        self._busy_s += self._busy * (self._clock.now - self._since_s)
        self._since_s = self._clock.now
        return self._busy_s / self._number


def run(
    program: Program, draws: Draws, recorder: Recorder, collective: Collective | None, log: Log | None,
    on_progress: Callable[[float], None] | None,
) -> Iterable[float]:  # fmt: skip
    """Run one replication; the sizes in bytes of what was reduced at once.

    Parameters
    ----------
    program
        What happens.
    draws
        How fast each rank computes, and the orders that chance decides.
    recorder
        Keeps what is measured.
    collective
        Finds the times of reductions for all ranks at once; none where the program has their messages, or nothing is reduced.
    log
        Is told what was done; none if nobody wants to know.
    on_progress
        Called now and then with the share of the steps that have ended.

    Raises
    ------
    InputError
        The program needs the at-once engine.
    DeadlockError
        Nothing can happen any more, and the run has not ended.
    """
    if program.rules.reduction is not None and program.rules.reduction.by_need:
        raise InputError('run.engine ("simpy") does not support strategy.priority = "forward": set run.engine = "auto"')
    training = Training(program, draws, recorder, collective, log, on_progress)
    training.run()
    return training.collectives.sizes


class Training:
    """A program's processes, and what they share.

    Attributes
    ----------
    clock, program, draws
        Simulated time; what happens; what chance decides.
    network, workers, collectives, updates
        What carries messages; the ranks; where they meet; what becomes of gradients, if there are servers.
    steps
        Steps that are still to be handed out.
    client
        Prepares every rank's batch, one at a time; mostly there is none.
    window
        Is told of steps and updates.
    log, plain_log
        Are told what was done, of operations and of all else; none if nobody wants to know.
    """

    def __init__(
        self, program: Program, draws: Draws, recorder: Recorder, collective: Collective | None, log: Log | None,
        on_progress: Callable[[float], None] | None,
    ) -> None:  # fmt: skip
        clock = self.clock = Clock()
        self.program, self.draws, self.plain_log = program, draws, log
        self.log = OperationLog(log, program) if log is not None else None
        rules, transport = program.rules, program.transport
        self._cores = None if program.cores is None else SharedCores(clock, program.cores.number, program.cores.slice_s)
        self._links = Links(clock, program.ports, program.changes)
        weights = None if transport.weight_sigma is None else (weight for block in draws.weights() for weight in block.tolist())
        self.network = Network(clock, self._links, program, weights, self._work)
        self._devices = [self._device(number) for number in range(program.devices.count)]
        self._servers = [self._server(number) for number in range(program.servers.count)]
        self.updates: Updates | None = None
        if isinstance(rules.updates, Synchronous):
            self.updates = SynchronousUpdates(self, rules.updates, self._servers)
        elif rules.updates is not None:
            self.updates = AsynchronousUpdates(self, rules.updates, self._servers)
        self.collectives = Collectives(self, collective)
        ranks = range(len(program.ranks))
        self.workers = [self._worker(index) for index in ranks]
        self.steps = Steps(len(ranks), rules.steps_shared, rules.most_steps_each)
        self._clocks = None if rules.bound is None else Clocks(clock, len(ranks), rules.bound)
        self._dispatcher = Processor(clock, "coordinator", self._work)
        self.client = Processor(clock, "client", self._work)
        self._pipelines = self._make_pipelines()
        self._orders: dict[int, list[list[int]]] = {}
        self._updated_s, self._updated = 0.0, 0  # where ranks update together
        self.window = Window(clock, recorder, Progress(on_progress, recorder.closes_at), self._in_use)

    def run(self) -> None:
        """Run until the window closes."""
        for worker in self.workers:
            self.clock.process(self._train(worker))
        self.clock.run_until(self.window.closed)

    def _train(self, worker: Worker) -> Going:
        yield from worker.train()
        if self.program.rules.closes:  # from now on not all ranks are busy
            yield self.clock.end_of_instant()
            self.window.close()

    # -- what does work ----------------------------------------------------------------------

    def alone(self, work_s: float) -> Going:
        """Work that nobody shares."""
        yield self.clock.timeout(work_s)

    def _work(self, work_s: float, slowdown: float = 0.0) -> Going:
        """Work of a process of its own: on the cores that all share, where they do."""
        return self.alone(work_s) if self._cores is None else self._cores.run(work_s, slowdown)

    def _on_device(self, seat: int, work_s: float) -> Going:
        """Work on a device that several use, which they share as connections share a link; ``seat``: the path over its port."""
        return self._links.cross(self._ports_of(seat), work_s)

    def _ports_of(self, path: int) -> tuple[int, ...]:
        first, port = self.program.paths.first, self.program.paths.port
        return tuple(port[first[path] : first[path + 1]].tolist())

    def _device(self, number: int) -> Device:
        devices, ranks = self.program.devices, self.program.ranks
        if devices.on_cores:
            return Device(self.clock, number, partial(self._work, slowdown=devices.busy_core_slowdown))
        seats = ranks.seat[ranks.device == number].tolist()
        if not seats or seats[0] < 0:
            return Device(self.clock, number, self.alone, devices.slowdown)
        return Device(self.clock, number, partial(self._on_device, seats[0]), port=self._links.ports[self._ports_of(seats[0])[0]])

    def _server(self, number: int) -> Processor:
        servers = self.program.servers
        seat = int(servers.seat[number])
        work = partial(self._on_device, seat) if seat >= 0 else self._work if servers.on_cores else self.alone
        return Processor(self.clock, f"server {number}", work)

    def _worker(self, index: int) -> Worker:
        ranks = self.program.ranks
        routine, device = self.program.routines[int(ranks.routine[index])], self._devices[int(ranks.device[index])]
        return Worker(self, index, routine, device, JitterFactors(self.draws, index))

    # -- batches -----------------------------------------------------------------------------

    def _make_pipelines(self) -> Sequence[Pipeline]:
        feed = self.program.feed
        if feed is None:
            return ()
        jitter = self.draws.of_batches(len(feed))
        pipelines = []
        for number in range(len(feed)):
            factors: Iterator[float] = repeat(1.0) if jitter is None else _factors(BatchFactors(jitter, number, self.draws.block))
            first_s = min(worker.first_s for worker in self.workers if feed.of_rank[worker.index] == number)
            pipelines.append(Pipeline(self.clock, feed.prefetch, self._parts_of_batch(number), factors, first_s))
        return pipelines

    def _parts_of_batch(self, number: int) -> list[Callable[[float], Going]]:
        feed = self.program.feed
        assert feed is not None
        own_s = float(feed.own_s[number])

        def read(path: int, amount: float) -> Callable[[float], Going]:
            def part(factor: float) -> Going:
                yield self.network.send(path, amount * factor)[1]

            return part

        def thread(work_s: float) -> Callable[[float], Going]:
            return lambda factor: self._work(work_s * factor)

        flows = zip(feed.path[number].tolist(), feed.amount[number].tolist(), strict=True)
        parts = [thread(work_s) for work_s in feed.work_s[number].tolist() if work_s]
        parts += [read(path, amount) for path, amount in flows if amount]
        return [*parts, lambda factor: self.alone(own_s * factor)]

    def reduce(self, worker: Worker, step: Step, number: int, operation: Operation, cause: int) -> Going:
        """A rank enters a collective, and waits until it has ended it."""
        return self.collectives.enter(worker, step, number, operation, cause)

    def batch(self, worker: Worker, step: Step) -> Going:
        """Wait for a rank's next batch; what brought it, if a message did."""
        if any(operation.feeds for operation in worker.routine.operations):
            return (yield step.batch)
        if self._pipelines:
            assert self.program.feed is not None
            worker.batches += 1
            yield from self._pipelines[int(self.program.feed.of_rank[worker.index])].batch(worker.batches)
        return NOTHING

    # -- steps -------------------------------------------------------------------------------

    def hand_out(self, worker: Worker, step: Step, cause: int) -> Going:
        """Let a rank begin its step: when the coordinator has handed it out, or its clock is within the bound."""
        rules = self.program.rules
        if rules.dispatcher is not None:
            yield from self._dispatcher.do(rules.dispatcher.dispatch_s)
            yield self.clock.timeout(rules.dispatcher.latency_s)
            cause = self.passed(worker, 0, step.began_s, cause)
        elif self._clocks is not None:
            cause = yield from self._clocks.wait(worker.index, cause)
        step.held_s = self.clock.now - step.began_s
        if self.updates is not None:
            self.updates.read(worker, step)
        step.done[0].succeed(cause)

    def passed(self, worker: Worker, number: int, came_s: float, cause: int) -> int:
        """A rank passes a gate that it came to earlier; what let it pass."""
        if self.log is None or self.clock.now <= came_s:
            return cause
        return self.log.ended(worker.index, number, came_s, self.clock.now, cause)

    def order_of(self, worker: Worker) -> Sequence[int]:
        """The order in which the operations of a rank's next step are begun where they may: their own, but for those that are shuffled."""
        operations, (first, last) = range(len(worker.routine.operations)), worker.routine.shuffled
        if not last:
            return operations
        orders = self._orders.get(worker.index)
        if not orders:
            drawn = self.draws.pull_orders(np.array([worker.index]), last - first, block=self.draws.block)
            orders = self._orders[worker.index] = drawn[0, ::-1].tolist()
        return [*operations[:first], *(first + place for place in orders.pop()), *operations[last:]]

    def step_ended(self, worker: Worker, step: Step, cause: int) -> None:
        """A rank's step has ended: say where its time went."""
        now_s, hidden_s = self.clock.now, worker.overlap.take()
        if self.updates is not None:
            served = sum(operation.kind == "serve" for operation in worker.routine.operations)
            apply_s = 0.0 if step.given_up else now_s - step.pushed_s - step.waited_s
            parts = Parts(step.input_s, step.compute_s, step.held_s + step.waited_s, apply_s, hidden_s, step.accepted / served)
        else:
            worker.stand_still(step)
            if step.last_group is not None:
                step.waited_s = self.collectives.waited_s(step)
            self._count_update(worker, step)
            parts = Parts(step.input_s, step.compute_s, step.waited_s, step.apply_s, hidden_s)
        self.window.step(worker.index, step.began_s, parts, cause)
        if self._clocks is not None:
            self._clocks.tick(worker.index, cause)

    def _count_update(self, worker: Worker, step: Step) -> None:
        """All ranks apply the same update, each to its own copy; it is counted once."""
        every = self.program.rules.sync_every
        if worker.index or (step.number + 1) % every:
            return
        read_s = step.began_s if every == 1 else self._updated_s
        self._updated_s = self.clock.now
        self.window.recorder.update(Update(0, read_s, self._updated_s, self._updated, self._updated, (), ()))
        self._updated += 1

    def _in_use(self) -> dict[Kind, InUse]:
        links = [*self._links.ports[: self.program.links], *self.network.hosts]
        reduced = self.collectives.use.beside(_use_of(self.collectives.copies))
        used: dict[Kind, InUse] = {"devices": _use_of(self._devices), "links": _use_of(links).beside(reduced)}
        if self._servers:
            used["servers"] = _use_of(self._servers)
        if self._cores is not None:
            used["cores"] = _use_of([self._cores])
        return used


def _use_of(resources: Sequence[Any]) -> InUse:
    return InUse([resource.name for resource in resources], np.array([resource.in_use_s() for resource in resources]))


def _factors(factors: BatchFactors) -> Iterator[float]:
    while True:
        yield factors.next()
