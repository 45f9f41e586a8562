"""Messages: the connections that carry them in order, hosts that work on them, take turns and weigh them.

docs/network.md describes each setting of ``cluster.transport``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
import simpy
from simpy.events import Event

from simulator.engine.textbook.clock import Clock, Going, Processor
from simulator.engine.textbook.links import Links
from simulator.program.program import Program


class Network:
    """Carries messages over the paths of a program.

    Parameters
    ----------
    links
        What they cross.
    weights
        Weights of messages in order of their beginning, where the transport has random ones.
    work
        How a host does some seconds of work.
    """

    def __init__(
        self, clock: Clock, links: Links, program: Program, weights: Iterator[float] | None, work: Callable[[float], Going]
    ) -> None:
        self._clock, self._links, self._transport = clock, links, program.transport
        paths, transport = program.paths, program.transport
        first, crossed = paths.first.tolist(), paths.port.tolist()
        self._ports = [tuple(crossed[begin:end]) for begin, end in pairwise(first)]
        self._latency_s = paths.latency_s.tolist()
        self._ends = list(zip(paths.source.tolist(), paths.target.tolist(), strict=True))
        inside = np.full(len(paths), -1)
        sender, receiver = (inside if nodes is None else nodes for nodes in (paths.sender, paths.receiver))
        self._nodes = list(zip(sender.tolist(), receiver.tolist(), strict=True))
        self._asked_for = paths.asked_for.tolist()
        self._weight = [1.0] * len(paths) if paths.weight is None else paths.weight.tolist()
        self._lines = [simpy.Resource(clock) for _ in range(len(paths))]
        self.hosts = [Processor(clock, name, work) for name in program.hosts.names]
        self._turns = None if transport.at_a_time is None else _Turns(clock, transport.at_a_time)
        self._transfers = None if weights is None else _Transfers(weights, of_transfer=transport.weights_of == "transfer")
        self._queues = None
        if transport.queue_s is not None and transport.buffer_s is not None:
            self._queues = _Queues(clock, transport.queue_s, transport.buffer_s, transport.requests_per_pull)

    def send(self, path: int, size_bytes: float, tensors: float = 1.0) -> tuple[Event, Event]:
        """Send a message: an event of when its last byte has left the sender, and one of when it is there."""
        left = self._clock.event()
        return left, self._clock.process(self._carry(path, size_bytes, tensors, left))

    def _carry(self, path: int, size_bytes: float, tensors: float, left: Event) -> Going:
        transport, line = self._transport, self._lines[path]
        source, target = self._ends[path]
        work_s = transport.cpu_per_message_s * tensors + transport.copy_per_byte_s * size_bytes if source >= 0 else 0.0
        if work_s:
            yield from self.hosts[source].do(work_s)
        sender, receiver = self._nodes[path]
        follows = line.count > 0  # then its bytes are in the queues already, behind those of the message before
        turn = None if self._turns is None or sender < 0 else self._turns.stand(path, sender, receiver)
        transfer = (receiver, "asked") if self._asked_for[path] else (sender, "sent")
        if self._transfers is not None and sender >= 0:
            self._transfers.join(transfer)
        with line.request() as in_front:
            yield in_front
            weight = self._weight[path] if self._transfers is None or sender < 0 else self._transfers.weight(transfer)
            if self._queues is not None and sender >= 0:
                wait_s = 0.0 if follows else self._queues.wait_s(sender, receiver, asked_for=self._asked_for[path])
                if wait_s:  # else it is in the queues before whatever is sent next
                    yield self._clock.timeout(wait_s)
                self._queues.change(sender, receiver, 1)
            if turn is not None and self._turns is not None:
                yield self._turns.take(turn)
            yield from self._links.cross(self._ports[path], size_bytes, weight)
            if turn is not None and self._turns is not None:
                self._turns.give_back(turn)
            if self._queues is not None and sender >= 0:
                self._queues.change(sender, receiver, -1)
            if self._transfers is not None and sender >= 0:
                self._transfers.leave(transfer)
        left.succeed()
        yield self._clock.timeout(self._latency_s[path])
        if work_s:
            yield from self.hosts[target].do(work_s)


class _Turn:
    """A message's place in the order of arrival, and the two nodes that must give it a turn."""

    def __init__(self, place: tuple[int, int], source: int, target: int, given: Event) -> None:
        self.place, self.given = place, given
        self.sides = (source, "sends"), (target, "receives")


class _Turns:
    """Each node sends, and receives, only some messages at a time. Who begins is decided at the end of an instant."""

    def __init__(self, clock: Clock, at_a_time: int) -> None:
        self._clock, self._at_a_time = clock, at_a_time
        self._busy: Counter[tuple[int, str]] = Counter()
        self._waiting: list[_Turn] = []
        self._deciding = False

    def stand(self, path: int, source: int, target: int) -> _Turn:
        """A message comes; those of one instant come in the order of their paths."""
        return _Turn((self._clock.instant, path), source, target, self._clock.event())

    def take(self, turn: _Turn) -> Event:
        """The message is in front of its connection; an event of when it may begin."""
        self._waiting.append(turn)
        self._decide_soon()
        return turn.given

    def give_back(self, turn: _Turn) -> None:
        """The message's last byte has left."""
        self._busy.subtract(turn.sides)
        self._decide_soon()

    def _decide_soon(self) -> None:
        if not self._deciding:
            self._deciding = True
            self._clock.process(self._decide())

    def _decide(self) -> Going:
        yield self._clock.end_of_instant()
        self._deciding = False
        for turn in sorted(self._waiting, key=lambda turn: turn.place):
            if all(self._busy[side] < self._at_a_time for side in turn.sides):
                self._busy.update(turn.sides)
                self._waiting.remove(turn)
                turn.given.succeed()


class _Transfers:
    """Random weights: of each message, or of all that a node has asked for, or sends, at the same time."""

    def __init__(self, weights: Iterator[float], *, of_transfer: bool) -> None:
        self._weights, self._of_transfer = weights, of_transfer
        self._messages: Counter[tuple[int, str]] = Counter()
        self._drawn: dict[tuple[int, str], float] = {}

    def join(self, transfer: tuple[int, str]) -> None:
        """A message of a transfer comes; the first draws its weight."""
        if self._of_transfer and not self._messages[transfer]:
            self._drawn[transfer] = next(self._weights)
        self._messages[transfer] += 1

    def leave(self, transfer: tuple[int, str]) -> None:
        """It has crossed."""
        self._messages[transfer] -= 1

    def weight(self, transfer: tuple[int, str]) -> float:
        """The weight of a message that is in front of its connection."""
        return self._drawn[transfer] if self._of_transfer else next(self._weights)


class _Queues:
    """How long messages wait behind what TCP has queued before the links of their two hosts (docs/network.md)."""

    def __init__(self, clock: Clock, own_s: float, most_s: float, requests: int) -> None:
        self._clock, self._own_s, self._most_s, self._requests = clock, own_s, most_s, requests
        self._between: dict[int, Counter[int]] = defaultdict(Counter)  # messages on their way to each host, by the one that they come from
        self._leaving: Counter[int] = Counter()
        self._peak: Counter[int] = Counter()  # most messages that were ever on their way to each host
        self._waits_s: dict[int, float] = defaultdict(float)  # before each host's way in, as time at its rate
        self._grows: dict[int, float] = defaultdict(lambda: -1.0)  # seconds a second since then
        self._since_s: dict[int, float] = defaultdict(float)

    def wait_s(self, source: int, target: int, *, asked_for: bool) -> float:
        """Seconds that a message waits: what its sender sends already, what waits before its receiver, and the requests for it."""
        own_s = min(self._leaving[source] * self._own_s, self._most_s) + self._waiting_s(target)
        return own_s + self._requests * self._waiting_s(source) if asked_for else own_s

    def _waiting_s(self, host: int) -> float:
        """Return the data waiting at a host's input now: at most the share of the buffer of messages in flight at their maximum."""
        coming = self._between[host].total()
        most_s = self._most_s * coming / self._peak[host] if coming else 0.0
        now_s = self._clock.now
        waits_s = self._waits_s[host] + self._grows[host] * (now_s - self._since_s[host])
        self._waits_s[host], self._since_s[host] = min(max(waits_s, 0.0), most_s), now_s
        return self._waits_s[host]

    def change(self, source: int, target: int, by: int) -> None:
        """A message begins to cross (1), or has crossed (-1): several hosts' queues grow faster, or slower, from now on."""
        reached = {target} | {host for host, coming in self._between.items() if coming[source]}
        for host in sorted(reached):
            self._waiting_s(host)
        self._leaving[source] += by
        self._between[target][source] += by
        self._peak[target] = max(self._peak[target], self._between[target].total())
        for host in sorted(reached):  # what comes in each second, each sender's link shared equally by its messages, less what leaves
            coming = (messages / self._leaving[sender] for sender, messages in self._between[host].items() if messages)
            self._grows[host] = sum(coming) - 1.0
