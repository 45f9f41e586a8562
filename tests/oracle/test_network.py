"""The fair-sharing network against an independent, naive fluid simulation."""

from __future__ import annotations

import random

import pytest

from simulator.kernel import Kernel
from simulator.network import Network
from simulator.ports import Connection, Port


def naive(capacities: list[float], paths: list[tuple[int, ...]], messages: list[tuple[float, int, float]]) -> dict[int, float]:
    """When each message ends, every rate recomputed by progressive filling at every event."""
    pending = sorted((at, number, path, size) for number, (at, path, size) in enumerate(messages))
    queues: dict[int, list[list[float]]] = {path: [] for path in range(len(paths))}
    now, ends = 0.0, {}
    while pending or any(queues.values()):
        active = [path for path in queues if queues[path]]
        free, rate, unfixed = dict(enumerate(capacities)), {}, set(active)
        while unfixed:
            users = {port: [path for path in unfixed if port in paths[path]] for port in free}
            level, port = min((free[port] / len(some), port) for port, some in users.items() if some)
            for path in users[port]:
                rate[path] = level
                unfixed.discard(path)
                for crossed in paths[path]:
                    free[crossed] -= level
        then = min([now + queues[path][0][1] / rate[path] for path in active] + [at for at, *_ in pending[:1]])
        for path in active:
            queues[path][0][1] -= rate[path] * (then - now)
        now = then
        for path in active:
            if queues[path][0][1] <= 1e-9:
                ends[int(queues[path].pop(0)[0])] = now
        while pending and pending[0][0] <= now + 1e-15:
            _, number, path, size = pending.pop(0)
            queues[path].append([number, size])
    return ends


@pytest.mark.parametrize("seed", range(600))
def test_random_networks(seed):
    chance = random.Random(seed)
    capacities = [chance.choice([1, 1, 2, 3.5, 10]) for _ in range(chance.randint(2, 7))]
    paths = [tuple(chance.sample(range(len(capacities)), chance.randint(1, min(3, len(capacities))))) for _ in range(chance.randint(1, 14))]
    messages = [
        (chance.choice([0, 0, 1, chance.uniform(0, 20)]), chance.randrange(len(paths)), chance.choice([1, 5, chance.uniform(0.1, 10)]))
        for _ in range(chance.randint(1, 50))
    ]
    kernel = Kernel()
    network = Network(kernel)
    ports = [Port(str(number), capacity) for number, capacity in enumerate(capacities)]
    connections = [Connection(tuple(ports[port] for port in path), 0.0) for path in paths]
    ends: dict[int, float] = {}

    def begin(number: int, path: int, size: float) -> None:
        network.send(connections[path], size, lambda _: ends.__setitem__(number, kernel.now))

    for number, (at, path, size) in sorted(enumerate(messages), key=lambda entry: entry[1][0]):
        kernel.call_later(at, lambda _, number=number, path=path, size=size: begin(number, path, size))
    kernel.run()
    want = naive(capacities, paths, messages)
    assert ends.keys() == want.keys()
    for number, end in want.items():
        assert ends[number] == pytest.approx(end, rel=1e-8)
    for port, path_bytes in zip(ports, range(len(ports)), strict=True):
        sent = sum(size for _, path, size in messages if path_bytes in paths[path])
        assert port.carried == pytest.approx(sent, rel=1e-12)
        assert port.busy_until(kernel.now) <= kernel.now * (1 + 1e-12)


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
