"""Laws that hold for every network, over random ones: capacity, fairness, conservation, scale, names, repeatability."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from support.looping import each
from support.sampling import seeds

from simulator.network.flows import Network
from simulator.network.hosts import Host
from simulator.network.kernel import Kernel
from simulator.network.ports import Connection, Limits, Port, leave_out_ample
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
    prefix
        Of the names of ports and hosts.
    """

    def __init__(self, seed: int, scale: float = 1.0, prefix: str = "") -> None:
        chance = random.Random(seed)
        self.kernel = Kernel()
        work_s = chance.choice([0.0, 0.0, 0.01]) / scale
        self.transport = Transport(**chance.choice(DISCIPLINES), cpu_per_message_s=work_s)
        self.network = Network(self.kernel, self.transport, np.random.default_rng(seed))
        ceiling = chance.choice([math.inf, math.inf, 4.0]) * scale if self.transport.weight_sigma is None else math.inf
        limits = Limits(ceiling, chance.choice([0.0, 0.0, 0.1]), chance.randint(1, 3))
        count = chance.randint(2, 8)
        hosts = [Host(f"{prefix}{number}", self.transport.at_a_time) for number in range(count)]
        rates = [chance.choice([5.0, 10.0, 10.0]) * scale for _ in range(count)]
        self.out = [Port(f"{prefix}{number} out", rate) for number, rate in enumerate(rates)]
        self.into = [Port(f"{prefix}{number} in", rate, limits) for number, rate in enumerate(rates)]
        cpu = [Port(f"{prefix}{number} cpu", 18.0 * scale) for number in range(count)] if chance.random() < 0.3 else None
        self.ports = [*self.out, *self.into, *(cpu or ())]
        self.ends = [tuple(chance.sample(range(count), 2)) for _ in range(chance.randint(1, 20))]
        latency_s = chance.choice([0.0, 0.25]) / scale
        self.connections = []
        for source, target in self.ends:
            path = (self.out[source], self.into[target], *((cpu[source], cpu[target]) if cpu else ()))
            self.connections.append(Connection(path, latency_s, source=hosts[source], target=hosts[target]))
        if chance.random() < 0.5:
            leave_out_ample(self.connections)
        self.arrivals: list[tuple[int, float]] = []
        self.sent: list[tuple[int, float]] = []  # on which connection, how many bytes
        self.sent_s: list[float] = []
        for number in range(chance.randint(1, 80)):
            self._send_at(chance.choice([0.0, 1.0, chance.uniform(0.0, 20.0)]) / scale, chance.randrange(len(self.ends)), number, chance)

    def _send_at(self, at_s: float, connection: int, number: int, chance: random.Random) -> None:
        size = chance.choice([1.0, 8.0, chance.uniform(0.1, 20.0)])
        self.sent.append((connection, size))
        self.sent_s.append(at_s)
        self.kernel.call_later(
            at_s,
            lambda _: self.network.send(self.connections[connection], size, lambda _: self.arrivals.append((number, self.kernel.now))),
        )

    def run(self) -> list[tuple[int, float]]:
        """Number of each message, and when it arrived, in that order."""
        self.kernel.run()
        return self.arrivals

    def check_now(self) -> None:
        """No port gives more than it has, and every active connection has a bottleneck."""
        rates = {
            connection: connection.bottleneck.rate * connection.weight
            for connection in self.connections
            if connection.bottleneck is not None
        }
        flows = {port: [connection for connection in rates if port in connection.shared] for port in self.ports}
        for port, users in flows.items():
            crossing = [connection for connection in rates if port in connection.ports]
            if not users:  # it may have been left out as ample, and must then be
                assert sum(rates[connection] for connection in crossing) <= port.capacity * (1 + 1e-9)
                continue
            assert set(users) == set(port.active)
            assert sum(rates[connection] for connection in users) <= port.available() * (1 + 1e-9)
            assert all(rates[connection] <= port.most(connection.weight) * (1 + 1e-9) for connection in users)
        for connection in rates:
            owner = connection.bottleneck
            highest = max(rates[other] / other.weight for other in flows[owner])
            full = sum(rates[other] for other in flows[owner]) >= owner.available() * (1 - 1e-9)
            capped = owner.limits is not None and owner.rate >= owner.limits.ceiling * (1 - 1e-9)
            assert full or capped
            assert owner.rate >= highest * (1 - 1e-9)
        if self.transport.at_a_time is not None:
            for side in (0, 1):
                begun = [ends[side] for ends, connection in zip(self.ends, self.connections, strict=True) if connection in rates]
                assert all(begun.count(host) <= self.transport.at_a_time for host in begun)


@each("seed", seeds(200))
def test_no_port_is_ever_over_its_capacity_and_every_connection_has_a_bottleneck(seed):
    star = Star(seed)
    chance = random.Random(seed + 1)
    for _ in range(40):
        star.kernel.call_later(chance.uniform(0.0, 40.0), lambda _: star.check_now())
    star.run()


@each("seed", seeds(200))
def test_every_byte_sent_arrives_once(seed):
    star = Star(seed)
    arrived = star.run()
    assert sorted(number for number, _ in arrived) == list(range(len(star.sent)))
    for host, (out, into) in enumerate(zip(star.out, star.into, strict=True)):
        assert out.carried == pytest.approx(sum(size for number, size in star.sent if star.ends[number][0] == host), rel=1e-12)
        assert into.carried == pytest.approx(sum(size for number, size in star.sent if star.ends[number][1] == host), rel=1e-12)
    assert all(port.busy_until(star.kernel.now) >= port.in_use_s(star.kernel.now) * (1 - 1e-9) for port in star.ports if port.busy_s)


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
def test_names_change_nothing_and_runs_repeat(seed):
    star = Star(seed)
    first = star.run()
    again, renamed = Star(seed), Star(seed, prefix="z")
    assert again.run() == first
    assert renamed.run() == first
    assert again.kernel.events == renamed.kernel.events == star.kernel.events
