"""The fair-sharing network against an independent, naive fluid simulation."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

import numpy as np
import pytest
from support.looping import each
from support.sampling import seeds

from simulator.network.flows import Network
from simulator.network.hosts import Host
from simulator.network.kernel import Kernel
from simulator.network.ports import Connection, Limits, Port, exact_weight, leave_out_ample
from simulator.program.program import Changes
from simulator.spec.transport import Transport


@dataclass
class Case:
    """A network and what is sent over it; paths, hosts and messages name their parts by number."""

    capacities: list[float]
    paths: list[tuple[int, ...]]
    messages: list[tuple[float, int, float]]  # when, on which path, how many bytes
    limits: list[Limits | None] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)  # of the paths
    draws: list[float] = field(default_factory=list)  # weights of messages, as they come to the front of their paths
    ends: list[tuple[int, int]] = field(default_factory=list)  # sending and receiving host of each path
    at_a_time: int | None = None
    after: dict[int, list[int]] = field(default_factory=dict)  # messages sent the moment that one ends, whatever their time says
    used: list[int] = field(default_factory=list)  # ports of which others take a part
    trace: list[tuple[float, float, int]] = field(default_factory=list)  # since when, what they leave, flows of theirs that share it
    repeat_s: float | None = None

    def others(self, now: float) -> tuple[float, int, float]:
        """What they leave now, flows of theirs, and when that changes; whoever asks at the instant of a change asks after it."""
        if not self.trace:
            return 1.0, 0, math.inf
        begun = now // self.repeat_s * self.repeat_s if self.repeat_s is not None else 0.0
        then = [(begun + at, left, flows) for at, left, flows in self.trace]
        if self.repeat_s is not None:
            then += [(at + self.repeat_s, left, flows) for at, left, flows in then]
        _, left, flows = [its for its in then if its[0] <= now + 1e-9][-1]
        return left, flows, min((at for at, *_ in then if at > now + 1e-9), default=math.inf)


def naive(case: Case) -> dict[int, float]:
    """When each message ends, every rate recomputed by progressive filling at every event."""
    answers = {number for numbers in case.after.values() for number in numbers}
    pending = sorted((at, number, path, size) for number, (at, path, size) in enumerate(case.messages) if number not in answers)
    queues: dict[int, list[list[float]]] = {path: [] for path in range(len(case.paths))}
    weight = dict(enumerate(case.weights or [1.0] * len(case.paths)))
    limits = dict(enumerate(case.limits or [None] * len(case.capacities)))
    draws = iter(case.draws)
    begun: dict[int, bool] = {}
    after = dict(case.after)
    now, ends = 0.0, {}

    def send(number: int, path: int, size: float) -> None:
        queues[path].append([number, size, now])
        if len(queues[path]) == 1:
            to_front(path)

    def to_front(path: int) -> None:
        begun[path] = case.at_a_time is None
        if case.draws:
            weight[path] = next(draws)

    while pending or any(queues.values()):
        active = [path for path in queues if queues[path] and begun[path]]
        left, flows, until = case.others(now)
        free = {port: capacity * (left if port in case.used else 1.0) for port, capacity in enumerate(case.capacities)}
        theirs = {port: flows if port in case.used else 0 for port in free}
        for port, limit in limits.items():
            ours = sum(port in case.paths[path] for path in active)
            if limit is not None and ours > limit.incast_flows:
                free[port] /= 1 + limit.incast_loss * (ours - limit.incast_flows)
        rate, unfixed = {}, set(active)
        while unfixed:
            users = {port: [path for path in unfixed if port in case.paths[path]] for port in free}
            shares = []
            for port, some in users.items():
                if some:
                    limit = limits[port]
                    all_weights = sum(weight[path] for path in some) + theirs[port]
                    shares.append((min(free[port] / all_weights, limit.ceiling if limit else math.inf), port))
            level, port = min(shares)
            for path in users[port]:
                rate[path] = level * weight[path]
                unfixed.discard(path)
                for crossed in case.paths[path]:
                    free[crossed] -= rate[path]
        then = min([now + queues[path][0][1] / rate[path] for path in active] + [at for at, *_ in pending[:1]] + [until])
        for path in active:
            queues[path][0][1] -= rate[path] * (then - now)
        now = then
        ended = [path for path in active if queues[path][0][1] <= 1e-9]
        for path in ended:
            ends[int(queues[path].pop(0)[0])] = now
            if queues[path]:
                to_front(path)
        for before in [number for number, end in ends.items() if end == now]:
            for number in after.pop(before, []):
                send(number, *case.messages[number][1:])
        while pending and pending[0][0] <= now + 1e-15:
            send(*pending.pop(0)[1:])
        if case.at_a_time is not None:
            waiting = [path for path in queues if queues[path] and not begun[path]]
            for path in sorted(waiting, key=lambda path: (queues[path][0][2], queues[path][0][0])):
                others = [case.ends[other] for other in queues if queues[other] and begun[other]]
                sending, receiving = (sum(ends[side] == case.ends[path][side] for ends in others) for side in (0, 1))
                begun[path] = sending < case.at_a_time and receiving < case.at_a_time
    return ends


def simulated(case: Case, *, ample: bool = False) -> tuple[dict[int, float], list[Port], Kernel]:
    """When each message ends; the ports and the kernel afterwards."""
    kernel = Kernel()
    transport = None
    if case.at_a_time is not None:
        transport = Transport(discipline="streams", streams=case.at_a_time)
    network = Network(kernel, transport)
    if case.draws:
        network._weights, network._begins_anew = iter(case.draws), True
    limits = case.limits or [None] * len(case.capacities)
    ports = [Port(str(number), *each) for number, each in enumerate(zip(case.capacities, limits, strict=True))]
    if case.trace:
        at_s, left, beside = (np.array(column, dtype=float) for column in zip(*case.trace, strict=True))
        for port in case.used:
            ports[port].leave(left[0], beside[0])
        network.follow(ports, Changes(np.array(case.used), at_s, left, beside, case.repeat_s))
    hosts = [Host(str(number), case.at_a_time) for number in range(1 + max((max(pair) for pair in case.ends), default=-1))]
    connections = []
    for number, path in enumerate(case.paths):
        source, target = (hosts[side] for side in case.ends[number]) if case.ends else (None, None)
        weight = case.weights[number] if case.weights else 1.0
        connections.append(Connection(tuple(ports[port] for port in path), 0.0, source=source, target=target, weight=weight))
    if ample:
        leave_out_ample(connections)
    answers = {number for numbers in case.after.values() for number in numbers}
    ends: dict[int, float] = {}

    def begin(number: int, path: int, size: float) -> None:
        network.send(connections[path], size, lambda _: end(number))

    def end(number: int) -> None:
        ends[number] = kernel.now
        for answer in case.after.get(number, []):
            begin(answer, *case.messages[answer][1:])

    for number, (at, path, size) in sorted(enumerate(case.messages), key=lambda entry: entry[1][0]):
        if number in answers:
            continue
        kernel.call_later(at, lambda _, number=number, path=path, size=size: begin(number, path, size))
    kernel.run()
    return ends, ports, kernel


def random_case(chance: random.Random, *, ties: bool = True) -> Case:
    """A small random network; with ties, equal times and sizes are common."""
    capacities = [chance.choice([1, 1, 2, 3.5, 10]) for _ in range(chance.randint(2, 7))]
    paths = [tuple(chance.sample(range(len(capacities)), chance.randint(1, min(3, len(capacities))))) for _ in range(chance.randint(1, 14))]

    def at() -> float:
        return chance.choice([0, 0, 1, chance.uniform(0, 20)]) if ties else chance.choice([0, chance.uniform(0, 20)])

    def size() -> float:
        return chance.choice([1, 5, chance.uniform(0.1, 10)]) if ties else chance.uniform(0.1, 10)

    return Case(capacities, paths, [(at(), chance.randrange(len(paths)), size()) for _ in range(chance.randint(1, 50))])


def compare(case: Case, *, ample: bool = False) -> None:
    ends, ports, kernel = simulated(case, ample=ample)
    want = naive(case)
    assert ends.keys() == want.keys()
    for number, end in want.items():
        assert ends[number] == pytest.approx(end, rel=1e-8)
    for number, port in enumerate(ports):
        sent = sum(size for _, path, size in case.messages if number in case.paths[path])
        assert port.carried == pytest.approx(sent, rel=1e-12)
        assert port.busy_until(kernel.now) <= kernel.now * (1 + 1e-12)
        assert port.owned == port.load == port.beside
        assert case.trace or not port.beside
        assert not port.active


@each("seed", seeds(600))
def test_random_networks(seed):
    compare(random_case(random.Random(seed)))


@each("seed", seeds(300))
def test_without_ports_that_never_fill(seed):
    compare(random_case(random.Random(seed)), ample=True)


@each("seed", seeds(400))
def test_messages_sent_the_moment_another_ends(seed):
    """Coming and going in one instant: several connections leave a port, and others enter it."""
    chance = random.Random(seed)
    case = random_case(chance)
    for number in range(1, len(case.messages)):
        if chance.random() < 0.7:
            case.after.setdefault(chance.randrange(number), []).append(number)
            # on a connection of its own: the order of two answers on one would be a matter of rounding
            _, path, size = case.messages[number]
            case.messages[number] = (0.0, len(case.paths), size)
            case.paths.append(case.paths[path])
    case.weights = [chance.choice([1.0, 2.0]) for _ in case.paths] if chance.random() < 0.5 else []
    compare(case, ample=chance.random() < 0.3)


@each("seed", seeds(300))
def test_weights_of_connections(seed):
    chance = random.Random(seed)
    case = random_case(chance)
    case.weights = [exact_weight(chance.choice([1.0, 0.5, 3.0, chance.lognormvariate(0.0, 2.0)])) for _ in case.paths]
    compare(case)


@each("seed", seeds(300))
def test_a_weight_for_each_message(seed):
    chance = random.Random(seed)
    case = random_case(chance, ties=False)
    case.draws = [exact_weight(chance.lognormvariate(0.0, 1.5)) for _ in case.messages]
    case.ends = [(0, 1) for _ in case.paths]
    compare(case)


@each("seed", seeds(300))
def test_caps_and_incast(seed):
    chance = random.Random(seed)
    case = random_case(chance)
    cap = chance.choice([math.inf, 0.3, 1.0, 2.5])
    different = chance.random() < 0.5
    ample = chance.random() < 0.3
    case.limits = [
        chance.choice(
            [None, Limits(chance.choice([cap, 0.7, 4.0]) if different else cap, chance.choice([0.0, 0.1, 1.0]), chance.randint(1, 3))]
        )
        for _ in case.capacities
    ]
    if chance.random() < 0.3:
        case.weights = [exact_weight(chance.lognormvariate(0.0, 1.0)) for _ in case.paths]
    compare(case, ample=ample)


@each("seed", seeds(500))
def test_what_others_take(seed):
    """At a constant rate, shared fairly with their flows, or as a trace has it; beside caps and weights."""
    chance = random.Random(seed)
    case = random_case(chance)
    case.used = chance.sample(range(len(case.capacities)), chance.randint(1, len(case.capacities)))
    points = chance.choice([1, 1, 2, 3, 6])
    times = [0.0, *sorted(chance.sample(range(1, 20), points - 1))]
    case.trace = [(at, chance.choice([1.0, 0.5, 0.25, chance.uniform(0.05, 1)]), chance.choice([0, 0, 1, 2, 5])) for at in times]
    if points > 1 and chance.random() < 0.5:
        case.repeat_s = times[-1] + chance.choice([1, 2.5])
    if chance.random() < 0.3:
        case.weights = [exact_weight(chance.lognormvariate(0.0, 1.0)) for _ in case.paths]
    if chance.random() < 0.3:
        case.limits = [chance.choice([None, Limits(chance.choice([0.3, 1.0]), chance.choice([0.0, 0.1]))]) for _ in case.capacities]
    compare(case, ample=chance.random() < 0.5)


@each("seed", seeds(400))
def test_so_many_messages_at_a_time(seed):
    chance = random.Random(seed)
    case = random_case(chance, ties=False)
    case.at_a_time = chance.choice([1, 1, 2, 3])
    hosts = chance.randint(2, 6)
    case.ends = [tuple(chance.sample(range(hosts), 2)) for _ in case.paths]
    if chance.random() < 0.3:
        case.draws = [exact_weight(chance.lognormvariate(0.0, 1.0)) for _ in case.messages]
    compare(case)


def test_latency_delays_but_does_not_occupy():
    kernel = Kernel()
    network = Network(kernel)
    port = Port("wire", 10.0)
    connection = Connection((port,), 3.0)
    ends: list[float] = []
    network.send(connection, 10.0, lambda _: ends.append(kernel.now))
    network.send(connection, 20.0, lambda _: ends.append(kernel.now))
    kernel.run()
    assert ends == [4.0, 6.0]
