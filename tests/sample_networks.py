"""Small networks for tests of collectives: who shares which port with whom."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from simulator.cluster import Cluster, Link
from simulator.collectives import ByMessages, Collective, Group, collective_for
from simulator.kernel import Kernel
from simulator.network.flows import Network
from simulator.network.ports import Connection, Port

INTER = (1e9, 20e-6)
INTRA = (3e9, 5e-6)

Connect = Callable[[int, int], Connection]


def switched(per_node: int = 1, inter: tuple[float, float] = INTER, intra: tuple[float, float] = INTRA, rates: Sequence[float] = ()):
    """Each node one port in each direction, each device one inside its node; ``rates``: of the nodes, in place of ``inter``'s."""

    def fresh() -> Connect:
        ports: dict[str, Port] = {}

        def port(name: str, capacity: float) -> Port:
            return ports.setdefault(name, Port(name, capacity))

        def connect(source: int, target: int) -> Connection:
            here, there = source // per_node, target // per_node
            if here == there:
                return Connection((port(f"device {source} out", intra[0]), port(f"device {target} in", intra[0])), intra[1])
            out, into = (rates[here], rates[there]) if rates else (inter[0], inter[0])
            return Connection((port(f"node {here} out", out), port(f"node {there} in", into)), inter[1])

        connect.ports = ports
        return connect

    return fresh


def meshed(link: Callable[[int, int], tuple[float, float]] = lambda *_: INTER):
    """Every pair a link of its own in each direction; ``link`` gives its rate and latency."""

    def fresh() -> Connect:
        ports: dict[tuple[int, int], Port] = {}

        def connect(source: int, target: int) -> Connection:
            rate, latency_s = link(source, target)
            return Connection((ports.setdefault((source, target), Port(f"{source}-{target}", rate)),), latency_s)

        connect.ports = ports
        return connect

    return fresh


CLUSTER = Cluster(name="lab", inter_node=Link(bandwidth_bytes_per_s=INTER[0], latency_s=INTER[1]))


def grouped(algorithm: str, group: Group, fresh, protocol: str = "none", chunk_bytes: float = 512 * 1024.0, **more: Any) -> Collective:
    """A collective of any group; ``more``: operation, root, groups beside it."""
    return collective_for(algorithm, protocol, CLUSTER, group, fresh(), fresh, chunk_bytes, **more)


def collective(
    algorithm: str, ranks: int, fresh, per_node: int = 1, protocol: str = "none", chunk_bytes: float = 512 * 1024.0
) -> Collective:
    return collective_for(algorithm, protocol, CLUSTER, Group.in_order(ranks, per_node), fresh(), fresh, chunk_bytes)


def by_messages(some: Collective, ready_s: np.ndarray, size_bytes: float) -> np.ndarray:
    """When each rank has the result, every message simulated."""
    kernel, plan = Kernel(), some.plan(size_bytes)
    run = ByMessages(kernel, Network(kernel), [plan], [size_bytes], connect=plan.wire.fresh())
    finish_s = np.full(len(ready_s), np.nan)
    for rank, at_s in enumerate(ready_s.tolist()):
        run.finished(rank).callbacks.append(lambda _, rank=rank: finish_s.__setitem__(rank, kernel.now))
        kernel.call_later(at_s, lambda _, rank=rank: run.ready(rank, 0))
    kernel.run()
    return finish_s
