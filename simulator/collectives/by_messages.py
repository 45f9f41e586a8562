"""Every message of an all-reduce a transfer of its own on the shared network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from simpy.events import Event

from simulator.collectives.around import Times
from simulator.collectives.collective import Plan
from simulator.collectives.schedule import Await, Lane, Message
from simulator.collectives.wire import Connect
from simulator.cores import cores_of
from simulator.engine.log import Log
from simulator.kernel import Kernel
from simulator.network.flows import Network
from simulator.network.ports import Connection, leave_out_ample
from simulator.records import NOTHING, Place
from simulator.transport import Transport

__all__ = ["ByMessages", "together_s"]


class _Program:
    """A plan, rank by rank: the lanes out of it, how many messages it gets, and the connections, shared among plans."""

    def __init__(self, plan: Plan, connections: dict[tuple[object, ...], Connection], connect: Connect | None) -> None:
        schedule, wire = plan
        self.plan = plan
        self.lanes = [schedule.lanes_from(rank) for rank in range(schedule.ranks)]
        self.incoming = [0] * schedule.ranks
        self.connections: dict[tuple[int, int, int], Connection] = {}
        for lane in (lane for lanes in self.lanes for lane in lanes):
            self.incoming[lane.target] += lane.messages
            key = lane.source, lane.target, lane.number
            # plans by different protocols differ in latency, so that they do not share a connection
            shared = (*key, wire.protocol)
            if shared not in connections:
                connections[shared] = wire.connection(lane.source, lane.target, connect)
            self.connections[key] = connections[shared]


class _Turn:
    """One rank's state in one bucket's all-reduce."""

    __slots__ = ("expected", "missing", "next", "ready", "received", "sent", "unsent")

    def __init__(self, lanes: Sequence[Lane], missing: int) -> None:
        self.ready = False
        self.missing = missing
        self.unsent = len(lanes)  # lanes whose last message has not left yet
        self.received: dict[tuple[int, int], int] = {}  # of each lane: its source and number
        self.sent = [0] * len(lanes)
        self.next: list[Message | None] = [lane.message(0) for lane in lanes]
        self.expected: list[int] = []  # ranks that wait for this one to come as far as their message to it needs

    def has(self, awaits: Sequence[Await]) -> bool:
        """Whether all of these have arrived."""
        received = self.received
        return all(received.get((source, number), 0) >= messages for source, number, messages in awaits)


class ByMessages:
    """One all-reduce a bucket a step, the buckets in order, simulated message by message.

    A rank enters a bucket's all-reduce when it has the bucket's data and has finished the
    one before, as collectives of one stream follow one another. It has finished when it has
    received all that is meant for it and its own last byte has left it.

    Parameters
    ----------
    kernel, network
        What carries the messages.
    plans
        The messages of each bucket, and what they cross.
    buckets_bytes
        Size of each bucket.
    log
        Is told of every message; none if nobody wants to know.
    connect
        In place of the plans' own connections.
    """

    def __init__(
        self,
        kernel: Kernel,
        network: Network,
        plans: Sequence[Plan],
        buckets_bytes: Sequence[float],
        log: Log | None = None,
        connect: Connect | None = None,
    ) -> None:
        self._kernel = kernel
        self._network = network
        self._buckets = buckets_bytes
        self._log = log
        connections: dict[tuple[object, ...], Connection] = {}
        programs = {id(plan.schedule): _Program(plan, connections, connect) for plan in plans}
        self._programs = [programs[id(plan.schedule)] for plan in plans]
        leave_out_ample(connections.values())
        ranks = plans[0].schedule.ranks
        self._turns: list[dict[int, _Turn]] = [{} for _ in range(ranks)]
        self._asked = [0] * ranks  # buckets announced as ready, over all steps
        self._current = [0] * ranks  # the bucket that the rank is at, over all steps
        self._done = [kernel.event() for _ in range(ranks)]
        self._ended_s: list[list[float]] = [[] for _ in range(ranks)]  # of each bucket of the step in progress, or last finished
        # for the log: the last work that a rank had to wait for, and when that ended
        self._cause = [NOTHING] * ranks
        self._cause_s = [0.0] * ranks

    def finished(self, rank: int) -> Event:
        """The event that the rank's buckets of the current step are all reduced."""
        return self._done[rank]

    def ended_s(self, rank: int) -> Sequence[float]:
        """When the rank ended each bucket of the last step that it has finished, in seconds."""
        return self._ended_s[rank][: len(self._buckets)]

    def last_work(self, rank: int) -> int:
        """The number of what a rank had to wait for last, such as the last message that it got."""
        return self._cause[rank]

    def ready(self, rank: int, bucket: int, cause: int = NOTHING) -> None:  # noqa: ARG002 - buckets come in order
        """The rank has the bucket's gradients now, made by the work ``cause``."""
        if self._log is not None:
            self._note(rank, cause)
        self._turn(rank, self._asked[rank]).ready = True
        self._asked[rank] += 1
        self._advance(rank)

    def _note(self, rank: int, cause: int) -> None:
        """What the rank does from now on had to wait for this work."""
        if cause > self._cause[rank]:
            self._cause[rank] = cause
            self._cause_s[rank] = self._kernel.now

    def _turn(self, rank: int, number: int) -> _Turn:
        turns = self._turns[rank]
        turn = turns.get(number)
        if turn is None:
            program = self._programs[number % len(self._programs)]
            turn = turns[number] = _Turn(program.lanes[rank], program.incoming[rank])
        return turn

    def _advance(self, rank: int) -> None:
        """Send whatever the rank may send by now."""
        while True:
            number = self._current[rank]
            turn = self._turn(rank, number)
            if not turn.ready:
                return
            self._send_what_may(rank, number, turn)
            expected, turn.expected = turn.expected, []
            for other in expected:
                self._note(other, self._cause[rank])
                self._advance(other)
            if turn.missing or turn.unsent:
                return
            del self._turns[rank][number]
            if self._current[rank] % len(self._buckets) == 0:
                self._ended_s[rank].clear()
            self._ended_s[rank].append(self._kernel.now)
            self._current[rank] += 1
            if self._current[rank] % len(self._buckets) == 0:
                done, self._done[rank] = self._done[rank], self._kernel.event()
                done.succeed()

    def _send_what_may(self, rank: int, number: int, turn: _Turn) -> None:
        program = self._programs[number % len(self._programs)]
        for place, lane in enumerate(program.lanes[rank]):
            message = turn.next[place]
            while message is not None and turn.has(message.awaits) and self._met(rank, lane.target, number, message):
                self._send(program, lane, number, turn.sent[place], message)
                turn.sent[place] = index = turn.sent[place] + 1
                message = turn.next[place] = lane.message(index) if index < lane.messages else None

    def _met(self, rank: int, target: int, number: int, message: Message) -> bool:
        """Whether the target is as far as the message needs; if not, it will remember who waits."""
        if message.meets is None:
            return True
        turn = self._turn(target, number)
        if self._current[target] == number and turn.ready and turn.has(message.meets):
            return True
        turn.expected.append(rank)
        return False

    def _send(self, program: _Program, lane: Lane, number: int, index: int, message: Message) -> None:
        schedule, wire = program.plan
        size_bytes = self._buckets[number % len(self._buckets)] * schedule.share(message) * wire.bytes_per_byte
        connection, cause = program.connections[lane.source, lane.target, lane.number], self._cause[lane.source]
        arrived: Callable[[Event | None], None] = partial(self._receive, lane.target, number, (lane.source, lane.number))
        if self._log is not None:
            arrived = partial(
                self._observed, self._log, arrived, lane, connection, f"bucket {number} chunk {index}", size_bytes, self._kernel.now, cause
            )
        left = partial(self._left, lane.source, number, self._kernel.now, cause) if index == lane.messages - 1 else None
        self._network.send(connection, size_bytes, arrived, left)

    def _observed(
        self,
        log: Log,
        arrived: Callable[[Event | None], None],
        lane: Lane,
        connection: Connection,
        name: str,
        size_bytes: float,
        sent_s: float,
        cause: int,
        event: Event | None,
    ) -> None:
        source, target = Place("device", lane.source), Place("device", lane.target)
        self._note(lane.target, log.transfer(connection, source, target, name, size_bytes, sent_s, self._kernel.now, cause))
        arrived(event)

    def _left(self, rank: int, number: int, sent_s: float, cause: int, _: Event | None) -> None:
        if self._log is not None and self._kernel.now > self._cause_s[rank]:
            self._note(rank, self._log.wait(rank, "send", sent_s, self._kernel.now, cause))
        self._turns[rank][number].unsent -= 1
        self._advance(rank)

    def _receive(self, rank: int, number: int, lane: tuple[int, int], _: Event | None) -> None:
        turn = self._turn(rank, number)
        turn.received[lane] = turn.received.get(lane, 0) + 1
        turn.missing -= 1
        self._advance(rank)


def together_s(plan: Plan, size_bytes: float) -> Times:
    """When each rank has ended if all have their data at 0, from a trial run on a copy of the network, shape (ranks,)."""
    kernel = Kernel()
    ranks = plan.schedule.ranks
    wire = plan.wire
    transport = Transport(cpu_per_message_s=wire.message_s, copy_per_byte_s=wire.copy_per_byte_s)
    network = Network(kernel, transport, cores=cores_of(kernel, wire.shared_cores, wire.time_slice_s))
    run = ByMessages(kernel, network, [plan], [size_bytes], connect=wire.fresh())
    finish_s = np.zeros(ranks)

    def finished(rank: int, _: Event) -> None:
        finish_s[rank] = kernel.now

    for rank in range(ranks):
        run.finished(rank).callbacks.append(partial(finished, rank))
        run.ready(rank, 0)
    kernel.run()
    return finish_s
