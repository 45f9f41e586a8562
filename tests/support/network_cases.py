"""One random network on both engines: what is sent when, and everything that can be observed of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from simulator.engine.compiled import codes
from simulator.engine.compiled.interpreter import act
from simulator.engine.compiled.loop import DRAINED, FULL, HANDLE, WEIGHTS
from simulator.engine.compiled.state import State
from simulator.network import fairness
from simulator.network.cores import Cores, Task
from simulator.network.flows import Network
from simulator.network.hosts import Host
from simulator.network.kernel import Kernel
from simulator.network.ports import Connection, Limits, Port, leave_out_ample
from simulator.program import program as tables
from simulator.spec.transport import Transport

Observed = tuple[str, int, float]
"""What happened, to which message or work, and when."""


@dataclass
class Case:
    """A network, shared cores, and what is to be done on them.

    ``messages`` are a path, bytes, and whether leaving is noted; ``works`` a task and
    seconds. ``begins`` are times and messages or works (the latter numbered from the number
    of messages on); ``after`` says what begins when one has ended, and after how long.
    """

    ports: list[tuple[float, float, float, int]]
    paths: list[tuple[tuple[int, ...], float, int, int, bool]]
    messages: list[tuple[int, float, bool]]
    begins: list[tuple[float, int]]
    works: list[tuple[int, float]] = field(default_factory=list)
    after: dict[int, list[tuple[float | None, int]]] = field(default_factory=dict)
    transport: dict[str, Any] = field(default_factory=dict)
    weights: list[float] = field(default_factory=list)
    cores: tuple[float, float] | None = None
    slowdowns: list[float] = field(default_factory=list)
    ample: bool = False
    seed: int = 0
    changes: tables.Changes | None = None

    @property
    def hosts(self) -> int:
        return 1 + max((max(source, target) for _, _, source, target, _ in self.paths), default=-1)


@dataclass
class Outcome:
    """All that can be observed."""

    happened: list[Observed]
    now: float
    events: int
    carried: list[float]
    in_use_s: list[float]
    busy_s: list[float]
    hosts_s: list[float]
    tasks_s: list[float]
    cores_s: float


def _follow(
    case: Case, happened: list[Observed], number: int, now: float, begin: Callable[[int], None], later: Callable[[float, int], None]
) -> None:
    """A message or work has ended."""
    happened.append(("ended", number, now))
    for delay_s, other in case.after.get(number, []):
        if delay_s is None:
            begin(other)
        else:
            later(delay_s, other)


def by_simpy(case: Case) -> Outcome:
    """The reference."""
    kernel = Kernel()
    transport = Transport(**case.transport)
    cores = Cores(kernel, *case.cores) if case.cores is not None else None
    network = Network(kernel, transport, np.random.default_rng(case.seed), cores)
    ports = [Port(str(number), capacity, Limits(*limits)) for number, (capacity, *limits) in enumerate(case.ports)]
    if case.changes is not None:
        for port in case.changes.port:
            ports[port].leave(case.changes.left[0], case.changes.beside[0])
        network.follow(ports, case.changes)
    hosts = [Host(str(number), transport.at_a_time) for number in range(case.hosts)]
    connections = []
    for number, (crossed, latency_s, source, target, asked_for) in enumerate(case.paths):
        ends = (hosts[source], hosts[target]) if source >= 0 else (None, None)
        weight = case.weights[number] if case.weights else 1.0
        connection = Connection(tuple(ports[one] for one in crossed), latency_s, source=ends[0], target=ends[1], weight=weight)
        connection.asked_for, connection.number = asked_for, len(connections)
        connections.append(connection)
    if case.ample:
        leave_out_ample(connections)
    tasks = [Task(cores, slowdown) for slowdown in case.slowdowns] if cores is not None else []
    happened: list[Observed] = []

    def begin(number: int) -> None:
        if number < len(case.messages):
            path, size, noted = case.messages[number]
            left = (lambda _: happened.append(("left", number, kernel.now))) if noted else None
            network.send(connections[path], size, lambda _: ended(number), left)
        else:
            task, work_s = case.works[number - len(case.messages)]
            tasks[task].work(work_s, lambda _: kernel.soon(ended, number))

    def later(delay_s: float, number: int) -> None:
        kernel.call_later(delay_s, lambda _: begin(number))

    def ended(number: int) -> None:
        _follow(case, happened, number, kernel.now, begin, later)

    for at_s, number in case.begins:
        later(at_s, number)
    kernel.run()
    now = kernel.now
    return Outcome(
        happened,
        now,
        kernel.events,
        [port.carried for port in ports],
        [port.in_use_s(now) for port in ports],
        [port.busy_until(now) for port in ports],
        [host.in_use_s(now) for host in hosts],
        [task.in_use_s(now) for task in tasks],
        cores.in_use_s(now) if cores is not None else 0.0,
    )


BEGIN, ENDED, LEFT = codes.FIRST, codes.FIRST + 1, codes.FIRST + 2


def pack(code: int, number: int) -> int:
    return code << 32 | number


def tables_of(case: Case) -> tuple[tables.Ports, tables.Paths]:
    capacity, ceiling, loss, flows = zip(*case.ports, strict=True)
    whole, beside, changes = np.array(capacity, float), np.zeros(len(case.ports)), case.changes
    left = whole.copy()
    if changes is not None:
        left[changes.port] *= changes.left[0]
        beside[changes.port] = changes.beside[0]
    ports = tables.Ports(left, np.array(ceiling, float), np.array(loss, float), np.array(flows), [], whole, beside)
    crossed = [path[0] for path in case.paths]
    first = np.concatenate(([0], np.cumsum([len(path) for path in crossed])))
    latency_s, source, target, asked_for = (np.array(column) for column in zip(*(path[1:] for path in case.paths), strict=True))
    port = np.array([one for path in crossed for one in path])
    return ports, tables.Paths(first, port, latency_s.astype(float), source, target, asked_for)


def _blocks(case: Case) -> Iterator[np.ndarray]:
    rng, sigma = np.random.default_rng(case.seed), case.transport["weight_sigma"]
    while True:
        draws = np.exp(sigma * rng.standard_normal(256).clip(-5.0, 5.0))
        yield np.maximum(np.rint(draws * 2.0**24), 1.0) / 2.0**24


def by_compiled(case: Case, most_things: int = 1 << 60) -> Outcome:
    """The same in tables and machine code; in slices of so many things that happen."""
    transport = Transport(**case.transport)
    ports, paths = tables_of(case)
    state = State(
        ports,
        paths,
        case.hosts,
        transport,
        cores=tables.Cores(*case.cores) if case.cores is not None else None,
        slowdown=np.array(case.slowdowns, float),
        weight=np.array(case.weights, float) if case.weights else None,
        leaves_out=case.ample,
        changes=case.changes,
    )
    s, address = state.s, state.address
    s.patience = fairness.PATIENCE
    happened: list[Observed] = []
    blocks = _blocks(case) if transport.weight_sigma is not None else iter(())

    def begin(number: int) -> None:
        if number < len(case.messages):
            path, size, noted = case.messages[number]
            act(address, 1, path, size, pack(ENDED, number), 0, pack(LEFT, number) if noted else 0)
        else:
            task, work_s = case.works[number - len(case.messages)]
            act(address, 2, task, work_s, pack(ENDED, number), 0, 0)

    def later(delay_s: float, number: int) -> None:
        act(address, 3, 0, delay_s, pack(BEGIN, number), 0, 0)

    act(address, 6, 0, 0.0, 0, 0, 0)
    for at_s, number in case.begins:
        state.grow()
        later(at_s, number)
    while True:
        why = act(address, 8, most_things, 0.0, 0, 0, 0)
        if why == DRAINED:
            break
        if why == FULL:
            state.grow()
        elif why == WEIGHTS:
            while state.weights_needed:
                state.add_weights(next(blocks))
        elif why == HANDLE:
            what, now = int(s.what), float(s.now)
            code, number = what >> 32, what & 0xFFFFFFFF
            if code == BEGIN:
                begin(number)
            elif code == LEFT:
                happened.append(("left", number, now))
            else:
                _follow(case, happened, number, now, begin, later)
        else:
            assert why == 0, why
    now = float(s.now)
    return Outcome(
        happened,
        now,
        int(s.serial),
        state.carried_bytes.tolist(),
        state.in_use_s(now).tolist(),
        state.busy_until(now).tolist(),
        state.hosts_in_use_s(now).tolist(),
        state.tasks_in_use_s(now)[: len(case.slowdowns)].tolist() if case.cores is not None else [],
        state.cores_in_use_s(now) if case.cores is not None else 0.0,
    )
