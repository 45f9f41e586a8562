"""Laws that hold for every network, over random ones: capacity, fairness, conservation, scale, repeatability."""

from __future__ import annotations

import math
import random
from functools import partial

import numpy as np
import pytest
from support.looping import each
from support.network import Limits, Network
from support.sampling import seeds

from simulator.engine.draws import _weights
from simulator.spec.transport import Transport

DISCIPLINES = (
    {},
    {"discipline": "in-order"},
    {"discipline": "streams", "streams": 2},
    {"discipline": "weighted", "weight_sigma": 1.0},
    {"discipline": "weighted", "weight_sigma": 1.0, "weights_of": "transfer"},
)


class Star:
    """Random messages between random hosts of a star, with everything that a transport may add.

    Parameters
    ----------
    seed
        Chooses all of it.
    scale
        Rates are multiplied by it, times divided; a power of two, so that nothing is rounded.
    """

    def __init__(self, seed: int, scale: float = 1.0) -> None:
        chance = random.Random(seed)
        work_s = chance.choice([0.0, 0.0, 0.01]) / scale
        self.transport = transport = Transport(**chance.choice(DISCIPLINES), cpu_per_message_s=work_s)
        ceiling = chance.choice([math.inf, math.inf, 4.0]) * scale if transport.weight_sigma is None else math.inf
        self.limits = Limits(ceiling, chance.choice([0.0, 0.0, 0.1]), chance.randint(1, 3))
        self.hosts = count = chance.randint(2, 8)
        rates = [chance.choice([5.0, 10.0, 10.0]) * scale for _ in range(count)]
        works = [18.0 * scale] * count if chance.random() < 0.3 else []
        self.ends = [tuple(chance.sample(range(count), 2)) for _ in range(chance.randint(1, 20))]
        latency_s = chance.choice([0.0, 0.25]) / scale
        weights = None if transport.weight_sigma is None else _weights(transport.weight_sigma, np.random.default_rng(seed))
        self.network = network = Network(transport, weights, ample=chance.random() < 0.5)
        self.capacities = [*rates, *rates, *works]
        for number, rate in enumerate(self.capacities):
            network.port(rate, self.limits_of(number))
        self.paths = [[out, count + into, *(2 * count + end for end in (out, into) if works)] for out, into in self.ends]
        for path, ends in zip(self.paths, self.ends, strict=True):
            network.path(path, latency_s, *ends)
        self.arrivals: list[tuple[int, float]] = []
        self.sent: list[tuple[int, float]] = []  # on which path, how many bytes
        self.sent_s: list[float] = []
        for number in range(chance.randint(1, 80)):
            self._send_at(chance.choice([0.0, 1.0, chance.uniform(0.0, 20.0)]) / scale, chance.randrange(len(self.ends)), number, chance)

    def limits_of(self, port: int) -> Limits:
        """Of a port: there are those out of hosts, into them, and of their work, in this order."""
        return self.limits if self.hosts <= port < 2 * self.hosts else Limits()

    def _send_at(self, at_s: float, path: int, number: int, chance: random.Random) -> None:
        size = chance.choice([1.0, 8.0, chance.uniform(0.1, 20.0)])
        self.sent.append((path, size))
        self.sent_s.append(at_s)
        self.network.at(at_s, partial(self.network.send, path, size, lambda: self.arrivals.append((number, self.network.now))))

    def run(self) -> list[tuple[int, float]]:
        """Number of each message, and when it arrived, in that order."""
        self.network.run()
        return self.arrivals

    def check_now(self) -> None:
        """No port gives more than it has, and every active path has a bottleneck: full, or at its cap, and nobody there has more."""
        tables = self.network.state.tables
        paths = tables["connections"]
        active = np.flatnonzero(paths["owner"] >= 0)
        level = tables["ports"]["rate"][tables["incidences"]["port"][paths["owner"]]]
        rate = level * tables["sorts"]["weight"][paths["sort"]]
        held: set[int] = set()
        for port, capacity in enumerate(self.capacities):
            users = [path for path in active.tolist() if port in self.paths[path]]
            limits = self.limits_of(port)
            most = capacity / (1 + limits.incast_loss * max(len(users) - limits.incast_flows, 0))
            highest = level[users].max(initial=0.0)
            assert rate[users].sum() <= most * (1 + 1e-9)
            assert highest <= limits.ceiling * (1 + 1e-9)
            if rate[users].sum() >= most * (1 - 1e-9) or highest >= limits.ceiling * (1 - 1e-9):
                held.update(path for path in users if level[path] >= highest * (1 - 1e-9))
        assert held == set(active.tolist())
        if self.transport.at_a_time is not None:
            for side in (0, 1):
                begun = [self.ends[path][side] for path in active]
                assert all(begun.count(host) <= self.transport.at_a_time for host in begun)


@each("seed", seeds(200))
def test_no_port_is_ever_over_its_capacity_and_every_connection_has_a_bottleneck(seed):
    star = Star(seed)
    chance = random.Random(seed + 1)
    for _ in range(40):
        star.network.at(chance.uniform(0.0, 40.0), star.check_now)
    star.run()


@each("seed", seeds(200))
def test_every_byte_sent_arrives_once(seed):
    star = Star(seed)
    arrived = star.run()
    assert sorted(number for number, _ in arrived) == list(range(len(star.sent)))
    carried, busy_s, count = star.network.carried_bytes(), star.network.busy_s(), star.hosts
    for side in (0, 1):
        sent = [sum(size for path, size in star.sent if star.ends[path][side] == host) for host in range(count)]
        assert carried[side * count : (side + 1) * count] == pytest.approx(sent, rel=1e-12)
    assert (busy_s >= star.network.in_use_s() * (1 - 1e-9))[busy_s > 0].all()


@each("seed", seeds(100))
def test_messages_of_a_connection_arrive_in_order(seed):
    star = Star(seed)
    star.run()
    for connection in range(len(star.ends)):
        numbers = [number for number, _ in star.arrivals if star.sent[number][0] == connection]
        assert numbers == sorted(numbers, key=lambda number: (star.sent_s[number], number))


@each("seed", seeds(200))
def test_twice_the_rates_and_half_the_latencies_halve_every_time(seed):
    """Exactly: a factor of two is not rounded."""
    assert [(number, 2.0 * at_s) for number, at_s in Star(seed, scale=2.0).run()] == Star(seed).run()


@each("seed", seeds(50))
def test_runs_repeat_also_in_slices(seed):
    star, again, sliced = Star(seed), Star(seed), Star(seed)
    sliced.network.most_things = 3
    assert star.run() == again.run() == sliced.run()
    assert star.network.events == again.network.events == sliced.network.events
