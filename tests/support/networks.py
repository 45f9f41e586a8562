"""Small networks for tests of collectives: who shares which port with whom."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from simulator.base.log import Log
from simulator.base.rng import Streams
from simulator.collectives.collective import Collective
from simulator.collectives.exchanges import Plan, exchanges_of
from simulator.collectives.factory import collective_for
from simulator.collectives.message_level import MessageLevel
from simulator.collectives.wire import Group
from simulator.network.flows import Network
from simulator.network.hosts import Host
from simulator.network.kernel import Kernel
from simulator.network.objects import network_of
from simulator.network.ports import Connection, Port, leave_out_ample
from simulator.program.program import Hosts, Paths, Ports
from simulator.program.wiring import Wiring
from simulator.scenario import Scenario
from simulator.spec.cluster import Cluster, Link

INTER = (1e9, 20e-6)
INTRA = (3e9, 5e-6)

Way = tuple[list[tuple[str, float]], float]
"""Names and capacities of ports, and a latency."""


class Cabling:
    """Connections whose ports a function names."""

    def __init__(self, way: Callable[[int, int], Way]) -> None:
        self._way = way
        self._ways: list[Way] = []

    def between_replicas(self, source, target, added_s=0.0):
        first = len(self._ways)
        for one, other, more_s in np.broadcast(source, target, added_s):
            ports, latency_s = self._way(int(one), int(other))
            self._ways.append((ports, latency_s + float(more_s)))
        return np.arange(first, len(self._ways))

    def tables(self):
        capacities = {name: capacity for ports, _ in self._ways for name, capacity in ports}
        number = {name: at for at, name in enumerate(capacities)}
        count, paths = len(capacities), len(self._ways)
        ports = Ports(
            np.array(list(capacities.values())), np.full(count, np.inf), np.zeros(count), np.ones(count, dtype=int), list(capacities)
        )
        crossed = [number[name] for its, _ in self._ways for name, _ in its]
        first = np.concatenate([[0], np.cumsum([len(its) for its, _ in self._ways], dtype=int)])
        latency_s = np.array([latency_s for _, latency_s in self._ways])
        none = np.full(paths, -1)
        return ports, count, Paths(first, np.array(crossed, dtype=int), latency_s, none, none, np.zeros(paths, dtype=bool)), Hosts(0, ())


def switched(per_node: int = 1, inter: tuple[float, float] = INTER, intra: tuple[float, float] = INTRA, rates: Sequence[float] = ()):
    """Each node one port in each direction, each device one inside its node; ``rates``: of the nodes, in place of ``inter``'s."""

    def way(source: int, target: int) -> Way:
        here, there = source // per_node, target // per_node
        if here == there:
            return [(f"device {source} out", intra[0]), (f"device {target} in", intra[0])], intra[1]
        out, into = (rates[here], rates[there]) if rates else (inter[0], inter[0])
        return [(f"node {here} out", out), (f"node {there} in", into)], inter[1]

    return lambda: Cabling(way)


def meshed(link: Callable[[int, int], tuple[float, float]] = lambda *_: INTER):
    """Every pair a link of its own in each direction; ``link`` gives its rate and latency."""

    def way(source: int, target: int) -> Way:
        rate, latency_s = link(source, target)
        return [(f"{source}-{target}", rate)], latency_s

    return lambda: Cabling(way)


def wiring_of(scenario: Scenario, replication: int = 0) -> Wiring:
    """The network of a scenario, without connections."""
    layout = scenario.layout
    first_server_node = layout.worker_nodes if layout.server_nodes else 0
    streams = Streams(scenario.run.seed, replication)
    return Wiring(scenario.cluster, streams, first_server_node=first_server_node, client_node=layout.client_node)


class Messages:
    """Messages between replicas of a scenario, whose connections are made when all are known.

    ``apart``: each has a connection of its own; else those between the same two have one.
    """

    def __init__(self, kernel: Kernel, network: Network, scenario: Scenario, *, apart: bool = False) -> None:
        self.kernel = kernel
        self.connections: list[Connection] = []
        self.hosts: list[Host] = []
        self._network = network
        self._scenario = scenario
        self._apart = apart
        self._sends: list[tuple[int, int, float, Callable[[], None], float, bool]] = []

    def send(self, source: int, target: int, size: float, done: Callable[[], None], at_s: float = 0.0, *, asked_for: bool = False) -> None:
        self._sends.append((source, target, size, done, at_s, asked_for))

    def run(self) -> None:
        pairs = [(source, target) for source, target, *_ in self._sends]
        if not self._apart:
            pairs = list(dict.fromkeys(pairs))
        wiring = wiring_of(self._scenario)
        wiring.between_replicas(*np.array(pairs).T)
        ports, _, paths, hosts = wiring.tables()
        _, self.connections, self.hosts = network_of(ports, paths, hosts, self._scenario.cluster.transport.at_a_time)
        for number, (source, target, size, done, at_s, asked_for) in enumerate(self._sends):
            connection = self.connections[number if self._apart else pairs.index((source, target))]
            connection.asked_for = asked_for
            self.kernel.call_later(at_s, lambda _, send=(connection, size, lambda _, done=done: done()): self._network.send(*send))
        self.kernel.run()


CLUSTER = Cluster(name="lab", inter_node=Link(bandwidth_bytes_per_s=INTER[0], latency_s=INTER[1]))


def grouped(algorithm: str, group: Group, fresh, protocol: str = "none", chunk_bytes: float = 512 * 1024.0, **more: Any) -> Collective:
    """A collective of any group; ``more``: operation, root, groups beside it."""
    return collective_for(algorithm, protocol, CLUSTER, group, fresh, chunk_bytes, **more)


def collective(
    algorithm: str, ranks: int, fresh, per_node: int = 1, protocol: str = "none", chunk_bytes: float = 512 * 1024.0
) -> Collective:
    return collective_for(algorithm, protocol, CLUSTER, Group.in_order(ranks, per_node), fresh, chunk_bytes)


def running(
    kernel: Kernel, of_groups: Sequence[Sequence[Plan]], sizes: Sequence[float], observer=None, ended=None
) -> tuple[list[MessageLevel], list[Port]]:
    """Every message of some groups, each with a plan for each bucket, on one network; ``ended``: told group, rank and number."""
    cabling = of_groups[0][0].wire.fresh()
    exchanges = [exchanges_of(cabling, plans, sizes) for plans in of_groups]
    ports, _, paths, hosts = cabling.tables()
    objects, connections, _ = network_of(ports, paths, hosts)
    leave_out_ample(connections)
    network, log = Network(kernel), Log(observer) if observer is not None else None

    def tell(group: int):
        return None if ended is None else lambda rank, number: ended(group, rank, number)

    runs = [
        MessageLevel(kernel, network, its, connections, plans[0].wire.group.ranks, log, ended=tell(group))
        for group, (its, plans) in enumerate(zip(exchanges, of_groups, strict=True))
    ]
    return runs, objects


def by_messages(some: Collective, ready_s: np.ndarray, size_bytes: float) -> np.ndarray:
    """When each rank has the result, every message simulated."""
    kernel = Kernel()
    finish_s = np.full(len(ready_s), np.nan)
    (run,), _ = running(kernel, [[some.plan(size_bytes)]], [size_bytes], ended=lambda _, rank, __: finish_s.__setitem__(rank, kernel.now))
    for rank, at_s in enumerate(ready_s.tolist()):
        kernel.call_later(at_s, lambda _, rank=rank: run.ready(rank, 0))
    kernel.run()
    return finish_s
