"""Small networks for tests of collectives: who shares which port with whom."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from simulator.base.records import Log, Observer
from simulator.base.rng import Streams
from simulator.collectives.collective import Collective, pieces_of
from simulator.collectives.factory import collective_for
from simulator.collectives.wire import Group, Plan, exchanges_of
from simulator.engine.draws import NothingDrawn, _weights
from simulator.engine.production import compiled as production
from simulator.engine.production.tables import Simulation
from simulator.engine.recorder import Recorder
from simulator.engine.textbook.clock import Going
from simulator.engine.textbook.engine import Training
from simulator.engine.textbook.links import _Port
from simulator.engine.textbook.worker import Step, Worker
from simulator.engine.trial import trial_program
from simulator.program.program import Floats, Hosts, Operation, Paths, Ports, Program, Routine
from simulator.program.schedule import ALGORITHMS, Await, Lane, Schedule
from simulator.program.wiring import Wiring
from simulator.scenario import Scenario
from simulator.spec.cluster import Cluster, Link
from support.network import Network

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
    """Messages between replicas of a scenario, whose paths are laid when all are known.

    ``apart``: each has a path of its own; else those between the same two have one. ``seed``: of random weights.
    """

    def __init__(self, scenario: Scenario, *, apart: bool = False, seed: int = 1) -> None:
        cluster, sigma = scenario.cluster, scenario.cluster.transport.weight_sigma
        weights = None if sigma is None else _weights(sigma, np.random.default_rng(seed))
        cores = None if cluster.shared_cores is None else (cluster.shared_cores, cluster.time_slice_s)
        self.network = Network(cluster.transport, weights, cores)
        self.ends: dict[Any, float] = {}
        self._scenario, self._apart = scenario, apart
        self._sends: list[tuple[Any, tuple[int, int], float, float, bool]] = []

    def send(self, name: Any, source: int, target: int, size_bytes: float, at_s: float = 0.0, *, asked_for: bool = False) -> None:
        self._sends.append((name, (source, target), size_bytes, at_s, asked_for))

    def run(self) -> dict[Any, float]:
        """When each has arrived, in that order."""
        pairs = [pair for _, pair, *_ in self._sends]
        if not self._apart:
            pairs = list(dict.fromkeys(pairs))
        wiring = wiring_of(self._scenario)
        wiring.between_replicas(*np.array(pairs).T)
        ports, _, paths, self._hosts = wiring.tables()
        answers = np.zeros(len(pairs), dtype=bool)
        for number, (name, pair, size_bytes, at_s, asked_for) in enumerate(self._sends):
            path = number if self._apart else pairs.index(pair)
            answers[path] = asked_for
            self.network.at(at_s, partial(self.network.send, path, size_bytes, partial(self._end, name)))
        self.network.lay(ports, replace(paths, asked_for=answers), self._hosts.count)
        self.network.run()
        return self.ends

    def _end(self, name: Any) -> None:
        self.ends[name] = self.network.now

    def hosts_in_use_s(self) -> dict[str, float]:
        """Of each host by its name, up to now."""
        return dict(zip(map(str, self._hosts.names), self.network.hosts_in_use_s().tolist(), strict=True))


CLUSTER = Cluster(name="lab", inter_node=Link(bandwidth_bytes_per_s=INTER[0], latency_s=INTER[1]))


PAIRS = [(operation, name) for operation, names in ALGORITHMS.items() for name in names]
"""Every operation of collectives with every algorithm for it."""


CHAINS = [("broadcast", "ring"), ("reduce", "ring")]
"""What no strategy does; its messages go one way, so that no two of them meet at a host in one instant."""


@lru_cache
def chain_schedule(ranks: int, pieces: int, operation: str = "broadcast", root: int = 0) -> Schedule:
    """A broadcast from the root, or a reduction to it: each piece goes on as soon as it has come and the next rank has entered."""
    order = [((root if operation == "broadcast" else root + 1) + place) % ranks for place in range(ranks)]
    lanes: dict[int, tuple[Lane, ...]] = {}
    for place, (source, target) in enumerate(pairwise(order)):
        awaits = (Await(order[place - 1], 0, 1, 1),) if place else ()
        lanes[source] = (Lane(source, target, 0, pieces, 1, (0).__add__, pieces if operation == "reduce" else 0, awaits, ()),)
    return Schedule(ranks, pieces, lambda rank: lanes.get(rank, ()))


def plan_of(
    operation: Any, algorithm: str, protocol: str, cluster: Cluster, group: Group, fresh: Any, chunk_bytes: float, size_bytes: float,
    root: int = 0,
) -> Plan:  # fmt: skip
    """The messages of an operation, those of :data:`CHAINS` included."""
    if (operation, algorithm) not in CHAINS:
        return collective_for(algorithm, protocol, cluster, group, fresh, chunk_bytes, operation=operation).plan(size_bytes)
    wire = collective_for("ring", protocol, cluster, group, fresh, chunk_bytes).plan(size_bytes).wire
    return Plan(chain_schedule(len(group), pieces_of(size_bytes, 1, chunk_bytes), operation, root), wire)


def grouped(algorithm: str, group: Group, fresh, protocol: str = "none", chunk_bytes: float = 512 * 1024.0, **more: Any) -> Collective:
    """A collective of any group; ``more``: operation, groups beside it."""
    return collective_for(algorithm, protocol, CLUSTER, group, fresh, chunk_bytes, **more)


def collective(
    algorithm: str, ranks: int, fresh, per_node: int = 1, protocol: str = "none", chunk_bytes: float = 512 * 1024.0
) -> Collective:
    return collective_for(algorithm, protocol, CLUSTER, Group.in_order(ranks, per_node), fresh, chunk_bytes)


def running(
    of_groups: Sequence[Sequence[Plan]],
    sizes: Sequence[float],
    ready_s: Sequence[Floats] | None = None,
    observer: Observer | None = None,
    *,
    witnessed: bool = True,
) -> tuple[list[Floats], list[_Port]]:
    """When each rank of each group has ended each bucket, shape (buckets, ranks), every message simulated; the ports, as they end.

    ``of_groups``: of each a plan for each bucket. ``ready_s``: of each, when each rank has each bucket's data, shape (buckets, ranks);
    left out: all at 0. The textbook engine says so, and the production engine, which the observer listens to, must say the same;
    ``witnessed=False``: the production engine alone, which takes a hundredth of the time where messages are many.
    """
    wires = [plans[0].wire for plans in of_groups]
    cabling = wires[0].fresh()
    exchanges = [its for number, plans in enumerate(of_groups) for its in exchanges_of(cabling, plans, sizes, number)]
    ports, links, paths, hosts = cabling.tables()
    # numbered without gaps
    numbers = np.unique(np.concatenate([wire.group.numbers for wire in wires]), return_inverse=True)[1]
    groups = np.split(numbers, np.cumsum([len(wire.group) for wire in wires])[:-1])
    count = len(numbers)
    data_s = np.zeros((count, len(sizes)))
    if ready_s is not None:
        data_s[numbers] = np.concatenate(ready_s, axis=1).T
    plain = trial_program(collective("ring", count, meshed()).plan(0.0), 0.0)
    program = replace(
        plain, ports=ports, links=links, paths=paths, hosts=hosts, groups=tuple(groups), exchanges=tuple(exchanges),
        routines=tuple(map(_routine, data_s)), ranks=replace(plain.ranks, routine=np.arange(count)),
    )  # fmt: skip
    draws = NothingDrawn(data_s[:, 0])
    draws.forward_s = np.broadcast_to(1.0, count)
    kept: dict[bool, Simulation] = {}
    log = None if observer is None else Log(observer)
    production.run(program, draws, _recorder(count), None, 1, log, kept=kept)
    end_s = kept[observer is not None].finished_s
    if not witnessed:
        return [end_s[:, group] for group in groups], []
    witness = _Witness(program, draws)
    witness.run()
    assert end_s == pytest.approx(witness.end_s, rel=1e-9)
    return [witness.end_s[:, group] for group in groups], witness.ports


def _routine(data_s: Floats) -> Routine:
    """A collective for each bucket, when a compute has ended that lasts until the rank has its data."""
    operations = [Operation(kind="gate", name="turn")]
    for bucket, lasts_s in enumerate(np.diff(data_s, prepend=data_s[0]).tolist()):
        operations.append(Operation(kind="compute", name="forward", after=(0,), forward=lasts_s))
        operations.append(Operation(kind="collective", name=str(bucket), after=(len(operations) - 1,), bucket=bucket))
    return Routine(tuple(operations))


def _recorder(ranks: int) -> Recorder:
    """Of one step of each rank."""
    return Recorder(ranks, 0, ranks, apart=False)


class _Witness(Training):
    """The textbook engine; keeps when each rank ends each bucket."""

    def __init__(self, program: Program, draws: NothingDrawn) -> None:
        super().__init__(program, draws, _recorder(draws.ranks), None, None, None)
        self.end_s = np.full((len(program.routines[0].operations) // 2, draws.ranks), np.nan)
        self.ports = self._links.ports

    def reduce(self, worker: Worker, step: Step, number: int, operation: Operation, cause: int) -> Going:
        cause = yield from super().reduce(worker, step, number, operation, cause)
        self.end_s[operation.bucket, worker.index] = self.clock.now
        return cause


def by_messages(some: Collective, ready_s: Floats, size_bytes: float, *, witnessed: bool = True) -> Floats:
    """When each rank of a group that is alone has ended, every message simulated."""
    (end_s,), _ = running([[some.plan(size_bytes)]], [size_bytes], [ready_s[None]], witnessed=witnessed)
    return end_s[0]
