"""The fair-sharing network against an independent, naive fluid simulation."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pytest
from support.looping import each
from support.network import Limits, Network
from support.sampling import seeds

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
            for path in sorted(waiting, key=lambda path: (queues[path][0][2], path)):
                others = [case.ends[other] for other in queues if queues[other] and begun[other]]
                sending, receiving = (sum(ends[side] == case.ends[path][side] for ends in others) for side in (0, 1))
                begun[path] = sending < case.at_a_time and receiving < case.at_a_time
    return ends


def simulated(
    case: Case, most_things: int | None = None, *, ample: bool = False, patience: int | None = None
) -> tuple[dict[int, float], Network]:
    """When each message ends; the network afterwards. ``most_things``: in slices of so many."""
    transport = Transport() if case.at_a_time is None else Transport(discipline="streams", streams=case.at_a_time)
    if case.draws:
        transport = transport.model_copy(update={"weight_sigma": 1.0})
    network = Network(transport, itertools.chain([np.array(case.draws)], itertools.repeat(np.ones(256))), ample=ample, patience=patience)
    if most_things is not None:
        network.most_things = most_things
    for capacity, limits in zip(case.capacities, case.limits or [None] * len(case.capacities), strict=True):
        network.port(capacity, limits)
    if case.trace:
        network.follow(Changes(np.array(sorted(case.used)), *np.array(case.trace, dtype=float).T, case.repeat_s))
    for number, crossed in enumerate(case.paths):
        network.path(crossed, 0.0, *(case.ends[number] if case.ends else ()), weight=case.weights[number] if case.weights else 1.0)
    answers = {number for numbers in case.after.values() for number in numbers}
    ends: dict[int, float] = {}

    def begin(number: int) -> None:
        _, path, size = case.messages[number]
        network.send(path, size, partial(end, number))

    def end(number: int) -> None:
        ends[number] = network.now
        for answer in case.after.get(number, []):
            begin(answer)

    for number in sorted(range(len(case.messages)), key=lambda number: case.messages[number][0]):
        if number not in answers:
            network.at(case.messages[number][0], partial(begin, number))
    network.run()
    return ends, network


def random_case(chance: random.Random, *, ties: bool = True) -> Case:
    """A small random network; with ties, equal times and sizes are common."""
    capacities = [chance.choice([1, 1, 2, 3.5, 10]) for _ in range(chance.randint(2, 7))]
    paths = [tuple(chance.sample(range(len(capacities)), chance.randint(1, min(3, len(capacities))))) for _ in range(chance.randint(1, 14))]

    def at() -> float:
        return chance.choice([0, 0, 1, chance.uniform(0, 20)]) if ties else chance.choice([0, chance.uniform(0, 20)])

    def size() -> float:
        return chance.choice([1, 5, chance.uniform(0.1, 10)]) if ties else chance.uniform(0.1, 10)

    return Case(capacities, paths, [(at(), chance.randrange(len(paths)), size()) for _ in range(chance.randint(1, 50))])


def compare(case: Case, **options) -> Network:
    """Ends as in the naive simulation; the network afterwards, of which nothing is left over."""
    ends, network = simulated(case, **options)
    want = naive(case)
    assert ends.keys() == want.keys()
    for number, end in want.items():
        assert ends[number] == pytest.approx(end, rel=1e-8)
    sent = [sum(size for _, path, size in case.messages if port in case.paths[path]) for port in range(len(case.capacities))]
    assert network.carried_bytes() == pytest.approx(sent, rel=1e-12)
    assert network.busy_s().max() <= network.now * (1 + 1e-12)
    state = network.state
    ports = state.tables["ports"][: int(state.s.ports_n)]
    assert not ports["active_n"].any()
    assert (ports["owned"] == ports["load"]).all()
    assert (ports["load"] == (state.tables["beside"]["x"][: len(ports)] if case.trace else 0.0)).all()
    return network


def exact(weight: float) -> float:
    """The nearest multiple of 2**-24, at least one: sums of such weights have no rounding."""
    return max(round(weight * 2**24), 1) / 2**24


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
    case.weights = [exact(chance.choice([1.0, 0.5, 3.0, chance.lognormvariate(0.0, 2.0)])) for _ in case.paths]
    compare(case)


@each("seed", seeds(300))
def test_a_weight_for_each_message(seed):
    chance = random.Random(seed)
    case = random_case(chance, ties=False)
    case.draws = [exact(chance.lognormvariate(0.0, 1.5)) for _ in case.messages]
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
        case.weights = [exact(chance.lognormvariate(0.0, 1.0)) for _ in case.paths]
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
        case.weights = [exact(chance.lognormvariate(0.0, 1.0)) for _ in case.paths]
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
        case.draws = [exact(chance.lognormvariate(0.0, 1.0)) for _ in case.messages]
    compare(case)


def varied_case(chance: random.Random) -> Case:
    """Weights, caps, incast and traces: some of them at a time."""
    case = random_case(chance)
    if chance.random() < 0.5:
        case.weights = [exact(chance.choice([1.0, 0.5, 3.0, chance.lognormvariate(0.0, 2.0)])) for _ in case.paths]
    if chance.random() < 0.5:
        case.limits = [chance.choice([None, Limits(chance.choice([math.inf, 0.4, 1.0]), 0.25)]) for _ in case.capacities]
    if chance.random() < 0.3:
        case.used = chance.sample(range(len(case.capacities)), chance.randint(1, len(case.capacities)))
        case.trace = [(at, chance.choice([1.0, 0.5, 0.7]), chance.choice([0, 0, 2])) for at in (0.0, 0.5, 3.0)]
        case.repeat_s = chance.choice([None, 3.5])
    return case


@pytest.mark.parametrize("patience", [0, 1])
def test_where_the_whole_component_is_shared_out_anew(patience):
    """Repairing the shares port by port hardly ever takes so long; here it may not take any longer."""
    filled = 0
    for seed in seeds(400):
        chance = random.Random(seed)
        network = compare(varied_case(chance), ample=chance.random() < 0.5, patience=patience)
        filled += network.state.tables["levels"]["stamp"].any()
    assert filled > 0


@each("seed", seeds(300))
def test_a_run_in_slices_is_the_same(seed):
    """To the last bit, after however few things Python looks at it."""
    chance = random.Random(seed)
    case = varied_case(chance)
    for number in range(1, len(case.messages)):
        if chance.random() < 0.3:
            case.after.setdefault(chance.randrange(number), []).append(number)
    if chance.random() < 0.5:
        case.at_a_time = chance.choice([None, 1, 2])
        case.draws = [exact(chance.lognormvariate(0.0, 0.5)) for _ in case.messages] if chance.random() < 0.5 else []
        case.ends = [tuple(chance.sample(range(4), 2)) for _ in case.paths]
    (whole, network), (sliced, again) = simulated(case), simulated(case, chance.randint(1, 20))
    assert list(sliced.items()) == list(whole.items())
    assert (again.now, again.events) == (network.now, network.events)
    assert again.carried_bytes().tolist() == network.carried_bytes().tolist()
    assert again.busy_s().tolist() == network.busy_s().tolist()


@pytest.mark.parametrize(
    ("capacity", "limits", "trace", "shared"),
    [
        (2.0, None, [], False),
        (1.9, None, [], True),
        (2.0, Limits(ceiling=0.9), [], True),  # a cap that no other port has
        (2.0, Limits(incast_loss=0.1), [], True),
        (2.0, None, [(0.0, 1.0, 1)], True),
        (2.0, None, [(0.0, 1.0, 0), (5.0, 0.9, 0)], True),
    ],
)
def test_a_port_that_can_never_be_full_is_not_shared(capacity, limits, trace, shared):
    """Two paths, each over a link of 1 byte/s of its own, meet at it."""
    case = Case([1.0, 1.0, capacity], [(0, 2), (1, 2)], [(0.0, 0, 1.0), (0.0, 1, 1.0)], [None, None, limits], used=[2], trace=trace)
    assert (compare(case, ample=True).busy_s()[2] > 0) == shared


def test_latency_delays_but_does_not_occupy():
    network = Network()
    path = network.path([network.port(10.0)], 3.0)
    ends: list[float] = []
    for size in (10.0, 20.0):
        network.send(path, size, lambda: ends.append(network.now))
    network.run()
    assert ends == [4.0, 6.0]
